"""Requests as executions: which are asked for, and what is said where there are none."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_endpoints import collect, ends, no_workers

from critpath.errors import UnreadableError, UsageError
from critpath.executions.specification import parse_specification
from critpath.model import BlockList, Events, Kind, Manifest, ReplayedRecording
from critpath.model.gaps import REASONS, Gaps
from critpath.read.recording import Recording
from critpath.requests.find import find_requests, require_sockets
from critpath.schema.environment import Environment, RequestCounts
from critpath.text.notes import word

MANIFEST = Manifest("complete", "", (), "", (), {}, "minimal", {}, {}, 0, 0)
NORMAL = Recording(Path("normal"), manifest=MANIFEST)
SERVER, CLIENT = 1 << 40, 1 << 41


def talk(*, accepted=True, times=3, port=80):
    """Return events of a connection on which so many requests are answered."""
    events = [(1, 0, Kind.SWITCH, [0, 0, 0, 0, 7])]
    if accepted:
        fields = [SERVER, *ends("4", f"10.0.0.1:{port}", "10.0.0.2:4000"), 6, 3, 1]
        events.append((2, 0, Kind.SOCKET_STATE, fields))
    for turn in range(times):
        at = 100 * (turn + 1)
        events += [
            (at, 0, Kind.SOCKET_ARRIVAL, [SERVER, 2, 6]),
            (at + 10, 0, Kind.SOCKET_RECEIVE, [SERVER, 2, 6, 100, 0]),
            (at + 50, 0, Kind.SOCKET_SEND, [SERVER, 2, 6, 100, 0]),
        ]
    return events


def replayed(events):
    empty = np.zeros(0, np.int64)
    few = Events(
        *(empty, empty.astype(np.int32), empty.astype(np.int32), empty, empty),
        classes=(),
        strings=("",),
        begin=0,
        end=10_000,
    )
    made = (no_workers(), (), 0, (), (), ())
    return ReplayedRecording(few, BlockList(()), *made, sockets=collect(events))


def find(events, text):
    return find_requests(replayed(events), parse_specification(text), NORMAL)


def test_each_request_is_an_execution():
    executions, events, _ = find(talk(), "requests")
    assert executions.id == tuple(f"10.0.0.2:4000>80#{n}" for n in (1, 2, 3))
    assert (executions.end - executions.begin).tolist() == [50, 50, 50]
    assert set(executions.label) == {":80"}
    assert events.environment[-1] == Environment(requests=RequestCounts(requests=3, doubtful=0))
    assert "3 of 1 service" in word(executions.notes[0])


def test_what_came_over_udp_are_requests():
    server, client = 3 << 40, 4 << 40
    events = talk()
    for at in (1000, 1100):
        events += [
            (at, 0, Kind.SOCKET_SEND, [client, 2, 17, 30, 0]),
            (at + 10, 0, Kind.SOCKET_ARRIVAL, [server, 2, 17]),
            (at + 20, 0, Kind.SOCKET_RECEIVE, [server, 2, 17, 30, 0]),
            (at + 30, 0, Kind.SOCKET_SEND, [server, 2, 17, 60, 0]),
            (at + 40, 0, Kind.SOCKET_RECEIVE, [client, 2, 17, 60, 0]),
        ]
    executions, _, _ = find(events, "requests")
    assert len(executions) == 5
    assert executions.id[-2:] == ("?>udp#1", "?>udp~2#1")


@pytest.mark.parametrize(
    ("text", "count"),
    [("requests:port=80", 3), ("requests:peer=external", 3), ("requests:skip=1", 2)],
)
def test_some_of_them(text, count):
    executions, _, _ = find(talk(), text)
    assert len(executions) == count


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("requests:port=8081", "service among"),
        ("requests:comm=nginx", "service among"),
        ("requests:peer=local", "request of"),
        ("requests:min=1s", "request of"),
    ],
)
def test_what_fits_nothing_names_what_there_is(text, what):
    with pytest.raises(UsageError) as caught:
        find(talk(), text)
    assert caught.value.exit_code == 2
    assert caught.value.what == f"{text}: no such {what} :80"


@pytest.mark.parametrize("text", ["requests:comm=nginx", "requests:pid=7", "requests:path=/run/x"])
def test_a_choice_among_none_finds_none(text):
    executions, _, _ = find(talk(times=0), text)
    assert len(executions) == 0


def test_what_is_no_request_is_counted():
    said = [(500, 0, Kind.SOCKET_SEND, [SERVER, 2, 6, 100, 0])]
    executions, _, _ = find(
        [*talk(times=0), *said, *[(t + 1000, *e) for t, *e in talk()[2:]]], "requests"
    )
    assert word(executions.notes[0]).startswith("requests: 3 of 1 service; 1 answers to nothing")


def with_gap(why):
    both = replayed(talk())
    times = (np.array([at]) for at in (120, 121, 140, 141))  # within the first of three requests
    codes = np.zeros(1, np.uint8), np.array([REASONS.index(why)], np.uint8)
    gaps = Gaps(*times, *codes, np.zeros(1, np.int64))
    return replace(both, events=replace(both.events, gaps=gaps))


@pytest.mark.parametrize("why", ["budget"])
def test_a_recording_with_gaps(why):
    executions, _, _ = find_requests(with_gap(why), parse_specification("requests"), NORMAL)
    assert word(executions.notes[0]).startswith("requests: 2 of 1 service; when")


def test_only_what_other_services_did_is_not_counted():
    other = SERVER + 1
    opened = [other, *ends("4", "10.0.0.1:90", "10.0.0.2:5000"), 6, 3, 1]
    events = [
        *talk(),
        (450, 0, Kind.SOCKET_STATE, opened),
        (460, 0, Kind.SOCKET_SEND, [other, 2, 6, 100, 0]),  # an answer to nothing
        *[(t + 1000, c, kind, [other, *fields[1:]]) for t, c, kind, fields in talk(times=1)[2:]],
        (3000, 0, Kind.SOCKET_ARRIVAL, [SERVER, 2, 6]),  # no answer
        (3010, 0, Kind.SOCKET_RECEIVE, [SERVER, 2, 6, 100, 0]),
    ]
    for text, expected in (
        ("requests:port=80", "requests: 3 of 1 service; when"),
        ("requests:port=90", "requests: 1 of 1 service; 1 answers to nothing; when"),
        ("requests", "requests: 4 of 2 services; 1 incomplete; 1 answers to nothing; when"),
    ):
        executions, _, _ = find(events, text)
        assert word(executions.notes[0]).startswith(expected)


def test_nobody_who_serves():
    with pytest.raises(UnreadableError) as caught:
        find(talk(accepted=False), "requests")
    assert caught.value.exit_code == 4
    assert "but no socket listens or accepts" in caught.value.what
    assert "role=first" in caught.value.do
    # The first has no arrival before it that the recording would not have seen.
    executions, _, _ = find(talk(accepted=False), "requests:role=first")
    assert len(executions) == 3


def test_no_sockets():
    with pytest.raises(UnreadableError) as caught:
        require_sockets(Recording(Path("normal"), manifest=MANIFEST, descriptions=()))
    assert caught.value.exit_code == 4
    assert caught.value.what == "normal: recorded with minimal, which has no sockets"
    assert caught.value.do == "record again with --profile requests"


def test_the_services_are_listed():
    with pytest.raises(UsageError) as caught:
        find(talk(), "requests:?")
    [row] = caught.value.rows
    assert (row.name, row.count, row.incomplete, row.median_ns) == (":80", 3, 0, 50)
    assert caught.value.what == "the services of this recording: :80"
