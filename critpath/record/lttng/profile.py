"""Makes the session file that `lttng load` gets: a profile with its name filled in."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from critpath.errors import UsageError
from critpath.record.profiles import profile_path

if TYPE_CHECKING:
    from critpath.record.recorder import RecorderSettings

# What a session file's schema does not know, `lttng add-context` still does.
_INSTRUCTION: Final = "critpath-context"
_SMALLEST: Final = 4096  # a sub-buffer is a power of two, of a page at least
_TRACE_FORMATS: Final = {"ctf-1.8": "CTF_1_8", "ctf-2": "CTF_2"}


@dataclass(frozen=True)
class SessionFile:
    """A session file, ready to be written, and what it makes LTTng record.

    Attributes
    ----------
    text : str
        XML.
    channel : str
        Name of the kernel channel.
    events : tuple of str
        Names or patterns, as in the trace.
    contexts : tuple of str
        As `lttng add-context` calls them, without ``added``.
    added : tuple of str
        Contexts to be added when it is loaded.
    missing : tuple of str
        Events that this tracer does not have: left out.
    buffer_bytes : int
        Per cpu.
    """

    text: str
    channel: str
    events: tuple[str, ...]
    contexts: tuple[str, ...]
    added: tuple[str, ...]
    missing: tuple[str, ...]
    buffer_bytes: int


def session_file(
    settings: RecorderSettings, output: Path, available: set[str], *, formats: bool
) -> SessionFile:
    """Fill in a profile.

    Parameters
    ----------
    settings : RecorderSettings
    output : Path
        Absolute: where the trace goes.
    available : set of str
        Tracepoints that the tracer has.
    formats : bool
        Whether this LTTng has a choice of trace formats (2.15).

    Raises
    ------
    UsageError
        If there is no such profile or format.
    """
    place = profile_path(settings.profile)
    if settings.trace_format not in _TRACE_FORMATS:
        raise UsageError(
            f"no trace format {settings.trace_format!r}",
            f"take one of {', '.join(_TRACE_FORMATS)}",
        )
    if settings.trace_format != "ctf-1.8" and not formats:
        raise UsageError(
            f"this LTTng does not write {settings.trace_format}",
            "leave --trace-format out, or install LTTng 2.15 or later",
        )
    parser = ET.XMLParser(target=ET.TreeBuilder(insert_pis=True))  # noqa: S314 - our own file
    root = ET.fromstring(place.read_bytes(), parser)  # noqa: S314 - our own file
    session = _child(root, "session")
    _child(session, "name").text = settings.session
    if formats:
        ET.SubElement(session, "trace_format").text = _TRACE_FORMATS[settings.trace_format]
    consumer = ET.SubElement(ET.SubElement(session, "output"), "consumer_output")
    ET.SubElement(consumer, "enabled").text = "true"
    ET.SubElement(ET.SubElement(consumer, "destination"), "path").text = str(output)
    channel = _child(session, "domains/domain/channels/channel")
    events, missing = _keep(_child(channel, "events"), available)
    bytes_per_cpu = _size(channel, settings.buffer_bytes)
    contexts = _child(channel, "contexts")
    added = [
        words[1]
        for element in contexts
        if callable(element.tag)  # a processing instruction
        and (words := (element.text or "").split())[:1] == [_INSTRUCTION]
        and len(words) == 2
    ]
    return SessionFile(
        text='<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode"),
        channel=_child(channel, "name").text or "",
        events=events,
        contexts=tuple((c.text or "").lower() for c in contexts.iterfind("context/type")),
        added=tuple(added),
        missing=missing,
        buffer_bytes=bytes_per_cpu,
    )


def _keep(events: ET.Element, available: set[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Take out what the tracer does not have; return the names kept and the others.

    Old tracers refuse a session with an event that they do not have, new ones take it
    and record nothing.
    """
    kept, missing = [], []
    for event in list(events):
        name = event.findtext("name") or ""
        if event.findtext("type") == "SYSCALL":
            kept += [f"syscall_entry_{name}", f"syscall_exit_{name}"]
        elif any(fnmatchcase(one, name) for one in available):
            kept.append(name)
        else:
            events.remove(event)
            missing.append(name)
    return tuple(kept), tuple(missing)


def _size(channel: ET.Element, wanted: int) -> int:
    """Set the size of the sub-buffers; return the bytes that a cpu gets."""
    size, count = _child(channel, "subbuffer_size"), _child(channel, "subbuffer_count")
    number = int(count.text or 1)
    if wanted:
        # Two at least: one is written while the other is read.
        while number > 2 and wanted // number < _SMALLEST:
            number //= 2
        each = _SMALLEST
        while each * number < wanted:
            each *= 2
        size.text, count.text = str(each), str(number)
    return int(size.text or 0) * number


def _child(element: ET.Element, path: str) -> ET.Element:
    found = element.find(path)
    if found is None:
        raise ValueError(f"the profile has no {path}")  # a file of the package is damaged
    return found
