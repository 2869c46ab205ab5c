"""Which findings share a cause."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from critpath.localize.moved import moved_time
from critpath.localize.phrases import IDLE
from critpath.localize.segments import detail_family
from critpath.model import RUNNING, Finding, State

_THROTTLED = (State.WAIT_CPU.name, IDLE)
_LOOP = "loop"
ALIKE = 0.2  # normal numbers of iterations that differ by so much, or by 1, are of one loop

# A finding's place, and that of the one as whose state it counts.
Group = list[tuple[int, int]]


def group_findings(findings: Sequence[Finding]) -> list[Group]:
    """Group findings that have their sign and what they are about in common.

    A finding on the subject's own thread is about its state and detail (numbers
    taken out).  One on another thread is about that thread: whoever waits for
    ``holder`` waits for it whether it runs, waits for the disk or for a cpu.  If,
    however, that thread was mostly runnable while its cpu was idle, it was
    throttled, and so belongs with the subject's own throttling.

    Three exceptions.  Time that only moved from one way of waiting for a thread to the
    other is set off against itself (`moved_time`): both findings go where one of them
    belongs.  Threads that take turns in one stretch of the path which normal executions
    do not have at all are one cause, as a journal's thread and the worker that writes
    its blocks.  And what a loop does in each iteration is one cause if it ran more often;
    two loops of one execution are two.

    Parameters
    ----------
    findings : sequence of Finding
        Of all anomalous executions.

    Returns
    -------
    list of list of (int, int)
        Positions: of every finding, and of the one as whose state it counts, which is
        itself unless its time moved.
    """
    heaviest: dict[tuple[int, bool, str], Finding] = {}
    for finding in sorted(findings, key=lambda f: abs(f.contribution)):
        heaviest[_thread_key(finding)] = finding
    moved = moved_time(findings)
    loops = _loops([p for p in range(len(findings)) if p not in moved], findings)
    keyed: defaultdict[tuple[bool, str, str], Group] = defaultdict(list)
    for place in range(len(findings)):
        larger = moved.get(place, place)
        finding = findings[larger]
        main = heaviest[_thread_key(finding)] if finding.symbol.role else finding
        subject = _about(finding)
        if larger in loops:
            subject = (_LOOP, loops[larger])
        elif subject == _THROTTLED != _about(main):
            # A thread's late start, beside more of its time spent otherwise.
            subject = ("", finding.symbol.role)
        keyed[finding.contribution > 0, *subject].append((place, larger))
    return _taking_turns([keyed[key] for key in sorted(keyed)], findings)


def _loops(places: Sequence[int], findings: Sequence[Finding]) -> dict[int, str]:
    """Return the findings that are about a loop's iterations, and a name for the loop.

    Findings on one loop have the execution and the numbers of iterations in common, and
    their columns overlap.  Loops of different executions are the same if what they do
    most is, and if normal executions run them about as often.
    """
    keyed: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for place in places:
        f = findings[place]
        if f.kind == "loop-count" and not math.isnan(f.iterations):
            sign = f.contribution > 0
            keyed[f.execution, sign, f.iterations, f.normal_iterations].append(place)
    loops = [loop for found in keyed.values() for loop in _overlapping(found, findings)]

    def heaviest(loop: list[int]) -> tuple[Finding, list[int]]:
        return findings[max(loop, key=lambda p: (abs(findings[p].contribution), -p))], loop

    result: dict[int, str] = {}
    known: list[tuple[Finding, set[int]]] = []  # with the executions that have it already
    # The heaviest first, equal ones by what does not depend on the executions' order.
    for main, loop in sorted(
        map(heaviest, loops),
        key=lambda x: (-abs(x[0].contribution), x[0].normal_iterations, x[0].columns),
    ):
        fitting = (
            number
            for number, (other, executions) in enumerate(known)
            if main.execution not in executions and _same_loop(main, other)
        )
        number = next(fitting, len(known))
        if number == len(known):
            known.append((main, set()))
        known[number][1].add(main.execution)
        result.update(dict.fromkeys(loop, f"{number:06}"))
    return result


def _overlapping(places: Sequence[int], findings: Sequence[Finding]) -> list[list[int]]:
    """Divide findings where no columns are common to those before and those after."""
    result: list[list[int]] = []
    end = 0
    for place in sorted(places, key=lambda p: (findings[p].columns, p)):
        first, last = findings[place].columns
        if result and first < end:
            result[-1].append(place)
        else:
            result.append([place])
        end = max(end, last)
    return result


def _same_loop(one: Finding, other: Finding) -> bool:
    mean, usual = one.normal_iterations[0], other.normal_iterations[0]
    near = abs(mean - usual) <= max(1.0, ALIKE * max(mean, usual))
    return near and one.symbol == other.symbol and one.contribution * other.contribution > 0


def _taking_turns(groups: list[Group], findings: Sequence[Finding]) -> list[Group]:
    """Join the groups of threads that only the anomalous executions wait for, in one stretch."""

    def stretches(group: Group) -> dict[int, tuple[int, int]] | None:
        result: dict[int, tuple[int, int]] = {}
        for place, _ in group:
            f = findings[place]
            if not f.symbol.role or f.probability or f.contribution <= 0:
                return None
            begin, end = result.get(f.execution, (f.begin, f.end))
            result[f.execution] = min(begin, f.begin), max(end, f.end)
        return result

    def size(group: Group) -> float:
        return math.fsum(findings[place].contribution for place, _ in group)

    rest = [g for g in groups if stretches(g) is None]
    joined: list[Group] = []
    for group in sorted((g for g in groups if stretches(g)), key=lambda g: -size(g)):
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
