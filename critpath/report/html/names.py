"""Short names of executions and threads, as labels and links show them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from critpath.documents import ComparisonDocument, OnThread
from critpath.report.html.elements import text

# What an execution is called that nothing in the trace names: thread and time of begin.
_UNNAMED: Final = re.compile(r"(\d+)@(\d+)", re.ASCII)
# As vectors/table.py tells numbers of instances from those of a program's name.
_INSTANCE: Final = re.compile(r"(?<![A-Za-z])\d+|(?<=/u)\d+(?=:)|\d+$")
_FEWEST: Final = 3  # digits of a begin: a single one looks like a number of its own


def short_names(ids: Iterable[str]) -> dict[str, str]:
    """Return for every ``TID@BEGIN`` among the names of a set one that fits a label.

    Parameters
    ----------
    ids : iterable of str
        The names of one set's executions.

    Returns
    -------
    dict
        The tid where no other execution is of that thread, else ``TID@…`` with as many of
        the last digits of the begin as tell them apart.  Other names are not in it.
    """
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
