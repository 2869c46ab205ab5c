"""Synthetic but consistent comparisons: paths tile their windows, sums agree.

Every execution follows one programme of columns; each column is a state that a
share of the executions have there.  Anomalous ones sleep before the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from detailing import detailed

from critpath.documents import CauseFacts, ComparisonDocument, StateEntry
from critpath.documents.base import number
from critpath.model import (
    INTERFERENCE,
    Aligned,
    Alignment,
    Analysis,
    Cause,
    Clustering,
    ClusterPairs,
    ColumnStatistics,
    CriticalPaths,
    Detection,
    Executions,
    Finding,
    Loss,
    Outliers,
    PathSet,
    State,
    Symbol,
    VectorTable,
)
from critpath.schema.environment import Environment

MS = 1_000_000


@dataclass(frozen=True)
class Names:
    """The texts that a trace controls."""

    comm: str = "worker"
    helper: str = "kworker/0:1"
    role: str = "kworker/#:#"
    detail: str = "virtio1-req.0"
    label: str = "mixed"
    execution: str = "{}"
    source: str = "recordings/{}"
    host: str = "guest"

    @classmethod
    def all(cls, name: str) -> Names:
        """Every text is one name."""
        braced = name.replace("{", "{{").replace("}", "}}")
        return cls(name, name, name, name, name, braced + "{}", braced, name)


def alphabet(names: Names) -> tuple[Symbol, ...]:
    return (
        Symbol(State.RUN),
        Symbol(State.WAIT_CPU),
        Symbol(State.WAIT_DISK),
        Symbol(State.WAIT_TIMER),
        Symbol(State.IRQ),
        Symbol(State.RUN, names.role),
        Symbol(State.WAIT_UNEXPLAINED),
    )


# Column: (symbol, share of executions that have it, mean ns).
def programme(columns: int) -> list[tuple[int, float, float]]:
    motif = [(0, 1.0, 0.4 * MS), (2, 0.95, 1.1 * MS), (5, 0.9, 0.2 * MS), (0, 1.0, 0.3 * MS)]
    motif += [(1, 0.3, 0.1 * MS), (4, 0.15, 0.02 * MS), (0, 1.0, 0.7 * MS)]
    return [motif[i % len(motif)] for i in range(columns)]


def draw(rng: np.random.Generator, columns: int, *, late: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return symbol codes (-1 gap) and durations of one execution over the columns."""
    plan = programme(columns)
    symbols = np.array([s if rng.random() < share else -1 for s, share, _ in plan])
    durations = np.array([int(mean * rng.lognormal(0, 0.3)) for _, _, mean in plan])
    sleep = columns * 2 // 3
    symbols[sleep], durations[sleep] = (3, 30 * MS) if late else (-1, 0)
    symbols[0] = 0
    durations[symbols < 0] = 0
    return symbols.astype(np.int32), durations.astype(np.int64)


@cache
def draw_sets(
    seed: int, columns: int, normals: int, samples: int, anomalous: int
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[tuple[np.ndarray, np.ndarray]]]:
    """Return the executions of both sets; no name makes a difference to them."""
    rng = np.random.default_rng(seed)
    normal = [draw(rng, columns, late=False) for _ in range(normals)]
    sample = [draw(rng, columns, late=i < anomalous) for i in range(samples)]
    for column in (column for pair in (*normal, *sample) for column in pair):
        column.setflags(write=False)
    return normal, sample


def path_set(
    drawn: list[tuple[np.ndarray, np.ndarray]], names: Names, which: str, losses: tuple[Loss, ...]
) -> PathSet:
    begins, ends, rows = [], [], []
    start = [0]
    clock = 5_000 * MS
    code = {text: i for i, text in enumerate(["", names.comm, names.helper, names.detail])}
    strings = ("", names.comm, names.helper, names.detail)
    letters = alphabet(names)
    for symbols, durations in drawn:
        begin = clock
        for symbol, duration in zip(symbols, durations, strict=True):
            if symbol < 0:
                continue
            state, other = letters[symbol].state, letters[symbol].role != ""
            comm, tid = (names.helper, 33) if other else (names.comm, 1201)
            detail = names.detail if state is State.WAIT_DISK else ""
            row = (clock, clock + duration, state, code[detail], code[comm], tid)
            rows.append(row)
            clock += int(duration)
        begins.append(begin)
        ends.append(clock)
        start.append(len(rows))
        clock += 2 * MS
    n, table = len(drawn), np.array(rows, np.int64).reshape(-1, 6)
    executions = Executions(
        id=tuple(names.execution.format(i + 1) for i in range(n)),
        begin=np.array(begins, np.int64),
        end=np.array(ends, np.int64),
        tid=np.full(n, 1201, np.int64),
        host=np.zeros(n, np.int64),
        comm=(names.comm,) * n,
        label=(names.label,) * n,
        incomplete=1 if which == "sample" and n else 0,
        notes=("1 begin without an end: left out",) if which == "sample" and n else (),
    )
    paths = detailed(
        CriticalPaths(
            start=np.array(start, np.int64),
            begin=table[:, 0],
            end=table[:, 1],
            state=table[:, 2].astype(np.uint8),
            detail=table[:, 3].astype(np.int32),
            comm=table[:, 4].astype(np.int32),
            tid=table[:, 5],
            host=np.zeros(len(table), np.int64),
            cpu=np.zeros(len(table), np.int32),
            lossy=np.zeros(len(table), np.bool_),
            strings=strings,
        )
    )
    told = Environment(
        hostname=names.host,
        kernel_release="6.1.0",
        tracer_name="lttng-modules",
        tracer_major=2,
        tracer_minor=13,
        tracer_patchlevel=9,
    )
    return PathSet(
        executions=executions,
        paths=paths,
        session=np.zeros(n, np.int64),
        sources=(names.source.format(which),),
        specification="events:app:request_begin,app:request_end,key=id",
        losses=losses,
        lossy=np.zeros(n, np.bool_),
        environment=(told,),
        events=12_512,
    )


def vectors(drawn: list[tuple[np.ndarray, np.ndarray]], names: Names) -> VectorTable:
    symbols = alphabet(names)
    counts = np.zeros((len(drawn), len(symbols)), np.int64)
    durations = np.zeros_like(counts)
    for i, (codes, times) in enumerate(drawn):
        for s in range(len(symbols)):
            counts[i, s] = int((codes == s).sum())
            durations[i, s] = int(times[codes == s].sum())
    return VectorTable(symbols, counts, durations)


def state_tests(normal: VectorTable, sample: VectorTable, flagged: bool) -> list[StateEntry]:
    def test(symbol: Symbol | None, a: np.ndarray, b: np.ndarray) -> StateEntry:
        defined = len(a) > 1 and len(b) > 0
        mean, other = (float(a.mean()), float(b.mean())) if defined else (math.nan, math.nan)
        std = float(a.std(ddof=1)) if defined else math.nan
        slept = symbol is None or symbol.state is State.WAIT_TIMER
        effect = other - mean
        return StateEntry(
            state=symbol.name if symbol else "total",
            role=symbol.role if symbol else "",
            normal_mean=number(mean),
            sample_mean=number(other),
            normal_std=number(std),
            average_threshold=mean + 1.5 * std if defined else None,
            average_fires=flagged and slept,
            normal_above=number(float((a > mean).mean())) if defined else None,
            sample_above=number(float((b > mean).mean())) if defined else None,
            probability_threshold=None,
            probability_fires=flagged and slept,
            new_state=flagged and symbol is not None and slept,
            p_value=(0.0012 if flagged and slept else 0.61) if defined else None,
            effect=number(effect),
            effect_low=number(effect - abs(effect) / 3 - 0.2 * MS),
            effect_high=number(effect + abs(effect) / 3 + 0.2 * MS),
            flagged=flagged and slept,
            cliffs_delta=0.0,
            median_ratio=None,
            normal_count=count_of(symbol, normal),
            sample_count=count_of(symbol, sample),
        )

    def count_of(symbol: Symbol | None, table: VectorTable) -> float | None:
        if symbol is None or not len(table):
            return None
        of = table.counts if symbol.state in INTERFERENCE else table.structure
        return float(of[:, normal.symbols.index(symbol)].mean())

    tests = [
        test(symbol, normal.durations[:, i], sample.durations[:, i])
        for i, symbol in enumerate(normal.symbols)
    ]
    return [*tests, test(None, normal.total, sample.total)]


def clustering(n: int) -> Clustering:
    labels = np.array([0 if i % 4 else 1 for i in range(n)], np.int64)
    if n < 4:
        labels[:] = 0
    weak = np.zeros(n, np.bool_)
    weak[-1:] = n > 4
    return Clustering(
        labels=labels,
        raw_labels=np.where(weak, -1, labels),
        weak=weak,
        ordering=np.arange(n, dtype=np.int64),
        reachability=np.where(np.arange(n) == 0, np.inf, 0.7),
        method="optics min_samples=5 xi=0.05" if n else "single",
        notes=("1 request was noise: joined to its nearest cluster",) if n > 4 else (),
    )


def align(
    position: int,
    anomaly: tuple[np.ndarray, np.ndarray],
    normals: list[int],
    drawn: list[tuple[np.ndarray, np.ndarray]],
) -> Aligned:
    members = [drawn[i] for i in normals] + [anomaly]
    codes = np.stack([m[0] for m in members])
    times = np.stack([m[1] for m in members])
    keep = (codes >= 0).any(axis=0)
    codes, times = codes[:, keep], times[:, keep]
    rows = np.where(codes >= 0, np.cumsum(codes >= 0, axis=1) - 1, -1)
    group, mine, n = codes[:-1], codes[-1], len(normals)
    same = group == mine
    commonest = np.array([np.bincount(c + 1).argmax() - 1 for c in group.T], np.int32)
    probability = same.mean(axis=0)
    with_state = np.where(mine >= 0, same, group == commonest)
    support = np.maximum(with_state.sum(axis=0), 1)
    mean = (times[:-1] * with_state).sum(axis=0) / support
    mean = np.where(with_state.any(axis=0) & (mean > 0), mean, np.nan)
    contribution = n * times[-1] - times[:-1].sum(axis=0)
    excess = float(contribution.sum()) / n
    return Aligned(
        execution=position,
        normals=tuple(normals),
        left_out=3,
        alignment=Alignment(
            rows=rows.astype(np.int32),
            sequences=tuple(c[c >= 0].astype(np.uint8) for c in codes),
            durations=tuple(t[c >= 0] for c, t in zip(codes, times, strict=True)),
            tree="(0:0.1,1:0.1);",
            score=123.5,
        ),
        statistics=ColumnStatistics(
            probability=probability,
            normal_symbol=commonest,
            normal_probability=(group == commonest).mean(axis=0),
            mean=mean,
            std=mean * 0.3,
            contribution=contribution.astype(np.int64),
            abnormal_state=(mine >= 0) & (probability < 0.05),
            abnormal_duration=np.nan_to_num(times[-1] > 2 * mean, nan=False).astype(np.bool_),
            missing=(mine < 0) & (commonest >= 0),
            p_structure=np.where(mine >= 0, 1 / 700, np.nan),
            p_duration=np.where(mine >= 0, 0.5, np.nan),
            abnormal=(mine >= 0) & (probability < 0.05),
        ),
        excess=excess,
        unexplained=0.4 * MS,
    )


def cause(members: list[Finding], first: int, amount: float, share: float, **facts: Any) -> Cause:
    """Every second finding from ``first`` on, as one cause."""
    of, size = members[0], len(members)
    return Cause(
        sentence="",
        findings=[*range(first, 2 * size, 2)],
        executions=[one.execution for one in members],
        positions=[one.position for one in members],
        contribution=amount,
        share=share,
        main=first,
        minor=False,
        facts=CauseFacts(
            state=of.symbol.state.name,
            role=of.symbol.role,
            peer=facts["comm"] if of.symbol.role else "",
            device="",
            call="",
            kind=of.kind,
            counted="trips" if of.symbol.role else "waits",
            count_before=float(first),
            count_after=1.0,
            time_before=of.expected,
            time_after=of.observed,
            share=share,
            executions=size,
            certainty="observed",
            **facts,
        ),
    )


def comparison(
    *,
    verdict: str = "anomaly",
    normals: int = 20,
    samples: int = 6,
    anomalous: int = 2,
    columns: int = 42,
    names: Names | None = None,
    seed: int = 7,
    losses: tuple[Loss, ...] = (),
    **changes: Any,
) -> Analysis:
    """Build a comparison; ``changes`` replace fields of it."""
    names = names or Names()
    normal, sample = draw_sets(seed, columns, normals, samples, anomalous)
    tables = vectors(normal, names), vectors(sample, names)
    late = np.arange(samples) < anomalous
    mean = int(tables[0].total.mean()) if normals else 0
    aligned = tuple(
        align(i, sample[i], list(range(min(normals, 17))), normal) for i in range(anomalous)
    )
    findings, causes = [], []
    sets = path_set(normal, names, "normal", ()), path_set(sample, names, "sample", losses)
    for one in aligned:
        column = int(np.flatnonzero(one.alignment.symbols[-1] == 3)[0])
        item = int(one.alignment.rows[-1, column])
        at = int(sets[1].paths.start[one.execution]) + item
        for rank, symbol, kind, span in (
            (1, Symbol(State.WAIT_TIMER), "new-state", (column, column + 1)),
            (2, Symbol(State.RUN, names.role), "longer", (2, 3)),
        ):
            gain = 30.0 * MS if rank == 1 else 0.6 * MS
            findings.append(
                Finding(
                    execution=sets[1].executions.id[one.execution],
                    position=one.execution,
                    rank=rank,
                    kind=kind,
                    state=symbol.state.name,
                    role=symbol.role,
                    detail=names.detail,
                    tid=1201 if rank == 1 else 33,
                    comm=names.comm if rank == 1 else names.helper,
                    begin=int(sets[1].paths.begin[at]),
                    end=int(sets[1].paths.end[at]),
                    columns=[*span],
                    observed=gain + (rank - 1) * 0.2 * MS,
                    expected=(rank - 1) * 0.2 * MS,
                    contribution=gain,
                    share=gain / one.excess if one.excess > 0 else None,
                    probability=0.0 if rank == 1 else 0.88,
                    before="running",
                    parts=[],
                    abnormal=False,
                    p=None,
                    offset=0.0,
                    iterations=None,
                    normal_iterations=[None, None],
                )
            )
    if anomalous:
        causes = [
            cause(findings[0::2], 0, 30.0 * MS, 0.97, comm=names.comm, tids=[1201], of=samples),
            cause(findings[1::2], 1, 0.6 * MS, 0.02, comm=names.helper, tids=[33], of=samples),
        ]
    groups = int(clustering(samples).size)
    fields: dict[str, Any] = {
        "verdict": verdict,
        "reasons": {
            "ok": (f"no anomaly in {samples} requests against {normals}",),
            "anomaly": ("WAIT_TIMER is new in the sample set (p 0.0012)",),
            "inconclusive": ("there is no run after",),
        }[verdict],
        "warnings": ("the sets were recorded in different sessions: the floor is 10 %",),
        "normal": sets[0],
        "sample": sets[1],
        "normal_vectors": tables[0],
        "sample_vectors": tables[1],
        "detection": Detection(
            rule="gate",
            states=state_tests(*tables, flagged=verdict == "anomaly"),
            flagged=verdict == "anomaly",
            alpha=0.01,
            floor=1.6 * MS,
            detectable=4.1 * MS if samples else None,
            permutations=9999,
            enough=samples > 3,
            needed=0 if samples > 3 else 4,
            symbols=tables[0].symbols,
            paper_false_alarms=0.0,
            notes=[],
            remarks=("the average rule fires in 20 % of equal sets of this size",),
        ),
        "normal_clusters": clustering(normals),
        "sample_clusters": clustering(samples),
        "pairs": ClusterPairs(
            pair=np.arange(groups, dtype=np.int64),
            score=np.array([0.61, math.nan][:groups], np.float64),
            weak=np.array([False, True][:groups], np.bool_),
            novel=np.zeros(groups, np.bool_),
        ),
        "outliers": Outliers(
            score=np.where(late, 11.25, 0.8),
            p_value=np.where(late, 1 / 21, 0.5),
            anomalous=late,
            paper=late | (np.arange(samples) == 4),
            excess=(tables[1].total - mean).astype(np.int64),
            symbol=np.where(late, 3, -1).astype(np.int64),
            posterior=np.where(late, 0.98, 0.01),
        ),
        "aligned": aligned,
        "findings": tuple(findings),
        "causes": tuple(causes),
        "settings": {"alpha": 0.01, "rule": "gate", "floor": 0.1, "t2": None, "k": math.inf},
    }
    return Analysis(**{**fields, **changes})


def unnamed(document: ComparisonDocument) -> None:
    """Name a document's executions as where the trace has no name for them: TID@BEGIN."""
    names = {"normal": {}, "sample": {}}
    for row in document.executions:
        begin = 38_420_289_508_189 + row.position * 73_311
        row.id = names[row.set][row.position] = f"{15_894 + row.position % 2}@{begin}"
    for one in document.aligned:
        one.execution = names["sample"][one.position]
        for position, row in enumerate(one.rows[:-1]):
            row.id = names["normal"][position]
    for cause in document.causes:
        cause.executions = [names["sample"][position] for position in cause.positions]
    for finding in document.findings:
        finding.execution = names["sample"][finding.position]
