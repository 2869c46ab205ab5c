"""Slices through every command, on real recordings: no answer about them speaks of requests."""

from __future__ import annotations

import html
import json
import re

import pyarrow.parquet as pq
import pytest

from critpath import flow
from critpath.report.explore.sketches import DOINGS, draw_sketches

SLICES = ("--execution", "slices:wake")


@pytest.fixture(scope="module")
def told(critpath):
    """Return a function that runs a command; it must not speak of requests."""

    def run(*words, code=(0,)):
        done = critpath(*words)
        assert done.returncode in code, done.stderr
        said = done.stdout + done.stderr
        assert "request" not in said.lower(), said
        return done

    return run


@pytest.fixture(scope="module")
def places(guest):
    return guest("normal"), guest("normal-2"), guest("sample-lock")


@pytest.fixture(scope="module")
def compared(told, places, tmp_path_factory):
    """Compare with every way to show it; the gate decides by the mean and by a percentile."""
    home = tmp_path_factory.mktemp("slices")
    shown = {name: home / f"c.{name}" for name in ("json", "html", "junit", "markdown")}
    options = [word for name, place in shown.items() for word in (f"--{name}", place)]
    done = told(
        *("compare", places[0], places[2], *SLICES, "--gate", "p90", "-v", *options), code=(0, 1, 3)
    )
    return done, shown


def test_markers_are_listed_with_how_many_there_are(told, places):
    listed = told("path", places[0], "--execution", "slices:?").stdout.splitlines()
    assert listed[0].split() == (
        ["marker", "slices", "incomplete", "median", "99", "%", "threads", "most", "are", "of"]
    )
    found = {line.split()[0]: int(line.split()[1].replace(",", "")) for line in listed[1:]}
    for marker, count in found.items():
        paths = told("path", places[0], "--execution", f"slices:{marker}", "--format", "json")
        assert len(paths.stdout.splitlines()) == count
    assert found["wake"] > 20
    refused = told("compare", *places[:2], "--execution", "slices:?", code=(2,)).stderr
    assert f"wake ({found['wake']:,})" in refused


def test_a_comparison_is_of_slices(compared):
    done, shown = compared
    document = json.loads(shown["json"].read_text("utf-8"))
    executions = document["sets"]["sample"]["executions"]
    assert executions > 20
    assert f"after: {executions:,} slices from " in done.stdout
    page = re.sub(r"<(script|style).*?</\1>", "", shown["html"].read_text("utf-8"), flags=re.DOTALL)
    for text in (page, shown["junit"].read_text(), shown["markdown"].read_text("utf-8")):
        words = html.unescape(text).lower()
        assert "request" not in words
        assert "slice" in words


def test_a_saved_comparison_is_of_slices(told, compared):
    _, shown = compared
    assert "slices" in told("report", shown["json"]).stdout
    alignments = told("export", shown["json"], "--format", "fasta", code=(0, 2))
    assert alignments.returncode == 0 or "no alignment" in alignments.stderr


@pytest.mark.deep
def test_normal_recordings_are_calibrated(told, places, tmp_path):
    done = told(
        *(
            "calibrate",
            *places[:2],
            *SLICES,
            "--splits",
            20,
            "--json",
            tmp_path / "c.json",
        ),
        code=(0, 3),
    )
    assert "Smallest slowdown" in done.stdout
    assert json.loads((tmp_path / "c.json").read_text())["detectable"]


def test_a_baseline_keeps_slices(told, places, tmp_path):
    file = tmp_path / "normal.json"
    told("baseline", "save", places[0], *SLICES, "-o", file)
    assert "slices:wake" in told("baseline", "show", file).stdout
    done = told("compare", file, places[2], *SLICES, code=(0, 1, 3))
    assert "slices" in done.stdout


@pytest.mark.parametrize("form", ["perfetto", "speedscope", "segments", "vectors"])
def test_slices_are_written_for_other_programs(told, places, tmp_path, form):
    to = tmp_path / f"slices.{form}"
    told("export", places[0], *SLICES, "--format", form, "-o", to)
    assert to.stat().st_size > 100


def test_sketches_of_slices_are_tables(told, places, tmp_path):
    told("export", places[0], *SLICES, "--format", "sketches", "-o", tmp_path / "sk")
    slices = pq.read_table(tmp_path / "sk" / "slices.parquet").to_pydict()
    links = pq.read_table(tmp_path / "sk" / "links.parquet").to_pydict()
    assert sum(one is not None for one in slices["parent"]) == len(links["to_slice"]) > 0
    assert 0 < sum(slices["chosen"]) <= len(slices["slice"])


def test_sketches_are_replaced_only_where_they_are_ours(critpath, places, tmp_path):
    words = ("export", places[0], *SLICES, "--format", "sketches", "-o", tmp_path / "sk")
    assert critpath(*words).returncode == 0
    assert critpath(*words).returncode == 2
    assert critpath(*words, "--force").returncode == 0
    (tmp_path / "sk" / "mine.txt").write_text("x")
    refused = critpath(*words, "--force")
    assert refused.returncode == 2
    assert (tmp_path / "sk" / "mine.txt").read_text() == "x"


def test_a_sketch_has_what_caused_a_slice_and_what_that_caused(places):
    paths = flow.extract([places[0]], specification="slices:wake")
    of = paths.executions
    row = {name: at for at, name in enumerate(of.id)}
    drawn = draw_sketches(paths, range(len(of)), {})
    causes = [row[name] for name in of.causes if name]
    assert len(causes) > 10
    for at, sketch in drawn.items():
        caused = [one for one in range(len(of)) if of.causes[one] == of.id[at]]
        within = [one for one in caused if of.begin[one] < of.end[at]]
        led = {
            (sketch.lanes[lane][1], begin)
            for lane, doing, begin, *_ in sketch.stretches
            if DOINGS[doing] == "led"
        }
        expected = {(int(of.tid[o]), int(of.begin[o] - of.begin[at])) for o in within}
        lanes = {tid for _, tid, _ in sketch.lanes[1:]}
        assert led == {one for one in expected if one[0] in lanes}
        assert all(
            begin + length <= of.end[at] - of.begin[at]
            for _, _, begin, length, *_ in sketch.stretches
        )
        assert all(0 <= one < len(sketch.lanes) for link in sketch.links for one in link[:2])


def test_an_extract_of_slices_is_as_good_as_the_recording(told, places, tmp_path):
    told("export", "--format", "paths", places[0], *SLICES, "-o", tmp_path / "normal.paths")
    first, again = (
        told("explore", place, *more, "--json", "-").stdout
        for place, more in ((places[0], SLICES), (tmp_path / "normal.paths", ()))
    )
    a, b = json.loads(first), json.loads(again)
    assert a["noun"] == b["noun"] == "slice"
    assert a["questions"] == b["questions"]
    assert a["clusters"] == b["clusters"]


def test_spans_are_of_requests_alone(critpath, places, tmp_path):
    words = ("export", places[0], *SLICES, "--format", "otlp-json", "-o", tmp_path / "spans")
    done = critpath(*words)
    assert done.returncode == 2
    assert "its runs are not requests: slices:wake" in done.stderr
    assert not (tmp_path / "spans").exists()
