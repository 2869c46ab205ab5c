"""What is kept beside the pages while recording: enough to make a trace of them later.

``raw/`` of a recording: ``raw.json`` (what was recorded), ``header_page``,
``header_event`` and ``formats/GROUP.EVENT`` (the kernel's description of what is in a
page), ``cpuN`` (pages), ``statedump.json`` and ``statedump-end.json`` (threads),
``cgroups.json`` (control groups of processes at the start), ``sockets.json`` and
``descriptors.json`` (those open then), ``sockets-end.json`` and ``descriptors-end.json``,
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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from critpath.errors import CritpathError, UnreadableError
from critpath_record.ftrace.tracefs import Instance

RAW: Final = "raw"
MARKS: Final = "marks"
RAW_FORMAT: Final = "critpath/raw/1"
# What was raw/ while it is being deleted: never to be converted.
DISCARDED: Final = ".raw-converted"
AT_END: Final = "-end"  # of files about what was there when the recording ended
_DOCUMENT: Final = "raw.json"
_STATS: Final = "stats.json"
_ROOM: Final = "room"
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ROOM_BYTES: Final = 1 << 19
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
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(document, stream, ensure_ascii=False, separators=(",", ":"))
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


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
            f"{place} cannot be read: {error}", "record again: nothing can be made of this"
        ) from None
    if not isinstance(document, dict) or document.get("format") != RAW_FORMAT:
        raise UnreadableError(
            f"{place} is not of the format {RAW_FORMAT}",
            "use the version of critpath that recorded it",
        )
    return document


def write_stats(raw: Path, stats: Mapping[int, Mapping[str, int]]) -> None:
    """Write ``stats.json``."""
    write_json(raw / _STATS, {str(cpu): counts for cpu, counts in sorted(stats.items())})


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
