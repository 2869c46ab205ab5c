"""The demo as a newcomer meets it: the installed package's own recordings, nothing replaced."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

from critpath.commands import demo as demo_live

pytestmark = pytest.mark.xdist_group("kernel")


def critpath(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "critpath", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    place = tmp_path_factory.mktemp("demo")
    return place, critpath("demo", "--shipped", cwd=place)


def test_the_demo_begins_with_its_verdict(demo):
    _, done = demo
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("▲ SLOWER  cpu requests take 2.4 times as long")
    # Why is the next sentence.
    why = " ".join(lines[1:3]).split()
    assert " ".join(why).startswith("4 of 5 cpu requests wait 6.7 ms for thread holder")
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


def test_the_next_command_that_the_demo_names_works(demo):
    place, done = demo
    (following,) = [x for x in done.stderr.splitlines() if x.startswith("next: ")]
    words = shlex.split(following.removeprefix("next: "))
    again = critpath(*words[1:], cwd=place)
    assert again.returncode == 1
    assert again.stdout.splitlines()[0] == done.stdout.splitlines()[0]


@pytest.mark.skipif(bool(demo_live.why_not()), reason=demo_live.why_not() or "can record")
def test_where_it_may_record_the_demo_records_and_says_so(tmp_path):
    done = critpath("demo", "--fault", "delay", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("▲ SLOWER")
    assert "recorded on this machine" in done.stderr
    for name in ("normal", "sample-delay"):
        manifest = json.loads((tmp_path / "critpath-demo" / name / "critpath.json").read_text())
        assert manifest["state"] == "complete"
    again = critpath("demo", "--fault", "delay", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
