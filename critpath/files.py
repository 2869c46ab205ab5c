"""Files and directories that appear under their names only when they are whole.

What a killed process left beside a name is removed by the next that writes there.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO, Any, Final
from weakref import WeakValueDictionary, finalize
from zlib import crc32

from critpath import steward, stores
from critpath.errors import UsageError, name_places

_DO: Final = "choose a place that you may write to and that has room"


@contextmanager
def atomic(path: Path, *, sweep: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name only when it is whole.

    Parameters
    ----------
    path : Path
        Where a symbolic link leads is replaced, not the link.  Something that is
        not a regular file (``/dev/null``, a pipe) is written directly.
    sweep : bool
        Look through its directory for what a killed process left beside it: not for every
        file of a directory of which that is done as a whole.

    Yields
    ------
    IO[bytes]

    Raises
    ------
    UsageError
        If it cannot be created or written.
    """
    target = resolve_safely(path)
    temporary: Path | None = None
    try:
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            with target.open("wb") as stream:
                yield stream
            return
        if sweep:
            remove_abandoned(target)
        claimed = claimed_file(target)
        temporary = Path(claimed.name)
        try:
            yield claimed
            claimed.flush()
            os.fsync(claimed.fileno())
            stores.publish(temporary, target)
            # Before it is closed: until then no other process removes it.
            steward.move(temporary, target)
        finally:
            with suppress(OSError):  # what is whole is on the disk by then, and in its place
                claimed.close()
    except BaseException as error:
        if temporary is not None:
            discard(temporary)
        if isinstance(error, OSError):
            raise UsageError(f"cannot write {path}: {error.strerror or error}", _DO) from error
        raise


@contextmanager
def given_back(paths: Iterable[Path]) -> Iterator[Callable[[Iterable[os.stat_result]], None]]:
    """Give files back what they were should what follows fail: those that are replaced in it.

    Not what is no regular file.

    Yields
    ------
    callable
        To be called before the first is replaced, with the files that will be: if there was
        none before, no other one is removed.
    """
    kept: dict[Path, Path | None] = {}
    ours: list[os.stat_result] = []

    def keep(files: Iterable[os.stat_result]) -> None:
        ours.extend(files)
        targets = [*map(resolve_safely, paths)]
        for target in targets:
            if stores.is_stored(target):
                if len(targets) > 1:  # one alone is replaced as a whole
                    stored.enter_context(stores.given_back(target))
            elif not os.path.lexists(target):
                kept[target] = None
            elif target.is_file():
                old = temp_sibling(target, "old")
                with suppress(OSError):
                    try:
                        old.hardlink_to(target)
                    except OSError:  # a file system without them, or a confined process
                        _copy(target, old)
                    kept[target] = old

    try:
        with ExitStack() as stored:
            yield keep
    except BaseException:
        for target, old in kept.items():
            with suppress(OSError):
                if old is not None:
                    steward.move(old, target)
                elif any(os.path.samestat(target.lstat(), one) for one in ours):
                    taken = temp_sibling(target, "partial")
                    steward.move(target, taken)
                    discard(taken)
        raise
    finally:
        for old in filter(None, kept.values()):
            discard(old)  # also where it is the target's own file still


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Make a directory that appears under its name only when it is whole."""
    target = resolve_safely(path)
    old = temp_sibling(target, "old")
    remove_abandoned(target)
    stored = stores.is_stored(target)
    try:
        with claimed_directory(target) as temporary:
            try:
                yield temporary
                if stored:
                    stores.replace_directory(temporary, target)
                    return
                if target.exists():
                    steward.move(target, old)
                steward.move(temporary, target)
            except BaseException:
                if stored:
                    stores.remove_directory(temporary)
                _give_back(temporary, old, target)
                raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}", _DO) from error
    discard(old)


@contextmanager
def scratch_directory(path: Path) -> Iterator[Path]:
    """Make a directory beside a file that is being written, for what is needed until then."""
    target = resolve_safely(path)
    if target.exists() and not target.is_file():
        with tempfile.TemporaryDirectory(prefix="critpath-") as name:
            yield Path(name)
        return
    try:
        with claimed_directory(target) as place:
            try:
                yield place
            finally:
                discard(place)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}", _DO) from error


def readable(stream: IO[bytes]) -> Path:
    """Return the path of a file that `atomic` opened, to be read before it appears.

    It is not to be written to any more.
    """
    stream.flush()
    share_lock(stream.fileno())
    return Path(stream.name)


def _copy(target: Path, old: Path) -> None:
    try:
        shutil.copy2(target, old)
    except OSError:
        discard(old)
        raise


def _give_back(temporary: Path, old: Path, target: Path) -> None:
    """Leave things as they were."""
    if os.path.lexists(old) and not os.path.lexists(target):
        steward.move(old, target)
    discard(temporary)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8; lone surrogates become ``?``.

    Raises
    ------
    UsageError
        If it cannot be written; nothing is left behind then.
    """
    with atomic(path) as stream:
        stream.write(name_places(text).encode("utf-8", "replace"))


# Temporary files beside their place: locks tell which are in use and which abandoned.


_ROOM: Final = 200  # bytes of a name that are kept beside what is added to it
_ENDS: Final = re.compile(r"[0-9a-f]{12}\.(partial|old)")


def temp_sibling(target: Path, what: str) -> Path:
    """Return an unused name beside another; it contains this machine's id."""
    if room := steward.room_for(target):
        return room / f"{os.urandom(6).hex()}.{what}"
    # Locks may not reach from one machine to another that sees the same files.
    return target.with_name(f"{_begun_by_us(target)}{os.urandom(6).hex()}.{what}")


def claimed_file(target: Path) -> IO[bytes]:
    """Create a file beside a place, locked until it is closed."""
    while True:
        path = temp_sibling(target, "partial")
        # "xb" under the user's umask: neither follows a link nor leaves a private mode.
        stream = path.open("xb")
        try:
            if _claim(stream.fileno(), path):
                return stream
        except BaseException:
            stream.close()
            discard(path)
            raise
        stream.close()


@contextmanager
def claimed_directory(target: Path, name: Path | None = None) -> Iterator[Path]:
    """Create a directory beside a place, or with a name of its own, locked until the end."""
    while True:
        path = name or temp_sibling(target, "partial")
        if not steward.take_tree(target, path):
            path.mkdir()
        descriptor = -1
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            if _claim(descriptor, path):
                break
        except FileNotFoundError:
            pass
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            discard(path)
            raise
        if descriptor >= 0:
            os.close(descriptor)
    try:
        yield path
    finally:
        with suppress(OSError):  # nothing was written to it
            os.close(descriptor)


def remove_abandoned(target: Path) -> None:
    """Remove what processes of this machine that were killed began beside a place.

    Never what another machine or another user began, or a process that lives; what cannot
    be removed stays, and so does what stood at the place as long as nothing new does.
    """
    begins = _begun_by_us(target)
    try:
        with os.scandir(target.parent) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(begins)]
    except OSError:
        return  # creating something there says why it cannot be done
    left = [target.with_name(name) for name in names if _ENDS.fullmatch(name, len(begins))]
    for path in left:
        with suppress(OSError):
            if path.suffix == ".partial":
                remove_unclaimed(path)
            elif target.exists() and path.lstat().st_uid == os.geteuid():
                _remove(path)


def _begun_by_us(target: Path) -> str:
    """Return how all names begin that `beside` gives of a place on this machine."""
    whose = os.uname().nodename.encode()
    with suppress(OSError):
        whose += Path("/etc/machine-id").read_bytes()
    # Of the whole name as well: another may be the same as far as there is room for it.
    whose += b"/" + os.fsencode(target.name)
    return f".{_cut(target.name)}.{crc32(whose):08x}."


def _cut(name: str) -> str:
    """Return as much of a name as leaves room for more: it has at most 255 bytes."""
    encoded = os.fsencode(name)
    cut = encoded[:_ROOM]
    with suppress(UnicodeDecodeError):
        encoded.decode("utf-8")
        # What is no character by itself is the first part of the one that was cut.
        cut = cut.decode("utf-8", "ignore").encode("utf-8")
    return os.fsdecode(cut)


def _claim(descriptor: int, path: Path) -> bool:
    """Lock a new file or directory; return False if it was removed before."""
    # Where a file system has no locks, none is taken and nothing is removed.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return _is_at(descriptor, path)


def share_lock(descriptor: int) -> None:
    """Let others read a locked file: on SMB shares a lock keeps them out."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def remove_unclaimed(path: Path) -> None:
    """Remove a file or directory of this user's unless someone holds it."""
    if path.lstat().st_uid != os.geteuid():
        return
    mode = path.lstat().st_mode
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        return
    # NFS locks only what may be written.
    way = os.O_RDONLY if stat.S_ISDIR(mode) else os.O_RDWR
    descriptor = os.open(path, way | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, path):
            _remove(path)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def discard(path: Path) -> None:
    """Remove what is ours and not wanted, and try again what failed: it is no error if it stays."""
    for _ in range(2):
        with suppress(OSError):
            _remove(path)
            if not os.path.lexists(path):
                return


# Where a name leads: through links, but none that another user put where everybody may write.


_MOST_LINKS: Final = 40


def resolve_safely(path: Path) -> Path:
    """Return the place that a path leads to, which need not exist."""
    place, todo, links = Path("/"), list(reversed(Path(os.path.abspath(path)).parts[1:])), 0  # noqa: PTH100 - resolve() follows links
    while todo and links < _MOST_LINKS:
        part = todo.pop()
        if part == "..":
            place = place.parent
            continue
        here = place / part
        try:
            status = here.lstat()
            if stat.S_ISLNK(status.st_mode):
                _check(path, here, status)
                links += 1
                target = here.readlink()
                place = Path("/") if target.is_absolute() else place
                todo += reversed([p for p in target.parts if p != "/"])
                continue
            if not (todo or stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                _check(path, here, status)
        except OSError:  # nothing there, or a loop: opening it says so
            break
        place = here
    return Path(os.path.realpath(path))


def _check(path: Path, here: Path, status: os.stat_result) -> None:
    above = here.parent.stat()
    shared = above.st_mode & stat.S_ISVTX and above.st_mode & stat.S_IWOTH
    if shared and status.st_uid not in {os.geteuid(), above.st_uid}:
        raise UsageError(
            f"cannot write {path}: {here} was put there by another user",
            "name a place in a directory of your own",
        )


def size_of(recording: Path) -> int:
    """Return how many bytes the files of a recording have; 0 of what cannot be read."""
    return sum(
        _size(Path(directory) / name)
        for directory, _, names in os.walk(recording)
        for name in names
    )


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


# Arrays that are asked for again, and are too many for memory.


# What is left free on the disk, as others need some, too.
_LEFT_FREE: Final = 256 << 20


class _Spilled:
    """An array in the file, read when it is asked for: all of it, or a stretch."""

    def __init__(self, of: Overflow, at: int, array: Any) -> None:
        self._of, self._at, self._dtype, self._length = of, at, array.dtype, len(array)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, slice) or at.step not in {None, 1}:
            return self[:][at]
        import numpy as np  # noqa: PLC0415 - start-up time

        first, last, _ = at.indices(self._length)
        found = np.empty(max(last - first, 0), self._dtype)
        self._of.read(self._at + first * self._dtype.itemsize, found)
        return found


class Overflow:
    """A temporary file without a name, made where ``TMPDIR`` says; its end frees its room."""

    def __init__(self) -> None:
        place = os.environ.get("TMPDIR", "") or tempfile.gettempdir()
        self._file = tempfile.TemporaryFile(prefix="critpath-", dir=place, buffering=0)  # noqa: SIM115 - closed below
        finalize(self, self._file.close)
        self._end = 0
        self._lock = Lock()

    def put(self, array: Any) -> Any:
        """Return an array that is in the file; itself, where that is not worth a reading.

        Raises
        ------
        OSError
            If there is no room.
        """
        if array.nbytes <= os.sysconf("SC_PAGESIZE") // 4:
            return array
        number = self._file.fileno()
        with self._lock:
            at, self._end = self._end, self._end + array.nbytes
        free = os.fstatvfs(number)
        if free.f_bavail * free.f_frsize < _LEFT_FREE:
            raise OSError("no room")
        left = memoryview(array).cast("B")
        begin = at
        while left:
            wrote = os.pwrite(number, left, begin)
            left, begin = left[wrote:], begin + wrote
        return _Spilled(self, at, array)

    def read(self, begin: int, into: Any) -> None:
        """Read an array's bytes.

        Raises
        ------
        UsageError
            If they are not there any more.
        """
        left = memoryview(into).cast("B")
        while left:
            try:
                size = os.preadv(self._file.fileno(), [left], begin)
            except OSError as error:
                raise _lost(error.strerror or str(error)) from error
            if not size:
                raise _lost("it was cut")
            left, begin = left[size:], begin + size


def _lost(why: str) -> UsageError:
    return UsageError(
        f"the temporary file of paths that wait: {why}",
        "set TMPDIR to a directory on another disk",
    )


_current: Final = WeakValueDictionary[str, Overflow]()


def open_overflow() -> Overflow:
    """Return the file of this process, which is there as long as somebody has it.

    Raises
    ------
    OSError
        If none can be made.
    """
    found = _current.get("")
    if found is None:
        found = _current[""] = Overflow()
    return found
