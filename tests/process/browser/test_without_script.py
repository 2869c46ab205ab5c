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

HOSTILE = (
    "</ScRiPt><img src=x onerror=alert(1)>",
    "<script>alert(2)</script>",
    "\" onmouseover='alert(3)' x=\"",
    '" style="left:0" x="',
    "\x1b[2J\x1b]0;owned\x07",
    "abc\u202egnp.exe",
    "a\u2028b\u2029c",
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


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_run_nothing_and_add_nothing(show, factory, tmp_path, name):
    def written(name, file):
        names = factory.Names.all(name)
        comparison = factory.comparison(
            names=names, normals=5, samples=3, anomalous=2, columns=9, warnings=(name,)
        )
        place = tmp_path / file
        document = comparison_document(comparison)
        document.pictures.flame = [
            FlameEntry(-1, "all", "", -1, 1e6, 2e6, "more", 0.01, [5, 5]),
            FlameEntry(0, "label", name, -1, 1e6, 2e6, "more", 0.01, [5, 5]),
            FlameEntry(1, "thread", name, 1, 1e6, 2e6),
        ]
        place.write_text(render_html(document), encoding="utf-8")
        return place

    census = (
        "const n = {}; for (const e of document.querySelectorAll('*:not(.label, .s > b)'))"
        " n[e.localName] = (n[e.localName] ?? 0) + 1; return n"
    )
    seen = []
    for which, file in ((name, "hostile.html"), ("w", "plain.html")):
        page = show(written(which, file))
        # Everything by which the script writes names.
        page.run("document.querySelector('#all').click()")
        page.run(
            "const s = document.querySelector('#search'); s.value = arguments[0];"
            "s.dispatchEvent(new Event('input')); s.value = '';"
            "s.dispatchEvent(new Event('input'));",
            which,
        )
        page.run(_EVERYTHING)
        page.settle()
        box = "const b = document.querySelector('.flame .f:last-child'); return [b.title, %s]"
        title, told = page.run(box % "document.querySelector('#box').textContent")
        assert title == told
        assert len(page.all("#rows tr")) == 3
        seen.append(page.run(census))
        assert page.complaints() == []
    assert seen[0] == seen[1]
    assert not {"img", "iframe", "object", "embed", "link"} & set(seen[0])
