"""The steps of a program, and what is known of the position while writing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import I64
from critpath.read.shapes import ENDLESS

_MAX_STEPS = 1 << 20


class Code(IntEnum):
    """The steps of a program, as in ``_program.pxi``."""

    END = 0
    RUN = 1
    ALIGN = 2
    U8 = 3
    S8 = 4
    U16 = 5
    S16 = 6
    U32 = 7
    S32 = 8
    X64 = 9
    U16B = 10
    S16B = 11
    U32B = 12
    S32B = 13
    X64B = 14
    BITS = 15
    FLOAT = 16
    TEXT = 17
    CLOCK = 18
    COPY = 19
    SWITCH = 20
    JUMP = 21
    STRING = 22
    TEXTN = 23
    SKIPN = 24
    LOOP = 25
    NEXT = 26
    LEB = 27
    CLEAR = 28
    UUID = 29
    FAIL = 30


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


@dataclass
class Program:
    """Steps and ranges of one trace; ``taken`` says how many the decoder has already."""

    steps: list[list[int]] = field(default_factory=list)
    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    free: int = FIRST_FREE_REGISTER
    taken: tuple[int, int] = (0, 0)

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


@dataclass
class Emitter:
    """Appends steps, and follows the position modulo a power of two.

    Fields of fixed size fall into one run: a step that checks once that all of them are
    there, and loads behind it at offsets into the run.
    """

    program: Program
    _modulus: int = field(default=1, init=False)
    _residue: int = field(default=0, init=False)
    _run: int = field(default=-1, init=False)
    _length: int = field(default=0, init=False)

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
        self, code: Code, bank: int = 0, dst: int = 0, a: int = 0, b: int = 0, c: int = 0
    ) -> int:
        if len(self.program.steps) >= _MAX_STEPS:
            raise UnreadableError(
                "the metadata describes more fields than any real trace has",
                "check that this is the trace that was meant",
            )
        self.program.steps.append([int(code), bank, dst, a, b, c])
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
