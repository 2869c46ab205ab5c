"""A window's page in a browser: keys, pointer, the lit path, tables, paper, names that attack."""

from __future__ import annotations

import base64
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from critpath.commands import main

READY = "return document.documentElement.dataset.ready"
EXECUTION = "events:app:request_begin,app:request_end,key=id"
AROUND = "7"
# How many pixels of a row's line below it have the colour of ink: where the path is lit.
_LIT = """
const canvas = document.querySelector("#canvas");
const ink = getComputedStyle(document.body).color.match(/\\d+/g).slice(0, 3).map(Number);
const [rows, gutter] = arguments;
const ratio = canvas.width / canvas.clientWidth;
const from = Math.round(gutter * ratio);
const {data, width} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
return [...Array(rows).keys()].map((row) => {
  const y = Math.round((26 + 20 * row + 18) * ratio);
  let lit = 0;
  for (let at = 4 * (y * width + from); at < 4 * (y + 1) * width; at += 4) {
    lit += ink.every((one, n) => data[at + n] === one);
  }
  return lit / (width - from);
});
"""


@pytest.fixture(scope="module")
def place(guest, tmp_path_factory):
    """Return the page around a request, made by the command."""
    made = tmp_path_factory.mktemp("viewed") / "view.html"
    words = ["view", str(guest("sample-lock")), "--around", AROUND, "--execution", EXECUTION]
    assert main([*words, "-o", str(made), "--quiet"]) == 0
    return made


@pytest.fixture(scope="module")
def segments(guest, tmp_path_factory):
    """Return the request's critical path, as ``critpath path`` has it."""
    made = tmp_path_factory.mktemp("path") / "path.json"
    words = ["path", str(guest("sample-lock")), "--id", AROUND, "--execution", EXECUTION]
    assert main([*words, "--format", "json", "-o", str(made), "--quiet"]) == 0
    return json.loads(made.read_text("utf-8"))["segments"]


def opened(show, place, **more):
    page = show(place, **more)
    page.until(READY)
    page.settle()
    return page


def press(page, *keys):
    ActionChains(page.driver, duration=0).send_keys(*keys).perform()
    page.settle()


def facts(page):
    return page.text("#facts").replace("\u00a0", " ")


def test_n_goes_along_the_critical_path(show, place, segments):
    page = opened(show, place)
    seen = []
    for _ in segments:
        press(page, "n")
        seen.append(facts(page))
    for said, segment in zip(seen, segments, strict=True):
        lasts = (segment["end"] - segment["begin"]) / 1e3
        assert f" · {lasts:,.3f}".rstrip("0").rstrip(".") in said
        assert f"({segment['begin']:,} ns)" in said
        assert segment["comm"] in said
    waited = [said for said, one in zip(seen, segments, strict=True) if one["state"] == "WAIT_CPU"]
    assert all("waiting for a CPU" in said for said in waited)
    assert any(re.search(r"cpu 0: worker-1 333 [\d,.]+ µs", said) for said in waited)
    press(page, "n")
    assert facts(page) == seen[-1]  # it ends there
    press(page, "p")
    assert facts(page) == seen[-2]


def test_l_begins_with_the_longest_and_s_sums_up(show, place, segments):
    page = opened(show, place)
    press(page, "l")
    begin, end = max(
        ((one["begin"], one["end"]) for one in segments), key=lambda one: one[1] - one[0]
    )
    assert f"({begin:,} ns)" in facts(page)
    page.one("#rows").click()
    press(page, "l", Keys.ENTER, "s")
    # Twice as long as what it was zoomed to.
    length = 2 * (end - begin) / 1e6
    assert facts(page).startswith(f"{length:.2f} ms from ")
    assert re.search(r"critical path: .*waiting for a CPU [\d.]+ .s", facts(page))
    assert re.search(r"cpu 0: .*cpu 1: ", facts(page))


def test_hosts_stand_below_each_other_those_on_the_path_first(show, load, tmp_path):
    made = load("pure/report/test_view.py")
    place = tmp_path / "hosts.html"
    lines, path = made.made()
    workers = replace(lines.workers, host=(lines.workers.tid != 7).astype(np.int64))
    here = replace(path.paths, host=(path.paths.tid != 7).astype(np.int64))
    lines = replace(lines, workers=workers, processors=((0, 0), (1, 0)))
    written = made.page_of(lines, replace(path, paths=here), hosts=("web", "db"))
    place.write_text(written, encoding="utf-8")
    page = opened(show, place)
    page.run("document.querySelector('#rows').focus()")
    seen = []
    for _ in range(6):
        press(page, Keys.ARROW_DOWN)
        seen.append(facts(page).partition(" ")[0])
    # The path, a thread and a cpu of web, two threads and the cpu of db between.
    assert seen == ["t7", "t7", "cpu", "t8", "cpu", "t9"]


def test_the_path_is_lit_on_the_rows_of_its_threads(show, place):
    page = opened(show, place)
    lit = page.run(_LIT, 9, 212)
    assert lit[1] > 0.4  # its own thread
    assert lit[2] > 0.05  # who it waited for
    assert lit[5:] == [0] * 4  # cpus, and threads that it never was on


def test_keys_move_zoom_and_choose(show, place):
    page = opened(show, place)
    page.one("#rows").click()
    before = page.run("return document.querySelector('#canvas').toDataURL()")
    pictures = [before]
    for key in ("+", "+", Keys.ARROW_RIGHT, "-", Keys.HOME):
        press(page, key)
        pictures.append(page.run("return document.querySelector('#canvas').toDataURL()"))
        assert pictures[-1] != pictures[-2], key
    press(page, Keys.ESCAPE)
    assert facts(page).startswith("Point at")
    press(page, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert facts(page).startswith("worker-0 332 ")
    first = facts(page)
    press(page, ".")
    assert facts(page).startswith("worker-0 332 ")
    assert facts(page) != first
    press(page, ",")
    assert facts(page) == first
    whole = page.run("return document.querySelector('#canvas').toDataURL()")
    press(page, Keys.ENTER)
    assert page.run("return document.querySelector('#canvas').toDataURL()") != whole


def test_a_pointer_shows_what_is_there_and_the_wheel_zooms(show, place):
    page = opened(show, place)
    rows = page.one("#rows")
    middle = -rows.size["height"] // 2
    at = ActionChains(page.driver, duration=0)
    # The row below the one of the path, in the midst of it.
    at.move_to_element_with_offset(rows, 0, middle + 26 + 30).perform()
    page.settle()
    assert re.match(r"worker-0 332 .* · [\d,.]+ µs · from [\d.]+ \w?s \([\d,]+ ns\)", facts(page))
    before = page.run("return document.querySelector('#canvas').toDataURL()")
    wheel = (
        "document.querySelector('#rows').dispatchEvent(new WheelEvent('wheel', {bubbles: true, "
        "cancelable: true, clientX: 700, clientY: 400, deltaY: -120, %s}))"
    )
    page.run(wheel % "ctrlKey: true")
    page.settle()
    zoomed = page.run("return document.querySelector('#canvas').toDataURL()")
    assert zoomed != before
    page.run(wheel % "shiftKey: true")
    page.settle()
    assert page.run("return document.querySelector('#canvas').toDataURL()") != zoomed
    moved = page.run("return document.querySelector('#canvas').toDataURL()")
    at.click_and_hold().move_by_offset(-60, 0).release().perform()
    page.settle()
    assert page.run("return document.querySelector('#canvas').toDataURL()") != moved


def test_a_thread_is_found_and_all_are_shown_when_asked_for(show, place):
    page = opened(show, place)
    press(page, "/", "WORKER-1")
    assert page.text("#count").startswith("1 of ")
    press(page, Keys.ESCAPE)
    page.run(
        "const s = document.querySelector('#search'); s.value = '';"
        "s.dispatchEvent(new Event('input'))"
    )
    few = page.run("return document.querySelector('#rows').scrollHeight")
    press(page, "x")
    page.settle()
    assert page.run("return document.querySelector('#rows').scrollHeight") > few
    press(page, "t")
    assert page.run("return document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("width", [390, 700, 1400])
def test_nothing_scrolls_sideways(show, place, width):
    page = opened(show, place, size=(width, 900))
    wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.run(wider) == 0
    drawn = "const c = document.querySelector('#canvas'); return [c.clientWidth, c.width]"
    assert page.run(drawn)[0] == page.run(drawn)[1]  # one pixel each


_AXE = """
const done = arguments[0];
axe.run().then(
  (found) => done(found.violations.flatMap((one) =>
    one.nodes.map((node) => [one.impact, one.id, node.html.slice(0, 160)]))),
  (error) => done([["critical", "axe", String(error)]]),
);
"""


@pytest.mark.parametrize(("theme", "width"), [("light", 1400), ("dark", 390)])
def test_axe_finds_nothing(show, driver, place, theme, width):
    axe = Path(sys.prefix) / "peers" / "axe.min.js"
    if not axe.exists():
        pytest.skip("axe.min.js is not here: sh .ci/peers .venv/peers axe fetches it")
    features = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        page = opened(show, place, size=(width, 1000))
        page.run("for (const fold of document.querySelectorAll('details')) fold.open = true")
        page.run(axe.read_text(encoding="utf-8"))
        assert page.driver.execute_async_script(_AXE) == []
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_tables_are_there_without_scripts(show, driver, place, segments):
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = show(place)
        page.one("#path summary").click()
        assert len(page.all("#path tbody tr")) == len(segments)
        hidden = ("#rows", "#search", "#copy", "#whole", ".leg2", "#keys")
        assert not any(page.one(one).is_displayed() for one in hidden)
        assert "drawn by the page's script" in page.text("main")
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_paper_has_the_picture(show, place):
    page = opened(show, place)
    press(page, "t")
    asked = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
    printed = base64.b64decode(page.driver.execute_cdp_cmd("Page.printToPDF", asked)["data"])
    assert b"/Image" in printed
    assert page.run("return document.documentElement.dataset.theme") == "dark"  # as it was


@pytest.mark.parametrize(
    "name", ["</ScRiPt><img src=x onerror=alert(1)>", "\" onmouseover='alert(3)' x=\"", "__proto__"]
)
def test_hostile_names_run_nothing(show, load, tmp_path, name):
    made = load("pure/report/test_view.py")
    place = tmp_path / "hostile.html"
    lines, path = made.made(change=lambda _: name)
    place.write_text(made.page_of(lines, path, hosts=(name,), command=name), encoding="utf-8")
    page = opened(show, place)
    press(page, "n")
    assert name in page.text("#facts")
    page.one("#rows").click()
    for key in (Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN, ".", "x"):
        press(page, key)
    assert not page.all("img, #facts :not(code, b)")
