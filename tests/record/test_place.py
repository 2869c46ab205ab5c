"""Where a recording may be put, and what is never touched."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from contextlib import suppress
from types import SimpleNamespace

import pytest

from critpath.errors import CritpathError, UsageError
from critpath.record.dirfd import open_dir
from critpath.record.manifests import link_tree
from critpath.record.output import OutputDirectory
from critpath.record.user import User, hand_over_fd, invoking_user, run_critpath_as

SESSION = "critpath-1-2-3-00000000"
root = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners, which needs root")


def check(path, *, force=False):
    return OutputDirectory.check(path, SESSION, force=force)


def make_recording(path, text='{"format": "critpath/recording/1"}'):
    path.mkdir(parents=True)
    (path / "critpath.json").write_text(text)
    (path / "old").write_text("old")
    return path


def content(path):
    return sorted(p.name for p in path.iterdir())


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_recording_is_never_replaced(tmp_path, force):
    cases = {
        "file": lambda p: p.write_text("x"),
        "link": lambda p: p.symlink_to(make_recording(tmp_path / "behind")),
        "dangling": lambda p: p.symlink_to("nowhere"),
        "full": lambda p: (p.mkdir(), (p / "precious").write_text("x")),
        "other": lambda p: make_recording(p, '{"format": "something/else/1"}'),
        "broken": lambda p: make_recording(p, "{"),
        "list": lambda p: make_recording(p, "[]"),
        "half": lambda p: (make_recording(p / "normal"), (p / "sample").mkdir()),
        "more": lambda p: (
            make_recording(p / "normal"),
            make_recording(p / "sample"),
            (p / "precious").write_text("x"),
        ),
    }
    for name, make in cases.items():
        place = tmp_path / name
        make(place)
        with pytest.raises(UsageError):
            check(place, force=force)
        assert os.path.lexists(place)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "critpath.json").symlink_to(tmp_path / "behind" / "critpath.json")
    with pytest.raises(UsageError):
        check(linked, force=True)
    assert content(tmp_path / "behind") == ["critpath.json", "old"]


def test_a_parent_must_be_there(tmp_path):
    with pytest.raises(UsageError, match="is no directory") as caught:
        check(tmp_path / "a" / "b")
    assert "mkdir -p" in caught.value.do
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        check(tmp_path / "file" / "b")
    with pytest.raises(UsageError):
        check(tmp_path / ("x" * 300))


def test_without_force_a_recording_is_refused_with_the_way_out(tmp_path):
    make_recording(tmp_path / "r")
    with pytest.raises(UsageError) as caught:
        check(tmp_path / "r")
    assert "--force" in caught.value.do


def test_a_new_one(tmp_path):
    place = check(tmp_path / "r")
    assert not place.target.exists()
    place.make()
    assert stat.S_IMODE(place.target.stat().st_mode) == 0o700
    (place.target / "x").write_text("x")
    place.publish(None)
    assert content(tmp_path) == ["r"]
    place.discard()
    assert content(tmp_path) == []


def test_an_empty_one_that_was_there_stays(tmp_path):
    (tmp_path / "r").mkdir()
    place = check(tmp_path / "r")
    place.make()
    (place.target / "sub").mkdir()
    (place.target / "sub" / "x").write_text("x")
    place.discard()
    assert content(tmp_path / "r") == []


def test_replacing_keeps_the_old_one_until_the_end(tmp_path):
    make_recording(tmp_path / "r")
    place = check(tmp_path / "r", force=True)
    place.make()
    (place.building / "new").write_text("new")
    assert content(tmp_path / "r") == ["critpath.json", "old"]
    place.publish(None)
    assert content(tmp_path) == ["r"]
    assert content(tmp_path / "r") == ["new"]


def test_what_was_exchanged_while_recording_is_not_replaced(tmp_path):
    """The check was before the recording; the user may have moved things since."""
    for name in ("gone", "other"):
        make_recording(tmp_path / name)
        place = check(tmp_path / name, force=True)
        place.make()
        (place.building / "new").write_text("new")
        (tmp_path / name).rename(tmp_path / f"{name}-moved")
        if name == "gone":
            place.publish(None)
            assert content(tmp_path / name) == ["new"]
            continue
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").write_text("x")
        with pytest.raises(CritpathError, match="not replaced") as caught:
            place.publish(None)
        place.discard()
        assert content(tmp_path / name) == ["precious"]
        assert content(tmp_path / f"{name}.{SESSION}") == ["new"]
        assert f"{name}.{SESSION}" in caught.value.do


def test_a_failure_leaves_the_old_one(tmp_path):
    make_recording(tmp_path / "r")
    place = check(tmp_path / "r", force=True)
    place.make()
    (place.building / "new").write_text("new")
    place.discard()
    assert content(tmp_path) == ["r"]
    assert content(tmp_path / "r") == ["critpath.json", "old"]


def test_what_took_its_place_is_not_removed_or_given_away(tmp_path):
    place = check(tmp_path / "r")
    place.make()
    place.target.rename(tmp_path / "moved")
    place.target.mkdir()
    (place.target / "theirs").write_text("x")
    place.discard()
    assert content(place.target) == ["theirs"]
    with pytest.raises(CritpathError, match="exchanged"):
        place.publish(None)
    (place.target / "theirs").unlink()
    place.target.rmdir()
    place.target.symlink_to(tmp_path / "moved")
    place.discard()
    assert (tmp_path / "moved").exists()
    with pytest.raises(CritpathError, match="exchanged"):
        place.publish(None)


@root
@pytest.mark.parametrize("end", ["settle", "discard"])
def test_an_empty_one_of_somebody_else_is_roots_while_recording(tmp_path, end):
    nobody = pwd.getpwnam("nobody")
    (tmp_path / "r").mkdir()
    os.chown(tmp_path / "r", nobody.pw_uid, nobody.pw_gid)
    place = check(tmp_path / "r")
    place.make()
    assert place.target.stat().st_uid == 0
    (place.target / "x").touch()
    if end == "settle":
        place.publish(None)
        assert (place.target / "x").stat().st_uid == nobody.pw_uid
    else:
        place.discard()
        assert content(place.target) == []
    assert place.target.stat().st_uid == nobody.pw_uid
    assert place.target.stat().st_gid == nobody.pw_gid


@root
def test_handing_over_never_follows_a_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("x")
    victim.chmod(0o644)
    place = check(tmp_path / "r")
    place.make()
    (place.target / "sub").mkdir()
    (place.target / "sub" / "file").write_text("x")
    (place.target / "sub" / "link").symlink_to(victim)
    os.link(victim, place.target / "sub" / "hard")
    os.link(place.target / "sub" / "file", place.target / "sub" / "twin")
    nobody = pwd.getpwnam("nobody")
    user = invoking_user({b"SUDO_UID": str(nobody.pw_uid).encode()}, as_root=False)
    assert user.gid == nobody.pw_gid
    top = open_dir(place.target)
    assert not hand_over_fd(top, user)
    os.close(top)
    assert victim.stat().st_uid == 0
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644
    (place.target / "sub" / "hard").unlink()
    for path in (place.target, *place.target.rglob("*")):
        assert path.lstat().st_uid == nobody.pw_uid
    assert stat.S_IMODE((place.target / "sub" / "file").stat().st_mode) == 0o600


def test_who_called_sudo(monkeypatch):
    assert invoking_user({b"SUDO_UID": b"0"}, as_root=False) is None
    assert invoking_user({}, as_root=False) is None
    assert invoking_user({b"SUDO_UID": b"7"}, as_root=True) is None
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert invoking_user({b"SUDO_UID": b"7"}, as_root=False) is None
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    # To the kernel 2**32 - 1 is "as it is", and 2**32 is 0.
    for number in (b"x", b"4294967295", b"4294967296", b"-1", b"+7", b"1_0", b"\xd9\xa7", b"00"):
        with pytest.raises(CritpathError, match="not the number"):
            invoking_user({b"SUDO_UID": number}, as_root=False)
        if number != b"00":
            with pytest.raises(CritpathError, match="not the number"):
                invoking_user({b"SUDO_UID": b"54321", b"SUDO_GID": number}, as_root=False)
    stranger = invoking_user({b"SUDO_UID": b"54321", b"SUDO_GID": b"9"}, as_root=False)
    assert (stranger.uid, stranger.gid, stranger.groups) == (54321, 9, (9,))
    with pytest.raises(CritpathError, match="not known"):
        invoking_user({b"SUDO_UID": b"54321"}, as_root=False)


def test_linking_falls_back_to_copies(tmp_path, monkeypatch):
    source = tmp_path / "a"
    (source / "kernel").mkdir(parents=True)
    (source / "kernel" / "x").write_text("x")
    link_tree(source, tmp_path / "b")
    assert (tmp_path / "b/kernel/x").samefile(source / "kernel" / "x")

    def refuse(*_, **__):
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    link_tree(source, tmp_path / "c")
    assert (tmp_path / "c/kernel/x").read_text() == "x"
    assert not (tmp_path / "c/kernel/x").samefile(source / "kernel" / "x")


@root
def test_under_sudo_the_command_and_the_recording_are_the_users(box):
    nobody = pwd.getpwnam("nobody")
    env = {"SUDO_UID": str(nobody.pw_uid), "SUDO_GID": str(nobody.pw_gid), "SUDO_USER": "nobody"}
    line = 'echo "$(id -u) $HOME $USER $LOGNAME"'
    done = box.record("--prepare", "id -u", "sh", "-c", line, env=env)
    assert done.code == 0, done.err
    prepared, said = done.out.splitlines()
    assert prepared == str(nobody.pw_uid)
    assert said == f"{nobody.pw_uid} {nobody.pw_dir} nobody nobody"
    for path in (box.output, *box.output.rglob("*")):
        assert path.lstat().st_uid == nobody.pw_uid
        assert path.lstat().st_gid == nobody.pw_gid
    done = box.record("-o", "asroot", "--as-root", "id", "-u", env=env)
    assert done.out == "0\n"
    assert (box.place / "asroot").stat().st_uid == 0


@root
def test_under_sudo_a_users_link_leads_to_no_place_of_roots(box):
    nobody = pwd.getpwnam("nobody")
    env = {"SUDO_UID": str(nobody.pw_uid), "SUDO_GID": str(nobody.pw_gid)}
    kept, theirs = box.place / "kept", box.place / "theirs"
    kept.mkdir(mode=0o755)
    theirs.mkdir()
    os.chown(theirs, nobody.pw_uid, nobody.pw_gid)
    (box.place / "link").symlink_to(kept)
    (box.place / "own").symlink_to(theirs)
    done = box.record("-o", "link/rec", "true", env=env)
    assert (done.code, list(kept.iterdir())) == (2, [])
    assert "may not write" in done.err
    box.place.chmod(0o755)
    for place in (box.place, *box.place.parents[:2]):  # so that they come there
        place.chmod(place.stat().st_mode | 0o011)
    done = box.record("-o", "own/rec", "true", env=env)
    assert done.code == 0, done.err
    assert (theirs / "rec").stat().st_uid == nobody.pw_uid


@root
def test_under_sudo_a_program_that_is_roots_only(box):
    nobody = pwd.getpwnam("nobody")
    program = box.place / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    done = box.record("./program", env={"SUDO_UID": str(nobody.pw_uid)})
    assert done.code == 126
    assert box.clean()


def test_force_through_the_command(box):
    assert box.record("true").code == 0
    first = box.manifest()["session"]
    assert box.record("true").code == 2
    assert box.record("--force", "sh", "-c", "exit 127").code == 127
    second = box.manifest()["session"]
    assert second != first
    assert box.record("--force", "true", env={"FAKE_FAIL": "finish"}).code == 125
    assert box.manifest()["session"] == second
    (box.output / "critpath.json").unlink()
    (box.output / "mine").write_text("x")
    assert box.record("--force", "true").code == 2
    assert (box.output / "mine").exists()
    assert not [p for p in box.place.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("how", ["moved", "linked"])
def test_nothing_is_written_where_the_recording_is_no_more(box, how):
    """The command runs as the user, critpath may be root: a link would lead it anywhere."""
    (box.place / "victim").mkdir()
    code = "mv rec moved" + "; ln -s victim rec" * (how == "linked")
    done = box.record("-o", "rec", "-n", "2", "sh", "-c", code)
    assert done.code == 125
    assert "moved, removed or exchanged" in done.err
    assert content(box.place / "victim") == []


@root
def test_what_follows_a_recording_is_done_as_its_user(tmp_path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours.html"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    ours.write_text("root's")
    (theirs / "page.html").symlink_to(ours)
    nobody = User(65534, 65534, (65534,), {b"HOME": b"/"})
    with suppress(CritpathError):  # of an installation of root's own
        assert run_critpath_as(nobody, ["explore", "/none", "-o", str(theirs / "page.html")])
    assert ours.read_text() == "root's"


def test_who_runs_it_is_the_user(monkeypatch):
    seen = {}

    def run(command, **options):
        seen.update(options, command=command)
        return SimpleNamespace(returncode=-9)

    monkeypatch.setattr(subprocess, "run", run)
    user = User(1000, 100, (100, 27), {b"HOME": b"/none"})
    assert run_critpath_as(user, ["explore", "rec"]) == 137
    assert (seen["user"], seen["group"], seen["extra_groups"]) == (1000, 100, (100, 27))
    assert seen["env"][b"HOME"] == b"/none"
    assert seen["command"][-2:] == ["explore", "rec"]
