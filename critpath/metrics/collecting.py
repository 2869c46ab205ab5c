"""Adds up what a flight recorder answers: latency by kind, cost, gaps, incidents, time's shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from critpath.metrics.families import OTHER, Family, Histogram, Named, Sample
from critpath.metrics.shares import Times, find_parts, read_times, refine
from critpath.units import NS_PER_S

if TYPE_CHECKING:
    from critpath.documents import IncidentDocument

MOST_KINDS: Final = 200  # technical: names that have series of their own
_REFUSED: Final = "refused "
_MOST_SHARES: Final = 20  # technical: of a kind; the rest is added up


@dataclass
class Collected:
    """What is known so far; counters only grow, also where the flight recorder began anew.

    Attributes
    ----------
    up : bool
        Whether the flight recorder answers.
    walked : mapping
        What those tell that were walked of the newest dump: by kind, and by state and peer.
    """

    up: bool = False
    walked: Mapping[str, Times] = field(default_factory=dict)
    _times: dict[str, Times] = field(default_factory=dict)  # of all requests, as they were counted
    _latency: dict[str, Histogram] = field(default_factory=dict)
    _cut: dict[str, int] = field(default_factory=dict)
    _resets: dict[str, int] = field(default_factory=dict)
    _told: dict[str, tuple[list[int], dict[int, int]]] = field(default_factory=dict)
    _kinds: Named = field(default_factory=lambda: Named(MOST_KINDS))
    _status: Mapping[str, Any] = field(default_factory=dict)
    _missed: int = 0
    _gone: dict[str, float] = field(default_factory=dict)  # what flight recorders left that ended
    _whys: Named = field(default_factory=lambda: Named(MOST_KINDS))
    _peers: Named = field(default_factory=lambda: Named(MOST_KINDS))
    _incidents: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def add_ended(self, answer: Mapping[str, Any]) -> None:
        """Add marked executions that ended, as the flight recorder tells of them."""
        self.up = True
        self._missed += int(answer["missed"])
        for what, kind, begin, end, *_ in answer["ended"]:
            if what == "marker":
                place = self._kinds.place(str(kind))
                self._latency.setdefault(place, Histogram()).add(int(end) - int(begin))

    def add_requests(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Add requests of servers: a flight recorder tells how many there were so far, by kind."""
        before, self._told = self._told, {}
        for answer in answers:
            base, first = answer["sketch"]["base"], answer["sketch"]["first"]
            for name, *counts, pairs in answer["requests"]:
                sketch = dict(zip(pairs[::2], pairs[1::2], strict=True))
                self._told[name] = counts, sketch
                if "time" in answer:
                    self._times[name] = read_times(counts[1], answer["time"][name])
                old, gone = before.get(name, ([0, 0, 0, 0], {}))
                if any(a < b for a, b in zip(counts, old, strict=True)):
                    old, gone = [0, 0, 0, 0], {}  # it was forgotten meanwhile, and began anew
                _, took, cut, resets = (a - b for a, b in zip(counts, old, strict=True))
                place = self._kinds.place(str(name))
                of = self._latency.setdefault(place, Histogram())
                total = of.total + took / NS_PER_S
                for at, many in sketch.items():
                    if more := (many - gone.get(at, 0)) % (1 << 32):
                        of.add(first * base ** (at + 0.5), more)
                of.total = total  # which buckets tell only about
                self._cut[place] = self._cut.get(place, 0) + cut
                self._resets[place] = self._resets.get(place, 0) + resets

    def set_status(self, status: Mapping[str, Any]) -> None:
        """Note what the flight recorder says of itself; another one goes on from there."""
        if self._status and self._status["session"] != status["session"]:
            self._gone, self._told = self._grown(), {}
        self.up, self._status = True, status

    def set_incidents(self, incidents: Iterable[IncidentDocument]) -> None:
        """Note what is in the directory of incidents."""
        found: Counter[tuple[str, str]] = Counter()
        for one in incidents:
            found[self._kinds.place(one.kind), one.verdict] += one.count
        # What was removed, as its quota asks, was there all the same.
        known = self._incidents
        self._incidents = {key: max(found[key], known.get(key, 0)) for key in {**known, **found}}

    @staticmethod
    def _count(status: Mapping[str, Any]) -> dict[str, float]:
        """Return what grows of a status: seconds not recorded, dumps made, and refused by why."""
        dumps = status["dumps"]
        refused = {f"{_REFUSED}{why}": number for why, number in dumps["refused"].items()}
        return {"gaps": status["gaps"], "made": dumps["made"], **refused}

    def _grown(self) -> dict[str, float]:
        """Return the same of all flight recorders so far."""
        now = self._count(self._status)
        return {key: now.get(key, 0) + self._gone.get(key, 0) for key in {**self._gone, **now}}

    def families(self) -> Iterator[Family]:
        """Yield everything as it is now."""
        yield Family(
            "critpath_flight_up", "gauge", "", "1 while the flight recorder answers, else 0",
            (Sample(float(self.up)),),
        )  # fmt: skip
        yield Family(
            "critpath_request_seconds", "histogram", "seconds",
            f"how long requests and marked runs took, by kind; of {MOST_KINDS} kinds, the "
            f"rest together as {OTHER}",
            tuple(Sample(of, {"kind": kind}) for kind, of in sorted(self._latency.items())),
        )  # fmt: skip
        for name, counts, what in (
            ("critpath_requests_cut", self._cut, "that touched a time which was not recorded"),
            ("critpath_request_resets", self._resets, "that ended by a reset"),
        ):
            samples = tuple(Sample(n, {"kind": kind}) for kind, n in sorted(counts.items()))
            yield Family(name, "counter", "", f"requests {what}, by kind", samples)
        yield Family(
            "critpath_kinds_folded", "gauge", "",
            f"kinds that have no series of their own; {MOST_KINDS} where they are more",
            (Sample(self._kinds.folded),),
        )  # fmt: skip
        yield Family(
            "critpath_request_time_share", "gauge", "",
            "what part of a kind's time goes where: by what it does or waits for, and whose that "
            "is (empty: its own); of its own time as in the newest dump",
            tuple(self._share_samples()),
        )  # fmt: skip
        yield Family(
            "critpath_incidents", "counter", "",
            "how often something was found to be slower than usual, by kind and verdict",
            tuple(
                Sample(count, {"kind": kind, "verdict": verdict})
                for (kind, verdict), count in sorted(self._incidents.items())
            ),
        )  # fmt: skip
        yield Family(
            "critpath_executions_missed", "counter", "",
            "runs that ended too fast to be told of",
            (Sample(self._missed),),
        )  # fmt: skip
        if self._status:
            yield from self._own_families()

    def _own_families(self) -> Iterator[Family]:
        status = self._status
        overhead = status["overhead"]
        grown = self._grown()
        yield Family(
            "critpath_cost_ratio", "gauge", "ratio",
            "cpu time spent because of recording, over cpu time without it: counted since the "
            "flight recorder began, in the last second, and the budget",
            (
                Sample(overhead["counted"], {"over": "run"}),
                Sample(overhead["now"], {"over": "second"}),
                Sample(overhead["target"], {"over": "budget"}),
            ),
        )  # fmt: skip
        yield Family(
            "critpath_gaps_seconds", "counter", "seconds", "time that was not recorded",
            (Sample(grown["gaps"]),),
        )  # fmt: skip
        yield Family("critpath_dumps", "counter", "", "dumps made", (Sample(grown["made"]),))
        refused: dict[str, float] = {}
        for name, number in grown.items():
            if name.startswith(_REFUSED):
                why = self._whys.place(name.removeprefix(_REFUSED))
                refused[why] = refused.get(why, 0) + number
        yield Family(
            "critpath_dumps_refused", "counter", "", "dumps refused, by why",
            tuple(Sample(number, {"why": why}) for why, number in sorted(refused.items())),
        )  # fmt: skip

    def _share_samples(self) -> Iterator[Sample]:
        by_kind: dict[str, dict[tuple[str, str], float]] = {}
        for kind in {**self._times, **self.walked}:
            parts = refine(find_parts(self._times.get(kind, {})), self.walked.get(kind, {}))
            of = by_kind.setdefault(self._kinds.place(kind), {})
            for (state, peer), share in parts.items():
                key = state, self._peers.place(peer)
                of[key] = of.get(key, 0.0) + share
        for kind, shares in sorted(by_kind.items()):
            whole = sum(shares.values())
            by_size = sorted(shares.items(), key=lambda pair: -pair[1])
            told = by_size[:_MOST_SHARES]
            if rest := sum(share for _, share in by_size[_MOST_SHARES:]):
                told.append(((OTHER, OTHER), rest))
            for (state, peer), share in sorted(told):
                labels = {"kind": kind, "state": state, "peer": peer}
                yield Sample(share / whole, labels)
