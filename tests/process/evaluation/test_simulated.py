"""Every simulated table can be measured, and equal sets alarm no more than they may."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(__file__).resolve().parents[3] / "evaluation/simulation/simulated.py"


def measured(*arguments: str) -> str:
    """Run the command; numpy alone decides how much it computes at once."""
    done = subprocess.run(
        [sys.executable, "-W", "error", COMMAND, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return done.stdout


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


def test_the_factors_of_fishers_test_are_the_specifications():
    assert "0 of 16 cells differ" in measured("--table", "equivalent-t2")


@pytest.mark.parametrize("table", ["rules", pytest.param("outliers", marks=pytest.mark.long)])
def test_the_papers_rules_alarm_as_published(table):
    text = measured("--table", table, "--repeats", "60", "--settings", "lognormal")
    far, cells = map(int, re.search(r"(\d+) of (\d+) cells differ", text).groups())
    assert cells >= 20
    assert far <= most(0.05, cells) * cells


def test_the_gate_keeps_its_level_and_finds_what_is_twice_as_long():
    text = measured("--table", "gate", "--repeats", "40", "--settings", "normal cv .1, 100/10")
    for name in ("normal cv .1, 100/10", "normal cv .1, 100/100"):
        published, default = rows(text)[name]
        assert max(published[:2]) <= most(0.01, 40)
        assert default[0] <= most(0.01, 40)
        assert published[3] >= 0.9
        assert default[2] >= 0.8


def test_sessions_fool_the_p_value_and_not_the_floor():
    text = measured("--table", "sessions", "--repeats", "6", "--settings", "normal cv .1")
    slight, _ = rows(text)["normal cv .1, 100/100"]
    assert slight[0] >= 0.5
    assert slight[2] <= most(0.013, 6)


def test_healthy_executions_are_marked_within_the_level():
    text = measured("--table", "conformal", "--repeats", "12", "--settings", "lognormal .3, 100/10")
    found = rows(text)
    assert len(found) == 8
    for name, (shares,) in found.items():
        assert shares[1] <= most(0.05, 60), name
        assert shares[2] <= most(0.05, 12), name
    assert found["lognormal .3, 100/10: critpath, types known"][0][4] >= 0.8
