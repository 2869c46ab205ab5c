"""What killed recorders leave; the recorders' own parts are replaced."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType

import pytest

from critpath import untrusted
from critpath.errors import CritpathError
from critpath.model import CpuLoss, Manifest, Run
from critpath.model.recording import MANIFEST_BYTES, MANIFEST_RUNS, Script
from critpath.untrusted import load_json
from critpath_marks.sessions import new_session_name
from critpath_record import cleanup, registry
from critpath_record.cleanup import find_leftovers, remove_leftovers
from critpath_record.ftrace import tracefs
from critpath_record.manifests import RUNS, manifest_to_json, read_manifest, write_manifest
from critpath_record.recorder import RECORDERS, Leftover
from critpath_record.recovery import _is_mine, finish_recording
from critpath_record.registry import read_entries, register
from critpath_record.source import Taken
from tests.played.names import dead_name


@pytest.fixture
def recorders(tmp_path, monkeypatch):
    """A registry of this test's own and two recorders that leave nothing by themselves."""
    monkeypatch.setattr(registry, "_ROOT", tmp_path / "registry")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    modules = {}
    monkeypatch.setattr(cleanup, "LEFTOVERS", tuple(RECORDERS.values()))
    for name, place in RECORDERS.items():
        module = ModuleType(place)
        module.find_leftovers = list
        module.finish_killed = lambda *_: Taken()
        monkeypatch.setitem(sys.modules, place, module)
        modules[name] = module
    return modules


def manifest(session: str, **changes) -> Manifest:
    return replace(
        Manifest(
            state="recording",
            session=session,
            command=("./work",),
            execution="process",
            runs=(),
            recorder={"name": "ftrace"},
            profile="minimal",
            clock={"name": "monotonic", "epoch": 10**18},
            host={},
            begin=100,
            end=0,
        ),
        **changes,
    )


def unfinished(place, session, **changes):
    (place / "raw").mkdir(parents=True)
    (place / "raw" / "raw.json").touch()
    write_manifest(place, manifest(session, **changes))
    register(session, place, "ftrace")
    return place


def clean():
    told = []
    return remove_leftovers(lambda x, error: told.append((x.kind, x.name, error))), told


@pytest.mark.usefixtures("recorders")
def test_a_machine_without_leftovers_has_none(tmp_path):
    register(new_session_name(), tmp_path, "ftrace")  # alive: this process
    assert find_leftovers() == []
    assert clean() == (True, [])
    assert len(read_entries()) == 1


@pytest.mark.usefixtures("recorders")
def test_an_entry_that_was_half_written_goes():
    place = registry.registry_directory(create=True)
    alive, dead = new_session_name(), dead_name()
    for session in (alive, dead):
        (place / f".{session}.{session.split('-')[2]}").write_text('{"dire')
    (place / ".note").touch()  # not ours
    assert clean() == (True, [])
    assert sorted(p.name for p in place.iterdir()) == [f".{alive}.{os.getpid()}", ".note"]


def test_a_recorder_that_fails_does_not_hide_the_other(recorders):
    def fail():
        raise CritpathError("cannot look", "do something")

    removed = []
    session = dead_name()
    recorders["lttng"].find_leftovers = fail
    recorders["ftrace"].find_leftovers = lambda: (
        [] if removed else [Leftover("instance", session, session, lambda: removed.append(1))]
    )
    assert [x.kind for x in find_leftovers()] == ["instance"]
    assert clean()[0]
    assert removed


def test_the_order_is_processes_instances_recordings(recorders, tmp_path, monkeypatch):
    session = dead_name()
    unfinished(tmp_path / "out", session)
    process = Leftover("process", "7", session, lambda: None)
    monkeypatch.setattr(cleanup, "_find_processes", lambda killed: [process] * (session in killed))
    recorders["ftrace"].find_leftovers = lambda: [
        Leftover("directory", "d", session, lambda: None),
        Leftover("instance", "i", session, lambda: None),
    ]
    kinds = [x.kind for x in find_leftovers()]
    assert kinds == ["process", "instance", "recording", "directory"]


def test_what_cannot_be_removed_is_said_once(recorders):
    def refuse():
        raise OSError(16, "Device or resource busy")

    session = dead_name()
    recorders["ftrace"].find_leftovers = lambda: [Leftover("instance", "i", session, refuse)]
    done, told = clean()
    assert not done
    assert [(kind, name) for kind, name, _ in told] == [("instance", "i")]
    assert "busy" in told[0][2].what


def test_a_recording_is_finished_with_the_runs_that_ended(recorders, tmp_path):
    session = dead_name()
    out = unfinished(tmp_path / "out", session, runs=(Run(1, 10, 110, 120, 0),))
    runs = [Run(1, 10, 110, 120, 0), Run(2, 11, 130, 150, 3, outlived=1)]
    lines = [json.dumps(asdict(run)) for run in runs]
    (out / RUNS).write_text("\n".join([*lines, "[1]", '{"number": "x"}', lines[0][:20]]))
    asked = []

    def finish_killed(directory, tell):
        asked.append(directory.resolve())
        tell("converting")
        return Taken((CpuLoss(1, 7),), {"version": "9"}, ("cut off",))

    recorders["ftrace"].finish_killed = finish_killed
    assert clean()[0]
    assert asked == [out]
    done = read_manifest(out)
    assert done.state == "interrupted"
    assert done.runs == tuple(runs)
    assert (done.end, done.lost) == (150, 7)
    assert done.recorder == {"name": "ftrace", "version": "9"}
    assert any("killed" in w for w in done.warnings)
    assert not (out / RUNS).exists()
    assert read_entries() == []


def test_a_recording_that_cannot_be_finished_stays_as_it_was(recorders, tmp_path):
    def finish_killed(*_):
        raise CritpathError("the disk is full", "make room")

    recorders["ftrace"].finish_killed = finish_killed
    out = unfinished(tmp_path / "out", dead_name())
    before = (out / "critpath.json").read_bytes()
    done, told = clean()
    assert not done
    assert told[0][2].what == "the disk is full"
    assert (out / "critpath.json").read_bytes() == before
    assert len(read_entries()) == 1


@pytest.mark.usefixtures("recorders")
def test_a_recording_without_any_data_is_try_remove(tmp_path):
    out = unfinished(tmp_path / "out", dead_name())
    (out / "raw").rename(out / ".raw-converted")
    early = tmp_path / "early"
    session = dead_name()
    (early / "raw" / "formats").mkdir(parents=True)
    (early / f".{session}.lttng").touch()
    register(session, early, "ftrace")
    # A dump has these before there is a trace to be made.
    dump = tmp_path / "dump"
    (dump / "stacks").mkdir(parents=True)
    for name in ("sampled.json", ".sampled.json.12", "functions.raw", ".critpath.json.12"):
        (dump / name).touch()
    register(dead_name(), dump, "ftrace")
    assert clean()[0]
    assert not out.exists()
    assert not early.exists()
    assert not dump.exists()
    assert read_entries() == []


@pytest.mark.usefixtures("recorders")
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("gone", ["nothing", "the list of runs", "the raw data's name", "all"])
def test_a_recorder_that_was_killed_while_it_tidied_up_leaves_only_the_recording(
    tmp_path, paired, gone
):
    session = dead_name()
    out = tmp_path / "out"
    halves = [out / "normal", out / "sample"] if paired else [out]
    for number, half in enumerate(halves):
        changes = {"interleaved": halves[1 - number].name} if paired else {}
        unfinished(half, session, state="complete", **changes)
        (half / "trace" / "kernel").mkdir(parents=True)
        (half / "trace" / "kernel" / "metadata").touch()
        if gone == "nothing":
            (half / RUNS).touch()
        if gone in {"the raw data's name", "all"}:
            (half / "raw").rename(half / ".raw-converted")
        if gone == "all":
            (half / ".raw-converted" / "raw.json").unlink()
    register(session, halves[0], "ftrace")
    before = [(half / "critpath.json").read_bytes() for half in halves]
    assert clean()[0]
    for half, written in zip(halves, before, strict=True):
        assert sorted(p.name for p in half.iterdir()) == ["critpath.json", "trace"]
        assert (half / "critpath.json").read_bytes() == written
    assert read_entries() == []


@pytest.mark.usefixtures("recorders")
def test_raw_data_that_is_to_be_kept_stays(tmp_path):
    session = dead_name()
    out = unfinished(tmp_path / "out", session, state="complete")
    (out / "trace" / "kernel").mkdir(parents=True)
    (out / "trace" / "kernel" / "metadata").touch()
    (out / ".raw-converted").mkdir()
    register(session, out, "ftrace", keep_raw=True)
    assert clean()[0]
    assert sorted(p.name for p in out.iterdir()) == ["critpath.json", "raw", "trace"]
    assert read_entries() == []


@pytest.mark.usefixtures("recorders")
def test_what_is_not_the_recorders_is_never_try_remove(tmp_path):
    early = tmp_path / "early"
    (early / "raw").mkdir(parents=True)
    (early / "thesis.txt").touch()  # of the user, who has used the place meanwhile
    register(dead_name(), early, "ftrace")
    assert clean()[0]
    assert sorted(p.name for p in early.iterdir()) == ["raw", "thesis.txt"]


@pytest.mark.usefixtures("recorders")
@pytest.mark.parametrize("moment", ["beside", "between the renames", "before the old one went"])
def test_a_recording_that_was_to_replace_another_gets_its_name(tmp_path, moment):
    session = dead_name()
    target, building = tmp_path / "out", tmp_path / f".out.{session}"
    old = building.with_name(building.name + ".old")
    state = "recording" if moment == "beside" else "complete"
    unfinished(building, session, state=state)
    target.mkdir()
    write_manifest(target, manifest(new_session_name(), state="complete", begin=50))
    if moment == "between the renames":
        target.rename(old)
    elif moment == "before the old one went":
        target.rename(old)
        building.rename(target)
    assert clean()[0]
    assert [p.name for p in tmp_path.iterdir() if "out" in p.name] == ["out"]
    assert read_manifest(target).session == session
    assert read_entries() == []


@pytest.mark.usefixtures("recorders")
@pytest.mark.parametrize("later", ["begun later", "of a later boot", "in progress", "none", "busy"])
def test_a_later_recording_is_not_replaced_by_one_that_waited(tmp_path, monkeypatch, later):
    session = dead_name()
    target, building = tmp_path / "out", tmp_path / f".out.{session}"
    unfinished(building, session)
    target.mkdir()
    if later == "none":
        (target / "precious").touch()
    else:
        state, begin, epoch = {
            "begun later": ("complete", 200, 10**18),
            "of a later boot": ("complete", 7, 10**18 + 500),
            "in progress": ("recording", 0, 10**18 + 500),
            "busy": ("complete", 50, 10**18),
        }[later]
        other = manifest(new_session_name(), state=state, begin=begin, clock={"epoch": epoch})
        write_manifest(target, other)
    if later == "busy":  # a file system is mounted there
        rename = Path.rename

        def refuse(self, to):
            if self == target:
                raise OSError(16, "Device or resource busy")
            return rename(self, to)

        monkeypatch.setattr(Path, "rename", refuse)
    before = sorted((p.name, p.read_bytes()) for p in target.iterdir())
    assert clean()[0]
    assert sorted((p.name, p.read_bytes()) for p in target.iterdir()) == before
    assert read_manifest(tmp_path / f"out.{session}").session == session
    assert read_entries() == []


@pytest.mark.usefixtures("recorders")
def test_a_recording_whose_user_it_cannot_become_is_finished(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(122, "Disk quota exceeded")

    out = unfinished(tmp_path / "out", dead_name())
    monkeypatch.setattr(os, "fchmod", refuse)
    _, told = clean()
    assert [error.what for _, _, error in told if error] == [
        "not all of the recording could be made private: Disk quota exceeded"
    ]
    assert read_manifest(out).state == "interrupted"
    assert read_entries() == []


def test_both_halves_of_an_interleaved_recording_are_finished(recorders, tmp_path):
    def finish_killed(directory, _):
        assert directory.samefile(top / "normal")
        (directory / "trace" / "kernel").mkdir(parents=True)
        (directory / "trace" / "kernel" / "metadata").write_text("x")
        (directory / "trace" / "kernel" / "cpu0").write_bytes(b"\0" * 4096)
        return Taken((CpuLoss(0, 2),))

    recorders["ftrace"].finish_killed = finish_killed
    session, top = dead_name(), tmp_path / "both"
    unfinished(top / "normal", session, interleaved="sample")
    (top / "sample" / "trace").mkdir(parents=True)  # linking had begun
    write_manifest(top / "sample", manifest(session, interleaved="normal"))
    assert clean()[0]
    for half in ("normal", "sample"):
        assert read_manifest(top / half).state == "interrupted"
        assert read_manifest(top / half).lost == 2
        (stream,) = read_manifest(top / half).streams
        assert (stream.name, stream.bytes) == ("trace/kernel/cpu0", 4096)
        assert stream.digest == hashlib.sha256(bytes(4096)).hexdigest()
        assert (top / half / "trace" / "kernel" / "metadata").read_text() == "x"
    assert read_entries() == []


@pytest.mark.usefixtures("recorders")
def test_notes_of_recordings_that_are_no_more_are_dropped(tmp_path):
    register(dead_name(), tmp_path / "moved", "ftrace")
    other = tmp_path / "other"
    other.mkdir()
    write_manifest(other, manifest(new_session_name()))  # a later recording in the same place
    register(dead_name(), other, "ftrace")
    assert clean()[0]
    assert read_entries() == []
    assert read_manifest(other).state == "recording"


@pytest.mark.usefixtures("recorders")
def test_a_recording_in_progress_is_not_finished(tmp_path):
    out = unfinished(tmp_path / "out", new_session_name())
    with pytest.raises(CritpathError, match="is being recorded by process"):
        finish_recording(out, lambda _: None)
    assert (
        finish_recording(unfinished(tmp_path / "b", dead_name(), state="complete"), print) is None
    )


@pytest.mark.usefixtures("recorders")
@pytest.mark.parametrize("half", ["normal", "sample"])
def test_a_manifest_does_not_say_what_is_replaced(tmp_path, half):
    session, precious = dead_name(), tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    for name, other in (("normal", "sample"), ("sample", "normal")):
        place = unfinished(tmp_path / "both" / name, session, interleaved=other)
        if name == half:
            write_manifest(place, manifest(session, interleaved=other, trace=str(precious)))
    with pytest.raises(CritpathError, match="does not know"):
        finish_recording(tmp_path / "both" / "normal", lambda _: None)
    assert (precious / "file").exists()


@pytest.mark.parametrize("name", ["state", "session", "interleaved", "trace", "recorder", "begin"])
def test_a_manifest_of_other_kinds_is_refused(tmp_path, name):
    write_manifest(tmp_path, manifest(dead_name()))
    document = json.loads((tmp_path / "critpath.json").read_text())
    (tmp_path / "critpath.json").write_text(json.dumps({**document, name: [1]}))
    with pytest.raises(CritpathError, match="not a manifest"):
        finish_recording(tmp_path, lambda _: None)


@pytest.mark.usefixtures("recorders")
def test_what_somebody_put_beside_is_not_try_remove(tmp_path):
    session, out = dead_name(), tmp_path / "out"
    out.mkdir()
    write_manifest(out, manifest(session))
    (out / "notes.txt").touch()
    register(session, out, "ftrace")
    assert clean()[0]
    assert [place.name for place in out.iterdir()] == ["notes.txt"]


@pytest.mark.usefixtures("recorders")
@pytest.mark.parametrize("how", ["symlink", "hardlink", "pipe"])
def test_a_recording_with_links_is_refused(tmp_path, how):
    out = unfinished(tmp_path / "out", dead_name())
    secret = tmp_path / "secret"
    secret.write_text("x")
    if how == "symlink":
        (out / "raw" / "cpu0").symlink_to(secret)
    elif how == "pipe":
        os.mkfifo(out / "raw" / "cpu0")
    else:
        os.link(secret, out / "raw" / "cpu0")
    with pytest.raises(CritpathError, match="not what a recorder writes"):
        finish_recording(out, lambda _: None)
    assert read_manifest(out).state == "recording"


@pytest.mark.usefixtures("recorders")
def test_pages_of_a_dump_may_be_kept_for_the_next_one(tmp_path):
    out = unfinished(tmp_path / "out", dead_name())
    (out / "raw" / "cpu0").write_bytes(b"")
    (out / "raw" / "dump.json").write_text("{}")
    os.link(out / "raw" / "cpu0", tmp_path / "held")
    finish_recording(out, lambda _: None)
    assert read_manifest(out).state != "recording"


def test_a_manifest_of_all_runs_that_may_be_asked_for_is_read(tmp_path):
    """And one of a command line of any letters, in the memory that there is for it."""
    time, odd = 10**17, "/\udcff\U0001f980" * 1000
    used = {"executed": time, "kernel": time, "faults": time}
    runs = [Run(MANIFEST_RUNS, 1 << 22, time, time, 255, outlived=1 << 22, timed_out=True, **used)]
    runs *= 2
    ran = Script(7, time, time + 1, "a.py")
    two = manifest("s", command=(odd,), runs=tuple(runs), scripts=(ran,))
    write_manifest(tmp_path, two)
    assert read_manifest(tmp_path) == two
    each = len(manifest_to_json(two)) - len(manifest_to_json(replace(two, runs=tuple(runs[:1]))))
    assert manifest_to_json(two).isascii()
    rest = 1 << 24  # bytes for all else
    assert each * MANIFEST_RUNS + rest < MANIFEST_BYTES
    item = ",".join(f'"{k}": 1' for k in asdict(runs[0])).join("{}")
    text = f"[{','.join([item] * 100)}]".ljust(each * 100).encode()
    assert len(load_json(text, room=untrusted.ROOM * 100 // MANIFEST_RUNS)) == 100


@pytest.mark.skipif(os.geteuid() != 0, reason="it is about root")
def test_what_only_roots_group_may_write_is_roots(tmp_path):
    """LTTng's daemons make directories so."""
    place = tmp_path / "trace"
    place.mkdir()
    place.chmod(0o770)
    assert _is_mine(place.stat())
    os.chown(place, 0, 12345)
    assert not _is_mine(place.stat())


def test_what_must_be_undone_is_made_in_one_place():
    """An instance by who has it watched; what is mounted, by who is told it then."""
    house = Path(tracefs.__file__).parents[1]
    texts = {
        p.relative_to(house).as_posix(): p.read_text(encoding="utf-8") for p in house.rglob("*.py")
    }

    def find(pattern):
        return {name for name, text in texts.items() if re.search(pattern, text)}

    assert find(r"files\.make\(|TracingWatchdog\(") == {"ftrace/tracefs.py"}
    assert find(r"libc\.mount\(") == {"rooted.py"}
    assert find("[ku]probe_events") == set()
    inside = texts["ftrace/tracefs.py"].partition("    def make(self, *mounts: Path)")[2]
    inside = inside.partition("\n    def ")[0]
    for made in ("files.make(", "TracingWatchdog("):
        assert texts["ftrace/tracefs.py"].count(made) == inside.count(made) == 1
