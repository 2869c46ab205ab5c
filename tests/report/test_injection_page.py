"""Whatever any text of a document says, the page has the same elements and no more."""

from __future__ import annotations

import re
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from critpath.documents import LossPlace
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
OURS = {"format", "verdict", "set", "kind", "letter", "level", "change", "group", "doing", "doings"}


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
    return found


def usual(page):
    """Leave out which labels have room, what backticks make code, and a short name's title."""
    page = re.sub(r'<span class="label[^>]*>[^<]*</span>', "", page)
    page = re.sub(r"(?<=>)<b>[^<]*</b>(?=</span>)", "", page)
    return re.sub(r"</?code>", "", page)


def hostile(test):
    for name in HOSTILE:
        test = example(name=name)(test)
    return settings(max_examples=60, deadline=None)(given(name=st.text(max_size=30))(test))


@pytest.mark.long
@hostile
def test_no_text_adds_an_element(document, name):
    plain = render_html(said_everywhere(document, "w" if name else ""))
    page = render_html(said_everywhere(document, name))
    assert Tags(usual(page)).found == Tags(usual(plain)).found
    assert set(Tags(page).found) <= {*Tags(plain).found, *Tags(render_html(document)).found}
    assert {link[:1] for link in Tags(page).links} <= {"#"}
    unsafe = {c for c in page if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
    assert unsafe <= {"\n"}


def test_a_hostile_document_survives_its_file(document):
    for name in HOSTILE:
        if name:  # without roles symbols have other letters
            said = said_everywhere(document, name)
            assert render_html(load_document(to_json(said))) == render_html(said)
