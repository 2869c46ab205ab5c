"""Whether two sets can be compared, and on how much of them a comparison rests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

import numpy as np
from msgspec import Struct

from critpath.model import F64, I64, PathSet, State, summarize_machine
from critpath.model.recording import name_devices
from critpath.schema import notes
from critpath.schema.environment import Environment, add_counts, list_values
from critpath.schema.notes import Note, OfSet, Passed, Remark
from critpath.schema.parameters.detect import COMPARABILITY, GATE
from critpath.stats.permutations import Flips, count_ways
from critpath.stats.rows import center_by
from critpath.text.notes import word

_Value = Callable[[Environment], str | int | None]
# What should be alike in two sets, by what `notes` calls it; then what only critpath's own
# recordings say, so that not to say it is no difference.
_TRACED: Final[Mapping[str, _Value]] = {
    "kernel_release": lambda entry: entry.kernel_release,
    "tracer_name": lambda entry: entry.tracer_name,
}
_RECORDED: Final[Mapping[str, _Value]] = {
    "recorded_on": lambda entry: entry.recorded_on,
    "recorded_cpu": lambda entry: entry.recorded_cpu,
    "recorded_cpus": lambda entry: entry.recorded_cpus,
    "recorded_profile": lambda entry: entry.recorded_profile,
}


# Without these a wait is of no kind, or none at all.
_TELL_WAITS: Final[frozenset[notes.Unrecorded]] = frozenset({"wakes", "states"})


def set_warnings(normal: PathSet, sample: PathSet, folded: int) -> tuple[Remark, ...]:
    """Return what a reader must know about two sets before believing their difference.

    Parameters
    ----------
    normal, sample : PathSet
    folded : int
        Symbols that share a code because the alphabet is full.

    Returns
    -------
    tuple of Note, or str
        One line each; what a recording says of itself is a sentence already.
    """
    # By their sentences: one of the sets may have been saved, with nothing else.
    said = {
        name: {word(warning): warning for warning in of.warnings}
        for name, of in (("normal", normal), ("sample", sample))
    }
    both = said["normal"].keys() & said["sample"].keys()
    result: list[Remark] = [of for text, of in said["normal"].items() if text in both]
    for name, own in said.items():
        result += [OfSet(name, of) for text, of in own.items() if text not in both]
    result += environment_differences(normal, sample)
    result += machine_differences(normal, sample)
    result += route_differences(normal, sample)
    result += _common_executions(normal, sample)
    result += _other_partners(normal, sample)
    if folded:
        result.append(notes.FoldedSymbols(folded))
    return tuple(result)


def environment_differences(normal: PathSet, sample: PathSet) -> list[Remark]:
    """Return a line for everything that should be alike in two sets' environments and is not."""
    result: list[Remark] = []
    for key, of in {**_TRACED, **_RECORDED}.items():
        seen = [_values(s, of) for s in (normal, sample)]
        known = all(seen) or key in _TRACED
        # One set's kernel trace has a release, its user-space traces have none.
        if seen[0] != seen[1] and known:
            result.append(notes.DifferentEnvironments(key, *seen))
    # What was recorded in alternation was meant to be compared, whatever it is called.
    both = (normal, sample)
    programs = [_values(each, lambda entry: entry.recorded_program) for each in both]
    if all(programs) and programs[0] != programs[1] and not _sessions(normal) & _sessions(sample):
        result.append(notes.DifferentPrograms(*programs))
    return result


def machine_differences(normal: PathSet, sample: PathSet) -> list[Note]:
    """Return a line if the machine differed while the sets were recorded: why, not whether."""
    before, after = (summarize_machine(s.environment) for s in (normal, sample))
    if before is None or after is None:
        return []
    ratios = {
        kind: after.probes[kind] / before.probes[kind]
        for kind in before.probes.keys() & after.probes.keys()
        if before.probes[kind] > 0 and after.probes[kind] > 0
    }
    apart = {kind: r for kind, r in ratios.items() if max(r, 1 / r) > 1 + COMPARABILITY.probe_apart}
    found: list[notes.ProbeDiffered | notes.ShareDiffered] = []
    if len(apart) >= COMPARABILITY.kinds_apart:
        found += [notes.ProbeDiffered(kind, apart[kind]) for kind in sorted(apart)]
    one, other = before.pressure.get("cpu"), after.pressure.get("cpu")
    if one is not None and other is not None and abs(one - other) > COMPARABILITY.pressure_apart:
        found.append(notes.ShareDiffered("pressure", one, other))
    one, other = before.others_cpu, after.others_cpu
    if one is not None and other is not None and abs(one - other) > COMPARABILITY.others_apart:
        found.append(notes.ShareDiffered("others", one, other))
    return [notes.MachineDiffered(tuple(found))] if found else []


def route_differences(normal: PathSet, sample: PathSet) -> list[Note]:
    """Return a line if packets surely passed other kinds of devices, or each more of one kind."""
    found = find_routes(normal, sample)
    if not found:
        return []
    routes, deferred, devices = found
    return [notes.DifferentRoutes(tuple(map(tuple, routes)), tuple(deferred), tuple(devices))]


def find_routes(
    normal: PathSet, sample: PathSet
) -> tuple[list[list[Passed]], list[float], list[float]] | None:
    """Return the routes of packets before and after, if they surely differ.

    Returns
    -------
    routes : list of Passed
        Of both sets; of the kind ``bridge`` those that the others are ports of.
    deferred : list of float
        Time in softirqs on the critical path of an execution (ns).
    devices : list of float
        How many devices a packet is queued at; empty where that is not known.
    """
    both = [_sum_routes(each) for each in (normal, sample)]
    if not all(of.executions for of in both):
        return None
    if not any(map(_passes_more, both, both[::-1])):
        return None
    routes = []
    for of in both:
        route = [
            Passed(
                *(kind, of.devices[kind], of.packets[kind] / of.executions),
                found if len(found := name_devices(of.names[kind])) == of.devices[kind] else (),
            )
            for kind in sorted(of.devices)
        ]
        if any(passed.on_bridge for passed in route):
            bridges = of.names["bridge"]
            route.append(Passed("bridge", len(bridges), 0, name_devices(bridges)))
        routes.append(route)
    deferred = [
        float((s.paths.end - s.paths.begin)[s.paths.state == State.SOFTIRQ].sum()) / len(s)
        for s in (normal, sample)
    ]
    known = all(of.begun.total() for of in both)
    devices = [of.packets.total() / of.begun.total() for of in both] if known else []
    return routes, deferred, devices


def _passes_more(one: _RouteSums, other: _RouteSums) -> bool:
    """Return whether packets of one set pass devices that those of the other surely do not."""
    many = one.executions, other.executions
    kinds = one.devices.keys() - {"unknown"}
    more = {kind for kind in kinds if one.devices[kind] > other.perhaps[kind]}
    new = {kind for kind in more if not other.perhaps[kind]}
    sent = [of.begun.total() for of in (one, other)]
    if not all(sent):  # not known how many packets these are
        return bool(more)

    def per_packet(of: _RouteSums, kind: str) -> float:
        return of.packets[kind] / of.begun.total()

    if any(
        per_packet(one, kind) > COMPARABILITY.more_devices * per_packet(other, kind)
        for kind in more - new
    ):
        return True
    if not new:
        return False
    went_on = all(
        one.packets[kind] / many[0] > COMPARABILITY.same_route * count / many[1]
        for kind, count in other.packets.items()
    )
    added = sent[0] / many[0] - sent[1] / many[1]
    begun = sum(one.begun[kind] for kind in new) / many[0]
    return not (went_on and begun and added > COMPARABILITY.same_route * begun)


class _RouteSums(Struct, frozen=True):
    """The routes of a set's recordings by kind of device: packets add up, devices are the most."""

    executions: int
    devices: Counter[str]
    perhaps: Counter[str]
    packets: Counter[str]
    begun: Counter[str]
    names: Mapping[str, set[str]]


def _sum_routes(path_set: PathSet) -> _RouteSums:
    devices, perhaps, packets, begun = (Counter[str]() for _ in range(4))
    names: defaultdict[str, set[str]] = defaultdict(set)
    environment = path_set.environment if len(path_set) else ()
    executions = 0
    for routes in (each.routes for each in environment if each.routes is not None):
        executions += max(routes.executions, 0)
        for kind, route in routes.kinds.items():
            devices |= Counter({kind: route.devices or 0})
            perhaps |= Counter({kind: route.perhaps or 0})
            packets += Counter({kind: route.packets or 0})
            begun += Counter({kind: route.begun or 0})
            names[kind].update(route.names or ())
    return _RouteSums(executions, devices, perhaps, packets, begun, names)


def missing_runs(normal: PathSet, sample: PathSet) -> list[Note]:
    """Return a line for each set whose traces lack too many of the runs that were recorded.

    Which runs a trace lacks is no accident: those that remain cannot speak for them.
    """
    result: list[Note] = []
    for name, path_set in (("normal", normal), ("sample", sample)):
        total = add_counts(path_set.environment, lambda entry: entry.runs_recorded)
        missing = add_counts(path_set.environment, lambda entry: entry.runs_missing)
        if missing > COMPARABILITY.lossy * total:
            result.append(notes.MissingRuns(name, missing, total))
    return result


def doubtful_requests(normal: PathSet, sample: PathSet) -> list[Note]:
    """Return a line for each set with too many requests whose begin or end is in doubt."""
    result: list[Note] = []
    for name, path_set in (("normal", normal), ("sample", sample)):
        counts = [of.requests for of in path_set.environment if of.requests is not None]
        total = sum(max(each.requests, 0) for each in counts)
        doubtful = sum(max(each.doubtful, 0) for each in counts)
        unsure = sum(max(each.unsure, 0) for each in counts)
        if unsure > COMPARABILITY.unsure * (total + unsure):
            result.append(notes.RequestsUnsure(name, unsure, total + unsure))
        if doubtful > COMPARABILITY.doubtful * total:
            shared: Counter[int] = Counter()
            for each in counts:
                for port, count in each.shared.items():
                    shared[port] += max(count, 0)
            result.append(notes.RequestsDoubtful(name, doubtful, tuple(shared.items()), total))
    return result


def unlike_events(normal: PathSet, sample: PathSet) -> list[Note]:
    """Return a line for a set that lacks what tells waits from each other, unlike the other."""
    lacks = [
        {one for of in each.warnings if isinstance(of, notes.NotRecorded) for one in of.missing}
        & _TELL_WAITS
        for each in (normal, sample)
    ]
    only = zip(("normal", "sample"), lacks, lacks[::-1], strict=True)
    return [
        notes.EventsInOneSet(name, tuple(sorted(mine - other)))
        for name, mine, other in only
        if mine - other
    ]


def recording_differences(normal: PathSet) -> tuple[Note, ...]:
    """Return what the recordings of one set differ in, and which have no execution."""
    empty = [s for i, s in enumerate(normal.sources) if not (normal.session == i).any()]
    result: list[Note] = [notes.EmptyRecording(source) for source in empty]
    for key, of in {**_TRACED, **_RECORDED}.items():
        # A recording's kernel and user-space traces have each a tracer of its own.
        by_domain: dict[str, set[str]] = {}
        for each in normal.environment:
            if (value := of(each)) is not None:
                by_domain.setdefault(each.domain or "", set()).add(str(value))
        seen = max(by_domain.values(), key=len, default=set())
        if len(seen) > 1:
            result.append(notes.DifferentRecordings(key, tuple(sorted(seen))))
    return tuple(result)


def recorded_apart(normal: PathSet, sample: PathSet) -> bool:
    """Tell whether two sets were recorded at different times, whatever each is made of.

    Not what `critpath record --interleave` recorded, nor executions that take turns on one
    clock; nor sets that come from no recording.
    """
    recorded = [any(entry.recorded for entry in s.environment) for s in (normal, sample)]
    if not all(recorded):
        return False  # drawn or made up, not recorded
    return not _sessions(normal) & _sessions(sample) and not _take_turns(normal, sample)


def find_runs(normal: PathSet, sample: PathSet) -> tuple[I64, I64] | None:
    """Return the number of the run that each execution of sets recorded together is of.

    The threads of a run are at work at one time, those of two runs one after the other:
    threads whose executions overlap in time are of one run.  A server outlives the runs of its
    clients: requests, and what fewer threads than runs did, are of the turn in which they began.

    Returns
    -------
    (int64 [n], int64 [m]) or None
        None where executions are runs of their own, or a set has fewer than
        `COMPARABILITY.few_runs`.
    """
    found = []
    for each in (normal, sample):
        rows = each.executions
        spans: dict[tuple[int, int], tuple[int, int]] = {}
        keys = list(zip(each.session.tolist(), rows.tid.tolist(), strict=True))
        for key, begin, end in zip(keys, rows.begin.tolist(), rows.end.tolist(), strict=True):
            first, last = spans.get(key, (begin, end))
            spans[key] = min(first, begin), max(last, end)
        run, number, until, session = {}, -1, 0, -1
        for key, (begin, end) in sorted(spans.items(), key=lambda item: (item[0][0], item[1])):
            if key[0] != session or begin > until:
                number, until, session = number + 1, end, key[0]
            run[key], until = number, max(until, end)
        found.append(np.array([run[key] for key in keys], np.int64))
    turns = _places(normal, sample, lambda entry: entry.recorded_turns)
    if turns and (
        normal.kind == "requests"
        or any(one.max() < turn.max() for one, turn in zip(found, turns, strict=True))
    ):
        found = list(turns)
    if any(not COMPARABILITY.few_runs <= len(np.unique(one)) < len(one) for one in found):
        return None
    return found[0], found[1]


def find_blocks(normal: PathSet, sample: PathSet) -> tuple[I64, I64] | None:
    """Return the number of the block that each execution of interleaved sets is of.

    A coin chose for every block which of its runs were of which set (ABBA or BAAB), so only
    whole blocks may be exchanged.

    Returns
    -------
    (int64 [n], int64 [m]) or None
        None where no order was drawn (older recordings), or the sets are not of one.
    """
    return _places(normal, sample, lambda entry: entry.recorded_blocks)


_Moments = Callable[[Environment], tuple[int, ...] | None]


def _places(normal: PathSet, sample: PathSet, of: _Moments) -> tuple[I64, I64] | None:
    """Return in which of the stretches of an interleaved recording each execution began."""
    sessions = [_stretches(each, of) for each in (normal, sample)]
    if not sessions[0] or {name for name, _ in sessions[0]} != {name for name, _ in sessions[1]}:
        return None
    numbers: dict[tuple[str, int], int] = {}
    found = []
    for each, blocks in zip((normal, sample), sessions, strict=True):
        number = np.zeros(len(each), np.int64)
        for session, (name, begins) in enumerate(blocks):
            rows = each.session == session
            own, place = np.unique(
                np.searchsorted(begins, each.executions.begin[rows], "right") - 1,
                return_inverse=True,
            )
            if len(own) and own[0] < 0:
                return None
            known = [numbers.setdefault((name, b), len(numbers)) for b in own.tolist()]
            number[rows] = np.array(known, np.int64)[place.reshape(-1)]
        found.append(number)
    return found[0], found[1]


def _stretches(path_set: PathSet, of: _Moments) -> list[tuple[str, I64]]:
    """Return every source's session and when its stretches begin; nothing if one has none."""
    found: list[tuple[str, tuple[int, ...]]] = []
    name = ""
    begins: tuple[int, ...] = ()
    for each in path_set.environment:
        name = name if each.recorded_session is None else each.recorded_session
        begins = of(each) or begins
        if each.recording is not None:  # the last entry of a source
            found.append((name, begins))
            name, begins = "", ()
    if len(found) != len(path_set.sources) or not all(name and begins for name, begins in found):
        return []
    return [(name, np.array(begins, np.int64)) for name, begins in found]


def _take_turns(normal: PathSet, sample: PathSet) -> bool:
    """Tell whether the executions of both sets take turns, on one clock."""
    moments = [_moments(each) for each in (normal, sample)]
    if not all(moments) or not all(epoch for each in moments for epoch, *_ in each):
        return False
    both = (normal, sample)
    hosts = [list_values(each.environment, lambda entry: entry.hostname) for each in both]
    if hosts[0] != hosts[1]:
        return False
    order = sorted(
        (int(epoch) + begin, which)
        for which, each in enumerate(moments)
        for epoch, begin, *_ in each
    )
    turns = sum(before != after for (_, before), (_, after) in pairwise(order))
    return turns >= COMPARABILITY.turns * min(map(len, moments))


def _sessions(path_set: PathSet) -> set[str]:
    return {e.recorded_session for e in path_set.environment if e.recorded_session}


def _common_executions(normal: PathSet, sample: PathSet) -> list[Note]:
    """Warn of executions in both sets: of one clock, with the same begin and end."""
    ours, theirs = set(_moments(normal)), _moments(sample)
    both = [moment for moment in theirs if moment in ours]
    # Where a clock's epoch is unknown, two machines may have begun at the same time once.
    if not both or (len(both) < len(theirs) and not all(epoch for epoch, *_ in both)):
        return []
    return [notes.SameExecutions(len(both), len(theirs))]


def _moments(path_set: PathSet) -> list[tuple[int, int, int, str]]:
    """Return what identifies every execution, nothing where clocks are unknown."""
    epochs = [e.clock_epoch for e in path_set.environment if e.clock_epoch is not None]
    if len(epochs) != len(path_set.sources) or not epochs:
        return []
    executions = path_set.executions
    return [
        (epochs[session], begin, end, name)
        for session, begin, end, name in zip(
            path_set.session.tolist(),
            executions.begin.tolist(),
            executions.end.tolist(),
            executions.id,
            strict=True,
        )
    ]


def _values(path_set: PathSet, of: _Value) -> tuple[str, ...]:
    return tuple(list_values(path_set.environment, of))


def _other_partners(normal: PathSet, sample: PathSet) -> list[Note]:
    """Warn where a recording was interleaved with one that it is not compared with."""
    # Both of a pair are of one session.
    sessions = [
        {e.recorded_session for e in s.environment if e.recorded_beside is not None}
        for s in (normal, sample)
    ]
    return [
        notes.OtherPartner(name, _values(path_set, lambda entry: entry.recorded_beside))
        for name, path_set, mine, others in (
            ("normal", normal, sessions[0], sessions[1]),
            ("sample", sample, sessions[1], sessions[0]),
        )
        if mine - others
    ]


def partial_comparison_note(normal_type: I64, sample_type: I64) -> Note | None:
    """Return a note if most normal executions are of types that no sample execution is of.

    Parameters
    ----------
    normal_type : int64 [n]
        Type of every normal execution.
    sample_type : int64 [m]
        The normal type that every sample execution is compared with.

    Returns
    -------
    Note or None
        None where at least half of the normal set takes part.

    Notes
    -----
    Like is compared with like, so normal executions of a type that the sample has not
    take no part, and the mean of the sample is compared with those of the others alone.
    That is right for a mix that changed, and up to half of a set it commonly is one: of
    two usual kinds of requests the sample has one.  Where more than half are left out,
    what is called normal in the result is not what the normal set usually does, and the
    likelier reason is that something split it (a few executions with a little UNKNOWN
    time are a type of their own, and the sample is paired with these).
    """
    types, count = np.unique(normal_type, return_counts=True)
    used = np.isin(types, sample_type)
    left = int(count[~used].sum())
    if not used.any() or left <= COMPARABILITY.most_unused * len(normal_type):
        return None
    unused = sorted(
        zip(types[~used].tolist(), count[~used].tolist(), strict=True), key=lambda x: (-x[1], x[0])
    )
    total = len(normal_type)
    return notes.PartialComparison(total - left, total, tuple(types[used].tolist()), tuple(unused))


# Recording sessions: the floor they ask for, and what of them may be permuted.


class SessionSpread(Struct, frozen=True):
    """How far the means of the normal sessions lie apart.

    Attributes
    ----------
    sessions : int
    deviation : float64 [sessions]
        Mean duration of each session less the mean of its types (ns).
    share : float
        Standard deviation (ddof 1) of these, as a share of the mean duration; 0 with
        one session.
    """

    sessions: int
    deviation: F64
    share: float


def session_spread(total: I64, stratum: I64, session: I64) -> SessionSpread:
    """Measure what sessions of one program differ by."""
    names = np.unique(session)
    residual = center_by(total, stratum)
    means = np.array([float(residual[session == s].mean()) for s in names])
    if len(names) < 2 or not total.any():
        return SessionSpread(len(names), means, 0.0)
    return SessionSpread(
        len(names), means, float(np.std(means, ddof=1)) / float(total.mean())
    )  # fmt: skip


def floor_share(floor: float, total: I64, stratum: I64, session: I64 | None) -> float:
    """Raise the effect floor to what the normal sessions differ by among themselves."""
    if session is None:
        return floor
    return max(floor, GATE.sigmas * session_spread(total, stratum, session).share)


def permutable(
    normal: I64 | None, sample: I64 | None, level: float
) -> tuple[tuple[I64, I64] | None, Note | None]:
    """Return the sessions if whole ones can be permuted, else why not."""
    if normal is None or sample is None:
        return None, None
    ours, theirs = len(np.unique(normal)), len(np.unique(sample))
    if ours < 2 or theirs < 2:
        return None, None
    if count_ways([(ours, theirs)]) * level < 1:
        return None, notes.FewSessions(ours, theirs)
    return (normal, sample), None


def exchangeable(blocks: tuple[I64, I64] | None, level: float) -> tuple[I64, I64] | None:
    """Return the blocks if exchanging their sides can be a test at the level."""
    if blocks is None:
        return None
    both = len(np.intersect1d(*blocks))
    return blocks if Flips(both).ways * level >= GATE.least_ways else None


def find_doubts(normal: PathSet, sample: PathSet, *, strict: bool) -> tuple[Note, ...]:
    """Return what keeps two sets from being compared; with `strict` also other circumstances."""
    return (
        *missing_runs(normal, sample),
        *doubtful_requests(normal, sample),
        *unlike_events(normal, sample),
        *(environment_differences(normal, sample) if strict else ()),
    )
