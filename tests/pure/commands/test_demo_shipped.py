"""The demo as a newcomer meets it: the installed package's own recordings, nothing replaced."""

from __future__ import annotations

import json
import shlex

import pytest


@pytest.fixture(scope="module")
def demo(critpath, tmp_path_factory):
    place = tmp_path_factory.mktemp("demo")
    return place, critpath("demo", "--shipped", cwd=place)


def test_the_demo_begins_with_its_verdict(demo):
    _, done = demo
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("▲ SLOWER  cpu requests ")
    # Why is the next sentence.
    assert "thread holder" in " ".join(" ".join(lines[1:3]).split())
    assert len(done.stdout.splitlines()) < 50
    assert "Traceback" not in done.stderr


def test_the_demo_leaves_a_report_and_a_comparison(demo):
    place, _ = demo
    page = (place / "critpath-demo" / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "holder" in page
    document = json.loads((place / "critpath-demo" / "comparison.json").read_text())
    assert document["verdict"] == "anomaly"
    assert document["aligned"]  # the short text is short, not the files


def test_the_next_command_that_the_demo_names_works(critpath, demo):
    place, done = demo
    (following,) = [x for x in done.stderr.splitlines() if x.startswith("next: ")]
    words = shlex.split(following.removeprefix("next: "))
    again = critpath(*words[1:], cwd=place)
    assert again.returncode == 1
    assert again.stdout.splitlines()[0] == done.stdout.splitlines()[0]
