"""Requests beside gaps against those of the whole recording: ``python gaps.py [RECORDING ...]``.

Random gaps are cut into what was recorded, as a recorder makes them: of what is recorded always
(forks, exits, lists of what there was) nothing is lost.  Of every request that avoids all gaps its
service, owner, sub-requests and path should be those that it has in the whole recording.  What is
found and does not avoid them (``beyond``) is a mistake, too.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from critpath.errors import CritpathError
from critpath.flow import extract_recording
from critpath.model import STATES, Events, ExtractSettings, Kind, PathSet, State
from critpath.model.gaps import BASE, Gaps, make_gaps
from critpath.model.joining import join_sets
from critpath.read import CALL_EVENTS, KERNEL_EVENTS, SOCKET_EVENTS
from critpath.read.recording import Recording

FIXTURES: Final = Path(__file__).resolve().parents[2] / "fixtures"
_ALWAYS: Final = (
    *(Kind.OTHER, Kind.FORK, Kind.EXEC, Kind.EXIT, Kind.STATEDUMP, Kind.SOCKET_STATEDUMP),
)

Key = tuple[int, int, int, int]
BUDGET = 0


class Cut(Recording):
    """A recording that is read once, and of which parts are then left out."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._every = super().read((*KERNEL_EVENTS, *SOCKET_EVENTS, *CALL_EVENTS))
        self.gaps = Gaps()

    @property
    def span(self) -> tuple[int, int]:
        """Begin and end."""
        return self._every.begin, self._every.end

    def read(self, wanted: object, reader: str = "auto") -> Events:  # noqa: ARG002 - all of it
        """Return what the gaps leave of all events."""
        return cut_events(self._every, self.gaps) if len(self.gaps) else self._every

    def find_gaps(self, hosts: object, clocks: object) -> Gaps:  # noqa: ARG002 - one host
        """Return the gaps."""
        return self.gaps

    def find(self, gaps: Gaps, text: str = "requests", **settings: object) -> PathSet:
        """Return the requests' paths with some gaps."""
        self.gaps = gaps
        asked = ExtractSettings(text, "babeltrace2", bystanders=True, **settings)
        return join_sets([*extract_recording(self, asked)])


def cut_events(events: Events, gaps: Gaps) -> Events:
    """Take out of the events of a recording what its gaps leave out."""
    kinds = np.array([c.kind for c in events.classes] or [0])[events.event_class]
    gone = np.zeros(len(events), np.bool_)
    for closed, opening in zip(gaps.closed.tolist(), gaps.opening.tolist(), strict=True):
        gone |= (events.timestamp > closed) & (events.timestamp < opening)
    kept = np.flatnonzero(~gone | np.isin(kinds, _ALWAYS))
    names = ("timestamp", "cpu", "event_class", "offset")
    return replace(events, **{name: getattr(events, name)[kept] for name in names}, gaps=gaps)


def draw(rng: np.random.Generator, span: tuple[int, int], count: int, share: float) -> Gaps:
    """Return gaps of `base`, of any length, that take about a share of the time."""
    begin, end = span
    marks = np.sort(rng.integers(begin, end, count))
    rows, last = [], begin
    for at in marks.tolist():
        low = max(at, last)
        high = min(low + int((end - begin) * share / count * rng.exponential()) + 2_000, end)
        edges = np.sort(rng.integers(0, min(20_000, high - low) + 1, 2)) // 2
        if high > low:
            rows.append((low, low + int(edges[0]), high - int(edges[1]), high, BASE, BUDGET, 0))
            last = high
    return make_gaps(rows)


def windows(rng: np.random.Generator, span: tuple[int, int], open_ns: int, share: float) -> Gaps:
    """Return gaps as of a recorder that opens windows now and then, and a share of the time."""
    begin, end = span
    rows, at = [], begin
    while at < end:
        closed = min(at + int(open_ns * (1 / share - 1) * rng.exponential()) + 10_000, end)
        rows.append((at, at, closed - 2_000, closed, BASE, BUDGET, 0))
        at = closed + int(open_ns * (0.5 + rng.random()))
    return make_gaps(rows)


def rows_of(found: PathSet) -> dict[Key, tuple[object, ...]]:
    """Return what is known of each request: label, owner, what it asks, and its path."""
    of, paths = found.executions, found.paths
    assert of.requests is not None
    key = list(
        zip(of.begin.tolist(), of.end.tolist(), of.tid.tolist(), of.host.tolist(), strict=True)
    )
    by_id = dict(zip(of.id, key, strict=True))
    running = np.isin(paths.state, [int(s) for s in State if s < State.WAIT_TASK and s])
    columns = [
        *(paths.begin.tolist(), paths.end.tolist(), [STATES[s] for s in paths.state]),
        *(paths.tid.tolist(), np.where(running, paths.cpu, -1).tolist()),
    ]
    rows = list(zip(*columns, strict=True))
    facts = of.requests
    return {
        one: (
            *(facts.service[i], facts.asks[i], by_id.get(facts.parent[i], facts.parent[i] != "")),
            *(int(facts.asked_ns[i]), int(facts.queued_ns[i])),
            join_alike(rows[paths.start[i] : paths.start[i + 1]]),
        )
        for i, one in enumerate(key)
    }


def join_alike(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return the rows of a path with those joined that only where a thread was seen parts."""
    joined: list[tuple[object, ...]] = []
    for row in rows:
        if joined and joined[-1][2:] == row[2:] and row[2] in {"SHARED", "QUEUED"}:
            joined[-1] = (joined[-1][0], *row[1:])
        else:
            joined.append(row)
    return joined


@dataclass
class Held:
    """How what was found with gaps compares with the whole recording."""

    clear: int = 0
    found: int = 0
    same: int = 0
    beyond: int = 0  # found, though in the whole recording it is none that avoids all gaps
    other: tuple[Key, ...] = ()


WHAT = ("service", "asks", "owner", "asked", "queued", "path")


def hold(
    whole: dict[Key, tuple[object, ...]], found: dict[Key, tuple[object, ...]], gaps: Gaps
) -> Held:
    """Compare what was found beside gaps with what there is in the whole recording."""
    keys = list(whole)
    times = np.array(keys, np.int64).reshape(-1, 4)
    avoids = ~gaps.overlap(times[:, 3], times[:, 0], times[:, 1])
    clear = {key for key, of in zip(keys, avoids.tolist(), strict=True) if of}
    both = clear & found.keys()
    other = tuple(sorted(k for k in both if not alike(whole[k], found[k], found)))
    return Held(len(clear), len(found), len(both) - len(other), len(found.keys() - clear), other)


def differences(one: tuple[object, ...], other: tuple[object, ...]) -> list[str]:
    """Name what differs."""
    return [name for name, a, b in zip(WHAT, one, other, strict=True) if a != b]


def alike(one: tuple[object, ...], other: tuple[object, ...], kept: Collection[Key]) -> bool:
    """Tell whether two are the same; an owner that is left out need not be known."""
    left_out = isinstance(other[2], bool) and one[2] not in kept and one[2] is not False
    return all(name == "owner" and left_out for name in differences(one, other))


def draw_either(rng: np.random.Generator, span: tuple[int, int], usual: int) -> Gaps:
    """Return gaps that lie anywhere, or what is left between windows, of which some are short."""
    if rng.integers(2):
        return draw(rng, span, int(rng.integers(3, 30)), float(rng.uniform(0.02, 0.5)))
    return windows(rng, span, int(usual * rng.uniform(5, 100)), float(rng.uniform(0.1, 0.6)))


def judge(recording: Path, gaps: int, seed: int = 0) -> tuple[Held, int, Counter[tuple[str, ...]]]:
    """Cut so many gaps into a recording; return what came of it, how many, and what differs."""
    of, rng = Cut(recording), np.random.default_rng(seed)
    whole = rows_of(of.find(Gaps()))
    usual = int(np.quantile([key[1] - key[0] for key in whole], 0.9))
    total, count, differ = Held(), 0, Counter[tuple[str, ...]]()
    while count < gaps:
        cut = draw_either(rng, of.span, usual)
        count += len(cut)
        try:
            found = rows_of(of.find(cut))
        except CritpathError:
            continue  # nothing was left
        held = hold(whole, found, cut)
        for name in ("clear", "found", "same", "beyond"):
            setattr(total, name, getattr(total, name) + getattr(held, name))
        for key in held.other:
            differ[str(whole[key][0]), *differences(whole[key], found[key])] += 1
    return total, count, differ


def unpack_fixtures(place: Path) -> list[Path]:
    """Unpack the servers' recordings of the repository."""
    data_only = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    for archive in sorted(FIXTURES.glob("requests/*.tar.xz")) + sorted(FIXTURES.glob("hosts/*.xz")):
        with tarfile.open(archive) as packed:
            packed.extractall(place, **data_only)  # noqa: S202 - of this repository
    return [found.parent for found in sorted(place.glob("**/critpath.json"))]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each recording, and what differs most."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("recordings", type=Path, nargs="*", help="(those of the repository)")
    parser.add_argument("--gaps", type=int, default=10_000, help="in all recordings together")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        recordings = given.recordings or unpack_fixtures(Path(place))
        print("| recording | gaps | requests that avoid them | found | the same | touch one |")
        print("|---|---|---|---|---|---|", flush=True)
        for seed, recording in enumerate(recordings):
            held, count, differ = judge(recording, given.gaps // len(recordings) + 1, seed)
            name = (recording.parent if recording.name == "recording" else recording).name
            shares = held.found / max(held.clear, 1), held.same / max(held.found, 1)
            most = ", ".join(f"{n} {' '.join(what)}" for what, n in differ.most_common(3))
            print(
                f"| {name} | {count:,} | {held.clear:,} | {held.found:,} ({shares[0]:.1%}) | "
                f"{held.same:,} ({shares[1]:.2%}) | {held.beyond} |".replace("%", " %"),
                flush=True,
            )
            print(most, file=sys.stderr)


if __name__ == "__main__":
    main()
