"""Where a recording may be put, and what is never touched."""

from __future__ import annotations

import os
import pwd
import stat

import pytest

from critpath.errors import CritpathError, UsageError
from critpath_record import user as user_module
from critpath_record.dirfd import open_dir
from critpath_record.manifests import link_tree
from critpath_record.output import OutputDirectory
from critpath_record.user import User, hand_over_fd
from tests.played.programs import play_programs

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
    user = User.behind_sudo({b"SUDO_UID": str(nobody.pw_uid).encode()}, as_root=False)
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
    assert User.behind_sudo({b"SUDO_UID": b"0"}, as_root=False) is None
    assert User.behind_sudo({}, as_root=False) is None
    assert User.behind_sudo({b"SUDO_UID": b"7"}, as_root=True) is None
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert User.behind_sudo({b"SUDO_UID": b"7"}, as_root=False) is None
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    # To the kernel 2**32 - 1 is "as it is", and 2**32 is 0.
    for number in (b"x", b"4294967295", b"4294967296", b"-1", b"+7", b"1_0", b"\xd9\xa7", b"00"):
        with pytest.raises(CritpathError, match="not the number"):
            User.behind_sudo({b"SUDO_UID": number}, as_root=False)
        if number != b"00":
            with pytest.raises(CritpathError, match="not the number"):
                User.behind_sudo({b"SUDO_UID": b"54321", b"SUDO_GID": number}, as_root=False)
    stranger = User.behind_sudo({b"SUDO_UID": b"54321", b"SUDO_GID": b"9"}, as_root=False)
    assert (stranger.uid, stranger.gid, stranger.groups) == (54321, 9, (9,))
    with pytest.raises(CritpathError, match="not known"):
        User.behind_sudo({b"SUDO_UID": b"54321"}, as_root=False)


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


def test_who_runs_it_is_the_user(monkeypatch):
    played = play_programs(monkeypatch, user_module, -9)
    user = User(1000, 100, (100, 27), {b"HOME": b"/none"})
    assert user.run_critpath(["explore", "rec"]) == 137
    [(command, options)] = played.ran
    assert (options["user"], options["group"], options["extra_groups"]) == (1000, 100, (100, 27))
    assert options["env"][b"HOME"] == b"/none"
    assert command[-2:] == ["explore", "rec"]
