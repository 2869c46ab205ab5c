"""Plain-Python twin of the native turns: slow, obvious, written from the rules alone.

Input: rows ``(time, act, tid, endpoint, value)`` in order, the peer of each endpoint, who serves.
Output: turns as dictionaries in order of their ends, and per endpoint how many turns were
incomplete and how many sends unsolicited.
"""

from __future__ import annotations

from critpath.model.requests import Act

ARRIVAL, WAKE, READ = range(3)
SEGMENT = 1400
PAUSE = 5_000_000
APART = 200_000


class Endpoint:
    def __init__(self):
        self.turn = None  # being received or answered: a dictionary
        self.begin = None  # of the next: an arrival
        self.moved = -1  # its last receive or send
        self.arrived = (-1, -1)  # when, by whom
        self.fresh = None  # the last arrival since the last receive
        self.later = None  # an arrival of the next turn, while this one is not over
        self.going = None  # (when it arrived, by whom): a send that may go on
        self.split = None  # another thread receives while a send may go on: the next turn
        self.last = None  # the turn before
        self.last_bytes = 0
        self.seen = False
        self.numbers = 0
        self.extra = 0  # arrivals apart since the last receive or send, of an unanswered turn
        self.incomplete = self.unsolicited = 0


def cut(rows, peers, serving):
    found = []
    endpoints = [Endpoint() for _ in peers]
    woken, moved = {}, {}

    def complete(of):
        of.numbers += 1
        turn, of.turn, of.last = of.turn, None, None
        if turn.pop("cut"):
            of.incomplete += 1
            return
        turn["number"] = of.numbers
        found.append(turn)
        of.last = turn

    def close(of):
        if of.turn is not None and "end" in of.turn:
            complete(of)
        elif of.turn is not None:
            of.incomplete += 1
        of.turn = of.begin = of.going = of.split = None

    def end_early(of, when, tid, value):
        of.turn |= {"answered": when, "end": when, "tid": tid, "bytes_out": value}
        complete(of)

    for time, act, tid, place, value in rows:
        if act == Act.WAKE:
            woken[value] = time
            continue
        if place < 0:
            continue
        of = endpoints[place]
        if not serving[place]:
            if act == Act.ARRIVAL:
                of.arrived = (time, tid)
        elif act == Act.OPEN:
            of.seen = True
        elif act == Act.ARRIVAL:
            apart = of.arrived[0] >= 0 and time - of.arrived[0] >= APART
            of.arrived, of.seen = (time, tid), True
            other = endpoints[peers[place]] if peers[place] >= 0 else None
            answered = other is not None and other.arrived[0] > of.moved and other.arrived[1] > 0
            if of.turn is not None and of.going is None and answered:
                of.going, of.later = other.arrived, time
            if of.turn is not None and "end" in of.turn:
                complete(of)
                of.begin, of.extra = time, 0
            elif of.turn is None and of.begin is None:
                of.begin, of.extra = time, 0
            elif apart and of.going is None:
                of.extra += 1
            of.fresh = time
        elif act == Act.RECEIVE:
            if of.turn is not None and "end" in of.turn:
                complete(of)
                of.begin, of.extra = of.later, 0
            if of.turn is not None:
                if of.split is not None:
                    of.split["bytes_in"] += value
                elif of.going is not None and of.going[1] != tid:
                    of.split = {
                        "going": of.going,
                        "endpoint": place,
                        "begin": of.later,
                        "received": time,
                        "reader": tid,
                        "bytes_in": value,
                        "bytes_out": 0,
                        "intrusions": 0,
                        "pauses": 0,
                        "how": ARRIVAL,
                        "cut": False,
                    }
                of.turn["bytes_in"] += value
                of.turn["intrusions"] += of.extra if of.last_bytes < SEGMENT else 0
            else:
                how, begin, of.begin = ARRIVAL, of.begin, None
                late = begin is None
                if late:
                    how, begin = READ, time
                    if woken.get(tid, 0) > max(of.moved, moved.get(tid, 0)):
                        how, begin = WAKE, woken[tid]
                of.turn = {
                    "endpoint": place,
                    "begin": begin,
                    "received": time,
                    "reader": tid,
                    "bytes_in": value,
                    "bytes_out": 0,
                    "intrusions": of.extra if value < SEGMENT else 0,
                    "pauses": 0,
                    "how": how,
                    "cut": late and not of.seen,
                }
            of.moved, of.last_bytes, of.seen, of.extra = time, value, True, 0
            of.fresh = of.later = of.going = None
        elif act == Act.SEND:
            own = of.going is not None and of.going[1] == tid
            split, of.split = of.split, None
            if of.turn is not None and split is not None and split["going"][1] == tid:
                of.turn["bytes_in"] -= split["bytes_in"]
                end_early(of, split.pop("going")[0], tid, value)
                of.turn = split
            elif of.turn is not None and "end" not in of.turn and own:
                end_early(of, of.going[0], tid, value)
                of.begin = of.later
            elif of.turn is None and of.begin is not None and own:
                if of.last is not None:
                    of.last |= {"end": of.going[0], "tid": tid}
                    of.last["bytes_out"] += value
            elif of.turn is not None:
                if "end" not in of.turn:
                    of.turn["answered"] = time
                    of.turn["intrusions"] += of.extra if of.last_bytes < SEGMENT else 0
                    of.later = time if of.fresh == time else None
                else:
                    of.turn["pauses"] += time - of.moved >= PAUSE
                of.turn |= {"end": time, "tid": tid}
                of.turn["bytes_out"] += value
            else:
                of.unsolicited += of.seen
                of.incomplete += not of.seen
                of.begin = None
            of.moved, of.seen, of.going, of.extra = time, True, None, 0
        elif act == Act.CLOSE:
            close(of)
        if act in {Act.RECEIVE, Act.SEND} and tid > 0:
            moved[tid] = time
    for of, serves in zip(endpoints, serving, strict=True):
        if serves:
            close(of)
    return found, endpoints
