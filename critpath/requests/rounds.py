"""Who asks on a loop that hands requests over to helper threads and shares connections.

An event loop goes round: it looks for messages, lets those go on that became ready in the round
before, in this order, and receives what it saw.  Helpers do what is handed over to them in the
order of handing over; the message of one of them to the loop says that it is done, and one more
round is needed until that request goes on.  Who finds no free connection waits; one that is
given back wakes the longest waiting, but who comes to that point sooner takes it.
"""

from __future__ import annotations

import bisect
import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import chain, combinations, islice, product
from typing import Final

import numpy as np

from critpath.model import I32, I64
from critpath.model.requests import NONE, Act, Activity, Endpoints
from critpath.schema.parameters.requests import ROUNDS, TOKENS

_LOW: Final = 0xFFFFFFFF  # technical: of a thread's key: its id


class Step(IntEnum):
    """What happens on a loop; those of one moment in this order."""

    RECEIVE = 0
    RESULT = 1
    BECOME_READY = 2  # the row is what was received, or `~` the sub-request that has its result
    HAND_BACK = 3
    ASK = 4
    ANSWER = 5


class _What(IntEnum):
    """What waits for its turn in a loop."""

    GIVE = 0  # a connection back
    BACK = 1  # what a helper has done
    GO_ON = 2


_Entry = tuple[_What, int, int]  # what, the request, its round
_Row = tuple[int, Step, int, int]  # time, what, row, when it had arrived


class Rounds:
    """Follows one loop; its requests all do the same.

    Parameters
    ----------
    hands : sequence of bool
        What every request does, in order: hand over (True) or ask.
    free : int
        Connections.
    patient : bool
        Whether no round begins before all have asked that can.
    """

    def __init__(self, hands: Sequence[bool], free: int, *, patient: bool = True) -> None:
        self.patient = patient
        self.owner: dict[int, int] = {}  # requests, of sub-requests
        self.broken: list[tuple[int, int]] = []  # time, and the request that contradicts
        self.against: set[int] = set()  # the requests that do
        self.hands, self._size, self._free = tuple(hands), free, free
        self._ready: deque[_Entry] = deque()
        self._waiting: deque[int] = deque()
        self._handed: deque[int] = deque()
        self._done: dict[int, int] = {}  # steps of those that are not answered
        self._asked: dict[int, int] = {}  # by whom, of sub-requests without a result
        self._round, self._looked, self._receives = 0, -1, False
        self._now = 0

    def follow(self, rows: Sequence[_Row], most: float = math.inf) -> Rounds:
        """Go through all that happens, or until more requests than so many contradict."""
        for time, step, row, arrived in rows:
            if len(self.against) > most:
                break
            self._now = time
            if step in {Step.RECEIVE, Step.RESULT}:
                self._look(time, arrived)
                if step == Step.RECEIVE:
                    self._done[row] = 0
            elif step == Step.BECOME_READY:
                owner = row if row >= 0 else self._asked.pop(~row, NONE)
                self._enter(owner, self._round + 1, gives=row < 0)
            elif step == Step.HAND_BACK:
                self._ready.append((_What.BACK, NONE, self._round + 1))
            else:
                self._act(time, step, row)
        return self

    def _break(self, request: int) -> None:
        self.broken.append((self._now, request))
        self.against.add(request)

    def _look(self, time: int, arrived: int) -> None:
        """Go to another round if what is received was not there when this one looked."""
        if arrived > self._looked and not (self.patient and self._is_early()):
            self._settle()
            self._round += 1
            self._looked, self._receives = time, True
            self._settle()
        elif not self._receives:
            self._receives = True
            self._settle()

    def _is_early(self) -> bool:
        """Return whether somebody has yet to ask before another round may begin."""
        free = self._free
        for what, request, due in self._ready:
            if due > self._round + 1:
                break
            free += what == _What.GIVE
            going = what == _What.GO_ON and request in self._done
            if going and free > 0 and self._next(request) is False:
                return True
        return False

    def _act(self, time: int, step: Step, row: int) -> None:
        if self._receives:
            self._round += 1
            self._receives, self._looked = False, time
        before = self._round
        if step == Step.ASK:
            self._ask(row)
        else:
            self._answer(row)
        if self._round > before:
            self._looked = time

    def _next(self, request: int) -> bool | None:
        """Return whether a request hands over next (True) or asks; None: it is to be answered."""
        done = self._done[request]
        return self.hands[done] if done < len(self.hands) else None

    def _enter(self, request: int, due: int, *, gives: bool) -> None:
        if gives:
            self._ready.append((_What.GIVE, request, due))
        if request not in self._done:
            return
        if self._next(request):
            self._handed.append(request)
        else:
            self._ready.append((_What.GO_ON, request, due))

    def _take(self) -> int:
        """Let the first that is ready have its turn; return it if it goes on itself."""
        what, request, due = self._ready.popleft()
        due = max(due, self._round)
        if what == _What.GO_ON:
            return request
        if what == _What.GIVE:
            self._free += 1
            if self._waiting:
                self._ready.append((_What.GO_ON, self._waiting.popleft(), due + 1))
        elif self._handed:
            request = self._handed.popleft()
            if request in self._done:
                self._done[request] += 1
                self._enter(request, due + 1, gives=False)
        return NONE

    def _settle(self) -> None:
        """Let all have their turn of whom nothing is seen; who should have asked contradicts."""
        late = []
        for _ in range(len(self._ready)):
            if not self._ready or self._ready[0][2] > self._round:
                break
            entry = self._ready[0]
            request = self._take()
            if request not in self._done:
                continue
            if self._next(request) is None:
                late.append(entry)
            elif self._free > 0:
                self._break(request)
                late.append(entry)
            else:
                self._waiting.append(request)
        self._ready.extendleft(reversed(late))

    def _ask(self, row: int) -> None:
        while self._ready:
            self._round = max(self._round, self._ready[0][2])
            request = self._take()
            if request not in self._done or self._next(request) is None:
                continue
            if self._free <= 0:
                self._waiting.append(request)
                continue
            self._free -= 1
            self._give(row, request)
            return
        if self._waiting:  # somebody went on, by what is not seen
            self._give(row, self._waiting.popleft())
            self._break(self.owner[row])

    def _give(self, row: int, request: int) -> None:
        self.owner[row] = self._asked[row] = request
        self._done[request] += 1

    def _answer(self, row: int) -> None:
        if row not in self._done:
            return
        late: list[_Entry] = []
        while self._is_ready(row):
            self._round = max(self._round, self._ready[0][2])
            entry = self._ready[0]
            request = self._take()
            if request not in self._done or request == row:
                continue
            answered = self._next(request) is None
            if answered or self._free > 0:
                self._break(request)
            if answered:
                late.append(entry)
            else:
                self._waiting.append(request)
        self._ready.extendleft(reversed(late))
        if self._next(row) is not None or row in self._asked.values():
            self._break(row)
            self._exchange(row)
        del self._done[row]
        for queue in (self._waiting, self._handed):
            if row in queue:
                queue.remove(row)
        if not self._done:
            self._ready.clear()
            self._waiting.clear()
            self._handed.clear()
            self._free = self._size

    def _is_ready(self, row: int) -> bool:
        """Return whether what is ready has the turn of a request, or what a helper did for it."""
        helped = self._next(row) is not None and row in self._handed
        wanted = _What.BACK if helped else _What.GO_ON
        return any(what == wanted and (helped or of == row) for what, of, _ in self._ready)

    def _exchange(self, row: int) -> None:
        """Take the place of one that could be answered: the two were confused."""
        asking = set(self._asked.values())
        queue = [request for what, request, _ in self._ready if what != _What.BACK]
        could = (each for each in [*queue, *self._done] if each in self._done and each != row)
        done = (each for each in could if self._next(each) is None and each not in asking)
        other = next(done, None)
        if other is None:
            return
        to = {row: other, other: row}
        self._ready = deque((what, to.get(of, of), due) for what, of, due in self._ready)
        self._waiting = deque(to.get(of, of) for of in self._waiting)
        self._handed = deque(to.get(of, of) for of in self._handed)
        self._done[row], self._done[other] = self._done[other], self._done[row]
        for sub, of in self._asked.items():
            if of in to:
                self._asked[sub] = self.owner[sub] = to[of]


def try_orders(rows: Sequence[_Row], free: int) -> Rounds | None:
    """Follow a loop with each order in which its requests may ask and hand over; None: of none."""
    counts = np.bincount([step for _, step, _, _ in rows], minlength=len(Step))
    requests = max(int(counts[Step.RECEIVE]), 1)
    asks, hands = counts[Step.ASK] / requests, counts[Step.HAND_BACK] / requests
    many = round(asks) + round(hands)
    even = abs(hands - round(hands)) <= ROUNDS.alike and abs(asks - round(asks)) <= ROUNDS.alike
    if not even or round(asks) < 1 or round(hands) < 1 or many > TOKENS.longest:
        return None
    received = (at for at, (_, step, _, _) in enumerate(rows) if step == Step.RECEIVE)
    first = rows[: next(islice(received, ROUNDS.tried, None), len(rows))]
    best: Rounds | None = None
    for at, patient in product(combinations(range(many), round(hands)), (True, False)):
        order = [place in at for place in range(many)]
        most = math.inf if best is None else len(best.against) - 1
        found = Rounds(order, free, patient=patient).follow(first, most)
        if len(found.against) <= most:
            best = found
        if not found.against:
            break
    if best is not None and len(first) < len(rows):
        best = Rounds(best.hands, free, patient=best.patient).follow(rows)
    return None if best is None or len(best.against) > ROUNDS.wrong * requests else best


class _Groups:
    """The rows of each thread, in order; rows of none are -1."""

    def __init__(self, thread: I32, threads: int) -> None:
        self._rows = np.argsort(thread, kind="stable")
        self._bounds = np.searchsorted(thread[self._rows], np.arange(threads + 1))

    def find(self, thread: int) -> I64:
        """Return the rows of a thread."""
        inside = thread + 1 < len(self._bounds)
        return self._rows[slice(*self._bounds[thread : thread + 2])] if inside else self._rows[:0]


class Helpers:
    """What the threads of a loop's process do for it.

    Parameters
    ----------
    activity : Activity
    endpoints : Endpoints
    thread : int32
        Numbers of the threads of its rows, -1 where there is none.
    woken : int32
        The same of those that are woken.
    """

    def __init__(self, activity: Activity, endpoints: Endpoints, thread: I32, woken: I32) -> None:
        self._activity, self._endpoints = activity, endpoints
        self._thread, self._woken = thread, woken
        self._arrivals: dict[int, list[int]] = defaultdict(list)
        threads = 1 + max(int(thread.max(initial=-1)), int(woken.max(initial=-1)))
        self._acts_of = _Groups(thread, threads)
        self._woke = _Groups(np.where(activity.act == Act.WAKE, woken, -1), threads)
        # What each thread had done last before a row; an interrupt is no thread.
        keys = (activity.host.astype(np.int64) << 32) | (activity.tid.astype(np.int64) & _LOW)
        order = np.argsort(keys, kind="stable")
        again = (np.diff(keys[order], prepend=-1) == 0) & (activity.tid[order] >= 0)
        self._last = np.full(len(activity), -1, np.int16)
        self._last[order[again]] = activity.act[order[np.flatnonzero(again) - 1]]

    def hand_backs(self, loop: int, threads: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """Return when each of threads tells the loop that it is done, and when it was done.

        It sends to a socket that the loop has to itself.

        A thread that loses its cpu on the way to the system call was done before: if most that
        it ran since it last slept, it ran before that, or before it woke the loop.
        """
        activity, ends = self._activity, self._endpoints
        mine = self._acts_of.find(loop)
        own = np.unique(activity.endpoint[mine[activity.act[mine] == Act.RECEIVE]])
        own = own[own >= 0]
        own = own[(ends.serves[own] != 0) & (ends.serves[own] != 1)]
        peers = np.flatnonzero(np.isin(ends.peer, own))
        found: dict[int, list[tuple[int, int]]] = {}
        for helper in threads:
            mine = self._acts_of.find(helper)
            sends = (activity.act[mine] == Act.SEND) & np.isin(activity.endpoint[mine], peers)
            if sends.any():
                found[helper] = [*self._moments(mine, sends, loop)]
        return found

    def _moments(self, mine: I64, sends: np.ndarray, loop: int) -> Iterator[tuple[int, int]]:
        acts = self._activity.act[mine].tolist()
        times = self._activity.time_ns[mine].tolist()
        wakes = ((self._activity.act[mine] == Act.WAKE) & (self._woken[mine] == loop)).tolist()
        ran, since, done, done_at = 0, None, 0, None
        for time, act, wake, send in zip(times, acts, wakes, sends.tolist(), strict=True):
            since = time if since is None or act == Act.RUN else since
            if act == Act.SLEEP:
                ran, done, done_at = 0, 0, None
            elif act == Act.PREEMPT or wake or send:
                ran, since = ran + time - since, time
                if send:
                    yield (
                        time,
                        done_at if done_at is not None and done > ROUNDS.most * ran else time,
                    )
                    ran, done, done_at = 0, 0, None
                elif done_at is None or ran > done / ROUNDS.most:
                    done, done_at = ran, time

    def ready_since(self, loop: int) -> dict[int, int]:
        """Return, of receives after which the loop sleeps for no message, when it goes on.

        It waits for a lock that a helper has: the request becomes ready only then.
        """
        activity = self._activity
        about = np.union1d(self._acts_of.find(loop), self._woke.find(loop))
        about = about[(activity.act[about] != Act.RECEIVE) | (activity.endpoint[about] >= 0)]
        found: dict[int, int] = {}
        read: int | None = None
        slept = False
        tells = (Act.ARRIVAL, Act.OPEN)
        columns = (activity.time_ns, activity.act, activity.tid, self._thread, self._last)
        for time, act, tid, thread, last in zip(
            *(column[about].tolist() for column in columns), strict=True
        ):
            if thread == loop and act == Act.RECEIVE:
                read, slept = time, False
            elif read is None or act == Act.PREEMPT:
                continue
            elif thread != loop:
                read = None if slept and (tid < 0 or last in tells) else read
            elif act == Act.SLEEP:
                slept = True
            elif act == Act.RUN:
                if slept:
                    found[read] = time
            else:
                read = None
        return found

    def arrived(self, endpoint: I32, before: I64) -> I64:
        """Return when what was received at a time had arrived."""
        activity = self._activity
        if not self._arrivals:
            rows = np.flatnonzero(activity.act == Act.ARRIVAL)
            of, times = activity.endpoint[rows].tolist(), activity.time_ns[rows].tolist()
            for end, time in zip(of, times, strict=True):
                self._arrivals[end].append(time)
        found = []
        for end, time in zip(endpoint.tolist(), before.tolist(), strict=True):
            times = self._arrivals.get(end, [])
            at = bisect.bisect_right(times, time) - 1
            found.append(times[at] if at >= 0 else 0)
        return np.array(found, np.int64)


def follow_ends(rows: Sequence[_Row]) -> dict[int, int] | None:
    """Say who asked, from both ends: of a loop whose requests all ask twice; None: they do not.

    Who was received first asks first, and who is answered next had asked what came back first.
    What happens between, such as sleeps, need not be known.
    """
    counts = np.bincount([step for _, step, _, _ in rows], minlength=len(Step))
    if (
        abs(int(counts[Step.ASK]) - 2 * int(counts[Step.RECEIVE]))
        > ROUNDS.alike * counts[Step.RECEIVE]
    ):
        return None
    owner: dict[int, int] = {}
    begin: OrderedDict[int, None] = OrderedDict()  # received, and nothing asked yet
    back = _Results()
    unanswered: OrderedDict[int, int] = OrderedDict()  # and when each was received
    for time, step, row, _ in rows:
        if step == Step.RECEIVE:
            unanswered[row] = time
            begin[row] = None
        elif step == Step.ASK:
            back.asked[row] = time
            if begin:
                owner[row] = begin.popitem(last=False)[0]
        elif step == Step.RESULT:
            back.add(row, owner.get(row, NONE))
        elif step == Step.ANSWER and row in unanswered:
            last = back.take(row, unanswered.pop(row))
            other = owner.get(last, NONE)
            if other in unanswered:
                begin[other] = None
                begin.move_to_end(other, last=False)
            owner[last] = row
            owner.pop(NONE, None)
            begin.pop(row, None)
            back.forget(row, next(iter(unanswered.values()), time))
            if back.count() > ROUNDS.left + 2 * len(unanswered):
                return None
    return owner


class _Results:
    """Sub-requests with a result of which nobody took account yet, in this order."""

    def __init__(self) -> None:
        self.asked: dict[int, int] = {}  # when
        self._free: OrderedDict[int, int] = OrderedDict()
        self._owned: OrderedDict[int, int] = OrderedDict()  # and by whom
        self._by: dict[int, list[int]] = defaultdict(list)

    def count(self) -> int:
        """Return how many there are."""
        return len(self._free) + len(self._owned)

    def add(self, sub: int, owner: int) -> None:
        """Add one that has its result."""
        if owner == NONE:
            self._free[sub] = owner
        else:
            self._owned[sub] = owner
            self._by[owner].append(sub)

    def take(self, row: int, received: int) -> int:
        """Take the last of a request: the first that nobody asked, or -1.

        Else what was taken for another's first: the latest that is there.
        """
        could = (sub for sub in self._free if self.asked.get(sub, 0) > received)
        others = (
            sub
            for sub, of in reversed(self._owned.items())
            if of != row and self.asked.get(sub, 0) > received
        )
        last = next(chain(could, others), NONE)
        self._free.pop(last, None)
        self._owned.pop(last, None)
        return last

    def forget(self, row: int, oldest: int) -> None:
        """Drop what a request that is answered asked, and all from before the oldest."""
        for sub in self._by.pop(row, ()):
            self._owned.pop(sub, None)
        for subs in (self._free, self._owned):
            while subs and self.asked.get(next(iter(subs)), 0) <= oldest:
                sub, owner = subs.popitem(last=False)
                if owner in self._by:
                    self._by[owner].remove(sub)


class PoolStep(IntEnum):
    """What a loop does that shares connections among its requests."""

    RECEIVE = 0
    RESULT = 1
    ANSWER = 2
    OPEN = 3
    ASK = 4


class Pool:
    """Who has, and who waits for, a loop's connections to a service.

    Parameters
    ----------
    free : int
        Connections from before the recording.
    endpoint : list of int
        Of each sub-request.
    """

    def __init__(self, free: int, endpoint: list[int]) -> None:
        self.owner: dict[int, int] = {}  # requests, of sub-requests
        self._size = self._free = free
        self._endpoint = endpoint
        self._opened: dict[int, int] = {}  # by whom, until it is used
        self._ready: deque[tuple[int, bool]] = deque()  # and whether it gives one back
        self._waiting: deque[int] = deque()
        self._unanswered: set[int] = set()

    def follow(self, step: int, row: int) -> int:
        """Go on by a step of a request or sub-request; return whom it contradicts, or -1."""
        if step == PoolStep.RECEIVE:
            self._unanswered.add(row)
            self._ready.append((row, False))
        elif step == PoolStep.RESULT:
            self._ready.append((self.owner.get(row, -1), True))
        elif step == PoolStep.ANSWER:
            return self._answer(row)
        elif step == PoolStep.ASK and self._endpoint[row] in self._opened:
            self.owner[row] = self._opened.pop(self._endpoint[row])
        else:
            return self._depart(row, opens=step == PoolStep.OPEN)
        return NONE

    def _come(self) -> int:
        """Let the next go on, who first gives back what it has; that wakes who waits longest."""
        request, gives = self._ready.popleft()
        if gives:
            self._free += 1
            if self._waiting:
                self._ready.append((self._waiting.popleft(), False))
        return request

    def _depart(self, row: int, *, opens: bool) -> int:
        while self._ready:
            request = self._come()
            if request not in self._unanswered:
                continue
            if opens:
                self._size += 1
                self._opened[self._endpoint[row]] = request
            elif self._free > 0:
                self._free -= 1
            else:
                self._waiting.append(request)
                continue
            self.owner[row] = request
            return NONE
        if not self._waiting:
            return NONE
        # Somebody else went on, by what is not seen.
        self.owner[row] = self._waiting.popleft()
        return self.owner[row]

    def _answer(self, row: int) -> int:
        """Let those before it go on: whom a connection was free for did not take it."""
        self._unanswered.discard(row)
        against = NONE
        if any(request == row for request, _ in self._ready):
            while (request := self._come()) != row:
                if request in self._unanswered:
                    against = request if self._free > 0 else against
                    self._waiting.append(request)
        elif row in self._waiting:
            self._waiting.remove(row)
            against = row
        if not self._unanswered:
            self._ready.clear()
            self._waiting.clear()
            self._free = self._size
        return against
