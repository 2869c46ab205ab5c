"""Bad input to requests, row by row of what is promised: the words, and the exit code."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from critpath.commands import doctor
from critpath.errors import UnreadableError, UsageError
from critpath.executions.specification import parse_specification
from critpath.explore.conditions import LONGEST, TERMS, parse_condition
from critpath.model import Kind, Manifest
from critpath.read.recording import Recording
from critpath.requests.find import require_sockets
from critpath.schema.notes import RequestsDoubtful
from critpath.text.notes import word

MANIFEST = Manifest("complete", "", (), "", (), {}, "minimal", {}, {}, 0, 0)


def describe(names):
    """What a trace with these events says that it can hold."""
    return [SimpleNamespace(events=dict.fromkeys(names, ()))]


@pytest.fixture(scope="module")
def asked(load):
    return load("pure/requests/test_requesting.py")


@pytest.mark.parametrize("names", [["sched_switch"], ["sched_switch", "sched_waking"], []])
def test_no_events_of_sockets(names):
    recording = Recording(Path("normal"), manifest=MANIFEST, descriptions=describe(names))
    with pytest.raises(UnreadableError) as caught:
        require_sockets(recording)
    error = caught.value
    assert (error.exit_code, error.what, error.do) == (
        *(4, "normal: recorded with minimal, which has no sockets"),
        "record again with --profile requests",
    )


def test_sockets_but_nobody_serves(asked):
    with pytest.raises(UnreadableError) as caught:
        asked.find(asked.talk(accepted=False), "requests")
    error = caught.value
    assert error.exit_code == 4
    assert error.what.endswith("turns, but no socket listens or accepts")
    assert error.do == (
        "were the servers elsewhere? requests:peer=any,role=first takes who receives first"
    )


def test_a_specification_that_fits_nothing(asked):
    with pytest.raises(UsageError) as caught:
        asked.find(asked.talk(), "requests:port=8081")
    assert caught.value.exit_code == 2
    assert caught.value.what == "requests:port=8081: no such service among :80"


def dump(asked, socket, near="10.0.0.1:80", far="10.0.0.2:4000", *, family="4", state=1, last=0):
    """Return the event of a socket that was there before."""
    return (1, 0, Kind.SOCKET_STATEDUMP, [
        *(socket, *asked.ends(family, near, far), 6, last, state, 99, 1, 0),
    ])  # fmt: skip


def test_the_kernel_hides_which_socket_is_which(asked):
    """All addresses are 0: what an unprivileged reader gets with kernel.kptr_restrict."""
    hidden = [(at, cpu, kind, [0, *fields[1:]]) if kind != Kind.SWITCH else (at, cpu, kind, fields)
              for at, cpu, kind, fields in asked.talk()]  # fmt: skip
    with pytest.raises(UnreadableError) as caught:
        asked.find(hidden, "requests")
    error = caught.value
    assert error.exit_code == 4
    assert error.what == "normal: the kernel hid which socket is which"
    assert error.do == "record again as root (kernel.kptr_restrict)"
    # Of some it is known: these are found, and the others counted.
    executions, _, _ = asked.find([*asked.talk(), *hidden[2:]], "requests")
    assert len(executions) == 3
    assert "uses of sockets that are not known" in word(executions.notes[0])


def test_all_sockets_have_the_same_address(asked):
    """Both ends of a connection, each with its ports: they cannot be one."""
    same = asked.talk()
    for near, far in (("10.0.0.1:80", "10.0.0.2:4000"), ("10.0.0.2:4000", "10.0.0.1:80")):
        fields = [same[1][3][0], *asked.ends("4", near, far)]
        same.append((900, 0, Kind.SOCKET_OF, fields))
    with pytest.raises(UnreadableError) as caught:
        asked.find(same, "requests")
    assert caught.value.what == (
        "normal: every socket has the same address, so which is which is not known"
    )
    assert len(asked.find(same[:-1], "requests")[0]) == 3


def test_addresses_that_are_hashes_are_as_good_as_others(asked):
    """As perf prints pointers: each its own number, and none its address."""
    hashed = [(at, cpu, kind, [0x2B1F00D5, *fields[1:]] if kind != Kind.SWITCH else fields)
              for at, cpu, kind, fields in asked.talk()]  # fmt: skip
    assert len(asked.find(hashed, "requests")[0]) == 3


LISTENS = 10


@pytest.mark.parametrize(
    ("dumped", "found"),
    [
        ((), None),  # missing: nobody is known to serve
        ((("SERVER", {}),), None),  # truncated before who listens
        ((("OTHER", {"near": "0.0.0.0:80", "far": "0.0.0.0:0", "state": LISTENS}),
          ("SERVER", {})), 3),
        # A socket twice, of which the second says something else: the first counts.
        ((("OTHER", {"near": "0.0.0.0:80", "far": "0.0.0.0:0", "state": LISTENS}),
          ("SERVER", {}), ("SERVER", {"near": "10.9.9.9:99", "far": "10.0.0.3:1"})), 3),
        # A port that is listened on by nobody who answers; another family than the events say.
        ((("OTHER", {"near": "0.0.0.0:99", "far": "0.0.0.0:0", "state": LISTENS}),
          ("SERVER", {"near": "[::1]:80".strip("[]").replace("]", ""), "far": "::2:4000",
                      "family": "6"})), None),
    ],
)  # fmt: skip
def test_what_was_there_before_is_missing_cut_or_contradicts_itself(asked, dumped, found):
    sockets = {"SERVER": asked.SERVER, "OTHER": 1 << 43}
    events = [dump(asked, sockets[name], **more) for name, more in dumped]
    events += asked.talk(accepted=False)
    if found is None:
        # As where there is nothing: who receives first may be taken for the server, if asked for.
        with pytest.raises(UnreadableError, match="but no socket listens or accepts") as caught:
            asked.find(events, "requests")
        assert caught.value.exit_code == 4
        found = 3
        executions, _, _ = asked.find(events, "requests:role=first")
    else:
        executions, _, _ = asked.find(events, "requests")
    assert len(executions) == found


def test_a_clock_that_goes_back_makes_no_request_of_less_than_nothing(asked):
    events = asked.talk(times=4)
    at, cpu, kind, fields = events[7]  # a receive, 5 us before its arrival
    events[7] = (max(at - 60, 0), cpu, kind, fields)
    executions, _, _ = asked.find(sorted(events, key=lambda one: one[0]), "requests")
    assert (executions.end >= executions.begin).all()
    ordered = executions.begin.argsort()
    assert (executions.begin[ordered][1:] >= executions.end[ordered][:-1]).all()
    # Unsorted, as from a reader whose clock went back.
    executions, _, _ = asked.find(events, "requests")
    assert (executions.end >= executions.begin).all()


@pytest.mark.parametrize("size", [2**31 - 1, 2**62])
def test_huge_lengths_are_messages_and_overflow_nothing(asked, size):
    events = [
        (at, cpu, kind, [*fields[:3], size, *fields[4:]])
        if kind in {Kind.SOCKET_RECEIVE, Kind.SOCKET_SEND}
        else (at, cpu, kind, fields)
        for at, cpu, kind, fields in asked.talk()
    ]
    executions, _, _ = asked.find(events, "requests")
    assert len(executions) == 3
    assert min(executions.requests.bytes_in) >= 0


def test_a_set_with_too_many_doubtful_requests_is_inconclusive():
    said = word(RequestsDoubtful("sample", 12, ((8443, 12),), 100))
    assert said.startswith("12 % of the requests after")
    assert "(:8443)" in said


@pytest.mark.usefixtures("played")
def test_doctor_says_what_of_requests_this_kernel_tells(critpath):
    assert f"requests of servers: {doctor._WAYS['sockets']}" in critpath("doctor").stdout
    assert "a request begins when it is read" in doctor._WAYS["calls"]


@pytest.mark.parametrize("size", [-1, -(2**31), 0])
def test_lengths_that_are_no_message(asked, size):
    events = [
        (at, cpu, kind, [*fields[:3], size, *fields[4:]])
        if kind in {Kind.SOCKET_RECEIVE, Kind.SOCKET_SEND}
        else (at, cpu, kind, fields)
        for at, cpu, kind, fields in asked.talk()
    ]
    executions, _, _ = asked.find(events, "requests")
    assert len(executions) == 0


def test_an_arrival_in_the_nanosecond_of_an_answer_is_the_next_turn(asked):
    events = asked.talk(times=1)
    answer = events[-1][0]
    events += [
        (answer, 0, Kind.SOCKET_ARRIVAL, [asked.SERVER, 2, 6]),
        (answer + 10, 0, Kind.SOCKET_RECEIVE, [asked.SERVER, 2, 6, 100, 0]),
        (answer + 50, 0, Kind.SOCKET_SEND, [asked.SERVER, 2, 6, 100, 0]),
    ]
    executions, _, _ = asked.find(events, "requests")
    assert executions.begin.tolist() == [100, answer]
    assert executions.end.tolist() == [answer, answer + 50]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("latency >= " + "1" * LONGEST, "characters"),
        (" and ".join(["latency >= 1ms"] * (TERMS + 1)), f"more than {TERMS} terms"),
        ("not " * 40 + "latency >= 1ms", "brackets in each other"),
        ("__import__('os').system('x')", "nothing begins with"),
    ],
)
def test_limits_of_conditions(condition, words):
    with pytest.raises(UsageError) as caught:
        parse_condition(condition)
    assert caught.value.exit_code == 2
    assert words in caught.value.what


def test_a_specification_that_is_too_long():
    with pytest.raises(UsageError, match="characters"):
        parse_specification("requests:comm=" + "x" * 10_000)


def test_a_page_that_is_there_stops_a_recording_before_it_begins(critpath, tmp_path):
    (tmp_path / "x.html").write_text("mine")
    run = critpath("record", "-o", "x", "--then", "explore", "--", "true", cwd=tmp_path)
    assert run.returncode == 2
    assert "x.html exists already" in run.stderr
    assert (tmp_path / "x.html").read_text() == "mine"
    assert not (tmp_path / "x").exists()
