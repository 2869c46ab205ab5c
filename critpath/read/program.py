"""Compiles metadata into programs for the native decoder.

A program is a list of steps (see ``_program.pxi``).  The compiler tracks the bit position
modulo a power of two, so that fields of fixed size join into one run whose offsets are
computed here, once per event class.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import I64
from critpath.read.metadata.layout import (
    ENDLESS,
    TIMESTAMP,
    alignment,
    find_encoding,
    fixed_size,
    is_packable,
    is_text,
)
from critpath.read.metadata.schema import (
    ArrayClass,
    FieldClass,
    FieldPath,
    FloatClass,
    IntegerClass,
    StringClass,
    StructureClass,
    TextClass,
    VariantClass,
    VarintClass,
)

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
    """Steps and ranges of one trace; ``taken`` counts what the decoder has already."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.ranges: list[tuple[int, int, int]] = []
        self.free = FIRST_FREE_REGISTER
        self.taken = (0, 0)

    def copy(self) -> Program:
        """Return a copy of which no decoder has anything yet."""
        other = Program()
        other.steps, other.ranges, other.free = list(self.steps), list(self.ranges), self.free
        return other

    def register(self, count: int = 1) -> int:
        """Reserve registers; return the first."""
        self.free += count
        return self.free - count

    def new(self) -> tuple[I64, I64, int]:
        """Return the steps and ranges added since the last call, and the registers needed."""
        steps = np.array(self.steps[self.taken[0] :], np.int64).reshape(-1, 6)
        ranges = np.array(self.ranges[self.taken[1] :], np.int64).reshape(-1, 3)
        self.taken = (len(self.steps), len(self.ranges))
        return steps, ranges, self.free


class Emitter:
    """Appends steps and tracks the position modulo a power of two.

    Fields of fixed size join into a run: one step checks that all of them lie within the
    packet, and the loads behind it use offsets into the run.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._modulus = 1
        self._residue = 0
        self._run = -1
        self._length = 0

    def begin(self, position: tuple[int, int] = (1, 0)) -> int:
        """Begin at a position known as (modulus, residue); return the index of the first step."""
        self._modulus, self._residue = position
        return len(self.program.steps)

    def copy(self, register: int, place: int) -> None:
        """Store a register, for a field of the packet's context."""
        self._end_run()
        self._emit(Code.COPY, 0, place, register)

    def clear(self, register: int) -> None:
        """Set a register to 0, for a field that may be absent."""
        self._end_run()
        self._emit(Code.CLEAR, 1, register)

    def end(self) -> tuple[int, int]:
        """Finish the program; return what is known of the position."""
        self._end_run()
        self._emit(Code.END)
        return self._modulus, self._residue

    # Positions.

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

    def _end_run(self) -> None:
        """End the run of fixed-size fields."""
        if self._run >= 0:
            self.program.steps[self._run][3] = self._length
            self._run = -1

    def _open_run(self) -> None:
        if self._run < 0:
            self._run = self._emit(Code.RUN)
            self._length = 0

    def _advance(self, bits: int) -> None:
        if bits:
            self._open_run()
            self._length = min(self._length + bits, ENDLESS)
            self._residue = (self._residue + bits) % self._modulus

    def _align(self, to: int) -> None:
        if to <= self._modulus:
            self._advance(-self._residue % to)
        else:
            self._end_run()
            self._emit(Code.ALIGN, a=to)
            self._modulus, self._residue = to, 0

    def _pass_unknown(self, modulus: int = 1) -> None:
        """Pass a field of unknown size, a multiple of ``modulus`` bits."""
        self._modulus = min(self._modulus, modulus)
        self._residue %= self._modulus

    def _join_positions(self, ways: list[tuple[int, int]]) -> None:
        modulus = min(m for m, _ in ways)
        while len({r % modulus for _, r in ways}) > 1:
            modulus //= 2
        self._modulus, self._residue = modulus, ways[0][1] % modulus


# Marks the names of options in a path.
_OPTION = "\0"


class Compiler(Emitter):
    """Writes the program of some scopes, one after the other.

    Parameters
    ----------
    program : Program
        Receives the steps.
    needed : set of path
        Fields to keep in registers, as selectors and lengths name them.
    registers : mapping of path to (register, signed)
        Needed fields already passed, in this program or those before it.
    clock : str
        The clock whose fields advance time; "" for none.
    outputs : mapping of path to (places, type)
        Fields to store, by scope and displayed names; see `selection.iter_leaves`.
    strip : bool
        Whether names lose LTTng's leading underscore.
    uuid : bytes
        The trace's, which packets must repeat; empty if it has none.
    bank : int
        Where outputs go: 0 the event's values, 1 registers.
    cpu : str
        The field of an event that has its cpu; "" where the packet has it.

    Attributes
    ----------
    present : int
        A bit per `Role` register that the program sets.
    """

    def __init__(
        self,
        program: Program,
        needed: frozenset[FieldPath] = frozenset(),
        registers: dict[FieldPath, tuple[int, bool]] | None = None,
        clock: str = "",
        outputs: Mapping[FieldPath, tuple[tuple[int, ...], str]] | None = None,
        strip: bool = True,
        uuid: bytes = b"",
        bank: int = 0,
        cpu: str = "",
    ) -> None:
        super().__init__(program)
        self.needed = needed
        self.registers = {} if registers is None else registers
        self.clock = clock
        self.outputs = {} if outputs is None else outputs
        self.strip = strip
        self.uuid = uuid
        self.bank = bank
        self.cpu = cpu
        self.present = 0
        self._scope = ""

    def scope(self, name: str, of: StructureClass | None) -> None:
        """Compile one scope."""
        self._scope = name
        if of is not None:
            self._field(of, (name,), (name,))

    # Fields.

    def _field(self, of: FieldClass, raw: FieldPath, shown: FieldPath) -> None:
        self._align(alignment(of))
        match of:
            case IntegerClass():
                self._integer(of, raw, shown)
            case VarintClass():
                self._varint(of, raw, shown)
            case FloatClass():
                self._float(of, shown)
            case StringClass():
                self._string(of, shown)
            case TextClass():
                self._text(of, shown)
            case ArrayClass():
                self._array(of, raw, shown)
            case StructureClass():
                for member in of.members:
                    self._field(
                        member.field, (*raw, member.name), (*shown, self.shown_name(member.name))
                    )
            case VariantClass():
                self._variant(of, raw, shown)

    def shown_name(self, name: str) -> str:
        """Return a field's name as babeltrace2 shows it."""
        return name[1:] if self.strip and name.startswith("_") else name

    def _find_needed(self, raw: FieldPath) -> FieldPath | None:
        """Return the path by which others need a field; it may leave out option names."""
        if not self.needed:
            return None
        return next((p for p in _spellings(raw) if p in self.needed), None)

    def _find_needed_below(self, raw: FieldPath) -> list[FieldPath]:
        """Return the needed paths below a field."""
        heads = _spellings(raw)
        return sorted(p for p in self.needed if any(p[: len(h)] == h and p != h for h in heads))

    def _register(self, path: FieldPath, *, signed: bool) -> int:
        known = self.registers.get(path)
        register = self.program.register() if known is None else known[0]
        self.registers[path] = (register, signed)
        return register

    def _find_targets(
        self, of: IntegerClass | VarintClass, raw: FieldPath, shown: FieldPath
    ) -> tuple[list[tuple[int, int]], int]:
        """Return where an integer goes (bank, place), and its clock register or -1."""
        targets: list[tuple[int, int]] = []
        clock = -1
        targets += self._find_places(shown, "int", "uint")
        needed = self._find_needed(raw)
        if needed is not None:
            targets.append((1, self._register(needed, signed=of.signed)))
        if self.cpu and shown[1:] == (self.cpu,):
            targets.append((1, int(Role.CPU)))
        if self._scope in {"packet-header", "packet-context", "event-header"}:
            roles = {ROLES[r] for r in of.roles if r in ROLES}
            if self._scope == "packet-context":
                if TIMESTAMP in of.roles:
                    roles.add(Role.BEGIN)
                if shown == (self._scope, "cpu_id"):
                    roles.add(Role.CPU)
            for role in sorted(roles):
                targets.append((1, int(role)))
                self.present |= 1 << role
        ticks = TIMESTAMP in of.roles or (self.clock != "" and of.clock == self.clock)
        if ticks and not of.signed and "packet-end-default-clock-timestamp" not in of.roles:
            clock = self.program.register()
            targets.append((1, clock))
        return targets, clock

    def _integer(self, of: IntegerClass, raw: FieldPath, shown: FieldPath) -> None:
        targets, clock = self._find_targets(of, raw, shown)
        self._load(of.bits, targets, signed=of.signed, big=of.big_endian, reverse=of.bit_reversed)
        if clock >= 0:
            self._emit(Code.CLOCK, a=clock, b=of.bits)

    def _load(
        self,
        bits: int,
        targets: list[tuple[int, int]],
        *,
        signed: bool = False,
        big: bool = False,
        reverse: bool = False,
        floating: bool = False,
    ) -> None:
        self._open_run()
        at = self._length
        # Registers hold a selector as the metadata says it is signed; so do values.
        code = LOADS.get((bits, signed, big))
        start = (self._residue - at) % 8 if self._modulus >= 8 else -1
        for bank, place in targets:
            if code is not None and start == 0 and at % 8 == 0 and not reverse and not floating:
                self._emit(code, bank, place, at // 8)
            else:
                flags = signed + 2 * big + 4 * reverse
                self._emit(Code.FLOAT if floating else Code.BITS, bank, place, at, bits, flags)
        self._advance(bits)

    def _varint(self, of: VarintClass, raw: FieldPath, shown: FieldPath) -> None:
        self._end_run()
        targets, clock = self._find_targets(of, raw, shown)
        if not targets:
            self._emit(Code.LEB, 1, -1, int(of.signed))
        else:
            keep = self.program.register()
            self._emit(Code.LEB, 1, keep, int(of.signed))
            for bank, place in targets:
                self._emit(Code.COPY, bank, place, keep)
            if clock >= 0:
                self._emit(Code.CLOCK, a=clock, b=64)
        self._pass_unknown(8)

    def _float(self, of: FloatClass, shown: FieldPath) -> None:
        targets = self._find_places(shown, "float")
        if of.bits == 32:
            self._load(32, targets, big=of.big_endian, reverse=of.bit_reversed, floating=True)
        elif of.bits == 64:
            self._load(64, targets, big=of.big_endian, reverse=of.bit_reversed)
        else:
            self._advance(of.bits)

    def _find_places(self, shown: FieldPath, *types: str) -> list[tuple[int, int]]:
        """Return where a field of one of these types goes, as (bank, place)."""
        wanted = self.outputs.get(shown)
        if wanted is None or wanted[1] not in types:
            return []
        return [(self.bank, place) for place in wanted[0]]

    def _varying_text(self, code: int, a: int, encoding: int, shown: FieldPath) -> None:
        """Read or skip a text of unknown size."""
        places = self._find_places(shown, "str")
        if len(places) == 1:
            self._emit(code, *places[0], a, 0, encoding)
        elif not places:
            self._emit(code, 0, -1, a, 0, encoding)
        else:
            keep = self.program.register()
            self._emit(code, 1, keep, a, 0, encoding)
            for bank, place in places:
                self._emit(Code.COPY, bank, place, keep)
        self._pass_unknown(8)

    def _string(self, of: StringClass, shown: FieldPath) -> None:
        self._end_run()
        encoding = find_encoding(of.encoding)
        unit = 1 if encoding == 0 else 2 if encoding <= 2 else 4
        self._varying_text(Code.STRING, unit, encoding, shown)

    def _fixed_text(self, size: int, encoding: int, shown: FieldPath) -> None:
        if size < ENDLESS:
            for bank, place in self._find_places(shown, "str"):
                self._open_run()
                self._emit(Code.TEXT, bank, place, self._length // 8, size, encoding)
        self._advance(min(8 * size, ENDLESS))

    def _text(self, of: TextClass, shown: FieldPath) -> None:
        encoding = find_encoding(of.encoding)
        if "metadata-stream-uuid" in of.roles and of.length == 16:
            self._uuid()
        if isinstance(of.length, int):
            # Loads count bytes from a run's begin, which aligned fields share.
            self._whole_bytes()
            self._fixed_text(of.length, encoding, () if of.blob else shown)
            return
        register = self._length_register(of.length)
        if register < 0:
            return
        self._varying_text(Code.TEXTN, register, encoding, () if of.blob else shown)

    def _whole_bytes(self) -> None:
        """Begin a new run unless this one began on a whole byte."""
        if self._run >= 0 and self._length % 8:
            self._end_run()

    def _length_register(self, path: FieldPath) -> int:
        """Return the register of a length or selector, or -1 after a step that fails."""
        self._end_run()
        known = self.registers.get(path)
        if known is None:
            self._emit(Code.FAIL)
            return -1
        return known[0]

    def _uuid(self) -> None:
        self._whole_bytes()
        if len(self.uuid) == 16:
            self._open_run()
            words = np.frombuffer(self.uuid, np.int64)
            self._emit(Code.UUID, 0, 0, self._length // 8, int(words[0]), int(words[1]))

    def _array(self, of: ArrayClass, raw: FieldPath, shown: FieldPath) -> None:
        if "metadata-stream-uuid" in of.roles and of.length == 16 and alignment(of) % 8 == 0:
            self._uuid()
        element = of.element
        fixed = fixed_size(element)
        padded = None if fixed is None else -(-fixed // alignment(element)) * alignment(element)
        keeps = bool(self.needed) and bool(self._find_needed_below(raw) or self._find_needed(raw))
        if isinstance(of.length, int):
            packed = self._find_places(shown, "uint") if is_packable(of) else []
            if is_text(of):
                self._whole_bytes()
                self._fixed_text(of.length, 0, shown)
            elif packed:
                self._load(8 * of.length, packed, big=True)
            elif of.length == 0:
                pass
            elif fixed is not None and padded is not None and not keeps:
                self._advance(min(padded * (of.length - 1) + fixed, ENDLESS))
            else:
                self._loop(of, raw, -1, of.length)
            return
        register = self._length_register(of.length)
        if register < 0:
            return
        if is_text(of):
            self._varying_text(Code.TEXTN, register, 0, shown)
        elif fixed is not None and padded == fixed and not keeps:
            self._emit(Code.SKIPN, a=register, b=fixed)
            self._pass_unknown(fixed & -fixed if fixed else self._modulus)
        else:
            self._loop(of, raw, register, 0)

    def _loop(self, of: ArrayClass, raw: FieldPath, register: int, count: int) -> None:
        self._end_run()
        counter = self.program.register(2)
        loop = self._emit(Code.LOOP, a=counter, b=register, c=min(count, ENDLESS))
        body = len(self.program.steps)
        # What is known must hold for every element, so begin from nothing.
        before = (self._modulus, self._residue)
        self._modulus, self._residue = 1, 0
        self._field(of.element, raw, ("",))  # no output is called so
        self._end_run()
        self._emit(Code.NEXT, dst=body, a=counter)
        self.program.steps[loop][2] = len(self.program.steps)
        # Passed or not: only what holds in both cases stays known.
        self._join_positions([before, (self._modulus, self._residue)])

    def _variant(self, of: VariantClass, raw: FieldPath, shown: FieldPath) -> None:
        self._end_run()
        for path in self._find_needed_below(raw):
            # Selected by a later variant although its own option was not: reads as 0.
            self._emit(Code.CLEAR, 1, self._register(path, signed=False))
        known = self.registers.get(of.selector)
        if known is None:
            self._emit(Code.FAIL)
            return
        register, signed = known
        switch = self._emit(Code.SWITCH, int(signed), -1, register)
        before = (self._modulus, self._residue)
        ways, jumps = [], []
        rows: list[tuple[int, int, int]] = []
        for option in of.options:
            place = len(self.program.steps)
            if option.ranges:
                rows += [(low, high, place) for low, high in option.ranges]
            elif of.optional:
                rows += (
                    [(1, (1 << 64) - 1, place)]
                    if not signed
                    else [
                        (-(1 << 63), -1, place),
                        (1, (1 << 63) - 1, place),
                    ]
                )
            self._modulus, self._residue = before
            name = () if of.optional else (_OPTION + option.name,)
            self._field(option.field, raw + name, shown)
            self._end_run()
            ways.append((self._modulus, self._residue))
            jumps.append(self._emit(Code.JUMP))
        after = len(self.program.steps)
        for jump in jumps:
            self.program.steps[jump][3] = after
        if of.optional:
            self.program.steps[switch][2] = after
            ways.append(before)
        self.program.steps[switch][4] = len(self.program.ranges)
        kept = [row for row in (_clip(row, signed=signed) for row in rows) if row is not None]
        self.program.steps[switch][5] = len(kept)
        self.program.ranges += kept
        self._join_positions(ways or [before])


def _spellings(raw: FieldPath) -> tuple[FieldPath, FieldPath]:
    """Return a path with the names of options and without them."""
    return (
        tuple(name.removeprefix(_OPTION) for name in raw),
        tuple(name for name in raw if not name.startswith(_OPTION)),
    )


def _clip(row: tuple[int, int, int], *, signed: bool) -> tuple[int, int, int] | None:
    """Return a range within what a register can hold, or None if nothing is left."""
    least, most = (-(1 << 63), (1 << 63) - 1) if signed else (0, (1 << 64) - 1)
    low, high = max(row[0], least), min(row[1], most)
    return None if low > high else (signed64(low), signed64(high), row[2])
