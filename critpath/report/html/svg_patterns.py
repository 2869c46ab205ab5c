"""The patterns that tell states of one colour family apart, and cells drawn with them.

Everything is a presentation attribute: a content security policy without inline
styles, or none of the report's own, draws the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from critpath.documents import SymbolEntry
from critpath.report.html.elements import text
from critpath.report.palette import LOOKS, letter_of

# Below this width (px) a letter would touch its neighbours.
_LETTER_FITS = 9.0

_SHAPES = {
    "diagonal": '<path d="M-1 1l2-2M0 6l6-6M5 7l2-2" stroke="#000" stroke-width="1"/>',
    "dots": '<circle cx="1.5" cy="1.5" r="1"/><circle cx="4.5" cy="4.5" r="1"/>',
    "bars": '<path d="M0 1.5h6M0 4.5h6" stroke="#000" stroke-width="1"/>',
}


def definitions() -> str:
    """Return the SVG that holds the patterns, once per page."""
    patterns = "".join(
        f'<pattern id="p-{name}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<g opacity="0.45">{shape}</g></pattern>'
        for name, shape in _SHAPES.items()
    )
    return f'<svg width="0" height="0" aria-hidden="true"><defs>{patterns}</defs></svg>'


def swatch(symbol: SymbolEntry) -> str:
    """Return a small cell with the letter of a document's symbol."""
    drawn = cells([(2.0, 16.0, symbol)], 2.0, 14.0)
    return f'<svg class="swatch" width="20" height="18" aria-hidden="true">{drawn}</svg>'


def cells(row: Iterable[tuple[float, float, SymbolEntry]], y: float, height: float) -> str:
    """Return one row of cells.

    One path per symbol rather than a rectangle per cell: a tenth of the bytes.

    Parameters
    ----------
    row : iterable of (x, width, symbol)
        Pixels, and a symbol of the document.
    y, height : float
        Place of the row (px).

    Returns
    -------
    str
        SVG elements; cells on another thread have a dark foot, and a letter stands
        where it fits.
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
