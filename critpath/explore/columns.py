"""Facts of executions: who, where and when, what their paths did, what requests have besides."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from critpath.explore.clusters import Clusters
from critpath.model import (
    F64,
    I64,
    RUNNING,
    Bool,
    CriticalPaths,
    Executions,
    PathSet,
    RequestFacts,
    State,
    VectorTable,
    role_name,
)
from critpath.model.details import IDLE
from critpath.model.exploration import LATENCY, Fact, FactTable
from critpath.model.stacks import Stack
from critpath.schema.parameters.explore import CONDITIONS
from critpath.text.page import noun_of_paths

_NS_PER_HOUR: Final = 3_600_000_000_000  # technical
# In paths that do not tell which thread had the cpu.
_NOBODY: Final = frozenset({"", IDLE})
_NO_IDLE: Final = frozenset({*RUNNING, State.IRQ, State.SOFTIRQ, State.RECLAIM, State.UNKNOWN})


def find_facts(
    paths: PathSet,
    vectors: VectorTable | None,
    clusters: Clusters | None = None,
    *,
    normal: int | None = None,
) -> FactTable:
    """Return everything that conditions can say of some executions.

    Parameters
    ----------
    paths : PathSet
    vectors : VectorTable or None
        Of its paths; None where paths are not known, so that nothing is said of them.
    clusters : Clusters or None
    normal : int or None
        How many of the first recordings are the normal set; None: of two the first is.

    Returns
    -------
    FactTable
    """
    executions = paths.executions
    begin, end = executions.begin, executions.end
    recording = paths.session.astype(np.int32)
    labels, label = _codes(executions.label)
    parent = np.full(len(paths), -1, np.int64)
    noun = noun_of_paths(paths, 1)
    known = executions.requests
    served = known is not None or paths.kind == "requests"
    if known is not None:
        noun = "request"
        labels, label = _codes(known.service)
        parent = _parents(executions, known, recording)
    of_requests = _connections(executions.id) if served else []
    if known is not None and len(paths):
        of_requests += _request_facts(known, parent, end - begin)
    facts = [
        Fact("latency", "time", end - begin, family=LATENCY),
        Fact("begin", "time", _since_first(begin, recording), asked=False),
        _text("execution", executions.id, asked=False),
        *([] if len(labels) < 2 and not any(labels) else [_label_fact(served, labels, label)]),
        *_machine_facts(paths, label, recording, normal),
        *of_requests,
    ]
    asked = {} if known is None or not len(paths) else _count_asked(known.asks)
    met = {name: count > 0 for name, count in asked.items()}
    if vectors is not None:
        by_role = _find_met(vectors)
        facts += [
            *_path_facts(paths),
            *_loop_facts(paths),
            *_pool_facts(paths),
            *_queue_facts(paths),
            *_call_facts(paths),
            *_symbol_facts(vectors, by_role),
        ]
        met = {**by_role, **met}
    if met:
        facts.append(_meets(met))
    facts += [
        Fact(f"asks.{name}", "number", count, valid=met[name], known=False, subject=name, deed=True)
        for name, count in asked.items()
    ]
    if clusters is not None:
        facts += _cluster_facts(clusters)
    return FactTable(
        noun,
        executions.id,
        begin,
        end,
        recording,
        paths.sources,
        label,
        tuple(labels),
        parent,
        {fact.name: fact for fact in facts},
    )


def _cluster_facts(clusters: Clusters) -> list[Fact]:
    number, reach = clusters.number, clusters.reach
    facts = [Fact("cluster", "number", number, valid=number > 0, each=True, known=False)]
    if len(reach):
        seen = np.isfinite(reach)
        facts += [
            Fact("cluster.place", "number", clusters.place, valid=~np.isnan(reach), asked=False),
            Fact("cluster.reach", "number", np.where(seen, reach, 0), valid=seen, asked=False),
        ]
    return facts


def _label_fact(served: bool, labels: Sequence[str], label: Any) -> Fact:
    return Fact("service" if served else "label", "text", label, tuple(labels))


def _codes(texts: Sequence[str]) -> tuple[list[str], Any]:
    """Return the distinct texts, and every one's place among them."""
    words = list(dict.fromkeys(texts))
    place = dict(zip(words, range(len(words)), strict=True))
    return words or [""], np.fromiter(map(place.__getitem__, texts), np.int32, len(texts))


def _text(name: str, texts: Sequence[str], **more: Any) -> Fact:
    words, codes = _codes(texts)
    return Fact(name, "text", codes, tuple(words), **more)


def _since_first(begin: I64, recording: Any) -> I64:
    first = np.full(int(recording.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, recording, begin)
    return np.asarray(begin - first[recording], np.int64)


def _machine_facts(paths: PathSet, label: Any, recording: Any, normal: int | None) -> list[Fact]:
    """Return who did it, when, and what else was under way."""
    executions = paths.executions
    tids = executions.tid
    numbers, of = np.unique(tids, return_inverse=True)
    texts = np.array([str(tid) for tid in numbers.tolist()], np.object_)
    names, comm = _codes(executions.comm)
    # Of each name and number that there is, one text.
    pairs, pair = np.unique(comm.astype(np.int64) * len(numbers) + of, return_inverse=True)
    threads = (
        [
            f"{names[code]} {text}" if names[code] else text
            for code, text in zip(
                (pairs // len(numbers)).tolist(), texts[pairs % len(numbers)], strict=True
            )
        ]
        if len(numbers)
        else [""]
    )
    facts = [
        Fact("thread", "text", pair.astype(np.int32), tuple(threads)),
        Fact("tid", "number", tids, valid=tids >= 0, each=True, asked=False),
        Fact("process", "text", comm, tuple(names), asked=len(names) > 1),
    ]
    if len(paths.sources) > 1:
        facts.append(Fact("recording", "text", recording, tuple(paths.sources), asked=False))
    if normal is None and len(paths.sources) == 2:
        normal = 1
    if normal is not None:
        second = (recording >= normal).astype(np.int32)
        facts.append(Fact("set", "text", second, ("normal", "sample"), asked=False))
    concurrent, before, known = _company(executions.begin, executions.end, tids, label, recording)
    facts += [
        Fact("concurrent", "number", concurrent),
        Fact("idle_before", "time", before, valid=known),
    ]
    hour = _hours(paths)
    if hour is not None and len(np.unique(hour)) > 1:
        facts.append(Fact("hour", "number", hour, each=True))
    return facts


def _company(begin: I64, end: I64, tids: I64, label: Any, recording: Any) -> tuple[I64, I64, Bool]:
    """Return how many of a label were under way at each begin, and how long each thread idled."""
    concurrent = np.zeros(len(begin), np.int64)
    group = recording.astype(np.int64) * (int(label.max(initial=0)) + 1) + label
    order = np.argsort(group, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        begun = np.searchsorted(np.sort(begin[rows]), begin[rows], "left")
        ended = np.searchsorted(np.sort(end[rows]), begin[rows], "right")
        concurrent[rows] = np.maximum(begun - ended, 0)
    before = np.zeros(len(begin), np.int64)
    known = np.zeros(len(begin), np.bool_)
    order = np.lexsort((end, begin, tids, recording))
    for rows in np.split(
        order, np.flatnonzero(np.diff(tids[order]) | np.diff(recording[order])) + 1
    ):
        last = np.maximum.accumulate(end[rows])
        before[rows[1:]] = np.maximum(begin[rows[1:]] - last[:-1], 0)
        known[rows[1:]] = True
    return concurrent, before, known & (tids >= 0)


def _hours(paths: PathSet) -> I64 | None:
    """Return the hour of every begin (UTC), None where a recording does not say its date."""
    epochs = {e.recording: e.clock_epoch for e in paths.environment}
    known = [epochs.get(source) for source in paths.sources]
    if not all(isinstance(one, int) and one for one in known):
        return None
    epoch = np.array(known, np.int64)[paths.session]
    return np.asarray((paths.executions.begin + epoch) // _NS_PER_HOUR % 24, np.int64)


# What paths say.


def _path_facts(paths: PathSet) -> list[Fact]:
    n = len(paths)
    tids, hosts, named = paths.executions.tid, paths.executions.host, paths.hosts
    cpus: list[tuple[I64, I64]] = []
    begins: dict[str, F64] = {}
    rivals: list[tuple[I64, list[str]]] = []
    waits, time, squares, lost = (np.zeros(n) for _ in range(4))
    first = 0
    for chunk in paths.paths.chunks():
        rows = slice(first, first + len(chunk))
        first += len(chunk)
        row = chunk.path + rows.start
        own = (chunk.tid == tids[row]) & (chunk.host == hosts[row])
        ran = chunk.cpu >= 0
        cpus.append((row[own & ran], chunk.cpu[own & ran].astype(np.int64)))
        _note_begins(chunk, row, begins, n, named)
        behind = np.flatnonzero(chunk.state == State.WAIT_CPU)
        rivals.append((row[behind], _rivals(chunk, behind, named)))
        idle = np.flatnonzero(~np.isin(chunk.state, [int(state) for state in _NO_IDLE]))
        length, place = chunk.duration[idle].astype(np.float64), chunk.path[idle]
        waits[rows] += np.bincount(place, minlength=len(chunk))
        time[rows] += np.bincount(place, length, minlength=len(chunk))
        squares[rows] += np.bincount(place, length * length, minlength=len(chunk))
        again = np.flatnonzero(
            (chunk.state[1:] == State.WAIT_CPU)
            & np.isin(chunk.state[:-1], [int(state) for state in RUNNING])
            & (chunk.tid[1:] == chunk.tid[:-1])
            & (row[1:] == row[:-1])
        )
        lost[rows] += np.bincount(chunk.path[again], minlength=len(chunk))
    some = np.maximum(waits, 1)
    variance = np.maximum(squares / some - (time / some) ** 2, 0)
    cpu_rows = np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in cpus)])
    cpu = np.concatenate([np.zeros(0, np.int64), *(values for _, values in cpus)])
    most = int(cpu.max(initial=0)) + 1
    # With counts, as that sorts: many different ones are found more slowly by hash.
    each, on = np.divmod(np.unique(cpu_rows * most + cpu, return_counts=True)[0], most)
    names = [name for _, found in rivals for name in found]
    rows_of = np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in rivals)])
    heard = np.array([name not in _NOBODY for name in names], np.bool_)
    own_roles = {role_name(comm, hosts=named) for comm in set(paths.executions.comm)}
    # Of two that say the same, a condition on the executions' own threads is shown.
    common = sorted(
        begins, key=lambda name: (-int((begins[name] >= 0).sum()), name not in own_roles, name)
    )[: CONDITIONS.roles]
    return [
        *(
            Fact(
                f"cpu@{name}",
                "number",
                begins[name],
                valid=begins[name] >= 0,
                each=True,
                known=name in own_roles,
                subject=name,
            )
            for name in common
        ),
        _text(
            "waited_for_cpu_of",
            [n for n in names if n not in _NOBODY],
            rows=rows_of[heard],
            known=False,
        ),
        Fact("cpus", "number", np.bincount(each, minlength=n), known=False),
        Fact("cpu", "number", on, rows=each, each=True, known=False),
        Fact("preemptions", "number", lost, known=False),
        Fact("idle.mean", "time", time / some, family=LATENCY, known=False),
        Fact("idle.variance", "number", variance, family=LATENCY, known=False),
    ]


_LOOPS: Final = {"loop_worked_for": "request", "loop_blocked_by": "asks"}


def _loop_facts(paths: PathSet) -> list[Fact]:
    """Return what loops did while executions waited for them; nothing where none did."""
    found: dict[str, list[tuple[int, str]]] = {name: [] for name in _LOOPS}
    first = 0
    for chunk in paths.paths.chunks():
        waits = np.flatnonzero(np.array([bool(of.loop) for of in chunk.details])[chunk.detail])
        pairs = np.unique(np.column_stack([chunk.path[waits] + first, chunk.detail[waits]]), axis=0)
        for name, field in _LOOPS.items():
            each = ((row, getattr(chunk.details[code], field)) for row, code in pairs.tolist())
            found[name] += {pair for pair in each if pair[1]}
        first += len(chunk)
    return [
        _text(name, [text for _, text in of], rows=np.array([row for row, _ in of]), known=False)
        for name, of in ((name, sorted(set(pairs))) for name, pairs in found.items())
        if of
    ]


def _pool_facts(paths: PathSet) -> list[Fact]:
    """Return how many others waited for a connection of a pool as each began; none if none did."""
    found: list[I64] = [np.zeros((0, 3), np.int64)]
    first = 0
    for chunk in paths.paths.chunks():
        at = np.flatnonzero(chunk.state == State.WAIT_POOL)
        recording = paths.session[chunk.path[at] + first]
        found.append(np.column_stack([recording, chunk.begin[at], chunk.end[at]]))
        first += len(chunk)
    waits = np.concatenate(found)
    if not len(waits):
        return []
    begin = paths.executions.begin
    waiting = np.zeros(len(paths), np.int64)
    for recording in np.unique(waits[:, 0]).tolist():
        mine = paths.session == recording
        since, until = np.sort(waits[waits[:, 0] == recording, 1:], axis=0).T
        begun = np.searchsorted(since, begin[mine], "left")
        waiting[mine] = begun - np.searchsorted(until, begin[mine], "right")
    return [Fact("pool.waiting", "number", np.maximum(waiting, 0))]


def _queue_facts(paths: PathSet) -> list[Fact]:
    """Return behind how many messages each lay in a broker's queue, and how long; none if none."""
    found: list[I64] = [np.zeros((0, 3), np.int64)]
    first = 0
    for chunk in paths.paths.chunks():
        at = np.flatnonzero(chunk.state == State.WAIT_QUEUE)
        before = np.array([of.before for of in chunk.details])[chunk.detail[at]]
        found.append(np.column_stack([chunk.path[at] + first, before, chunk.duration[at]]))
        first += len(chunk)
    row, before, waited = np.concatenate(found).T
    if not len(row):
        return []
    many, time = (np.zeros(len(paths), np.int64) for _ in range(2))
    np.maximum.at(many, row, before)
    np.add.at(time, row, waited)
    lay = np.bincount(row, minlength=len(paths)) > 0
    return [
        Fact("queue.before", "number", many, valid=lay),
        Fact("queue.waited", "time", time, valid=lay, known=False),
    ]


def _note_begins(
    chunk: CriticalPaths, row: I64, begins: dict[str, F64], n: int, hosts: frozenset[str]
) -> None:
    """Note on which cpu threads of every name began, the first time that a path is in one."""
    known: dict[str, int] = {}
    role = np.array(
        [known.setdefault(role_name(text, hosts=hosts), len(known)) for text in chunk.strings],
        np.int64,
    )
    if not len(role):
        return
    ran = np.flatnonzero(chunk.cpu >= 0)
    roles = role[chunk.comm[ran]]
    _, first = np.unique(row[ran] * len(known) + roles, return_index=True)
    at = ran[first]
    for name, code in known.items():
        mine = at[roles[first] == code]
        if name and len(mine):
            column = begins.setdefault(name, np.full(n, -1.0))
            column[row[mine]] = chunk.cpu[mine]


def _rivals(chunk: CriticalPaths, rows: I64, hosts: frozenset[str]) -> list[str]:
    """Return by its role who had the cpu while each of some segments waited."""
    names = {
        code: role_name(chunk.details[code].rival, hosts=hosts)
        for code in np.unique(chunk.detail[rows]).tolist()
    }
    return [names[code] for code in chunk.detail[rows].tolist()]


def _find_met(vectors: VectorTable) -> dict[str, Bool]:
    """Return who is on the path of each besides its own thread, of those that most meet."""
    met: dict[str, Bool] = {}
    for code, symbol in enumerate(vectors.symbols):
        if symbol.role:
            found = vectors.counts[:, code] > 0
            met[symbol.role] = met[symbol.role] | found if symbol.role in met else found
    common = sorted(met, key=lambda name: (-int(met[name].sum()), name))
    return {name: met[name] for name in common}


def _meets(met: Mapping[str, Bool]) -> Fact:
    rows = [np.flatnonzero(found) for found in met.values()]
    names = np.repeat(np.arange(len(met)), [len(one) for one in rows])
    return Fact(
        "meets", "text", names, tuple(met), rows=np.concatenate(rows), known=False, deed=True
    )


def _call_facts(paths: PathSet) -> list[Fact]:
    """Return how often each system call is made on each path, and with `--files` for what."""
    n, counts, first = len(paths), Counter[tuple[str, int]](), 0
    for chunk in paths.paths.chunks():
        calls = [one.call for one in chunk.details]
        names: dict[str, int] = {"": 0}
        code = np.array([names.setdefault(call, len(names)) for call in calls])[chunk.detail]
        # Of one thread after the other: it is in one call until it runs outside of it.
        order = np.lexsort((chunk.begin, chunk.tid, chunk.host, chunk.path))
        outside = np.isin(chunk.state, [int(State.RUN), int(State.RUN_USER)])
        order = order[(code[order] > 0) | outside[order]]
        thread = np.stack([chunk.path, chunk.host, chunk.tid, code])[:, order]
        begun = np.ones(len(order), np.bool_)
        begun[1:] = (thread[:, 1:] != thread[:, :-1]).any(axis=0)
        begun &= thread[3] > 0
        about = np.array([_call_about(one) for one in chunk.stacks] or [""], np.object_)
        words = list(names)
        for at in order[begun].tolist():
            row = int(chunk.path[at]) + first
            counts[words[code[at]], row] += 1
            if chunk.stack[at] >= 0 and about[chunk.stack[at]]:
                counts[about[chunk.stack[at]], row] += 1
        first += len(chunk)
    found: dict[str, I64] = {}
    for (name, row), count in counts.items():
        found.setdefault(name, np.zeros(n, np.int64))[row] = count
    most = sorted(found, key=lambda name: (-int((found[name] > 0).sum()), name))
    return [
        Fact(f"calls.{name}", "number", found[name], known=False, subject=name, deed=True)
        for name in sorted(most[: CONDITIONS.calls])
    ]


def _call_about(stack: Stack) -> str:
    """Return a system call with what it is about, "" for any other place in the code."""
    name = stack[0].function if len(stack) == 1 else ""
    return name if re.fullmatch(r"\w+\(.+\)", name) else ""


def _symbol_facts(vectors: VectorTable, met: Mapping[str, Bool]) -> list[Fact]:
    most = np.argsort(-vectors.durations.sum(axis=0), kind="stable")[: CONDITIONS.symbols].tolist()
    facts = []
    for code, symbol in enumerate(vectors.symbols):
        count = vectors.counts[:, code].astype(np.int32)
        time = vectors.durations[:, code].astype(np.int64)
        facts += [
            Fact(
                f"count.{symbol.name}",
                "number",
                count,
                valid=met.get(symbol.role),
                known=False,
                asked=code in most,
                subject=symbol.role,
                deed=True,
            ),
            Fact(
                f"time.{symbol.name}",
                "time",
                time,
                valid=met.get(symbol.role),
                family=LATENCY,
                known=False,
                asked=code in most,
                subject=symbol.role,
            ),
        ]
    return facts


# What requests have besides.

_CALLED: Final = re.compile(r"(.*):(\d+)>\d+#\d+")  # ADDRESS:PORT>PORT#N


def _connections(ids: Sequence[str]) -> list[Fact]:
    """Return what the names of requests say: over which connection each came, and from where."""
    found = [_CALLED.fullmatch(name) for name in ids]
    if not any(found):
        return []
    ports = np.array([int(one[2]) if one else 0 for one in found])
    return [
        Fact("connection", "number", ports, valid=ports > 0, each=True),
        _text("peer", [one[1] if one else "" for one in found]),
    ]


def _parents(executions: Executions, known: RequestFacts, recording: Any) -> I64:
    """Return the execution that every execution is a sub-request of."""
    each = recording.tolist()
    place = {key: row for row, key in enumerate(zip(each, executions.id, strict=True))}
    above = zip(each, known.parent, strict=True)
    return np.array([place.get(key, -1) if key[1] else -1 for key in above], np.int64)


def _request_facts(known: RequestFacts, parent: I64, latency: I64) -> list[Fact]:
    return [
        Fact("bytes_in", "number", known.bytes_in),
        Fact("bytes_out", "number", known.bytes_out, known=False),
        Fact("threads", "number", known.threads, known=False),
        _text("boundary", known.boundary, asked=False),
        _text("attribution", known.attribution, asked=False),
        *([_text("client", known.client)] if any(known.client) else []),
        *([_text("message", known.message)] if any(known.message) else []),
        *([_text("trace_id", known.trace_id, asked=False)] if any(known.trace_id) else []),
        Fact("true", "time", known.true_ns, family=LATENCY),
        Fact("asked", "time", known.asked_ns, family=LATENCY),
        Fact("queued", "time", known.queued_ns, family=LATENCY),
        Fact(
            "parent.latency",
            "time",
            np.where(parent >= 0, latency[parent], 0),
            valid=parent >= 0,
            family=LATENCY,
        ),
    ]


def _count_asked(asks: Sequence[str]) -> dict[str, I64]:
    """Return how often each request asks each other service: of those that most ask."""
    words, codes = _codes(asks)
    counts = [json.loads(word or "{}") for word in words]
    askers: Counter[str] = Counter()
    for count, n in zip(counts, np.bincount(codes, minlength=len(words)).tolist(), strict=True):
        askers.update(dict.fromkeys(count, n))
    return {
        name: np.array([count.get(name, 0) for count in counts])[codes]
        for name in sorted(sorted(askers, key=lambda name: -askers[name])[: CONDITIONS.asked])
    }
