"""Names of containers that lead nowhere, or to ourselves."""

from __future__ import annotations

import os

import pytest

from critpath.errors import UsageError
from critpath_marks.sessions import pid_namespace
from critpath_record.containers import resolve_container


@pytest.mark.parametrize("name", ["", " ", "99999999999999", "4294967295", "pid:[1]", "../etc"])
def test_names_of_nothing(name):
    with pytest.raises(UsageError):
        resolve_container(name)


def test_the_recorders_own_namespace_is_no_container():
    mine = pid_namespace()
    for name in (str(mine), f"pid:[{mine}]", str(os.getpid())):
        with pytest.raises(UsageError, match="the recorder"):
            resolve_container(name)
