"""The document of an exploration (``critpath explore --json``)."""

from __future__ import annotations

from collections import Counter

import numpy as np

from critpath import __version__
from critpath.documents import EXPLORATION_FORMAT, ExplorationDocument
from critpath.documents.base import narrow, number
from critpath.documents.exploration import ClusterShare, ConditionEntry, QuestionEntry
from critpath.model.exploration import Exploration, FactTable
from critpath.text.exploring import describe_clusters


def exploration_document(exploration: Exploration, specification: str) -> ExplorationDocument:
    """Build the versioned document of an exploration.

    Parameters
    ----------
    exploration : Exploration
    specification : str
        What an execution is.

    Returns
    -------
    ExplorationDocument
        Durations in ns, shares of 1.
    """
    table = exploration.facts
    labels = Counter(table.labels[code] for code in table.label.tolist())
    return ExplorationDocument(
        format=EXPLORATION_FORMAT,
        version=__version__,
        sources=list(table.sources),
        specification=specification,
        # What documents have called it since their first version.
        noun="request"
        if "service" in table.facts
        else "slice"
        if table.noun == "slice"
        else "execution",
        executions=len(table),
        labels=dict(labels),
        fields=list(table.facts),
        questions=[
            narrow(
                QuestionEntry,
                one,
                conditions=[narrow(ConditionEntry, each) for each in one.ranked],
                part=[narrow(ConditionEntry, each) for each in one.parts],
            )
            for one in exploration.questions
        ],
        notes=list(exploration.notes),
        clusters=_clusters(table),
    )


def _clusters(table: FactTable) -> list[ClusterShare]:
    """Return labels and types, those first that wait most for a cpu, all together."""
    facts = table.facts
    if "idle.mean" not in facts:  # nothing is known of the paths
        return []
    none = np.zeros(len(table), np.int64)
    of = facts["cluster"].values if "cluster" in facts else none
    waits = facts["time.WAIT_CPU"].values if "time.WAIT_CPU" in facts else none
    latency = table.end - table.begin
    words = describe_clusters(table)
    found = []
    pairs, place = np.unique(np.stack([table.label, of]), axis=1, return_inverse=True)
    for at, (label, cluster) in enumerate(pairs.T.tolist()):
        mine = place.ravel() == at
        idle, apart = (facts[name].values[mine] for name in ("idle.mean", "idle.variance"))
        found.append(
            ClusterShare(
                label=table.labels[int(label)],
                cluster=int(cluster),
                words=words.get(int(cluster), ""),
                executions=int(mine.sum()),
                latency=number(float(np.median(latency[mine]))),
                idle_mean=number(float(idle.mean())),
                idle_variance=number(float(apart.mean())),
                cpu=number(float(waits[mine].mean())),
                cpu_variance=number(float(waits[mine].var())),
            )
        )
    return sorted(found, key=lambda c: (-(c.cpu or 0.0) * c.executions, c.label, c.cluster))
