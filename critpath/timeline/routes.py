"""Which kinds of network devices the packets of executions were queued at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np

from critpath.model import I64, EventClass, Events, Executions, Kind

# A device is passed that has this share of the packets of the busiest one, in half of the
# time's pieces; with less than the lower share it is not.
_PASSED: Final = 0.10
_NOT_PASSED: Final = 0.01
_UNKNOWN: Final = "unknown"


def count_routes(
    events: Events, executions: Executions, kinds: Mapping[str, str]
) -> dict[str, int]:
    """Count packets by the kind of the device that they were queued at, during executions.

    Names of devices are no use for that: those of veth are random.

    Parameters
    ----------
    events : Events
    executions : Executions
    kinds : mapping of str to str
        The kind of each device by its name (`critpath.read.manifest.find_device_kinds`).

    Returns
    -------
    dict of str to int
        ``route_executions``; for every kind ``route_packets_KIND``, ``route_devices_KIND`` that
        surely were passed, and ``route_perhaps_KIND`` that may have been.  Empty where packets
        were not recorded, or are fewer than executions.
    """
    sends = np.array([_names_device(c) for c in events.classes], bool)
    begin, end = _merge(executions)
    if not sends.any() or not len(begin):
        return {}
    rows = np.flatnonzero(sends[events.event_class])
    time = events.timestamp[rows]
    piece = np.searchsorted(begin, time, "right") - 1
    inside = (piece >= 0) & (time <= end[piece])
    rows, piece = rows[inside], piece[inside]
    if len(rows) < len(executions):
        return {}
    codes, which, packets = np.unique(
        events.column(rows, "name"), return_inverse=True, return_counts=True
    )
    pairs = np.unique(np.stack([which.reshape(-1), piece]), axis=1)
    often = np.bincount(pairs[0], minlength=len(codes)) * 2 >= len(np.unique(piece))
    result: Counter[str] = Counter({"route_executions": len(executions)})
    for code, count, usual in zip(codes.tolist(), packets.tolist(), often.tolist(), strict=True):
        name = events.strings[code]
        kind = "loopback" if name == "lo" else kinds.get(name, _UNKNOWN)
        share = count / int(packets.max())
        if share >= _NOT_PASSED:
            result[f"route_perhaps_{kind}"] += 1
        if usual and share >= _PASSED:
            result[f"route_devices_{kind}"] += 1
            result[f"route_packets_{kind}"] += count
    return dict(result)


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
