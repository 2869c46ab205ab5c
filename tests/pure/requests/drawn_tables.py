"""Tables of a recording, drawn: everything that rules tell apart is rare nowhere.

Times are often equal, threads of two hosts have the same ids, and rows 0 are like all others.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from critpath.model import Workers
from critpath.model.clocks import Messages
from critpath.model.requests import (
    Act,
    Activity,
    Certainty,
    Endpoints,
    RequestTable,
    Slices,
    Subrequests,
)

STRINGS = ("", "web:80", "db:5432", "GET /", "/run/db", "why")
EVERY = [act for act in Act if act != Act.TASK]  # (of which marks are made)
ACTS = (*[Act.SEND, Act.RECEIVE, Act.SLEEP, Act.ARRIVAL] * 3, *EVERY)
WAY = (Act.SLEEP, Act.LEAVE, Act.SEND, Act.ARRIVAL, Act.RECEIVE)  # again and again
LOOP = (*[Act.RECEIVE, Act.SLEEP, Act.WAKE, Act.RUN, Act.ARRIVAL] * 4, *[Act.SEND] * 2, *EVERY)


def draw_world(drawing: ModuleType, seed: int) -> Any:
    """Return activity, workers, endpoints, requests, subrequests, slices and messages."""
    rng = np.random.default_rng(seed)

    def some(low: int, high: int, many: int) -> Any:
        return rng.integers(low, high, many)

    ends = 1 + seed % 6
    many = int(rng.integers(1, 60)) if seed % 10 else 0
    tids = (1, 3) if seed % 3 else (-1, 4)  # few threads do much with each other
    peer, order = np.full(ends, -1), rng.permutation(ends)
    for one, other in zip(order[::3].tolist(), order[1::3].tolist(), strict=False):
        peer[one], peer[other] = other, one
    endpoints = drawing.fill(
        Endpoints, ends, host=some(0, 2, ends), family=rng.choice([0, 1, 2, 10], ends),
        remote_address=some(0, 2, ends), remote_port=rng.choice([0, 80, 5432], ends),
        path=rng.choice([0, 0, 4], ends), serves=some(-1, 2, ends), peer=peer, strings=STRINGS,
    )  # fmt: skip
    act = rng.choice([int(a) for a in ACTS], many)
    tid, endpoint = some(*tids, many), some(-1, ends, many)
    if seed % 4 == 2:
        for column, of in ((act, WAY), (tid, (1, 2, 2, 2, 1)), (endpoint, (0, *[seed % ends] * 4))):
            usual = rng.random(many) < 0.9
            column[usual] = np.resize(np.roll(of, -(seed // 4)), many)[usual]
    subject = np.isin(act, (Act.WAKE, Act.CREATE))
    activity = drawing.fill(
        Activity, many, time_ns=np.cumsum(some(0, 3, many)), act=act, tid=tid,
        host=some(0, 1 + seed % 2, many), endpoint=np.where(subject, -1, endpoint),
        value=np.where(subject, some(*tids, many), some(0, 3, many)),
    )  # fmt: skip
    span = int(activity.time_ns[-1]) + 3 if many else 20
    workers = draw_workers(drawing, rng, span)
    requests = draw_requests(drawing, rng, ends, span)
    subs = draw_subrequests(drawing, rng, ends, span, len(requests), some=many > 0)
    slices = draw_slices(drawing, rng, span, len(requests))
    return SimpleNamespace(
        activity=activity, workers=workers, endpoints=endpoints, requests=requests,
        subrequests=subs, slices=slices, messages=draw_messages(rng, activity, ends),
    )  # fmt: skip


def draw_loop(drawing: ModuleType, seed: int) -> tuple[Activity, Endpoints]:
    """Return what a loop and its helpers do, a few things again and again."""
    rng, many = np.random.default_rng(seed), 200
    endpoints = drawing.fill(
        Endpoints, 4, host=np.zeros(4), serves=rng.choice([-1, -1, 0, 1], 4), peer=[1, 0, 3, 2]
    )
    act = rng.choice([int(a) for a in LOOP], many)
    activity = drawing.fill(
        Activity, many, time_ns=np.cumsum(rng.integers(0, 3, many)), act=act,
        tid=rng.choice([-1, 1, 1, 2, 3], many), host=rng.random(many) < 0.1,
        endpoint=np.where(act == Act.WAKE, -1, rng.integers(-1, 4, many)),
        value=rng.integers(1, 4, many),
    )  # fmt: skip
    return activity, endpoints


def draw_workers(drawing: ModuleType, rng: Any, span: int) -> Workers:
    """Return lives of threads, several of one id too, in no order."""
    many = int(rng.integers(0, 20))
    first = rng.integers(-1, max(span // 2, 1), many)
    return drawing.fill(
        Workers, many, host=rng.integers(0, 2, many), tid=rng.integers(0, 4, many),
        pid=rng.choice([-1, 1, 2, 7], many), first=first, last=first + 5,
        idle_cpu=rng.choice([-1, -1, -1, 0], many), parent=np.full(many, -1),
    )  # fmt: skip


def draw_requests(drawing: ModuleType, rng: Any, ends: int, span: int) -> RequestTable:
    """Return turns of endpoints: those of one come one after another, or touch."""
    rows = []
    for end in range(ends):
        at = int(rng.integers(0, 4))
        while at < span and rng.random() < 0.9:
            times = np.sort(rng.integers(0, 6, 3)) + at
            until = int(times[2]) + int(rng.integers(1, 3))
            rows.append((*times.tolist(), until, end))
            at = until + int(rng.integers(0, 4))
    rows.sort()
    begin, received, answered, until, end = np.array(rows, np.int64).reshape(-1, 5).T
    many = len(rows)
    return drawing.fill(
        RequestTable, many, endpoint=end, turn=np.ones(many), service=rng.integers(0, 3, many),
        label=np.zeros(many), begin_ns=begin, received_ns=received, answered_ns=answered,
        end_ns=until, reader_tid=rng.integers(0, 4, many), tid=rng.integers(0, 4, many),
        bytes_in=np.ones(many), message=rng.choice([-1, 0, 0, 3], many), strings=STRINGS,
    )  # fmt: skip


def draw_subrequests(
    drawing: ModuleType, rng: Any, ends: int, span: int, requests: int, *, some: bool
) -> Subrequests:
    """Return sub-requests in order of their begin, of some of which it is known whose they are."""
    many = int(rng.integers(0, 25)) if some else 0
    begin = np.sort(rng.integers(0, span, many))
    return drawing.fill(
        Subrequests, many, endpoint=rng.integers(0, ends, many), begin_ns=begin,
        end_ns=begin + rng.integers(0, 12, many), tid=rng.integers(0, 4, many),
        request=rng.integers(-1, max(requests, 0), many) if requests else np.full(many, -1),
        child=np.where(rng.random(many) < 0.5, rng.integers(-1, requests, many), -1)
        if requests else np.full(many, -1),
        how=np.ones(many), attribution=rng.choice([int(c) for c in Certainty], many),
        connects=rng.random(many) < 0.2, probability=np.zeros(0),
    )  # fmt: skip


def draw_slices(drawing: ModuleType, rng: Any, span: int, requests: int) -> Slices:
    """Return stretches of threads, one after another, in order of their begin."""
    rows = []
    for host in range(2):
        for tid in range(4):
            at = int(rng.integers(0, 5))
            while at < span and rng.random() < 0.8:
                until = at + int(rng.integers(1, 9))
                rows.append((at, until, host, tid, int(rng.integers(-1, min(requests, 2)))))
                at = until + int(rng.integers(0, 4))
    rows.sort()
    begin, until, host, tid, request = np.array(rows, np.int64).reshape(-1, 5).T
    zeros = np.zeros(len(rows))
    return drawing.fill(
        Slices, len(rows), tid=tid, host=host, begin_ns=begin, end_ns=until, request=request,
        unanswered=zeros, how=zeros, attribution=zeros, run_ns=until - begin, idle_ns=zeros,
        cpus=zeros,
    )  # fmt: skip


def draw_messages(rng: Any, activity: Activity, ends: int) -> Messages:
    """Return bytes that were received, mostly when some receive was."""
    receives = np.flatnonzero((activity.act == Act.RECEIVE) & (activity.endpoint >= 0))
    rows = rng.choice(receives, len(receives)) if len(receives) else receives
    many = len(rows)
    late = rng.random(many) < 0.2
    received = activity.time_ns[rows] + late
    columns = {
        "receiver_endpoint": activity.endpoint[rows], "received_ns": received,
        "sender_endpoint": rng.integers(0, ends, many), "position": rng.permutation(many),
        "sent_ns": np.maximum(received - rng.integers(0, 8, many), 0),
    }  # fmt: skip
    blank = {
        name: columns.get(name, np.zeros(many)) for name in Messages.__annotations__
        if name != "strings"
    }  # fmt: skip
    kinds = {"I32": np.int32, "I64": np.int64, "U8": np.uint8, "Bool": np.bool_}
    of = Messages.__annotations__
    return Messages(**{n: np.asarray(c).astype(kinds[of[n]]) for n, c in blank.items()})
