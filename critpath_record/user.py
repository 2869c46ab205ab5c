"""The user a command runs as, and who owns the recording in the end."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from critpath.errors import CritpathError, UsageError
from critpath.units import safe_text
from critpath_record import rooted
from critpath_record.dirfd import identity_of

_NOBODY_AT_ALL: Final = 2**32 - 1
# Python's own modules, whatever is named alike in this directory.
_NOT_FROM_HERE: Final = ("-P",) if sys.version_info >= (3, 11) else ()


@dataclass(frozen=True)
class User:
    """The user who called sudo."""

    uid: int
    gid: int
    groups: tuple[int, ...]  # supplementary ones, as a login would have them
    # ``HOME``, ``USER``, ``LOGNAME``, as sudo has set them for root.
    environment: Mapping[bytes, bytes]

    @classmethod
    def behind_sudo(cls, environment: Mapping[bytes, bytes], *, as_root: bool) -> User | None:
        """Return the user behind sudo, None if the command runs as the current user."""
        given = environment.get(b"SUDO_UID")
        if as_root or os.geteuid() != 0 or given in {None, b"", b"0"}:
            return None
        uid, gid = _number(given), _number(environment.get(b"SUDO_GID"))
        if not uid:
            raise CritpathError(
                "SUDO_UID or SUDO_GID is not the number of a user or group",
                "unset them, or give --as-root to stay root",
            )
        try:
            known = pwd.getpwuid(uid)
        except (KeyError, OverflowError):
            # A user of a directory service that is away: no name, but a number.
            known = None
        if known is None:
            if gid is None:
                raise CritpathError(
                    f"sudo was called by user {uid}, who is not known here",
                    "give --as-root to run the command as root",
                )
            return cls(uid, gid, (gid,), {})
        gid = known.pw_gid if gid is None else gid
        name = os.fsencode(known.pw_name)
        return cls(
            uid,
            gid,
            tuple(os.getgrouplist(known.pw_name, gid)),
            {b"HOME": os.fsencode(known.pw_dir), b"USER": name, b"LOGNAME": name},
        )

    @classmethod
    def behind_helper(cls) -> User | None:
        """Return the user who called sudo where this process has become them, else None."""
        if rooted.channel is None:
            return None
        return cls(os.getuid(), os.getgid(), tuple(os.getgroups()), {})

    @staticmethod
    def find_markers(text: str, user: User | None) -> tuple[int, ...]:
        """Return the uids whose programs may mark executions, -1 for all.

        `text` is as for ``--marks-from``; raises UsageError if it names no user.
        """
        if text in {"", "none"}:
            return (user.uid,) if user and not text else ()
        if text == "all":
            return (-1,)
        found = [user.uid] if user else []
        for name in filter(None, (part.strip() for part in text.split(","))):
            try:
                # int() would take other scripts' digits.
                found.append(
                    int(name) if name.isascii() and name.isdigit() else pwd.getpwnam(name)[2]
                )
            except KeyError:
                raise UsageError(
                    f"--marks-from: there is no user {safe_text(name)}",
                    "name users of this machine, separated by commas; or all, or none",
                ) from None
        if not all(0 <= uid < _NOBODY_AT_ALL for uid in found):
            raise UsageError("--marks-from: no such number of a user", "name users of this machine")
        return tuple(sorted({uid for uid in found if uid}))

    def run_critpath(self, arguments: Sequence[str]) -> int:
        """Run a verb of critpath as this user, in this directory; return its exit code."""
        try:
            done = subprocess.run(  # noqa: S603 - as the user, who may run anything
                [sys.executable, *_NOT_FROM_HERE, "-m", "critpath", *arguments],
                user=self.uid,
                group=self.gid,
                extra_groups=self.groups,
                env={**os.environb, **self.environment},
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            raise CritpathError(
                f"user {self.uid} may not run this critpath: {arguments[0]} was left out",
                f"run critpath {arguments[0]} on the recording, or record with --as-root",
            ) from None
        return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _number(text: bytes | None) -> int | None:
    """Return a number of a user or group, None if not given; -1 would be "as it is": root."""
    if not text:
        return None
    if text.isdigit() and len(text) < 11 and int(text) < _NOBODY_AT_ALL:
        return int(text)
    raise CritpathError(
        "SUDO_UID or SUDO_GID is not the number of a user or group",
        "unset them, or give --as-root to stay root",
    )


def may_write(directory: int, user: User) -> bool:
    """Return whether a user may make files in a directory, given by a descriptor."""
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", "test -w . && test -x ."],
            cwd=f"/proc/self/fd/{directory}",
            user=user.uid,
            group=user.gid,
            extra_groups=user.groups,
            env={},
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):  # such as a user who is not mapped here
        return False
    return done.returncode == 0


def hand_over_fd(top: int, user: User | None) -> str:
    """Make an open directory private, and `user`'s if one is given; return a warning, or ""."""
    try:
        _hand_over_all(top, user)
    except OSError as error:
        whose = "made private" if user is None else f"given to user {user.uid}"
        return f"not all of the recording could be {whose}: {error.strerror}"
    return ""


def _hand_over_all(top: int, user: User | None) -> None:
    """Change every entry, then raise the first OSError, if any."""
    names = _names(top)
    wrong: list[OSError] = []
    # From the inside out: the directory is root's until its content is finished.
    for _, directories, files, place in os.fwalk(".", topdown=False, dir_fd=top):
        for name in (*files, *directories):
            try:
                status = os.stat(name, dir_fd=place, follow_symlinks=False)
                # Who also has a name elsewhere is no file of ours: a hard link to it was
                # put here.
                if name in directories or status.st_nlink <= names[identity_of(status)]:
                    _hand_over_one(place, name, 0o700 if name in directories else 0o600, user)
            except OSError as error:
                wrong.append(error)
    try:
        os.fchmod(top, 0o700)
    finally:
        if user is not None:
            os.fchown(top, user.uid, user.gid)
    if wrong:
        raise wrong[0]


def _names(top: int) -> Counter[tuple[int, int]]:
    """Return how many names each file has below a directory, by device and inode."""
    names: Counter[tuple[int, int]] = Counter()
    for _, _, files, place in os.fwalk(".", dir_fd=top):
        for name in files:
            status = os.stat(name, dir_fd=place, follow_symlinks=False)
            names[identity_of(status)] += 1
    return names


def _hand_over_one(place: int, name: str, mode: int, user: User | None) -> None:
    """Change one entry; never what a link points at."""
    found = os.stat(name, dir_fd=place, follow_symlinks=False)
    if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        own = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
        try:
            os.fchmod(own, mode)
        finally:
            os.close(own)
    if user is not None:
        os.chown(name, user.uid, user.gid, dir_fd=place, follow_symlinks=False)
