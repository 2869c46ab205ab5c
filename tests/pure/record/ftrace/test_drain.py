"""Moving pages from played buffers to files: what does not let them, and what is left."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from critpath.errors import CritpathError
from critpath_record.ftrace import cleanup, drain
from critpath_record.ftrace import raw as raws
from critpath_record.ftrace.cleanup import find_leftovers
from critpath_record.ftrace.drain import Drain
from critpath_record.ftrace.gate import instance_name
from critpath_record.ftrace.raw import LAYERS
from critpath_record.ftrace.recorder import FtraceRecorder, finish_killed
from critpath_record.ftrace.tracefs import Instance
from critpath_record.recorder import RecorderSettings
from critpath_record.registry import register

PAGE = 4096


@pytest.fixture
def instance(played):
    made = Instance.at(played.root, "critpath-x")
    made.make()
    made.write("tracing_on", "1")
    made.enable_events(["sched:*"])
    yield made
    made.remove()


def move(played, instance, place, **options):
    """Move all that is played while it runs; return the drain, which has ended."""
    place.mkdir()
    moving = Drain(instance, place, PAGE, 1 << 20, None, **options)
    moving.start(played.cpus)
    played.play()
    instance.write("tracing_on", "0")
    moving.stop()
    return moving


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def sizes(place):
    return {file.name: file.stat().st_size for file in place.iterdir()}


def test_every_cpu_has_a_file_of_whole_pages(played, instance, tmp_path):
    moving = move(played, instance, tmp_path / "raw")
    assert (moving.cpus, moving.failure, moving.priority) == ([0, 1], None, "fifo")
    found = sizes(tmp_path / "raw")
    assert {*found} == {"cpu0", "cpu1"}
    assert all(size and size % PAGE == 0 for size in found.values())
    assert [instance.stats(cpu)["entries"] for cpu in played.cpus] == [0, 0]


def test_more_cpus_than_threads_share_them(played, instance, tmp_path):
    told = []
    moving = move(played, instance, tmp_path / "raw", most_threads=1, moved=lambda: told.append(1))
    assert moving.cpus == [0, 1]
    assert all(sizes(tmp_path / "raw").values())
    assert [t.name for t in threading.enumerate() if "drain" in t.name] == []


def test_pages_are_added_to_those_that_are_there_and_half_a_page_goes(played, instance, tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/cpu0").write_bytes(b"x" * PAGE + b"half")
    moving = Drain(instance, tmp_path / "raw", PAGE, 1 << 20, None)
    moving.start(played.cpus)
    played.play()
    instance.write("tracing_on", "0")
    moving.stop()
    data = (tmp_path / "raw/cpu0").read_bytes()
    assert data[:PAGE] == b"x" * PAGE
    assert data[PAGE : PAGE + 4] != b"half"
    assert len(data) > PAGE
    assert len(data) % PAGE == 0


def test_a_file_system_without_splice_is_written_to(played, instance, tmp_path, monkeypatch):
    splice = os.splice

    def refuse(source, to, size):
        if tmp_path in Path(f"/proc/self/fd/{to}").readlink().parents:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return splice(source, to, size)

    monkeypatch.setattr(os, "splice", refuse)
    moving = move(played, instance, tmp_path / "raw")
    assert moving.failure is None
    assert all(size and size % PAGE == 0 for size in sizes(tmp_path / "raw").values())


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_file_that_cannot_be_written_ends_it_and_is_said_once(
    played, instance, tmp_path, monkeypatch, code
):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(drain, "pour", refuse)
    moving = move(played, instance, tmp_path / "raw")
    assert os.strerror(code) in moving.failure.what
    made_room = "free space there" in moving.failure.do
    assert made_room == (code == errno.ENOSPC)


def test_a_buffer_that_cannot_be_opened_leaves_nothing_open(played, instance, tmp_path):
    before = open_files()
    played.refuse("open", "per_cpu/cpu1/trace_pipe_raw", errno.ENODEV)
    (tmp_path / "raw").mkdir()
    moving = Drain(instance, tmp_path / "raw", PAGE, 1 << 20, None)
    with pytest.raises(CritpathError, match="trace_pipe_raw"):
        moving.start(played.cpus)
    moving.abandon()
    assert open_files() == before


def test_nothing_is_moved_beyond_the_most_before_the_end(played, instance, tmp_path):
    moving = move(played, instance, tmp_path / "raw", most_threads=1, most_bytes=PAGE)
    # All the same at the end, as there is room for what the buffers hold.
    assert moving.failure is None
    assert sum(sizes(tmp_path / "raw").values()) > PAGE


@pytest.mark.parametrize(("free", "ends"), [(1 << 40, False), (9 << 20, False), (3 << 20, True)])
def test_it_ends_while_there_is_room_for_what_buffers_hold_and_for_a_trace_of_all(
    played, instance, tmp_path, monkeypatch, free, ends
):
    """Each page takes space twice; 2 MiB are spared for two cpus, and here 1 MiB is buffered."""
    moved, reads = threading.Event(), []
    monkeypatch.setattr(drain.Stream, "free_bytes", lambda _: free)
    monkeypatch.setattr(Drain, "_buffered", lambda _, cpu: reads.append(cpu) or 1 << 19)
    off = threading.Event()
    (tmp_path / "raw").mkdir()
    moving = Drain(instance, tmp_path / "raw", PAGE, 8 << 20, off.set, moved=moved.set)
    moving.start(played.cpus)
    played.play()
    assert moved.wait(60)
    if ends:
        assert off.wait(60)
        assert "has room left for its trace, no more" in moving.failure.what
    instance.write("tracing_on", "0")
    moving.stop()
    assert (moving.failure is not None) == ends
    # The kernel is asked only where it matters.
    assert bool(reads) == (free < 1 << 40)
    assert ends or all(sizes(tmp_path / "raw").values())


# -------------------------------------------------------------- what a killed recorder left


def killed_layer(played, place):
    """Have what a recorder under a budget leaves: an instance with pages, raw data, an entry."""
    session = played.dead_session()
    place.mkdir()
    recorder = FtraceRecorder(RecorderSettings(session, place))
    recorder.open()
    name = instance_name("base", session)
    layer = Instance.at(played.root, name)
    layer.make()
    layer.enable_events(["sched:*"])
    played.play()
    played.kill(recorder)
    for each in (session, name):
        played.turn_off(each)
    register(session, place, "ftrace")
    return session


def test_buffers_of_a_layer_are_saved_beside_those_of_its_recording(played, tmp_path):
    session = killed_layer(played, tmp_path / "rec")
    for leftover in find_leftovers():
        assert leftover.session == session
        leftover.remove()
    assert played.instances == []
    beside = tmp_path / "rec/raw" / LAYERS / "base"
    assert {"cpu0", "cpu1", "stats.json"} <= {p.name for p in beside.iterdir()}
    assert all((beside / f"cpu{cpu}").stat().st_size % PAGE == 0 for cpu in (0, 1))
    assert finish_killed(tmp_path / "rec", lambda _: None).facts["event_count"] > 1000


@pytest.mark.parametrize("of", ["the recording", "a layer"])
def test_what_cannot_be_saved_is_said_to_be_lost_and_is_gone(played, tmp_path, monkeypatch, of):
    killed_layer(played, tmp_path / "rec")

    def refuse(raw, _):
        if (raw.name == raws.RAW) == (of == "the recording"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(cleanup.raws, "write_stats", refuse)
    said = []
    for leftover in find_leftovers():
        try:
            leftover.remove()
        except CritpathError as error:
            said.append(error.what)
    [what] = said
    assert "is lost" in what
    assert os.strerror(errno.EIO) in what
    assert played.instances == []
