"""Traces of Perfetto, written by its own schema: of a recording of our own, and drawn ones."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto
from played.rows import read_rows
from pure.convert.perfetto_writer import (
    BOOTTIME,
    MONOTONIC,
    REALTIME,
    Bundle,
    Event,
    Writer,
    read_bundles,
    write_raw_as_perfetto,
)

from critpath.convert import convert_foreign, identify_foreign
from critpath.convert.perfetto_events import SHAPES, FieldWay
from critpath.errors import CritpathError, UnreadableError
from critpath_record.ftrace.convert import convert

ROOT = Path(__file__).resolve().parents[3]
ARCHIVE = ROOT / "fixtures" / "ftrace-raw" / "minimal.tar.xz"
BEGIN = 10**12


@pytest.fixture
def raw(unpack):
    return unpack(ARCHIVE) / "minimal"


@pytest.fixture
def open_file(tmp_path, rows):
    """Return a function: bytes as a file, converted; its events, those of marks, and manifest."""

    def open_bytes(data: bytes, name: str = "trace.pftrace"):
        file, place = tmp_path / name, tmp_path / f"{name}.recording"
        file.write_bytes(data)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        made = convert_foreign(file, place)
        return rows(place / made.manifest.trace)[0], made.manifest

    return open_bytes


def switch(time, before, after, state=1):
    values = {
        "prev_comm": f"t{before}",
        "prev_pid": before,
        "prev_prio": 120,
        "prev_state": state,
        "next_comm": f"t{after}",
        "next_pid": after,
        "next_prio": 120,
    }
    return Event(time, before, "sched_switch", values)


def waking(time, by, whom, cpu=0):
    values = {"comm": f"t{whom}", "pid": whom, "prio": 120, "target_cpu": cpu}
    return Event(time, by, "sched_waking", values)


def drawn(*bundles: Bundle, compact: bool = False) -> Writer:
    writer = Writer()
    writer.clocks(BEGIN, BEGIN + 10**18)
    for bundle in bundles:
        writer.bundle(bundle, compact=compact)
    return writer


def plain(found):
    """Return events without what is put in: statedump, and who is current."""
    return [row for row in found if not row[2].startswith(("lttng_", "critpath_"))]


def test_the_table_is_the_schema():
    """Numbers, names and kinds of every field that is converted are those of the schema."""
    events = {f.number: f for f in proto.FtraceEvent.DESCRIPTOR.fields}
    kinds = {3: "s64", 4: "u64", 5: "s32", 13: "u32", 9: "text"}
    for shape in SHAPES:
        assert events[shape.number].name == shape.name
        fields = {f.number: f for f in events[shape.number].message_type.fields}
        for slot in shape.slots:
            of = fields[slot.field]
            assert of.name == slot.name
            text = slot.way in {FieldWay.CHARS, FieldWay.LOCATED, FieldWay.REST}
            assert (kinds[of.type] == "text") == text, slot
            assert of.is_repeated == (slot.way == FieldWay.ARRAY)
            if slot.way == FieldWay.NUMBER and slot.size == 8:
                assert kinds[of.type] in {"s64", "u64"}


@pytest.mark.parametrize("packed", ["", "zlib"])
def test_events_are_those_of_the_same_recording(raw, rows, open_file, tmp_path, packed):
    """All that ftrace's own pages hold is there, to the nanosecond."""
    convert(raw, tmp_path / "own", lambda _: None)
    own, _ = rows(tmp_path / "own" / "kernel")
    found, manifest = open_file(write_raw_as_perfetto(raw, packed=packed))
    wanted = plain(own)
    assert len(found) > 1800

    def without(row):
        time, cpu, name, fields = row
        left = {"target_cpu"} if name == "sched_process_exit" else set()
        return time, cpu, name, {k: v for k, v in fields.items() if k not in left}

    assert Counter(r[2] for r in plain(found)) == Counter(r[2] for r in wanted)
    of_switches = [
        [without(r) for r in some if r[2] == "sched_switch"] for some in (plain(found), wanted)
    ]
    assert of_switches[0] == of_switches[1]
    assert [r[:3] for r in plain(found)] == [r[:3] for r in wanted]
    assert manifest.clock["epoch"] == json.loads((raw / "raw.json").read_text())["epoch"]
    assert manifest.clock["name"] == "boot"
    assert manifest.loss[0].cpu == 0


def test_compact_switches_and_wakes_are_the_same(raw, open_file):
    """Of the first switch of a cpu after a loss nothing says who ran: it alone is left out."""
    found, manifest = open_file(write_raw_as_perfetto(raw))
    compact, said = open_file(write_raw_as_perfetto(raw, compact=True), "compact.pftrace")
    for name, keys in (
        ("sched_switch", ("next_tid", "next_comm", "prev_state", "next_prio")),
        ("sched_waking", ("tid", "comm", "target_cpu", "prio")),
    ):
        wanted, got = (
            [(t, c, *(f[k] for k in keys)) for t, c, n, f in some if n == name]
            for some in (found, compact)
        )
        missing = set(wanted) - set(got)
        assert not set(got) - set(wanted)
        assert len(missing) == (1 if name == "sched_switch" else 0)
    assert any("1 switch left out" in line for line in said.warnings)
    assert not any("left out" in line for line in manifest.warnings)


def test_a_gzipped_file_is_read(raw, open_file):
    data = write_raw_as_perfetto(raw)
    found, manifest = open_file(data)
    packed, said = open_file(gzip.compress(data), "trace.pftrace.gz")
    assert packed == found
    assert said.warnings == manifest.warnings


def test_threads_and_host_are_taken_over(open_file):
    writer = drawn(Bundle(0, [switch(BEGIN + 5, 7, 8)]))
    writer.threads([(7, 7, "seven"), (8, 7, "eight")])
    writer.add().process_tree.processes.add(pid=9, cmdline=["/usr/bin/a-program-with-a-name", "-x"])
    system = writer.add().system_info
    system.utsname.release, system.utsname.machine, system.num_cpus = "5.10.1", "aarch64", 8
    system.tracing_service_version = "Perfetto v54"
    found, manifest = open_file(writer.bytes())
    threads = {
        f["tid"]: (f["pid"], f["name"])
        for _, _, n, f in found
        if n == "lttng_statedump_process_state"
    }
    assert threads == {7: (7, "seven"), 8: (7, "eight"), 9: (9, "a-program-with-")}
    assert manifest.host["kernel"] == "5.10.1"
    assert manifest.host["machine"] == "aarch64"
    assert manifest.host["cpus"] == 8
    assert manifest.recorder["tool_version"] == "Perfetto v54"


def test_losses_have_their_place_and_number(open_file):
    writer = drawn(
        Bundle(0, [switch(BEGIN + 5, 7, 8)]),
        Bundle(0, [switch(BEGIN + 50, 8, 7)], lost=True),
        Bundle(1, [switch(BEGIN + 20, 1, 2)]),
    )
    _, manifest = open_file(writer.bytes())
    assert [(one.cpu, one.events) for one in manifest.loss] == [(0, 1)]
    for phase, overrun in ((1, 100), (2, 142)):
        stats = writer.add().ftrace_stats
        stats.phase = phase
        stats.cpu_stats.add(cpu=0, overrun=overrun)
        stats.cpu_stats.add(cpu=1, overrun=0)
    _, manifest = open_file(writer.bytes())
    assert [(one.cpu, one.events) for one in manifest.loss] == [(0, 42)]


def test_dropped_packets_are_a_loss_where_nothing_says_else(open_file):
    """Whose bundle says what it follows, and that is there, has lost nothing."""
    writer = drawn(
        Bundle(0, [switch(BEGIN + 5, 7, 8)]),
        Bundle(1, [switch(BEGIN + 6, 1, 2)]),
    )
    writer.add(previous_packet_dropped=1)
    writer.bundle(Bundle(0, [switch(BEGIN + 50, 8, 7)]))
    more = {"previous_bundle_end_timestamp": BEGIN + 6}
    writer.bundle(Bundle(1, [switch(BEGIN + 60, 2, 1)], more=more))
    _, manifest = open_file(writer.bytes())
    assert [(one.cpu, one.events) for one in manifest.loss] == [(0, 1)]
    # Of the first packet of a sequence it says that there was none before.
    first = drawn()
    first.add(sequence=4, previous_packet_dropped=1, first_packet_on_sequence=True)
    first.bundle(Bundle(0, [switch(BEGIN + 50, 8, 7)]), sequence=4)
    assert not open_file(first.bytes())[1].loss


def test_clocks_that_were_compared_are_converted(open_file):
    """Times of ftrace's other clocks are moved to those of CLOCK_BOOTTIME."""
    more = {"ftrace_clock": 2, "ftrace_timestamp": 1000, "boot_timestamp": BEGIN}
    found, manifest = open_file(drawn(Bundle(0, [switch(1500, 7, 8)], more=more)).bytes())
    assert [row[0] for row in found if row[2] == "sched_switch"] == [BEGIN + 500]
    assert not manifest.warnings
    _, manifest = open_file(
        drawn(Bundle(0, [switch(1500, 7, 8)], more={"ftrace_clock": 3})).bytes(), "local.pftrace"
    )
    assert manifest.clock["name"] == "local"
    assert "cpus may differ" in manifest.warnings[0]


def slices_of(found):
    marks = [(t, f["buf"]) for t, _, n, f in found if n == "print"]
    return sorted(marks)


def add_event(writer, time, kind, sequence=2, clock=None, flags=2, **values):
    packet = writer.add(sequence, timestamp=time, sequence_flags=flags)
    if clock is not None:
        packet.timestamp_clock_id = clock
    packet.track_event.type = kind
    for name, value in values.items():
        setattr(packet.track_event, name, value)
    return packet


def start_track(writer, sequence=2, uuid=77, clock=None):
    packet = writer.add(sequence, sequence_flags=1)
    packet.track_descriptor.uuid = uuid
    packet.track_descriptor.thread.pid, packet.track_descriptor.thread.tid = 100, 101
    packet.track_descriptor.thread.thread_name = "worker"
    packet.trace_packet_defaults.track_event_defaults.track_uuid = uuid
    if clock is not None:
        packet.trace_packet_defaults.timestamp_clock_id = clock
    packet.interned_data.event_names.add(iid=3, name="request")
    return packet


def test_slices_are_marks_of_their_threads(open_file):
    writer = drawn(Bundle(3, [switch(BEGIN + 5, 100, 101), switch(BEGIN + 900, 101, 0)]))
    start_track(writer)
    add_event(writer, BEGIN + 10, 1, name_iid=3)
    add_event(writer, BEGIN + 20, 1, name="inner\npart")
    add_event(writer, BEGIN + 30, 2)
    add_event(writer, BEGIN + 40, 2)
    add_event(writer, BEGIN + 35, 3, name="now")
    found, _ = open_file(writer.bytes())
    assert slices_of(found) == [
        (BEGIN + 10, "B|100|request"),
        (BEGIN + 20, "B|100|inner part"),
        (BEGIN + 30, "E|100"),
        (BEGIN + 35, "I|100|now"),
        (BEGIN + 40, "E|100"),
    ]


def test_slices_have_clocks_of_their_own(open_file):
    """Of a sequence, that counts from packet to packet; and CLOCK_MONOTONIC, which stood still."""
    writer = drawn(Bundle(0, [switch(BEGIN + 5, 100, 101)]))
    of = writer.add(5).clock_snapshot
    for clock, time in ((BOOTTIME, BEGIN + 100), (MONOTONIC, 5000), (REALTIME, 10**18)):
        of.clocks.add(clock_id=clock, timestamp=time)
    of.clocks.add(clock_id=64, timestamp=7, is_incremental=True, unit_multiplier_ns=1000)
    start_track(writer, sequence=5, clock=64)
    add_event(writer, 2, 1, sequence=5, name_iid=3)
    add_event(writer, 3, 2, sequence=5)
    add_event(writer, 5100, 1, sequence=5, clock=MONOTONIC, name="other")
    add_event(writer, 1, 2, sequence=5, clock=99)
    found, manifest = open_file(writer.bytes())
    assert slices_of(found) == [
        (BEGIN + 200, "B|100|other"),
        (BEGIN + 2100, "B|100|request"),
        (BEGIN + 5100, "E|100"),
    ]
    assert any("1 slice left out: of a clock" in line for line in manifest.warnings)


def test_slices_whose_names_are_missing_are_left_out_and_counted(open_file):
    writer = drawn(Bundle(0, [switch(BEGIN + 5, 100, 101)]))
    start_track(writer)
    lost = add_event(writer, BEGIN + 10, 1, name_iid=3)
    lost.previous_packet_dropped = 1
    add_event(writer, BEGIN + 11, 2)
    start_track(writer)
    add_event(writer, BEGIN + 20, 1, name_iid=3)
    found, manifest = open_file(writer.bytes())
    assert slices_of(found) == [(BEGIN + 20, "B|100|request")]
    assert any("2 slices left out: whose names" in line for line in manifest.warnings)


def test_slices_of_no_thread_have_a_cookie(open_file):
    writer = drawn(Bundle(0, [switch(BEGIN + 5, 100, 101)]))
    packet = writer.add(2, sequence_flags=1)
    packet.track_descriptor.uuid, packet.track_descriptor.process.pid = 5, 100
    child = writer.add(2)
    child.track_descriptor.uuid, child.track_descriptor.parent_uuid = 6, 5
    add_event(writer, BEGIN + 10, 1, name="async", track_uuid=6)
    add_event(writer, BEGIN + 20, 2, track_uuid=6)
    found, _ = open_file(writer.bytes())
    assert slices_of(found) == [(BEGIN + 10, "S|100|async|6"), (BEGIN + 20, "F|100||6")]


def test_events_that_describe_themselves_are_kept(open_file):
    generic = proto.FtraceEvent(timestamp=BEGIN + 7, pid=7)
    generic.generic.event_name = "my_driver_begin"
    generic.generic.field.add(name="id", uint_value=2**63)
    generic.generic.field.add(name="delta", int_value=-3)
    generic.generic.field.add(name="what", str_value="read")
    generic.generic.field.add(name="bad name\nfield:", int_value=1)
    writer = drawn(Bundle(0, [switch(BEGIN + 5, 7, 8)]))
    bundle = writer.add().ftrace_events
    bundle.event.append(generic)
    found, _ = open_file(writer.bytes())
    (one,) = (row for row in found if row[2] == "my_driver_begin")
    assert one[0] == BEGIN + 7
    assert one[3]["what"] == "read"
    assert one[3]["delta"] == -3
    assert one[3]["id"] in {2**63, -(2**63)}


def test_a_trace_without_the_kernel_says_what_to_record(open_file):
    writer = Writer()
    writer.clocks(BEGIN, 10**18)
    start_track(writer)
    add_event(writer, BEGIN + 10, 1, name_iid=3)
    with pytest.raises(UnreadableError, match="no events of the kernel") as error:
        open_file(writer.bytes())
    assert "linux.ftrace" in error.value.do


def test_what_is_left_out_is_said(open_file):
    writer = drawn(Bundle(0, [switch(BEGIN + 5, 7, 8)]))
    writer.add().ftrace_events.event.add(timestamp=BEGIN + 6, pid=1).clk_enable.name = "x"
    writer.add(machine_id=5).ftrace_events.cpu = 1
    _, manifest = open_file(writer.bytes())
    assert any("1 event of kinds" in line and "(1)" in line for line in manifest.warnings)
    assert any("1 packet of other machines" in line for line in manifest.warnings)


@pytest.mark.parametrize("cut", [3, 40, 1000, -1, -7])
def test_a_file_that_is_cut_off_keeps_what_is_whole(raw, open_file, cut):
    data = write_raw_as_perfetto(raw)
    data = data[:cut] if cut < 0 else data[: len(data) // 2 + cut]
    found, manifest = open_file(data)
    assert len(found) > 100
    assert any("cut off" in line for line in manifest.warnings)


def test_what_is_no_packet_ends_it_as_a_loss(raw, open_file):
    data = bytearray(write_raw_as_perfetto(raw))
    packets = proto.Trace.FromString(bytes(data)).packet
    whole = proto.Trace(packet=packets[:20]).SerializeToString()
    found, manifest = open_file(whole + b"\x07\xff\xff" * 20)
    assert found
    assert any("is no packet's" in line for line in manifest.warnings)
    assert manifest.loss


def test_packed_packets_that_are_damaged_are_a_loss(raw, open_file):
    found, _ = open_file(write_raw_as_perfetto(raw, packed="zstd"))
    assert found == open_file(write_raw_as_perfetto(raw))[0]
    trace = proto.Trace.FromString(write_raw_as_perfetto(raw, packed="zlib"))
    at = len(trace.packet) // 2
    content = bytearray(trace.packet[at].compressed_packets)
    content[len(content) // 2] ^= 0xFF
    trace.packet[at].compressed_packets = bytes(content)
    _, manifest = open_file(trace.SerializeToString())
    assert any("packed are damaged" in line for line in manifest.warnings)
    assert {one.cpu for one in manifest.loss} >= {0}


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.deep)])
def test_nothing_crashes_on_changed_files(raw, open_file, count):
    """Files with some bytes changed, cut or put in: read with a word, or refused."""
    chance = random.Random(42)  # noqa: S311 - a seed, for the same files each time
    seeds = []
    for compact, packed in ((False, ""), (True, ""), (True, "zlib")):
        writer = Writer()
        writer.clocks(BEGIN, 10**18)
        start_track(writer)
        add_event(writer, BEGIN + 10, 1, name_iid=3)
        add_event(writer, BEGIN + 12, 2)
        writer.threads([(7, 7, "seven")])
        for bundle in [*read_bundles(raw)][:3]:
            few = Bundle(bundle.cpu, bundle.events[:12], bundle.lost)
            writer.bundle(few, compact=compact)
        seeds.append(writer.bytes(packed=packed))
    refused = 0
    for _ in range(count):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data))
            how = chance.randrange(4)
            if how == 0:
                data[at] ^= 1 << chance.randrange(8)
            elif how == 1:
                data[at] = chance.choice((0, 0x7F, 0x80, 0xFF))
            elif how == 2:
                del data[at : at + chance.randrange(1, 9)]
            else:
                data[at:at] = chance.randbytes(chance.randrange(1, 9))
        try:
            open_file(bytes(data))
        except CritpathError:
            refused += 1
    assert 0 < refused < 0.95 * count


TIDS = st.integers(1, 5)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 1000), TIDS, st.booleans()),
        min_size=2,
        max_size=40,
    ),
    st.booleans(),
)
def test_drawn_bundles_come_back(tmp_path_factory, steps, compact):
    """Of any schedule, every switch and wake comes back with its time, cpu and threads."""
    time, running, wanted = BEGIN, {}, []
    bundles: dict[int, list[Event]] = {}
    for cpu, pause, tid, wakes in steps:
        time += pause + 1
        before = running.get(cpu, 99)
        event = waking(time, before, tid, cpu) if wakes else switch(time, before, tid)
        if not wakes:
            running[cpu] = tid
        bundles.setdefault(cpu, []).append(event)
        if not compact or wakes or before != 99:
            which = ("sched_waking", tid) if wakes else ("sched_switch", before, tid)
            wanted.append((time, cpu, *which))
    if not wanted:
        return
    made = [Bundle(cpu, events) for cpu, events in bundles.items()]
    place = tmp_path_factory.mktemp("drawn")
    (place / "file").write_bytes(drawn(*made, compact=compact).bytes())
    (place / "made").mkdir()
    convert_foreign(place / "file", place / "made")
    found, _ = read_rows(place / "made" / "trace")
    got = [
        (t, c, n, f["tid"]) if n == "sched_waking" else (t, c, n, f["prev_tid"], f["next_tid"])
        for t, c, n, f in found
        if n in {"sched_waking", "sched_switch"}
    ]
    assert sorted(got) == sorted(wanted)


def test_it_is_known_by_its_first_bytes(raw, tmp_path):
    for name, data in (("a", write_raw_as_perfetto(raw)), ("b", drawn().bytes())):
        (tmp_path / name).write_bytes(data)
        assert identify_foreign(tmp_path / name) == "Perfetto"
    for data in (b"\x0a", b"\n\n\n\nhello\n", b"\x0a\x05hello", b""):
        (tmp_path / "c").write_bytes(data)
        assert identify_foreign(tmp_path / "c") != "Perfetto", data


def test_runs_are_found_by_their_slices(critpath, tmp_path):
    """A slice that a program named is a run, whatever made it."""
    steps = [switch(BEGIN + 5, 0, 101), switch(BEGIN + 900, 101, 0), waking(BEGIN + 1500, 0, 101)]
    steps += [switch(BEGIN + 1600, 0, 101), switch(BEGIN + 3000, 101, 0)]
    writer = drawn(Bundle(0, steps))
    start_track(writer)
    add_event(writer, BEGIN + 100, 1, name_iid=3)
    add_event(writer, BEGIN + 2000, 2)
    (tmp_path / "trace.pftrace").write_bytes(writer.bytes())
    done = critpath(
        *("path", tmp_path / "trace.pftrace", "--execution", "slice:request", "--format", "json")
    )
    assert done.returncode == 0
    (path,) = (json.loads(line) for line in done.stdout.splitlines())
    assert (path["begin"], path["end"], path["subject"]["tid"]) == (BEGIN + 100, BEGIN + 2000, 101)
    times = [(s["state"], s["end"] - s["begin"]) for s in path["segments"]]
    assert times == [
        *(("RUN", 800), ("WAIT_UNEXPLAINED", 600), ("WAIT_CPU", 100), ("RUN", 400)),
    ]


def test_old_events_of_chrome_are_slices_too(open_file):
    writer = drawn(Bundle(0, [switch(BEGIN + 5, 100, 101)]))
    packet = writer.add(2, sequence_flags=1)
    packet.thread_descriptor.pid, packet.thread_descriptor.tid = 100, 101
    one = writer.add(2, timestamp=BEGIN + 10, sequence_flags=2)
    one.track_event.name = "task"
    one.track_event.legacy_event.phase, one.track_event.legacy_event.duration_us = ord("X"), 3
    found, _ = open_file(writer.bytes())
    assert slices_of(found) == [(BEGIN + 10, "B|100|task"), (BEGIN + 3010, "E|100")]
