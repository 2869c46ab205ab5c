"""JSON: round trip, layout, and that nothing malformed passes the reader."""

from __future__ import annotations

import copy
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from critpath.documents import PathLoss, PathSubject
from critpath.errors import UnreadableError
from critpath.model import Loss
from critpath.model.paths import PackedPaths, Piece, StoredPaths
from critpath.model.stacks import read_stack
from critpath.report.document import path as path_module
from critpath.report.document._segments import join_segments
from critpath.report.document.as_json import load_document, to_json, to_plain
from critpath.report.document.comparison import comparison_document
from critpath.report.document.path import path_document, write_paths
from critpath.report.html.as_html import render_html
from critpath.report.text.as_text import render_comparison


def first_line(sample, paths, tid, comm, execution="", label="", losses=()):
    """Return the first path's line of `write_paths`, and the document that it is to be of."""
    given = {"tid": np.full(len(sample), tid, np.int64)}
    texts = {"comm": comm, "id": execution, "label": label}
    given |= {name: (text,) * len(sample) for name, text in texts.items()}
    of = replace(sample.executions, **given)
    pieces = write_paths(replace(sample, paths=paths, executions=of, losses=losses))
    written = b"".join(pieces).decode("ascii")
    named = {"tid": tid, "comm": comm, "execution": execution, "label": label}
    return written[: written.index("\n") + 1], path_document(paths, 0, **named, losses=losses)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"verdict": "ok", "anomalous": 0},
        {"verdict": "inconclusive", "anomalous": 0, "samples": 0},
        {"verdict": "inconclusive", "anomalous": 0, "samples": 0, "normals": 0},
    ],
)
def test_round_trip(factory, changes):
    document = comparison_document(factory.comparison(**changes))
    text = to_json(document)
    again = load_document(text)
    assert again == document
    assert to_json(again) == text
    assert render_html(again) == render_html(document)


def test_what_is_read_is_bounded_by_how_large_the_file_is(factory, monkeypatch):
    """A comparison of very many executions is read, a file that is nothing but lists is not."""
    document = comparison_document(factory.comparison(normals=2000, samples=2000))
    monkeypatch.setattr("critpath.report.document.as_json.ROOM", 1000)
    assert load_document(to_json(document)) == document
    with pytest.raises(UnreadableError, match="of memory, more than"):
        load_document("[" + "[]," * 100_000 + "1]")


def test_layout_is_one_line_per_item_and_sorted(factory):
    document = comparison_document(factory.comparison())
    lines = to_json(document).splitlines()
    assert sum('"set": "normal", "source"' in line for line in lines if '"weak"' in line) == 20
    keys = [line.split('"')[1] for line in lines if line.startswith(' "')]
    assert keys == sorted(document.__struct_fields__)


def test_path_as_the_design_says(factory):
    comparison = factory.comparison()
    paths = comparison.sample.paths
    loss = Loss(0, 10**18, 0, 0, 5, 2, "discarded")
    far = Loss(10**17, 10**18, 0, 0, 7, 7, "discarded")
    named = {"tid": 1201, "comm": "worker", "execution": "e7", "label": "cpu"}
    line, document = first_line(comparison.sample, paths, **named, losses=(loss, far))
    # The fast way writes the same text.
    assert line == json.dumps(to_plain(document)) + "\n"
    assert set(to_plain(document)) == {
        "format",
        "subject",
        "execution",
        "label",
        "begin",
        "end",
        "segments",
        "totals",
        "unexplained",
        "uncertainty_ns",
        "confidence",
        "loss",
    }
    assert document.format == "critpath/path/1"
    assert document.subject == PathSubject(tid=1201, comm="worker")
    assert (document.execution, document.label) == ("e7", "cpu")
    assert document.loss == PathLoss(events=5, packets=2)
    segments = document.segments
    named = {"begin", "end", "tid", "comm", "state", "detail", "beneath"}
    named |= {"uncertainty_ns", "confidence", "others", "stack", "waker_stack"}
    assert set(segments[0].__struct_fields__) == named
    assert document.begin == segments[0].begin
    assert document.end == segments[-1].end
    assert sum(document.totals.values()) == document.end - document.begin
    assert document.totals["WAIT_TIMER"] == 30_000_000
    assert document.unexplained == 0
    assert load_document(line) == document


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("at_once", "together", "kept"), [(1, 1, 0), (2, 20, 3), (2048, 65_536, 20_000)]
)
def test_paths_of_a_set_are_a_line_each(factory, monkeypatch, at_once, together, kept, stored):
    monkeypatch.setattr(path_module, "_AT_ONCE", at_once)
    monkeypatch.setattr(path_module, "_TOGETHER", together)
    monkeypatch.setattr(path_module, "_KEPT", kept)
    sample = factory.comparison().sample
    if stored:
        parts = [sample.paths.take(rows) for rows in np.array_split(np.arange(len(sample)), 2)]
        pieces = [Piece(len(part), PackedPaths(part).unpack) for part in parts]
        sample = replace(sample, paths=StoredPaths(pieces))
    of = sample.executions
    lines = b"".join(write_paths(sample)).decode("ascii").splitlines(keepends=True)
    assert len(lines) == len(sample) > 1
    for index, line in enumerate(lines):
        document = path_document(
            *(sample.paths, index),
            tid=int(of.tid[index]),
            comm=of.comm[index],
            execution=of.id[index],
            label=of.label[index],
            losses=sample.losses,
        )
        assert line == json.dumps(to_plain(document)) + "\n"


TIMES = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 9, 10, 99, 100, 10**18, -(2**63)])


@given(st.lists(st.tuples(TIMES, TIMES)), st.booleans())
def test_times_of_segments_are_written_as_they_are(times, tiled):
    begin, end = (np.array([pair[i] for pair in times], np.int64) for i in (0, 1))
    if tiled:
        begin[1:] = end[:-1]
    kind = np.arange(len(begin)) % 2
    bounds = np.array([0, 7, 7 + 9])
    written = join_segments(begin, end, kind, b'"a": 0}"a": "1"}', bounds).decode("ascii")
    expected = zip(begin.tolist(), end.tolist(), strict=True)
    named = [
        {"begin": first, "end": last, "a": "1" if at % 2 else 0}
        for at, (first, last) in enumerate(expected)
    ]
    assert f"[{written}]" == json.dumps(named)


def test_path_with_stacks(factory):
    sample = factory.comparison(anomalous=0, samples=1).sample
    paths = sample.paths
    stacks = tuple(map(read_stack, ("f\ta.c\t7\tapp\ng\t\t0\tapp\t+", "w\t\t0\tapp")))
    codes = np.full(len(paths.begin), -1, np.int32)
    stack, waker = codes.copy(), codes.copy()
    stack[1], waker[1] = 0, 1
    columns = {"stack": stack, "waker_stack": waker, "stacks": stacks}
    changed = type(paths)(**{**vars(paths), **columns})
    line, document = first_line(sample, changed, 1, "")
    assert line == json.dumps(to_plain(document)) + "\n"
    found = json.loads(line)["segments"]
    inner = {"function": "f", "file": "a.c", "line": 7, "module": "app"}
    outer = {"function": "g", "file": "", "line": 0, "module": "app"}
    assert found[1]["stack"] == [inner, outer]
    assert [frame["function"] for frame in found[1]["waker_stack"]] == ["w"]
    assert "stack" not in found[0]
    assert load_document(line) == document


def test_path_counts_what_it_cannot_explain(factory):
    comparison = factory.comparison(anomalous=0, samples=1, columns=7)
    paths = comparison.sample.paths
    codes = {"WAIT_UNEXPLAINED": 19, "UNKNOWN": 0}
    state = paths.state.copy()
    state[:2] = list(codes.values())
    changed = type(paths)(**{**vars(paths), "state": state})
    document = path_document(changed, 0, tid=1, comm="", losses=())
    assert document.unexplained == int(paths.duration[:2].sum())
    assert document.unexplained == sum(document.totals[name] for name in codes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"format": NaN}', "not JSON"),
        ('{"format": 1e999}', "not JSON"),
        ('{"format": ' + "9" * 30 + "}", "not JSON"),
        ("[]", "`format`"),
        ("{}", "`format`"),
        ('{"format": "critpath/comparison/2"}', "this critpath reads"),
        ('{"format": "perf/1"}', "not critpath's"),
        ('{"format": "critpath/comparison/1"}', "missing required field `version`"),
    ],
)
def test_foreign_text_is_refused_in_two_lines(text, says):
    with pytest.raises(UnreadableError) as caught:
        load_document(text)
    assert says in caught.value.what
    assert "\n" not in caught.value.what
    assert caught.value.do
    assert caught.value.exit_code == 4


def test_half_a_character_in_a_saved_answer_is_shown_as_one(factory):
    document = to_plain(comparison_document(factory.comparison(columns=4, normals=3, samples=2)))
    document["warnings"], document["sets"]["sample"]["commands"] = ["a \ud800 b"], ["\udcff"]
    found = load_document(json.dumps(document))
    assert found.warnings == ["a \ufffd b"]
    assert found.sets["sample"].commands == ["\ufffd"]
    assert render_html(found).encode()


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return where every key and item of a document stands, settings left free."""
    found = [place] if place else []
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in {"settings", "tree"}:
                found += _places(item, (*place, key))
    elif isinstance(value, list) and value:
        found += _places(value[0], (*place, 0))
    return found


@given(st.data())
def test_what_passes_the_reader_renders(factory, data):
    """Replace any one value by any other: refused, or rendered, never a traceback."""
    comparison = factory.comparison(columns=8, normals=3, samples=2, anomalous=1)
    document = to_plain(comparison_document(comparison))
    broken = copy.deepcopy(document)
    *way, last = data.draw(st.sampled_from(_places(document)))
    inner = broken
    for step in way:
        inner = inner[step]
    odd = [None, True, 0, -1, 10**18, 0.5, "", "x", "total", "normal", [], {}, [1], [0, 10**9]]
    inner[last] = data.draw(st.sampled_from(odd))
    try:
        read = load_document(json.dumps(broken))
    except UnreadableError:
        return
    assert render_html(read)
    render_comparison(read, Console(file=io.StringIO(), width=80), verbose=True)


def test_the_fast_way_escapes_what_a_terminal_acts_on(factory):
    sample = factory.comparison().sample
    line, _ = first_line(sample, sample.paths, 1, "a\x7f\x1b[31m")
    assert "\x7f" not in line
    assert "\x1b" not in line
    assert json.loads(line)["subject"]["comm"] == "a\x7f\x1b[31m"
