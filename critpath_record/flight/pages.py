"""Pages of the kernel's ring buffers: files of them cut to a time."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HEAD: Final = struct.Struct("=QQ")  # of a page: time, and bytes with flags
SIZE: Final = 0xFFFFF  # of the bytes, without the flags
_MISSED: Final = 0xC000_0000  # flags: events before the page were lost, and how many
_WORD: Final = struct.Struct("=I")
_PADDING, _EXTEND, _STAMP = 29, 30, 31
_LONG: Final = {0, _PADDING, _EXTEND, _STAMP}  # kinds that have a second word
_FIRST: Final = 3  # pages among which a buffer that was overwritten begins


def page_time(page: bytes) -> int:
    """Return when a page begins (ns)."""
    return int(HEAD.unpack_from(page)[0])


def has_missed(page: bytes) -> bool:
    """Return whether events before a page were lost, or overwritten."""
    return bool(HEAD.unpack_from(page)[1] & _MISSED)


def _walk(page: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield of every record: its place, the time before it and its own."""
    time, commit = HEAD.unpack_from(page)
    at, end = HEAD.size, min(len(page), HEAD.size + (commit & SIZE))
    while at + 4 <= end:
        place, before = at, time
        (word,) = _WORD.unpack_from(page, at)
        kind, delta = word & 31, word >> 5
        at += 4
        if kind not in _LONG:
            time += delta
            yield place, before, time
            at += 4 * kind
            continue
        if at + 4 > end or (kind == _PADDING and not delta):
            return
        (more,) = _WORD.unpack_from(page, at)
        if kind == _EXTEND:
            time += delta + (more << 27)
            at += 4
        elif kind == _STAMP:
            time = (delta + (more << 27)) | time >> 59 << 59
            at += 4
        else:
            time += delta
            if kind == 0:
                yield place, before, time
            at += max(more, 4)


def find_begin(file: Path, size: int) -> int:
    """Return since when a buffer that was overwritten has all (ns), 0 if it was not.

    What was read last stays in it, however old, before what was overwritten.
    """
    found = 0
    with file.open("rb") as stream:
        for number in range(_FIRST):
            head = os.pread(stream.fileno(), HEAD.size, number * size)
            if len(head) == HEAD.size and has_missed(head):
                found = page_time(head)
    return found


def cut(file: Path, size: int, begin: int) -> None:
    """Remove what is before a time from a file of pages, and that anything was lost before it."""
    with file.open("r+b") as stream:
        own, length = stream.fileno(), os.fstat(stream.fileno()).st_size
        low, high = 0, length // size - 1
        while low < high:  # the last page that begins before it
            middle = (low + high + 1) // 2
            if page_time(os.pread(own, HEAD.size, middle * size)) <= begin:
                low = middle
            else:
                high = middle - 1
        if high < 0:
            return
        _move(own, low * size, length)
        os.pwrite(own, cut_page(os.pread(own, size, 0), begin), 0)


def is_empty(file: Path, size: int) -> bool:
    """Return whether there is no record in a file that was cut."""
    with file.open("rb") as stream:
        page = stream.read(size)
        return len(page) < HEAD.size or not (HEAD.unpack_from(page)[1] & SIZE or stream.read(1))


def cut_page(page: bytes, begin: int) -> bytes:
    """Return a page without its records before a time."""
    commit = HEAD.unpack_from(page)[1] & SIZE
    kept, since = b"", page_time(page)
    for place, before, time in _walk(page):
        if time >= begin:
            kept, since = page[place : HEAD.size + commit], before
            break
    return (HEAD.pack(since, len(kept)) + kept).ljust(len(page), b"\0")


def _move(own: int, offset: int, length: int) -> None:
    to = 0
    while offset < length and offset != to:
        data = os.pread(own, min(1 << 20, length - offset), offset)
        os.pwrite(own, data, to)
        offset, to = offset + len(data), to + len(data)
    if to:
        os.ftruncate(own, to)
