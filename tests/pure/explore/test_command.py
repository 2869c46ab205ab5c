"""The command critpath explore, from outside: text, JSON, page; names that attack each of them."""

from __future__ import annotations

import html
import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from critpath.model import State
from critpath.model.joining import join_sets
from critpath.store import save_paths

HOSTILE = (
    "<script>alert(1)</script>",
    "\x1b[31m`</script>'\"><img src=x onerror=alert(1)>",
    "__proto__",
)


@pytest.fixture(scope="module")
def made(load):
    return load("pure/explore/made.py")


@pytest.fixture(scope="module")
def extract(made, tmp_path_factory):
    place = tmp_path_factory.mktemp("explore") / "made.paths"
    save_paths(made.paths(400, labels=("get",)), place)
    return place


@pytest.fixture(scope="module")
def hostile(made, tmp_path_factory):
    place = tmp_path_factory.mktemp("hostile") / "hostile.paths"
    save_paths(made.paths(200, labels=HOSTILE, names=HOSTILE), place)
    return place


def test_the_answer_stands_first(critpath, extract):
    run = critpath("explore", extract)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0] == "● IN COMMON: In all 40 slow get requests, server began on CPU 0"
    assert "selected: 40 of 400 with latency >= p90" in lines
    assert "Known at its begin:" in run.stdout
    assert "A condition is a difference, not a culprit" in lines[-1]


def test_document_and_text_say_the_same(critpath, extract, tmp_path):
    place = tmp_path / "answers.json"
    first = critpath("explore", extract, "--json", place)
    document = json.loads(place.read_text(encoding="utf-8"))
    [question] = document["questions"]
    assert question["answer"] == "found"
    assert question["sentences"][0].replace("`", "") in first.stdout
    assert critpath("report", place).stdout == first.stdout
    best = question["conditions"][0]
    again = critpath("explore", extract, "--json", "-", "--given", best["condition"])
    assert json.loads(again.stdout)["questions"][0]["executions"] == best["having"]["of"]


def test_labels_and_types_are_listed_by_how_long_they_wait_for_a_cpu(critpath, made, tmp_path):
    paths = made.paths(400)
    save_paths(paths, tmp_path / "made.paths")
    told = critpath("explore", "made.paths", "-a", cwd=tmp_path).stdout
    assert "waits for a CPU ± sd" in told
    # Who asks for no more of executions has the answers alone; of slices it is listed.
    assert "± sd" not in critpath("explore", "made.paths", cwd=tmp_path).stdout
    save_paths(replace(paths, specification="slices:wake"), tmp_path / "slices.paths")
    assert "± sd" in critpath("explore", "slices.paths", cwd=tmp_path).stdout
    again = critpath("explore", "made.paths", "--json", "-", cwd=tmp_path)
    listed = json.loads(again.stdout)["clusters"]
    assert sum(one["executions"] for one in listed) == 400
    waiting = [one["cpu"] * one["executions"] for one in listed]
    assert waiting == sorted(waiting, reverse=True)
    chunk = paths.paths.resident()
    behind = chunk.duration[chunk.state == State.WAIT_CPU].sum()
    assert sum(waiting) == pytest.approx(behind)


def test_own_time_is_not_shown_where_nobody_knows_it(critpath, extract, tmp_path):
    assert critpath("explore", extract, "-o", tmp_path / "page.html").returncode == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "true latency" not in page
    assert 'class="own"' not in page
    assert ">true</button>" not in page
    run = critpath("explore", extract, "--what", "true >= 1ms")
    assert run.returncode == 2


def test_nothing_is_written_where_a_condition_is_wrong(critpath, extract, tmp_path):
    run = critpath("explore", extract, "--what", "latncy >= 5ms", "-o", tmp_path / "page.html")
    assert run.returncode == 2
    assert "did you mean latency" in run.stderr
    assert list(tmp_path.iterdir()) == []
    nobody = critpath("explore", extract, "--given", "latency >= 10s")
    assert nobody.returncode == 2
    assert "no request fits" in nobody.stderr


def test_names_of_a_trace_act_nowhere(critpath, hostile, tmp_path):
    page = tmp_path / "page.html"
    run = critpath("explore", hostile, "-a", "-o", page, "--json", tmp_path / "j")
    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout + run.stderr
    text = page.read_text(encoding="utf-8")
    assert text.count("<script") == 2
    assert text.count("</script>") == 2
    assert "<img" not in text
    assert "\x1b" not in text
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda _, attributes: found.extend(
        name for name, _ in attributes if name == "style" or name.startswith("on")
    )
    parser.feed(text)
    assert found == []
    assert (tmp_path / "j").read_text(encoding="ascii")


def test_a_page_is_the_same_each_time_and_needs_no_network(critpath, extract, tmp_path):
    for name in ("one.html", "two.html"):
        assert critpath("explore", extract, "-o", tmp_path / name).returncode == 0
    text = (tmp_path / "one.html").read_bytes()
    assert text == (tmp_path / "two.html").read_bytes()
    assert b"default-src 'none'" in text
    assert not re.search(rb"(?:src|href)=\"?(?:https?:)?//", text)


def test_several_recordings_a_side_are_two_sets(critpath, made, tmp_path):
    for side, seeds in (("normal", (1, 2)), ("sample", (3, 4, 5))):
        paths = [
            replace(made.paths(60, seed=s, labels=("get",)), sources=(f"r{s}",)) for s in seeds
        ]
        save_paths(join_sets(paths), tmp_path / side)
    # As the page of compare --explore offers it.
    run = critpath(
        *("explore", "normal", "sample", "--given", "set == 'sample'", "-o", "page.html"),
        *("--json", "answers.json"),
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    document = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))
    assert "set" in document["fields"]
    [question] = document["questions"]
    assert [step["executions"] for step in question["given"]] == [180]
    # What the page offers is taken again, and gives the same.
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    shown = html.unescape(re.search(r'<pre id="cmd">(.*?)</pre>', page, re.DOTALL)[1])
    words = shlex.split(shown.replace("\\\n", " "))
    assert words[:4] == ["critpath", "explore", "normal", "sample"]
    again = critpath(*words[1:], "--json", "-", cwd=tmp_path)
    assert json.loads(again.stdout)["questions"] == document["questions"], again.stderr
    one = critpath("explore", "sample", "--given", "set == 'sample'", cwd=tmp_path)
    assert one.returncode == 2
    assert "no field set" in one.stderr


def test_the_command_of_a_comparison_s_page_runs(critpath, made, tmp_path):
    for side, seeds in (("normal", (1, 2)), ("sample", (3, 4))):
        paths = [
            replace(made.paths(60, seed=s, labels=("get",)), sources=(f"r{s}",)) for s in seeds
        ]
        save_paths(join_sets(paths), tmp_path / side)
    run = critpath("compare", "normal", "sample", "--explore", "page.html", cwd=tmp_path)
    assert run.returncode in {0, 1, 3}, run.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    shown = html.unescape(re.search(r'<pre id="cmd">(.*?)</pre>', page, re.DOTALL)[1])
    again = critpath(*shlex.split(shown.replace("\\\n", " "))[1:], cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    headline = html.unescape(re.sub("<[^>]*>", "", re.search(r'<h1 id="h">(.*?)</h1>', page)[1]))
    assert headline.replace("\xa0", " ") in again.stdout


def test_a_saved_comparison_is_measured_before_it_is_read(critpath, tmp_path):
    """Five megabytes that would be 360 MB in memory, and what is nested too deep."""
    many = '{"format": "critpath/comparison/1", "executions": [' + "[]," * 1_500_000 + "[]]}"
    deep = "[" * 100_000 + "]" * 100_000
    for text, said in ((many, "bytes of memory, more than"), (deep, "recursion depth")):
        (tmp_path / "saved.json").write_text(text, encoding="utf-8")
        run = critpath("explore", "saved.json", "-o", "page.html", cwd=tmp_path)
        assert run.returncode == 4
        assert said in run.stderr
        assert len(run.stderr.splitlines()) == 2
        assert not (tmp_path / "page.html").exists()
