"""Where a file has functions: files that are drawn, and files that are no such."""

from __future__ import annotations

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath_record.symbols import find_functions

NAMES = ("SSL_read", "SSL_write")
TEXT = b"\0SSL_read\0my_SSL_write\0other\0"
WRITE = TEXT.index(b"SSL_write")  # the end of a longer name serves for it
CODE, AT, OFFSET = 0x401000, 0x40_0000, 0x1000  # of a segment that begins elsewhere in the file


def draw_file(table=11, symbols=((1, 2, 1, CODE), (WRITE, 2, 1, CODE + 64)), *, cut=None):
    """Return an ELF file with one segment that is executed, and a table of symbols."""
    rows = b"".join(struct.pack("<IBBHQQ", n, kind, 0, of, at, 9) for n, kind, of, at in symbols)
    head = 64 + 56
    sections = head + len(rows) + len(TEXT)
    data = struct.pack(
        *("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, sections),
        *(0, 64, 56, 1, 64, 2, 0),
    )
    data += struct.pack("<IIQQQQQQ", 1, 5, OFFSET, AT + OFFSET, 0, 0x9000, 0x9000, 4096)
    data += rows + TEXT
    data += struct.pack("<IIQQQQIIQQ", 0, table, 0, 0, head, len(rows), 1, 0, 8, 24)
    data += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, head + len(rows), len(TEXT), 0, 0, 1, 0)
    return data[:cut]


@pytest.fixture
def find(tmp_path):
    def found(data):
        place = tmp_path / "file"
        place.write_bytes(data)
        descriptor = os.open(place, os.O_RDONLY)
        try:
            return find_functions(descriptor, NAMES)
        finally:
            os.close(descriptor)

    return found


@pytest.mark.parametrize("table", [11, 2])
def test_functions_are_where_the_file_has_them(find, table):
    assert find(draw_file(table)) == {"SSL_read": 0x1000, "SSL_write": 0x1040}


@pytest.mark.parametrize(
    "symbol",
    [
        (1, 2, 0, CODE),  # of another file
        (1, 1, 1, CODE),  # data
        (1, 2, 1, 0),
        (1, 2, 1, 0x90_0000),  # in no segment
        (23, 2, 1, CODE),  # another name
    ],
)
def test_what_is_no_function_of_the_file_is_left_out(find, symbol):
    assert find(draw_file(symbols=(symbol,))) == {}


@given(data=st.data())
def test_whatever_a_file_says_nothing_is_raised(tmp_path_factory, data):
    whole = bytearray(draw_file(cut=data.draw(st.none() | st.integers(0, 400))))
    for _ in range(data.draw(st.integers(0, 8))):
        if whole:
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    place = tmp_path_factory.mktemp("elf") / "file"
    place.write_bytes(bytes(whole))
    descriptor = os.open(place, os.O_RDONLY)
    try:
        assert set(find_functions(descriptor, NAMES)) <= set(NAMES)
    finally:
        os.close(descriptor)
