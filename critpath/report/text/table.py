"""Lines and tables on a terminal in which text of a trace can do no harm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from critpath.report.text.bars import ASCII
from critpath.units import safe_text

_BETWEEN: Final = 3  # characters from one column to the next
_LEAST_FOLDED: Final = 14


def shown(text: str, console: Console, style: str = "") -> Text:
    """Return text as it may stand on this console: inert, and in its encoding.

    A `rich.text.Text` is never parsed for markup, and `safe_text` leaves nothing
    that a terminal acts on.
    """
    safe = safe_text(text)
    if console.options.ascii_only:
        safe = safe.translate(ASCII).encode("ascii", "backslashreplace").decode("ascii")
    return Text(safe, style=style)


def print_line(console: Console, text: str, *, style: str = "") -> None:
    """Print one sentence: on one line for a pipe, whose reader greps lines, however long.

    On a terminal, which would break it anywhere, it goes on in the next line at a word.
    """
    console.print(shown(text, console, style), soft_wrap=not console.is_terminal, highlight=False)


def print_packed(console: Console, words: Sequence[str], *, style: str = "") -> None:
    """Print entries separated by commas, as many on a line as fit and no entry broken.

    One that is wider than the console has a line of its own, which is not broken either.
    """
    lines = [""]
    for number, word in enumerate(words):
        entry = shown(word, console).plain + ("," if number < len(words) - 1 else "")
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(entry) > console.width:
            lines.append(entry)
        else:
            lines[-1] = f"{lines[-1]} {entry}".strip()
    for line in lines:
        print_line(console, line, style=style)


def new_table(console: Console, *headers: str, folding: str | tuple[str, ...] = ()) -> Table:
    """Return an empty table; a header with ``>`` in front is right-aligned."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    wrapping = (folding,) if isinstance(folding, str) else folding
    for header in headers:
        name = header.removeprefix(">")
        table.add_column(
            shown(name, console),
            justify="right" if header != name else "left",
            overflow="fold",
            no_wrap=name not in wrapping,
        )
    return table


class Row(Struct, frozen=True):
    """One row of a table.

    Attributes
    ----------
    cells : tuple of str
    style : str
    """

    cells: tuple[str, ...]
    style: str = ""


def print_table(
    console: Console,
    headers: Sequence[str],
    rows: Sequence[Row],
    *,
    folding: tuple[str, ...] = (),
    spare: tuple[str, ...] = (),
) -> None:
    """Print a table that fits the console: where there is no room, without the spare columns."""
    names = [header.removeprefix(">") for header in headers]
    kept = list(range(len(names)))
    dropped = []
    for name in spare:
        if _least_width(names, rows, kept, folding) <= console.width:
            break
        dropped.append(name)
        kept.remove(names.index(name))
    table = new_table(console, *(headers[i] for i in kept), folding=folding)
    for row in rows:
        table.add_row(*(shown(row.cells[i], console) for i in kept), style=row.style)
    console.print(table)
    if dropped:
        print_line(console, f"no room for: {', '.join(sorted(dropped))}", style="dim")


def _least_width(
    names: Sequence[str], rows: Sequence[Row], kept: Sequence[int], folding: tuple[str, ...]
) -> int:
    widths = []
    for i in kept:
        width = max([cell_len(names[i]), *(cell_len(row.cells[i]) for row in rows)])
        widths.append(min(width, _LEAST_FOLDED) if names[i] in folding else width)
    return sum(widths) + _BETWEEN * (len(widths) - 1)
