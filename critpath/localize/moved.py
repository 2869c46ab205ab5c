"""Time that only moved: the same work of a thread, once waited for and once beside it.

While another thread works for it, an execution may sleep, and then its path goes through
that thread (``RUN@peer``), or it may still be runnable on the same cpu, and then its path
says that the thread had the cpu (``WAIT_CPU``, ``peer (12)``).  Which of the two is a
matter of microseconds, and costs nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from critpath.model import RUNNING, Finding, State


def moved_time(findings: Sequence[Finding]) -> dict[int, int]:
    """Pair the two ways of waiting for one thread's work, where one grew and one shrank.

    Parameters
    ----------
    findings : sequence of Finding
        Of all executions.

    Returns
    -------
    dict of int to int
        A finding's position, and that of the other which it is to be counted with: the
        wait for the cpu with the thread's work, if in all that thread is on the path for
        longer than the wait became shorter; else the other way round.  Both are of one
        execution; every finding is in at most one pair.
    """
    running: defaultdict[int, list[int]] = defaultdict(list)
    beside: list[int] = []
    whole: defaultdict[tuple[int, str], float] = defaultdict(float)
    for place, f in enumerate(findings):
        whole[f.execution, f.symbol.role] += f.contribution
        if f.symbol.role and f.symbol.state in RUNNING:
            running[f.execution].append(place)
        elif not f.symbol.role and f.symbol.state == State.WAIT_CPU:
            beside.append(place)

    def by_size(place: int) -> tuple[float, int]:
        return -abs(findings[place].contribution), place

    pairs: dict[int, int] = {}
    for place in sorted(beside, key=by_size):
        f = findings[place]
        rivals = [
            p
            for p in running[f.execution]
            if (findings[p].contribution > 0) != (f.contribution > 0)
            and _names(f.detail, findings[p].symbol.role)
        ]
        if rivals:
            other = min(rivals, key=by_size)
            running[f.execution].remove(other)
            thread = abs(whole[f.execution, findings[other].symbol.role])
            if thread >= abs(f.contribution):
                pairs[place] = other
            else:
                pairs[other] = place
    return pairs


def _names(detail: str, role: str) -> bool:
    """Tell whether who had the cpu, ``peer-3 (12)``, is of a role, ``peer-#``."""
    name = re.sub(r" \(\d+\)$", "", detail)
    return re.fullmatch(re.escape(role).replace(r"\#", r"\d+"), name) is not None
