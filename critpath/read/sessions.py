"""Which recordings lie below a directory."""

from __future__ import annotations

from pathlib import Path

from critpath.model import MANIFEST
from critpath.read.recording import directories_with, trace_directories

# LTTng writes one directory per tracing domain into a session's directory.
_DOMAINS = frozenset({"kernel", "ust"})


def find_recordings(source: Path) -> tuple[Path, ...]:
    """Find the recordings at or below a path.

    Parameters
    ----------
    source : Path
        A recording, a CTF trace, or a directory with several of them below it.

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
    traces = trace_directories(source)
    if not traces:
        return (source,)  # reading it says what is wrong
    found = dict.fromkeys(_session_of(trace, source) for trace in traces)
    # A recording without a trace must not be passed over: reading it says why.
    found.update((_session_of(d, source), None) for d in directories_with(source, MANIFEST))
    if len(found) == 1 and not (next(iter(found)) / MANIFEST).is_file():
        return (source,)  # one session: the user's own name for it, which is the shortest
    return tuple(found)


def _session_of(trace: Path, source: Path) -> Path:
    """Return the directory of the session that a trace belongs to."""
    above = [trace, *(p for p in trace.parents if p == source or source in p.parents)]
    for directory in reversed(above):
        if (directory / MANIFEST).is_file():
            return directory
    for directory in above:
        if directory.name in _DOMAINS and directory != source:
            return directory.parent
    return trace
