"""Files are not written through what another user put into a directory like /tmp."""

from __future__ import annotations

import os
import pwd

import pytest

from critpath.errors import UsageError
from critpath.files import atomic, atomic_directory, write_text

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners, which needs root")


@pytest.fixture
def shared(tmp_path):
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    return place


def plant(place, how, victim, owner="nobody"):
    {
        "link": lambda: place.symlink_to(victim),
        "pipe": lambda: os.mkfifo(place),
        "directory link": lambda: place.symlink_to(victim.parent),
    }[how]()
    os.chown(place, pwd.getpwnam(owner).pw_uid, -1, follow_symlinks=False)


@pytest.mark.parametrize("how", ["link", "pipe", "directory link"])
def test_what_another_user_planted_is_not_followed(tmp_path, shared, how):
    victim = tmp_path / "victim" / "file"
    victim.parent.mkdir()
    victim.write_text("precious")
    plant(shared / "out", how, victim)
    out = shared / "out" / "file" if how == "directory link" else shared / "out"
    with pytest.raises(UsageError, match="by another user") as caught:
        write_text(out, "x")
    assert caught.value.exit_code == 2
    with pytest.raises(UsageError, match="by another user"), atomic_directory(out):
        pass
    assert victim.read_text() == "precious"
    assert [p.name for p in victim.parent.iterdir()] == ["file"]


def test_ones_own_links_and_those_of_the_directorys_owner_are_followed(tmp_path, shared):
    victim = tmp_path / "file"
    plant(shared / "mine", "link", victim, "root")
    write_text(shared / "mine", "x")
    assert victim.read_text() == "x"
    assert (shared / "mine").is_symlink()
    os.chown(shared, pwd.getpwnam("nobody").pw_uid, -1)
    plant(shared / "theirs", "link", victim)
    write_text(shared / "theirs", "y")
    assert victim.read_text() == "y"


def test_where_not_everybody_may_write_links_are_the_users_affair(tmp_path):
    victim = tmp_path / "file"
    plant(tmp_path / "link", "link", victim)
    write_text(tmp_path / "link", "x")
    assert victim.read_text() == "x"


def test_a_hard_link_is_replaced_and_not_written_through(tmp_path, shared):
    victim = tmp_path / "file"
    victim.write_text("precious")
    os.link(victim, shared / "out")
    with atomic(shared / "out") as stream:
        stream.write(b"x")
    assert victim.read_text() == "precious"
    assert (shared / "out").read_text() == "x"


def test_links_in_a_circle_end(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UsageError):
        write_text(tmp_path / "a" / "x", "x")
