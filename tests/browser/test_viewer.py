"""The report in a real browser: it opens, is moved through, filtered, pinned and linked to."""

from __future__ import annotations

import copy
import re
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from msgspec import structs

from critpath.report.document.as_json import load_document
from critpath.report.document.comparison import comparison_document
from critpath.report.html import page as assets
from critpath.report.html import page_data
from critpath.report.html.as_html import render_html
from critpath.text import verdict

Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
ActionChains = pytest.importorskip("selenium.webdriver.common.action_chains").ActionChains

ARTICLE = "#aligned article"


def first_canvas(page):
    page.run("document.querySelector('#aligned article').scrollIntoView()")
    page.until("return document.querySelector('#aligned .about')?.textContent")
    page.settle()
    return page.one("#aligned canvas")


def columns_in_view(page):
    said = page.text("#aligned .where")
    begin, end = re.match(r"columns (\d+) to (\d+) of \d+", said).groups()
    return int(begin), int(end)


def column_at(page):
    return int(re.match(r"Column (\d+) of", page.text("#aligned .about"))[1])


PIXELS = """
const drawn = document.querySelector("#aligned canvas"), copy = document.createElement("canvas");
copy.width = drawn.width; copy.height = drawn.height;
const c = copy.getContext("2d", { willReadFrequently: true });
c.drawImage(drawn, 0, 0);
const d = c.getImageData(0, 0, copy.width, copy.height).data, seen = {};
for (let i = 0; i < d.length; i += 4) {
  const name = d[i] + "," + d[i + 1] + "," + d[i + 2] + "," + d[i + 3];
  seen[name] = (seen[name] ?? 0) + 1;
}
return seen;
"""
GREEN, RED = "0,158,115,255", "213,94,0,255"


def press(page, *keys):
    canvas = page.one("#aligned canvas")
    for key in keys:
        canvas.send_keys(key)
    page.settle()


def click(page, text, within="#aligned .tools"):
    page.run(
        "[...document.querySelectorAll(arguments[0] + ' button')]"
        ".find((b) => b.textContent === arguments[1]).click()",
        within,
        text,
    )
    page.settle()


@pytest.fixture(scope="module")
def long_one(factory, tmp_path_factory):
    comparison = factory.comparison(columns=300, samples=2, anomalous=1)
    document = comparison_document(comparison)
    place = tmp_path_factory.mktemp("long") / "report.html"
    place.write_text(render_html(document), encoding="utf-8")
    return place, document


def test_the_report_of_real_recordings_opens_under_its_policy(show, real):
    place, document = real
    page = show(place)
    headline = verdict.headline(document).partition(": ")[2].replace("`", "")
    assert headline in page.text("h1")
    for cause in verdict.main_causes(document, 40):
        assert cause.sentence.replace("`", "") in page.text("#causes")
    assert len(page.all("#clusters svg")) >= 1
    assert len(page.all(ARTICLE)) == len(document.aligned) > 1
    first_canvas(page)
    assert page.one("#aligned .still").get_attribute("hidden")
    # The drawing has colours of its own: it is not an empty canvas.
    assert {GREEN, RED} <= set(page.run(PIXELS))


def test_keys_and_buttons_move_through_the_alignment(show, long_one):
    place, document = long_one
    columns = document.aligned[0].columns
    ranked = [f.columns[0] + 1 for f in verdict.findings_of(document, 0)]
    page = show(place)
    first_canvas(page)
    assert column_at(page) == ranked[0]
    at = []
    for key in (Keys.HOME, Keys.ARROW_RIGHT, Keys.END, "f", "f"):
        press(page, key)
        at.append(column_at(page))
    assert at == [1, 2, columns, ranked[0], ranked[1]]
    click(page, "all")
    assert columns_in_view(page) == (1, columns)
    press(page, "+")
    begin, end = columns_in_view(page)
    assert columns * 0.4 < end - begin + 1 < columns * 0.6
    press(page, "d")
    moved, _ = columns_in_view(page)
    assert begin < moved
    press(page, "a")
    assert abs(columns_in_view(page)[0] - begin) <= 1
    press(page, "w")
    inner, outer = columns_in_view(page)
    assert outer - inner < end - begin
    press(page, "s", "-", "-")
    assert columns_in_view(page) == (1, columns)
    click(page, "true time")
    assert re.match(r"0 ns to \S+ \w+ of \S+ \w+", page.text("#aligned .where"))
    press(page, Keys.ARROW_UP)
    assert "normal" in page.text("#aligned .about")


def test_true_time_keeps_the_zoom(show, long_one):
    place, _ = long_one
    page = show(place)
    first_canvas(page)
    begin, end = columns_in_view(page)
    assert end - begin < 110
    click(page, "true time")
    assert not page.text("#aligned .where").startswith("0 ns to ")
    click(page, "columns")
    left, right = columns_in_view(page)
    assert abs((right - left) - (end - begin)) <= 1
    at = column_at(page)
    assert left <= at <= right


def test_a_finding_is_only_on_the_columns_of_its_symbol(show, real):
    place, document = real
    one = verdict.by_excess(document.aligned)[0]
    page = show(place)
    first_canvas(page)
    press(page, Keys.HOME)
    told = {}
    for column in range(one.columns):
        told[column] = set(map(int, re.findall(r"Finding (\d+):", page.text("#aligned .about"))))
        press(page, Keys.ARROW_RIGHT)
    symbols = [document.symbols[code].name for code in one.rows[-1].symbols]
    findings = verdict.findings_of(document, one.position)
    assert len(findings) > 2
    for finding in findings:
        name = finding.state + (f"@{finding.role}" if finding.role else "")
        mine = {c for c in range(*finding.columns) if symbols[c] == name}
        assert {c for c, ranks in told.items() if finding.rank in ranks} == mine


def test_findings_beyond_the_alignment_break_nothing(show, factory, tmp_path):
    document = comparison_document(factory.comparison(columns=20, anomalous=1))
    for finding in document.findings:
        finding.columns = [500, 510]
    place = tmp_path / "report.html"
    place.write_text(render_html(document), encoding="utf-8")
    page = show(place)
    first_canvas(page)
    assert column_at(page) == 1
    click(page, "next finding")
    assert "Finding" not in page.text("#aligned .about")


def test_the_mouse_drags_and_zooms(show, long_one):
    place, _ = long_one
    page = show(place)
    canvas = first_canvas(page)
    begin, end = columns_in_view(page)
    chain = ActionChains(page.driver)
    chain.move_to_element(canvas).click_and_hold().move_by_offset(120, 0).release().perform()
    page.settle()
    dragged, _ = columns_in_view(page)
    assert dragged < begin
    assert page.run("return document.querySelector('#aligned .details').hidden")
    page.run(
        "const c = document.querySelector('#aligned canvas'), b = c.getBoundingClientRect();"
        "c.dispatchEvent(new WheelEvent('wheel', { ctrlKey: true, deltaY: -120, cancelable: true,"
        " clientX: b.x + b.width / 2, clientY: b.y + 40 }))"
    )
    page.settle()
    left, right = columns_in_view(page)
    assert right - left < end - begin


def test_a_click_pins_the_details_with_times_to_paste(show, real):
    place, document = real
    one = verdict.by_excess(document.aligned)[0]
    page = show(place)
    first_canvas(page)
    # Further on, where the thread on the path is another one than before.
    segments = one.segments
    woken = next(i for i in range(1, len(segments)) if segments[i].tid != segments[i - 1].tid)
    press(page, Keys.HOME, *[Keys.ARROW_RIGHT] * segments[woken].column, Keys.ENTER)
    panel = page.one("#aligned .details")
    assert panel.is_displayed()
    told = {
        name.text: value.text
        for name, value in zip(
            page.all("#aligned .details dt"), page.all("#aligned .details dd"), strict=True
        )
    }
    here, before = segments[woken], segments[woken - 1]
    assert told["thread"] == f"{here.comm} {here.tid}"
    assert told["cpu"] == str(here.cpu)
    # The first change of thread is one going to sleep, the last one a wake.
    assert told["here while this sleeps"] == f"{before.comm} {before.tid}"
    if here.state == "WAIT_CPU":
        assert told["ran instead"] == here.detail
    codes = [code.text for code in page.all("#aligned .details td code")]
    epoch = document.sets.sample.epochs[0]
    assert codes[:2] == [str(here.begin), str(here.end)]
    assert codes[2:4] == [
        f"{moment // 10**9}.{moment % 10**9:09d}" for moment in (here.begin, here.end)
    ]
    whole = datetime.fromtimestamp((here.begin + epoch) // 10**9, UTC)
    assert codes[4] == f"{whole:%Y-%m-%dT%H:%M:%S}.{(here.begin + epoch) % 10**9:09d}Z"
    press(page, Keys.ESCAPE)
    assert not panel.is_displayed()
    back = max(i for i in range(1, len(segments)) if segments[i].tid != segments[i - 1].tid)
    press(page, Keys.HOME, *[Keys.ARROW_RIGHT] * segments[back].column, Keys.ENTER)
    waker = segments[back - 1]
    assert f"woken by{waker.comm} {waker.tid}" in panel.get_attribute("textContent")


def test_times_near_the_end_of_64_bits_keep_every_digit(show, factory, tmp_path):
    document = comparison_document(factory.comparison(columns=20, anomalous=1))
    one = document.aligned[0]
    shift = 2**63 - 1 - one.segments[-1].end
    for segment in one.segments:
        segment.begin += shift
        segment.end += shift
    document.sets.sample.epochs = [0]
    place = tmp_path / "report.html"
    place.write_text(render_html(document), encoding="utf-8")
    page = show(place)
    first_canvas(page)
    last = one.segments[-1]
    gaps = one.columns - 1 - last.column
    press(page, Keys.END, *[Keys.ARROW_LEFT] * gaps, Keys.ENTER)
    codes = [code.text for code in page.all("#aligned .details td code")]
    assert codes[:2] == [str(last.begin), str(2**63 - 1)]
    assert codes[3] == "9223372036.854775807"
    assert "UTC" not in page.text("#aligned .details")


def test_copying_takes_exactly_the_text_or_selects_it(show, real):
    place, _ = real
    page = show(place)
    first_canvas(page)
    press(page, "f")
    wanted = page.one("#aligned .details td code").text
    page.run("navigator.clipboard.writeText = (text) => { window.pasted = text; }")
    click(page, "copy", "#aligned .details td")
    page.until("return window.pasted === arguments[0]", wanted)
    page.run("navigator.clipboard.writeText = () => { throw new Error('not allowed'); }")
    click(page, "copied", "#aligned .details td")
    page.until("return String(getSelection()).trim() === arguments[0]", wanted)


def test_filters_hide_and_count_what_does_not_match(show, real, tmp_path):
    document = copy.deepcopy(real[1])
    ranked = verdict.by_excess(document.aligned)
    # Two threads of one kind, one entry of the filter.
    having = {one.position for one in ranked[:2]}
    for i, one in enumerate(ranked[:2]):
        one.segments[0].comm, one.segments[0].tid = f"reporter-{i}", -1 if i else 15729
    place = tmp_path / "report.html"
    place.write_text(render_html(document), encoding="utf-8")
    page = show(place)
    first_canvas(page)
    total = len(document.aligned)
    said = "#aligned .filters .said"
    assert f"{total} executions listed, 0 hidden" in page.text(said)
    names = [option.text for option in page.all("#filter-thread option")]
    assert "reporter-# (2)" in names
    assert not any("15729" in name for name in names)
    page.one("#filter-thread").send_keys("reporter")
    page.settle()
    shown = {
        int(article.get_attribute("id")[1:])
        for article in page.all(ARTICLE)
        if article.is_displayed()
    }
    assert shown == having
    assert f"{total - len(having)} hidden" in page.text(said)
    click(page, "reset", "#aligned .filters")
    assert all(article.is_displayed() for article in page.all(ARTICLE))
    assert page.one("#filter-thread").get_attribute("value") == ""
    # A thread whose tid is not known has no number.
    second = f"#x{ranked[1].position}"
    page.run("document.querySelector(arguments[0]).scrollIntoView()", second)
    page.until("return document.querySelector(arguments[0] + ' canvas')", second)
    page.one(f"{second} canvas").send_keys(Keys.HOME)
    page.settle()
    assert "(reporter-1, " in page.text(f"{second} .about")


def test_a_filter_by_state_dims_the_other_cells(show, real):
    place, _ = real
    page = show(place)
    first_canvas(page)
    green = page.run(PIXELS)[GREEN]
    page.one("#filter-state").send_keys("IRQ")
    page.settle()
    assert green > 1000
    assert page.run(PIXELS).get(GREEN, 0) < green / 10


def test_links_lead_to_a_finding_on_load_and_later(show, real):
    place, document = real
    ranked = verdict.by_excess(document.aligned)
    one = ranked[1]
    finding = verdict.findings_of(document, one.position)[1]
    page = show(place, f"#execution={quote(one.execution)}&finding={finding.rank}")
    inside = f"#x{one.position}"
    page.until("return document.querySelector(arguments[0] + ' tr.chosen')", inside)
    page.settle()
    at = f"Column {finding.columns[0] + 1} of {one.columns}"
    page.until(
        "return document.querySelector(arguments[0]).textContent.startsWith(arguments[1])",
        f"{inside} .about",
        at,
    )
    assert page.text(f"{inside} tr.chosen .rank") == str(finding.rank)
    top = page.run(f"return document.querySelector('{inside}').getBoundingClientRect().top")
    assert 0 <= top < 300
    other = ranked[0]
    page.run("location.hash = arguments[0]", f"#execution={quote(other.execution)}&finding=1")
    page.until("return document.querySelector(arguments[0] + ' tr.chosen')", f"#x{other.position}")


def test_choosing_a_finding_makes_the_address_a_link(show, real):
    place, document = real
    one = verdict.by_excess(document.aligned)[0]
    page = show(place)
    first_canvas(page)
    page.one(f"#x{one.position} tbody tr:nth-child(2) .rank").click()
    page.settle()
    address = page.driver.current_url
    assert address.endswith(f"#execution={quote(one.execution)}&finding=2")
    page = show(place, "#" + address.partition("#")[2])
    page.until("return document.querySelector('tr.chosen .rank')?.textContent === '2'")


def test_a_click_on_a_mark_in_the_drawing_chooses_its_finding(show, real):
    place, document = real
    one = verdict.by_excess(document.aligned)[0]
    page = show(place)
    canvas = first_canvas(page)
    # The label of the chosen finding is the only box of its colour below the cells.
    x, y = page.run("""
        const drawn = document.querySelector("#aligned canvas");
        const copy = document.createElement("canvas");
        copy.width = drawn.width; copy.height = drawn.height;
        const c = copy.getContext("2d", { willReadFrequently: true });
        c.drawImage(drawn, 0, 0);
        const d = c.getImageData(0, 0, copy.width, copy.height).data;
        for (let y = 0; y < copy.height - 9; y++) for (let x = 0; x < copy.width; x++) {
          const at = (k) => 4 * (k * copy.width + x);
          const red = (k) => d[at(k)] === 213 && d[at(k) + 1] === 94;
          if (red(y) && red(y + 4) && red(y + 9)) return [x, y + 2];
        }
    """)  # fmt: skip
    size = canvas.size
    chain = ActionChains(page.driver)
    chain.move_to_element_with_offset(canvas, x - size["width"] // 2, y - size["height"] // 2)
    chain.click().perform()
    page.settle()
    assert page.driver.current_url.endswith(f"#execution={quote(one.execution)}&finding=1")
    assert page.text("#aligned tr.chosen .rank") == "1"
    assert page.one("#aligned .details").is_displayed()


def test_a_group_of_many_rows_scrolls_inside_its_drawing(show, factory, tmp_path):
    document = comparison_document(factory.comparison(normals=17, samples=1, anomalous=1))
    one = document.aligned[0]
    one.rows = [
        structs.replace(one.rows[i % 17], id=f"n{i}") for i in range(200)
    ] + one.rows[-1:]  # fmt: skip
    place = tmp_path / "report.html"
    place.write_text(render_html(document), encoding="utf-8")
    page = show(place, size=(1400, 900))
    canvas = first_canvas(page)
    assert canvas.size["height"] < 600
    page.run("document.querySelector('#aligned .stage').scrollTop = 100 * 16")
    page.settle()
    at = -canvas.size["height"] // 2 + 35
    ActionChains(page.driver).move_to_element_with_offset(canvas, 0, at).perform()
    page.settle()
    assert "normal n100 " in page.text("#aligned .about")
    press(page, Keys.ARROW_UP, Keys.ARROW_UP)
    assert "normal n98 " in page.text("#aligned .about")
    assert page.run("return document.querySelector('#aligned .stage').scrollTop") == 98 * 16


def test_drawings_are_sharp_on_fine_screens(show, browser, real):
    page = show(real[0])
    browser.resize(page.driver, 1400, 1000, 2)
    canvas = first_canvas(page)
    page.until("return document.querySelector('#aligned canvas').width > 2000")
    assert page.run("return arguments[0].width", canvas) == 2 * canvas.size["width"]


def test_what_is_not_ours_does_not_run(show, driver, real):
    page = show(real[0])
    page.run(
        "const s = document.createElement('script'); s.textContent = 'window.foreign = 1';"
        "document.body.append(s);"
        "const i = document.createElement('img'); i.src = 'http://127.0.0.1:9/x.png';"
        "document.body.append(i);"
    )
    page.until("return window.violations.length >= 2")
    assert page.run("return window.foreign === undefined")
    driver.get_log("browser")
    page.run("window.violations = []")


def test_unknown_links_are_said_and_do_nothing(show, real):
    place, document = real
    page = show(place, "#execution=no%20such%3Cb%3E&finding=1")
    page.until("return !document.querySelector('.complaint').hidden")
    assert "no such<b>" in page.text(".complaint")
    assert page.run("return scrollY") == 0
    one = document.aligned[0]
    page.run("location.hash = arguments[0]", f"#execution={quote(one.execution)}&finding=999")
    page.until("return document.querySelector('.complaint').textContent.includes('999')")


def test_an_unknown_link_is_said_where_one_looks(show, real):
    page = show(real[0], size=(390, 700))
    first_canvas(page)
    page.run("location.hash = '#execution=gone'")
    page.until("return document.querySelector('.complaint').textContent.includes('gone')")
    box = page.run("const b = document.querySelector('.complaint').getBoundingClientRect();"
                   "return [b.top, b.bottom, innerHeight]")  # fmt: skip
    assert 0 <= box[0] < box[1] <= box[2]


def test_names_are_short_where_room_is_and_full_where_one_looks(show, factory, tmp_path):
    document = comparison_document(factory.comparison(columns=20, samples=3, anomalous=2))
    factory.unnamed(document)
    one = verdict.by_excess(document.aligned)[0]
    place = tmp_path / "report.html"
    place.write_text(render_html(document), encoding="utf-8")
    page = show(place)
    first_canvas(page)
    full, tid = one.execution, one.execution.partition("@")[0]
    assert page.text(f"#x{one.position} h3").startswith(f"Execution {tid}@…")
    assert full not in page.text(f"#x{one.position} h3")
    assert full in page.text("#executions")
    options = [option.text for option in page.all("#pick option")][1:]
    assert not any("@3842" in option for option in options)
    assert len(set(options)) == len(document.aligned)
    # A normal row: short in the status line, in full in its details.
    press(page, Keys.ARROW_UP)
    name = one.rows[-2].id
    assert name not in page.text("#aligned .about")
    press(page, Keys.ENTER)
    assert f"execution{name}" in page.text("#aligned .details dl")
    # Links say the full name: a short one may mean another in the next report.
    click(page, "next finding")
    assert f"#execution={quote(full)}" in page.driver.current_url


@pytest.mark.parametrize("width", [1240, 700, 390])
def test_what_decides_is_in_sight_at_every_width(show, real, width):
    page = show(real[0], size=(width, 900))
    seen = page.run(
        "const box = document.querySelector('#states .scroll').getBoundingClientRect();"
        "return [...document.querySelectorAll('#states thead th')].filter((head) => {"
        " const b = head.getBoundingClientRect();"
        " return b.width && b.right <= box.right + 1; }).map((head) => head.textContent)"
    )
    assert {"state", "effect", "flagged", "p"} <= set(seen)
    assert ("drawn" in seen) == (width > 760)
    assert page.one("#states .narrow").is_displayed() == (width <= 760)


def test_the_status_line_has_room_on_a_phone(show, real):
    page = show(real[0], size=(390, 900))
    canvas = first_canvas(page)
    for _ in range(12):
        canvas.send_keys(Keys.ARROW_RIGHT)
        page.settle()
        about = "const e = document.querySelector('#aligned .about');"
        assert page.run(about + "return e.scrollHeight <= e.clientHeight")


def test_executions_without_a_drawing_open_when_chosen(show, factory, tmp_path, monkeypatch):
    monkeypatch.setattr("critpath.report.html.aligned.MOST_DRAWN", 3)
    monkeypatch.setattr(page_data, "MOST_CELLS", 1500)
    document = comparison_document(factory.comparison(samples=9, anomalous=8, columns=40))
    place = tmp_path / "report.html"
    place.write_text(render_html(document), encoding="utf-8")
    page = show(place)
    first_canvas(page)
    assert len(page.all(ARTICLE)) == 3
    assert "5 of those listed are drawn when chosen" in page.text(".filters .said")
    last = verdict.by_excess(document.aligned)[-1]
    page.run(
        "const s = document.querySelector('#pick'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('change'))",
        str(last.position),
    )
    inside = f"#x{last.position}"
    page.until("return document.querySelector(arguments[0] + ' .about')?.textContent", inside)
    assert page.driver.current_url.endswith(f"#execution={last.execution}")
    assert "left out for size" in page.text(f"{inside} figcaption")
    assert page.text(f"{inside} .rank") == "1"
    # The table of executions leads there as well, though its link needs the script.
    other = verdict.by_excess(document.aligned)[-2]
    named = f"#executions span[data-position='{other.position}'] a"
    page.run("document.querySelector(arguments[0]).click()", named)
    page.until(
        "return document.querySelector(arguments[0] + ' .about')?.textContent",
        f"#x{other.position}",
    )


def test_the_theme_is_switched_and_remembered(show, real):
    place, _ = real
    page = show(place)
    page.run("localStorage.removeItem('critpath-theme')")
    page = show(place)
    background = "return getComputedStyle(document.body).backgroundColor"
    before = page.run(background)
    page.one("button.theme").click()
    after = page.run(background)
    assert before != after
    page = show(place)
    assert page.run(background) == after
    page.run("localStorage.removeItem('critpath-theme')")


def test_everything_is_reached_by_keyboard_alone(show, real):
    place, _ = real
    page = show(place)
    first_canvas(page)
    reached = []
    for _ in range(60):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        reached.append(
            page.run(
                "const e = document.activeElement;"
                "return [e.localName, e.id || e.className, e.getAttribute('aria-label') ||"
                " e.labels?.[0]?.textContent || e.textContent.trim()]"
            )
        )
        if reached[-1][1] == "rank":
            break
    assert all(name for _, _, name in reached)
    kinds = {kind for _, kind, _ in reached}
    assert {"theme", "filter-type", "filter-state", "filter-thread", "pick", "rank"} <= kinds
    assert "canvas" in {tag for tag, _, _ in reached}
    ActionChains(page.driver).send_keys(Keys.ENTER).perform()
    page.until("return document.querySelector('#aligned .details dt')")


@pytest.mark.parametrize("width", [1400, 700])
def test_nothing_is_wider_than_the_window(show, real, width):
    page = show(real[0], size=(width, 1000))
    first_canvas(page)
    press(page, "f")
    assert page.run("return document.documentElement.scrollWidth") <= width


def test_printing_shows_the_still_drawing(show, real):
    page = show(real[0])
    first_canvas(page)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert page.one("#aligned .still").is_displayed()
        assert not page.one("#aligned canvas").is_displayed()
        assert not page.one("#aligned .filters").is_displayed()
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_the_script_is_small_and_the_same_every_time(real):
    assert len(assets.script().encode()) <= 40_000
    document = load_document(real[0].with_name("report.json").read_text(encoding="utf-8"))
    assert render_html(document) == real[0].read_text(encoding="utf-8")
