"""Multiple alignment of critical paths: rows in, `Alignment` out, by one of two methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from msgspec import Struct, structs

from critpath.align.dp import MAX_CELLS
from critpath.align.pairwise import align_profiles
from critpath.align.posteriors import TooMuchError, add_row, align_consistent, reason_against
from critpath.align.profiles import I8, Model, build_profile, f81_model, merge_rows, sum_of_pairs
from critpath.align.progressive import Tree, align_distinct, clustalw_weights, newick
from critpath.align.repeats import Collapsed, collapse, expand, find_loops, find_units
from critpath.model import F64, I32, I64, U8, Alignment, Loop, Whole
from critpath.schema.notes import Note

POSTERIORS: Final = "posteriors"
MUSCLE: Final = "muscle"
METHODS: Final = (POSTERIORS, MUSCLE)

# technical: A few seconds a pass; MUSCLE would go on, critpath says that it did not.
REFINE_WORK = 1_000_000_000


class Core(Struct, frozen=True, eq=False):
    """What is computed of an alignment, before copies and loops are put back.

    Attributes
    ----------
    distinct : DistinctPaths
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
    notes : tuple of Note
    """

    distinct: DistinctPaths
    units: frozenset[bytes]
    rows: tuple[Collapsed, ...]
    of: tuple[int, ...]
    codes: I8
    tree: Tree | None
    weights: F64
    model: Model
    method: str
    notes: tuple[Note, ...]


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
    """Align distinct, collapsed rows; see `align`."""
    if method not in METHODS:
        raise ValueError(f"no method {method!r}: {' or '.join(METHODS)}")
    distinct = distinct_rows(sequences, alphabet)
    against = reason_against(distinct.rows) if method == POSTERIORS and distinct.rows else None
    if method == POSTERIORS and against is None:
        try:
            return _core_by_posteriors(distinct, alphabet)
        except TooMuchError as error:
            against = error.note
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


def _core_by_posteriors(distinct: DistinctPaths, alphabet: int) -> Core:
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
    distinct: DistinctPaths, units: frozenset[bytes]
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


def _score(positions: I32, distinct: DistinctPaths) -> float:
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


# The members of a large normal group to align: typical ones, then diverse ones.


def choose_rows(counts: Whole, limit: int) -> I64:
    """Choose at most `limit` executions that represent a group.

    The medoid (least summed Euclidean distance to all) first, then always the one
    farthest from all chosen so far.  Distances are of the square roots of the
    counts, as in the clustering.  Among equals the lexicographically least vector,
    then the lowest row, so that the choice does not depend on the order of rows
    with unlike vectors.

    Parameters
    ----------
    counts : int64 [n, k]
        Count vectors.
    limit : int
        At least 1.

    Returns
    -------
    int64 [min(n, limit)]
        Rows chosen, ascending; all where the group is not larger than `limit`.

    Raises
    ------
    ValueError
        If `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"limit {limit}: at least one row is needed")
    n = len(counts)
    if n <= limit:
        return np.arange(n, dtype=np.int64)
    order = np.lexsort((np.arange(n), *counts.T[::-1]))
    points = np.sqrt(counts[order].astype(np.float64))
    # Many executions have the same counts: what is between these is computed once.
    new = np.ones(n, np.bool_)
    new[1:] = (points[1:] != points[:-1]).any(axis=1)
    first = np.flatnonzero(new)
    weight = np.diff(first, append=n)
    sums = np.array([_distances(points[first], point) @ weight for point in points[first]])
    points = points[first]
    # Of those with equal counts the first that is not chosen yet.
    taken, nearest = np.zeros(len(first), np.int64), np.full(len(first), np.inf)
    following = int(np.argmin(np.round(sums, 6)))
    chosen = []
    while True:
        chosen.append(int(first[following] + taken[following]))
        if len(chosen) == limit:
            return np.sort(order[chosen]).astype(np.int64)
        taken[following] += 1
        nearest = np.minimum(nearest, _distances(points, points[following]))
        left = np.where(taken < weight, nearest, -1.0)
        following = int(np.argmax(np.round(left, 9)))


def _distances(points: F64, to: F64) -> F64:
    return np.asarray(np.sqrt(((points - to) ** 2).sum(axis=1)))


# Adding a row to an alignment.


class RowGroup:
    """Sequences that are aligned once, for others to be added to, one at a time.

    Parameters
    ----------
    sequences : sequence of uint8 arrays
    durations : sequence of int64 arrays
    alphabet : int
    others : sequence of uint8 arrays
        What will be added: their loops are treated as loops in the group, too.
    max_cells : int
        See `multiple.align`, as for the errors.
    method : str
        See `multiple.align`; rows are added by the one that aligned the group.
    """

    def __init__(
        self,
        sequences: Sequence[U8],
        durations: Sequence[I64],
        alphabet: int,
        *,
        others: Sequence[U8] = (),
        max_cells: int = MAX_CELLS,
        method: str = POSTERIORS,
    ) -> None:
        check_sequences(sequences, durations, alphabet)
        self._sequences, self._durations = tuple(sequences), tuple(durations)
        self._alphabet, self._max_cells = alphabet, max_cells
        self._core = align_core(
            sequences, alphabet, others=others, max_cells=max_cells, method=method
        )
        self._added: dict[bytes, I8] = {}  # what differs in iterations only is aligned once
        self._known: dict[bytes, Alignment] = {}  # and what is equal, put together once

    def add(self, sequence: U8, durations: I64) -> Alignment:
        """Return the group's alignment with one more row, the last.

        A sequence against the group.  Rows of the group keep their place
        relative to each other: columns in which only the added row has a letter come
        between theirs, and a loop is as long as its longest run, the added row's
        included.

        Parameters
        ----------
        sequence : uint8 array
        durations : int64 array
            Nanoseconds of every letter.

        Raises
        ------
        ValueError
            If they differ in length or a letter is not below `alphabet`.
        UsageError
            If paths are too long; see `programme.solve`.
        """
        check_sequences([sequence], [durations], self._alphabet)
        name, lengths = sequence.tobytes(), (*self._durations, durations)
        if name in self._known:
            return replace(self._known[name], durations=lengths)
        core = _with_row(self._core, sequence, len(self._sequences), self._max_cells, self._added)
        self._known[name] = finish(core, (*self._sequences, sequence), lengths)
        return self._known[name]


def _with_row(
    core: Core, sequence: U8, number: int, max_cells: int, added: dict[bytes, I8]
) -> Core:
    """Add a row to what is computed of an alignment; keep its codes, and take them again."""
    distinct = core.distinct
    if not len(sequence):
        return structs.replace(
            core, distinct=structs.replace(distinct, empty=[*distinct.empty, number])
        )
    whole = distinct.label[sequence]
    for i, row in enumerate(distinct.rows):
        if np.array_equal(row, whole):
            copies = [*distinct.copies]
            copies[i] = [*copies[i], number]
            return structs.replace(core, distinct=structs.replace(distinct, copies=copies))
    mine = collapse(whole, core.units)
    leaf, codes = len(core.codes), core.codes
    for of, known in zip(core.of, core.rows, strict=True):
        if np.array_equal(known.letters, mine.letters):
            leaf = of
    if leaf == len(codes):
        name = mine.letters.tobytes()
        if name not in added:
            added[name] = _with_sequence(core, mine.letters, max_cells)
        codes = added[name]
    return structs.replace(
        core,
        distinct=structs.replace(
            distinct, rows=[*distinct.rows, whole], copies=[*distinct.copies, [number]]
        ),
        rows=(*core.rows, mine),
        of=(*core.of, leaf),
        codes=codes,
    )


def _with_sequence(core: Core, letters: U8, max_cells: int) -> I8:
    """Align a sequence with the rows there are; it becomes the last."""
    added = letters.astype(np.int8)[None, :]
    if not len(core.codes):
        return added
    if core.method == POSTERIORS:
        codes = add_row(core.codes, letters, core.model)
        if codes is not None:
            return codes
    _, path = align_profiles(
        build_profile(core.codes, core.weights, core.model),
        build_profile(added, np.ones(1), core.model),
        core.model,
        max_cells=max_cells,
    )
    return merge_rows(core.codes, added, path)


# Canonical order of rows and numbering of letters.


MOST_LETTERS = 64  # technical


class DistinctPaths(Struct, frozen=True, eq=False):
    """What is aligned of some sequences.

    Attributes
    ----------
    label : uint8 [alphabet]
        The letters' numbers in `rows`.
    rows : list of uint8 arrays
        Each but once, none empty, by length and then content.
    copies : list of list of int
        The sequences that each of them stands for.
    empty : list of int
        The empty sequences.
    """

    label: U8
    rows: list[U8]
    copies: list[list[int]]
    empty: list[int]


def distinct_rows(sequences: Sequence[U8], alphabet: int) -> DistinctPaths:
    """Return the distinct rows of some sequences in canonical order and letters."""
    places: dict[bytes, list[int]] = {}
    for i, sequence in enumerate(sequences):
        places.setdefault(np.asarray(sequence, np.uint8).tobytes(), []).append(i)
    empty = places.pop(b"", [])
    label = _canonical_labels([np.frombuffer(key, np.uint8) for key in places], alphabet)
    named = [(label[np.frombuffer(key, np.uint8)], at) for key, at in places.items()]
    named.sort(key=lambda item: (len(item[0]), item[0].tobytes()))
    return DistinctPaths(label, [row for row, _ in named], [at for _, at in named], empty)


def check_sequences(sequences: Sequence[U8], durations: Sequence[I64], alphabet: int) -> None:
    """Check that sequences and durations agree, and that letters are within the alphabet."""
    if not 0 <= alphabet <= MOST_LETTERS:
        raise ValueError(f"an alphabet of {alphabet} letters: at most {MOST_LETTERS}")
    if [len(s) for s in sequences] != [len(d) for d in durations]:
        raise ValueError("sequences and durations differ in length")
    for i, sequence in enumerate(sequences):
        if len(sequence) and int(np.max(sequence)) >= alphabet:
            raise ValueError(f"sequence {i}: letter {int(np.max(sequence))} of {alphabet}")


def _canonical_labels(sequences: Sequence[U8], alphabet: int) -> U8:
    """Return a numbering of the letters by how they occur, not by what they are called."""
    signature = np.zeros((5, alphabet), np.int64)
    for sequence in sequences:
        place = np.arange(len(sequence))
        mine = np.bincount(sequence, minlength=alphabet)
        signature[0] += mine
        signature[1] += mine * mine
        for row, weight in ((2, place), (3, place * place), (4, place * len(sequence))):
            signature[row] += np.bincount(sequence, weight, minlength=alphabet).astype(np.int64)
    label = np.empty(alphabet, np.uint8)
    # lexsort takes its last key first; the letter itself decides between equals.
    label[np.lexsort(-signature[::-1])] = np.arange(alphabet)
    return label
