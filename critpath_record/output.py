"""The output directory: nothing that is not ours is ever replaced or followed.

Its parent and itself are open descriptors from the check on: a user whose program is
recorded as root may own the parent and exchange names there at any moment.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError, UsageError
from critpath.model import MANIFEST, MANIFEST_FORMAT
from critpath.model.recording import HOSTS, HOSTS_FORMAT, MANIFEST_BYTES, NORMAL, SAMPLE
from critpath.untrusted import read_object
from critpath_record.dirfd import (
    identity_of,
    open_dir,
    proc_fd_path,
    restore_name,
    restore_name_in_error,
)
from critpath_record.user import User, hand_over_fd, may_write

_FAMILY: Final = MANIFEST_FORMAT.rpartition("/")[0] + "/"  # any version of ours
_ROOM: Final = 300 * 2**20  # bytes that should be free


@dataclass
class OutputDirectory:
    """The output directory, from the check to the finished recording."""

    target: Path  # what the user named
    # Where the recording is written: ``target``, or a sibling if ``target`` is replaced.
    building: Path
    identity: tuple[int, int] = (0, 0)  # device and inode of ``building`` once it is made
    _was_there: bool = False
    _owner: tuple[int, int] | None = None  # of one that was there, while it is ours
    _user: tuple[int, int] | None = None  # whose it is in the end
    _handed_over: bool = False
    _parent_fd: int = -1
    _fd: int = -1

    @classmethod
    def check(
        cls, output: Path, session: str, *, force: bool, user: User | None = None
    ) -> OutputDirectory:
        """Check the output, `user`'s in the end, before any work; `session` names a sibling."""
        # Not resolve(): a link as the last component is refused, not followed.
        target = Path(os.path.abspath(output))  # noqa: PTH100 - as above
        try:
            parent = os.open(target.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                _check_parent(target.parent)
            raise _unusable(output, error) from None
        place = cls(target, target, _parent_fd=parent)
        try:
            place._check(output, session, force=force)
            if user is not None:
                place._user = user.uid, user.gid
                place._check_links(user)
        except BaseException:
            place.close()
            raise
        return place

    def _check(self, output: Path, session: str, *, force: bool) -> None:
        target, another = self.target, "name another directory with -o"
        try:
            # "DIR/" and "DIR/." would have a link followed that "DIR" has not.
            found = self._look(target.name or ".")
        except FileNotFoundError:
            _check_parent(target.parent)
            return
        except OSError as error:
            raise _unusable(output, error) from None
        if stat.S_ISLNK(found.st_mode):
            raise UsageError(f"{output} is a link", "name the directory itself with -o")
        if not stat.S_ISDIR(found.st_mode):
            raise UsageError(f"{output} exists and is no directory", another)
        try:
            content = _list_names(target.name or ".", self._parent_fd)
        except OSError as error:
            raise UsageError(f"cannot read {output}: {error.strerror}", another) from None
        if not content:
            if not os.access(target, os.W_OK | os.X_OK):
                raise UsageError(f"cannot write to {output}", another)
            self._was_there = True
            return
        if not is_recording(target.name, self._parent_fd):
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
        self.building = target.parent / f".{target.name[:100]}.{session}"

    def _check_links(self, user: User) -> None:
        """Refuse a parent behind a link, which a user may have made, where they may not write."""
        parent = self.target.parent
        if proc_fd_path(self._parent_fd).readlink() != parent and not may_write(
            self._parent_fd, user
        ):
            raise UsageError(
                f"{parent} leads through a link to where user {user.uid}, who called sudo, "
                "may not write",
                "name the directory itself with -o",
            )

    @property
    def write_path(self) -> Path:
        """The path to write to: ``building``, through its descriptor once it is made."""
        return self.building if self._fd < 0 else proc_fd_path(self._fd)

    def restore_name(self, text: str) -> str:
        """Replace `write_path` by the user's name for it in a text."""
        return restore_name(text, self.write_path, self.building)

    def restore_name_in_error(self, error: BaseException) -> None:
        """Replace `write_path` by the user's name for it in an error."""
        restore_name_in_error(error, self.write_path, self.building)

    def close(self) -> None:
        """Close the descriptors."""
        if self._fd >= 0 and not self._handed_over and not self._is_there():
            self._abandon()
        for descriptor in (self._fd, self._parent_fd):
            if descriptor >= 0:
                with contextlib.suppress(OSError):  # nothing was written to it
                    os.close(descriptor)
        self._fd = self._parent_fd = -1

    def _abandon(self) -> None:
        """Empty a directory that was moved away while it was recorded, and give it back."""
        _remove_content(self._fd)
        owner = self._owner or self._user
        if owner is not None:
            with contextlib.suppress(OSError):
                os.fchown(self._fd, *owner)

    def low_free_space(self) -> int | None:
        """Return the free bytes if they may be too few, else None."""
        # A directory that is there may be a file system of its own.
        try:
            found = os.statvfs(self.target if self._was_there else self.target.parent)
        except OSError:
            return None
        free = found.f_bavail * found.f_frsize
        return free if found.f_blocks and free < _ROOM else None

    def make(self) -> None:
        """Make the directory, readable by its owner only."""
        if not self._was_there:
            try:
                os.mkdir(self.building.name, 0o700, dir_fd=self._parent_fd)
            except OSError as error:
                raise UsageError(
                    f"cannot make {self.building}: {error.strerror}",
                    "name another directory with -o",
                ) from None
        try:
            self._fd, self.identity = self._take()
        except OSError:
            if not self._was_there:
                with contextlib.suppress(OSError):
                    os.rmdir(self.building.name, dir_fd=self._parent_fd)
            raise

    def _take(self) -> tuple[int, tuple[int, int]]:
        """Make the directory this process' own, and open it."""
        fd = open_dir(self.building.name, dir_fd=self._parent_fd)
        try:
            status = os.fstat(fd)
            with contextlib.suppress(OSError):  # not ours: what is in it is
                os.fchmod(fd, 0o700)
                if status.st_uid != os.geteuid():
                    # What root writes there must not be exchanged by the command.
                    os.fchown(fd, os.geteuid(), os.getegid())
                    self._owner = status.st_uid, status.st_gid
            # Looked at only now that no other user can write there: what came before is not ours.
            if filled := bool(os.listdir(fd)):  # noqa: PTH208 - a descriptor
                if self._owner is not None:
                    os.fchown(fd, *self._owner)
                os.fchmod(fd, stat.S_IMODE(status.st_mode))
        except OSError:
            os.close(fd)
            raise
        if filled:
            os.close(fd)
            raise CritpathError(
                f"{self.building} was exchanged or filled just now",
                "record again where nobody else writes",
            )
        return fd, identity_of(status)

    def check_unchanged(self) -> None:
        """Raise CritpathError if the directory was moved or exchanged while recording.

        Writes go to the original directory in any case, but its name may now lead to another
        recording, or to none.
        """
        if not self._is_there():
            raise CritpathError(
                f"{self.building} was moved, removed or exchanged while recording",
                "record again, and leave it alone until the recording has ended",
            )

    def _look(self, name: str) -> os.stat_result:
        """Return the status of a name in the parent directory, not following a link."""
        return os.stat(name, dir_fd=self._parent_fd, follow_symlinks=False)

    def _is_there(self) -> bool:
        try:
            return identity_of(self._look(self.building.name)) == self.identity
        except OSError:
            return False

    def publish(self, user: User | None) -> str:
        """Give the finished recording its owner and its final name."""
        if not self._is_there():
            raise CritpathError(
                f"{self.building} was exchanged for another directory while recording",
                "record again where nobody else writes",
            )
        if user is None and self._owner is not None:
            user = User(*self._owner, groups=(), environment={})
        wrong = hand_over_fd(self._fd, user)
        self._handed_over = True
        if self.building == self.target:
            return wrong
        # Recording may have taken hours: what was checked before it may be gone.
        if not os.path.lexists(proc_fd_path(self._parent_fd) / self.target.name):
            try:
                self._move(self.building.name, self.target.name)
            except OSError as error:
                raise self._keep_beside(f"cannot make {self.target}: {error.strerror}") from None
            return wrong
        if not is_recording(self.target.name, self._parent_fd):
            raise self._keep_beside(f"{self.target} is no recording any more: it is not replaced")
        old = self.building.name + ".old"
        try:
            self._move(self.target.name, old)
            try:
                self._move(self.building.name, self.target.name)
            except OSError:
                self._move(old, self.target.name)
                raise
        except OSError as error:
            # A mount point, or a directory of a layer below.
            raise self._keep_beside(f"cannot replace {self.target}: {error.strerror}") from None
        # What came under its name meanwhile is not removed.
        if is_recording(old, self._parent_fd):
            shutil.rmtree(old, ignore_errors=True, dir_fd=self._parent_fd)
        return wrong

    def _move(self, name: str, to: str) -> None:
        os.rename(name, to, src_dir_fd=self._parent_fd, dst_dir_fd=self._parent_fd)

    def _keep_beside(self, why: str) -> CritpathError:
        """Rename a finished recording to a free name beside it; return the error to raise."""
        beside = self.building.with_name(self.building.name.removeprefix("."))
        try:
            self._move(self.building.name, beside.name)
        except OSError:
            beside = self.building
        return CritpathError(why, f"the new recording is {beside}")

    def discard(self) -> None:
        """Remove what was written; a directory that existed before stays, empty."""
        if self._fd < 0 or not self._is_there():
            return
        _remove_content(self._fd)
        if self._owner is not None:
            with contextlib.suppress(OSError):
                os.fchown(self._fd, *self._owner)
        if not self._was_there and self._is_there():
            with contextlib.suppress(OSError):
                os.rmdir(self.building.name, dir_fd=self._parent_fd)

    def size(self) -> int:
        """Return the size of the recording in bytes; hard links count once."""
        seen = {}
        for _, _, files, place in os.fwalk(".", dir_fd=self._fd):
            for name in files:
                status = os.stat(name, dir_fd=place, follow_symlinks=False)
                seen[identity_of(status)] = status.st_size
        return sum(seen.values())


def _unusable(output: Path, error: OSError | ValueError) -> UsageError:
    why = error.strerror if isinstance(error, OSError) else error
    return UsageError(f"cannot use {output}: {why}", "name another directory with -o")


def _list_names(name: str, parent: int) -> list[str]:
    """Return the sorted names in a directory."""
    directory = open_dir(name, dir_fd=parent)
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - a descriptor
    finally:
        os.close(directory)


def _remove_content(directory: int) -> None:
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


def is_recording(name: str, parent: int) -> bool:
    """Return whether the directory `name` in `parent` is a recording, a pair, or a set of hosts."""
    try:
        directory = open_dir(name, dir_fd=parent)
    except OSError:
        return False
    try:
        if _has_manifest(directory):
            return True
        content = sorted(os.listdir(directory))  # noqa: PTH208 - a descriptor
        if HOSTS in content:
            return _is_set(directory, {*content})
        if content != [NORMAL, SAMPLE]:
            return False
        return is_recording(NORMAL, directory) and is_recording(SAMPLE, directory)
    except OSError:
        return False
    finally:
        os.close(directory)


def _is_set(directory: int, content: set[str]) -> bool:
    """Return whether a directory holds our list of hosts, and nothing that is not listed."""
    document = read_object(HOSTS, MANIFEST_BYTES, dir_fd=directory)
    if document.get("format") != HOSTS_FORMAT:
        return False
    listed = document.get("hosts")
    hosts = [x for x in listed if isinstance(x, dict)] if isinstance(listed, list) else []
    # What else somebody put there is theirs.
    return content <= {HOSTS, *(str(host.get("recording")) for host in hosts)}


def _has_manifest(directory: int) -> bool:
    """Return whether a directory holds a manifest of ours, of any version."""
    document = read_object(MANIFEST, MANIFEST_BYTES, dir_fd=directory)
    return str(document.get("format", "")).startswith(_FAMILY)
