"""Group the findings of several executions by what they have in common."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from critpath.localize.findings import detail_family
from critpath.localize.phrases import IDLE, OTHERS, describe, describe_before, doing, quoted
from critpath.model import RUNNING, Cause, Finding, State
from critpath.units import format_ns, plural

NEARLY_ALL = 0.8  # one part that is said alone
WORTH_NAMING = 0.1
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
    findings: Sequence[Finding], executions: Sequence[Explained], total: int, *, kind: str = ""
) -> tuple[Cause, ...]:
    """Group findings that have their sign and what they are about in common.

    A finding on the subject's own thread is about its state and detail (numbers
    taken out).  One on another thread is about that thread: whoever waits for
    ``holder`` waits for it whether it runs, waits for the disk or for a cpu.  If,
    however, that thread was mostly runnable while its cpu was idle, it was
    throttled, and so belongs with the subject's own throttling.

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

    Returns
    -------
    tuple of Cause
        By summed contribution times the square root of how many executions bear it out,
        the largest slow-down first: one execution that the disk held up for 300 ms is no
        more the cause than twelve of eleven milliseconds each.
    """
    known = {e.execution: e for e in executions}
    of_all = plural(total, f"{kind} execution".strip())
    heaviest: dict[tuple[int, bool, str], Finding] = {}
    for finding in sorted(findings, key=lambda f: abs(f.contribution)):
        heaviest[_thread_key(finding)] = finding
    groups: defaultdict[tuple[bool, str, str], list[int]] = defaultdict(list)
    for place, finding in enumerate(findings):
        main = heaviest[_thread_key(finding)] if finding.symbol.role else finding
        subject = _about(finding)
        if subject == _THROTTLED != _about(main):
            # A thread's late start, beside more of its time spent otherwise.
            subject = ("", finding.symbol.role)
        groups[finding.contribution > 0, *subject].append(place)

    def weight(places: list[int]) -> float:
        borne_out = len({findings[p].execution for p in places})
        return sum(findings[p].contribution for p in places) * math.sqrt(borne_out)

    ordered = sorted(groups.items(), key=lambda item: (-weight(item[1]), item[0]))
    return tuple(
        _cause(places, [findings[p] for p in places], known, of_all) for _, places in ordered
    )


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
        replace(cause, findings=tuple(sorted(place_of[p] for p in cause.findings)))
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
    places: list[int], findings: list[Finding], known: dict[int, Explained], of_all: str
) -> Cause:
    members = sorted({f.execution for f in findings})
    size = len(members)
    each = sum(f.contribution for f in findings) / size
    excess = sum(known[e].excess for e in members)
    less = "" if each > 0 else "less: "
    sentence = (
        f"{size} of {of_all}, {format_ns(each, sign=True)} each:"
        f" {less}{_what(findings, size)}{_before(findings)}"
        f" ({_difference(findings, size, known)})"
    )
    return Cause(
        sentence=sentence,
        findings=tuple(places),
        executions=tuple(members),
        contribution=each,
        share=each * size / excess if excess > 0 else float("nan"),
    )


def _what(findings: list[Finding], size: int) -> str:
    """Say what the time was spent on, in parts where no part is nearly all of it."""
    parts: defaultdict[State, list[Finding]] = defaultdict(list)
    for finding in findings:
        parts[finding.symbol.state].append(finding)
    weight = {s: sum(abs(f.contribution) for f in fs) for s, fs in parts.items()}
    ranked = sorted(parts, key=lambda s: (-weight[s], s))
    whole = sum(weight.values())
    thread = _thread(findings)
    if len(ranked) == 1 or weight[ranked[0]] >= NEARLY_ALL * whole:
        own = [f for f in findings if not f.symbol.role]
        state = ranked[0]
        text = describe(state, _detail(parts[state]), "" if own else thread, whole / size)
        others = [f for f in findings if f.symbol.role] if own else []
        elsewhere = sum(abs(f.contribution) for f in others)
        if elsewhere >= WORTH_NAMING * whole:
            text += f", {format_ns(elsewhere / size)} of it in {quoted(_thread(others))}"
        return text
    named = [
        f"{doing(s, _detail(parts[s]), weight[s] / size)} ({format_ns(weight[s] / size)})"
        for s in ranked
        if weight[s] >= WORTH_NAMING * whole
    ]
    return f"waiting for thread {quoted(thread)}, which was {', '.join(named)}"


def _detail(findings: list[Finding]) -> str:
    """Return the qualifier to name: of who had the cpu, nobody for the work of many."""
    pairs = [(f.detail, abs(f.contribution)) for f in findings]
    heaviest = _heaviest(pairs)
    if findings[0].symbol.state != State.WAIT_CPU or _holds_half(heaviest, pairs):
        return heaviest
    # Threads of one name, such as a compiler's, are one culprit with many ids.
    names = [(_without_tid(text), weight) for text, weight in pairs]
    heaviest = _heaviest(names)
    return heaviest if _holds_half(heaviest, names) else OTHERS + heaviest


def _holds_half(text: str, pairs: list[tuple[str, float]]) -> bool:
    mine = sum(weight for other, weight in pairs if other == text)
    return 2 * mine >= sum(weight for _, weight in pairs)


def _without_tid(detail: str) -> str:
    return re.sub(r" \(\d+\)$", "", detail)


def _heaviest(pairs: list[tuple[str, float]]) -> str:
    """Return the text with the largest summed weight, the least of equals."""
    tally: defaultdict[str, float] = defaultdict(float)
    for text, weight in pairs:
        tally[text] += weight
    return max(sorted(tally), key=tally.__getitem__)


def _thread(findings: list[Finding]) -> str:
    """Return the other thread's name, its role where no name is known, "" for the own."""
    return _heaviest(
        [(f.comm or f.symbol.role if f.symbol.role else "", abs(f.contribution)) for f in findings]
    )


def _before(findings: list[Finding]) -> str:
    """Say what came first before it, if at least half of the executions agree on it."""
    first: dict[int, Finding] = {}
    for f in sorted(findings, key=lambda f: -f.begin):
        first[f.execution] = f
    tally = Counter(f.before for f in first.values())
    name, count = max(sorted(tally.items()), key=lambda x: x[1])
    return describe_before(name) if 2 * count >= len(first) else ""


def _difference(findings: list[Finding], size: int, known: dict[int, Explained]) -> str:
    """Say what is normal there and what is now: means over the executions."""
    observed = sum(f.observed for f in findings) / size
    expected = sum(f.expected for f in findings) / size
    now = f"now {format_ns(observed)}" if observed > 0 else "now not at all"
    # A finding's probability is a count of normal executions over their number; the
    # largest finding of each execution speaks for it.
    main: dict[int, Finding] = {}
    for f in sorted(findings, key=lambda f: abs(f.contribution)):
        main[f.execution] = f
    counts = {(round(f.probability * known[e].normals), known[e].normals) for e, f in main.items()}
    if all(have == 0 for have, _ in counts):
        return f"never in {_normals({of for _, of in counts})}; {now}"
    if len(counts) == 1:
        ((have, of),) = counts
        where = f"in {have} of {of}"
    else:
        have, of = sum(h for h, _ in counts), sum(n for _, n in counts)
        where = f"in {100 * have / of:.0f} %"
    return f"normally {format_ns(expected)} here, {where}; {now}"


def _normals(sizes: set[int]) -> str:
    if len(sizes) == 1:
        (size,) = sizes
        return plural(size, "normal execution")
    return f"{min(sizes)} to {max(sizes)} normal executions"
