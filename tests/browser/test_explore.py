"""The exploration's page in a browser: the same numbers as the command, mouse, keys and links."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest
from selenium.webdriver.common.action_chains import ActionChains

from critpath import pipeline
from critpath.report.explore.page import render_page
from critpath.store import save_paths

ENTER, ESCAPE, UP, BACKSPACE = "\ue007", "\ue00c", "\ue013", "\ue003"
READY = "return document.documentElement.dataset.ready"
JUDGED = "return document.querySelector('#pnote').textContent.startsWith('p:')"
VIEWS = (
    *("#chip", "#h", "#why", "#t1", "#t2", "#t3", "#t4", "#none", "#pnote", "#part", "#trail"),
    *("#v5", "#cmd"),
)


@pytest.fixture(scope="module")
def written(load, tmp_path_factory):
    home = tmp_path_factory.mktemp("explored")

    def write(n, **facts):
        place = home / f"{n}-{len(facts)}.html"
        paths = load("explore/made.py").paths(n, **facts)
        place.write_text(render_page(pipeline.explore(paths), paths, command=["made"]), "utf-8")
        return place

    return write


@pytest.fixture(scope="module")
def small(written):
    return written(400)


def opened(show, place, anchor="", **more):
    page = show(place, anchor, **more)
    page.until(READY)
    return page


def texts(page):
    return {view: " ".join(page.text(view).split()) for view in VIEWS}


def test_the_page_counts_what_the_command_counts(show, small):
    page = opened(show, small)
    before = texts(page)
    assert before["#chip"] == "● IN COMMON"
    start = page.run("return JSON.parse(document.querySelector('#data').textContent).start")
    link = {"g": [step["c"] for step in start["g"]], "w": start["w"]["c"], "y": "latency"}
    page = opened(show, small, "#" + quote(json.dumps(link)))
    page.until(JUDGED)
    after = texts(page)
    for view in VIEWS:
        assert after[view] == before[view], view


def test_sub_requests_are_brackets_and_own_time_a_bar(show, load, tmp_path):
    made = load("requests/test_facts.py")
    paths = made.running(made.found(made.two_tiers()))
    place = tmp_path / "tiers.html"
    place.write_text(render_page(pipeline.explore(paths), paths, command=["made"]), "utf-8")
    drawn = "return document.querySelector('#v5').innerHTML.split('class=\"{}\"').length - 1"
    for page in (show(place), opened(show, place)):
        assert page.run(drawn.format("ask")) == 2
        assert page.run(drawn.format("own")) == 2
        assert "true 100 µs of 1" in page.run("return document.querySelector('#v5').textContent")
        assert ":90 4" in page.run("return document.querySelector('#v5 .ask title').textContent")


def test_a_rectangle_selects_and_back_goes_back(show, small):
    page = opened(show, small)
    first = page.text("#n1")
    plot = page.one("#v1")
    width, height = plot.size["width"], plot.size["height"]
    ActionChains(page.driver).move_to_element_with_offset(
        plot, -width // 4, -height // 3
    ).click_and_hold().move_by_offset(width // 3, int(height * 0.75)).release().perform()
    assert page.text("#n1") != first
    assert "begin >=" in page.text("#cmd")
    assert page.run("return location.hash.length") > 2
    page.run("document.activeElement.blur()")
    ActionChains(page.driver).send_keys("b").perform()
    assert page.text("#n1") == first


def test_a_click_on_a_condition_looks_only_at_those(show, small):
    page = opened(show, small)
    page.one(".cond").click()
    page.until("return document.querySelectorAll('#trail li').length === 4")
    assert "--given 'cpu@server == 0'" in page.text("#cmd")
    page.until(JUDGED)
    ActionChains(page.driver).send_keys(ESCAPE).perform()
    page.until("return document.querySelectorAll('#trail li').length === 3")
    page.until(JUDGED)
    page.one(".notb").click()
    assert "not cpu@server == 0" in page.text("#cmd")


def test_the_keyboard_goes_everywhere(show, small):
    page = opened(show, small)
    keys = ActionChains(page.driver)
    for view in "123456":
        keys.send_keys(view).perform()
        assert page.run("return document.activeElement.closest('[id^=view-]').id") == f"view-{view}"
    keys.send_keys("j").perform()
    assert page.run("return document.activeElement.classList.contains('cond')")
    keys.send_keys(ENTER).perform()
    page.until("return document.querySelectorAll('#trail li').length === 4")
    keys.send_keys("n").perform()
    assert "Chosen, selected" in page.text("#v5")
    page.one("#v1").send_keys(UP)
    assert "latency" in page.text("#trail .sel")
    keys.send_keys("t").perform()
    assert page.run("return document.documentElement.dataset.theme")


@pytest.mark.parametrize(
    "anchor",
    [
        "#x",
        "#{}",
        "#" + quote('{"g":[{"f":"nope","o":"==","v":1}],"w":{"f":"latency","o":">=","v":1}}'),
        "#" + quote('{"g":[],"w":{"f":"latency","o":"constructor","v":1},"y":"__proto__"}'),
        "#" + quote('{"g":[],"w":' + '{"k":"not","l":[' * 50 + "1" + "]}" * 50 + "}"),
    ],
)
def test_a_broken_link_opens_the_page_as_at_the_start(show, small, anchor):
    page = opened(show, small, anchor)
    assert page.text("#chip") == "● IN COMMON"


@pytest.mark.parametrize("width", [500, 700, 1400])
def test_nothing_scrolls_sideways(show, small, width):
    page = opened(show, small, size=(width, 1000))
    wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.run(wider) == 0


def test_hostile_names_are_text_in_the_script_s_views_too(show, written):
    names = ("<img src=x onerror=alert(1)>", "`</script><script>alert(2)</script>", "__proto__")
    page = opened(show, written(200, names=names, labels=names))
    page.one(".cond").click()
    page.settle()
    assert page.run("return document.querySelectorAll('main img, main script').length") == 0
    assert names[0] in page.text("main")


@pytest.mark.parametrize(
    "given", ["tid >= 1", "thread ~ '.'", "begin >= 0s", "not execution in ['none']"]
)
def test_a_page_may_begin_with_any_condition(show, load, tmp_path, given):
    paths = load("explore/made.py").paths(120)
    place = tmp_path / "any.html"
    asked = pipeline.explore(paths, given=[given])
    place.write_text(render_page(asked, paths, command=["made"]), "utf-8")
    page = opened(show, place)
    assert "120" in page.text("#trail")


HOSTILE = 'a"><img src=x onerror=alert(1)> %23#é.html'


@pytest.fixture(scope="module")
def linked(critpath, load, tmp_path_factory):
    """Return a function that compares two sets, with a page to explore on."""
    home = tmp_path_factory.mktemp("linked")
    made = load("explore/made.py")
    for name, seed in (("normal", 1), ("sample", 2)):
        save_paths(made.paths(120, seed=seed), home / f"{name}.paths")

    def compare(place, report="report.html", **more):
        (home / place).parent.mkdir(exist_ok=True)
        run = critpath(
            *("compare", "normal.paths", "sample.paths", "--quiet"),
            *("--explore", place, "--html", report),
            cwd=home,
            **more,
        )
        assert run.returncode in {0, 1, 3}, run.stderr
        return home / report

    return compare


@pytest.mark.parametrize("place", ["explore.html", HOSTILE, "below/page of it.html"])
def test_the_report_leads_to_the_page_beside_it(show, linked, place):
    report = linked(place)
    page = show(report)
    assert page.run("return document.querySelectorAll('header img').length") == 0
    link = page.one("header a.btn")
    assert link.text == "Explore these executions"
    link.send_keys(ENTER)  # by keyboard alone
    page.until(READY)
    assert "sample" in page.text("#trail")
    assert Path(unquote(urlsplit(page.run("return location.href")).path)) == report.parent / place


def test_the_page_is_a_part_of_the_report(show, linked):
    page = show(linked("inline", "inline.html"))
    page.one("header a.btn").click()
    page.until("return document.querySelector('#explore').open")
    page.driver.switch_to.frame(page.one("iframe.explore"))
    try:
        page.until(READY)
        assert page.text("#h")
        page.one("#view-1").send_keys(UP)
        page.settle()
    finally:
        page.driver.switch_to.default_content()


@pytest.mark.long
def test_twenty_thousand_executions_open_in_two_seconds(show, written):
    place = written(20_000)
    assert place.stat().st_size < 6_000_000
    begin = time.monotonic()
    page = opened(show, place)
    took = time.monotonic() - begin
    assert page.run("return document.querySelectorAll('#v1 .cell').length") > 10
    assert took < 2 * 2  # on a machine that others use, too
