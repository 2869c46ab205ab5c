"""The page in a browser: search, keys, themes; no sideways scrolling; a screen for OK."""

from __future__ import annotations

import pytest

from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html

WIDTHS = (400, 700, 1400)
_WIDER = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
_HEIGHT = "return document.documentElement.scrollHeight"
_KEY = (
    "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))"
)
# Names by which a reader without eyes finds what can be pressed or typed into.
_NAMELESS = """
const named = (e) => (e.getAttribute("aria-label") || e.textContent.trim() || e.title).trim();
return [...document.querySelectorAll("button, a, input, summary, [role=img], [role=region]")]
  .filter((e) => !named(e) && !e.labels?.length).map((e) => e.outerHTML.slice(0, 120));
"""


@pytest.fixture
def written(factory, tmp_path):
    def written(**facts):
        place = tmp_path / "page.html"
        place.write_text(render_html(comparison_document(factory.comparison(**facts))), "utf-8")
        return place

    return written


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_scrolls_sideways(look, real, width):
    place, _ = real
    assert look(place, size=(width, 1000)).run(_WIDER) == 0


def test_the_first_screen_has_answer_bars_durations_and_kinds(look, real):
    place, _ = real
    page = look(place, size=(1400, 900))
    for selector in ("h1", ".why", "#time", "#durations", "#kinds"):
        bottom = page.run(
            "return document.querySelector(arguments[0]).getBoundingClientRect().bottom", selector
        )
        assert bottom <= 900, selector


def test_a_page_of_an_answer_is_three_screens_and_small(look, real):
    place, _ = real
    assert look(place, size=(1400, 1000)).run(_HEIGHT) <= 3000
    assert place.stat().st_size <= 150_000


def test_all_that_can_be_used_has_a_name(look, real):
    place, _ = real
    assert look(place).run(_NAMELESS) == []


def test_an_ok_page_is_one_screen(show, written):
    place = written(verdict="ok", anomalous=0)
    assert show(place, size=(1400, 1000)).run(_HEIGHT) <= 1000


@pytest.mark.deep
def test_the_ok_page_of_a_recording_is_one_screen(show, example):
    assert show(example("ok"), size=(1400, 1000)).run(_HEIGHT) <= 1000


def test_search_finds_requests_by_id_kind_and_cause(show, real):
    place, document = real
    page = show(place)
    first = page.text("#rows")
    search = (
        "const s = document.querySelector('#search'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input'))"
    )
    page.run(search, "cause 1")
    assert len(page.all("#rows tr")) == len(document.causes[0].positions)
    page.run(search, "sleep")
    kinds = [row for row in document.executions if row.set == "sample" and row.label == "sleep"]
    assert len(page.all("#rows tr")) == len(kinds)
    page.run(search, "")
    assert page.text("#rows") == first


def test_keys_turn_the_theme_and_go_to_the_search(show, real):
    place, _ = real
    page = show(place)
    colour = "return getComputedStyle(document.body).backgroundColor"
    before = page.run(colour)
    page.run(_KEY, "t")
    assert page.run(colour) != before
    page.run(_KEY, "/")
    assert page.run("return document.activeElement.id") == "search"


def test_a_link_opens_the_fold_it_goes_to(show, real):
    place, _ = real
    page = show(place, "#statistics")
    assert page.until("return document.querySelector('#statistics').open")


# Scrolls through the page and uses all that it offers; returns what took long (ms), by name.
_USED = """
const [done] = arguments;
const root = document.scrollingElement;
const frame = () => new Promise((next) => requestAnimationFrame(() => setTimeout(next, 0)));
const search = document.querySelector("#search");
const type = (text) => { search.value = text; search.dispatchEvent(new Event("input")); };
const steps = {
  open: () => { for (const fold of document.querySelectorAll("details")) fold.open = true; },
  all: () => document.querySelector("#all").click(),
  search: () => type("mixed"),
  clear: () => type(""),
  choose: () => [...document.querySelectorAll(".ex > input")].at(-1).click(),
  zoom: () => document.querySelectorAll(".flame .f")[1]?.click(),
  theme: () => document.querySelector("#theme").click(),
};
const took = {};
const timed = async (name, work) => {
  const begin = performance.now();
  work();
  await frame();
  took[name] = Math.max(took[name] ?? 0, performance.now() - begin);
};
(async () => {
  for (const [name, work] of Object.entries(steps)) {
    await timed(name, work);
    for (let at = 0; at < root.scrollHeight; at += 700) {
      await timed("scroll", () => { root.scrollTop = at; });
    }
  }
  done(took);
})().catch((error) => done({ error: String(error) }));
"""


@pytest.mark.deep
def test_a_page_of_many_requests_does_not_grow_with_them(show, written):
    """What a browser has to draw when all is open, and nothing of it fails in use."""
    elements = {}
    for part in (10, 1):
        normals, samples, anomalous = (count // part for count in (2000, 500, 200))
        page = show(written(normals=normals, samples=samples, anomalous=anomalous, columns=60))
        page.settle()
        used = page.driver.execute_async_script(_USED)
        assert "error" not in used, used
        elements[part] = page.run("return document.querySelectorAll('*').length")
    assert elements[1] < 4 * elements[10]
