"""Finds the traces of a recording and reads them with the reader that was asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from critpath.errors import UnreadableError, UsageError
from critpath.model import Events, Wanted
from critpath.read.clocks import Trace, natural
from critpath.read.description import Description
from critpath.read.metadata import read_metadata

_DEEPEST = 16  # levels of directories; LTTng needs five


def directories_with(root: Path, name: str) -> Iterator[Path]:
    """Yield directories that hold a file of that name, parents first, in natural order."""
    pending = [(root, 0)]
    while pending:
        directory, depth = pending.pop()
        try:
            with os.scandir(directory) as entries:
                inside = list(entries)
        except OSError as error:
            raise UnreadableError(
                f"{directory}: {error.strerror}", "make the directory readable for this user"
            ) from error
        if any(e.name == name and e.is_file() for e in inside):
            yield directory
        below = [Path(e.path) for e in inside if e.is_dir(follow_symlinks=False)]
        if depth < _DEEPEST:
            pending += [(b, depth + 1) for b in sorted(below, key=natural, reverse=True)]


def _stream_files(directory: Path, root: Path) -> tuple[Path, ...]:
    """Return the stream files of a trace; links that lead out of the recording are none."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name == "metadata" or entry.name.startswith(".") or not entry.is_file():
                continue
            path = Path(entry.path)
            if entry.is_symlink() and not path.resolve().is_relative_to(root):
                continue
            found.append(path)
    return tuple(sorted(found, key=natural))


def trace_directories(path: Path) -> tuple[Path, ...]:
    """Return every directory at or below a path that holds a CTF trace, in natural order."""
    return tuple(directories_with(path, "metadata")) if path.is_dir() else ()


def find_traces(path: Path) -> tuple[Trace, ...]:
    """Find the CTF traces of a recording and read their metadata.

    Parameters
    ----------
    path : Path
        A trace directory, or any directory above one or several.

    Returns
    -------
    tuple of Trace
        Kernel traces first, each group in natural order.

    Raises
    ------
    UnreadableError
        If there is no such directory, no trace in it, or its metadata is malformed.
    """
    if not path.exists():
        raise UnreadableError(f"{path}: no such file or directory", "check the path")
    if not path.is_dir():
        raise UnreadableError(*about_file(path))
    root = path.resolve()
    traces = [
        Trace(
            str(d.relative_to(path)) if d != path else d.name,
            d,
            _stream_files(d, root),
            read_metadata(d),
        )
        for d in directories_with(path, "metadata")
    ]
    if not traces:
        empty = not any(path.iterdir())
        raise UnreadableError(
            f"{path}: {'is empty' if empty else 'holds no CTF trace (no metadata file)'}",
            "name a directory that `critpath record` or lttng wrote, after the session stopped",
        )
    return tuple(sorted(traces, key=lambda t: t.domain != "kernel"))


_LARGEST: Final = 1 << 28  # bytes of a document that are looked through
_COMPARE: Final = "compare takes recordings, CTF traces, extract files and baselines"


def about_file(path: Path) -> tuple[str, str]:
    """Return what a file is that is no recording, and what to do with it.

    Returns
    -------
    (str, str)
        As an error's two lines; nothing of the file's text is in them.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(4096)
            # A document's keys are sorted: its format is behind the alignments.
            rest = stream.read(_LARGEST) if head.startswith(b"{") else b""
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror}", "make it readable for this user"
    if b'"format": "critpath/comparison/' in head + rest:
        return (
            f"{path}: a saved comparison, no recording",
            f"critpath report {path} shows it; {_COMPARE}",
        )
    if b'"format": "critpath/' in head + rest:
        return f"{path}: a file of critpath's, but no recording", _COMPARE
    if head.lstrip()[:9].lower() in {b"<!doctype", b"<html><he"} or b"<html" in head[:512].lower():
        return f"{path}: an HTML page, no recording", f"open it in a browser; {_COMPARE}"
    if head.startswith((b"\x7fELF", b"#!")):
        return (
            f"{path}: a program, no recording",
            f"record it first: critpath record -n 30 -o recording -- {path}",
        )
    return (
        f"{path}: a file, no recording (which is a directory)",
        "name the directory that critpath record or lttng wrote, an extract file or a baseline",
    )


def describe(path: Path) -> tuple[Description, ...]:
    """Tell what the traces of a recording can hold, from their metadata only.

    Raises
    ------
    UnreadableError
        As `find_traces`.
    """
    return tuple(Description(trace) for trace in find_traces(path))


def _native(traces: Sequence[Trace], wanted: Sequence[Wanted]) -> Events:
    from critpath.read.native import read_traces  # noqa: PLC0415 - loads numpy and the decoder

    return read_traces(traces, wanted)


def _babeltrace2(traces: Sequence[Trace], wanted: Sequence[Wanted]) -> Events:
    from critpath.read import babeltrace  # noqa: PLC0415 - only where it is asked for

    return babeltrace.read_events([t.directory for t in traces], wanted)


Reader = Callable[[Sequence[Trace], Sequence[Wanted]], Events]

READERS: Final[Mapping[str, Reader]] = {
    "auto": _native,
    "native": _native,
    "babeltrace2": _babeltrace2,
}


def read_events(path: Path, wanted: Sequence[Wanted], *, reader: str = "auto") -> Events:
    """Read the events of a recording that are wanted.

    Parameters
    ----------
    path : Path
        A recording: a CTF trace, or a directory with some below it.
    wanted : sequence of Wanted
        Classes of events and their fields, for example `layout.KERNEL`.
    reader : str
        A name in `READERS`.

    Returns
    -------
    Events

    Raises
    ------
    UnreadableError
        If there is no trace, or nothing in it can be decoded.
    UsageError
        If there is no such reader.
    """
    if reader not in READERS:
        raise UsageError(f"no reader is called {reader!r}", f"use one of {', '.join(READERS)}")
    return READERS[reader](find_traces(path), wanted)
