"""What qualifies a state: typed fields, whose text is read back to the same."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from critpath.model import State
from critpath.model.details import (
    IDLE,
    MACHINE,
    MEMORY,
    NO_DETAIL,
    Detail,
    disk_limit,
    family_of,
    memory_of,
    name_detail,
    quota_of,
    read_detail,
    word_detail,
)

NAMES = st.text(st.characters(exclude_characters=",`"), min_size=1)
STATES = st.sampled_from(State)
TEXTS = st.one_of(
    st.text(),
    st.builds(
        "".join,
        st.lists(
            st.sampled_from(
                [
                    *("vda", "control group ", ", under ", ", limit of ", ", control group "),
                    *("memory limit", " of ", " in each ", ", busy with requests of ", " (7)"),
                    *("`", ", ", IDLE),
                ]
            )
        ),
    ),
)


def again(state, detail):
    return read_detail(state, word_detail(detail))


@given(STATES, TEXTS)
def test_no_text_is_lost(state, text):
    assert word_detail(read_detail(state, text)) == text


@given(NAMES, st.integers(1, 10**10), st.integers(1, 10**10))
@example("/a, 1 ms of b", 4_000_000, 10_000_000)
def test_a_quota(group, quota, period):
    of = quota_of(group, quota, period)
    assert of.control_group == group
    assert " in each " in of.limit
    for one in (of, quota_of(group, 0, 0)):
        assert again(State.WAIT_QUOTA, one) == one


@given(NAMES, st.integers(1 << 20, 1 << 40))
def test_memory_and_disks(group, limit):
    of = memory_of(group, limit, of_group=True)
    assert (of.control_group, of.limit.endswith("MiB"), of.why) == (group, True, MEMORY)
    machine = memory_of("", 0, of_group=False)
    assert machine.why == MACHINE
    for one in (of, machine, memory_of("", 0, of_group=True), memory_of(group, 0, of_group=True)):
        assert again(State.RECLAIM, one) == one
    of = disk_limit("vda", group, "wbps", limit)
    assert (of.device, of.control_group) == ("vda", group)
    assert of.limit.endswith("written a second")
    for one in (of, Detail(device="vda", peer=group), Detail(device="vda")):
        assert again(State.WAIT_DISK, one) == one


@given(NAMES, NAMES)
def test_functions(function, caller):
    of = Detail(function=function, caller=caller)
    assert again(State.RUN_USER, of) == of


@given(NAMES, st.integers(0, 1 << 22))
def test_who_had_the_cpu(name, tid):
    of = Detail(name, tid)
    assert again(State.WAIT_CPU, of) == of
    assert (of.rival, of.idle) == (name, False)
    assert again(State.WAIT_CPU, Detail(why=IDLE)).rival == IDLE
    assert word_detail(of._replace(others=True)) == f"above all {name} ({tid})"


@given(STATES)
def test_a_name_of_a_recording_is_one_field(state):
    assert name_detail(state, "") == NO_DETAIL
    of = name_detail(state, "x1")
    assert len({*of} - {*NO_DETAIL} - {"remote"}) == 1
    assert word_detail(of) == "x1"
    assert family_of(of) == family_of(name_detail(state, "x2"))


def test_packets():
    for name, local in (("eth0", False), ("NET_RX", None), ("recvfrom", None), ("", None)):
        assert name_detail(State.WAIT_NET, name).local is local
    for local in (True, False):
        text = f"packet from {'this' if local else 'another'} host"
        assert name_detail(State.WAIT_NET, text).local is local
