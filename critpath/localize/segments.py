"""What the segments of a path are beyond their symbol, and who holds most of some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
from msgspec import structs

from critpath.model import (
    I32,
    I64,
    INTERFERENCE,
    RUNNING,
    Analysis,
    Bool,
    Context,
    CriticalPaths,
    Finding,
    PathSet,
    State,
    excess_over_types,
    freeze_columns,
    role_name,
)
from critpath.model.details import NO_DETAIL, Detail, family_of, word_detail
from critpath.model.stacks import is_helper, location_of
from critpath.records import dataclass
from critpath.schema.parameters.localize import SEGMENTS


@dataclass(frozen=True, eq=False)
class Segments:
    """What the segments of one path are beyond their symbol; one row per segment.

    Attributes
    ----------
    begin, end : int64
        Nanoseconds in the trace.
    tid : int64
        The thread each is spent on.
    comm : tuple of str
        Its name.
    detail : tuple of Detail
        What qualifies the state.
    cpu, elsewhere_idle : int64
        Where it is, and of a wait for it how long another was idle (ns); -1: not known.
    """

    begin: I64
    end: I64
    tid: I64
    comm: tuple[str, ...]
    detail: tuple[Detail, ...]
    cpu: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    elsewhere_idle: I64 = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        for name in ("cpu", "elsewhere_idle"):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(len(self.begin), -1, np.int64))
        freeze_columns(self, len(self.begin))
        if not len(self.begin) == len(self.comm) == len(self.detail):
            raise ValueError("Segments: columns of unequal length")


class Holders:
    """Tells who holds a difference: detail, thread and its name.

    Parameters
    ----------
    segments : Segments
        Of the anomalous execution.
    normals : sequence of Segments
        Of the normal rows, in order; without them, who holds the
        time.
    """

    def __init__(self, segments: Segments, normals: Sequence[Segments]) -> None:
        self.rows = [*normals, segments]
        # Codes for the texts that are met: a path has many segments, a finding few of them.
        self._codes: dict[tuple[Detail, str], int] = {}
        self._names: list[tuple[Detail, str]] = []
        self._family: list[int] = []
        self._families: dict[Detail, int] = {}

    def _code(self, name: tuple[Detail, str]) -> int:
        """Return the code of a detail and a thread's name."""
        code = self._codes.setdefault(name, len(self._codes))
        if code == len(self._names):
            family = family_of(name[0])
            self._names.append(name)
            self._family.append(self._families.setdefault(family, len(self._families)))
        return code

    def _coded(self, row: Segments, at: I64) -> I64:
        detail, comm = row.detail, row.comm
        return np.array([self._code((detail[i], comm[i])) for i in at.tolist()], np.int64)

    def most(self, members: Sequence[I64], sign: int) -> tuple[Detail, int, str]:
        """Return the detail, tid and name that hold most of some segments' difference."""
        n = len(self.rows) - 1
        members = members[len(members) - len(self.rows) :]
        held = [
            (self._coded(row, at), row.end[at] - row.begin[at], row.tid[at])
            for row, at in zip(self.rows, members, strict=True)
        ]
        of = np.array(self._family, np.int64)
        families = [word_detail(family) for family in self._families]
        differs = np.zeros(len(families), np.int64)
        for i, (code, time, _) in enumerate(held):
            factor = 1 if not n else sign * n if i == n else -sign
            np.add.at(differs, of[code], factor * time)
        seen = {f for code, _, _ in held for f in of[code].tolist()}
        if not seen:
            return NO_DETAIL, -1, ""
        family = min(seen, key=lambda f: (-int(differs[f]), families[f]))
        chosen = [of[code] == family for code, _, _ in held]
        if chosen[-1].any():
            code, time, tid = (column[chosen[-1]] for column in held[-1])
            return self._largest(code, time, tid)
        code, time, _ = (
            np.concatenate([part[where] for part, where in zip(column, chosen, strict=True)])
            for column in zip(*held, strict=True)
        )
        return self._largest(code, time, np.full(len(code), -1))

    def shares(self, mine: I32) -> tuple[tuple[Detail, float], ...]:
        """Return each detail of some segments of the anomalous row, and its share of their time."""
        row = self.rows[-1]
        tally: Counter[Detail] = Counter()
        for i, time in zip(mine.tolist(), (row.end[mine] - row.begin[mine]).tolist(), strict=True):
            tally[row.detail[i]] += time
        whole = sum(tally.values())
        ranked = sorted(tally.items(), key=lambda item: (-item[1], word_detail(item[0])))
        return tuple((detail, time / whole) for detail, time in ranked) if whole else ()

    def _largest(self, code: I64, time: I64, tid: I64) -> tuple[Detail, int, str]:
        pairs, where = np.unique(np.stack([code, tid]), axis=1, return_inverse=True)
        sums = np.zeros(pairs.shape[1], np.int64)
        np.add.at(sums, where.ravel(), time)
        held = zip(pairs.T.tolist(), sums.tolist(), strict=True)
        named = [(-total, *self._names[code], tid) for (code, tid), total in held]
        _, detail, comm, whose = min(named, key=lambda n: (n[0], word_detail(n[1]), n[3], n[2]))
        return detail, whose, comm


# Which executions are explained, and their segments.


def select_executions(comparison: Analysis, limit: int) -> tuple[list[int], int]:
    """Return the executions to align, most excess first, and how many are left out.

    Above the limit those are taken that are evenly spread over the order of the excess:
    the slowest alone would show what is rare, not what most have in common.
    Executions that overlap a loss are none: what it tore out of a path is no cause.
    Where the sets differ but no execution stands out alone, the slowest against
    their own type show what the difference is made of; where the sample is faster, the
    fastest do.
    """
    outliers, (over, most) = comparison.outliers, _find_decisive_excess(comparison)
    whole = ~comparison.sample.lossy
    marked = np.flatnonzero(outliers.anomalous & whole)
    # A few that stand out do not tell why all of them became slower; those that have the change do.
    alone = comparison.knows_affected or (
        over[marked].sum() >= most * over[whole].sum() and not _others_too(comparison, marked)
    )
    slower = comparison.detection.flagged or comparison.verdict == "by_machine"
    if slower and not (len(marked) and alone):
        marked = np.flatnonzero(((over > 0) | _have_the_change(comparison)) & whole)
    sign = -1 if len(marked) or not is_faster(comparison) else 1
    if sign > 0:
        marked = np.flatnonzero((outliers.excess < 0) & whole)
    order = marked[np.argsort(sign * outliers.excess[marked], kind="stable")].tolist()
    if len(order) <= limit:
        return order, 0
    spread = np.linspace(0, len(order) - 1, limit).round().astype(np.int64)
    return [order[i] for i in spread.tolist()], len(order) - limit


def stand_out_alone(comparison: Analysis, executions: Sequence[int]) -> bool:
    """Tell whether some executions are all marked, and few of those that are like them."""
    marks = comparison.outliers.anomalous
    if not len(executions) or not marks[executions].all():
        return False
    if not comparison.knows_affected:
        return True
    many = Counter(comparison.sample.executions.label)
    of = sum(many[one.label] for one in comparison.outliers.affected if one.many)
    return bool(marks.sum() < SEGMENTS.few_of_kind * max(of, 1))


def _have_the_change(comparison: Analysis) -> Bool:
    """Return which executions are longer in the deciding state that grew most, by half of that.

    Some took no longer in all, because they happened to wait less for something else.
    """
    most = _find_most_grown(comparison)
    if most is None:
        return np.zeros(len(comparison.sample), np.bool_)
    # Over all types; a state that became longer in one of them may have become shorter there.
    least = comparison.detection.states[most].effect / 2
    return np.asarray((least > 0) & (_excess_in(comparison, [most])[1] >= least), np.bool_)


def _find_decisive_excess(comparison: Analysis) -> tuple[I64, float]:
    """Return what each execution takes longer than its type (ns), in what the verdict rests on.

    That is the whole time, unless single states alone became surely longer: on a busy machine the
    whole time of executions tells which of them were unlucky, not what became slower.  Also
    returns the share of it that those that stand out must have to be explained without the others.
    """
    flagged = _deciding_states(comparison)
    if comparison.detection.states[-1].flagged or not flagged:
        return comparison.outliers.excess, SEGMENTS.explained
    return _excess_in(comparison, flagged)[1], SEGMENTS.explained_states


def _deciding_states(comparison: Analysis) -> list[int]:
    """Return the states that became surely longer and that the verdict rests on."""
    states = comparison.detection.states[:-1]
    return [i for i, one in enumerate(states) if one.flagged and one.level == "error"]


def _find_most_grown(comparison: Analysis) -> int | None:
    states = comparison.detection.states
    return max(_deciding_states(comparison), key=lambda i: states[i].effect, default=None)


def _excess_in(comparison: Analysis, states: Sequence[int]) -> tuple[I64, I64]:
    """Return what normal and sample executions take longer in states than their type (ns)."""
    before, after = (
        table.durations[:, states].sum(axis=1)
        for table in (comparison.normal_vectors, comparison.sample_vectors)
    )
    types, homes = comparison.normal_clusters.labels, _homes(comparison)
    mine = excess_over_types((before, before), (types, types))
    return mine, excess_over_types((before, after), (types, homes))


def _homes(comparison: Analysis) -> I64:
    return comparison.pairs.pair[comparison.sample_clusters.labels]


def _others_too(comparison: Analysis, marked: I64) -> bool:
    """Tell whether the executions of the same types that do not stand out became slower as well.

    When all became slower by as much, those stand out that were unlucky as well.  Each is
    compared with the normal execution of the same rank, in the deciding state that grew most:
    the shift function (Doksum 1974).
    """
    most = _find_most_grown(comparison)
    if most is None or not len(marked):
        return False
    before, after = _excess_in(comparison, [most])
    homes = _homes(comparison)
    among = np.unique(homes[marked])
    before = np.sort(before[np.isin(comparison.normal_clusters.labels, among)])
    after = np.sort(after[np.isin(homes, among) & ~comparison.sample.lossy])
    # Hazen's quantiles, of which there are as many as executions: np.quantile takes each by itself.
    at = (np.arange(len(after)) + 0.5) / len(after) * len(before) - 0.5
    shift = after - np.interp(at, np.arange(len(before)), before)
    others = len(after) - len(marked)
    return bool(
        others >= SEGMENTS.few and shift[:others].mean() >= SEGMENTS.alike * shift[others:].mean()
    )


def is_faster(comparison: Analysis) -> bool:
    """Tell whether the sample takes less time: where it does, the headline says so too."""
    return bool(comparison.detection.faster)


def inferred_holders(sample: PathSet) -> frozenset[str]:
    """Return the roles of threads that were found, by coincidence, to have what others wait for."""
    names = {name for each in sample.environment for name in each.holders_inferred or ()}
    return frozenset(role_name(name, hosts=sample.hosts) for name in names)


def rows_of(paths: CriticalPaths, index: int) -> slice:
    """Return the segments of one path."""
    return slice(int(paths.start[index]), int(paths.start[index + 1]))


def segments_of(paths: CriticalPaths, index: int) -> Segments:
    """Return what the segments of one path are beyond their symbols."""
    rows = rows_of(paths, index)
    return Segments(
        begin=paths.begin[rows],
        end=paths.end[rows],
        tid=paths.tid[rows],
        comm=tuple(paths.strings[c] for c in paths.comm[rows].tolist()),
        detail=tuple(paths.details[c] for c in paths.detail[rows].tolist()),
        cpu=paths.cpu[rows].astype(np.int64),
        elsewhere_idle=paths.elsewhere_idle[rows],
    )


# The context of a finding on its path.


def find_context(paths: PathSet, finding: Finding, row: int = 0) -> Context:
    """Look back along the path from where a finding begins: for the call it waits in.

    What the machine does to it (interrupts, the wait for a cpu) comes before nearly
    everything and tells nothing: it is skipped.

    Parameters
    ----------
    paths : PathSet
        The sample, or some of its executions.
    finding : Finding
    row : int
        The finding's execution among these.
    """
    path = paths.paths
    rows, subject = rows_of(path, row), int(paths.executions.tid[row])
    place = _find_place(path, finding, rows, subject)
    first = rows.start + int(np.searchsorted(path.begin[rows], finding.begin))
    call = ""
    waits = finding.symbol.state not in RUNNING or finding.role != ""
    elsewhere = finding.role != ""
    for i in range(first - 1, rows.start - 1, -1):
        state, own = State(int(path.state[i])), int(path.tid[i]) == subject
        if elsewhere and not own:
            continue  # what the subject was already waiting for by then
        elsewhere = False
        if own and state in INTERFERENCE:
            continue
        # Only what it ran last can be the call it waited in.
        if own and waits and state == State.RUN_SYSCALL:
            call = path.details[path.detail[i]].call
        break
    return structs.replace(place, call=call)


def _find_place(path: CriticalPaths, finding: Finding, rows: slice, subject: int) -> Context:
    """Return where in the code the threads of a finding's segments were; nothing without stacks."""
    if not (path.stack[rows] >= 0).any():
        return Context()
    first, last = np.searchsorted(path.begin[rows], [finding.begin, finding.end])
    mine = np.arange(rows.start + first, rows.start + max(last, first + 1))
    mine = mine[mine < rows.stop]
    own = path.tid[mine] == subject
    mine = mine[(path.state[mine] == finding.symbol.state) & (own != bool(finding.role))]
    at, wakers = (_locations(path, codes, mine) for codes in (path.stack, path.waker_stack))
    waits = ""
    if finding.role and len(mine):
        before = slice(rows.start, rows.start + int(first))
        waits = _find_waiter(path, before, subject, int(mine[0]), known=bool(at))
    return Context(location=at, waker_location=wakers, waits_at=waits)


def _find_waiter(path: CriticalPaths, before: slice, subject: int, row: int, *, known: bool) -> str:
    """Return where the thread waits that waits for a segment's: the nearest that is known.

    The kernel's threads work for the next thread only, whose place is
    theirs; is that `known`, the one that waits for that thread is meant.
    """
    tids = path.tid[before]
    turns = np.flatnonzero(np.append(True, np.diff(tids) != 0)) if len(tids) else tids
    chain = [subject]  # who waits, for the next one each
    for turn in turns.tolist():
        tid = int(tids[turn])
        if tid in chain:
            del chain[chain.index(tid) + 1 :]
        elif not is_helper(path.strings[path.comm[before.start + turn]]):
            chain.append(tid)
    tid = int(path.tid[row])
    if tid in chain:
        del chain[chain.index(tid) :]
    elif known and is_helper(path.strings[path.comm[row]]):
        chain.pop()
    for waiter in reversed(chain):
        last = np.flatnonzero(tids == waiter)[-1:].tolist()
        for place in (_location(path, int(path.stack[before.start + at])) for at in last):
            if place:
                return place
    return ""


def _locations(path: CriticalPaths, codes: I32, rows: I64) -> Mapping[str, int]:
    tally: Counter[str] = Counter()
    for code, time in zip(codes[rows].tolist(), path.duration[rows].tolist(), strict=True):
        tally[_location(path, code)] += time
    tally.pop("", None)
    return tally


def _location(path: CriticalPaths, code: int) -> str:
    return location_of(path.stacks[code]) if code >= 0 else ""
