"""Terminal text: the first line, what it leaves out, width, plainness."""

from __future__ import annotations

import io
import re
from functools import partial

import pytest
from msgspec import structs
from rich.cells import cell_len
from rich.console import Console

from critpath.documents import PathSubject
from critpath.model import Loss
from critpath.report.ci.as_junit import render_junit
from critpath.report.ci.as_markdown import render_markdown
from critpath.report.document.comparison import comparison_document
from critpath.report.document.path import path_document, summarize_paths
from critpath.report.exports.alignments import write_alignments
from critpath.report.html.as_html import render_html
from critpath.report.text.as_text import render_comparison
from critpath.report.text.path import render_path, render_summary
from critpath.text import sentences, verdict

full = partial(render_comparison, verbose=True)


def printed(render, document, *, width=100, encoding="utf-8", **options):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    render(document, Console(file=stream, width=width, **options))
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({}, "▲ SLOWER  2 of 6 mixed requests take"),
        ({"verdict": "ok", "anomalous": 0}, "✓ OK  No slowdown found in mixed"),
        (
            {"verdict": "inconclusive", "anomalous": 0, "samples": 0},
            "? INCONCLUSIVE  Not enough requests to",
        ),
    ],
)
def test_the_first_line_is_the_answer(factory, changes, first):
    document = comparison_document(factory.comparison(**changes))
    lines = printed(render_comparison, document, width=40).splitlines()
    assert lines[0] == first
    # Below all tables it is told once more.
    last = printed(full, document, width=40).splitlines()[-1]
    assert last.startswith(first.split()[1])


def test_a_pipe_gets_plain_text_and_a_terminal_colours(factory, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    document = comparison_document(factory.comparison())
    plain = printed(full, document)
    assert "\x1b" not in plain
    coloured = printed(full, document, force_terminal=True, color_system="truecolor")
    assert "\x1b[" in coloured
    # The tables' sentences end at a word on a terminal, in a pipe where they end.
    shown = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert shown.split() == plain.split()
    assert max(map(cell_len, shown.splitlines())) <= 100
    monkeypatch.setenv("NO_COLOR", "1")
    without = printed(full, document, force_terminal=True, color_system="truecolor")
    assert not re.search(r"\x1b\[[0-9;]*[34]8;", without)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_tables_and_alignments_fit_the_width(factory, width):
    document = comparison_document(factory.comparison(columns=400))
    text = printed(full, document, width=width)
    rows = re.findall(r"^(?:normal \d|anomaly|finding|lasts ).*$", text, re.MULTILINE)
    assert len(rows) >= 4
    assert max(cell_len(row) for row in rows) <= width
    rules = re.findall(r"^[─ ]+$", text, re.MULTILINE)
    assert rules
    assert max(map(len, rules)) <= width


def test_the_anomaly_stands_below_the_consensus(factory):
    document = comparison_document(factory.comparison(columns=14, normals=9))
    lines = printed(full, document).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("anomaly"))
    above, below, lasts, ranks = lines[at - 1], lines[at], lines[at + 1], lines[at + 2]
    timer = below.index("T", 12)
    assert above[timer] == "-"
    assert ranks[timer] == "1"
    # 30 ms, and in no normal execution.
    assert lasts[timer] == "\N{FULL BLOCK}"
    assert lines[at - 2][timer] == " "


def test_columns_that_neither_row_has_are_not_drawn(factory):
    document = comparison_document(factory.comparison(columns=40, normals=9))
    text = printed(full, document)
    pairs = list(
        zip(re.findall(r"^normal \d+ +(\S+)$", text, re.MULTILINE), _rows(text), strict=True)
    )
    assert pairs
    for above, below in pairs:
        assert ("-", "-") not in set(zip(above, below, strict=True))
    assert "only a few of before have, left out" in text


def _rows(text):
    return re.findall(r"^anomaly +(\S+)$", text, re.MULTILINE)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_legend_has_what_is_drawn_and_breaks_no_entry(factory, width):
    document = comparison_document(factory.comparison(columns=30))
    text = printed(full, document, width=width)
    block = text[text.index("\nlasts ") : text.index("\nlasts: ")]
    lines = block.splitlines()
    legend = [line for line in lines if re.match(r"[A-Za-z-] (?!\d)", line)]
    assert legend
    drawn = set("".join(_rows(block) + re.findall(r"^normal \d+ +(\S+)$", block, re.MULTILINE)))
    entries = ", ".join(legend).replace(",,", ",").split(", ")
    assert {entry[0] for entry in entries} == drawn - {"…"}
    assert all(len(line) <= width or line.count(",") <= 1 for line in legend)


@pytest.mark.parametrize("width", [40, 80, 110])
def test_a_time_is_never_broken_over_lines(factory, width):
    document = comparison_document(factory.comparison())
    text = printed(full, document, width=width)
    for finding in document.findings:
        assert verdict.place_of(finding) in text


@pytest.mark.parametrize("width", [40, 60])
def test_figures_are_whole_on_a_narrow_terminal(factory, width):
    document = comparison_document(factory.comparison())
    text = printed(full, document, width=width)
    assert "no room for: 95 % interval" in text
    table = text[text.index("States, mean") : text.index("no room")]
    assert "WAIT_TIMER" in table
    assert re.search(r"^total .*\+\d[\d.]* ms", table, re.MULTILINE)
    assert max(map(len, table.splitlines())) <= width


def test_left_out_columns_and_rows_are_counted(factory):
    document = comparison_document(factory.comparison(columns=600, samples=20, anomalous=14))
    text = printed(full, document)
    assert "4 slow requests left out" in text
    assert "12 alignments left out" in text
    for one, said in zip(
        sorted(document.aligned, key=lambda a: -a.excess)[:2],
        re.findall(r"… (\d+) columns? with nothing out of the ordinary", text),
        strict=True,
    ):
        assert 0 < int(said) < one.columns
    assert "3 more of before not aligned" in text


def test_ok_says_what_would_have_shown_and_loss_is_loud(factory):
    losses = (Loss(0, 9, 0, 0, 5010, 41, "discarded"),)
    comparison = factory.comparison(verdict="ok", anomalous=0, losses=losses)
    text = printed(full, comparison_document(comparison))
    assert "5,010 events and 41 packets lost" in text
    assert "would have shown: +4.10 ms (25 %)" in text


def test_an_ascii_stream_gets_ascii(factory):
    names = factory.Names(comm="café→", role="mañana")
    document = comparison_document(factory.comparison(columns=90, names=names))
    text = printed(full, document, encoding="ascii")
    assert "caf\\xe9" in text


def test_an_ascii_stream_gets_a_path_in_ascii(factory):
    """Its tables have times of microseconds."""
    paths = factory.comparison().sample.paths
    document = path_document(paths, 0, tid=1201, comm="worker", losses=())
    assert "µs" in printed(render_path, document)
    assert re.search(r"\d us\b", printed(render_path, document, encoding="ascii"))


def test_a_path_lists_the_longest_segments_and_counts_the_others(factory):
    comparison = factory.comparison()
    document = path_document(comparison.sample.paths, 0, tid=1201, comm="worker", losses=())
    whole = printed(render_path, document)
    rows = re.findall(
        r"^ *(?:\+[\d.]+ \w+|0 ns) .*(?:worker 1201|kworker/0:1 33)", whole, re.MULTILINE
    )
    assert len(rows) == len(document.segments)
    assert "left out" not in whole
    short = printed(render_path, document, width=100)
    assert short == whole
    raw = io.StringIO()
    render_path(document, Console(file=raw, width=100), most=5)
    few = raw.getvalue()
    assert f"{len(document.segments) - 5} shorter segments left out" in few
    skipped = [int(n) for n in re.findall(r"\((\d+) shorter segment", few)]
    assert sum(skipped) == len(document.segments) - 5
    assert re.search(r"^waiting for a timer +30.0 ms", few, re.MULTILINE)


def test_a_summary_says_where_each_label_spends_its_time(factory):
    comparison = factory.comparison()
    paths, vectors = comparison.sample, comparison.sample_vectors
    found = summarize_paths(paths, vectors)
    assert {of.label for of in found} == set(paths.executions.label)
    assert sum(of.executions for of in found) == len(paths)
    for of in found:
        mine = [i for i, text in enumerate(paths.executions.label) if text == of.label]
        assert sum(p.time for p in of.places) == pytest.approx(vectors.total[mine].mean())
        assert sum(p.share for p in of.places) == pytest.approx(1)
        assert sum(p.count for p in of.places) == pytest.approx(
            vectors.counts[mine].sum(axis=1).mean()
        )
    text = printed(render_summary, found)
    for of in found:
        assert f"{of.executions} runs, median " in text
    assert re.search(r"^waiting for a timer +\(its own\) +[\d.]+ ms +\d+ %", text, re.MULTILINE)


def test_an_empty_path_is_said(factory):
    comparison = factory.comparison(samples=1, anomalous=0, columns=1)
    document = path_document(comparison.sample.paths, 0, tid=5, comm="x", losses=())
    document.segments, document.totals = [], {}
    assert "0 segments" in printed(render_path, document)


def test_minor_causes_are_one_line_and_what_is_left_over_is_said(factory):
    document = comparison_document(factory.comparison())
    first = document.causes[0]
    small = structs.replace(first, minor=True, contribution=200_000.0, positions=[1])
    document.causes = [first, small, structs.replace(small, contribution=-50_000.0, positions=[4])]
    text = printed(full, document)
    assert "\n1. " in text
    assert "\n2. " not in text
    assert "\nand 2 more differences in 2 requests, +150 µs in all\n" in text
    won_back = r"\S+ ms by these causes, less \S+ ms that faster steps won back\."
    assert re.search(rf"\nThe 2 slow requests lost \S+ ms in all: {won_back}\n", text)
    document.causes = []
    assert "explain 0 % of it; 100 % is unexplained." in printed(full, document)


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.4, "each, 40 % of the slowdown\n"),
        (1.02, "each, all of the slowdown\n"),
        (1.4, "each, more than the slowdown\n"),
        (-0.1, "each\n"),
        (None, "each\n"),
    ],
)
def test_the_share_is_of_the_slowdown(factory, share, said):
    document = comparison_document(factory.comparison())
    first = document.causes[0]
    first.share = share
    assert re.search(
        rf"^1\. .*: \+30.0 ms {re.escape(said)}", printed(full, document), re.MULTILINE
    )


def test_a_state_that_decides_nothing_is_flagged_with_its_level(factory):
    document = comparison_document(factory.comparison())
    for state in document.states:
        state.level = "warn" if state.state == "WAIT_TIMER" else "error"
    text = printed(full, document)
    assert re.search(r"^WAIT_TIMER .* warn *$", text, re.MULTILINE)
    assert re.search(r"^total .* yes *$", text, re.MULTILINE)


def test_the_two_sets_are_told_in_a_line_each(factory):
    document = comparison_document(factory.comparison())
    text = printed(full, document)
    assert "\nbefore: 20 requests from recordings/normal, on guest, kernel 6.1.0\n" in text
    document.sets.sample.sources = list("abcde")
    document.sets.sample.recorded = ["", "2026-11-21T04:35:30Z"]
    text = printed(full, document)
    assert "\nafter: 6 requests from a, b, c and 2 more, on guest" in text
    assert "kernel 6.1.0, recorded 2026-11-21T04:35:30Z\n" in text


def test_a_path_says_which_execution_it_is(factory):
    paths = factory.comparison().sample.paths
    named = {"execution": "e7", "label": "cpu"}
    document = path_document(paths, 0, tid=5, comm="x", losses=(), **named)
    assert printed(render_path, document).startswith("x 5, e7 cpu: ")


def test_a_thread_whose_id_is_not_known_has_only_its_name(factory):
    document = comparison_document(factory.comparison())
    for rows in (document.executions, document.findings):
        for row in rows:
            row.tid = -1
    for one in document.aligned:
        for segment in one.segments:
            segment.tid = -1
    outputs = [printed(full, document, width=width) for width in (60, 200)]
    outputs += [render_markdown(document), render_junit(document), render_html(document)]
    outputs += [write_alignments(document, document.aligned[:1], "stockholm")]
    for text in outputs:
        assert "worker -1" not in text
        assert "kworker/0:1 -1" not in text
        assert not re.search(r"tid -1|\[-1\]|TID.*-1$", text, re.MULTILINE)
    assert sentences.thread_of(PathSubject(comm="", tid=-1)) == "unknown thread"
