"""Conversion of the raw recording that is shipped, whole and in every broken state."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import mmap
import os
import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from critpath.errors import CritpathError
from critpath.model import CpuLoss, EventRequest, Kind
from critpath.read.streams import survey_streams
from critpath.read.traces import read_events
from critpath_record.ftrace import _pages
from critpath_record.ftrace import convert as module
from critpath_record.ftrace.convert import convert, count_marks, gathering_programs
from critpath_record.ftrace.ctf_events import compile_event
from critpath_record.ftrace.formats import read_format

ROOT = Path(__file__).resolve().parents[4]
ARCHIVE = ROOT / "fixtures" / "ftrace-raw" / "minimal.tar.xz"
GOLDEN = {
    "kernel_0": "76e005a3eac2f4c4b7015ecfc3a0d56f46b084a24778244298a0dc97887ffbb9",
    "kernel_1": "854232246d686a3621a6e629b47478a4ff4cc24c83601d741ed3abb12ead9629",
    "metadata": "c08b3470d898d952ccc19fc5537572cf2c59641afc8c1b737fe21819fb363ce5",
    "statedump_0": "8e2706a50810842e95b92f374e757f44abc0594db2e4d970e0bdaade6324c07a",
}


@pytest.fixture
def raw(unpack, tmp_path):
    """Return a copy of the shipped raw directory that may be changed."""
    shutil.copytree(unpack(ARCHIVE) / "minimal", tmp_path / "raw")
    return tmp_path / "raw"


def quiet(_):
    pass


def change(file, **values):
    about = json.loads(file.read_text())
    about.update(values)
    file.write_text(json.dumps(about))


def test_control_groups_at_the_start_are_in_the_statedump(raw, tmp_path):
    plain = convert(raw, tmp_path / "plain", quiet)
    begin = json.loads((raw / "statedump.json").read_text())[-1][0]
    rows = [[begin + 5, 1, 0, "/a\u202e b"], [begin + 3, 2, 7, "/c"]]
    (raw / "cgroups.json").write_text(json.dumps(rows))
    done = convert(raw, tmp_path / "trace", quiet)
    assert done.events == plain.events + 2
    wanted = (EventRequest(Kind.OTHER, ("critpath_statedump_cgroup",), (("pid",), ("dst_path",))),)
    events = read_events(tmp_path / "trace", wanted)
    at = events.rows("critpath_statedump_cgroup")
    assert events.column(at, "pid").tolist() == [2, 1]
    codes = events.column(at, "dst_path")
    assert [events.strings[c] for c in codes] == ["/c", "/a\u202e b"]
    assert (np.diff(events.timestamp[at]) >= 0).all()
    # Cut off by a recorder that was killed, they are not there.
    (raw / "cgroups.json").write_text("[[1, 2")
    assert convert(raw, tmp_path / "cut", quiet).events == plain.events


def test_sockets_at_the_start_are_in_the_statedump(raw, rows, tmp_path):
    plain = convert(raw, tmp_path / "plain", quiet)
    begin = json.loads((raw / "statedump.json").read_text())[-1][0]
    six = "fe80" + "00" * 13 + "01"
    found = [
        [begin + 9, 1, 7, 10, 6, 1, six, 80, "0" * 31 + "1", 9, 1 << 63, ""],
        [begin + 8, 4026531833, 6, 2, 6, 10, "7f000001", 65535, "00000000", 0, 0, ""],
        [begin + 9, 1, 8, 1, 1, 10, "", 0, "", 0, 0, "/a\0b\u202e\n"],
    ]
    (raw / "sockets.json").write_text(json.dumps(found))
    assert convert(raw, tmp_path / "trace", quiet).events == plain.events + 3
    all_rows, _ = rows(tmp_path / "trace")
    four, of_six, unix = (f for _, _, n, f in all_rows if n == "critpath_statedump_socket")
    assert (four["saddr"], four["sport"], four["newstate"]) == (0x7F000001, 65535, 10)
    assert (four["inode"], four["net_ns_inum"]) == (6, 4026531833)
    assert (of_six["saddr_v6_high"] % 2**64, of_six["saddr_v6_low"]) == (0xFE80 << 48, 1)
    assert (of_six["daddr_v6_low"], of_six["skaddr"] % 2**64) == (1, 1 << 63)
    assert (unix["family"], unix["path"]) == (1, "/a")
    (raw / "sockets.json").write_text("[[1, 2")
    assert convert(raw, tmp_path / "cut", quiet).events == plain.events


def test_the_bytes_are_what_they_were(raw, tmp_path):
    told = []
    done = convert(raw, tmp_path / "trace", told.append)
    written = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (tmp_path / "trace" / "kernel").iterdir()
    }
    assert written == GOLDEN
    dumped = len(json.loads((raw / "statedump.json").read_text())) + 2
    assert (done.events, done.recorded) == (2027, 1976 - dumped)
    assert (done.loss, done.warnings) == ((CpuLoss(0, 175),), ())
    assert {"sched_switch", "irq_softirq_entry", "print", "lttng_statedump_end"} <= {*done.names}
    assert len(told) == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert (tmp_path / "trace").stat().st_mode & 0o777 == 0o700


def test_the_trace_is_lttngs(raw, rows, tmp_path):
    convert(raw, tmp_path / "trace", quiet)
    found, events = rows(tmp_path / "trace")
    assert events.warnings == ()
    assert [(x.cpu, x.events) for x in events.losses] == [(0, 175)]
    assert events.environment[0].tracer_name == "critpath-ftrace"
    assert events.clock.name == "monotonic"
    assert events.clock.epoch == json.loads((raw / "raw.json").read_text())["epoch"]
    by_name = {name: fields for _, _, name, fields in found}
    assert {"prev_tid", "next_tid", "prev_state", "common_flags"} <= by_name["sched_switch"].keys()
    assert -100 <= by_name["sched_waking"]["prio"] < 40
    assert {f["buf"] for _, _, n, f in found if n == "print"} >= {'end "quoted" \xe9'}
    forks = [f for _, _, name, f in found if name == "sched_process_fork"]
    assert all(f["child_pid"] == f["child_tid"] for f in forks)
    assert {f["child_ns_inum"] for f in forks} == {4026531836}
    dumped = [f for _, _, name, f in found if name == "lttng_statedump_process_state"]
    rows_of = json.loads((raw / "statedump.json").read_text())
    assert [(f["tid"], f["pid"], f["name"]) for f in dumped] == [
        (r[1], r[2], re.sub("(kworker/[^-+]*).*", r"\1", r[4])[:15]) for r in rows_of
    ]
    status = {"R": 2, "S": 5, "D": 5, "I": 5, "Z": 4}
    assert [f["status"] for f in dumped] == [status.get(r[5], 0) for r in rows_of]
    kinds = {f["name"]: f["type"] for f in dumped}
    assert kinds["kthreadd"] == 1


def test_the_plain_twin_writes_the_same(raw, tmp_path, monkeypatch):
    place = importlib.util.spec_from_file_location(
        "ring_pages", ROOT / "tests" / "oracle" / "ring_pages.py"
    )
    twin_module = importlib.util.module_from_spec(place)
    place.loader.exec_module(twin_module)

    class Twin(twin_module.Twin):
        def scan(self, data, starts, words, *, mapped=False):  # noqa: ARG002 - as Pages
            return tuple(vars(super().scan(bytes(data), starts, words)).values())

        def write(self, data, descriptor, *rest, mapped=False):  # noqa: ARG002 - as Pages
            content, count = super().write(bytes(data), *rest)
            os.write(descriptor, content)
            return count

        def cancel(self):
            pass

    convert(raw, tmp_path / "ours", quiet)
    monkeypatch.setattr(_pages, "Pages", Twin)
    convert(raw, tmp_path / "theirs", quiet)
    for path in (tmp_path / "ours" / "kernel").iterdir():
        assert path.read_bytes() == (tmp_path / "theirs" / "kernel" / path.name).read_bytes()


def test_a_killed_recorder_leaves_something_to_convert(raw, rows, tmp_path):
    for name in ("stats.json", "statedump-end.json"):
        (raw / name).unlink()
    about = json.loads((raw / "raw.json").read_text())
    del about["end"]
    (raw / "raw.json").write_text(json.dumps(about))
    pages = (raw / "cpu1").read_bytes()
    (raw / "cpu1").write_bytes(pages[: 4096 * 3 + 1000])
    done = convert(raw, tmp_path / "trace", quiet)
    assert done.loss == (CpuLoss(0, 175), CpuLoss(1, 1))
    said = "\n".join(done.warnings)
    assert "cpu 1: the file ends within a page" in said
    assert "did not get to its end" in said
    found, events = rows(tmp_path / "trace")
    assert events.total == done.events == len(found)
    assert sum(x.events for x in events.losses) == 176


def test_damage_is_counted_and_said(raw, rows, tmp_path):
    whole = convert(raw, tmp_path / "whole", quiet)
    pages = bytearray((raw / "cpu1").read_bytes())
    pages[4096 + 16 : 4096 + 20] = struct.pack("<I", 0)  # an entry without a length
    pages[3 * 4096 : 3 * 4096 + 8] = b"\xff" * 8  # a time in 500 years
    (raw / "cpu1").write_bytes(pages)
    done = convert(raw, tmp_path / "trace", quiet)
    missing = whole.recorded - done.recorded
    assert missing > 20
    # The kernel counted what was read, so that what was damaged is known.
    assert done.loss == (CpuLoss(0, 175), CpuLoss(1, missing))
    assert any("2 pages of the buffer damaged" in w for w in done.warnings)
    _, events = rows(tmp_path / "trace")
    assert sum(x.events for x in events.losses if x.cpu == 1) == missing


def test_loss_without_a_place_is_said(raw, tmp_path):
    stats = json.loads((raw / "stats.json").read_text())
    stats["1"]["dropped events"] = 7
    (raw / "stats.json").write_text(json.dumps(stats))
    done = convert(raw, tmp_path / "trace", quiet)
    assert done.loss == (CpuLoss(0, 175), CpuLoss(1, 7))
    assert any("7 events lost at a time that the kernel does not tell" in w for w in done.warnings)


def test_a_cpu_without_pages_is_no_error(raw, rows, tmp_path):
    (raw / "cpu1").write_bytes(b"")
    (raw / "cpu0").unlink()
    done = convert(raw, tmp_path / "trace", quiet)
    assert done.events == len(rows(tmp_path / "trace")[0]) > 50
    assert any("cpu 0: there is no file" in w for w in done.warnings)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("raw.json", "{", "raw.json: cannot be read"),
        ("raw.json", '{"format": "critpath/raw/9"}', "raw.json: is not critpath/raw/1"),
        (
            "formats/sched.sched_switch",
            "name: x\nID: 1\nfield:x",
            "sched.sched_switch: not a field",
        ),
        ("formats/sched.sched_switch", "name: x y\n", "sched.sched_switch: has no line"),
        ("formats/sched.sched_switch", 'name: a"b\n', "sched.sched_switch: has no line"),
        ("header_page", "field: u64 timestamp;	offset:0;	size:8;", "header_page: does not"),
        ("header_event", "type_len : 4 bits", "header_event: describes"),
        ("statedump.json", "[[1, 2]]", "statedump.json: has a row"),
        ("cgroups.json", "[[1, 2, 0]]", "cgroups.json: has a row"),
        ("sockets.json", "[[1, 2, 0]]", "sockets.json: has a row"),
        (
            "sockets.json",
            '[[1, 1, 1, 2, 6, 1, "7f01", 1, "", 0, 0, ""]]',
            "sockets.json: has a row",
        ),
        ("cgroups.json", '[[1, -2, 0, "/"]]', "cgroups.json: has a row"),
    ],
)
def test_errors_name_the_file_and_leave_nothing(raw, tmp_path, name, text, said):
    (raw / name).write_text(text)
    with pytest.raises(CritpathError, match=said):
        convert(raw, tmp_path / "trace", quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_no_event_is_read_where_another_has_its_thread(raw, tmp_path):
    """Every record is read at one offset, and only its own format says how long it is."""
    text = (raw / "formats" / "sched.sched_switch").read_text()
    far = text.replace("offset:4;\tsize:4;", "offset:60000;\tsize:4;", 1)
    assert far != text
    far = far.replace("ID: ", "ID: 9")
    (raw / "formats" / "a.first").write_text(far)
    with pytest.raises(CritpathError, match="common fields"):
        convert(raw, tmp_path / "trace", quiet)


def test_forks_with_threads_of_another_size_are_not_gathered(raw):
    file = raw / "formats" / "sched.sched_process_fork"
    lines = file.read_text().splitlines()
    odd = [re.sub(r"size:4;", "size:1;", x) if " parent_pid;" in x else x for x in lines]
    assert odd != lines
    file.write_text("\n".join(odd))
    form = read_format(file)
    one = compile_event("sched", form, 1)
    assert set(gathering_programs((form, one), None)[0]) == {-1}


def test_an_existing_trace_is_not_touched(raw, tmp_path):
    convert(raw, tmp_path / "trace", quiet)
    with pytest.raises(CritpathError, match="exists already"):
        convert(raw, tmp_path / "trace", quiet)
    assert (tmp_path / "trace" / "kernel" / "metadata").exists()


def test_what_fails_half_way_leaves_nothing(raw, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    # What a conversion that was killed left is in nobody's way.
    (tmp_path / ".trace.converting" / "kernel").mkdir(parents=True)
    monkeypatch.setattr(module, "pack_statedump", full)
    with pytest.raises(CritpathError, match="No space left"):
        convert(raw, tmp_path / "trace", quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_hostile_text_stays_text(raw, rows, tmp_path):
    name = 'a"; }; env { x = "\n\\'
    change(raw / "raw.json", session=name, host={"name": name, "kernel": 5})
    convert(raw, tmp_path / "trace", quiet)
    _, events = rows(tmp_path / "trace")
    assert events.environment[0].hostname == 'a"; }; env { x = "?\\'
    assert "x" not in events.environment[0].saved()


def test_streams_are_known_without_reading_them(raw, tmp_path):
    """What a manifest says of them is what a reader counts."""
    assert convert(raw, tmp_path / "trace", quiet).streams == survey_streams(tmp_path)


def test_converted_is_plain_data():
    assert {f.name for f in dataclasses.fields(module.ConversionResult)} == {
        *("events", "recorded", "names", "loss", "warnings", "end", "marks", "tasks", "gaps"),
        "streams",
    }


def test_marks_are_counted_to_the_last_page(tmp_path, monkeypatch):
    """Wherever a piece ends that is looked through at once."""
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats" / "ftrace.print").touch()
    page = b"critpath:begin 1\0critpath:end 1\0critpath:tasks 7 AA\0critpath:bad".ljust(
        mmap.PAGESIZE, b"b"
    )
    (tmp_path / "cpu0").write_bytes(page * 3)
    (tmp_path / "cpu1").write_bytes(b"")
    for size in (1 << 20, mmap.PAGESIZE, 40, *range(16, 24)):
        monkeypatch.setattr(module, "_PIECE", size)
        assert count_marks(tmp_path) == (6, 3)
