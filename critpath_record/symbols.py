"""Where a program's file has functions: by its symbols, of a file that may be hostile."""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator
from typing import Final

_HEAD: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_LOAD, _EXECUTED = 1, 1
_TABLES: Final = (11, 2)  # symbols that are exported, and all of a file that is not stripped
_FUNCTION: Final = 2
# technical: of headers; bytes of a table and of its names, which are read at once.
_MOST_HEADERS: Final = 4096
_MOST_BYTES: Final = 64 << 20


def find_functions(descriptor: int, names: Collection[str]) -> dict[str, int]:
    """Return where in its file each function is that is defined there; {} for what is no ELF."""
    try:
        head = _HEAD.unpack(os.pread(descriptor, _HEAD.size, 0))
        if head[0][:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
            return {}
        segments = [*_read_table(descriptor, _SEGMENT, head[5], head[9], head[10])]
        sections = [*_read_table(descriptor, _SECTION, head[6], head[11], head[12])]
        for kind in _TABLES:
            for section in sections:
                if section[1] == kind and section[6] < len(sections):
                    found = _find_symbols(descriptor, section, sections[section[6]], names)
                    placed = _place(found, segments)
                    if placed:
                        return placed
    except (OSError, struct.error):
        return {}
    return {}


def _read_table(
    descriptor: int, row: struct.Struct, at: int, size: int, count: int
) -> Iterator[tuple[int, ...]]:
    if size == row.size and count <= _MOST_HEADERS and at < 1 << 40:
        yield from row.iter_unpack(_read(descriptor, at, size * count))


def _read(descriptor: int, at: int, size: int) -> bytes:
    if size > _MOST_BYTES or at >= 1 << 40:
        return b""
    data = os.pread(descriptor, size, at)
    return data if len(data) == size else b""


def _find_symbols(
    descriptor: int, table: tuple[int, ...], texts: tuple[int, ...], names: Collection[str]
) -> dict[str, int]:
    """Return the addresses of functions with some names."""
    text = _read(descriptor, texts[4], texts[5])
    wanted: dict[int, str] = {}
    for name in names:
        word = name.encode() + b"\0"
        at = text.find(word)
        while at >= 0:  # the end of a longer name may serve for a shorter one
            wanted[at] = name
            at = text.find(word, at + 1)
    if not wanted:
        return {}
    symbols = _read(descriptor, table[4], table[5] - table[5] % _SYMBOL.size)
    return {
        wanted[name]: value
        for name, info, _, section, value, _ in _SYMBOL.iter_unpack(symbols)
        if name in wanted and section and value and info & 15 == _FUNCTION
    }


def _place(found: dict[str, int], segments: list[tuple[int, ...]]) -> dict[str, int]:
    """Return places in the file in place of addresses: of what is executed only."""
    return {
        name: value - address + offset
        for name, value in found.items()
        for kind, flags, offset, address, _, size, _, _ in segments
        if kind == _LOAD and flags & _EXECUTED and address <= value < address + size
    }
