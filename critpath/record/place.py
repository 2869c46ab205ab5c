"""Where a recording is put: nothing that is not ours is ever replaced or followed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError, UsageError
from critpath.model import MANIFEST, MANIFEST_FORMAT
from critpath.record.request import NORMAL, SAMPLE
from critpath.record.user import User, hand_over

_LARGEST: Final = 1 << 26  # bytes of a manifest that is looked at
_FAMILY: Final = MANIFEST_FORMAT.rpartition("/")[0] + "/"  # any version of ours
_ROOM: Final = 300 * 2**20  # bytes that should be free


@dataclass
class Place:
    """The output directory, from the check to the finished recording.

    Attributes
    ----------
    target : Path
        What the user named.
    building : Path
        Where the recording is written: ``target``, or beside it if that is replaced.
    identity : tuple of int
        Device and inode of ``building`` once it is made.
    """

    target: Path
    building: Path
    identity: tuple[int, int] = (0, 0)
    _was_there: bool = False
    _owner: tuple[int, int] | None = None  # of one that was there, while it is ours

    @classmethod
    def check(cls, output: Path, session: str, *, force: bool) -> Place:
        """Check the output before any work.

        Parameters
        ----------
        output : Path
        session : str
            For the name of what is built beside.
        force : bool
            A recording that is there may be replaced.

        Raises
        ------
        UsageError
            If it is there and not an empty directory, or a recording and ``force``; if
            it is a link, or its parent is not a directory that can be written.
        """
        # Not resolve(): a link as the last component is refused, not followed.
        target = Path(os.path.abspath(output))  # noqa: PTH100 - as above
        another = "name another directory with -o"
        try:
            # "DIR/" and "DIR/." would have a link followed that "DIR" has not.
            found = os.lstat(target)
        except FileNotFoundError:
            _check_parent(target.parent)
            return cls(target, target)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"cannot use {output}: {why}", another) from None
        if stat.S_ISLNK(found.st_mode):
            raise UsageError(f"{output} is a link", "name the directory itself with -o")
        if not stat.S_ISDIR(found.st_mode):
            raise UsageError(f"{output} exists and is no directory", another)
        try:
            content = sorted(os.listdir(target))  # noqa: PTH208 - names are what is asked for
        except OSError as error:
            raise UsageError(f"cannot read {output}: {error.strerror}", another) from None
        if not content:
            if not os.access(target, os.W_OK | os.X_OK):
                raise UsageError(f"cannot write to {output}", another)
            return cls(target, target, _was_there=True)
        if not _is_ours(target):
            raise UsageError(
                f"{output} exists and is not empty"
                + ", and no recording: --force does not replace it" * force,
                another,
            )
        if not force:
            raise UsageError(
                f"{output} has a recording already", "--force replaces it; or " + another
            )
        _check_parent(target.parent)
        return cls(target, target.parent / f".{target.name[:100]}.{session}")

    def room(self) -> int | None:
        """Return the bytes that are free, if they may be too few."""
        free = shutil.disk_usage(self.target.parent).free
        return free if free < _ROOM else None

    def make(self) -> None:
        """Make the directory, for nobody else to look into."""
        if self._was_there:
            found = self._open()
        else:
            try:
                self.building.mkdir(mode=0o700)
            except OSError as error:
                raise UsageError(
                    f"cannot make {self.building}: {error.strerror}",
                    "name another directory with -o",
                ) from None
            found = self._open()
        try:
            status = os.fstat(found)
            self.identity = (status.st_dev, status.st_ino)
            with contextlib.suppress(OSError):  # not ours: what is in it is
                os.fchmod(found, 0o700)
                if status.st_uid != os.geteuid():
                    # What root writes there must not be exchanged by the command.
                    os.fchown(found, os.geteuid(), os.getegid())
                    self._owner = status.st_uid, status.st_gid
        finally:
            os.close(found)

    def check_unchanged(self) -> None:
        """Check that the directory is the one that was made, before more is written there.

        Raises
        ------
        CritpathError
            If it was moved away or exchanged while recording.
        """
        try:
            status = os.lstat(self.building)
            same = (status.st_dev, status.st_ino) == self.identity
        except OSError:
            same = False
        if not same:
            raise CritpathError(
                f"{self.building} was moved, removed or exchanged while recording",
                "record again, and leave it alone until the recording has ended",
            )

    def _open(self) -> int:
        return os.open(self.building, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)

    def settle(self, user: User | None) -> None:
        """Give the finished recording its owner and its name.

        Raises
        ------
        CritpathError
            If it cannot replace what is there; it is then beside it, under another name.
        """
        if user is None and self._owner is not None:
            user = User(*self._owner, groups=(), environment={})
        hand_over(self.building, self.identity, user)
        if self.building == self.target:
            return
        # Recording may have taken hours: what was checked before it may be gone.
        if not os.path.lexists(self.target):
            self._rename(self.target)
            return
        if not _is_ours(self.target):
            beside = self.building.with_name(self.building.name.removeprefix("."))
            self._rename(beside)
            raise CritpathError(
                f"{self.target} is no recording any more: it is not replaced",
                f"the new recording is {beside}",
            )
        old = self.building.with_name(self.building.name + ".old")
        try:
            self.target.rename(old)
            try:
                self.building.rename(self.target)
            except OSError:
                old.rename(self.target)
                raise
        except OSError as error:
            raise CritpathError(
                f"cannot replace {self.target}: {error.strerror}",
                "give write access to its parent directory; the old recording is still there",
            ) from None
        shutil.rmtree(old, ignore_errors=True)

    def _rename(self, name: Path) -> None:
        try:
            self.building.rename(name)
        except OSError as error:
            raise CritpathError(
                f"cannot make {name}: {error.strerror}",
                "give write access to its parent directory, and record again",
            ) from None

    def discard(self) -> None:
        """Remove what was written; a directory that was there before stays, empty."""
        if self.identity == (0, 0):
            return
        try:
            found = self._open()
        except OSError:
            return
        try:
            status = os.fstat(found)
            if (status.st_dev, status.st_ino) != self.identity:
                return
            _empty(found)
            if self._owner is not None:
                os.fchown(found, *self._owner)
        finally:
            os.close(found)
        if not self._was_there:
            with contextlib.suppress(OSError):
                self.building.rmdir()

    def size(self) -> int:
        """Return the bytes that the recording takes; hard links count once."""
        seen = {}
        for _, _, files, place in os.fwalk(self.target):
            for name in files:
                status = os.stat(name, dir_fd=place, follow_symlinks=False)
                seen[status.st_dev, status.st_ino] = status.st_size
        return sum(seen.values())


def _empty(directory: int) -> None:
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                shutil.rmtree(name, ignore_errors=True, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)


def _check_parent(parent: Path) -> None:
    if not parent.is_dir():
        raise UsageError(f"{parent} is no directory", f"make it first: mkdir -p {parent}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write to {parent}", "name another directory with -o")


def _is_ours(target: Path) -> bool:
    """Tell whether a directory is a recording, or two that were made in alternation."""
    if _is_recording(target):
        return True
    try:
        content = sorted(os.listdir(target))  # noqa: PTH208 - names are what is asked for
    except OSError:
        return False
    if target.is_symlink() or content != [NORMAL, SAMPLE]:
        return False
    return all(_is_recording(target / name) for name in content)


def _is_recording(directory: Path) -> bool:
    """Tell whether a directory holds a manifest of ours, of whatever version."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        if directory.is_symlink():
            return False
        with os.fdopen(os.open(directory / MANIFEST, flags), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
                return False
            document = json.loads(stream.read())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and str(document.get("format", "")).startswith(_FAMILY)
