"""The page is valid, whatever is in it: nesting, anchors, tables, nothing inline."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from msgspec import structs

from critpath.documents import ClusterEntry, PairEntry
from critpath.report.document.as_json import load_document, to_json
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html

VOID = {"input", "meta"}
# What may stand directly in what, where that is not free.
ONLY_IN = {
    "caption": {"table"},
    "thead": {"table"},
    "tbody": {"table"},
    "tfoot": {"table"},
    "tr": {"thead", "tbody", "tfoot"},
    "td": {"tr"},
    "th": {"tr"},
    "li": {"ol", "ul"},
    "dt": {"dl", "div"},
    "dd": {"dl", "div"},
    "figcaption": {"figure"},
    "summary": {"details"},
}
NOT_IN_A_PARAGRAPH = {"p", "div", "table", "ul", "ol", "dl", "figure", "section", "details", "h2"}


class Page(HTMLParser):
    """Everything that a validator would look at."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.targets, self.headings = [], [], [], []
        self.tables, self.complaints, self.regions = [], [], 0
        self.feed(page)
        self.close()
        self.complaints += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.look_at_attributes(tag, attrs)
        self.look_at_place(tag)
        if tag in {"h1", "h2", "h3"}:
            self.headings.append(int(tag[1]))
        if tag == "table":
            self.tables.append({"caption": "", "captions": 0, "columns": 0, "width": 0})
        if tag == "caption" and self.tables:
            self.tables[-1]["captions"] += 1
        if tag == "th" and attributes.get("scope") not in {"col", "row"}:
            self.complaints.append("<th> without a scope")
        if tag in {"th", "td"} and self.tables:
            self.tables[-1]["width"] += 1
            self.tables[-1]["columns"] += "thead" in self.open
        self.regions += attributes.get("role") == "region" and bool(attributes.get("aria-label"))
        labelled = attributes.get("role") == "img" and attributes.get("aria-label")
        if tag == "svg" and not labelled and attributes.get("aria-hidden") != "true":
            self.complaints.append("a drawing that is neither labelled nor hidden")
        if tag not in VOID:
            self.open.append(tag)

    def look_at_attributes(self, tag, attrs):
        if len(dict(attrs)) != len(attrs):
            self.complaints.append(f"<{tag}> has an attribute twice")
        for name, value in attrs:
            if name == "style" or name.startswith("on") or name in {"src", "srcset", "action"}:
                self.complaints.append(f"<{tag} {name}=...>")
            if name == "id":
                self.ids.append(value)
            if name == "href":
                self.targets.append(value)
            if name in {"aria-labelledby", "aria-describedby"}:
                self.targets += [f"#{one}" for one in value.split()]

    def look_at_place(self, tag):
        parent = self.open[-1] if self.open else ""
        if tag in ONLY_IN and parent not in ONLY_IN[tag]:
            self.complaints.append(f"<{tag}> in <{parent}>")
        if tag in NOT_IN_A_PARAGRAPH and "p" in self.open:
            self.complaints.append(f"<{tag}> in a paragraph")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.complaints.append(f"</{tag}> closes nothing")
        if tag == "tr" and self.tables:
            if self.tables[-1]["columns"] not in {0, self.tables[-1]["width"]}:
                self.complaints.append(f"a row of another width in {self.tables[-1]}")
            self.tables[-1]["width"] = 0

    def handle_data(self, data):
        if self.open and self.open[-1] == "caption":
            self.tables[-1]["caption"] += data

    def check(self):
        assert self.complaints == []
        assert len(self.ids) == len(set(self.ids))
        assert {target[:1] for target in self.targets} <= {"#"}
        assert {target[1:] for target in self.targets} <= set(self.ids)
        # A table in a region with a name needs no caption.
        assert all(table["captions"] <= 1 for table in self.tables)
        assert all(table["caption"].strip() for table in self.tables if table["captions"])
        assert self.regions >= len(self.tables)
        assert self.headings[0] == 1
        assert self.headings.count(1) == 1
        steps = zip(self.headings, self.headings[1:], strict=False)
        assert all(after - before <= 1 for before, after in steps)


def with_60_clusters(document):
    """Spread executions over sixty clusters, each paired with that of its number."""
    for which in ("normal", "sample"):
        for i, place in enumerate(document.plane[which]):
            place[:] = [i % 60 + i / 1e3, i % 7]
        found = document.clusters[which]
        found.clusters = [
            ClusterEntry(cluster=k, size=5, weak=0, mean_duration=1e6) for k in range(60)
        ]
    for row in document.executions:
        row.cluster = row.position % 60
    document.clusters.pairs = [
        PairEntry(sample=k, normal=k, score=None, weak=k == 7, novel=k == 9) for k in range(60)
    ]
    return document


def without_clusters(document):
    """Take away what clustering found, as where there is nothing to cluster."""
    for which in ("normal", "sample"):
        found = document.clusters[which]
        found.clusters, found.ordering, found.reachability = [], [], []
    document.clusters.pairs = []
    document.plane = None
    for row in document.executions:
        row.cluster = None
    return document


def without_findings(document):
    document.findings = []
    document.causes = []
    return document


def without_figures(document):
    """Leave every figure of the states and detection undefined."""
    for state in document.states:
        for name, value in structs.asdict(state).items():
            if isinstance(value, float):
                setattr(state, name, None)
    for name in ("alpha", "floor", "detectable", "paper_false_alarms"):
        setattr(document.detection, name, None)
    return document


def with_two_kinds(document):
    """Add a kind like the first: the table of kinds stands beside it."""
    kinds = document.pictures.kinds
    kinds.append(structs.replace(kinds[0], label="second"))
    return document


DOCUMENTS = {
    "usual": lambda f: comparison_document(f.comparison()),
    "ok": lambda f: comparison_document(f.comparison(verdict="ok", anomalous=0)),
    "two kinds": lambda f: with_two_kinds(comparison_document(f.comparison())),
    "empty": lambda f: comparison_document(
        f.comparison(verdict="inconclusive", anomalous=0, samples=0, normals=0)
    ),
    "one execution": lambda f: comparison_document(
        f.comparison(verdict="inconclusive", anomalous=0, samples=1, normals=1, columns=3)
    ),
    "no clusters": lambda f: without_clusters(comparison_document(f.comparison())),
    "no findings": lambda f: without_findings(comparison_document(f.comparison())),
    "no figures": lambda f: without_figures(comparison_document(f.comparison())),
    "no states": lambda f: structs.replace(
        comparison_document(f.comparison()), states=[], settings={}
    ),
    "60 types": lambda f: with_60_clusters(
        comparison_document(f.comparison(normals=300, samples=120, columns=9))
    ),
    "lossy": lambda f: comparison_document(
        f.comparison(losses=tuple(f.Loss(i, i + 9, 0, -1, i, 1, "full") for i in range(40)))
    ),
    "2,600 executions": lambda f: comparison_document(
        f.comparison(normals=2000, samples=600, anomalous=3, columns=7)
    ),
}


@pytest.fixture(scope="module")
def page_of(factory):
    """Return a function from a name to a document and its page, each made once."""
    made = {}

    def page(name):
        if name not in made:
            document = DOCUMENTS[name](factory)
            made[name] = document, render_html(document)
        return made[name]

    return page


@pytest.mark.parametrize("name", DOCUMENTS)
def test_pages_are_valid(page_of, name):
    document, page = page_of(name)
    Page(page).check()
    assert not re.search(
        r"\b(?:nan|inf|None|NaN)\b", re.sub(r"<script.*</script>", "", page, flags=re.DOTALL)
    )
    # What was saved and read back gives the same bytes.
    assert render_html(load_document(to_json(document))) == page


def test_these_tests_can_fail(page_of):
    for was, now in (
        ("</table>", ""),
        ("<caption>", "<caption></caption><caption>"),
        (' id="statistics"', ' id="recordings"'),
        ('aria-labelledby="kinds-title"', 'aria-labelledby="nowhere"'),
        ("<h2 ", '<h2 style="color:red" '),
        ("<h2 ", '<h2 onclick="f()" '),
        ('scope="col"', 'scope="none"'),
        ("<td>", "<td></td><td>"),
        (' preserveAspectRatio="none" aria-hidden="true"', ""),
    ):
        _, page = page_of("two kinds" if "kinds" in was or "h2" in was else "ok")
        damaged = page.replace(was, now, 1)
        assert damaged != page
        with pytest.raises(AssertionError):
            Page(damaged).check()


def test_what_is_cut_is_said(page_of):
    _, page = page_of("2,600 executions")
    assert len(page) < 400_000
    data = json.loads(re.search(r'id="data" type="application/json">(.*?)</script>', page)[1])
    assert (len(data["rows"]), data["of"]) == (500, 600)


def test_sections_come_in_the_order_of_questions(page_of):
    _, page = page_of("two kinds")
    body = page[page.index("<body") :]
    order = ['class="answer"', 'id="time"', 'id="durations"', 'id="kinds"', 'id="slowest"']
    order += ['id="recordings"', 'id="statistics"', "<footer"]
    found = [body.index(one) for one in order]
    assert found == sorted(found)
