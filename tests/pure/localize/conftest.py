"""Alignments drawn as text: the tests' input."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.localize.columns import column_statistics
from critpath.localize.findings import Segments, find_differences
from critpath.model import Alignment, State, Symbol
from critpath.model.details import read_detail

ALPHABET = {
    "r": Symbol(State.RUN),
    "t": Symbol(State.WAIT_TIMER),
    "d": Symbol(State.WAIT_DISK),
    "c": Symbol(State.WAIT_CPU),
    "j": Symbol(State.WAIT_DISK, "jbd#/vda-#"),
    "h": Symbol(State.RUN, "holder"),
}
LETTERS = list(ALPHABET)
SYMBOLS = tuple(ALPHABET.values())
MS = 1_000_000


def parse(row):
    """Return positions, codes and durations of ``r3 t30 -- d1.5``."""
    positions, codes, durations = [], [], []
    for word in row.split():
        if word[0] == "-":
            positions.append(-1)
            continue
        positions.append(len(codes))
        codes.append(LETTERS.index(word[0]))
        durations.append(round(float(word[1:]) * MS))
    return positions, codes, durations


def draw(text):
    """Return the alignment that lines of words show; the last is the anomalous one."""
    rows = [parse(line) for line in text.strip().splitlines()]
    return Alignment(
        np.array([r[0] for r in rows], np.int32).reshape(len(rows), -1),
        tuple(np.array(r[1], np.uint8) for r in rows),
        tuple(np.array(r[2], np.int64) for r in rows),
    )


def _disks(codes):
    return ["virtio0-req.0" if SYMBOLS[c].state == State.WAIT_DISK else "" for c in codes]


def segments_of(durations, codes, begin=0, details=None):
    """Lay segments end to end; those of another thread have its name and tid 99."""
    end = begin + np.cumsum(durations, dtype=np.int64)
    roles = [SYMBOLS[c].role for c in codes]
    return Segments(
        end - durations,
        end,
        np.array([99 if role else 7 for role in roles], np.int64),
        tuple(role.replace("#", "2") or "worker" for role in roles),
        tuple(
            read_detail(SYMBOLS[c].state, text)
            for c, text in zip(codes, details or _disks(codes), strict=True)
        ),
    )


def explain(alignment, execution=3, details=None, symbols=SYMBOLS, normal_details=None):
    """Run the stage; return findings, unexplained and the exact excess (n-fold, int)."""
    statistics = column_statistics(alignment)
    *normal, mine = [
        segments_of(d, s, details=None)
        for d, s in zip(alignment.durations, alignment.sequences, strict=True)
    ]
    if details is not None:
        mine = segments_of(alignment.durations[-1], alignment.sequences[-1], details=details)
    known = ()
    if normal_details is not None:
        known = [
            segments_of(d, s, details=n)
            for d, s, n in zip(
                alignment.durations, alignment.sequences, normal_details, strict=False
            )
        ]
    findings, unexplained = find_differences(
        (str(execution), execution), alignment, statistics, symbols, mine, known
    )
    n = len(normal)
    totals = [int(d.sum()) for d in alignment.durations]
    return findings, unexplained, n * totals[-1] - sum(totals[:-1])


@pytest.fixture(scope="session")
def drawing():
    return draw


@pytest.fixture(scope="session")
def explanation():
    return explain


@pytest.fixture(scope="session")
def symbols():
    return ALPHABET
