"""Every simulated table can be measured, and equal sets alarm no more than they may."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "evaluation" / "simulation"))


@pytest.fixture
def measured(load, monkeypatch, override):
    """Return a function that measures a table."""
    simulated = load("evaluation/simulation/simulated.py")
    # What `decide_only` leaves out it leaves out for good.
    monkeypatch.setattr(simulated.coarse, "false_alarms", lambda *_: 0.0)
    override("effects.replicates", 1)

    def measure(table: str, repeats: int = 1, settings: str = "") -> str:
        return simulated.TABLES[table][0](repeats, settings)

    return measure


def rows(text: str) -> dict[str, list[list[float]]]:
    """Return the numbers of every row of every table by the row's name."""
    found: dict[str, list[list[float]]] = {}
    for line in text.splitlines():
        name, *cells = [part.strip() for part in line.strip("|").split("|")]
        shares = [re.match(r"\d\.\d+", cell) for cell in cells]
        if line.startswith("| ") and any(shares):
            numbers = [float(share[0]) if share else math.nan for share in shares]
            found.setdefault(name, []).append(numbers)
    return found


def most(level: float, repeats: int) -> float:
    """Share that a rate of `level` exceeds once in a thousand times, about."""
    return level + (3.1 * math.sqrt(level * (1 - level) / repeats)) + 1 / repeats


def test_the_factors_of_fishers_test_are_the_specifications(measured):
    assert "0 of 16 cells differ" in measured("equivalent-t2")


@pytest.mark.parametrize("table", ["rules", pytest.param("outliers", marks=pytest.mark.deep)])
def test_the_papers_rules_alarm_as_published(measured, table):
    text = measured(table, 60, "lognormal")
    far, cells = map(int, re.search(r"(\d+) of (\d+) cells differ", text).groups())
    assert cells >= 20
    assert far <= most(0.05, cells) * cells


@pytest.mark.deep
def test_the_gate_keeps_its_level_and_finds_what_is_twice_as_long(measured):
    text = measured("gate", 40, "normal cv .1, 100/10")
    for name in ("normal cv .1, 100/10", "normal cv .1, 100/100"):
        published, default = rows(text)[name]
        assert max(published[:2]) <= most(0.01, 40)
        assert default[0] <= most(0.01, 40)
        assert published[3] >= 0.9
        assert default[2] >= 0.8


@pytest.mark.deep
def test_sessions_fool_the_p_value_and_not_the_floor(measured):
    slight, _ = rows(measured("sessions", 6, "normal cv .1"))["normal cv .1, 100/100"]
    assert slight[0] >= 0.5
    assert slight[2] <= most(0.013, 6)


@pytest.mark.deep
def test_healthy_executions_are_marked_within_the_level(measured):
    found = rows(measured("conformal", 12, "lognormal .3, 100/10"))
    assert len(found) == 8
    for name, (shares,) in found.items():
        assert shares[1] <= most(0.05, 60), name
        assert shares[2] <= most(0.05, 12), name
    assert found["lognormal .3, 100/10: critpath, types known"][0][4] >= 0.8
