"""What is kept beside the pages while recording: enough to make a trace of them later.

``raw/`` of a recording: ``raw.json`` (what was recorded), ``header_page``,
``header_event`` and ``formats/GROUP.EVENT`` (the kernel's description of what is in a
page), ``cpuN`` (pages), ``statedump.json`` and ``statedump-end.json`` (threads),
``cgroups.json`` (control groups of processes at the start; ``-end``: of those since),
``sockets.json`` and ``descriptors.json`` (those open then; and ``-end``),
``stats.json`` (the kernel's counts of each buffer), ``marks/`` (pages and counts of other users'
marks, from buffers of their own), ``labels`` (of received messages, where they were asked for; no
bytes of them); while recording ``room`` (nothing: see
`reserve_space`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from critpath.errors import CritpathError, UnreadableError
from critpath.model import Gap
from critpath.untrusted import find_trouble
from critpath_record.ctf.statedump import Cgroup, Descriptor, Socket, ThreadState, make_row
from critpath_record.dirfd import write_whole
from critpath_record.ftrace.tracefs import Instance

RAW: Final = "raw"
LAYERS: Final = "layers"  # directory below raw/, with one of each layer's pages
MARKS: Final = "marks"
PREPARED: Final = "dump.json"  # of a flight's dump: what makes a recording of the pages
LABELS: Final = "labels"  # a file: rows of `received.ROW`
RAW_FORMAT: Final = "critpath/raw/1"
# What was raw/ while it is being deleted: never to be converted.
DISCARDED: Final = ".raw-converted"
AT_END: Final = "-end"  # of files about what was there when the recording ended
_DOCUMENT: Final = "raw.json"
_STATS: Final = "stats.json"
_ROOM: Final = "room"
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ROOM_BYTES: Final = 1 << 19
_CLOCK_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")
_PAGE: Final = re.compile(r"field: char data;\s*offset:(\d+);\s*size:(\d+);")

# trace_marker's records, which are in every buffer without being asked for.
MARKER_EVENT: Final = "ftrace/print"
BEAT_EVENT: Final = "ftrace/raw_data"


def page_bytes(header_page: str) -> int:
    """Return the size of a page from the kernel's description; raises CritpathError if unknown."""
    found = _PAGE.search(header_page)
    if found is None:
        raise CritpathError(
            "the kernel describes its tracing pages in an unknown form",
            "take the other recorder (--recorder lttng), and report this",
        )
    return int(found[1]) + int(found[2])


def reserve_space(raw: Path) -> None:
    """Reserve a little disk space for what is written at the end."""
    with contextlib.suppress(OSError):
        _allocate(raw, _ROOM_BYTES)


def has_space(raw: Path, size: int) -> bool:
    """Return whether `size` bytes can be written; call `free_reserved_space` first."""
    try:
        _allocate(raw, size)
    except OSError as error:
        return error.errno not in FULL
    finally:
        free_reserved_space(raw)
    return True


def _allocate(raw: Path, size: int) -> None:
    descriptor = os.open(raw / _ROOM, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def free_reserved_space(raw: Path) -> None:
    """Free what `reserve_space` reserved."""
    with contextlib.suppress(OSError):
        (raw / _ROOM).unlink()


def write_json(path: Path, document: Any) -> None:
    """Write a document atomically."""
    write_whole(path, json.dumps(document, ensure_ascii=False, separators=(",", ":")))


def write_description(raw: Path, document: Mapping[str, object]) -> None:
    """Write ``raw.json``."""
    write_json(raw / _DOCUMENT, {"format": RAW_FORMAT, **document})


def is_described(raw: Path) -> bool:
    """Return whether recording had begun: ``raw.json`` is the last that is written then."""
    return os.path.lexists(raw / _DOCUMENT)


def read_description(raw: Path) -> dict[str, Any]:
    """Read ``raw.json``; raises UnreadableError if it is missing or damaged."""
    place = raw / _DOCUMENT
    try:
        document = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableError(
            f"{place}: cannot be read: {error}", "record again: nothing can be made of this"
        ) from None
    if not isinstance(document, dict) or document.get("format") != RAW_FORMAT:
        raise UnreadableError(
            f"{place}: is not {RAW_FORMAT}", "use the version of critpath that recorded it"
        )
    return document


def write_stats(raw: Path, stats: Mapping[int, Mapping[str, int]]) -> None:
    """Write ``stats.json``."""
    write_json(raw / _STATS, {str(cpu): counts for cpu, counts in sorted(stats.items())})


def describe_raw(
    raw: Path,
    description: Mapping[str, object],
    *,
    page: tuple[str, str],
    threads: Iterable[ThreadState],
    started: Iterable[ThreadState],
    stats: Mapping[int, Mapping[str, int]],
) -> None:
    """Write what stands beside pages that another tool recorded; `page`: header_page, header_event.

    `threads` were there at the begin, `started` began since.

    Raises CritpathError if pages are described in an unknown form.
    """
    for name, text in zip(("header_page", "header_event"), page, strict=True):
        (raw / name).write_text(text, encoding="utf-8")
    write_json(raw / "statedump.json", list(threads))
    write_json(raw / f"statedump{AT_END}.json", list(started))
    write_stats(raw, stats)
    write_description(raw, {**description, "page_bytes": page_bytes(page[0])})


def copy_descriptions(instance: Instance, raw: Path, events: Iterable[str]) -> None:
    """Copy the kernel's descriptions of a page and of the events in it."""
    for name in ("header_page", "header_event"):
        (raw / name).write_bytes(instance.read_bytes(f"events/{name}"))
    formats = raw / "formats"
    formats.mkdir(mode=0o700)
    for event in (*events, MARKER_EVENT, BEAT_EVENT):
        group, _, name = event.partition("/")
        try:
            text = instance.read_bytes(f"events/{event}/format")
        except CritpathError:
            if event == BEAT_EVENT:  # a kernel without it takes no beats
                continue
            raise
        (formats / f"{group}.{name}").write_bytes(text)


def discard_raw(directory: Path, *, keep: bool = False) -> None:
    """Delete a recording's raw data such that it can be interrupted at any moment."""
    gone = directory / DISCARDED
    raw = directory / RAW
    if not keep and raw.is_dir() and not raw.is_symlink():
        shutil.rmtree(gone, ignore_errors=True)
        raw.rename(gone)
    for _ in range(2):  # what one call refused may go with the next
        with contextlib.suppress(OSError):  # of a directory that cannot be closed
            shutil.rmtree(gone, ignore_errors=True)


# Reading it back, to make a trace of it


_LARGEST_PAGE: Final = 1 << 27
_MOST: Final = (1 << 63) - 1
_Row = TypeVar("_Row", ThreadState, Cgroup, Socket, Descriptor)
_Named = TypeVar("_Named", Socket, Descriptor)


@dataclass(frozen=True)
class RawRecording:
    """A raw directory without its pages."""

    directory: Path
    session: str
    epoch: int  # offset from the trace's clock to the Unix epoch (ns)
    page_bytes: int
    cpus: tuple[int, ...]
    begin: int  # ns
    end: int  # ns; 0 if the recorder was killed
    host: Mapping[str, Any]
    recorder: Mapping[str, Any]
    threads: tuple[ThreadState, ...]  # at the start
    threads_end: tuple[ThreadState, ...]
    stats: Mapping[int, Mapping[str, int]] | None  # None if they were not written
    cgroups: tuple[Cgroup, ...] = ()  # at the start
    cgroups_end: tuple[Cgroup, ...] = ()  # of processes that began meanwhile
    sockets: tuple[Socket, ...] = ()  # at the start, then at the end, as the next
    descriptors: tuple[Descriptor, ...] = ()
    gaps: tuple[Gap, ...] = ()  # what the recorder noticed itself
    beats: Mapping[int, int] = field(default_factory=dict)  # by cpu, where they were counted
    clock: str = "mono"
    big_endian: bool = False  # pages and records


def _broken(file: Path, what: str) -> UnreadableError:
    return UnreadableError(f"{file}: {what}", "convert a raw directory of `critpath record`")


def _load(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except OSError as error:
        raise _broken(file, error.strerror or "cannot be read") from error
    except (ValueError, RecursionError) as error:
        raise _broken(file, "is not JSON") from error


def _read_integer(file: Path, of: Mapping[str, Any], name: str, *, low: int = 0) -> int:
    value = of.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= _MOST:
        raise _broken(file, f"{name!r} is not a number as it should be")
    return value


def _mapping(of: Any) -> Mapping[str, Any]:
    return of if isinstance(of, dict) else {}


def _read_rows(file: Path, kind: type[_Row], end: int = 0) -> tuple[_Row, ...]:
    """Read rows in order of time, none after `end`; a file that is damaged or missing has none."""
    try:
        rows = _load(file) if file.exists() else []
    except CritpathError as error:
        if find_trouble(error):
            raise
        return ()
    made = [make_row(kind, row) for row in (rows if isinstance(rows, list) else [])]
    if None in made:
        raise _broken(file, "has a row that is malformed")
    rows = sorted((row for row in made if row is not None), key=lambda row: row.time)
    return tuple(row._replace(time=min(row.time, end or row.time)) for row in rows)


def _read_both(directory: Path, name: str, kind: type[_Named], end: int) -> tuple[_Named, ...]:
    """Read what was there at the start, and at the end."""
    found = [
        row._replace(last=last)
        for last in (False, True)
        for row in _read_rows(directory / f"{name}{AT_END * last}.json", kind, end)
    ]
    return tuple(found)


def read_stats(file: Path) -> Mapping[int, Mapping[str, int]] | None:
    """Read the kernel's counts by cpu; None if they were not written."""
    if not file.exists():
        return None
    try:
        counted = _load(file)
    except CritpathError as error:
        if find_trouble(error):
            raise
        return None
    return {
        int(cpu): {str(k): v for k, v in _mapping(of).items() if isinstance(v, int) and v >= 0}
        for cpu, of in _mapping(counted).items()
        if cpu.isdecimal()
    }


def _read_gaps(rows: Any) -> Iterator[Gap]:
    """Yield what the recorder noticed; what is malformed is left out."""
    for row in rows if isinstance(rows, list) else ():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            begin, end, cpu = (int(row[key]) for key in ("begin", "end", "cpu"))
            yield Gap(begin, end, cpu, str(row["what"]))


def read_raw(directory: Path) -> RawRecording:
    """Read a raw directory's descriptions; raises CritpathError if ``raw.json`` is unusable."""
    file = directory / _DOCUMENT
    about = read_description(directory)
    clock = about.get("clock")
    if not isinstance(clock, str) or not _CLOCK_NAME.fullmatch(clock):
        raise _broken(file, "'clock' names no clock")
    cpus = about.get("cpus")
    if not isinstance(cpus, list) or not all(isinstance(c, int) and 0 <= c < 1 << 16 for c in cpus):
        raise _broken(file, "'cpus' is not a list of numbers")
    page_bytes = _read_integer(file, about, "page_bytes", low=64)
    if page_bytes > _LARGEST_PAGE:
        raise _broken(file, "'page_bytes' is not a size of pages")
    end = _read_integer(file, about, "end") if about.get("end") else 0
    return RawRecording(
        directory=directory,
        session=str(about.get("session", "")),
        epoch=_read_integer(file, about, "epoch", low=-_MOST),
        page_bytes=page_bytes,
        cpus=tuple(dict.fromkeys(cpus)),
        begin=_read_integer(file, about, "begin"),
        end=end,
        host=_mapping(about.get("host")),
        recorder=_mapping(about.get("recorder")),
        threads=_read_rows(directory / "statedump.json", ThreadState),
        threads_end=_read_rows(directory / f"statedump{AT_END}.json", ThreadState),
        cgroups=_read_rows(directory / "cgroups.json", Cgroup),
        cgroups_end=_read_rows(directory / f"cgroups{AT_END}.json", Cgroup, end),
        sockets=_read_both(directory, "sockets", Socket, end),
        descriptors=_read_both(directory, "descriptors", Descriptor, end),
        stats=read_stats(directory / "stats.json"),
        gaps=tuple(_read_gaps(about.get("gaps"))),
        beats={
            int(cpu): count
            for cpu, count in _mapping(about.get("beats")).items()
            if cpu.isdecimal() and isinstance(count, int)
        },
        clock=clock,
        big_endian=about.get("big_endian") is True,
    )
