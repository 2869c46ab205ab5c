"""Names of threads on several hosts, whatever is in them."""

from __future__ import annotations

import pytest

from critpath.model.vectors import (
    name_family,
    name_on_host,
    role_name,
    show_family,
    split_host,
)


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


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("iou-wrk-31951", "iou-wrk-7"), "iou-wrk-*"),
        (("GC Thread#3", "GC Thread#12"), "GC Thread*"),
        (("G1 Conc#0", "G1 Conc#1"), "G1 Conc*"),
        (("pool-1-thread-7", "pool-2-thread-11"), "pool-*-thread-*"),
        (("kworker/u8:2", "kworker/u4:11"), "kworker/u*:*"),
        (("puma srv tp 001", "puma srv tp 003"), "puma srv tp *"),
        (("conn-5f3a9c", "conn-00b17e"), "conn-*"),
        (("conn 0x7f1c", "conn 0x80"), "conn *"),
        (("[eth0]-9", "[eth0]-10"), "[eth0]-*"),
    ],
)
def test_ids_in_names_are_families(names, shown):
    assert {show_family(role_name(name)) for name in names} == {shown}
    assert len({name_family(name) for name in names}) == 1


@pytest.mark.parametrize(
    "name", ["jbd2", "x264", "face2face", "decade", "postgres", "redis-server", "C2 CompilerThre"]
)
def test_what_is_no_id_is_part_of_the_name(name):
    assert show_family(name) == name
    assert "#" not in role_name(name.rstrip("0123456789"))


def test_a_thread_of_its_own_number_is_called_by_it():
    assert show_family("GC Thread#3") == "GC Thread#3"
