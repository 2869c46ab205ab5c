"""How long a frame of a window's page takes, of 100,000 intervals that are all in view.

    python evaluation/benchmarks/view_frames.py [--intervals 100000] [--threads 120] [--frames 200]

Threads that run, wait for a CPU and sleep by turns, on eight CPUs: the page of ``critpath view``
of them, in Debian's chromium without a window. Frames are those that the wheel and the keys ask
for: zooming in and out again, moving, all rows or the first. A frame is what the page's script
takes, from the browser's call to its return; the browser paints it besides.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from critpath.model import State, Timelines, Workers
from critpath.report.view import render_window

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "process" / "browser"))
import chromium

_CPUS, _LENGTH = 8, 1_000_000_000
# Notes how long each call of the browser for a frame takes.
_TIMED = """
window.took = [];
window.ask = requestAnimationFrame;
window.requestAnimationFrame = (draw) => window.ask((time) => {
  const began = performance.now();
  draw(time);
  window.took.push(performance.now() - began);
});
"""
_USE = """
const [key, times, done] = arguments;
const rows = document.querySelector("#rows");
rows.focus();
let left = times;
const step = () => {
  if (!left--) return done(window.took.splice(0));
  const at = {bubbles: true, cancelable: true, clientX: 900, clientY: 400};
  if (key === "wheel") {
    const by = left % 40 < 20 ? 60 : -60;
    rows.dispatchEvent(new WheelEvent("wheel", {...at, ctrlKey: true, deltaY: by}));
  } else if (key === "move") {
    rows.dispatchEvent(new PointerEvent("pointermove", at));
  } else dispatchEvent(new KeyboardEvent("keydown", {key: left % 2 ? "ArrowLeft" : "ArrowRight"}));
  window.ask(step);
};
window.took.splice(0);
step();
"""


def make_timelines(intervals: int, threads: int) -> Timelines:
    """Return threads that do something else every so often, and who had the CPUs."""
    chance = np.random.default_rng(42)
    each = intervals // threads
    begin, end, state = [], [], []
    for _ in range(threads):
        cuts = np.sort(chance.choice(_LENGTH - 1, each - 1, replace=False)) + 1
        begin.append(np.append(0, cuts))
        end.append(np.append(cuts, _LENGTH))
        state.append(np.resize([State.WAIT_CPU, State.RUN, State.WAIT_TIMER, State.RUN], each))
    rows = threads * each
    slots = max(rows // _CPUS, 1)
    cuts = np.linspace(0, _LENGTH, slots + 1).astype(np.int64)
    none = np.full(rows, -1, np.int64)
    cpu_rows = slots * _CPUS
    worker = np.arange(threads)
    return Timelines(
        workers=Workers(
            host=np.zeros(threads, np.int64),
            tid=1000 + worker,
            pid=1000 + worker,
            name=np.ones(threads, np.int32),
            first=np.zeros(threads, np.int64),
            last=np.full(threads, _LENGTH),
            parent=np.full(threads, -1),
            born=np.full(threads, -1),
            idle_cpu=np.full(threads, -1, np.int32),
        ),
        start=np.arange(threads + 1) * each,
        begin=np.concatenate(begin),
        end=np.concatenate(end),
        state=np.concatenate(state).astype(np.uint8),
        detail=np.zeros(rows, np.int32),
        cpu=chance.integers(0, _CPUS, rows).astype(np.int32),
        waker=chance.integers(0, threads, rows).astype(np.int32),
        woken=none,
        stolen_start=np.zeros(_CPUS + 1, np.int64),
        stolen_begin=none[:0],
        stolen_end=none[:0],
        stolen_state=np.zeros(0, np.uint8),
        stolen_detail=np.zeros(0, np.int32),
        ran_start=np.arange(_CPUS + 1) * slots,
        ran_begin=np.tile(cuts[:-1], _CPUS),
        ran_end=np.tile(cuts[1:], _CPUS),
        ran_worker=chance.integers(0, threads, cpu_rows).astype(np.int32),
        processors=tuple((0, cpu) for cpu in range(_CPUS)),
        strings=("", "worker"),
    )


def measure(driver: Any, place: Path, frames: int) -> None:
    """Open the page and print a row for each way of using it."""
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _TIMED})
    driver.get(place.as_uri())
    chromium.until(driver, "return document.documentElement.dataset.ready")
    heads = ("frames", "p50 ms", "p95 ms", "worst ms", "CPU ms")
    print(f"{'rows':8} {'use':8}", *(f"{head:>8}" for head in heads))
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    for rows in ("first", "all"):
        if rows == "all":
            driver.execute_script("dispatchEvent(new KeyboardEvent('keydown', {key: 'x'}))")
        for use in ("wheel", "keys", "move"):
            driver.execute_script(
                "document.querySelector('#rows').focus();document.querySelector('#whole').click()"
            )
            before = script_seconds(driver)
            took = np.array(driver.execute_async_script(_USE, use, frames))
            spent = (script_seconds(driver) - before) * 1e3 / frames
            took = took[took > 0]
            figures = (*np.percentile(took, [50, 95]), took.max(), spent)
            print(f"{rows:8} {use:8} {len(took):8}", *(f"{figure:8.2f}" for figure in figures))


def script_seconds(driver: Any) -> float:
    """Return how long the page's script has had a processor."""
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "ScriptDuration"))


def main() -> int:
    """Print the sizes and the times of frames."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--intervals", type=int, default=100_000, help="of all threads and CPUs")
    parser.add_argument("--threads", type=int, default=120)
    parser.add_argument("--frames", type=int, default=200, help="of each use")
    given = parser.parse_args()
    if chromium.missing():
        print(chromium.missing())
        return 0
    lines = make_timelines(given.intervals // 2, given.threads)
    page, left = render_window(
        *(lines,), span=(0, _LENGTH), hosts=("",), path=None, recording="made", command="made"
    )
    drawn = len(lines.begin) + len(lines.ran_begin)
    print(f"{drawn:,} intervals, {given.threads} threads: {len(page) / 1e6:.1f} MB {left}")
    with tempfile.TemporaryDirectory() as home:
        place = Path(home) / "view.html"
        place.write_text(page, encoding="utf-8")
        with chromium.chromium() as driver:
            measure(driver, place, given.frames)
    return 0


if __name__ == "__main__":
    sys.exit(main())
