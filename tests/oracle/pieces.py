"""Plain-Python twin of the native pieces of requests: a list of pieces per request."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np

from critpath.model import State
from critpath.model.requests import Act, Certainty
from critpath.requests.owners import find_loops, thread_keys

WALK = int(State.UNKNOWN)
DEEPEST = 50


def compose(
    activity, endpoints, requests, subrequests, slices, rows, *, doubtful=False, transits=None
):
    """Return host, thread, begin, end, state of every piece of each row, and how sure it is.

    Then how many are in doubt.

    ``transits`` has a row of four times for each sub-request: `find_transits`.
    """
    sketches = Sketches(
        activity, endpoints, requests, subrequests, slices, follow=doubtful, transits=transits
    )
    found, left = [], 0
    for row in rows.tolist():
        pieces, doubtful = sketches.compose(row)
        left += doubtful
        found.append([(key >> 32, key & 0xFFFFFFFF, *rest) for key, *rest in pieces])
    return found, left


class DoubtfulError(Exception):
    """It is not known what was done for a request."""


class Sketches:
    """Slices and sub-requests, by thread and by request."""

    def __init__(
        self,
        activity,
        endpoints,
        requests,
        subs,
        slices,
        *,
        follow,
        transits,
    ):
        self._follow = follow
        host = endpoints.host[requests.endpoint]
        answerer, reader = (
            thread_keys(host, requests.tid),
            thread_keys(host, requests.reader_tid),
        )
        self._answerer, self._reader = answerer.tolist(), reader.tolist()
        self._begin, self._end = requests.begin_ns.tolist(), requests.end_ns.tolist()
        self._received = requests.received_ns.tolist()
        self._doubtful = (requests.boundary == Certainty.DOUBTFUL).tolist()
        every, number = np.unique(reader, return_inverse=True)
        times = np.column_stack([requests.begin_ns, requests.received_ns, requests.end_ns])
        loops = find_loops(times, number.reshape(-1).astype(np.int32), len(every))
        self._loops = set(every[loops].tolist())
        self._add_subrequests(subs, endpoints, len(requests), transits)
        keys = thread_keys(slices.host, slices.tid)
        # Of others only what is theirs for sure; -1 is a shared stretch.
        sure = (slices.request < 0) | (slices.attribution != Certainty.DOUBTFUL) | follow
        sure &= slices.end_ns > slices.begin_ns
        self._slices = {
            key: (slices.begin_ns[at].tolist(), slices.end_ns[at].tolist(), of.tolist())
            for key, at in _by_thread(keys, np.flatnonzero(sure), slices.begin_ns)
            for of in (slices.request[at],)
        }
        sleeps = np.flatnonzero((activity.act == Act.SLEEP) & (activity.tid >= 0))
        asleep = thread_keys(activity.host, activity.tid)
        self._sleeps = {
            key: activity.time_ns[at].tolist()
            for key, at in _by_thread(asleep, sleeps, activity.time_ns)
        }

    def _add_subrequests(self, subs, endpoints, requests, transits):
        """Note of every request what it asked: those that end last come last."""
        mine = np.flatnonzero((subs.request >= 0) & (subs.connects == 0))
        mine = mine[np.lexsort((subs.end_ns[mine], subs.request[mine]))]
        self._first = np.searchsorted(subs.request[mine], np.arange(requests + 1)).tolist()
        key = thread_keys(endpoints.host[subs.endpoint[mine]], subs.tid[mine])
        self._asked = list(
            zip(
                *(subs.begin_ns[mine].tolist(), subs.end_ns[mine].tolist(), key.tolist()),
                subs.child[mine].tolist(),
                (subs.attribution[mine] == Certainty.DOUBTFUL).tolist(),
                # What is answered here, but by no request that was found, is not understood.
                (endpoints.peer[subs.endpoint[mine]] < 0).tolist(),
                [None] * len(mine) if transits is None else transits[mine].tolist(),
                subs.probability[mine].tolist(),
                strict=True,
            )
        )

    def compose(self, row):
        """Return a request's pieces in order of time, and whether any is in doubt."""
        pieces, self._in_doubt = [], False
        self._settle(row, self._begin[row], self._end[row], pieces, 0, 1.0)
        pieces.reverse()
        return pieces, self._in_doubt

    def _settle(self, row, low, high, pieces, depth, sure):
        """Add the pieces of a request; in doubt those of the thread that answered it."""
        kept = len(pieces)
        try:
            self._compose(row, low, high, pieces, depth, sure)
        except DoubtfulError:
            self._in_doubt = True
            del pieces[kept:]
            received = min(max(self._received[row], low), high)
            self._work(row, self._answerer[row], received, high, pieces, sure)
            self._wait(row, self._reader[row], low, received, pieces, sure)

    def _compose(self, row, low, high, pieces, depth, sure):
        """Add the pieces of a request between two times, the last first."""
        if self._doubtful[row] or depth > DEEPEST:
            raise DoubtfulError
        time, thread = high, self._answerer[row]
        received = min(max(self._received[row], low), high)
        for begin, end, asker, child, doubtful, remote, transit, link in reversed(
            self._asked[self._first[row] : self._first[row + 1]]
        ):
            if doubtful and not self._follow:
                raise DoubtfulError
            # Of several at once, the one that was answered last was waited for.
            if end > time or begin < received:
                continue
            if transit is not None and transit[0] >= 0:
                self._work(row, thread, end, time, pieces, sure)
                time = self._cross(
                    row, asker, child, (received, end), transit, pieces, depth, (sure, link)
                )
            elif child >= 0:
                asked, answered = max(self._begin[child], received), min(self._end[child], end)
                if answered <= asked:
                    raise DoubtfulError
                self._work(row, thread, end, time, pieces, sure)
                self._wait(row, asker, answered, end, pieces, sure)
                self._settle(child, asked, answered, pieces, depth + 1, sure * link)
                time = asked
            elif asker in self._loops:
                if not remote:
                    raise DoubtfulError
                self._work(row, thread, end, time, pieces, sure)
                _add(pieces, asker, begin, end, State.WAIT_NET, sure)
                time = begin
            else:
                self._work(row, thread, begin, time, pieces, sure)
                time = begin
            thread = asker
        self._work(row, thread, received, time, pieces, sure)
        self._wait(row, self._reader[row], low, received, pieces, sure)

    def _cross(self, row, asker, child, window, transit, pieces, depth, links):
        """Add what was asked of another host; return when it left."""
        (low, high), (sure, link) = window, links
        left, answered = max(transit[0], low), min(transit[3], high)
        self._wait(row, asker, answered, high, pieces, sure)
        if child < 0:
            _add(pieces, asker, left, answered, State.NET_TRANSIT, sure * link)
            return left
        since = max(transit[1], left)
        until = min(max(transit[2], since), answered)
        _add(pieces, asker, until, answered, State.NET_TRANSIT, sure * link)
        self._settle(child, since, until, pieces, depth + 1, sure * link)
        _add(pieces, asker, left, since, State.NET_TRANSIT, sure * link)
        return left

    def _wait(self, row, thread, low, high, pieces, sure=1.0):
        """Add the time until a thread received what was there: it may serve others first."""
        begin, end, of = self._slices.get(thread, ([], [], []))
        others = []
        for at in range(bisect_left(begin, high) - 1, -1, -1):
            if end[at] <= low:
                break
            if of[at] != row:
                others.append(at)
        if others:
            # From the first of them on; before, it was not there yet.
            since, until = max(begin[others[-1]], low), min(end[others[0]], high)
            _add(pieces, thread, until, high, WALK, sure)
            _add(pieces, thread, since, until, State.QUEUED, sure)
            high = since
        _add(pieces, thread, low, high, WALK, sure)

    def _work(self, row, thread, low, high, pieces, sure=1.0):
        """Add a stretch in which a request was worked for; others that its thread served meanwhile.

        A thread that slept since it served others was woken for this one: what woke it is told by
        its own path.
        """
        begin, end, of = self._slices.get(thread, ([], [], []))
        own = high
        for at in range(bisect_left(begin, high) - 1, -1, -1):
            if end[at] <= low:
                break
            if of[at] == row:
                own = begin[at]
                continue
            since, until = max(begin[at], low), min(end[at], high)
            if of[at] >= 0 and self._slept(thread, until, min(own, high)):
                break
            _add(pieces, thread, until, high, WALK, sure)
            _add(pieces, thread, since, until, State.SHARED if of[at] < 0 else State.QUEUED, sure)
            high = own = since
        _add(pieces, thread, low, high, WALK, sure)

    def _slept(self, thread, low, high):
        times = self._sleeps.get(thread, [])
        return bisect_right(times, high) > bisect_left(times, low)


def _add(pieces, thread, begin, end, state, sure):
    if end > begin:
        pieces.append((thread, begin, end, int(state), sure))


def _by_thread(keys, rows, time):
    """Yield every thread of some rows with its own, in order of time."""
    rows = rows[np.lexsort((time[rows], keys[rows]))]
    bounds = np.flatnonzero(np.diff(keys[rows])) + 1
    for group in np.split(rows, bounds):
        if len(group):
            yield int(keys[group[0]]), group
