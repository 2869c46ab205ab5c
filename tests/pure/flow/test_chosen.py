"""Executions that a budget chose: bystanders stay out, chances are evened, what would suffice."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.flow import _sufficient
from critpath.graph.partial import _even_chances, choose_by_begin
from critpath.model import CompareSettings, Executions
from critpath.model.gaps import make_gaps
from critpath.schema.environment import read_environment
from critpath.text.notes import word, word_all


def executions(chance: list[float], label: list[str], took: list[int] | None = None) -> Executions:
    count = len(chance)
    begin = np.arange(count, dtype=np.int64) * 1000
    return Executions(
        id=tuple(map(str, range(count))),
        begin=begin,
        end=begin + np.array(took or [10] * count, np.int64),
        tid=np.ones(count, np.int64),
        host=np.zeros(count, np.int64),
        comm=("",) * count,
        label=tuple(label),
        chance=np.array(chance, np.float64),
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.01, 0.05, 0.09, 0.5, 1.0, float("nan")]), st.sampled_from("ab")
        ),
        max_size=60,
    )
)
def test_what_is_kept_had_been_kept_and_similar_chances_stay(rows: list[tuple[float, str]]) -> None:
    found = executions([c for c, _ in rows], [k for _, k in rows])
    kept = np.isfinite(found.chance)
    left, said = _even_chances(found, kept)
    assert not (left & ~kept).any()
    for kind in "ab":
        mine = kept & (np.array(found.label, object) == kind)
        chances = found.chance[mine]
        if not len(chances) or chances.max() <= 2 * chances.min():
            assert left[mine].all()
        else:
            assert left[mine & (found.chance <= 2 * chances.min())].all()
            assert any(text.startswith(f"{kind}: ") for text in word_all(said))
    again, _ = _even_chances(found, kept)
    assert (again == left).all()


def windows(window: float, closed: float) -> tuple[Executions, np.ndarray, np.ndarray]:
    """Return executions of 5 and 40 ms in 600 s, which are whole, and which begun in time."""
    chance = np.random.default_rng(7)
    begin = np.sort(chance.uniform(0, 600, 40_000))
    rare = chance.random(len(begin)) < 0.1
    took = np.where(rare, 0.04, 0.005) * chance.lognormal(-0.18, 0.6, len(begin))
    opens = np.cumsum(chance.uniform(0.5, 1.5, int(600 / closed)) * closed + window) - window
    edges = np.concatenate([[0.0], opens + window])
    rows = [
        [int(1e9 * low), int(1e9 * low), int(1e9 * high), int(1e9 * high), 0, 0, 0]
        for low, high in zip(edges[:-1], opens, strict=True)
    ]
    found = replace(
        executions([1.0] * len(begin), ["b" if one else "a" for one in rare]),
        begin=(1e9 * begin).astype(np.int64),
        end=(1e9 * (begin + took)).astype(np.int64),
        chance=None,
    )
    gaps = make_gaps(rows)
    last = int(max(rows[-1][3], found.end.max()))
    whole = ~gaps.overlap(found.host, found.begin, found.end)
    return found, whole, choose_by_begin(found, gaps, last)


def test_of_windows_those_count_that_began_early_enough() -> None:
    """Whole ones of 40 ms are too short on average in windows of 0.2 s; these are not."""
    found, whole, begun = windows(0.2, 1.0)
    took = found.end - found.begin
    for kind in "ab":
        mine = np.array(found.label, object) == kind
        chosen = took[mine & begun]
        error = took[mine].std() / len(chosen) ** 0.5 / took[mine].mean()
        assert abs(chosen.mean() / took[mine].mean() - 1) < 3 * error
        assert (mine & begun & ~whole).sum() <= 0.02 * len(chosen)
    rare = np.array(found.label, object) == "b"
    assert took[rare & whole].mean() < 0.93 * took[rare].mean()


def test_where_windows_are_too_short_whole_ones_count() -> None:
    found, whole, begun = windows(0.02, 0.2)
    rare = np.array(found.label, object) == "b"
    assert (begun == whole)[rare].all()


def test_a_mean_over_changed_chances_is_that_of_all() -> None:
    """Slow while the chance is 1, fast while it is 0.02: as recorded, half of them are slow."""
    rng = np.random.default_rng(5)
    took = np.concatenate([np.full(1000, 50), np.full(50_000, 10)])
    chance = np.concatenate([np.ones(1000), np.full(50_000, 0.02)])
    recorded = rng.random(len(took)) < chance
    found = executions(
        chance[recorded].tolist(), ["a"] * int(recorded.sum()), took[recorded].tolist()
    )
    left, [said] = _even_chances(found, np.ones(len(found), np.bool_))
    mean = float((found.end - found.begin)[left].mean())
    assert mean == pytest.approx(took.mean(), rel=0.05)
    assert float((found.end - found.begin).mean()) > 2 * took.mean()
    assert "changed from 2" in word(said)


def test_rows_keep_their_chance() -> None:
    found = executions([0.1, 0.2, 0.3], ["a", "b", "c"])
    assert found.take(np.array([2, 0])).chance.tolist() == [0.3, 0.1]
    assert found.take(slice(1, 2)).chance.tolist() == [0.2]
    with pytest.raises(ValueError, match="2 rows, not 3"):
        replace(found, chance=np.ones(2))


def test_too_few_say_which_recording_would_have_sufficed(paths_of) -> None:
    paths = paths_of("normal")
    about = {
        "executions_whole": len(paths),
        "executions_partial": 10 * len(paths),
        "recorded_ns": 10**9,
        "recording_overhead": json.dumps({"target": 0.03}),
    }
    chosen = replace(paths, environment=(read_environment(about),))

    def told(normal, sample, wanted: int) -> list[str]:
        judgement = SimpleNamespace(detection=SimpleNamespace(needed=wanted))
        by = (CompareSettings(), judgement)
        assert not [*_sufficient("ok", normal, sample, by)]
        return word_all(_sufficient("inconclusive", normal, sample, by))

    [said] = told(paths, chosen, 2 * len(paths))
    assert "2.00 s" in said
    assert "6.0 %" in said or "6 %" in said
    [said] = told(paths, chosen, 20 * len(paths))
    assert "overhead" not in said
    assert not told(chosen, chosen, len(paths))
