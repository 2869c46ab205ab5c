"""Size and alignment of fields, as far as the metadata fixes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from critpath.errors import UnreadableError
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

# Longer than any file: the decoder refuses such runs, and sums cannot overflow.
ENDLESS = 1 << 60

ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")

TIMESTAMP = "default-clock-timestamp"


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
    """Return whether an array is a string, by babeltrace2's rule."""
    return (
        isinstance(of, ArrayClass)
        and isinstance(of.element, IntegerClass)
        and of.element.text
        and of.element.bits == 8
        and of.element.align == 8
    )


def iter_references(fields: Iterable[FieldClass | None]) -> Iterator[FieldPath]:
    """Yield the path of every field that others depend on: selectors and lengths."""
    for of in fields:
        match of:
            case TextClass(length=tuple() as path):
                yield path
            case ArrayClass():
                if isinstance(of.length, tuple):
                    yield of.length
                yield from iter_references([of.element])
            case StructureClass():
                yield from iter_references(m.field for m in of.members)
            case VariantClass():
                yield of.selector
                yield from iter_references(o.field for o in of.options)


def find_encoding(name: str) -> int:
    """Return the index of an encoding in ENCODINGS; unknown ones read as UTF-8."""
    canonical = name.lower().replace("utf16", "utf-16").replace("utf32", "utf-32")
    canonical = canonical.replace("16le", "16-le").replace("16be", "16-be")
    canonical = canonical.replace("32le", "32-le").replace("32be", "32-be")
    return ENCODINGS.index(canonical) if canonical in ENCODINGS else 0


def decode_texts(texts: Iterable[tuple[bytes, int]]) -> Iterator[str]:
    """Decode the decoder's texts, each given with the index of its encoding."""
    return (text.decode(ENCODINGS[encoding], "replace") for text, encoding in texts)


def is_packable(of: FieldClass) -> bool:
    """Return whether an array is a few bytes that make one number (an IPv4 address)."""
    return (
        isinstance(of, ArrayClass)
        and isinstance(of.length, int)
        and 1 <= of.length <= 8
        and isinstance(of.element, IntegerClass)
        and (of.element.bits, of.element.align, of.element.signed) == (8, 8, False)
        and not is_text(of)
    )


def fixed_size(of: FieldClass) -> int | None:
    """Return the bits of a field from its aligned begin, None if they vary."""
    size: int | None = None
    match of:
        case IntegerClass() | FloatClass():
            size = of.bits
        case TextClass(length=int() as length):
            size = 8 * length
        case ArrayClass(length=0):
            size = 0
        case ArrayClass(length=int() as length):
            element = fixed_size(of.element)
            if element is not None:
                step = alignment(of.element)
                size = -(-element // step) * step * (length - 1) + element
        case StructureClass():
            return _extent(of)[1]
    return None if size is None else min(size, ENDLESS)


def _extent(of: StructureClass) -> tuple[int, int | None]:
    """Return a structure's alignment, and its bits if they are fixed, in one pass."""
    align, size = of.align, 0
    varies = False
    for member in of.members:
        field = member.field
        inner: int | None
        if field.__class__ is IntegerClass:  # most are, and `match` takes its time
            to, inner = field.align, field.bits
        elif isinstance(field, StructureClass):
            to, inner = _extent(field)
        else:
            to, inner = alignment(field), None if varies else fixed_size(field)
        if to > align or to < 1 or to & (to - 1):
            align = max(align, alignment(field))
        if inner is None:
            varies = True
        elif not varies:
            size = -(-size // to) * to + inner
    if align < 1 or align & (align - 1) or align > 1 << 32:
        alignment(of)  # raises
    return align, None if varies else min(size, ENDLESS)


def fixed_layout(scopes: Iterable[StructureClass | None]) -> tuple[int, int] | None:
    """Return alignment and bits of consecutive scopes, if both are fixed."""
    align, bits = 1, 0
    for of in scopes:
        if of is None:
            continue
        to, size = _extent(of)
        if size is None or (bits and to > align):
            return None
        if bits == 0:
            align = max(align, to)
        bits = min(-(-bits // to) * to + size, ENDLESS)
    return align, bits


HeaderVariant = tuple[int, int, int, int, int, int, int]
MOST_VARIANTS = 4  # as in _tables.pxi


class _FlatHeader:
    """Places of id and timestamp, gathered along one option of a header's variant."""

    def __init__(
        self,
        at: int = 0,
        event: tuple[int, int] | None = None,
        time: tuple[int, int] | None = None,
    ) -> None:
        self.at = at
        self.event = event
        self.time = time

    def add(self, of: FieldClass, clock: str) -> bool:
        """Place a field; return False if the native fast path cannot read it."""
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
    of: StructureClass | None, clock: str, needed: frozenset[FieldPath]
) -> tuple[tuple[int, int, int], list[HeaderVariant]] | None:
    """Locate an event header's fields, if each option of its variant fixes them.

    That holds for LTTng's compact and large headers and for headers without variant; the
    decoder then reads them without a program.
    """
    fields = of.members if of is not None else ()
    last = fields[-1].field if fields else None
    variant = last if isinstance(last, VariantClass) else None
    head = _FlatHeader()
    selector: tuple[int, int] | None = None
    for member in fields[:-1] if variant is not None else fields:
        if not isinstance(member.field, IntegerClass) or not head.add(member.field, clock):
            return None
        if variant is not None and variant.selector == ("event-header", member.name):
            selector = (head.at - member.field.bits, member.field.bits)
    # Without a variant there is one layout, whatever the first bit is.
    others = {p for p in needed if p[0] == "event-header"}
    if of is None or variant is None:
        rows, selector = [(0, 1, head)], (0, 1)
    else:
        rows = _flat_variants(variant, head, alignment(of), clock)
        others.discard(variant.selector)
    known = 1 <= len(rows) <= MOST_VARIANTS and all(way.event is not None for _, _, way in rows)
    if of is None or selector is None or selector[1] > 32 or others or not known:
        return None
    return (alignment(of), *selector), [
        (low, high, way.at, *(way.event or (0, 0)), *(way.time or (0, 0)))
        for low, high, way in rows
    ]


def _flat_variants(
    variant: VariantClass, head: _FlatHeader, align: int, clock: str
) -> list[tuple[int, int, _FlatHeader]]:
    """Return a header's layout for each range of its variant; none if one is not flat."""
    rows = []
    for option in variant.options:
        way = _FlatHeader(head.at, head.event, head.time)
        # Padding is known only where the header's own alignment covers it.
        if variant.optional or alignment(option.field) > align:
            return []
        if not way.add(option.field, clock):
            return []
        rows += [(low, high, way) for low, high in option.ranges]
    return rows
