"""A trace's description as CTF 2 metadata in LTTng 2.15's spelling.

What LTTng writes was read off its sources (lttng-modules, ctf-2 metadata): namespace, name
and uid instead of a uuid, aliases for the packet header, the packet context and the record
headers of kernel traces, field locations that name a sibling and no origin, the clock's
origin by its name, mappings instead of enumerations, the packet's uuid as a blob.  The
bytes of the packets are those of CTF 1.8, so a real trace can be read both ways.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from critpath.read.metadata.schema import (
    ArrayClass,
    FieldClass,
    IntegerClass,
    StringClass,
    StructureClass,
    TraceClass,
    VariantClass,
)

NAMESPACE = "lttng.org,2009"


def as_ctf2(trace: TraceClass, *, aliases: bool) -> bytes:
    """Return the metadata; with aliases as lttng-modules, without as lttng-sessiond."""
    return b"".join(
        b"\x1e" + json.dumps(f, separators=(",", ":")).encode() for f in _fragments(trace, aliases)
    )


def _fragments(trace: TraceClass, aliases: bool) -> Iterator[dict[str, Any]]:
    uid = uuid.UUID(trace.uuid)
    yield {"type": "preamble", "version": 2, "uuid": list(uid.bytes)}

    def scope(name: str, of: StructureClass | None) -> Iterator[tuple[str, Any]]:
        """Yield a scope's field class, by the name of an alias where it has been given one."""
        if of is not None:
            written = _field(of, prefixed=False)
            yield name, (_ALIAS.get(name, written) if aliases else written)

    streams = tuple(trace.streams.values())
    if aliases:
        for name, of in (
            ("event-record-header-field-class", streams[0].event_header),
            ("packet-context-field-class", streams[0].packet_context),
            ("packet-header-field-class", trace.packet_header),
        ):
            assert of is not None
            yield {
                "type": "field-class-alias",
                "name": _ALIAS[name],
                "field-class": _field(of, prefixed=False),
            }
    yield {
        "type": "trace-class",
        "namespace": NAMESPACE,
        "name": "",
        "uid": str(uid),
        "environment": trace.environment.saved(),
        **dict(scope("packet-header-field-class", trace.packet_header)),
    }
    for clock in trace.clocks.values():
        yield {
            "type": "clock-class",
            "id": clock.name,
            "name": clock.name,
            "uid": clock.uuid,
            "description": clock.description,
            "frequency": clock.frequency,
            "origin": "unix-epoch",
            "offset-from-origin": dict(
                zip(("seconds", "cycles"), divmod(clock.offset, clock.frequency), strict=True)
            ),
        }
    for stream in streams:
        yield {
            "type": "data-stream-class",
            "id": stream.id,
            "default-clock-class-id": stream.clock,
            **dict(scope("packet-context-field-class", stream.packet_context)),
            **dict(scope("event-record-header-field-class", stream.event_header)),
            **(
                {"event-record-common-context-field-class": _field(stream.event_context)}
                if stream.event_context
                else {}
            ),
        }
        for event in stream.events.values():
            yield {
                "type": "event-record-class",
                "data-stream-class-id": stream.id,
                "id": event.id,
                "name": event.name,
                **({} if aliases else {"attributes": {NAMESPACE: {"log-level": 13}}}),
                "payload-field-class": _field(event.payload or StructureClass()),
            }


_ALIAS = {
    "packet-header-field-class": "pkt-header",
    "packet-context-field-class": "pkt-ctx",
    "event-record-header-field-class": "er-header",
}


def _field(of: FieldClass, *, prefixed: bool = True) -> dict[str, Any]:
    """Return a field class as LTTng writes it; CTF 1.8 put a ``_`` before names of events'."""
    if isinstance(of, IntegerClass):
        written: dict[str, Any] = {
            "type": f"fixed-length-{'signed' if of.signed else 'unsigned'}-integer",
            "length": of.bits,
            "byte-order": "big-endian" if of.big_endian else "little-endian",
        }
        if of.align > 1:
            written["alignment"] = of.align
        if of.base != 10:
            written["preferred-display-base"] = of.base
        if of.mappings:
            written["mappings"] = {name: [list(r) for r in ranges] for name, ranges in of.mappings}
        if of.roles:
            written["roles"] = sorted(of.roles)
        return written
    if isinstance(of, StringClass):
        return {"type": "null-terminated-string"}
    if isinstance(of, ArrayClass):
        return _array(of)
    if isinstance(of, VariantClass):
        return {
            "type": "variant",
            "selector-field-location": {"path": [_name(of.selector[-1], prefixed=prefixed)]},
            "options": [
                {
                    "name": option.name,
                    "selector-field-ranges": [list(r) for r in option.ranges],
                    "field-class": _field(option.field, prefixed=prefixed),
                }
                for option in of.options
            ],
        }
    assert isinstance(of, StructureClass)
    members = [
        {
            "name": _name(member.name, prefixed=prefixed),
            "field-class": _field(member.field, prefixed=prefixed),
        }
        for member in of.members
    ]
    alignment = {"minimum-alignment": of.align} if of.align > 1 else {}
    return {"type": "structure", **alignment, "member-classes": members}


def _name(name: str, *, prefixed: bool) -> str:
    return name.removeprefix("_") if prefixed else name


def _array(of: ArrayClass) -> dict[str, Any]:
    if "metadata-stream-uuid" in of.roles:
        return {"type": "static-length-blob", "length": of.length, "roles": sorted(of.roles)}
    text = isinstance(of.element, IntegerClass) and of.element.text
    length: dict[str, Any]
    if isinstance(of.length, int):
        written = "static-length-string" if text else "static-length-array"
        length = {"length": of.length}
    else:
        written = "dynamic-length-string" if text else "dynamic-length-array"
        length = {"length-field-location": {"path": [_name(of.length[-1], prefixed=True)]}}
    if text:
        return {"type": written, **length}
    alignment = {"minimum-alignment": of.align} if of.align > 1 else {}
    return {"type": written, **alignment, "element-field-class": _field(of.element), **length}
