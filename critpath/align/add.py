"""One more row for an alignment that stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from critpath.align.canonical import check_sequences
from critpath.align.consistency import add_row
from critpath.align.multiple import POSTERIORS, Core, align_core, finish
from critpath.align.pairwise import align_profiles
from critpath.align.profiles import I8, build_profile, merge_rows
from critpath.align.programme import MAX_CELLS
from critpath.align.repeats import collapse
from critpath.model import I64, U8, Alignment


class Group:
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
        core = _with_row(self._core, sequence, len(self._sequences), self._max_cells)
        return finish(core, (*self._sequences, sequence), (*self._durations, durations))


def _with_row(core: Core, sequence: U8, number: int, max_cells: int) -> Core:
    """Add a row to what is computed of an alignment."""
    distinct = core.distinct
    if not len(sequence):
        return replace(core, distinct=replace(distinct, empty=[*distinct.empty, number]))
    whole = distinct.label[sequence]
    for i, row in enumerate(distinct.rows):
        if np.array_equal(row, whole):
            copies = [*distinct.copies]
            copies[i] = [*copies[i], number]
            return replace(core, distinct=replace(distinct, copies=copies))
    mine = collapse(whole, core.units)
    leaf, codes = len(core.codes), core.codes
    for of, known in zip(core.of, core.rows, strict=True):
        if np.array_equal(known.letters, mine.letters):
            leaf = of
    if leaf == len(codes):
        codes = _with_sequence(core, mine.letters, max_cells)
    return replace(
        core,
        distinct=replace(
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
