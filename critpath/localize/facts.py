"""What the findings of a cause have in common, and the facts that a cause has of them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from critpath.documents import CauseFacts, CodePlace, RivalShare
from critpath.documents.base import as_float, number
from critpath.documents.causes import Counted
from critpath.localize.because import (
    NOBODY,
    OWN,
    STRANGERS,
    explain_cause,
    find_class,
    is_ours,
    share_rivals,
    take_work_apart,
)
from critpath.localize.counts import StepCounts
from critpath.model import (
    INTERFERENCE,
    RUNNING,
    Cause,
    Charge,
    Finding,
    Member,
    Reason,
    State,
    Step,
    Symbol,
)
from critpath.model.details import NO_DETAIL, Detail, word_detail
from critpath.model.stacks import is_helper
from critpath.model.vectors import host_of, may_hold_id, name_family
from critpath.schema.causes import (
    OF_STATE,
    CauseKind,
    Signs,
    Sureness,
    evidence_of,
    find_kind,
    needs_of,
)
from critpath.schema.parameters.localize import FACTS, WAITS


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
    charges = {m.finding.position: m.charge for m in members if m.charge and m.charge.before}
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


def find_end(members: Sequence[Member]) -> str:
    """Return the thread at the end of a chain of trips that lost most of the time, "" for none."""
    rise = count_rise(members)
    if rise is None or rise.step.state is not None:
        return ""
    time: Counter[str] = Counter()
    for charge in {m.finding.position: m.charge for m in members if m.charge}.values():
        for symbol, ns in charge.within.items():
            time[symbol.role] += round(ns)
    role, most = max(sorted(time.items()), key=lambda item: item[1], default=("", 0))
    if role in {"", rise.step.role} or most < FACTS.half * time.total():
        return ""
    return role


# By the role of a thread that is waited for: the roles on the way to it, and their time (ns).
Chains = Mapping[str, Mapping[tuple[str, ...], int]]


def find_way(role: str, executions: Sequence[int], chains: Mapping[int, Chains]) -> list[str]:
    """Return through whom a thread is waited for most of the time; the kernel's are none."""
    ways: Counter[tuple[str, ...]] = Counter()
    for execution in executions:
        for way, ns in chains.get(execution, {}).get(role, {}).items():
            ways[tuple(name for name in way if not is_helper(name))] += ns
    way, most = max(sorted(ways.items()), key=lambda item: item[1], default=((), 0))
    return [*way] if most >= FACTS.half * ways.total() else []


def where_in(members: Sequence[Member]) -> str:
    """Return in which system call it was, if most of the executions agree on it."""
    first: dict[int, Member] = {}
    for m in sorted((m for m in members if not m.moved), key=lambda m: -m.finding.begin):
        first[m.finding.position] = m
    calls = Counter(m.context.call for m in first.values())
    call, count = max(sorted(calls.items()), key=lambda x: x[1])
    return call if 2 * count > len(first) else ""


def find_elsewhere(findings: Sequence[Finding]) -> tuple[float | None, int | None, str]:
    """Return in what share of waits for a cpu another was idle, and which nearly all were for.

    Then its host, where there are several: of two hosts, CPU 0 is two CPUs.
    """
    waits = [f for f in findings if _has_rivals(f) and f.observed > 0]
    known = [f.elsewhere_idle for f in waits if f.elsewhere_idle is not None]
    if not waits or len(known) < len(waits):
        return None, None, ""
    share = min(math.fsum(known) / math.fsum(f.observed for f in waits), 1.0)
    places: Counter[tuple[str, int]] = Counter()
    for f in waits:
        for cpu in f.cpus:
            places[host_of(f.comm), cpu] += round(f.observed / len(f.cpus))
    ((host, cpu), time), *_ = places.most_common(1) or [(("", -1), 0)]
    if cpu < 0 or time < FACTS.nearly_all * places.total():
        return share, None, ""
    return share, cpu, host


def _has_rivals(finding: Finding) -> bool:
    return evidence_of(finding.symbol.state) == "rival"


def most_detail(findings: Sequence[Finding]) -> Detail:
    """Return the detail to name; of many that had the cpu, the one with most time."""
    pairs = [(f.qualifier, abs(f.contribution)) for f in findings]
    ways = [pairs]
    if any(d.loop or d.request or d.connections or d.before for d, _ in pairs):
        # How many were under way or before, and who sent them, differs from wait to wait.
        each = [
            (d._replace(under_way=0, held=0, before=0), weight)
            for d, weight in _weigh_details(findings)
        ]
        nobodys = [(d._replace(peer=""), weight) for d, weight in each]
        ways = [each, nobodys, [(d._replace(request=""), weight) for d, weight in nobodys]]
    elif _has_rivals(findings[0]):
        # Threads of one name, such as a compiler's, are one culprit with many ids, and so
        # are those of one family, such as workers that have the cpu in turn.
        pairs = _weigh_details(findings)
        ways = [pairs]
        names = [(detail._replace(peer_tid=-1), weight) for detail, weight in pairs]
        families = [(d._replace(peer=name_family(d.peer)), weight) for d, weight in names]
        kinless = [(d._replace(kin=""), weight) for d, weight in families]
        ways += [names, families, kinless, [(d._replace(place=""), w) for d, w in kinless]]
    for share in (FACTS.nearly_all, FACTS.half):
        for way in ways:
            heaviest = _heaviest(way)
            if _holds(heaviest, way, share):
                return heaviest
    heaviest = _heaviest(ways[min(1, len(ways) - 1)])
    return heaviest if heaviest == NO_DETAIL else heaviest._replace(others=True)


def _weigh_details(findings: Sequence[Finding]) -> list[tuple[Detail, float]]:
    """Return every detail of findings, with how much of their contributions it has."""
    return [
        (detail, abs(f.contribution) * share)
        for f in findings
        for detail, share in f.details or ((f.qualifier, 1.0),)
    ]


def _average(findings: Sequence[Finding], name: str) -> float | None:
    """Return a number of details on average, such as how many requests were under way."""
    details = ((getattr(d, name), weight) for d, weight in _weigh_details(findings))
    each = [(many, weight) for many, weight in details if many]
    whole = math.fsum(weight for _, weight in each)
    return math.fsum(many * weight for many, weight in each) / whole if whole else None


def _holds(detail: Detail, pairs: Sequence[tuple[Detail, float]], share: float) -> bool:
    """Tell whether more than a share of the weight has a detail."""
    mine = math.fsum(weight for other, weight in pairs if other == detail)
    return mine > share * math.fsum(weight for _, weight in pairs)


def _heaviest(pairs: Sequence[tuple[Detail, float]]) -> Detail:
    """Return the detail with the largest summed weight, of equals the first in order of text."""
    tally: defaultdict[Detail, float] = defaultdict(float)
    for detail, weight in pairs:
        tally[detail] += weight
    return max(sorted(tally, key=word_detail), key=tally.__getitem__)


# What a cause says, for programs.


_PLACES = 8  # technical: in the code, that are listed
# What of a detail is a fact of its own name: for others it is looked at what findings agree on.
_JUDGED: Final = frozenset(
    {"peer", "device", "call", "caller", "kin", "place", "under_way", "held"}
)
_AS_IT_IS: Final = {*Detail._fields} & {*CauseFacts.__struct_fields__} - _JUDGED
# What is waited for that is no device has its place: deferred work, or the call.
_BEHIND: Final = frozenset({State.QUEUED, State.SHARED})
_NAMED = frozenset({State.WAIT_DISK, State.WAIT_NET, State.SOFTIRQ, State.WAIT_SOFTIRQ})


def state_facts(
    cause: Cause,
    members: Sequence[Member],
    total: int,
    counts: StepCounts | None,
    *,
    quota: bool,
    inferred: Collection[str],
    reason: Reason | None,
    brought: Collection[str] = (),
    chains: Mapping[int, Chains] = MappingProxyType({}),
) -> CauseFacts:
    """Return what a cause says; ``brought`` are roles whose waits for a cpu their work brought."""
    main = main_member(members, reason).finding
    rise = count_rise(members)
    symbol = reason.symbol if reason else main.symbol
    named = [m.finding for m in members if not m.moved]
    alike = [f for f in named if f.symbol == symbol] or [main]
    state, needs = symbol.state, needs_of(symbol.state)
    most = most_detail(alike)
    detail = most if alike[0].symbol == symbol else NO_DETAIL
    comm = _name_threads(alike, symbol, len(cause.positions))
    peer = comm if symbol.role else ""
    if "peer" in needs and not detail.idle:
        held = "" if most.others and OF_STATE[state][-1].most else detail.peer
        peer = (reason.rival if reason else "") or held or peer
    rivals = _name_rivals(alike, symbol, cause.positions, counts)
    own = bool(symbol.role) and not detail.peer  # what that thread itself is
    known_peer = own or name_family(peer) == name_family(detail.peer)
    kin, place = (detail.kin, detail.place) if known_peer else ("", "")
    if rivals:
        first = rivals[0]
        most_of_it = first.share >= FACTS.half
        peer, kin, place = (first.name, first.kin, first.place) if most_of_it else ("", "", "")
    known = bool(rivals) or (bool(peer) and not (symbol.role and peer == comm))
    had = Detail(peer=rivals[0].name, kin=rivals[0].kin) if rivals else Detail(peer=peer, kin=kin)
    signs = Signs(
        rival=known,
        ours=bool(rivals or not symbol.role) and is_ours(had, counts.program if counts else ()),
        idle=detail.idle,
        late=max((f.longest for f in alike if f.longest is not None), default=0.0) < WAITS.late,
        quota=quota,
        local=detail.local,
        timer=main.qualifier.function if main.symbol.state == state else "",
    )
    kind = find_kind(state, signs)
    grown = cause.contribution > 0 and not detail.idle
    share, cpu, host = find_elsewhere(alike) if grown else (None, None, "")
    size = len(cause.positions)
    named_one = state in RUNNING and not most.others
    function, caller = (detail.function, detail.caller) if named_one else ("", "")
    counted, before, after = _counted(cause.positions, symbol, main, rise, counts)
    end = find_end(members)
    if end and end == symbol.role and counts:
        before, after = counts.mean_counts(Step(None, end), cause.positions)
    usual, now = _times(cause, named, symbol, counts, loop=counted == "iterations")
    if end and end == symbol.role:  # what was lost, along all of the chain
        now = usual + cause.contribution
    same = [m.context for m in members if not m.moved and m.finding.symbol == symbol]
    locations = _rank_places(of.location for of in same)
    waits_at = _rank_places({of.waits_at: 1} for of in same if of.waits_at and symbol.role)
    wakers = _rank_places(of.waker_location for of in same if not symbol.role)
    piece = (
        take_work_apart(counts, cause.positions).get((None, symbol.role, "")) if counts else None
    )
    work = (piece.before.running, piece.after.running) if piece else (math.nan, math.nan)
    waits = any(_has_rivals(m.finding) and m.finding.role == symbol.role for m in members)
    brought_along = state in RUNNING and symbol.role in brought and waits and rise is None
    brought_along = brought_along and piece is not None and piece.is_brought
    return CauseFacts(
        state=state.name,
        role=symbol.role,
        comm=comm,
        tids=sorted({f.tid for f in alike if f.tid > 0 and f.symbol == symbol}),
        peer=peer,
        device=detail.device or ((detail.interrupt or detail.call) if state in _NAMED else ""),
        call=detail.call if state == State.RUN_SYSCALL else where_in(members),
        kind=main.kind if rise is None else "extra",
        counted=counted,
        count_before=number(before),
        count_after=number(after),
        time_before=number(usual),
        time_after=number(now),
        share=cause.share,
        executions=size,
        of=total,
        certainty=_judge_sureness(kind, signs, inferred=symbol.role in inferred),
        local=detail.local,
        peer_share=_share_with(alike, peer) if "peer_share" in needs and detail.peer else None,
        elsewhere_idle=share,
        cpu=cpu,
        host=host,
        location=function or (locations[0].location if locations else ""),
        caller=caller,
        because=explain_cause(counts, members, cause.positions, counted=rise is not None)
        if counts
        else None,
        brought=brought_along,
        work_before=number(work[0]),
        work_after=number(work[1]),
        rivals=rivals,
        through=find_way(symbol.role, cause.positions, chains) if symbol.role else [],
        locations=[] if function else locations[:_PLACES],
        waits_at=waits_at[0].location if waits_at else "",
        waker_location=wakers[0].location if wakers else "",
        kin=kin,
        place=place,
        cause_id=kind.id,
        under_way=_average(alike, "under_way") if state in _BEHIND else None,
        held=_average(alike, "held") if detail.request and detail.connections else None,
        **{name: getattr(detail, name) for name in _AS_IT_IS},
    )


_MOST_RIVALS = 8  # technical: that are listed


def _name_rivals(
    alike: Sequence[Finding], symbol: Symbol, executions: Sequence[int], counts: StepCounts | None
) -> list[RivalShare]:
    """Return who had the cpu of a wait for one more than before, of those who had most of it."""
    if counts is None or evidence_of(symbol.state) != "rival":
        return []
    held = [0.0, 0.0, 0.0]
    for finding in alike:
        for detail, share in finding.details or ((finding.qualifier, 1.0),):
            held[find_class(detail, counts.program)] += share * abs(finding.contribution)
    who = max((STRANGERS, OWN, NOBODY), key=held.__getitem__)
    if who == NOBODY:
        return []
    fell = sum(finding.contribution for finding in alike) < 0
    return share_rivals(counts, symbol.role, executions, who=who, fell=fell)[:_MOST_RIVALS]


def _name_threads(alike: Sequence[Finding], symbol: Symbol, executions: int) -> str:
    """Return the name that threads have, or their family's, or what their role is called.

    A long number in a name may be an id: that of one thread is its name only where it was that
    thread in each execution.  What several threads are called alike is no id: ``python3``.
    """
    found = [f for f in alike if f.comm and f.symbol == symbol]
    names, seen = {f.comm for f in found}, {f.position for f in found}
    known_of_all = len({f.tid for f in found}) > 1 or len(seen) >= executions
    perhaps_id = not known_of_all and any(map(may_hold_id, names))
    if len(names) > 1 or (symbol.role and perhaps_id):
        names = {name_family(name) for name in names}
    return names.pop() if len(names) == 1 else symbol.role


def _judge_sureness(kind: CauseKind, signs: Signs, *, inferred: bool) -> Sureness:
    doubted = inferred or (kind.doubt and getattr(signs, kind.doubt))
    return "inferred" if kind.sure == "observed" and doubted else kind.sure


def _share_with(findings: Sequence[Finding], peer: str) -> float | None:
    """Return in what share of the time of findings a thread is named that kept them waiting."""
    held = [_time_with(f, lambda detail: detail.peer == peer) for f in findings]
    whole = math.fsum(f.observed for f in findings)
    return math.fsum(held) / whole if whole else None


def _rank_places(places: Iterable[Mapping[str, int]]) -> list[CodePlace]:
    """Return places in the code, and what share of the time each has; most first."""
    tally: Counter[str] = Counter()
    for one in places:
        tally.update(one)
    whole = tally.total()
    ranked = sorted(tally.items(), key=lambda item: (-item[1], item[0]))
    return [CodePlace(place, time / whole) for place, time in ranked if time]


def _time_with(finding: Finding, wanted: Callable[[Detail], bool]) -> float:
    """Return the time of a finding whose detail is as wanted (ns)."""
    details = finding.details or ((finding.qualifier, 1.0),)
    return finding.observed * math.fsum(share for detail, share in details if wanted(detail))


def _times(
    cause: Cause,
    named: Sequence[Finding],
    symbol: Symbol,
    counts: StepCounts | None,
    *,
    loop: bool,
) -> tuple[float, float]:
    """Return how long normal executions and these are in what a cause is about, on average.

    On another thread that is whatever that did: all that was waited for it.  It is what
    pictures of whole paths show; where these have it otherwise, what was aligned.
    """
    if counts is not None and not loop:
        whose = [symbol]
        if symbol.role:
            whose = [
                Symbol(s.state, s.role, s.place)
                for s in counts.steps
                if s.state and s.role == symbol.role
            ]
        grown = [counts.growth(one, cause.positions) for one in whose]
        before, after = (math.fsum(g[side] for g in grown) for side in (0, 1))
        if (after > before) == (cause.contribution > 0):
            return before, after
    size = len(cause.positions)
    expected = math.fsum(f.expected for f in named) / size
    return expected, math.fsum(f.observed for f in named) / size


def _counted(
    executions: Sequence[int],
    symbol: Symbol,
    main: Finding,
    rise: Charge | None,
    counts: StepCounts | None,
) -> tuple[Counted, float, float]:
    """Return what was counted, and how often normal executions and these do it."""
    if rise is not None:
        return "trips" if rise.step.state is None else "waits", rise.before, rise.after
    if main.kind == "loop-count" and main.iterations is not None:
        return "iterations", as_float(main.normal_iterations[0]), main.iterations
    step = Step.of(symbol)
    what: Counted = "waits"
    if symbol.role and symbol.state in RUNNING:
        step, what = Step(None, symbol.role), "trips"
    elif symbol.state in RUNNING | INTERFERENCE:
        what = "segments"
    if counts is None:
        return what, math.nan, math.nan
    return what, *counts.mean_counts(step, executions)
