"""The formats of other programs that ``export`` and ``path`` write, as their options name them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from critpath.commands.output import STDOUT
from critpath.errors import UsageError
from critpath.report.exports import FORMATS

# Who asks for networkx wants the graph; GraphML is how networkx writes and reads one.
_ALSO: Final = {"networkx": "graphml"}


def format_name(text: str) -> str:
    """Return the name of a format, by any of its names."""
    return _ALSO.get(text, text)


def format_by_ending(place: str, among: Iterable[str]) -> str:
    """Return the format that a file's name asks for."""
    among = list(among)
    name = Path(place).name.lower()
    found = [known for known in among if known in FORMATS and name.endswith(FORMATS[known].endings)]
    if len(found) == 1 and place != STDOUT:
        return found[0]
    if len(found) > 1:
        raise UsageError(
            f"the name {place} says {' or '.join(found)}", f"add --format {'|'.join(found)}"
        )
    raise UsageError(
        "which format to write is not said"
        if place == STDOUT
        else f"the name {place} does not say which format to write",
        f"add --format {'|'.join(among)}",
    )
