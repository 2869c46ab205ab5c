"""What ``critpath ab`` says: the verdict's sentence first, then what else is to know.

A function is one sentence, named after its subject; its arguments are the facts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from critpath.schema.parameters.ab import EVIDENCE
from critpath.schema.parameters.text import ANSWERS
from critpath.units import NS_PER_S, format_ns, format_share, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from critpath.documents import AbDocument, AbMachine, AbPlan, AbResult, AbTail, Sides

_SIDES: Final = "AB"
_SHOWN: Final = 10  # technical: revisions
_MOST_TIMES: Final = 10  # technical: a limit farther off says nothing


def verdict(document: AbDocument, decides: AbResult, needed: int | None = None) -> str:
    """Give the answer; `decides` is the evidence that it rests on.

    `needed` is about how many blocks would show either.
    """
    if document.verdict == "undecided":
        return _undecided(document, decides, needed)
    changed = _change(decides, _time_name(document, decides))
    end = f"{plural(document.blocks, 'block')}, seed {document.seed}"
    if document.verdict == "slower":
        return (
            f"SLOWER: B takes {changed}: more than {_percent(document.floor / 2)}, at most "
            f"{_percent(document.alpha)} of such runs say so wrongly; {end}"
        )
    if document.verdict == "slower_in_part":
        tail = max(decides.tail, key=lambda tail: tail.e)
        return (
            f"SLOWER IN PART: {format_share(tail.above_b)} of B's runs are above "
            f"{_ms(tail)}, {format_share(tail.above_a)} of A's; the typical run takes "
            f"{_ratio(decides, _time_name(document, decides))}; {end}"
        )
    few = (
        f"at most {_percent(decides.extra_slow)} more of its runs are slow ones (rarer "
        "changes would not have shown)"
    )
    if document.statistic == "min":
        few += "; the least time of a block says nothing of rare slow runs"
    if document.verdict == "faster":
        return f"FASTER: B typically takes {changed}; {few}; {end}"
    return (
        f"NOT SLOWER: B typically takes {changed}: at most {_percent(document.floor)} more; {few}; "
        f"{end}"
    )


def _undecided(document: AbDocument, decides: AbResult, needed: int | None) -> str:
    floor = document.floor
    said = f"UNDECIDED: after {plural(document.blocks, 'block')}"
    if document.blocks:
        said += f" B takes {_change(decides, _time_name(document, decides))}"
    if decides.e.not_slower >= 1 / document.alpha:
        return (
            f"{said}: typically less than {_percent(floor)}; whether more than 20 % more of B's "
            f"runs are slow ones is open; seed {document.seed}"
        )
    said += (
        f": these blocks show neither more than {_percent(floor / 2)} nor less than "
        f"{_percent(floor)}; "
        f"seed {document.seed}"
    )
    high = decides.interval[1]
    # technical: a floor above A's whole time is nobody's
    other = f", or --until {math.ceil(100 * (high - 1))}%" if high and floor < high - 1 < 1 else ""
    if needed is not None:
        rounded = math.ceil(needed / 10) * 10
        return f"{said}. About {plural(rounded, 'block')} would do{other}"
    return f"{said}. More blocks would do{other}" if other else said


def invalid(failures: Sides, blocks: int) -> str:
    """Too many executions failed."""
    return (
        f"INVALID: B failed {plural(failures.b, 'time')}, A {failures.a}, in "
        f"{plural(blocks, 'block')}: what fails cannot be timed; run the command by hand to see "
        "why, or give --failures-are-slow"
    )


def failed(failures: Sides, *, slow: bool) -> str:
    """Say that some executions failed."""
    what = "count as the slowest" if slow else "their blocks do not count"
    return f"A failed {plural(failures.a, 'time')}, B {failures.b}: {what}"


def running_time(result: AbResult, plan: AbPlan, others: float | None) -> str:
    """Say what the time on a cpu shows, beside a verdict by time."""
    words = {
        "slower": f"more than {_percent(plan.floor / 2)} slower",
        "slower_in_part": "slower in part of the runs",
        "not_slower": f"not slower than {_percent(plan.floor)}",
        "faster": "faster",
        "undecided": "not decided",
        "too_few": "not decided",
    }
    waiting = f" ({format_share(others)})" if others is not None else ""
    rest = f"; the rest is waiting, such as for cpus that others had{waiting}"
    said = f"time on a cpu: {_change(result)}: {words[result.verdict]}"
    return said + (rest if result.verdict in {"not_slower", "faster"} else "")


def elapsed_time(result: AbResult, plan: AbPlan, others: float | None) -> str:
    """Say what time from exec to exit shows, beside a verdict by time on a cpu."""
    words = {"slower": "slower, too", "not_slower": f"not slower than {_percent(plan.floor)}, too"}
    shown = words.get(result.verdict, "not decided")
    had = f" ({format_share(others)} of all)" if others is not None else ""
    return (
        f"time from exec to exit: {_change(result)}: {shown}; both commands compute and "
        f"wait for nothing but cpus that others had{had}, so that time on a cpu decides, too"
    )


def label(name: str, result: AbResult) -> str:
    """One kind of execution."""
    name = name or "the others"
    if result.verdict == "too_few":
        return f"{name}: too few, {plural(result.blocks, 'block')} with both"
    shown = result.verdict.replace("_", " ")
    return f"{name}: {shown}: {_change(result)}; {plural(result.blocks, 'block')}"


def late_labels(names: Sequence[str], blocks: int) -> str:
    """Name kinds of executions that were first seen when others could have decided already."""
    shown = ", ".join(name or "the others" for name in names)
    return f"first seen after the first {plural(blocks, 'block')}, so not judged by itself: {shown}"


def tail_not_shown(q: float, blocks: int) -> str:
    """Say that a quantile that was asked for takes more blocks."""
    return f"p{100 * q:g}: not decided: about {plural(blocks, 'block')} would do"


def tail_bounded(tail: AbTail, extra: float) -> str:
    """How much more often B may exceed a quantile that was asked for."""
    return (
        f"p{100 * tail.q:g}: the share above {_ms(tail)} rose by less than {_percent(extra)} of "
        f"all runs ({format_share(tail.above_a)} of A's, {format_share(tail.above_b)} of B's)"
    )


def drifted(change: float) -> str:
    """Both became slower or faster meanwhile."""
    word = "slower" if change > 0 else "faster"
    return f"both became {format_share(abs(change))} {word} during the run"


def difference_changed(first: float, last: float) -> str:
    """Say that the difference between the two is not the same at the end as at first."""
    return (
        f"the difference itself changed during the run: {_signed(first)} at first, "
        f"{_signed(last)} at the end"
    )


def carried_over(share: float, plan: AbPlan) -> str:
    """Say that what ran before matters, by how much it moves the difference, and what to do."""
    # Of four slots, two of which are B's: in BAAB each A follows a B, in ABBA one of each does.
    moves = f" and moves the difference by about {_signed(-share / 4)}" if plan.slot == 1 else ""
    advice = "--prepare LINE can put it back before each slot"
    if not plan.skip_first and not plan.traced:
        advice += "; --skip-first leaves out the runs that meet it"
    return (
        f"a run right after B takes {_signed(share)} of one right after A: B leaves "
        f"something behind, which blocks do not remove{moves}; {advice}"
    )


def changes_machine(probe: str, change: float) -> str:
    """Say that a fixed piece of work takes another time after B than after A."""
    return (
        f"B changes the machine (frequency, caches, memory traffic): a fixed piece of work "
        f"({probe}) takes {_signed(change)} after B"
    )


def same_command() -> str:
    """Both are the same."""
    return "A/A run: both commands are the same; what differs is the machine"


def coarse_clock() -> str:
    """Half of the blocks have no difference at all."""
    return "half of the blocks have no difference at all: the clock is too coarse for these times"


def stopped(*, by_user: bool) -> str:
    """Say that it was interrupted."""
    what = "Ctrl-C" if by_user else "a signal from outside, such as a job's time limit"
    return f"ended by {what}; what the blocks so far show holds"


def with_tracing(shares: Sequence[float | None], executions: int) -> str:
    """Of what the verdict is where every block was recorded, and what that costs each side."""
    costs = ", ".join(
        f"{side} takes {_signed(share)}"
        for side, share in zip(_SIDES, shares, strict=True)
        if share is not None
    )
    of = f": {costs} of its time without (medians; {executions} runs each without)"
    return "this is of the commands with tracing" + (of if costs else "")


def cause_unknown(why: str) -> str:
    """No blocks can be recorded for the cause."""
    return f"cause not recorded: {why}"


def cause_disagrees(direction: str) -> str:
    """Say that what was recorded afterwards does not show it."""
    return (
        f"the blocks recorded for the cause do not show it ({direction}); the verdict rests on the "
        "blocks without tracing"
    )


def expected(seconds: float, plan: AbPlan, most: float) -> str:
    """How long it may take, before it begins: at most `most` seconds."""
    whole, often = seconds * plan.max_blocks, seconds * EVIDENCE.often
    end = f"up to {plan.max_blocks} blocks, {_span(whole)}"
    if whole > most:
        blocks = max(1, int(most / seconds))
        end = f"up to about {plural(blocks, 'block')}, {_span(most)}"
    # As many blocks as equal commands take.
    end += f"; often {_span(often)}" if often < min(whole, most) else ""
    return end + f"; {plural(plan.slot, 'run')} a slot; seed {plan.seed}"


def tail_takes(q: float, blocks: int) -> str:
    """How many blocks a quantile takes."""
    return f"p{100 * q:g}: about {plural(blocks, 'block')}"


def progress(
    result: AbResult,
    plan: AbPlan,
    seconds: float,
    left: int | None,
    machine: AbMachine,
    wanted: float,
) -> str:
    """Describe the blocks so far; a verdict takes `wanted` of evidence."""
    executions = result.executions.a + result.executions.b
    said = (
        f"block {result.blocks}, {plural(executions, 'run')}, {_span(seconds)}: B takes "
        f"{_change(result)}; slower than {_percent(plan.floor / 2)}: E {_e(result.e.alarm)}; under "
        f"{_percent(plan.floor)}: E {_e(result.e.not_slower)} of {wanted:.0f}"
    )
    if left is not None:
        said += f"; about {plural(left, 'more block')}"
    known = []
    if machine.others_share is not None:
        known.append(f"others {format_share(machine.others_share)} cpu")
    if machine.speed_p90_p10 is not None:
        known.append(f"speed p90/p10 {machine.speed_p90_p10:.2f}")
    return f"{said}; machine: {', '.join(known)}" if known else said


# Bisecting.


def bisect_step(title: str, document: AbDocument) -> str:
    """One revision, held against the good one."""
    shown = document.verdict.replace("_", " ")
    return f"{title}: {shown}: {_change(document.time)}; {plural(document.blocks, 'block')}"


def bisect_floor(floor: float) -> str:
    """Say from where on a revision between the two ends counts as slower."""
    return (
        f"looking for what is slower by more than {_percent(floor / 2)}; less than "
        f"{_percent(floor)} is good"
    )


def bisect_skipped(title: str, why: str) -> str:
    """Say why nothing can be said of a revision."""
    return f"{title}: left out: {why}"


def nothing_to_bisect(good: str, bad: str) -> str:
    """Say that the later revision is not shown to be slower."""
    return f"{bad} is not measurably slower than {good}: there is nothing to bisect"


def slower_since(title: str, document: AbDocument, steps: int, alpha: float) -> str:
    """Give the first slower revision."""
    _, _, rest = document.sentences[0].partition(": ")
    return (
        f"SLOWER SINCE {title}: {rest}; {plural(steps, 'comparison')}, each wrong in at most "
        f"{_percent(alpha)}"
    )


def only_skipped(titles: Sequence[str]) -> str:
    """Say between which revisions nothing is known."""
    return (
        f"UNDECIDED: the first slower revision is one of {len(titles)}, the others of which could "
        f"not be built or are undecided: {'; '.join(titles)}"
    )


def stopped_bisection(titles: Sequence[str]) -> str:
    """Say what is left after Ctrl-C."""
    return (
        f"UNDECIDED: ended by Ctrl-C; the first slower revision is one of {len(titles)}: "
        f"{'; '.join(titles[:_SHOWN])}{'; ...' if len(titles) > _SHOWN else ''}"
    )


def _time_name(document: AbDocument, decides: AbResult) -> str:
    names = {"time": "time", "run": "time on a cpu"}
    if decides in document.labels.values():
        return names.get(document.of, "time" if document.of == "both" else document.of)
    return names.get(document.decided_by, document.decided_by)


def _change(result: AbResult, what: str = "") -> str:
    """Return how much more or less of it B takes than A, and within which limits."""
    low, high = result.interval
    ratio = _ratio(result, what)
    if low is None or high is None:
        return ratio
    if high >= ANSWERS.times:
        most = _MOST_TIMES
        some = [f"at least {low:.2g}"] * (low > 1 / most) + [f"at most {high:.2g}"] * (high < most)
        both = f"{low:.2g} to {high:.2g}"
        ends = f"{both if len(some) > 1 else some[0]} times" if some else "no limit"
    else:
        ends = " to ".join(_signed(end - 1).removesuffix(" %") for end in (low, high)) + " %"
    return f"{ratio} ({ends})"


def _ratio(result: AbResult, what: str = "") -> str:
    ratio = result.ratio
    if ratio is None:
        return "an unknown share" + (f" of A's {what}" if what else "")
    if ratio >= ANSWERS.times:
        count = f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}"  # technical: rounding
        return f"{count} times A's {what}" if what else f"{count} times as much"
    if not what:
        return _signed(ratio - 1)
    return f"{_signed(ratio - 1).lstrip('+-')} {'less' if ratio < 1 else 'more'} {what} than A"


def _signed(share: float) -> str:
    # technical: how a number is rounded
    return f"{100 * share:+.{0 if abs(share) >= 9.995 else 1}f} %"


def _percent(share: float) -> str:
    return f"{round(100 * share, 2):g} %"


def _ms(tail: AbTail) -> str:
    return format_ns(tail.threshold_ms * 1e6)


def _e(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _span(seconds: float) -> str:
    if seconds < 60:
        return format_ns(seconds * NS_PER_S)
    return (
        f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
        if seconds < 600
        else f"{seconds / 60:.0f} min"
    )
