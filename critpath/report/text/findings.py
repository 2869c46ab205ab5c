"""The findings of one execution on a terminal: a table, or a list where there is no room."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.text import Text

from critpath.documents import AlignedEntry, ComparisonDocument, FindingEntry
from critpath.report.text.table import new_table, print_line, shown
from critpath.text import sentences, verdict

_MOST_FINDINGS = 6
# What the columns of figures take; on less, a finding has lines of its own.
_TABLE_WIDTH: Final = 96


def print_findings(document: ComparisonDocument, aligned: AlignedEntry, console: Console) -> None:
    """Print what differs in one execution, by rank, and what that leaves over.

    Parameters
    ----------
    document, aligned : dict
        The comparison, and one entry of its ``aligned``.
    console : Console
    """
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
            f"excess {verdict.duration(aligned.excess, sign=True)}, "
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
            # Where to look in the trace, for whoever opens it in another tool.
            Text(verdict.place_of(finding)),
            Text(verdict.duration(finding.observed)),
            Text(verdict.duration(finding.expected)),
            Text(verdict.duration(finding.contribution, sign=True)),
            Text(verdict.share(finding.share)),
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
