"""Perfetto traces, read back through Perfetto's own definitions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
from detailing import detailed
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from critpath.errors import UnreadableError
from critpath.model import CriticalPaths, Executions, PathSet, State
from critpath.report.document.as_json import load_document, to_json
from critpath.report.document.comparison import comparison_document
from critpath.report.exports.as_perfetto import perfetto_trace, varint
from critpath.report.exports.exported import Exported, read_aligned_executions
from critpath.report.palette import LOOKS
from critpath.schema.environment import Environment

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
        for packet in trace.packet:
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
        assert descriptor.name
        self.tracks[descriptor.uuid] = Track(descriptor.name, descriptor.parent_uuid)

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
        """The tracks that have a slice over a whole execution, in order."""
        return [
            (uuid, track)
            for uuid, track in self.tracks.items()
            if track.slices and track.slices[0].category == "execution"
        ]

    def below(self, uuid):
        return [track for track in self.tracks.values() if track.parent == uuid]

    def execution_of(self, track):
        """The execution's track that a thread's is below, or below its host's."""
        above = {uuid for uuid, _ in self.executions()}
        return track.parent if track.parent in above else self.tracks[track.parent].parent

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
    """Every execution is tiled by its slices, every wake is one flow."""
    expected = [(one, i) for one in sets for i in range(len(one.paths))]
    found = viewer.executions()
    assert len(found) == len(expected)
    moves = 0
    for (uuid, track), (one, i) in zip(found, expected, strict=True):
        executions, paths = one.paths.executions, one.paths.paths
        (whole,) = track.slices
        assert (whole.begin, whole.end) == (executions.begin[i], executions.end[i])
        rows = range(paths.start[i], paths.start[i + 1])
        below = [t for t in viewer.below(uuid) if t.name != "findings" and t.slices]
        groups = [key for key, t in viewer.tracks.items() if t.parent == uuid and not t.slices]
        below += [t for group in groups for t in viewer.below(group)]
        hosts = {paths.host[r] for r in rows}
        several = len(hosts | {executions.host[i]}) > 1
        assert len(groups) == (len(hosts) if several else 0)
        slices = sorted(
            ((s, t) for t in below for s in t.slices), key=lambda at: (at[0].begin, at[0].end)
        )
        assert len(slices) == len(rows)
        assert len(below) == len({(paths.host[r], paths.tid[r]) for r in rows})
        if len({(paths.begin[r], paths.end[r]) for r in rows}) == len(rows):
            for (slice_, _), r in zip(slices, rows, strict=True):
                state = State(int(paths.state[r]))
                assert (slice_.begin, slice_.end) == (paths.begin[r], paths.end[r])
                assert (slice_.name, slice_.category) == (LOOKS[state.name].words, state.name)
                about = slice_.about
                assert about["state"] == state.name
                assert (about["begin (ns)"], about["end (ns)"]) == (slice_.begin, slice_.end)
                assert about.get("tid", -1) == max(paths.tid[r], -1)
                assert about.get("cpu", -1) == max(paths.cpu[r], -1)
                assert about.get("lossy", False) == paths.lossy[r]
        thread = [(paths.host[r], paths.tid[r]) for r in rows]
        moves += sum(wakes(thread))
    flows = viewer.flows()
    assert len(flows) == moves
    for (from_track, source), (to_track, target) in flows:
        assert from_track is not to_track
        assert viewer.execution_of(from_track) == viewer.execution_of(to_track)
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
    names = [track.name for _, track in viewer.executions()]
    assert names[:2] == ["1 (mixed), worker 1201", "2 (mixed), worker 1201"]
    uuid, _ = viewer.executions()[0]
    assert {track.name for track in viewer.below(uuid)} == {"worker 1201", "kworker/0:1 33"}
    waits = [s for t in viewer.tracks.values() for s in t.slices if s.category == "WAIT_DISK"]
    assert waits
    assert {s.about["detail"] for s in waits} == {"virtio1-req.0"}


def test_who_ran_is_named_where_a_cpu_was_waited_for():
    state = int(State.WAIT_CPU)
    viewer = Viewer(perfetto_trace([some_set([(0, [(5, state, 3, 1, 7, 0)])])]))
    (slice_,) = [s for t in viewer.tracks.values() for s in t.slices if s.category == "WAIT_CPU"]
    assert slice_.about["who ran"] == "disk (7)"
    assert slice_.about["thread"] == "main"
    assert "detail" not in slice_.about


def test_a_saved_comparison_has_its_findings_beside_the_segments(factory):
    document = load_document(to_json(comparison_document(factory.comparison())))
    one = read_aligned_executions(document, "c.json", ())
    viewer = Viewer(perfetto_trace([one]))
    check(viewer, [one])
    for (uuid, track), aligned in zip(viewer.executions(), document.aligned, strict=True):
        assert track.name.startswith(aligned.execution + " ")
        assert track.slices[0].about["type"] == one.cluster(aligned.position)
        findings = [s for t in viewer.below(uuid) if t.name == "findings" for s in t.slices]
        mine = [f for f in document.findings if f.position == aligned.position]
        assert sorted((s.about["rank"], s.begin, s.end) for s in findings) == sorted(
            (f.rank, f.begin, f.end) for f in mine
        )
        assert {s.about["kind"] for s in findings} == {f.kind for f in mine}
    (some,) = read_aligned_executions(document, "c.json", ["2"]).paths.executions.id
    assert some == "2"


@pytest.mark.parametrize("known", [True, False])
def test_one_recording_has_its_date(known):
    one = some_set([(5_000, [(5, 1, 0, 1, 7, 0)])])
    said = (Environment(recording="trace", clock_epoch=1_790_000_000 * 10**9),) if known else ()
    one = replace(one, paths=replace(one.paths, environment=said))
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
