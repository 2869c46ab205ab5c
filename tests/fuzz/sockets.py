"""Target: any events of sockets and threads, and any text as a condition of ``explore``.

The first byte of an input says which. Events are six bytes and more each: what, cpu, time since
the one before, and a byte for each field, most of which stand for small numbers so that sockets
and threads meet again. Requests are found in them all the way to their pieces.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

import numpy as np
from contract import ContractError, hold
from pure.explore import made

from critpath.explore.questions import facts_of
from critpath.explore.ranking import ask
from critpath.model import EventChunk, EventClass, Kind, Workers
from critpath.model.exploration import FactTable
from critpath.read.event_names import SOCKET_EVENTS
from critpath.requests.activity import ActivityEvents
from critpath.requests.links import Attributed, attribute, find_links
from critpath.requests.paths import Composition
from critpath.requests.turns import FoundTurns, find_turns

EVENTS, CONDITION = range(2)
WIDTHS: Final = {
    **{wanted.kind: len(wanted.fields) for wanted in SOCKET_EVENTS},
    Kind.SWITCH: 5,
    Kind.WAKING: 4,
    Kind.FORK: 4,
    Kind.EXIT: 2,
    Kind.CURRENT: 3,
    **dict.fromkeys((Kind.SOFTIRQ_RAISE, Kind.SOFTIRQ_ENTRY, Kind.SOFTIRQ_EXIT), 1),
    **dict.fromkeys((Kind.IRQ_ENTRY, Kind.IRQ_EXIT), 1),
}
KINDS: Final = tuple(WIDTHS)
_CLASSES: Final = [
    EventClass(k.name, k, tuple(map(str, range(w))), ("int",) * w) for k, w in WIDTHS.items()
]
_ODD: Final = (-1, 1 << 22, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
_THREADS: Final = 12


def read_events(data: bytes) -> EventChunk:
    """Return the events that an input stands for."""
    rows, values, offsets, at, now = [], [], [], 0, 0
    while at + 3 <= len(data):
        kind = data[at] % len(KINDS)
        width = WIDTHS[KINDS[kind]]
        fields = data[at + 3 : at + 3 + width]
        if len(fields) < width:
            break
        now += data[at + 2]
        rows.append((now, data[at + 1] % 4, kind))
        offsets.append(len(values))
        values += [v if v < 256 - len(_ODD) else _ODD[255 - v] for v in fields]
        at += 3 + width
    table = np.array(rows, np.int64).reshape(-1, 3)
    return EventChunk(
        table[:, 0].copy(),
        table[:, 1].astype(np.int32),
        table[:, 2].astype(np.int32),
        np.array(offsets, np.int64),
        np.array(values, np.int64),
    )


def workers() -> Workers:
    """Return threads, three of which are of one process each."""
    tid = np.arange(1, _THREADS + 1)
    nothing = np.zeros(_THREADS, np.int64)
    name = nothing.astype(np.int32)
    return Workers(nothing, tid, tid - (tid - 1) % 3, name, *(nothing - 1,) * 4, name)


def use_events(data: bytes) -> None:
    """Find requests, who worked for them, and their pieces; check what has to hold."""
    chunk = read_events(data)
    collecting = ActivityEvents(np.array([[0, 256]], np.int64), waking=True)
    half = len(chunk.timestamp) // 2
    for part in (slice(0, half), slice(half, None)):
        columns = (getattr(chunk, n)[part] for n in ("timestamp", "cpu", "event_class", "offset"))
        collecting.feed(EventChunk(*columns, chunk.values), _CLASSES)
    threads = workers()
    collected = collecting.finish(threads, ("",))
    end = int(chunk.timestamp[-1]) + 1 if len(chunk.timestamp) else 1
    found = find_turns(collected, threads, lambda _: "server", end=end, skip=data[0] % 2)
    made_of = attribute(found.activity, threads, found.endpoints, found.requests)
    check(found, made_of)
    tables = (made_of.requests, made_of.subrequests, made_of.slices)
    find_links(found.activity, found.endpoints, *tables)
    rows = np.flatnonzero(found.requests.end_ns > found.requests.begin_ns)
    composed = Composition(found.activity, found.endpoints, *tables, rows)
    pieces = composed.cut(slice(None))
    first, last = pieces.start[:-1], pieces.start[1:] - 1
    require((last >= first).all(), "a request without a piece")
    inside = np.setdiff1d(np.arange(len(pieces.begin)), first)
    tiled = (
        (pieces.begin[first] == found.requests.begin_ns[rows]).all()
        and (pieces.end[last] == found.requests.end_ns[rows]).all()
        and (pieces.begin[inside] == pieces.end[inside - 1]).all()
    )
    require(bool(tiled), "pieces do not tile their request")


def check(found: FoundTurns, made_of: Attributed) -> None:
    """Check requests of one endpoint, slices, and what of a request's time is whose."""
    requests, slices = made_of.requests, made_of.slices
    moved = min(requests.bytes_in.min(initial=0), requests.bytes_out.min(initial=0))
    require(moved >= 0, "fewer bytes than none")
    single = np.flatnonzero(requests.end_ns > requests.begin_ns)
    order = single[np.lexsort((requests.begin_ns[single], requests.endpoint[single]))]
    same = requests.endpoint[order][1:] == requests.endpoint[order][:-1]
    apart = requests.begin_ns[order][1:] >= requests.end_ns[order][:-1]
    require(bool((apart | ~same).all()), "requests of one endpoint overlap")
    length = requests.end_ns - requests.begin_ns
    require(bool((requests.true_ns + requests.asked_ns == length).all()), "own and asked")
    require(bool((requests.true_ns >= 0).all()), "less than no time of its own")
    of = slices.request >= 0
    within = (slices.begin_ns[of] >= requests.begin_ns[slices.request[of]]).all() and (
        slices.end_ns[of] <= requests.end_ns[slices.request[of]]
    ).all()
    require(bool(within), "a slice outside of its request")
    by = np.lexsort((slices.begin_ns, slices.tid))
    same = slices.tid[by][1:] == slices.tid[by][:-1]
    apart = slices.begin_ns[by][1:] >= slices.end_ns[by][:-1]
    require(bool((apart | ~same).all()), "slices of one thread overlap")
    require(len(found.requests) == len(requests), "requests came or went")


def require(holds: bool, what: str) -> None:
    """Raise ContractError if something does not hold."""
    if not holds:
        raise ContractError(what)


@cache
def facts() -> FactTable:
    """Return executions to ask about."""
    return facts_of(made.paths(60))


def one(data: bytes) -> str:
    """Try one input."""
    if not data:
        return "nothing"
    if data[0] % 2 == EVENTS:
        return hold(lambda: use_events(data[1:] or b"\0"))
    text = data[1:].decode("utf-8", "replace")
    return hold(lambda: ask(facts(), [], text))


def json_begins(_: bytes) -> int:
    """Return -1: no input is JSON."""
    return -1
