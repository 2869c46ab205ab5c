"""What the page carries for its script: an index, and the data of every aligned execution.

Each execution's data stand in an element of their own, so that the script parses only
those that someone looks at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from critpath.documents import (
    AlignedEntry,
    AlignedSegment,
    ComparisonDocument,
    ExecutionEntry,
    FindingEntry,
)
from critpath.report.columns import consensus, own_columns, stretches
from critpath.report.html.aligned import findings_by_execution
from critpath.report.html.compact import (
    ALPHABET,
    FINE,
    ROUGH,
    pack_durations,
    pack_shares,
    pack_symbols,
    runs,
)
from critpath.report.html.names import family_of, names_of
from critpath.report.html.wakes import changes
from critpath.report.palette import LOOKS, letter_of, words_of
from critpath.text import verdict
from critpath.text.phrases import KINDS
from critpath.text.sentences import thread_of
from critpath.units import format_ns, safe_text

# Cells (a symbol and a duration) of normal rows that go into a page, shared out over its
# executions: 3 bytes each.  The anomalous row, the group's commonest state and mean are
# always there.
MOST_CELLS: Final = 2_500_000

_ESCAPES: Final = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029\x7f"}


def data_elements(document: ComparisonDocument) -> str:
    """Return the inert script elements that carry the page's data."""
    return "".join(
        f'<script type="application/json" id="{name}">{_embedded(data)}</script>\n'
        for name, data in _elements(document)
    )


def _elements(document: ComparisonDocument) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "data", page_data(document)
    findings = findings_by_execution(document)
    rows = {r.position: r for r in document.executions if r.set == "sample"}
    families = {name: i for i, name in enumerate(_families(document))}
    short = names_of(document, "normal")
    for one, normals in zip(_ranked(document), rows_shipped(document), strict=True):
        position = one.position
        mine = findings.get(position, [])
        data = _aligned_data(document, one, mine, normals)
        for row in data["rows"]:
            if row["id"] in short:
                row["name"] = short[row["id"]]
        # Of every thread on the path, the group by which one filters.
        known = {_thread(s): families[_family(s)] for s in one.segments}
        data["kin"] = [known[name] for name in data["threads"]]
        data["epoch"] = str(_epoch(document, rows.get(position)))
        yield f"d{position}", data


def rows_shipped(document: ComparisonDocument) -> list[int]:
    """Return how many normal rows of each alignment go into the page.

    Returns
    -------
    list of int
        In the order of `verdict.by_excess`.  Every alignment has the same share of
        `MOST_CELLS`; what one does not need, larger ones have.
    """
    ranked = _ranked(document)
    sizes = [one.columns * (len(one.rows) - 1) for one in ranked]
    share = list(sizes)
    rest, waiting = MOST_CELLS, sorted(range(len(sizes)), key=sizes.__getitem__)
    while waiting:
        share[waiting[0]] = min(sizes[waiting[0]], rest // len(waiting))
        rest -= share[waiting.pop(0)]
    return [cells // max(1, one.columns) for cells, one in zip(share, ranked, strict=True)]


def page_data(document: ComparisonDocument) -> dict[str, Any]:
    """Return what the page's script needs before it draws, every text of it inert."""
    rows = {r.position: r for r in document.executions if r.set == "sample"}
    findings = findings_by_execution(document)
    threads = {name: i for i, name in enumerate(_families(document))}
    short = names_of(document, "sample")
    index = [
        _entry(document, one, rows.get(one.position), findings, threads)
        | ({"name": short[one.execution]} if one.execution in short else {})
        for one in _ranked(document)
    ]
    return {
        "alphabet": ALPHABET,
        "symbols": [
            {
                "name": safe_text(symbol.name),
                "words": safe_text(words_of(symbol)),
                "letter": letter_of(symbol),
                "colour": LOOKS[symbol.state].colour,
                "ink": LOOKS[symbol.state].ink,
                "pattern": LOOKS[symbol.state].pattern,
                "other": bool(symbol.role),
                "instead": symbol.state == "WAIT_CPU",
            }
            for symbol in document.symbols
        ],
        "threads": list(threads),
        "executions": index,
    }


def _ranked(document: ComparisonDocument) -> list[AlignedEntry]:
    return verdict.by_excess(document.aligned)


def _entry(
    document: ComparisonDocument,
    one: AlignedEntry,
    row: ExecutionEntry | None,
    findings: dict[int, list[FindingEntry]],
    threads: dict[str, int],
) -> dict[str, Any]:
    """Return what filters and the list of executions know of one without its data."""
    code = {(s.state, s.role): i for i, s in enumerate(document.symbols)}
    mine = findings.get(one.position, [])
    states = set(one.rows[-1].symbols)
    states |= {code[f.state, f.role] for f in mine if (f.state, f.role) in code}
    cluster = "" if row is None or row.cluster is None else f"s{row.cluster}"
    pair = f" / n{row.pair}" if row and row.pair is not None else ""
    return {
        "position": one.position,
        "id": safe_text(one.execution),
        "type": f"{cluster}{pair}",
        "label": safe_text(row.label) if row else "",
        "excess": verdict.duration(one.excess, sign=True),
        "states": sorted(states - {-1}),
        "threads": sorted({threads[_family(s)] for s in one.segments}),
    }


def _aligned_data(
    document: ComparisonDocument,
    one: AlignedEntry,
    findings: list[FindingEntry],
    normals: int,
) -> dict[str, Any]:
    here, segments = one.rows[-1], one.segments
    threads: dict[tuple[str, int], int] = {}
    details: dict[str, int] = {}
    # Two machines may have threads of one name and id.
    who = [threads.setdefault((_thread(s), s.host), len(threads)) for s in segments]
    what = [details.setdefault(safe_text(s.detail), len(details)) for s in segments]
    statistics = one.statistics
    begin = segments[0].begin if segments else 0
    usual = consensus(one)
    return {
        "columns": one.columns,
        "left_out": one.left_out,
        "normals": len(one.rows) - 1,
        "rows": [
            {
                "id": safe_text(row.id),
                "symbols": pack_symbols(row.symbols),
                "durations": pack_durations(row.durations, ROUGH),
                "total": sum(row.durations),
            }
            for row in one.rows[:normals]
        ],
        "symbols": pack_symbols(here.symbols),
        "durations": here.durations,
        "usual": pack_symbols(usual),
        "probability": pack_shares(statistics.probability),
        "mean": pack_durations(statistics.mean, FINE),
        # Nanoseconds of the trace clock do not fit a number of JavaScript.
        "begin": str(begin),
        "at": [] if _tiled(one) else [s.begin - begin for s in segments],
        "segments": [] if _tiled(one) else [s.column for s in segments],
        "threads": [name for name, _ in threads],
        "details": list(details),
        "who": runs(who),
        # Of each change of thread, the segment that follows and whether it is a wake.
        "changes": [[at, int(wake)] for at, wake in changes(segments).items()],
        "cpus": runs(s.cpu for s in segments),
        "what": runs(what),
        "findings": [
            {
                "rank": f.rank,
                # The columns of its own symbol, as stretches: first, and the one after.
                "own": (own := stretches(own_columns(document, one, f))),
                "columns": [own[0][0], own[-1][1]] if own else [0, 1],
                "words": safe_text(f"{_symbol(f)} {KINDS.get(f.kind, f.kind)}"),
                "difference": ""
                if f.contribution is None
                else format_ns(f.contribution, sign=True),
            }
            for f in findings
        ],
    }


def _tiled(one: AlignedEntry) -> bool:
    """Tell whether places and times of the segments follow from the anomalous row."""
    here, segments = one.rows[-1], one.segments
    columns = [c for c, code in enumerate(here.symbols) if code >= 0]
    if columns != [s.column for s in segments]:
        return False
    at = segments[0].begin if segments else 0
    for segment in segments:
        if segment.begin != at:
            return False
        at += here.durations[segment.column]
    return True


def _symbol(finding: FindingEntry) -> str:
    role = finding.role
    return f"{finding.state}@{role}" if role else str(finding.state)


def _families(document: ComparisonDocument) -> list[str]:
    return list(dict.fromkeys(_family(s) for one in _ranked(document) for s in one.segments))


def _family(segment: AlignedSegment) -> str:
    return safe_text(family_of(segment))


def _thread(segment: AlignedSegment) -> str:
    return safe_text(thread_of(segment))


def _epoch(document: ComparisonDocument, row: ExecutionEntry | None) -> int:
    """Return what to add to a time of an execution for ns since 1970, 0 where unknown."""
    epochs = document.sets.sample.epochs
    known = row is not None and 0 <= row.source < len(epochs)
    return int(epochs[row.source]) if row is not None and known else 0


def _embedded(data: dict[str, Any]) -> str:
    """Return JSON in which nothing can end the script element or a line of script."""
    compact = json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return compact.translate(_ESCAPES)
