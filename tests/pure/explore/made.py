"""Executions whose truth is known: three kinds of threads, and what makes some of them slow."""

from __future__ import annotations

import numpy as np
from detailing import detailed

from critpath.model import CriticalPaths, Executions, PathSet, State
from critpath.model.exploration import Fact, FactTable


def autocorrelated(rng, n, coefficient):
    """Return a stationary series of variance 1 that forgets as slowly as it is told."""
    noise = rng.normal(size=n)
    series = np.empty(n)
    series[0] = noise[0]
    scale = np.sqrt(1 - coefficient**2)
    for i in range(1, n):
        series[i] = coefficient * series[i - 1] + scale * noise[i]
    return series


def table(latency, facts, *, labels=None, recording=None, parent=None, begin=None):
    """Return executions one after the other, with facts of one's own."""
    n = len(latency)
    begin = np.arange(n, dtype=np.int64) * 1000 if begin is None else begin
    latency = np.maximum(1, np.asarray(latency)).astype(np.int64)
    names = ("",) if labels is None else tuple(dict.fromkeys(labels))
    label = [0] * n if labels is None else [names.index(one) for one in labels]
    fixed = [
        Fact("latency", "time", latency, family="latency"),
        Fact("begin", "time", begin - begin.min(), asked=False),
        *([] if labels is None else [Fact("label", "text", label, names)]),
    ]
    recording = np.zeros(n, np.int32) if recording is None else np.asarray(recording, np.int32)
    return FactTable(
        "execution",
        tuple(f"e{i}" for i in range(n)),
        begin,
        begin + latency,
        recording,
        tuple(f"recording {i}" for i in range(int(recording.max()) + 1)),
        np.asarray(label, np.int32),
        names,
        np.full(n, -1, np.int64) if parent is None else np.asarray(parent, np.int64),
        {fact.name: fact for fact in [*fixed, *facts]},
    )


def null_table(seed, n=400, conditions=60, coefficient=0.9):
    """Return executions of which nothing has to do with anything, but all clump alike."""
    rng = np.random.default_rng(seed)
    facts = []
    for i in range(conditions // 4):
        series = autocorrelated(rng, n, coefficient)
        facts.append(Fact(f"number{i}", "number", np.round(series * 100)))
    latency = np.exp(autocorrelated(rng, n, coefficient)) * 1e6
    return table(latency, facts)


def paths(n=400, *, seed=1, labels=("get", "put"), names=("server", "kworker/0:1", "db")):
    """Return executions of a server with 4 threads on 2 cpus, slow where a thread is on cpu 0."""
    rng = np.random.default_rng(seed)
    server, rival, other = names
    strings = ("", server, other, f"{rival} (17)")
    columns: dict[str, list[int]] = {
        name: [] for name in ("begin", "end", "state", "detail", "comm", "tid", "cpu")
    }
    start, begins, ends, tids, label = [0], [], [], [], []
    now = 1_000_000
    for i in range(n):
        tid, cpu = 100 + int(rng.integers(4)), int(rng.integers(2))
        at = now
        wait = int(rng.exponential(40_000)) + (3_000_000 if cpu == 0 and rng.random() < 0.6 else 0)
        steps = [(State.RUN, 200_000 + int(rng.exponential(50_000)), tid, cpu, 1, 0)]
        if wait > 20_000:
            steps.append((State.WAIT_CPU, wait, tid, -1, 1, 3))
        steps.append((State.RUN, 100_000, 200, 1 - cpu, 2, 0))
        steps.append((State.RUN, 50_000 + int(rng.exponential(20_000)), tid, cpu, 1, 0))
        for state, length, who, where, comm, detail in steps:
            for name, value in zip(
                columns, (at, at + length, int(state), detail, comm, who, where), strict=True
            ):
                columns[name].append(value)
            at += length
        start.append(len(columns["begin"]))
        begins.append(now)
        ends.append(at)
        tids.append(tid)
        label.append(labels[i % len(labels)])
        now += int(rng.exponential(1_000_000))
    segments = len(columns["begin"])
    critical = detailed(
        CriticalPaths(
            start=np.array(start),
            begin=np.array(columns["begin"]),
            end=np.array(columns["end"]),
            state=np.array(columns["state"], np.uint8),
            detail=np.array(columns["detail"], np.int32),
            comm=np.array(columns["comm"], np.int32),
            tid=np.array(columns["tid"]),
            host=np.zeros(segments, np.int64),
            cpu=np.array(columns["cpu"], np.int32),
            lossy=np.zeros(segments, np.bool_),
            strings=strings,
        )
    )
    executions = Executions(
        id=tuple(f"{server}#{i}" for i in range(n)),
        begin=np.array(begins),
        end=np.array(ends),
        tid=np.array(tids),
        host=np.zeros(n, np.int64),
        comm=(server,) * n,
        label=tuple(label),
    )
    return PathSet(
        executions=executions,
        paths=critical,
        session=np.zeros(n, np.int64),
        sources=("made",),
        specification="events:made",
        losses=(),
        lossy=np.zeros(n, np.bool_),
    )
