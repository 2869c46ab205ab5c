"""How many executions are explained: as many as make the answer better.

Executions are explained in batches, each of which is spread over the order of their excess;
after each the causes are named of all so far.  They are settled when, since the batch before,

* the first cause is about the same, and so are, in the same order, all that have a tenth of the
  excess or more (`ENOUGH.large`);
* what each of these contributes to an execution is known to within a fifth of the mean excess
  (`ENOUGH.sure`): half the width of its interval at 95 %;
* the first contributes surely more than the second, or surely less: their difference is beyond
  its own interval.

Executions alike are settled after two batches, 27 of them; where they are slow for many
reasons, all of up to `CompareSettings.explain_limit` are explained.  So are 27 and fewer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev

from critpath.model import Cause, Finding
from critpath.schema.parameters.localize import ENOUGH
from critpath.schema.parameters.shared import EVEN, NORMAL


def in_batches(order: Sequence[int]) -> list[list[int]]:
    """Divide executions into batches: the first of any number of them are spread over all.

    Parameters
    ----------
    order : sequence of int
        By excess.

    Returns
    -------
    list of list of int
        The first batch has `ENOUGH.first`, and each brings the number to `ENOUGH.growth` times
        as many; the slowest is in the first.
    """
    turns = sorted(range(len(order)), key=lambda place: place * EVEN.golden % 1)
    batches, begin, end = [], 0, ENOUGH.first
    while begin < len(order):
        batches.append([order[place] for place in turns[begin:end]])
        begin, end = end, math.ceil(ENOUGH.growth * end)
    return batches


def is_settled(
    before: Sequence[Cause],
    now: Sequence[Cause],
    findings: Sequence[Finding],
    excess: Mapping[int, float],
) -> bool:
    """Tell whether explaining more executions would leave the causes as they are.

    Parameters
    ----------
    before, now : sequence of Cause
        Of a part of the executions, and of all explained so far.
    findings : sequence of Finding
        Theirs, of all explained so far.
    excess : mapping of int to float
        Every execution explained so far, and its nanoseconds over normal ones.
    """
    if not before or not now:
        return False
    parts = _contributions(now, findings, excess)
    names, mine = list(parts), [list(of.values()) for of in parts.values()]
    whole = abs(math.fsum(excess.values()))
    large = [
        0,
        *(i for i in range(1, len(mine)) if abs(math.fsum(mine[i])) >= ENOUGH.large * whole),
    ]
    if any(_half_width(mine[i]) > ENOUGH.sure * whole / len(excess) for i in large):
        return False
    if len(large) > 1:
        lead = [one - other for one, other in zip(mine[0], mine[large[1]], strict=True)]
        if abs(fmean(lead)) <= _half_width(lead):
            return False
    earlier = list(dict.fromkeys(map(_subject, before)))
    there = [name for name in earlier if name in {names[i] for i in large}]
    return earlier[0] == names[0] and there == [names[i] for i in large]


def _subject(cause: Cause) -> tuple[object, ...]:
    """Return what a cause is about, whichever of its states is new, and which more often."""
    facts = cause.facts
    about = (facts.state, facts.role, facts.peer, facts.device) if facts else ()
    return (cause.contribution > 0, *about)


def _contributions(
    causes: Sequence[Cause], findings: Sequence[Finding], executions: Iterable[int]
) -> dict[tuple[object, ...], dict[int, float]]:
    """Return by subject what causes contribute to each execution; 0 where they are not."""
    nothing = dict.fromkeys(executions, 0.0)
    result: dict[tuple[object, ...], dict[int, float]] = {}
    for cause in causes:
        mine = result.setdefault(_subject(cause), nothing.copy())
        for place in cause.findings:
            mine[findings[place].position] += findings[place].contribution
    return result


def _half_width(values: Sequence[float]) -> float:
    """Return half the width of the interval of a mean."""
    return NORMAL.q975 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
