"""From the critical paths of two sets to the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from critpath.errors import InconclusiveError
from critpath.model import CompareSettings
from critpath.pipeline.explanation import explain
from critpath.pipeline.judgement import judge
from critpath.pipeline.switches import with_switches

if TYPE_CHECKING:
    from critpath.model import Comparison, PathSet

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
    from critpath.detect.circumstances import apart, differing, set_warnings
    from critpath.detect.compared import partly
    from critpath.detect.verdict import decide
    from critpath.model import Comparison
    from critpath.vectors.alphabet import Coder
    from critpath.vectors.coarse import with_like_states
    from critpath.vectors.table import vectors_of

    settings = settings or CompareSettings()
    tell = progress or (lambda _: None)
    for name, path_set in (("normal", normal), ("sample", sample)):
        if not len(path_set):
            raise InconclusiveError(
                f"the {name} set has no execution ({path_set.specification})",
                "check --execution, or record more: at least 10 executions, better 100",
            )
    normal, sample, unlike = with_like_states(with_switches(normal), with_switches(sample))
    # Segments may be more than fit in memory: they are read chunk by chunk, once for the
    # alphabet and once for the vectors, and then only those of the paths that are aligned.
    coder = Coder((normal, sample), settings.vector)
    normal_vectors, sample_vectors = vectors_of(normal, coder), vectors_of(sample, coder)
    judgement = judge(
        normal_vectors,
        sample_vectors,
        settings,
        labels=(normal.executions.label, sample.executions.label),
        sessions=(normal.session, sample.session),
        progress=tell,
    )
    part = partly(
        judgement.normal_clusters.labels,
        judgement.pairs.pair[judgement.sample_clusters.labels],
    )
    verdict, reasons = decide(
        judgement.detection,
        judgement.outliers,
        normal.lossy,
        sample.lossy,
        (normal.losses, sample.losses),
        apart=apart(normal, sample),
        minimum=settings.minimum_executions,
        unlike=differing(normal, sample) if settings.strict_environment else (),
        part=part,
    )
    result = Comparison(
        verdict=verdict,
        reasons=reasons,
        warnings=(
            *([part] if part else []),
            *judgement.warnings,
            *set_warnings(normal, sample, coder.folded),
            *unlike,
        ),
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
    return explain(result, coder, settings, tell)
