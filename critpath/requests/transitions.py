"""What a request asks after what it has asked: kinds of sub-requests, learned from a recording.

A kind is whom a sub-request asks and what it is called, or how long its message is where it has no
name: that decides who of several may be next.  What follows a history is counted after all of it
where it is short, after its last two kinds and after its last, and backed off in that order.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final, Literal

import numpy as np

from critpath.model import I32, I64
from critpath.model.requests import Act, Activity, Endpoints, RequestTable, Subrequests
from critpath.records import dataclass
from critpath.requests.owners import argsort_codes, find_targets
from critpath.schema.parameters.requests import OWNERS, POOLS, TRANSITIONS

END: Final = -1  # technical: nothing more is asked
ANSWER: Final = -2  # technical: the request is answered; what it asks later is of its history, too
_NO_KINDS: Final = 2  # technical: END, ANSWER
# technical: of a history is counted whole: the prefixes of long ones would fill the memory
_DEEP: Final = 32

History = tuple[int, ...]


@dataclass(frozen=True)
class Way:
    """What a request of a service asked, in words that other recordings know, too.

    Attributes
    ----------
    service : str
        And what the request is called, where that is known.
    asks : tuple of (str, int)
        Port or path of whom it asked, and what it asked; bytes of the message.
    answered : int
        After how many of them it was answered.
    """

    service: str
    asks: tuple[tuple[str, int], ...]
    answered: int


def collect_ways(
    activity: Activity, endpoints: Endpoints, requests: RequestTable, subrequests: Subrequests
) -> Counter[Way]:
    """Count what requests asked of which all that they asked is likely theirs."""
    words, kind = name_kinds(activity, endpoints, requests, subrequests)
    asks: dict[int, list[tuple[int, int]]] = {row: [] for row in range(len(requests))}
    mine = np.flatnonzero((subrequests.request >= 0) & (subrequests.connects == 0))
    columns = (subrequests.request, subrequests.probability, subrequests.begin_ns, kind)
    for row, sure, time, of in zip(*(c[mine].tolist() for c in columns), strict=True):
        if sure < POOLS.sure:
            asks.pop(row, None)
        elif row in asks:
            asks[row].append((time, of))
    found: Counter[Way] = Counter()
    roots, answered = name_roots(requests), requests.answered_ns.tolist()
    for row, each in asks.items():
        if len(each) <= _DEEP:
            each.sort()
            before = sum(time <= answered[row] for time, _ in each)
            asked = tuple(words[of] for _, of in each)
            found[Way(roots[row], asked, before)] += 1
    return found


def name_roots(requests: RequestTable) -> Sequence[str]:
    """Return of every request its service and what it is called."""
    strings = requests.strings
    called = np.maximum(requests.message, 0)
    pairs = zip(requests.service.tolist(), called.tolist(), strict=True)
    return [f"{strings[service]} {strings[called]}".rstrip() for service, called in pairs]


def name_kinds(
    activity: Activity, endpoints: Endpoints, requests: RequestTable, subrequests: Subrequests
) -> tuple[Sequence[tuple[str, int]], I64]:
    """Return of every kind whom it asks what, and how many bytes; and every sub-request's kind."""
    size, called = find_sizes(activity, subrequests), find_names(requests, subrequests)
    kind = find_kinds(activity, endpoints, requests, subrequests, size)
    order = np.argsort(kind, kind="stable")
    words = []
    for rows in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1) if len(order) else ():
        of = int(subrequests.endpoint[rows[0]])
        path = endpoints.strings[int(endpoints.path[of])]
        whom = f"{path or endpoints.remote_port[of]} {requests.strings[int(called[rows[0]])]}"
        words.append((whom.rstrip(), int(np.median(size[rows]))))
    return words, kind


def translate(
    ways: Mapping[Way, int], words: Sequence[tuple[str, int]], roots: Mapping[str, int]
) -> Sequence[Sequence[int]]:
    """Return what was usual elsewhere as histories of a recording.

    Parameters
    ----------
    ways : mapping
        How often each was seen.
    words : sequence of (str, int)
        Of the recording's kinds, as `name_kinds` has them: the nearest in size is taken.
    roots : mapping
        The kind that the requests of each service begin with.
    """
    of: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for kind, (whom, size) in enumerate(words):
        of[whom].append((size, kind))
    found: list[Sequence[int]] = []
    most = max(ways.values(), default=1)
    for way, times in ways.items():
        asks = [_find_nearest(of[whom], size) for whom, size in way.asks]
        if way.service in roots and END not in asks:
            whole = [*asks[: way.answered], ANSWER, *asks[way.answered :]]
            many = -(
                -times * TRANSITIONS.learned // most
            )  # ways of another recording: only shares count
            found += [[roots[way.service], *whole, END]] * many
    return found


def _find_nearest(known: Sequence[tuple[int, int]], size: int) -> int:
    """Return the kind whose messages are of a size, or END."""
    off, kind = min(
        ((abs(math.log(max(its, 1) / max(size, 1))), kind) for its, kind in known),
        default=(math.inf, END),
    )
    return kind if off <= math.log(TRANSITIONS.near) else END


class Transitions:
    """How often what followed what."""

    def __init__(self, kinds: int) -> None:
        self._kinds = kinds + _NO_KINDS
        self._counts: dict[History, Counter[int]] = defaultdict(Counter)
        self._ends: dict[History, Counter[int]] = defaultdict(Counter)

    def learn(self, histories: Iterable[Sequence[int]], times: I64 | None = None) -> None:
        """Count requests; each begins with a kind of its own and ends with `END`."""
        counts = repeat(1) if times is None else times.tolist()
        for history, many in zip(histories, counts, strict=False):
            for at in range(1, len(history)):
                after = history[at]
                if at <= _DEEP:
                    self._counts[tuple(history[:at])][after] += many
                for low in {max(at - 2, 0), at - 1}:
                    self._ends[tuple(history[low:at])][after] += many

    def probability(self, history: History, kind: int) -> float:
        """Return how probable a kind is after a history."""
        counts = self._known(history)
        if counts is None:
            return 1 / self._kinds
        total = counts.total() + TRANSITIONS.smoothing * self._kinds
        return (counts[kind] + TRANSITIONS.smoothing) / total

    def may(self, history: History, kind: int) -> bool:
        """Return whether a kind is expected after a history; of one that nobody knows, any is."""
        counts = self._known(history)
        return counts is None or counts[kind] >= TRANSITIONS.least * counts.total()

    def goes_on(self, history: History) -> bool:
        """Return whether any kind that asks is expected after a history."""
        counts = self._known(history)
        if counts is None:
            return self._kinds > _NO_KINDS
        least = TRANSITIONS.least * counts.total()
        return any(kind >= 0 and many >= least for kind, many in counts.items())

    def weigh(self, history: History, kind: int) -> float:
        """Return the logarithm of how probable a kind is after a history; -inf: not expected."""
        may = self.may(history, kind)
        return math.log(self.probability(history, kind)) if may else -math.inf

    def _known(self, history: History) -> Counter[int] | None:
        """Return what followed a history, or as much of its end as is known."""
        whole = self._counts.get(history) if len(history) <= _DEEP else None
        if whole is not None and whole.total() >= TRANSITIONS.seen:
            return whole
        return self._ends.get(history[-2:]) or self._ends.get(history[-1:])


def find_sizes(activity: Activity, subrequests: Subrequests) -> I64:
    """Return how many bytes every sub-request sends; of an opening, what the first over it does."""
    sends = (activity.act == Act.SEND) & (activity.endpoint >= 0) & (activity.value > 0)
    rows = np.flatnonzero(sends)
    # Places among all times of sends, so that an endpoint and a time are one number.
    times = activity.time_ns[rows]
    rows = rows[argsort_codes(activity.endpoint[rows], 1 + int(activity.endpoint.max(initial=0)))]
    summed = np.concatenate([[0], np.cumsum(activity.value[rows])])

    def place(ends: I32, at: I64, side: Literal["left", "right"]) -> I64:
        found: I64 = ends.astype(np.int64) * (len(times) + 1) + np.searchsorted(times, at, side)
        return found

    keys = place(activity.endpoint[rows], activity.time_ns[rows], "left")
    ends = subrequests.endpoint
    first = np.searchsorted(keys, place(ends, subrequests.begin_ns, "left"))
    last = np.searchsorted(keys, place(ends, subrequests.end_ns, "right"))
    size: I64 = summed[last] - summed[first]
    return size[_find_first(subrequests)]


def find_names(requests: RequestTable, subrequests: Subrequests) -> I32:
    """Return what every sub-request is called: codes of `RequestTable.strings`, 0 for no name."""
    child = subrequests.child
    called = np.where(child >= 0, np.append(np.maximum(requests.message, 0), 0)[child], 0)
    return called[_find_first(subrequests)].astype(np.int32)


def _find_first(subrequests: Subrequests) -> I64:
    """Return every sub-request's row; of the opening of a connection that of the first over it."""
    rows = np.arange(len(subrequests))
    order = np.argsort(subrequests.endpoint, kind="stable")
    ends = subrequests.endpoint[order]
    opens = (subrequests.connects[order[:-1]] == 1) & (ends[:-1] == ends[1:])
    rows[order[:-1][opens]] = order[1:][opens]
    return rows


def find_kinds(
    activity: Activity,
    endpoints: Endpoints,
    requests: RequestTable,
    subrequests: Subrequests,
    size: I64 | None = None,
) -> I64:
    """Return the kind of every sub-request: whom it asks, and what.

    What it asks is what the message is called; where that says only a command, or nothing, its size
    as well.  The opening of a connection is of the kind of the first that goes over it.
    """
    size = find_sizes(activity, subrequests) if size is None else size.copy()
    called = find_names(requests, subrequests)
    says = np.array([" " in text for text in requests.strings], np.bool_)[called]
    asked = find_targets(endpoints, subrequests) * len(requests.strings) + called
    size[says] = 0
    for service in np.unique(asked).tolist():
        its = asked == service
        if len(np.unique(size[its])) > TRANSITIONS.exact:
            size[its] = np.log(np.maximum(size[its], 1)) / math.log(OWNERS.sizes)
    _, sizes = np.unique(size, return_inverse=True)
    _, kind = np.unique(asked * (len(size) + 1) + sizes.reshape(-1), return_inverse=True)
    result: I64 = kind.reshape(-1).astype(np.int64)
    return result
