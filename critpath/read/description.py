"""What the metadata of one trace says, before anything is decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from critpath.read.clocks import Trace
from critpath.read.event_classes import names_of
from critpath.read.schema import EventRecordClass, StreamClass
from critpath.read.selection import Leaf, event_leaves

_Classes = tuple[tuple[StreamClass, int], ...]


class FieldNames(Mapping[str, tuple[str, ...]]):
    """Names of fields by event name; an event is looked into when it is asked for.

    Parameters
    ----------
    classes : mapping of str to tuple of (StreamClass, int)
        The event classes of each name.
    fields : callable
        Gives the names for the classes of one name.
    """

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
        Field names (dotted, payload before contexts) by event name.  Names cost
        nothing; the fields of an event are found out when they are asked for, which
        raises `MetadataError` where its part of the metadata is malformed.
    texts : mapping of str to tuple of str
        Those of the payload that hold text, by event name; likewise.
    environment : mapping
    """

    __slots__ = ("domain", "environment", "events", "host", "name", "texts")

    def __init__(self, trace: Trace) -> None:
        strip = trace.schema.version < (2, 0)
        classes: dict[str, _Classes] = {}
        for stream in trace.schema.streams.values():
            for number, name in names_of(stream.events).items():
                classes[name] = (*classes.get(name, ()), (stream, number))

        def leaves(of: tuple[StreamClass, int]) -> dict[str, Leaf]:
            stream, number = of
            event: EventRecordClass = stream.events[number]
            return event_leaves(stream, event, strip=strip)

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
