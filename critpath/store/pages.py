"""What a Parquet file's pages hold, told by their headers before any page is read.

The footer is only what the file says of itself; the reader allocates what the header before
each page says.  Headers are Thrift structures in the compact protocol (the Parquet format's
``parquet.thrift``, ``PageHeader``); a file of a few bytes may have pages of gigabytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Bytes of a row group's pages that are read however well they were compressed, and how much
# more than their compressed size larger ones may be.  zstd makes of what critpath writes a
# third to a twentieth.
_ROOM: Final = 64 << 20
_RATIO: Final = 32
# Each column of a row group, which takes its place in the footer, may have a dictionary and a
# page of values however short they are; further pages are of some hundred bytes and more.
_FEW_PAGES: Final = 10_000
_BYTES_OF_A_PAGE: Final = 128
_OF_A_COLUMN: Final = 2
_HEADER: Final = 512  # bytes of a header that are read first
_LONGEST_HEADER: Final = 1 << 16
_DEEPEST: Final = 8
_DICTIONARY: Final = 2  # PageType
# Field numbers of a PageHeader, of the structures in it that count values.
_TYPE, _INFLATED, _SIZE = 1, 2, 3
_COUNTING: Final = {5, 7, 8}
# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS: Final = {4, 5, 6}


class DamagedError(ValueError):
    """Pages are not what they should be."""


@dataclass(frozen=True)
class _Page:
    kind: int
    inflated: int
    size: int
    values: int
    header: int


def check_pages(descriptor: int, footer: pq.FileMetaData) -> None:
    """Check that a file's pages are as its footer says, and no larger than they may be.

    Parameters
    ----------
    descriptor : int
        Of the file.
    footer : FileMetaData

    Raises
    ------
    DamagedError
    """
    size = os.fstat(descriptor).st_size
    left = _FEW_PAGES + size // _BYTES_OF_A_PAGE
    inflated = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        left += _OF_A_COLUMN * group.num_columns
        mine = compressed = 0
        for place in range(group.num_columns):
            for page in _pages_of(descriptor, size, group.column(place)):
                mine += page.inflated
                compressed += page.size
                left -= 1
                if left < 0:
                    raise DamagedError("more pages than a file of this size has")
        inflated += mine
        for large, small in ((mine, compressed), (inflated, size)):
            if large > max(_ROOM, _RATIO * small):
                raise DamagedError(f"{small:,} bytes would become {large:,}")


def _pages_of(descriptor: int, size: int, column: pq.ColumnChunkMetaData) -> Iterator[_Page]:
    """Yield a column's pages, and say at their end whether they are as many as they should be."""
    place = column.data_page_offset
    if column.num_values == 0 and place == 0:  # an empty row group's: a dictionary at the most
        place = column.total_compressed_size and size
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < place:
        place = column.dictionary_page_offset
    elif column.num_values == column.total_compressed_size == 0:
        return
    end = place + column.total_compressed_size
    if not 0 < place <= end <= size:
        raise DamagedError("a column's pages are not where the footer says")
    values = 0
    while place < end:
        page = _page(descriptor, place, end)
        place += page.header + page.size
        if place > end:
            raise DamagedError("a page reaches beyond its column")
        values += 0 if page.kind == _DICTIONARY else page.values
        yield page
    if values != column.num_values:
        raise DamagedError("a column has not as many values as the footer says")


def _page(descriptor: int, place: int, end: int) -> _Page:
    for length in (_HEADER, _LONGEST_HEADER):
        reader = _Thrift(os.pread(descriptor, min(length, end - place), place))
        try:
            found, counted = reader.page_header()
        except IndexError:
            continue
        kind, inflated, size = (found.get(key, -1) for key in (_TYPE, _INFLATED, _SIZE))
        if min(kind, inflated, size, counted) < 0:
            break
        return _Page(kind, inflated, size, counted, reader.at)
    raise DamagedError("a page's header is not valid")


class _Thrift:
    """Reads the compact protocol; raises IndexError at the end of what was given."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def page_header(self) -> tuple[dict[int, int], int]:
        """Return the header's own numbers by field, and how many values it counts."""
        numbers: dict[int, int] = {}
        counted = 0
        for field, kind in self._fields():
            if kind in _INTEGERS:
                numbers[field] = self._zigzag()
            elif kind == _STRUCT and field in _COUNTING:
                counted = self._counted()
            else:
                self._skip(kind, 0)
        return numbers, counted

    def _counted(self) -> int:
        counted = -1
        for field, kind in self._fields():
            if field == 1 and kind in _INTEGERS:
                counted = self._zigzag()
            else:
                self._skip(kind, 0)
        return counted

    def _fields(self) -> Iterator[tuple[int, int]]:
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            yield field, head & 15

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise DamagedError("a page's header is not valid")
        if kind in {_TRUE, _FALSE}:
            return
        skips: dict[int, Callable[[], object]] = {
            _BYTE: self._byte,
            _DOUBLE: lambda: self._pass(8),
            _BINARY: lambda: self._pass(self._varint()),
            **dict.fromkeys(_INTEGERS, self._varint),
        }
        if kind in skips:
            skips[kind]()
        elif kind in {_LIST, _SET}:
            head = self._byte()
            for _ in range(self._varint() if head >> 4 == 15 else head >> 4):
                self._skip(_BYTE if head & 15 in {_TRUE, _FALSE} else head & 15, depth + 1)
        elif kind == _STRUCT:
            for _, inner in self._fields():
                self._skip(inner, depth + 1)
        else:  # a map, which no page header has
            raise DamagedError("a page's header is not valid")

    def _byte(self) -> int:
        value = self._content[self.at]
        self.at += 1
        return value

    def _pass(self, length: int) -> None:
        self.at += length
        if self.at > len(self._content):
            raise IndexError

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise DamagedError("a page's header is not valid")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
