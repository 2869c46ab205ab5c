"""Functions of the command: words, and hostile files."""

from __future__ import annotations

import json
import os
import stat
import struct
from pathlib import Path

import pytest

from critpath.errors import CritpathError, UsageError
from critpath.functions import agent
from critpath_record import functions
from critpath_record.functions import (
    FILE,
    RAW,
    FunctionFiles,
    HeldFunctions,
    convert_functions,
    with_agent,
)
from critpath_record.scripts import split_python
from critpath_record.shared import SharedPlace, find_leftovers


@pytest.mark.parametrize(
    ("words", "options", "rest"),
    [
        ("app.py -m x", "", "app.py -m x"),
        ("-X dev -u app.py", "-X dev -u", "app.py"),
        ("-um web.main --port 1", "-u", "-m web.main --port 1"),
        ("-Wignore -c pass -x", "-Wignore", "-c pass -x"),
        ("-cprint() x", "", "-c print() x"),
        ("--check-hash-based-pycs always app.py", "--check-hash-based-pycs always", "app.py"),
        ("-", "", ""),
        ("-i", "-i", ""),
        ("--unknown app.py", "--unknown", ""),
        ("", "", ""),
    ],
)
def test_a_command_line_of_python_comes_apart(words, options, rest):
    assert split_python(words.split()) == (options.split(), rest.split())


@pytest.mark.parametrize("command", ["gunicorn app:web", "python3.12", "sh -c python", "python -"])
def test_what_is_no_python_with_a_script_is_refused(command):
    with pytest.raises(UsageError, match="--functions"):
        with_agent(command.split())


def test_the_agent_stands_before_the_script():
    command, flag, agent, *rest = with_agent(["python3.12", "-u", "app.py", "x"])
    assert (command, flag, rest) == ("python3.12", "-u", ["app.py", "x"])
    assert Path(agent).parts[-2:] == ("functions", "agent.py")


def slot(events, *, count=None, windows=0):
    head = struct.pack(
        "<8sIIQQ", b"critfun1", 7, len(events) if count is None else count, windows, 0
    )
    return head.ljust(4096, b"\0") + b"".join(struct.pack("<QIi", *one) for one in events)


def convert(tmp_path, files):
    """Convert what a hostile program left; return the list, and the bytes of all streams."""
    raw = tmp_path / RAW
    raw.mkdir()
    (tmp_path / "trace").mkdir()
    for name, content in files.items():
        (raw / name).write_bytes(content)
    convert_functions(tmp_path, (100, 1000))
    assert not raw.exists()
    streams = sorted((tmp_path / "trace").glob("functions/functions_*"))
    return json.loads((tmp_path / FILE).read_text()), b"".join(s.read_bytes() for s in streams)


LIST = b'{"number": 1, "line": 3, "project": 1, "words": ["m", "f", "m.py"]}\n'


def test_hostile_files_make_no_events(tmp_path):
    (tmp_path / "secret").write_bytes(slot([(200, 2, 7)]))
    found, streams = convert(
        tmp_path,
        {
            "7.names": LIST
            + b'{"number": "x"}\nnull\n[1]\n{"off": {}}\n{"words"\n'
            + b"[" * 99_999,
            # out of order, of no function, of no thread, outside the recording
            "7-0.slot": slot(
                [
                    (50, 2, 7),
                    (200, 2, 7),
                    (150, 3, 7),
                    (210, 2 << 20, 7),
                    (300, 3, -1),
                    (9999, 3, 7),
                ]
            ),
            "7-1.slot": slot([(200, 2, 7)], count=2**32 - 1, windows=2**60),
            "7-2.slot": b"critfun1",
            "8-0.slot": slot([(200, 2, 8)]),
            "7-9.slot.py": b"",
        },
    )
    assert [(f["name"], f["number"]) for f in found["functions"]] == [("f", 1)]
    assert found["events"] == 2
    assert streams.count(struct.pack("<Qi", 200, 7)) == 2


def test_numbers_that_are_none_are_left_out(tmp_path):
    hostile = [
        f'{{"cost": {cost}}}' for cost in ("1" + "0" * 400, "NaN", "Infinity", -3, 0, "1e999")
    ]
    hostile += [
        LIST.decode().strip().replace(f'"{name}": {old}', f'"{name}": Infinity')
        for name, old in (("number", 1), ("line", 3))
    ]
    hostile += ['{"off": Infinity}', '{"off": NaN}', '{"cost": 40.0}']
    files = {"7.names": "\n".join(hostile).encode() + b"\n" + LIST, "7-0.slot": slot([(200, 2, 7)])}
    found, _ = convert(tmp_path, files)
    assert found["event_ns"] == 40.0
    assert found["events"] == 1
    assert [f["name"] for f in found["functions"]] == ["f"]


def test_what_noting_took_is_by_count_and_by_what_files_have_room_for(tmp_path):
    files = FunctionFiles(tmp_path, 0.03)
    files.prepare()
    raw = tmp_path / RAW
    assert files.cost() == 0
    (raw / "7-0.slot").write_bytes(slot([(100, 2, 7)] * 50))
    # What an event costs that process is not known yet: an upper value.
    assert files.cost() == pytest.approx(50 * 450e-9 * 1.2)
    (raw / "7.names").write_bytes(b'{"cost": 60.0}\n')
    fifty = files.cost()
    assert fifty == pytest.approx(50 * 72e-9)
    # Another process has the callbacks in Python.
    (raw / "8.names").write_bytes(b'{"cost": 900.0}\n')
    (raw / "8-0.slot").write_bytes(slot([(100, 2, 8)] * 50))
    both = files.cost()
    assert both == pytest.approx(16 * fifty)
    (raw / "9.names").write_bytes(b'{"cost": NaN}\n')
    (raw / "9-0.slot").write_bytes(slot([(100, 2, 9)] * 50))
    assert files.cost() == pytest.approx(both + 50 * 450e-9 * 1.2)
    both = files.cost()
    # A program claims what it likes.
    (raw / "7-1.slot").write_bytes(slot([], count=1 << 31, windows=1 << 60))
    (raw / "7-2.slot").symlink_to("/dev/zero")
    (raw / "7-3.slot").write_bytes(b"short")
    assert files.cost() <= both + 4096 * 100e-9
    files.abort()
    assert files.cost() == 0


def test_holes_are_not_read(tmp_path):
    raw = tmp_path / RAW
    raw.mkdir()
    (tmp_path / "trace").mkdir()
    (raw / "7.names").write_bytes(LIST)
    with (raw / "7-0.slot").open("wb") as stream:
        stream.write(slot([(300, 3, 7)], windows=1 << 40))
        stream.truncate(1 << 43)
        stream.seek(4096 + 65536 * 5_000_001)
        stream.write(struct.pack("<QIi", 200, 2, 7))
    assert convert_functions(tmp_path, (100, 1000)) == ()  # or it would take for ever
    assert json.loads((tmp_path / FILE).read_text())["events"] == 2


@pytest.mark.parametrize(
    ("bound", "most"), [("_MOST_BYTES", 100), ("_MOST_FILES", 1), ("_MOST_EVENTS", 1)]
)
def test_what_is_too_much_is_left_out_and_said(tmp_path, monkeypatch, bound, most):
    monkeypatch.setattr(functions, bound, most)
    raw = tmp_path / RAW
    raw.mkdir()
    (tmp_path / "trace").mkdir()
    for pid in (7, 8):
        (raw / f"{pid}.names").write_bytes(LIST)
        (raw / f"{pid}-0.slot").write_bytes(slot([(200, 2, pid)]))
    warnings = convert_functions(tmp_path, (100, 1000))
    assert len(warnings) == 1
    assert "left out" in warnings[0]
    assert json.loads((tmp_path / FILE).read_text())["events"] == 1


def test_links_and_devices_are_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(LIST)
    raw = tmp_path / RAW
    raw.mkdir()
    (tmp_path / "trace").mkdir()
    (raw / "7.names").symlink_to(tmp_path / "secret")
    os.mkfifo(raw / "7-0.slot")
    assert convert_functions(tmp_path, (0, 10)) != ()
    assert json.loads((tmp_path / FILE).read_text())["functions"] == []


def test_of_a_flights_slot_the_newest_windows_are_read_in_order(tmp_path):
    """Of five windows two are kept: the fifth lies before the fourth."""
    events = [(1000 + n, 2 + n % 2, 7) for n in range(5 * 4096 + 3)]
    windows = [events[4096 * n : 4096 * (n + 1)] for n in range(6)]
    head = struct.pack("<8sIIQQQ", b"critfun1", 7, 3, 5, 0, 2).ljust(4096, b"\0")
    placed = [windows[5] + [(0, 0, 0)] * 4093, windows[4], windows[3]]
    data = b"".join(struct.pack("<QIi", *one) for window in placed for one in window)
    raw = tmp_path / RAW
    raw.mkdir()
    (tmp_path / "trace").mkdir()
    (raw / "7-0.slot").write_bytes(head + data)
    (raw / "7.names").write_bytes(LIST)
    assert convert_functions(tmp_path, (0, 1 << 60), held=True) == ()
    found = json.loads((tmp_path / "functions.json").read_text())
    assert found["events"] == 2 * 4096 + 3


def test_a_dump_of_nobodys_functions_is_none(tmp_path):
    (tmp_path / RAW).mkdir()
    assert convert_functions(tmp_path, (0, 1), held=True) == ()
    assert list(tmp_path.iterdir()) == []


def test_a_flight_has_what_programs_noted_and_what_it_took(tmp_path, monkeypatch):
    place = tmp_path / "shared"
    shared = SharedPlace(0.005, place)
    held = HeldFunctions(shared)
    assert stat.S_IMODE(place.stat().st_mode) == 0o1777
    share, process, _ = (place / "share").read_text().split()
    assert (float(share), int(process)) == (0.005, os.getpid())
    assert find_leftovers(place) == []
    with pytest.raises(CritpathError, match=f"of process {os.getpid()} has it"):
        SharedPlace(0.005, place)
    for name in (f"{os.getpid()}-0.slot", "4194305-0.slot"):
        (place / name).write_bytes(slot([(100, 2, 7)] * 50))
    (place / "other").write_bytes(b"odd")
    (place / "9-0.slot").symlink_to("/etc/hostname")
    assert held.cost() == pytest.approx(100 * 450e-9 * 1.2)
    building = tmp_path / "dump"
    building.mkdir()
    held.save(building)
    assert {p.name for p in (building / RAW).iterdir()} == {
        f"{os.getpid()}-0.slot",
        "4194305-0.slot",
    }
    # What ended has been charged; it is not charged again, nor given back.
    assert not (place / "4194305-0.slot").exists()
    monkeypatch.setattr("critpath_record.functions._RARELY", 0.0)
    held._due = 0.0
    assert held.cost() == pytest.approx(100 * 450e-9 * 1.2)
    shared.close()
    assert not place.exists()


def test_the_place_of_a_recorder_that_was_killed_is_left(tmp_path):
    place = tmp_path / "shared"
    place.mkdir()
    (place / "share").write_text("0.005 1 1")
    [left] = find_leftovers(place)
    assert left.kind == "directory"
    shared = SharedPlace(0.005, place)
    assert find_leftovers(place) == []
    os.close(shared.descriptor)
    (place / "share").unlink()
    [left] = find_leftovers(place)
    left.remove()
    assert not place.exists()


def test_an_agent_writes_for_root_alone(tmp_path, monkeypatch):
    """For a recorder that is there, at no more than its share."""
    monkeypatch.setattr(agent, "FLIGHT", str(tmp_path))
    assert agent.find_flight() is None
    began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    for text, found in (
        (f"0.005 {os.getpid()} {began}", 0.005),
        (f"0.9 {os.getpid()} {began}", agent.DEFAULT_SHARE),
        (f"0.005 {os.getpid()} 1", None),
        ("0.005", None),
        ("", None),
        ("\xff 1 1", None),
    ):
        (tmp_path / "share").write_text(text)
        told = agent.find_flight()
        if told is not None:
            os.close(told[0])
        assert (told and told[1]) == (found if os.geteuid() == 0 else None)


def test_the_ring_in_python_keeps_the_newest(tmp_path):
    ring = agent.PythonRing()
    ring.keep_newest(2)
    ring._directory = os.open(tmp_path, os.O_RDONLY)
    try:
        code = (lambda: 0).__code__
        ring.add(code)
        for _ in range(5 * 4096 + 3):
            ring.on_entry(code)
        ring._flush_all()
    finally:
        os.close(ring._directory)
        os.close(ring._slots[0][2])
    [file] = tmp_path.iterdir()
    data = file.read_bytes()
    assert len(data) == 4096 + 3 * 4096 * 16
    assert struct.unpack_from("<8sIIQQQ", data) == (b"critfun1", os.getpid(), 3, 5, 0, 2)
    times = [struct.unpack_from("<Q", data, 4096 + 16 * at)[0] for at in (4096, 2 * 4096)]
    assert times[0] > times[1]
