"""The answer on one screen: 24 lines of 80 characters, the first of which says it all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from critpath.documents import CauseEntry, ComparisonDocument, KindEntry
from critpath.report.text.bars import WIDTH, Span, draw_bars
from critpath.report.text.table import shown
from critpath.text.answer import (
    changed_kinds,
    describe_headline,
    describe_hints,
    describe_why,
    is_decided,
    keep_largest,
    listed_causes,
    serious_warnings,
)
from critpath.text.explanation import describe_cause, describe_effect, describe_other_causes
from critpath.text.known import describe_seen
from critpath.text.page import NOISE, find_deciding_p, noun_of, recordings_line
from critpath.text.verdict import p_equals
from critpath.units import format_ns, format_pair, shorten_names, split_common

SCREEN: Final = 24
_WIDEST: Final = 100  # longer lines are hard to read
_LEAST: Final = 40
_COLOURS: Final = {
    "SLOWER": "bold red",
    "FASTER": "bold blue",
    "OK": "bold green",
    "INCONCLUSIVE": "bold yellow",
}
_MOST_CAUSES: Final = 5
_MOST_KINDS: Final = 6
_MOST_WARNINGS: Final = 2


def print_answer(
    document: ComparisonDocument,
    console: Console,
    *,
    verbose: bool = False,
    places: Sequence[str] = (),
) -> None:
    """Print the answer: headline, why, where in time, kind by kind, causes.

    Parameters
    ----------
    document : dict
    console : rich.console.Console
    verbose : bool
        Tables follow: the last line does not offer them.
    places : sequence of str
        Files that were written of it.
    """
    width = max(console.width, _LEAST)
    if width > _WIDEST:  # a pipe is as wide as any table
        width = _WIDEST if console.is_terminal else WIDTH
    for line in _screen(document, width, verbose=verbose, places=places):
        print_spans(console, line)


def answer_lines(document: ComparisonDocument, width: int = WIDTH) -> list[str]:
    """Return the answer as plain lines, for files."""
    found = _screen(document, width, verbose=False, places=("",))
    return ["".join(words for words, _ in line).rstrip() for line in found]


def _screen(
    document: ComparisonDocument, width: int, *, verbose: bool, places: Sequence[str]
) -> list[list[Span]]:
    headline = describe_headline(document)
    chip = f"{headline.sign} {headline.title}  "
    top = wrap(headline.sentence, width, first=chip)
    below = wrap(describe_why(document), width, first=" " * len(chip))
    warned = [
        wrap(warning, width, first="⚠ ") for warning in serious_warnings(document)[:_MOST_WARNINGS]
    ]
    if is_decided(document):  # whole with -v
        cut = [[*of[:1], f"{of[1][: width - 2]} …"] if len(of) > 2 else of for of in warned]
        warnings = [line for of in cut for line in of]
    else:  # they are why
        below, warnings = [*below, *(line for of in warned for line in of)], []
    bars, table, causes = answer_parts(document, width)
    seen = [line for said in describe_seen(document) for line in wrap(said, width)]
    last = [line for hint in describe_hints(document) for line in wrap(hint, width)]
    last += wrap(_last_line(document, verbose=verbose, places=places), width)
    last = [*warnings, *last]
    room = SCREEN - len(top) - len(below) - len(seen) - bool(seen) - len(last) - 1
    table, told = _fitted(document, table, causes, room - len(bars) - bool(bars), width)
    lines: list[list[Span]] = [[(line, _COLOURS[headline.word])] for line in top]
    lines += [[(line, "")] for line in below]
    plain = [[[(line, "")] for line in part] for part in (table, told, seen)]
    dim: list[list[Span]] = [[(line, "dim")] for line in last]
    for part in (bars, *plain, dim):
        if part:
            lines += [[("", "")], *part]
    return lines


def answer_parts(
    document: ComparisonDocument, width: int = WIDTH
) -> tuple[list[list[Span]], list[str], list[list[str]]]:
    """Return bars, the table of kinds and the causes, each as lines of so many characters."""
    headline = describe_headline(document)
    told = changed_kinds(document, headline.word.lower())
    kind = next((one for one in told if headline.label in {None, one.label}), None)
    bars = draw_bars(document, kind, width=width) if kind else []
    if bars and kind and kind.label and headline.label is None:
        bars.insert(0, [(f"{kind.label} {noun_of(document)}:", "")])
    return (
        bars,
        kind_lines(document, width),
        [
            wrap(cause_line(document, cause), width, first=f"{number}. ")
            for number, cause in listed_causes(document, _MOST_CAUSES)
        ],
    )


def cause_line(document: ComparisonDocument, cause: CauseEntry) -> str:
    """Return a cause as lists have it: what happened, what it comes to."""
    undecided = "" if is_decided(document) else " (not decided)"
    return f"{describe_cause(document, cause)}: {describe_effect(cause)}{undecided}"


def print_spans(console: Console, spans: Sequence[Span]) -> None:
    """Print characters of several styles on one line, however long."""
    line = Text()
    for words, style in spans:
        line.append_text(shown(words, console, style))
    line.rstrip()
    console.print(line, soft_wrap=True, highlight=False)


def wrap(text: str, width: int, *, first: str = "") -> list[str]:
    """Break a sentence into lines at spaces; the first has a head, the others are indented.

    Names stand there without the backticks that tell them from words in Markdown.
    """
    text = text.replace("`", "")
    lines, line = [], first
    indent = " " * len(first)
    for word in text.split(" "):
        longer = line + word if line in {first, indent} else f"{line} {word}"
        if cell_len(longer) > width and line not in {first, indent}:
            lines.append(line)
            longer = indent + word
        line = longer
    return [*lines, line]


def _fitted(
    document: ComparisonDocument,
    table: list[str],
    causes: list[list[str]],
    room: int,
    width: int,
) -> tuple[list[str], list[str]]:
    """Return the table and the causes as there is room for: first the smaller causes go."""
    if len(table) + 1 > room:
        table = table[: max(room - 1, 0)]
    room -= len(table) + bool(table) + 1
    listed = listed_causes(document, _MOST_CAUSES)
    for kept in range(len(causes), 0, -1):
        chosen = keep_largest(listed, kept)
        pairs = zip(listed, causes, strict=True)
        lines = [line for numbered, cause in pairs if numbered in chosen for line in cause]
        named = [cause for _, cause in chosen]
        rest = [cause for cause in document.causes if cause not in named]
        if rest:
            lines += wrap(describe_other_causes(document, rest), width, first="   ")
        if len(lines) <= room:
            return table, lines
    return table, []


def _last_line(document: ComparisonDocument, *, verbose: bool, places: Sequence[str]) -> str:
    p = find_deciding_p(document)
    # The test is of a slowdown.
    faster = describe_headline(document).word == "FASTER"
    said = f"{p_equals(p)}; " if p is not None and not faster else ""
    alike = recordings_line(document)
    said += alike if not said else f"{alike[0].lower()}{alike[1:]}"
    said = f"{said[0].upper()}{said[1:]}" if said.startswith("no ") else said
    if not places:
        said += " Pictures: --html report.html."
    return said if verbose else f"{said} More: -v"


# Kind by kind.


def kind_rows(
    document: ComparisonDocument, most: int = _MOST_KINDS
) -> tuple[list[list[str]], list[tuple[list[KindEntry], str]]]:
    """Return the table of the kinds that changed, or of some where none did; the others by name.

    Returns
    -------
    rows : list of list of str
        Headers, then a kind each; nothing without kinds to judge.
    rest : list of (kinds, what became of them)
    """
    kinds = list(document.pictures.kinds) if document.pictures else []
    changed = [kind for kind in kinds if kind.change in {"slower", "faster"}]
    same = [kind for kind in kinds if kind.change == "same"]
    shown = (changed or same)[:most]
    many = all(None not in kind.p99 for kind in shown)
    headers = ["kind", noun_of(document), "p50", "p95", "p99" if many else "slowest", "mean"]
    rest = [
        (
            [kind for kind in same if kind not in shown],
            "not decided" if document.verdict == "inconclusive" else NOISE,
        ),
        ([kind for kind in changed if kind not in shown], "changed, too"),
        (
            [kind for kind in kinds if kind.change == "few"],
            f"too few {noun_of(document)} to judge",
        ),
    ]
    decided = document.verdict != "inconclusive"
    rows = [headers, *(_cells(kind, many=many, decided=decided) for kind in shown)]
    rows = rows if shown else []
    named = [([kind for kind in of if kind.label], what) for of, what in rest]
    return rows, [(of, what) for of, what in named if of]


def kind_lines(document: ComparisonDocument, width: int) -> list[str]:
    """Return the kinds as lines of so many characters."""
    rows, rest = kind_rows(document)
    lines = _fitting_rows(rows, width) if rows else []
    return lines + [_named(kinds, what, width) for kinds, what in rest]


def _named(kinds: Sequence[KindEntry], what: str, width: int) -> str:
    names = [kind.label for kind in kinds]
    for kept in range(len(names), 0, -1):
        beyond = f" and {len(names) - kept} more" if kept < len(names) else ""
        line = f"{', '.join(names[:kept])}{beyond}: {what}"
        if cell_len(line) <= width:
            return line
    return f"{len(names)} kinds: {what}"


def _fitting_rows(table: list[list[str]], width: int) -> list[str]:
    """Return a table's lines, without the columns that there is no room for.

    What all kinds begin with stands in the heading.
    """
    same, names = split_common([row[0] for row in table[1:]])
    heads = [f"{table[0][0]} of {same}" if same else table[0][0], *names]
    table = [[head, *row[1:]] for head, row in zip(heads, table, strict=True)]
    kept = [i for i in range(len(table[0])) if i != 3 or any(row[3] != "–" for row in table[1:])]
    for spare in (None, 3, 1, 4):
        if spare in kept:
            kept.remove(spare)
        wide = {i: max(cell_len(row[i]) for row in table) for i in kept}
        wide[0] = min(wide[0], 24)
        if sum(wide.values()) + 2 * (len(wide) - 1) <= width:
            break
    names = shorten_names([row[0] for row in table], wide[0])
    return [
        "  ".join(f"{name:<{wide[i]}}" if i == 0 else f"{row[i]:>{wide[i]}}" for i in kept).rstrip()
        for name, row in zip(names, table, strict=True)
    ]


def _cells(kind: KindEntry, *, many: bool, decided: bool) -> list[str]:
    before, after = kind.executions
    moved = "–"
    if None not in kind.mean:
        moved = format_ns(float(kind.mean[1] or 0) - float(kind.mean[0] or 0), sign=True)
        moved = moved if kind.change in {"slower", "faster"} or not decided else NOISE
    return [
        kind.label or "all",
        f"{before:,} → {after:,}",
        _pair(kind.p50),
        _pair(kind.p95),
        _pair(kind.p99 if many else kind.slowest),
        moved,
    ]


def _pair(both: Sequence[float | int | None]) -> str:
    one, other = both
    if one is None or other is None:
        return "–"
    (figure, unit), (end, end_unit) = format_pair(float(one), float(other))
    return f"{figure} → {end} {unit}" if unit == end_unit else f"{figure} {unit} → {end} {end_unit}"
