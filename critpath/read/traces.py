"""Finds the traces of a recording, describes them, and reads them with the chosen reader."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.errors import UnreadableError, UsageError
from critpath.model import MANIFEST, EventRequest, Events
from critpath.read.clocks import Trace, natural_key
from critpath.read.metadata.load import read_metadata
from critpath.read.metadata.schema import EventRecordClass, StreamClass, get_event_names
from critpath.read.selection import Leaf, find_leaves
from critpath.stores import fetch

if TYPE_CHECKING:
    from critpath.read.hosts import HostRecording

_DEEPEST = 16  # levels of directories; LTTng needs five
_OLD = ".old"  # what perf calls the file that was there before


def walk_directories_with(root: Path, name: str) -> Iterator[Path]:
    """Yield directories that contain a file of that name, parents first, in natural order."""
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
        if any(e.name == name and _is_file(e) for e in inside):
            yield directory
        below = [Path(e.path) for e in inside if e.is_dir(follow_symlinks=False)]
        if depth < _DEEPEST:
            pending += [(b, depth + 1) for b in sorted(below, key=natural_key, reverse=True)]


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError as error:  # a link to itself
        raise UnreadableError(f"{entry.path}: {error.strerror}", "remove this link") from error


def _stream_files(directory: Path, root: Path) -> tuple[Path, ...]:
    """Return the stream files of a trace, without links that lead out of the recording."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name == "metadata" or entry.name.startswith(".") or not _is_file(entry):
                continue
            path = Path(entry.path)
            if entry.is_symlink() and not path.resolve().is_relative_to(root):
                continue
            found.append(path)
    return tuple(sorted(found, key=natural_key))


def find_trace_directories(path: Path) -> tuple[Path, ...]:
    """Return every directory at or below a path that holds a CTF trace, in natural order."""
    return tuple(walk_directories_with(path, "metadata")) if path.is_dir() else ()


def find_traces(path: Path, hosts: Sequence[HostRecording] | None = None) -> tuple[Trace, ...]:
    """Find the CTF traces of a recording and read their metadata.

    Parameters
    ----------
    path : Path
        A trace directory, or any directory above one or several.
    hosts : sequence of HostRecording, optional
        Those of a set, where they are known.

    Returns
    -------
    tuple of Trace
        Kernel traces first, each group in natural order; of a set of hosts (`find_hosts`) those
        of each, under its name there.

    Raises
    ------
    UnreadableError
        If there is no such directory, no trace in it, or its metadata is malformed.
    """
    if not path.exists():
        raise UnreadableError(f"{path}: no such file or directory", "check the path")
    if not path.is_dir():
        raise UnreadableError(*identify_file(path))
    from critpath.read.hosts import find_hosts, name_traces  # noqa: PLC0415 - it imports this

    found = [
        trace
        for host in (find_hosts(path) if hosts is None else hosts)
        for trace in name_traces(host, find_traces(host.directory))
    ]
    if found:
        return tuple(sorted(found, key=lambda t: t.domain != "kernel"))
    root = path.resolve()
    traces = [
        Trace(
            str(d.relative_to(path)) if d != path else d.name,
            d,
            _stream_files(d, root),
            read_metadata(d),
        )
        for d in walk_directories_with(path, "metadata")
    ]
    if not traces:
        inside = list(path.iterdir())
        if any(entry.is_symlink() and entry.is_dir() for entry in inside):
            raise UnreadableError(
                f"{path}: holds no CTF trace, and links to directories are not followed",
                "name the directories that the links lead to, or copy them",
            )
        raise UnreadableError(
            f"{path}: {'holds no CTF trace (no metadata file)' if inside else 'is empty'}",
            "name a directory that `critpath record` or lttng wrote, after the session stopped",
        )
    return tuple(sorted(traces, key=lambda t: t.domain != "kernel"))


_LARGEST: Final = 1 << 28  # bytes of a document that are looked through
_COMPARE: Final = "compare takes recordings, CTF traces, saved paths and baselines"


def identify_file(path: Path) -> tuple[str, str]:
    """Explain what a file is that was given for a recording."""
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
    """Describe what the traces of a recording can hold, from their metadata alone."""
    return tuple(Description(trace) for trace in find_traces(path))


def _read_native(traces: Sequence[Trace], requests: Sequence[EventRequest]) -> Events:
    from critpath.read.streaming import read_traces  # noqa: PLC0415 - loads numpy and the decoder

    return read_traces(traces, requests)


def _read_with_babeltrace2(traces: Sequence[Trace], requests: Sequence[EventRequest]) -> Events:
    from critpath.read import babeltrace  # noqa: PLC0415 - only where it is asked for
    from critpath.read.streams import measure_streams  # noqa: PLC0415 - numpy

    fetch([file for trace in traces for file in trace.files])
    read = babeltrace.read_with_babeltrace2([t.directory for t in traces], requests)
    return replace(read, streams=measure_streams(traces))


Reader = Callable[[Sequence[Trace], Sequence[EventRequest]], Events]

READERS: Final[Mapping[str, Reader]] = {
    "auto": _read_native,
    "native": _read_native,
    "babeltrace2": _read_with_babeltrace2,
}


def read_events(path: Path, requests: Sequence[EventRequest], *, reader: str = "auto") -> Events:
    """Read the requested events of a recording.

    Parameters
    ----------
    path : Path
        A CTF trace, or a directory with some below it.
    requests : sequence of EventRequest
        Event classes and their fields, for example `event_names.KERNEL_EVENTS`.
    reader : str
        A key of `READERS`.

    Returns
    -------
    Events

    Raises
    ------
    UnreadableError
        If there is no trace, or no event in it can be decoded.
    UsageError
        If there is no such reader.
    """
    _require_reader(reader)
    return read_with(reader, find_traces(path), requests)


def read_with(reader: str, traces: Sequence[Trace], requests: Sequence[EventRequest]) -> Events:
    """Read the requested events of some traces by a reader's name: see `read_events`."""
    _require_reader(reader)
    return READERS[reader](traces, requests)


def _require_reader(reader: str) -> None:
    if reader not in READERS:
        raise UsageError(f"no reader is called {reader!r}", f"use one of {', '.join(READERS)}")


# Descriptions: what a trace can hold, from its metadata.

_Classes = tuple[tuple[StreamClass, int], ...]


class FieldNames(Mapping[str, tuple[str, ...]]):
    """Field names by event name; an event class is parsed when it is first asked for."""

    __slots__ = ("_classes", "_fields", "_known")

    def __init__(
        self,
        classes: Mapping[str, _Classes],
        fields: Callable[[_Classes], tuple[str, ...]],
    ) -> None:
        self._classes = classes
        self._fields = fields
        self._known: dict[str, tuple[str, ...]] = {}

    def __getitem__(self, name: str) -> tuple[str, ...]:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._fields(self._classes[name])
        return known

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, name: object) -> bool:
        return name in self._classes


class Description:
    """What one trace can hold.

    Attributes
    ----------
    name : str
        The trace's directory below the recording.
    domain : str
        ``kernel``, ``ust`` or what the environment says.
    host : str
    events : mapping of str to tuple of str
        Field names (dotted, payload before contexts) by event name.  Looking an event up
        parses its class, which raises `MetadataError` if it is malformed.
    texts : mapping of str to tuple of str
        The payload's text fields, by event name; likewise.
    environment : Environment
    """

    __slots__ = ("domain", "environment", "events", "host", "name", "texts")

    def __init__(self, trace: Trace) -> None:
        strip = trace.schema.version < (2, 0)
        classes: dict[str, _Classes] = {}
        for stream in trace.schema.streams.values():
            for number, name in get_event_names(stream.events).items():
                classes[name] = (*classes.get(name, ()), (stream, number))

        def leaves(of: tuple[StreamClass, int]) -> dict[str, Leaf]:
            stream, number = of
            event: EventRecordClass = stream.events[number]
            return find_leaves(stream, event, strip=strip)

        def every(of: _Classes) -> tuple[str, ...]:
            return tuple(dict.fromkeys(name for one in of for name in leaves(one)))

        def texts(of: _Classes) -> tuple[str, ...]:
            return tuple(
                leaf.name
                for leaf in leaves(of[-1]).values()
                if leaf.type == "str" and leaf.path[0] == "event-payload"
            )

        self.name = trace.name
        self.domain = trace.domain
        self.host = trace.host
        self.events: Mapping[str, tuple[str, ...]] = FieldNames(classes, every)
        self.texts: Mapping[str, tuple[str, ...]] = FieldNames(classes, texts)
        self.environment = trace.schema.environment


# Recordings below a directory.

# LTTng writes one directory per tracing domain into a session's directory.
_DOMAINS = frozenset({"kernel", "ust"})


def find_recordings(source: Path) -> tuple[Path, ...]:
    """Find the recordings at or below a path.

    Parameters
    ----------
    source : Path
        A recording, a CTF trace, a file of another tool, which is converted at once, or a
        directory with several recordings below it.

    Returns
    -------
    tuple of Path
        In natural order.  Traces of one session (its ``kernel`` and ``ust``
        directories, or everything below a manifest) are one recording.

    Raises
    ------
    UnreadableError
        If there is none.
    """
    from critpath.convert import directory_of  # noqa: PLC0415 - not for root

    if directory_of(source) != source:
        return (source,)
    found = find_sessions(source)
    if files := _find_files(source, found):
        return (*_find_sets(found, source), *files)
    if not found:
        return (source,)  # reading it reports what is wrong
    sets = _find_sets(found, source)
    if {*sets} != {*found}:
        return tuple(sets)
    if len(found) == 1 and not (found[0] / MANIFEST).is_file():
        return (source,)  # one session: the user's own name for it, which is the shortest
    return found


def _find_files(source: Path, recordings: Collection[Path]) -> list[Path]:
    """Return files of other tools below a directory and in no recording, in natural order."""
    from critpath.convert import COLLECTED, identify_foreign  # noqa: PLC0415 - not for root

    found, pending = [], [] if source in recordings else [(source, 0)]
    while pending:
        directory, depth = pending.pop()
        try:
            inside = sorted(directory.iterdir(), key=natural_key, reverse=True)
        except OSError:  # a file; what cannot be read was said where recordings were looked for
            continue
        for path in inside:
            if path.name.startswith(".") or path.is_symlink() or path in recordings:
                continue
            if path.is_dir():
                pending += [(path, depth + 1)] if depth < _DEEPEST else []
            elif path.suffix != _OLD and identify_foreign(path) in COLLECTED:
                found.append(path)
    return sorted(found, key=natural_key)


def find_sessions(source: Path) -> tuple[Path, ...]:
    """Return the recordings at or below a path, each host's of a set by itself."""
    traces = find_trace_directories(source)
    if not traces:
        return ()
    found = dict.fromkeys(_find_session(trace, source) for trace in traces)
    # Do not skip a recording without a trace: reading it reports what is wrong.
    found.update((_find_session(d, source), None) for d in walk_directories_with(source, MANIFEST))
    return tuple(found)


def _find_sets(recordings: Iterable[Path], source: Path) -> dict[Path, None]:
    """Return the sets of hosts that recordings belong to; those of none, themselves."""
    from critpath.read.hosts import find_hosts  # noqa: PLC0415 - it imports this

    members: dict[Path, set[Path]] = {}  # every manifest there is read: once, not for each
    found: dict[Path, None] = {}
    for recording in recordings:
        above = recording.parent
        if above not in members:
            below = above == source or source in above.parents
            members[above] = {of.directory for of in find_hosts(above)} if below else set()
        found[above if recording in members[above] else recording] = None
    return found


def _find_session(trace: Path, source: Path) -> Path:
    """Return the directory of the session that a trace belongs to."""
    above = [trace, *(p for p in trace.parents if p == source or source in p.parents)]
    for directory in reversed(above):
        if (directory / MANIFEST).is_file():
            return directory
    for directory in above:
        if directory.name in _DOMAINS and directory != source:
            return directory.parent
    return trace
