"""How far what is stated of loops is off: ``python calibrated.py DIR [DIR ...]``.

Judges recordings of `run.py` (``DIR/CASE/CONNECTIONS``) of which one loop asks for several requests
at once: with their labels, and as if they had none.  ``--simulated N``: also loops of N requests
that are simulated.  A line for each tenth: how many calls were said to be that probable, what was
stated of them, and how many were right, as critpath states it, and cross-validated: with constants
(`CHAINS.odds`) that are fitted to the other programs alone.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/pure/requests"))

import judge
from cases import CASES, PORTS
from results import write_results

from critpath.requests import assign
from critpath.requests.loops import Loop, States, draw_states
from critpath.requests.owners import find_owners
from critpath.schema.parameters.requests import CHAINS

CONNECTIONS: Final = (4, 8, 16)


@dataclass(frozen=True)
class Judged:
    """Calls of one recording: in which share of states each owner is, and whether it is right."""

    program: str
    name: str
    states: States
    right: np.ndarray


def main() -> None:
    """Judge, and print the tables."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("places", nargs="*", type=Path)
    parser.add_argument("--simulated", type=int, default=0, metavar="REQUESTS")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: list[Judged] = []
    for one in (*judge_recordings(given.places), *simulate(given.simulated)):
        found.append(one)
        print(f"{one.name}: apart {one.states.apart:.2f}", flush=True)
    if not found:
        sys.exit("no loop that works for several requests at once is there")
    print("\n| loop | calls | right of all | named | right of these |\n|---|---:|---:|---:|---:|")
    for one in found:
        named = one.right[one.states.judge() >= CHAINS.told]
        cells = len(one.right), one.right.mean(), len(named) / len(one.right)
        right = f"{named.mean():.2f}" if len(named) else "–"
        print("| {} | {:,} | {:.2f} | {:.2f} | {} |".format(one.name, *cells, right))
    rows = {"said": [one.states.judge() for one in found], "stated": cross_validate(found)}
    document = {title: list_tenths(of, [one.right for one in found]) for title, of in rows.items()}
    for title, tenths in document.items():
        # What is said is by the constants of today; what is stated by those of other programs.
        print(f"\n| tenth | calls | {title} | right |\n|---|---:|---:|---:|")
        for tenth, (count, stated, right) in tenths.items():
            print(f"| {tenth} | {count:,} | {stated:.2f} | {right:.2f} |")
    if given.json:
        write_results(given.json, document)


def judge_recordings(places: Sequence[Path]) -> Iterator[Judged]:
    """Yield what is found of each recording, with its labels and without."""
    for place in places:
        for recorded in sorted(place.glob("*/*/recording")):
            name = recorded.parent.parent.name
            if name not in CASES:
                continue
            title = f"{name} {recorded.parent.name}"
            labels = [*recorded.glob("trace/**/labels_*")]
            if labels:
                yield from judge_recording(name, f"{title} labels", recorded.parent, recorded)
            with tempfile.TemporaryDirectory(dir="/var/tmp") as other:
                plain = Path(other) / "recording"
                shutil.copytree(recorded, plain, ignore=shutil.ignore_patterns("labels_*"))
                yield from judge_recording(name, title, recorded.parent, plain)


def judge_recording(name: str, title: str, logs: Path, recording: Path) -> Iterator[Judged]:
    """Yield what is found of the loops of one recording."""
    asked = judge.read_client(logs / "client")
    handled = judge.read_handlers(logs / "handlers", asked)
    loops: list[tuple[assign.Process, Loop, States]] = []
    port = served_port(recording)
    with recorded_loops(loops, port):
        found = judge.find_requests(recording)
    requests, subs, ends = found.requests, found.subrequests, found.endpoints
    rows = np.flatnonzero(ends.local_port[requests.endpoint] == port)
    remote = ends.remote_port[requests.endpoint[rows]]
    at = judge.Rows(rows, remote, requests.begin_ns, requests.end_ns)
    row_of = {one.number: row for one in asked if (row := at.match(one)) >= 0}
    made = np.flatnonzero(subs.connects == 0)
    local = ends.local_port[subs.endpoint[made]]
    by = judge.Rows(made, local, subs.begin_ns, subs.end_ns)
    truth = np.full(len(subs), -1)
    for number, of in handled.items():
        for one in of.asked:
            if (row := by.match(one)) >= 0:
                truth[row] = row_of.get(number, -1)
    yield from (
        judged
        for process, *drawn in loops
        if (judged := judge_loop(name, title, process, truth[process.asked], *drawn))
    )


def served_port(recording: Path) -> int:
    """Return at which port the server of a recording was asked."""
    command = json.loads((recording / "critpath.json").read_text())["command"]
    known = re.search(r"client (\d+) ", " ".join(command))
    return int(known[1]) if known else PORTS["served"]


class recorded_loops:  # noqa: N801 - as contextlib's
    """Keep what is drawn of loops meanwhile: of a recording of those that serve at a port."""

    def __init__(self, to: list[Any], port: int = 0) -> None:
        self._to, self._process, self._port = to, None, port
        self._before: Mapping[str, Callable[..., Any]] = {
            name: getattr(assign, name) for name in ("read_loop", "draw_owners", "_follow_loop")
        }

    def __enter__(self) -> None:
        def read(process: assign.Process) -> Loop | None:
            self._process = process
            return self._before["read_loop"](process)

        def draw(loop: Loop, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            states = draw_states(loop, others)
            self._to.append((self._process, loop, states))
            return states.owner, states.judge()

        def follow(table: assign.Tables, number: int, followed: Any) -> Any:
            of = table.requests.endpoint[table.of_request == number]
            if self._port and self._port not in table.endpoints.local_port[of]:
                return None
            return self._before["_follow_loop"](table, number, followed)

        assign.read_loop, assign.draw_owners, assign._follow_loop = read, draw, follow

    def __exit__(self, *_: object) -> None:
        for name, of in self._before.items():
            setattr(assign, name, of)


def judge_loop(
    program: str,
    name: str,
    process: assign.Process,
    truth: np.ndarray,
    loop: Loop,
    states: States,
) -> Judged | None:
    """Return which calls of a loop are right; of those whose truth is known and no rule told."""
    own = np.minimum(np.searchsorted(process.requests, truth), len(process.requests) - 1)
    known = np.flatnonzero((truth >= 0) & (process.requests[own] == truth) & (loop.use >= 0))
    of_call = np.full(len(loop.calls), -1)
    of_call[loop.use[known]] = own[known]
    some = (of_call >= 0) & (states.owner >= 0) & (loop.sure < 0)
    if not some.any():
        return None
    own, share, apart = states
    return Judged(program, name, States(own[some], share[some], apart), (own == of_call)[some])


def simulate(requests: int) -> Iterator[Judged]:
    """Yield what is found of simulated loops (tests/pure/requests/simulate.py)."""
    if not requests:
        return
    drawing, simulated = map(importlib.import_module, ("drawing", "simulate"))
    for name in (name for name in simulated.CLASSES if "loop" in name):
        for number in CONNECTIONS:
            world = simulated.simulate(name, number, requests, number)
            told = simulated.arguments(world, drawing)
            loops: list[Any] = []
            with recorded_loops(loops):
                assign.assign("queues", *told[:4], find_owners(*told), {})
            for process, *drawn in loops:
                truth = world.owner[process.asked]
                judged = judge_loop(name, f"{name} {number}", process, truth, *drawn)
                if judged:
                    yield judged


def cross_validate(found: Sequence[Judged]) -> list[np.ndarray]:
    """Return how probable each is by constants that the other programs give."""
    made = {}
    for program in sorted({one.program for one in found}):
        made[program] = fit([one for one in found if one.program != program])
        print(f"without {program}: {np.round(made[program], 2)}")
    print(f"of all: {np.round(fit(found), 2)}")
    return [
        np.where(_is_told(one), 1 / (1 + np.exp(-one.states.weigh() @ made[one.program])), 0.0)
        for one in found
    ]


def _is_told(one: Judged) -> bool:
    return one.states.apart <= CHAINS.apart


def fit(found: Sequence[Judged]) -> np.ndarray:
    """Return the constants that make what is right most probable: logistic regression.

    Of loops of which something is said at all.
    """
    found = [one for one in found if _is_told(one)]
    if not found:
        return np.array(CHAINS.odds)
    table = np.concatenate([one.states.weigh() for one in found])
    right = np.concatenate([one.right for one in found])
    weight = np.concatenate([np.full(len(one.right), len(one.right) ** -0.5) for one in found])
    made, size = np.array(CHAINS.odds), 1.0

    def lose(of: np.ndarray) -> float:
        log = np.logaddexp(0, table @ of) - right * (table @ of)
        return float((weight * log).sum() + of @ of / 100)

    for _ in range(100):
        chance = 1 / (1 + np.exp(-np.clip(table @ made, -30, 30)))
        slope = table.T @ (weight * (right - chance)) - made / 50
        curve = (table * (weight * chance * (1 - chance))[:, np.newaxis]).T @ table
        step = np.linalg.solve(curve + np.eye(len(made)) / 50, slope)
        while size > 1e-6 and lose(made + size * step) > lose(made):
            size /= 2
        made, size = made + size * step, min(2 * size, 1.0)
    return made


def list_tenths(
    stated: Sequence[np.ndarray], right: Sequence[np.ndarray]
) -> dict[str, tuple[int, float, float]]:
    """Return of each tenth how many calls, what is stated, and what is right."""
    said, true = np.concatenate(stated), np.concatenate(right)
    tenth = np.where(said > 0, np.minimum((said * 10).astype(int), 9), -1)
    parts = [("likely", said >= 0.9)] + [(f".{of}", tenth == of) for of in range(10)]
    parts += [("not said", said <= 0)]
    return {
        name: (int(of.sum()), float(said[of].mean()), float(true[of].mean()))
        for name, of in parts
        if of.any()
    }


if __name__ == "__main__":
    main()
