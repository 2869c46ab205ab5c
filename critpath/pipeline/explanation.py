"""From the executions that stand out to findings and causes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from critpath.units import plural

if TYPE_CHECKING:
    from critpath.align.add import Group
    from critpath.localize.segments import Segments
    from critpath.model import (
        I64,
        U8,
        Aligned,
        Alignment,
        CompareSettings,
        Comparison,
        Finding,
        PathSet,
    )
    from critpath.vectors.alphabet import Coder

Progress = Callable[[str], None]


def explain(
    comparison: Comparison, coder: Coder, settings: CompareSettings, tell: Progress
) -> Comparison:
    """Align the executions that stand out with their normal group, and name the causes.

    Parameters
    ----------
    comparison : Comparison
        Everything up to the outliers.
    coder : Coder
        Of both sets.
    """
    from critpath.detect.levels import ERROR
    from critpath.localize.causes import Explained, group_causes, in_order_of_causes
    from critpath.localize.chosen import held_back, to_explain
    from critpath.localize.surroundings import surroundings

    chosen, left_out = to_explain(comparison, settings.explain_limit)
    groups = _Groups(comparison, coder, chosen, settings)
    comparison = groups.comparison
    aligned: list[Aligned] = []
    findings: list[Finding] = []
    for position, execution in enumerate(chosen):
        tell(f"aligning {position + 1} of {plural(len(chosen), 'execution')}")
        one, found = _explain_one(comparison, groups, execution)
        aligned.append(one)
        findings += found
    explained = [Explained(a.execution, a.excess, len(a.normals)) for a in aligned]
    warnings = comparison.warnings
    if left_out:
        said = f"{len(chosen)} of {len(chosen) + left_out} executions that stand out were examined"
        warnings += (f"{said}, evenly spread over their excess",)
    # Many alignments have the same thing to say.
    warnings += tuple(dict.fromkeys(note for a in aligned for note in a.alignment.notes))
    kind, total = ("examined", len(chosen)) if left_out else ("", len(comparison.sample))
    around = [
        surroundings(_one(comparison.sample, found.execution), replace(found, execution=0))
        for found in findings
    ]
    quota = held_back(comparison.normal, comparison.sample)
    alone = comparison.outliers.anomalous.any()
    causes = group_causes(
        findings,
        explained,
        total,
        kind=kind,
        around=around,
        quota=quota,
        flagged=() if alone else {s.name for s in comparison.detection.states if s.flagged},
    )
    if settings.level:
        # What the verdict rests on is told first.
        level = {test.name: test.level for test in comparison.detection.states}
        told = sorted(causes, key=lambda c: level[findings[c.main].symbol.name] != ERROR)
        causes = tuple(told)
    ordered, causes = in_order_of_causes(findings, causes)
    return replace(
        comparison, aligned=tuple(aligned), findings=ordered, causes=causes, warnings=warnings
    )


class _Groups:
    """The normal executions that each anomalous one is aligned with.

    Executions paired with one type share its normal rows.  With ``msa = add`` these
    are aligned once, each execution is added to them, and all have the same columns
    but for what they alone have.
    """

    def __init__(
        self,
        comparison: Comparison,
        coder: Coder,
        chosen: list[int],
        settings: CompareSettings,
    ) -> None:
        self.comparison, self.coder, self.settings = comparison, coder, settings
        homes = comparison.pairs.pair[comparison.sample_clusters.labels]
        self._home = {execution: int(homes[execution]) for execution in chosen}
        self._rows: dict[int, tuple[I64, int]] = {}
        self._aligned: dict[int, Group] = {}
        self._segments: dict[int, Segments] = {}
        if chosen:
            rows = np.unique(np.concatenate([self.rows(execution)[0] for execution in chosen]))
            self.comparison = replace(
                comparison,
                normal=_keeping(comparison.normal, rows),
                sample=_keeping(comparison.sample, np.array(chosen, np.int64)),
            )

    def rows(self, execution: int) -> tuple[I64, int]:
        """Return the normal executions to align with, and how many of the type are left out."""
        from critpath.align.group import choose_rows
        from critpath.cluster.types import normal_group

        home = self._home[execution]
        if home not in self._rows:
            of = self.comparison
            group = normal_group(of.normal_clusters, of.sample_clusters, of.pairs, execution)
            vectors = of.normal_vectors.structure[group]
            rows = group[choose_rows(vectors, self.settings.group_limit)]
            self._rows[home] = rows, len(group) - len(rows)
        return self._rows[home]

    def align(self, execution: int) -> Alignment:
        """Align an execution, the last row, with its normal rows."""
        from critpath.align.add import Group
        from critpath.align.multiple import align

        normal, sample = self.comparison.normal, self.comparison.sample
        mine = self._path(sample, execution)
        alphabet = len(self.comparison.normal_vectors.symbols)
        home = self._home[execution]
        if self.settings.msa == "add" and home in self._aligned:
            return self._aligned[home].add(*mine)
        rows, _ = self.rows(execution)
        group = [self._path(normal, i) for i in rows.tolist()]
        sequences, durations = [p[0] for p in group], [p[1] for p in group]
        if self.settings.msa == "joint":
            together = [*sequences, mine[0]], [*durations, mine[1]]
            return align(*together, alphabet, method=self.settings.aligner)
        others = [self._path(sample, e)[0] for e, at in self._home.items() if at == home]
        self._aligned[home] = Group(
            sequences, durations, alphabet, others=others, method=self.settings.aligner
        )
        return self._aligned[home].add(*mine)

    def segments(self, normal: int) -> Segments:
        """Return what a normal path is beyond its symbols."""
        from critpath.localize.chosen import segments_of

        if normal not in self._segments:
            one = _one(self.comparison.normal, normal)
            self._segments[normal] = segments_of(one.paths, 0)
        return self._segments[normal]

    def _path(self, path_set: PathSet, execution: int) -> tuple[U8, I64]:
        """Return the symbols and durations of one path."""
        one = _one(path_set, execution)
        return self.coder.codes(one), one.paths.duration


def _one(path_set: PathSet, execution: int) -> PathSet:
    """Return one execution as a set: its path is fetched if it is not in memory."""
    return path_set.take(np.array([execution], np.int64))


def _keeping(path_set: PathSet, rows: I64) -> PathSet:
    """Return a set with some of its paths in memory, which are then taken one by one."""
    return replace(path_set, paths=path_set.paths.keep(rows))


def _explain_one(
    comparison: Comparison, groups: _Groups, execution: int
) -> tuple[Aligned, tuple[Finding, ...]]:
    from critpath.localize.chosen import segments_of
    from critpath.localize.columns import column_statistics
    from critpath.localize.findings import find_differences
    from critpath.model import Aligned

    rows, left_out = groups.rows(execution)
    alignment = groups.align(execution)
    statistics = column_statistics(alignment)
    found, unexplained = find_differences(
        execution,
        alignment,
        statistics,
        comparison.normal_vectors.symbols,
        segments_of(_one(comparison.sample, execution).paths, 0),
        [groups.segments(i) for i in rows.tolist()],
    )
    durations = alignment.durations
    expected = sum(int(d.sum()) for d in durations[:-1]) / len(rows)
    return Aligned(
        execution=execution,
        normals=tuple(rows.tolist()),
        left_out=left_out,
        alignment=alignment,
        statistics=statistics,
        excess=int(durations[-1].sum()) - expected,
        unexplained=unexplained,
    ), found
