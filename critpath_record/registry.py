"""Registry of live recordings, so that a killed recorder's can be found and finished.

What is the same until the machine starts anew is kept there, too.

One small file per session, in a directory of the user's own that does not survive a
reboot, as the tracer's buffers do not either.  Recording works without such a directory,
but a killed recorder's data is then found by ``critpath doctor DIR`` only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.untrusted import read_object
from critpath_marks.sessions import owner_of
from critpath_record import rooted
from critpath_record.dirfd import write_whole
from critpath_record.proc import read_text

_ROOT: Final = Path("/run/critpath")
_SUFFIX: Final = ".json"
FLIGHT: Final = "flight-"  # what the files of a flight recorder begin with
_CHANGE: Final = ".option"  # an empty file while a session has changed an option of the kernel
_LONGEST: Final = 16_384  # bytes of an entry: a path and two names


@dataclass(frozen=True)
class Entry:
    """A recording that was begun and not finished."""

    session: str
    directory: Path  # absolute; where the recording was when it was begun
    recorder: str  # ``ftrace`` or ``lttng``, not checked
    # User and group to give the recording to; None for whoever records.
    owner: tuple[int, int] | None = None
    keep_raw: bool = False  # its user wants the raw data, too
    parted: bool = False  # its user's from the beginning: nothing in it is root's


def register(
    session: str,
    directory: Path,
    recorder: str,
    owner: tuple[int, int] | None = None,
    *,
    keep_raw: bool = False,
) -> None:
    """Note where a session's recording is; without a registry, do nothing."""
    absolute = os.path.abspath(directory)  # noqa: PTH100 - not resolve(): a link stays one
    entry = {"directory": absolute, "recorder": recorder, "owner": owner, "keep_raw": keep_raw}
    text = json.dumps(entry)
    if rooted.channel is not None:
        with contextlib.suppress(OSError):  # as below
            rooted.ask("note", session, text)
        return
    place = registry_directory(create=True)
    if place is None or owner_of(session) is None:
        return
    unfinished = place / f".{session}.{os.getpid()}"
    # A full /run must not prevent a recording that needs none of it.
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(text)
        unfinished.replace(place / (session + _SUFFIX))
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


def unregister(session: str, suffix: str = _SUFFIX) -> None:
    """Remove a session's entry, if there is one."""
    if rooted.channel is not None:
        with contextlib.suppress(OSError):
            rooted.ask("forget", session)
        return
    place = registry_directory()
    if place is not None and owner_of(session) is not None:
        with contextlib.suppress(OSError):
            (place / (session + suffix)).unlink()


@contextlib.contextmanager
def note_change(session: str) -> Iterator[None]:
    """Note that the option which is changed meanwhile was changed by a session."""
    place = registry_directory(create=True)
    note = place / (session + _CHANGE) if place and owner_of(session) else None
    with contextlib.suppress(OSError):
        if note:
            note.touch(mode=0o600)
    try:
        yield
    finally:
        forget_change(session)


def find_changes() -> list[str]:
    """Return the sessions that may have left an option changed, sorted."""
    place = registry_directory()
    notes = sorted(place.glob("*" + _CHANGE)) if place else []
    return [note.stem for note in notes if owner_of(note.stem) is not None]


def forget_change(session: str) -> None:
    """Remove the note of a changed option."""
    unregister(session, _CHANGE)


def read_entries() -> list[Entry]:
    """Return all valid entries, sorted by session; whatever else lies there is skipped."""
    place = registry_directory()
    files = sorted(place.glob("*" + _SUFFIX)) if place is not None else []
    found = (_read(file, file.stem) for file in files if owner_of(file.stem) is not None)
    return [entry for entry in found if entry is not None]


def remove_unfinished_entries() -> None:
    """Remove the entries that recorders were killed while writing."""
    place = registry_directory()
    with contextlib.suppress(OSError):
        for unfinished in place.glob(".*") if place else ():
            owner = owner_of(unfinished.name[1:].rpartition(".")[0])
            if owner is not None and owner.is_gone():
                unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def cleanup_lock(patience: float = 60.0) -> Iterator[None]:
    """Keep others from cleaning up; one that takes longer than `patience` (s) counts as stuck."""
    place = registry_directory()
    if place is None:
        yield
        return
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + patience
        while time.monotonic() < until:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def once_a_boot(name: str, find: Callable[[], str]) -> str:
    """Return what is the same until the machine starts anew; found again where it is not known."""
    boot = read_text("/proc/sys/kernel/random/boot_id").strip()
    place = registry_directory(create=True)
    known = read_object(place / name, _LONGEST) if place else {}
    if known.get("boot") == boot and isinstance(found := known.get("found"), str):
        return found
    if (found := find()) and place:
        with contextlib.suppress(OSError):  # a full /run must not prevent a recording
            write_whole(place / name, json.dumps({"boot": boot, "found": found}))
    return found


def find_flights() -> list[Path]:
    """Return the locks and sockets of flight recorders: of the registry, and that helpers hold."""
    places = (registry_directory(), Path(rooted.PLACE))
    return [path for place in places if place for path in sorted(place.glob(f"{FLIGHT}*"))]


def registry_directory(*, create: bool = False) -> Path | None:
    """Return the registry's directory, None if there is none that can be trusted."""
    if os.geteuid() == 0:
        place = _ROOT
    else:
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        if not runtime.startswith("/"):
            return None
        place = Path(runtime) / "critpath"
    try:
        if create:
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o700)
        status = place.lstat()
    except OSError:
        return None
    # Whoever else may write there could have `doctor --clean` finish, as root, a
    # "recording" of theirs.
    trusted = (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & 0o077
    )
    return place if trusted else None


def _read(place: Path, session: str) -> Entry | None:
    document = read_object(place, _LONGEST)
    directory, recorder, owner = (document.get(k) for k in ("directory", "recorder", "owner"))
    if not isinstance(directory, str) or not isinstance(recorder, str):
        return None
    if not directory.startswith("/") or "\0" in directory:
        return None
    keep = document.get("keep_raw") is True
    match owner:
        case [int(uid), int(gid)]:
            parted = document.get("parted") is True
            return Entry(session, Path(directory), recorder, (uid, gid), keep, parted)
    return Entry(session, Path(directory), recorder, keep_raw=keep)
