"""Whether two sets can be compared, and on how much of them a comparison rests."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Final

import numpy as np

from critpath.model import I64, PathSet, State, summarize_machine
from critpath.model.recording import split_devices
from critpath.schema import notes
from critpath.schema.notes import ENVIRONMENT, Note, OfSet, Passed, Remark
from critpath.schema.parameters.detect import COMPARABILITY

_BEGINS: Final = re.compile("[0-9]{1,18}( [0-9]{1,18})*")
# How many requests of a port share a connection, in a recording's environment.
_SHARED_AT: Final = re.compile("requests_shared_([0-9]{1,5})")
# Which devices packets passed (`critpath.timeline.routes`).
_ROUTE: Final = re.compile(
    "route_executions|route_(packets|devices|perhaps|begun|names)_[a-z0-9_]{1,30}"
)
_PASSED, _NAMES = "route_devices_", "route_names_"


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
    result: list[Remark] = [
        text for text in dict.fromkeys(normal.warnings) if text in sample.warnings
    ]
    for name, path_set in (("normal", normal), ("sample", sample)):
        own = [text for text in dict.fromkeys(path_set.warnings) if text not in result]
        result += [OfSet(name, text) for text in own]
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
    for key in ENVIRONMENT:
        seen = [_values(s, key) for s in (normal, sample)]
        # Only critpath's own recordings have the latter keys: not to have one is no difference.
        known = all(seen) or not key.startswith("recorded_")
        # One set's kernel trace has a release, its user-space traces have none.
        if seen[0] != seen[1] and known:
            result.append(notes.DifferentEnvironments(key, *seen))
    # What was recorded in alternation was meant to be compared, whatever it is called.
    programs = [_values(s, "recorded_program") for s in (normal, sample)]
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
    if not all(counts for counts, _ in both):
        return None
    counts = [of for of, _ in both]
    if not any(map(_passes_more, counts, counts[::-1])):
        return None
    routes = []
    for of, texts in both:
        kinds = {key.removeprefix(_PASSED) for key in of if key.startswith(_PASSED)}
        names = {kind: split_devices(texts[kind]) for kind in kinds if kind in texts}
        route = [
            Passed(
                *(kind, of[_PASSED + kind], of["route_packets_" + kind] / of["route_executions"]),
                found if len(found := names.get(kind, ())) == of[_PASSED + kind] else (),
            )
            for kind in sorted(kinds)
        ]
        if any(passed.kind.startswith("bridged_") for passed in route):
            bridges = {name for text in texts.get("bridge", ()) for name in text.split("/")}
            route.append(Passed("bridge", len(bridges), 0, split_devices(texts.get("bridge", ()))))
        routes.append(route)
    deferred = [
        float((s.paths.end - s.paths.begin)[s.paths.state == State.SOFTIRQ].sum()) / len(s)
        for s in (normal, sample)
    ]
    known = all(_total(of, "begun") for of in counts)
    devices = [_total(of, "packets") / _total(of, "begun") for of in counts] if known else []
    return routes, deferred, devices


def _total(of: Counter[str], what: str) -> int:
    return sum(count for key, count in of.items() if key.startswith(f"route_{what}_"))


def _passes_more(one: Counter[str], other: Counter[str]) -> bool:
    """Return whether packets of one set pass devices that those of the other surely do not."""
    many = one["route_executions"], other["route_executions"]
    kinds = {key.removeprefix(_PASSED) for key in one if key.startswith(_PASSED)} - {"unknown"}
    more = {kind for kind in kinds if one[_PASSED + kind] > other["route_perhaps_" + kind]}
    new = {kind for kind in more if not other["route_perhaps_" + kind]}
    sent = [_total(of, "begun") for of in (one, other)]
    if not all(sent):  # not known how many packets these are
        return bool(more)

    def per_packet(of: Counter[str], kind: str) -> float:
        return of["route_packets_" + kind] / _total(of, "begun")

    if any(
        per_packet(one, kind) > COMPARABILITY.more_devices * per_packet(other, kind)
        for kind in more - new
    ):
        return True
    if not new:
        return False
    went_on = all(
        one[key] / many[0] > COMPARABILITY.same_route * count / many[1]
        for key, count in other.items()
        if key.startswith("route_packets_")
    )
    added = sent[0] / many[0] - sent[1] / many[1]
    begun = sum(one["route_begun_" + kind] for kind in new) / many[0]
    return not (went_on and begun and added > COMPARABILITY.same_route * begun)


def _sum_routes(path_set: PathSet) -> tuple[Counter[str], dict[str, list[str]]]:
    """Return what recordings of a set counted, and the texts with names of devices by their kind.

    Packets add up, devices are those of the most.
    """
    result: Counter[str] = Counter()
    names: dict[str, list[str]] = {}
    for entry in path_set.environment if len(path_set) else ():
        for key, count in entry.items():
            if not _ROUTE.fullmatch(key):
                continue
            if isinstance(count, str):
                if key.startswith(_NAMES):
                    names.setdefault(key.removeprefix(_NAMES), []).append(count)
            elif count > 0 and not key.startswith(_NAMES):
                adds = key == "route_executions" or key.startswith(
                    ("route_packets_", "route_begun_")
                )
                result[key] = result[key] + count if adds else max(result[key], count)
    return (result if result["route_executions"] else Counter()), names


def missing_runs(normal: PathSet, sample: PathSet) -> list[Note]:
    """Return a line for each set whose traces lack too many of the runs that were recorded.

    Which runs a trace lacks is no accident: those that remain cannot speak for them.
    """
    result: list[Note] = []
    for name, path_set in (("normal", normal), ("sample", sample)):
        total, missing = (
            sum(n for e in path_set.environment if isinstance(n := e.get(key), int) and n > 0)
            for key in ("runs_recorded", "runs_missing")
        )
        if missing > COMPARABILITY.lossy * total:
            result.append(notes.MissingRuns(name, missing, total))
    return result


def doubtful_requests(normal: PathSet, sample: PathSet) -> list[Note]:
    """Return a line for each set with too many requests whose begin or end is in doubt."""
    result: list[Note] = []
    for name, path_set in (("normal", normal), ("sample", sample)):
        total, doubtful, unsure = (
            sum(n for e in path_set.environment if isinstance(n := e.get(key), int) and n > 0)
            for key in ("requests", "requests_doubtful", "requests_unsure")
        )
        if unsure > COMPARABILITY.unsure * (total + unsure):
            result.append(notes.RequestsUnsure(name, unsure, total + unsure))
        if doubtful > COMPARABILITY.doubtful * total:
            shared: Counter[int] = Counter()
            for entry in path_set.environment:
                for key, count in entry.items():
                    if isinstance(count, int) and (at := _SHARED_AT.fullmatch(key)):
                        shared[int(at[1])] += max(count, 0)
            result.append(notes.RequestsDoubtful(name, doubtful, tuple(shared.items()), total))
    return result


def recording_differences(normal: PathSet) -> tuple[Note, ...]:
    """Return what the recordings of one set differ in, and which have no execution."""
    empty = [s for i, s in enumerate(normal.sources) if not (normal.session == i).any()]
    result: list[Note] = [notes.EmptyRecording(source) for source in empty]
    for key in ENVIRONMENT:
        # A recording's kernel and user-space traces have each a tracer of its own.
        by_domain: dict[str, set[str]] = {}
        for each in (e for e in normal.environment if key in e):
            by_domain.setdefault(str(each.get("domain", "")), set()).add(str(each[key]))
        seen = max(by_domain.values(), key=len, default=set())
        if len(seen) > 1:
            result.append(notes.DifferentRecordings(key, tuple(sorted(seen))))
    return tuple(result)


def recorded_apart(normal: PathSet, sample: PathSet) -> bool:
    """Tell whether two sets were recorded at different times, whatever each is made of.

    Not what `critpath record --interleave` recorded, nor executions that take turns on one
    clock; nor sets that come from no recording.
    """
    recorded = [any(set(e) - {"domain"} for e in s.environment) for s in (normal, sample)]
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
    turns = _places(normal, sample, "recorded_turns")
    if turns and (
        normal.specification.startswith("requests")
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
    return _places(normal, sample, "recorded_blocks")


def _places(normal: PathSet, sample: PathSet, key: str) -> tuple[I64, I64] | None:
    """Return in which of the stretches of an interleaved recording each execution began."""
    sessions = [_stretches(each, key) for each in (normal, sample)]
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


def _stretches(path_set: PathSet, key: str) -> list[tuple[str, I64]]:
    """Return every source's session and when its stretches begin; nothing if one has none."""
    found, name, begins = [], "", ""
    for each in path_set.environment:
        name = str(each.get("recorded_session", name))
        begins = str(each.get(key, begins))
        if "recording" in each:  # the last entry of a source
            found.append((name, begins))
            name, begins = "", ""
    if len(found) != len(path_set.sources) or not all(
        name and _BEGINS.fullmatch(begins) for name, begins in found
    ):
        return []
    return [(n, np.cumsum(np.array(b.split(), np.int64))) for n, b in found]


def _take_turns(normal: PathSet, sample: PathSet) -> bool:
    """Tell whether the executions of both sets take turns, on one clock."""
    moments = [_moments(each) for each in (normal, sample)]
    if not all(moments) or not all(epoch for each in moments for epoch, *_ in each):
        return False
    hosts = [set(_values(each, "hostname")) for each in (normal, sample)]
    if hosts[0] != hosts[1]:
        return False
    order = sorted(
        (int(epoch) + begin, which)
        for which, each in enumerate(moments)
        for epoch, begin, *_ in each
    )
    turns = sum(before != after for (_, before), (_, after) in pairwise(order))
    return turns >= COMPARABILITY.turns * min(map(len, moments))


def _sessions(path_set: PathSet) -> set[str | int]:
    return {e["recorded_session"] for e in path_set.environment if e.get("recorded_session")}


def _common_executions(normal: PathSet, sample: PathSet) -> list[Note]:
    """Warn of executions in both sets: of one clock, with the same begin and end."""
    ours, theirs = set(_moments(normal)), _moments(sample)
    both = [moment for moment in theirs if moment in ours]
    # Where a clock's epoch is unknown, two machines may have begun at the same time once.
    if not both or (len(both) < len(theirs) and not all(epoch for epoch, *_ in both)):
        return []
    return [notes.SameExecutions(len(both), len(theirs))]


def _moments(path_set: PathSet) -> list[tuple[int | str, int, int, str]]:
    """Return what identifies every execution, nothing where clocks are unknown."""
    epochs = [e["clock_epoch"] for e in path_set.environment if "clock_epoch" in e]
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


def _values(path_set: PathSet, key: str) -> tuple[str, ...]:
    return tuple(sorted({str(e[key]) for e in path_set.environment if key in e}))


def _other_partners(normal: PathSet, sample: PathSet) -> list[Note]:
    """Warn where a recording was interleaved with one that it is not compared with."""
    # Both of a pair are of one session.
    sessions = [
        {e.get("recorded_session") for e in s.environment if "recorded_beside" in e}
        for s in (normal, sample)
    ]
    return [
        notes.OtherPartner(name, _values(path_set, "recorded_beside"))
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
