"""What is read of a trace.dat is what was written: by a writer in the tests, and by trace-cmd."""

from __future__ import annotations

import json
import os
import random
import struct
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from oracle import trace_dat_write as writing
from oracle.trace_dat_write import BEGIN, UNAMED, Buffer, Made, TraceDat, draw, trace, wrap_raw

import critpath
from critpath.commands import main
from critpath.convert import convert_foreign, directory_of, identify_foreign
from critpath.errors import CritpathError, UnreadableError
from critpath.model import Kind
from critpath.read import KERNEL_EVENTS, Recording
from critpath_record.ftrace import convert_pages

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
CHANGED = int(os.environ.get("CRITPATH_CHANGED_FILES", "200"))  # 2,000 were tried


def convert(place: Path, data: bytes, name: str = "trace.dat"):
    """Convert a file; return the recording and its manifest."""
    file = place / name
    file.write_bytes(data)
    made = place / f"{name}.made"
    made.mkdir()
    return made, convert_foreign(file, made).manifest


def streams(made: Path) -> dict[str, bytes]:
    """Return the streams, without the trace's identity in each packet."""
    found = {}
    for file in sorted((made / "trace" / "kernel").iterdir()):
        if file.name == "metadata":
            continue
        content = file.read_bytes()
        identity = content[4:20]
        found[file.name] = content.replace(identity, bytes(16))
    return found


def times(made: Path, kind: Kind = Kind.SWITCH) -> list[int]:
    events = Recording(made).read([of for of in KERNEL_EVENTS if of.kind is kind])
    return events.timestamp.tolist()


VERSIONS = {
    "6": TraceDat.version_6,
    "7": TraceDat.version_7,
    "7-zlib": lambda of: of.version_7("zlib"),
    "7-zstd": lambda of: of.version_7("zstd"),
}


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    place = tmp_path_factory.mktemp("raw")
    with tarfile.open(FIXTURES / "ftrace-raw" / "minimal.tar.xz") as tar:
        tar.extractall(place, **DATA_ONLY)  # noqa: S202 - an archive of our own
    return place / "minimal"


# What `trace-cmd report` prints of each: events, switches, wakes; and what was lost.
RECORDED = {
    "six": (199, 135, 59, 0),
    "seven": (297, 188, 98, 0),
    "zstd": (297, 188, 98, 0),
    "local": (216, 140, 60, 0),
    "buffers": (363 - 58, 140, 60, 0),  # 58 wakes are in both buffers
    "lost": (4248, 144, 60, 997),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    place = tmp_path_factory.mktemp("recorded")
    with tarfile.open(FIXTURES / "trace-dat" / "recorded.tar.xz") as tar:
        tar.extractall(place, **DATA_ONLY)  # noqa: S202 - an archive of our own
    return place


@pytest.mark.parametrize("name", RECORDED)
def test_counts_are_those_of_trace_cmd(recorded, tmp_path, name):
    made = tmp_path / "made"
    made.mkdir()
    manifest = convert_foreign(recorded / f"{name}.dat", made).manifest
    found = manifest.recorder["event_count"], len(times(made)), len(times(made, Kind.WAKING))
    assert (*found, sum(of.events for of in manifest.loss)) == RECORDED[name]
    assert manifest.recorder["tool_version"] == "3.1.6 not-a-git-repo"
    assert manifest.host["kernel"].startswith("6.18")
    clock = {"local": "local"}.get(name, "mono")
    assert manifest.clock["name"] == clock
    assert any("local" in text for text in manifest.warnings) == (clock == "local")
    assert len(critpath.extract(made, execution="thread"))


def test_what_trace_cmd_compresses_is_what_was_there(recorded, tmp_path):
    found = []
    for name in ("seven", "zstd"):
        made = tmp_path / name
        made.mkdir()
        convert_foreign(recorded / f"{name}.dat", made)
        found.append(streams(made))
    assert found[0] == found[1]


@pytest.mark.parametrize("version", VERSIONS)
def test_pages_of_the_ftrace_recorder_give_the_same_paths(raw, tmp_path, version):
    """The same pages, as trace-cmd would have kept them: to the nanosecond."""
    made, _ = convert(tmp_path, VERSIONS[version](wrap_raw(raw, options=[UNAMED])))
    ours = tmp_path / "ours"
    ours.mkdir()
    convert_pages(raw, ours / "trace", lambda _: None)
    found, known = (critpath.extract(one, execution="process") for one in (made, ours))
    assert found.executions.begin.tolist() == known.executions.begin.tolist()
    assert found.executions.tid.tolist() == known.executions.tid.tolist()
    for name in ("state", "begin", "end"):
        assert getattr(found.paths, name).tolist() == getattr(known.paths, name).tolist()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(5))
def test_either_byte_order_gives_the_same_trace(tmp_path, version, seed):
    found = []
    for big in (False, True):
        data = VERSIONS[version](trace(Buffer(draw(seed, big=big)), big=big))
        made, manifest = convert(tmp_path, data, f"{big}.dat")
        found.append((streams(made), manifest.loss, manifest.warnings, manifest.host))
    assert found[0] == found[1]
    assert found[0][1][0].events == 7
    assert len(found[0][0]) == 2
    assert found[0][3] == {"name": "box", "kernel": "6.1.0", "machine": "x86_64"}


@pytest.mark.parametrize("version", ["6", "7", "7-zlib"])
@pytest.mark.parametrize("big", [False, True])
def test_several_buffers_become_one_stream_for_each_cpu(tmp_path, version, big):
    """In order of time; what two have is taken from that which has more of it."""
    top, other = Made(big=big), Made(big=big)
    for number in range(200):
        top.switch(BEGIN + 1000 * number, number + 1, 1, number + 2)
        other.waking(BEGIN + 1000 * number + 500, number + 1, number + 7)
        other.mark(BEGIN + 1000 * number + 600, 5, "in both") if number % 3 == 0 else None
        top.mark(BEGIN + 1000 * number + 700, 5, "in both") if number % 5 == 0 else None
    other.switch(BEGIN + 200_999, 1, 1, 2)
    file = trace(Buffer({0: top.done()}), Buffer({0: other.done()}, "irqs"), big=big)
    made, manifest = convert(tmp_path, VERSIONS[version](file))
    assert times(made) == [BEGIN + 1000 * number for number in range(200)]
    assert times(made, Kind.WAKING) == [BEGIN + 1000 * number + 500 for number in range(200)]
    assert manifest.recorder["event_count"] == 400 + 67 + 40
    assert [text for text in manifest.warnings if "irqs" in text and "sched_switch" in text]
    assert not manifest.loss


def test_what_a_latency_tracer_printed_is_read_as_text(tmp_path):
    text = (
        b"# tracer: wakeup\n#\n"
        b"     app-70    [000] d..2.   100.000005: sched_switch: prev_comm=app prev_pid=70"
        b" prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120\n"
        b"  <idle>-0     [001] dNh2.   100.000009: sched_waking: comm=app pid=70 prio=120"
        b" target_cpu=000\n"
    )
    made, manifest = convert(tmp_path, trace(text=text).version_6())
    assert (times(made), times(made, Kind.WAKING)) == ([100_000_005_000], [100_000_009_000])
    assert manifest.recorder["name"] == "trace.dat"
    assert manifest.clock["name"] == "mono"


def test_a_buffer_of_another_clock_is_left_out(tmp_path):
    one = Made()
    one.switch(BEGIN, 1, 1, 2)
    one.switch(BEGIN + 5, 2, 1, 1)
    other = Made(time=77)
    other.waking(77, 1, 2)
    file = trace(Buffer({0: one.done()}), Buffer({0: other.done(), 1: b""}, "odd", "boot"))
    made, manifest = convert(tmp_path, file.version_7())
    assert times(made) == [BEGIN, BEGIN + 5]
    assert not times(made, Kind.WAKING)
    assert "'odd' is left out: its clock is boot, not mono" in manifest.warnings[0]


def test_losses_are_those_of_the_counters_at_the_places_of_the_pages(tmp_path):
    one = Made()
    one.switch(BEGIN, 1, 1, 2)
    one.lose(-1)  # some: so many the page has no room for
    one.switch(BEGIN + 10_000, 2, 1, 3)
    stats = (
        "CPU: 0\nentries: 0\noverrun: 20\ncommit overrun: 1\ndropped events: 2\nread events: 2\n"
    )
    file = trace(Buffer({0: one.done()}), options=[(writing.CPUSTAT, stats.encode() + b"\0")])
    for version, write in VERSIONS.items():
        made, manifest = convert(tmp_path, write(file), f"{version}.dat")
        [loss] = manifest.loss
        assert (loss.cpu, loss.events) == (0, 23)
        [seen] = Recording(made).read(KERNEL_EVENTS).losses
        assert (seen.begin, seen.end, seen.events) == (BEGIN, BEGIN + 10_000, 23)
        assert not manifest.warnings


def test_a_loss_without_a_number_is_one_and_said(tmp_path):
    one = Made()
    one.switch(BEGIN, 1, 1, 2)
    one.lose(-1)
    one.switch(BEGIN + 10_000, 2, 1, 3)
    _, manifest = convert(tmp_path, trace(Buffer({0: one.done()})).version_6())
    assert [of.events for of in manifest.loss] == [1]
    assert "no number" in manifest.warnings[0]


def test_counters_of_an_instance_are_its_own(tmp_path):
    stats = ["CPU: 0\noverrun: 5\n", "\nBuffer: foo\n\n", "CPU: 0\noverrun: 11\n"]
    options = [(writing.CPUSTAT, text.encode() + b"\0") for text in stats]
    one = Made()
    one.switch(BEGIN, 1, 1, 2)
    for buffers, lost in (([Buffer({}), Buffer({0: one.done()}, "foo")], 11),):
        _, manifest = convert(tmp_path, trace(*buffers, options=options).version_6())
        assert [of.events for of in manifest.loss] == [lost]


def test_cycles_become_time_as_the_file_says(tmp_path):
    one = Made(time=1 << 40)
    one.switch(1 << 40, 1, 1, 2)
    one.switch((1 << 40) + 3000, 2, 1, 1)
    rate = struct.pack("<IIq", 3 << 20, 21, 77)
    file = trace(Buffer({0: one.done()}, clock="x86-tsc"), clock="x86-tsc")
    with pytest.raises(UnreadableError, match="cycles"):
        convert(tmp_path, file.version_6())
    file.options = [*file.options, (writing.TSC2NSEC, rate)]
    made, manifest = convert(tmp_path, file.version_7(), "rated.dat")
    start = ((1 << 40) * 3 >> 1) + 77
    assert times(made) == [start, start + 4500]
    assert manifest.clock["name"] == "x86_tsc"


def test_a_guest_has_the_times_of_its_host(tmp_path):
    one = Made()
    for number in range(5):
        one.switch(BEGIN + 1000 * number, 1, 1, 2)
    # By how much at which moment: between them it changes evenly.
    shifts = struct.pack("<QII", 99, 0, 1) + struct.pack("<I", 2)
    shifts += struct.pack("<2Q", BEGIN, BEGIN + 2000) + struct.pack("<2q", -500, 300)
    shifts += struct.pack("<2Q", 1, 1) + struct.pack("<2Q", 0, 0)
    file = trace(Buffer({0: one.done()}), options=[(writing.TIME_SHIFT, shifts)])
    made, manifest = convert(tmp_path, file.version_7())
    by = [-500, -100, 300, 300, 300]
    assert times(made) == [BEGIN + 1000 * number + by[number] for number in range(5)]
    assert "guest" in manifest.warnings[0]


def test_what_threads_belong_to_is_in_the_statedump(tmp_path):
    file = trace(Buffer(draw(1, big=False)), tgids="7 3\n8 3\nx y\n9 0\n")
    made, _ = convert(tmp_path, file.version_7())
    assert "statedump_0" in streams(made)
    paths = critpath.extract(made, execution="thread")
    assert len(paths)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (lambda: trace(Buffer(draw(1, big=False)), clock="counter").version_6(), "no time"),
        (lambda: trace(Buffer({0: b""})).version_6(), "no event"),
        (lambda: writing.MAGIC + b"5\0\0\x08" + bytes(100), "version 5"),
        (lambda: trace(Buffer(draw(1, big=False))).version_6()[:300], "damaged at byte"),
        (lambda: trace(Buffer(draw(1, big=False)), page=3).version_6(), "pages of 3 bytes"),
        (
            lambda: trace(Buffer(draw(1, big=False))).version_7("zlib").replace(b"zlib", b"lzop"),
            "not known",
        ),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, file, text):
    with pytest.raises(UnreadableError, match=text) as raised:
        convert(tmp_path, file())
    assert raised.value.do


def test_a_file_that_is_cut_off_says_so(tmp_path):
    """From the begin of the pages on what is there is read; before it nothing can be."""
    whole = trace(Buffer(draw(2, big=False, count=900))).version_6()
    begin = whole.index(b"flyrecord")
    for number, size in enumerate(range(begin + 9000, len(whole), 5000)):
        made, manifest = convert(tmp_path, whole[:size], f"{number}.dat")
        assert [text for text in manifest.warnings if "cut off" in text]
        assert manifest.loss
        assert 0 < len(times(made)) < 900


def test_changed_files_are_read_or_refused(tmp_path):
    """No crash, no hang, no other error; and what is gone is said."""
    chance = random.Random(5)  # noqa: S311 - no secret
    sound = [write(trace(Buffer(draw(3, big=big)), big=big)) for write in VERSIONS.values()
             for big in (False, True)]  # fmt: skip
    both = trace(Buffer(draw(4, big=False)), Buffer(draw(5, big=False), "foo"))
    sound += [both.version_6(), both.version_7("zlib")]
    codes: Counter[int] = Counter()
    for number in range(CHANGED):
        data = bytearray(chance.choice(sound))
        for _ in range(chance.choice([1, 1, 3, 30])):
            at = chance.randrange(len(data))
            what = chance.randrange(4)
            if what == 0:
                data[at] = chance.randrange(256)
            elif what == 1:
                size = chance.choice([2, 4, 8])
                value = chance.choice([0, 1, (1 << 31) - 1, (1 << 63) - 1, (1 << 64) - 1])
                data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
            elif what == 2:
                del data[at : at + chance.randrange(64)]
            else:
                data[at:at] = data[at : at + chance.randrange(64)]
        if data[: len(writing.MAGIC)] != writing.MAGIC:
            continue
        try:
            convert(tmp_path, bytes(data), f"{number}.dat")
        except CritpathError as error:
            codes[error.exit_code] += 1
    assert {*codes} <= {4}
    assert codes.total() < CHANGED


def test_a_command_reads_the_file_and_leaves_nothing(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    file = tmp_path / "trace.dat"
    file.write_bytes(trace(Buffer(draw(1, big=False))).version_7())
    assert main(["path", str(file), "--tid", "1"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("1 thread, ")
    assert "converted from trace.dat in" in err
    assert "critpath convert keeps it" in err
    assert not [*(tmp_path / "tmp").iterdir()]
    assert main(["path", str(file), "--tid", "1", "--quiet"]) == 0
    assert not capfd.readouterr().err
    assert main(["convert", str(file), "-o", str(tmp_path / "kept")]) == 0
    assert main(["convert", str(file), "-o", str(tmp_path / "kept")]) == 2
    assert main(["convert", str(file), "-o", str(tmp_path / "kept"), "--force"]) == 0
    assert main(["convert", str(tmp_path / "kept"), "-o", str(tmp_path / "other")]) == 4
    capfd.readouterr()
    assert main(["path", str(tmp_path / "kept"), "--tid", "1", "--quiet"]) == 0
    assert capfd.readouterr().out == out
    assert json.loads((tmp_path / "kept" / "critpath.json").read_text())["state"] == "complete"


def test_a_directory_may_hold_files_of_several_tools_and_recordings(tmp_path, capfd):
    """Each is a recording, by the name of its file; not what was before, nor what is in one."""
    file = trace(Buffer(draw(1, big=False)))
    place = tmp_path / "set"
    (place / "deep").mkdir(parents=True)
    (place / "a.dat").write_bytes(file.version_6())
    (place / "deep" / "b.dat").write_bytes(file.version_7("zlib"))
    (place / "a.dat.old").write_bytes(file.version_6())
    (place / "notes.txt").write_text("nothing of it")
    assert main(["convert", str(place / "a.dat"), "-o", str(place / "kept"), "--quiet"]) == 0
    (place / "kept" / "inside.dat").write_bytes(file.version_6())
    found = critpath.extract(place, execution="thread")
    assert found.sources == tuple(str(place / name) for name in ("kept", "a.dat", "deep/b.dat"))
    one = critpath.extract(place / "a.dat", execution="thread")
    assert len(found) == 3 * len(one)
    both = critpath.extract([place / "a.dat", place / "kept"], execution="thread")
    assert len(both) == 2 * len(one)
    capfd.readouterr()


def test_a_full_disk_is_said_in_a_line(tmp_path, monkeypatch, capfd):
    file = tmp_path / "trace.dat"
    file.write_bytes(trace(Buffer(draw(1, big=False))).version_7())
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", "/proc/none")
        assert main(["path", str(file), "--tid", "1"]) == 125
    assert "TMPDIR" in capfd.readouterr().err


def test_a_directory_is_what_it_is(tmp_path):
    assert directory_of(tmp_path) == tmp_path
    assert identify_foreign(tmp_path) is None
    assert identify_foreign(tmp_path / "none") is None
