"""What counts as a recording, in which order it is read, and what refuses it."""

from __future__ import annotations

import struct

import pytest

from critpath.errors import EXIT_UNREADABLE, EXIT_USAGE, UnreadableError, UsageError
from critpath.model import EventRequest, Kind
from critpath.read.traces import READERS, describe, find_traces, read_events
from critpath.schema.environment import Environment

METADATA = """/* CTF 1.8 */
typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
trace {{ major = 1; minor = 8; byte_order = le; }};
env {{ domain = "{domain}"; hostname = "{host}"; }};
clock {{ name = monotonic; freq = 1000000000; offset = 7; }};
typealias integer {{ size = 64; align = 8; signed = false; map = clock.monotonic.value; }}
    := clock_t;
stream {{
    packet.context := struct {{ uint32_t cpu_id; }};
    event.header := struct {{ uint8_t id; clock_t timestamp; }};
}};
event {{ name = "tick"; id = 0; fields := struct {{ uint32_t _value; uint32_t __odd; }}; }};
"""
TICKS = (EventRequest(Kind.OTHER, ("tick",), (("value",), ("_odd",))),)


def event(time, value):
    return struct.pack("<BQII", 0, time, value, 9)


def write(directory, files, domain="kernel", host="h"):
    directory.mkdir(parents=True)
    (directory / "metadata").write_text(METADATA.format(domain=domain, host=host))
    for name, (cpu, events) in files.items():
        data = struct.pack("<I", cpu) + b"".join(event(*e) for e in events)
        (directory / name).write_bytes(data)


def values(events):
    return events.column(events.rows("tick"), "value").tolist()


def test_a_trace_directory_is_a_recording(tmp_path):
    write(tmp_path / "t", {"c_0": (3, [(5, 1), (6, 2)])})
    events = read_events(tmp_path / "t", TICKS)
    assert values(events) == [1, 2]
    assert events.cpu.tolist() == [3, 3]
    assert events.column(events.rows("tick"), "_odd").tolist() == [9, 9]
    assert events.clock.epoch == 7
    assert events.environment == (Environment(domain="kernel", hostname="h"),)


def test_traces_below_are_read_kernel_first_and_files_in_natural_order(tmp_path):
    write(tmp_path / "a" / "ust", {"c_0": (0, [(5, 30)])}, "ust")
    write(tmp_path / "kernel", {f"c_{n}": (n, [(5, n)]) for n in (10, 2, 1)})
    (tmp_path / "kernel" / "index").mkdir()
    (tmp_path / "kernel" / "index" / "c_1.idx").write_bytes(b"\xff" * 40)
    (tmp_path / "kernel" / ".hidden").write_bytes(b"\xff" * 40)
    (tmp_path / "manifest.json").write_text("{}")
    events = read_events(tmp_path, TICKS)
    assert values(events) == [1, 2, 10, 30]
    assert [c.domain for c in events.classes] == ["kernel", "ust"]
    assert [t.name for t in find_traces(tmp_path)] == ["kernel", "a/ust"]


def test_links_do_not_lead_out_of_the_recording(tmp_path):
    write(tmp_path / "elsewhere", {"c_0": (0, [(1, 99)])})
    write(tmp_path / "recording" / "t", {"c_0": (0, [(1, 1)])})
    (tmp_path / "recording" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "recording" / "t" / "c_1").symlink_to(tmp_path / "elsewhere" / "c_0")
    (tmp_path / "recording" / "loop").symlink_to(tmp_path / "recording")
    assert values(read_events(tmp_path / "recording", TICKS)) == [1]


def test_describe_reads_metadata_only(tmp_path):
    write(tmp_path / "t", {})
    (one,) = describe(tmp_path)
    assert one.events == {"tick": ("value", "_odd", "cpu_id")}
    assert (one.domain, one.host, one.name) == ("kernel", "h", "t")


def refused(path):
    with pytest.raises(UnreadableError) as caught:
        read_events(path, TICKS)
    assert caught.value.exit_code == EXIT_UNREADABLE
    assert str(path) in caught.value.what
    assert caught.value.do
    return caught.value.what


@pytest.mark.parametrize("name", ["metadata", "c_0"])
def test_a_link_to_itself_is_named(tmp_path, name):
    write(tmp_path / "t", {"c_0": (0, [(5, 1)])})
    (tmp_path / "t" / name).unlink()
    (tmp_path / "t" / name).symlink_to(name)
    assert name in refused(tmp_path / "t")


def test_a_hole_of_terabytes_is_not_decoded(tmp_path):
    write(tmp_path / "t", {"c_0": (0, [(5, 1)])})
    with (tmp_path / "t" / "c_0").open("r+b") as stream:
        try:
            stream.truncate(1 << 42)
        except OSError:
            pytest.skip("no files of terabytes here")
    assert "ever written" in refused(tmp_path / "t")


def test_what_is_no_recording_is_refused(tmp_path):
    assert "no such file" in refused(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    assert "a file, no recording" in refused(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert "is empty" in refused(tmp_path / "empty")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data").write_text("x")
    assert "no CTF trace" in refused(tmp_path / "other")
    write(tmp_path / "silent", {"c_0": (0, [])})
    assert "holds no event" in refused(tmp_path / "silent")
    write(tmp_path / "without", {})
    assert "holds no event" in refused(tmp_path / "without")


def test_unknown_readers_are_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no reader is called 'fast'") as caught:
        read_events(tmp_path, TICKS, reader="fast")
    assert caught.value.exit_code == EXIT_USAGE
    assert all(name in caught.value.do for name in READERS)


def test_an_event_of_every_pattern_is_found(tmp_path):
    write(tmp_path / "t", {"c_0": (0, [(5, 1)])})
    assert len(read_events(tmp_path, (EventRequest(Kind.OTHER, ("t?ck",)),))) == 1
    assert len(read_events(tmp_path, (EventRequest(Kind.OTHER, ("tock", "ti*")),))) == 1
    nothing = read_events(tmp_path, (EventRequest(Kind.OTHER, ("tock",)),))
    assert (len(nothing), nothing.total, nothing.begin, nothing.end) == (0, 1, 5, 5)


@pytest.mark.parametrize(
    ("content", "what", "do"),
    [
        (b'{\n "aligned": [],\n "format": "critpath/comparison/1"}', "a saved comp", "report"),
        (b'{"format": "critpath/calibration/1"}', "a file of critpath's", "compare takes"),
        (b"<!DOCTYPE html>\n<html>", "an HTML page", "open it in a browser"),
        (b"\x7fELF\x02", "a program", "critpath record"),
        (b"#!/bin/sh\n", "a program", "critpath record"),
        (b"", "a file, no recording", "name the directory"),
        (b"{\x1b[2J", "a file, no recording", "name the directory"),
    ],
)
def test_a_file_is_called_what_it_is(tmp_path, content, what, do):
    file = tmp_path / "f"
    file.write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        find_traces(file)
    assert caught.value.what.startswith(f"{file}: {what}")
    assert do in caught.value.do
