"""What a difference is made of: parts that add up exactly, and loops."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.align.multiple import align
from critpath.documents import FindingPart
from critpath.localize.columns import column_statistics
from critpath.localize.findings import Matrix, attribute, find_candidates
from critpath.model import Alignment, Loop, State, Symbol

MS = 1_000_000
OCCURRENCES = {"new-state", "extra", "missing"}


def parts_of(finding):
    return {part.kind: part.contribution / MS for part in finding.parts}


def test_extra_and_longer_are_told_apart(drawing, explanation):
    # In one of two normal executions 4 ms, here 9: (1 - 1/2) 4 extra, 9 - 4 longer.
    findings, _, _ = explanation(
        drawing("""
            r1 t4 r1
            r1 -  r1
            r1 t9 r1
        """)
    )
    assert parts_of(findings[0]) == {"extra": 2, "longer": 5}
    assert findings[0].kind == "longer"
    assert findings[0].contribution == 7 * MS


def test_a_state_never_seen_is_wholly_new(drawing, explanation):
    findings, _, _ = explanation(drawing("r1 -\nr1 -\nr1 t30"))
    assert findings[0].parts == [FindingPart("new-state", 30 * MS)]


def test_missing_and_shorter(drawing, explanation):
    findings, _, _ = explanation(drawing("r1 d5 h9\nr1 d3 h9\nr1 - h1"))
    assert [parts_of(f) for f in findings] == [{"shorter": -8}, {"missing": -4}]


def test_what_the_aligner_tore_apart_is_longer_not_extra(drawing, explanation):
    findings, _, _ = explanation(
        drawing("""
            r1 t40 -   r2
            r1 t41 -   r2
            r1 t39 -   r2
            r1 -   t90 r2
        """)
    )
    assert findings[0].kind == "longer"
    assert parts_of(findings[0]) == {"longer": 50}


def looping(counts, each=1.0, *, letters="rd", last=None):
    """Return an alignment of a loop that every row runs so often, and a state around it.

    `each` are milliseconds of the loop's second state, in the last row `last`.
    """
    codes = {"r": 0, "d": 2}
    most = max(counts)
    columns = 2 + len(letters) * most
    rows = np.full((len(counts), columns), -1, np.int32)
    sequences, durations = [], []
    for i, count in enumerate(counts):
        inner = len(letters) * count
        rows[i, : 1 + inner] = np.arange(1 + inner)
        rows[i, -1] = 1 + inner
        sequences.append(np.array([0, *(codes[x] for x in letters * count), 0], np.uint8))
        wait = last if last is not None and i == len(counts) - 1 else each
        one = [0.1 if x == "r" else wait for x in letters]
        durations.append((np.array([1, *one * count, 1]) * MS).astype(np.int64))
    loop = Loop(1, columns - 1, len(letters), np.array(counts, np.int32))
    return Alignment(rows, tuple(sequences), tuple(durations), loops=(loop,))


def test_more_iterations_are_a_matter_of_their_number(explanation, symbols):
    findings, unexplained, _ = explanation(looping([10, 12, 14, 58]))
    first = findings[0]
    assert (first.kind, first.symbol) == ("loop-count", symbols["d"])
    assert parts_of(first) == {"loop-count": 46}
    assert (first.iterations, first.normal_iterations) == (58, [12, 2])
    assert first.columns == [2, 2 + 115]
    assert sum(f.contribution for f in findings) + unexplained == pytest.approx(46 * 1.1 * MS)


def test_longer_iterations_are_longer(explanation):
    findings, _, _ = explanation(looping([10, 12, 14, 20], last=3))
    # 12 iterations of 1 ms, now 20 of 3: 8 more of them 8 ms, 20 times 2 ms longer.
    assert parts_of(findings[0]) == {"longer": 40, "loop-count": 8}
    assert findings[0].kind == "longer"
    assert findings[0].iterations == 20


def test_fewer_iterations(explanation):
    findings, _, _ = explanation(looping([10, 12, 14, 2]))
    assert findings[0].kind == "loop-count"
    assert parts_of(findings[0]) == {"loop-count": -10}
    assert findings[0].iterations == 2
    findings, _, _ = explanation(looping([10, 12, 14, 0]))
    assert parts_of(findings[0]) == {"loop-count": -12}


def test_an_ordinary_number_of_iterations_is_no_matter(explanation):
    findings, _, _ = explanation(looping([10, 12, 14, 13], last=3))
    assert "loop-count" not in parts_of(findings[0])
    assert {findings[0].iterations, *findings[0].normal_iterations} == {None}


def test_a_loop_that_nobody_ran_before_is_new_or_extra(explanation):
    findings, _, _ = explanation(looping([0, 0, 0, 5]))
    assert findings[0].kind == "new-state"


def test_one_normal_execution_is_enough_for_a_loop(explanation):
    findings, _, _ = explanation(looping([10, 20]))
    assert findings[0].normal_iterations == [10, 0]
    assert findings[0].kind == "loop-count"


@st.composite
def groups(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = draw(st.integers(2, 7))
    sizes = rng.integers(0, 15, rows)
    sequences = [rng.integers(0, 4, n).astype(np.uint8) for n in sizes]
    aligned = align(sequences, [rng.integers(0, 10**12, n) for n in sizes], 4)
    columns = aligned.rows.shape[1]
    loops, at = [], 0
    while columns - at >= 2 and draw(st.booleans()):
        first = int(rng.integers(at, columns - 1))
        at = int(rng.integers(first + 1, columns + 1))
        turns = rng.integers(0, draw(st.sampled_from([2, 20])), rows).astype(np.int32)
        loops.append(Loop(first, at, 1, turns))
    return Alignment(aligned.rows, aligned.sequences, aligned.durations, loops=tuple(loops))


@given(groups())
def test_parts_are_the_difference_exactly(alignment):
    symbols = tuple(Symbol(State(i + 1)) for i in range(4))
    matrix = Matrix.of(alignment)
    statistics = column_statistics(alignment)
    candidates, total = find_candidates(matrix, statistics, symbols)
    assert total == int(statistics.contribution.sum()) == sum(c.net for c in candidates)
    for candidate in candidates:
        found = attribute(matrix, candidate.letter, candidate.columns)
        kinds = [kind for kind, _ in found.parts]
        assert sum(ns for _, ns in found.parts) == Fraction(candidate.net, matrix.n)
        assert len(set(kinds)) == len(kinds)
        assert len(OCCURRENCES & set(kinds)) <= 1
        sizes = [abs(ns) for _, ns in found.parts]
        assert sizes == sorted(sizes, reverse=True)
        more = found.kind in {"new-state", "extra", "longer"}
        assert more == (candidate.net > 0) or found.kind == "loop-count"
        assert 0 <= abs(candidate.offset) <= abs(candidate.net)
        assert candidate.offset * candidate.net >= 0
