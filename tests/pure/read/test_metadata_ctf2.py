"""Each construct of CTF 2 metadata, from small fragments, and the real CTF 2 traces."""

from __future__ import annotations

import json

import pytest

from critpath.errors import MetadataError
from critpath.read.metadata.load import read_metadata, read_metadata_bytes
from critpath.read.metadata.schema import (
    ArrayClass,
    ClockClass,
    FloatClass,
    IntegerClass,
    Option,
    StringClass,
    StructureClass,
    TextClass,
    VarintClass,
)

PREAMBLE = {"type": "preamble", "version": 2}
U8 = {"type": "fixed-length-unsigned-integer", "length": 8, "byte-order": "little-endian"}


SIGNED = U8 | {"type": "fixed-length-signed-integer"}


def text(*fragments):
    return "".join("\x1e" + json.dumps(f, indent=1) + "\n" for f in fragments)


def parse(*fragments):
    return read_metadata_bytes(text(PREAMBLE, *fragments).encode(), "metadata")


def structure(more=None, **members):
    listed = [{"name": n, "field-class": f} for n, f in members.items()]
    return {"type": "structure", "member-classes": listed} | (more or {})


def payload(before=(), **members):
    stream = {"type": "data-stream-class"}
    event = {"type": "event-record-class", "payload-field-class": structure(**members)}
    return parse(*before, stream, event).streams[0].events[0].payload


def field(of, **how):
    return payload(x=of, **how).members[-1].field


def fault(*fragments):
    with pytest.raises(MetadataError) as caught:
        parse(*fragments)
    return caught.value


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, IntegerClass(8)),
        ({"alignment": 8, "preferred-display-base": 16}, IntegerClass(8, align=8, base=16)),
        ({"byte-order": "big-endian"}, IntegerClass(8, big_endian=True)),
        ({"bit-order": "first-to-last"}, IntegerClass(8)),
        ({"bit-order": "last-to-first"}, IntegerClass(8, bit_reversed=True)),
        (
            {"byte-order": "big-endian", "bit-order": "first-to-last"},
            IntegerClass(8, big_endian=True, bit_reversed=True),
        ),
        (
            {"byte-order": "big-endian", "bit-order": "last-to-first"},
            IntegerClass(8, big_endian=True),
        ),
        ({"type": "fixed-length-signed-integer"}, IntegerClass(8, signed=True)),
        ({"type": "fixed-length-bit-array", "length": 12}, IntegerClass(12)),
        ({"type": "fixed-length-boolean"}, IntegerClass(8)),
        (
            {"type": "fixed-length-bit-map", "flags": {"a": [[0, 0]], "b": [[2, 3]]}},
            IntegerClass(8, mappings=(("a", ((0, 0),)), ("b", ((2, 3),)))),
        ),
        (
            {"mappings": {"a": [[1, 2], [5, 5]]}},
            IntegerClass(8, mappings=(("a", ((1, 2), (5, 5))),)),
        ),
        (
            {"type": "fixed-length-signed-enumeration", "mappings": {"a": [[-1, 2]]}},
            IntegerClass(8, signed=True, mappings=(("a", ((-1, 2),)),)),
        ),
        ({"type": "fixed-length-floating-point-number", "length": 32}, FloatClass(32)),
        (
            {"roles": ["packet-magic-number"]},
            IntegerClass(8, roles=frozenset(["packet-magic-number"])),
        ),
    ],
)
def test_fixed_length_numbers(more, expected):
    assert field(U8 | more) == expected


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        ({"type": "variable-length-unsigned-integer"}, VarintClass()),
        (
            {"type": "variable-length-signed-integer", "mappings": {"a": [[-3, -2]]}},
            VarintClass(signed=True, mappings=(("a", ((-3, -2),)),)),
        ),
        ({"type": "null-terminated-string"}, StringClass()),
        ({"type": "null-terminated-string", "encoding": "utf-16le"}, StringClass("utf-16-le")),
        ({"type": "static-length-string", "length": 5}, TextClass(5)),
        ({"type": "static-length-blob", "length": 5}, TextClass(5, blob=True)),
        (
            {"type": "static-length-array", "length": 3, "element-field-class": U8},
            ArrayClass(IntegerClass(8), 3),
        ),
        (
            {
                "type": "static-length-array",
                "length": 3,
                "element-field-class": U8 | {"alignment": 8},
                "minimum-alignment": 32,
            },
            ArrayClass(IntegerClass(8, align=8), 3, 32),
        ),
        (structure({"minimum-alignment": 16}), StructureClass((), 16)),
    ],
)
def test_other_field_classes(of, expected):
    assert field(of) == expected


def dynamic(location, what="array"):
    of = {"type": f"dynamic-length-{what}", "length-field-location": location}
    return of | ({"element-field-class": U8} if what == "array" else {})


@pytest.mark.parametrize("what", ["array", "string", "blob"])
def test_dynamic_lengths(what):
    found = payload(n=U8, x=dynamic({"path": ["n"]}, what)).members[1].field
    assert found.length == ("event-payload", "n")


def test_locations_relative_to_parents_and_with_origin():
    inner = structure(
        m=U8,
        near=dynamic({"path": ["m"]}),
        above=dynamic({"path": [None, "n"]}),
        whole=dynamic({"origin": "event-record-payload", "path": ["n"]}),
        here=dynamic({"origin": "event-record-payload", "path": ["s", "m"]}),
        around=dynamic({"path": [None, "s", "m"]}),
        old=dynamic(["event-record-payload", "n"]),
    )
    found = payload(n=U8, s=inner).members[1].field
    assert [m.field.length for m in found.members[1:]] == [
        ("event-payload", "s", "m"),
        ("event-payload", "n"),
        ("event-payload", "n"),
        ("event-payload", "s", "m"),
        ("event-payload", "s", "m"),
        ("event-payload", "n"),
    ]


def test_locations_in_earlier_scopes_and_inside_elements():
    stream = {
        "type": "data-stream-class",
        "packet-context-field-class": structure(p=structure(q=U8)),
        "event-record-common-context-field-class": structure(c=U8),
    }
    element = structure(n=U8, x=dynamic({"path": ["n"]}))
    event = {
        "type": "event-record-class",
        "specific-context-field-class": structure(
            x=dynamic({"origin": "packet-context", "path": ["p", "q"]})
        ),
        "payload-field-class": structure(
            x=dynamic({"origin": "event-record-common-context", "path": ["c"]}),
            y={"type": "static-length-array", "length": 2, "element-field-class": element},
        ),
    }
    found = parse(stream, event).streams[0].events[0]
    assert found.context.members[0].field.length == ("packet-context", "p", "q")
    assert found.payload.members[0].field.length == ("event-common-context", "c")
    inner = found.payload.members[1].field.element.members[1].field
    assert inner.length == ("event-payload", "y", "n")


def test_variants_and_optionals():
    variant = {
        "type": "variant",
        "selector-field-location": {"path": ["n"]},
        "options": [
            {"name": "a", "field-class": U8, "selector-field-ranges": [[0, 3], [9, 9]]},
            {"field-class": structure(m=U8), "selector-field-ranges": [[-1, 70]]},
        ],
    }
    optional = {
        "type": "optional",
        "selector-field-location": {"path": ["n"]},
        "field-class": U8,
    }
    found = payload(
        n=U8,
        v=variant,
        o=optional,
        r=optional | {"selector-field-ranges": [[1, 2]]},
        through=dynamic({"path": ["v", "m"]}),
    )
    choice, maybe, ranged, through = (m.field for m in found.members[1:])
    assert choice.selector == ("event-payload", "n")
    assert choice.options[0] == Option("a", ((0, 3), (9, 9)), IntegerClass(8))
    assert (choice.options[1].name, choice.options[1].ranges) == ("1", ((-1, 70),))
    assert (maybe.optional, maybe.options[0].ranges) == (True, ())
    assert (ranged.optional, ranged.options[0].ranges) == (True, ((1, 2),))
    assert through.length == ("event-payload", "v", "m")


def test_aliases():
    before = [
        {"type": "field-class-alias", "name": "byte", "field-class": U8},
        {"type": "field-class-alias", "name": "pair", "field-class": structure(a="byte", b="byte")},
    ]
    found = payload(before, x="pair")
    assert [m.field for m in found.members[0].field.members] == [IntegerClass(8)] * 2


def test_traces_clocks_and_streams():
    uuid = list(range(16))
    clock = {
        "type": "clock-class",
        "id": "c",
        "name": "monotonic",
        "uid": "abc",
        "frequency": 1000,
        "origin": "unix-epoch",
        "offset-from-origin": {"seconds": -5, "cycles": 7},
        "description": "d",
        "precision": 3,
        "accuracy": 2,
    }
    stamp = U8 | {"length": 64, "roles": ["default-clock-timestamp"]}
    fragments = [
        {"type": "preamble", "version": 2, "uuid": uuid},
        {
            "type": "trace-class",
            "name": "t",
            "environment": {"a": 1, "b": "x"},
            "packet-header-field-class": structure(
                u={"type": "static-length-blob", "length": 16, "roles": ["metadata-stream-uuid"]}
            ),
        },
        clock,
        {
            "type": "data-stream-class",
            "id": 5,
            "default-clock-class-id": "c",
            "event-record-header-field-class": structure(t=stamp),
        },
        {"type": "event-record-class", "data-stream-class-id": 5, "id": 3, "name": "e"},
    ]
    trace = read_metadata_bytes(text(*fragments).encode(), "metadata")
    assert trace.version == (2, 0)
    assert trace.uuid == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert trace.environment.saved() == {"a": 1, "b": "x"}
    assert trace.packet_header.members[0].field.roles == {"metadata-stream-uuid"}
    assert trace.clocks == {"c": ClockClass("monotonic", 1000, -5, 7, "abc", True, "d")}
    assert trace.streams[5].clock == "c"
    assert trace.streams[5].event_header.members[0].field.clock == "c"
    assert trace.streams[5].events[3].name == "e"


STREAM = {"type": "data-stream-class"}


def event(**members):
    return {"type": "event-record-class", "payload-field-class": structure(**members)}


@pytest.mark.parametrize(
    ("fragments", "message"),
    [
        ([{"type": "preamble", "version": 2}], "preamble is not the first"),
        ([STREAM, STREAM], "described twice"),
        ([event(x=U8)], "not described before"),
        ([STREAM, event(x=U8), event(x=U8)], "described twice"),
        ([STREAM, event(x=U8 | {"length": 65})], "event-payload.x: the property 'length' is 65"),
        ([STREAM, event(x=U8 | {"length": True})], "'length' is True"),
        ([STREAM, event(x=U8 | {"alignment": 3})], "power of two"),
        ([STREAM, event(x=U8 | {"byte-order": "up"})], "unknown byte order 'up'"),
        ([STREAM, event(x={"type": "fixed-length-rope"})], "unknown field class"),
        ([STREAM, event(x={"type": "structures"})], "unknown field class"),
        ([STREAM, event(x={})], "the property 'type' is missing"),
        ([STREAM, event(x="ghost")], "unknown field class alias 'ghost'"),
        ([STREAM, event(x=3)], "3 is no field class"),
        ([STREAM, event(x=U8 | {"mappings": {"a": [[2, 1]]}})], "is no range"),
        ([STREAM, event(x=U8 | {"mappings": {"a": [[0, 1 << 70]]}})], "is no range"),
        ([STREAM, event(x=dynamic({"path": ["x"]}))], "leads to no earlier integer"),
        ([STREAM, event(x=dynamic({"path": [None, "x"]}))], "leads to no earlier integer"),
        ([STREAM, event(x=dynamic({"path": []}))], "leads to no field"),
        ([STREAM, event(x=dynamic({"path": [["x"]]}))], "leads to no field"),
        ([STREAM, event(x=dynamic([["x"], "y"]))], "leads to no field"),
        ([STREAM, event(x=dynamic({"origin": "moon", "path": ["x"]}))], "unknown origin"),
        ([STREAM, event(n=SIGNED, x=dynamic({"path": ["n"]}))], "is signed"),
        ([{"type": "trace-class", "packet-header-field-class": U8}], "is no structure"),
        ([{"type": "trace-class", "packet-header-field-class": dynamic({"path": ["n"]})}],
         "leads to no earlier integer"),
        ([{"type": "trace-class", "extensions": {"a": {}}}], "unknown extension"),
        ([STREAM | {"default-clock-class-id": "c"}], "not described"),
        ([{"type": "clock-class", "id": "c", "frequency": 0}], "frequency is 0"),
        ([{"type": "field-class-alias", "name": "a", "field-class": "a"}, STREAM, event(x="a")],
         "nest deeper"),
    ],
)  # fmt: skip
def test_faults(fragments, message):
    assert message in fault(*fragments).message


def test_faults_name_the_line_of_their_fragment():
    data = text(PREAMBLE, STREAM)
    before = data.count("\n")
    with pytest.raises(MetadataError) as caught:
        read_metadata_bytes((data + '\x1e{"type":\n\n]}').encode(), "metadata")
    assert caught.value.line == before + 3
    assert fault(STREAM, event(x="ghost")).line == before + 1


@pytest.mark.parametrize(
    "data", ["\x1e[]", "\x1e1", '\x1e{"type": 3}', "\x1e", "\x1e" + "[" * 10**5]
)
def test_no_fragments(data):
    with pytest.raises(MetadataError):
        read_metadata_bytes(data.encode(), "metadata")


def test_unknown_fragments_are_warned_of():
    assert parse({"type": "poem"}).warnings == ("unknown metadata fragment 'poem' ignored",)


def test_aliases_of_aliases_stay_within_bounds():
    """Each is two of the one before: the last is of more fields than there may be."""
    aliases = [{"type": "field-class-alias", "name": "a0", "field-class": U8}]
    for i in range(24):
        both = structure(x=f"a{i}", y=f"a{i}")
        aliases.append({"type": "field-class-alias", "name": f"a{i + 1}", "field-class": both})
    assert "more than" in fault(*aliases, STREAM, event(x="a24")).message


@pytest.mark.parametrize(
    ("name", "events", "clock"),
    [
        ("CTF2-7.0-debug-info", 2, "monotonic"),
        ("CTF2-7.0-lttng-crash", 1, "monotonic"),
        ("CTF2-7.0-smalltrace", 1, ""),
        ("CTF2-7.0-trace-with-index", 1, "monotonic"),
        ("CTF2-vl-ints", 1, ""),
    ],
)
def test_real_traces(shared, name, events, clock):
    trace = read_metadata(shared("ctf2") / name)
    (stream,) = trace.streams.values()
    assert (len(stream.events), stream.clock, trace.warnings) == (events, clock, ())
    if clock:
        variant = stream.event_header.members[1].field
        assert variant.selector == ("event-header", "id")
        assert variant.options[1].ranges == ((65535, 65535),)
