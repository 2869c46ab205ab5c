"""Escaping, and the few HTML elements that the report is made of."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from critpath.units import safe_text


def text(value: str) -> str:
    """Return text as HTML: inert, escaped with both quotes, fit for attributes too."""
    return html.escape(safe_text(value), quote=True)


def paragraph(value: str, *, kind: str = "") -> str:
    """Return a paragraph of plain text."""
    return f"<p{_class(kind)}>{text(value)}</p>"


def items(values: Iterable[str], *, kind: str = "") -> str:
    """Return a list of plain texts, nothing where there are none."""
    entries = "".join(f"<li>{text(value)}</li>" for value in values)
    return f"<ul{_class(kind)}>{entries}</ul>" if entries else ""


def table(
    caption: str, headers: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str = ""
) -> str:
    """Return a table whose cells are HTML already.

    Parameters
    ----------
    caption : str
        Plain text that names the table for whoever does not see it.
    headers : sequence of str
        Plain text; ``>`` in front sets the column's figures flush right.
    rows : iterable of sequences of HTML
        A row that starts with ``*`` as its first cell is set in bold.
    kind : str
        Class of the table.
    """
    right = [header.startswith(">") for header in headers]
    head = "".join(
        f'<th scope="col"{_class("number" if flush else "")}>{text(header.removeprefix(">"))}</th>'
        for header, flush in zip(headers, right, strict=True)
    )
    body = []
    for row in rows:
        strong = row[0] == "*"
        cells = "".join(
            f"<td{_class('number' if flush else '')}>{cell}</td>"
            for cell, flush in zip(row[1:] if strong else row, right, strict=True)
        )
        body.append(f"<tr{_class('strong' if strong else '')}>{cells}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f"<table{_class(kind)}><caption>{text(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def section(anchor: str, title: str, content: str) -> str:
    """Return a titled section; ``anchor`` is ours, ``content`` is HTML."""
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">'
        f'<h2 id="{anchor}-title">{text(title)}</h2>{content}</section>'
    )


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
