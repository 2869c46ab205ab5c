"""One thing has one number: in the terminal, Markdown, JUnit, the page and JSON of every golden."""

from __future__ import annotations

import html
import io
import itertools
import re
from collections import defaultdict
from pathlib import Path

import pytest
from rich.console import Console

from critpath.report.ci.as_junit import render_junit
from critpath.report.ci.as_markdown import render_markdown
from critpath.report.document.as_json import load_document
from critpath.report.html.as_html import render_html
from critpath.report.text.answer import answer_lines
from critpath.report.text.as_text import render_comparison
from critpath.text import verdict
from critpath.text.explanation import describe_cause, describe_effect, find_effect
from critpath.text.page import find_deciding_p, noun_of
from critpath.units import format_ns

GOLDEN = Path(__file__).with_name("golden")
NAMES = sorted(file.stem for file in GOLDEN.glob("*.json"))
NS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
TIME = r"[+-]?[\d.]+ (?:ns|µs|ms|s)\b"
FIGURE = re.compile(r"[+-]?\d[\d,.]*\d|[+-]?\d")
# A first line's two times, and how many times the first the second is.
TIMES = re.compile(rf"take ([\d.]+) times as long: ({TIME}) → ({TIME})")
INSTEAD = re.compile(rf"take ({TIME}) instead of ({TIME})")
BAR = re.compile(rf"^(before|after), (?:the )?(\d+) .*?({TIME})$", re.MULTILINE)
LOST = re.compile(
    rf"lost ({TIME}) in all: ({TIME}) by .*?, less ({TIME}) that faster steps won back"
)


def plain(text):
    """Return a text without marks of code, with one sign for less, and with its lines unwrapped."""
    text = re.sub(r"\n {3,10}(?=[a-z(+])", " ", text)
    return text.replace("`", "").replace("\u2212", "-").replace("\u202f", " ").replace("\xa0", " ")


def read_page(page):
    """Return the text of a page, a line for each cell, paragraph and heading."""
    page = re.sub(r"(?s)<(script|style|svg)\b.*?</\1>", " ", page)
    page = re.sub(r"</(td|th|tr|p|li|div|h\d|summary|dt|dd|caption|figcaption)>|<br>", "\n", page)
    lines = html.unescape(re.sub(r"<[^>]+>", "", page)).split("\n")
    return "\n".join(line for line in map(str.strip, lines) if line)


def printed(document):
    stream = io.StringIO()
    render_comparison(document, Console(file=stream, width=2000, color_system=None), verbose=True)
    return stream.getvalue()


@pytest.fixture(scope="module", params=NAMES)
def answer(request):
    """Return a golden document, and its text in everything that it is rendered in."""
    document = load_document((GOLDEN / f"{request.param}.json").read_text(encoding="utf-8"))
    outputs = {
        "terminal": "\n".join(answer_lines(document, 2000)),
        "terminal -v": printed(document),
        "markdown": render_markdown(document),
        "junit": html.unescape(render_junit(document)),
        "page": read_page(render_html(document)),
    }
    return document, {name: plain(text) for name, text in outputs.items()}


def ns_of(shown):
    """Return a time that is shown, and by how much it may be another: half of its last digit."""
    number, unit = shown.split()
    places = len(number.partition(".")[2])
    return float(number) * NS[unit], 0.5 * 10**-places * NS[unit]


def agree(shown, value):
    """Tell whether a figure is a value, to the digits that are shown."""
    number, half = ns_of(shown)
    return abs(number - value) <= half * 1.001


def claims_of(text):
    """Return, by the words of sentences of four words and more, the figures that they have."""
    found = defaultdict(set)
    for sentence in re.split(r"(?<=[.;:])\s+|\n", text):
        words = re.sub(r"^[-\d. ▲▼●⚠]+", "", re.sub(r"\s+", " ", sentence)).rstrip(".;:")
        if len(re.findall(r"[a-z]{2,}", words)) >= 4 and FIGURE.search(words):
            found[FIGURE.sub("#", words)].add(tuple(FIGURE.findall(words)))
    return found


def test_the_same_sentence_has_the_same_figures(answer):
    _, outputs = answer
    claims = {name: claims_of(text) for name, text in outputs.items()}
    compared = 0
    for (one, of_one), (other, of_other) in itertools.combinations(claims.items(), 2):
        for words in of_one.keys() & of_other.keys():
            compared += 1
            less, more = sorted((of_one[words], of_other[words]), key=len)
            assert less <= more, (one, other, words)
    assert compared


def test_every_cause_is_told_with_the_figures_of_the_document(answer):
    document, outputs = answer
    for cause in document.causes:
        sentence, effect = plain(describe_cause(document, cause)), plain(describe_effect(cause))
        assert sentence == plain(cause.sentence)
        told = 0
        for text in outputs.values():
            for found in re.finditer(re.escape(sentence), text):
                after = text[found.end() : found.end() + 200]
                if figure := re.match(rf"\s*[:\n]\s*({TIME})", after):
                    told += 1
                    assert effect.startswith(figure[1]), (sentence, figure[1])
                    assert agree(figure[1], find_effect(cause))
        assert told or find_effect(cause) <= 0 or cause.minor


def test_what_causes_come_to_adds_up(answer):
    document, outputs = answer
    gained = sum(max(find_effect(c), 0) * len(c.positions) for c in document.causes)
    for name, text in outputs.items():
        for lost, by, less in LOST.findall(text):
            unseen = re.search(rf"won back; ({TIME}) is unexplained", text)
            whole = ns_of(by)[0] - ns_of(less)[0] + (ns_of(unseen[1])[0] if unseen else 0)
            assert whole == pytest.approx(ns_of(lost)[0], abs=2 * ns_of(less)[1]), name
            assert agree(by, gained), name
            assert agree(lost, sum(one.excess or 0 for one in document.aligned)), name


def test_the_first_line_is_of_the_bars_and_of_the_table(answer):
    document, outputs = answer
    for name in ("terminal", "markdown"):
        text, kinds = outputs[name], [k for k in document.pictures.kinds if k.change == "slower"]
        bars = {which: (int(count), time) for which, count, time in BAR.findall(text)}
        for ratio, before, after in TIMES.findall(text):
            assert (bars["before"][1], bars["after"][1]) == (before, after), name
            times = ns_of(after)[0] / ns_of(before)[0]
            assert times == pytest.approx(float(ratio), abs=0.06), name
        for after, before in INSTEAD.findall(text)[:1]:
            assert bars["before"][1] == before, name
            assert f" {after}" in text.partition("after, the")[2].partition("\n")[0]
        for kind in kinds[:1]:
            assert kind.executions[0] == bars["before"][0], name
            count = f"{kind.executions[0]:,} → {kind.executions[1]:,}"
            assert re.search(rf"{re.escape(kind.label)}\W+{count}\b", text), name


def test_rows_of_states_are_those_of_the_document(answer):
    document, outputs = answer
    rows = 0
    for state in document.states:
        if state.normal_mean is None or state.sample_mean is None:
            continue
        whole = state.state == "total" and document.detection.whole
        name = re.escape("total of what decides" if whole else state.state)
        figures = [format_ns(state.normal_mean), format_ns(state.sample_mean)]
        figures.append(format_ns(state.effect, sign=True))
        for output in ("terminal -v", "markdown"):
            for row in re.findall(rf"^(?:\| )?{name} [ |]+(.*)$", outputs[output], re.MULTILINE):
                if len(shown := re.findall(TIME, row)) < 3:
                    continue
                rows += 1
                assert shown[:3] == figures, (output, name)
                if state.p_value is not None and "%" not in row:
                    assert verdict.probability(state.p_value) in row, (output, name)
    known = [state for state in document.states if state.sample_mean is not None]
    assert rows >= min(len(known), 2)


def test_there_is_one_p_of_the_answer(answer):
    document, outputs = answer
    deciding = find_deciding_p(document)
    for name, text in outputs.items():
        small = [line for line in text.split("\n") if "Chance alone" in line]
        small += [line for line in text.split("\n") if re.match(r"p = ", line)]
        for line in small:
            for p in re.findall(r"\bp = ([\d.]+\d)", line):
                assert deciding is not None, name
                assert p == verdict.probability(deciding), name
            for many in re.findall(r"about 1 of ([\d,]+) comparisons", line):
                assert int(many.replace(",", "")) == pytest.approx(1 / deciding, rel=0.25), name
        if deciding is None:
            assert not small, name


def test_a_request_is_slower_by_one_figure(answer):
    document, outputs = answer
    noun = noun_of(document, 1).capitalize()
    text = outputs["terminal -v"]
    for one in document.executions:
        if not one.anomalous or one.excess is None:
            continue
        shown = verdict.duration(one.excess, sign=True)
        assert re.search(rf"^{re.escape(one.id)} .*\s{re.escape(shown)}\s", text, re.MULTILINE)
        part = text.partition(f"{noun} {one.id} beside like ones")[2].partition("beside like")[0]
        # Beside some of its like it may be slower by another figure, and that is said.
        aligned = {each.execution: each for each in document.aligned}
        for many, excess in re.findall(rf"^beside these (\d+): ({TIME})", part, re.MULTILINE):
            assert int(many) == int(re.search(r"^normal (\d+) ", part, re.MULTILINE)[1])
            assert agree(excess, aligned[one.id].excess)


@pytest.mark.parametrize(
    ("change", "test"),
    [
        (
            lambda document: setattr(document.causes[0], "sentence", "2 of 9 requests sleep 1 ms"),
            test_every_cause_is_told_with_the_figures_of_the_document,
        ),
        (
            lambda document: setattr(document.states[0], "normal_mean", 1.0),
            test_rows_of_states_are_those_of_the_document,
        ),
        (
            lambda document: setattr(document.aligned[0], "excess", 1e6),
            test_what_causes_come_to_adds_up,
        ),
    ],
)
def test_a_contradiction_would_be_found(change, test):
    document = load_document((GOLDEN / "sample-lock.json").read_text(encoding="utf-8"))
    text = plain(printed(document))
    change(document)
    with pytest.raises(AssertionError):
        test((document, {"terminal -v": text, "markdown": text}))
