"""The aligned paths of one execution on a terminal: normal above, anomaly below."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.style import Style
from rich.text import Text

from critpath.documents import AlignedEntry, ComparisonDocument, FindingEntry
from critpath.report.columns import GAP, consensus, flagged_columns, layout
from critpath.report.palette import LOOKS, letter_of, words_of
from critpath.report.text.table import new_table, print_line, print_packed, shown
from critpath.text import sentences, verdict
from critpath.units import plural

_MOST_BLOCKS = 4

_ELIDED: Final = -1
_LABEL = 12

# How long a column lasts: the first mark is less than 4 µs, each further one four times
# as long.  Paths are of segments between a microsecond and a second.
_HEIGHTS: Final = "▁▂▃▄▅▆▇█"
_DIGITS: Final = "12345678"
_LOWEST_NS: Final = 4_000
_STEP: Final = 4


def print_alignment(document: ComparisonDocument, aligned: AlignedEntry, console: Console) -> None:
    """Print the consensus of the normal group over the anomalous row, and the findings.

    Where nothing is out of the ordinary, columns are left out (and counted), and so are
    those that neither row has; a path too long for the console goes on in a further block.
    """
    marks = flagged_columns(document, aligned)
    cells, only_normals = _cells(document, aligned)
    width = max(10, console.width - _LABEL - 1)
    blocks = [cells[i : i + width] for i in range(0, len(cells), width)]
    rows = aligned.rows
    above, below = consensus(aligned), rows[-1].symbols
    usual, here = _usual(aligned), rows[-1].durations
    for block in blocks[:_MOST_BLOCKS]:
        _print_heights(usual, above, block, console)
        console.print(_row(f"normal {len(rows) - 1}", above, block, document, console))
        console.print(_row("anomaly", below, block, document, console))
        _print_heights(here, below, block, console)
        ranks = "".join(_rank(marks.get(column)) for column in block).rstrip()
        if ranks:
            console.print(Text("finding".ljust(_LABEL) + ranks), soft_wrap=True)
    _print_legend(aligned, cells, document, console)
    hidden = aligned.columns - sum(column != _ELIDED for column in cells) - only_normals
    _print_left_out(aligned, hidden, only_normals, blocks, console)
    print_findings(document, aligned, console)


def _cells(document: ComparisonDocument, aligned: AlignedEntry) -> tuple[list[int], int]:
    """Return the columns to show, and how many are not as neither row has them.

    `_ELIDED` stands where a run of columns is left out.
    """
    laid_out = layout(document, aligned)
    above, below = consensus(aligned), aligned.rows[-1].symbols
    cells: list[int] = []
    empty = 0
    for i, cell in enumerate(laid_out.cells):
        if i in laid_out.elided:
            if not cells or cells[-1] != _ELIDED:
                cells.append(_ELIDED)
        elif above[cell.start] == below[cell.start] == GAP:
            empty += 1
        else:
            cells.append(cell.start)
    return cells, empty


def _row(
    label: str, symbols: list[int], block: list[int], document: ComparisonDocument, console: Console
) -> Text:
    line = Text(label.ljust(_LABEL), no_wrap=True)
    for column in block:
        if column == _ELIDED:
            line.append(_elided(console), style="dim")
        elif symbols[column] == GAP:
            line.append("-", style="dim")
        else:
            symbol = document.symbols[symbols[column]]
            look = LOOKS[symbol.state]
            line.append(letter_of(symbol), style=Style(color=look.ink, bgcolor=look.colour))
    return line


def _elided(console: Console) -> str:
    return "." if console.options.ascii_only else "…"


def _usual(aligned: AlignedEntry) -> list[int]:
    """Return the mean duration of the normal rows that have the consensus, per column."""
    rows = aligned.rows[:-1]
    result = []
    for column, symbol in enumerate(consensus(aligned)):
        found = [row.durations[column] for row in rows if row.symbols[column] == symbol]
        result.append(sum(found) // len(found) if found and symbol != GAP else 0)
    return result


def _print_heights(
    durations: list[int], symbols: list[int], block: list[int], console: Console
) -> None:
    marks = _DIGITS if console.options.ascii_only else _HEIGHTS
    line = "".join(
        " " if column == _ELIDED or symbols[column] == GAP else marks[_height(durations[column])]
        for column in block
    ).rstrip()
    if line:
        console.print(Text("lasts".ljust(_LABEL) + line, style="dim"), soft_wrap=True)


def _height(ns: int) -> int:
    height, limit = 0, _LOWEST_NS
    while ns >= limit and height < len(_HEIGHTS) - 1:
        height, limit = height + 1, limit * _STEP
    return height


def _rank(rank: int | None) -> str:
    return " " if rank is None else str(rank) if rank < 10 else "+"


def _print_legend(
    aligned: AlignedEntry, cells: list[int], document: ComparisonDocument, console: Console
) -> None:
    above, below = consensus(aligned), aligned.rows[-1].symbols
    used = {row[c] for row in (above, below) for c in cells if c != _ELIDED}
    symbols = [document.symbols[code] for code in sorted(used - {GAP})]
    words = [f"{letter_of(symbol)} {words_of(symbol)}" for symbol in symbols]
    words += ["- nothing here"] if GAP in used else []
    print_packed(console, words, style="dim")
    marks = _DIGITS if console.options.ascii_only else _HEIGHTS
    words = [f"lasts: {marks[0]} less than 4 µs", "each step four times as long"]
    print_packed(console, [*words, f"{marks[-1]} 16 ms or more"], style="dim")


def _print_left_out(
    aligned: AlignedEntry,
    hidden: int,
    only_normals: int,
    blocks: list[list[int]],
    console: Console,
) -> None:
    if hidden:
        said = f"{plural(hidden, 'column')} with nothing out of the ordinary"
        print_line(console, f"{_elided(console)} {said}", style="dim")
    if only_normals:
        said = f"{plural(only_normals, 'column')} that only a few of before have, left out"
        print_line(console, said, style="dim")
    beyond = sum(len(block) for block in blocks[_MOST_BLOCKS:])
    if beyond:
        print_line(console, verdict.left_out(beyond, "further column"), style="dim")
    if aligned.left_out:
        said = f"{aligned.left_out:,} more of before not aligned"
        print_line(console, said, style="dim")


_MOST_FINDINGS = 6
# What the columns of figures take; on less, a finding has lines of its own.
_TABLE_WIDTH: Final = 96


def print_findings(document: ComparisonDocument, aligned: AlignedEntry, console: Console) -> None:
    """Print what differs in one execution, by rank, and what that leaves over."""
    findings = verdict.findings_of(document, aligned.position)
    kept = findings[:_MOST_FINDINGS]
    if kept and console.width >= _TABLE_WIDTH:
        _print_table(aligned, kept, console)
    else:
        _print_list(aligned, kept, console)
    if len(findings) > len(kept):
        print_line(console, verdict.left_out(len(findings) - len(kept), "finding"))
    if aligned.unexplained is not None and aligned.excess is not None:
        print_line(
            console,
            f"beside these {len(aligned.rows) - 1}: "
            f"{verdict.duration(aligned.excess, sign=True)}, "
            f"of it unexplained {verdict.duration(aligned.unexplained, sign=True)}",
        )
    if all(p is None for p in aligned.statistics.p_structure) and aligned.note:
        print_line(console, aligned.note, style="dim")


def _print_table(aligned: AlignedEntry, findings: list[FindingEntry], console: Console) -> None:
    table = new_table(
        console,
        *("", "what", "thread", ">at", ">here", ">normal", ">difference", ">share"),
        folding=("what", "thread"),
    )
    for finding in findings:
        table.add_row(
            Text(str(finding.rank)),
            shown(verdict.what_differs(aligned, finding), console),
            shown(sentences.thread_of(finding), console),
            # Where to look in the trace with another tool.
            shown(verdict.place_of(finding), console),
            shown(verdict.duration(finding.observed), console),
            shown(verdict.duration(finding.expected), console),
            shown(verdict.duration(finding.contribution, sign=True), console),
            shown(verdict.share(finding.share), console),
        )
    console.print(table)


def _print_list(aligned: AlignedEntry, findings: list[FindingEntry], console: Console) -> None:
    for finding in findings:
        more = verdict.duration(finding.contribution, sign=True)
        print_line(
            console,
            f"{finding.rank} {more} ({verdict.share(finding.share)}): "
            f"{verdict.what_differs(aligned, finding)}",
        )
        print_line(
            console,
            f"  {verdict.duration(finding.observed)} here, "
            f"{verdict.duration(finding.expected)} normally; "
            f"at {verdict.place_of(finding)} in {sentences.thread_of(finding)}",
        )
