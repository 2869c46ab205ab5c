"""Which network devices the packets of executions were queued at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from critpath.model import I64, Bool, EventClass, Events, Executions, Kind
from critpath.model.recording import MOST_NAMED
from critpath.schema.environment import Environment, Route, Routes
from critpath.schema.parameters.replay import WAITING

_UNKNOWN: Final = "unknown"
_PACKETS: Final = (Kind.NET_SEND, Kind.NET_RECEIVE)


def count_routes(
    events: Events,
    executions: Executions,
    kinds: Mapping[str, str],
    bridges: Mapping[str, str] | None = None,
) -> Environment | None:
    """Count packets by the kind of the device that they were queued at, during executions.

    By kind, as names of veth devices are random; those that were surely passed are named beside.

    Parameters
    ----------
    events : Events
    executions : Executions
    kinds : mapping of str to str
        The kind of each device by its name (`critpath.read.manifest.find_device_kinds`).
    bridges : mapping of str to str, optional
        The bridge that each is a port of (`critpath.read.manifest.find_bridges`).

    Returns
    -------
    Environment or None
        With `Environment.routes`; of the kind ``bridge`` the names alone.  A packet that goes on
        to other devices is queued at each.  None where packets were not recorded, or are fewer
        than executions.
    """
    sends = np.array([_names_device(c) for c in events.classes], bool)
    begin, end = _merge(executions)
    if not sends.any() or not len(begin):
        return None
    rows = np.flatnonzero(sends[events.event_class])
    time = events.timestamp[rows]
    piece = np.searchsorted(begin, time, "right") - 1
    inside = (piece >= 0) & (time <= end[piece])
    begun = _find_first(events)
    rows, piece = rows[inside], piece[inside]
    if len(rows) < len(executions):
        return None
    codes, which, packets = np.unique(
        events.column(rows, "name"), return_inverse=True, return_counts=True
    )
    pairs = np.unique(np.stack([which.reshape(-1), piece]), axis=1)
    often = np.bincount(pairs[0], minlength=len(codes)) * 2 >= len(np.unique(piece))
    first = np.bincount(which.reshape(-1), begun[rows], minlength=len(codes)).astype(np.int64)
    kinds_of: dict[str, Counter[str]] = {}
    named: dict[str, set[str]] = {}
    columns = (codes.tolist(), packets.tolist(), often.tolist(), first.tolist())
    for code, count, usual, sent in zip(*columns, strict=True):
        name = events.strings[code]
        kind = "loopback" if name == "lo" else kinds.get(name, _UNKNOWN)
        share = count / int(packets.max())
        if share >= WAITING.not_passed:
            kinds_of.setdefault(kind, Counter()).update(perhaps=1)
        if usual and share >= WAITING.passed:
            kinds_of.setdefault(kind, Counter()).update(devices=1, packets=count, begun=sent)
            named.setdefault(kind, set()).add(name)
            if bridge := (bridges or {}).get(name):
                named.setdefault("bridge", set()).add(bridge)
    names = {kind: tuple(sorted(of)[: MOST_NAMED + 1]) for kind, of in named.items()}
    routes = {}
    for kind in dict.fromkeys([*kinds_of, *names]):
        of = kinds_of.get(kind, Counter[str]())
        routes[kind] = Route(
            perhaps=of.get("perhaps"),
            devices=of.get("devices"),
            packets=of.get("packets"),
            begun=of.get("begun"),
            names=names.get(kind),
        )
    return Environment(routes=Routes(executions=len(executions), kinds=routes))


def _find_first(events: Events) -> Bool:
    """Return which events are packets' first: no other device has just passed the same buffer on.

    What forwards a packet, as a bridge does, queues it in the midst of its reception, or next.
    """
    result = np.zeros(len(events.timestamp), np.bool_)
    of = np.array([c.kind in _PACKETS for c in events.classes], np.bool_)
    hosts = np.array([c.host for c in events.classes], np.int64)
    rows = np.flatnonzero(of[events.event_class])
    place = hosts[events.event_class[rows]] << 32 | events.cpu[rows]
    order = np.argsort(place, kind="stable")
    rows, place = rows[order], place[order]
    buffer, name = (events.column(rows, field) for field in ("skbaddr", "name"))
    goes_on = np.zeros(len(rows), np.bool_)
    goes_on[1:] = (
        (place[1:] == place[:-1])
        & (buffer[1:] == buffer[:-1])
        & (buffer[1:] != 0)
        & (name[1:] != name[:-1])
    )
    result[rows[~goes_on & (buffer != 0)]] = True
    return result


def _names_device(of: EventClass) -> bool:
    """Tell whether events of a class are packets that are queued at a device that they name."""
    named = dict(zip(of.fields, of.types, strict=False)).get("name", "absent")
    return of.kind == Kind.NET_SEND and named != "absent"


def _merge(executions: Executions) -> tuple[I64, I64]:
    """Return begins and ends of the pieces of time in which there is an execution."""
    order = np.argsort(executions.begin, kind="stable")
    begin, end = executions.begin[order], np.maximum.accumulate(executions.end[order])
    first = np.ones(len(order), bool)
    first[1:] = begin[1:] > end[:-1]
    last = np.append(np.flatnonzero(first)[1:] - 1, len(order) - 1)
    return begin[first], end[last] if len(order) else end


def add_routes(
    events: Events,
    executions: Executions,
    kinds: Mapping[str, str],
    bridges: Mapping[str, str] | None = None,
) -> Events:
    """Return events that say which devices the executions' packets passed: `count_routes`."""
    counted = count_routes(events, executions, kinds, bridges)
    return replace(events, environment=(*events.environment, counted)) if counted else events
