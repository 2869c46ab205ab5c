"""Small programs for the kernel (bpf): instructions that are loaded without a compiler.

A program belongs to descriptors of this process: the kernel takes it away when they are closed,
however the process ends.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

# The system call's number.
_NUMBERS: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, PROG_LOAD = 0, 1, 2, 5
PROG_NEXT_ID, OBJECT_INFO, RAW_TRACEPOINT_OPEN, LINK_CREATE = 11, 15, 17, 28
# Kinds of maps and programs.
RINGBUF, ARRAY, FUNCTIONS, RAW_TRACEPOINT, TRACING = 27, 2, 2, 17, 26
EVENTS, ARRAY_OF_CPUS, NEWEST = 4, 6, 9  # perf events, an array for each cpu, a table by numbers
FUNCTION_ENTRY: Final = 24  # where a program of the kind TRACING is attached
OF_FUNCTIONS: Final = 48  # where one of the kind FUNCTIONS is: many at once, of programs
MMAPABLE: Final = 1 << 10
# Helpers.
LOOKUP, UPDATE, DELETE, NOW, CPU, PID_TGID, OUTPUT_EVENT, COOKIE = 1, 2, 3, 5, 8, 14, 25, 174
READ_USER, READ_KERNEL, READ_USER_TEXT, READ_KERNEL_TEXT, ANCESTOR_GROUP = 112, 113, 114, 115, 123
OUTPUT, RESERVE, SUBMIT, CURRENT, REGISTERS = 130, 131, 132, 158, 175
NO_WAKEUP: Final = 1
# Codes of instructions.
EQUAL32, NOT_EQUAL32, NOT_EQUAL, AT_MOST, AT_MOST_SIGNED, MORE, LESS = (
    *(0x16, 0x56, 0x55, 0xB5, 0xD5, 0x25, 0xA5),
)
ANY_BIT: Final = 0x45
EQUAL_REGISTERS, NOT_EQUAL_REGISTERS, MORE_REGISTERS = 0x1D, 0x5D, 0x2D
LOAD64, LOAD32, LOAD16, LOAD8 = 0x79, 0x61, 0x69, 0x71
STORE64, STORE32, STORE16, STORE8, ADD_ATOMIC = 0x7B, 0x63, 0x6B, 0x73, 0xDB
SUBTRACT, MULTIPLY, MULTIPLY_REGISTERS = 0x1F, 0x27, 0x2F
SHIFT_RIGHT, SHIFT_RIGHT_SIGNED, END = 0x77, 0xC7, 0x95
_MAP, _MAP_VALUE = 1, 2  # what a 64-bit constant stands for
_INFO: Final = struct.Struct("<208xQ")  # of bpf_prog_info: recursion_misses
_NAME: Final = 15  # bytes of a program's or map's name


def call(command: int, attributes: bytes) -> int:
    """Call ``bpf``; raises OSError."""
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    done = _libc().syscall(number, command, buffer, 128)
    if done < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(done)


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


class Assembler:
    """Instructions, with names for where they jump to."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int | str, int]] = []
        self._names: dict[str, int] = {}

    def put(
        self, code: int, to: int = 0, of: int = 0, offset: int | str = 0, value: int = 0
    ) -> None:
        """Append an instruction, whose offset may be the name of a place."""
        self._code.append((code, to, of, offset, value))

    def name(self, name: str) -> None:
        """Name the place of the next instruction."""
        self._names[name] = len(self._code)

    def copy(self, to: int, of: int) -> None:
        """Copy a register."""
        self.put(0xBF, to, of)

    def set(self, to: int, value: int) -> None:
        """Set a register to a number of 32 bits."""
        self.put(0xB7, to, value=value)

    def set64(self, to: int, value: int) -> None:
        """Set a register to a number of 64 bits."""
        self.put(0x18, to, value=_signed(value))
        self.put(0, value=_signed(value >> 32))

    def add(self, to: int, value: int) -> None:
        """Add a number."""
        self.put(0x07, to, value=value)

    def add_register(self, to: int, of: int) -> None:
        """Add a register."""
        self.put(0x0F, to, of)

    def shift_left(self, to: int, bits: int) -> None:
        """Shift a register."""
        self.put(0x67, to, value=bits)

    def mask(self, to: int, bits: int) -> None:
        """Keep some bits of a register."""
        self.put(0x57, to, value=bits)

    def call(self, helper: int) -> None:
        """Call a function of the kernel's."""
        self.put(0x85, value=helper)

    def map(self, to: int, descriptor: int) -> None:
        """Load a map."""
        self.put(0x18, to, _MAP, value=descriptor)
        self.put(0)

    def map_value(self, to: int, descriptor: int, offset: int) -> None:
        """Point into the one element of an array."""
        self.put(0x18, to, _MAP_VALUE, value=descriptor)
        self.put(0, value=offset)

    def jump_if(self, register: int, value: int, name: str, *, code: int = 0x15) -> None:
        """Jump if a register is equal to a number, or as the code says."""
        self.put(code, register, offset=name, value=value)

    def jump(self, name: str) -> None:
        """Jump."""
        self.put(0x05, offset=name)

    def bytes(self) -> bytes:
        """Return the program."""
        return b"".join(
            struct.pack(
                "<BBhi",
                *(code, to | of << 4),
                self._names[where] - at - 1 if isinstance(where, str) else where,
                value,
            )
            for at, (code, to, of, where, value) in enumerate(self._code)
        )


def count_loss(a: Assembler, lost: int) -> None:
    """End a program that had no room: count in an array of one; at "out" nothing is counted."""
    a.set(1, 0)
    a.put(STORE32, 10, 1, -4)
    a.map(1, lost)
    a.copy(2, 10)
    a.add(2, -4)
    a.call(LOOKUP)
    a.jump_if(0, 0, "out")
    a.set(1, 1)
    a.put(ADD_ATOMIC, 0, 1)
    a.name("out")
    a.set(0, 0)
    a.put(0x95)


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def make_ring(size: int) -> int:
    """Make a ring that programs write to; return its descriptor; raises OSError."""
    return call(MAP_CREATE, struct.pack("<5I", RINGBUF, 0, 0, size, 0))


def make_map(kind: int, key: int, value: int, count: int) -> int:
    """Make a map of another kind; return its descriptor; raises OSError."""
    return call(MAP_CREATE, struct.pack("<5I", kind, key, value, count, 0))


def write_element(where: int, key: int, value: int) -> None:
    """Set what a map of numbers (32 bits) has for one; raises OSError."""
    numbers = [ctypes.create_string_buffer(struct.pack("<I", number), 4) for number in (key, value)]
    call(MAP_UPDATE, struct.pack("<IIQQQ", where, 0, *map(ctypes.addressof, numbers), 0))


def make_array(size: int, count: int = 1, *, mapped: bool = False) -> int:
    """Make an array of elements, which may be mapped; return its descriptor; raises OSError."""
    return call(MAP_CREATE, struct.pack("<5I", ARRAY, 4, size, count, MMAPABLE if mapped else 0))


def read_element(array: int, size: int) -> bytes:
    """Return an array's first element."""
    key, value = ctypes.create_string_buffer(4), ctypes.create_string_buffer(size)
    where = ctypes.addressof(key), ctypes.addressof(value)
    call(MAP_LOOKUP, struct.pack("<IIQQ", array, 0, *where))
    return value.raw


def load(code: bytes, name: bytes, function: int = 0, kind: int = RAW_TRACEPOINT) -> int:
    """Load a program for a raw tracepoint, a function by its number in BTF, or of another kind.

    Raises OSError.
    """
    instructions = ctypes.create_string_buffer(code, len(code))
    license_text = ctypes.create_string_buffer(b"GPL")  # what the helpers ask for
    where = OF_FUNCTIONS if kind == FUNCTIONS else 0
    kind, where = (TRACING, FUNCTION_ENTRY) if function else (kind, where)
    return call(
        PROG_LOAD,
        struct.pack(
            "<IIQQIIQII16sII32xII",
            *(kind, len(code) // 8),
            *(ctypes.addressof(instructions), ctypes.addressof(license_text)),
            *(0, 0, 0, 0, 0, name[:_NAME]),
            *(0, where, 0, function),
        ),
    )


def attach(tracepoint: bytes, program: int) -> int:
    """Run a program at a tracepoint, b"" for its own function, while the descriptor is open."""
    name = ctypes.create_string_buffer(tracepoint)
    where = ctypes.addressof(name) if tracepoint else 0
    return call(RAW_TRACEPOINT_OPEN, struct.pack("<QI", where, program))


def attach_functions(
    path: bytes, places: Sequence[tuple[int, int]], program: int, *, at_return: bool
) -> int:
    """Run a program at functions of a file, each with a number that it can ask for.

    `places`: where each is in the file, and its number.  Linux 6.6 and later; raises OSError.
    """
    name, count = ctypes.create_string_buffer(path), len(places)
    columns = [
        ctypes.create_string_buffer(struct.pack(f"<{count}Q", *c))
        for c in zip(*places, strict=True)
    ]
    at, cookies = map(ctypes.addressof, columns)
    about = ctypes.addressof(name), at, 0, cookies, count, at_return, 0
    return call(LINK_CREATE, struct.pack("<4I4Q3I", program, 0, OF_FUNCTIONS, 0, *about))


def count_misses(program: int) -> int:
    """Return how often the kernel skipped a program since it interrupted itself."""
    info = ctypes.create_string_buffer(_INFO.size)
    call(OBJECT_INFO, struct.pack("<IIQ", program, _INFO.size, ctypes.addressof(info)))
    return int(_INFO.unpack(info.raw)[0])


def map_memory(array: int, size: int, *, written: bool = False) -> mmap.mmap:
    """Map a mappable array for reading, and maybe writing."""
    rights = mmap.PROT_READ | (mmap.PROT_WRITE if written else 0)
    return mmap.mmap(array, size, mmap.MAP_SHARED, rights)
