"""How often intervals of what a store knows are called unknown, by how many sessions it has.

    python evaluation/simulation/known_level.py [STORES]

Intervals of a session are nearly alike, so they are as strange as each other: of 20 in each of
nine sessions the strangest are all of one.  What is held out is judged at level .01 by intervals.
"""

from __future__ import annotations

import sys
from typing import Final

import numpy as np
from scipy.sparse import csr_array

from critpath.signatures.drift import Corpus, calibrate

TERMS: Final = 40
LABELS: Final = 3
INTERVALS: Final = 20
LEVEL: Final = 0.01
SESSIONS: Final = (9, 18, 48)  # of all labels together


def draw(label: int, session: int, store: int) -> np.ndarray:
    """Draw a session: it differs from the usual as sessions do, its intervals hardly at all."""
    usual = np.random.default_rng(label).lognormal(4, 1.5, TERMS)
    rng = np.random.default_rng((label, session, store))
    day = usual * rng.lognormal(0, 0.15 * rng.lognormal(0, 0.5), TERMS)
    counts = rng.poisson(day * rng.lognormal(0, 0.02, (INTERVALS, TERMS)) * 10)
    found: np.ndarray = np.sqrt(counts / counts.sum(axis=1, keepdims=True))
    return found


def find_unknown(sessions: int, stores: int) -> tuple[float, float]:
    """Return which share is called unknown, and how strange that share is from store to store."""
    shares = []
    for store in range(stores):
        of = np.arange(sessions) % LABELS
        vectors = np.concatenate([draw(int(label), at, store) for at, label in enumerate(of)])
        label, session = (np.repeat(each, INTERVALS) for each in (of, np.arange(sessions)))
        known = calibrate(Corpus.of(csr_array(vectors), label, session, LABELS))
        for asked in range(LABELS):
            distance = known.to_labels(csr_array(draw(asked, 10_000, store)))
            nearest = np.argmin(distance, axis=1)
            strange = known.strange(distance[np.arange(len(nearest)), nearest], nearest)
            shares.append(float((known.p_values(strange) <= LEVEL).mean()))
    return float(np.mean(shares)), float(np.std(shares) / len(shares) ** 0.5)


def main(stores: int = 100) -> None:
    """Print the table."""
    print(f"level {LEVEL:g} by intervals, {INTERVALS} in a session; 1/(sessions + 1) beside")
    for sessions in SESSIONS:
        share, error = find_unknown(sessions, stores)
        print(
            f"{sessions:4} sessions: {share:.3f} +- {error:.3f} unknown; {1 / (1 + sessions):.3f}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
