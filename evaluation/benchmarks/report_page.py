"""How fast the HTML report is where there is much to see, measured in the browser.

    python evaluation/benchmarks/report_page.py [--keep DIRECTORY]

Two reports: (a) 500 anomalous executions of 2,000 columns, each aligned with its group;
(b) one alignment of 500 rows and 2,000 columns.  Of each: the size of the file, and what the
browser took until it was loaded: its script, style and layout (DevTools' figures).
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

import numpy as np

from critpath.documents import ComparisonDocument
from critpath.report.document.comparison import comparison_document
from critpath.report.html.as_html import render_html

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path.append(str(TESTS))  # what tests share
SCRIPT_TARGET_S = 2.0


def load(place: Path, name: str) -> ModuleType:
    """Import a module of the tests."""
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def many_executions(factory: ModuleType, executions: int, columns: int) -> ComparisonDocument:
    """Draw (a)."""
    comparison = factory.comparison(
        samples=executions, anomalous=executions, columns=columns, normals=20
    )
    return comparison_document(comparison)


def many_rows(factory: ModuleType, rows: int, columns: int) -> ComparisonDocument:
    """Draw (b)."""
    rng = np.random.default_rng(7)
    normal = [factory.draw(rng, columns, late=False) for _ in range(rows - 1)]
    sample = factory.draw(rng, columns, late=True)
    comparison = factory.comparison(
        samples=1,
        anomalous=1,
        columns=columns,
        normals=rows - 1,
        aligned=(factory.align(0, sample, list(range(rows - 1)), normal),),
    )
    return comparison_document(comparison)


def measure(browser: ModuleType, page: Path, document: ComparisonDocument) -> None:
    """Write a report, open it, and print what that took."""
    begin = time.perf_counter()
    page.write_text(render_html(document), encoding="utf-8")
    print(f"  written in {time.perf_counter() - begin:.1f} s, {page.stat().st_size / 1e6:.1f} MB")
    with browser.chromium() as driver:
        driver.execute_cdp_cmd("Performance.enable", {})
        driver.get(page.as_uri())
        browser.until(driver, "return document.readyState === 'complete'")
        metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    found = {one["name"]: one["value"] for one in metrics}
    script, task = found["ScriptDuration"], found["TaskDuration"]
    layout = found["LayoutDuration"] + found["RecalcStyleDuration"]
    verdict = "holds" if script < SCRIPT_TARGET_S else "MISSED"
    print(
        f"  loaded after {script:.2f} s of script (target {SCRIPT_TARGET_S:g} s: {verdict}), "
        f"{layout:.2f} s of style and layout; all tasks {task:.2f} s, parsing included"
    )


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="where the two reports stay")
    parser.add_argument("--many", type=int, default=500, help="executions of (a), rows of (b)")
    parser.add_argument("--columns", type=int, default=2000)
    given = parser.parse_args()
    many, columns = given.many, given.columns
    factory = load(TESTS / "pure" / "report" / "factory.py", "critpath_report_factory")
    browser = load(TESTS / "process" / "browser" / "chromium.py", "critpath_browser_chromium")
    if browser.missing():
        print(f"left out: {browser.missing()}")
        return
    with tempfile.TemporaryDirectory() as scratch:
        home = given.keep or Path(scratch)
        home.mkdir(parents=True, exist_ok=True)
        print(f"(a) {many} executions of {columns:,} columns, 17 normal rows each")
        measure(browser, home / "executions.html", many_executions(factory, many, columns))
        print(f"(b) one alignment of {many} rows and {columns:,} columns")
        measure(browser, home / "rows.html", many_rows(factory, many, columns))


if __name__ == "__main__":
    main()
