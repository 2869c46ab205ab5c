"""From the critical paths of two sets to the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from critpath.errors import InconclusiveError
from critpath.model import CompareSettings
from critpath.pipeline.judgement import judge
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.model import U8, Aligned, Comparison, Finding, PathSet

Progress = Callable[[str], None]


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
    from critpath.detect.circumstances import apart, set_warnings
    from critpath.detect.verdict import decide
    from critpath.model import Comparison
    from critpath.vectors.alphabet import ALPHABETS
    from critpath.vectors.coarse import with_like_states
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
    judgement = judge(
        normal_vectors,
        sample_vectors,
        settings,
        labels=(normal.executions.label, sample.executions.label),
        sessions=(normal.session, sample.session),
        progress=tell,
    )
    verdict, reasons = decide(
        judgement.detection,
        judgement.outliers,
        normal.lossy,
        sample.lossy,
        (normal.losses, sample.losses),
        apart=apart(normal, sample),
    )
    result = Comparison(
        verdict=verdict,
        reasons=reasons,
        warnings=(*set_warnings(normal, sample, alphabet.folded), *unlike),
        normal=normal,
        sample=sample,
        normal_vectors=normal_vectors,
        sample_vectors=sample_vectors,
        detection=judgement.detection,
        normal_clusters=judgement.normal_clusters,
        sample_clusters=judgement.sample_clusters,
        pairs=judgement.pairs,
        outliers=judgement.outliers,
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
    from critpath.localize.chosen import held_back, to_explain
    from critpath.localize.surroundings import surroundings

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
    around = [surroundings(comparison.sample, finding) for finding in findings]
    quota = held_back(comparison.normal, comparison.sample)
    causes = group_causes(findings, explained, total, kind=kind, around=around, quota=quota)
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
