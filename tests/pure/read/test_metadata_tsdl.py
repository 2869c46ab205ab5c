"""Each construct of TSDL, from small texts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from critpath.errors import MetadataError
from critpath.read.metadata.load import read_metadata_bytes
from critpath.read.metadata.schema import (
    ArrayClass,
    FloatClass,
    IntegerClass,
    Option,
    StringClass,
    StructureClass,
    VariantClass,
)

TYPES = """
typealias integer { size = 8; } := uint8_t;
typealias integer { size = 16; } := uint16_t;
typealias integer { size = 32; } := uint32_t;
typealias integer { size = 64; signed = true; } := int64_t;
"""
U8, U16, U32 = IntegerClass(8, align=8), IntegerClass(16, align=8), IntegerClass(32, align=8)


def parse(text, *, order="le"):
    trace = f"/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = {order}; }};"
    return read_metadata_bytes((trace + text).encode(), "metadata")


def payload(fields, before=TYPES, **how):
    """The payload of an event with these fields."""
    text = f"{before} event {{ name = e; fields := struct {{ {fields} }}; }};"
    return parse(text, **how).streams[0].events[0].payload


def field(text, **how):
    return payload(text, **how).members[-1].field


def fault(text):
    """The line and message of the fault in a text after a good first line."""
    with pytest.raises(MetadataError) as caught:
        parse("\n" + text)
    return caught.value.line, caught.value.message


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("size = 32;", IntegerClass(32, align=8)),
        ("size = 5;", IntegerClass(5, align=1)),
        ("size = 0x20; align = 32;", IntegerClass(32, align=32)),
        ("size = 8; signed = true;", IntegerClass(8, signed=True, align=8)),
        ("size = 8; signed = 1;", IntegerClass(8, signed=True, align=8)),
        ("size = 8; signed = false;", IntegerClass(8, align=8)),
        ("size = 8; byte_order = be;", IntegerClass(8, big_endian=True, align=8)),
        ("size = 8; byte_order = network;", IntegerClass(8, big_endian=True, align=8)),
        ("size = 8; byte_order = le;", IntegerClass(8, align=8)),
        ("size = 8; byte_order = native;", IntegerClass(8, align=8)),
        ("size = 8; base = hex;", IntegerClass(8, align=8, base=16)),
        ("size = 8; base = x;", IntegerClass(8, align=8, base=16)),
        ("size = 8; base = oct;", IntegerClass(8, align=8, base=8)),
        ("size = 8; base = binary;", IntegerClass(8, align=8, base=2)),
        ("size = 8; base = 16;", IntegerClass(8, align=8, base=16)),
        ('size = 8; base = "decimal";', IntegerClass(8, align=8, base=10)),
        ("size = 8; encoding = UTF8;", IntegerClass(8, align=8, text=True)),
        ("size = 8; encoding = ASCII;", IntegerClass(8, align=8, text=True)),
        ("size = 8; encoding = none;", IntegerClass(8, align=8)),
        ("size = 8; map = clock.mono.value;", IntegerClass(8, align=8, clock="mono")),
        ("size = 040;", IntegerClass(32, align=8)),
        ("size = 32ULL;", IntegerClass(32, align=8)),
    ],
)
@pytest.mark.parametrize("spelling", ["integer {{ {} }}", "integer /* c */ {{ {} // d\n }}"])
def test_integers(attributes, expected, spelling):
    assert field(f"{spelling.format(attributes)} x;") == expected


def test_native_byte_order_is_that_of_the_trace_even_before_its_block():
    text = b"typealias integer { size = 16; } := u; trace { byte_order = be; };"
    text += b"event { fields := struct { u x; }; };"
    trace = read_metadata_bytes(text, "metadata")
    assert trace.big_endian
    assert trace.streams[0].events[0].payload.members[0].field.big_endian


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("exp_dig = 8; mant_dig = 24;", FloatClass(32, align=8)),
        ("exp_dig = 11; mant_dig = 53; align = 64;", FloatClass(64, align=64)),
        ("exp_dig = 5; mant_dig = 11; byte_order = be;", FloatClass(16, True, 8)),
        ("exp_dig = 15; mant_dig = 113;", FloatClass(128, align=8)),
    ],
)
def test_floating_point(attributes, expected):
    assert field(f"floating_point {{ {attributes} }} x;") == expected


def test_strings():
    assert field("string x;") == StringClass()
    assert field("string { encoding = UTF8; } x;") == StringClass()


def test_names_of_several_words_and_pointers():
    before = """
    typealias integer { size = 64; } := unsigned long;
    typealias integer { size = 32; } := unsigned int;
    typealias integer { size = 16; } := const char *;
    """
    found = payload("unsigned long a; unsigned int b; const char *c;", before)
    assert [m.field.bits for m in found.members] == [64, 32, 16]
    assert [m.name for m in found.members] == ["a", "b", "c"]


def test_typealias_to_compound_names_and_arrays():
    before = (
        TYPES
        + """
    typealias struct { uint8_t a; } := struct s;
    typealias enum : uint8_t { A, B } := enum e;
    typealias uint8_t [16] := uuid_t;
    """
    )
    found = payload("struct s x; enum e y; uuid_t z;", before)
    assert found.members[0].field.members[0].field == U8
    assert found.members[1].field.mappings == (("A", ((0, 0),)), ("B", ((1, 1),)))
    assert found.members[2].field == ArrayClass(U8, 16, 8)


def test_typedef_of_several_declarators():
    before = TYPES + "typedef uint8_t one, many[3], grid[2][4];"
    found = payload("one a; many b; grid c, d[5];", before)
    assert [m.field for m in found.members] == [
        U8,
        ArrayClass(U8, 3, 8),
        ArrayClass(ArrayClass(U8, 4, 8), 2, 8),
        ArrayClass(ArrayClass(ArrayClass(U8, 4, 8), 2, 8), 5, 8),
    ]


def test_types_are_scoped():
    inner = "typedef uint16_t t; t a; struct { typedef uint32_t t; t b; } s; t c;"
    found = payload(inner, TYPES + "typedef uint8_t t;")
    assert [found.members[0].field, found.members[2].field] == [U16, U16]
    assert found.members[1].field.members[0].field == U32


def test_types_of_a_stream_block_end_with_it():
    text = TYPES + "stream { typedef uint8_t mine; };\nevent { fields := struct { mine x; }; };"
    assert fault(text)[1] == "unknown type 'mine'"


def test_enumerations():
    found = field('enum : uint8_t { A, B = 5, C, "d e" = 10 ... 20, F, A = 30, } x;')
    assert found.bits == 8
    assert found.mappings == (
        ("A", ((0, 0), (30, 30))),
        ("B", ((5, 5),)),
        ("C", ((6, 6),)),
        ("d e", ((10, 20),)),
        ("F", ((21, 21),)),
    )


def test_enumerations_of_signed_and_inline_and_implicit_integers():
    signed = field("enum : int64_t { LOW = -9223372036854775808, NEG = -3 ... -1 } x;")
    assert signed.mappings == (("LOW", ((-(1 << 63),) * 2,)), ("NEG", ((-3, -1),)))
    inline = field("enum : integer { size = 4; } { Z } x;")
    assert (inline.bits, inline.align) == (4, 1)
    before = "typealias integer { size = 32; } := int;"
    assert field("enum { Z } x;", before=before).bits == 32
    named = payload("enum e : uint8_t { Z } a; enum e b;")
    assert named.members[0].field == named.members[1].field


def test_character_constants_and_escapes_in_labels():
    found = field(r"""enum : uint8_t { "a\"\x41\101\n" = 'b' } x;""")
    assert found.mappings == (('a"AA\n', ((98, 98),)),)


def test_alignment_of_structures_is_that_of_their_most_demanding_member():
    assert field("struct { uint8_t a; } x;").align == 8
    assert field("struct { integer { size = 3; } a; } x;").align == 1
    assert field("struct { uint8_t a; } align(32) x;").align == 32
    assert field("struct { uint8_t a; } align(4) x;").align == 8
    assert field("struct { integer { size = 8; align = 64; } a[3]; } x;").align == 64
    assert field("struct { } align(8) x;") == StructureClass((), 8)


def test_sequences_name_their_length_by_its_whole_path():
    found = payload("uint8_t len; uint16_t a[ len ]; struct { uint8_t len; uint8_t b[len][4]; } s;")
    assert found.members[1].field == ArrayClass(U16, ("event-payload", "len"), 8)
    inner = found.members[2].field.members[1].field
    assert inner == ArrayClass(ArrayClass(U8, 4, 8), ("event-payload", "s", "len"), 8)


def test_a_length_in_a_structure_and_the_nearest_of_two():
    found = payload("struct { uint8_t n; } s; uint8_t a[s.n]; struct { uint8_t a[s.n]; } t;")
    assert found.members[1].field.length == ("event-payload", "s", "n")
    assert found.members[2].field.members[0].field.length == ("event-payload", "s", "n")


def test_a_name_that_is_no_integer_is_passed_over():
    text = "uint8_t len; typedef struct { uint8_t a[len]; } F; struct { string len; F x; } s;"
    found = payload(text)
    array = found.members[1].field.members[1].field.members[0].field
    assert array.length == ("event-payload", "len")


SCOPED = (
    TYPES
    + """
stream {
    packet.context := struct { uint8_t p; };
    event.header := struct { uint8_t id; uint8_t h; };
    event.context := struct { uint8_t c; };
};
env { n = 7; };
"""
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("stream.packet.context.p", ("packet-context", "p")),
        ("stream.event.header.h", ("event-header", "h")),
        ("stream.event.context.c", ("event-common-context", "c")),
        ("event.context.s", ("event-specific-context", "s")),
        ("event.fields.f", ("event-payload", "f")),
        ("event.fields.g.inner", ("event-payload", "g", "inner")),
        ("env.n", 7),
        ("p", ("packet-context", "p")),
        ("s", ("event-specific-context", "s")),
    ],
)
def test_dynamic_scopes(path, expected):
    fields = f"uint8_t f; struct {{ uint8_t inner; uint8_t x[{path}]; }} g;"
    text = f"event {{ context := struct {{ uint8_t s; }}; fields := struct {{ {fields} }}; }};"
    found = parse(SCOPED + text).streams[0].events[0].payload
    assert found.members[1].field.members[1].field.length == expected


def test_variants_take_their_ranges_from_the_tag():
    text = """
    enum : uint8_t { A = 0 ... 3, B = 4, A = 9, C = 5 } tag;
    variant <tag> { uint8_t A; string B; uint8_t unheard; } v;
    """
    assert field(text) == VariantClass(
        ("event-payload", "tag"),
        (
            Option("A", ((0, 3), (9, 9)), U8),
            Option("B", ((4, 4),), StringClass()),
            Option("unheard", (), U8),
        ),
    )


def test_variants_named_tagged_later_and_labels_without_underscore():
    text = """
    variant choice { uint8_t _A; uint16_t _B; };
    event { fields := struct {
        enum : uint8_t { A, B } one;
        struct { enum : uint8_t { B, A } two; variant choice <two> x; } s;
        variant choice <one> y;
    }; };
    """
    found = parse(TYPES + text).streams[0].events[0].payload
    inner = found.members[1].field.members[1].field
    assert inner.selector == ("event-payload", "s", "two")
    assert [(o.name, o.ranges) for o in inner.options] == [("_A", ((1, 1),)), ("_B", ((0, 0),))]
    assert found.members[2].field.selector == ("event-payload", "one")
    assert found.members[2].field.options[0].ranges == ((0, 0),)


LTTNG = """
typealias integer { size = 5; align = 1; } := uint5_t;
typealias integer { size = 27; align = 1; map = clock.monotonic.value; } := uint27_t;
typealias integer { size = 64; map = clock.monotonic.value; } := uint64_clock_t;
clock {
    name = "monotonic"; uuid = "69925478-1BA2-4d91-be63-a365cc4ef102";
    description = "Monotonic \\"Clock\\""; freq = 1000; offset_s = -2; offset = 5; absolute = true;
    precision = 10;
};
struct event_header {
    enum : uint5_t { compact = 0 ... 30, extended = 31 } id;
    variant <id> {
        struct { uint27_t timestamp; } compact;
        struct { uint32_t id; uint64_clock_t timestamp; } extended;
    } v;
} align(8);
stream { id = 3; event.header := struct event_header;
    packet.context := struct { uint64_clock_t timestamp_begin; uint64_clock_t timestamp_end;
        uint32_t content_size, packet_size, packet_seq_num, events_discarded, cpu_id; }; };
event { name = "a:b"; id = 7; stream_id = 3; loglevel = 13; model.emf.uri = "http://x/"; };
"""


def test_roles_and_clocks_of_an_lttng_stream():
    trace = parse(TYPES + LTTNG)
    stream = trace.streams[3]
    assert stream.events[7].name == "a:b"
    assert stream.clock == "monotonic"
    roles = {m.name: m.field.roles for m in stream.packet_context.members}
    assert roles == {
        "timestamp_begin": {"default-clock-timestamp"},
        "timestamp_end": {"packet-end-default-clock-timestamp"},
        "content_size": {"packet-content-length"},
        "packet_size": {"packet-total-length"},
        "packet_seq_num": {"packet-sequence-number"},
        "events_discarded": {"discarded-event-record-counter-snapshot"},
        "cpu_id": set(),
    }
    identifier, variant = stream.event_header.members
    assert identifier.field.roles == {"event-record-class-id"}
    assert stream.event_header.align == 8
    assert variant.field.selector == ("event-header", "id")
    compact, extended = variant.field.options
    assert compact.ranges == ((0, 30),)
    assert compact.field.members[0].field == IntegerClass(
        27, align=1, clock="monotonic", roles=frozenset(["default-clock-timestamp"])
    )
    assert [m.field.roles for m in extended.field.members] == [
        {"event-record-class-id"},
        {"default-clock-timestamp"},
    ]
    clock = trace.clocks["monotonic"]
    assert (clock.frequency, clock.offset_seconds, clock.offset, clock.absolute) == (
        *(1000, -2, 5),
        True,
    )
    assert clock.uuid == "69925478-1ba2-4d91-be63-a365cc4ef102"
    assert clock.description == 'Monotonic "Clock"'


def test_packet_header_roles():
    text = f"""{TYPES} trace {{ major = 1; minor = 8; byte_order = le;
    uuid = "2a6422d0-6cee-11e0-8c08-cb07d7b3a564";
    packet.header := struct {{ uint32_t magic; uint8_t uuid[16]; uint32_t stream_id;
    uint32_t stream_instance_id; }}; }};"""
    trace = read_metadata_bytes(text.encode(), "metadata")
    assert trace.uuid == "2a6422d0-6cee-11e0-8c08-cb07d7b3a564"
    assert [set(m.field.roles) for m in trace.packet_header.members] == [
        {"packet-magic-number"},
        {"metadata-stream-uuid"},
        {"data-stream-class-id"},
        {"data-stream-id"},
    ]


def test_a_uuid_is_16_bytes_and_nothing_else():
    for element in ("uint16_t uuid[16]", "uint8_t uuid[15]", "string uuid[16]"):
        text = f"{TYPES} trace {{ byte_order = le; packet.header := struct {{ {element}; }}; }};"
        trace = read_metadata_bytes(text.encode(), "metadata")
        assert trace.packet_header.members[0].field.roles == frozenset()


def test_timestamps_without_a_map_count_the_only_clock():
    text = "clock { name = c; }; stream { event.header := struct { uint32_t timestamp; }; };"
    stream = parse(TYPES + text).streams[0]
    assert (stream.clock, stream.event_header.members[0].field.clock) == ("c", "c")


def test_a_clock_that_is_not_described_is_warned_of():
    trace = parse("typealias integer { size = 8; map = clock.ghost.value; } := t;")
    assert trace.clocks["ghost"].frequency == 1_000_000_000
    assert trace.warnings == ("clock 'ghost' is not described: 1 GHz assumed",)


def test_timestamps_of_a_clock_that_is_not_among_those_described_are_refused():
    text = (
        "clock { name = c; }; typealias integer { size = 8; map = clock.ghost.value; } := t;"
        "stream { event.header := struct { t timestamp; }; };"
    )
    with pytest.raises(MetadataError, match="clock 'ghost' is not among those described"):
        parse(TYPES + text)


def test_environment_and_ignored_blocks():
    trace = parse(
        r'env { a = "x\ty\0hidden"; b = -5; c = 0x10; }; callsite { name = "f"; line = 3; };'
    )
    assert trace.environment.saved() == {"a": "x\ty", "b": -5, "c": 16}


def test_events_without_streams_and_with_the_only_stream():
    assert parse("event { id = 4; };").streams[0].events[4].id == 4
    assert 4 in parse("stream { id = 2; }; event { id = 4; };").streams[2].events


def test_field_names_stay_as_written():
    found = payload("uint8_t _a, __b, a;")
    assert [m.name for m in found.members] == ["_a", "__b", "a"]


def test_identical_types_are_shared():
    text = "integer { size = 8; } _x; integer { size = 8; } _y;"
    found = payload(text)
    assert found.members[0].field is found.members[1].field
    assert replace(found.members[0].field) == found.members[0].field


def test_unknown_attributes_are_warned_of():
    trace = parse("typealias integer { size = 8; colour = red; } := t; stream { smell = 1; };")
    assert trace.warnings == (
        "unknown attribute 'colour' of 'integer' ignored",
        "unknown attribute 'smell' of 'stream' ignored",
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("\n\ntypealias integer {\n align = 8;\n size = 65; } := t;", 6, "'size' is 65"),
        ("typealias integer {\n\n align = 3; size = 8; } := t;", 4, "no power of two"),
        ("typealias integer { /* c\n */\n size = 8; signed = maybe; } := t;", 4, "no boolean"),
        ("struct s { unheard x; };", 2, "unknown type 'unheard'"),
        ("struct s {\n integer { size = 8; } x;\n string x; };", 4, "two members"),
        ("struct s { string x\n };", 3, "expected ';'"),
        ("struct s { string x;\n", 3, "expected a name, found the end"),
        ('env { a = "b\n"; };', 2, "a string without end"),
        ("env { a = 1 2; };", 2, "not one word"),
        ("env { a = ; };", 2, "no value"),
        ("event { id = -1; };", 2, "'id' is '-1'"),
        ("event { id = 1; };\nevent { id = 1; };", 3, "comes twice"),
        ("stream { id = 1; };\nstream { id = 1; };", 3, "described twice"),
        ("stream { id = 1; };\nevent { stream_id = 2; };", 3, "missing"),
        ("stream { id = 1; };\nstream { id = 2; };\nevent { };", 4, "does not say"),
        ("event {\n fields := string; };", 3, "no structure"),
        ("event {\n fields := struct { string a[n]; }; };", 3, "names no integer"),
        ("event {\n fields := struct {\n string n; string a[n]; }; };", 4, "names no integer"),
        ("event {\n fields := struct {\n variant { string a; } v; }; };", 4, "no tag"),
        ("clock {\n freq = 0; name = a; };", 3, "'freq' is '0'"),
        ("clock { freq = 1; };", 2, "without a name"),
        ("typealias floating_point { exp_dig = 8; mant_dig = 25; } := f;", 2, "IEEE 754"),
        ("typealias string := s;\nenum e : s { A };", 3, "no integers"),
        ("typealias integer { size = 8; } := trace;", 2, "expected a name"),
        ("trace { major = 1; };", 2, "not one 'trace' block"),
        ("@", 2, "expected a name, found '@'"),
        ("/* never closed", 2, "expected a name"),
    ],
)
def test_faults_name_their_line(text, line, message):
    at, said = fault(text)
    assert (at, message in said) == (line, True), said


def test_lengths_and_tags_of_the_wrong_kind():
    signed = "event { fields := struct { int64_t n; string a[n]; }; };"
    assert "is signed" in fault(TYPES + signed)[1]
    plain = "event { fields := struct { uint8_t n; variant <n> { string a; } v; }; };"
    assert "is no enumeration" in fault(TYPES + plain)[1]
    later = "event { fields := struct { string a[n]; uint8_t n; }; };"
    assert "decoded earlier" in fault(TYPES + later)[1]


def test_the_error_names_file_and_line():
    with pytest.raises(MetadataError) as caught:
        read_metadata_bytes(b"/* CTF 1.8 */\ntrace { byte_order = up; };", "some/metadata")
    assert str(caught.value) == "some/metadata:2: 'up' is no byte order"
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("version", ["1.7", "2.0", "1000000000000.8"])
def test_other_versions_are_refused(version):
    with pytest.raises(MetadataError, match="no version that TSDL describes"):
        read_metadata_bytes(f"/* CTF {version} */".encode(), "metadata")
