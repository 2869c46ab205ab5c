"""Compiles what the metadata says into programs for the native decoder.

A program is a list of steps (see ``_program.pxi``).  The compiler follows what is
known about the position while decoding, modulo a power of two, so that fields of
fixed size fall into one run with offsets computed here, once per event class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import I64
from critpath.read.schema import (
    ArrayClass,
    FieldClass,
    FloatClass,
    IntegerClass,
    StringClass,
    StructureClass,
    TextClass,
    VariantClass,
    VarintClass,
)

Path = tuple[str, ...]

# Longer runs than any file: the decoder refuses them, and sums cannot overflow.
_ENDLESS = 1 << 60
_MAX_STEPS = 1 << 20

# Marks the names of options in a path.
_OPTION = "\0"

ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")


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
TIMESTAMP = "default-clock-timestamp"

# (bits, signed, big-endian) of integers that lie on whole bytes.
_LOADS = {
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


def alignment(of: FieldClass) -> int:
    """Return the alignment of a field in bits: that of its most demanding part."""
    match of:
        case IntegerClass() | FloatClass():
            align = of.align
        case VarintClass() | StringClass() | TextClass():
            align = 8
        case ArrayClass():
            align = max(of.align, alignment(of.element))
        case StructureClass():
            align = max([of.align, *(alignment(m.field) for m in of.members)])
        case VariantClass():
            align = 1
    if align < 1 or align & (align - 1) or align > 1 << 32:
        raise UnreadableError(
            f"the metadata asks for an alignment of {align} bits",
            "an alignment is a power of two: record the trace again",
        )
    return align


def is_text(of: FieldClass) -> bool:
    """Tell whether an array is a string, as babeltrace2 decides it."""
    return (
        isinstance(of, ArrayClass)
        and isinstance(of.element, IntegerClass)
        and of.element.text
        and of.element.bits == 8
        and of.element.align == 8
    )


def selectors(fields: Iterable[FieldClass | None]) -> Iterator[Path]:
    """Yield the path of every field that others need: selectors and lengths."""
    for of in fields:
        match of:
            case TextClass(length=tuple() as path):
                yield path
            case ArrayClass():
                if isinstance(of.length, tuple):
                    yield of.length
                yield from selectors([of.element])
            case StructureClass():
                yield from selectors(m.field for m in of.members)
            case VariantClass():
                yield of.selector
                yield from selectors(o.field for o in of.options)


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


def _signed64(value: int) -> int:
    """Return the same 64 bits as a signed number, clamped into what they can hold."""
    value = max(-(1 << 63), min(value, (1 << 64) - 1))
    return value - (1 << 64) if value >= 1 << 63 else value


@dataclass
class Compiler:
    """Writes one program: some scopes one after the other.

    Parameters
    ----------
    program : Program
        Where the steps go.
    needed : set of path
        Fields to keep in registers, as selectors and lengths name them.
    clock : str
        The clock whose fields move time; "" for none.
    outputs : mapping of path to (places, type)
        Fields to store, by scope and displayed names; see `selection.leaves`.
    strip : bool
        Whether names lose LTTng's leading underscore.
    uuid : bytes
        The trace's, which packets must repeat; empty if it has none.
    bank : int
        Where outputs go: 0 the event's values, 1 registers.
    registers : mapping of path to (register, signed)
        Fields needed and already passed, of this program and those before it.
    present : int
        A bit per `Role` register that the program sets.
    """

    program: Program
    needed: frozenset[Path] = frozenset()
    registers: dict[Path, tuple[int, bool]] = field(default_factory=dict)
    clock: str = ""
    outputs: Mapping[Path, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    strip: bool = True
    uuid: bytes = b""
    bank: int = 0
    present: int = 0
    _modulus: int = 1
    _residue: int = 0
    _run: int = -1
    _length: int = 0
    _scope: str = ""

    def begin(self, position: tuple[int, int] = (1, 0)) -> int:
        """Begin at a position known as (modulus, residue); return the program's place."""
        self._modulus, self._residue = position
        return len(self.program.steps)

    def scope(self, name: str, of: StructureClass | None) -> None:
        """Compile one scope."""
        self._scope = name
        if of is not None:
            self._field(of, (name,), (name,))

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
            self._length = min(self._length + bits, _ENDLESS)
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

    # ---------------------------------------------------------------- fields

    def _field(self, of: FieldClass, raw: Path, shown: Path) -> None:
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

    def _needed(self, raw: Path) -> Path | None:
        """Return the path by which others need a field; it may leave out option names."""
        if not self.needed:
            return None
        return next((p for p in _spellings(raw) if p in self.needed), None)

    def _inside(self, raw: Path) -> list[Path]:
        """Return the needed paths below a field."""
        heads = _spellings(raw)
        return sorted(p for p in self.needed if any(p[: len(h)] == h and p != h for h in heads))

    def _register(self, path: Path, *, signed: bool) -> int:
        known = self.registers.get(path)
        register = self.program.register() if known is None else known[0]
        self.registers[path] = (register, signed)
        return register

    def _targets(
        self, of: IntegerClass | VarintClass, raw: Path, shown: Path
    ) -> tuple[list[tuple[int, int]], int]:
        """Return where an integer goes (bank, place), and its clock register or -1."""
        targets: list[tuple[int, int]] = []
        clock = -1
        targets += self._places(shown, "int", "uint")
        needed = self._needed(raw)
        if needed is not None:
            targets.append((1, self._register(needed, signed=of.signed)))
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

    def _integer(self, of: IntegerClass, raw: Path, shown: Path) -> None:
        targets, clock = self._targets(of, raw, shown)
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
        self._open()
        at = self._length
        # Registers hold a selector as the metadata says it is signed; so do values.
        code = _LOADS.get((bits, signed, big))
        start = (self._residue - at) % 8 if self._modulus >= 8 else -1
        for bank, place in targets:
            if code is not None and start == 0 and at % 8 == 0 and not reverse and not floating:
                self._emit(code, bank, place, at // 8)
            else:
                flags = signed + 2 * big + 4 * reverse
                self._emit(Code.FLOAT if floating else Code.BITS, bank, place, at, bits, flags)
        self._advance(bits)

    def _varint(self, of: VarintClass, raw: Path, shown: Path) -> None:
        self._flush()
        targets, clock = self._targets(of, raw, shown)
        if not targets:
            self._emit(Code.LEB, 1, -1, int(of.signed))
        else:
            keep = self.program.register()
            self._emit(Code.LEB, 1, keep, int(of.signed))
            for bank, place in targets:
                self._emit(Code.COPY, bank, place, keep)
            if clock >= 0:
                self._emit(Code.CLOCK, a=clock, b=64)
        self._moved(8)

    def _float(self, of: FloatClass, shown: Path) -> None:
        targets = self._places(shown, "float")
        if of.bits == 32:
            self._load(32, targets, big=of.big_endian, reverse=of.bit_reversed, floating=True)
        elif of.bits == 64:
            self._load(64, targets, big=of.big_endian, reverse=of.bit_reversed)
        else:
            self._advance(of.bits)

    def _places(self, shown: Path, *types: str) -> list[tuple[int, int]]:
        """Return where a field of one of these types goes, as (bank, place)."""
        wanted = self.outputs.get(shown)
        if wanted is None or wanted[1] not in types:
            return []
        return [(self.bank, place) for place in wanted[0]]

    def _varying_text(self, code: Code, a: int, encoding: int, shown: Path) -> None:
        """Read a text of unknown size, or pass it."""
        places = self._places(shown, "str")
        if len(places) == 1:
            self._emit(code, *places[0], a, 0, encoding)
        elif not places:
            self._emit(code, 0, -1, a, 0, encoding)
        else:
            keep = self.program.register()
            self._emit(code, 1, keep, a, 0, encoding)
            for bank, place in places:
                self._emit(Code.COPY, bank, place, keep)
        self._moved(8)

    def _string(self, of: StringClass, shown: Path) -> None:
        self._flush()
        encoding = encoding_of(of.encoding)
        unit = 1 if encoding == 0 else 2 if encoding <= 2 else 4
        self._varying_text(Code.STRING, unit, encoding, shown)

    def _fixed_text(self, size: int, encoding: int, shown: Path) -> None:
        if size < _ENDLESS:
            for bank, place in self._places(shown, "str"):
                self._open()
                self._emit(Code.TEXT, bank, place, self._length // 8, size, encoding)
        self._advance(min(8 * size, _ENDLESS))

    def _text(self, of: TextClass, shown: Path) -> None:
        encoding = encoding_of(of.encoding)
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
            self._flush()

    def _length_register(self, path: Path) -> int:
        """Return the register of a length or selector, or -1 after a step that fails."""
        self._flush()
        known = self.registers.get(path)
        if known is None:
            self._emit(Code.FAIL)
            return -1
        return known[0]

    def _uuid(self) -> None:
        self._whole_bytes()
        if len(self.uuid) == 16:
            self._open()
            words = np.frombuffer(self.uuid, np.int64)
            self._emit(Code.UUID, 0, 0, self._length // 8, int(words[0]), int(words[1]))

    def _array(self, of: ArrayClass, raw: Path, shown: Path) -> None:
        if "metadata-stream-uuid" in of.roles and of.length == 16 and alignment(of) % 8 == 0:
            self._uuid()
        element = of.element
        fixed = fixed_size(element)
        padded = None if fixed is None else -(-fixed // alignment(element)) * alignment(element)
        keeps = bool(self.needed) and bool(self._inside(raw) or self._needed(raw))
        if isinstance(of.length, int):
            packed = self._places(shown, "uint") if packable(of) else []
            if is_text(of):
                self._whole_bytes()
                self._fixed_text(of.length, 0, shown)
            elif packed:
                self._load(8 * of.length, packed, big=True)
            elif of.length == 0:
                pass
            elif fixed is not None and padded is not None and not keeps:
                self._advance(min(padded * (of.length - 1) + fixed, _ENDLESS))
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
            self._moved(fixed & -fixed if fixed else self._modulus)
        else:
            self._loop(of, raw, register, 0)

    def _loop(self, of: ArrayClass, raw: Path, register: int, count: int) -> None:
        self._flush()
        counter = self.program.register(2)
        loop = self._emit(Code.LOOP, a=counter, b=register, c=min(count, _ENDLESS))
        body = len(self.program.steps)
        # What is known must hold for every element, so begin from nothing.
        before = (self._modulus, self._residue)
        self._modulus, self._residue = 1, 0
        self._field(of.element, raw, ("",))  # no output is called so
        self._flush()
        self._emit(Code.NEXT, dst=body, a=counter)
        self.program.steps[loop][2] = len(self.program.steps)
        # Passed or not: only what holds in both cases stays known.
        self._meet([before, (self._modulus, self._residue)])

    def _meet(self, ways: list[tuple[int, int]]) -> None:
        modulus = min(m for m, _ in ways)
        while len({r % modulus for _, r in ways}) > 1:
            modulus //= 2
        self._modulus, self._residue = modulus, ways[0][1] % modulus

    def _variant(self, of: VariantClass, raw: Path, shown: Path) -> None:
        self._flush()
        for path in self._inside(raw):
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
            self._flush()
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
        self._meet(ways or [before])


def _spellings(raw: Path) -> tuple[Path, Path]:
    """Return a path with the names of options and without them."""
    return (
        tuple(name.removeprefix(_OPTION) for name in raw),
        tuple(name for name in raw if not name.startswith(_OPTION)),
    )


def _clip(row: tuple[int, int, int], *, signed: bool) -> tuple[int, int, int] | None:
    """Return a range within what a register can hold, or None if nothing is left."""
    least, most = (-(1 << 63), (1 << 63) - 1) if signed else (0, (1 << 64) - 1)
    low, high = max(row[0], least), min(row[1], most)
    return None if low > high else (_signed64(low), _signed64(high), row[2])


def encoding_of(name: str) -> int:
    """Return the position of an encoding in ENCODINGS; unknown ones read as UTF-8."""
    canonical = name.lower().replace("utf16", "utf-16").replace("utf32", "utf-32")
    canonical = canonical.replace("16le", "16-le").replace("16be", "16-be")
    canonical = canonical.replace("32le", "32-le").replace("32be", "32-be")
    return ENCODINGS.index(canonical) if canonical in ENCODINGS else 0


def packable(of: FieldClass) -> bool:
    """Tell whether an array is a few bytes that make one number (an IPv4 address)."""
    return (
        isinstance(of, ArrayClass)
        and isinstance(of.length, int)
        and 1 <= of.length <= 8
        and isinstance(of.element, IntegerClass)
        and (of.element.bits, of.element.align, of.element.signed) == (8, 8, False)
        and not is_text(of)
    )


def fixed_size(of: FieldClass) -> int | None:
    """Return the bits of a field from its aligned begin, or None if they vary."""
    match of:
        case IntegerClass() | FloatClass():
            return of.bits
        case TextClass(length=int() as length):
            return 8 * length
        case ArrayClass(length=int() as length):
            element = fixed_size(of.element)
            if element is None or length == 0:
                return 0 if length == 0 else None
            step = alignment(of.element)
            return min(-(-element // step) * step * (length - 1) + element, _ENDLESS)
        case StructureClass():
            size = 0
            for member in of.members:
                inner = fixed_size(member.field)
                if inner is None:
                    return None
                to = alignment(member.field)
                size = min(-(-size // to) * to + inner, _ENDLESS)
            return size
    return None


def fixed_layout(scopes: Iterable[StructureClass | None]) -> tuple[int, int] | None:
    """Return alignment and bits of scopes one after the other, if both are fixed."""
    align, bits = 1, 0
    for of in scopes:
        if of is None:
            continue
        size, to = fixed_size(of), alignment(of)
        if size is None or (bits and to > align):
            return None
        if bits == 0:
            align = max(align, to)
        bits = min(-(-bits // to) * to + size, _ENDLESS)
    return align, bits


Way = tuple[int, int, int, int, int, int, int]


@dataclass
class _Flat:
    """What `flat_header` gathers on its way through one option."""

    at: int = 0
    event: tuple[int, int] | None = None
    time: tuple[int, int] | None = None

    def add(self, of: FieldClass, clock: str) -> bool:
        """Place a field; False if the native fast way cannot read it."""
        if isinstance(of, StructureClass):
            to = alignment(of)
            self.at = -(-self.at // to) * to
            return all(self.add(m.field, clock) for m in of.members)
        if not isinstance(of, IntegerClass) or of.big_endian or of.bit_reversed or of.signed:
            return False
        self.at = -(-self.at // of.align) * of.align
        if TIMESTAMP in of.roles or (of.clock and of.clock == clock):
            if self.time is not None:
                return False
            self.time = (self.at, of.bits)
        elif "event-record-class-id" in of.roles:
            self.event = (self.at, of.bits)
        self.at += of.bits
        return True


def flat_header(
    of: StructureClass | None, clock: str, needed: frozenset[Path]
) -> tuple[tuple[int, int, int], list[Way]] | None:
    """Tell where an event header's fields lie, if each option of its variant fixes it.

    That holds for LTTng's compact and large headers and for headers without variant;
    the decoder then reads them without a program.

    Returns
    -------
    tuple or None
        (alignment, selector's place, selector's bits), and for each range of the
        selector (low, high, bits of the header, place and bits of the id, place and
        bits of the timestamp); None if only the program can read it.
    """
    if of is None or not of.members:
        return None
    last = of.members[-1].field
    variant = last if isinstance(last, VariantClass) else None
    head = _Flat()
    selector = (0, 1)
    for member in of.members[: len(of.members) - (variant is not None)]:
        path = ("event-header", member.name)
        if not head.add(member.field, clock) or isinstance(member.field, StructureClass):
            return None
        if variant is not None and path == variant.selector:
            selector = (head.at - member.field.bits, member.field.bits)
        elif any(p[:2] == path for p in needed):
            return None
    align = alignment(of)
    if variant is None:
        rows = [(0, 1, _Flat(head.at, head.event, head.time))]
    else:
        others = {p for p in needed if p[0] == "event-header"} - {variant.selector}
        if variant.optional or selector == (0, 1) or others or selector[1] > 32:
            return None
        rows = []
        for option in variant.options:
            way = _Flat(head.at, head.event, head.time)
            # Padding is known only where the header's own alignment covers it.
            if alignment(option.field) > align or not way.add(option.field, clock):
                return None
            rows += [(low, high, way) for low, high in option.ranges]
    if len(rows) > 4 or any(way.event is None for _, _, way in rows):
        return None
    return (align, *selector), [
        (low, high, way.at, *(way.event or (0, 0)), *(way.time or (0, 0)))
        for low, high, way in rows
    ]
