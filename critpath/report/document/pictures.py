"""What the page draws, as figures: kinds of requests, their mean paths, paths that are shown.

All of it is computed from the same critical paths, once: what a sentence says can be measured
in the picture beside it.  A set's segments are read chunk by chunk.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self, cast, get_args

import numpy as np

from critpath.documents import (
    SETS,
    SLOWER,
    Change,
    ComparisonDocument,
    Doing,
    DrawnPath,
    FlameEntry,
    Group,
    KindEntry,
    MeanPath,
    MeanStretch,
    Pictures,
    SetName,
    ThreadEntry,
)
from critpath.documents.base import narrow
from critpath.documents.pictures import FlameNode
from critpath.model import (
    F64,
    I64,
    Affected,
    Analysis,
    Bool,
    CriticalPaths,
    PathSet,
    State,
    number_codes,
    role_name,
)
from critpath.model.texts import number_texts
from critpath.model.vectors import host_of
from critpath.processes import side_by_side
from critpath.schema.causes import doing_of_state
from critpath.schema.parameters.localize import WAITS
from critpath.schema.parameters.text import WORDS
from critpath.vectors import Steps

DOINGS: Final[tuple[Doing, ...]] = get_args(Doing)
_RUN: Final = DOINGS.index("running")
_CPU: Final = DOINGS.index("cpu")
_THROTTLED: Final = DOINGS.index("throttled")
_INTERRUPTS: Final = DOINGS.index("interrupts")
# Of a stretch's running time: shorter interrupts are hairlines in it.
_HAIR: Final = 0.01
_FOLDED: Final = (_RUN, _INTERRUPTS, _CPU, _THROTTLED)
# By state: what pictures call it, and what a thread did beneath where that is known.
_DOING: Final = np.full(256, -1, np.int64)
_DOING[: len(State)] = [DOINGS.index(doing_of_state(state)) for state in State]
_BENEATH: Final = np.where(np.arange(256) == State.UNKNOWN, -1, _DOING)
_MOST_THREADS: Final = 60  # told apart, by their time
_COLOURS: Final = 5  # of others than the own thread; the rest are grey
_MOST_PATHS: Final = 200
_MOST_STEPS: Final = 60_000  # of all paths that are kept
_LONG: Final = 2_000  # steps of a path of which the smallest are joined to their neighbours
FEWEST: Final = 5  # requests of a kind on each side that can be judged
_MOST_KINDS: Final = 40  # with mean paths


def doing_of(state: str) -> Doing:
    """Return what pictures call a state, which may be of a file of a later version."""
    return doing_of_state(State[state]) if state in State.__members__ else "waiting"


def find_thread(pictures: Pictures, role: str) -> int:
    """Return the place of the thread that a symbol's role names: the last one if none is it."""
    if not role:
        return 0
    for place, one in enumerate(pictures.threads):
        name = one.name.removesuffix(" (other)").replace("*", "#")
        if not one.own and role in {role_name(name), role_name(name, hosts=())}:
            return place
    return max(len(pictures.threads) - 1, 0)


class Threads:
    """Who the paths go through: the requests' own thread is 0, others by family of names."""

    def __init__(self, sets: Sequence[PathSet]) -> None:
        self._names: dict[str, Counter[str]] = defaultdict(Counter)
        self._own: dict[str, Counter[str]] = defaultdict(Counter)
        time: Counter[str] = Counter()
        self._several = False
        self._hosts = frozenset[str]().union(*(one.hosts for one in sets))
        works = (partial(_spend, one) for one in sets)
        for own, others, parts, several in side_by_side(*works, rows=sum(map(len, sets))):
            self._several = self._several or several
            for name, many in own.items():
                self._own[self._role(name)][name] += many
            for name, spent in others.items():
                time[self._role(name)] += spent
                self._names[self._role(name)][name] += parts[name]
        ranked = sorted(time, key=lambda key: (-time[key], key))
        self.place = {key: i + 1 for i, key in enumerate(ranked[:_MOST_THREADS])}
        self._rest = len(ranked) > _MOST_THREADS
        self._by_name: dict[tuple[str, ...], I64] = {}

    def by_name(self, strings: tuple[str, ...]) -> I64:
        """Return the threads that have some names, where they are not an execution's own."""
        if strings not in self._by_name:  # those of a file are the same for all its chunks
            beyond = len(self.place) + 1
            of = [self.place.get(self._role(name), beyond) for name in strings]
            self._by_name[strings] = np.array(of or [beyond], np.int64)
        return self._by_name[strings]

    def codes(self, part: PathSet) -> I64:
        """Return the thread of every segment."""
        return np.where(_own(part), 0, self.by_name(part.paths.strings)[part.paths.comm])

    def entries(self) -> list[ThreadEntry]:
        """Return them as the document has them, in order of their time on the paths."""
        own = self._shown(next(iter(self._own.values()))) if len(self._own) == 1 else ""
        hosts = {self._host(name) for names in self._own.values() for name in names}
        entries = [ThreadEntry(name=own, own=True, colour=0, host=_only(hosts))]
        for key, at in self.place.items():
            name = self._shown(self._names[key]) or "unknown"
            name += " (other)" if name == own else ""
            entries.append(
                ThreadEntry(
                    name=name,
                    own=False,
                    colour=min(at, _COLOURS + 1),
                    host=_only({self._host(one) for one in self._names[key]}),
                )
            )
        if self._rest:
            entries.append(ThreadEntry(name="other threads", own=False, colour=_COLOURS + 1))
        return entries

    def _role(self, name: str) -> str:
        return role_name(name, hosts=self._hosts)

    def _shown(self, names: Counter[str]) -> str:
        """Return a family's name: its digits are kept where there is only one of it."""
        only = sorted(names)
        return only[0] if len(only) == 1 else role_name(only[0], "*", self._hosts) if only else ""

    def _host(self, name: str) -> str:
        """Return the host of a thread by its name, "" where all are on one."""
        return host_of(name) if self._several else ""


def _only(found: set[str]) -> str:
    return found.pop() if len(found) == 1 else ""


def _spend(one: PathSet) -> tuple[Counter[str], Counter[str], Counter[str], bool]:
    """Return by name how many are of a thread; others' time on paths, and in how many parts.

    At the end whether there are several hosts.
    """
    others, parts, several = Counter[str](), Counter[str](), False
    for part in one.chunks():
        paths, other = part.paths, ~_own(part)
        several = several or bool((paths.host > 0).any())
        spent = np.zeros(len(paths.strings) or 1, np.int64)
        np.add.at(spent, paths.comm[other], paths.duration[other])
        for code in np.flatnonzero(spent).tolist():
            others[paths.strings[code]] += int(spent[code])
            parts[paths.strings[code]] += 1
    return Counter(one.executions.comm), others, parts, several


def _own(part: PathSet) -> Bool:
    paths, executions = part.paths, part.executions
    path = paths.path
    own: Bool = (paths.tid == executions.tid[path]) & (paths.host == executions.host[path])
    return own


def fold(part: PathSet, threads: Threads) -> Steps:
    """Return the steps of some executions' paths as they are drawn."""
    return Steps.of(
        *(part, threads.by_name(part.paths.strings), (_DOING, _BENEATH), _FOLDED),
        late=WAITS.late,
        hair=_HAIR,
    )


def _changes(*columns: I64 | Bool) -> I64:
    """Return where any of the columns has another value than just before."""
    new = np.ones(len(columns[0]), np.bool_)
    new[1:] = False
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new).astype(np.int64)


# Kinds of requests, from the executions alone: documents of before this have them, too.


def describe_kinds(document: ComparisonDocument, weights: F64 | None = None) -> list[KindEntry]:
    """Return every kind of request: first the one that lost most, then the other changed ones."""
    weights = weigh_before(document) if weights is None else weights
    took = [_durations(document, which) for which in SETS]
    slow = document.column("sample", "anomalous")
    kinds = [
        _kind(document, label, (took[0][ours], took[1][theirs]), weights[ours], slow[theirs])
        for label, (ours, theirs) in _split(document).items()
    ]
    lost = {one.label: _lost(one) for one in kinds}
    if document.verdict in SLOWER and not any(one.change == "slower" for one in kinds):
        # Whatever it is that was found: the kind that it shows most in.
        fit = [one for one in kinds if all(one.executions) and lost[one.label] > 0]
        if fit:
            first = max(fit, key=lambda one: (one.slow, lost[one.label]))
            first.change = "slower"
    order = {"slower": 0, "faster": 1, "same": 2, "few": 3}
    return sorted(
        kinds,
        key=lambda one: (
            order[one.change],
            -abs(lost[one.label]) if one.change in {"slower", "faster"} else 0,
            -sum(one.executions),
            one.label,
        ),
    )


def _durations(document: ComparisonDocument, which: SetName) -> F64:
    long = document.column(which, "end") - document.column(which, "begin")
    return np.asarray(long, np.float64)


def _split(document: ComparisonDocument) -> dict[str, list[I64]]:
    """Return where each kind's runs are in either set."""
    known: dict[str, int] = {}
    codes = [_number(document.column(which, "label").tolist(), known) for which in SETS]
    orders = [np.argsort(code, kind="stable") for code in codes]
    ends = np.arange(1, len(known))
    sides = [
        np.split(order, np.searchsorted(code[order], ends))
        for code, order in zip(codes, orders, strict=True)
    ]
    return {label: [side[at] for side in sides] for label, at in known.items()}


def _number(values: Sequence[Any], known: dict[Any, int]) -> I64:
    """Return a number for each value; those that are not known yet get the next ones."""
    each = (known.setdefault(value, len(known)) for value in values)
    return np.fromiter(each, np.int64, len(values))


def weigh_before(document: ComparisonDocument) -> F64:
    """Return what each execution before counts, so that its kind has the mix of types of after.

    Types that are new count as the kind's mean, as in `critpath.stats.means`.
    """
    known: dict[Any, int] = {}  # a kind, and a type of it
    sides: tuple[tuple[SetName, str], ...] = (("normal", "cluster"), ("sample", "pair"))
    rows = [
        _number([*zip(*(document.column(which, n).tolist() for n in ("label", of)), strict=True)],
                known)
        for which, of in sides
    ]  # fmt: skip
    many, now = (np.bincount(each, minlength=len(known)).tolist() for each in rows)
    of, new_of, orphans = Counter[str](), Counter[str](), Counter[str]()
    for (label, _), before, after in zip(known, many, now, strict=True):
        of[label] += before
        new_of[label] += after
        orphans[label] += 0 if before else after
    weight = [
        of[label] / new_of[label] * (after / before + orphans[label] / of[label])
        if before and new_of[label]
        else 1.0
        for (label, _), before, after in zip(known, many, now, strict=True)
    ]
    return np.array(weight, np.float64)[rows[0]]


def _add_affected(kinds: Sequence[KindEntry], known: Sequence[Affected]) -> None:
    """Add how many of each kind have the change."""
    of = {one.label: one for one in known}
    for kind in kinds:
        if kind.label in of:
            _, kind.affected, kind.affected_low, kind.affected_high = of[kind.label]


def _lost(kind: KindEntry) -> float:
    before, after = kind.mean
    return 0.0 if before is None or after is None else (after - before) * kind.executions[1]


def _kind(
    document: ComparisonDocument, label: str, sides: tuple[F64, F64], weights: F64, slow: Bool
) -> KindEntry:
    shares = weights, np.ones(len(sides[1]))
    means = [
        float((side * share).sum() / len(side)) if len(side) else None
        for side, share in zip(sides, shares, strict=True)
    ]
    marked = sides[1][slow]

    def quantile(q: float, least: int) -> list[float | int | None]:
        few = min(map(len, sides)) < least
        return [None if few or not len(side) else float(np.quantile(side, q)) for side in sides]

    return KindEntry(
        label=label,
        change=_change(document, label, means, tuple(map(len, sides)), len(marked)),
        executions=[*map(len, sides)],
        slow=len(marked),
        mean=[*means],
        slowest=[float(side.max()) if len(side) else None for side in sides],
        p50=quantile(0.5, 1),
        p95=quantile(0.95, 20),
        p99=quantile(0.99, 100),
        slow_mean=float(marked.mean()) if len(marked) else None,
        usual=[float(np.median(side)) if len(side) else None for side in (sides[0], marked)],
    )


def _change(
    document: ComparisonDocument,
    label: str,
    means: Sequence[float | None],
    executions: Sequence[int],
    slow: int,
) -> Change:
    """Tell whether a kind became slower: by the executions that stand out, or by its quantiles."""
    if min(executions) < FEWEST:
        return "few"
    before, after = (mean or 0.0 for mean in means)
    total = next((s for s in document.states if s.state == "total"), None)
    usual = (total.normal_mean if total else None) or before
    least = before * (document.detection.floor or 0.0) / usual if usual else 0.0
    marks = [one for one in document.detection.percentiles if one.label == label]
    if document.verdict in SLOWER and after - before > least:
        whole = document.detection.flagged and any((one.low or 0) > 0 for one in marks)
        if slow or whole:
            return "slower"
    high = (total.effect_high if total else None) or 0.0
    down = [one for one in marks if one.name == "p50" and (one.high or 0) < 0]
    if document.verdict != "inconclusive" and before - after > least and (down or high < -least):
        return "faster"
    return "same"


# Mean paths and the paths that are drawn, from all segments.


def draw_pictures(comparison: Analysis, document: ComparisonDocument) -> Pictures:
    """Return everything that is drawn of a comparison."""
    sets = {"normal": comparison.normal, "sample": comparison.sample}
    threads = Threads([*sets.values()])
    weights_before = weigh_before(document)
    kinds = describe_kinds(document, weights_before)
    if comparison.knows_affected:
        _add_affected(kinds, comparison.outliers.affected)
    drawn = [one for one in kinds if one.change != "few"][:_MOST_KINDS]
    names = [one.label for one in drawn]
    slow = [document.column(which, "anomalous") for which in SETS]
    after = np.ones(len(slow[1]))
    means, of_sample = side_by_side(
        partial(_Means.of, names, comparison.normal, threads, slow[0], weights_before, normal=True),
        partial(_Means.of, names, comparison.sample, threads, slow[1], after, normal=False),
        rows=sum(map(len, slow)),
    )
    means.join(of_sample)
    for i, kind in enumerate(drawn):
        kind.means = means.list_paths(i)
    paths = [
        path
        for which, rows in _choose(document, drawn).items()
        for path in _paths(sets[which], cast("SetName", which), rows, threads)
    ]
    return Pictures(
        threads=threads.entries(),
        doings=list(DOINGS),
        kinds=kinds,
        paths=paths,
        flame=[_node(comparison, node, threads) for node in comparison.flame],
    )


def _node(comparison: Analysis, node: FlameNode, threads: Threads) -> FlameEntry:
    above = comparison.flame[node.parent].executions if node.parent >= 0 else []
    return narrow(
        FlameEntry,
        node,
        thread=threads.place.get(node.role, -1) if node.role else 0,
        before=round(node.before, 1),
        after=round(node.after, 1),
        executions=[] if node.executions == above else node.executions,
    )


_GROUPS: Final = ("before", "slow", "rest")


class _Means:
    """Sums by kind, group, thread and doing; the own thread's first running is apart."""

    def __init__(self, labels: list[str]) -> None:
        self._kind = {label: i for i, label in enumerate(labels)}
        # (kind, group) -> executions, their time; then (thread, doing, lead) -> time, visits,
        # and time weighted by where in its execution it is.
        self._counts: dict[tuple[int, int], tuple[int, float]] = {}
        self._sums: dict[tuple[int, int], dict[int, F64]] = defaultdict(dict)

    @classmethod
    def of(
        cls,
        labels: list[str],
        one: PathSet,
        threads: Threads,
        slow: Bool,
        weights: F64,
        *,
        normal: bool,
    ) -> Self:
        """Return those of a set: ``before`` without slow executions, or those after."""
        self = cls(labels)
        first = 0
        for part in one.chunks():
            size = len(part.executions)
            executions = part.executions
            codes, texts = number_texts(executions.label)
            kind = np.array([self._kind.get(label, -1) for label in texts] or [-1], np.int64)[codes]
            marked, weight = slow[first : first + size], weights[first : first + size]
            first += size
            group = np.where(marked, 1, 2) if not normal else np.zeros(size, np.int64)
            duration = executions.end - executions.begin
            for k, g in {*zip(kind.tolist(), group.tolist(), strict=True)}:
                mine = (kind == k) & (group == g)
                many, time = self._counts.get((k, g), (0, 0.0))
                time += float((duration * weight)[mine].sum())
                self._counts[k, g] = many + int(mine.sum()), time
            self._add_steps(fold(part, threads), kind, group, executions.begin, duration, weight)
        return self

    def join(self, others: _Means) -> None:
        """Take in those of the other set, which are of other groups."""
        self._counts |= others._counts
        self._sums |= others._sums

    def _add_steps(
        self, steps: Steps, kind: I64, group: I64, begin: I64, duration: I64, weight: F64
    ) -> None:
        path = steps.path
        lead = np.zeros(len(path), np.bool_)
        lead[_changes(path)] = True
        lead &= (steps.thread == 0) & (steps.doing == _RUN)
        key = (steps.thread * len(DOINGS) + steps.doing) * 2 + lead
        wide = int(key.max(initial=0)) + 1
        all_keys = ((kind[path] + 1) * len(_GROUPS) + group[path]) * wide + key
        found, inverse = number_codes(all_keys)
        middle = (steps.begin - begin[path] + steps.length / 2) / np.maximum(duration[path], 1)
        sums = np.stack(
            [
                np.bincount(inverse, weights=values * weight[path], minlength=len(found))
                for values in (steps.length, np.ones(len(path)), steps.length * middle)
            ],
            axis=1,
        )
        for code, values in zip(found.tolist(), sums, strict=True):
            rest, at = divmod(code, wide)
            k, g = divmod(rest, len(_GROUPS))
            mine = self._sums[k - 1, g]
            mine[at] = mine[at] + values if at in mine else values

    def list_paths(self, kind: int) -> list[MeanPath]:
        """Return a kind's mean paths; all have their stretches in one order."""
        where: dict[int, list[float]] = defaultdict(list)
        for g in range(len(_GROUPS)):
            for at, (time, _, place) in self._sums[kind, g].items():
                where[at].append(place / time if time else 0.5)
        order = sorted(
            where, key=lambda at: (at != 1 + 2 * _RUN, sum(where[at]) / len(where[at]), at)
        )
        groups = {name: [g] for g, name in enumerate(_GROUPS)}
        groups["after"] = [1, 2]
        return [
            mean
            for name in ("before", "after", "slow", "rest")
            if (mean := self._mean(kind, name, groups[name], order))
        ]

    def _mean(self, kind: int, name: str, groups: list[int], order: list[int]) -> MeanPath | None:
        counts = [self._counts.get((kind, g), (0, 0.0)) for g in groups]
        size = sum(count for count, _ in counts)
        if not size:
            return None
        stretches = []
        for at in order:
            time, visits = (
                sum(float(self._sums[kind, g][at][i]) for g in groups if at in self._sums[kind, g])
                for i in range(2)
            )
            if time:
                thread, doing = divmod(at // 2, len(DOINGS))
                stretches.append(
                    MeanStretch(
                        thread=thread,
                        doing=DOINGS[doing],
                        lead=bool(at % 2),
                        time=round(time / size, 1),
                        visits=round(visits / size, 3),
                    )
                )
        whole = sum(time for _, time in counts) / size
        return MeanPath(group=cast("Group", name), executions=size, mean=whole, stretches=stretches)


def _choose(document: ComparisonDocument, kinds: list[KindEntry]) -> dict[str, list[int]]:
    """Return the executions whose paths are drawn: of medians, those examined, slow ones."""
    chosen: dict[str, dict[int, None]] = {"normal": {}, "sample": {}}
    rows_of = _split(document)
    for side, which in enumerate(SETS):
        took, position = _durations(document, which), document.column(which, "position")
        for kind in kinds:
            rows = rows_of[kind.label][side]
            lasts, places = took[rows], position[rows]
            order = np.lexsort((places, lasts))
            kind.medians[side] = int(places[order[(len(order) - 1) // 2]])
            chosen[which][kind.medians[side]] = None
    chosen["sample"] |= dict.fromkeys(one.position for one in document.aligned)
    slow = [one for one in document.marked() if one.set == "sample"]
    slow.sort(key=lambda one: (-(one.excess or 0), one.position))
    for one in slow:
        if len(chosen["sample"]) >= _MOST_PATHS:
            break
        chosen["sample"][one.position] = None
    return {which: list(rows) for which, rows in chosen.items()}


def _paths(one: PathSet, which: SetName, rows: list[int], threads: Threads) -> Iterator[DrawnPath]:
    left = _MOST_STEPS
    for row in rows:
        part = one.take(np.array([row], np.int64))
        steps = fold(part, threads)
        begin = int(part.executions.begin[0])
        length = steps.length.tolist()
        found = [
            [int(at) - begin, n, thread, doing, beneath]
            for at, n, thread, doing, beneath in zip(
                steps.begin.tolist(), length, steps.thread.tolist(), steps.doing.tolist(),
                steps.beneath.tolist(), strict=True,
            )
        ]  # fmt: skip
        found = _shortened(found)
        left -= len(found)
        if left < 0:
            return
        moves = moves_of(part.paths, slice(None))
        code = threads.codes(part)
        when = part.paths.begin[moves.rows] - begin
        far = [when, code[moves.rows - 1], code[moves.rows], moves.bound]
        unsure = [when, moves.mille]
        yield DrawnPath(
            set=which,
            position=row,
            steps=[step[:4] for step in found],
            hairs=(steps.hair[1] - begin).tolist()[:_LONG],
            beneath=[step[4] for step in found] if (steps.beneath >= 0).any() else [],
            crossings=np.column_stack(far)[moves.crosses][:_LONG].tolist(),
            inferred=np.column_stack(unsure)[moves.mille < 1000][:_LONG].tolist(),
        )


class Moves(NamedTuple):
    """Where a path changes threads: segments, and of each how surely that is known.

    ``bound`` is how wrong the time may be from host to host (ns), -1 where it is not known;
    ``mille`` is how probable it is that this work was for this execution, 1000 where it is sure.
    """

    rows: I64
    crosses: Bool
    bound: I64
    mille: I64


def moves_of(paths: CriticalPaths, part: slice) -> Moves:
    """Return where one path changes threads; ``part`` is its segments."""
    host, tid = paths.host[part], paths.tid[part]
    rows = np.flatnonzero((host[1:] != host[:-1]) | (tid[1:] != tid[:-1])) + 1
    both = np.stack([paths.uncertainty[part][rows], paths.uncertainty[part][rows - 1]])
    bound = np.where((both < 0).any(axis=0), -1, both.max(axis=0, initial=0))
    confidence = np.where(paths.others[part], 0.0, paths.confidence[part])
    sure = np.minimum(confidence[rows], confidence[rows - 1])
    mille = np.where(sure < WORDS.sure, np.minimum(np.floor(1000 * sure), 999), 1000)
    return Moves(rows, host[rows] != host[rows - 1], bound, mille.astype(np.int64))


def _shortened(steps: list[list[int]]) -> list[list[int]]:
    """Return a path's steps; of very many, the smallest join what comes before them."""
    if len(steps) <= _LONG:
        return steps
    least = sorted((step[1] for step in steps), reverse=True)[_LONG]
    result = [steps[0]]
    for step in steps[1:]:
        if step[1] <= least or step[2:] == result[-1][2:]:
            result[-1][1] += step[1]
        else:
            result.append(step)
    return result
