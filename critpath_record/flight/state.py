"""Where a flight recorder can be asked: its lock, its socket and ``flight.json``."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from critpath.errors import CritpathError, UsageError, with_sudo
from critpath.units import safe_text
from critpath.untrusted import read_object
from critpath_record import rooted
from critpath_record.dirfd import open_dir
from critpath_record.flight.dumps import HELD, find_dumps, remove_gone
from critpath_record.ftrace import raw as raws
from critpath_record.identity import is_dead_session
from critpath_record.recorder import Leftover
from critpath_record.registry import FLIGHT, find_flights, registry_directory
from critpath_record.shown import BACKLOG

FORMAT: Final = "critpath/flight/1"
STATE: Final = "flight.json"
_SOCKET: Final = ".sock"
_LONGEST: Final = 65_536
_ANSWER: Final = 1 << 22


def prepare_directory(directory: Path) -> Path:
    """Make the directory, or take one that is ours alone to enter and to replace."""
    for place in directory.absolute().parents:
        with contextlib.suppress(OSError):
            found = place.stat()
            shared = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
            if found.st_uid not in {0, os.geteuid()} or shared:
                raise UsageError(
                    f"{place} is another user's, or others may write there: {directory} could be "
                    "exchanged while it records",
                    "name a directory that only root can exchange, such as -o /var/lib/critpath",
                )
    with contextlib.suppress(FileExistsError):
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            directory.mkdir(mode=0o700)
        except OSError as error:
            if directory.exists():
                raise
            raise UsageError(f"cannot make {directory}: {error.strerror}", "-o DIR") from None
    try:
        descriptor = open_dir(directory)
    except OSError as error:
        raise UsageError(
            f"cannot use {directory}: {error.strerror}", "name a directory itself with -o"
        ) from None
    try:
        status = os.fstat(descriptor)
        known = {STATE, *(p.name for p in find_dumps(directory))}
        names = {n for n in os.listdir(descriptor) if not n.startswith(".")}  # noqa: PTH208
        if status.st_uid != os.geteuid() or names - known:
            which = f": {safe_text(min(names - known))}" if names - known else ""
            raise UsageError(
                f"{directory} is no flight recorder's: others' files are in it{which}",
                "name another directory with -o",
            )
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
    return directory.absolute()


def lock_path(directory: Path) -> Path:
    """Return the lock of a flight recorder, one of each name; raises CritpathError."""
    place = registry_directory(create=True) if rooted.channel is None else Path(rooted.PLACE)
    if place is None:
        raise CritpathError(
            "a flight recorder needs a directory of its own in /run, which cannot be made",
            "run as root",
        )
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", directory.name)[:60] or "flight"
    return place / f"{FLIGHT}{name}"


def socket_path(lock: Path) -> Path:
    """Return the socket of the flight recorder that holds a lock."""
    return lock.with_name(lock.name + _SOCKET)


def _take_lock(path: Path) -> int | None:
    """Return a descriptor that holds a lock, None if somebody else does."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor
        os.close(descriptor)  # its holder removed it meanwhile


@contextlib.contextmanager
def hold_lock(directory: Path, session: str) -> Iterator[Path]:
    """Be the only flight recorder of this name; yields the lock's path."""
    path = lock_path(directory)
    text = json.dumps({"session": session, "directory": str(directory)})
    if rooted.channel is not None:
        try:
            rooted.ask("lock", path.name, text)
        except (BlockingIOError, FileExistsError):
            raise _runs_already(directory) from None
        try:
            yield path
        finally:
            rooted.ask("unlock")
        return
    descriptor = _take_lock(path)
    if descriptor is None:
        raise _runs_already(directory)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
        yield path
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _runs_already(directory: Path) -> UsageError:
    return UsageError(
        f"a flight recorder of the name {directory.name} runs already",
        "critpath dump --stop ends it; or name another directory with -o",
    )


@contextlib.contextmanager
def listen(lock: Path) -> Iterator[socket.socket]:
    """Yield the socket by which others ask; its directory is its user's alone."""
    if rooted.channel is not None:
        with socket.socket(fileno=rooted.ask("listen")[1]) as server:
            server.setblocking(False)
            yield server
        return
    path = socket_path(lock)
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        server.bind(str(path))
        server.listen(BACKLOG)
        server.setblocking(False)
        yield server
    finally:
        server.close()
        path.unlink(missing_ok=True)


def _locks() -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the locks of this user, for root of all users, and what each says."""
    for path in find_flights():
        if path.suffix != _SOCKET:
            of = read_object(path, _LONGEST)
            if not os.geteuid() or _owner_of(of)[0] == os.geteuid():
                yield path, of


def _owner_of(of: Mapping[str, Any]) -> tuple[int, int]:
    """Return the user and group that a helper's lock names, those of this process for another."""
    match of.get("owner"):
        case [int(uid), int(gid)]:
            return uid, gid
    return os.geteuid(), os.getegid()


@dataclass(frozen=True)
class RunningFlight:
    """A flight recorder that runs, by its lock."""

    lock: Path

    @classmethod
    def find(cls, directory: Path | None) -> RunningFlight:
        """Return the one that runs; raises UsageError if none, or several."""
        running = [
            (path, of) for path, of in _locks() if not is_dead_session(str(of.get("session")))
        ]
        if directory is not None:
            running = [r for r in running if _is_of(r[1], directory)]
        if not running:
            where = f" in {directory}" if directory is not None else " on this machine"
            raise UsageError(
                f"no flight recorder runs{where} that this user may ask",
                f"start one: {with_sudo('record --always -o DIR')}",
            )
        if len(running) > 1:
            names = ", ".join(str(of.get("directory")) for _, of in running)
            raise UsageError(
                f"several flight recorders run: {names}", "name one: critpath dump DIR"
            )
        uid, gid = _owner_of(running[0][1])
        if uid != os.geteuid():
            # A user's: what it answers, and what it saves, is read as that user.
            rooted.become(uid, gid, [gid])
            rooted.set_capabilities(permitted=0, effective=0)
        return cls(running[0][0])

    def ask(self, document: Mapping[str, object], seconds: float = 600) -> dict[str, Any]:
        """Ask it and return its answer; raises CritpathError if there is none."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as to:
                to.settimeout(seconds)
                to.connect(str(socket_path(self.lock)))
                to.send(json.dumps(document).encode())
                answer = json.loads(to.recv(_ANSWER) or b"null")
        except (OSError, ValueError) as error:
            raise CritpathError(
                f"the flight recorder does not answer: {error}", "critpath doctor --clean"
            ) from None
        if not isinstance(answer, dict):
            raise CritpathError("the flight recorder ended", "critpath doctor --clean")
        return answer


def _is_of(of: Mapping[str, Any], directory: Path) -> bool:
    """Tell whether a lock says that it is of a directory."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        return Path(str(of.get("directory"))).resolve() == directory.resolve()
    return False


def write_state(directory: Path, document: Mapping[str, object]) -> None:
    """Write ``flight.json``, whole or not at all."""
    raws.write_json(directory / STATE, document)


def find_leftovers() -> Iterator[Leftover]:
    """Yield what flight recorders left that were killed."""
    for path, of in _locks():
        session = str(of.get("session"))
        if is_dead_session(session) and os.access(path.parent, os.W_OK):
            yield Leftover("flight", path.name, session, partial(_remove, path, of))


def _remove(path: Path, of: Mapping[str, Any]) -> None:
    """Remove lock and socket, and let ``flight.json`` say that it was killed."""
    descriptor = _take_lock(path)
    if descriptor is None:  # one of the same name has begun meanwhile
        return
    try:
        uid, gid = _owner_of(of)
        with contextlib.suppress(OSError):
            if uid == os.geteuid():
                _say_killed(of)
            else:  # root does nothing there that its user might not
                rooted.run_as(uid, gid, partial(_say_killed, of))
        socket_path(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _say_killed(of: Mapping[str, Any]) -> str:
    """Let the directory of a flight recorder say that it was killed; raises OSError."""
    directory = Path(str(of.get("directory")))
    state = read_object(directory / STATE, _LONGEST)
    if state.get("session") == of.get("session") and not directory.is_symlink():
        for unfinished in directory.glob(f".{STATE}.*"):
            unfinished.unlink(missing_ok=True)
        remove_gone(directory)
        remove_gone(directory, HELD)
        write_state(directory, {**state, "state": "killed"})
    return ""
