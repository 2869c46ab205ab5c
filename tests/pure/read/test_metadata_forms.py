"""The forms a metadata file can have: plain, in packets of either byte order, CTF 2."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from critpath.errors import MetadataError, UnreadableError
from critpath.read.metadata.load import MAX_METADATA_BYTES, read_metadata, read_metadata_bytes

TSDL = b"""/* CTF 1.8 */
typealias integer { size = 8; } := uint8_t;
trace { major = 1; minor = 8; byte_order = le; };
event { name = "tick"; fields := struct { uint8_t x; }; };
"""
JSON = b"""\x1e{"type": "preamble", "version": 2}
\x1e{"type": "data-stream-class"}
\x1e{"type": "event-record-class", "name": "tick"}
"""
UUID = bytes(range(16))


def packet(
    text, order="<", *, version=(1, 8), uuid=UUID, pad=5, schemes=(0, 0, 0), extra=b"", **bad
):
    size = 37 + len(extra) + len(text)
    fields = {"magic": 0x75D11D57, "content": 8 * size, "packet": 8 * (size + pad)} | bad
    head = struct.pack(
        order + "I16sIII5B",
        *(fields["magic"], uuid, 0, fields["content"], fields["packet"]),
        *schemes,
        *version,
    )
    return head + extra + text + bytes(pad)


def names(data):
    trace = read_metadata_bytes(data, "metadata")
    return [e.name for s in trace.streams.values() for e in s.events.values()]


@pytest.mark.parametrize("order", ["<", ">"])
def test_packets_are_put_together(order):
    middle = TSDL.index(b"event") + 3
    assert names(packet(TSDL[:middle], order) + packet(TSDL[middle:], order, pad=0)) == ["tick"]


def test_plain_text_with_and_without_signature_and_with_a_byte_order_mark():
    assert names(TSDL) == ["tick"]
    assert names(TSDL.removeprefix(b"/* CTF 1.8 */\n")) == ["tick"]
    assert names(b"\xef\xbb\xbf" + TSDL) == ["tick"]


def test_bytes_that_are_no_text_do_no_harm_in_strings_and_comments():
    assert names(TSDL + b'/* \xff */ env { a = "\xfe"; };') == ["tick"]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("extra", [b"", bytes(3), bytes(3) + bytes(8)])
def test_ctf2_in_packets_of_lttng_and_of_the_specification(order, extra):
    if extra:  # the size of the header, in bits, behind three reserved bytes
        size = 8 * (37 + len(extra) + 4)
        extra = extra[:3] + struct.pack(order + "I", size) + extra[3:]
    assert names(packet(JSON, order, version=(2, 0), extra=extra)) == ["tick"]
    assert names(JSON) == ["tick"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (packet(TSDL)[:30], "cut off in its header"),
        (packet(TSDL)[:60], "cut off"),
        (packet(TSDL) + packet(b"", magic=7), "its magic number is 0x00000007"),
        (packet(TSDL) + packet(b"", uuid=bytes(16)), "belongs to another trace"),
        (packet(TSDL, version=(116, 121)), "version 116.121 is unknown"),
        (packet(TSDL, schemes=(1, 0, 0)), "compression"),
        (packet(TSDL, schemes=(0, 1, 0)), "compression"),
        (packet(TSDL, schemes=(0, 0, 1)), "compression"),
        (packet(TSDL, content=0), "0 bits of content"),
        (packet(TSDL, packet=0), "bits of content in 0"),
        (packet(TSDL, content=8 * 37 + 1), "bits of content"),
        (packet(TSDL) + packet(TSDL)[:1], "cut off in its header"),
    ],
)
def test_damaged_packets(data, message):
    with pytest.raises(MetadataError) as caught:
        read_metadata_bytes(data, "metadata")
    assert message in caught.value.message
    assert "metadata packet at byte" in caught.value.message


def test_lines_in_packets_count_their_text():
    text = TSDL + b"\nstruct s { unheard x; };"
    half = len(text) // 2
    with pytest.raises(MetadataError) as caught:
        read_metadata_bytes(packet(text[:half]) + packet(text[half:]), "metadata")
    assert caught.value.line == 6


def test_files(tmp_path):
    with pytest.raises(UnreadableError, match="metadata: cannot be read"):
        read_metadata(tmp_path)
    (tmp_path / "metadata").write_bytes(TSDL)
    assert read_metadata(tmp_path) == read_metadata_bytes(TSDL, "")
    with (tmp_path / "metadata").open("r+b") as file:
        file.truncate(MAX_METADATA_BYTES + 1)
    with pytest.raises(UnreadableError, match="larger than 64 MiB"):
        read_metadata(tmp_path)
    (tmp_path / "metadata").write_bytes(b"")
    with pytest.raises(MetadataError, match=":1: no 'trace' block"):
        read_metadata(tmp_path)


def test_byte_orders_of_packets_and_of_the_trace_are_independent():
    big = read_metadata_bytes(packet(TSDL.replace(b"= le", b"= be"), "<"), "")
    little = read_metadata_bytes(packet(TSDL, ">"), "")
    assert (big.big_endian, little.big_endian) == (True, False)
    assert replace(little, streams={}) == replace(read_metadata_bytes(TSDL, ""), streams={})
