"""Findings: exact sums, true causes in spite of a noisy alignment, places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.align.multiple import align
from critpath.localize.columns import column_statistics
from critpath.localize.findings import (
    Segments,
    find_differences,
    max_scoring_segment,
    maximal_stretches,
)
from critpath.model import Alignment, State, Symbol
from critpath.model.details import NO_DETAIL

MS = 1_000_000


def brute_stretches(scores, first=0):
    """The definition: the best stretch, then the best left and right of it."""
    best = max(
        (
            (sum(scores[i:j]), -i, j)
            for i in range(len(scores))
            for j in range(i + 1, len(scores) + 1)
        ),
        default=(0, 0, 0),
    )
    if best[0] <= 0:
        return []
    i, j = -best[1], best[2]
    left, right = brute_stretches(scores[:i], first), brute_stretches(scores[j:], first + j)
    return [*left, (first + i, first + j), *right]


@given(st.lists(st.integers(-20, 20), max_size=14), st.integers(0, 2**32))
def test_maximal_stretches_are_those_of_the_definition(values, seed):
    # A little noise keeps the definition unambiguous.
    scores = np.array(values) + np.random.default_rng(seed).uniform(-0.01, 0.01, len(values))
    assert maximal_stretches(scores) == brute_stretches(scores.tolist())


def test_place_is_where_the_difference_is():
    assert max_scoring_segment(np.array([1, -1, 30, 0, 1])) == (2, 3)
    assert max_scoring_segment(np.array([0, 9, 0, 9, -1, 9, 0])) == (1, 6)
    assert max_scoring_segment(np.array([0, -9, 0, -9, 1, 2])) == (1, 4)
    assert max_scoring_segment(np.array([0, 0])) is None
    assert max_scoring_segment(np.array([50, -45])) is None  # cancels: no place stands for +5
    assert max_scoring_segment(np.ones(10, np.int64)) == (0, 10)


def test_a_long_extra_wait(drawing, explanation, symbols):
    findings, unexplained, _ = explanation(
        drawing("""
            r1 d1 r2 -   -  r1
            r1 d2 r2 -   -  r1
            r1 d1 r3 -   -  r2
            r1 d1 r2 t30 r1 r1
        """)
    )
    (finding,) = findings
    assert (finding.kind, finding.symbol) == ("new-state", symbols["t"])
    assert finding.columns == [3, 4]
    assert (finding.begin, finding.end) == (4 * MS, 34 * MS)
    assert (finding.observed, finding.expected, finding.contribution) == (30 * MS, 0, 30 * MS)
    assert finding.probability == 0
    assert finding.share == 1
    assert (finding.rank, finding.position, finding.before) == (1, 3, "RUN")
    assert (finding.tid, finding.comm) == (7, "worker")
    assert unexplained == 0


def test_one_wait_that_is_longer(drawing, explanation, symbols):
    findings, _, _ = explanation(
        drawing("""
            r1 t2 r2 d1
            r1 t1 r2 d1
            r1 t3 r3 d1
            r1 t9 r2 d1
        """)
    )
    assert findings[0].kind == "longer"
    assert findings[0].symbol == symbols["t"]
    assert findings[0].expected == 2 * MS
    assert findings[0].probability == 1


def test_a_known_state_more_often(drawing, explanation, symbols):
    findings, _, _ = explanation(
        drawing("""
            r1 d2 r2 -  -  -
            r1 d2 r2 -  -  -
            r1 d2 r2 d2 r1 d2
        """)
    )
    assert (findings[0].kind, findings[0].symbol) == ("extra", symbols["d"])
    assert findings[0].columns == [3, 6]
    assert findings[0].contribution == 4 * MS


def test_waits_with_running_between_are_one_finding(drawing, explanation, symbols):
    extra = " ".join(["j2 r0.1"] * 9)
    gaps = " ".join(["- -"] * 9)
    findings, _, _ = explanation(
        drawing(f"""
            r1 d3 {gaps} r2 d2
            r2 d2 {gaps} r1 d3
            r1 d3 {gaps} r2 d1
            r1 d2 {extra} r2 d3
        """)
    )
    assert findings[0].symbol == symbols["j"]
    assert findings[0].kind == "new-state"
    assert findings[0].contribution == 18 * MS
    assert findings[0].longest == 2 * MS
    assert findings[0].columns == [2, 19]
    assert (findings[0].comm, findings[0].tid, findings[0].detail) == (
        "jbd2/vda-2",
        99,
        "virtio0-req.0",
    )


def test_what_the_aligner_put_beside_its_counterpart_counts_nothing(drawing, explanation, symbols):
    # The 40 ms timer is normal: only the aligner missed it. The lock is the cause.
    findings, unexplained, net = explanation(
        drawing("""
            r1 t40 -   r2 -  r1
            r1 t41 -   r2 -  r1
            r1 t39 -   r2 -  r1
            r1 -   t40 r2 h8 r1
        """)
    )
    assert [f.symbol for f in findings] == [symbols["h"]]
    assert findings[0].contribution == 8 * MS
    assert unexplained == 0
    assert net == 3 * 8 * MS


def test_noise_of_many_waits_does_not_hide_the_cause(explanation, symbols):
    """32 disk waits of varying length, running between: the extra timer is still first."""
    rng = np.random.default_rng(0)
    letters = list(symbols)

    def path(*, extra):
        codes, durations = [], []
        for wait in range(32):
            codes += [letters.index("r"), letters.index("d")]
            durations += [*rng.lognormal(0, 0.5, 1), *rng.lognormal(0, 0.8, 1)]
            if extra and wait == 20:
                codes += [letters.index("r"), letters.index("t")]
                durations += [0.1, 30]
        return np.array(codes, np.uint8), (np.array(durations) * MS).astype(np.int64)

    for _ in range(5):
        paths = [path(extra=False) for _ in range(12)] + [path(extra=True)]
        aligned = align([p[0] for p in paths], [p[1] for p in paths], len(letters))
        findings, _, _ = explanation(aligned)
        assert findings[0].symbol == symbols["t"]
        assert findings[0].contribution == 30 * MS
        assert findings[0].columns[1] - findings[0].columns[0] == 1


def test_own_running_time_gives_way_to_a_similar_wait(drawing, explanation, symbols):
    text = """
        r9  -
        r14 -
        r19 -
        r{} t8
    """
    findings, _, _ = explanation(drawing(text.format(23)))
    assert [f.symbol for f in findings] == [symbols["t"], symbols["r"]]
    assert [f.contribution for f in findings] == [8 * MS, 9 * MS]
    findings, _, _ = explanation(drawing(text.format(26)))
    assert [f.symbol for f in findings] == [symbols["r"], symbols["t"]]


def test_steady_running_time_gives_way_to_nothing(drawing, explanation, symbols):
    findings, _, _ = explanation(
        drawing("""
            r13.9  -
            r13.9  -
            r14    -
            r14.1  -
            r14.1  -
            r23    t8
        """)
    )
    assert [f.symbol for f in findings] == [symbols["r"], symbols["t"]]


def test_missing_and_shorter(drawing, explanation, symbols):
    findings, unexplained, _ = explanation(
        drawing("""
            r1 d5 r2 h9
            r1 d5 r2 h9
            r1 -  r2 h1
        """)
    )
    assert [(f.kind, f.symbol, f.contribution) for f in findings] == [
        ("shorter", symbols["h"], -8 * MS),
        ("missing", symbols["d"], -5 * MS),
    ]
    missing = findings[1]
    assert missing.begin == missing.end == 1 * MS
    assert missing.before == "RUN"
    assert missing.longest == 0
    assert (missing.tid, missing.comm, missing.detail) == (-1, "", "")
    assert all(f.share is None for f in findings)
    assert unexplained == 0


def test_missing_has_its_name_where_the_normal_segments_are_known(drawing, explanation):
    alignment = drawing("""
        r1 j5 r2
        r1 j5 r2
        r1 -  r2
    """)
    normal = [["", "virtio0-req.0", ""]] * 2
    findings, _, _ = explanation(alignment, normal_details=normal)
    assert (findings[0].detail, findings[0].comm, findings[0].tid) == (
        "virtio0-req.0",
        "jbd2/vda-2",
        -1,
    )


def test_slower_ones_come_first_when_both_matter(drawing, explanation, symbols):
    findings, _, _ = explanation(
        drawing("""
            r1 d30 -
            r1 d30 -
            r1 d1  t40
        """)
    )
    assert [f.symbol for f in findings] == [symbols["t"], symbols["d"]]
    assert [f.rank for f in findings] == [1, 2]


def test_the_detail_that_grew_is_named(drawing, explanation):
    alignment = drawing("""
        r1 c9 r1 -
        r1 c9 r1 -
        r1 c9 r1 c6
    """)
    normal = [["", "stress", "", ""][:3]] * 2
    findings, _, _ = explanation(
        alignment, details=["", "stress", "", "idle"], normal_details=normal
    )
    assert findings[0].detail == "idle"


def test_what_lies_elsewhere_is_a_finding_of_its_own(drawing, explanation, symbols):
    findings, unexplained, _ = explanation(
        drawing("""
            d1  r1 d1 r1 d1 r1 d1 r1 d1 r1 d1 r1 d1 r1 d1
            d1  r1 d1 r1 d1 r1 d1 r1 d1 r1 d1 r1 d1 r1 d1
            d11 r1 d2 r1 d2 r1 d2 r1 d2 r1 d2 r1 d2 r1 d2
        """)
    )
    assert sum(f.contribution for f in findings) + unexplained == 17 * MS
    assert {f.symbol for f in findings} == {symbols["d"]}
    assert findings[0].contribution >= 10 * MS


def test_time_that_only_moved_gives_way_and_is_told(drawing, explanation, symbols):
    """The thread waits 9 ms less for a cpu and its helper runs 10 longer: 1 ms in all."""
    findings, unexplained, _ = explanation(
        drawing("""
            r1 c9 h1  r1 -
            r1 c9 h1  r1 -
            r1 -  h11 r1 t8
        """)
    )
    assert [f.symbol for f in findings[:2]] == [symbols["t"], symbols["h"]]
    assert [f.offset for f in findings[:2]] == [0, 9 * MS]
    assert findings[1].contribution == 10 * MS
    lost = next(f for f in findings if f.contribution < 0)
    assert (lost.symbol, lost.offset) == (symbols["c"], -9 * MS)
    assert unexplained == 0


def test_expected_is_of_the_symbol_alone(drawing, explanation, symbols):
    findings, _, _ = explanation(
        drawing("""
            r1 d5 r1
            r1 t2 r1
            r1 t9 r1
        """)
    )
    assert findings[0].symbol == symbols["t"]
    assert findings[0].expected == 1 * MS  # 0 and 2, not what else stood there


def spread(rng, *, extra):
    """Return many waits of varying length; the extra ones are a small timer each."""
    codes, durations = [], []
    for wait in range(40):
        codes += [0, 3 if wait == 2 else 2]
        durations += [0.1, rng.lognormal(0, 0.3) * (2 if extra == "diffuse" else 1)]
        if extra and wait == 20:
            codes += [0, 1]
            durations += [0.1, 6]
    return np.array(codes, np.uint8), (np.array(durations) * MS).astype(np.int64)


def test_a_small_abnormal_column_does_not_hide_a_large_diffuse_cause(explanation, symbols):
    rng = np.random.default_rng(3)
    paths = [spread(rng, extra="") for _ in range(25)] + [spread(rng, extra="diffuse")]
    findings, _, _ = explanation(align([p[0] for p in paths], [p[1] for p in paths], 6))
    assert [f.symbol for f in findings[:2]] == [symbols["d"], symbols["t"]]
    assert all(f.abnormal for f in findings[:2])
    assert findings[1].p < 0.001


def test_what_normal_executions_do_as_well_gives_way(explanation, symbols):
    """A wait for the cpu at the upper end of what is normal, and a smaller new timer."""
    rng = np.random.default_rng(4)
    paths = [spread(rng, extra="") for _ in range(25)]
    for _, durations in paths:
        durations[5] *= rng.integers(1, 30)  # this wait varies from 1 to 30 ms
    codes, durations = spread(rng, extra="timer")
    durations[5] = 29 * MS
    paths.append((codes, durations))
    findings, _, _ = explanation(align([p[0] for p in paths], [p[1] for p in paths], 6))
    assert [f.symbol for f in findings[:2]] == [symbols["t"], symbols["c"]]
    assert [f.abnormal for f in findings[:2]] == [True, False]
    assert findings[1].contribution > findings[0].contribution


def test_no_more_than_ten_and_no_crumbs():
    """Twenty equal causes: ten are listed, the others are in the rest."""
    count = 20
    symbols = tuple(Symbol(State.WAIT_TIMER, f"helper{'x' * i}") for i in range(count))
    rows = np.vstack([np.full((3, count), -1), np.arange(count)]).astype(np.int32)
    nothing = (np.array([], np.uint8), np.array([], np.int64))
    alignment = Alignment(
        rows,
        (*[nothing[0]] * 3, np.arange(count, dtype=np.uint8)),
        (*[nothing[1]] * 3, np.full(count, MS, np.int64)),
    )
    end = np.arange(1, count + 1) * MS
    segments = Segments(end - MS, end, np.full(count, 5), ("x",) * count, (NO_DETAIL,) * count)
    findings, unexplained = find_differences(
        ("0", 0), alignment, column_statistics(alignment), symbols, segments
    )
    assert len(findings) == 10
    assert unexplained == 10 * MS


@st.composite
def groups(draw):
    rows = draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = rng.integers(0, 15, rows)
    sequences = [rng.integers(0, 6, n).astype(np.uint8) for n in sizes]
    return align(sequences, [rng.integers(0, 10**11, n) for n in sizes], 6)


@given(groups())
def test_findings_and_the_rest_are_the_excess(explanation, alignment):
    n = len(alignment.sequences) - 1
    findings, unexplained, net = explanation(alignment)
    exact = [round(x * n) for x in (*(f.contribution for f in findings), unexplained)]
    assert sum(exact) == net
    assert [f.rank for f in findings] == list(range(1, len(findings) + 1))
    for f in findings:
        assert f.contribution == pytest.approx(f.observed - f.expected, rel=1e-9, abs=1)
        assert f.begin <= f.end
        assert 0 <= f.columns[0] < f.columns[1] <= alignment.rows.shape[1]
        assert f.kind in (
            {"new-state", "extra", "longer"} if f.contribution > 0 else {"missing", "shorter"}
        )
    if net > 0 and len(findings) < 10:
        # Twelve candidates at most (six symbols, here and elsewhere), crumbs left out.
        assert abs(unexplained) * n <= (0.1 + 12 * 0.01) * net


def inject(rng, letters=8):
    """Return a family of jittered paths, and one more with a block 25 times as long."""
    motif = rng.integers(0, letters, 60)
    motif = motif[np.insert(np.diff(motif) != 0, 0, values=True)]

    def member():
        keep = rng.random(len(motif)) > 0.03
        codes = motif[keep].copy()
        changed = rng.random(len(codes)) < 0.04
        codes[changed] = rng.integers(0, letters, changed.sum())
        return codes.astype(np.uint8), rng.lognormal(13, 0.4, len(codes)).astype(np.int64)

    group = [member() for _ in range(20)]
    codes, durations = member()
    block = int(rng.integers(5, len(codes) - 5))
    durations[block] = 25 * np.exp(13)
    places = np.sort(rng.integers(0, len(codes), 4))
    codes = np.insert(codes, places, letters)  # four extra states, 3 ms each
    durations = np.insert(durations, places, 3 * MS)
    return [*group, (codes, durations)], block + int((places <= block).sum())


@pytest.mark.parametrize("seed", range(10))
def test_injected_block_is_first_and_extra_states_are_found(seed):
    paths, block = inject(np.random.default_rng(seed))
    symbols = tuple(Symbol(State(i + 1)) for i in range(9))
    alignment = align([p[0] for p in paths], [p[1] for p in paths], 9)
    codes, durations = paths[-1]
    end = np.cumsum(durations)
    nobody, none = ("",) * len(codes), (NO_DETAIL,) * len(codes)
    segments = Segments(end - durations, end, np.full(len(codes), 1), nobody, none)
    findings, _ = find_differences(
        ("0", 0), alignment, column_statistics(alignment), symbols, segments
    )
    # Four extra states make 12 ms, the block 24 times 0.44 ms = 10.6 ms and its noise.
    first_two = {f.symbol: f for f in findings[:2]}
    blocked = first_two[symbols[codes[block]]]
    column = int(np.flatnonzero(alignment.rows[-1] == block)[0])
    assert blocked.columns[0] <= column < blocked.columns[1]
    assert blocked.begin <= end[block] - durations[block] < end[block] <= blocked.end
    extra = first_two[symbols[8]]
    assert (extra.kind, extra.contribution) == ("new-state", 12 * MS)
