"""``critpath calibrate`` on saved paths: what it prints, writes and returns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from critpath.commands import main
from critpath.store import save_paths

QUICK = ("--splits", "20", "--permutations", "99", "--alpha", "0.05", "--quiet")

pytestmark = pytest.mark.usefixtures("few_draws")


@pytest.fixture
def saved(healthy, tmp_path, monkeypatch):
    """Return a function that saves healthy recordings, a file each."""
    monkeypatch.chdir(tmp_path)

    def save(sizes, factors=None, **options):
        names = []
        for k, (size, factor) in enumerate(zip(sizes, factors or [1.0] * len(sizes), strict=True)):
            names.append(f"n{k}.parquet")
            save_paths(healthy([size], [factor], seed=k, **options), tmp_path / names[-1])
        return names

    return save


def test_healthy_recordings_are_calibrated(saved, capsys):
    names = saved([25, 25, 25])
    assert main(["calibrate", *names, *QUICK, "--json", "c.json"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("CALIBRATED: at 30 runs compare alarms in ")
    assert "floor = 0." in out
    assert "recordings 30: needs 5 runs more in one recording" in out
    assert "shuffled 100: needs 55 runs more" in out
    document = json.loads(Path("c.json").read_text(encoding="utf-8"))
    assert document["format"] == "critpath/calibration/1"
    assert len(document["floor"]["recordings"]) == 3


def test_the_same_input_gives_the_same_bytes(saved, capsys):
    names = saved([12, 12])
    texts = []
    for order in (names, names[::-1]):
        assert main(["calibrate", *order, *QUICK, "--json", "-"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


def test_recordings_that_differ_more_than_the_floor_are_alarming(saved, capsys):
    names = saved([20, 20], [1.0, 1.3], spread=0.02)
    assert main(["calibrate", *names, *QUICK, "--gate", "sessions=off"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("ALARMING: ")
    assert "critpath record --interleave" in out


def test_too_few_executions_are_inconclusive(saved, capsys):
    assert main(["calibrate", *saved([12]), *QUICK]) == 3
    error = capsys.readouterr().err
    assert "needs 8 more" in error
    assert len(error.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["missing"], 4), ([], 2), (["x", "--splits", "3"], 2), (["x", "--alpha", "2"], 2)],
)
def test_wrong_usage_and_inputs_that_are_not_there(arguments, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", *arguments]) == code
    assert len(capsys.readouterr().err.splitlines()) == 2
