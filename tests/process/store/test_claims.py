"""What a killed process left beside a place is removed, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from critpath import files
from critpath.errors import UsageError
from critpath.files import atomic, atomic_directory, write_text

WRITES = """
import sys
from critpath.files import atomic, atomic_directory
with {how}(__import__("pathlib").Path(sys.argv[1])) as place:
    {what}
    print(flush=True)
    sys.stdin.read()
"""
INTO_DIRECTORY = WRITES.format(
    how="atomic_directory", what='(place / "part").write_bytes(b"PAR1"); (place / "in").mkdir()'
)
INTO_FILE = WRITES.format(how="atomic", what='place.write(b"PAR1"); place.flush()')


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def begun(code: str, target: Path) -> subprocess.Popen[bytes]:
    """Start a process that writes something, and leave it there."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def killed(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def fill(target: Path) -> None:
    with atomic_directory(target) as place:
        (place / "whole").write_bytes(b"")


def write(target: Path) -> None:
    write_text(target, "whole")


@pytest.mark.parametrize("code", [INTO_DIRECTORY, INTO_FILE])
@pytest.mark.parametrize("again", [fill, write])
def test_what_was_left_behind_is_removed(tmp_path, code: str, again: Callable[[Path], None]):
    target = tmp_path / "a (b) [c]\n"
    first, second = begun(code, target), begun(code, target)
    killed(first)
    assert len(names(tmp_path)) == 2
    again(target)
    (left,) = set(names(tmp_path)) - {target.name}
    # The second still lives: it may write on, and it is the last.
    assert second.communicate(b"")[0] == b""
    assert second.returncode == (0 if (code, again) != (INTO_FILE, fill) else 1)
    assert names(tmp_path) == [target.name]
    assert left.endswith(".partial")


def test_others_are_left_alone(tmp_path, monkeypatch):
    target = tmp_path / "d"
    killed(begun(INTO_DIRECTORY, target))
    killed(begun(INTO_FILE, tmp_path / "d.e"))
    (tmp_path / ".d.0badcafe.0123456789ab.partial").mkdir()  # of another machine
    (tmp_path / ".d.partial").mkdir()
    mine = files.temp_sibling(target, "partial")
    mine.symlink_to(tmp_path / "elsewhere")
    os.mkfifo(files.temp_sibling(target, "partial"))
    (tmp_path / "elsewhere").mkdir()
    before = names(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        fill(target)
    assert names(tmp_path) == sorted([*before, "d"])
    fill(target)
    gone = set(before) - set(names(tmp_path))
    assert len(gone) == 1
    assert next(iter(gone)).startswith(".d.")
    assert mine.is_symlink()
    assert (tmp_path / "elsewhere").is_dir()


def test_the_old_one_stays_until_there_is_a_new_one(tmp_path):
    """Killed between the two renames: what stood there is not lost."""
    target = tmp_path / "d"
    fill(target)
    old = files.temp_sibling(target, "old")
    target.rename(old)
    files.remove_abandoned(target)
    assert names(tmp_path) == [old.name]
    fill(target)
    fill(target)
    assert names(tmp_path) == ["d"]


def test_a_name_as_long_as_may_be(tmp_path):
    target = tmp_path / ("é" * 127)
    killed(begun(INTO_DIRECTORY, target))
    fill(target)
    assert names(tmp_path) == [target.name]


def test_names_that_begin_alike_have_leftovers_of_their_own(tmp_path):
    """Their first 200 bytes are all that there is room for."""
    one, other = (tmp_path / ("x" * 230 + end) for end in "ab")
    killed(begun(INTO_DIRECTORY, one))
    (left,) = names(tmp_path)
    fill(other)
    assert names(tmp_path) == [left, other.name]
    fill(one)
    assert names(tmp_path) == [one.name, other.name]


@pytest.mark.parametrize("name", ["x" + "é" * 120, "é" * 100, "xy" + "\U0001f600" * 60, "x" * 255])
def test_no_character_is_split(name, tmp_path):
    found = files.temp_sibling(tmp_path / name, "partial").name
    assert found.encode("utf-8").decode("utf-8") == found
    kept = found.removeprefix(".").rsplit(".", 3)[0]
    assert name.startswith(kept)
    assert 196 < len(kept.encode()) <= 200
    assert len(found.encode()) <= 255


def test_a_name_that_is_no_text(tmp_path):
    target = tmp_path / os.fsdecode(b"\xff" * 250)
    killed(begun(INTO_FILE, target))
    assert len(names(tmp_path)) == 1
    fill(target)
    assert names(tmp_path) == [target.name]


def test_where_nothing_can_be_locked(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError("no locks here")

    target = tmp_path / "d"
    killed(begun(INTO_DIRECTORY, target))
    monkeypatch.setattr(files.fcntl, "flock", refuse)
    fill(target)
    assert len(names(tmp_path)) == 2


def test_taken_away_between_its_beginning_and_its_lock(tmp_path, monkeypatch):
    flock, taken = files.fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        if not taken:
            (begun_,) = tmp_path.glob(".*.partial")
            taken.append(begun_)
            if begun_.is_dir():
                begun_.rmdir()
            else:
                begun_.unlink()
        flock(descriptor, how)

    monkeypatch.setattr(files.fcntl, "flock", late)
    for again in (fill, write):
        target = tmp_path / again.__name__
        again(target)
        taken.clear()
    assert names(tmp_path) == ["fill", "write"]


def test_a_place_that_does_not_exist(tmp_path):
    for way in (atomic, atomic_directory):
        with pytest.raises(UsageError, match="cannot write"), way(tmp_path / "no" / "x"):
            pass
