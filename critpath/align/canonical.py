"""Distinct rows in an order, and letters in a numbering, that say nothing of the input's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from critpath.model import I64, U8

MOST_LETTERS = 64


@dataclass(frozen=True, eq=False)
class Distinct:
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


def distinct_rows(sequences: Sequence[U8], alphabet: int) -> Distinct:
    """Return the distinct rows of some sequences in canonical order and letters."""
    places: dict[bytes, list[int]] = {}
    for i, sequence in enumerate(sequences):
        places.setdefault(np.asarray(sequence, np.uint8).tobytes(), []).append(i)
    empty = places.pop(b"", [])
    label = _canonical_labels([np.frombuffer(key, np.uint8) for key in places], alphabet)
    named = [(label[np.frombuffer(key, np.uint8)], at) for key, at in places.items()]
    named.sort(key=lambda item: (len(item[0]), item[0].tobytes()))
    return Distinct(label, [row for row, _ in named], [at for _, at in named], empty)


def check_sequences(sequences: Sequence[U8], durations: Sequence[I64], alphabet: int) -> None:
    """Check that sequences and durations agree, and that letters are within the alphabet.

    Raises
    ------
    ValueError
        If they do not.
    """
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
