"""The exploration's page in a browser: the same numbers as the command, mouse, keys and links."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains

from critpath import flow
from critpath.explore.questions import explore
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
        paths = load("pure/explore/made.py").paths(n, **facts)
        place.write_text(render_page(explore(paths), paths, command=["made"]), "utf-8")
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
    made = load("pure/requests/test_facts.py")
    paths = made.running(made.found(made.two_tiers()))
    place = tmp_path / "tiers.html"
    place.write_text(render_page(explore(paths), paths, command=["made"]), "utf-8")
    page = opened(show, place)
    assert drawn(page, 'class="ask"', 'class="own"') == [2, 2]
    assert "true 100 µs of 1" in page.run("return document.querySelector('#v5').textContent")
    assert ":90 4" in page.run("return document.querySelector('.ask title').textContent")


def drawn(page, *marks):
    """Return how often each mark is in the sketches."""
    inside = page.run("return document.querySelector('#v5').innerHTML")
    return [inside.count(mark) for mark in marks]


def two_tiers(load, tmp_path, **known):
    """Return a page about requests of two tiers, of which this is known."""
    made = load("pure/requests/test_facts.py")
    executions = made.found(made.two_tiers())
    facts = {name: of(executions) for name, of in known.items()}
    paths = made.running(replace(executions, requests=replace(executions.requests, **facts)))
    place = tmp_path / "tiers.html"
    place.write_text(render_page(explore(paths), paths, command=["made"]), "utf-8")
    return place


@pytest.mark.parametrize(
    ("sure", "times"),
    [("doubtful", 2), ("certain", 0), pytest.param("likely", 0, marks=pytest.mark.deep)],
)
def test_a_sketch_of_which_it_is_doubtful_whose_work_it_was_is_hatched(
    show, load, tmp_path, sure, times
):
    known = {"attribution": lambda executions: (sure,) * len(executions)}
    place = two_tiers(load, tmp_path, **known)
    page = opened(show, place)
    title = "doubtful: whose work this was, or whom it asked"
    assert (title in page.text("#view-5")) == bool(times)
    # What it asked is a bracket: dashed unless it is certain.
    bracket = f'class="{f"ask {sure}" if sure != "certain" else "ask"}"'
    assert drawn(page, 'fill="url(#doubt)"', bracket) == [times, 2]


def test_a_link_from_a_tracing_ui_opens_that_trace_s_sketch(show, load, tmp_path):
    def ids(executions):
        fronts = [name for name in executions.id if ">80#" in name]
        of = {name: f"{1 + n:032x}" for n, name in enumerate(fronts)}
        parents = executions.requests.parent
        return tuple(of[parent or n] for n, parent in zip(executions.id, parents, strict=True))

    place = two_tiers(load, tmp_path, trace_id=ids)
    page = opened(show, place, f"#trace={7:032x}")
    shown = page.text("#v5")
    assert shown.startswith("Chosen")
    assert "10.0.0.9:4000>80#7" in shown.replace("\n", "")
    assert page.one("#view-5").is_displayed()
    # As Jaeger writes an id of 64 bits; and what is in no request, or no id at all.
    assert "80#7" in opened(show, place, f"#trace={7:016x}").text("#v5")
    page = opened(show, place, "#trace=" + "f" * 32)
    assert "no request of the trace" in page.text(".toast")
    page = opened(show, place, "#trace=<img%20src=x>")
    assert page.text("#chip")
    assert not page.all("main img")


def test_arrows_say_where_it_goes_on_and_what_a_slice_caused(show, guest, tmp_path):
    paths = flow.extract([guest("normal")], specification="slices:wake")
    place = tmp_path / "slices.html"
    place.write_text(render_page(explore(paths), paths, command=["normal"]), "utf-8")
    marks = ('class="ln"', "url(#led")
    page = opened(show, place)
    assert "slices" in page.text("#trail")
    assert "request" not in page.text("main").lower()
    before = drawn(page, *marks)
    ActionChains(page.driver).send_keys("n").perform()
    assert "Chosen" in page.text("#v5")
    seen = [before]
    for _ in range(8):
        ActionChains(page.driver).send_keys("n").perform()
        seen.append(drawn(page, *marks))
    assert max(links for links, _ in seen) > 0
    assert max(led for _, led in seen) > 0
    assert "a slice that this one caused" in page.text("#view-5") + page.run(
        "return document.querySelector('#v5').innerHTML"
    )


def test_the_answer_and_its_reasons_are_there_without_scripts(show, driver, small):
    """Pictures are the script's: who has none is told so, and sees no frames of nothing."""
    drawn = ("#t2", "#t3", "#v5")
    with_scripts = texts(opened(show, small))
    assert all(with_scripts[view] for view in drawn)
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = show(small)
        without = texts(page)
        buttons = ("#copy", "#back", "#nx", "#y", "#v1", "#view-2", "#view-3", "#view-5")
        hidden = [not page.one(one).is_displayed() for one in buttons]
        assert "drawn by the page's script" in page.text("main")
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert without == with_scripts | dict.fromkeys(drawn, "")
    assert all(hidden)  # no button that does nothing


def test_the_page_asks_for_nothing_and_may_not(show, small):
    page = opened(show, small)
    asked = "return performance.getEntriesByType('resource').map((one) => one.name)"
    assert page.run(asked) == []
    policy = "return document.querySelector('meta[http-equiv=Content-Security-Policy]').content"
    assert page.run(policy).startswith("default-src 'none'")
    assert "unsafe" not in page.run(policy)
    tried = "return fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')"
    assert page.run(tried) == "refused"
    assert page.complaints()[0]  # the policy said so; what is seen is forgotten below
    page.run("window.violations.length = 0")
    page.driver.get_log("browser")


def test_a_rectangle_selects_and_back_goes_back(show, small):
    page = opened(show, small)
    first = page.text("#n1")
    plot = page.one("#v1")
    width, height = plot.size["width"], plot.size["height"]
    ActionChains(page.driver, duration=0).move_to_element_with_offset(
        plot, -width // 4, -height // 3
    ).click_and_hold().move_by_offset(width // 3, int(height * 0.75)).release().perform()
    assert page.text("#n1") != first
    assert "begin >=" in page.text("#cmd")
    assert page.run("return location.hash.length") > 2
    page.run("document.activeElement.blur()")
    ActionChains(page.driver).send_keys("b").perform()
    assert page.text("#n1") == first


def over_hosts(made, n=120):
    """Return executions of web that ask db, whose clock is known of the first half only."""
    paths = made.paths(n, names=("server@web", "kworker@web", "db@db"))
    segments, half = paths.paths, n // 2
    db = segments.tid == 200
    wrong = np.where(segments.path < half, 150_000, -1)
    across = replace(
        segments,
        host=db.astype(np.int64),
        uncertainty=np.where(db, wrong, 0),
        confidence=np.where(db & (segments.path % 2 == 0), 0.981, 1.0),
    )
    return replace(paths, paths=across)


@pytest.fixture(scope="module")
def across(load, tmp_path_factory):
    paths = over_hosts(load("pure/explore/made.py"))
    place = tmp_path_factory.mktemp("across") / "hosts.html"
    place.write_text(render_page(explore(paths), paths, command=["made"]), "utf-8")
    return place


def test_threads_of_hosts_stand_below_their_hosts_names_with_arrows_between(show, across):
    page = opened(show, across)
    heads = "return [...document.querySelectorAll('#v5 .sns')].map((e) => [...e.children].map("
    found = page.run(heads + "(c) => c.textContent.trim().split(' ')[0]))")
    assert [["web", "server", "db", "db"]] * len(found) == found
    sketches = page.run("return JSON.parse(document.querySelector('#data').textContent).sketches")
    links = {int(row): one[3] for row, one in sketches.items()}
    for row, ways in links.items():
        known = [150_000 if row < 60 else -1]
        sure = 981 if row % 2 == 0 else 1000
        assert [way[3:] for way in ways] == [[sure, *known]] * 2
    drawn = "return document.querySelectorAll('#v5 .{}').length"
    shown = set()
    for _ in range(6):
        page.run("document.querySelector('#nx').click()")
        page.settle()
        shown |= set(
            page.run(
                "return [...document.querySelectorAll('#v5 .ln title')].map((e) => e.textContent)"
            )
        )
        assert page.run(drawn.format("band")) + page.run(drawn.format("qm")) == page.run(
            drawn.format("far")
        )
    assert {one.removesuffix("; inferred, 98.1 % sure") for one in shown} <= {
        "server@web to db@db, ±150 µs",
        "db@db to server@web, ±150 µs",
        "server@web to db@db; when is not known: one of their clocks is not aligned",
        "db@db to server@web; when is not known: one of their clocks is not aligned",
    }
    assert any("±150" in one for one in shown)
    assert any("not known" in one for one in shown)
    dashed = "return [...document.querySelectorAll('#v5 .ln')].every((e) => "
    dashed += "/inferred/.test(e.textContent) === (getComputedStyle(e).strokeDasharray !== 'none'))"
    assert page.run(dashed)
    # What is drawn is seen in either theme.
    colours = set()
    for theme in ("light", "dark"):
        feature = [{"name": "prefers-color-scheme", "value": theme}]
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})
        colours.add(page.run("return getComputedStyle(document.body).backgroundColor"))
        ink = page.run("return getComputedStyle(document.querySelector('#v5 .ln')).stroke")
        assert ink not in colours
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(colours) == 2


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
    keys = ActionChains(page.driver, duration=0)
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
        pytest.param("#{}", marks=pytest.mark.deep),
        "#" + quote('{"g":[{"f":"nope","o":"==","v":1}],"w":{"f":"latency","o":">=","v":1}}'),
        "#" + quote('{"g":[],"w":{"f":"latency","o":"constructor","v":1},"y":"__proto__"}'),
        "#" + quote('{"g":[],"w":' + '{"k":"not","l":[' * 50 + "1" + "]}" * 50 + "}"),
    ],
    ids=["no JSON", "an empty one", "no such field", "a name of JavaScript's", "deep"],
)
def test_a_broken_link_opens_the_page_as_at_the_start(show, small, anchor):
    page = opened(show, small, anchor)
    assert page.text("#chip") == "● IN COMMON"


@pytest.mark.parametrize("width", [500, 700, 1400])
def test_nothing_scrolls_sideways(look, small, width):
    page = look(small, size=(width, 1000))
    page.until(READY)
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
    "given",
    [
        *("thread ~ '.'", "not execution in ['none']"),
        *(pytest.param(one, marks=pytest.mark.deep) for one in ("tid >= 1", "begin >= 0s")),
    ],
)
def test_a_page_may_begin_with_any_condition(show, load, tmp_path, given):
    paths = load("pure/explore/made.py").paths(120)
    place = tmp_path / "any.html"
    asked = explore(paths, given=[given])
    place.write_text(render_page(asked, paths, command=["made"]), "utf-8")
    page = opened(show, place)
    assert "120" in page.text("#trail")


HOSTILE = 'a"><img src=x onerror=alert(1)> %23#é.html'


@pytest.fixture(scope="module")
def linked(critpath, load, tmp_path_factory):
    """Return a function that compares two sets, with a page to explore on."""
    home = tmp_path_factory.mktemp("linked")
    made = load("pure/explore/made.py")
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


@pytest.mark.parametrize(
    "place",
    [
        f"below/{HOSTILE}",
        *(pytest.param(one, marks=pytest.mark.deep) for one in ("explore.html", HOSTILE)),
    ],
)
def test_the_report_leads_to_the_page_beside_it(show, linked, place):
    report = linked(place)
    page = show(report)
    assert page.run("return document.querySelectorAll('header img').length") == 0
    link = page.one("header a.btn")
    assert link.text == "Explore these requests"
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


@pytest.mark.deep
def test_twenty_thousand_executions_are_a_page_of_a_few_elements(show, written):
    """What a browser has to draw hardly grows with them."""
    elements = {}
    for count in (2_000, 20_000):
        place = written(count)
        page = opened(show, place)
        elements[count] = page.run("return document.querySelectorAll('*').length")
    assert place.stat().st_size < 6_000_000
    assert page.run("return document.querySelectorAll('#v1 .cell').length") > 10
    assert elements[20_000] < 2 * elements[2_000]
