"""How fast the HTML report is where there is much to see, measured in the browser.

    python evaluation/benchmarks/report_page.py [--keep DIRECTORY]

Two reports: (a) 500 anomalous executions of 2,000 columns, each aligned with its group;
(b) one alignment of 500 rows and 2,000 columns.  Of each: the size of the file, the time
its script took until the page was usable (DevTools' ScriptDuration, and with style and
layout), and what panning for two seconds costs: the time between frames, and of it the
time of our own callbacks.  Frames on a machine without a graphics processor are
rasterized by the processor too: the second figure is what our code can answer for.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from critpath.documents import ComparisonDocument
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html

TESTS = Path(__file__).resolve().parents[2] / "tests"
EXECUTIONS, COLUMNS, ROWS = 500, 2000, 500
SCRIPT_TARGET_S, FRAME_TARGET_MS = 2.0, 50.0

# Before any script of the page: how long each of its frames' callbacks takes.
_WATCH = """
window.ownFrames = [];
const frame = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (callback) => frame((now) => {
  const begin = performance.now();
  callback(now);
  window.ownFrames.push(performance.now() - begin);
});
window.plainFrame = frame;
"""

# Drags to and fro for two seconds, one move per frame, as a hand does.
_PAN = """
const done = arguments[arguments.length - 1], how = arguments[0];
const article = document.querySelector("article:not([hidden]) canvas").closest("article");
const canvas = article.querySelector("canvas");
const buttons = [...article.querySelectorAll(".tools button")];
const press = (name) => buttons.find((b) => b.textContent === name).click();
if (how === "time") press("true time");
if (how !== "near") { press("all"); press("+"); }
article.scrollIntoView();
const box = canvas.getBoundingClientRect(), middle = box.x + box.width / 2;
const point = (type, x) => canvas.dispatchEvent(new PointerEvent(type, {
  pointerId: 1, button: 0, clientX: x, clientY: box.y + 60, bubbles: true,
}));
canvas.setPointerCapture = () => {};
const gaps = [];
let begun = null, last = null;
point("pointerdown", middle);
const step = (now) => {
  begun ??= now;
  if (last !== null) gaps.push(now - last);
  last = now;
  if (now - begun > 2000) {
    point("pointerup", middle);
    const where = article.querySelector(".where").textContent;
    done({ gaps, own: window.ownFrames.slice(-gaps.length), where });
    return;
  }
  const swing = Math.sin((now - begun) / 400);
  if (how === "rows") canvas.parentElement.scrollTop = (1 + swing) * 3000;
  else point("pointermove", middle + swing * box.width * 0.4);
  window.plainFrame(step);
};
setTimeout(() => { window.ownFrames.length = 0; window.plainFrame(step); }, 300);
"""

_ALL_ROWS_SEEN = """
const stage = document.querySelector("article:not([hidden]) .stage");
return stage.scrollHeight <= stage.clientHeight;
"""


def load(place: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def many_executions(factory: ModuleType) -> ComparisonDocument:
    comparison = factory.comparison(
        samples=EXECUTIONS, anomalous=EXECUTIONS, columns=COLUMNS, normals=20
    )
    return comparison_document(comparison)


def many_rows(factory: ModuleType) -> ComparisonDocument:
    rng = np.random.default_rng(7)
    normal = [factory.draw(rng, COLUMNS, late=False) for _ in range(ROWS - 1)]
    sample = factory.draw(rng, COLUMNS, late=True)
    comparison = factory.comparison(
        samples=1,
        anomalous=1,
        columns=COLUMNS,
        normals=ROWS - 1,
        aligned=(factory.align(0, sample, list(range(ROWS - 1)), normal),),
    )
    return comparison_document(comparison)


@contextmanager
def opened(browser: ModuleType, page: Path) -> Iterator[Any]:
    with browser.chromium() as driver:
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
        driver.execute_cdp_cmd("Performance.enable", {})
        driver.get(page.as_uri())
        # Usable: the first drawing, of which the page's begin may not show anything, is there.
        driver.execute_script("document.querySelector('article').scrollIntoView()")
        browser.until(driver, "return document.querySelector('article .about')?.textContent")
        yield driver


def metrics(driver: Any) -> dict[str, float]:
    found = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {one["name"]: one["value"] for one in found}


def told(values: list[float]) -> str:
    ranked = sorted(values)
    p95 = ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))]
    return f"median {statistics.median(ranked):.1f}, p95 {p95:.1f}, max {ranked[-1]:.1f} ms"


def measure(browser: ModuleType, name: str, document: ComparisonDocument, home: Path) -> None:
    begin = time.perf_counter()
    page = home / f"{name}.html"
    page.write_text(render_html(document), encoding="utf-8")
    print(f"  written in {time.perf_counter() - begin:.1f} s, {page.stat().st_size / 1e6:.1f} MB")
    with opened(browser, page) as driver:
        found = metrics(driver)
        script, task = found["ScriptDuration"], found["TaskDuration"]
        layout = found["LayoutDuration"] + found["RecalcStyleDuration"]
        verdict = "holds" if script < SCRIPT_TARGET_S else "MISSED"
        print(
            f"  usable after {script:.2f} s of script (target {SCRIPT_TARGET_S:g} s: {verdict}), "
            f"{layout:.2f} s of style and layout; all tasks {task:.2f} s, parsing included"
        )
        for how, what in (
            ("near", "panning near a finding"),
            ("half", "panning with half of all columns in view"),
            ("rows", "scrolling through the rows"),
            ("time", "panning on true time"),
        ):
            if how == "rows" and driver.execute_script(_ALL_ROWS_SEEN):
                continue
            seen = driver.execute_async_script(_PAN, how)
            print(f"  {what} ({seen['where']}): {len(seen['gaps'])} frames")
            print(f"    between frames: {told(seen['gaps'])}")
            slow = sum(ms > FRAME_TARGET_MS for ms in seen["own"])
            verdict = "holds" if not slow else f"MISSED {slow} times"
            print(
                f"    our own part: {told(seen['own'])} (target {FRAME_TARGET_MS:g} ms: {verdict})"
            )
            slow = sum(ms > FRAME_TARGET_MS for ms in seen["gaps"])
            print(f"    frames over {FRAME_TARGET_MS:g} ms: {slow} of {len(seen['gaps'])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="where the two reports stay")
    kept = parser.parse_args().keep
    factory = load(TESTS / "pure" / "report" / "factory.py", "critpath_report_factory")
    browser = load(TESTS / "process" / "browser" / "chromium.py", "critpath_browser_chromium")
    if browser.missing():
        print(f"left out: {browser.missing()}")
        return
    with tempfile.TemporaryDirectory() as scratch:
        home = kept or Path(scratch)
        home.mkdir(parents=True, exist_ok=True)
        print(f"(a) {EXECUTIONS} executions of {COLUMNS:,} columns, 17 normal rows each")
        measure(browser, "executions", many_executions(factory), home)
        print(f"(b) one alignment of {ROWS} rows and {COLUMNS:,} columns")
        measure(browser, "rows", many_rows(factory), home)


if __name__ == "__main__":
    main()
