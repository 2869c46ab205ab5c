"""Which events were requested, and where their fields lie."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from functools import lru_cache

from critpath.model import EventRequest, Kind
from critpath.read.metadata.layout import is_packable, is_text
from critpath.read.metadata.schema import (
    ArrayClass,
    EventRecordClass,
    FieldClass,
    FieldPath,
    FloatClass,
    IntegerClass,
    StreamClass,
    StringClass,
    StructureClass,
    TextClass,
    VariantClass,
    VarintClass,
)
from critpath.records import dataclass

EVERYTHING = (("*",),)


@dataclass(frozen=True)
class RequestedFields:
    """The fields requested of the events of one name."""

    kind: Kind
    fields: tuple[tuple[str, ...], ...]
    own: int  # fields at the begin that belong to the kind


_WILD = re.compile(r"[*?\[]")


class RequestMatcher:
    """Matches event names with requests."""

    def __init__(self, requests: Sequence[EventRequest]) -> None:
        self._requests = requests
        self._known: dict[str, RequestedFields | None] = {}
        # Entries by exact name, and those with patterns.
        self._exact: dict[str, list[int]] = {}
        self._patterns: list[tuple[int, re.Pattern[str]]] = []
        every = []
        for index, entry in enumerate(requests):
            wild = [name for name in entry.names if _WILD.search(name)]
            for name in entry.names:
                if name not in wild:
                    self._exact.setdefault(name, []).append(index)
            if wild:
                pattern = "|".join(translate(name) for name in wild)
                self._patterns.append((index, re.compile(pattern)))
                every.append(pattern)
        self._any = re.compile("|".join(every)) if every else None

    def match(self, name: str) -> RequestedFields | None:
        """Return the fields requested of events of that name, None if no request names it.

        The first request with a kind decides the kind and the first fields, on whose places
        the replay relies; fields requested with kind OTHER follow.
        """
        if name not in self._known:
            matching = set(self._exact.get(name, ()))
            if self._any is not None and self._any.match(name):
                matching.update(i for i, pattern in self._patterns if pattern.match(name))
            self._known[name] = _combine_requests([self._requests[i] for i in sorted(matching)])
        return self._known[name]


@lru_cache(maxsize=16)
def compile_requests(requests: tuple[EventRequest, ...]) -> RequestMatcher:
    """Return the matcher of some requests; recent ones are cached."""
    return RequestMatcher(requests)


def _combine_requests(matching: Sequence[EventRequest]) -> RequestedFields | None:
    """Combine all the requests that name an event."""
    if not matching:
        return None
    kinds = [w for w in matching if w.kind is not Kind.OTHER]
    others = [w for w in matching if w.kind is Kind.OTHER]
    fields: list[tuple[str, ...]] = []
    for entry in kinds[:1] + others:
        if entry.fields == EVERYTHING:
            return RequestedFields(entry.kind if not kinds else kinds[0].kind, EVERYTHING, 0)
        fields += [f for f in entry.fields if f not in fields]
    own = len(kinds[0].fields) if kinds else 0
    return RequestedFields(kinds[0].kind if kinds else Kind.OTHER, tuple(fields), own)


@dataclass(frozen=True)
class Leaf:
    """A field with a value: its path, and its type (see `EventClass`)."""

    path: FieldPath
    type: str
    extra: bool = False  # for the reader's own use: not part of "every field"

    @property
    def name(self) -> str:
        """The dotted name, without the scope."""
        return ".".join(self.path[1:])


def iter_leaves(of: FieldClass | None, path: FieldPath, *, strip: bool) -> Iterator[Leaf]:
    """Yield the fields with a value below a field, in order; a variant yields all options."""
    match of:
        case StructureClass():
            for member in of.members:
                bare = strip and member.name.startswith("_")
                name = member.name[1:] if bare else member.name
                yield from iter_leaves(member.field, (*path, name), strip=strip)
        case VariantClass():
            for option in of.options:
                yield from iter_leaves(option.field, path, strip=strip)
        case IntegerClass() | VarintClass():
            yield Leaf(path, "int" if of.signed else "uint", bool(of.roles))
        case FloatClass(bits=32 | 64):
            yield Leaf(path, "float")
        case StringClass() | TextClass(blob=False):
            yield Leaf(path, "str")
        case ArrayClass() if is_text(of):
            yield Leaf(path, "str")
        case ArrayClass() if is_packable(of):
            yield Leaf(path, "uint", extra=True)


def find_leaves(stream: StreamClass, event: EventRecordClass, *, strip: bool) -> dict[str, Leaf]:
    """Return the fields of an event by dotted name; the payload wins over contexts."""
    found: dict[str, Leaf] = {}
    for scope, of in (
        ("event-payload", event.payload),
        ("event-specific-context", event.context),
        ("event-common-context", stream.event_context),
        ("packet-context", stream.packet_context),
    ):
        for leaf in iter_leaves(of, (scope,), strip=strip):
            before = found.setdefault(leaf.name, leaf)
            if before.path == leaf.path and {before.type, leaf.type} == {"int", "uint"}:
                # Options that differ in sign: read both as signed.
                found[leaf.name] = Leaf(leaf.path, "int", before.extra)
    return found


@dataclass(frozen=True)
class FieldSelection:
    """The fields of one event class as they will stand in `Events.values`.

    ``outputs`` maps a field's path to its places and its type.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    outputs: dict[FieldPath, tuple[tuple[int, ...], str]]


NO_FIELDS = FieldSelection((), (), {})


def select_fields(
    stream: StreamClass, event: EventRecordClass, selected: RequestedFields, *, strip: bool
) -> FieldSelection:
    """Find the requested fields in one event class."""
    if not selected.fields:
        return NO_FIELDS
    found = find_leaves(stream, event, strip=strip)
    if selected.fields == EVERYTHING:
        every = [leaf for leaf in found.values() if not leaf.extra]
        return FieldSelection(
            tuple(leaf.name for leaf in every),
            tuple(leaf.type for leaf in every),
            {leaf.path: ((place,), leaf.type) for place, leaf in enumerate(every)},
        )
    types: list[str] = []
    outputs: dict[FieldPath, tuple[tuple[int, ...], str]] = {}
    for place, spellings in enumerate(selected.fields):
        leaf = next((found[s] for s in spellings if s in found), None)
        if leaf is None or (leaf.path in outputs and place < selected.own):
            # Nor may one field stand for two: perf's pid is a thread, not its process.
            types.append("absent")
        else:
            types.append(leaf.type)
            outputs[leaf.path] = ((*outputs.get(leaf.path, ((), ""))[0], place), leaf.type)
    return FieldSelection(tuple(s[0] for s in selected.fields), tuple(types), outputs)
