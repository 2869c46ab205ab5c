"""What a notebook shows of tables and comparisons."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from html.parser import HTMLParser

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import critpath
from critpath.model import Column, Rows
from critpath.model.table import SHOWN_COLUMNS, SHOWN_ROWS
from critpath.report.document.comparison import comparison_document
from critpath.text.answer import describe_headline

HOSTILE = (
    "</ScRiPt><img src=x onerror=alert(1)>",
    "</td></table><script>alert(1)</script>",
    "\" onmouseover='alert(1)' x=\"",
    "&lt;b&gt;&#60;",
    "\x1b[2J\x1b]0;owned\x07",
    "abc\u202egnp.exe",
    "a\u2028b\u2029c",
    "two\nlines\rhere",
    "\ud800lone",
    "%0A::error::",
    "`<b>`x` `",
)


class Elements(HTMLParser):
    """Elements in order, attributes, and the text of every cell."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.cells, self.open = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data


def shown(comparison):
    """Everything that can be shown of a comparison, by its name."""
    answer = critpath.Comparison._of(comparison)
    return {
        "comparison": answer,
        "path set": comparison.sample,
        "executions": comparison.normal.executions,
        "vectors": comparison.sample_vectors,
        **{n: getattr(answer, n) for n in ("causes", "findings", "states", "executions")},
    }


def test_rows_and_columns_that_are_left_out_are_counted():
    columns = {f"c{i}": Column(np.arange(100)) for i in range(SHOWN_COLUMNS + 2)}
    page = Rows("Numbers", columns)._repr_html_()
    assert "<p>Numbers: 100 rows</p>" in page
    assert f"<p>{100 - SHOWN_ROWS} more rows and 2 more columns</p>" in page
    found = Elements(page)
    assert found.tags.count("th") == SHOWN_COLUMNS
    assert found.cells[::SHOWN_COLUMNS] == [str(i) for i in range(SHOWN_ROWS)]
    small = Rows("Few", {"a": Column(["x"]), "b": Column(np.array([1]), valid=np.array([False]))})
    assert "more" not in small._repr_html_()
    assert Elements(small._repr_html_()).cells == ["x", ""]
    numbers = Rows("Few", {"a": Column(np.array([4707819.3939, 0.0123456, np.nan]))})
    assert Elements(numbers._repr_html_()).cells == ["4707819", "0.01235", "nan"]


def test_a_comparison_says_verdict_causes_and_states(factory):
    comparison = factory.comparison()
    page = critpath.Comparison._of(comparison)._repr_html_()
    document = comparison_document(comparison)
    said, cause = (
        re.sub("`(.*?)`", r"<code>\1</code>", sentence)
        for sentence in (describe_headline(document).sentence, document.causes[0].sentence)
    )
    assert page.startswith(f"<p><strong>SLOWER: {said}</strong></p>")
    assert f"<li>{cause}: +30.0 ms each, all of the slowdown</li>" in page
    for text in comparison.warnings:
        assert text in page
    cells = Elements(page).cells
    # The total first, then what is flagged, as people read durations.
    assert (cells[0], cells[7]) == ("total", "WAIT_TIMER")
    assert cells[3].startswith("+")
    assert cells[3].endswith(" ms")
    assert [cells[6], cells[13]] == ["yes", "yes"]


def test_without_an_anomaly_the_reason_is_the_sentence(factory):
    page = critpath.Comparison._of(factory.comparison(verdict="ok", anomalous=0))._repr_html_()
    assert page.startswith(
        "<p><strong>OK: No slowdown found in <code>mixed</code> requests</strong></p>"
    )
    bare = factory.comparison(verdict="inconclusive", anomalous=0, samples=0, reasons=())
    page = critpath.Comparison._of(bare)._repr_html_()
    assert page.startswith("<p><strong>INCONCLUSIVE: ")


anything = st.text(min_size=1, max_size=20) | st.sampled_from(HOSTILE)


def hostile(test):
    for name in HOSTILE:
        test = example(name=name)(test)
    return given(name=anything)(test)


def comparison_of(factory, text):
    """Return a small comparison in which every text that a trace controls is one."""
    braced = text.replace("{", "{{").replace("}", "}}")
    names = factory.Names(
        comm=text,
        helper=text,
        role=text,
        detail=text,
        label=text,
        source=braced,
        execution=braced + "{}",
    )
    return factory.comparison(
        names=names, normals=3, samples=3, anomalous=1, columns=7, warnings=(text,)
    )


def tags_of(page):
    """Names stand in backticks and are code; with one of their own, more or less of it."""
    return [tag for tag in page.tags if tag != "code"]


@cache
def usual_tags(factory):
    found = shown(comparison_of(factory, "w"))
    return {key: tags_of(Elements(table._repr_html_())) for key, table in found.items()}


@hostile
def test_names_of_a_trace_are_only_text(factory, name):
    usual = usual_tags(factory)
    for key, table in shown(comparison_of(factory, name)).items():
        page = table._repr_html_()
        found = Elements(page)
        assert tags_of(found) == usual[key], key
        assert set(found.attributes) <= {("style", "text-align:right")}
        assert not {unicodedata.category(c) for c in page} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
