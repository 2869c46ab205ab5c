"""The whole analysis, read top to bottom.

`extract` goes from recordings to critical paths, `compare` from the paths of two
sets to the answer.  Every stage is called here and nowhere else, and imported where
it is called: what a command does not reach costs it nothing at start-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from critpath.errors import InconclusiveError
from critpath.executions.specification import parse_specification
from critpath.model import CompareSettings
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.model import (
        U8,
        Aligned,
        Comparison,
        Events,
        Executions,
        Finding,
        PathSet,
        Timelines,
        Wanted,
    )

Progress = Callable[[str], None]

__all__ = ["CompareSettings", "compare", "extract", "parse_specification", "thread_paths"]


# ------------------------------------------------------------------ extraction


def extract(
    sources: Sequence[Path],
    *,
    specification: str | None,
    reader: str = "auto",
    interrupts: bool = True,
    progress: Progress | None = None,
) -> PathSet:
    """Extract the critical path of every execution of some recordings.

    Parameters
    ----------
    sources : sequence of Path
        Recordings, directories of recordings, CTF trace directories, or files that
        an earlier `extract` saved.
    specification : str or None
        What an execution is (``--execution``); None for what the recording says of
        itself.
    reader : str
        ``auto``, ``native`` or ``babeltrace2``.
    interrupts : bool
        Take interrupt work out of running time.
    progress : callable or None
        Told what is being done.

    Returns
    -------
    PathSet

    Raises
    ------
    UnreadableError, UsageError
        As the readers and finders do.
    """
    from critpath import store
    from critpath.graph.concatenate import join_sets
    from critpath.read.sessions import find_recordings

    tell = progress or (lambda _: None)
    parts: list[PathSet] = []
    for source in sources:
        if store.is_paths_file(source):
            tell(f"loading {source}")
            parts.append(store.load_paths(source))
            continue
        for recording in find_recordings(source):
            tell(f"reading {recording}")
            parts.append(_extract_one(recording, specification, reader, interrupts, tell))
    return join_sets(parts)


def _extract_one(
    recording: Path, specification: str | None, reader: str, interrupts: bool, tell: Progress
) -> PathSet:
    from critpath.executions.choose import choose_specification, with_label
    from critpath.executions.find import find_executions
    from critpath.executions.marker import WANTED
    from critpath.executions.specification import wanted
    from critpath.read.layout import KERNEL
    from critpath.read.manifest import open_manifest, with_manifest
    from critpath.read.recording import describe

    manifest, said = open_manifest(recording)
    described = describe(recording)
    names = sorted({name for trace in described for name in trace.events})
    marks = partial(_read, recording, (*KERNEL, *WANTED), reader)
    text, how = choose_specification(specification, manifest.execution, recording, names, marks)
    chosen, labelled = with_label(parse_specification(text), [t.texts for t in described])
    events = _read(recording, (*KERNEL, *wanted(chosen)), reader)
    events = with_manifest(events, manifest)
    executions = find_executions(events, chosen, names, manifest.runs)
    tell(f"walking {plural(len(executions), 'critical path')}")
    timelines = _timelines(events)
    path_set = _walk_all(events, timelines, executions, recording, text, interrupts)
    return replace(path_set, warnings=(*said, *how, *labelled, *path_set.warnings))


def _read(recording: Path, wanted: Sequence[Wanted], reader: str) -> Events:
    from critpath.read.recording import read_events
    from critpath.timeline.missing_switches import with_missing_switches

    return with_missing_switches(read_events(recording, wanted, reader=reader))


def _timelines(events: Events) -> Timelines:
    from critpath.timeline.clocks import align_hosts
    from critpath.timeline.network import link_packets
    from critpath.timeline.replay import replay

    aligned = align_hosts(events)
    return link_packets(aligned, replay(aligned))


def _walk_all(
    events: Events,
    timelines: Timelines,
    executions: Executions,
    recording: Path,
    specification: str,
    interrupts: bool,
) -> PathSet:
    from critpath.graph.execution_graph import build_graph
    from critpath.graph.path import critical_paths, overlaps_loss
    from critpath.graph.subjects import left_out, subject_workers
    from critpath.model import PathSet

    subjects = subject_workers(timelines, executions)
    paths = critical_paths(
        timelines,
        build_graph(timelines),
        subjects,
        executions.begin,
        executions.end,
        interrupts=interrupts,
    )
    notes = (*executions.notes, *left_out(subjects, executions))
    return PathSet(
        executions=executions,
        paths=paths,
        session=np.zeros(len(executions), np.int64),
        sources=(str(recording),),
        specification=specification,
        losses=events.losses,
        lossy=overlaps_loss(events.losses, executions.host, executions.begin, executions.end),
        environment=events.environment,
        events=events.total,
        warnings=(*events.warnings, *timelines.warnings, *notes),
    )


def thread_paths(
    source: Path,
    *,
    tid: int | None,
    comm: str | None,
    begin: int | None,
    end: int | None,
    reader: str = "auto",
    interrupts: bool = True,
) -> PathSet:
    """Extract the path of threads over their whole life in the trace, or a window of it.

    Parameters
    ----------
    source : Path
        A recording or a CTF trace.
    tid, comm : int or None, str or None
        Which threads; both None for all of them.
    begin, end : int or None
        A window (ns) instead of the thread's first and last event.

    Raises
    ------
    UsageError
        If no thread matches, or nothing was recorded in the window.
    """
    from critpath.graph.subjects import lives_of
    from critpath.read.layout import KERNEL
    from critpath.read.manifest import open_manifest, with_manifest

    manifest, said = open_manifest(source)
    events = with_manifest(_read(source, KERNEL, reader), manifest)
    timelines = _timelines(events)
    executions = lives_of(timelines, tid, comm, (begin, end), (events.begin, events.end))
    path_set = _walk_all(events, timelines, executions, source, "thread", interrupts)
    return replace(path_set, warnings=(*said, *path_set.warnings))


# ------------------------------------------------------------------ comparison


def compare(
    normal: PathSet,
    sample: PathSet,
    settings: CompareSettings | None = None,
    *,
    progress: Progress | None = None,
) -> Comparison:
    """Compare a sample set with a normal set.

    Raises
    ------
    InconclusiveError
        If a set has no execution at all.

    Notes
    -----
    Janecek, Ezzati-Jivan and Hamou-Lhadj, "Performance Anomaly Detection through
    Sequence Alignment of System-Level Traces" (ICPC 2022).  Deviations: types are
    found before the coarse detection, whose tests compare like with like, so that a
    changed mix of types is no slow-down; the verdict comes from a permutation test.
    """
    from critpath.cluster.outliers import outliers
    from critpath.cluster.types import find_types, usable_labels
    from critpath.detect.circumstances import set_warnings
    from critpath.detect.coarse import detect
    from critpath.detect.verdict import decide
    from critpath.model import Comparison
    from critpath.vectors.alphabet import ALPHABETS
    from critpath.vectors.coarse import with_like_states
    from critpath.vectors.fold import fold_interrupts
    from critpath.vectors.table import vector_table

    settings = settings or CompareSettings()
    tell = progress or (lambda _: None)
    for name, path_set in (("normal", normal), ("sample", sample)):
        if not len(path_set):
            raise InconclusiveError(
                f"the {name} set has no execution ({path_set.specification})",
                "check --execution, or record more: at least 10 executions, better 100",
            )
    normal, sample, unlike = with_like_states(normal, sample)
    alphabet = ALPHABETS[settings.vector]((normal, sample))
    normal_vectors = vector_table(normal, alphabet.symbols, alphabet.codes[0])
    sample_vectors = vector_table(sample, alphabet.symbols, alphabet.codes[1])
    tell("clustering")
    unlabelled = usable_labels(normal.executions.label, sample.executions.label)
    normal_clusters, sample_clusters, pairs = find_types(
        normal_vectors,
        sample_vectors,
        () if unlabelled else normal.executions.label,
        () if unlabelled else sample.executions.label,
        method=settings.cluster_method,
    )
    judged = fold_interrupts(normal_vectors), fold_interrupts(sample_vectors)
    outlying = outliers(
        judged[0],
        normal_clusters,
        judged[1],
        sample_clusters,
        pairs,
        k=settings.outlier_k,
        level=settings.outlier_level,
        floor=settings.floor,
        types_known=not unlabelled,
    )
    tell("testing")
    detection = detect(
        normal_vectors,
        sample_vectors,
        rule=settings.rule,
        alpha=settings.alpha,
        floor=settings.floor,
        t1=settings.t1,
        t2=settings.t2,
        y_reference=settings.y_reference,
        permutations=settings.permutations,
        normal_type=normal_clusters.labels,
        sample_type=pairs.pair[sample_clusters.labels],
        normal_session=normal.session,
        sample_session=sample.session,
        judged=judged,
    )
    verdict, reasons = decide(
        detection, outlying, normal.lossy, sample.lossy, (normal.losses, sample.losses)
    )
    result = Comparison(
        verdict=verdict,
        reasons=reasons,
        warnings=(*set_warnings(normal, sample, alphabet.folded), *unlike),
        normal=normal,
        sample=sample,
        normal_vectors=normal_vectors,
        sample_vectors=sample_vectors,
        detection=detection,
        normal_clusters=normal_clusters,
        sample_clusters=sample_clusters,
        pairs=pairs,
        outliers=outlying,
        aligned=(),
        findings=(),
        causes=(),
        settings=asdict(settings),
    )
    return explain(result, alphabet.codes, settings, tell)


def explain(
    comparison: Comparison, codes: tuple[U8, ...], settings: CompareSettings, tell: Progress
) -> Comparison:
    """Align the executions that stand out with their normal group, and name the causes.

    Parameters
    ----------
    comparison : Comparison
        Everything up to the outliers.
    codes : (uint8 array, uint8 array)
        Symbol of every segment of the normal and of the sample set.
    """
    from critpath.localize.causes import Explained, group_causes, in_order_of_causes
    from critpath.localize.chosen import to_explain

    chosen, left_out = to_explain(comparison, settings.explain_limit)
    aligned: list[Aligned] = []
    findings: list[Finding] = []
    for position, execution in enumerate(chosen):
        tell(f"aligning {position + 1} of {plural(len(chosen), 'execution')}")
        one, found = _explain_one(comparison, codes, execution, settings.group_limit)
        aligned.append(one)
        findings += found
    explained = [Explained(a.execution, a.excess, len(a.normals)) for a in aligned]
    warnings = comparison.warnings
    if left_out:
        said = f"{len(chosen)} of {len(chosen) + left_out} executions that stand out were examined"
        warnings += (f"{said}, evenly spread over their excess",)
    kind, total = ("examined", len(chosen)) if left_out else ("", len(comparison.sample))
    causes = group_causes(findings, explained, total, kind=kind)
    ordered, causes = in_order_of_causes(findings, causes)
    return replace(
        comparison, aligned=tuple(aligned), findings=ordered, causes=causes, warnings=warnings
    )


def _explain_one(
    comparison: Comparison, codes: tuple[U8, ...], execution: int, limit: int
) -> tuple[Aligned, tuple[Finding, ...]]:
    from critpath.align.group import choose_rows
    from critpath.align.multiple import align
    from critpath.cluster.types import normal_group
    from critpath.localize.chosen import rows_of, segments_of
    from critpath.localize.columns import column_statistics
    from critpath.localize.findings import find_differences
    from critpath.model import Aligned

    group = normal_group(
        comparison.normal_clusters, comparison.sample_clusters, comparison.pairs, execution
    )
    rows = group[choose_rows(comparison.normal_vectors.structure[group], limit)]
    normal, sample = comparison.normal.paths, comparison.sample.paths
    sequences = [codes[0][rows_of(normal, i)] for i in rows] + [
        codes[1][rows_of(sample, execution)]
    ]
    durations = [normal.duration[rows_of(normal, i)] for i in rows]
    durations.append(sample.duration[rows_of(sample, execution)])
    symbols = comparison.normal_vectors.symbols
    alignment = align(sequences, durations, len(symbols))
    statistics = column_statistics(alignment)
    found, unexplained = find_differences(
        execution,
        alignment,
        statistics,
        symbols,
        segments_of(sample, execution),
        [segments_of(normal, i) for i in rows],
    )
    total = int(durations[-1].sum())
    expected = sum(int(d.sum()) for d in durations[:-1]) / len(rows)
    return Aligned(
        execution=execution,
        normals=tuple(rows.tolist()),
        left_out=len(group) - len(rows),
        alignment=alignment,
        statistics=statistics,
        excess=total - expected,
        unexplained=unexplained,
    ), found
