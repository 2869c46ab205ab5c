"""From kept answers to the commits since which something is slower, in text, JSON and HTML."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from pure.ab.test_judgement import judged, log_of, plan_of

from critpath.commands.trend import _load
from critpath.report.document import to_json


@pytest.fixture(scope="module")
def answers():
    """Answers of a program that takes A's time, and of one that takes 8 % more."""
    return {
        name: to_json(judged(plan_of(), log_of(40, factor, noise=0.01)))
        for name, factor in (("same", 1.0), ("slow", 1.08))
    }


@pytest.fixture
def trend(critpath, tmp_path, answers):
    """Return a function that keeps answers under names, and what critpath trend says of them."""

    def run(named, *options):
        place = tmp_path / "kept"
        place.mkdir()
        rng = np.random.default_rng(1)
        for name, which in named:
            document = json.loads(answers[which])
            for part in (document["time"], document["running"]):
                part["ratio"] *= 1 + rng.normal(0, 0.003)
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(json.dumps(document))
        return critpath("trend", place, *options)

    return run


def named(count, slow_from, base="v1."):
    return [
        (f"202611{n:02}T101500Z-{base}.c{n:02}.json", "slow" if n >= slow_from else "same")
        for n in range(10, 10 + count)
    ]


def test_a_commit_since_which_all_are_slower_is_named(trend, tmp_path):
    page = tmp_path / "page.html"
    done = trend(named(14, 18), "--html", page)
    assert done.returncode == 1, done.stderr
    first, *rest = done.stdout.splitlines()
    assert re.match(
        r"SLOWER SINCE c18: \d\.\d % more time than the commits before; by chance", first
    )
    assert rest[0] == "  the newest, c23: slower, beside v1"
    assert re.search(r"^c18 +slower, beside v1 +\+\d\.\d % \*$", done.stdout, re.MULTILINE)
    text = page.read_text()
    assert "http" not in text.replace("http-equiv", "")
    assert text.count('class="dot fail') == 6
    assert text.count('class="change worse"') == 1


def test_the_document_is_what_is_said(trend):
    done = trend(named(14, 18), "--format", "json")
    document = json.loads(done.stdout)
    assert document["verdict"] == "slower"
    assert document["exit"] == done.returncode == 1
    [series] = document["series"]
    [change] = series["changes"]
    assert (change["commit"], change["at"]) == ("c18", 8)
    assert change["after"] / change["before"] == pytest.approx(1.08, rel=0.02)
    assert document["commits"][0]["when"] == "20261110T101500Z"


def test_nothing_changes(trend):
    done = trend(named(14, 99))
    assert done.returncode == 0
    assert done.stdout.startswith("NO CHANGE: nothing became slower or faster over 14 commits")


def test_few_commits_show_nothing(trend):
    done = trend(named(6, 99))
    assert done.returncode == 3
    assert done.stdout.startswith("TOO FEW: 6 commits; from 10 on a change can be shown")


def test_commits_beside_the_one_before_add_up(trend):
    names = [f"2026111{n}T101500Z-c{n}..c{n + 1}.json" for n in range(4)]
    done = trend(
        list(zip(names, ("same", "slow", "same", "same"), strict=True)), "--format", "json"
    )
    assert done.returncode == 0  # the newest is not slower
    document = json.loads(done.stdout)
    assert document["verdict"] == "steps"
    levels = document["series"][0]["levels"]
    assert levels[1] / levels[0] == pytest.approx(1.08, rel=0.02)
    assert levels[3] / levels[1] == pytest.approx(1.0, rel=0.02)


def test_directories_of_ab_count_and_what_is_no_answer_is_said(trend, critpath, tmp_path):
    done = trend([("a1/ab.json", "same"), ("b2.json", "slow"), ("c3.json", "slow")])
    assert [line.split()[0] for line in done.stdout.splitlines()[-3:]] == ["a1", "b2", "c3"]
    (tmp_path / "kept" / "d4.json").write_text("{")
    done = critpath("trend", tmp_path / "kept")
    assert "left out: " in done.stderr
    assert "d4" in done.stderr


def test_what_is_no_directory_of_answers_is_refused(critpath, tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        done = critpath("trend", place)
        assert done.returncode == 4
        assert len(done.stderr.splitlines()) == 2


def test_names_are_taken_as_they_are_where_they_say_nothing_else(tmp_path, answers):
    for name in ("v1.4", "20261130T042158Z-abc", "x..y"):
        (tmp_path / f"{name}.json").write_text(answers["same"])
    names = [tuple(name) for name, _ in _load(tmp_path, quiet=True)]
    assert names == [("20261130T042158Z", "", "abc"), ("", "", "v1.4"), ("", "x", "y")]
