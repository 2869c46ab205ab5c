"""What the findings of several executions have in common: the facts of a cause."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from critpath.model import Charge, Finding, Member, Reason, State
from critpath.model.vectors import name_family, split_host
from critpath.text.phrases import OTHERS

NEARLY_ALL = 0.8  # a part that is named alone
HALF = 0.5


def main_member(members: Sequence[Member], reason: Reason | None = None) -> Member:
    """Return the member that stands for all: the largest in the state named first."""
    # What it brought along may be more, but is not what happened.
    itself = [m for m in members if reason and m.finding.symbol == reason.symbol and not m.moved]
    if itself:
        return max(itself, key=lambda m: (abs(m.finding.contribution), -m.place))
    # Less what only moved there; where more moved away than is there, none is left.
    sums: defaultdict[State, list[float]] = defaultdict(list)
    for m in members:
        sums[m.counts_as.state].append(m.finding.contribution)
    sign = 1 if math.fsum(m.finding.contribution for m in members) >= 0 else -1
    weight = {state: max(sign * math.fsum(ns), 0.0) for state, ns in sums.items()}
    first = max(sorted(weight), key=weight.__getitem__)
    named = [m for m in members if m.counts_as.state == first and not m.moved]
    return max(named, key=lambda m: (abs(m.finding.contribution), -m.place))


def count_rise(members: Sequence[Member]) -> Charge | None:
    """Return the step that was done more often, on average, if that is what it is about."""
    charges = {m.finding.execution: m.charge for m in members if m.charge and m.charge.before}
    if not charges or any(not m.charge for m in members if not m.moved):
        return None
    size = len(charges)
    content = Counter(c.content for c in charges.values())
    return replace(
        next(iter(charges.values())),
        before=math.fsum(c.before for c in charges.values()) / size,
        after=math.fsum(c.after for c in charges.values()) / size,
        content=max(sorted(content), key=content.__getitem__),
    )


def where_in(members: Sequence[Member]) -> str:
    """Return in which system call it was, if most of the executions agree on it."""
    first: dict[int, Member] = {}
    for m in sorted((m for m in members if not m.moved), key=lambda m: -m.finding.begin):
        first[m.finding.execution] = m
    calls = Counter(m.context.call for m in first.values())
    call, count = max(sorted(calls.items()), key=lambda x: x[1])
    return call if 2 * count > len(first) else ""


def find_elsewhere(findings: Sequence[Finding]) -> tuple[float | None, int | None, str]:
    """Return in what share of waits for a cpu another was idle, and the one that all were for.

    Then its host, where there are several: of two hosts, CPU 0 is two CPUs.
    """
    waits = [f for f in findings if f.symbol.state == State.WAIT_CPU and f.observed > 0]
    idle = math.fsum(f.elsewhere_idle for f in waits)
    if not waits or math.isnan(idle):
        return None, None, ""
    share = min(idle / math.fsum(f.observed for f in waits), 1.0)
    places = {(split_host(f.comm)[1].removeprefix("@"), cpu) for f in waits for cpu in f.cpus}
    host, cpu = places.pop() if len(places) == 1 else ("", -1)
    return share, cpu if cpu >= 0 else None, host if cpu >= 0 else ""


def most_detail(findings: Sequence[Finding]) -> str:
    """Return the qualifier to name; of many that had the cpu, the one with most time."""
    pairs = [(f.detail, abs(f.contribution)) for f in findings]
    ways = [pairs]
    if findings[0].symbol.state == State.WAIT_CPU:
        # Threads of one name, such as a compiler's, are one culprit with many ids, and so
        # are those of one family, such as workers that have the cpu in turn.
        pairs = [
            (detail, abs(f.contribution) * share)
            for f in findings
            for detail, share in f.details or ((f.detail, 1.0),)
        ]
        ways = [pairs]
        names = [(re.sub(r" \(\d+\)$", "", text), weight) for text, weight in pairs]
        ways += [names, [(name_family(text), weight) for text, weight in names]]
    for share in (NEARLY_ALL, HALF):
        for way in ways:
            heaviest = _heaviest(way)
            if _holds(heaviest, way, share):
                return heaviest
    heaviest = _heaviest(ways[min(1, len(ways) - 1)])
    return OTHERS + heaviest if heaviest else ""


def _holds(text: str, pairs: Sequence[tuple[str, float]], share: float = HALF) -> bool:
    """Tell whether more than a share of the weight has a text."""
    mine = math.fsum(weight for other, weight in pairs if other == text)
    return mine > share * math.fsum(weight for _, weight in pairs)


def _heaviest(pairs: Sequence[tuple[str, float]]) -> str:
    """Return the text with the largest summed weight, the least of equals."""
    tally: defaultdict[str, float] = defaultdict(float)
    for text, weight in pairs:
        tally[text] += weight
    return max(sorted(tally), key=tally.__getitem__)
