"""The page: self-contained, locked down, readable without script, honest about size."""

from __future__ import annotations

import base64
import hashlib
import math
import re

from critpath.report.document.comparison import comparison_document
from critpath.report.html import aligned as html_aligned
from critpath.report.html.aligned import draw_alignment
from critpath.report.html.as_html import render_html


def scripts_off(page):
    """Return what a reader without scripts gets."""
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_policy_allows_exactly_our_script_and_style(factory):
    page = render_html(comparison_document(factory.comparison()))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    for directive, pattern in (
        ("script-src", r'<script type="module">(.*?)</script>'),
        ("style-src", r"<style>(.*?)</style>"),
    ):
        source = re.findall(pattern, page, re.DOTALL)
        assert len(source) == 1
        digest = base64.b64encode(hashlib.sha256(source[0].encode()).digest()).decode()
        assert rules[directive] == f"'sha256-{digest}'"
    # The policy must be read before anything it could forbid.
    assert page.index("Content-Security-Policy") < min(page.index("<style"), page.index("<script"))


def test_nothing_comes_from_a_network_and_no_markup_carries_code_or_style(factory):
    page = render_html(comparison_document(factory.comparison()))
    assert not re.search(r"https?://|//[a-z]+\.", page)
    body = scripts_off(page)
    assert not re.search(r"<[^>]*\s(?:style|on[a-z]+|src|srcset)=", body)
    assert set(re.findall(r'href="(.)', body)) == {"#"}
    for forbidden in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert forbidden not in page


def test_the_essentials_are_there_without_script(factory):
    document = comparison_document(factory.comparison())
    body = scripts_off(render_html(document))
    assert "2 of 6 executions, +30.0 ms each: waiting for a timer in <code>worker</code>" in body
    assert body.count('<svg class="aligned"') == 2
    assert body.count('<svg class="scatter"') == 3
    assert body.count('<svg class="reachability"') == 2
    for state in document.states:
        assert f"<code>{state.state}</code>" in body
    for row in document.executions:
        assert f"<td>{row.set}</td>" in body
    assert "recordings/normal" in body
    assert "lttng-modules 2.13.9" in body
    assert "3 normal executions of the group not aligned." in body


def test_every_target_of_a_link_exists_once(factory):
    page = render_html(comparison_document(factory.comparison(samples=44, anomalous=40, columns=9)))
    anchors = re.findall(r'\sid="([^"]+)"', page)
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(anchors)


def test_pages_without_an_anomaly_say_so(factory):
    ok = render_html(comparison_document(factory.comparison(verdict="ok", anomalous=0)))
    assert "<title>critpath: OK: no anomaly in 6 executions against 20</title>" in ok
    assert "would have shown: +4.10 ms" in ok
    assert 'id="aligned"' not in ok
    nothing = factory.comparison(verdict="inconclusive", anomalous=0, samples=0, normals=0)
    page = render_html(comparison_document(nothing))
    assert "Neither set has an execution." in page
    assert 'class="inconclusive"' in page


def test_a_drawing_has_a_cell_for_every_segment(factory):
    document = comparison_document(factory.comparison(columns=20, normals=3))
    one = document.aligned[0]
    drawing = draw_alignment(document, one)
    cells = sum(path.count("M") for path in re.findall(r'<path d="([^"]+)" fill="#', drawing))
    expected = sum(sum(s >= 0 for s in row.symbols) for row in one.rows)
    expected += sum(s >= 0 for s in one.statistics.normal_symbol)
    here = sum(d >= 1000 for d in one.rows[-1].durations)
    feet = sum(
        symbols[c] >= 0 and document.symbols[symbols[c]].role != ""
        for symbols in [row.symbols for row in one.rows] + [one.statistics.normal_symbol]
        for c in range(one.columns)
    )
    assert cells == expected + here + feet


def test_what_is_too_much_is_left_out_and_said(factory, monkeypatch):
    document = comparison_document(factory.comparison(samples=8, anomalous=6, columns=30))
    monkeypatch.setattr(html_aligned, "MOST_DRAWN", 4)
    page = render_html(document)
    assert page.count('<svg class="aligned"') == 4
    assert "2 drawings left out" in page


def test_long_alignments_leave_out_what_is_ordinary_and_say_so(factory):
    document = comparison_document(factory.comparison(columns=300, anomalous=1))
    one = document.aligned[0]
    page = render_html(document)
    said = re.search(r"leaves out (\d+) columns with nothing out of the ordinary", page)
    assert said
    drawing = draw_alignment(document, one)
    letters = "".join(re.findall(r'font-size="10"[^>]*>([^<]*)<', drawing))
    assert "T" in letters
    usual = one.statistics.abnormal_state
    assert 0 < int(said[1]) < len(usual) - sum(usual)


def test_what_still_does_not_fit_is_drawn_in_bins_and_said(factory):
    document = comparison_document(factory.comparison(columns=1000, normals=4, anomalous=1))
    document.aligned[0].statistics.missing = [True] * document.aligned[0].columns
    page = render_html(document)
    step = math.ceil(document.aligned[0].columns / 480)
    assert step > 1
    assert f"stands for {step} columns" in page
    assert len(draw_alignment(document, document.aligned[0])) < 200_000
