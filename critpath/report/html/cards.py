"""Part 5 of the page: why, a card per cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument


def render_causes(document: ComparisonDocument) -> str:
    """Return the section of causes, its title with it; "" where there is nothing to explain."""
    del document
    return ""
