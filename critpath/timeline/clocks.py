"""One time for several hosts: their clocks aligned by the packets between them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from critpath.model import F64, I64, Bool, Events
from critpath.timeline.network import match_packets

# Quartz clocks differ by some tens of millionths; more is no clock.
_LARGEST_DRIFT = 1e-3


def align_hosts(events: Events) -> Events:
    """Move the events of all hosts to the time of the first.

    No packet arrives before it was sent.  Packets in one direction bound the line
    between two clocks from above, those in the other from below; of all lines
    between the two convex hulls the one farthest from both is taken.

    Parameters
    ----------
    events : Events

    Returns
    -------
    Events
        The same where there is one host.  A host without packets in both
        directions keeps its clock, and a warning says so.

    Notes
    -----
    Duda, Harrus, Haddad and Bernard, "Estimating global time in distributed
    systems" (ICDCS 1987); used for traces by Poirier, Roy and Dagenais (2010).
    """
    if len(events.hosts) < 2:
        return events
    sent, received = match_packets(events)
    host_of = np.array([c.host for c in events.classes], np.int64)[events.event_class]
    time = events.timestamp.copy()
    warnings = list(events.warnings)
    for host in range(1, len(events.hosts)):
        out = (host_of[sent] == 0) & (host_of[received] == host)
        back = (host_of[sent] == host) & (host_of[received] == 0)
        if not (out.any() and back.any()):
            warnings.append(
                f"host {events.hosts[host]}: no packets to and from {events.hosts[0]}, "
                "its clock is taken as it is"
            )
            continue
        # (their time, our time): ours is earlier for packets we sent, later for theirs.
        line = _between(
            np.concatenate([events.timestamp[received[out]], events.timestamp[sent[back]]]),
            np.concatenate([events.timestamp[sent[out]], events.timestamp[received[back]]]),
            np.concatenate([np.ones(int(out.sum()), bool), np.zeros(int(back.sum()), bool)]),
        )
        if line is None:
            warnings.append(
                f"host {events.hosts[host]}: its packets contradict each other, "
                "its clock is taken as it is"
            )
            continue
        origin, drift, shift = line
        mine = host_of == host
        elapsed = (time[mine] - origin).astype(np.float64)
        time[mine] += np.rint(drift * elapsed).astype(np.int64) + shift
    order = np.argsort(time, kind="stable")
    return replace(
        events,
        timestamp=time[order],
        cpu=events.cpu[order],
        event_class=events.event_class[order],
        offset=events.offset[order],
        begin=min(events.begin, int(time.min(initial=events.begin))),
        end=max(events.end, int(time.max(initial=events.end))),
        warnings=tuple(warnings),
    )


def _between(theirs: I64, ours: I64, below: Bool) -> tuple[int, float, int] | None:
    """Return (origin, drift, shift): our time = theirs + drift * (theirs - origin) + shift.

    ``below`` marks points the line must pass above; the others it must pass below.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 - half a second, for several hosts only

    origin = int(theirs[0])
    difference = ours - theirs
    base = int(np.median(difference))
    x = (theirs - origin).astype(np.float64)
    scale = max(float(np.abs(x).max()), 1.0)
    y: F64 = (difference - base).astype(np.float64)
    unit = max(float(np.abs(y).max()), 1.0)
    sign = np.where(below, 1.0, -1.0)
    # Unknown: drift over the whole range, shift, margin; sign * (line - point) >= margin.
    rows = np.column_stack([-sign * x / scale, -sign, np.ones(len(x))])
    limit = _LARGEST_DRIFT * scale / unit
    solved = linprog(
        [0.0, 0.0, -1.0],
        A_ub=rows,
        b_ub=-sign * y / unit,
        bounds=[(-limit, limit), (None, None), (0.0, None)],
    )
    if not solved.success:
        return None
    drift, shift, _ = solved.x
    return origin, float(drift) * unit / scale, base + round(float(shift) * unit)
