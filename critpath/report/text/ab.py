"""What ``critpath ab`` shows, as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from critpath.units import safe_text

if TYPE_CHECKING:
    from rich.console import Console

    from critpath.documents import AbDocument


def render_ab(document: AbDocument, console: Console) -> None:
    """Print the verdict's sentence, then what else is to know."""
    first, *others = document.sentences
    console.print(safe_text(first), soft_wrap=True)
    for sentence in others:
        console.print(f"  {safe_text(sentence)}", soft_wrap=True)
