"""One sentence for what the findings of several executions have in common."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TypeVar

from critpath.model import Charge, Context, Finding, Member, Reason, State, Symbol
from critpath.model.vectors import name_family, split_host
from critpath.text.phrases import (
    IDLE,
    INFERRED,
    OTHERS,
    doing,
    how_often,
    listed,
    often,
    quoted,
    say_elsewhere,
    thread_name,
)
from critpath.units import format_ns, plural

NEARLY_ALL = 0.8  # a part that is named alone
HALF = 0.5
WORTH_NAMING = 0.1
SEVERAL = 1.5  # times that a wait has to be there for its number to be told
FEW = 3  # threads of a family that are named by their ids

_Key = TypeVar("_Key", State, Symbol)


def cause_sentence(
    members: Sequence[Member],
    normals: Mapping[int, int],
    of_all: str,
    *,
    each: float,
    quota: bool = False,
    inferred: Collection[str] = (),
    reason: Reason | None = None,
) -> str:
    """Say how many, how much, what, in which thread, where, and what is normal there.

    Parameters
    ----------
    members : sequence of Member
        Of one cause, all of one sign but for what moved.
    normals : mapping of int to int
        Size of the normal group by execution.
    of_all : str
        "11 executions".
    each : float
        Mean contribution of an execution (ns).
    quota : bool
        Whoever had the cpu may have had it because of a CPU quota.
    inferred : collection of str
        Roles that are to blame because their work coincides with time-outs.
    reason : Reason
        What of it is named first.
    """
    size = len({m.finding.execution for m in members})
    apiece = " each" if size > 1 else ""
    less = "" if each > 0 else "less time "
    rise = count_rise(members)
    rounds = _rounds(members) if rise is None else _more_often(rise)
    call, after = where_in(members)
    # The own wait for a cpu that a trip to another thread ends with is of that trip.
    theirs = [m for m in members if m.finding.symbol.role or m.moved]
    own = [m for m in members if not m.finding.symbol.role and not m.moved]
    waited = not rounds and any(m.finding.symbol.role and not m.moved for m in members)
    waited = waited and all(m.charge and m.charge.step.role for m in own)
    if rounds:
        what = rounds + _parts(members, size)
        if len({m.counts_as for m in members}) > 1:
            call, after = "", ""  # it would qualify the last of what the loop does
    elif waited:
        what = less + _waiting(theirs, size, call, reason)
    else:
        what = less + _own(members, size, reason)
    main = main_member(members, reason).finding
    if quota and each > 0 and main.symbol.state == State.WAIT_CPU and main.detail != IDLE:
        what += ", or a CPU quota held it back: see the warnings"
    if reason and reason.rival not in {"", IDLE}:
        what += _newly_there(reason.rival, what)
    if (reason.symbol if reason else main.symbol).role in inferred and each > 0:
        what += f", {INFERRED}"
    # The same thread or state again tells nothing.
    if any(after == _woke(m.finding.comm) for m in members) or after.split(" (")[0] in what:
        after = ""
    where = f", in system call {call}" if call and not waited else ""
    if after:
        # Not what another thread did after it.
        where += f"{';' if waited else ','} after {after}"
    return (
        f"{size} of {of_all}, {format_ns(each, sign=True)}{apiece}: {what}"
        f"{where} ({_difference(members, size, normals)})"
    )


def _newly_there(rival: str, said: str) -> str:
    """Say that who had the cpu normally has not."""
    there = quoted(rival) in said
    return ", normally not there" if there else f", {quoted(rival)} among them, normally not there"


def main_member(members: Sequence[Member], reason: Reason | None = None) -> Member:
    """Return the member that stands for all: the largest in the state named first."""
    # What it brought along may be more, but is not what happened.
    itself = [m for m in members if reason and m.finding.symbol == reason.symbol and not m.moved]
    if itself:
        return max(itself, key=lambda m: (abs(m.finding.contribution), -m.place))
    weight = _weights(members, _state)
    first = max(sorted(weight), key=weight.__getitem__)
    named = [m for m in members if _state(m) == first and not m.moved]
    return max(named, key=lambda m: (abs(m.finding.contribution), -m.place))


def _state(member: Member) -> State:
    return member.counts_as.state


def _weights(members: Sequence[Member], of: Callable[[Member], _Key]) -> dict[_Key, float]:
    """Return the time in each state or symbol, less what only moved there.

    Where more moved away than is there, none is left.
    """
    sums: defaultdict[_Key, list[float]] = defaultdict(list)
    for m in members:
        sums[of(m)].append(m.finding.contribution)
    sign = 1 if math.fsum(m.finding.contribution for m in members) >= 0 else -1
    return {key: max(sign * math.fsum(ns), 0.0) for key, ns in sums.items()}


def _own(members: Sequence[Member], size: int, reason: Reason | None) -> str:
    """Say what the time was spent on, in the subject's own thread for a part at least."""
    weight = _weights(members, _state)
    state = min(weight, key=lambda s: (-weight[s], s))
    if reason and any(m.finding.symbol == reason.symbol and not m.moved for m in members):
        state = reason.symbol.state
    named = [m.finding for m in members if not m.moved]
    part = [m.finding for m in members if _state(m) == state and not m.moved]
    mine = [f for f in part if not f.symbol.role] or [f for f in named if not f.symbol.role]
    text = _doing(part, _thread(mine)) + _counted(reason, state)
    others = [f for f in named if f.symbol.role]
    elsewhere = math.fsum(abs(f.contribution) for f in others)
    if elsewhere >= WORTH_NAMING * sum(weight.values()):
        text += f", {format_ns(elsewhere / size)} of it in {_threads(others)}"
    return text


def _waiting(members: Sequence[Member], size: int, call: str, reason: Reason | None) -> str:
    """Say which threads it waited for, in parts where no part is nearly all of the time."""
    weight = _weights(members, _state)
    ranked = sorted(weight, key=lambda s: (-weight[s], s))
    whole = sum(weight.values())
    parts = {s: [m.finding for m in members if _state(m) == s and not m.moved] for s in ranked}
    threads = _threads([m.finding for m in members if not m.moved])
    where = f" in system call {call}" if call else ""
    were = "were" if threads.startswith("threads") else "was"
    text = f"waiting{where} for {threads}, which {were}"
    first = reason.symbol.state if reason else ranked[0]
    if first == ranked[0] and weight[first] >= NEARLY_ALL * whole:
        return f"{text} {_doing(parts[first])}{_counted(reason, first)}"
    named = [
        f"{_doing(parts[s])}{_counted(reason, s)} ({format_ns(weight[s] / size)})"
        for s in sorted(ranked, key=lambda s: s != first)
        if parts[s] and (weight[s] >= WORTH_NAMING * whole or s == first)
    ]
    if reason and first not in weight:
        what = f"{doing(first, '')}{_counted(reason, first)}"
        named.insert(0, f"{what} ({format_ns(reason.time)})")
    return f"{text} {listed(named)}"


def _counted(reason: Reason | None, state: State) -> str:
    """Say how often it was, of a state that was named because it is more often."""
    if reason is None or reason.counts is None or reason.symbol.state != state:
        return ""
    if reason.counts[1] < SEVERAL:  # "never in 40 normal executions" says that already
        return ""
    return f" {how_often(*reason.counts)}"


def _doing(findings: Sequence[Finding], thread: str = "") -> str:
    """Say what a thread was doing in findings of one state and sign."""
    state = findings[0].symbol.state
    longest = math.nan
    # Where it took less time it is unknown why normal executions waited.
    if findings[0].contribution > 0:
        pairs = [
            (f.observed if math.isnan(f.longest) else f.longest, f.contribution) for f in findings
        ]
        # Half of the time is in executions that once did so for at least as long.
        pairs.sort(reverse=True)
        sums = list(accumulate(ns for _, ns in pairs))
        longest = next(
            ns for (ns, _), so_far in zip(pairs, sums, strict=True) if 2 * so_far >= sums[-1]
        )
    detail = most_detail(findings)
    grown = findings[0].contribution > 0 and detail != IDLE
    elsewhere = say_elsewhere(*find_elsewhere(findings)) if grown else ""
    return doing(state, detail, thread, longest) + elsewhere


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


def _thread(findings: Sequence[Finding]) -> str:
    """Return the thread that all are in: by number where it is one, else by family."""
    names = {f.comm for f in findings if f.comm}
    if not names:
        return quoted(role) if (role := findings[0].symbol.role) else ""
    if len(names) == 1:
        tids = {f.tid for f in findings}
        return thread_name(names.pop(), tids.pop() if len(tids) == 1 else -1)
    families = {re.sub(r"\d+", "#", name) for name in names}
    if len(families) == 1:
        threads = {(f.comm, f.tid) for f in findings}
        tids = {tid for _, tid in threads if tid > 0}
        # Few, of one number each: which they are.
        few = len(threads) == len(names) == len(tids) <= FEW
        which = f" (tids {listed([str(tid) for tid in sorted(tids)])})" if few else ""
        return quoted(families.pop()) + which
    pairs = [(f.comm, abs(f.contribution)) for f in findings]
    heaviest = _heaviest(pairs)
    return quoted(heaviest) if _holds(heaviest, pairs) else f"others, {OTHERS}{quoted(heaviest)}"


def _threads(findings: Sequence[Finding]) -> str:
    """Return the other threads, the one with most time first, all that matter."""
    by_role: defaultdict[str, list[Finding]] = defaultdict(list)
    for f in findings:
        by_role[f.symbol.role].append(f)
    weight = {r: abs(sum(f.contribution for f in fs)) for r, fs in by_role.items()}
    ranked = sorted(by_role, key=lambda r: (-weight[r], r))
    whole = sum(weight.values())
    named = [_thread(by_role[r]) for r in ranked if weight[r] >= WORTH_NAMING * whole]
    named = named or [_thread(by_role[ranked[0]])]
    return f"thread{'s' if len(named) > 1 else ''} {listed(named)}"


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


def _more_often(rise: Charge) -> str:
    """Say what was done more often, and how often."""
    state, role, _ = rise.step
    before, after = rise.before, rise.after
    if state is None:
        more = f"{after - before:.3g} more trip{'' if after - before == 1 else 's'}"
        return f"{more} to {quoted(role)} ({before:.3g} -> {after:.3g} an execution): "
    return f"{often(state, quoted(role) if role else '', before, after)}: "


def _rounds(members: Sequence[Member]) -> str:
    """Say how often a loop ran, if it is that what the findings are about."""
    about = sorted((m.finding for m in members if not m.moved), key=lambda f: abs(f.contribution))
    if any(f.kind != "loop-count" for f in about):
        return ""
    main = {f.execution: f for f in about}  # the heaviest of each
    least, most = (pick(f.iterations for f in main.values()) for pick in (min, max))
    now = f"{least:.0f}" + (f" to {most:.0f}" if most > least else "")
    mean, deviation = (
        sum(f.normal_iterations[i] for f in main.values()) / len(main) for i in (0, 1)
    )
    where = ""
    if len(main) == 1:
        # Columns are those of one execution's alignment.
        first = min(f.columns[0] for f in about) + 1
        last = max(f.columns[1] for f in about)
        where = f" at columns {first}-{last}"
    usual = f"{mean:.3g}" + (f" +- {deviation:.2g}" if deviation > 0 else "")
    return f"a loop{where} ran {now} times, normally {usual}: "


def _parts(members: Sequence[Member], size: int) -> str:
    """Say what a loop does, one part for every thread and state."""
    weight = _weights(members, lambda m: m.counts_as)
    whole = sum(weight.values())
    named = []
    for symbol in sorted(weight, key=lambda s: (-weight[s], s.state, s.role)):
        mine = [m.finding for m in members if m.counts_as == symbol and not m.moved]
        if weight[symbol] >= WORTH_NAMING * whole:
            named.append((_doing(mine, _thread(mine)), format_ns(weight[symbol] / size)))
    if len(named) == 1:
        return named[0][0]
    return listed([f"{text} ({amount})" for text, amount in named])


def where_in(members: Sequence[Member]) -> tuple[str, str]:
    """Return in which system call and after what, if most of the executions agree on it."""
    first: dict[int, Member] = {}
    for m in sorted((m for m in members if not m.moved), key=lambda m: -m.finding.begin):
        first[m.finding.execution] = m
    call = _agreed(list(first.values()), lambda m: m.context.call)
    return call, _agreed(list(first.values()), lambda m: _after(m.context))


def _after(context: Context) -> str:
    """Return after what it was, "" at the beginning of the path."""
    if context.state is not None:
        return doing(context.state, context.detail)
    return _woke(context.waker) if context.waker else ""


def _woke(comm: str) -> str:
    return f"{quoted(comm)} woke it"


def _agreed(members: Sequence[Member], say: Callable[[Member], str]) -> str:
    tally = Counter(map(say, members))
    text, count = max(sorted(tally.items()), key=lambda x: x[1])
    return text if 2 * count > len(members) else ""


def _difference(members: Sequence[Member], size: int, normals: Mapping[int, int]) -> str:
    """Say what is normal there and what is now: means over the executions."""
    findings = [m.finding for m in members]
    observed = sum(f.observed for f in findings) / size
    expected = sum(f.expected for f in findings) / size
    now = f"now {format_ns(observed)}" if observed > 0 else "now not at all"
    # A finding's probability is a count of normal executions over their number; the
    # largest finding of each execution that is normal at all speaks for it, or what
    # normally stands for it.
    main: dict[int, Finding] = {}
    for m in sorted(
        members, key=lambda m: (m.finding.expected > 0, m.moved, abs(m.finding.contribution))
    ):
        main[m.finding.execution] = m.finding
    counts = {(round(f.probability * normals[e]), normals[e]) for e, f in main.items()}
    if all(have == 0 for have, _ in counts) and not expected:
        return f"never in {_normals({of for _, of in counts})}; {now}"
    if len(counts) == 1:
        ((have, of),) = counts
        where = f"in {have} of {of}"
    else:
        have, of = sum(h for h, _ in counts), sum(n for _, n in counts)
        # Each of the executions has normal ones of its own type.
        share = min(max(round(100 * have / of), 1), 99)  # some, not all
        where = "in all" if have == of else f"in {share} %"
        where += f" of {_normals({of for _, of in counts})} each"
    return f"normally {format_ns(expected)} here, {where}; {now}"


def _normals(sizes: set[int]) -> str:
    if len(sizes) == 1:
        (size,) = sizes
        return plural(size, "normal execution")
    return f"{min(sizes)} to {max(sizes)} normal executions"
