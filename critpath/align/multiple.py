"""Multiple alignment of critical paths: rows in, `Alignment` out, by one of two methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from critpath.align.canonical import Distinct, check_sequences, distinct_rows
from critpath.align.consistency import align_consistent, reason_against
from critpath.align.expansion import expand
from critpath.align.loops import find_loops
from critpath.align.posteriors import TooMuchError
from critpath.align.profiles import I8, Model, f81_model, sum_of_pairs
from critpath.align.programme import MAX_CELLS
from critpath.align.repeats import Collapsed, collapse, find_units
from critpath.align.stages import align_distinct
from critpath.align.tree import Tree, newick
from critpath.align.weights import clustalw_weights
from critpath.model import F64, I32, I64, U8, Alignment, Loop

POSTERIORS: Final = "posteriors"
MUSCLE: Final = "muscle"
METHODS: Final = (POSTERIORS, MUSCLE)

# A few seconds a pass; MUSCLE would go on, critpath says that it did not.
REFINE_WORK = 1_000_000_000


@dataclass(frozen=True, eq=False)
class Core:
    """What is computed of an alignment, before copies and loops are put back.

    Attributes
    ----------
    distinct : Distinct
    units : frozenset of bytes
        Of the loops; see `repeats.find_units`.
    rows : tuple of Collapsed
        The distinct rows, collapsed.
    of : tuple of int
        Their rows in `codes`: rows that differ in their iterations only share one.
    codes : int8 [distinct collapsed rows, columns]
    tree : Tree or None
        Its leaves are the rows of `codes`, save one added later (see `add`); None
        where there are none.
    weights : float64 [rows of codes]
    model : Model
        Of the collapsed letters.
    method : str
        By which they were aligned in the end.
    notes : tuple of str
    """

    distinct: Distinct
    units: frozenset[bytes]
    rows: tuple[Collapsed, ...]
    of: tuple[int, ...]
    codes: I8
    tree: Tree | None
    weights: F64
    model: Model
    method: str
    notes: tuple[str, ...]


def align(
    sequences: Sequence[U8],
    durations: Sequence[I64],
    alphabet: int,
    *,
    refine: int = 4,
    max_cells: int = MAX_CELLS,
    refine_work: int = REFINE_WORK,
    collapse: bool = True,
    method: str = POSTERIORS,
) -> Alignment:
    """Align critical paths by their states.

    ``posteriors``: how likely any two states of two paths belong together, summed over
    all alignments of a pair-HMM and made consistent with the other paths; then along a
    tree the alignment with the largest sum (see `consistency.align_consistent`).  Paths
    that are too many or too long for it, or have too little in common, are aligned by
    ``muscle``, with a note.

    ``muscle``: stage 1: k-mer distances, UPGMB tree, progressive alignment of
    log-expectation profiles.  Stage 2: the same along the tree of Kimura distances
    measured in the first alignment; parts of the tree that did not change are not aligned
    again.  Stage 3: tree-dependent restricted partitioning (see `stages.align_distinct`).
    Deviations from MUSCLE 3: an open alphabet scored by an F81 odds-ratio matrix of the
    sequences' own letter frequencies (pi 0.6, gaps -3.5 and -0.25, centre 0.3); one pass
    of stage 2; 4 of stage 3.

    There loops of many iterations are aligned by one (see `repeats`).

    With both, identical rows are aligned once and count once in weights and frequencies,
    so another copy of a row changes nothing.

    Parameters
    ----------
    sequences : sequence of uint8 arrays
        Letters below `alphabet`; may be empty.
    durations : sequence of int64 arrays
        Nanoseconds of every letter; carried along, never looked at.
    alphabet : int
        At most 64.
    refine : int
        Passes of stage 3 at most; 0 leaves it out.
    max_cells : int
        ``muscle``: refuse to align two profiles with more pairs of columns than this.
    refine_work : int
        ``muscle``: leave stage 3 out, with a note, where a pass costs more cells than this.
    collapse : bool
        ``muscle``: align loops by one iteration; else their iterations are states like others.
    method : str
        ``posteriors`` or ``muscle``.

    Returns
    -------
    Alignment
        Rows in the order given.  The columns do not depend on that order, nor on
        the numbering of the letters save where two letters occur at exactly the
        same counts and positions.

    Raises
    ------
    ValueError
        If lengths differ, a letter is not below `alphabet`, or there is no such method.
    UsageError
        If paths are too long; see `programme.solve`.

    Notes
    -----
    R. C. Edgar, MUSCLE: multiple sequence alignment with high accuracy and high
    throughput, Nucleic Acids Research 32(5), 2004.
    """
    check_sequences(sequences, durations, alphabet)
    core = align_core(
        sequences,
        alphabet,
        refine=refine,
        max_cells=max_cells,
        refine_work=refine_work,
        loops=collapse,
        method=method,
    )
    return finish(core, sequences, durations)


def align_core(
    sequences: Sequence[U8],
    alphabet: int,
    *,
    others: Sequence[U8] = (),
    refine: int = 4,
    max_cells: int = MAX_CELLS,
    refine_work: int = REFINE_WORK,
    loops: bool = True,
    method: str = POSTERIORS,
) -> Core:
    """Align distinct, collapsed rows; see `align`.

    Parameters
    ----------
    others : sequence of uint8 arrays
        What will be added later (see `add`): their loops are loops here, too.
    """
    if method not in METHODS:
        raise ValueError(f"no method {method!r}: {' or '.join(METHODS)}")
    distinct = distinct_rows(sequences, alphabet)
    against = reason_against(distinct.rows) if method == POSTERIORS and distinct.rows else None
    if method == POSTERIORS and against is None:
        try:
            return _core_by_posteriors(distinct, alphabet)
        except TooMuchError as error:
            against = str(error)
    units: frozenset[bytes] = frozenset()
    if loops:
        # Copies of a row decide nothing, be they among the others.
        known = {row.tobytes(): row for row in distinct.rows}
        for other in others:
            row = distinct.label[other]
            known.setdefault(row.tobytes(), row)
        units = find_units(list(known.values()))
    rows, of, letters = _leaves(distinct, units)
    model = f81_model(_letters(letters, alphabet))
    if not letters:
        codes, weights = np.empty((0, 0), np.int8), np.empty(0)
        return Core(distinct, units, rows, of, codes, None, weights, model, MUSCLE, ())
    codes, tree, notes = align_distinct(
        letters,
        alphabet,
        model,
        refine=refine,
        max_cells=max_cells,
        refine_work=refine_work,
    )
    if against is not None:
        notes = (*notes, against)
    weights = clustalw_weights(tree)
    return Core(distinct, units, rows, of, codes, tree, weights, model, MUSCLE, notes)


def _core_by_posteriors(distinct: Distinct, alphabet: int) -> Core:
    """Align rows as they are, loops and all; raise `TooMuchError` where that is too much."""
    rows, of, letters = _leaves(distinct, frozenset())
    model = f81_model(_letters(letters, alphabet))
    if not letters:
        codes, weights = np.empty((0, 0), np.int8), np.empty(0)
        return Core(distinct, frozenset(), rows, of, codes, None, weights, model, POSTERIORS, ())
    codes, tree, notes = align_consistent(letters, model)
    weights = clustalw_weights(tree)
    return Core(distinct, frozenset(), rows, of, codes, tree, weights, model, POSTERIORS, notes)


def _leaves(
    distinct: Distinct, units: frozenset[bytes]
) -> tuple[tuple[Collapsed, ...], tuple[int, ...], list[U8]]:
    """Return the rows collapsed, which of the sequences to align each is, and these."""
    rows = tuple(collapse(row, units) for row in distinct.rows)
    leaves = {row.letters.tobytes(): row.letters for row in rows}
    ordered = sorted(leaves, key=lambda key: (len(key), key))
    number = {key: i for i, key in enumerate(ordered)}
    of = tuple(number[row.letters.tobytes()] for row in rows)
    return rows, of, [leaves[key] for key in ordered]


def finish(core: Core, sequences: Sequence[U8], durations: Sequence[I64]) -> Alignment:
    """Put copies, empty rows and the iterations of loops back."""
    distinct = core.distinct
    positions = expand(core.codes, core.rows, core.of)
    rows = np.full((len(sequences), positions.shape[1]), -1, np.int32)
    origin = np.full(len(sequences), -1)
    for i, at in enumerate(distinct.copies):
        rows[at] = positions[i]
        origin[at] = i
    shown = []
    for loop in find_loops(positions, distinct.rows):
        iterations = np.where(origin >= 0, loop.iterations[origin], 0).astype(np.int32)
        shown.append(Loop(loop.first, loop.last, loop.period, iterations))
    leaves = core.tree.leaves if core.tree else 0
    names: list[list[int]] = [[] for _ in range(leaves)]
    apart = [*distinct.empty]
    for leaf, at in zip(core.of, distinct.copies, strict=True):
        (names[leaf] if leaf < leaves else apart).extend(at)
    return Alignment(
        rows,
        tuple(sequences),
        tuple(durations),
        newick(core.tree, [sorted(at) for at in names], sorted(apart)),
        _score(positions, distinct),
        core.notes,
        tuple(shown),
    )


def _letters(rows: Sequence[U8], alphabet: int) -> I64:
    """Return how often each letter occurs."""
    result = np.zeros(alphabet, np.int64)
    for row in rows:
        result += np.bincount(row, minlength=alphabet)
    return result


def _score(positions: I32, distinct: Distinct) -> float:
    """Return the plain sum of pairs over all rows as given, copies and empty ones too."""
    if not distinct.rows:
        return 0.0
    model = f81_model(_letters(distinct.rows, len(distinct.label)))
    codes = np.full(positions.shape, -1, np.int8)
    for row, place, letters in zip(codes, positions, distinct.rows, strict=True):
        row[place >= 0] = letters
    number = np.array([len(at) for at in distinct.copies], np.float64)
    score = sum_of_pairs(codes, number, model)
    diagonal = np.diag(model.log_ratio) + model.centre
    for letters, count in zip(distinct.rows, number, strict=True):
        score += count * (count - 1) / 2 * float(diagonal[letters].sum())
        score += count * len(distinct.empty) * len(letters) * model.gap_extend
    return float(score)
