"""What the kernel copied of stacks is read from its rings, whole, and becomes a file for perf."""

from __future__ import annotations

import mmap
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath_record.stacks import events
from critpath_record.stacks.events import Ring, write_maps
from critpath_record.stacks.unwind import PERIOD_AT, forget_replaced_programs, note_woken

SIZE = 4096
HEADS = 1024


class Played:
    """A ring as the kernel keeps it."""

    def __init__(self, *, overwritten):
        self.file = os.memfd_create("ring")
        os.ftruncate(self.file, mmap.PAGESIZE + SIZE)
        self.out = os.memfd_create("out")
        self.head, self.overwritten = 0, overwritten
        self.ring = Ring(self.file, SIZE, overwritten=overwritten)

    def write(self, number, size):
        """Write a record: before the last one if the newest overwrites the oldest."""
        content = bytearray(struct.pack("<IHH", 9, 0, size) + bytes([number & 255]) * (size - 8))
        struct.pack_into("<Q", content, 32, number)
        at = self.head - size if self.overwritten else self.head
        for place, byte in enumerate(content):
            os.pwrite(self.file, bytes([byte]), mmap.PAGESIZE + (at + place) % SIZE)
        self.head = at if self.overwritten else self.head + size
        os.pwrite(self.file, struct.pack("<Q", self.head % (1 << 64)), HEADS)

    def records(self, *since):
        """Return the numbers of the records that are moved, or taken, each whole."""
        os.lseek(self.out, 0, os.SEEK_SET)
        os.ftruncate(self.out, 0)
        (self.ring.take if self.overwritten else self.ring.move)(self.out, *since)
        data = os.pread(self.out, 1 << 20, 0)
        found, at = [], 0
        while at < len(data):
            _, _, size = struct.unpack_from("<IHH", data, at)
            (number,) = struct.unpack_from("<Q", data, at + 32)
            assert data[at + 40 : at + size] == bytes([number & 255]) * (size - 40)
            found.append(number)
            at += size
        assert at == len(data)
        return found

    def close(self):
        self.ring.close()
        os.close(self.file)
        os.close(self.out)


SIZES = st.lists(st.integers(6, 60).map(lambda n: 8 * n), min_size=1, max_size=60)


@given(SIZES, st.integers(0, 60))
def test_of_an_overwritten_ring_the_newest_are_taken(sizes, since):
    """None in part, none missing between, down to a time, or to what was overwritten."""
    played = Played(overwritten=True)
    assert played.records(0) == []
    for number, size in enumerate(sizes, 1):
        played.write(number, size)
    found = played.records(since)[::-1]
    assert found == [*range(len(sizes) - len(found) + 1, len(sizes) + 1)]
    missed = len(sizes) - len(found)
    assert missed < since or sum(sizes[missed - 1 :]) > SIZE or not missed
    assert not found or found[0] >= since
    assert played.records(since)[::-1] == found
    played.close()


@given(SIZES)
def test_of_another_all_is_moved_in_order(sizes):
    played = Played(overwritten=False)
    found = []
    for number, size in enumerate(sizes, 1):
        played.write(number, size)
        if number % 3 == 0:
            found += played.records()
    found += played.records()
    assert found == [*range(1, len(sizes) + 1)]
    played.close()


def test_whom_a_wake_woke_is_its_period(tmp_path):
    """Only of wakes, and only where the sample reaches so far."""
    place = tmp_path / "perf.data"
    head, at = struct.calcsize("<8s8Q32x"), 92

    def sample(identity, woken, size=104):
        found = bytearray(struct.pack("<IHHQ", 9, 2, size, identity).ljust(size, b"\0"))
        struct.pack_into("<Q", found, PERIOD_AT, 1)
        if size >= at + 4:
            struct.pack_into("<i", found, at, woken)
        return bytes(found)

    rows = sample(5, 71) + sample(6, 72) + sample(5, -3) + sample(5, 9, size=88)
    sizes = [104, 104, 104, 88]
    place.write_bytes(
        struct.pack("<8s8Q32x", b"PERFILE2", head, 0, 0, 0, head, len(rows), 0, 0) + rows
    )
    file = os.open(place, os.O_RDWR)
    note_woken(file, at, {5})
    forget_replaced_programs(file)
    data, begin, periods = os.pread(file, 1 << 16, 0), head, []
    for size in sizes:
        periods += struct.unpack_from("<Q", data, begin + PERIOD_AT)
        begin += size
    assert periods == [71, 1, 0, 1]
    os.close(file)


def test_maps_are_records_of_their_own():
    lines = (
        b"7f00-7f10 r-xp 00001000 fe:01 77                         /srv/my app (deleted)\n"
        b"8000-9000 r--p 00000000 fe:01 77                         /srv/my app (deleted)\n"
        b"a000-b000 rwxp 00000000 00:00 0 \n"
        b"b000-c000 r-xp 00000000 00:00 0                          [anon:JS code]\n"
        b"c000-d000 rw-p 00000000 00:00 0                          [heap]\n"
        b"odd\n"
    )
    kinds = [events._map_record(12, line) for line in lines.splitlines()[:5]]
    assert kinds[4] == b""
    found = struct.unpack_from("<IHHIIQQQIIQ", kinds[0])
    assert found == (10, 2, len(kinds[0]), 12, 12, 0x7F00, 0x10, 0x1000, 0xFE, 1, 77)
    assert kinds[0][72:].startswith(b"/srv/my app (deleted)\0")
    assert struct.unpack_from("<IH", kinds[1])[1] == 2 | 1 << 13
    assert b"//anon\0" in kinds[2]
    assert b"//anon\0" in kinds[3]
    assert all(len(kind) % 8 == 0 for kind in kinds)
    with pytest.raises(ValueError, match="unpack"):
        events._map_record(12, b"odd")
    file = os.memfd_create("maps")
    write_maps(file, [os.getpid(), 0])
    assert os.fstat(file).st_size > 72
    os.close(file)
