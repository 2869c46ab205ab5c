"""The answer as plain data: the one document that every renderer takes.

Nothing here formats and no renderer computes, so a saved document renders again
to the same bytes years later.  Every value is a str, int, float, bool, None, list
or dict; a figure that is not finite is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np

from critpath.model import I64, Analysis, Clustering, Finding, PathSet, StateTest
from critpath.report.document.alignment import aligned_document, plane_of_counts
from critpath.report.document.plain import number, plain
from critpath.report.document.sets import set_document
from critpath.report.palette import with_letters

COMPARISON_FORMAT = "critpath/comparison/1"


def comparison_document(comparison: Analysis) -> dict[str, Any]:
    """Build the versioned document of one comparison.

    Parameters
    ----------
    comparison : Analysis
        The outcome of every stage.

    Returns
    -------
    dict
        JSON-ready; times in ns since the trace clock's origin, durations in ns.
        The same comparison gives an equal document, whatever the process.
    """
    executions = [
        *_executions(comparison, "normal", comparison.normal),
        *_executions(comparison, "sample", comparison.sample),
    ]
    symbols = _alphabet(comparison)
    detection = comparison.detection
    document = {
        "format": COMPARISON_FORMAT,
        "version": version("critpath"),
        "verdict": comparison.verdict,
        "reasons": list(comparison.reasons),
        "warnings": list(comparison.warnings),
        "settings": comparison.settings,
        "sets": {
            "normal": set_document(comparison.normal),
            "sample": set_document(comparison.sample),
        },
        "symbols": [{"name": s.name, "state": s.state.name, "role": s.role} for s in symbols],
        "states": [_state(test) for test in detection.states],
        "detection": {
            "rule": detection.rule,
            "flagged": detection.flagged,
            "alpha": number(detection.alpha),
            "floor": number(detection.floor),
            "detectable": number(detection.detectable),
            "permutations": detection.permutations,
            "enough": detection.enough,
            "needed": detection.needed,
            "minimum": comparison.settings.get("minimum_executions", 0),
            "levels": [
                {"pattern": pattern, "level": level}
                for pattern, level in comparison.settings.get("level", ())
            ],
            "paper_false_alarms": number(detection.paper_false_alarms),
            "notes": list(detection.notes),
            "whole": None if detection.whole is None else _whole(detection.whole),
        },
        "clusters": _clusters(comparison),
        "plane": plane_of_counts(comparison.normal_vectors, comparison.sample_vectors),
        "outliers": {
            "anomalous": int(comparison.outliers.anomalous.sum()),
            "paper": int(comparison.outliers.paper.sum()),
            "notes": list(comparison.outliers.notes),
        },
        "executions": [],
        "findings": [_finding(comparison, finding) for finding in comparison.findings],
        "causes": [
            {
                "sentence": cause.sentence,
                "findings": list(cause.findings),
                "executions": [comparison.sample.executions.id[i] for i in cause.executions],
                "positions": list(cause.executions),
                "contribution": number(cause.contribution),
                "share": number(cause.share),
                "main": cause.main,
                "minor": cause.minor,
            }
            for cause in comparison.causes
        ],
    }
    # Stages may leave numpy's scalars in their results; a document has Python's.
    result: dict[str, Any] = plain(document)
    # These are made plain below: there may be hundreds of thousands.
    result["executions"] = executions
    result["aligned"] = [aligned_document(comparison, one) for one in comparison.aligned]
    result["symbols"] = with_letters(result["symbols"], result["aligned"])
    return result


def _alphabet(comparison: Analysis) -> Sequence[Any]:
    # Both tables share one alphabet; a set without executions may come without one.
    return max(comparison.normal_vectors.symbols, comparison.sample_vectors.symbols, key=len)


def _executions(comparison: Analysis, which: str, paths: PathSet) -> list[dict[str, Any]]:
    executions = paths.executions
    sample = which == "sample"
    clusters = comparison.sample_clusters if sample else comparison.normal_clusters
    outliers = comparison.outliers
    # A stage that did not run (too few executions) leaves its columns empty.
    clustered = len(clusters.labels) == len(executions)
    judged = sample and len(outliers.score) == len(executions)
    duration = executions.end - executions.begin
    usual: dict[int, float] = {}
    if clustered and not sample:
        members = enumerate(_members(clusters))
        usual = {k: float(duration[rows].mean()) for k, rows in members if len(rows)}
    rows = []
    for i, name in enumerate(executions.id):
        cluster = int(clusters.labels[i]) if clustered else None
        pair = excess = None
        if sample and cluster is not None and cluster < len(comparison.pairs.pair):
            pair = int(comparison.pairs.pair[cluster])
        if judged:
            excess = int(outliers.excess[i])
        elif usual and cluster is not None:
            excess = int(duration[i]) - round(usual[cluster])
        rows.append(
            {
                "id": name,
                "set": which,
                "position": i,
                "source": int(paths.session[i]),
                "begin": int(executions.begin[i]),
                "end": int(executions.end[i]),
                "tid": int(executions.tid[i]),
                "comm": executions.comm[i],
                "label": executions.label[i],
                "cluster": cluster,
                "weak": bool(clusters.weak[i]) if clustered else False,
                "pair": pair,
                "anomalous": bool(outliers.anomalous[i]) if judged else False,
                "excess": excess,
                "score": number(float(outliers.score[i])) if judged else None,
                "p_value": number(float(outliers.p_value[i])) if judged else None,
                "paper": bool(outliers.paper[i]) if judged else False,
                "symbol": _symbol_name(comparison, int(outliers.symbol[i])) if judged else None,
                "lossy": bool(paths.lossy[i]),
            }
        )
    return rows


def _symbol_name(comparison: Analysis, code: int) -> str:
    return "total" if code < 0 else str(_alphabet(comparison)[code].name)


def _whole(test: StateTest) -> dict[str, Any]:
    return {
        "normal_mean": number(test.normal_mean),
        "sample_mean": number(test.sample_mean),
        "effect": number(test.effect),
        "effect_low": number(test.effect_low),
        "effect_high": number(test.effect_high),
        "p_value": number(test.p_value),
    }


def _state(test: StateTest) -> dict[str, Any]:
    return {
        "state": test.name,
        "role": "" if test.symbol is None else test.symbol.role,
        "normal_mean": number(test.normal_mean),
        "sample_mean": number(test.sample_mean),
        "normal_std": number(test.normal_std),
        "effect": number(test.effect),
        "effect_low": number(test.effect_low),
        "effect_high": number(test.effect_high),
        "cliffs_delta": number(test.cliffs_delta),
        "median_ratio": number(test.median_ratio),
        "p_value": number(test.p_value),
        "flagged": test.flagged,
        "level": test.level,
        "new_state": test.new_state,
        "average_threshold": number(test.average_threshold),
        "average_fires": test.average_fires,
        "normal_above": number(test.normal_above),
        "sample_above": number(test.sample_above),
        "probability_threshold": number(test.probability_threshold),
        "probability_fires": test.probability_fires,
    }


def _members(clusters: Clustering) -> list[I64]:
    """List the executions of every cluster: there may be as many as executions."""
    order = np.argsort(clusters.labels, kind="stable")
    bounds = np.searchsorted(clusters.labels[order], np.arange(clusters.size + 1))
    return [order[first:after] for first, after in pairwise(bounds.tolist())]


def _cluster_rows(clusters: Clustering, paths: PathSet) -> dict[str, Any]:
    duration = paths.executions.end - paths.executions.begin
    rows = []
    for k, mine in enumerate(_members(clusters)):
        rows.append(
            {
                "cluster": k,
                "size": len(mine),
                "weak": int(clusters.weak[mine].sum()),
                "mean_duration": number(float(duration[mine].mean())) if len(mine) else None,
            }
        )
    return {
        "method": clusters.method,
        "notes": list(clusters.notes),
        "clusters": rows,
        "ordering": [int(i) for i in clusters.ordering],
        "reachability": [number(float(r)) for r in clusters.reachability],
    }


def _clusters(comparison: Analysis) -> dict[str, Any]:
    pairs = comparison.pairs
    return {
        "normal": _cluster_rows(comparison.normal_clusters, comparison.normal),
        "sample": _cluster_rows(comparison.sample_clusters, comparison.sample),
        "pairs": [
            {
                "sample": k,
                "normal": int(pairs.pair[k]),
                "score": number(float(pairs.score[k])),
                "weak": bool(pairs.weak[k]),
                "novel": bool(pairs.novel[k]),
            }
            for k in range(len(pairs.pair))
        ],
        "notes": list(pairs.notes),
    }


def _finding(comparison: Analysis, finding: Finding) -> dict[str, Any]:
    return {
        "execution": comparison.sample.executions.id[finding.execution],
        "position": finding.execution,
        "rank": finding.rank,
        "kind": finding.kind,
        "state": finding.symbol.state.name,
        "role": finding.symbol.role,
        "detail": finding.detail,
        "tid": finding.tid,
        "comm": finding.comm,
        "begin": finding.begin,
        "end": finding.end,
        "columns": list(finding.columns),
        "observed": number(finding.observed),
        "expected": number(finding.expected),
        "contribution": number(finding.contribution),
        "share": number(finding.share),
        "probability": number(finding.probability),
        "before": finding.before,
        "parts": [{"kind": kind, "contribution": number(float(ns))} for kind, ns in finding.parts],
        "abnormal": finding.abnormal,
        "p": number(finding.p),
        "offset": number(finding.offset),
        "iterations": number(finding.iterations),
        "normal_iterations": [number(value) for value in finding.normal_iterations],
    }
