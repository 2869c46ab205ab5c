"""Plain-Python twin of the native walk, straight from the pseudo-code of the rules.

A graph is a dict: worker -> list of (begin, end, state); links are tuples
(source, sent, target, time, kind); births a dict child -> (parent, born).
"""

from __future__ import annotations

from critpath.model import State

RECEIPT = 3


def _waits(state):
    return state >= State.WAIT_TASK and state != State.WAIT_STOPPED


def walk(intervals, links, births, subject, lo, hi, arrivals=(), own=-1):
    """Return segments [(begin, end, worker, state)] in order of time.

    Arrivals are (worker, time, endpoint): what loops are woken by for others is not followed.
    """
    out = []
    left = []  # (worker, time) of every wait being resolved, for zero-time cycles

    def emit(begin, end, worker, state):
        if end > begin:
            out.append((begin, end, worker, state))

    def into(worker, after, until, end):
        found = [k for k in links if k[2] == worker and after < k[3] <= until]
        told = [k for k in found if k[4]]
        # What bytes of another host ended, they did whoever woke the thread.
        if told and until == end:
            last = max(told, key=lambda k: (k[3], k[4]))
            if last[4] == RECEIPT:
                return last
        return max(found, key=lambda k: (k[3], k[4])) if found else None

    def circular(worker, link):
        source, sent, _, time, _ = link
        return sent >= time and source in {w for w, t in left if t == time} | {worker}

    def others(worker, link):
        source, sent, _, time, kind = link
        if kind not in {0, RECEIPT} or source in {w for w, _ in left} | {worker}:
            return False
        at = time if kind == RECEIPT else sent
        there = [e for w, when, e in arrivals if (w, when) == (worker, at)]
        return bool(there) and own not in there

    def follow(worker, link, s, t):
        source, sent, _, _, kind = link
        leave = max(s, min(sent, t - (kind == RECEIPT)))
        own = (State.WAIT_CPU, State.NET_TRANSIT, State.WAIT_TIMER, State.NET_TRANSIT)[kind]
        emit(leave, t, worker, own)
        left.append((worker, t))
        down(source, s, leave)
        left.pop()

    def down(worker, lo, t):
        bypassed, rewound = None, False
        while t > lo:
            e = next((i for i in intervals.get(worker, ()) if i[0] < t <= i[1]), None)
            if e is None:
                parent, born = births.get(worker, (None, None))
                if (
                    parent is not None
                    and born <= t
                    and not circular(worker, (parent, born, 0, t, 0))
                ):
                    leave = max(born, lo)
                    emit(leave, t, worker, State.WAIT_CPU)
                    left.append((worker, t))
                    down(parent, lo, leave)
                    left.pop()
                    return
                if bypassed is not None and not rewound and not circular(worker, bypassed[0]):
                    link, length, state, top = bypassed
                    del out[length:]
                    emit(link[3], top, worker, state)
                    rewound, bypassed = True, None
                    follow(worker, link, lo, link[3])
                    return
                emit(lo, t, worker, State.UNKNOWN)
                return
            a, b, state = e
            s = max(lo, a)
            link = into(worker, s, t, b)
            if link and _waits(state) and others(worker, link):
                emit(s, t, worker, State.SHARED)
                t = s
                continue
            if link and link[4] == RECEIPT:
                if _waits(state) and b == t:
                    emit(link[3], t, worker, state)
                    follow(worker, link, s, link[3])
                    t = s
                    continue
            elif link and _waits(state):
                if link[3] == b == t and not circular(worker, link):
                    follow(worker, link, s, t)
                    t = s
                    continue
            elif link and not rewound:
                bypassed = (link, len(out), state, t)
            emit(s, t, worker, state)
            t = s

    down(subject, lo, hi)
    return out[::-1]
