"""Plain-Python twin of the native tokens: slow, obvious, written from the rules alone.

Histories are tuples, queues are dictionaries in order of entering.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from heapq import merge
from itertools import islice

from critpath.requests.assign import What
from critpath.requests.transitions import ANSWER, END

CANDIDATES = 64
BROAD = 0.05
RANK = 2.0
FIRST = 0.85
NONE = -1


@dataclass
class Token:
    """A request of which something may still be asked."""

    history: tuple
    ready: int = 0
    thread: int = -1  # in whose queue it is, -1 in none
    answered: bool = False
    last: int = NONE  # what it asked last
    sure: float = 1.0  # that what it is known to have asked is its own: a mistake goes on


class Run:
    def __init__(self):
        self.owner, self.sure, self.histories, self.waits = {}, {}, {}, {}
        self.contradicted = 0


def weigh_delay(delays, before, kind, delay):
    if (before, kind) not in delays:
        return math.log(BROAD)
    middle, spread = delays[before, kind]
    off = (math.log(max(delay, 1000)) - middle) / spread
    dense = math.exp(-off * off / 2) / spread
    return math.log((1 - BROAD) * dense + BROAD / 10)


class Pass:
    """Follows a process's tokens once."""

    def __init__(self, process, known, delays=None, *, later, in_order=False):
        self._in_order, self._known = in_order, known
        self._delays, self._later = delays, later
        columns = (process.time, process.what, process.thread, process.row)
        self._events = [*zip(*(column.tolist() for column in columns), strict=True)]
        self._roots, self._asks = process.root.tolist(), process.asks.tolist()
        self._tokens = {}
        # By what they asked, each in order of entering: taken out as often as they come in.
        self._queues = defaultdict(dict)
        self._opened = {}  # whose a connection is until it is used, and how surely
        self._run = Run()

    def run(self):
        """Go through all events."""
        does = {
            What.RECEIVE: self._receive,
            What.RESULT: self._result,
            What.MADE: self._made,
            What.ASK: self._ask,
            What.ANSWERED: self._answered,
        }
        for time, what, thread, row in self._events:
            does[what](time, thread, row)
        for row, token in self._tokens.items():
            self._run.histories[row] = [*token.history, END]
        return self._run

    def _enter(self, time, thread, row):
        token = self._tokens[row]
        self._leave(row)
        token.ready, token.thread = time, thread
        queue = self._queues[thread]
        alike = queue.get(token.history)
        if alike is None:
            alike = queue[token.history] = {}
        alike[row] = time

    def _leave(self, row):
        token = self._tokens[row]
        if token.thread >= 0:
            queue = self._queues[token.thread]
            alike = queue[token.history]
            del alike[row]
            if not alike:
                del queue[token.history]
            token.thread = -1

    def _receive(self, time, thread, row):
        self._tokens[row] = Token((self._roots[row],))
        self._enter(time, thread, row)

    def _result(self, time, thread, row):
        owner = self._run.owner.get(row, -1)
        if owner in self._tokens:
            token = self._tokens[owner]
            if not token.answered or self._goes_on(token):
                self._enter(time, thread, owner)

    def _made(self, _, thread, made):
        """Move the first that has asked nothing yet to the thread that was made for it."""
        fresh = (
            next(iter(alike.items()))[::-1]
            for history, alike in self._queues[thread].items()
            if max(history[1:], default=NONE) < 0 and self._known.goes_on(history)
        )
        ready, row = min(fresh, default=(0, NONE))
        if row >= 0 and self._goes_on(self._tokens[row]):
            self._enter(ready, made, row)

    def _answered(self, time, thread, row):
        token = self._tokens.get(row)
        if token is None:
            return
        self._heal(row, token, thread)
        queue = token.thread
        self._leave(row)
        token.history = (*token.history, ANSWER)
        token.answered = True
        if queue >= 0 and self._goes_on(token):
            self._enter(time, queue, row)

    def _heal(self, row, token, thread):
        """Exchange what two asked last, if the answer shows that it was the other's.

        Who is answered has all results. If this one has not, the first that has was taken for it;
        with `in_order` also if another had them before.
        """
        known, run = self._known, self._run
        waits = token.thread >= 0 and known.may(token.history, ANSWER)
        if self._later or (waits and not self._in_order):
            return
        could = [
            next(iter(alike.items()))[::-1]
            for history, alike in self._queues[thread].items()
            if known.may(history, ANSWER)
            and (history == token.history or history[:-1] == token.history)
        ]
        first = min(could, default=(0, row))[1]
        other = self._tokens[first]
        both = token.history == other.history
        if first == row or run.owner.get(other.last) != first:
            return
        if both and (run.owner.get(token.last) != row or token.last == other.last):
            return
        if both and self._asks[token.last][0] != self._asks[other.last][0]:
            return
        run.contradicted += not waits
        mine, its = (token.ready, token.thread), (other.ready, other.thread)
        last = token.last if both else NONE
        self._leave(row)
        self._leave(first)
        token.last, other.last = other.last, last
        run.owner[token.last] = row
        if both:
            run.owner[last] = first
        else:
            token.history, other.history = other.history, token.history
        run.sure[token.last] = token.sure = FIRST
        self._enter(*its, row)
        if mine[1] >= 0:
            self._enter(*mine, first)

    def _goes_on(self, token):
        """Return whether a token may ask anything more."""
        if token.answered and not self._later:
            return False
        return self._known.goes_on(token.history)

    def _ask(self, time, thread, row):
        run = self._run
        kind, endpoint, ruled, how = self._asks[row]
        opened = self._opened.pop(endpoint, None)
        if opened is not None:
            owner, sure = opened
        elif not self._later and how & 2 and ruled in self._tokens:
            owner, sure = ruled, 1.0
        else:
            owner, sure = self._choose(time, thread, kind)
            if owner >= 0:
                run.waits[row] = time - self._tokens[owner].ready
                sure = self._tokens[owner].sure = min(sure, self._tokens[owner].sure)
        run.owner[row], run.sure[row] = owner, sure
        if owner >= 0:
            token = self._tokens[owner]
            self._leave(owner)
            if how & 1:
                self._opened[endpoint] = owner, sure
            else:
                token.history = (*token.history, kind)
                token.last = row

    def _candidates(self, thread, kind):
        """Return who may have asked this, and how probable it is for what they asked so far.

        They are of this thread, else of those that handed over to it.
        """
        queue = self._queues[thread]
        queues = [queue] if queue else [each for each in self._queues.values() if each]
        known = self._known
        could = []
        for each in queues:
            for history, alike in each.items():
                weight = known.weigh(history, kind)
                if weight > -math.inf:
                    could.append((alike, weight))
        if len(could) == 1:
            alike, weight = could[0]
            return ((row, weight) for row in alike)
        lists = (
            [(at, row, weight) for row, at in islice(alike.items(), CANDIDATES)]
            for alike, weight in could
        )
        return ((row, weight) for _, row, weight in merge(*lists))

    def _choose(self, time, thread, kind):
        """Return the token that asks this, and how probably it is that one."""
        best, second, chosen, rank = -math.inf, -math.inf, NONE, 0.0
        rivals, tokens = [], self._tokens
        for row, usual in islice(self._candidates(thread, kind), CANDIDATES):
            token = tokens[row]
            weight = usual - rank
            if self._delays is not None:
                weight += weigh_delay(self._delays, token.history[-1], kind, time - token.ready)
            else:
                rank += RANK
            rivals.append(token)
            if weight > best:
                best, second, chosen = weight, best, row
            elif weight > second:
                second = weight
        if len(rivals) < 2:
            return chosen, 0.99
        probable = 1 / (1 + math.exp(min(second - best, 50.0)))
        probable = max(probable, 0.5 / len(rivals))
        for token in rivals:  # if it was not the chosen one, it was one of these
            token.sure = min(token.sure, probable)
        return chosen, probable
