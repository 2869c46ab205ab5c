"""Alignments and guide trees of a comparison in the formats of bioinformatics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from io import StringIO
from typing import Any, Final

import numpy as np

from critpath.documents import AlignedEntry, AlignedRow, ComparisonDocument, ExecutionEntry
from critpath.errors import UnreadableError, UsageError
from critpath.model import LETTERS, Alignment, Loop, label_duration
from critpath.report.palette import letter_of
from critpath.units import format_ns, safe_text

# Biopython's Clustal writer cuts longer ones.
LONGEST_NAME: Final = 30
# Pfam's way to write a probability in one character: 0 is below 5 %, * from 95 % on.
_TENTHS: Final = "0123456789*"
_TRACKS: Final = (
    "Per column: paper, what is abnormal by the paper's rules: s the state, d the duration,"
    " m a state that is missing; normal_symbol, the normal rows' most common letter;"
    " normal_probability, their share with it; probability, their share with the last row's"
    " letter: 0 is below 5 %, 1 below 15 %, ... 9 below 95 %, * above; normal_duration,"
    " their mean; duration, the last row's: 0-9 A-Z a-z, each twice the one before: A is 512"
    " to 1023 ns, K from 0.52 ms, U from 0.54 s."
)
_VERDICT: Final = " abnormal, * where the verdict says so."
_ITERATION: Final = " iteration, which one of a loop, modulo 10; iterations of a row, loop by loop."


def write_alignments(
    document: ComparisonDocument, aligned: Sequence[AlignedEntry], as_: str
) -> str:
    """Write alignments of a comparison as text.

    Parameters
    ----------
    document : dict
        Of `comparison_document`, or read back from its JSON.
    aligned : sequence of dict
        Those of ``document.aligned`` that are wanted.
    as_ : str
        ``fasta``, ``clustal`` or ``stockholm``.

    Returns
    -------
    str
        One alignment after the other.  Stockholm has besides: what the letters mean, what
        each row is, durations of every segment, and per column the tracks of the report.

    Raises
    ------
    UsageError
        If an alignment has no columns.
    """
    align = import_module("Bio.Align")  # slow; typed in part

    result = StringIO()
    for one in aligned:
        if not one.columns:
            raise UsageError(
                f"the alignment of run {one.execution} has no columns: nothing was done",
                "choose another with --execution",
            )
        align.write([to_biopython_alignment(document, one)], result, as_)
    return result.getvalue()


def write_newick(_: ComparisonDocument, aligned: Sequence[AlignedEntry]) -> str:
    """Return the guide trees of a comparison's alignments: `write_trees`."""
    return write_trees(aligned)


def write_trees(aligned: Sequence[AlignedEntry]) -> str:
    """Write the guide trees of alignments in Newick form, a line each.

    Raises
    ------
    UnreadableError
        If a tree is damaged.
    """
    phylo = import_module("Bio.Phylo")  # slow; typed in part

    result = StringIO()
    for one in aligned:
        names = {str(i): name for i, name in enumerate(row_names(one))}
        try:
            tree = phylo.read(StringIO(one.tree), "newick")
            for leaf in tree.get_terminals():
                leaf.name = names[leaf.name]
            # Six digits that count: two paths may differ by one state in thousands.
            phylo.write(tree, result, "newick", format_branch_length="%.6g")
        except (ValueError, KeyError, RecursionError, phylo.NewickIO.NewickError) as error:
            raise UnreadableError(
                f"the tree of run {one.execution} is damaged: {error}",
                "give a file that `critpath compare --json FILE` wrote",
            ) from error
    return result.getvalue()


def to_biopython_alignment(document: ComparisonDocument, aligned: AlignedEntry) -> Any:
    """Return one alignment of a comparison as a ``Bio.Align.Alignment`` with its tracks."""
    letters = "".join(letter_of(symbol) for symbol in document.symbols)
    if any(max(row.symbols, default=-1) >= len(letters) for row in aligned.rows):
        raise UnreadableError(
            f"more than {len(LETTERS)} symbols: there are no letters for them",
            "give a file that `critpath compare --json FILE` wrote",
        )
    names = row_names(aligned)
    result = alignment_of(aligned).to_biopython(names, letters)
    rows = {(e.set, e.position): e for e in document.executions}
    for record, row in zip(result.sequences, aligned.rows, strict=True):
        execution = rows.get((row.set, row.position))
        record.annotations |= _about(row, execution)
        record.description = _described(row, execution)
    result.annotations = {
        "identifier": names[-1],
        "definition": _text(f"run {aligned.execution} (the last row) and its normal group"),
        "comment": f"Letters: {_legend(document)}. {_TRACKS}"
        + _VERDICT
        + (_ITERATION if aligned.loops else ""),
    }
    # Biopython has the attribute only once it is set.
    mine = getattr(result, "column_annotations", None) or {}
    result.column_annotations = {**_tracks(aligned, letters), **mine}
    return result


def alignment_of(aligned: AlignedEntry) -> Alignment:
    """Return the `Alignment` that a document's entry was made from."""
    symbols = np.array([row.symbols for row in aligned.rows], np.int32)
    durations = np.array([row.durations for row in aligned.rows], np.int64)
    present = symbols >= 0
    loops = tuple(
        Loop(loop.first, loop.last, loop.period, np.array(loop.iterations, np.int32))
        for loop in aligned.loops
    )
    return Alignment(
        rows=np.where(present, np.cumsum(present, axis=1) - 1, -1).astype(np.int32),
        sequences=tuple(s[here].astype(np.uint8) for s, here in zip(symbols, present, strict=True)),
        durations=tuple(d[here] for d, here in zip(durations, present, strict=True)),
        tree=aligned.tree,
        score=aligned.score or 0.0,
        loops=loops,
    )


def row_names(aligned: AlignedEntry) -> list[str]:
    """Return a name for every row that all formats and tools take.

    ``n_`` or ``s_`` for the set, then the execution's id as far as it is plain; where
    that is long or ambiguous, its position in the set behind it.
    """
    result: list[str] = []
    for row in aligned.rows:
        stem = f"{row.set[0]}_" + re.sub(r"[^A-Za-z0-9_.@+-]", "_", row.id)
        if len(stem) > LONGEST_NAME or stem in result:
            ending = f"_{row.position}"
            stem = stem[: LONGEST_NAME - len(ending)] + ending
        number = 0
        name = stem
        while name in result:  # an id may look like another's with its position
            number += 1
            name = f"{row.set[0]}_{row.position}_{number}"
        result.append(name)
    return result


def _text(text: str) -> str:
    """Return text as one line of a format whose lines have a meaning."""
    return " ".join(safe_text(text).split())


def _word(text: str) -> str:
    return re.sub(r"\s", "_", safe_text(text))


def _legend(document: ComparisonDocument) -> str:
    return " ".join(f"{letter_of(s)}={_word(s.name)}" for s in document.symbols)


def _about(row: AlignedRow, execution: ExecutionEntry | None) -> dict[str, str]:
    about = {"set": row.set, "id": _text(row.id)}
    if execution is not None:
        for key in ("begin", "end", "tid", "comm", "label", "cluster"):
            value = getattr(execution, key)
            if value not in {None, ""} and (key, value) != ("tid", -1):
                about[key] = _text(str(value))
    return about


def _described(row: AlignedRow, execution: ExecutionEntry | None) -> str:
    parts = [f"{row.set} run {row.id}"]
    if execution is not None:
        tid = execution.tid
        parts.append(execution.comm + (f" [{tid}]" if tid >= 0 else ""))
        parts.append(format_ns(execution.end - execution.begin))
    return _text(", ".join(parts))


def _tracks(aligned: AlignedEntry, letters: str) -> dict[str, str]:
    statistics = aligned.statistics
    last = aligned.rows[-1]
    symbols = [letters[s] if s >= 0 else "-" for s in statistics.normal_symbol]
    return {
        "abnormal": "".join("*" if abnormal else "." for abnormal in statistics.abnormal),
        "paper": "".join(
            "s" if state else "d" if duration else "m" if missing else "."
            for state, duration, missing in zip(
                statistics.abnormal_state,
                statistics.abnormal_duration,
                statistics.missing,
                strict=True,
            )
        ),
        "normal_symbol": "".join(symbols),
        "normal_probability": "".join(map(_tenth, statistics.normal_probability)),
        "probability": "".join(map(_tenth, statistics.probability)),
        "normal_duration": "".join(
            "." if mean is None else label_duration(mean) for mean in statistics.mean
        ),
        "duration": "".join(
            "." if s < 0 else label_duration(d)
            for s, d in zip(last.symbols, last.durations, strict=True)
        ),
    }


def _tenth(probability: float | None) -> str:
    if probability is None:
        return "."
    return _TENTHS[min(max(int(probability * 10 + 0.5), 0), 10)]
