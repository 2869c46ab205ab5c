"""From the kept answers of commits to where they became slower or faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from critpath import __version__
from critpath.documents import AbDocument, ComparisonDocument
from critpath.documents.trend import (
    TREND_FORMAT,
    TrendChange,
    TrendCommit,
    TrendDocument,
    TrendSeries,
)
from critpath.errors import CODE_BY_VERDICT, EXIT_ANOMALY, EXIT_INCONCLUSIVE, EXIT_OK
from critpath.schema.parameters.ab import TRENDS
from critpath.stats.change_points import find_change_points
from critpath.text import trend as text

Answer = AbDocument | ComparisonDocument
# Of a kind: B's time over A's, what it is at least and at most.
_Ratio = tuple[float, float | None, float | None]


class Named(NamedTuple):
    """What the name of a kept answer says: when, beside what, of which commit; '' for nothing."""

    when: str
    base: str
    commit: str


def find_trend(answers: Sequence[tuple[Named, Answer]]) -> TrendDocument:
    """Return what commits' answers come to.

    `answers`: in order of time.  The level of a commit is that of what it was held against
    times what it takes of its time.  Levels against one base have independent errors, so that
    changes can be tested; where each commit was held against the one before they add up, and every
    answer is the test of its own step.
    """
    commits = [_commit(name, answer) for name, answer in answers]
    # One kind of time for all: that on a cpu where every answer may rest on it.
    running = all(
        isinstance(answer, AbDocument) and (answer.computes or answer.of == "run")
        for _, answer in answers
    )
    ratios = [_ratios(answer, running=running) for _, answer in answers]
    bases = {commit.base for commit in commits}
    kinds = ["", *sorted({kind for found in ratios for kind in found if kind})]
    series = [_series(kind, commits, ratios) for kind in kinds]
    if len(bases) == 1:
        for one in series:
            one.changes = _changes(one, commits)
    known = [level for level in series[0].levels if level is not None]
    latest = max(
        (change for one in series for change in one.changes), key=lambda c: c.at, default=None
    )
    verdict: Any = "no_change"
    if len(bases) > 1:
        verdict = "steps"
    elif latest is not None:
        verdict = "slower" if latest.after > latest.before else "faster"
    elif len(known) < TRENDS.enough:
        verdict = "too_few"
    code = EXIT_INCONCLUSIVE if verdict == "too_few" else EXIT_OK
    if verdict == "slower" or (commits and commits[-1].exit == EXIT_ANOMALY):
        code = EXIT_ANOMALY
    document = TrendDocument(
        format=TREND_FORMAT,
        version=__version__,
        verdict=verdict,
        exit=code,
        lines=[],
        commits=commits,
        series=series,
    )
    document.lines = text.describe_trend(document)
    return document


def _commit(name: Named, answer: Answer) -> TrendCommit:
    return TrendCommit(
        name=name.commit,
        when=name.when,
        base=name.base,
        verdict=answer.verdict,
        exit=answer.exit if isinstance(answer, AbDocument) else CODE_BY_VERDICT[answer.verdict],
        sentence=answer.sentences[0] if isinstance(answer, AbDocument) else "",
    )


def _ratios(answer: Answer, *, running: bool) -> dict[str, _Ratio]:
    """Return what each kind takes of the time before; of all under ''."""
    if isinstance(answer, AbDocument):
        whole = answer.counted or (answer.running if running else answer.time)
        every = {"": whole, **answer.labels}
        return {
            kind: (of.ratio, of.interval[0], of.interval[1])
            for kind, of in every.items()
            if of.ratio
        }
    pairs = [("", s.normal_mean, s.sample_mean) for s in answer.states if s.state == "total"]
    if answer.pictures:
        pairs += [(k.label, k.mean[0] or 0, k.mean[1] or 0) for k in answer.pictures.kinds]
    return {kind: (b / a, None, None) for kind, a, b in reversed(pairs) if a and b}


def _series(
    kind: str, commits: Sequence[TrendCommit], ratios: Sequence[dict[str, _Ratio]]
) -> TrendSeries:
    levels: dict[str, float] = {}
    found = TrendSeries(kind=kind, levels=[], intervals=[], changes=[])
    for commit, ratio in zip(commits, ratios, strict=True):
        level = levels.get(commit.base, 1.0)
        own = ratio.get(kind)
        if own is None:
            found.levels.append(None)
            found.intervals.append([None, None])
            continue
        levels[commit.name] = level * own[0]
        found.levels.append(level * own[0])
        found.intervals.append([end if end is None else level * end for end in own[1:]])
    return found


def _changes(series: TrendSeries, commits: Sequence[TrendCommit]) -> list[TrendChange]:
    places = [at for at, level in enumerate(series.levels) if level]
    logs = np.array([math.log(series.levels[at] or 1.0) for at in places])
    found = find_change_points(logs)
    ends = [0, *(change.at for change in found), len(places)]
    medians = [math.exp(float(np.median(logs[a:b]))) for a, b in pairwise(ends) if b > a]
    return [
        TrendChange(
            commit=commits[places[change.at]].name,
            at=places[change.at],
            before=medians[number],
            after=medians[number + 1],
            p=change.p,
        )
        for number, change in enumerate(found)
    ]
