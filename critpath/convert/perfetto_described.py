"""Events of Perfetto that describe themselves: those that its schema has no message for."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from critpath.convert import _perfetto
from critpath.convert.perfetto_events import FieldWay, Slot, format_text, place_slots
from critpath.convert.raw_writer import RawWriter

_FIRST: Final = 20_000  # IDs, beyond the fields of FtraceEvent that have one
_MOST: Final = 4096  # kinds
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}")
_GENERIC: Final = 327  # FtraceEvent.generic
_COMMON: Final = 8
_GROUP: Final = "perfetto"
# Types of a FieldDescriptorProto: text, and numbers with a sign.
_TEXTS: Final = frozenset({9, 12})
_SIGNED: Final = frozenset({3, 5, 15, 16, 17, 18})


class _DescribedEvent(NamedTuple):
    number: int
    slots: dict[int | str, Slot]
    size: int


class DescribedEvents:
    """Makes records of events by what they say of themselves."""

    def __init__(self, writer: RawWriter) -> None:
        self._writer = writer
        self._kinds: dict[tuple[str, tuple[tuple[str, str], ...]], _DescribedEvent | None] = {}
        self._by_field: dict[int, _DescribedEvent | None] = {}

    def make_record(self, number: int, payload: bytes) -> bytes | None:
        """Return a record without what is common; None for what is none, or is left out.

        `number`: of the field in FtraceEvent; 0 for the description of one.
        """
        fields, whole = _perfetto.read_fields(payload)
        if not whole:
            return None
        if number == 0:
            self._describe(fields)
            return None
        if number == _GENERIC:
            return self._make_generic(fields)
        kind = self._by_field.get(number)
        if kind is None:
            return None
        return _pack(kind, [(field, value) for field, value in fields if field in kind.slots])

    def _describe(self, fields: list[tuple[int, int | bytes]]) -> None:
        number = next((v for f, v in fields if f == 1 and isinstance(v, int)), 0)
        if number in self._by_field or len(self._by_field) >= _MOST:
            return
        group = _first_text(fields, 3) or _GROUP
        message = next((v for f, v in fields if f == 2 and isinstance(v, bytes)), b"")
        described = _perfetto.read_fields(message)[0]
        members: list[tuple[int | str, str, str]] = []
        for place, of in described:
            if place != 2 or not isinstance(of, bytes):
                continue
            member = _perfetto.read_fields(of)[0]
            values = {f: v for f, v in member if isinstance(v, int)}
            kind = values.get(5, 0)
            how = "text" if kind in _TEXTS else "s64" if kind in _SIGNED else "u64"
            members.append((values.get(3, 0), how, _first_text(member, 1)))
        name = _first_text(described, 1)
        self._by_field[number] = self._kind(group, name, members)

    def _make_generic(self, fields: list[tuple[int, int | bytes]]) -> bytes | None:
        name = _first_text(fields, 1)
        members: list[tuple[int | str, str, str]] = []
        values: list[tuple[int | str, int | bytes]] = []
        for place, of in fields:
            if place != 2 or not isinstance(of, bytes):
                continue
            member = _perfetto.read_fields(of)[0]
            title = _first_text(member, 1)
            held = next(((f, v) for f, v in member if f in {3, 4, 5}), None)
            if held is None:
                continue
            how = {3: "text", 4: "s64", 5: "u64"}[held[0]]
            members.append((title, how, title))
            values.append((title, held[1]))
        kind = self._kind(_GROUP, name, members)
        return None if kind is None else _pack(kind, values)

    def _kind(
        self, group: str, name: str, members: list[tuple[int | str, str, str]]
    ) -> _DescribedEvent | None:
        """Return a kind of event, with the members that have a usable name."""
        usable: dict[str, tuple[int | str, str]] = {}
        for key, how, title in members:
            if _PLAIN.fullmatch(title) and not title.startswith("common_") and len(usable) < 64:
                usable.setdefault(title, (key, how))
        signature = f"{group}/{name}", tuple((title, how) for title, (_, how) in usable.items())
        if signature in self._kinds:
            return self._kinds[signature]
        if not _PLAIN.fullmatch(name) or len(self._kinds) >= _MOST:
            return None
        number = _FIRST + len(self._kinds)
        slots, size = place_slots([(0, how, title) for title, (_, how) in usable.items()])
        keyed = {key: slot for (key, _), slot in zip(usable.values(), slots, strict=True)}
        # Of several shapes of one event, each after the first has its number in the name.
        same = sum(known[0] == signature[0] for known in self._kinds)
        title = f"{name}_{same + 1}" if same else name
        form = self._writer.add_format(group, format_text(title, number, slots))
        kind = _DescribedEvent(number, keyed, size) if form is not None else None
        self._kinds[signature] = kind
        return kind


def _first_text(fields: list[tuple[int, int | bytes]], number: int) -> str:
    found = next((v for f, v in fields if f == number and isinstance(v, bytes)), b"")
    return found.decode("utf-8", "replace")


def _pack(kind: _DescribedEvent, values: list[tuple[int | str, int | bytes]]) -> bytes:
    """Return a record of an event."""
    made = bytearray(kind.size)
    made[:2] = kind.number.to_bytes(2, "little")
    for key, value in values:
        slot = kind.slots.get(key)
        if slot is None:
            continue
        if slot.way == FieldWay.NUMBER and isinstance(value, int):
            made[slot.offset : slot.offset + 8] = (value & (1 << 64) - 1).to_bytes(8, "little")
        elif slot.way == FieldWay.LOCATED and isinstance(value, bytes):
            content = value[:4096] + b"\0"
            place = len(content) << 16 | len(made)
            if len(made) + len(content) < 1 << 14:
                made[slot.offset : slot.offset + 4] = place.to_bytes(4, "little")
                made += content
    return bytes(made)
