"""The answer in one sentence, and how a document's figures read: shared by renderers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from critpath.text.answer import describe_headline
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

_ALL = 1.05  # a share up to this is all of it: what else there is varies, too


def headline(document: ComparisonDocument) -> str:
    """Return the answer in one line, for example ``OK: No slowdown found in runs``.

    Text of the trace in it is not yet safe to show.
    """
    found = describe_headline(document)
    return f"{found.word}: {found.sentence}"


def further_reasons(document: ComparisonDocument) -> list[str]:
    """Return why, as the tests say it: what stands behind the headline."""
    return list(document.reasons)


def sensitivity(document: ComparisonDocument) -> str | None:
    """Return what change these sets could have shown, None where it is not known."""
    detection = document.detection
    if not detection.enough:
        return (
            f"The smaller set needs {plural(detection.needed, 'execution')} before the test "
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
        executions = plural(few.executions, "execution")
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
    said = f"they do in {rate} of random splits of these executions"
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


def share_of_excess(value: float | None) -> str:
    """Return a cause's share in words, "" where it is no part of a whole.

    What took less time has none, and makes the others' sum larger than 1.
    """
    if value is None or value < 0:
        return ""
    if value > _ALL:
        return "more than the whole excess, as other things took less time"
    return f"{format_share(min(value, 1.0))} of the whole excess"


def main_causes(document: ComparisonDocument, most: int) -> list[CauseEntry]:
    """Return the causes to list: the minor ones not among them, at most `most`."""
    return [cause for cause in document.causes if not cause.minor][:most]


def cause_sentence(cause: CauseEntry) -> str:
    """Return a cause as every report lists it: its sentence, and its share where it has one."""
    part = share_of_excess(cause.share)
    return f"{cause.sentence}: {part}" if part else cause.sentence


def other_causes(document: ComparisonDocument, shown: int) -> str:
    """Return what a list of causes leaves out, in one line; "" where that is nothing.

    Parameters
    ----------
    document : dict
    shown : int
        How many of `main_causes` are listed.
    """
    listed = main_causes(document, shown)
    rest = [cause for cause in document.causes if cause not in listed]
    if not rest:
        return ""
    executions = {position for cause in rest for position in cause.positions}
    total = sum((cause.contribution or 0.0) * len(cause.positions) for cause in rest)
    return (
        f"and {plural(len(rest), 'smaller difference')} in "
        f"{plural(len(executions), 'execution')}, {format_ns(total, sign=True)} in all"
    )


@dataclass(frozen=True)
class Amount:
    """One line of the account: what it is, and how much.

    Attributes
    ----------
    words : str
        For example ``listed``.
    ns : float
        Nanoseconds, exactly.
    shown, share : str
        Rounded so that the parts' figures add up to the whole's, digit by digit; the
        share is "" where the whole is no slow-down, or small beside a part.
    """

    words: str
    ns: float
    shown: str
    share: str


def account(document: ComparisonDocument, shown: int) -> tuple[Amount, tuple[Amount, ...]] | None:
    """Return the whole excess of the executions examined and the parts that make it up."""
    excess = [one.excess for one in document.aligned if one.excess is not None]
    if not excess or len(excess) < len(document.aligned):
        return None
    listed = main_causes(document, shown)
    way = -1 if sum(excess) < 0 else 1
    sums: dict[str, list[float]] = {
        "listed": [_in_all(c) for c in listed if way * _in_all(c) >= 0],
        "that went the other way": [_in_all(c) for c in listed if way * _in_all(c) < 0],
        "in smaller differences": [_in_all(c) for c in document.causes if c not in listed],
    }
    parts = [(words, sum(found)) for words, found in sums.items() if found]
    whole = float(sum(excess))
    parts.append(("unexplained", whole - sum(ns for _, ns in parts)))
    amounts = [ns for _, ns in parts]
    if not all(map(math.isfinite, [whole, *amounts])):
        return None  # only in a file that nobody measured
    scale, unit = _common_unit([whole, *amounts])
    # Rounded once: at a half, twice by two ways would be two figures.
    whole_steps = round(whole / scale * 100)
    times = _adding_up(whole_steps, amounts, scale / 100)
    # What is many times the whole is no share of it.
    sized = whole > 0 and max(map(abs, amounts)) <= _MOST_WHOLES * whole
    shares = _adding_up(100, amounts, whole / 100) if sized else []
    said = [f"{whole_steps / 100:+.2f} {unit}"]
    said += [f"{hundredths / 100:+.2f} {unit}" for hundredths in times]
    of_whole = ["100 %", *(f"{percent} %" for percent in shares)] if shares else [""] * len(said)
    names = [f"in {plural(len(excess), 'execution')} examined", *(words for words, _ in parts)]
    rows = zip(names, [whole, *amounts], said, of_whole, strict=True)
    first, *rest = (Amount(*row) for row in rows)
    return first, tuple(rest)


def account_sentence(document: ComparisonDocument, shown: int) -> str:
    """Return the account as one sentence whose figures add up; "" where there is none."""
    found = account(document, shown)
    if found is None:
        return ""
    whole, parts = found
    said = [f"{p.shown}{f' ({p.share})' if p.share else ''} {p.words}" for p in parts]
    return f"The whole excess, {whole.shown} {whole.words}: {', '.join(said)}."


def _in_all(cause: CauseEntry) -> float:
    return float((cause.contribution or 0.0) * len(cause.positions))


_MOST_WHOLES: Final = 10
_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def _common_unit(amounts: Sequence[float]) -> tuple[float, str]:
    """Return the unit in which the largest amount has a whole digit."""
    largest = max(map(abs, amounts))
    return next((unit for unit in _UNITS if largest >= unit[0]), (1.0, "ns"))


def _adding_up(whole: int, parts: Sequence[float], step: float) -> list[int]:
    """Round parts to whole steps so that they add up to the whole, which is in steps.

    Each is rounded down, and the steps that then lack go to those that lost most.
    """
    floors = [math.floor(part / step) for part in parts]
    lost = sorted(range(len(parts)), key=lambda i: (floors[i] - parts[i] / step, i))
    for i in lost[: max(0, whole - sum(floors))]:
        floors[i] += 1
    return floors


def unexplained(document: ComparisonDocument) -> str:
    """Return what the findings leave over, "" where nothing was examined."""
    rest = [one.unexplained for one in document.aligned if one.unexplained is not None]
    if not rest:
        return ""
    mean = sum(rest) / len(rest)
    where = "each of" if len(rest) > 1 else "in"
    return (
        f"unexplained: {format_ns(mean, sign=True)} {where} "
        f"{plural(len(rest), 'execution')} examined"
    )


def probability(value: float | None) -> str:
    """Return a p-value with as many digits as it carries."""
    if value is None:
        return "-"
    return "<0.0001" if value < 0.0001 else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


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
    return by_excess([row for row in document.executions if row.anomalous])


def findings_of(document: ComparisonDocument, position: int) -> list[FindingEntry]:
    """Return the findings of one sample execution, by rank."""
    mine = [f for f in document.findings if f.position == position]
    return sorted(mine, key=lambda f: f.rank)
