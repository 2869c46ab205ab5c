"""What the page carries for its script: an index, and the data of every aligned execution.

Each execution's data stand in an element of their own, so that the script parses only
those that someone looks at.  Columns of figures are short texts: one character stands for
a symbol, a few for a duration, a binary floating point of our own.  Only whole numbers are
computed with, so that every machine writes the same page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from critpath.documents import (
    AlignedEntry,
    AlignedSegment,
    ComparisonDocument,
    ExecutionEntry,
    FindingEntry,
)
from critpath.report.columns import consensus, own_columns, stretches
from critpath.report.html.aligned import group_findings
from critpath.report.html.elements import family_of, names_of
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


def render_data(document: ComparisonDocument) -> str:
    """Return the inert script elements that carry the page's data."""
    return "".join(
        f'<script type="application/json" id="{name}">{_embedded(data)}</script>\n'
        for name, data in _elements(document)
    )


def _elements(document: ComparisonDocument) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "data", page_data(document)
    findings = group_findings(document)
    rows = {r.position: r for r in document.executions if r.set == "sample"}
    families = {name: i for i, name in enumerate(_families(document))}
    short = names_of(document, "normal")
    for one, normals in zip(_ranked(document), count_shipped_rows(document), strict=True):
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


def count_shipped_rows(document: ComparisonDocument) -> list[int]:
    """Return how many normal rows of each alignment go into the page."""
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
    findings = group_findings(document)
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
        "who": encode_runs(who),
        # Of each change of thread, the segment that follows and whether it is a wake.
        "changes": [[at, int(wake)] for at, wake in find_thread_changes(segments).items()],
        "cpus": encode_runs(s.cpu for s in segments),
        "what": encode_runs(what),
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


# Printable ASCII that neither JSON nor HTML escapes, less the sign of a gap.
_EXCLUDED: Final = frozenset("\"\\<>&'. ")
ALPHABET: Final = "".join(c for c in map(chr, range(33, 127)) if c not in _EXCLUDED)
_GAP: Final = "."
# Symbols beyond the alphabet: letters of Latin Extended, two bytes each.
_BEYOND: Final = 0x100

# Characters of a duration and the bits of its mantissa: within 0.4 % and 0.01 %.
ROUGH: Final = (2, 7)
FINE: Final = (3, 13)
_SHARES: Final = 7000


def pack_symbols(codes: Iterable[int]) -> str:
    """Return symbol codes as one character each, ``.`` for a gap (-1)."""
    size = len(ALPHABET)
    return "".join(
        _GAP if code < 0 else ALPHABET[code] if code < size else chr(_BEYOND + code - size)
        for code in codes
    )


def pack_durations(values: Sequence[float | None], form: tuple[int, int]) -> str:
    """Return durations (ns, None where there is none) in characters of `ALPHABET`."""
    import numpy as np  # noqa: PLC0415 - start-up: only pages need it here

    width, bits = form
    known = np.array([value is not None for value in values], np.bool_)
    whole = np.array([0 if value is None else min(int(value), 2**62) for value in values], np.int64)
    # frexp may round a large value up to the next power of two, and then the mantissa
    # is one short: the level is still the same on every machine, and as near.
    exponent = np.maximum(np.frexp(whole.astype(np.float64))[1] - (bits + 1), 0).astype(np.int64)
    level = np.where(known, 1 + (exponent << bits) + (whole >> exponent), 0)
    return _digits(level, width)


def pack_shares(values: Sequence[float | None]) -> str:
    """Return shares between 0 and 1 (None where undefined), two characters each."""
    import numpy as np  # noqa: PLC0415 - start-up: only pages need it here

    bounded = [0 if v is None else 1 + round(_SHARES * min(max(v, 0.0), 1.0)) for v in values]
    return _digits(np.array(bounded, np.int64), 2)


def _digits(level: Any, width: int) -> str:
    import numpy as np  # noqa: PLC0415 - start-up: only pages need it here

    letters = np.frombuffer(ALPHABET.encode("ascii"), np.uint8)
    places = len(ALPHABET) ** np.arange(width - 1, -1, -1, dtype=np.int64)
    return str(letters[level[:, None] // places % len(ALPHABET)].tobytes().decode("ascii"))


def encode_runs(values: Iterable[int]) -> list[int]:
    """Return values and how often each occurs in a row, flat: ``[5, 5, 7]`` is ``[5, 2, 7, 1]``."""
    result: list[int] = []
    for value in values:
        if result and result[-2] == value:
            result[-1] += 1
        else:
            result += [value, 1]
    return result


def find_thread_changes(segments: list[AlignedSegment]) -> dict[int, bool]:
    """Return where a path changes its thread, and whether that is a wake.

    A path is found backward: while a thread slept, the path is that of its waker.  So where
    it goes over to another thread, either the thread before fell asleep there, and the path
    comes back to it by a wake; or it had fallen asleep earlier than the path saw, and the
    thread before woke it.
    """
    # Machines give the same ids to different threads.
    tids = [(segment.host, segment.tid) for segment in segments]
    result: dict[int, bool] = {}
    # From the end, where the path is the subject's own: the threads that it is inside of.
    # As `CriticalPaths.wakes`, which has the whole path.
    inside = tids[-1:]
    for i in range(len(tids) - 1, 0, -1):
        before = tids[i - 1]
        if before == tids[i]:
            continue
        result[i] = before not in inside
        if result[i]:
            inside.append(before)
        else:
            del inside[inside.index(before) + 1 :]
    return dict(sorted(result.items()))
