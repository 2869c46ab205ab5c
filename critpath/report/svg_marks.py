"""How clusters look in a drawing, and labels that keep out of each other's way.

A cluster has a shape and a colour, and its name stands beside it: colour is never
the only thing that tells two apart.  Everything is a presentation attribute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from critpath.report.html_elements import text
from critpath.report.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, YELLOW

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


def looks(document: dict[str, Any]) -> dict[str, dict[int, Mark]]:
    """Give every cluster its look, a sample cluster that of its normal pair.

    Where several sample clusters have one pair, the first (the largest) has its look
    and the others have what no other cluster has.
    """
    found = document["clusters"]
    normal = [one["cluster"] for one in found["normal"]["clusters"]]
    pair = {one["sample"]: one["normal"] for one in found["pairs"]}
    free = max([*normal, -1]) + 1
    taken: set[int] = set()
    sample = {}
    for one in found["sample"]["clusters"]:
        number = pair.get(one["cluster"])
        if number is None or number in taken:
            number, free = free, free + 1
        taken.add(number)
        sample[one["cluster"]] = mark_of(number)
    return {"normal": {k: mark_of(k) for k in normal}, "sample": sample}


def swatch(mark: Mark) -> str:
    """Return a mark for use in a line of text."""
    return (
        '<svg class="swatch" width="16" height="16" aria-hidden="true">'
        f'<g stroke="currentColor" stroke-opacity="0.7">{mark.at(8, 8, 5)}</g></svg>'
    )


@dataclass
class Labels:
    """Text placed beside marks where there is room, and a count of what had none.

    Attributes
    ----------
    width, height : float
        Of the drawing (px).
    left_out : int
        Labels that were not placed.
    """

    width: float
    height: float
    left_out: int = 0
    _taken: list[tuple[float, float, float, float]] = field(default_factory=list)
    _drawn: list[str] = field(default_factory=list)

    def block(self, x: float, y: float, radius: float) -> None:
        """Keep labels off a mark."""
        self._taken.append((x - radius, y - radius, x + radius, y + radius))

    def place(self, x: float, y: float, radius: float, words: str, *, bold: bool = False) -> bool:
        """Place plain text beside a mark; False where there is no room."""
        wide, high = 6.6 * len(words) + 2, 12.0
        gap = radius + 3
        corners = (
            (x + gap, y - high / 2),
            (x - gap - wide, y - high / 2),
            (x - wide / 2, y - gap - high),
            (x - wide / 2, y + gap),
            (x + gap * 0.7, y - gap - high * 0.7),
            (x + gap * 0.7, y + gap * 0.6),
            (x - gap * 0.7 - wide, y - gap - high * 0.7),
            (x - gap * 0.7 - wide, y + gap * 0.6),
        )
        for left, top in corners:
            box = (left, top, left + wide, top + high)
            if self._fits(box):
                self._taken.append(box)
                weight = ' font-weight="bold"' if bold else ""
                self._drawn.append(
                    f'<text x="{left + 1:.1f}" y="{top + 10:.1f}"{weight}>{text(words)}</text>'
                )
                return True
        self.left_out += 1
        return False

    def svg(self) -> str:
        """Return every placed label."""
        if not self._drawn:
            return ""
        return (
            '<g font-size="11" font-family="sans-serif" fill="currentColor">'
            f"{''.join(self._drawn)}</g>"
        )

    def _fits(self, box: tuple[float, float, float, float]) -> bool:
        left, top, right, bottom = box
        if left < 0 or top < 0 or right > self.width or bottom > self.height:
            return False
        return not any(
            left < taken[2] and taken[0] < right and top < taken[3] and taken[1] < bottom
            for taken in self._taken
        )
