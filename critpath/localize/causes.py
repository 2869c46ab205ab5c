"""Group the findings of several executions by what they have in common."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from critpath.localize.moved import moved_time
from critpath.localize.phrases import IDLE, UNSEEN
from critpath.localize.segments import detail_family
from critpath.localize.sentences import Member, main_member, sentence
from critpath.localize.surroundings import Surroundings
from critpath.model import RUNNING, Cause, Finding, State
from critpath.units import plural

MINOR = 0.05  # of the whole excess: less is said in one line
UNSEEN_COUNTS = 0.5  # what was not observed comes after what was, if that is half as much
_THROTTLED = (State.WAIT_CPU.name, IDLE)


@dataclass(frozen=True)
class Explained:
    """An anomalous execution whose findings are grouped.

    Attributes
    ----------
    execution : int
        Position in the sample set.
    excess : float
        Nanoseconds over its normal group's mean.
    normals : int
        Size of the group it was aligned with.
    """

    execution: int
    excess: float
    normals: int


def group_causes(
    findings: Sequence[Finding],
    executions: Sequence[Explained],
    total: int,
    *,
    kind: str = "",
    around: Sequence[Surroundings] = (),
) -> tuple[Cause, ...]:
    """Group findings that have their sign and what they are about in common.

    A finding on the subject's own thread is about its state and detail (numbers
    taken out).  One on another thread is about that thread: whoever waits for
    ``holder`` waits for it whether it runs, waits for the disk or for a cpu.  If,
    however, that thread was mostly runnable while its cpu was idle, it was
    throttled, and so belongs with the subject's own throttling.

    Two exceptions.  Time that only moved from one way of waiting for a thread to the
    other is set off against itself (`moved_time`): both findings go into the cause of
    the larger.  And threads that take turns in one stretch of the path which normal
    executions do not have at all are one cause, as a journal's thread and the worker
    that writes its blocks.

    Each execution counts once in a cause: its findings there are summed.

    Parameters
    ----------
    findings : sequence of Finding
        Of all anomalous executions.
    executions : sequence of Explained
        Every anomalous execution, with findings or not.
    total : int
        Executions in the sample set, for "4 of 11".
    kind : str
        What these executions are, where they are not all: "examined".
    around : sequence of Surroundings
        Of every finding, for "in system call read, after `helper` woke it".

    Returns
    -------
    tuple of Cause
        By summed contribution times the square root of how many executions bear it out,
        the largest slow-down first: one execution that the disk held up for 300 ms is no
        more the cause than twelve of eleven milliseconds each.  What was not observed
        counts half in this order.
    """
    normals = {e.execution: e.normals for e in executions}
    excess = sum(e.excess for e in executions if e.excess > 0)
    of_all = plural(total, f"{kind} execution".strip())
    groups = [
        [
            Member(
                place,
                findings[place],
                around[place] if around else Surroundings(),
                findings[larger].symbol.state,
                moved=place != larger,
            )
            for place, larger in group
        ]
        for group in _groups(findings)
    ]

    def weight(members: list[Member]) -> float:
        borne_out = len({m.finding.execution for m in members})
        seen = UNSEEN_COUNTS if main_member(members).state in UNSEEN else 1.0
        net = sum(m.finding.contribution for m in members)
        if not any(m.moved for m in members):
            # Of what may have moved, half: it may also be what made room for the other.
            net -= sum(m.finding.offset for m in members) / 2
        return net * math.sqrt(borne_out) * (seen if net > 0 else 1.0)

    groups.sort(key=lambda members: (-weight(members), members[0].place))
    return tuple(
        _cause(members, normals, of_all, excess, first=not number)
        for number, members in enumerate(groups)
    )


def _groups(findings: Sequence[Finding]) -> list[list[tuple[int, int]]]:
    """Return the groups: findings, each with the one as whose state it counts."""
    heaviest: dict[tuple[int, bool, str], Finding] = {}
    for finding in sorted(findings, key=lambda f: abs(f.contribution)):
        heaviest[_thread_key(finding)] = finding
    moved = moved_time(findings)
    keyed: defaultdict[tuple[bool, str, str], list[tuple[int, int]]] = defaultdict(list)
    for place in range(len(findings)):
        larger = moved.get(place, place)
        finding = findings[larger]
        main = heaviest[_thread_key(finding)] if finding.symbol.role else finding
        subject = _about(finding)
        if subject == _THROTTLED != _about(main):
            # A thread's late start, beside more of its time spent otherwise.
            subject = ("", finding.symbol.role)
        keyed[finding.contribution > 0, *subject].append((place, larger))
    return _taking_turns([keyed[key] for key in sorted(keyed)], findings)


def _taking_turns(
    groups: list[list[tuple[int, int]]], findings: Sequence[Finding]
) -> list[list[tuple[int, int]]]:
    """Join the groups of threads that only the anomalous executions wait for, in one stretch."""

    def stretches(group: list[tuple[int, int]]) -> dict[int, tuple[int, int]] | None:
        result: dict[int, tuple[int, int]] = {}
        for place, _ in group:
            f = findings[place]
            if not f.symbol.role or f.probability or f.contribution <= 0:
                return None
            begin, end = result.get(f.execution, (f.begin, f.end))
            result[f.execution] = min(begin, f.begin), max(end, f.end)
        return result

    def size(group: list[tuple[int, int]]) -> float:
        return sum(findings[place].contribution for place, _ in group)

    rest = [g for g in groups if stretches(g) is None]
    joined: list[list[tuple[int, int]]] = []
    for group in sorted((g for g in groups if stretches(g)), key=lambda g: (-size(g), g)):
        mine = stretches(group) or {}
        for number, other in enumerate(joined):
            theirs = stretches(other) or {}
            if all(e in theirs and _together(span, theirs[e]) for e, span in mine.items()):
                joined[number] = sorted(other + group)
                break
        else:
            joined.append(list(group))
    return rest + joined


def _together(inner: tuple[int, int], outer: tuple[int, int]) -> bool:
    """Tell whether a stretch lies at least half in another, or no farther off than it is long."""
    length = inner[1] - inner[0]
    common = min(inner[1], outer[1]) - max(inner[0], outer[0])
    return 2 * common >= length if common > 0 else -common <= length


def in_order_of_causes(
    findings: Sequence[Finding], causes: Sequence[Cause]
) -> tuple[tuple[Finding, ...], tuple[Cause, ...]]:
    """Put the findings of the first cause first, so that a list of them reads like the answer.

    Returns
    -------
    findings : tuple of Finding
        Within a cause by contribution.
    causes : tuple of Cause
        The same, referring to the findings' new places.
    """
    order = [
        place
        for cause in causes
        for place in sorted(cause.findings, key=lambda p: (-abs(findings[p].contribution), p))
    ]
    place_of = {old: new for new, old in enumerate(order)}
    return tuple(findings[old] for old in order), tuple(
        replace(
            cause,
            findings=tuple(sorted(place_of[p] for p in cause.findings)),
            main=place_of[cause.main],
        )
        for cause in causes
    )


def _thread_key(finding: Finding) -> tuple[int, bool, str]:
    return finding.execution, finding.contribution > 0, finding.symbol.role


def _about(finding: Finding) -> tuple[str, str]:
    """Return what a finding is about: a state and detail, or "" and a thread's role."""
    state, role = finding.symbol.state, finding.symbol.role
    # What a thread does while it runs is not another cause for each system call.
    detail = "" if state in RUNNING else detail_family(finding.detail)
    if not role or (state.name, detail) == _THROTTLED:
        return state.name, detail
    return "", role


def _cause(
    members: list[Member],
    normals: dict[int, int],
    of_all: str,
    excess: float,
    *,
    first: bool,
) -> Cause:
    executions = sorted({m.finding.execution for m in members})
    whole = sum(m.finding.contribution for m in members)
    each = whole / len(executions)
    return Cause(
        sentence=sentence(members, normals, of_all, each=each),
        findings=tuple(m.place for m in members),
        executions=tuple(executions),
        contribution=each,
        share=whole / excess if excess > 0 else float("nan"),
        main=main_member(members).place,
        minor=not first and abs(whole) < MINOR * excess,
    )
