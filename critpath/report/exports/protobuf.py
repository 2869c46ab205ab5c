"""Protocol buffers, as far as a writer needs them: numbers, text and messages in messages.

The encoding is that of https://protobuf.dev/programming-guides/encoding/.  A field is
its number and wire type in one varint, then its value.
"""

from __future__ import annotations

from typing import Final

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_SEVEN: Final = 0x7F
_MORE: Final = 0x80
_SHORT: Final = tuple(bytes([value]) for value in range(_MORE))


def varint(value: int) -> bytes:
    """Return an integer in groups of seven bits, the lowest first.

    A negative one is its 64 bits of two's complement, as ``int32`` and ``int64`` have it.
    """
    if 0 <= value < _MORE:
        return _SHORT[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    groups = bytearray()
    while value >= _MORE:
        groups.append(value & _SEVEN | _MORE)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def number(field: int, value: int) -> bytes:
    """Return a field of type int, uint, bool or enum."""
    return varint(field << 3 | _VARINT) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    """Return a field of type fixed64."""
    return varint(field << 3 | _FIXED64) + value.to_bytes(8, "little")


def message(field: int, *parts: bytes) -> bytes:
    """Return a field that holds a message: its fields one after the other."""
    content = b"".join(parts)
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Return a field of type string; lone surrogates, which UTF-8 has not, become ``?``."""
    return message(field, value.encode("utf-8", "replace"))
