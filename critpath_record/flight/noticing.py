"""Notices that requests of a kind are slower than usual, or that a condition of theirs holds."""

from __future__ import annotations

import contextlib
import math
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from struct import pack
from typing import Final, NamedTuple

from critpath.schema.parameters.noticing import NOTICING
from critpath.units import NS_PER_S, format_ns, format_share
from critpath.untrusted import read_object
from critpath_record.flight._requests import (
    Requests,
    count_all,
    count_over,
    find_bucket,
    find_mean,
    find_quantile,
    merge,
    time_of,
)
from critpath_record.flight.conditions import LATENCY, RATE, SLOWER, Condition
from critpath_record.flight.dumps import Trigger
from critpath_record.flight.live import LiveExecutions
from critpath_record.flight.usual import Counts, Kept, Level, Watched
from critpath_record.ftrace.raw import write_json

LONGEST: Final = 600 * NS_PER_S  # for which an answer is waited
_FORMAT: Final = "critpath/usual-times/1"
_MOST_KEPT: Final = 64 << 20  # bytes
_IN_MINUTE: Final = 6  # blocks
_HOUR: Final = 60  # minutes
_KNOWN: Final = 100  # requests, of which percentiles are known
_MEAN: Final = -1  # in place of a quantile
_IDLE: Final = 360  # blocks without a request, after which a kind is forgotten

LONGER, RESETS, MACHINE, ADOPTED = "longer", "resets", "machine", "adopted"


class Noticed(NamedTuple):
    """That requests of a kind are otherwise than usual.

    Attributes
    ----------
    how : str
        `LONGER`, `RESETS` (more end by a reset), `MACHINE` (so are most kinds at once), or
        `ADOPTED`: what was told a day ago goes on, and is usual from now on.
    kind : str
    quantile : float
        Of the times; 0 where it is of resets.
    before, after : float
        ns; of resets their share of requests.
    since : int
        ns of the recording's clock: when it began to be so.
    kinds, of : int
        How many kinds are, of how many that there are requests of.
    """

    how: str
    kind: str
    quantile: float
    before: float
    after: float
    since: int
    kinds: int = 1
    of: int = 1


class Block(NamedTuple):
    """What of one kind was counted in one block."""

    requests: int
    resets: int
    sketch: bytes
    at: int  # ns, when it ended


class History:
    """What is usual of a kind: sketches of minutes, as many as an hour has."""

    def __init__(self) -> None:
        self.watched = Watched()
        self.recent: deque[Block] = deque(maxlen=max(NOTICING.levels))
        self.levels = {
            (many, at): Level()
            for many in NOTICING.levels
            for at in range(_MEAN, len(NOTICING.quantiles))
        }
        self.usual = b""
        self.limits: tuple[int, ...] = ()  # buckets
        self.idle = 0
        self._minute: list[bytes] = []
        self._minutes: deque[bytes] = deque(maxlen=_HOUR)
        self._mean = 0.0

    def add(self, block: Block, early: int, again: int, limit: int) -> None:
        """Add a block.

        Parameters
        ----------
        block : Block
        early, again : int
            Open ones that became longer than `limit` in it, and ended ones that had before.
        limit : int
            ns.
        """
        self.idle = 0 if block.requests or early else self.idle + 1
        if self.limits:
            more = early - again
            longer = [max(count_over(block.sketch, at) + more, 0) for at in self.limits]
            requests = max(block.requests + more, 0)
            over = [min(n, requests) for n in longer]
            self.watched.add(Counts(requests + block.resets, (*over, block.resets)))
        open_ones = pack("=II", find_bucket(limit) + 1, early) if early else b""
        self.recent.append(block._replace(sketch=merge([block.sketch, open_ones])))
        self._compare_levels()
        if not self.watched.alarmed:
            self._learn(block)

    def _learn(self, block: Block) -> None:
        self._minute.append(block.sketch)
        if len(self._minute) < _IN_MINUTE:
            return
        self._minutes.append(merge(self._minute))
        self._minute = []
        self._find_limits()

    def _find_limits(self) -> None:
        self.usual = merge(self._minutes)
        if count_all(self.usual) >= _KNOWN:
            self.limits = tuple(find_quantile(self.usual, q) for q in NOTICING.quantiles)
            self._mean = find_mean(self.usual)

    def find_limit(self, least: float) -> int:
        """Return from when on an open request is longer than usual (ns), 0 if that is not known."""
        return round(time_of(self.limits[-1] + 0.5) * (1 + least)) if self.limits else 0

    def recall(self, kept: Kept) -> None:
        """Go on from what was written down of a kind; raises as `Watched.recall`."""
        self.watched.recall(kept)
        self._minutes.append(merge([array("I", kept.sketch).tobytes()]))
        self._find_limits()

    def _compare_levels(self) -> None:
        """Note by how much percentiles and mean of the last blocks are longer than usual."""
        over = max(self.watched.above) > 0
        for (many, at), level in self.levels.items():
            level.now = -math.inf
            last = merge(block.sketch for block in [*self.recent][-many:]) if self.limits else b""
            if last:
                if at == _MEAN:
                    level.now = find_mean(last) - self._mean
                else:
                    bucket = find_quantile(last, NOTICING.quantiles[at])
                    level.now = math.log(time_of(bucket) / time_of(self.limits[at]))
                level.add(over=over, told=bool(self.watched.alarmed))

    def compare(self, least: float, kinds: int, a_day: float) -> tuple[float, float, float] | None:
        """Return a percentile, usual and of the last blocks, if that is longer by enough.

        By more than has to show, and than it is by itself so seldom.  The highest of those that
        are; None if none is.
        """
        fewest = math.log(1 + least)
        stands_out = {
            at
            for (_, at), level in self.levels.items()
            if level.now >= max(fewest, level.find_bar(2 * kinds, a_day))
        }
        for at in reversed(range(len(NOTICING.quantiles))):
            now = self.levels[min(NOTICING.levels), at].now
            if now >= fewest and {at, _MEAN} & stands_out:
                usual = float(time_of(self.limits[at]))
                return NOTICING.quantiles[at], usual, usual * math.exp(now)
        return None


class Noticing:
    """Watches all kinds, block by block.

    Parameters
    ----------
    requests : Requests
    names : sequence of str
        Of kinds, by their numbers.
    least : float
        By which share percentiles have to be longer.
    a_day : float
        Alarms of all kinds together in a day by chance, at most.
    """

    def __init__(
        self,
        requests: Requests,
        names: Sequence[str],
        least: float | None = None,
        a_day: float | None = None,
    ) -> None:
        self._requests, self._names = requests, names
        self._least = NOTICING.least if least is None else least
        self._a_day = NOTICING.a_day if a_day is None else a_day
        self.kinds: dict[int, History] = {}

    def keep(self) -> dict[str, Kept]:
        """Return what is usual, by kind: to be written down."""
        return {self._names[n]: one.watched.keep(one.usual) for n, one in self.kinds.items()}

    def recall(self, kept: object, find_number: Callable[[str], int]) -> None:
        """Go on from what was written down; what is damaged of it is left out."""
        for name, of in kept.items() if isinstance(kept, dict) else ():
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                history = History()
                history.recall(Kept(*of))
                if number := find_number(str(name)):
                    self.kinds[number] = history
                    self._requests.set_limit(number, history.find_limit(self._least))

    def end_block(self, at: int) -> list[Noticed]:
        """Take the block that ends now into account; return what is not as usual, if anything."""
        self._requests.look_at_open(LONGEST)
        rows = {row[0]: row for row in self._requests.take_block()}
        for number in rows:
            if number:  # of "other" nothing is usual
                self.kinds.setdefault(number, History())
        for number, history in [*self.kinds.items()]:
            _, count, _, _, resets, again, _, _, early, sketch = rows.get(number, _NOTHING)
            limit = history.find_limit(self._least)  # as it was when the block began
            history.add(Block(count, resets, sketch, at), early, again, limit)
            self._requests.set_limit(number, history.find_limit(self._least))
            if history.idle > _IDLE:
                del self.kinds[number]
        return [*self._find(at)]

    def _find(self, at: int) -> Iterator[Noticed]:
        known = {n: h for n, h in self.kinds.items() if h.watched.is_known and h.idle == 0}
        due = []
        for number, history in known.items():
            of = history.watched
            if of.is_over():
                continue
            if of.is_adopted():
                yield Noticed(ADOPTED, self._names[number], 0, 0, 0, at)
                self.kinds[number] = History()
            elif of.may_be_due() and of.is_due(len(known), self._a_day, self._find_mean()):
                found = self._describe(number, history, len(known))
                if found is not None:
                    due.append((of.evidence, found, number))
        if not due:
            return
        _, first, _ = max(due)
        fewest, share = NOTICING.together
        leaning = {n for n, h in known.items() if h.watched.leans and not h.watched.alarmed}
        leaning |= {number for _, _, number in due}
        together = len(leaning) >= max(fewest, share * len(known))
        yield first._replace(
            how=MACHINE if together else first.how, kinds=len(leaning), of=len(known)
        )
        for number in leaning if together else {number for _, _, number in due}:
            self.kinds[number].watched.raise_alarm()

    def _find_mean(self) -> float:
        """Return what evidence comes to by itself in all kinds: they have one machine."""
        peaks = [peak for history in self.kinds.values() for peak in history.watched.list_peaks()]
        return sum(peaks) / len(peaks) if peaks else 0.0

    def _describe(self, number: int, history: History, kinds: int) -> Noticed | None:
        name, of = self._names[number], history.watched
        signal = of.signal
        blocks = min(of.above[signal], len(history.recent))
        since = history.recent[-blocks].at - round(NOTICING.block * NS_PER_S)
        if signal >= len(NOTICING.quantiles):
            last = [*history.recent][-NOTICING.sustained :]
            requests = sum(b.requests + b.resets for b in last)
            share = sum(b.resets for b in last) / max(requests, 1)
            return Noticed(RESETS, name, 0, of.share(signal), share, since)
        found = history.compare(self._least, kinds, self._a_day)
        if found is None:
            return None
        return Noticed(LONGER, name, *found, since)


_NOTHING: Final = (0, 0, 0, 0, 0, 0, 0, 0, 0, b"")


class Window:
    """Requests of a condition over its time, looked at each second."""

    def __init__(self, requests: Requests, of: Condition) -> None:
        self._requests, self.of = requests, of
        self._limit = round(of.limit) if of.word == LATENCY else 0
        self._seen: dict[int, deque[tuple[int, int, int]]] = {}
        self._holding: set[int] = set()

    def look(self, number: int, now: int) -> str:
        """Return what was found of a kind if the condition begins to hold, "" else.

        Open requests that are longer count, too.  Nothing is found before the time is over.
        """
        many, longer = self._requests.count_longer(number, self._limit)
        seen = self._seen.setdefault(number, deque())
        seen.append((now, many, longer))
        while len(seen) > 1 and seen[1][0] <= now - self.of.window:
            seen.popleft()
        if now - seen[0][0] < self.of.window:
            return ""
        many, longer = many - seen[0][1], longer - seen[0][2]
        if self.of.word == LATENCY:
            still = self._requests.count_open(number, self._limit)
            many, longer = many + still, longer + still
            holds = longer > (1 - self.of.part) * many + 1e-9
            text = f"{longer:,} of {many:,} longer"
        else:
            rate = many * NS_PER_S / (now - seen[0][0])
            holds, text = rate < self.of.limit, f"{rate:.3g}/s"
        began = holds and number not in self._holding
        (self._holding.add if holds else self._holding.discard)(number)
        return text if began else ""


class RequestConditions:
    """The conditions of a flight recorder that are about requests."""

    def __init__(self, live: LiveExecutions, conditions: Sequence[Condition]) -> None:
        self._live = live
        requests = live.requests
        of = [one for one in conditions if one.word in {LATENCY, RATE, SLOWER}]
        self._each = [one for one in of if one.word == LATENCY and not one.window]
        self._windows = [Window(requests, one) for one in of if one.window]
        slower = [one for one in of if one.word == SLOWER]
        self._slower = slower[0].text if slower else ""
        self.noticing = Noticing(
            *(requests, live.kinds.names),
            next((one.limit for one in slower if one.limit), None),
            next((one.part for one in slower if one.part), None),
        )
        self._due = 0

    def recall(self, file: Path) -> None:
        """Go on from what was usual when a recorder ended, unless that is more than a day ago."""
        of = read_object(file, _MOST_KEPT)
        at = of.get("at")
        if of.get("format") != _FORMAT or not isinstance(at, (int, float)):
            return
        if 0 <= time.time() - at < NOTICING.adopted * NOTICING.block:
            self.noticing.recall(of.get("kinds"), self._live.kinds.find_named)

    def keep(self, file: Path) -> None:
        """Write down what is usual."""
        write_json(file, {"format": _FORMAT, "at": time.time(), "kinds": self.noticing.keep()})

    def look(self, now: int) -> Iterator[Trigger]:
        """Yield what holds: to be asked each second."""
        for one in self._each:
            yield from self._look_at_each(one, now)
        for window in self._windows:
            for number in self._live.kinds.list_named(window.of.name):
                if text := window.look(number, now):
                    yield Trigger(window.of.text, text, self._live.kinds.names[number], at=now)
        if now < self._due:
            return
        self._due = now + round(NOTICING.block * NS_PER_S)
        self._live.end_block()
        found = self.noticing.end_block(now)
        self._make_room()
        for noticed in found:
            if self._slower and noticed.how != ADOPTED:
                told = {**noticed._asdict(), "before": round(noticed.before, 6)}
                yield Trigger(
                    *(self._slower, describe(noticed), noticed.kind), at=now, noticed=told
                )

    def _make_room(self) -> None:
        """Forget kinds without a request for long, where there is no room for others."""
        kinds = self._live.kinds
        if kinds.is_full:
            known = self.noticing.kinds
            idle = [n for n, name in enumerate(kinds.names) if n and name and n not in known]
            kinds.free(idle)
            self._live.requests.forget_names(idle)

    def _look_at_each(self, one: Condition, now: int) -> Iterator[Trigger]:
        """Yield the longest request of each kind that is too long, or not answered for so long."""
        for number in self._live.kinds.list_named(one.name):
            took, begin = self._live.requests.take_worst(number)
            name = self._live.kinds.names[number]
            if took > one.limit:
                yield Trigger(one.text, format_ns(took), name, str(begin), now)
            elif self._live.requests.count_open(number, round(one.limit)):
                yield Trigger(one.text, "not answered yet", name, at=now)


def describe(noticed: Noticed) -> str:
    """Return in few words what was noticed."""
    if noticed.how == RESETS:
        return f"resets {format_share(noticed.before)} -> {format_share(noticed.after)}"
    text = f"p{100 * noticed.quantile:g} {format_ns(noticed.before)} -> {format_ns(noticed.after)}"
    if noticed.how == MACHINE:
        text += f", as are {noticed.kinds} of {noticed.of} kinds"
    return text
