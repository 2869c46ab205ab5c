"""The answer in one sentence, and how a document's figures read: shared by renderers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from critpath.text.answer import describe_headline
from critpath.text.page import noun_of
from critpath.text.phrases import KINDS
from critpath.units import NS_PER_S, format_ns, format_share, plural

if TYPE_CHECKING:
    from critpath.documents import (
        AlignedEntry,
        CauseEntry,
        ComparisonDocument,
        DurationTest,
        ExecutionEntry,
        FindingEntry,
        StateEntry,
    )

Ranked = TypeVar("Ranked", "ExecutionEntry", "AlignedEntry")


def headline(document: ComparisonDocument) -> str:
    """Return the answer in one line, for example ``OK: No slowdown found in runs``.

    Text of the trace in it is not yet safe to show.
    """
    found = describe_headline(document)
    return f"{found.title}: {found.sentence}"


def further_reasons(document: ComparisonDocument) -> list[str]:
    """Return why, as the tests say it: what stands behind the headline."""
    return list(document.reasons)


def sensitivity(document: ComparisonDocument) -> str | None:
    """Return what change these sets could have shown, None where it is not known."""
    detection = document.detection
    if not detection.enough:
        return (
            f"Each side needs {plural(detection.needed, noun_of(document, 1))} before the test "
            f"can decide at level {figure(detection.alpha)}."
        )
    if detection.detectable is None:
        return None
    total = next((s for s in document.states if s.state == "total"), None)
    mean = total.normal_mean if total else None
    share = f" ({format_share(detection.detectable / mean)})" if mean else ""
    what = "total of what decides" if detection.whole else "mean duration"
    few = detection.slow_shown
    rare = ""
    if few is not None and few.by is not None:
        executions = plural(few.executions, noun_of(document, 1))
        rare = f", or {format_ns(few.by, sign=True)} in {executions}"
    return (
        f"The smallest change of the {what} that would have shown: "
        f"{format_ns(detection.detectable, sign=True)}{share}{rare}."
    )


def difference(document: ComparisonDocument) -> str | None:
    """Return the difference of the mean durations with its interval, None if unknown."""
    total = next((s for s in document.states if s.state == "total"), None)
    if total is None or None in {total.effect, total.effect_low, total.effect_high}:
        return None
    floor = f"increases below {duration(document.detection.floor)} are not judged."
    whole = document.detection.whole
    if not whole:
        return f"Mean duration: {_with_interval(total)}; {floor}"
    real = f" Mean duration, all states: {_with_interval(whole)}."
    return f"Total of what decides: {_with_interval(total)}; {floor}{real}"


def _with_interval(test: StateEntry | DurationTest) -> str:
    return f"{duration(test.effect, sign=True)} (95 % interval {interval(test)})"


def name_of(document: ComparisonDocument, state: StateEntry) -> str:
    """Return what a table calls a state; of the total, whether that is of some states."""
    if state.state == "total" and document.detection.whole:
        return "total of what decides"
    return state.state


def by_the_paper(document: ComparisonDocument) -> str:
    """Return what the paper's rules say of the states, and what that is worth."""
    fired = [s.state for s in document.states if s.average_fires or s.probability_fires]
    fired = [name for name in fired if name != "total"]
    rate = share(document.detection.paper_false_alarms)
    said = f"they do in {rate} of random splits of these {noun_of(document)}"
    if not fired:
        return f"The paper's rules fire for no state; {said}."
    return f"The paper's rules fire for {plural(len(fired), 'state')}; {said}."


def duration(ns: float | None, *, sign: bool = False) -> str:
    """Return a duration, or a dash where it is undefined."""
    return "-" if ns is None else format_ns(ns, sign=sign)


def kind_of(aligned: AlignedEntry, finding: FindingEntry) -> str:
    """Return how a finding differs, and that normal executions differ as much if they do.

    That is said where enough of them were aligned to tell.
    """
    kind = KINDS.get(finding.kind, finding.kind)
    usual = not finding.abnormal and not aligned.note
    return f"{kind} (not unusual)" if usual else kind


def what_differs(
    aligned: AlignedEntry, finding: FindingEntry, name: Callable[[str], str] = str
) -> str:
    """Return a finding in a few words: state, qualifier, how it differs.

    ``name`` is how names of the trace are to stand in it.
    """
    detail = f" {name(finding.detail)}" if finding.detail else ""
    return f"{finding.state}{detail}, {kind_of(aligned, finding)}"


def place_of(finding: FindingEntry) -> str:
    """Return where a finding begins in the trace, to the microsecond."""
    whole, rest = divmod(int(finding.begin), NS_PER_S)
    return f"{whole}.{rest // 1000:06d} s"


def figure(value: float | None) -> str:
    """Return a plain figure, or a dash where it is undefined."""
    return "-" if value is None else f"{value:g}"


def share(value: float | None) -> str:
    """Return a share as a percentage, or a dash where it is undefined."""
    return "-" if value is None else format_share(value)


def main_causes(document: ComparisonDocument, most: int) -> list[CauseEntry]:
    """Return the causes to list: the minor ones not among them, at most `most`."""
    return [cause for cause in document.causes if not cause.minor][:most]


def unexplained(document: ComparisonDocument) -> str:
    """Return what the findings leave over, "" where nothing was examined."""
    rest = [one.unexplained for one in document.aligned if one.unexplained is not None]
    if not rest:
        return ""
    mean, noun = sum(rest) / len(rest), noun_of(document, 1)
    where = "each of" if len(rest) > 1 else "in"
    return f"unexplained: {format_ns(mean, sign=True)} {where} {plural(len(rest), noun)} examined"


def probability(value: float | None) -> str:
    """Return a p-value with as many digits as it carries."""
    if value is None:
        return "-"
    if value >= 0.995:  # technical: 1.00 reads as certainty of something
        return ">0.99"
    # technical: how a number is rounded
    return "<0.0001" if value < 0.0001 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def p_equals(value: float | None) -> str:
    """Return ``p = 0.0014``, and where chance makes as much most of the time, that in words."""
    shown = probability(value)
    said = f"p {'' if shown[0] in '<>' else '= '}{shown}".replace("<", "< ").replace(">", "> ")
    return f"no difference beyond chance, {said}" if value is not None and value > 0.5 else said


def left_out(count: int, noun: str) -> str:
    """Return the line that says what a table does not show."""
    return f"{plural(count, noun)} left out; the JSON has them all." if count > 0 else ""


def states_by_weight(document: ComparisonDocument) -> list[StateEntry]:
    """Return the states without the total: flagged ones first, then by how much they changed."""
    states = [s for s in document.states if s.state != "total"]
    return sorted(states, key=lambda s: (not s.flagged, -abs(s.effect or 0), s.state))


def flag(state: StateEntry) -> str:
    """Return what a table says of a state that the test flags, "" of others.

    At another level than error, where it decides nothing, that is the level.
    """
    if not state.flagged:
        return ""
    if state.level != "error":
        return state.level
    return "new" if state.new_state else "yes"


def interval(state: StateEntry | DurationTest) -> str:
    """Return the 95 % interval of a state's effect, a dash where there is none."""
    low, high = state.effect_low, state.effect_high
    if low is None or high is None:
        return "-"
    return f"{format_ns(low, sign=True)} to {format_ns(high, sign=True)}"


def mostly(
    document: ComparisonDocument, row: ExecutionEntry, name: Callable[[str], str] = str
) -> str:
    """Return what an anomalous execution's excess is, in a few words.

    ``name`` is how names of the trace are to stand in it.
    """
    findings = findings_of(document, row.position)
    if not findings:
        return name(row.symbol) if row.symbol else ""
    first = findings[0]
    detail = f" {name(first.detail)}" if first.detail else ""
    where = f" in {name(first.comm)}" if first.role else ""
    return f"{first.state}{detail}{where}, {KINDS.get(first.kind, first.kind)}"


def by_excess(rows: Iterable[Ranked]) -> list[Ranked]:
    """Return executions or alignments, the largest excess first, then by position."""
    return sorted(rows, key=lambda r: (-(r.excess or 0), r.position))


def anomalous(document: ComparisonDocument) -> list[ExecutionEntry]:
    """Return the anomalous executions, the largest excess first."""
    return by_excess(document.marked())


def findings_of(document: ComparisonDocument, position: int) -> list[FindingEntry]:
    """Return the findings of one sample execution, by rank."""
    mine = [f for f in document.findings if f.position == position]
    return sorted(mine, key=lambda f: f.rank)
