"""Bad input to requests, row by row of what is promised: the words, and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from critpath.errors import UnreadableError, UsageError
from critpath.executions.specification import parse_specification
from critpath.explore.conditions import LONGEST, TERMS, parse_condition
from critpath.model import Kind, Manifest
from critpath.pipeline.requesting import require_sockets

MANIFEST = Manifest("complete", "", (), "", (), {}, "minimal", {}, {}, 0, 0)


@pytest.fixture(scope="module")
def asked(load):
    return load("requests/test_requesting.py")


@pytest.mark.parametrize("names", [["sched_switch"], ["sched_switch", "sched_waking"], []])
def test_no_events_of_sockets(names):
    with pytest.raises(UnreadableError) as caught:
        require_sockets(Path("normal"), names, MANIFEST)
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
