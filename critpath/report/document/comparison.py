"""The document of a comparison: the one value that every renderer takes.

Nothing here formats and no renderer computes, so a saved document renders again
to the same bytes years later.  A figure that is not finite is None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any, Final, cast

import msgspec
import numpy as np

from critpath import __version__
from critpath.documents import (
    COMPARISON_FORMAT,
    AccountEntry,
    AlignedEntry,
    AlignedRow,
    AlignedSegment,
    AlignedStatistics,
    CauseEntry,
    ClusterEntry,
    ClusteringEntry,
    Clusters,
    ComparisonDocument,
    DetectionEntry,
    ExecutionEntry,
    FindingEntry,
    HostEntry,
    LevelEntry,
    LoopEntry,
    LossPlace,
    LossSummary,
    OutliersEntry,
    PairEntry,
    Plane,
    RequestEntry,
    SetEntry,
    SetName,
    Sets,
    SymbolEntry,
    Verdict,
    Window,
)
from critpath.documents.base import fill, narrow, number, plain
from critpath.documents.executions import Cells, ExecutionTable
from critpath.documents.exploration import AskEntry
from critpath.documents.requests import LeftOut, join_left_out
from critpath.model import (
    F64,
    I64,
    Aligned,
    Analysis,
    Clustering,
    ClusterPairs,
    PathSet,
    RequestFacts,
    State,
    VectorTable,
    summarize_machine,
)
from critpath.model.details import word_detail
from critpath.model.paths import begin_dates, find_epochs
from critpath.report.document.pictures import draw_pictures
from critpath.report.palette import choose_letters
from critpath.schema.environment import RequestCounts, list_values
from critpath.schema.parameters.cluster import TYPES
from critpath.text.explanation import describe_cause, find_examined
from critpath.text.notes import Words, word, word_all
from critpath.text.page import noun_of_paths, noun_of_set
from critpath.text.recognized import identify_all

# Losses are listed one by one up to here; their sums are always complete.
_MOST_LOSSES: Final = 200
_MOST_HOSTS: Final = 1000


def comparison_document(comparison: Analysis, *, entries: bool = True) -> ComparisonDocument:
    """Build the versioned document of one comparison.

    Parameters
    ----------
    comparison : Analysis
        The outcome of every stage.
    entries : bool
        Make an entry of every execution; without, as for text, where somebody asks for them,
        and with nothing else that only files have of each.

    Returns
    -------
    ComparisonDocument
        Times in ns since the trace clock's origin, durations in ns.  The same
        comparison gives an equal document, whatever the process.
    """
    normal, sample = describe_set(comparison.normal), describe_set(comparison.sample)
    words = Words(noun_of_set(sample, 1), noun_of_set(sample), comparison.name_types())
    reasons, warnings = (
        word_all(remarks, words) for remarks in (comparison.reasons, comparison.warnings)
    )
    aligned = [_aligned(comparison, one, words) for one in comparison.aligned]
    outliers = comparison.outliers
    table = ExecutionTable(
        {"normal": len(comparison.normal), "sample": len(comparison.sample)},
        {
            "normal": _executions(comparison, "normal", comparison.normal),
            "sample": _executions(comparison, "sample", comparison.sample),
        },
    )
    document = ComparisonDocument(
        format=COMPARISON_FORMAT,
        version=__version__,
        verdict=cast("Verdict", comparison.verdict),
        reasons=reasons,
        warnings=warnings,
        settings=plain(comparison.settings),
        sets=Sets(normal=normal, sample=sample),
        symbols=choose_letters(
            [
                SymbolEntry(name=s.name, state=s.state.name, role=s.role, place=s.place)
                for s in _alphabet(comparison)
            ],
            aligned,
        ),
        states=[*comparison.detection.states],
        detection=_detection(comparison, words),
        clusters=Clusters(
            normal=_clustering(comparison.normal_clusters, comparison.normal, words, order=entries),
            sample=_clustering(comparison.sample_clusters, comparison.sample, words, order=entries),
            pairs=_pairs(comparison.pairs),
            notes=word_all(comparison.pairs.notes, words),
            note_ids=identify_all(comparison.pairs.notes),
        ),
        plane=project_counts(comparison.normal_vectors, comparison.sample_vectors)
        if entries
        else None,
        outliers=OutliersEntry(
            anomalous=int(outliers.anomalous.sum()),
            paper=int(outliers.paper.sum()),
            notes=word_all(outliers.notes, words),
            note_ids=identify_all(outliers.notes),
            **_count_affected(comparison),
        ),
        executions=[*table] if entries else cast("list[ExecutionEntry]", table),
        findings=[narrow(FindingEntry, finding) for finding in comparison.findings],
        causes=[narrow(CauseEntry, cause) for cause in comparison.causes],
        aligned=aligned,
        reason_ids=identify_all(comparison.reasons),
        warning_ids=identify_all(comparison.warnings),
    )
    document.waits = [*comparison.waits]
    document.because = comparison.because
    document.pictures = draw_pictures(comparison, document)
    examined = find_examined(document)
    for cause in document.causes:
        cause.sentence = describe_cause(document, cause, examined=examined)
    return document


def _count_affected(comparison: Analysis) -> dict[str, int]:
    """Return how many have the change, of all kinds; nothing where that is not known."""
    if not comparison.knows_affected:
        return {}
    kinds = comparison.outliers.affected
    many = sum(one.many for one in kinds)
    low = math.ceil(many - math.hypot(*(one.many - one.low for one in kinds)))
    high = math.floor(many + math.hypot(*(one.high - one.many for one in kinds)))
    return {"affected": many, "affected_low": low, "affected_high": high}


def describe_set(paths: PathSet) -> SetEntry:
    """Return what a document says of one set; losses are listed up to 200."""
    executions = paths.executions
    words = Words(noun_of_paths(paths, 1), noun_of_paths(paths))
    places = [fill(LossPlace, loss) for loss in paths.losses[:_MOST_LOSSES]]
    return SetEntry(
        sources=list(paths.sources),
        specification=paths.specification,
        executions=len(executions),
        events=int(paths.events),
        window=Window(begin=int(executions.begin.min()), end=int(executions.end.max()))
        if len(executions)
        else None,
        hosts=list_values(paths.environment, lambda e: e.hostname),
        kernels=list_values(paths.environment, lambda e: e.kernel_release),
        tracers=_tracers(paths),
        loss=LossSummary(
            events=sum(loss.events for loss in paths.losses),
            packets=sum(loss.packets for loss in paths.losses),
            places=places,
            places_left_out=len(paths.losses) - len(places),
        ),
        lossy=int(paths.lossy.sum()),
        incomplete=int(executions.incomplete),
        notes=word_all(executions.notes, words),
        note_ids=identify_all(executions.notes),
        warnings=word_all(paths.warnings, words),
        warning_ids=identify_all(paths.warnings),
        machines=list_values(paths.environment, lambda e: e.recorded_on),
        processors=list_values(paths.environment, lambda e: e.recorded_cpu),
        cpus=list_values(paths.environment, lambda e: e.recorded_cpus),
        profiles=list_values(paths.environment, lambda e: e.recorded_profile),
        commands=list_values(paths.environment, lambda e: e.recorded_command),
        epochs=find_epochs(paths),
        recorded=begin_dates(paths),
        machine=summarize_machine(paths.environment),
        requests=_account(paths),
        clocks=_clocks(paths),
        load=_load(paths),
    )


def _load(paths: PathSet) -> list[float]:
    """Return how busy the machine was; of several recordings together there is no one line."""
    found = [one.load for one in paths.environment if one.load]
    return [hundredths / 100 for hundredths in found[0]] if len(found) == 1 else []


def _clocks(paths: PathSet) -> list[HostEntry]:
    """Return the hosts of a set, each as the recording says that knows its clock least."""
    found: dict[str, HostEntry] = {}
    for about in paths.environment:
        try:
            told = msgspec.convert(about.clocks or (), list[HostEntry])
            msgspec.json.encode(told)
        except (msgspec.ValidationError, UnicodeError):
            continue  # a trace's own, of that name
        for one in told[:_MOST_HOSTS]:
            known = found.get(one.host)
            wide = one.uncertainty_ns
            if known is None or (
                known.uncertainty_ns is not None and (wide is None or wide > known.uncertainty_ns)
            ):
                found[one.host] = one
    return list(found.values())


def _account(paths: PathSet) -> AccountEntry | None:
    """Return what became of the requests of all recordings of a set."""
    known = [one.requests for one in paths.environment if one.requests is not None]
    if not known:
        return None
    names = {*AccountEntry.__struct_fields__} - {"left_out"}
    summed = {name: sum(getattr(one, name) for one in known) for name in sorted(names)}
    return AccountEntry(**summed, left_out=_sum_left_out(known))


def _sum_left_out(known: Sequence[RequestCounts]) -> dict[str, LeftOut]:
    """Return what gaps leave out, by service: counts are summed, times those of the most seen."""
    found: dict[str, LeftOut] = {}
    for one in known:
        for name, of in (one.left_out or {}).items():
            try:
                told = msgspec.convert(of, LeftOut)
            except msgspec.ValidationError:
                continue  # a trace's own, of that name
            found[name] = join_left_out(found[name], told) if name in found else told
    return found


def _tracers(paths: PathSet) -> list[str]:
    found = set()
    for env in paths.environment:
        if env.tracer_name is not None:
            parts = (env.tracer_major, env.tracer_minor, env.tracer_patchlevel)
            numbers = ".".join(str(part) for part in parts if part is not None)
            found.add(f"{env.tracer_name} {numbers}".strip())
    return sorted(found)


def _alphabet(comparison: Analysis) -> Sequence[Any]:
    # Both tables share one alphabet; a set without executions may come without one.
    return max(comparison.normal_vectors.symbols, comparison.sample_vectors.symbols, key=len)


def _detection(comparison: Analysis, words: Words) -> DetectionEntry:
    detection, settings = comparison.detection, comparison.settings
    return narrow(
        DetectionEntry,
        detection,
        notes=word_all(detection.remarks, words),
        note_ids=identify_all(detection.remarks),
        signs=[
            msgspec.structs.replace(one, sentence=words.call(one.sentence))
            for one in detection.signs
        ],
        minimum=settings.get("minimum_executions", 0),
        levels=[LevelEntry(*pair) for pair in settings.get("level", ())],
        apart=comparison.apart,
    )


def _members(clusters: Clustering) -> list[I64]:
    """List the executions of every cluster: there may be as many as executions."""
    order = np.argsort(clusters.labels, kind="stable")
    bounds = np.searchsorted(clusters.labels[order], np.arange(clusters.size + 1))
    return [order[first:after] for first, after in pairwise(bounds.tolist())]


def _clustering(
    clusters: Clustering, paths: PathSet, words: Words, *, order: bool
) -> ClusteringEntry:
    duration = paths.executions.end - paths.executions.begin
    return ClusteringEntry(
        method=clusters.method,
        notes=word_all(clusters.notes, words),
        note_ids=identify_all(clusters.notes),
        clusters=[
            ClusterEntry(
                cluster=k,
                size=len(mine),
                weak=int(clusters.weak[mine].sum()),
                mean_duration=number(float(duration[mine].mean())) if len(mine) else None,
            )
            for k, mine in enumerate(_members(clusters))
        ],
        ordering=clusters.ordering.tolist() if order else [],
        reachability=_numbers(clusters.reachability) if order else [],
    )


def _pairs(pairs: ClusterPairs) -> list[PairEntry]:
    return [
        PairEntry(
            sample=k,
            normal=int(pairs.pair[k]),
            score=number(float(pairs.score[k])),
            weak=bool(pairs.weak[k]),
            novel=bool(pairs.novel[k]),
        )
        for k in range(len(pairs.pair))
    ]


def _executions(comparison: Analysis, which: SetName, paths: PathSet) -> dict[str, Cells]:
    """Return what gives each column of a set's executions."""
    executions = paths.executions
    sample = which == "sample"
    clusters = comparison.sample_clusters if sample else comparison.normal_clusters
    outliers, many = comparison.outliers, len(executions)
    # A stage that did not run (too few executions) leaves its columns empty.
    clustered = len(clusters.labels) == many
    judged = sample and len(outliers.score) == many
    result: dict[str, Cells] = {
        "set": _same(which),
        "position": _numbers_of(np.arange(many)),
        "source": _numbers_of(paths.session),
        "lossy": _numbers_of(paths.lossy),
        "request": lambda rows: _requests(executions.requests, _positions(rows)),
        **{name: _texts_of(getattr(executions, name)) for name in ("id", "comm", "label")},
        **{name: _numbers_of(getattr(executions, name)) for name in ("begin", "end", "tid")},
        **dict.fromkeys(("weak", "anomalous", "paper"), _same(False)),
        **dict.fromkeys(("cluster", "pair", "excess", "score", "p_value", "symbol"), _same(None)),
        "posterior": _same(None),
    }
    if clustered:
        result |= {"cluster": _numbers_of(clusters.labels), "weak": _numbers_of(clusters.weak)}
        duration = executions.end - executions.begin
        pairs = comparison.pairs.pair
        if not sample:
            usual = [round(float(duration[m].mean())) if len(m) else 0 for m in _members(clusters)]
            result["excess"] = _numbers_of(duration - np.array(usual, np.int64)[clusters.labels])
        else:
            homes = [*pairs.tolist(), *[None] * max(clusters.size - len(pairs), 0)]
            result["pair"] = lambda rows: [homes[k] for k in clusters.labels[rows].tolist()]
    if judged:
        names = [_symbol_name(comparison, code) for code in range(-1, len(_alphabet(comparison)))]
        marks = {name: getattr(outliers, name) for name in ("anomalous", "excess", "paper")}
        scores = {name: getattr(outliers, name) for name in ("score", "p_value")}
        result |= {name: _numbers_of(column) for name, column in marks.items()}
        result |= {name: _figures_of(column) for name, column in scores.items()}
        if comparison.knows_affected:
            result["posterior"] = _figures_of(outliers.posterior)
        symbols = outliers.symbol
        result["symbol"] = lambda rows: [names[code + 1] for code in symbols[rows].tolist()]
    return result


def _positions(rows: slice | list[int]) -> Sequence[int]:
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows


def _numbers_of(column: Any) -> Cells:
    # As lists: of a hundred thousand, each number by itself would take longer than all.
    return lambda rows: column[rows].tolist()


def _figures_of(column: F64) -> Cells:
    return lambda rows: map(number, column[rows].tolist())


def _texts_of(column: tuple[str, ...]) -> Cells:
    return lambda rows: column[rows] if isinstance(rows, slice) else [column[row] for row in rows]


def _same(value: Any) -> Cells:
    return lambda rows: repeat(value, len(_positions(rows)))


def _requests(known: RequestFacts | None, rows: Sequence[int]) -> Iterator[RequestEntry | None]:
    """Yield what is known of each request; None where executions are none."""
    if known is None:
        yield from repeat(None, len(rows))
        return
    words = {
        text: [AskEntry(name, times) for name, times in sorted(json.loads(text or "{}").items())]
        for text in {known.asks[i] for i in rows}
    }
    for i in rows:
        yield RequestEntry(
            service=known.service[i],
            parent=known.parent[i],
            true=int(known.true_ns[i]),
            asked=int(known.asked_ns[i]),
            queued=int(known.queued_ns[i]),
            bytes_in=int(known.bytes_in[i]),
            bytes_out=int(known.bytes_out[i]),
            threads=int(known.threads[i]),
            boundary=known.boundary[i],
            attribution=known.attribution[i],
            asks=words[known.asks[i]],
            message=known.message[i],
            trace_id=known.trace_id[i],
            client=known.client[i],
        )


def _symbol_name(comparison: Analysis, code: int) -> str:
    return "total" if code < 0 else str(_alphabet(comparison)[code].name)


def _aligned(comparison: Analysis, aligned: Aligned, words: Words) -> AlignedEntry:
    """Return one anomalous execution with its normal group; its row is the last."""
    alignment, statistics = aligned.alignment, aligned.statistics
    symbols, durations = alignment.symbols, alignment.column_durations
    normal, sample = comparison.normal.executions, comparison.sample.executions
    members: list[tuple[SetName, int, str]]
    members = [("normal", int(i), normal.id[i]) for i in aligned.normals]
    members.append(("sample", int(aligned.execution), sample.id[aligned.execution]))
    return AlignedEntry(
        execution=sample.id[aligned.execution],
        position=int(aligned.execution),
        columns=int(alignment.rows.shape[1]),
        left_out=int(aligned.left_out),
        excess=_finite(aligned.excess),
        unexplained=_finite(aligned.unexplained),
        score=_finite(alignment.score),
        tree=alignment.tree,
        rows=[
            AlignedRow(
                set=which,
                position=position,
                id=name,
                symbols=symbols[row].tolist(),
                durations=durations[row].tolist(),
            )
            for row, (which, position, name) in enumerate(members)
        ],
        statistics=AlignedStatistics(
            **{
                name: _numbers(getattr(statistics, name))
                for name in AlignedStatistics.__struct_fields__
            }
        ),
        note=word(statistics.note, words) if statistics.note else "",
        segments=_segments(comparison, aligned),
        loops=[
            fill(LoopEntry, loop, iterations=loop.iterations.tolist()) for loop in alignment.loops
        ],
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _numbers(values: Any) -> list[Any]:
    return [number(value) for value in values.tolist()]


def _segments(comparison: Analysis, aligned: Aligned) -> list[AlignedSegment]:
    alignment = aligned.alignment
    # Stored paths have this one in memory since it was aligned.
    paths = comparison.sample.paths.take(np.array([aligned.execution], np.int64))
    durations = alignment.durations[-1]
    segment = _segment_of(durations, paths.begin, paths.end)
    begin = int(paths.begin[0]) if len(paths.begin) else 0
    ends = begin + np.cumsum(durations)
    result = []
    for column in np.flatnonzero(alignment.rows[-1] >= 0):
        item = int(alignment.rows[-1, column])
        at = int(segment[item])
        result.append(
            AlignedSegment(
                column=int(column),
                begin=int(ends[item] - durations[item]),
                end=int(ends[item]),
                tid=int(paths.tid[at]),
                comm=paths.strings[paths.comm[at]],
                state=State(int(paths.state[at])).name,
                detail=word_detail(paths.details[paths.detail[at]]),
                cpu=int(paths.cpu[at]),
                host=int(paths.host[at]),
                elsewhere_idle=int(paths.elsewhere_idle[at]),
            )
        )
    return result


def _segment_of(durations: I64, begin: I64, end: I64) -> I64:
    """Return the path segment that every item of the aligned row comes from.

    The aligner may have joined neighbouring segments of one symbol; since both
    tile the same window, an item is where most of its time is.
    """
    if len(durations) == len(begin):
        return np.arange(len(begin), dtype=np.int64)
    ends = begin[0] + np.cumsum(durations)
    result = np.zeros(len(durations), np.int64)
    for item, (low, high) in enumerate(zip(ends - durations, ends, strict=True)):
        overlap = np.minimum(end, high) - np.maximum(begin, low)
        result[item] = int(np.argmax(overlap))
    return result


def project_counts(normal: VectorTable, sample: VectorTable) -> Plane | None:
    """Project the count vectors of both sets on their two widest directions.

    Principal components of ``2 sqrt(n + 3/8)`` (Anscombe's transform: the spread of
    a count no longer grows with it), by singular value decomposition of the pooled,
    centred table.  The sign of a direction is that of its largest loading.
    """
    width = max(normal.structure.shape[1], sample.structure.shape[1])
    tables = [t.structure for t in (normal, sample) if len(t) and t.structure.shape[1] == width]
    if not tables or not width:
        return None
    values = 2.0 * np.sqrt(np.concatenate(tables) + TYPES.anscombe)
    values -= values.mean(axis=0)
    # Of the triangle of their QR decomposition, which has the same ones and a row a column.
    _, spread, directions = np.linalg.svd(np.linalg.qr(values, mode="r"), full_matrices=False)
    points = np.zeros((len(values), 2))
    for axis, direction in enumerate(directions[:2]):
        # Rounded, so that two equally large loadings do not trade places by the last bit.
        lead = int(np.argmax(np.round(np.abs(direction), 6)))
        points[:, axis] = values @ direction * (1.0 if direction[lead] >= 0 else -1.0)
    points = np.round(points, 4) + 0.0  # -0.0 would print differently from 0.0
    energy = spread**2
    total = float(energy.sum())
    explained = [float(e) / total if total > 0 else 0.0 for e in [*energy[:2], 0.0, 0.0][:2]]
    split = len(normal) if normal.structure.shape[1] == width else 0
    return Plane(
        normal=points[:split].tolist(),
        sample=points[split:].tolist(),
        explained=[round(share, 4) for share in explained],
    )
