"""What a slow machine makes of a program, and what it cannot: signs that the program changed.

Two recordings of different times differ by the machine: its speed, and who else had its cpus.
That makes a program's running time longer (all of it alike), its waits for a cpu, interrupts,
and waits for a disk.  It does not make another number of trips to a peer, a wait or a peer that
was not there, one kind of request slower while the others are not, or a sleep longer.  A sign is
one of these, large enough to count.  The limits were set on recordings of real servers, healthy
and with faults (docs/evaluation.md), not derived.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import repeat
from typing import Final

import numpy as np
from msgspec import Struct

from critpath.documents import SignEntry
from critpath.documents.base import number
from critpath.model import (
    F64,
    I64,
    INTERFERENCE,
    RUNNING,
    Bool,
    Detection,
    PathSet,
    Rival,
    State,
    Symbol,
    VectorTable,
    Whole,
    role_name,
)
from critpath.model.details import IDLE
from critpath.model.vectors import look_up
from critpath.processes import do_for_both, side_by_side
from critpath.records import dataclass
from critpath.schema.notes import SignKind
from critpath.schema.parameters.detect import MACHINE
from critpath.schema.parameters.localize import WAITS
from critpath.schema.parameters.shared import NORMAL
from critpath.stats.rows import mid_ranks
from critpath.stats.tails import hypergeometric_tail, student_quantile
from critpath.text import notes

# Kernel threads that work for any program: to meet one is no change of the program.
_HELPERS: Final = ("kworker", "ksoftirqd", "migration", "rcu", "kcompactd", "kswapd", "swapper")
_UNSEEN: Final = frozenset({State.UNKNOWN, State.WAIT_UNEXPLAINED, State.NOT_RECORDED})
# How often a request meets others is chance, and more frequent where all takes longer.
_QUEUES: Final = frozenset({State.QUEUED, State.SHARED})
# Of its own, or for somebody: not for a cpu, nor for a disk that others may keep busy.
_ASLEEP: Final = (
    *(State.WAIT_TIMER, State.WAIT_NET, State.WAIT_FUTEX, State.WAIT_TASK, State.WAIT_PIPE),
)
_MET: Final = INTERFERENCE | _UNSEEN | _QUEUES


@dataclass(frozen=True)
class _TypeGroup:
    """Executions that are compared, and what a sign in them comes to over the whole sample."""

    types: Sequence[int]
    label: str
    symbols: Sequence[Symbol]
    counts: tuple[Whole, Whole]  # normal, sample: [executions, symbols]
    durations: tuple[F64, F64]
    share: float  # of the sample
    trips: Trips | None = None  # of these executions

    @property
    def mean(self) -> float:
        return float(self.durations[0].sum(axis=1).mean())

    @cached_property
    def longer(self) -> F64:
        """By how much longer an execution is in each state, on average."""
        before, after = (each.mean(axis=0) for each in self.durations)
        return np.asarray(after - before, np.float64)

    @cached_property
    def added(self) -> float:
        """Time that was added: not behind other requests, which grows with what these take."""
        return float(self.longer[~_find_among(self.symbols, _QUEUES)].clip(min=0).sum())

    def met(self, i: int) -> float:
        """Return the share of a state's segments that came with more waits behind others."""
        before, after = (c.mean(axis=0) for c in self.counts)
        more = self.count_met()
        return float(max(0.0, min(after[i] - before[i], more)) / max(after[i], 1e-9))

    def count_met(self, but: str | None = None) -> float:
        """Return how many more waits behind others an execution has, but those at one thread."""
        before, after = (c.mean(axis=0) for c in self.counts)
        chosen = [s.state in _QUEUES and s.role != but for s in self.symbols]
        return float((after - before)[np.array(chosen, np.bool_)].sum())

    def more_trips(self) -> list[tuple[str, float]]:
        """Return by how much more often each other thread is asked."""
        of = self.trips
        if of is None:
            return []
        rise = of.sample.mean(axis=0) - of.normal.mean(axis=0)
        return [*zip(of.roles, rise.tolist(), strict=True)]

    def sum_role(self, role: str) -> tuple[_RoleTimes, _RoleTimes]:
        """Return what a thread does of an execution, on average before and after."""
        waits = _find_among(self.symbols, INTERFERENCE)
        mine = np.array([symbol.role == role for symbol in self.symbols], np.bool_)
        mine &= ~_find_among(self.symbols, _QUEUES)
        before, after = (
            _RoleTimes(float(d[:, mine & ~waits].sum(axis=1).mean()),
                       float(d[:, mine & waits].sum(axis=1).mean()),
                       float(d[:, waits].sum() / max(d[:, ~waits].sum(), 1.0)))
            for d in self.durations
        )  # fmt: skip
        return before, after

    def add_waits(self, role: str, work: float) -> float:
        """Return so much more work of a thread with the waits for a cpu that delay such work.

        Each nanosecond of it waits as long as one did before, or does after if that is less: what
        it waits longer is the machine's.
        """
        before, after = self.sum_role(role)
        brought = work * (1 + min(before.dilation, after.dilation))
        return min(brought, max(after.whole - before.whole, 0.0))

    def seen(self, i: int, of: tuple[I64, I64] | tuple[F64, F64]) -> tuple[F64, F64]:
        """Return the values of a state; of a loop's sleep with the time that it had for others.

        While a request waits, a loop works for others or, with nothing to do, sleeps.
        """
        same = [i]
        if self.symbols[i].state == State.WAIT_TIMER:
            shared = Symbol(State.SHARED, self.symbols[i].role)
            same += [k for k, symbol in enumerate(self.symbols) if symbol == shared]
        before, after = (np.asarray(each[:, same].sum(axis=1), np.float64) for each in of)
        return before, after


class Trips(Struct, frozen=True):
    """How often executions ask another thread and are answered: counts [executions, roles]."""

    roles: Sequence[str]
    normal: Whole
    sample: Whole

    def take(self, normal: Bool, sample: Bool) -> Trips:
        """Return those of some executions."""
        return Trips(self.roles, self.normal[normal], self.sample[sample])


class _RoleTimes(Struct, frozen=True):
    """What a thread did of an execution (ns), and what held it up meanwhile."""

    work: float
    waits: float
    usual: float  # waits of all threads, for each nanosecond of their work

    @property
    def whole(self) -> float:
        return self.work + self.waits

    @property
    def dilation(self) -> float:
        return self.waits / self.work if self.work > 0 else self.usual


class _Added(Struct, frozen=True):
    """What an execution of some types takes longer, and their share of the sample."""

    types: Sequence[int]
    added: float
    share: float


class _FoundSign(Struct, frozen=True):
    """A sign, with the time that it brought an execution of its kind, of what was added.

    ``share`` is that kind's, of the sample.
    """

    sign: SignEntry
    brought: float
    added: float
    share: float


def _make_sign(
    kind: SignKind, name: str, label: str, before: float, after: float, effect: float
) -> SignEntry:
    """Return a sign with its sentence.

    ``before`` and ``after`` are a mean count, a share of executions, a time (ns) or a factor, as
    the kind has it; ``effect`` is what it comes to in the mean of all sample executions (ns).
    """
    sentence = notes.sign(kind, name, label, (before, after), effect, notes.KEPT)
    return SignEntry(kind, name, label, number(before), number(after), number(effect), sentence)


def _find_among(symbols: Sequence[Symbol], states: Collection[State]) -> Bool:
    return np.array([symbol.state in states for symbol in symbols], np.bool_)


def find_signs(
    normal: VectorTable,
    sample: VectorTable,
    strata: tuple[I64, I64],
    names: Sequence[str],
    significant: Bool,
    floor: float,
    trips: Trips | None = None,
    held_up: Mapping[str, float] | None = None,
) -> tuple[SignEntry, ...]:
    """Return the signs that the program changed, the largest first.

    Parameters
    ----------
    normal, sample : VectorTable
        Over the same symbols.
    strata : (int64 array, int64 array)
        Type of every execution.
    names : sequence of str
        What each type is called.
    significant : bool [symbols]
        The symbols that are slower by the permutation tests.
    floor : float
        Least effect that counts, as a share of the mean duration.
    trips : Trips, optional
        How often each asked others; by default how often these run on its path, which is once
        more where they were interrupted, and not at all where they had the asker's cpu.
    held_up : mapping of str to float, optional
        By kind, how many times as long strangers who came made its executions: whom it queues
        behind and what it waits for unseen, as a lock with a time-out, had no cpu either.
    """
    sizes: list[_Added] = []
    found: list[_FoundSign] = []
    for group in _groups(normal, sample, strata, names, trips):
        sizes.append(_Added(group.types, group.added, group.share))
        if group.mean + group.longer.sum() < MACHINE.faster * group.mean:
            continue
        least = floor * group.mean
        found += _counts(group, least)
        found += _more_trips(group, least)
        found += _new_states(group, least)
        found += _longer_states(group, significant, least)
    added = {s: of.added for of in sizes for s in of.types}
    found += _kinds(normal, sample, strata, names, floor, added, held_up=held_up)
    # The kind that most was added to, whichever the sign is of.
    most = max(sizes, key=lambda of: of.share * of.added, default=None)
    best: dict[tuple[str, str], SignEntry] = {}
    for one in sorted(found, key=lambda f: -(f.sign.effect or 0.0)):
        if _explains(one, most):
            best.setdefault((one.sign.kind, one.sign.name), one.sign)
    return tuple(best.values())


def _explains(one: _FoundSign, most: _Added | None) -> bool:
    """Tell whether a sign brought enough of what was added, to its kind and to another.

    An execution of one kind is not one of another: beside another kind's time it counts for
    each execution, where it is of few, or for all of the sample, where it is of many.
    """
    if one.brought < MACHINE.explains * one.added:
        return False
    if most is None or one.brought >= MACHINE.explains * most.added:
        return True
    return one.brought * one.share >= MACHINE.explains * most.added * most.share


def _groups(
    normal: VectorTable,
    sample: VectorTable,
    strata: tuple[I64, I64],
    names: Sequence[str],
    trips: Trips | None,
) -> Iterator[_TypeGroup]:
    """Yield every type that is large enough; those of one name as one where their shares moved.

    Executions of one name are of the types that a path's structure makes them.  Where the shares
    of these changed, the same executions are of other types than before, by what they met: then
    what they lost is seen in all of them, not in one type.
    """
    # What became of none of the sample's kind is its kind still: their type may be what changed.
    types = np.unique(strata[0]).tolist()
    for name in dict.fromkeys(names[s] for s in types):
        of = [s for s in types if names[s] == name]
        apart = [[s] for s in of]
        for chosen in [of] if _has_moved(*(each[np.isin(each, of)] for each in strata)) else apart:
            ours, theirs = (np.isin(each, chosen) for each in strata)
            if ours.sum() < MACHINE.group or theirs.sum() < MACHINE.group:
                continue
            yield _TypeGroup(
                chosen,
                name if len(types) > 1 else "",
                normal.symbols,
                (normal.structure[ours], sample.structure[theirs]),
                (
                    normal.durations[ours].astype(np.float64),
                    sample.durations[theirs].astype(np.float64),
                ),
                int(theirs.sum()) / len(sample),
                trips and trips.take(ours, theirs),
            )


def _has_moved(before: I64, after: I64) -> bool:
    """Tell whether the shares of types are others than chance makes them."""
    types = np.unique(before).tolist()
    n, m = len(before), len(after)
    for s in types:
        one, other = int((before == s).sum()), int((after == s).sum())
        more = hypergeometric_tail(one + other, m, n, other)
        fewer = hypergeometric_tail(one + other, n, m, one)
        if min(more, fewer) * 2 * len(types) <= MACHINE.level:
            return True
    return False


def _counts(group: _TypeGroup, least: float) -> Iterator[_FoundSign]:
    """More segments of a state, and time that they brought."""
    symbols, longer = group.symbols, group.longer
    before, after = (c.mean(axis=0) for c in group.counts)
    rise = after - before
    met = _find_among(symbols, _MET)
    # Each trip costs a wait for a cpu besides, which is no state of its own here.
    waits = longer[_find_among(symbols, INTERFERENCE)].clip(min=0).sum()
    brought = longer.clip(min=0) + _shared_out(waits, rise)
    # A trip is of several states; what each brought by itself, without waits that others made.
    surely = float(longer[~met & (rise >= MACHINE.least_rise)].clip(min=0).sum())
    counted = set(group.trips.roles) if group.trips else set()
    # What flies is seen where its receiver waits for it: whether it does is chance. A trip that
    # was not there has somebody run once more, who sends or receives.
    trips = bool((rise[_find_among(symbols, RUNNING)] >= MACHINE.least_rise).any())
    for i, symbol in enumerate(symbols):
        if met[i] or is_helper(symbol) or (symbol.state == State.NET_TRANSIT and not trips):
            continue
        if symbol.state in RUNNING and symbol.role in counted:
            continue  # by its trips
        counts = group.seen(i, group.counts)
        usual = float(counts[0].mean())
        more = float(counts[1].mean()) - usual
        if symbol.state in RUNNING:
            more -= float(after[i]) * group.met(i)
        if more < MACHINE.least_rise or usual + more < MACHINE.more_often * usual or longer[i] <= 0:
            continue
        if brought[i] >= least and is_surely_more(*counts):
            yield _FoundSign(
                _make_sign(
                    "count", symbol.name, group.label, float(before[i]), float(after[i]),
                    float(brought[i]) * group.share,
                ),
                surely if symbol.state in RUNNING else float(brought[i]),
                *(group.added, group.share),
            )  # fmt: skip


def _more_trips(group: _TypeGroup, least: float) -> Iterator[_FoundSign]:
    """More asks that another thread answered, and the time that they brought."""
    of = group.trips
    for j, role in enumerate(of.roles if of else ()):
        asked = Symbol(State.RUN, role)
        if of is None or is_helper(asked):
            continue
        counts = of.normal[:, j], of.sample[:, j]
        before, after = (float(each.mean()) for each in counts)
        # Behind others' requests elsewhere a path meets what is asked for those.
        more = after - before - max(group.count_met(role), 0.0)
        if more < MACHINE.least_rise or before + more < MACHINE.more_often * before:
            continue
        times = group.sum_role(role)
        each = [t.work / c for t, c in zip(times, (before, after), strict=True) if c > 0]
        brought = group.add_waits(role, more * min(each)) + _prepared(group, role, more)
        if brought >= least and brought > 0 and is_surely_more(*counts):
            effect = brought * group.share
            yield _FoundSign(
                _make_sign("count", asked.name, group.label, before, after, effect),
                *(brought, group.added, group.share),
            )


def _prepared(group: _TypeGroup, role: str, more: float) -> float:
    """Return what others ran longer to ask a thread so much more often, with its waits.

    Who asks runs once more for each: no more of its time is counted than it runs more often, or,
    where one call wakes many, than their wakes cost.
    """
    before, after = (c.mean(axis=0) for c in group.counts)
    asked = {name for name, rise in group.more_trips() if rise >= MACHINE.least_rise}
    found = 0.0
    for i, symbol in enumerate(group.symbols):
        rise = float(after[i] - before[i])
        if symbol.state in RUNNING and symbol.role not in {role, *asked}:
            longer = max(float(group.longer[i]), 0.0)
            share = min(more / rise, 1.0, rise / more) if rise > 0 else 0.0
            work = max(longer * share, min(longer, more * MACHINE.wake))
            found += group.add_waits(symbol.role, work)
    return found


def _shared_out(time: float, rise: F64) -> F64:
    positive = rise.clip(min=0)
    return np.asarray(time * positive / max(float(positive.sum()), 1e-9), dtype=np.float64)


def _new_states(group: _TypeGroup, least: float) -> Iterator[_FoundSign]:
    """States that hardly any normal execution has, and some sample executions have."""
    n, m = len(group.counts[0]), len(group.counts[1])
    for i, symbol in enumerate(group.symbols):
        if symbol.state in _MET or is_helper(symbol):
            continue
        before, after = (int((c > 0).sum()) for c in group.seen(i, group.counts))
        longer = float(group.longer[i])
        if before > MACHINE.new * n or after < MACHINE.group - 1 or longer < least:
            continue
        if hypergeometric_tail(before + after, m, n, after) <= MACHINE.level:
            sign = _make_sign(
                "new", symbol.name, group.label, before / n, after / m, longer * group.share
            )
            yield _FoundSign(sign, longer, group.added, group.share)


def _longer_states(group: _TypeGroup, significant: Bool, least: float) -> Iterator[_FoundSign]:
    """States that last longer than the pace of a machine makes them."""
    symbols = group.symbols
    means = [d.mean(axis=0) for d in group.durations]
    running, queues = _find_among(symbols, RUNNING), _find_among(symbols, _QUEUES)
    for i, symbol in enumerate(symbols):
        if symbol.state in INTERFERENCE or symbol.state in _UNSEEN or not significant[i]:
            continue
        if is_helper(symbol) or _met_or_not(*(float(c[:, i].mean()) for c in group.counts)):
            continue
        times = group.seen(i, group.durations)
        before, after = (float(each.mean()) for each in times)
        if symbol.state in RUNNING:
            after -= after * group.met(i)
        longer = after - before
        others = running & (np.arange(len(symbols)) != i)
        if symbol.state in _QUEUES:
            # A slow machine makes queues longer than it makes anything else.
            rest = [float(each[~queues].sum()) for each in means]
            if rest[1] > MACHINE.steady * rest[0] or longer < MACHINE.queue * group.mean:
                continue
        pace, known = 1.0, False
        if means[0][others].sum() > MACHINE.new * means[0].sum():
            pace, known = max(1.0, means[1][others].sum() / means[0][others].sum()), True
        usual = before * _most(symbol.state, pace, known=known)
        if after <= usual or longer < least or after - pace * before < least:
            continue
        if not is_surely_more(*times):
            continue
        brought = float(group.longer[i])
        if symbol.state in RUNNING:
            brought = max(brought, group.add_waits(symbol.role, brought))
        yield _FoundSign(
            _make_sign(
                "share", symbol.name, group.label, float(means[0][i]), float(means[1][i]),
                brought * group.share,
            ),
            brought, group.added, group.share,
        )  # fmt: skip


def _met_or_not(before: float, after: float) -> bool:
    """Tell whether a state only is in more of the executions: who comes first is chance."""
    return MACHINE.new < before < MACHINE.least_rise and after - before < MACHINE.least_rise


def _most(state: State, pace: float, *, known: bool) -> float:
    """Return how many times as long a state can last on a machine of that pace."""
    if state in RUNNING:
        return min(pace * MACHINE.apart, max(MACHINE.pace, pace)) if known else MACHINE.pace
    if state == State.WAIT_TIMER:
        return MACHINE.sleep
    if state in {State.WAIT_DISK, State.WAIT_DEVICE}:
        return MACHINE.disk * pace
    return MACHINE.other * pace


def _kinds(
    normal: VectorTable,
    sample: VectorTable,
    strata: tuple[I64, I64],
    names: Sequence[str],
    floor: float,
    added: Mapping[int, float],
    *,
    waits: bool = False,
    held_up: Mapping[str, float] | None = None,
) -> Iterator[_FoundSign]:
    """One kind of request slower than the others' pace makes it: difference of differences."""
    classes = _classes(normal.symbols, waits=waits)
    queues = np.array([symbol.state in _QUEUES for symbol in normal.symbols])
    groups = [
        (s, normal.durations[strata[0] == s] @ classes, sample.durations[strata[1] == s] @ classes)
        for s in np.unique(strata[1]).tolist()
        if (strata[0] == s).sum() >= MACHINE.group
    ]
    groups = [(s, x.astype(np.float64), y.astype(np.float64)) for s, x, y in groups]
    for s, x, y in groups:
        # Types of one name are of one kind: what tells them apart may be the machine.
        others = [(a.mean(axis=0), b.mean(axis=0)) for t, a, b in groups if names[t] != names[s]]
        if len(y) < MACHINE.group or not others:
            continue
        before = np.sum([a for a, _ in others], axis=0)
        after = np.sum([b for _, b in others], axis=0)
        pace = np.divide(after, before, out=np.ones_like(after), where=before > 0).clip(min=1.0)
        # What the others hardly do tells no pace of its own: the highest there is.
        seen = before > MACHINE.new * before.sum()
        pace = np.where(seen, pace, max(1.0, float(pace[seen].max(initial=1.0))))
        expected = x * pace * (held_up or {}).get(names[s], 1.0)
        whole = float(x.sum(axis=1).mean())
        queued = float(normal.durations[strata[0] == s][:, queues].sum(axis=1).mean())
        predicted, found = float(expected.sum(axis=1).mean()), float(y.sum(axis=1).mean())
        if found < MACHINE.kind * predicted or found - predicted < floor * (whole + queued):
            continue
        if is_surely_more(expected.sum(axis=1), y.sum(axis=1)):
            share = len(y) / len(sample)
            sign = _make_sign("kind", names[s], names[s], whole, found, (found - whole) * share)
            yield _FoundSign(sign, found - whole, added.get(s, 0.0), share)


def find_crowded(
    own: tuple[VectorTable, VectorTable],
    strata: tuple[I64, I64],
    names: Sequence[str],
    floor: float,
    held_up: Mapping[str, float] | None = None,
) -> tuple[SignEntry, ...]:
    """Return signs of kinds whose own threads have the cpus for longer, where others' have not.

    ``own`` is without the time that strangers had them.
    """
    none: dict[int, float] = {}
    found = _kinds(*own, strata, names, floor, none, waits=True, held_up=held_up)
    ranked = sorted(found, key=lambda one: -(one.sign.effect or 0.0))
    return tuple({one.sign.name: one.sign for one in reversed(ranked)}.values())[::-1]


def _classes(symbols: Sequence[Symbol], *, waits: bool) -> I64:
    """Mark which symbols are of a class that one machine slows alike; other interference is none.

    Waits for a cpu are one where strangers' time is out of them: each has its own threads'.
    """
    marks = np.zeros((len(symbols), 4), np.int64)
    for i, symbol in enumerate(symbols):
        if symbol.state in RUNNING:
            marks[i, 0] = 1
        elif symbol.state in {State.WAIT_DISK, State.WAIT_DEVICE, State.WAIT_SOFTIRQ}:
            marks[i, 1] = 1
        elif symbol.state == State.WAIT_CPU:
            marks[i, 3] = waits
        elif symbol.state not in _MET - _UNSEEN:
            marks[i, 2] = 1
    return marks


def is_helper(symbol: Symbol) -> bool:
    """Tell whether a symbol is of a kernel thread that works for any program."""
    return symbol.role.startswith(_HELPERS)


def is_surely_more(before: I64 | F64, after: I64 | F64) -> bool:
    """Test whether values rose: by their ranks, or by how many are above all of the others."""
    n, m = len(before), len(after)
    both = np.concatenate([after, before]).astype(np.float64)
    above = int((after > before.max(initial=0)).sum())
    if above and hypergeometric_tail(above, m, n, above) <= MACHINE.level:
        return True
    ranks = mid_ranks(both[:, None])[:, 0]
    deviation = math.sqrt(m * n / (n + m) * float(ranks.var(ddof=1)))
    return deviation > 0 and float(ranks[:m].sum() - m * ranks.mean()) > NORMAL.q995 * deviation


# What several recordings of either set tell.


def beyond_sessions(
    total: tuple[I64, I64],
    strata: tuple[I64, I64],
    sessions: tuple[I64, I64],
    known: float | None,
    level: float,
) -> tuple[float, float]:
    """Return by how much the sample's recordings are slower, and what recordings differ by.

    Both are factors less 1: the estimate, and the least that is beyond what recordings of one
    program differ by; inf where there are too few to know.

    Parameters
    ----------
    total : (int64 array, int64 array)
        Durations of the normal and of the sample executions.
    strata, sessions : (int64 array, int64 array)
        Type and recording of each.
    known : float or None
        Standard deviation of recordings as a share, where it is known from elsewhere.
    level : float
        One-sided.
    """
    ours, theirs = _session_means(total, strata, sessions)
    k, m = len(ours), len(theirs)
    apart = float(theirs.mean() - ours.mean()) if k and m else 0.0
    if known is not None:
        # A spread from eight recordings or more: see `critpath calibrate`.
        limit = student_quantile(1 - level, 7) * math.log1p(known) * math.sqrt(1 / k + 1 / m)
        return math.expm1(apart), math.expm1(limit)
    freedom = k + m - 2
    if k < 3 or freedom < 2:
        return math.expm1(apart), math.inf
    squares = float(((ours - ours.mean()) ** 2).sum() + ((theirs - theirs.mean()) ** 2).sum())
    limit = student_quantile(1 - level, freedom) * math.sqrt(squares / freedom * (1 / k + 1 / m))
    if m >= 3:
        # Nor without a distribution: most of the exchanges of whole recordings must be less.
        limit = max(limit, apart * (1 + 1e-9)) if float(theirs.min()) <= ours.max() else limit
    return math.expm1(apart), math.expm1(limit)


def _session_means(
    total: tuple[I64, I64], strata: tuple[I64, I64], sessions: tuple[I64, I64]
) -> tuple[F64, F64]:
    """Return the mean logarithm of every recording's durations over their types' medians."""
    middle = {
        s: math.log(max(float(np.median(total[0][strata[0] == s])), 1.0))
        for s in np.unique(strata[0]).tolist()
    }
    result = []
    for values, kinds, session in zip(total, strata, sessions, strict=True):
        known = np.isin(kinds, list(middle))
        logs = np.log(np.maximum(values[known], 1)) - np.array(
            [middle[s] for s in kinds[known].tolist()]
        )
        of = session[known]
        result.append(np.array([float(np.median(logs[of == s])) for s in np.unique(of)]))
    return result[0], result[1]


# Who had the cpu.


def find_strangers(
    normal: PathSet, sample: PathSet, roles: Collection[str], runs: tuple[I64, I64] | None
) -> frozenset[str]:
    """Return whose having the cpu is weather: threads of others, there in both sets.

    Who is in most runs of the sample and not in the normal ones is none: that is a change,
    whoever made it.

    Parameters
    ----------
    normal, sample : PathSet
        Recorded together.
    roles : collection of str
        Of the threads that paths of either set are in.
    runs : (int64 array, int64 array) or None
        Run of every execution; None where each is one.
    """
    hosts = normal.hosts | sample.hosts
    own = {comm for each in (normal, sample) for comm in each.executions.comm}
    mine = {*roles, *(role_name(comm, hosts=hosts) for comm in own)}
    places = runs or (np.arange(len(normal)), np.arange(len(sample)))
    works = map(partial, repeat(_runs_by_rival), (normal, sample), places)
    seen = side_by_side(*works, rows=len(normal) + len(sample))
    n, m = (len(np.unique(each)) for each in places)
    result = set()
    for name in {*seen[0], *seen[1]} - {IDLE, ""}:
        before, after = (len(each.get(name, ())) for each in seen)
        new = 2 * after > m and hypergeometric_tail(before + after, m, n, after) <= MACHINE.newcomer
        if not new and role_name(name, hosts=hosts) not in mine:
            result.add(name)
    return frozenset(result)


def _runs_by_rival(paths: PathSet, runs: I64) -> dict[str, set[int]]:
    """Return in which runs executions waited for a cpu that a thread of a name had."""
    result: dict[str, set[int]] = {}
    first = 0
    for chunk in paths.chunks():
        table = chunk.paths
        rows = np.flatnonzero(table.state == State.WAIT_CPU)
        run = runs[first + np.searchsorted(table.start, rows, side="right") - 1]
        first += len(table)
        pairs = np.unique(run * len(table.details) + table.detail[rows])
        number, code = np.divmod(pairs, len(table.details))
        for each in np.unique(code).tolist():
            mine = number[code == each].tolist()
            result.setdefault(table.details[each].rival, set()).update(mine)
    return result


def find_rival(normal: PathSet, sample: PathSet) -> Rival | None:
    """Return who had the cpu meanwhile, if waits for a cpu grew most by one thread."""
    before, after = do_for_both(normal, sample, _waits_by_rival)
    more = {name: time - before.get(name, 0.0) for name, time in after.items()}
    if not more:
        return None
    name = max(more, key=lambda each: (more[each], each))
    return Rival(name, before.get(name, 0.0), after[name]) if more[name] > 0 else None


def find_limit(
    rival: Rival | None, detection: Detection, *, throttled: bool
) -> tuple[SignEntry, ...]:
    """Return a sign if a limit held threads back: a quota, by the recorder's word or by the cpu.

    A thread that waits long for a cpu that is idle is not kept from it by another thread.
    """
    least = detection.floor
    held = [t for symbol, t in detection.by_symbol if symbol.state == State.WAIT_QUOTA]
    more = math.fsum(t.effect for t in held)
    if held and more >= least:
        before, after = (
            math.fsum(t.normal_mean for t in held), math.fsum(t.sample_mean for t in held),
        )  # fmt: skip
        if after > MACHINE.other * before:
            return (_make_sign("quota", "", "", before, after, more),)
    if rival is None or rival.name != IDLE:
        more = detection.states[-1].effect
        return (_make_sign("quota", "", "", 0.0, 1.0, more),) if throttled and more >= least else ()
    more = rival.after - rival.before
    if more < least or (rival.after < MACHINE.other * rival.before and not throttled):
        return ()
    return (_make_sign("quota", "", "", rival.before, rival.after, more),)


def find_queue(detection: Detection) -> tuple[SignEntry, ...]:
    """Return a sign if waits behind others' requests grew more than a slow machine makes them.

    For sets in which new clients asked after: who waits behind them waits for no machine.
    """
    states = detection.states[:-1]
    queues = [t for symbol, t in detection.by_symbol if symbol.state in _QUEUES]
    before, after = (
        [math.fsum(getattr(t, of) for t in some) for some in (queues, states)]
        for of in ("normal_mean", "sample_mean")
    )
    more, rest = after[0] - before[0], before[1] - before[0]
    pace = max(1.0, (after[1] - after[0]) / rest) if rest > 0 else 1.0
    if not any(t.flagged for t in queues) or after[0] <= MACHINE.other * pace * before[0]:
        return ()
    if more < max(detection.floor, MACHINE.explains * (after[1] - before[1])):
        return ()
    return (_make_sign("clients", "", "", before[0], after[0], more),)


def find_blocked_loops(
    normal: PathSet, sample: PathSet, detection: Detection
) -> tuple[SignEntry, ...]:
    """Return a sign if requests wait longer for loops that sleep: no machine puts these to sleep.

    Who sleeps in a call, or of its own, wants no cpu.
    """
    times = do_for_both(normal, sample, _sum_blocked)
    before, after = (float(each.mean()) if len(each) else 0.0 for each in times)
    added = detection.states[-1].effect
    least = max(detection.floor, MACHINE.explains * added)
    if after - before < least or after < MACHINE.other * before or not is_surely_more(*times):
        return ()
    return (_make_sign("blocked", "", "", before, after, after - before),)


def drop_crowded_queues(normal: PathSet, sample: PathSet, detection: Detection) -> list[SignEntry]:
    """Leave out signs of queues that grew while the thread that had the loop waited for a cpu.

    That is the machine's, as if the request itself had waited.
    """
    queues = {symbol.name: symbol for symbol, _ in detection.by_symbol if symbol.state in _QUEUES}
    mean = detection.states[-1].normal_mean or 0.0
    kept = []
    for sign in detection.signs:
        queue = queues.get(sign.name)
        if sign.kind == "share" and queue:
            before, after = (_mean_crowded(paths, queue) for paths in (normal, sample))
            if (sign.effect or 0.0) - max(0.0, after - before) < MACHINE.queue * mean:
                continue
        kept.append(sign)
    return kept


def _mean_crowded(paths: PathSet, queue: Symbol) -> float:
    """Return how long an execution is in a queue's state whose thread had no cpu."""
    time = 0
    for chunk in paths.chunks():
        table = chunk.paths
        rows = (table.state == queue.state) & np.isin(table.beneath, [*INTERFERENCE])
        own = table.tid == chunk.executions.tid[table.path]
        if queue.role:
            named = look_up(
                table.comm, table.strings, lambda name: int(role_name(name) == queue.role)
            )
            rows &= ~own & (named > 0)
        else:
            rows &= own
        time += int(table.duration[rows].sum())
    return time / max(len(paths), 1)


def _sum_blocked(paths: PathSet) -> I64:
    """Return how long each execution waited for a loop that slept."""
    sums, first = np.zeros(len(paths), np.int64), 0
    for chunk in paths.chunks():
        table = chunk.paths
        loop = np.array([bool(of.loop) for of in table.details], np.bool_)
        if loop.any():
            rows = np.flatnonzero(np.isin(table.beneath, _ASLEEP) & loop[table.detail])
            np.add.at(sums, table.path[rows] + first, table.duration[rows])
        first += len(chunk)
    return sums


def _waits_by_rival(paths: PathSet) -> dict[str, float]:
    """Return the mean time an execution waits for a cpu, by who had it."""
    sums: dict[str, float] = {}
    for chunk in paths.chunks():
        table = chunk.paths
        rows = np.flatnonzero(table.state == State.WAIT_CPU)
        idle = np.array([of.idle for of in table.details])
        # An idle cpu takes its time to start a thread, and longer on a slow machine.
        rows = rows[~idle[table.detail[rows]] | (table.duration[rows] >= WAITS.late)]
        time = np.bincount(
            table.detail[rows], table.duration[rows].astype(np.float64), len(table.details)
        )
        for code in np.flatnonzero(time).tolist():
            name = table.details[code].rival
            sums[name] = sums.get(name, 0.0) + float(time[code])
    return {name: time / len(paths) for name, time in sums.items()}
