"""The same facts with scripts off, and names of a trace that would like to be scripts."""

from __future__ import annotations

import pytest

from critpath.documents.pictures import FlameEntry
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html
from critpath.text.answer import describe_headline

# What a reader takes from the page.  The script may add, but neither take away nor change.
_FACTS = """
const words = (e) => e.textContent.replace(/\\s+/g, " ").trim();
const all = (selector) => [...document.querySelectorAll(selector)].map(words);
return {
  answer: all("h1, .why, .small"),
  titles: all("h2, h3, figcaption, summary"),
  rows: all("tbody tr"),
  bars: all(".bar, .dist, .legend, .figures"),
};
"""

# All that writes names or shows what was hidden: folds, examples, boxes, and the summary.
_EVERYTHING = """
for (const fold of document.querySelectorAll("details")) fold.open = true;
for (const one of document.querySelectorAll(".ex > input")) one.click();
for (const one of document.querySelectorAll(".flame .f")) { one.click(); one.focus(); }
window.copied = [];
Object.defineProperty(navigator, "clipboard", {
  value: { writeText: async (text) => window.copied.push(text) },
});
document.querySelector("#copy").click();
"""

# An element, an attribute, an end of a line: what each would break out of is another.
HOSTILE = (
    "</ScRiPt><img src=x onerror=alert(1)>",
    "\" onmouseover='alert(3)' x=\"",
    "a\u2028b\u2029c",
)
MORE_HOSTILE = (
    "<script>alert(2)</script>",
    '" style="left:0" x="',
    "\x1b[2J\x1b]0;owned\x07",
    "abc\u202egnp.exe",
    "two\nlines",
    "%0A::error::x",
    "javascript:alert(4)",
)


def test_the_same_facts_are_there_without_scripts(show, driver, real):
    place, document = real
    page = show(place)
    assert page.one("#theme").is_displayed()
    with_scripts = page.run(_FACTS)
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = show(place)
        assert not page.one("#theme").is_displayed()
        without = page.run(_FACTS)
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert with_scripts == without
    assert describe_headline(document).sentence.replace("`", "") in without["answer"]
    said = " ".join(without["rows"])
    assert all(state.state in said for state in document.states)


# How many elements of each kind are there, but for what a name may consist of.
_CENSUS = """
const n = {};
for (const e of document.querySelectorAll("*:not(.label, .s > b)"))
  n[e.localName] = (n[e.localName] ?? 0) + 1;
return n;
"""


@pytest.fixture(scope="module")
def written(factory, tmp_path_factory):
    """Return a function that writes a report in which every name is this one."""
    home = tmp_path_factory.mktemp("named")

    def write(name):
        names = factory.Names.all(name)
        comparison = factory.comparison(
            names=names, normals=5, samples=3, anomalous=2, columns=9, warnings=(name,)
        )
        document = comparison_document(comparison)
        document.pictures.flame = [
            FlameEntry(-1, "all", "", -1, 1e6, 2e6, "more", 0.01, [5, 5]),
            FlameEntry(0, "label", name, -1, 1e6, 2e6, "more", 0.01, [5, 5]),
            FlameEntry(1, "thread", name, 1, 1e6, 2e6),
        ]
        place = home / "page.html"
        place.write_text(render_html(document), encoding="utf-8")
        return place

    return write


def use_and_count(page, name):
    """Use everything by which the script writes names, and count the elements."""
    page.run("document.querySelector('#all').click()")
    page.run(
        "const s = document.querySelector('#search'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input')); s.value = '';"
        "s.dispatchEvent(new Event('input'));",
        name,
    )
    page.run(_EVERYTHING)
    page.settle()
    box = "const b = document.querySelector('.flame .f:last-child'); return [b.title, %s]"
    title, told = page.run(box % "document.querySelector('#box').textContent")
    assert title == told
    assert len(page.all("#rows tr")) == 3
    return page.run(_CENSUS)


@pytest.fixture(scope="module")
def harmless(tab, written):
    """Return the elements of a report whose names mean nothing."""
    tab.resize(1400, 1000)
    tab.load(written("w"))
    elements = use_and_count(tab, "w")
    assert tab.complaints() == []
    return elements


@pytest.mark.parametrize(
    "name", [*HOSTILE, *(pytest.param(name, marks=pytest.mark.deep) for name in MORE_HOSTILE)]
)
def test_hostile_names_run_nothing_and_add_nothing(show, written, harmless, name):
    found = use_and_count(show(written(name)), name)
    assert found == harmless
    assert not {"img", "iframe", "object", "embed", "link"} & set(found)
