"""Which build a program is: by the note of its linker, whatever else is in the file."""

from __future__ import annotations

import os
import struct

from hypothesis import given
from hypothesis import strategies as st

from critpath_record.builds import read_build_id

IDS = st.binary(min_size=1, max_size=20)


def note(owner, kind, data):
    parts = (owner + b"\0", data)
    padded = b"".join(part + bytes(-len(part) % 4) for part in parts)
    return struct.pack("<III", len(owner) + 1, len(data), kind) + padded


def elf(*segments):
    """Return a program of notes, each a segment."""
    head = b"\x7fELF\x02\x01".ljust(32, b"\0") + struct.pack("<Q", 64)
    head = head.ljust(54, b"\0") + struct.pack("<HH", 56, len(segments))
    at = 64 + 56 * len(segments)
    rows = data = b""
    for notes in segments:
        row = struct.pack("<IIQQQQQQ", 4, 4, at + len(data), 0, 0, len(notes), len(notes), 4)
        rows, data = rows + row, data + notes
    return head.ljust(64, b"\0") + rows + data


def read(content):
    file = os.memfd_create("program")
    try:
        os.write(file, content)
        return read_build_id(file)
    finally:
        os.close(file)


@given(IDS, st.lists(st.tuples(st.sampled_from([b"GNU", b"stapsdt"]), IDS), max_size=4))
def test_it_is_the_note_of_the_linker(build, others):
    before = b"".join(note(owner, 1, data) for owner, data in others)
    assert read(elf(before, before + note(b"GNU", 3, build))) == build.hex()
    assert read(elf(before)) == ""


@given(st.binary(max_size=300))
def test_what_is_no_program_has_none(content):
    assert read(content) == ""


@given(st.data())
def test_no_file_is_too_odd(data):
    whole = bytearray(elf(note(b"GNU", 3, b"12345678")))
    for at in data.draw(st.lists(st.integers(6, len(whole) - 1), max_size=8)):
        whole[at] = data.draw(st.integers(0, 255))
    found = read(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    assert len(found) <= 64
