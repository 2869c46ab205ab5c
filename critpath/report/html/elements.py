"""Escaping, the few HTML elements of the report, and short names of executions and threads."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from critpath.documents import ComparisonDocument, OnThread
from critpath.units import safe_text

# Escaping adds no backtick; one in a name moves the ends of the code, and does nothing else.
_QUOTED: Final = re.compile("`([^`]+)`")


def text(value: str) -> str:
    """Return text as HTML: inert, escaped with both quotes, fit for attributes too."""
    return html.escape(safe_text(value), quote=True)


def prose(value: str) -> str:
    """Return a sentence as HTML: names between backticks as code, everything escaped."""
    return _QUOTED.sub(r"<code>\1</code>", text(value))


def paragraph(value: str, *, kind: str = "") -> str:
    """Return a paragraph of plain text."""
    return f"<p{_class(kind)}>{text(value)}</p>"


def items(values: Iterable[str], *, kind: str = "") -> str:
    """Return a list of plain texts, nothing where there are none."""
    entries = "".join(f"<li>{text(value)}</li>" for value in values)
    return f"<ul{_class(kind)}>{entries}</ul>" if entries else ""


def table(
    caption: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    kind: str = "",
    heads: bool = False,
    foot: Iterable[Sequence[str]] = (),
) -> str:
    """Return a table whose cells are HTML already."""
    kinds = [
        " ".join(
            word
            for mark, word in ((">", "number"), ("~", "minor"))
            if mark in header[: len(header) - len(header.lstrip("~>"))]
        )
        for header in headers
    ]
    head = "".join(
        f'<th scope="col"{_class(name)}>{text(header.lstrip("~>"))}</th>'
        for header, name in zip(headers, kinds, strict=True)
    )
    body = "".join(_row(row, kinds, heads=heads) for row in rows)
    below = "".join(_row(row, kinds, heads=heads) for row in foot)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f"<table{_class(kind)}><caption>{text(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
        f"{f'<tfoot>{below}</tfoot>' if below else ''}</table></div>"
    )


def _row(row: Sequence[str], kinds: Sequence[str], *, heads: bool) -> str:
    # By their number: a text of the trace may be "*" too.
    strong = len(row) > len(kinds)
    cells: list[str] = []
    for cell, name in zip(row[1:] if strong else row, kinds, strict=True):
        kind = _class(name)
        if heads and not cells:
            cells.append(f'<th scope="row"{kind}>{cell}</th>')
        else:
            cells.append(f"<td{kind}>{cell}</td>")
    return f"<tr{_class('strong' if strong else '')}>{''.join(cells)}</tr>"


def terms(pairs: Iterable[tuple[str, str]]) -> str:
    """Return what words mean, as a list of definitions; plain text both."""
    entries = "".join(
        f"<div><dt>{text(word)}</dt><dd>{text(meaning)}</dd></div>" for word, meaning in pairs
    )
    return f'<dl class="terms">{entries}</dl>' if entries else ""


def said(words: str) -> str:
    """Return a remark about what stands above it, nothing where there is none."""
    return paragraph(words, kind="said") if words else ""


def figure(drawing: str, words: str) -> str:
    """Return a drawing (HTML) with its caption (plain text)."""
    return f"<figure>{drawing}<figcaption>{text(words)}</figcaption></figure>"


def section(anchor: str, title: str, content: str) -> str:
    """Return a titled section; ``anchor`` is ours, ``content`` is HTML."""
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">'
        f'<h2 id="{anchor}-title">{text(title)}</h2>{content}</section>'
    )


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


# What an execution is called that nothing in the trace names: thread and time of begin.
_UNNAMED: Final = re.compile(r"(\d+)@(\d+)", re.ASCII)
# As vectors/table.py tells numbers of instances from those of a program's name.
_INSTANCE: Final = re.compile(r"(?<![A-Za-z])\d+|(?<=/u)\d+(?=:)|\d+$")
_FEWEST: Final = 3  # digits of a begin: a single one looks like a number of its own


def short_names(ids: Iterable[str]) -> dict[str, str]:
    """Return for every ``TID@BEGIN`` among the names of a set one that fits a label."""
    known = set(ids)
    begins: dict[str, set[str]] = defaultdict(set)
    for name in known:
        if match := _UNNAMED.fullmatch(name):
            begins[match[1]].add(match[2])
    result = {}
    for tid, found in begins.items():
        if len(found) == 1 and tid not in known:
            result[f"{tid}@{next(iter(found))}"] = tid
            continue
        longest = max(map(len, found))
        digits = next(
            (n for n in range(_FEWEST, longest) if len({b[-n:] for b in found}) == len(found)),
            longest,
        )
        short = {f"{tid}@{b}": f"{tid}@…{b[-digits:]}" for b in found if len(b) > digits + 1}
        result |= {full: name for full, name in short.items() if name not in known}
    return result


def names_of(document: ComparisonDocument, which: str) -> dict[str, str]:
    """Return `short_names` of one set of a comparison, ``normal`` or ``sample``."""
    return short_names(row.id for row in document.executions if row.set == which)


def titled(name: str, short: dict[str, str]) -> str:
    """Return an execution's short name as HTML, with the full one to point at."""
    if name not in short:
        return text(name)
    return f'<span title="{text(name)}">{text(short[name])}</span>'


def family_of(one: OnThread) -> str:
    """Return the thread's name with ``#`` for numbers, as the roles of states have it."""
    return _INSTANCE.sub("#", one.comm)
