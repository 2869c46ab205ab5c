"""The same facts with scripts off, and names of a trace that would like to be scripts."""

from __future__ import annotations

import pytest

from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html
from critpath.text import verdict

# What a reader takes from the page.  The script may add, but neither take away nor change.
_FACTS = """
const all = (selector) => [...document.querySelectorAll(selector)];
const words = (e) => e.textContent.replace(/\\s+/g, " ").trim();
const cells = (row) => [...row.cells].map(words).join(" | ");
return {
  verdict: words(document.querySelector("h1")),
  causes: all("#causes li").map(words),
  findings: all("#aligned table.findings tbody tr").map(cells),
  facts: all("#aligned .facts").map(words),
  states: all("#states tbody tr, #states tfoot tr").map(cells),
  executions: all("#executions tbody tr").map(cells),
  sets: all("#sets tbody tr").map(cells),
  drawings: all("#aligned svg.aligned").map((e) => e.getAttribute("aria-label")),
};
"""

HOSTILE = (
    "</ScRiPt><img src=x onerror=alert(1)>",
    "<script>alert(2)</script>",
    "\" onmouseover='alert(3)' x=\"",
    "\x1b[2J\x1b]0;owned\x07",
    "abc\u202egnp.exe",
    "a\u2028b\u2029c",
    "two\nlines",
    "%0A::error::x",
    "javascript:alert(4)",
)


def scripts(page, *, off):
    page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": off})


def test_the_same_facts_are_there_without_scripts(show, driver, real):
    place, document = real
    page = show(place)
    page.run("document.querySelector('#aligned').scrollIntoView()")
    page.until("return document.querySelector('#aligned canvas')?.width > 0")
    with_scripts = page.run(_FACTS)
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = show(place)
        assert page.all("canvas") == []
        without = page.run(_FACTS)
        shown = page.one("#aligned svg.aligned")
        assert shown.is_displayed()
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert with_scripts == without
    headline = verdict.headline(document).partition(": ")[2]
    assert headline.replace("`", "") in without["verdict"]
    assert len(without["states"]) == len(document.states)
    assert len(without["findings"]) == len(document.findings)
    assert len(without["drawings"]) == len(document.aligned)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_run_nothing_and_add_nothing(show, factory, tmp_path, name):
    def written(name, file):
        names = factory.Names.all(name)
        comparison = factory.comparison(
            names=names, normals=5, samples=3, anomalous=2, columns=9, warnings=(name,)
        )
        place = tmp_path / file
        place.write_text(render_html(comparison_document(comparison)), encoding="utf-8")
        return place

    census = (
        "const n = {}; for (const e of document.querySelectorAll('*'))"
        " n[e.localName] = (n[e.localName] ?? 0) + 1; return n"
    )
    seen = []
    for which, file in ((name, "hostile.html"), ("w", "plain.html")):
        page = show(written(which, file))
        page.run("document.querySelector('#aligned').scrollIntoView()")
        page.until("return document.querySelector('#aligned canvas')?.width > 0")
        # Everything that writes names: the details, the filters, a link to a finding.
        page.run(
            "document.querySelectorAll('.rank').forEach((b) => b.click());"
            "const s = document.querySelector('#filter-thread');"
            "s.selectedIndex = 1; s.dispatchEvent(new Event('change'));"
        )
        page.settle()
        assert page.run("return document.querySelectorAll('.details dt').length") > 6
        seen.append(page.run(census))
        link = page.run("return location.hash")
        page.run("location.hash = ''")
        page.run("location.hash = arguments[0]", link)
        page.settle()
        assert page.run("return document.querySelector('.complaint').hidden")
        assert page.complaints() == []
    assert seen[0] == seen[1]
    assert not {"img", "iframe", "object", "embed", "link"} & set(seen[0])
