"""The babeltrace2 reader: what it reads, and what becomes of it when bt2 fails."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pure.flow import test_gaps
from pure.flow.whole import assert_same

from critpath.errors import UnreadableError, UsageError
from critpath.flow import extract
from critpath.model import EventRequest, Kind
from critpath.read import babeltrace
from critpath.read.babeltrace import Collector, read_with_babeltrace2
from critpath.read.traces import find_traces
from critpath.read.traces import read_events as read_recording

EVERYTHING = (EventRequest(Kind.OTHER, ("*",), (("*",),)),)


@pytest.fixture(scope="module")
def bt2():
    """Skip where no interpreter has bt2."""
    for interpreter in babeltrace._interpreters():
        command = [interpreter, "-c", "import bt2"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return interpreter
    pytest.skip("python3-bt2 is not installed")


def rows(events):
    """Every event with its fields, in an order of its own."""
    result = []
    for i in range(len(events)):
        of = events.classes[events.event_class[i]]
        at = events.offset[i]
        fields = [
            (name, kind, events.strings[value] if kind == "str" else int(value))
            for name, kind, value in zip(
                of.fields, of.types, events.values[at : at + len(of.fields)], strict=True
            )
        ]
        place = (int(events.timestamp[i]), int(events.cpu[i]), of.name, of.domain, of.host)
        result.append((*place, tuple(sorted(fields))))
    return sorted(result)


@pytest.mark.parametrize("name", ["lossy", pytest.param("normal", marks=pytest.mark.deep)])
@pytest.mark.usefixtures("bt2")
def test_guest_recordings_are_read_as_the_native_reader_reads_them(guest, name):
    path = guest(name) / "trace"
    ours = read_recording(path, EVERYTHING, reader="native")
    theirs = read_with_babeltrace2([t.directory for t in find_traces(path)], EVERYTHING)
    assert rows(theirs) == rows(ours)
    assert len(theirs) == theirs.total == ours.total > 1000
    assert (theirs.begin, theirs.end) == (ours.begin, ours.end)
    assert theirs.losses == ours.losses
    assert theirs.clock == ours.clock
    assert theirs.hosts == ours.hosts == ("guest",)
    assert theirs.environment == ours.environment
    assert {c.domain for c in theirs.classes} >= {"kernel"}
    assert np.all(np.diff(theirs.timestamp) >= 0)


@pytest.mark.deep  # test_against_babeltrace2.py reads the same ones
@pytest.mark.parametrize("name", ["bt-multi-domains", "cb-nodes-pipeline"])
@pytest.mark.usefixtures("bt2")
def test_public_traces_with_variants_and_addresses(shared, name):
    path = shared(f"public/{name}")
    ours = read_recording(path, EVERYTHING, reader="native")
    theirs = read_recording(path, EVERYTHING, reader="babeltrace2")
    assert rows(theirs) == rows(ours)


@pytest.mark.usefixtures("bt2")
def test_only_what_is_wanted_is_kept(guest):
    wanted = (
        EventRequest(
            Kind.SWITCH, ("sched_switch",), (("next_tid",), ("no_such", "next_comm"), ("none",))
        ),
        EventRequest(Kind.WAKEUP, ("sched_wak*",), (("tid",), ("cpu_id",))),
    )
    events = read_with_babeltrace2([guest("normal") / "trace/kernel"], wanted)
    assert 0 < len(events) < events.total
    assert {c.name for c in events.classes} == {
        *("sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new")
    }
    switch = next(c for c in events.classes if c.name == "sched_switch")
    assert switch.fields == ("next_tid", "no_such", "none")
    assert switch.types == ("int", "str", "absent")
    at = events.rows("sched_switch")
    names = {events.strings[code] for code in events.column(at, "no_such")}
    assert {"swapper/0", "swapper/1"} <= names
    wakeups = events.rows("sched_wakeup")
    assert np.array_equal(events.column(wakeups, "cpu_id"), events.cpu[wakeups])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("metadata/fail/event-id-string", "cannot read it"),
        ("metadata/fail/array-redefinition", "cannot read it|ended by signal"),
        ("metadata/pass/name-escaping-clashes", "ended by signal 6"),
        ("stream/fail/out-of-bound-integer", "cannot read it"),
        ("stream/fail/event-empty", "took longer than 1 s"),
        ("stream/pass/empty-stream", "holds no event"),
    ],
)
@pytest.mark.usefixtures("bt2")
def test_whatever_happens_to_bt2_is_an_error_that_says_so(shared, case, message):
    limit = 1 if "took longer" in message else 60
    with pytest.raises(UnreadableError, match=message) as caught:
        read_with_babeltrace2([shared("malformed") / case], EVERYTHING, time_limit=limit)
    assert case.rsplit("/", 1)[-1] in caught.value.what


@pytest.mark.usefixtures("bt2")
def test_too_little_memory_is_an_error(guest):
    with pytest.raises(UnreadableError, match="babeltrace2"):
        read_with_babeltrace2([guest("normal") / "trace/kernel"], EVERYTHING, memory_limit=20 << 20)


@pytest.mark.usefixtures("bt2")
def test_a_missing_directory_or_metadata_is_an_error(tmp_path):
    with pytest.raises(UnreadableError, match="babeltrace2"):
        read_with_babeltrace2([tmp_path], EVERYTHING)


def test_without_bt2_the_error_names_the_package(monkeypatch, tmp_path):
    # -S and an empty directory as prefix: an interpreter that finds no packages.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(babeltrace, "_interpreters", lambda: iter([str(bare)]))
    with pytest.raises(UsageError, match="bt2") as caught:
        read_with_babeltrace2([tmp_path], EVERYTHING)
    assert "apt-get install python3-bt2" in caught.value.do


def test_interpreters_without_bt2_are_passed_over(bt2, monkeypatch, tmp_path, guest):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(babeltrace, "_interpreters", lambda: iter([str(bare), bt2]))
    events = read_with_babeltrace2([guest("normal") / "trace/ust/uid/0/64-bit"], EVERYTHING)
    assert {c.domain for c in events.classes} == {"ust"}


def frame(letter, content):
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return letter.encode() + struct.pack("<I", len(data)) + data


def collect(*frames, limit=1 << 20):
    collector = Collector([Path("trace")], EVERYTHING, limit)
    with Path("/dev/null").open("wb") as answers:
        return collector, collector.read(io.BytesIO(b"".join(frames)), answers)


BLOCK = struct.pack("<II2q2i2i1q", 2, 1, 20, 10, 0, 1, 0, 0, 7)


def test_an_output_that_stops_is_not_taken_for_the_end():
    good = [frame("N", {}), frame("R", [2, 10, 20]), frame("D", {})]
    assert collect(*good)[1]
    assert not collect(*good[:2])[1]
    whole = b"".join(good)
    assert not any(collect(whole[:cut])[1] for cut in range(len(whole)))


def test_output_beyond_the_limit_is_refused():
    collector, finished = collect(frame("N", {}), *[frame("E", BLOCK)] * 100, limit=1000)
    assert not finished
    assert "memory limit" in collector.failure


def test_events_are_sorted_and_losses_placed():
    described = {
        "name": "tick",
        "scopes": {
            "event-payload": {
                "kind": "structure",
                "members": [["x", {"kind": "integer", "signed": True, "bits": 64}]],
            },
            "event-specific-context": None,
            "event-common-context": None,
            "packet-context": None,
        },
    }
    block = struct.pack("<II2q2i2i2q", 2, 2, 20, 10, 0, 1, 0, 0, 7, 8)
    collector, finished = collect(
        frame("N", {}),
        frame("T", {"environment": {"hostname": "h", "domain": "kernel"}, "uuid": ""}),
        frame("C", described),
        frame("E", block),
        frame("L", [1, 12, 14, 3, 0]),
        frame("L", [-1, 0, -1, 0, 2]),
        frame("R", [2, 10, 20]),
        frame("D", {}),
    )
    assert finished
    events = collector.events()
    assert events.timestamp.tolist() == [10, 20]
    assert events.cpu.tolist() == [1, 0]
    assert events.column(events.rows("tick"), "x").tolist() == [8, 7]
    placed = [(x.begin, x.end, x.cpu, x.events, x.packets, x.reason) for x in events.losses]
    assert placed == [(10, 20, -1, 0, 2, "packets lost"), (12, 14, 1, 3, 0, "discarded")]


@pytest.mark.usefixtures("bt2")
def test_paths_are_those_of_the_native_reader(guest):
    requests = "events:app:request_begin,app:request_end,key=id"
    paths, native = (
        extract([guest("normal")], specification=requests, reader=reader)
        for reader in ("babeltrace2", "native")
    )
    assert_same(paths, native.executions, native.paths)


@pytest.mark.usefixtures("bt2")
def test_paths_beside_gaps_are_those_of_the_native_reader(guest, tmp_path):
    gaps = test_gaps.drawn(guest("normal"), 3, 30, 0.2)
    cut = test_gaps.with_gaps(guest("normal"), tmp_path / "cut", gaps)
    expected, found = (
        extract([cut], specification=test_gaps.REQUESTS, reader=reader)
        for reader in ("native", "babeltrace2")
    )
    assert test_gaps.rows_of(found) == test_gaps.rows_of(expected)
