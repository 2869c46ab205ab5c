"""Whatever any text of a document says, the page has the same elements and no more."""

from __future__ import annotations

import re
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct, structs

from critpath.documents import CauseFacts, LossPlace
from critpath.documents.pictures import FlameEntry
from critpath.model import State
from critpath.report.document.as_json import load_document, to_json
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html

HOSTILE = (
    "</ScRiPt><img src=x onerror=alert(1)>",
    "</title></style><svg/onload=alert(1)>",
    "<!--<script>",
    "--><b>",
    "]]><!DOCTYPE x>",
    "\" onmouseover='alert(1)' x=\"",
    "' style='color:red",
    "javascript:alert(1)",
    "&lt;b&gt;&#60;&quot;",
    "\x1b[2J\x1b]0;owned\x07",
    "\u202egnp.exe\u2066",
    "a\u2028b\u2029c",
    "two\nlines\rhere",
    "%0A::error::x",
    "\ud800",
    "\x00\x7f\x9b",
    "*",
    "`",
    "`<b>`</code><i>`",
    ">x",
    "",
    "w" * 300,
)
# Keys whose values are ours, and mean something to the renderer.
OURS = {
    *("format", "verdict", "set", "kind", "letter", "level", "change", "group", "doing", "doings"),
    *("counted", "certainty"),
}


class Tags(HTMLParser):
    """The elements and attribute names of a page, in order."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.found, self.links = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, *(name for name, _ in attrs)))
        self.links += [value for name, value in attrs if name in {"href", "src"}]

    def handle_endtag(self, tag):
        self.found.append((f"/{tag}",))


def said_everywhere(value, name, key=""):
    """Put a name in the place of every text that is not ours."""
    if isinstance(value, Struct):
        changed = said_everywhere(structs.asdict(value), name)
        return type(value)(**changed)
    if isinstance(value, dict):
        return {k: v if k in OURS else said_everywhere(v, name, k) for k, v in value.items()}
    if isinstance(value, list):
        return [said_everywhere(item, name, key) for item in value]
    if not isinstance(value, str) or not value:
        return value
    return value if key == "state" and value in {*State.__members__, "total"} else name


@pytest.fixture(scope="module")
def document(factory):
    """Return a document in which every list has something and every set its circumstances."""
    found = comparison_document(
        factory.comparison(normals=5, samples=5, anomalous=1, columns=7, settings={"a": "b"})
    )
    for which in ("normal", "sample"):
        one = found.sets[which]
        one.machines, one.processors, one.cpus, one.profiles = ["m"], ["p"], ["2"], ["full"]
        one.recorded, one.warnings, one.notes = ["2026-11-21T04:35:27Z"], ["w"], ["n"]
        place = {"begin": 0, "end": 9, "host": 0, "cpu": 1, "events": 1, "packets": 1}
        one.loss.places = [LossPlace(**place, reason="full")]
        found.clusters[which].notes = ["n"]
    found.sets.sample.kernels = ["6.2"]
    for state in found.states:
        state.level = "warn"
    found.clusters.notes = found.outliers.notes = ["n"]
    facts = CauseFacts(
        **dict.fromkeys(("comm", "peer", "device", "call"), "w"),
        **dict.fromkeys(("count_before", "count_after", "time_before", "time_after"), 1e6),
        state="RUN",
        role="w",
        tids=[1],
        kind="longer",
        counted="trips",
        share=0.5,
        executions=1,
        of=5,
        certainty="observed",
    )
    for cause in found.causes:
        cause.facts = facts
    kinds = found.pictures.kinds
    kinds.append(structs.replace(kinds[0], label="w"))
    found.pictures.flame = [
        FlameEntry(-1, "all", "", -1, 1e6, 2e6, "more", 0.01, [5, 5]),
        FlameEntry(0, "label", "w", -1, 1e6, 2e6, "more", 0.01, [5, 5]),
        FlameEntry(1, "thread", "w", 1, 1e6, 2e6),
        FlameEntry(2, "state", "RUN", 1, 1e6, 2e6),
    ]
    return found


def usual(page):
    """Leave out which labels have room, what backticks make code, and a short name's title."""
    page = re.sub(r'<span class="label[^>]*>[^<]*</span>', "", page)
    page = re.sub(r"(?<=>)<b>[^<]*</b>(?=</span>)", "", page)
    return re.sub(r"</?code>", "", page)


def hostile(test):
    for name in HOSTILE:
        test = example(name=name)(test)
    return given(name=st.text(max_size=30))(test)


@pytest.mark.deep
@hostile
def test_no_text_adds_an_element(document, name):
    plain = render_html(said_everywhere(document, "w" if name else ""))
    page = render_html(said_everywhere(document, name))
    assert Tags(usual(page)).found == Tags(usual(plain)).found
    assert set(Tags(page).found) <= {*Tags(plain).found, *Tags(render_html(document)).found}
    assert {link[:1] for link in Tags(page).links} <= {"#"}
    unsafe = {c for c in page if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert unsafe <= {"\n"}


# Where a page shows what a trace calls something: {} is one of its texts.
SINKS = {
    "title of the window": r"<title>[^<]*{}",
    "names of the recordings": r'<span class="sets"><code>{}',
    "headline": r"<h1>.*?<code>{}</code>.*?</h1>",
    "reason": r'<p class="why">.*?{}.*?</p>',
    "block of a bar": r'<div class="bar".*?<b>{}',
    "what a block is": r'<div class="bar".*?title="{} ',
    "what a bar is": r'<div class="bar" role="img" aria-label="[^"]*{}',
    "bracket of a bar": r'<span class="label[^>]*>[^<]*{}',
    "legend": r'<div class="legend"><span>[^/]*/i>{}',
    "caption": r"<figcaption>[^/]*<code>{}",
    "durations": r'<div class="dist[^>]*aria-label="[^"]*{}',
    "kinds": r'<table class="kinds">.*?<code>{}',
    "sentence of a cause": r"<h3>.*?{}.*?</h3>",
    "request of lanes": r'<p class="lead">[^/]*/b> request (?:<span [^>]*>)?{}',
    "lane": r'<div class="names" aria-hidden="true"><span[^>]*>{}',
    "step of a lane": r'<div class="track".*?title="{} ',
    "what lanes are": r'<div class="track" role="img" aria-label="[^"]*{}',
    "aligned request": r"<summary>Step by step: request {}",
    "aligned step": r'<table class="cols">.*?title="{} ',
    "fact": r"<caption>What the sentence.*?<code>{}</code>",
    "box": r'<button type="button" class="f[^>]*title="[^"]*{}',
    "label of a box": r'<button type="button" class="f.*?<span>{}',
    "box of the table": r"<caption>What the boxes.*?<th [^>]*>[^<]*{}",
    "slowest request": r'<tbody id="rows"><tr><th scope="row"><code>{}',
    "slowest request's kind": r'<tbody id="rows">.*?<td><code>{}</code>',
    "slowest request's thread": r'<tbody id="rows">.*?<td class="opt"><code>{}',
    "recordings": r'<table class="sets">.*?>{}<',
    "state": r"<caption>Time on the critical path.*?<code>[^<]*{}",
    "difference": r"<caption>Step by step: what differs.*?</code> {}<",
    "setting": r"<caption>Settings in force.*?<code>&quot;{}&quot;</code>",
    "rows for the search": r'"rows":\[\["{}",',
    "summary to copy": r'"markdown":"[^"]*{}',
}


@pytest.mark.parametrize("sink", SINKS)
def test_the_names_above_reach_every_sink(document, sink):
    page = render_html(said_everywhere(document, "Zq7"))
    assert re.search(SINKS[sink].format("Zq7"), page, re.DOTALL)


def test_a_hostile_document_survives_its_file(document):
    for name in HOSTILE:
        if name:  # without roles symbols have other letters
            whole = re.sub("[\ud800-\udfff]", "\ufffd", name)  # as they are read
            text = to_json(said_everywhere(document, name))
            assert render_html(load_document(text)) == render_html(said_everywhere(document, whole))
