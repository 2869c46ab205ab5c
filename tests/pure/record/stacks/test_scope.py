"""Whose stacks are wanted."""

from __future__ import annotations

import pytest

from critpath.errors import UsageError
from critpath_record.stacks.sources import find_scope


def test_a_command_has_its_own_unless_the_machine_is_asked_for():
    assert find_scope("", 0, command=True) == find_scope("command", 0, command=True) == {}
    assert find_scope("machine", 0, command=True) == {"machine": True}
    assert find_scope("", 0, command=False) == {"machine": True}
    for wrong in ("command", "/no-such-group"):
        with pytest.raises(UsageError):
            find_scope(wrong, 0, command=False)
    with pytest.raises(UsageError):
        find_scope("", 1, command=False)
