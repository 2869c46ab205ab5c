"""How clusters and states look in a drawing, and labels that keep apart from each other.

A cluster has a shape and a colour, with its name beside it; states of one colour family
differ by a pattern: colour is never the only thing that tells two apart.  Everything is a
presentation attribute, so that a page whose policy forbids inline styles draws the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from critpath.documents import ComparisonDocument, SymbolEntry
from critpath.report.html.elements import text
from critpath.report.palette import BLUE, GREEN, GREY, LOOKS, ORANGE, PURPLE, SKY, YELLOW, letter_of

# Unit shapes about the origin, scaled to a radius; diamonds are the anomalous ones'.
_SHAPES: Final = (
    ((-1, 0), (-0.7, -0.7), (0, -1), (0.7, -0.7), (1, 0), (0.7, 0.7), (0, 1), (-0.7, 0.7)),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.1), (1.05, 0.85), (-1.05, 0.85)),
    ((0, 1.1), (1.05, -0.85), (-1.05, -0.85)),
    ((-0.4, -1), (0.4, -1), (0.4, -0.4), (1, -0.4), (1, 0.4), (0.4, 0.4),
     (0.4, 1), (-0.4, 1), (-0.4, 0.4), (-1, 0.4), (-1, -0.4), (-0.4, -0.4)),
    ((-1, -0.9), (1, -0.9), (-1, 0.9), (1, 0.9)),
    ((-1.2, -0.55), (1.2, -0.55), (1.2, 0.55), (-1.2, 0.55)),
    ((-0.55, -1.2), (0.55, -1.2), (0.55, 1.2), (-0.55, 1.2)),
)  # fmt: skip
# Where a label may stand as seen from its mark, and how far off with a line to it (px).
_DIRECTIONS: Final = (
    (1.0, 0.0), (-1.0, 0.0), (0.0, -1.0), (0.0, 1.0),
    (0.7, -0.7), (0.7, 0.7), (-0.7, -0.7), (-0.7, 0.7),
)  # fmt: skip
_FAR: Final = (22.0, 34.0, 48.0, 64.0)
DIAMOND: Final = ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0))
_COLOURS: Final = (SKY, ORANGE, GREEN, YELLOW, PURPLE, BLUE, GREY)


@dataclass(frozen=True)
class Mark:
    """A shape and a colour."""

    shape: tuple[tuple[float, float], ...]
    colour: str

    def at(self, x: float, y: float, radius: float, *, title: str = "") -> str:
        """Return the mark as SVG; ``title`` is plain text."""
        points = " ".join(f"{x + dx * radius:.1f},{y + dy * radius:.1f}" for dx, dy in self.shape)
        look = f'points="{points}" fill="{self.colour}"'
        return (
            f"<polygon {look}><title>{text(title)}</title></polygon>"
            if title
            else (f"<polygon {look}/>")
        )


def mark_of(number: int) -> Mark:
    """Return the look of a cluster; 56 of them differ in shape or colour."""
    return Mark(_SHAPES[number % len(_SHAPES)], _COLOURS[number % len(_COLOURS)])


def looks(document: ComparisonDocument) -> dict[str, dict[int, Mark]]:
    """Give every cluster its look, a sample cluster that of its normal pair.

    Where several sample clusters have one pair, the first (the largest) has its look
    and the others have what no other cluster has.
    """
    found = document.clusters
    normal = [one.cluster for one in found.normal.clusters]
    pair = {one.sample: one.normal for one in found.pairs}
    free = max([*normal, -1]) + 1
    taken: set[int] = set()
    sample = {}
    for one in found.sample.clusters:
        number = pair.get(one.cluster)
        if number is None or number in taken:
            number, free = free, free + 1
        taken.add(number)
        sample[one.cluster] = mark_of(number)
    return {"normal": {k: mark_of(k) for k in normal}, "sample": sample}


def draw_mark_swatch(mark: Mark) -> str:
    """Return a mark for use in a line of text."""
    return (
        '<svg class="swatch" width="16" height="16" aria-hidden="true">'
        f'<g stroke="currentColor" stroke-opacity="0.7">{mark.at(8, 8, 5)}</g></svg>'
    )


@dataclass
class Labels:
    """Text placed beside marks where there is room.

    Attributes
    ----------
    left, top, right, bottom : float
        Where text may stand (px).
    """

    left: float
    top: float
    right: float
    bottom: float
    _taken: list[tuple[float, float, float, float]] = field(default_factory=list)
    _drawn: list[str] = field(default_factory=list)
    _leaders: list[str] = field(default_factory=list)

    def block(self, x: float, y: float, radius: float) -> None:
        """Keep labels off a mark."""
        self._taken.append((x - radius, y - radius, x + radius, y + radius))

    def place(self, x: float, y: float, radius: float, words: str, *, name: bool = False) -> bool:
        """Place plain text beside a mark; a name may stand apart, with a line to its mark.

        Returns
        -------
        bool
            False where there is no room.
        """
        wide, high = (7.2 if name else 6.4) * len(words) + 2, 12.0
        near = radius + 3
        for distance in (near, *(_FAR if name else ())):
            for east, south in _DIRECTIONS:
                left = x + distance * east - wide * (1 - east) / 2
                top = y + distance * south - high * (1 - south) / 2
                if self._fits((left, top, left + wide, top + high)):
                    self._draw(left, top, wide, words, name=name)
                    if distance > near:
                        self._leaders.append(
                            f"M{x:.1f} {y:.1f}L{x + distance * east:.1f} {y + distance * south:.1f}"
                        )
                    return True
        return False

    def svg(self) -> str:
        """Return every placed label."""
        if not self._drawn:
            return ""
        lines = (
            f'<path d="{"".join(self._leaders)}" fill="none" stroke="currentColor" '
            'stroke-width="0.8" stroke-opacity="0.7"/>'
        )
        return (
            f"{lines if self._leaders else ''}"
            '<g font-size="11" font-family="sans-serif" fill="currentColor">'
            f"{''.join(self._drawn)}</g>"
        )

    def _draw(self, left: float, top: float, wide: float, words: str, *, name: bool) -> None:
        self._taken.append((left, top, left + wide, top + 12.0))
        weight = ' font-weight="bold"' if name else ""
        self._drawn.append(
            f'<text x="{left + 1:.1f}" y="{top + 10:.1f}"{weight}>{text(words)}</text>'
        )

    def _fits(self, box: tuple[float, float, float, float]) -> bool:
        left, top, right, bottom = box
        if left < self.left or top < self.top or right > self.right or bottom > self.bottom:
            return False
        return not any(
            left < taken[2] and taken[0] < right and top < taken[3] and taken[1] < bottom
            for taken in self._taken
        )


# Below this width (px) a letter would touch its neighbours.
_LETTER_FITS = 9.0

_PATTERNS = {
    "diagonal": '<path d="M-1 1l2-2M0 6l6-6M5 7l2-2" stroke="#000" stroke-width="1"/>',
    "dots": '<circle cx="1.5" cy="1.5" r="1"/><circle cx="4.5" cy="4.5" r="1"/>',
    "bars": '<path d="M0 1.5h6M0 4.5h6" stroke="#000" stroke-width="1"/>',
}


def define_patterns() -> str:
    """Return the SVG that holds the patterns, once per page."""
    patterns = "".join(
        f'<pattern id="p-{name}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<g opacity="0.45">{shape}</g></pattern>'
        for name, shape in _PATTERNS.items()
    )
    return f'<svg width="0" height="0" aria-hidden="true"><defs>{patterns}</defs></svg>'


def draw_symbol_swatch(symbol: SymbolEntry) -> str:
    """Return a small cell with the letter of a document's symbol."""
    drawn = draw_cells([(2.0, 16.0, symbol)], 2.0, 14.0)
    return f'<svg class="swatch" width="20" height="18" aria-hidden="true">{drawn}</svg>'


def draw_cells(row: Iterable[tuple[float, float, SymbolEntry]], y: float, height: float) -> str:
    """Return one row of cells.

    One path per symbol rather than a rectangle per cell: a tenth of the bytes.
    """
    shapes: dict[tuple[str, bool], list[str]] = defaultdict(list)
    feet: list[str] = []
    letters: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for x, width, symbol in row:
        other = bool(symbol.role)
        gap = 0.6 if width > 4 else 0.0
        shapes[symbol.state, other].append(_box(x, y, max(width - gap, 0.4), height))
        if other:
            foot = height / 5
            feet.append(_box(x, y + height - foot, max(width - gap, 0.4), foot))
        if width >= _LETTER_FITS:
            letters[LOOKS[symbol.state].ink].append((x + width / 2, letter_of(symbol)))
    parts = []
    for (state, _), boxes in sorted(shapes.items()):
        look, path = LOOKS[state], "".join(boxes)
        parts.append(f'<path d="{path}" fill="{look.colour}"/>')
        if look.pattern != "solid":
            parts.append(f'<path d="{path}" fill="url(#p-{look.pattern})"/>')
    if feet:
        parts.append(f'<path d="{"".join(feet)}" fill="#000" fill-opacity="0.55"/>')
    for ink, placed in sorted(letters.items()):
        at = " ".join(_n(x) for x, _ in placed)
        word = text("".join(letter for _, letter in placed))
        parts.append(
            f'<text x="{at}" y="{_n(y + height / 2 + 3.6)}" fill="{ink}" font-size="10" '
            f'font-family="monospace" text-anchor="middle">{word}</text>'
        )
    return "".join(parts)


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z"


def _n(value: float) -> str:
    """Return a coordinate in tenths of a pixel, without a needless ``.0``."""
    rounded = round(value, 1) + 0.0
    return f"{rounded:g}" if abs(rounded) < 1e5 else f"{rounded:.1f}"
