"""Where a flight recorder can be asked: its lock, its socket and ``flight.json``."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from critpath.errors import CritpathError, UsageError
from critpath.record.flight.dumps import remove_gone
from critpath.record.ftrace import raw as raws
from critpath.record.identity import is_dead_session
from critpath.record.recorder import Leftover
from critpath.record.registry import registry_directory

FORMAT: Final = "critpath/flight/1"
STATE: Final = "flight.json"
_PREFIX: Final = "flight-"
_LONGEST: Final = 65_536
_ANSWER: Final = 1 << 22


def lock_path(directory: Path) -> Path:
    """Return the lock of a flight recorder, one of each name; raises CritpathError."""
    place = registry_directory(create=True)
    if place is None:
        raise CritpathError(
            "a flight recorder needs a directory of its own in /run, which cannot be made",
            "run as root",
        )
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", directory.name)[:60] or "flight"
    return place / f"{_PREFIX}{name}"


@contextlib.contextmanager
def hold_lock(directory: Path, session: str) -> Iterator[Path]:
    """Be the only flight recorder of this name; yields the lock's path."""
    path = lock_path(directory)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"a flight recorder of the name {directory.name} runs already",
                "critpath dump --stop ends it; or name another directory with -o",
            ) from None
        os.ftruncate(descriptor, 0)
        text = json.dumps({"session": session, "directory": str(directory)})
        os.pwrite(descriptor, text.encode(), 0)
        yield path
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            document = json.loads(stream.read(_LONGEST))
        if isinstance(document, dict):
            return document
    return {}


def _locks() -> Iterator[tuple[Path, dict[str, Any]]]:
    place = registry_directory()
    for path in sorted(place.glob(f"{_PREFIX}*")) if place else ():
        if path.suffix != ".sock":
            yield path, _read(path)


def find_place(directory: Path | None) -> Path:
    """Return the lock of the flight recorder that runs; raises UsageError if none, or several."""
    running = [(path, of) for path, of in _locks() if not is_dead_session(str(of.get("session")))]
    if directory is not None:
        wanted = str(directory.absolute())
        running = [(path, of) for path, of in running if of.get("directory") == wanted]
    if not running:
        where = f" in {directory}" if directory is not None else " on this machine"
        raise UsageError(
            f"no flight recorder runs{where} that this user may ask",
            "start one: sudo critpath record --always -o DIR",
        )
    if len(running) > 1:
        names = ", ".join(str(of.get("directory")) for _, of in running)
        raise UsageError(f"several flight recorders run: {names}", "name one: critpath dump DIR")
    return running[0][0]


def ask(place: Path, document: Mapping[str, object], seconds: float = 600) -> dict[str, Any]:
    """Ask a flight recorder and return its answer; raises CritpathError if there is none."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as to:
            to.settimeout(seconds)
            to.connect(str(place.with_suffix(".sock")))
            to.send(json.dumps(document).encode())
            answer = json.loads(to.recv(_ANSWER) or b"null")
    except (OSError, ValueError) as error:
        raise CritpathError(
            f"the flight recorder does not answer: {error}", "critpath doctor --clean"
        ) from None
    if not isinstance(answer, dict):
        raise CritpathError("the flight recorder ended", "critpath doctor --clean")
    return answer


def write_state(directory: Path, document: Mapping[str, object]) -> None:
    """Write ``flight.json``, whole or not at all."""
    raws.write_json(directory / STATE, document)


def find_leftovers() -> Iterator[Leftover]:
    """Yield what flight recorders left that were killed."""
    for path, of in _locks():
        session = str(of.get("session"))
        if is_dead_session(session):
            yield Leftover("flight", path.name, session, partial(_remove, path, of))


def _remove(path: Path, of: Mapping[str, Any]) -> None:
    """Remove lock and socket, and let ``flight.json`` say that it was killed."""
    directory = Path(str(of.get("directory")))
    state = _read(directory / STATE)
    with contextlib.suppress(OSError):
        if state.get("session") == of.get("session") and not directory.is_symlink():
            for unfinished in directory.glob(f".{STATE}.*"):
                unfinished.unlink(missing_ok=True)
            remove_gone(directory)
            write_state(directory, {**state, "state": "killed"})
    path.with_suffix(".sock").unlink(missing_ok=True)
    path.unlink(missing_ok=True)
