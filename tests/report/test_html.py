"""The page: self-contained, locked down, readable without script, honest about size."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
import shutil
import subprocess

import pytest

from critpath.report import as_html, html_aligned, verdict
from critpath.report.as_html import render_html
from critpath.report.document import comparison_document
from critpath.report.svg_alignment import alignment_svg

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


def scripts_off(page):
    """Return what a reader without scripts gets."""
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_policy_allows_exactly_our_script_and_style(factory):
    page = render_html(comparison_document(factory.comparison()))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    assert rules["default-src"] == "'none'"
    for directive, pattern in (
        ("script-src", r"<script>(.*?)</script>"),
        ("style-src", r"<style>(.*?)</style>"),
    ):
        source = re.findall(pattern, page, re.DOTALL)
        assert len(source) == 1
        digest = base64.b64encode(hashlib.sha256(source[0].encode()).digest()).decode()
        assert rules[directive] == f"'sha256-{digest}'"
    # The policy must be read before anything it could forbid.
    assert page.index("Content-Security-Policy") < min(page.index("<style"), page.index("<script"))


def test_nothing_comes_from_a_network_and_no_markup_carries_code_or_style(factory):
    page = render_html(comparison_document(factory.comparison()))
    assert not re.search(r"https?://|//[a-z]+\.", page)
    body = scripts_off(page)
    assert not re.search(r"<[^>]*\s(?:style|on[a-z]+|src|srcset)=", body)
    assert set(re.findall(r'href="(.)', body)) == {"#"}
    for forbidden in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert forbidden not in page


def test_the_essentials_are_there_without_script(factory):
    document = comparison_document(factory.comparison())
    body = scripts_off(render_html(document))
    assert "2 of 6 executions, +30.0 ms each: waiting for a timer in `worker`" in body
    assert body.count('<svg class="aligned"') == 2
    assert body.count('<svg class="scatter"') == 3
    assert body.count('<svg class="reachability"') == 2
    for state in document["states"]:
        assert f"<code>{state['state']}</code>" in body
    for row in document["executions"]:
        assert f"<td>{row['set']}</td>" in body
    assert "recordings/normal" in body
    assert "lttng-modules 2.13.9" in body
    assert "3 normal executions of the group not aligned." in body


def test_every_target_of_a_link_exists_once(factory):
    page = render_html(comparison_document(factory.comparison(samples=44, anomalous=40, columns=9)))
    anchors = re.findall(r'\sid="([^"]+)"', page)
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(anchors)


def test_pages_without_an_anomaly_say_so(factory):
    ok = render_html(comparison_document(factory.comparison(verdict="ok", anomalous=0)))
    assert "<title>critpath: OK: no anomaly in 6 executions against 20</title>" in ok
    assert "would have shown: +4.10 ms" in ok
    assert 'id="aligned"' not in ok
    nothing = factory.comparison(verdict="inconclusive", anomalous=0, samples=0, normals=0)
    page = render_html(comparison_document(nothing))
    assert "Neither set has an execution." in page
    assert 'class="inconclusive"' in page


def test_a_drawing_has_a_cell_for_every_segment(factory):
    document = comparison_document(factory.comparison(columns=20, normals=3))
    one = document["aligned"][0]
    drawing = alignment_svg(document, one)
    cells = sum(path.count("M") for path in re.findall(r'<path d="([^"]+)" fill="#', drawing))
    expected = sum(sum(s >= 0 for s in row["symbols"]) for row in one["rows"])
    expected += sum(s >= 0 for s in one["statistics"]["normal_symbol"])
    here = sum(d >= 1000 for d in one["rows"][-1]["durations"])
    feet = sum(
        symbols[c] >= 0 and document["symbols"][symbols[c]]["role"] != ""
        for symbols in [row["symbols"] for row in one["rows"]]
        + [one["statistics"]["normal_symbol"]]
        for c in range(one["columns"])
    )
    assert cells == expected + here + feet


def test_what_is_too_much_is_left_out_and_said(factory, monkeypatch):
    document = comparison_document(factory.comparison(samples=8, anomalous=6, columns=30))
    cells = document["aligned"][0]["columns"] * len(document["aligned"][0]["rows"])
    monkeypatch.setattr(html_aligned, "MOST_DRAWN", 4)
    monkeypatch.setattr(html_aligned, "MOST_CELLS", int(cells * 2.5))
    page = render_html(document)
    assert page.count('<svg class="aligned"') == 4
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert len(data["aligned"]) == 2
    assert "2 drawings left out" in page
    assert "2 drawings cannot be zoomed" in page


def test_long_alignments_leave_out_what_is_ordinary_and_say_so(factory):
    document = comparison_document(factory.comparison(columns=300, anomalous=1))
    one = document["aligned"][0]
    page = render_html(document)
    said = re.search(r"leaves out (\d+) columns with nothing out of the ordinary", page)
    assert said
    drawing = alignment_svg(document, one)
    letters = "".join(re.findall(r'font-size="10"[^>]*>([^<]*)<', drawing))
    assert "T" in letters
    usual = one["statistics"]["abnormal_state"]
    assert 0 < int(said[1]) < len(usual) - sum(usual)


def test_what_still_does_not_fit_is_drawn_in_bins_and_said(factory):
    document = comparison_document(factory.comparison(columns=1000, normals=4, anomalous=1))
    document["aligned"][0]["statistics"]["missing"] = [True] * document["aligned"][0]["columns"]
    page = render_html(document)
    step = math.ceil(document["aligned"][0]["columns"] / 480)
    assert step > 1
    assert f"stands for {step} columns" in page
    assert len(alignment_svg(document, document["aligned"][0])) < 200_000


needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no chromium here: the page's script is not run"
)


def browse(page, tmp_path):
    """Return the page's elements after its script ran; fail on any complaint."""
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    run = subprocess.run(
        [
            str(BROWSER),
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *("--disable-component-update", "--disable-sync", "--no-first-run", "--dump-dom"),
            *("--enable-logging=stderr", "--v=0", f"--user-data-dir={tmp_path / 'profile'}"),
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "</html>" not in run.stdout:
        pytest.skip(f"chromium does not run here: {run.stderr[-200:]}")
    assert "CONSOLE" not in run.stderr
    return run.stdout


@needs_browser
def test_a_browser_runs_it_without_a_complaint(factory, tmp_path):
    names = factory.Names(comm="</script><img src=x onerror=alert(1)>", role="\u202e<b>")
    document = comparison_document(factory.comparison(names=names, columns=90))
    seen = browse(render_html(document), tmp_path)
    assert seen.count("<canvas") == 2
    assert seen.count('class="still" hidden=""') == 2
    assert "<img" not in seen
    assert re.search(r'class="about" aria-live="polite">Column \d+ of \d+: here WAIT_TIMER', seen)


_DRIVER = """
{
  const canvas = document.querySelector("canvas"), about = document.querySelector(".about");
  const where = document.querySelector(".tools span"), said = [];
  const note = () => said.push(about.textContent.split(":")[0] + " | " + where.textContent);
  const press = (key, shiftKey = false) => {
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey, cancelable: true }));
    note();
  };
  const click = (text) => {
    [...document.querySelectorAll(".tools button")].find((b) => b.textContent === text).click();
    note();
  };
  note();
  press("Home"); press("ArrowRight"); press("End"); press("f");
  click("all"); press("+"); press("0");
  canvas.dispatchEvent(new WheelEvent("wheel", { ctrlKey: true, deltaY: -1, cancelable: true }));
  note();
  press("0");
  const clientX = canvas.getBoundingClientRect().x + 121;
  canvas.dispatchEvent(new PointerEvent("pointermove", { clientX }));
  note();
  click("true time");
  document.title = JSON.stringify(said);
}
"""


@needs_browser
def test_keys_buttons_and_pointer_move_through_the_alignment(factory, tmp_path, monkeypatch):
    asset = as_html._asset
    monkeypatch.setattr(
        as_html, "_asset", lambda name: asset(name) + (_DRIVER if name == "report.js" else "")
    )
    document = comparison_document(factory.comparison(columns=300, samples=2, anomalous=1))
    columns = document["aligned"][0]["columns"]
    ranked = [f["columns"][0] + 1 for f in verdict.findings_of(document, 0)]
    seen = browse(render_html(document), tmp_path)
    said = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", seen)[1]))
    at = [int(re.match(r"Column (\d+)", line)[1]) for line in said]
    assert at[:5] == [ranked[0], 1, 2, columns, ranked[0]]
    views = [re.search(r"columns (\d+) to (\d+)", line) for line in said[:-1]]
    width = [int(view[2]) - int(view[1]) + 1 for view in views]
    whole, zoomed, again, wheeled, back = width[5:10]
    assert whole == again == back == columns
    assert columns * 0.4 < zoomed < columns * 0.6
    assert columns * 0.7 < wheeled < columns * 0.9
    assert at[10] == 1
    assert re.search(r"0 ns to \d+ ms of \d+ ms", said[-1])
