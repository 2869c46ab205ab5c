"""Where a Python has its interpreters in its memory, and how what lies there is laid out.

``_PyRuntime`` and ``PyCode_Type`` are symbols that every CPython exports: they are looked up in
the dynamic symbols of its program or library, as these lie in its memory, so that no file of a
container needs to be found.  From 3.13 on a Python says itself how its structures are laid
out; of earlier ones `LAYOUTS` knows, which ``tools/python_layouts.py`` reads out of their headers.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

_MOST_MAPPINGS: Final = 65_536
_MOST_HEADERS: Final = 64
_MOST_ENTRIES: Final = 256  # of the dynamic section
_MOST_IN_BUCKET: Final = 4096  # symbols
_LETTERS: Final = 256
_DEBUG_OFFSETS: Final = 1024  # bytes of them that are read
# Of the program's header: its kind, dynamic.  Of the dynamic section: names, symbols, hashes.
_LOADED, _DYNAMIC, _NAMES, _SYMBOLS, _HASHES = 1, 2, 5, 6, 0x6FFFFEF5
_PYTHON: Final = re.compile(r"(?:lib)?python(\d?)(?:\.(\d+))?[a-z]*(?:\.so.*)?(?: \(deleted\))?")
PAIRS, RANGES, LOCATIONS = 0, 1, 2  # tables of lines: up to 3.9, 3.10, later


class Layout(NamedTuple):
    """Bytes from the begin of a structure to what is needed of it; -1: it has none.

    Of the runtime: ``interpreters``.  Of an interpreter: ``following``, ``threads``.  Of a
    thread's state: ``next``, ``interpreter``, ``thread``, ``native`` (numbers) and ``frame``;
    ``indirect`` from what that leads to.  Of a frame: ``code``, ``previous``, ``instruction``,
    ``owner``.  Of a code object: ``first_line``, ``file``, ``name``, ``lines``, ``instructions``.
    Of texts: where the letters begin, ``ascii`` or ``compact``.  ``lock``: the global one, in the
    runtime; below 0: where an interpreter has its address.  ``versioned``: no two code objects are
    alike.
    """

    interpreters: int
    following: int
    threads: int
    next: int
    interpreter: int
    thread: int
    native: int
    frame: int
    indirect: int
    code: int
    previous: int
    instruction: int
    owner: int
    first_line: int
    file: int
    name: int
    lines: int
    instructions: int
    ascii: int
    compact: int
    lock: int
    table: int
    versioned: int


# As tools/python_layouts.py prints them.
LAYOUTS: Final = {
    (3, 8): Layout(
        *(32, 0, 8, 8, 16, 176, -1, 24, -1, 32, 24, 104, -1, 40, 104, 112, 120, -1, 48, 72),
        *(1152, PAIRS, 0),
    ),
    (3, 9): Layout(
        *(32, 0, 8, 8, 16, 176, -1, 24, -1, 32, 24, 104, -1, 40, 104, 112, 120, -1, 48, 72),
        *(352, PAIRS, 0),
    ),
    (3, 10): Layout(
        *(32, 0, 8, 8, 16, 176, -1, 24, -1, 32, 24, 96, -1, 40, 104, 112, 120, -1, 48, 72),
        *(352, RANGES, 0),
    ),
    (3, 11): Layout(
        *(40, 0, 16, 8, 16, 152, 160, 56, 8, 32, 48, 56, 69, 72, 112, 128, 136, 184, 48, 72),
        *(360, LOCATIONS, 0),
    ),
    (3, 12): Layout(
        *(40, 0, 72, 8, 16, 136, 144, 56, 0, 0, 8, 56, 70, 68, 112, 128, 136, 192, 40, 56),
        *(-384, LOCATIONS, 1),
    ),
}
# From 3.13 on: the number of each in what stands at the begin of the runtime, eight bytes each.
_PUBLISHED: Final = {
    (3, 13): (
        *(5, 8, 9, 21, 22, 24, 25, 23, None, 30, 29, 31),
        *(33, 39, 35, 37, 38, 43, None, None, 14),
    ),
    (3, 14): (
        *(5, 8, 9, 24, 25, 27, 28, 26, None, 33, 32, 34),
        *(36, 44, 40, 42, 43, 48, None, None, 15),
    ),
}
_COOKIE: Final = b"xdebugpy"


@dataclass(frozen=True)
class Interpreter:
    """A Python that can be sampled."""

    version: tuple[int, int]
    layout: Layout
    runtime: int
    code_type: int


class Unreadable(Exception):  # noqa: N818 - says what, not that
    """A Python that cannot be sampled, and why."""


def find_interpreter(pid: int) -> Interpreter | None:
    """Return the Python in a process; None if there is none (yet).

    Raises Unreadable if it is one of which it is not known how its memory is laid out.  Raises
    OSError if the process has ended, or may not be read.
    """
    images = list(_images(pid))
    if not images:
        return None
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for path, base in images:
            try:
                found = find_symbols(memory, base, (b"_PyRuntime", b"PyCode_Type", b"Py_Version"))
            except (OSError, struct.error, ValueError, OverflowError):
                continue  # a program that has only begun
            if {b"_PyRuntime", b"PyCode_Type"} <= found.keys():
                return _interpreter(memory, path, found)
    finally:
        os.close(memory)
    if (match := _PYTHON.fullmatch(images[0][0].rpartition("/")[2])) and match[1] == "2":
        raise Unreadable("Python 2")
    return None


def _images(pid: int) -> Iterator[tuple[str, int]]:
    """Yield path and begin of what may be a Python: the program, and libraries of that name."""
    program = str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(" (deleted)")
    seen: set[str] = set()
    with open(f"/proc/{pid}/maps", "rb") as stream:  # noqa: PTH123
        for number, line in enumerate(stream):
            words = line.split(None, 5)
            if number >= _MOST_MAPPINGS:
                return
            if len(words) < 6 or int(words[2], 16):
                continue
            path = words[5].rstrip(b"\n").decode("utf-8", "replace").removesuffix(" (deleted)")
            name = path.rpartition("/")[2]
            if path not in seen and (path == program or name.startswith("libpython")):
                seen.add(path)
                yield path, int(words[0].partition(b"-")[0], 16)


def _interpreter(memory: int, path: str, symbols: dict[bytes, int]) -> Interpreter:
    runtime, code_type = symbols[b"_PyRuntime"], symbols[b"PyCode_Type"]
    head = os.pread(memory, _DEBUG_OFFSETS, runtime)
    if head[:8] == _COOKIE:
        version = (head[11], head[10])
        if version not in _PUBLISHED:
            raise Unreadable(f"Python {version[0]}.{version[1]}")
        if int.from_bytes(head[16:24], "little"):
            raise Unreadable(f"Python {version[0]}.{version[1]} without a global lock")
        return Interpreter(version, published_layout(version, head), runtime, code_type)
    if b"Py_Version" in symbols:
        said = os.pread(memory, 8, symbols[b"Py_Version"])
        version = (said[3], said[2])
    else:
        match = _PYTHON.fullmatch(path.rpartition("/")[2])
        version = (int(match[1] or 0), int(match[2] or 0)) if match else (0, 0)
    if version not in LAYOUTS:
        known = (
            f"Python {version[0]}.{version[1]}" if version[0] else "a Python of no known version"
        )
        raise Unreadable(known)
    return Interpreter(version, LAYOUTS[version], runtime, code_type)


def published_layout(version: tuple[int, int], head: bytes) -> Layout:
    """Return the layout that a Python has at the begin of its runtime."""
    numbers = struct.unpack_from(f"<{_DEBUG_OFFSETS // 8}Q", head.ljust(_DEBUG_OFFSETS, b"\0"))
    earlier = LAYOUTS[3, 12]
    found = {
        name: before if at is None else min(numbers[at], 1 << 40)
        for name, before, at in zip(Layout._fields, earlier, _PUBLISHED[version], strict=False)
    }
    return earlier._replace(**{**found, "indirect": -1, "lock": -found["lock"]})


def find_symbols(memory: int, base: int, names: tuple[bytes, ...]) -> dict[bytes, int]:
    """Return the addresses of dynamic symbols of what is loaded at an address.

    `memory`: descriptor of ``/proc/PID/mem``.  `base`: where its file begins.
    """
    head = os.pread(memory, 64, base)
    if head[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
        return {}
    (table,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    if size != 56 or count > _MOST_HEADERS:
        return {}
    rows = os.pread(memory, size * count, base + table)
    bias, dynamic = base, 0
    for kind, _, offset, virtual, *_ in struct.iter_unpack("<IIQQQQQQ", rows):
        if kind == _LOADED and not offset:
            bias = base - virtual
        dynamic = virtual if kind == _DYNAMIC else dynamic
    where: dict[int, int] = {}
    for tag, value in struct.iter_unpack(
        "<QQ", os.pread(memory, 16 * _MOST_ENTRIES, bias + dynamic)[: 16 * _MOST_ENTRIES]
    ):
        if not tag:
            break
        # The C library puts addresses in place of offsets; musl does not.
        where.setdefault(tag, value if value >= base else value + bias)
    if not {_NAMES, _SYMBOLS, _HASHES} <= where.keys():
        return {}
    found = ((name, _find_symbol(memory, where, name)) for name in names)
    return {name: bias + value for name, value in found if value}


def _find_symbol(memory: int, where: dict[int, int], name: bytes) -> int:
    """Return the value of a symbol by the table of GNU hashes, 0 if there is none."""
    buckets, first, bloom, _ = struct.unpack("<IIII", os.pread(memory, 16, where[_HASHES]))
    if not 0 < buckets < 1 << 24 or bloom > 1 << 20:
        return 0
    hashed = 5381
    for letter in name:
        hashed = (hashed * 33 + letter) & 0xFFFFFFFF
    at = where[_HASHES] + 16 + 8 * bloom
    (symbol,) = struct.unpack("<I", os.pread(memory, 4, at + 4 * (hashed % buckets)))
    if symbol < first:
        return 0
    at += 4 * (buckets - first)
    for number in range(symbol, symbol + _MOST_IN_BUCKET):
        (other,) = struct.unpack("<I", os.pread(memory, 4, at + 4 * number))
        if other | 1 == hashed | 1:
            row = os.pread(memory, 24, where[_SYMBOLS] + 24 * number)
            text, _, _, _, value, _ = struct.unpack("<IBBHQQ", row)
            said = os.pread(memory, len(name) + 1, where[_NAMES] + text)
            if said == name + b"\0":
                return int(value)
        if other & 1:
            break
    return 0
