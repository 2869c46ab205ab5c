"""What is read of a perf.data is what was written: by a writer in the tests, and by perf."""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import perf_write
from oracle.perf_write import PerfFile, switch, waking

import critpath
from critpath.convert import convert_foreign, identify_foreign
from critpath.errors import CritpathError, UnreadableError
from critpath.model import EventRequest, Kind
from critpath.read import KERNEL_EVENTS, Recording
from critpath_record.ftrace.events import lttng_name

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "perf-data"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
STATEDUMP = "lttng_statedump_process_state"
CHANGED = int(os.environ.get("CRITPATH_CHANGED_FILES", "200"))  # 2,000 were tried
FORMS = (
    perf_write.USUAL,
    perf_write.USUAL & ~perf_write.IDENTIFIER | perf_write.ID,
    perf_write.USUAL | perf_write.READ | perf_write.CALLCHAIN,
    perf_write.TIME | perf_write.CPU | perf_write.RAW | perf_write.ID | perf_write.STREAM_ID,
    (1 << 11) - 1 | perf_write.IDENTIFIER,
)


def convert(place: Path, data: bytes) -> tuple[Path, tuple[str, ...], dict[int, int]]:
    """Convert a file; return the recording, its warnings and the losses by cpu."""
    file = place / "perf.data"
    file.write_bytes(data)
    made = place / "made"
    made.mkdir()
    manifest = convert_foreign(file, made).manifest
    return made, manifest.warnings, {of.cpu: of.events for of in manifest.loss}


def read(made: Path) -> list[tuple[int, int, str, tuple[int, ...]]]:
    """Return time, cpu, kind and threads of all switches, wakes and exits, in order of time."""
    wanted = [of for of in KERNEL_EVENTS if of.kind in {Kind.SWITCH, Kind.WAKING, Kind.EXIT}]
    events = Recording(made).read(wanted)
    found = []
    for time, cpu, number, offset in zip(
        *(of.tolist() for of in (events.timestamp, events.cpu, events.event_class, events.offset)),
        strict=True,
    ):
        values = events.values[offset:].tolist()
        kind = events.classes[number].kind
        at = {Kind.SWITCH: (1, 2, 4), Kind.WAKING: (0,), Kind.EXIT: (0,)}[kind]
        found.append((time, cpu, kind.name, tuple(values[one] for one in at)))
    return found


def drawing(seed: int) -> random.Random:
    """Return what draws the same each time."""
    return random.Random(seed)  # noqa: S311 - no secret


def draw_events(draw: random.Random, count: int, cpus: int) -> list[tuple[int, int, str, int]]:
    """Draw (time, cpu, name, thread) in order of time; no two at once on a cpu."""
    time, found = 10**12, []
    for _ in range(count):
        time += draw.choice([1, 100, 10**6, 1 << 28])
        name = draw.choice(["sched_switch", "sched_switch", "sched_waking"])
        found.append((time, draw.randrange(cpus), name, draw.randrange(1, 50)))
    return found


def write_events(file: PerfFile, events: list[tuple[int, int, str, int]]) -> list[object]:
    """Write events and return what has to be read of them."""
    truth = []
    running = dict.fromkeys(range(file.cpus), 0)
    for time, cpu, name, tid in events:
        if name == "sched_switch":
            values, shown = switch(running[cpu], tid % 3, tid), (running[cpu], tid % 3, tid)
            file.sample(cpu, time, name, values, running[cpu])
            running[cpu] = tid
            truth.append((time, cpu, "SWITCH", shown))
        else:
            file.sample(cpu, time, name, waking(tid, cpu), running[cpu])
            truth.append((time, cpu, "WAKING", (tid,)))
    return truth


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 1 << 32),
    form=st.sampled_from(FORMS),
    read_format=st.integers(0, 31),
    order=st.sampled_from("<>"),
    piped=st.booleans(),
    beside=st.booleans(),
    callchain=st.integers(0, 5),
)
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    form: int,
    read_format: int,
    order: str,
    piped: bool,
    beside: bool,
    callchain: int,
) -> None:
    file = PerfFile(
        *(order, 3, form, read_format),
        callchain=callchain,
        beside=beside and bool(form & perf_write.IDENTIFIER),
    )
    draw = drawing(seed)
    file.index()
    truth = write_events(file, draw_events(draw, draw.randrange(1, 400), 3))
    if file.beside:
        file.cpu_sample(0, truth[-1][0], 3)
    made, warnings, losses = convert(
        tmp_path_factory.mktemp("perf"), file.pipe() if piped else file.file()
    )
    assert read(made) == sorted(truth, key=lambda of: of[:1])
    assert not losses
    assert len(warnings) == file.beside


@pytest.mark.parametrize("name", EXPECTED)
def test_recordings_of_perf_are_as_perf_prints_them(
    tmp_path: Path, unpack: Callable[[Path], Path], name: str
) -> None:
    if name == "compressed.data":
        pytest.importorskip("pyarrow")
    made, warnings, losses = convert(
        tmp_path, (unpack(FIXTURES / "recorded.tar.xz") / name).read_bytes()
    )
    expected = EXPECTED[name]
    every = [EventRequest(Kind.OTHER, ("*",), ())]
    events = Recording(made).read(every)
    found = Counter(events.classes[number].name for number in events.event_class.tolist())
    own = ("critpath_current", "lttng_statedump_start", "lttng_statedump_end", STATEDUMP)
    names = {lttng_name(*of.split(":")): n for of, n in expected["counts"].items() if of[0] != "c"}
    assert {of: n for of, n in found.items() if of not in own} == names
    switches = [(time, cpu, *of) for time, cpu, kind, of in read(made) if kind == "SWITCH"]
    shown = sorted((time, cpu, before, after) for time, cpu, before, _, after in switches)
    assert hashlib.sha256(repr(shown).encode()).hexdigest() == expected["switches"]
    assert sum(losses.values()) == expected["lost_in_all"]
    told = {"mixed.data": "no tracepoints left out", "alone.data": "some processes only"}.get(name)
    assert [told in of for of in warnings] == [True] if told else not warnings


def test_records_are_put_in_order_within_rounds(tmp_path: Path) -> None:
    file = PerfFile(cpus=2)
    events = draw_events(drawing(7), 900, 2)
    truth = write_events(file, events)
    samples, file.records = file.records, []
    # Each round has those of one cpu after those of the other, and some of the next round's time.
    for begin in range(0, len(samples), 100):
        of_round = [
            one
            for cpu in (1, 0)
            for one, event in zip(
                samples[begin : begin + 100], events[begin : begin + 100], strict=True
            )
            if event[1] == cpu
        ]
        of_round[3], of_round[5] = of_round[5], of_round[3]
        file.records += of_round
        file.round()
    made, warnings, losses = convert(tmp_path, file.file())
    assert read(made) == truth
    assert (warnings, losses) == ((), {})


def compressor() -> object:
    """Return what compresses as perf does: one stream, flushed after every part."""
    pyarrow = pytest.importorskip("pyarrow")

    parts: list[bytes] = []

    def compress(data: bytes) -> bytes:
        # Blocks that are not compressed, which every zstd stream may have.
        head = b"" if parts else b"\x28\xb5\x2f\xfd\x00\x58"
        parts.append(data)
        return head + (len(data) << 3).to_bytes(3, "little") + data

    assert pyarrow
    return compress


@pytest.mark.parametrize("kind", [81, 83])
@pytest.mark.parametrize("piped", [False, True])
def test_compressed_records_are_read(tmp_path: Path, kind: int, piped: bool) -> None:
    file = PerfFile(cpus=2)
    truth = write_events(file, draw_events(drawing(3), 700, 2))
    file.compress(compressor(), kind)
    file.records[1:1] = [struct.pack("<IHH", 68, 0, 8)]
    made, warnings, losses = convert(tmp_path, file.pipe() if piped else file.file())
    assert read(made) == truth
    assert (warnings, losses) == ((), {})


def test_compressed_records_that_are_damaged_are_told(tmp_path: Path) -> None:
    file = PerfFile(cpus=2)
    truth = write_events(file, draw_events(drawing(3), 700, 2))
    file.compress(compressor())
    broken = bytearray(file.records[5])
    broken[8:11] = b"\xff\xff\xff"
    file.records[5] = bytes(broken)
    made, warnings, losses = convert(tmp_path, file.file())
    found = read(made)
    assert 0 < len(found) < len(truth)
    assert found == truth[: len(found)]
    assert any("cannot be decompressed" in of for of in warnings)
    assert losses


def test_losses_have_their_cpu_and_time(tmp_path: Path) -> None:
    file = PerfFile(cpus=2)
    file.index()
    for time in range(1000, 11000, 1000):
        file.sample(0, time, "sched_waking", waking(5, 0), 1)
        file.sample(1, time, "sched_waking", waking(6, 1), 1)
    file.lost(1, 11500, 40)
    file.sample(1, 12000, "sched_waking", waking(6, 1), 1)
    file.lost_samples(1, 40)  # of which perf tells again at its end
    file.lost_samples(0, 3)  # after the last event that there was room for
    file.lost_samples(0, 99, misc=1 << 15)  # left out by a filter
    made, warnings, losses = convert(tmp_path, file.file())
    assert losses == {0: 3, 1: 40}
    events = Recording(made).read(KERNEL_EVENTS)
    assert [(of.begin, of.end, of.cpu, of.events) for of in events.losses if of.events == 40] == [
        (10000, 12000, 1, 40)
    ]
    assert [of for of in warnings if "3 events lost at a time" in of]


def test_events_that_the_kernel_held_back_are_a_loss(tmp_path: Path) -> None:
    file = PerfFile(cpus=1)
    file.index()
    file.sample(0, 1000, "sched_waking", waking(5, 0), 1)
    file.record(5, file.pack("QQQ", 1500, 1000, 1000) + file.end(0, 1500))
    file.sample(0, 2000, "sched_waking", waking(6, 0), 1)
    made, warnings, losses = convert(tmp_path, file.file())
    assert losses == {0: 1}
    assert len(read(made)) == 2
    assert any("held events back" in of for of in warnings)


def test_without_switches_the_command_is_said(tmp_path: Path) -> None:
    file = PerfFile(cpus=1, names=("sched_waking",))
    file.sample(0, 1000, "sched_waking", waking(5, 0), 1)
    (tmp_path / "perf.data").write_bytes(file.file())
    with pytest.raises(UnreadableError, match="no sched_switch") as raised:
        critpath.extract(tmp_path / "perf.data", execution="thread")
    assert "perf record -a" in raised.value.do


def test_threads_are_known_by_their_process(tmp_path: Path) -> None:
    file = PerfFile(cpus=1)
    file.comm(70, 70, "server")
    file.fork(70, 71, 70)
    file.comm(70, 71, "worker")
    file.fork(70, 90, 70, time=2000)
    file.comm(70, 90, "late", time=2001)
    file.sample(0, 3000, "sched_switch", switch(0, 0, 71), 0)
    file.sample(0, 4000, "sched_switch", switch(71, 1, 0), 71)
    made, _, _ = convert(tmp_path, file.file())
    wanted = [of for of in KERNEL_EVENTS if of.kind == Kind.STATEDUMP]
    events = Recording(made).read(wanted)
    rows = {
        tuple(events.values[at : at + 2].tolist()): events.strings[events.values[at + 2]]
        for at in events.offset.tolist()
    }
    assert rows == {(70, 70): "server", (71, 70): "worker"}


def test_clock_and_host_are_kept(tmp_path: Path) -> None:
    file = PerfFile(flags=perf_write.SAMPLE_ID_ALL | perf_write.USE_CLOCKID, clock=1)
    file.sample(0, 3000, "sched_switch", switch(0, 0, 71), 0)
    made, _, _ = convert(tmp_path, file.file())
    manifest = Recording(made).manifest
    assert manifest.clock == {"name": "mono", "epoch": 1_700_000_000_000_000_000 - 5_000_000_000}
    assert manifest.host["name"] == "machine"
    assert manifest.recorder["tool_version"] == "6.1.1"
    assert Recording(made).read(KERNEL_EVENTS).timestamp.tolist() == [3000]


def test_one_process_alone_is_told(tmp_path: Path) -> None:
    file = PerfFile()
    file.index(tid=400)
    file.sample(0, 3000, "sched_switch", switch(0, 0, 71), 0)
    _, warnings, _ = convert(tmp_path, file.file())
    assert [of for of in warnings if "some processes only" in of and "perf record -a" in of]


def test_what_is_beside_is_skipped_and_told(tmp_path: Path) -> None:
    file = PerfFile()
    file.sample(0, 3000, "sched_switch", switch(0, 0, 71), 0)
    file.record(71, struct.pack("<QQQIIII", 64, 0, 0, 0, 0, 0, 0))
    file.records.append(struct.pack("<IHH", 9, 0, 3) * 8)  # which is no record
    file.record(14, bytes(40))
    file.record(200, bytes(16))  # of a kind that is not known
    file.record(21, bytes(16))
    file.sample(0, 4000, "sched_switch", switch(71, 1, 0), 71)
    made, warnings, _ = convert(tmp_path, file.file())
    assert len(read(made)) == 2
    assert warnings == (
        "1 record of kinds that are not known left out",
        "64 bytes of a processor's own trace (AUX) left out",
    )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"sampled": perf_write.USUAL & ~perf_write.TIME}, "without their time"),
        ({"sampled": perf_write.USUAL & ~perf_write.CPU}, "without their cpu"),
        ({"sampled": perf_write.USUAL & ~perf_write.RAW}, "without their fields"),
        ({"names": (), "beside": True}, "no tracepoints"),
    ],
)
def test_what_lacks_something_is_refused(
    tmp_path: Path, change: dict[str, object], what: str
) -> None:
    file = PerfFile(**change)  # type: ignore[arg-type]
    if file.names:
        file.sample(0, 3000, "sched_switch", switch(0, 0, 71), 0)
    else:
        file.cpu_sample(0, 3000, 71)
    with pytest.raises(UnreadableError, match=what) as raised:
        convert(tmp_path, file.file())
    assert "perf record -a" in raised.value.do


def test_a_file_that_was_not_ended_is_refused(tmp_path: Path) -> None:
    file = PerfFile()
    file.sample(0, 3000, "sched_switch", switch(0, 0, 71), 0)
    data = bytearray(file.file())
    data[48:56] = bytes(8)  # perf writes the size of the data at its end
    with pytest.raises(UnreadableError, match="did not get to its end"):
        convert(tmp_path, bytes(data))


def test_what_a_pipe_cut_off_is_told(tmp_path: Path) -> None:
    file = PerfFile(cpus=1)
    file.index()
    truth = write_events(file, draw_events(drawing(5), 50, 1))
    data = file.pipe()
    made, warnings, losses = convert(tmp_path, data[:-20])
    assert read(made) == truth[:-1]
    assert any("ends within a record" in of for of in warnings)
    assert losses == {0: 1}


def test_a_directory_of_files_is_read(tmp_path: Path) -> None:
    file = PerfFile(cpus=2, divided=True)
    truth = write_events(file, draw_events(drawing(9), 300, 2))
    samples, file.records = file.records, []
    place = tmp_path / "perf.data"
    place.mkdir()
    for cpu in (0, 1):
        mine = [one for one, of in zip(samples, truth, strict=True) if of[1] == cpu]
        (place / f"data.{cpu}").write_bytes(b"".join(mine))
    file.index()
    (place / "data").write_bytes(file.file())
    assert identify_foreign(place) == "perf.data"
    made = tmp_path / "made"
    made.mkdir()
    assert not convert_foreign(place, made).manifest.warnings
    assert read(made) == truth
    assert identify_foreign(made) is None
    (made / "data").write_text("# tracer: nop\n")
    assert identify_foreign(made) is None


def test_it_is_told_from_other_files(tmp_path: Path) -> None:
    for name, data in (("a", PerfFile().file()), ("b", PerfFile(order=">").pipe())):
        (tmp_path / name).write_bytes(data)
        assert identify_foreign(tmp_path / name) == "perf.data"


def test_changed_files_are_read_or_refused(tmp_path: Path) -> None:
    """No other error, and none is read as if nothing were missing that the truth has."""
    draw = drawing(20261130)
    files = []
    for number, order in enumerate("<<>"):
        file = PerfFile(order=order, cpus=2, beside=number == 1)
        file.index()
        file.comm(70, 70, "server")
        truth = write_events(file, draw_events(drawing(number), 40, 2))
        file.round()
        files += [(file.file(), len(truth)), (file.pipe(), len(truth))]
        if number == 0:
            file.compress(compressor(), 81, 700)
            files.append((file.file(), len(truth)))
    read_whole = silent = 0
    for number in range(CHANGED):
        data, events = draw.choice(files)
        changed = bytearray(data)
        for _ in range(draw.choice([1, 1, 2, 8])):
            at = draw.randrange(len(changed))
            if draw.random() < 0.2:
                del changed[at:]
                if not changed:
                    changed = bytearray(data[:16])
            elif draw.random() < 0.5:
                changed[at] = draw.randrange(256)
            else:
                word = draw.choice([0, 1, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF]).to_bytes(4, "little")
                changed[at : at + 4] = word[: len(changed) - at]
        place = tmp_path / str(number)
        place.mkdir()
        refused: CritpathError | None = None
        try:
            made, warnings, losses = convert(place, bytes(changed))
        except CritpathError as error:
            refused = error
        else:
            read_whole += not warnings
            silent += not warnings and not losses and len(read(made)) < events
        assert refused is None or (refused.what and refused.do)
    assert CHANGED // 20 < read_whole < CHANGED - CHANGED // 20
    # Where a sample was made a record of another kind, or the file of a pipe ends behind one.
    assert silent <= CHANGED // 50
