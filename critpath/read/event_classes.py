"""The event classes of a stream, each parsed when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from critpath.read.schema import EventRecordClass


class EventClasses(Mapping[int, EventRecordClass]):
    """Event classes by id, of which most are still text.

    Parameters
    ----------
    names : mapping of int to str
        Every event's name by its id, in the order of the metadata.
    parsed : mapping of int to EventRecordClass
        Those that are there already: at least all whose fields may depend on headers.
    parse : callable
        Makes the class of any other id; raises `MetadataError` if its text is malformed.
    warnings : mapping of str to None
        What was odd about the metadata, as far as it was parsed; it may grow.
    """

    __slots__ = ("_parse", "_parsed", "eager", "names", "warnings")

    def __init__(
        self,
        names: Mapping[int, str],
        parsed: Mapping[int, EventRecordClass],
        parse: Callable[[int], EventRecordClass],
        warnings: Mapping[str, None],
    ) -> None:
        self.names = names
        self.eager = tuple(parsed.values())
        self.warnings = warnings
        self._parsed = dict(parsed)
        self._parse = parse

    def __getitem__(self, number: int) -> EventRecordClass:
        event = self._parsed.get(number)
        if event is None:
            if number not in self.names:
                raise KeyError(number)
            event = self._parsed[number] = self._parse(number)
        return event

    def __iter__(self) -> Iterator[int]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, number: object) -> bool:
        return number in self.names


def names_of(events: Mapping[int, EventRecordClass]) -> Mapping[int, str]:
    """Return the name of every event by its id, without parsing any."""
    if isinstance(events, EventClasses):
        return events.names
    return {number: event.name for number, event in events.items()}


def depending(events: Mapping[int, EventRecordClass]) -> tuple[EventRecordClass, ...]:
    """Return the events whose fields may depend on fields of the headers, or more."""
    return events.eager if isinstance(events, EventClasses) else tuple(events.values())


def late_warnings(events: Mapping[int, EventRecordClass]) -> tuple[str, ...]:
    """Return what was odd about the metadata, as far as it has been parsed by now."""
    return tuple(events.warnings) if isinstance(events, EventClasses) else ()
