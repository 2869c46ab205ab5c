"""What ``critpath trend`` says: the latest change first, then each, then what is to know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from critpath.schema.parameters.ab import TRENDS
from critpath.schema.parameters.text import ANSWERS
from critpath.units import format_share, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from critpath.documents.trend import TrendChange, TrendCommit, TrendDocument

VERDICTS: Final = {
    "slower": "slower",
    "slower_in_part": "slower in part",
    "not_slower": "not slower",
    "faster": "faster",
    "undecided": "undecided",
    "invalid": "invalid",
    "ok": "nothing slower",
    "anomaly": "slower",
    "by_machine": "slower, by the machine",
    "inconclusive": "inconclusive",
}
_CHIPS: Final = {
    "slower": "SLOWER",
    "faster": "FASTER",
    "no_change": "NO CHANGE",
    "too_few": "TOO FEW",
    "steps": "STEP BY STEP",
}


def describe_trend(document: TrendDocument) -> list[str]:
    """Give the answer, then every change, then what else is to know."""
    latest = max(
        ((change, one.kind) for one in document.series for change in one.changes),
        key=lambda found: found[0].at,
        default=None,
    )
    word = name_verdict(document)
    commits = plural(len(document.commits), "commit")
    if latest is not None:
        first = f"{word} SINCE {latest[0].commit}: {_of(latest[1])}{describe_change(latest[0])}"
    elif document.verdict == "too_few":
        first = f"{word}: {commits}; from {TRENDS.enough} on a change can be shown"
    elif document.verdict == "steps":
        first = (
            f"{word}: each of {commits} was held against another one, so that its own answer is "
            "the test; errors of levels add up, and none is tested"
        )
    else:
        first = f"{word}: nothing became slower or faster over {commits}"
    return [first, *_others(document, latest), *_newest(document)]


def _others(document: TrendDocument, latest: tuple[TrendChange, str] | None) -> Iterator[str]:
    for one in document.series:
        for change in one.changes:
            if latest is None or change is not latest[0]:
                what = "slower" if change.after > change.before else "faster"
                yield f"{what} since {change.commit}: {_of(one.kind)}{describe_change(change)}"


def _newest(document: TrendDocument) -> Iterator[str]:
    if document.commits:
        newest = document.commits[-1]
        yield f"the newest, {newest.name}: {describe_commit(newest)}"


def name_verdict(document: TrendDocument) -> str:
    """Return the answer's word."""
    return _CHIPS[document.verdict]


def describe_commit(commit: TrendCommit) -> str:
    """Say what was found of a commit, beside what."""
    against = f", beside {commit.base}" if commit.base else ""
    return f"{VERDICTS.get(commit.verdict, commit.verdict)}{against}"


def describe_change(change: TrendChange) -> str:
    """Say by how much, and how sure."""
    ratio = change.after / change.before
    what = f"{ratio:.1f} times as long" if ratio >= ANSWERS.times else ""
    what = what or f"{format_share(abs(ratio - 1))} {'more' if ratio > 1 else 'less'} time"
    return f"{what} than the commits before; by chance in {format_share(change.p)} of such series"


def describe_level(level: float | None) -> str:
    """Return a commit's time over that of the first base."""
    if level is None:
        return "–"
    if level >= ANSWERS.times:
        return f"{level:.1f} times"
    shown = f"{100 * (level - 1):+.1f} %"
    return "0.0 %" if shown[1:] == "0.0 %" else shown.replace("-", "−")


def describe_time(when: str) -> str:
    """Return when an answer was given, as files are named, for a reader."""
    return re.sub(r"^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)\d\dZ$", r"\1-\2-\3 \4:\5", when)


def _of(kind: str) -> str:
    return f"{kind}: " if kind else ""
