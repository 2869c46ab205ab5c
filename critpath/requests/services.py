"""Who asks whom: the services of recordings, what each asks, how surely and by which rules."""

from __future__ import annotations

import contextlib
import ipaddress
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from critpath.documents.requests import (
    REQUESTS_FORMAT,
    HostBound,
    LeftOut,
    RequestsDocument,
    ServiceEntry,
    UntoldCalls,
    join_left_out,
)
from critpath.model import I64, Bool
from critpath.model.requests import (
    NONE,
    Endpoints,
    Rule,
    Sketches,
)
from critpath.requests.endpoints import NAMELESS
from critpath.requests.links import find_askers
from critpath.text.notes import word

# `RequestTable.why` of what is no single request.
_SEVERAL: Final = "multiplexed"


def sum_services(sketches: Sequence[Sketches], version: str) -> RequestsDocument:
    """Count what the services of recordings were asked, and asked.

    Parameters
    ----------
    sketches : sequence of Sketches
        Of every recording; all requests count, whichever are chosen.
    version : str
        Of critpath, for the document.
    """
    requests: Counter[str] = Counter()
    asks: dict[str, Counter[str]] = {}
    callers: dict[str, Counter[str]] = {}
    millionths: Counter[str] = Counter()
    how: dict[str, Counter[int]] = {}
    left: dict[str, LeftOut] = {}
    untold: dict[str, list[int]] = {}
    alone = several = elsewhere = 0
    for each in sketches:
        table, subs, endpoints = each.requests, each.subrequests, each.endpoints
        names = table.strings
        service = table.service
        producer = np.full(len(table), NONE, np.int64)  # who put the message there
        producer[each.passed.job] = each.passed.producer
        for name, of in each.left_out.items():
            told = LeftOut(**of)
            left[name] = join_left_out(left[name], told) if name in left else told
        for code, count in zip(*_count(service[~each.cut]), strict=True):
            requests[names[code]] += count
        for code in _count(service[~each.cut])[0]:
            rows = np.flatnonzero((service == code) & ~each.cut)
            above = np.where(table.parent[rows] >= 0, table.parent[rows], producer[rows])
            mine = callers.setdefault(names[code], Counter())
            mine[""] += int((above < 0).sum())
            for other, count in zip(*_count(service[above[above >= 0]]), strict=True):
                mine[names[other]] += count
        calls = np.flatnonzero(subs.connects == 0)
        alone += each.alone
        elsewhere += int(_leads_elsewhere(endpoints)[subs.endpoint[calls]].sum())
        many = [text == _SEVERAL for text in names]
        busy = np.array(many, np.bool_)[table.why]
        several += len(np.unique(table.endpoint[busy]))
        by = find_askers(endpoints, table, subs)
        asked_by = calls[by[calls] >= 0]
        asked_by = asked_by[(subs.request[asked_by] < 0) | ~each.cut[subs.request[asked_by]]]
        for row in asked_by.tolist():
            asker = names[int(by[row])]
            if subs.request[row] < 0:
                untold.setdefault(asker, []).append(int(subs.candidates[row]))
            child = int(subs.child[row])
            asked = names[int(service[child])] if child >= 0 else _name_elsewhere(each, row)
            asks.setdefault(asker, Counter())[asked] += 1
            millionths[asker] += round(1e6 * float(subs.probability[row]))
            how.setdefault(asker, Counter())[int(subs.how[row])] += 1
    found = [
        ServiceEntry(
            service=name,
            requests=count,
            calls={asked: n / count for asked, n in asks.get(name, Counter()).most_common()},
            callers=dict(callers[name].most_common()),
            sure=millionths[name] / 1e6 / how[name].total() if name in how else None,
            how={
                Rule(rule).name.lower(): n / how[name].total()
                for rule, n in how.get(name, Counter[int]()).most_common()
            },
            left_out=left.get(name),
            untold=_count_untold(untold[name]) if name in untold else None,
        )
        for name, count in requests.most_common()
    ]
    clocks = {clock.host: clock for each in sketches for clock in each.clocks}
    return RequestsDocument(
        format=REQUESTS_FORMAT,
        version=version,
        services=_put_askers_first(found),
        hosts=[
            HostBound(host, of.aligned, of.middle_bound if of.aligned else None)
            for host, of in clocks.items()
        ],
        alone=alone,
        several_at_once=several,
        not_recorded=elsewhere,
        notes=list(dict.fromkeys(word(note) for each in sketches for note in each.notes)),
    )


def _count_untold(candidates: Sequence[int]) -> UntoldCalls:
    return UntoldCalls(len(candidates), min(candidates), max(candidates))


def _count(codes: np.ndarray[tuple[int], np.dtype[np.int32]] | I64) -> tuple[list[int], list[int]]:
    values, counts = np.unique(codes, return_counts=True)
    return values.tolist(), counts.tolist()


def _leads_elsewhere(endpoints: Endpoints) -> Bool:
    """Return of endpoints whether they are connected to a host that was not recorded.

    Also where the other end was not found, it is known whose address it has: one of the hosts'
    own, or a loopback's.
    """
    own = {*np.unique(endpoints.local_address).tolist(), 0}  # 0: not known
    for code in set(np.unique(endpoints.remote_address).tolist()) - own:
        if _is_loopback(endpoints.strings[code]):
            own.add(code)
    elsewhere: Bool = (
        (endpoints.peer < 0)
        & (endpoints.path == 0)
        & ~np.isin(endpoints.remote_address, np.array([*own], np.int64))
    )
    return elsewhere


def _is_loopback(address: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False


def _name_elsewhere(sketches: Sketches, row: int) -> str:
    """Return what a sub-request asks that was not found where it arrives."""
    of = sketches.endpoints
    at = int(sketches.subrequests.endpoint[row])
    path = of.strings[int(of.path[at])]
    peer, port = int(of.peer[at]), int(of.remote_port[at])
    if path or not port:
        return path or NAMELESS.get(int(of.family[at]), "?")
    if peer >= 0 and len(sketches.hosts) > 1:
        return f"{sketches.hosts[int(of.host[peer])]}:{port}"
    return f"{of.strings[int(of.remote_address[at])]}:{port}"


def _put_askers_first(services: Sequence[ServiceEntry]) -> list[ServiceEntry]:
    """Return services in the order in which requests come to them; those from outside first."""
    by_name = {of.service: of for of in services}
    order: dict[str, None] = {}
    waiting = [of.service for of in services if of.callers.get("", 0)]
    waiting += [of.service for of in services]
    while waiting:
        name = waiting.pop(0)
        if name in by_name and name not in order:
            order[name] = None
            waiting = [*by_name[name].calls, *waiting]
    return [by_name[name] for name in order]
