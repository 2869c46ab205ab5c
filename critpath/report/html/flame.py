"""Part 6 of the page: what changed, over all requests, as a differential flame graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument


def render_flame(document: ComparisonDocument) -> str:
    """Return the section of the flame graph, its title with it; "" where there is none."""
    del document
    return ""
