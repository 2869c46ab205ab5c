"""Distances between sequences without an alignment, from the k-mers they share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.model import F64, I64, U8

LEAST_K = 2
MOST_K = 6


def choose_k(letters: I64, mean_length: float) -> int:
    """Return the k at which a chance match in a sequence becomes unlikely.

    ``ceil(ln(10 * mean length) / H)``, H the entropy of the letters in nats,
    between 2 and 6.

    Parameters
    ----------
    letters : int64 [letters]
        How often each letter occurs.
    mean_length : float
    """
    share = letters[letters > 0] / letters.sum()
    entropy = float(-(share * np.log(share)).sum())
    if entropy <= 0:
        return MOST_K
    k = int(np.ceil(np.log(10 * max(mean_length, 1)) / entropy))
    return min(max(k, LEAST_K), MOST_K)


def _codes(sequence: U8, alphabet: int, k: int) -> I64:
    """Return every k-mer of a sequence as one number (64**6 < 2**63: no collisions)."""
    result = np.zeros(max(len(sequence) - k + 1, 0), np.int64)
    for offset in range(k):
        result *= alphabet
        result += sequence[offset : offset + len(result)]
    return result


def _shared(sequences: Sequence[U8], alphabet: int, k: int) -> I64:
    """Return for every pair how many k-mers they share, repeats counted [n, n]."""
    every = [_codes(s, alphabet, k) for s in sequences]
    owner = np.repeat(np.arange(len(every)), [len(c) for c in every])
    words, place = np.unique(np.concatenate(every), return_inverse=True)
    counts = np.zeros((len(every), len(words)), np.int32)
    np.add.at(counts, (owner, place.reshape(-1)), 1)
    # A word of one sequence only is shared with nobody.
    counts = counts[:, (counts > 0).sum(axis=0) > 1]
    shared = np.empty((len(every), len(every)), np.int64)
    for i, mine in enumerate(counts):
        shared[i] = np.minimum(mine, counts).sum(axis=1)
    return shared


def kmer_distances(sequences: Sequence[U8], alphabet: int, k: int) -> F64:
    """Return ``1 - share of k-mers in common`` for every pair (Edgar 2004).

    Parameters
    ----------
    sequences : sequence of uint8 arrays
        None empty.
    alphabet : int
        Letters are below it.
    k : int
        Lowered for a pair in which a sequence is shorter.

    Returns
    -------
    float64 [sequences, sequences]
        Symmetric, between 0 and 1, diagonal 0.
    """
    lengths = np.array([len(s) for s in sequences], np.int64)
    usable = np.minimum(np.minimum.outer(lengths, lengths), k)
    distances = np.zeros(usable.shape)
    for size in np.unique(usable):
        here = usable == size
        words = np.minimum.outer(lengths, lengths) - size + 1
        shared = _shared(sequences, alphabet, int(size))
        distances[here] = 1 - shared[here] / words[here]
    np.fill_diagonal(distances, 0)
    return distances
