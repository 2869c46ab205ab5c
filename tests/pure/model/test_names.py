"""Names of threads on several hosts, whatever is in them."""

from __future__ import annotations

import pytest

from critpath.model.vectors import name_on_host, role_name, split_host


@pytest.mark.parametrize("host", ["web", "db1", "10"])
@pytest.mark.parametrize("name", ["w", "a@b", "x@y@z", "worker@3", "@", "@b", "a@"])
def test_a_name_with_an_at_keeps_its_host_apart(name, host):
    whole = name_on_host(name, host)
    own, at = split_host(whole)
    assert (own, at.removeprefix("@").removeprefix("host-")) == (name, host)
    assert role_name(whole).endswith(at)


def test_only_a_host_that_is_known_is_one():
    assert split_host("conn@pool3", {"pool3", "web"}) == ("conn", "@pool3")
    assert split_host("conn@pool3", {"web"}) == split_host("conn@pool3", ()) == ("conn@pool3", "")
    assert role_name("conn@pool3", hosts=()) == role_name("conn@pool1", hosts=()) == "conn@pool#"
    assert role_name("conn7@pool3", hosts={"pool3"}) == "conn#@pool3"
