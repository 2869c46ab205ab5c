"""Root records where others may write: what they exchange meanwhile leads it nowhere."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from critpath.errors import CritpathError
from critpath.model import Manifest
from critpath_record.cleanup import remove_leftovers
from critpath_record.lttng.program import trusted_program
from critpath_record.manifests import write_manifest
from critpath_record.output import OutputDirectory
from critpath_record.recorder import RECORDERS
from critpath_record.recovery import finish_recording
from critpath_record.registry import register
from critpath_record.user import User
from tests.played.names import dead_name

SESSION = "critpath-1-2-3-00000000"
MANIFEST = Manifest("recording", SESSION, (), "", (), {"name": "ftrace"}, "", {}, {}, 0, 0)
root = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners, which needs root")


def content(path):
    return sorted(p.name for p in path.iterdir())


def nobody():
    return pwd.getpwnam("nobody")


@contextlib.contextmanager
def exchanging(place: Path, other: Path):
    """Have a name lead to a directory and to another one in turn, as fast as it goes."""
    done = threading.Event()
    aside = place.with_name(place.name + "-aside")

    def exchange():
        while not done.is_set():
            place.rename(aside)
            place.symlink_to(other)
            place.unlink()
            aside.rename(place)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_names_that_are_exchanged_all_the_time_lead_nowhere(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    place = OutputDirectory.check(tmp_path / "rec", SESSION, force=False)
    place.make()
    with exchanging(tmp_path / "rec", victim):
        for number in range(300):
            write_manifest(place.write_path, replace(MANIFEST, begin=number))
            (place.write_path / f"d{number}").mkdir()
            (place.write_path / f"d{number}" / "file").write_text("x")
    assert content(victim) == []
    assert len(content(tmp_path / "rec")) == 301
    with exchanging(tmp_path / "rec", victim), contextlib.suppress(CritpathError):
        place.publish(User(0, 0, (), {}))
    assert stat.S_IMODE(victim.stat().st_mode) != 0o700
    assert victim.exists()
    place.discard()
    assert content(tmp_path) == ["victim"]


def test_a_parent_that_is_exchanged_leads_nowhere(tmp_path):
    """Renames and removals happen in the directory that was checked."""
    parent, elsewhere = tmp_path / "parent", tmp_path / "elsewhere"
    for top in (parent, elsewhere):
        (top / "rec").mkdir(parents=True)
        write_manifest(top / "rec", MANIFEST)
        (top / "rec" / "old").touch()
    place = OutputDirectory.check(parent / "rec", SESSION, force=True)
    place.make()
    (place.write_path / "new").touch()
    parent.rename(tmp_path / "moved")
    parent.symlink_to(elsewhere)
    place.publish(None)
    assert content(elsewhere) == ["rec"]
    assert content(elsewhere / "rec") == ["critpath.json", "old"]
    assert content(tmp_path / "moved" / "rec") == ["new"]


@pytest.mark.parametrize("what", ["link", "hard link", "pipe", "directory"])
def test_a_directory_that_is_filled_after_the_check_is_refused(tmp_path, what):
    victim = tmp_path / "victim"
    victim.write_text("x")
    out = tmp_path / "rec"
    out.mkdir(mode=0o755)
    place = OutputDirectory.check(out, SESSION, force=False)
    {
        "link": lambda p: p.symlink_to(victim),
        "hard link": lambda p: os.link(victim, p),
        "pipe": os.mkfifo,
        "directory": Path.mkdir,
    }[what](out / "runs.jsonl")
    with pytest.raises(CritpathError, match="exchanged or filled"):
        place.make()
    place.discard()
    assert content(out) == ["runs.jsonl"]
    assert stat.S_IMODE(out.stat().st_mode) == 0o755
    assert victim.read_text() == "x"


def test_a_directory_that_comes_into_its_place_is_refused(tmp_path, monkeypatch):
    """Between making it and opening it."""
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o755)
    (precious / "file").write_text("x")
    place = OutputDirectory.check(tmp_path / "rec", SESSION, force=False)
    made = os.mkdir

    def mkdir(name, *arguments, **options):
        made(name, *arguments, **options)
        (tmp_path / "rec").rename(tmp_path / "aside")
        precious.rename(tmp_path / "rec")

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(CritpathError, match="exchanged or filled"):
        place.make()
    assert (tmp_path / "rec" / "file").read_text() == "x"
    assert stat.S_IMODE((tmp_path / "rec").stat().st_mode) == 0o755


# ------------------------------------------------------------ what killed recorders left


def unfinished(place, session):
    (place / "raw").mkdir(parents=True)
    (place / "raw" / "raw.json").write_text("{}")
    write_manifest(place, replace(MANIFEST, session=session))
    return place


@root
def test_a_recording_of_another_user_is_not_finished_by_root(tmp_path):
    out = unfinished(tmp_path / "out", dead_name())
    os.chown(out, nobody().pw_uid, -1)
    before = (out / "critpath.json").read_bytes()
    with pytest.raises(CritpathError, match="another user's") as caught:
        finish_recording(out, lambda _: None)
    assert "as its user" in caught.value.do
    os.chown(out, 0, 0)
    os.chown(out / "raw", nobody().pw_uid, -1)
    with pytest.raises(CritpathError, match="not what a recorder writes") as caught:
        finish_recording(out, lambda _: None)
    assert str(out / "raw") in caught.value.what
    assert "/proc/" not in caught.value.what
    assert (out / "critpath.json").read_bytes() == before
    out.chmod(0o777)
    with pytest.raises(CritpathError, match="others may write"):
        finish_recording(out, lambda _: None)


@root
@pytest.mark.usefixtures("played")
def test_only_a_recording_is_removed_as_the_one_that_was_replaced(tmp_path):
    session = dead_name()
    precious = tmp_path / f".out.{session}.old"
    precious.mkdir()
    (precious / "file").touch()
    register(session, tmp_path / f".out.{session}", "ftrace")
    assert remove_leftovers(lambda *_: None)
    assert content(precious) == ["file"]


def test_half_of_a_pair_that_is_a_link_is_refused(tmp_path):
    session = dead_name()
    elsewhere = unfinished(tmp_path / "elsewhere", session)
    pair = tmp_path / "pair"
    unfinished(pair / "normal", session)
    write_manifest(pair / "normal", replace(MANIFEST, session=session, interleaved="sample"))
    (pair / "sample").symlink_to(elsewhere)
    with pytest.raises(CritpathError, match="not what a recorder writes"):
        finish_recording(pair / "normal", lambda _: None)
    assert content(elsewhere) == ["critpath.json", "raw"]


# --------------------------------------------------------------------- programs and modules


def program(place: Path, mode: int = 0o755) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("#!/bin/sh\n")
    place.chmod(mode)
    return place


@root
def test_root_runs_only_programs_that_nobody_else_can_exchange(tmp_path, monkeypatch):
    good = program(tmp_path / "good" / "lttng")
    theirs = program(tmp_path / "theirs" / "lttng")
    os.chown(theirs.parent, nobody().pw_uid, -1)
    theirs_too = program(tmp_path / "file" / "lttng")
    os.chown(theirs_too, nobody().pw_uid, -1)
    writable = program(tmp_path / "writable" / "lttng", 0o777)
    open_to_all = program(tmp_path / "open" / "bin" / "lttng")
    (tmp_path / "open").chmod(0o777)
    groups = program(tmp_path / "group" / "lttng")
    os.chown(groups.parent, -1, nobody().pw_gid)
    groups.parent.chmod(0o775)
    linked = tmp_path / "linked" / "lttng"
    linked.parent.mkdir()
    linked.symlink_to(theirs)
    bad = [p.parent for p in (theirs, theirs_too, writable, open_to_all, groups, linked)]
    monkeypatch.chdir(good.parent)
    for path in (*map(str, bad), "", ".", "nowhere"):
        monkeypatch.setenv("PATH", path)
        assert trusted_program("lttng") is None, path
    monkeypatch.setenv("PATH", ":".join(map(str, (*bad, "", good.parent))))
    assert trusted_program("lttng") == str(good)


def test_a_manifest_names_no_module(tmp_path):
    """Its recorder's name is looked up among those that there are."""
    assert set(RECORDERS) == {"counts", "ftrace", "lttng"}
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for number, name in enumerate(("evil", "../evil", "critpath.commands.workload", "os")):
        out = unfinished(tmp_path / f"out{number}", dead_name())
        document = json.loads((out / "critpath.json").read_text())
        document["recorder"] = {"name": name, "format": "evil", "version": "$(touch ran)"}
        (out / "critpath.json").write_text(json.dumps(document))
        with pytest.raises(CritpathError, match="does not know"):
            finish_recording(out, lambda _: None)
    assert not (tmp_path / "ran").exists()


def test_a_directory_that_cannot_be_looked_into_is_passed_by(tmp_path, monkeypatch):
    """Root may look everywhere: a name that is too long is refused to it, too."""
    good = tmp_path / "lttng"
    good.write_text("")
    good.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    monkeypatch.setenv("PATH", f"/{'x' * 300}:{tmp_path}")
    assert trusted_program("lttng") == str(good)
