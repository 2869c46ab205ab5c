"""The aligned paths of one execution on a terminal: normal above, anomaly below."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console
from rich.style import Style
from rich.text import Text

from critpath.report import verdict
from critpath.report.columns import GAP, consensus, flagged_columns, layout
from critpath.report.palette import LOOKS, letter_of, words_of
from critpath.report.text_table import new_table, print_line, shown
from critpath.units import plural

_MOST_BLOCKS = 4
_MOST_FINDINGS = 6

_ELIDED: Final = -1
_LABEL = 12


def print_alignment(document: dict[str, Any], aligned: dict[str, Any], console: Console) -> None:
    """Print the consensus of the normal group over the anomalous row, and the findings.

    Where nothing is out of the ordinary, columns are left out (and counted); a row
    too long for the console goes on in a further block.

    Parameters
    ----------
    document, aligned : dict
        The comparison, and one entry of its ``aligned``.
    console : Console
    """
    marks = flagged_columns(document, aligned)
    cells = _cells(document, aligned)
    width = max(10, console.width - _LABEL - 1)
    blocks = [cells[i : i + width] for i in range(0, len(cells), width)]
    rows = aligned["rows"]
    above, below = consensus(aligned), rows[-1]["symbols"]
    for block in blocks[:_MOST_BLOCKS]:
        console.print(_row(f"normal {len(rows) - 1}", above, block, document, console))
        console.print(_row("anomaly", below, block, document, console))
        ranks = "".join(_rank(marks.get(column)) for column in block).rstrip()
        if ranks:
            console.print(Text("finding".ljust(_LABEL) + ranks), soft_wrap=True)
    _print_legend(aligned, cells, blocks, document, console)
    _print_findings(document, aligned, console)


def _cells(document: dict[str, Any], aligned: dict[str, Any]) -> list[int]:
    """Return the columns to show, with `_ELIDED` where a run of them is left out."""
    shown_columns = layout(document, aligned)
    return [
        _ELIDED if i in shown_columns.elided else cell.start
        for i, cell in enumerate(shown_columns.cells)
    ]


def _row(
    label: str, symbols: list[int], block: list[int], document: dict[str, Any], console: Console
) -> Text:
    line = Text(label.ljust(_LABEL), no_wrap=True)
    for column in block:
        if column == _ELIDED:
            line.append("." if console.options.ascii_only else "…", style="dim")
        elif symbols[column] == GAP:
            line.append("-", style="dim")
        else:
            symbol = document["symbols"][symbols[column]]
            look = LOOKS[symbol["state"]]
            line.append(letter_of(symbol), style=Style(color=look.ink, bgcolor=look.colour))
    return line


def _rank(rank: int | None) -> str:
    return " " if rank is None else str(rank) if rank < 10 else "+"


def _print_legend(
    aligned: dict[str, Any],
    cells: list[int],
    blocks: list[list[int]],
    document: dict[str, Any],
    console: Console,
) -> None:
    used = {aligned["rows"][-1]["symbols"][c] for c in cells if c != _ELIDED}
    used |= {aligned["statistics"]["normal_symbol"][c] for c in cells if c != _ELIDED}
    symbols = [document["symbols"][code] for code in sorted(used - {GAP})]
    words = [f"{letter_of(symbol)} {words_of(symbol)}" for symbol in symbols]
    print_line(console, ", ".join([*words, "- nothing here"]), style="dim")
    ordinary = aligned["columns"] - sum(column != _ELIDED for column in cells)
    if ordinary:
        mark = "." if console.options.ascii_only else "…"
        print_line(
            console,
            f"{mark} {plural(ordinary, 'column')} with nothing out of the ordinary",
            style="dim",
        )
    beyond = sum(len(block) for block in blocks[_MOST_BLOCKS:])
    if beyond:
        print_line(console, verdict.left_out(beyond, "further column"), style="dim")
    if aligned["left_out"]:
        print_line(
            console,
            f"{plural(aligned['left_out'], 'normal execution')} of the group not aligned",
            style="dim",
        )


def _print_findings(document: dict[str, Any], aligned: dict[str, Any], console: Console) -> None:
    findings = verdict.findings_of(document, aligned["position"])
    if findings:
        _print_table(aligned, findings, console)
    if aligned["unexplained"] is not None and aligned["excess"] is not None:
        print_line(
            console,
            f"excess {verdict.duration(aligned['excess'], sign=True)}, "
            f"of it unexplained {verdict.duration(aligned['unexplained'], sign=True)}",
        )
    if all(p is None for p in aligned["statistics"]["p_structure"]) and aligned["note"]:
        print_line(console, aligned["note"], style="dim")


def _seconds(finding: dict[str, Any]) -> str:
    whole, rest = divmod(int(finding["begin"]), 1_000_000_000)
    return f"{whole}.{rest // 1000:06d} s"


def _print_table(aligned: dict[str, Any], findings: list[dict[str, Any]], console: Console) -> None:
    table = new_table(
        console,
        *("", "what", "thread", ">here", ">normal", ">difference", ">share"),
        folding=("what", "thread"),
    )
    for finding in findings[:_MOST_FINDINGS]:
        detail = f" {finding['detail']}" if finding["detail"] else ""
        kind = verdict.kind_of(aligned, finding)
        table.add_row(
            Text(str(finding["rank"])),
            # Where to look in the trace, for whoever opens it in another tool.
            shown(f"{finding['state']}{detail}, {kind}, at {_seconds(finding)}", console),
            shown(f"{finding['comm']} {finding['tid']}", console),
            Text(verdict.duration(finding["observed"])),
            Text(verdict.duration(finding["expected"])),
            Text(verdict.duration(finding["contribution"], sign=True)),
            Text(verdict.share(finding["share"])),
        )
    console.print(table)
    if len(findings) > _MOST_FINDINGS:
        print_line(console, verdict.left_out(len(findings) - _MOST_FINDINGS, "finding"))
