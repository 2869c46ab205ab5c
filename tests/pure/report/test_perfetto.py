"""Perfetto traces, read back through Perfetto's own definitions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
from detailing import detailed
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from critpath.convert import convert_foreign
from critpath.errors import UnreadableError
from critpath.model import CriticalPaths, Executions, PathSet, State
from critpath.report.document.as_json import load_document, to_json
from critpath.report.document.comparison import comparison_document
from critpath.report.exports.as_perfetto import perfetto_trace, varint
from critpath.report.exports.exported import Exported, read_aligned_executions
from critpath.report.palette import LOOKS
from critpath.schema.environment import Environment
from critpath.timeline import read_timelines

CLEARED = proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
NEEDED = proto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE


@dataclass
class Slice:
    """One slice, as the viewer puts it together."""

    name: str
    category: str
    begin: int
    about: dict
    out: list
    into: list
    end: int = -1


@dataclass
class Track:
    name: str
    parent: int
    slices: list[Slice] = field(default_factory=list)
    open: list[Slice] = field(default_factory=list)


class Viewer:
    """What the Perfetto UI makes of a file; whatever it relies on is checked."""

    def __init__(self, pieces):
        trace = proto.Trace()
        trace.ParseFromString(b"".join(pieces))
        self.tracks: dict[int, Track] = {}
        self.clocks = {}
        self.interned: dict[str, dict[int, str]] = {}
        now = -(2**63)
        assert trace.packet[0].sequence_flags & CLEARED
        self.bundles, self.tree = [], None
        for packet in trace.packet:
            if packet.trusted_packet_sequence_id == 2:
                if packet.HasField("process_tree"):
                    self.tree = packet.process_tree
                else:
                    self.bundles.append(packet.ftrace_events)
                continue
            assert packet.trusted_packet_sequence_id == 1
            if packet.HasField("interned_data"):
                self.intern(packet.interned_data)
            if packet.HasField("clock_snapshot"):
                self.clocks = {c.clock_id: c.timestamp for c in packet.clock_snapshot.clocks}
            if packet.HasField("track_descriptor"):
                self.describe(packet.track_descriptor)
            if packet.HasField("track_event"):
                assert packet.sequence_flags == NEEDED
                assert not packet.HasField("timestamp_clock_id")
                assert packet.timestamp >= now
                now = packet.timestamp
                self.event(packet.track_event, now)
        assert all(not track.open for track in self.tracks.values())

    def intern(self, data):
        for kind, name in (
            ("event_categories", "name"),
            ("event_names", "name"),
            ("debug_annotation_names", "name"),
            ("debug_annotation_string_values", "str"),
        ):
            said = {entry.iid: getattr(entry, name) for entry in getattr(data, kind)}
            assert 0 not in said
            assert len(said) == len(getattr(data, kind))
            self.interned[kind] = {
                iid: text.decode() if isinstance(text, bytes) else text
                for iid, text in said.items()
            }

    def describe(self, descriptor):
        assert descriptor.uuid
        assert descriptor.uuid not in self.tracks
        assert not descriptor.parent_uuid or descriptor.parent_uuid in self.tracks
        assert bool(descriptor.name) != descriptor.HasField("thread")
        name = descriptor.name or f"tid {descriptor.thread.tid} of {descriptor.thread.pid}"
        self.tracks[descriptor.uuid] = Track(name, descriptor.parent_uuid)

    def event(self, event, now):
        track = self.tracks[event.track_uuid]
        if event.type == proto.TrackEvent.TYPE_SLICE_END:
            track.open.pop().end = now
            return
        assert event.type == proto.TrackEvent.TYPE_SLICE_BEGIN
        slice_ = Slice(
            self.interned["event_names"][event.name_iid],
            self.interned["event_categories"][event.category_iids[0]],
            now,
            {
                self.interned["debug_annotation_names"][a.name_iid]: self.value(a)
                for a in event.debug_annotations
            },
            list(event.flow_ids),
            list(event.terminating_flow_ids),
        )
        # No thread does two things at once: a slice inside another would be no segment.
        assert not track.open
        track.slices.append(slice_)
        track.open.append(slice_)

    def value(self, annotation):
        if annotation.HasField("string_value_iid"):
            return self.interned["debug_annotation_string_values"][annotation.string_value_iid]
        which = annotation.WhichOneof("value")
        return getattr(annotation, which)

    def executions(self):
        """Every slice over a whole execution, with its track, in order of time."""
        return sorted(
            (
                (slice_, track)
                for track in self.tracks.values()
                for slice_ in track.slices
                if slice_.category == "execution"
            ),
            key=lambda at: at[0].begin,
        )

    def segments(self, *, on_paths: bool):
        """Every segment with its track: on tracks of paths, or on those of threads."""
        return [
            (slice_, track)
            for track in self.tracks.values()
            for slice_ in track.slices
            if slice_.category in State.__members__
            and track.name.endswith(": critical paths") == on_paths
        ]

    def flows(self):
        source, target = {}, {}
        for track in self.tracks.values():
            for slice_ in track.slices:
                for flow in slice_.out:
                    assert source.setdefault(flow, (track, slice_))[1] is slice_
                for flow in slice_.into:
                    assert target.setdefault(flow, (track, slice_))[1] is slice_
        assert source.keys() == target.keys()
        return [(source[flow], target[flow]) for flow in sorted(source)]


def wakes(threads):
    """Which moves of a path are wakes: those into what the path comes back from."""
    if len(set(threads)) < 2:
        return [False] * len(threads[1:])
    # By what is left when everything that the path is inside of is taken off from the end.
    found, inside = [], [threads[-1]]
    for before, after in reversed(list(pairwise(threads))):
        found.append(before not in inside)
        assert after == inside[-1]
        if before not in inside:
            inside.append(before)
        while inside[-1] != before:
            inside.pop()
    return found[::-1]


def check(viewer, sets):
    """Every execution and every segment is there, on its rows; every wake is one flow."""
    expected = sorted(
        (int(one.paths.executions.begin[i]), int(one.paths.executions.end[i]))
        for one in sets
        for i in range(len(one.paths))
    )
    found = viewer.executions()
    assert sorted((slice_.begin, slice_.end) for slice_, _ in found) == expected
    moves, wanted = 0, []
    for one in sets:
        paths = one.paths.paths
        for i in range(len(one.paths)):
            rows = range(paths.start[i], paths.start[i + 1])
            moves += sum(wakes([(paths.host[r], paths.tid[r]) for r in rows]))
            for r in rows:
                state = State(int(paths.state[r]))
                wanted.append(
                    (
                        int(paths.begin[r]),
                        int(paths.end[r]),
                        state.name,
                        max(int(paths.tid[r]), -1),
                        max(int(paths.cpu[r]), -1),
                        bool(paths.lossy[r]),
                    )
                )
    for on_paths in (True, False):
        slices = viewer.segments(on_paths=on_paths)
        got = [
            (
                s.begin,
                s.end,
                s.category,
                s.about.get("tid", -1),
                s.about.get("cpu", -1),
                s.about.get("lossy", False),
            )
            for s, _ in slices
        ]
        assert sorted(got) == sorted(wanted)
        for slice_, _ in slices:
            assert slice_.about["state"] == slice_.category
            assert (slice_.about["begin (ns)"], slice_.about["end (ns)"]) == (
                slice_.begin,
                slice_.end,
            )
            words = LOOKS[slice_.category].words
            assert slice_.name.startswith(words) if on_paths else slice_.name == words
    flows = viewer.flows()
    assert len(flows) == moves
    for (from_track, source), (to_track, target) in flows:
        assert from_track is not to_track
        assert not from_track.name.endswith(": critical paths")
        assert source.end == target.begin


def some_set(executions, name="set", strings=("", "main", "helper", "disk (7)")):
    """Executions as lists of (duration, state, detail, comm, tid, host), each from its begin."""
    rows, start, begins, ends = [], [0], [], []
    for begin, segments in executions:
        now = begin
        for duration, state, detail, comm, tid, host in segments:
            rows.append((now, now + duration, state, detail, comm, tid, host))
            now += duration
        begins.append(begin)
        ends.append(now)
        start.append(len(rows))
    table = np.array(rows, np.int64).reshape(-1, 7)
    n = len(begins)
    paths = PathSet(
        executions=Executions(
            id=tuple(f"e{i % 3}" for i in range(n)),  # ids need not differ
            begin=np.array(begins, np.int64),
            end=np.array(ends, np.int64),
            tid=np.full(n, 7),
            host=np.zeros(n, np.int64),
            comm=("main",) * n,
            label=("",) * n,
        ),
        paths=detailed(
            CriticalPaths(
                start=np.array(start, np.int64),
                begin=table[:, 0],
                end=table[:, 1],
                state=table[:, 2].astype(np.uint8),
                detail=table[:, 3].astype(np.int32),
                comm=table[:, 4].astype(np.int32),
                tid=table[:, 5],
                host=table[:, 6],
                cpu=(table[:, 5] % 3 - 1).astype(np.int32),
                lossy=table[:, 5] == 9,
                strings=strings,
            )
        ),
        session=np.zeros(n, np.int64),
        sources=("trace",),
        specification="thread",
        losses=(),
        lossy=np.zeros(n, np.bool_),
    )
    return Exported(name, paths)


segment = st.tuples(
    st.integers(0, 1000) | st.integers(0, 2**40),
    st.sampled_from([int(s) for s in State]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([-1, 7, 8, 9]),
    st.integers(0, 1),
)
execution = st.tuples(st.integers(0, 2000) | st.integers(0, 2**61), st.lists(segment, max_size=8))


@given(st.lists(st.lists(execution, max_size=5).map(some_set), max_size=3))
def test_slices_tile_whatever_the_executions(sets):
    """Executions at the same time, of no time at all, on two hosts, without segments."""
    check(Viewer(perfetto_trace(sets)), sets)


def test_both_sets_of_a_comparison(factory):
    comparison = factory.comparison()
    sets = [Exported("a", comparison.normal), Exported("b", comparison.sample)]
    viewer = Viewer(perfetto_trace(sets))
    check(viewer, sets)
    roots = {uuid: t.name for uuid, t in viewer.tracks.items() if not t.parent}
    assert list(roots.values()) == ["a", "b"]
    names = [slice_.name for slice_, _ in viewer.executions()]
    assert "1 (mixed), worker 1201" in names
    (first, *_) = roots
    below = {track.name for track in viewer.tracks.values() if track.parent == first}
    assert below == {"mixed", "mixed: critical paths", "threads on critical paths"}
    (group,) = [
        u for u, t in viewer.tracks.items() if t.name.startswith("threads") and t.parent == first
    ]
    assert {t.name for t in viewer.tracks.values() if t.parent == group} == {
        "worker 1201",
        "kworker/0:1 33",
    }
    waits = [s for t in viewer.tracks.values() for s in t.slices if s.category == "WAIT_DISK"]
    assert waits
    assert {s.about["detail"] for s in waits} == {"virtio1-req.0"}


def test_who_ran_is_named_where_a_cpu_was_waited_for():
    state = int(State.WAIT_CPU)
    viewer = Viewer(perfetto_trace([some_set([(0, [(5, state, 3, 1, 7, 0)])])]))
    ((slice_, _),) = viewer.segments(on_paths=False)
    assert slice_.about["who ran"] == "disk (7)"
    assert slice_.about["thread"] == "main"
    assert "detail" not in slice_.about


def test_a_saved_comparison_has_its_findings_beside_the_segments(factory):
    document = load_document(to_json(comparison_document(factory.comparison())))
    one = read_aligned_executions(document, "c.json", ())
    viewer = Viewer(perfetto_trace([one]))
    check(viewer, [one])
    found = [s for t in viewer.tracks.values() for s in t.slices if s.category == "finding"]
    mine = [f for f in document.findings if f.position in {a.position for a in document.aligned}]
    assert sorted((s.about["rank"], s.begin, s.end, s.about["kind"]) for s in found) == sorted(
        (f.rank, f.begin, f.end, f.kind) for f in mine
    )
    tracks = {t.name for t in viewer.tracks.values() if any(s in found for s in t.slices)}
    assert tracks == {"mixed: findings"}
    assert {s.about["type"] for s, _ in viewer.executions()} == {
        one.cluster(aligned.position) for aligned in document.aligned
    }
    (some,) = read_aligned_executions(document, "c.json", ["2"]).paths.executions.id
    assert some == "2"


@pytest.mark.parametrize("known", [True, False])
def test_one_recording_has_its_date(known):
    one = some_set([(5_000, [(5, 1, 0, 1, 7, 0)])])
    said = (Environment(recording="trace", clock_epoch=1_790_000_000 * 10**9),) if known else ()
    one = structs.replace(one, paths=replace(one.paths, environment=said))
    clocks = Viewer(perfetto_trace([one])).clocks
    boot, real = proto.BUILTIN_CLOCK_BOOTTIME, proto.BUILTIN_CLOCK_REALTIME
    assert clocks == ({boot: 5_000, real: 1_790_000_000 * 10**9 + 5_000} if known else {})
    # Of two recordings there is no one date.
    assert not Viewer(perfetto_trace([one, one])).clocks


def test_the_same_bytes_for_the_same_paths(factory):
    def once():
        return b"".join(perfetto_trace([Exported("a", factory.comparison().normal)]))

    assert once() == once()


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**32, 2**63 - 1, 2**64 - 1, -1, -(2**63)])
def test_numbers_are_what_protobuf_reads(value):
    packet = proto.TracePacket()
    packet.ParseFromString(b"\x40" + varint(value))
    assert packet.timestamp == value % 2**64


def test_a_comparison_read_back_may_have_a_new_kind_and_no_such_recording(factory):
    document = comparison_document(factory.comparison())
    document.findings[0].kind = "of a later version"
    data = b"".join(perfetto_trace([read_aligned_executions(document, "c.json", [])]))
    assert b"of a later version" in data
    for row in document.executions:
        row.source = 7
    with pytest.raises(UnreadableError, match="of a recording that the set has not"):
        read_aligned_executions(document, "c.json", [])


def test_threads_and_cpus_are_the_kernels_events(guest, tmp_path):
    """Who ran on each cpu, and who woke whom, is as in the recording: read back, and by schema."""
    recording = guest("sample-lock")
    events, timelines = read_timelines(recording)
    one = structs.replace(some_set([(int(events.timestamp[0]) + 10**6, [(500, 1, 0, 1, 332, 0)])]))
    viewer = Viewer(pieces := list(perfetto_trace([structs.replace(one, timelines=timelines)])))
    threads = {t.tid: (t.tgid, t.name) for t in viewer.tree.threads}
    threads |= {p.pid: (p.pid, p.cmdline[0]) for p in viewer.tree.processes}
    assert threads[332] == (327, "worker-0")
    # The thread's own track has its segments, below its process.
    assert "tid 332 of 327" in {track.name for track in viewer.tracks.values() if track.slices}
    file, place = tmp_path / "trace.pftrace", tmp_path / "back"
    file.write_bytes(b"".join(pieces))
    place.mkdir()
    convert_foreign(file, place)
    _, back = read_timelines(place)

    def ran(of):
        """Time on each cpu by thread, from the first switch on."""
        found = {}
        for at, (_, cpu) in enumerate(of.processors):
            for row in range(int(of.ran_start[at]), int(of.ran_start[at + 1])):
                tid = int(of.workers.tid[of.ran_worker[row]])
                if tid > 0:
                    found[cpu, int(of.ran_begin[row])] = tid, int(of.ran_end[row])
        return found

    own, read = ran(timelines), ran(back)
    assert len(own) > 300
    assert read.items() <= own.items()
    # What ran when recording began, and until it ended, has no switch before or after it.
    assert len(own) - len(read) <= 2 * len(timelines.processors)

    def woken(of):
        slept = (of.waker >= 0) & (of.woken >= 0) & (of.state != State.WAIT_CPU)
        rows = np.flatnonzero(slept)
        owner = np.repeat(np.arange(len(of.workers)), np.diff(of.start))
        tids = of.workers.tid
        return {
            (int(of.woken[r]), int(tids[of.waker[r]]), int(tids[owner[r]]))
            for r in rows
            if tids[of.waker[r]] > 0
        }

    assert len(woken(timelines)) > 100
    # Of a thread's first, the events alone do not say that it slept before.
    first = {tid: min(w for w in woken(timelines) if w[2] == tid) for _, _, tid in woken(timelines)}
    assert woken(timelines) - woken(back) <= set(first.values())
