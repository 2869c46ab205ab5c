"""A recording that is read as a stream gives what it gives as a whole in memory."""

from __future__ import annotations

import errno
import re
from functools import cache
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from critpath import flow, store
from critpath.engines import limits
from critpath.engines.limits import Budget
from critpath.engines.tasks import fit_jobs
from critpath.errors import UsageError
from critpath.flow import extract
from critpath.graph import critical_path
from critpath.model import ExtractSettings, StoredPaths
from critpath.read.recording import Recording
from critpath.read.streaming import OutOfOrder
from critpath.text.notes import word_all
from critpath.timeline import opening as sources
from critpath.timeline import streaming as spilling

from .whole import as_a_whole, assert_same, joined

REQUESTS = "events:app:request_begin,app:request_end,key=id"
MIB = 1 << 20


@pytest.fixture(scope="module")
def whole(guest):
    return cache(lambda name: as_a_whole(guest(name), REQUESTS + ",label=type"))


SIZES = ((1 << 17, 0, False), (500, 0, False), (3_000, 200, True), (100, 1, True))


@pytest.mark.parametrize(("rows", "segments", "spills"), SIZES)
@pytest.mark.parametrize("name", ["normal", "sample-lock", "sample-quota"])
def test_recordings_of_the_guest(guest, whole, monkeypatch, name, rows, segments, spills):
    paths = joined(guest(name), REQUESTS, monkeypatch, rows, segments, spills=spills)
    assert_same(paths, *whole(name))


@pytest.mark.parametrize("text", ["thread", "process"])
@pytest.mark.parametrize(
    "name", ["public/tc-bug446190", "public/selora-namespace_live", "public/tc-scp_dest"]
)
def test_public_traces(shared, monkeypatch, name, text):
    recording = shared(name)
    paths = joined(recording, text, monkeypatch, 20_000, 5_000, spills=True)
    assert_same(paths, *as_a_whole(recording, text))


def test_lives_of_threads_are_walked_and_packed_in_groups(guest, monkeypatch):
    """Without a limit of memory, too, they are not all in memory at once; nothing else changes."""
    whole = extract([guest("normal")], specification="thread")
    monkeypatch.setattr(critical_path, "_MOST_SEGMENTS", 5_000)
    monkeypatch.setattr(store, "RESIDENT", 2_000)
    packed = extract([guest("normal")], specification="thread")
    assert isinstance(packed.paths, StoredPaths)
    assert len([*packed.paths.chunks()]) > 2
    assert_same(packed, whole.executions, whole.paths)
    assert (packed.warnings, packed.environment) == (whole.warnings, whole.environment)


def test_events_out_of_order_are_read_as_a_whole(guest, monkeypatch):
    """One stream goes backwards: the pass ends, and all events are sorted in memory."""
    recording = guest("normal")
    before = extract([recording], specification=REQUESTS)

    class Backwards(sources.EventStream):
        def __next__(self):
            raise OutOfOrder("kernel/channel0_0")

    monkeypatch.setattr(sources, "EventStream", Backwards)
    paths = joined(recording, REQUESTS, monkeypatch, 1_000, 100, spills=True)
    assert_same(paths, before.executions, before.paths)
    [said] = [w for w in word_all(paths.warnings) if "max-memory" in w]
    assert "time runs backwards within kernel/channel0_0" in said


# ------------------------------------------------------------------------- the limit


EXTRACT = ("--execution", REQUESTS, "-o", "x.parquet")


def test_what_the_process_takes_by_itself_counts(critpath, guest, monkeypatch, tmp_path):
    """A process with 160 MB more of its own asks for 160 MB more."""
    recording, found = guest("normal"), []
    for taken in (100, 260):
        monkeypatch.setattr(limits, "_resident", lambda taken=taken: taken * MIB)
        done = critpath(
            "export", "--format", "paths", recording, *EXTRACT, "--max-memory", "1M", cwd=tmp_path
        )
        assert done.returncode == 2
        assert done.stderr.startswith("critpath: --max-memory 1M is too little")
        found.append(int(re.search(r"give at least (\d+)M", done.stderr)[1]))
    assert found[1] - found[0] == 160
    assert list(tmp_path.iterdir()) == []


def test_no_room_for_the_temporary_file(critpath, guest, monkeypatch, tmp_path):
    """A temporary directory without room: said, and nothing is left."""

    class Full:
        def __getattr__(self, name):
            def refuse(*_):
                raise OSError(errno.ENOSPC, "No space left on device")

            return (lambda *_: None) if name == "close" else refuse

    monkeypatch.setattr(spilling, "tempfile", SimpleNamespace(TemporaryFile=lambda **_: Full()))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = critpath(
        "export",
        "--format",
        "paths",
        guest("normal"),
        *EXTRACT,
        "--max-memory",
        "64G",
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "the temporary file of --max-memory" in done.stderr
    assert "TMPDIR" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_temporary_directory_that_is_named_or_none(critpath, guest, tmp_path, monkeypatch):
    """Python would take another one: one in memory perhaps, without a word."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    done = critpath(
        "export",
        "--format",
        "paths",
        guest("sample-lock"),
        *EXTRACT,
        "--max-memory",
        "64G",
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert f"the temporary file of --max-memory in {tmp_path}/nowhere: No such" in done.stderr
    assert "set TMPDIR to a directory that has room" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert (
        critpath(
            "export", "--format", "paths", guest("sample-lock"), *EXTRACT, cwd=tmp_path
        ).returncode
        == 0
    )


def test_the_least_for_several_jobs(guest):
    """Of each as much as of one alone; and as few as there is memory for, unless told."""
    recordings = [guest("normal"), guest("sample-lock")]
    settings = ExtractSettings(REQUESTS, max_memory=limits.least_room() + 8 * MIB)
    assert fit_jobs(None, recordings, settings) == 1
    with pytest.raises(UsageError, match="too little for 2 jobs") as caught:
        fit_jobs(2, recordings, settings)
    assert caught.value.do.endswith(", or --jobs 1")
    advised = int(re.search(r"\d+", caught.value.do)[0]) * MIB
    assert fit_jobs(2, recordings, replace(settings, max_memory=advised)) == 2
    # What the process takes may be less, or more, at another look.
    assert abs(advised - 2 * limits.least_room()) <= 96 * MIB


def test_a_temporary_directory_that_is_none(monkeypatch):
    def refuse(**_):
        raise OSError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(spilling.tempfile, "TemporaryFile", refuse)
    with pytest.raises(UsageError, match="No such file"):
        spilling.SpilledBlocks()


def test_without_a_limit_blocks_stay_in_memory_where_there_is_no_other_room(
    monkeypatch, guest, whole
):
    def refuse(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spilling, "_HELD", 1_000)
    paths = joined(guest("normal"), REQUESTS, monkeypatch, 500, 0, spills=False)
    assert_same(paths, *whole("normal"))
    monkeypatch.setattr(spilling.tempfile, "TemporaryFile", refuse)
    paths = joined(guest("normal"), REQUESTS, monkeypatch, 500, 0, spills=False)
    assert_same(paths, *whole("normal"))


def test_the_limit_is_the_settings(monkeypatch, guest):
    seen = []
    within = Budget.within.__func__

    def watch(cls, limit):
        seen.append(limit)
        return within(cls, limit)

    monkeypatch.setattr(Budget, "within", classmethod(watch))
    settings = ExtractSettings(REQUESTS, max_memory=2048 * MIB)
    [paths] = flow.extract_recording(Recording(guest("normal")), settings)
    assert len(paths)
    assert seen == [2048 * MIB]


def test_pieces_fit(monkeypatch):
    monkeypatch.setattr(limits, "_resident", lambda: 100 * MIB)
    small, large = Budget.within(120 * MIB), Budget.within(10_000 * MIB)
    assert small.rows < large.rows == limits.ROWS
    assert small.segments < large.segments
    assert small.spills
    assert Budget.within(0) == Budget()
    assert replace(small, segments=0) != small
