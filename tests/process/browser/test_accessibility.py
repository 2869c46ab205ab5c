"""The page for readers with a keyboard, a screen reader, few colours, or paper."""

from __future__ import annotations

import base64
import json
import sys
from itertools import product
from pathlib import Path

import pytest

from critpath.explore.questions import explore
from critpath.report.document import to_json
from critpath.report.explore.page import render_page
from critpath.report.html.elements import WORDS, legend_of

ANSWERS = ("slower", "faster", "ok", "inconclusive")
OTHERS = ("trend", "known", "explore")
TAB = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
A4 = 702  # CSS pixels between its margins

_OPEN = "for (const fold of document.querySelectorAll('details')) fold.open = true"
_AXE = """
const done = arguments[0];
axe.run().then(
  (found) => done(found.violations.flatMap((one) =>
    one.nodes.map((node) => [one.impact, one.id, node.html.slice(0, 160)]))),
  (error) => done([["critical", "axe", String(error)]]),
);
"""
_FOCUS = """
const at = document.activeElement;
if (at === document.body) return null;
const box = (at.type === "radio" ? at.parentElement.querySelector(".mult") : at)
  .getBoundingClientRect();
const ring = getComputedStyle(at.type === "radio" ? at.parentElement.querySelector(".mult") : at);
return [
  at.id || at.textContent.trim().slice(0, 40),
  at.matches(":focus-visible") && ring.outlineStyle !== "none",
  box.width > 0 && box.bottom > 0 && box.top < innerHeight,
  [...document.querySelectorAll("*")].indexOf(at),
];
"""
# What a keyboard has to reach: one of the radio buttons of a cause, the arrows go to the others.
_REACHABLE = """
const used = [...document.querySelectorAll("button, a[href], input, summary, [tabindex]")]
  .filter((e) => e.checkVisibility() && !(e.type === "radio" && !e.checked));
return used.map((e) => [...document.querySelectorAll("*")].indexOf(e));
"""
_LOOKS = """
const root = document.querySelector(".legend");
const looks = {};
for (const name of arguments[0]) {
  const one = document.createElement("i");
  one.className = name;
  root.append(one);
  const style = getComputedStyle(one);
  looks[name] = style.backgroundImage + style.backgroundColor + style.boxShadow;
  one.remove();
}
return looks;
"""
_CUT = """
return [...document.querySelectorAll(".scroll, .panel, .card, .fold")]
  .filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1)
  .map((e) => [e.id || e.getAttribute("aria-label"), e.scrollWidth - e.clientWidth]);
"""
_CLOSED = """
return [...document.querySelectorAll("details table")]
  .filter((e) => !e.checkVisibility({contentVisibilityAuto: true}))
  .map((e) => e.textContent.slice(0, 40));
"""


def media(driver, **features):
    """Let a page believe in features of its medium."""
    medium = features.pop("medium", "")
    named = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium, "features": named})


@pytest.fixture
def emulate(driver):
    yield lambda **features: media(driver, **features)
    media(driver)


@pytest.fixture(scope="module")
def other(critpath, load, tmp_path_factory):
    """Return a function from a name to a page that is no report."""
    home = tmp_path_factory.mktemp("others")

    def trend(place):
        made = load("pure/ab/test_judgement.py")
        fast = json.loads(to_json(made.judged(made.plan_of(), made.log_of(40, noise=0.01))))
        (home / "kept").mkdir()
        for n in range(14):
            one = json.loads(json.dumps(fast))
            one["time"]["ratio"] *= (1.2 if n > 7 else 1.0) + 0.002 * (n % 3)
            one["labels"] = {f"GET /{'category' * 4}/{{id}}?a={kind}": one["time"] for kind in "ab"}
            (home / "kept" / f"202611{10 + n}T101500Z-v1..{n:07}.json").write_text(json.dumps(one))
        critpath("trend", home / "kept", "--html", place)

    def known(place):
        critpath("known", "check", FIXTURES / "known" / "team.known", "--html", place)

    def explored(place):
        paths = load("pure/explore/made.py").paths(400)
        place.write_text(render_page(explore(paths), paths, command=["made"]), encoding="utf-8")

    def page_of(name):
        place = home / f"{name}.html"
        if not place.exists():
            {"trend": trend, "known": known, "explore": explored}[name](place)
        return place

    return page_of


# Both themes and widths, and the two answers that say the most; the others take half a minute.
QUICK = {("slower", "light", 1400), ("inconclusive", "dark", 700)}


@pytest.mark.parametrize(
    ("said", "theme", "width"),
    [
        pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.deep])
        for case in product(ANSWERS, ("light", "dark"), (1400, 700))
    ],
)
def test_axe_finds_nothing(show, example, emulate, said, theme, width):
    emulate(prefers_color_scheme=theme)
    assert ask_axe(show(example(said), size=(width, 1000))) == []


@pytest.mark.parametrize(("theme", "width"), [("light", 1400), ("light", 700), ("dark", 390)])
@pytest.mark.parametrize("name", OTHERS)
def test_axe_finds_nothing_on_other_pages_and_no_page_is_wider_than_the_window(
    show, other, emulate, name, theme, width
):
    emulate(prefers_color_scheme=theme)
    page = show(other(name), size=(width, 1000))
    assert ask_axe(page) == []
    assert page.run("return document.documentElement.scrollWidth") <= width


def ask_axe(page):
    axe = Path(sys.prefix) / "peers" / "axe.min.js"
    if not axe.exists():
        pytest.skip("axe.min.js is not here: sh .ci/peers .venv/peers axe fetches it")
    page.run(_OPEN)
    page.run(axe.read_text(encoding="utf-8"))
    return page.driver.execute_async_script(_AXE)


@pytest.mark.parametrize("said", ["slower", "trend", pytest.param("ok", marks=pytest.mark.deep)])
def test_the_keyboard_reaches_all_that_can_be_used_in_order_and_sees_where_it_is(
    show, driver, example, other, said
):
    page = show((other if said in OTHERS else example)(said))
    page.run(_OPEN)
    wanted = page.run(_REACHABLE)
    seen = []
    for _ in range(len(wanted) + 1):
        for kind in ("rawKeyDown", "keyUp"):
            driver.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": kind, **TAB})
        at = page.run(_FOCUS)
        if at is None:
            break
        name, ring, inside, place = at
        assert ring, f"nothing shows that {name} has the focus"
        assert inside, f"{name} has the focus and is not to be seen"
        seen.append(place)
    assert seen == wanted


def test_states_differ_where_a_reader_forces_colours(show, real, emulate):
    place, _ = real
    emulate(forced_colors="active")
    page = show(place)
    textures = [f"s w1 {one}" for one, _ in legend_of(WORDS)]
    looks = page.run(_LOOKS, [*textures, "f", "f added", "f saved"])
    assert len(set(looks.values())) == len(looks)
    threads = page.run(_LOOKS, [f"s w{n} running" for n in range(7)])
    assert len(set(threads.values())) == 7
    border = "return getComputedStyle(document.querySelectorAll('.mult label')[%d]).borderColor"
    assert page.run(border % 0) != page.run(border % 1)  # the one that is shown, and another


@pytest.mark.parametrize(
    "said",
    [
        *("slower", "inconclusive", *OTHERS),
        *(pytest.param(one, marks=pytest.mark.deep) for one in ("faster", "ok")),
    ],
)
def test_on_paper_all_is_open_nothing_is_cut_and_nothing_is_dark(
    show, example, other, emulate, said
):
    # By style alone: a medium that is emulated tells no script that there is something to print.
    emulate(medium="print", prefers_color_scheme="dark")
    page = show((other if said in OTHERS else example)(said), size=(A4, 1200))
    page.run("document.documentElement.dataset.theme = 'dark'")
    assert (
        page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    )
    assert page.run(_CLOSED) == []
    assert page.run(_CUT) == []
    assert not any(one.is_displayed() for one in page.all("button.btn, #search"))


@pytest.mark.parametrize("said", ["slower", "ok", *OTHERS])
def test_paper_is_not_blank(show, example, other, said):
    page = show((other if said in OTHERS else example)(said))
    asked = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
    printed = base64.b64decode(page.driver.execute_cdp_cmd("Page.printToPDF", asked)["data"])
    assert b"/FontFile" in printed  # what has no letter has no font
