"""What ``critpath trend --format json`` writes, as types."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from critpath.documents.base import Maybe, MaybePair, Number, Part, doc

TREND_FORMAT: Final = "critpath/trend/1"


class TrendCommit(Part):
    """A kept answer of a commit."""

    name: Annotated[str, doc("the commit, as the file or directory is named")]
    when: Annotated[str, doc("the time that its name begins with; '' for none")]
    base: Annotated[str, doc("what it was held against; '' where the name does not say")]
    verdict: Annotated[str, doc("as its answer has it, such as not_slower or anomaly")]
    exit: Annotated[int, doc("exit code that goes with it")]
    sentence: Annotated[str, doc("its answer in words; '' for a comparison")]


class TrendChange(Part):
    """A change of a series."""

    commit: Annotated[str, doc("the first commit after it")]
    at: Annotated[int, doc("which of the commits that is, counted from 0")]
    before: Annotated[Number, doc("median level of the commits before it, since the last change")]
    after: Annotated[Number, doc("median level from it to the next change")]
    p: Annotated[Number, doc("chance of so great a change where there is none")]


class TrendSeries(Part):
    """The commits' levels, of everything or of one kind of run."""

    kind: Annotated[str, doc("kind of run; '' for all")]
    levels: Annotated[
        list[Maybe], doc("per commit, its time over that of the first base; null: not known")
    ]
    intervals: Annotated[list[MaybePair], doc("per commit, what the level is at least and at most")]
    changes: Annotated[list[TrendChange], doc("where it changes; [] where that was not tested")]


class TrendDocument(Part):
    """The answers of commits, in order."""

    format: Annotated[Literal["critpath/trend/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    verdict: Annotated[
        Literal["slower", "faster", "no_change", "too_few", "steps"],
        doc("the latest change; steps: each commit was held against another, so none is tested"),
    ]
    exit: Annotated[int, doc("1 where the latest change, or the newest answer, is slower")]
    lines: Annotated[list[str], doc("the answer in words, and what else is to know")]
    commits: Annotated[list[TrendCommit], doc("in order of their names")]
    series: Annotated[list[TrendSeries], doc("all first, then each kind")]
