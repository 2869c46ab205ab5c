"""The steps of a program, and what is known of the position while writing them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import I64
from critpath.read.shapes import ENDLESS

_MAX_STEPS = 1 << 20


class Code:
    """The steps of a program, which the decoder runs."""

    END: Final = 0  # the program is through
    RUN: Final = 1  # a bits follow; loads count from here
    ALIGN: Final = 2  # to a multiple of a bits
    U8: Final = 3  # loads at byte a, least significant byte first
    S8: Final = 4
    U16: Final = 5
    S16: Final = 6
    U32: Final = 7
    S32: Final = 8
    X64: Final = 9
    U16B: Final = 10  # most significant byte first
    S16B: Final = 11
    U32B: Final = 12
    S32B: Final = 13
    X64B: Final = 14
    BITS: Final = 15  # b bits at bit a; c: 1 signed, 2 big-endian, 4 reversed
    FLOAT: Final = 16  # 32 bits at bit a, as the bits of a double; c as BITS
    TEXT: Final = 17  # b bytes of text at byte a; c encoding
    CLOCK: Final = 18  # register a, b bits wide, updates the clock
    COPY: Final = 19  # from register a
    SWITCH: Final = 20  # by register a: b first row, c rows of the table; bank 1: signed; dst: else
    JUMP: Final = 21  # to a
    STRING: Final = 22  # null-terminated; a bytes a unit; c encoding
    TEXTN: Final = 23  # register a bytes of text; c encoding
    SKIPN: Final = 24  # register a times b bits
    LOOP: Final = 25  # counter register a from register b (or c, if b < 0); dst: if none
    NEXT: Final = 26  # counter register a (a + 1: where the element began); dst: once more
    LEB: Final = 27  # variable-length integer; a: 1 signed
    CLEAR: Final = 28  # 0 into dst
    UUID: Final = 29  # 16 bytes at byte a must be b, c
    FAIL: Final = 30  # the metadata cannot say what follows


class Role(IntEnum):
    """Registers with a meaning; the decoder reads them after each header."""

    MAGIC = 0
    STREAM = 1
    INSTANCE = 2
    BEGIN = 3
    END = 4
    CONTENT = 5
    PACKET = 6
    SEQUENCE = 7
    DISCARDED = 8
    CPU = 9
    EVENT = 10


FIRST_FREE_REGISTER = 11

ROLES: Mapping[str, Role] = {
    "packet-magic-number": Role.MAGIC,
    "data-stream-class-id": Role.STREAM,
    "data-stream-id": Role.INSTANCE,
    "packet-end-default-clock-timestamp": Role.END,
    "packet-content-length": Role.CONTENT,
    "packet-total-length": Role.PACKET,
    "packet-sequence-number": Role.SEQUENCE,
    "discarded-event-record-counter-snapshot": Role.DISCARDED,
    "event-record-class-id": Role.EVENT,
}

# (bits, signed, big-endian) of integers that lie on whole bytes.
LOADS = {
    (8, False, False): Code.U8,
    (8, True, False): Code.S8,
    (16, False, False): Code.U16,
    (16, True, False): Code.S16,
    (32, False, False): Code.U32,
    (32, True, False): Code.S32,
    (64, False, False): Code.X64,
    (64, True, False): Code.X64,
    (8, False, True): Code.U8,
    (8, True, True): Code.S8,
    (16, False, True): Code.U16B,
    (16, True, True): Code.S16B,
    (32, False, True): Code.U32B,
    (32, True, True): Code.S32B,
    (64, False, True): Code.X64B,
    (64, True, True): Code.X64B,
}


def signed64(value: int) -> int:
    """Return the same 64 bits as a signed number, clamped into what they can hold."""
    value = max(-(1 << 63), min(value, (1 << 64) - 1))
    return value - (1 << 64) if value >= 1 << 63 else value


class Program:
    """Steps and ranges of one trace; ``taken`` says how many the decoder has already."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.ranges: list[tuple[int, int, int]] = []
        self.free = FIRST_FREE_REGISTER
        self.taken = (0, 0)

    def copy(self) -> Program:
        """Return the same program, for a decoder that has nothing of it yet."""
        other = Program()
        other.steps, other.ranges, other.free = list(self.steps), list(self.ranges), self.free
        return other

    def register(self, count: int = 1) -> int:
        """Return the first of some registers nobody uses."""
        self.free += count
        return self.free - count

    def new(self) -> tuple[I64, I64, int]:
        """Return steps and ranges added since the last call, and the registers needed."""
        steps = np.array(self.steps[self.taken[0] :], np.int64).reshape(-1, 6)
        ranges = np.array(self.ranges[self.taken[1] :], np.int64).reshape(-1, 3)
        self.taken = (len(self.steps), len(self.ranges))
        return steps, ranges, self.free


class Emitter:
    """Appends steps, and follows the position modulo a power of two.

    Fields of fixed size fall into one run: a step that checks once that all of them are
    there, and loads behind it at offsets into the run.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._modulus = 1
        self._residue = 0
        self._run = -1
        self._length = 0

    def begin(self, position: tuple[int, int] = (1, 0)) -> int:
        """Begin at a position known as (modulus, residue); return the program's place."""
        self._modulus, self._residue = position
        return len(self.program.steps)

    def copy(self, register: int, place: int) -> None:
        """Store a register, for a field of the packet's context."""
        self._flush()
        self._emit(Code.COPY, 0, place, register)

    def clear(self, register: int) -> None:
        """Set a register to 0, for a field that may not be there."""
        self._flush()
        self._emit(Code.CLEAR, 1, register)

    def end(self) -> tuple[int, int]:
        """Finish the program; return what is known of the position."""
        self._flush()
        self._emit(Code.END)
        return self._modulus, self._residue

    # ------------------------------------------------------------- positions

    def _emit(
        self, code: int, bank: int = 0, dst: int = 0, a: int = 0, b: int = 0, c: int = 0
    ) -> int:
        if len(self.program.steps) >= _MAX_STEPS:
            raise UnreadableError(
                "the metadata describes more fields than any real trace has",
                "check that this is the trace that was meant",
            )
        self.program.steps.append([code, bank, dst, a, b, c])
        return len(self.program.steps) - 1

    def _flush(self) -> None:
        """End the run of fixed-size fields."""
        if self._run >= 0:
            self.program.steps[self._run][3] = self._length
            self._run = -1

    def _open(self) -> None:
        if self._run < 0:
            self._run = self._emit(Code.RUN)
            self._length = 0

    def _advance(self, bits: int) -> None:
        if bits:
            self._open()
            self._length = min(self._length + bits, ENDLESS)
            self._residue = (self._residue + bits) % self._modulus

    def _align(self, to: int) -> None:
        if to <= self._modulus:
            self._advance(-self._residue % to)
        else:
            self._flush()
            self._emit(Code.ALIGN, a=to)
            self._modulus, self._residue = to, 0

    def _moved(self, modulus: int = 1) -> None:
        """Note that a field of unknown size was passed; it was a multiple of modulus."""
        self._modulus = min(self._modulus, modulus)
        self._residue %= self._modulus

    def _meet(self, ways: list[tuple[int, int]]) -> None:
        modulus = min(m for m, _ in ways)
        while len({r % modulus for _, r in ways}) > 1:
            modulus //= 2
        self._modulus, self._residue = modulus, ways[0][1] % modulus
