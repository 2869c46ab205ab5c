"""Places on object stores: listed once, read by ranges, written whole or not at all.

A URL is opened as a directory of this machine in which every object has its name and its size:
who looks for recordings there finds them as anywhere.  Objects that are read whole by their
nature (a manifest, a text) are fetched into it; streams of traces and Parquet files are holes in
it, and `open_file` reads of them what is asked for, which fills the hole as far as there is room:
what is read twice is asked for once.  What the libraries know of credentials stays
with them: none is taken from a URL, and nothing that a store says is repeated in a message.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Lock, RLock, Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from critpath.errors import STAND_FOR, CritpathError, UnreadableError, UsageError, name_places
from critpath.extras import require
from critpath.units import plural, safe_text, shorten

if TYPE_CHECKING:
    from concurrent.futures import Future

    from critpath.schema.notes import Note

Answer = TypeVar("Answer")

# Schemes, and the library that reads each, of the extra ``fleet``.
SCHEMES: Final[Mapping[str, str]] = {"s3": "s3fs", "gs": "gcsfs", "memory": "fsspec"}
_URL: Final = re.compile(rf"({'|'.join(SCHEMES)}):/+(.*)", re.DOTALL)
_ROOT: Final = "critpath-stores-"

_TRIES: Final = 5  # technical
_PAUSE: Final = 0.2  # technical: s before it is tried again, then twice that, and so on
_MOST: Final = 200_000  # technical: objects below a URL
_LONGEST: Final = 255  # bytes of a name in a directory
_AT_ONCE: Final = 16 << 20  # technical: bytes that are asked for together
_TOGETHER: Final = 64  # technical: objects that are asked for together
_BLOCK: Final = 1 << 20  # technical: bytes of a Parquet file that are asked for together
_RECENT: Final = 2  # technical: blocks of each file that are in memory
# technical: bytes of all streams of a recording that are in memory, `_RECENT` blocks of each and
# the next one.
_STREAMS: Final = 32 << 20
_SMALLEST, _LARGEST = 128 << 10, 4 << 20  # technical: blocks of a stream
_ROOM: Final = 256 << 20  # technical: bytes that are left free where objects are fetched to
_SHARE: Final = 4  # technical: of what was free there, the share that ranges may take

# What tells which recordings there are, and is fetched at once; what else a recording has beside
# its streams is fetched when it is opened.
_INDEX: Final = frozenset({"critpath.json", "hosts.json", "metadata", "_critpath.json"})
_MANIFEST: Final = "critpath.json"
_METADATA: Final = "metadata"
_LIST: Final = "_critpath.json"  # of a dataset: without it there is none
_COLUMNS: Final = (".parquet", ".pq")
_MAGIC: Final = b"PAR1"
_AGAIN: Final = "try again later, or copy it to this machine and name the copy"


class ShortAnswerError(OSError):
    """A store gave another number of bytes than it was asked for."""


@dataclass
class Ledger:
    """What was asked of stores by this process.

    Attributes
    ----------
    requests, moved, written : int
        Answers, and bytes of objects in them, either way.
    listed : int
        Bytes that the objects have which were opened.
    again : mapping
        How often something was tried again, by URL and by what was wrong.
    """

    requests: int = 0
    moved: int = 0
    written: int = 0
    listed: int = 0
    again: dict[tuple[str, str], int] = field(default_factory=dict)
    _told: dict[tuple[str, str], int] = field(default_factory=dict)
    _lock: Any = field(default_factory=Lock, repr=False)

    def count(self, *, requests: int = 0, moved: int = 0) -> None:
        """Count what was asked for and came; threads ask ahead."""
        with self._lock:
            self.requests += requests
            self.moved += moved

    def clear(self) -> None:
        """Begin anew."""
        self.requests = self.moved = self.written = self.listed = 0
        self.again, self._told = {}, {}

    def take_notes(self) -> tuple[Note, ...]:
        """Return a note for each trouble since this was asked last."""
        if self.again == self._told:
            return ()
        from critpath.schema.notes import StoreTriedAgain  # noqa: PLC0415 - start-up time

        new = {key: count - self._told.get(key, 0) for key, count in self.again.items()}
        self._told = dict(self.again)
        return tuple(StoreTriedAgain(*key, times) for key, times in new.items() if times)


LEDGER: Final = Ledger()


# What may be named.


def find_url(given: str | Path) -> str | None:
    """Return the URL of a store that a text or a path is; None of a place of this machine.

    Raises UsageError of one with credentials, which are not repeated.
    """
    text = str(given)
    if isinstance(given, str) and "://" not in text:
        return None
    found = _URL.fullmatch(text)
    if found is None:
        return None
    place = found[2].strip("/")
    if "@" in place.partition("/")[0]:
        raise UsageError(
            f"a URL {found[1]}:// with credentials, which would be shown and saved",
            "leave them out: they are found as the store's own tools find them (AWS_PROFILE, "
            "GOOGLE_APPLICATION_CREDENTIALS, ...)",
        )
    if not place or any(part in {"", ".", ".."} for part in place.split("/")):
        raise UsageError(
            f"{safe_text(text)} names no object and no bucket", "give SCHEME://BUCKET/NAME"
        )
    return f"{found[1]}://{place}"


def open_place(given: str | Path) -> Path:
    """Return where something is on this machine: what a URL names is listed, and has a place."""
    url = find_url(given)
    return Path(given) if url is None else _get_mirror().open(url)


def reopen(place: Path, root: str) -> Path:
    """Return where something is here that another process opened below its own root."""
    if not root or not place.is_relative_to(root):
        return place
    return open_place(place.relative_to(root))


def own_root() -> str:
    """Return below which directory this process has opened places; "" if it has none."""
    return "" if _mirror is None else str(_mirror.root)


def is_stored(path: Path) -> bool:
    """Tell whether a path is a place that was opened here."""
    return _mirror is not None and path.is_relative_to(_mirror.root)


def show_place(path: Path) -> str:
    """Return what a user calls a path."""
    return name_places(str(path))


# The directory that stands for what was opened.


@dataclass
class _Stored:
    """An object: its size when it was listed, and what of it is here: the whole, or some blocks."""

    url: str
    path: str  # as its file system has it
    size: int
    stamp: str
    here: bool = False
    block: int = 0  # bytes of one, once it is read by them
    kept: set[int] = field(default_factory=set)
    coming: tuple[int, Future[bytes]] | None = None  # asked for ahead, for whoever reads it


class _Mirror:
    """Places of this process, each a directory with a file for each object."""

    def __init__(self) -> None:
        _remove_left()
        # Its mode is 0700: recordings show what ran on a machine.
        self.root, self.held = _make_root()
        self.process = os.getpid()
        self.room = shutil.disk_usage(self.root).free // _SHARE
        self.objects: dict[str, _Stored] = {}
        self.opened: set[str] = set()
        self.lock = RLock()
        for scheme in SCHEMES:
            STAND_FOR[f"{self.root}/{scheme}:/"] = f"{scheme}://"

    def place_of(self, url: str) -> Path:
        scheme, _, rest = url.partition("://")
        return self.root / f"{scheme}:" / rest

    def url_of(self, place: Path) -> str:
        scheme, _, rest = str(place.relative_to(self.root)).partition(":/")
        return f"{scheme}://{rest}"

    def open(self, url: str) -> Path:
        """List what a URL names, once; a place for what is not there has only its parent."""
        with self.lock:
            place = self.place_of(url)
            if any(url == one or url.startswith(f"{one}/") for one in self.opened):
                return place
            self.list_objects(url)
            self.opened.add(url)
            return place

    def list_objects(self, url: str) -> None:
        """List objects, make their places, and fetch what tells what they are.

        What was listed before and is as it was stays as it is here.
        """
        found = _list(url)
        place = self.place_of(url)
        place.parent.mkdir(parents=True, exist_ok=True)
        for name, stored in found.items():
            file = place / name if name else place
            known = self.objects.get(str(file))
            if known is not None and (known.size, known.stamp) == (stored.size, stored.stamp):
                continue
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("wb") as stream:
                    stream.truncate(stored.size)
            except OSError as error:
                raise UnreadableError(
                    f"{stored.url}: no file here can have this name or size: {error.strerror}",
                    "name what is below it, or copy it to this machine under other names",
                ) from error
            self.objects[str(file)] = stored
            LEDGER.listed += stored.size
        gone = [
            file
            for file in self.objects
            if file.startswith(f"{place}/") and file.removeprefix(f"{place}/") not in found
        ]
        self.forget(gone)
        self.fetch(self._find_needed(place, found))

    def _find_needed(self, place: Path, found: Mapping[str, _Stored]) -> list[Path]:
        """Return what is fetched at once: all but streams, columns, and what recordings keep."""
        above = {name.rpartition("/")[0] for name in found if name.endswith(_MANIFEST)}
        traces = {name.rpartition("/")[0] for name in found if name.endswith(_METADATA)}
        needed = []
        for name, stored in found.items():
            directory, _, last = name.rpartition("/")
            if last in _INDEX:
                needed.append(place / name)
                continue
            if not name:
                if not _is_columns(stored):
                    needed.append(place)
                continue
            parents = [directory, *(str(one) for one in Path(directory).parents)]
            kept = any(("" if one == "." else one) in above for one in parents)
            if not kept and directory not in traces and not last.endswith(_COLUMNS):
                needed.append(place / name)
        return needed

    def fetch(self, files: Iterable[Path]) -> None:
        """Fetch objects whole, those that are small together."""
        with self.lock:
            wanted = [self.objects[str(file)] for file in files]
            pairs = [(file, of) for file, of in zip(files, wanted, strict=True) if not of.here]
            total = sum(of.size for _, of in pairs)
            free = shutil.disk_usage(self.root).free
            if total + _ROOM > free:
                raise UnreadableError(
                    f"{pairs[0][1].url}: {total:,} bytes are read whole, and there is room for "
                    f"{max(free - _ROOM, 0):,} in {self.root.parent}",
                    "set TMPDIR to a directory with more room",
                )
            for batch in _batches(pairs):
                for (file, of), content in zip(batch, _get_several(batch), strict=True):
                    _fill(file, of, content)
                    of.here = True

    def complete(self, directory: Path) -> None:
        """Fetch what a recording has beside its streams."""
        with self.lock:
            inside = [Path(file) for file in self.objects if file.startswith(f"{directory}/")]
            traces = {file.parent for file in inside if file.name == _METADATA}
            self.fetch(
                [
                    file
                    for file in inside
                    if file.parent not in traces and not file.name.endswith(_COLUMNS)
                ]
            )

    def take_room(self, size: int) -> bool:
        """Tell whether so many bytes more may be kept here, and count them."""
        with self.lock:
            if size > self.room or shutil.disk_usage(self.root).free < size + _ROOM:
                return False
            self.room -= size
            return True

    def release(self, place: Path) -> None:
        """Give back what ranges of the objects below a place take here."""
        with self.lock:
            for file, of in self.objects.items():
                if of.kept and file.startswith(f"{place}/"):
                    self.room += sum(min(of.block, of.size - n * of.block) for n in of.kept)
                    of.kept.clear()
                    os.truncate(file, 0)
                    os.truncate(file, of.size)

    def forget(self, files: Iterable[str]) -> None:
        """Forget objects, and the holes that stood for them."""
        for file in files:
            if not self.objects[file].here:
                Path(file).unlink(missing_ok=True)
            del self.objects[file]

    def close(self) -> None:
        """Remove it; not in a child that leaves as its parent would."""
        if os.getpid() == self.process and self.held >= 0:
            shutil.rmtree(self.root, ignore_errors=True)
            os.close(self.held)
            self.held = -1


def _make_root() -> tuple[Path, int]:
    """Make the directory; it is locked as long as its process lives, which may be killed."""
    while True:
        root = Path(os.path.realpath(tempfile.mkdtemp(prefix=_ROOT)))
        held = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(held, fcntl.LOCK_EX)
        if root.exists():  # not taken for an abandoned one before it was locked
            return root, held
        os.close(held)


def _remove_left() -> None:
    """Remove the directories of this user's processes that were killed."""
    with os.scandir(tempfile.gettempdir()) as entries:
        left = [Path(one.path) for one in entries if one.name.startswith(_ROOT)]
    for root in left:
        with suppress(OSError):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            held = os.open(root, flags)
            try:
                if os.fstat(held).st_uid == os.geteuid():
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(root)
            finally:
                os.close(held)


_mirror: _Mirror | None = None


def _get_mirror() -> _Mirror:
    global _mirror  # noqa: PLW0603 - one of a process
    if _mirror is None or _mirror.process != os.getpid():
        import atexit  # noqa: PLC0415 - start-up time

        _mirror = _Mirror()
        atexit.register(_mirror.close)
    return _mirror


def close() -> None:
    """Remove what stands here for what was opened."""
    global _mirror  # noqa: PLW0603 - as above
    if _mirror is not None:
        _mirror.close()
        for here in [one for one in STAND_FOR if one.startswith(f"{_mirror.root}/")]:
            del STAND_FOR[here]
        _mirror = None
        LEDGER.clear()


def complete(directory: Path) -> Path:
    """Return a directory with all that a recording in it has beside its streams."""
    if is_stored(directory):
        _get_mirror().complete(directory)
    return directory


def fetch(files: Sequence[Path]) -> None:
    """Fetch objects whole, for what reads files of this machine only."""
    if _mirror is not None:
        _mirror.fetch([file for file in files if str(file) in _mirror.objects])


# Reading ranges.


class RangeFile(io.RawIOBase):
    """An object, read by ranges: blocks, which are kept in its place here while there is room.

    One that is read in order has the next block asked for while a block is worked on.
    """

    def __init__(self, stored: _Stored, place: Path, block: int, *, in_order: bool = False) -> None:
        super().__init__()
        self._stored, self._place, self._in_order = stored, place, in_order
        stored.block = self._block = stored.block or block
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        self._at = 0
        self.size = stored.size

    def pread(self, size: int, begin: int) -> bytes:
        """Return bytes from a place on, as many as there are."""
        end = min(begin + size, self.size)
        if begin >= end:
            return b""
        first, last = begin // self._block, (end - 1) // self._block
        found = {n: self._recent.get(n) or self._read_kept(n) for n in range(first, last + 1)}
        missing = [number for number, block in found.items() if not block]
        if missing:
            content = self._get(missing[0], missing[-1] + 1)
            for place in range(0, len(content), self._block):
                found[missing[0] + place // self._block] = content[place : place + self._block]
        for number in [*found][-_RECENT:]:
            self._recent[number] = found[number]
            self._recent.move_to_end(number)
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        low = first * self._block
        return b"".join(found.values())[begin - low : end - low]

    def _get(self, first: int, end: int) -> bytes:
        """Ask for blocks, and for the one behind them."""
        coming, self._stored.coming = self._stored.coming, None
        if coming is not None and coming[0] == first == end - 1:
            content = coming[1].result()
        else:
            content = _get_range(self._stored, first * self._block, self._end_of(end - 1))
        self._keep(first, end, content)
        if self._in_order and end * self._block < self.size and end not in self._stored.kept:
            self._stored.coming = (
                end,
                _begin(lambda: _get_range(self._stored, end * self._block, self._end_of(end))),
            )
        return content

    def _end_of(self, number: int) -> int:
        return min((number + 1) * self._block, self.size)

    def _read_kept(self, number: int) -> bytes:
        if number not in self._stored.kept:
            return b""
        with self._place.open("rb") as file:
            begin = number * self._block
            return os.pread(file.fileno(), self._end_of(number) - begin, begin)

    def _keep(self, first: int, end: int, content: bytes) -> None:
        """Write blocks to where they are in the file here, which is a hole so far."""
        if _mirror is None or not _mirror.take_room(len(content)):
            return
        with suppress(OSError), self._place.open("r+b") as file:
            if os.pwrite(file.fileno(), content, first * self._block) == len(content):
                self._stored.kept.update(range(first, end))

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return where it is read next."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go elsewhere."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer."""
        view = memoryview(buffer).cast("B")
        found = self.pread(len(view), self._at)
        view[: len(found)] = found
        self._at += len(found)
        return len(found)

    def identity(self) -> tuple[int, str]:
        """Return what tells this version of the object from another, asked anew."""
        info = _try(self._stored.url, lambda fs: fs.info(self._stored.path))
        return _read_size(info), _read_stamp(info)


def _find_hole(path: Path) -> _Stored | None:
    """Return the object of a file that is only a hole here; None of any other file."""
    stored = None if _mirror is None else _mirror.objects.get(str(path))
    return None if stored is None or stored.here else stored


def is_hole(path: Path) -> bool:
    """Tell whether a file is one that `open_file` reads by ranges."""
    return _find_hole(path) is not None


def open_file(path: Path) -> io.BufferedReader:
    """Open a file for reading, wherever it is."""
    stored = _find_hole(path)
    if stored is None:
        return path.open("rb")
    return cast("io.BufferedReader", RangeFile(stored, path, _BLOCK))


def open_stream(path: Path) -> Callable[[int, int], bytes] | None:
    """Return what reads a stream of a trace (size, begin); None where the file is here."""
    stored = _find_hole(path)
    if stored is None or _mirror is None:
        return None
    beside = sum(str(file) in _mirror.objects for file in path.parent.iterdir())
    block = max(_SMALLEST, min(_LARGEST, _STREAMS // ((_RECENT + 1) * max(beside, 1))))
    return RangeFile(stored, path, block, in_order=True).pread


def release(directory: Path) -> None:
    """Give back what was kept here of a recording that is read no more."""
    if is_stored(directory):
        _get_mirror().release(directory)


def require_unchanged(directory: Path) -> None:
    """Refuse a recording of which a stream was replaced since it was listed."""
    if not is_stored(directory):
        return
    mirror = _get_mirror()
    before = {
        of.url: (of.size, of.stamp)
        for file, of in mirror.objects.items()
        if file.startswith(f"{directory}/")
    }
    now = {of.url: (of.size, of.stamp) for of in _list(mirror.url_of(directory)).values()}
    for url, was in before.items():
        if now.get(url) != was:
            raise UnreadableError(f"{url}: changed while it was read", "read it again")


# Writing.


def publish(file: Path, target: Path) -> None:
    """Put a file that is whole where the object of a place is; it appears there as a whole."""
    if not is_stored(target):
        return
    mirror = _get_mirror()
    url = mirror.url_of(target)
    size = file.stat().st_size

    def put(fs: Any) -> _Stored:
        path = fs._strip_protocol(url)  # noqa: SLF001 - it has no other name
        # A large object is sent in parts, and there is none until they are put together.
        fs.put_file(str(file), path)
        info = fs.info(path)
        if _read_size(info) != size:
            raise ShortAnswerError("another size")
        return _Stored(url, path, size, _read_stamp(info), here=True)

    stored = _try(url, put, writing=True)
    LEDGER.written += size
    with mirror.lock:
        mirror.objects[str(target)] = stored


def refresh(directory: Path) -> None:
    """List a place anew: others may have written there."""
    if is_stored(directory):
        mirror = _get_mirror()
        with mirror.lock:
            mirror.list_objects(mirror.url_of(directory))


def replace_directory(made: Path, target: Path) -> None:
    """Put what is below one place where another is, in place of what is there.

    What makes a directory a dataset goes first, and comes last: at no moment there is a list of
    files that are not there, or of other ones.
    """
    mirror = _get_mirror()
    for directory, _, names in os.walk(made):
        for name in names:
            file = Path(directory) / name
            if str(file) not in mirror.objects:
                publish(file, file)
    source, url = mirror.url_of(made), mirror.url_of(target)
    new = _list(source)
    with given_back(target) as old:
        if _LIST in old:
            _remove(old[_LIST])
        for name in sorted(new, key=_is_list):
            _copy(new[name], f"{url}/{name}")
        for name in old.keys() - new.keys() - {_LIST}:
            _remove(old[name])
    with mirror.lock:
        mirror.forget([file for file in mirror.objects if file.startswith(f"{target}/")])
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)
        # What was written here is read here; what others wrote, by ranges, of which some are here.
        for name, stored in _list(url).items():
            was = mirror.objects.get(str(made / name))
            if was is not None and was.size == stored.size:
                stored.here, stored.block, stored.kept = was.here, was.block, was.kept
            mirror.objects[str(target / name)] = stored
        for old_name in [one for one in mirror.objects if one.startswith(f"{made}/")]:
            del mirror.objects[old_name]
        mirror.opened.add(url)
    for stored in new.values():
        with suppress(CritpathError):
            _remove(stored)


@contextmanager
def given_back(place: Path) -> Iterator[dict[str, _Stored]]:
    """Give what is at a place of a store back what it was should what follows fail.

    Meanwhile the store keeps a copy beside it.

    Yields
    ------
    dict
        What was there.
    """
    mirror = _get_mirror()
    url = mirror.url_of(place)
    above, _, name = url.rpartition("/")
    aside = f"{above}/.{name}.{os.urandom(6).hex()}.old"
    old, kept = _list(url), dict[str, str]()
    try:
        for one, stored in old.items():
            kept[one] = f"{aside}/{one}" if one else aside
            _copy(stored, kept[one])
        yield old
    except BaseException:
        try:
            _restore(url, old, kept)
        except CritpathError as error:
            kept = {}
            raise UsageError(
                f"{url} is neither what it was nor what it was to be: {error.what}",
                f"what it was is kept at {aside}: copy it back" if old else "remove it",
            ) from None
        with suppress(CritpathError), mirror.lock:
            mirror.list_objects(url)
        raise
    finally:
        with suppress(CritpathError):
            for stored in _list(aside).values() if kept else ():
                _remove(stored)


def _restore(url: str, old: Mapping[str, _Stored], kept: Mapping[str, str]) -> None:
    """Copy back what is another one or gone, and remove what is new; a list last."""
    now = _list(url)
    for name in sorted(now.keys() - old.keys(), key=_is_list, reverse=True):
        _remove(now[name])
    for name in sorted(old, key=_is_list):
        was = old[name]
        if name not in now or (now[name].size, now[name].stamp) != (was.size, was.stamp):
            [copy] = _list(kept[name]).values()
            _copy(copy, was.url)


def _is_list(name: str) -> bool:
    return name == _LIST


def _copy(stored: _Stored, url: str) -> None:
    """Have a store copy an object."""

    def copy(fs: Any) -> None:
        fs.copy(stored.path, fs._strip_protocol(url))  # noqa: SLF001 - as above

    _try(url, copy, writing=True)


def remove_directory(made: Path) -> None:
    """Remove what was put below a place."""
    with suppress(CritpathError, OSError):
        for stored in _list(_get_mirror().url_of(made)).values():
            _remove(stored)
    shutil.rmtree(made, ignore_errors=True)


def remove_file(file: Path) -> None:
    """Remove a file, and the object that it stands for."""
    stored = None if _mirror is None else _mirror.objects.pop(str(file), None)
    if stored is not None:
        _remove(stored)
    file.unlink()


def _remove(stored: _Stored) -> None:
    def remove(fs: Any) -> None:
        with suppress(FileNotFoundError):
            fs.rm_file(stored.path)

    _try(stored.url, remove, writing=True)


# Asking a store.


def _list(url: str) -> dict[str, _Stored]:
    """Return the objects that a URL names, by their names below it; "" is itself."""

    def find(fs: Any) -> list[tuple[str, Mapping[str, Any]]]:
        path = fs._strip_protocol(url)  # noqa: SLF001 - as above
        fs.invalidate_cache()
        try:
            info = fs.find(path, detail=True)
        except FileNotFoundError:
            return []
        if len(info) > _MOST:
            raise UnreadableError(
                f"{url}: more than {_MOST:,} objects", "name what is below it, one by one"
            )
        top = path.strip("/")
        return [(name.strip("/").removeprefix(top).strip("/"), of) for name, of in info.items()]

    found: dict[str, _Stored] = {}
    for name, info in _try(url, find):
        if str(info.get("name", "")).endswith("/"):
            continue  # what consoles make of a directory
        parts = name.split("/") if name else []
        if any(
            part in {"", ".", ".."} or "\0" in part or len(os.fsencode(part)) > _LONGEST
            for part in parts
        ):
            raise UnreadableError(
                f"{url}: an object is called {shorten(safe_text(name), 80)!r}, as no file here can",
                "name what is below it, or copy it to this machine under other names",
            )
        path = str(info.get("name", ""))
        found[name] = _Stored(
            f"{url}/{name}" if name else url, path, _read_size(info), _read_stamp(info)
        )
    return found


def _read_size(info: Mapping[str, Any]) -> int:
    size = info.get("size")
    return size if type(size) is int and 0 <= size < 1 << 62 else 0


def _read_stamp(info: Mapping[str, Any]) -> str:
    names = ("ETag", "etag", "generation", "md5Hash", "created", "LastModified", "updated")
    found = next((info[name] for name in names if info.get(name)), "")
    # That in memory gives the same time in two ways.
    return str(found.timestamp() if isinstance(found, datetime) else found)


def _is_columns(stored: _Stored) -> bool:
    """Tell whether an object is a Parquet file."""
    return stored.size > 2 * len(_MAGIC) and _get_range(stored, 0, len(_MAGIC)) == _MAGIC


def _get_range(stored: _Stored, begin: int, end: int) -> bytes:
    """Return a range of an object, all of it."""

    def get(fs: Any) -> bytes:
        content = bytes(fs.cat_file(stored.path, start=begin, end=end))
        if len(content) != end - begin:
            raise ShortAnswerError(f"{len(content):,} bytes of {end - begin:,}")
        return content

    if begin >= end:
        return b""
    content = _try(stored.url, get)
    LEDGER.count(moved=len(content))
    return content


def _begin(work: Callable[[], Answer]) -> Future[Answer]:
    """Do something in a thread; the process may end before it has."""
    from concurrent.futures import Future  # noqa: PLC0415 - start-up time

    future: Future[Answer] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    Thread(target=do, daemon=True).start()
    return future


def _batches(
    pairs: Sequence[tuple[Path, _Stored]],
) -> Iterator[list[tuple[Path, _Stored]]]:
    """Yield objects that are asked for together; a large one alone."""
    batch: list[tuple[Path, _Stored]] = []
    for pair in pairs:
        if batch and (
            len(batch) == _TOGETHER or sum(of.size for _, of in [*batch, pair]) > _AT_ONCE
        ):
            yield batch
            batch = []
        batch.append(pair)
    if batch:
        yield batch


def _get_several(batch: Sequence[tuple[Path, _Stored]]) -> list[bytes | None]:
    """Return whole objects, asked for together; None of what has to be asked for by itself."""
    if len(batch) == 1:
        return [None]
    files = [of for _, of in batch if of.size]
    fs = _get_store(files[0].url) if files else None
    answers: list[Any] = []
    if fs is not None:
        paths, sizes = [of.path for of in files], [of.size for of in files]
        with suppress(Exception):  # each is asked for by itself then, and says what is wrong
            answers = fs.cat_ranges(paths, [0] * len(paths), sizes, on_error="return")
            LEDGER.count(requests=len(paths))
    given = {
        of.path: answer
        for of, answer in zip(files, answers, strict=False)
        if isinstance(answer, bytes) and len(answer) == of.size
    }
    LEDGER.count(moved=sum(map(len, given.values())))
    for of, answer in zip(files, answers, strict=False):
        if of.path not in given:
            short = ShortAnswerError()
            _count_again(of.url, _explain(answer if isinstance(answer, Exception) else short)[0])
    return [given.get(of.path) if of.size else b"" for _, of in batch]


def _fill(file: Path, stored: _Stored, content: bytes | None) -> None:
    """Write an object whole into its place; without its content, by ranges."""
    with file.open("wb") as stream:
        if content is not None:
            stream.write(content)
            return
        for begin in range(0, stored.size, _AT_ONCE):
            stream.write(_get_range(stored, begin, min(begin + _AT_ONCE, stored.size)))


def _get_store(url: str) -> Any:
    """Return the file system of a URL, which tries nothing again by itself."""
    scheme = url.partition("://")[0]
    require(f"{scheme}://", "fleet", SCHEMES[scheme])
    import fsspec  # noqa: PLC0415 - slow to import

    options: dict[str, Any] = {}
    if scheme == "s3":
        options["config_kwargs"] = {
            "retries": {"total_max_attempts": 1},
            "connect_timeout": 10,
            "read_timeout": 60,
        }
    fs = fsspec.filesystem(scheme, **options)
    if scheme == "s3":
        fs.retries = 1
    return fs


def _try(url: str, ask: Callable[[Any], Answer], *, writing: bool = False) -> Answer:
    """Ask a store, again if it may have been a passing trouble; count that, and say it at last.

    Raises
    ------
    UnreadableError, UsageError
        UsageError where it was to be written.
    """
    kind: type[CritpathError] = UsageError if writing else UnreadableError
    fs = _get_store(url)
    for attempt in range(_TRIES):
        LEDGER.count(requests=1)
        try:
            return ask(fs)
        except CritpathError:
            raise
        except FileNotFoundError:
            raise kind(f"{url}: no such object or bucket", "check the URL") from None
        except Exception as error:  # noqa: BLE001 - libraries of stores raise what they like
            why, passing = _explain(error)
            if not passing:
                raise kind(
                    f"{url}: {why}",
                    "give credentials that may do this, as the store's own tools find them "
                    "(AWS_PROFILE, GOOGLE_APPLICATION_CREDENTIALS, ...)",
                ) from None
            _count_again(url, why, tried=attempt < _TRIES - 1)
        if attempt < _TRIES - 1:
            _wait(_PAUSE * 2**attempt)
    raise kind(f"{url}: the store gave {why}, {plural(_TRIES, 'time')}", _AGAIN)


_wait: Final = time.sleep  # which tests replace


def _count_again(url: str, why: str, *, tried: bool = True) -> None:
    if tried:
        LEDGER.again[url, why] = LEDGER.again.get((url, why), 0) + 1


# What libraries call missing or refused credentials; the messages may repeat them.
_REFUSED: Final = re.compile(r"Credential|Forbidden|Unauthorized|AccessDenied|RefreshError")


def _explain(error: BaseException) -> tuple[str, bool]:
    """Return what went wrong in words of ours, and whether it may pass."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and len(chain) < 8:
        chain.append(at)
        at = at.__cause__ or at.__context__
    status = next(filter(None, map(_read_status, chain)), 0)
    if isinstance(error, ShortAnswerError):
        return "fewer bytes than it has", True
    if isinstance(error, PermissionError) or status in {401, 403}:
        return "the store refuses access", False
    if any(_REFUSED.search(type(one).__name__) for one in chain):
        return "no credentials are found, or they are refused", False
    if status:
        return f"HTTP {status}", True
    return f"no whole answer ({type(error).__name__})", True


def _read_status(error: BaseException) -> int:
    """Return the status of HTTP that an error tells of; 0 unknown."""
    response = getattr(error, "response", None)
    about = response.get("ResponseMetadata") if isinstance(response, dict) else None
    found = about.get("HTTPStatusCode") if isinstance(about, dict) else None
    for status in (found, getattr(error, "status", None), getattr(error, "code", None)):
        with suppress(TypeError, ValueError):
            # aiohttp calls whatever it cannot read 400.
            if status is not None and int(status) in {401, 403, 408, 429, *range(500, 600)}:
                return int(status)
    return 0
