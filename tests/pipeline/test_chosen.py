"""Executions that a budget chose: bystanders stay out, chances are evened, what would suffice."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from critpath.model import CompareSettings, Executions
from critpath.pipeline.comparison import _sufficient
from critpath.pipeline.partial import _even_chances


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


@settings(deadline=None)
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
            assert any(text.startswith(f"{kind}: ") for text in said)
    again, _ = _even_chances(found, kept)
    assert (again == left).all()


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
    assert "changed from 2" in said


def test_rows_keep_their_chance() -> None:
    found = executions([0.1, 0.2, 0.3], ["a", "b", "c"])
    assert found.take(np.array([2, 0])).chance.tolist() == [0.3, 0.1]
    assert found.rows(slice(1, 2)).chance.tolist() == [0.2]
    with pytest.raises(ValueError, match="2 rows, not 3"):
        replace(found, chance=np.ones(2))


def test_too_few_say_which_recording_would_have_sufficed(guest) -> None:
    from critpath.pipeline import extract  # noqa: PLC0415 - the fixture skips first

    paths = extract([guest("normal")], specification="events:app:request_begin,app:request_end")
    about = {
        "executions_whole": len(paths),
        "executions_partial": 10 * len(paths),
        "recorded_ns": 10**9,
        "recording_overhead": json.dumps({"target": 0.03}),
    }
    chosen = replace(paths, environment=(about,))

    def told(normal, sample, wanted: int) -> list[str]:
        judgement = SimpleNamespace(detection=SimpleNamespace(needed=wanted))
        by = (CompareSettings(), judgement)
        assert not [*_sufficient("ok", normal, sample, by)]
        return [*_sufficient("inconclusive", normal, sample, by)]

    [said] = told(paths, chosen, 2 * len(paths))
    assert "2.00 s" in said
    assert "6.0 %" in said or "6 %" in said
    [said] = told(paths, chosen, 20 * len(paths))
    assert "overhead" not in said
    assert not told(chosen, chosen, len(paths))
