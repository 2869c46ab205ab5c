"""A test is in quarantine for two weeks at most, and by its name."""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
DAYS = 14


def wrong(text: str, today: dt.date) -> list[str]:
    found = []
    for name, known in tomllib.loads(text).items():
        since = dt.date.fromisoformat(known["since"])
        if not known["reason"]:
            found.append(f"{name} has no reason")
        if (today - since).days >= DAYS:
            found.append(f"{name} is in quarantine since {since}: mend it, or delete it")
        if not (TESTS.parent / name.partition("::")[0]).is_file():
            found.append(f"{name} is not there")
    return found


def test_none_stays_in_quarantine():
    text = (TESTS / "quarantine.toml").read_text(encoding="utf-8")
    assert wrong(text, dt.datetime.now(dt.UTC).date()) == []


@pytest.mark.parametrize(
    ("day", "found"),
    [("2026-11-14", []), ("2026-11-15", ["is in quarantine since 2026-11-01: mend it"])],
)
def test_two_weeks_are_the_most(day, found):
    here = "tests/process/test_quarantine.py::test_none_stays_in_quarantine"
    text = f'["{here}"]\nreason = "a race"\nsince = "2026-11-01"\n'
    said = wrong(text, dt.date.fromisoformat(day))
    assert len(said) == len(found)
    assert all(part in line for part, line in zip(found, said, strict=True))
