"""What qualifies a state: what is composed is what is read."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from critpath.model import State
from critpath.model.details import (
    IDLE,
    OTHERS,
    Detail,
    disk_limit,
    disk_of,
    function_of,
    memory_of,
    quota_of,
    read_detail,
)

NAMES = st.text(st.characters(exclude_characters=",`"), min_size=1).filter(
    lambda name: not name.startswith(OTHERS)
)


@given(NAMES, st.integers(1, 10**10), st.integers(1, 10**10))
@example("/a, 1 ms of b", 4_000_000, 10_000_000)
def test_a_quota(group, quota, period):
    of = read_detail(State.WAIT_QUOTA, quota_of(group, quota, period))
    assert of.group == group
    assert " in each " in of.limit
    assert read_detail(State.WAIT_QUOTA, quota_of(group, 0, 0)) == Detail(group=group)


@given(NAMES, st.integers(1 << 20, 1 << 40))
def test_memory_and_disks(group, limit):
    of = read_detail(State.RECLAIM, memory_of(group, limit, of_group=True))
    assert (of.group, of.limit.endswith("MiB")) == (group, True)
    for text in (memory_of("", 0, of_group=True), memory_of("", 0, of_group=False)):
        assert read_detail(State.RECLAIM, text) == Detail()
    of = read_detail(State.WAIT_DISK, disk_limit("vda", group, "wbps", limit))
    assert (of.device, of.group, of.limit.endswith("written a second")) == ("vda", group, True)
    busy = read_detail(State.WAIT_DISK, disk_of("vda", group))
    assert busy == Detail(device="vda", peer=group)
    assert read_detail(State.WAIT_DISK, "vda") == Detail(device="vda")


@given(NAMES, NAMES)
def test_functions(function, caller):
    of = read_detail(State.RUN_USER, function_of(function, caller))
    assert of == Detail(function=function, caller=caller)


@given(NAMES, st.integers(0, 1 << 22))
def test_who_had_the_cpu(name, tid):
    text = f"{name} ({tid})"
    assert read_detail(State.WAIT_CPU, text) == Detail(peer=name, tid=tid)
    assert read_detail(State.WAIT_CPU, OTHERS + text) == Detail(peer=name, tid=tid, others=True)
    assert read_detail(State.WAIT_CPU, IDLE) == Detail(idle=True)
