"""Group the findings of several executions by what they have in common."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec import Struct, structs

from critpath.documents.base import as_float, change
from critpath.localize.because import NOBODY, OWN, STRANGERS, find_class, take_work_apart
from critpath.localize.counts import StepCounts
from critpath.localize.facts import Chains, count_rise, find_end, main_member, state_facts
from critpath.model import (
    RUNNING,
    Cause,
    Charge,
    Context,
    Finding,
    Member,
    Reason,
    State,
    Step,
    Symbol,
    Weight,
    role_name,
)
from critpath.model.details import IDLE, family_of, word_detail
from critpath.model.vectors import name_family
from critpath.schema.causes import evidence_of
from critpath.schema.parameters.localize import CAUSES, EVIDENCE, FINDINGS, WAITS


class Explained(Struct, frozen=True):
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
    contexts: Sequence[Context] = (),
    quota: bool = False,
    inferred: Collection[str] = (),
    flagged: Collection[str] = (),
    charges: Mapping[int, Sequence[Charge]] | None = None,
    counts: StepCounts | None = None,
    chains: Mapping[int, Chains] = MappingProxyType({}),
    faster: bool = False,
) -> tuple[Cause, ...]:
    """Make a cause of every group of findings.

    Each execution counts once in a cause: its findings there are summed.

    Parameters
    ----------
    findings : sequence of Finding
        Of all anomalous executions.
    executions : sequence of Explained
        Every anomalous execution, with findings or not.
    total : int
        Executions in the sample set, or those of them that were examined.
    contexts : sequence of Context
        Of every finding: in which system call it was, and where in the code.
    quota : bool
        A CPU quota throttled a thread while only the sample was recorded: the thread that
        had the cpu then is perhaps not to blame.
    inferred : collection of str
        Roles that paths went on in because their work coincides with time-outs.
    flagged : collection of str
        Symbols on which the verdict rests where no execution stands out alone: what is
        slower in them comes first.
    charges : mapping of int to sequence of Charge
        By execution, what it took longer because it did something more often.
    counts : StepCounts
        Of the same executions.
    chains : mapping of int to Chains
        By execution, through whom it waits for which thread.
    faster : bool
        They took less time, and what took less comes first.

    Returns
    -------
    tuple of Cause
        By summed contribution times the square root of how many executions bear it out,
        the largest slowdown first: one execution that the disk held up for 300 ms is no
        more the cause than twelve of eleven milliseconds each.  In this order what was
        not observed counts half, and what normal executions do as well a quarter, where
        enough of them were aligned to tell.
    """
    sign = -1 if faster else 1
    excess = sum(e.excess for e in executions if sign * e.excess > 0)
    charged = charge_findings(findings, charges or {})
    brought = find_brought(findings, counts)
    groups = [
        [
            Member(
                place,
                findings[place],
                contexts[place] if contexts else Context(),
                findings[larger].symbol,
                moved=place != larger,
                charge=charged.get(larger),
            )
            for place, larger in group
        ]
        for group in group_findings(findings, charged, brought, counts)
    ]

    enough = {e.execution for e in executions if e.normals >= FINDINGS.least_normals}

    def explain_all(groups: Sequence[list[Member]]) -> list[tuple[list[Member], Cause]]:
        weighed = []
        for members in groups:
            reason = find_reason(members, counts, brought)
            weight = weigh_cause(members, reason, counts, enough, brought)
            if weight.value > 0 and any(m.finding.symbol.name in flagged for m in members):
                weight = structs.replace(weight, decisive=True)
            weighed.append((members, reason, weight))
        weighed.sort(key=lambda group: (not group[2].decisive, -sign * group[2].value))
        sums = [weight.whole for _, _, weight in weighed]
        # What faster steps won back, causes lost before: their shares add up to all at most.
        lost = max(excess, math.fsum(ns for ns in sums if ns > 0)) if excess > 0 else excess
        largest = max((sign * ns for ns in sums), default=0.0)
        result = []
        for number, (members, reason, weight) in enumerate(weighed):
            cause = _cause(members, lost, reason)
            small = abs(weight.whole) < CAUSES.minor * abs(excess)
            cause.minor = bool(number) and sign * weight.whole < largest and small
            cause.weight = weight
            cause.probability = find_probability(
                *(members, reason, counts),
                examined=len(executions),
                excess=lost,
                decisive=weight.decisive,
            )
            cause.facts = state_facts(
                *(cause, members, total, counts),
                quota=quota,
                inferred=inferred,
                reason=reason,
                brought=brought,
                chains=chains,
            )
            result.append((members, cause))
        return result

    explained = explain_all(groups)
    joined = _join_alike(explained)
    if len(joined) < len(explained):
        explained = explain_all(joined)
    return tuple(cause for _, cause in explained)


def _join_alike(explained: Sequence[tuple[list[Member], Cause]]) -> list[list[Member]]:
    """Join groups that say the same of different executions: one cause is one line."""
    result: list[tuple[tuple[object, ...], set[int], list[Member]]] = []
    for members, cause in explained:
        facts, mine = cause.facts, {*cause.positions}
        about: tuple[object, ...] = (cause.contribution > 0, id(cause))
        if facts is not None and facts.counted != "iterations":
            main = next(m.finding for m in members if m.place == cause.main)
            plain = main.symbol.state in RUNNING or _has_rivals(main.symbol)
            detail = "" if plain else word_detail(family_of(main.qualifier))
            same = facts.cause_id, facts.state, facts.role, facts.peer, facts.call, detail
            about = (cause.contribution > 0, facts.counted, *same)
        for key, positions, group in result:
            if key == about and not positions & mine:
                positions.update(mine)
                group.extend(members)
                break
        else:
            result.append((about, mine, [*members]))
    return [group for _, _, group in result]


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
        change(
            cause,
            findings=sorted(place_of[p] for p in cause.findings),
            main=place_of[cause.main],
        )
        for cause in causes
    )


def _cause(members: list[Member], excess: float, reason: Reason | None) -> Cause:
    executions = {m.finding.position: m.finding.execution for m in members}
    positions = sorted(executions)
    whole = math.fsum(m.finding.contribution for m in members)
    return Cause(
        sentence="",
        findings=[m.place for m in members],
        executions=[executions[position] for position in positions],
        positions=positions,
        contribution=whole / len(positions),
        share=whole / excess if excess > 0 else None,
        main=main_member(members, reason).place,
        minor=False,
    )


# What of a cause is the program's doing.


def find_brought(
    findings: Sequence[Finding], counts: StepCounts | None
) -> dict[str, Symbol | None]:
    """Return the threads whose waits for a cpu grew as their work did, and the work, by role.

    That is the state of its running that grew most; None where it is other threads' work that
    is done more often.
    """
    executions = sorted({f.position for f in findings if f.contribution > 0})
    if counts is None or not executions:
        return {}
    result: dict[str, Symbol | None] = {}
    for (state, role, _), piece in take_work_apart(counts, executions).items():
        if state is not None or not piece.is_brought:
            continue
        grown = {
            symbol: growth.after - growth.before
            for step in counts.steps
            if step.state in RUNNING and step.role == role
            for symbol in [Symbol(step.state, role, step.place)]
            for growth in [counts.growth(symbol, executions)]
        }
        most = max(sorted(grown), key=grown.__getitem__, default=None)
        longer = most is not None and grown[most] > 0 and piece.parts.length > piece.parts.visits
        if role or longer:
            result[role] = most if longer else None
    return result


def find_reason(
    members: Sequence[Member],
    counts: StepCounts | None,
    brought_by: Mapping[str, Symbol | None] = MappingProxyType({}),
) -> Reason | None:
    """Return what growth is behind a cause: a state on one of its threads.

    A thread that computes longer waits longer for a cpu on a busy machine, and one that
    sleeps more often waits for a cpu more often: that wait is brought along, by whoever
    has the cpu at the time, unless that is somebody who is not there normally.
    """
    if counts is None or math.fsum(m.finding.contribution for m in members) <= 0:
        return None
    executions = sorted({m.finding.position for m in members})
    brought = _brought_along(members)
    score: dict[Symbol, float] = {}
    candidates = _candidates(members, counts)
    work = {s for s in candidates if not (_has_rivals(s) and s.role in brought_by)}
    candidates = work if any(s.state in RUNNING for s in work) else candidates
    growth = {symbol: counts.growth(symbol, executions) for symbol in candidates}
    for symbol, found in growth.items():
        sure = max(0.0, 2 * found.apart - 1) ** 2
        evidence = evidence_of(symbol.state)
        if evidence == "rival":
            sure *= CAUSES.newcomer if _find_newcomer(members, symbol, counts) else CAUSES.weather
        elif evidence == "unseen":
            sure *= CAUSES.unseen
        elif counts.is_more_often(symbol, executions):
            sure *= CAUSES.more_often
        more = found.after - found.before
        if more > 0:
            score[symbol] = (more + brought.get(symbol, 0.0) / len(executions)) * sure
    best = max(sorted(score), key=score.__getitem__, default=None)
    if best is None or not score[best]:
        rise = count_rise(members)
        # A trip whose work took the caller's cpu is no time of its own on the path.
        trip = rise is not None and rise.step.state is None
        return Reason(rise.content, 0.0, "") if rise and trip else None
    rival = _find_newcomer(members, best, counts) if _has_rivals(best) else ""
    often = counts.mean_counts(Step.of(best), executions)
    risen = counts.is_more_often(best, executions)
    return Reason(best, growth[best].after - growth[best].before, rival, often if risen else None)


def _candidates(members: Sequence[Member], counts: StepCounts) -> set[Symbol]:
    """Return the states that may be behind a cause: what it is about, and its threads' others."""
    symbols = {m.counts_as for m in members if not m.moved and m.finding.contribution > 0}
    roles = {s.role for s in symbols if s.role}
    if rise := count_rise(members):
        state, role, place = rise.step
        if state is not None:
            return {Symbol(state, role, place)}
        roles, symbols = {find_end(members) or role}, set()
    return symbols | {
        Symbol(s.state, s.role, s.place) for s in counts.steps if s.state and s.role in roles
    }


def _has_rivals(symbol: Symbol) -> bool:
    """Tell whether time in a state is weather, which tells only of somebody new."""
    return evidence_of(symbol.state) == "rival"


def _brought_along(members: Sequence[Member]) -> dict[Symbol, float]:
    """Return what steps brought along, by what they do themselves."""
    result: defaultdict[Symbol, float] = defaultdict(float)
    for m in members:
        symbol = m.finding.symbol
        if m.charge and (symbol.role != m.charge.step.role or _has_rivals(symbol)):
            result[m.charge.content] += m.finding.contribution
    return result


def weigh_cause(
    members: Sequence[Member],
    reason: Reason | None,
    counts: StepCounts | None,
    enough: Collection[int],
    brought_by: Mapping[str, Symbol | None] = MappingProxyType({}),
) -> Weight:
    """Return what a cause ranks by: its time, as far as it tells something, and who bears it out.

    ``enough`` are the executions with normal ones enough to tell what is ordinary.
    """

    def ordinary(finding: Finding) -> float:
        return FINDINGS.ordinary if finding.position in enough and not finding.abnormal else 1.0

    # A step that is new, or that all do more often, causes the waits for a CPU that come with it.
    # If only some do it more often, the machine may have made these waits longer.
    often = count_rise(members) is not None or (reason is not None and reason.counts is not None)

    def told(member: Member) -> float:
        f = member.finding
        brought = member.charge is not None and (often or not member.charge.before)
        brought = brought or f.role in brought_by
        shared = _has_rivals(f.symbol) and f.contribution > 0 and not brought
        return CAUSES.shared if counts and shared and not find_rival(f, counts)[0] else 1.0

    borne_out = len({m.finding.position for m in members})
    unseen = evidence_of(main_member(members).counts_as.state) == "unseen"
    # fsum: the same whatever the order of the executions.
    net = math.fsum(m.finding.contribution * ordinary(m.finding) * told(m) for m in members)
    moved = 0.0
    if not any(m.moved for m in members):
        # Of what may have moved, half: it may also be what made room for the other.
        moved = math.fsum(m.finding.offset * ordinary(m.finding) for m in members) / 2
    return Weight(
        whole=math.fsum(m.finding.contribution for m in members),
        told=net,
        moved=moved,
        executions=borne_out,
        seen=CAUSES.unseen if unseen else 1.0,
        trust=weigh_evidence(members, reason, counts),
    )


def weigh_evidence(
    members: Sequence[Member], reason: Reason | None, counts: StepCounts | None
) -> float:
    """Return how much of a cause's time tells for it: what shared weather makes tells little."""
    if counts is None:
        return 1.0
    if reason is None:
        return CAUSES.unsure
    executions = sorted({m.finding.position for m in members})
    rise = count_rise(members)
    if rise is not None:
        apart = counts.apart(rise.step, executions)
    else:
        apart = counts.growth(reason.symbol, executions).apart
    return max(CAUSES.unsure, 2 * apart - 1)


def find_rival(finding: Finding, counts: StepCounts) -> tuple[str, float]:
    """Return who had the cpu for a part of a wait and normally has not, and that part.

    Among several who have it normally, too, a new one had little of the wait, and yet all that it
    is longer by.  A cpu that was idle for long was not to be used: by a quota.
    """
    held: defaultdict[str, float] = defaultdict(float)
    late = finding.longest is None or finding.longest < WAITS.late
    for detail, share in finding.details or ((finding.qualifier, 1.0),):
        name = detail.rival if detail.idle else name_family(detail.rival)
        if not late if detail.idle else counts.is_newcomer(name):
            held[name] += share
    most = max(sorted(held), key=held.__getitem__, default="")
    if not most:
        return "", 0.0
    grown = finding.observed / finding.contribution if finding.contribution > 0 else 1.0
    part = held[most] if most == IDLE else min(max(held[most], held[most] * grown), 1.0)
    return (most, part) if held[most] >= CAUSES.good_part or part >= CAUSES.half else ("", 0.0)


def _find_newcomer(members: Sequence[Member], symbol: Symbol, counts: StepCounts) -> str:
    """Return who took most of a cause's waits for a cpu and normally does not, "" for nobody."""
    held: defaultdict[str, float] = defaultdict(float)
    whole = 0.0
    for m in members:
        if m.finding.symbol == symbol and m.finding.contribution > 0:
            whole += m.finding.contribution
            rival, share = find_rival(m.finding, counts)
            held[rival] += share * m.finding.contribution
    held.pop("", None)
    most = max(sorted(held), key=held.__getitem__, default="")
    return most if most and held[most] >= CAUSES.good_part * whole else ""


# How likely a cause is the one: evidence that adds up, fitted to faults that are known.

_BITS: Final = 4.0  # technical: below a sixteenth of the excess a share tells nothing


class Evidence(NamedTuple):
    """What is known of a cause; more of any of it never speaks against the cause.

    Ratios of counts and of times, how far apart executions are, and whether it was observed
    told nothing besides (``evaluation/weather/fit.py``).

    Attributes
    ----------
    share : float
        Of the excess, that it explains: bits above a sixteenth.
    borne_out : float
        Share of the executions that were examined.
    absent : float
        1 where normal executions do not have it.
    work : float
        1 where it is work, or done more often, or a wait for a cpu that somebody had who is not
        there normally: 0 for weather that is always there.
    decisive : float
        1 where the verdict rests on its state.
    """

    share: float
    borne_out: float
    absent: float
    work: float
    decisive: float


def find_evidence(
    members: Sequence[Member],
    reason: Reason | None,
    counts: StepCounts | None,
    *,
    examined: int,
    excess: float,
    decisive: bool,
) -> Evidence:
    """Return what is known of a cause, of so many executions with so much of an excess."""
    positions = sorted({m.finding.position for m in members})
    whole = math.fsum(m.finding.contribution for m in members)
    symbol = reason.symbol if reason else main_member(members).counts_as
    often = count_rise(members) is not None or bool(reason and reason.counts)
    newcomer = bool(reason and reason.rival)
    growth = counts.growth(symbol, positions) if counts else None
    return Evidence(
        share=_BITS + math.log2(min(max(whole / excess, 2.0**-_BITS), 1.0)),
        borne_out=len(positions) / max(examined, 1),
        absent=float(growth is not None and growth.before == 0 < growth.after),
        work=float(evidence_of(symbol.state) != "rival" or often or newcomer),
        decisive=float(decisive),
    )


def find_probability(
    members: Sequence[Member],
    reason: Reason | None,
    counts: StepCounts | None,
    *,
    examined: int,
    excess: float,
    decisive: bool,
) -> float | None:
    """Return how many of the causes with as much evidence are right, None for what takes less."""
    if math.fsum(m.finding.contribution for m in members) <= 0 or excess <= 0:
        return None
    known = find_evidence(
        *(members, reason, counts), examined=examined, excess=excess, decisive=decisive
    )
    evidence = math.fsum(getattr(EVIDENCE, name) * value for name, value in known._asdict().items())
    if evidence >= EVIDENCE.likely:
        return EVIDENCE.likely_right
    return EVIDENCE.possible_right if evidence >= EVIDENCE.possible else EVIDENCE.unlikely_right


# Which findings share a cause.


def charge_findings(
    findings: Sequence[Finding], charges: Mapping[int, Sequence[Charge]]
) -> dict[int, Charge]:
    """Return the findings that are there because something was done more often, and what."""
    grown: defaultdict[Symbol, dict[int, list[int]]] = defaultdict(dict)
    for place, finding in enumerate(findings):
        if finding.contribution > 0:
            grown[finding.symbol].setdefault(finding.position, []).append(place)
    result: dict[int, Charge] = {}
    for symbol, places in grown.items():
        # By step, what it brought in all executions that do it more often, and their growth.
        brought: defaultdict[Step, list[tuple[float, float]]] = defaultdict(list)
        for execution, mine in places.items():
            whole = math.fsum(findings[place].contribution for place in mine)
            for charge in charges.get(execution, ()):
                brought[charge.step].append((charge.time.get(symbol, 0.0), whole))
        sums = {s: tuple(map(math.fsum, zip(*of, strict=True))) for s, of in brought.items()}
        most = max((part for part, _ in sums.values()), default=0.0)
        chosen = [
            step
            for step, (part, whole) in sums.items()
            if part and part >= CAUSES.brought * whole and part >= CAUSES.as_much * most
        ]
        for execution, mine in places.items():
            for charge in charges.get(execution, ()):
                if charge.step in chosen[:1]:
                    result.update(dict.fromkeys(mine, charge))
    return result


_THROTTLED = (State.WAIT_CPU.name, IDLE)
_LOOP = "loop"
_COUNTED = "counted"

# A finding's place, and that of the one as whose state it counts.
Group = list[tuple[int, int]]


def group_findings(
    findings: Sequence[Finding],
    charged: Mapping[int, Charge] | None = None,
    brought: Mapping[str, Symbol | None] = MappingProxyType({}),
    counts: StepCounts | None = None,
) -> list[Group]:
    """Group findings that have their sign and what they are about in common."""
    charged = charged or {}
    program = counts.program if counts else frozenset()
    heaviest: dict[tuple[int, bool, str], Finding] = {}
    for finding in sorted(findings, key=lambda f: abs(f.contribution)):
        heaviest[_thread_key(finding)] = finding
    moved = pair_offsetting(findings)
    same = _subjects_of_steps(findings, charged, program)
    loops = _loops([p for p in range(len(findings)) if p not in moved], findings)
    keyed: defaultdict[tuple[bool, str, str], Group] = defaultdict(list)
    for place in range(len(findings)):
        larger = moved.get(place, place)
        finding = findings[larger]
        main = heaviest[_thread_key(finding)] if finding.role else finding
        subject = _about(finding, program)
        work = brought.get("") if finding.contribution > 0 and not finding.role else None
        if (charge := charged.get(larger)) and charge.before:
            subject = (_COUNTED, f"{charge.step}")
        elif charge:
            subject = _new_step(charge.step, finding, findings, program)
        elif larger in loops:
            subject = (_LOOP, loops[larger])
        elif work and _has_rivals(finding.symbol) and subject != _THROTTLED:
            subject = (work.state.name, "")
        elif subject == _THROTTLED != _about(main, program):
            # A thread's late start, beside more of its time spent otherwise.
            subject = ("", finding.role)
        if finding.contribution > 0:
            subject = same.get(subject, subject)
        keyed[finding.contribution > 0, *subject].append((place, larger))
    return _taking_turns([keyed[key] for key in sorted(keyed)], findings)


def _subjects_of_steps(
    findings: Sequence[Finding], charged: Mapping[int, Charge], program: Collection[str]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return what is done more often by some executions, by what a finding on it is about.

    How often varies: of executions that all wait once more, those that are within what is normal
    have the same cause, and both halves of it would rank behind what is less than the whole.
    """
    weight: defaultdict[tuple[str, str], defaultdict[Step, float]]
    weight = defaultdict(lambda: defaultdict(float))
    for place, charge in charged.items():
        symbol = findings[place].symbol
        if charge.before and charge.step in {Step.of(symbol), Step(None, symbol.role)}:
            weight[_about(findings[place], program)][charge.step] += findings[place].contribution
    return {
        about: (_COUNTED, f"{max(sorted(steps, key=str), key=steps.__getitem__)}")
        for about, steps in weight.items()
    }


def _new_step(
    step: Step, finding: Finding, findings: Sequence[Finding], program: Collection[str]
) -> tuple[str, str]:
    """Return what a step is about that normal executions never do.

    An execution may have no finding of the step itself: a hundred short waits for a disk, each
    with a long one for a cpu behind it, are too little beside these to be one.
    """
    if step.role or step.state is None:
        return "", step.role
    name = step.state.name
    there = [
        f for f in findings if f.contribution > 0 and f.state == name and not (f.role or f.place)
    ]
    mine = [f for f in there if f.position == finding.position]
    main = max(mine or there, key=lambda f: f.contribution, default=None)
    return _about(main, program) if main else (step.state.name, "")


def _loops(places: Sequence[int], findings: Sequence[Finding]) -> dict[int, str]:
    """Return the findings that are about a loop's iterations, and a name for the loop.

    Findings on one loop have the execution and the numbers of iterations in common, and
    their columns overlap.  Loops of different executions are the same if what they do
    most is, and if normal executions run them about as often.
    """
    keyed: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for place in places:
        f = findings[place]
        if f.kind == "loop-count" and f.iterations is not None:
            sign = f.contribution > 0
            keyed[f.position, sign, f.iterations, *f.normal_iterations].append(place)
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
            if main.position not in executions and _same_loop(main, other)
        )
        number = next(fitting, len(known))
        if number == len(known):
            known.append((main, set()))
        known[number][1].add(main.position)
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
    mean, usual = (as_float(each.normal_iterations[0]) for each in (one, other))
    near = abs(mean - usual) <= max(1.0, CAUSES.alike * max(mean, usual))
    return near and one.symbol == other.symbol and one.contribution * other.contribution > 0


def _taking_turns(groups: list[Group], findings: Sequence[Finding]) -> list[Group]:
    """Join the groups of threads that only the anomalous executions wait for, in one stretch."""

    def stretches(group: Group) -> dict[int, tuple[int, int]] | None:
        result: dict[int, tuple[int, int]] = {}
        for place, _ in group:
            f = findings[place]
            if not f.role or f.probability or f.contribution <= 0:
                return None
            begin, end = result.get(f.position, (f.begin, f.end))
            result[f.position] = min(begin, f.begin), max(end, f.end)
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


_WHO: Final = {OWN: "ours", STRANGERS: "", NOBODY: IDLE}


def _find_main_class(finding: Finding, program: Collection[str]) -> int:
    """Return who had the cpu for most of a wait: the program's threads, strangers, or nobody."""
    held = [0.0, 0.0, 0.0]
    for detail, share in finding.details or ((finding.qualifier, 1.0),):
        held[find_class(detail, program)] += share
    return max((STRANGERS, OWN, NOBODY), key=held.__getitem__)


def _thread_key(finding: Finding) -> tuple[int, bool, str]:
    return finding.position, finding.contribution > 0, finding.role


def _about(finding: Finding, program: Collection[str] = ()) -> tuple[str, str]:
    """Return what a finding is about: a state and detail, or "" and a thread's role.

    Whoever had the cpu is one cause: the program's own threads, strangers, or nobody.
    """
    state, role = finding.symbol.state, finding.role
    if _has_rivals(finding.symbol):
        detail = _WHO[_find_main_class(finding, program)]
        return ("", role) if role and detail != IDLE else (state.name, detail)
    # What a thread does while it runs is not another cause for each system call.
    detail = "" if state in RUNNING else word_detail(family_of(finding.qualifier))
    return ("", role) if role else (state.name, detail)


# Offsetting: one thread's work, waited for in some executions and competing in others.


def pair_offsetting(findings: Sequence[Finding]) -> dict[int, int]:
    """Pair the two ways of waiting for one thread's work, where one grew and one shrank."""
    running: defaultdict[int, list[int]] = defaultdict(list)
    beside: list[int] = []
    whole: defaultdict[tuple[int, str], float] = defaultdict(float)
    for place, f in enumerate(findings):
        whole[f.position, f.role] += f.contribution
        if f.role and f.symbol.state in RUNNING:
            running[f.position].append(place)
        elif not f.role and _has_rivals(f.symbol):
            beside.append(place)

    def by_size(place: int) -> tuple[float, int]:
        return -abs(findings[place].contribution), place

    pairs: dict[int, int] = {}
    for place in sorted(beside, key=by_size):
        f = findings[place]
        rivals = [
            p
            for p in running[f.position]
            if (findings[p].contribution > 0) != (f.contribution > 0)
            and role_name(f.qualifier.rival) == findings[p].role
        ]
        if rivals:
            other = min(rivals, key=by_size)
            running[f.position].remove(other)
            thread = abs(whole[f.position, findings[other].role])
            # The other stands for both where both together go its way, too.
            if max(thread, abs(findings[other].contribution)) >= abs(f.contribution):
                pairs[place] = other
            else:
                pairs[other] = place
    return pairs
