"""Where a recording is put: what is replaced, whose it is, and what is never touched."""

from __future__ import annotations

import os
import pwd

import pytest


def test_force_replaces_a_recording_and_nothing_else(session):
    assert session.record("true").code == 0
    first = session.manifest()["session"]
    assert session.record("true").code == 2
    session.commands(work=lambda _: 127)
    assert session.record("--force", "work").code == 127
    second = session.manifest()["session"]
    assert second != first
    assert session.record("--force", "true", fail="drain").code == 125
    assert session.manifest()["session"] == second
    (session.output / "critpath.json").unlink()
    (session.output / "mine").write_text("x")
    assert session.record("--force", "true").code == 2
    assert (session.output / "mine").exists()
    assert not [p for p in session.place.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize("how", ["moved", "linked"])
def test_nothing_is_written_where_the_recording_is_no_more(session, how):
    """The command runs as the user, critpath may be root: a link would lead it anywhere."""
    victim = session.place / "victim"
    victim.mkdir()

    def work(_):
        session.output.rename(session.place / "moved")
        if how == "linked":
            session.output.symlink_to(victim)

    session.commands(work=work)
    done = session.record("-n", "2", "work")
    assert done.code == 125
    assert "moved, removed or exchanged" in done.err
    assert list(victim.iterdir()) == []
    assert list((session.place / "moved").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="changes owners, which needs root")
def test_what_a_command_moves_away_is_its_users_and_empty(session):
    nobody = pwd.getpwnam("nobody")
    env = {"SUDO_UID": str(nobody.pw_uid), "SUDO_GID": str(nobody.pw_gid), "SUDO_USER": "nobody"}
    os.chown(session.place, nobody.pw_uid, nobody.pw_gid)
    session.commands(work=lambda _: session.output.rename(session.place / "moved"))
    assert session.record("work", env=env).code == 125
    moved = session.place / "moved"
    assert moved.stat().st_uid == nobody.pw_uid
    assert list(moved.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="changes owners, which needs root")
def test_under_sudo_the_command_and_the_recording_are_the_users(session):
    nobody = pwd.getpwnam("nobody")
    env = {"SUDO_UID": str(nobody.pw_uid), "SUDO_GID": str(nobody.pw_gid), "SUDO_USER": "nobody"}
    done = session.record("--prepare", "tidy", "true", env=env)
    assert done.code == 0, done.err
    for process in session.started:
        assert process.options["user"][:2] == (nobody.pw_uid, nobody.pw_gid)
        names = [process.environment[name] for name in ("HOME", "USER", "LOGNAME")]
        assert names == [nobody.pw_dir, "nobody", "nobody"]
    for path in (session.output, *session.output.rglob("*")):
        assert path.lstat().st_uid == nobody.pw_uid
        assert path.lstat().st_gid == nobody.pw_gid
    session.record("-o", "asroot", "--as-root", "true", env=env)
    assert session.started[-1].options["user"] is None
    assert (session.place / "asroot").stat().st_uid == 0
