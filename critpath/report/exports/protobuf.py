"""The wire format of protocol buffers, https://protobuf.dev/programming-guides/encoding/."""

from __future__ import annotations

from typing import Final

import numpy as np

from critpath.model import I64

VARINT, _FIXED64, _LENGTH = 0, 1, 2
_SEVEN: Final = 0x7F
_SEVEN_BITS: Final = 7
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
    return varint(field << 3 | VARINT) + varint(value)


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


def packed(field: int, values: I64) -> bytes:
    """Return a repeated field of numbers in its packed form."""
    left = values.astype(np.uint64)
    size = np.ones(len(left), np.int64)
    for bits in range(_SEVEN_BITS, 64, _SEVEN_BITS):
        size += left >= np.uint64(1 << bits)
    ends = np.cumsum(size)
    made = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    place = ends - size
    for number_ in range(int(size.max(initial=0))):
        rows = size > number_
        more = np.where(size[rows] > number_ + 1, _MORE, 0).astype(np.uint8)
        made[place[rows] + number_] = (left[rows] & np.uint64(_SEVEN)).astype(np.uint8) | more
        left >>= np.uint64(_SEVEN_BITS)
    return message(field, made.tobytes())
