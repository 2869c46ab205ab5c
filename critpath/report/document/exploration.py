"""The document of an exploration (``critpath explore --json``)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import numpy as np

from critpath import __version__
from critpath.documents import EXPLORATION_FORMAT, ExplorationDocument
from critpath.documents.base import number
from critpath.documents.exploration import (
    AlsoEntry,
    ClusterShare,
    ConditionEntry,
    QuestionEntry,
    ShareEntry,
    StepEntry,
)
from critpath.model.exploration import Exploration, Fact, FactTable, Question, Ranked, Share, Test
from critpath.text.exploring import (
    also_text,
    command_of,
    condition_text,
    describe_question,
    small_print,
)


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
        noun=cast("Literal['execution', 'request', 'slice']", table.noun),
        executions=len(table),
        labels=dict(labels),
        fields=list(table.facts),
        questions=[_question(one, table) for one in exploration.questions],
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
    found = []
    pairs, place = np.unique(np.stack([table.label, of]), axis=1, return_inverse=True)
    for at, (label, cluster) in enumerate(pairs.T.tolist()):
        mine = place.ravel() == at
        idle, apart = (facts[name].values[mine] for name in ("idle.mean", "idle.variance"))
        found.append(
            ClusterShare(
                label=table.labels[int(label)],
                cluster=int(cluster),
                executions=int(mine.sum()),
                latency=number(float(np.median(latency[mine]))),
                idle_mean=number(float(idle.mean())),
                idle_variance=number(float(apart.mean())),
                cpu=number(float(waits[mine].mean())),
                cpu_variance=number(float(waits[mine].var())),
            )
        )
    return sorted(found, key=lambda c: (-(c.cpu or 0.0) * c.executions, c.label, c.cluster))


def _question(question: Question, table: FactTable) -> QuestionEntry:
    return QuestionEntry(
        given=[StepEntry(condition=text, executions=n) for text, n in question.given],
        what=question.what,
        bound=None if math.isnan(question.bound) else number(question.bound),
        label=question.label,
        executions=question.executions,
        selected=question.selected,
        answer=question.outcome,
        sentences=list(describe_question(question, table)[1:]),
        small_print=list(small_print(question)),
        conditions=[_condition(one, table.facts) for one in question.ranked],
        part=[_condition(one, table.facts) for one in question.part],
        looked=question.looked,
        rare=question.rare,
        left_out=question.left_out,
        shifts=question.shifts,
        exact=question.exact,
    )


def command_text(tests: Sequence[Test], facts: Mapping[str, Fact]) -> str:
    """Return one or two conditions as ``--given`` takes them."""
    return " and ".join(command_of(test, facts) for test in tests)


def _condition(one: Ranked, facts: Mapping[str, Fact]) -> ConditionEntry:
    difference, *around = one.difference
    ratio, *about = one.ratio
    return ConditionEntry(
        condition=command_text(one.tests, facts),
        words=condition_text(one.tests, facts),
        known=one.known,
        having=_share(one.having),
        without=_share(one.without),
        difference=difference,
        difference_interval=list(around),
        ratio=ratio,
        ratio_interval=list(about),
        z=one.z,
        p=None if math.isnan(one.p) else one.p,
        also=[AlsoEntry(condition=command_text(t, facts), others=other) for t, other in one.also],
        also_words=also_text(one, facts),
    )


def _share(one: Share) -> ShareEntry:
    return ShareEntry(count=one.count, of=one.of, share=one.share, interval=[one.low, one.high])
