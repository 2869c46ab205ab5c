"""Reads a trace's metadata file, whatever its form, into a `TraceClass`."""

from __future__ import annotations

import struct
from pathlib import Path

from critpath.errors import MetadataError, UnreadableError
from critpath.read.metadata.lexer import SyntaxFault
from critpath.read.metadata.schema import TraceClass
from critpath.read.metadata.tsdl import parse_tsdl

MAX_METADATA_BYTES = 64 << 20

_RECORD_SEPARATOR = "\x1e"  # before each fragment of CTF 2 (RFC 7464)

_PACKET_MAGIC = 0x75D11D57
# magic, uuid, checksum, content bits, packet bits, compression, encryption, checksum
# scheme, major, minor (CTF 1.8, 7.1.1).
_PACKET_HEADER = "I16sIIIBBBBB"
# CTF2-PMETA-1.0 has three bytes more and then the header's size in bits; LTTng writes
# CTF 2 behind the older header, where these bytes are already text.
_LONG_HEADER = 44


def read_metadata(trace_directory: Path) -> TraceClass:
    """Read ``metadata`` in a CTF trace's directory."""
    path = trace_directory / "metadata"
    try:
        with path.open("rb") as file:
            data = file.read(MAX_METADATA_BYTES + 1)
    except OSError as error:
        raise UnreadableError(
            f"{path}: cannot be read ({error.strerror or error})",
            "name the directory of a CTF trace: the one with a file called metadata",
        ) from None
    if len(data) > MAX_METADATA_BYTES:
        raise UnreadableError(
            f"{path}: metadata larger than {MAX_METADATA_BYTES >> 20} MiB",
            "no tracer writes that much: check that this is a CTF trace",
        )
    return _parse_cached(data, str(path))


# Each with the file it came from: `describe` and `read_events` ask for the same one, and
# so do sets that are compared again.  Compared by content, so that no clock matters.
_cache: dict[str, tuple[bytes, TraceClass]] = {}
_MOST_RECENT = 8
_LARGEST_KEPT = 4 << 20


def _parse_cached(data: bytes, file: str) -> TraceClass:
    """Parse metadata, or return the result for the same content of the same file."""
    known = _cache.get(file)
    if known is not None and known[0] == data:
        return known[1]
    schema = read_metadata_bytes(data, file)
    if len(data) <= _LARGEST_KEPT:
        _cache.pop(file, None)  # so that it comes last
        _cache[file] = (data, schema)
        while len(_cache) > _MOST_RECENT:
            _cache.pop(next(iter(_cache)), None)
    return schema


def read_metadata_bytes(data: bytes, file: str) -> TraceClass:
    """Read metadata from memory: TSDL or JSON text, in packets or plain.

    ``file`` is the name for messages.
    """
    try:
        byte_order = _packet_byte_order(data)
        if byte_order:
            data = _unpack(data, byte_order)
        # Strings and comments may hold anything; nothing else is beyond ASCII.
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        if text.startswith(_RECORD_SEPARATOR):
            from critpath.read.metadata.ctf2 import parse_ctf2  # noqa: PLC0415 - most traces do without

            return parse_ctf2(text)
        return parse_tsdl(text, file)
    except SyntaxFault as fault:
        raise MetadataError(fault.message, file, fault.line) from None


def _packet_byte_order(data: bytes) -> str:
    """Return the `struct` byte order of packetized metadata, "" for plain text."""
    for byte_order in "<>":
        if data[:4] == struct.pack(byte_order + "I", _PACKET_MAGIC):
            return byte_order
    return ""


def _unpack(data: bytes, byte_order: str) -> bytes:
    """Return the text in metadata packets, concatenated."""
    header = struct.Struct(byte_order + _PACKET_HEADER)
    content = bytearray()
    first_uuid = None
    at = 0
    while at < len(data):
        where = f"metadata packet at byte {at}"
        if len(data) - at < header.size:
            raise SyntaxFault(f"{where}: cut off in its header", _lines(content))
        magic, uuid, _, content_bits, packet_bits, compression, encryption, scheme, *version = (
            header.unpack_from(data, at)
        )
        first_uuid = uuid if first_uuid is None else first_uuid
        if magic != _PACKET_MAGIC:
            raise SyntaxFault(f"{where}: its magic number is {magic:#010x}", _lines(content))
        if tuple(version) not in {(1, 8), (2, 0)}:
            raise SyntaxFault(
                f"{where}: version {version[0]}.{version[1]} is unknown", _lines(content)
            )
        if compression or encryption or scheme:
            raise SyntaxFault(
                f"{where}: compression, encryption and checksums are not supported",
                _lines(content),
            )
        if uuid != first_uuid:
            raise SyntaxFault(f"{where}: it belongs to another trace", _lines(content))
        size, used = packet_bits // 8, content_bits // 8
        if not header.size <= used <= size or packet_bits % 8 or content_bits % 8:
            raise SyntaxFault(
                f"{where}: {content_bits} bits of content in {packet_bits}", _lines(content)
            )
        if used > len(data) - at:
            raise SyntaxFault(f"{where}: cut off", _lines(content))
        content += data[at + _header_size(data, at, used, byte_order, version) : at + used]
        at += size
    return bytes(content)


def _header_size(data: bytes, at: int, used: int, byte_order: str, version: list[int]) -> int:
    if version == [2, 0] and used >= _LONG_HEADER:
        (bits,) = struct.unpack_from(byte_order + "I", data, at + _LONG_HEADER - 4)
        if bits % 8 == 0 and 8 * _LONG_HEADER <= bits <= 8 * used:
            return int(bits // 8)
    return struct.calcsize(byte_order + _PACKET_HEADER)


def _lines(content: bytearray) -> int:
    return 1 + content.count(b"\n")
