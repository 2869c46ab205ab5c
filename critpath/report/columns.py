"""Which columns and rows of an alignment a drawing shows: shared by renderers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from critpath.documents import AlignedEntry, AlignedRow, ComparisonDocument, FindingEntry
from critpath.text import verdict

GAP: Final = -1

# Columns kept on both sides of a difference, so that one sees where it is.
_CONTEXT: Final = 3


class Layout(Struct, frozen=True):
    """Cells that cover all columns of an alignment, from left to right.

    Attributes
    ----------
    cells : tuple of range
        The columns of each cell.
    elided : frozenset of int
        Positions of cells that only say that columns are left out.
    """

    cells: tuple[range, ...]
    elided: frozenset[int] = frozenset()

    @property
    def step(self) -> int:
        """Columns of the widest cell that is drawn."""
        drawn = (len(cell) for i, cell in enumerate(self.cells) if i not in self.elided)
        return max(drawn, default=1)

    @property
    def left_out(self) -> int:
        """Columns that are not drawn."""
        return sum(len(self.cells[i]) for i in self.elided)


def layout(
    document: ComparisonDocument, aligned: AlignedEntry, *, whole: int = 0, most: int | None = None
) -> Layout:
    """Lay the columns out: one cell each, less those with nothing out of the ordinary."""
    columns = aligned.columns
    if columns <= whole:
        return Layout(tuple(range(c, c + 1) for c in range(columns)))
    cells: list[range] = []
    elided = set()
    end = 0
    for column in _remarkable(document, aligned):
        if column == end + 1:
            cells.append(range(end, column))  # a mark would take the room of what it hides
        elif column > end:
            elided.add(len(cells))
            cells.append(range(end, column))
        cells.append(range(column, column + 1))
        end = column + 1
    if most is not None and len(cells) > most:
        step = math.ceil(columns / most)
        return Layout(tuple(range(c, min(c + step, columns)) for c in range(0, columns, step)))
    return Layout(tuple(cells), frozenset(elided))


def _remarkable(document: ComparisonDocument, aligned: AlignedEntry) -> list[int]:
    """Return the first and the last column and those near something out of the ordinary.

    A duration alone, outside every finding, is the paper's rule at work: it marks a
    tenth of a healthy path, which would leave nothing out.
    """
    statistics, columns = aligned.statistics, aligned.columns
    marks = flagged_columns(document, aligned)
    keep = {0, columns - 1} if columns else set()
    for column in range(columns):
        odd = statistics.abnormal_state[column] or statistics.missing[column]
        if odd or column in marks:
            keep.update(range(max(0, column - _CONTEXT), min(columns, column + _CONTEXT + 1)))
    return sorted(keep)


def consensus(aligned: AlignedEntry) -> list[int]:
    """Return the most common normal symbol of every column."""
    return list(aligned.statistics.normal_symbol)


def distinct_rows(rows: list[AlignedRow]) -> list[tuple[AlignedRow, int]]:
    """Return rows of different symbols, each with how often it occurs, the commonest first."""
    counts = Counter(tuple(row.symbols) for row in rows)
    first: dict[tuple[int, ...], AlignedRow] = {}
    for row in rows:
        first.setdefault(tuple(row.symbols), row)
    order = {key: i for i, key in enumerate(first)}
    ranked = sorted(first, key=lambda key: (-counts[key], order[key]))
    return [(first[key], counts[key]) for key in ranked]


def own_columns(
    document: ComparisonDocument, aligned: AlignedEntry, finding: FindingEntry
) -> list[int]:
    """Return the columns that make a finding, in order.

    A finding is about one symbol, and its span has other symbols' columns, too.
    """
    begin, end = finding.columns
    span = range(max(0, begin), min(end, aligned.columns))
    mine = {
        code
        for code, symbol in enumerate(document.symbols)
        if (symbol.state, symbol.role, symbol.place) == (finding.state, finding.role, finding.place)
    }
    here, usual = aligned.rows[-1].symbols, consensus(aligned)
    found = [c for c in span if (usual[c] if here[c] == GAP else here[c]) in mine]
    return found or [c for c in span if usual[c] in mine] or list(span[:1])


def flagged_columns(document: ComparisonDocument, aligned: AlignedEntry) -> dict[int, int]:
    """Return the rank of the finding that each column belongs to, the first one where two do."""
    result: dict[int, int] = {}
    for finding in verdict.findings_of(document, aligned.position):
        for column in own_columns(document, aligned, finding):
            result.setdefault(column, finding.rank)
    return result


def stretches(columns: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending columns as stretches of neighbours, each with the column after its last."""
    result: list[tuple[int, int]] = []
    for column in columns:
        if result and result[-1][1] == column:
            result[-1] = result[-1][0], column + 1
        else:
            result.append((column, column + 1))
    return result
