"""Faults under a budget: is the first cause that of the whole recording?

``python thinned.py [--kinds a,b] [--strength 2] [--repetitions N] [--cuts N]``:
faults are recorded whole, as by `faults.py`, and compared; then gaps are cut into both recordings
and they are compared again.  Gaps are random ones, or what a coin by execution leaves: everything
but the executions that it chose.  One row for each cut goes to stdout; the last line sums up, with
the verdicts of healthy pairs.  Needs root, tracefs and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "pure" / "timeline"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "pure" / "flow"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench import Bench, FirstCause, RecordingError, bench, extract, first_cause, why_not
from faults import EXECUTIONS, KINDS, RIVAL_MS, interval
from gap_cuts import draw_gaps
from test_gaps import hidden, with_gaps

from critpath import flow
from critpath.errors import CritpathError
from critpath.model.gaps import BASE, Gaps, make_gaps
from critpath.read.traces import read_events

ROUNDS = 12
CHOSEN = 0.5  # of executions
HIDDEN = 0.3  # of the time, by random gaps
EDGE = 50_000  # ns before and after what was chosen
_OTHER = 4


def choose(recording: Path, rng: np.random.Generator) -> Gaps:
    """Return the gaps that are left where a coin chose executions."""
    found, events = extract(recording).executions, read_events(recording, ())
    taken = rng.random(len(found)) < CHOSEN
    spans = sorted(
        zip((found.begin[taken] - EDGE).tolist(), (found.end[taken] + EDGE).tolist(), strict=True)
    )
    rows, last = [], events.begin
    for begin, end in [*spans, (events.end, events.end)]:
        if begin > last:
            rows.append((last, last, begin, begin, BASE, _OTHER, 0))
        last = max(last, end)
    return hidden(make_gaps(rows))


def cut(recording: Path, place: Path, how: str, seed: int) -> Path:
    """Copy a recording with gaps in it."""
    rng = np.random.default_rng(seed)
    if how == "chosen":
        gaps = choose(recording, rng)
    else:
        events = read_events(recording, ())
        count = max(2, len(extract(recording)) // 4)
        gaps = hidden(draw_gaps(events, rng, count, share=HIDDEN))
    about = json.loads((recording / "critpath.json").read_text())
    gaps = within(gaps, about["begin"], about["end"])
    about |= {"format": "critpath/recording/2", "gaps": "gaps.jsonl"}
    with_gaps(recording, place, gaps)
    (place / "critpath.json").write_text(json.dumps(about))
    return place


def within(gaps: Gaps, begin: int, end: int) -> Gaps:
    """Cut gaps off where the recording begins and ends."""
    times = [np.clip(of, begin, end) for of in (gaps.begin, gaps.closed, gaps.opening, gaps.end)]
    kept = times[3] > times[0]
    return Gaps(*(of[kept] for of in (*times, gaps.layer, gaps.why, gaps.host)))


def compare(normal: Path, sample: Path) -> tuple[str, FirstCause, int]:
    """Return the verdict, the first cause, and how many executions there were."""
    sets = extract(normal), extract(sample)
    found = flow.compare(*sets)
    return found.verdict, first_cause(found), sum(map(len, sets))


def same(one: FirstCause, other: FirstCause) -> bool:
    """Tell whether two causes are one: state, thread and what the detail begins with."""
    return (one.state, one.thread, one.detail.split(" (")[0]) == (
        *(other.state, other.thread),
        other.detail.split(" (")[0],
    )


def main() -> int:
    """Print a row for each cut, and what share agrees."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", default=",".join(k for k in KINDS if k != "quota"))
    parser.add_argument("--strength", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--cuts", type=int, default=2)
    given = parser.parse_args()
    if wrong := why_not():
        print(wrong, file=sys.stderr)
        return 1
    agree = of = alarms = healthy = 0
    with bench() as built:
        for number, name in enumerate(given.kinds.split(",")):
            for repetition in range(given.repetitions):
                for fault in (True, False):
                    try:
                        rows = list(one_pair(built, name, fault, 100 * number + repetition, given))
                    except (RecordingError, CritpathError, OSError) as error:
                        print(f"{name}: {error}", flush=True)
                        continue
                    for how, verdict, right, count in rows:
                        what = "fault" if fault else "healthy"
                        print(f"{name} {what} {how}: {verdict}, {right}, {count}", flush=True)
                        of += fault
                        agree += fault and right
                        healthy += not fault
                        alarms += not fault and verdict == "anomaly"
    low, high = interval(agree, max(of, 1))
    print(f"first cause as of the whole recording: {agree} of {of} ({low:.3f} to {high:.3f})")
    print(f"alarms of healthy pairs: {alarms} of {healthy}")
    return 0


def one_pair(built: Bench, name: str, fault: bool, seed: int, given: argparse.Namespace):
    """Record a pair, and yield how each cut compares with the whole of it."""
    kind = KINDS[name]
    common = {"types": kind.types, "executions": EXECUTIONS}
    if kind.rival:
        common["rival"] = RIVAL_MS[given.strength]
    faulty = {"fault": name, "strength": given.strength} if fault else {}
    versions = ({**common, "seed": 2 * seed}, {**common, "seed": 2 * seed + 1, **faulty})
    normal, sample = built.record(versions, ROUNDS)
    verdict, whole, _ = compare(normal, sample)
    if fault and (verdict != "anomaly" or not kind.is_right(whole)):
        print(f"{name}: whole recording: {verdict}, {whole.state}: not counted", flush=True)
        return
    for how in ("chosen", "random"):
        for number in range(given.cuts):
            places = [
                cut(one, one.parent / f"cut-{how}-{number}-{side}", how, 1000 * seed + number)
                for side, one in enumerate((normal, sample))
            ]
            verdict, cause, count = compare(*places)
            yield how, verdict, same(cause, whole), count


if __name__ == "__main__":
    sys.exit(main())
