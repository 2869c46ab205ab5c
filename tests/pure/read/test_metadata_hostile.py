"""Metadata made to break parsers: always an error with a line, soon, in little memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.errors import MetadataError, UnreadableError
from critpath.read.metadata.load import _unpack, read_metadata, read_metadata_bytes

HEAD = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };\n"
INT = "typealias integer { size = 8; } := t;\n"

WORDS = [
    *("align", "callsite", "const", "clock", "enum", "env", "event", "floating_point", "integer"),
    *("stream", "string", "struct", "trace", "typealias", "typedef", "variant", "int", "long"),
    *("unsigned", "uint8_t", "uint32_t", "name", "id", "a", "b", "_c", "size", "signed", "base"),
    *("byte_order", "encoding", "map", "true", "le", "be", "hex", "exp_dig", "mant_dig", "uuid"),
    *("fields", "context", "packet", "header", "stream_id", "freq", "offset", "major", "minor"),
]
MARKS = ["{", "}", "[", "]", "(", ")", "<", ">", ";", ":", ":=", "=", ",", ".", "...", "->", "-"]
LITERALS = [
    *("0", "1", "8", "0x20", "9" * 30, "08", "1_", '"x"', '"', "'a'", "'", chr(92), "/*", "//\n"),
]
BLOCKS = [
    "integer { size = 8; }",
    "integer { size = 8; align = 8; signed = 1; }",
    "struct { uint8_t a; }",
    "variant <a> { uint8_t b; }",
    "enum : uint8_t { b, a = 5 ... 8 }",
    "event { name = a; fields := struct { uint8_t a; uint8_t b[a]; }; };",
    "stream { id = 1; };",
    "\n",
]
SOUP = st.lists(st.sampled_from(WORDS + MARKS + LITERALS + BLOCKS), max_size=40)


def accepted_or_metadata_error(data):
    """The trace class, or None after an error with a line of the text; else the test fails."""
    try:
        return read_metadata_bytes(data, "metadata")
    except MetadataError as error:
        line = error.line
    assert 1 <= line <= data.count(b"\n") + 1
    return None


@given(SOUP, st.booleans())
def test_any_tokens(tokens, spaced):
    text = HEAD + INT.replace(":= t", ":= uint8_t") + (" " if spaced else "").join(tokens)
    accepted_or_metadata_error(text.encode())


@given(st.binary(max_size=200), st.sampled_from([b"", HEAD.encode(), b"\x1e", b"\x57\x1d\xd1\x75"]))
def test_any_bytes(data, before):
    accepted_or_metadata_error(before + data)


def mutations(original):
    """Texts with a few pieces deleted, doubled, moved or replaced."""
    size = len(original)
    place = st.integers(0, size)
    change = st.tuples(place, st.integers(0, 60), place, st.binary(max_size=3))
    return st.lists(change, min_size=1, max_size=4)


def mutate(original, changes):
    data = original
    for at, length, source, more in changes:
        piece = data[source : source + length] if length % 2 else b""
        data = data[:at] + piece + more + data[at + length :]
    return data


@pytest.fixture(scope="module")
def real(guest):
    directory = guest("normal") / "trace/kernel"
    return directory.joinpath("metadata").read_bytes()


@pytest.fixture(scope="module")
def real_ctf2(shared):
    return (shared("ctf2") / "CTF2-7.0-trace-with-index" / "metadata").read_bytes()


@given(st.data())
def test_mutated_lttng_metadata(real, data):
    plain = b"/* CTF 1.8 */" + _unpack(real, "<")
    assert accepted_or_metadata_error(plain) is not None
    for original in (real, plain):
        accepted_or_metadata_error(mutate(original, data.draw(mutations(original))))


@given(st.data())
def test_mutated_ctf2_metadata(real_ctf2, data):
    assert accepted_or_metadata_error(real_ctf2) is not None
    accepted_or_metadata_error(mutate(real_ctf2, data.draw(mutations(real_ctf2))))


def nested(head, middle, tail, times):
    return INT + head * times + middle + tail * times


DOUBLING = INT + "".join(
    f"struct s{i + 1} {{ {f'struct s{i}' if i else 't'} a, b; }};\n" for i in range(60)
)

HOSTILE = {
    "nested structures": nested("struct { ", "t x;", " } x;", 20_000),
    "nested variants": nested("struct { variant <a> { ", "t x;", " } x; } y;", 20_000),
    "array dimensions": INT + "typedef t x" + "[1]" * 50_000 + ";",
    "typedef of typedef": INT
    + "".join(f"typedef {f'a{i}' if i else 't'} a{i + 1}[2];\n" for i in range(5000)),
    "open braces": "struct " + "{" * 100_000,
    "open comments": "/*" * 1_000_000,
    "stars": "/*" + "*" * 2_000_000,
    "open strings": 'env { a = "' + "\\" * 999_999,
    "many open strings": '"\n' * 300_000,
    "blanks": " " * 3_000_000 + "@",
    "one long word": "a" * 3_000_000 + ";",
    "one long number": "env { a = " + "9" * 3_000_000 + "; };",
    "a long path": INT + "struct { t a; t b[" + "a." * 200_000 + "a]; };",
    "exponential structures": DOUBLING + "event { fields := struct s60; };",
    "integer blocks": "".join(
        f"typealias integer {{ size = 8; base = {i}; }} := a{i};\n" for i in range(30_000)
    ),
    "many tokens": ";" * 4_100_000,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_refused(name):
    with pytest.raises(MetadataError) as caught:
        read_metadata_bytes((HEAD + HOSTILE[name]).encode(), "metadata")
    assert caught.value.line >= 1
    assert len(caught.value.message) < 400


def test_many_uses_of_large_types_stay_cheap():
    """What every event looks up is prepared once, however many events there are."""
    wide = "struct wide { " + " ".join(f"t f{i};" for i in range(2000)) + " };\n"
    labels = ", ".join(f"L{i}" for i in range(2000))
    text = HEAD + INT + wide + f"enum tag : t {{ {labels} }};\n"
    text += "stream { packet.context := struct wide; event.context := struct { enum tag e; }; };\n"
    text += "".join(
        f"event {{ id = {i}; fields := struct {{ t x[f1999];"
        " variant <stream.event.context.e> { t L7; } v; }; };\n"
        for i in range(2000)
    )
    trace = read_metadata_bytes(text.encode(), "metadata")
    payload = trace.streams[0].events[1999].payload
    assert payload.members[0].field.length == ("packet-context", "f1999")
    assert payload.members[1].field.options[0].ranges == ((7, 7),)


def corpus(shared, kind):
    return sorted(p.parent for p in (shared("malformed") / kind).glob("*/metadata"))


# Faults that babeltrace2 also lets pass: they matter to no event.
HARMLESS = {
    "array-size-type",
    "enum-type-value-out-of-range",
    "integer-base-as-string",
    "metadata-packetized-endianness-mismatch",
    "variant-string-fields",
    "variant-tag-type-floating",
}
LINES = {
    "array-redefinition": 9,
    "array-size-not-present": 17,
    "enum-empty": 22,
    "enum-values-token": 22,
    "event-id-string": 11,
    "integer-0-bit-size": 9,
    "integer-align-negative": 6,
    "integer-byte-order-invalid": 6,
    "integer-range": 7,
    "lexer-literal-guid-corrupted": 10,
    "lexer-unterminated-bracket": 8,
    "struct-duplicate-struct-name": 10,
    "struct-recursive": 8,
    "typealias-duplicate-name": 6,
    "typedef-reserved-keyword": 6,
    "variant-tag-keyword": 21,
}


def test_the_malformed_corpus_is_refused_at_the_right_lines(shared):
    cases = corpus(shared, "metadata/fail")
    refused = {}
    for case in cases:
        try:
            read_metadata(case)
        except UnreadableError as error:
            refused[case.name] = getattr(error, "line", 0)
    assert {c.name for c in cases} - refused.keys() == HARMLESS
    assert {name: refused[name] for name in LINES} == LINES


def test_the_wellformed_part_of_the_corpus_parses(shared):
    for kind in ("metadata/pass", "stream/pass", "stream/fail"):
        for case in corpus(shared, kind):
            if case.name == "integer-large-size":  # 1024 bits: no reader takes it
                with pytest.raises(MetadataError, match="'size' is 1024"):
                    read_metadata(case)
            else:
                assert read_metadata(case).version == (1, 8)
