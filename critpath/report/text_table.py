"""Lines and tables on a terminal in which text of a trace can do no harm."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from critpath.units import safe_text


def shown(text: str, console: Console, style: str = "") -> Text:
    """Return text as it may stand on this console: inert, and in its encoding.

    A `rich.text.Text` is never parsed for markup, and `safe_text` leaves nothing
    that a terminal acts on.
    """
    safe = safe_text(text)
    if console.options.ascii_only:
        safe = safe.encode("ascii", "backslashreplace").decode("ascii")
    return Text(safe, style=style)


def print_line(console: Console, text: str, *, style: str = "") -> None:
    """Print one sentence on one line, however long: a pipe's reader greps lines."""
    console.print(shown(text, console, style), soft_wrap=True, highlight=False)


def new_table(console: Console, *headers: str, folding: str | tuple[str, ...] = ()) -> Table:
    """Return an empty table; a header with ``>`` in front is right-aligned.

    Parameters
    ----------
    console : Console
    *headers : str
    folding : str or tuple of str
        Columns whose text goes on in the next line where it is too long; the
        others keep their width.
    """
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
