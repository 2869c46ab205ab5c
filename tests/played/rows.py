"""A trace as rows, for tests that compare what was recorded with what was played."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from critpath.model import EventRequest, Events, Kind
from critpath.read.traces import read_events

EVERYTHING: Final = (EventRequest(Kind.OTHER, ("*",), (("*",),)),)
Row = tuple[int, int, str, dict[str, Any]]


def read_rows(path: Path, reader: str = "native") -> tuple[list[Row], Events]:
    """Return every event of a trace as (time, cpu, name, fields), and Events."""
    events = read_events(path, EVERYTHING, reader=reader)
    found = []
    for i in range(len(events)):
        of = events.classes[events.event_class[i]]
        values = events.values[events.offset[i] : events.offset[i] + len(of.fields)]
        fields = {
            name: events.strings[value] if kind == "str" else int(value)
            for name, kind, value in zip(of.fields, of.types, values, strict=True)
        }
        found.append((int(events.timestamp[i]), int(events.cpu[i]), of.name, fields))
    return found, events
