"""Why a verdict is what it is: the reasons of a comparison.

A function is one sentence, named after its subject; its arguments are the facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from critpath.units import format_ns, format_share, plural

if TYPE_CHECKING:
    from critpath.model import Change, Detection, Loss


def lost_events(losses: Sequence[Loss]) -> str:
    """Sum up losses, "" for none."""
    events = sum(loss.events for loss in losses)
    packets = sum(loss.packets for loss in losses)
    parts = [plural(events, "event")] if events else []
    parts += [plural(packets, "packet")] if packets else []
    if losses and not parts:
        parts = [plural(len(losses), "range") + " of the trace"]
    return " and ".join(parts)


def lossy_set(name: str, losses: Sequence[Loss], affected: int, total: int) -> str:
    """A set lost too much for a verdict."""
    return (
        f"{lost_events(losses)} were lost in the {name} set and "
        f"{affected} of {plural(total, 'execution')} overlap a loss"
    )


def small_set(name: str, executions: int, minimum: int) -> str:
    """A set has fewer executions than the settings ask for."""
    return (
        f"the {name} set has {plural(executions, 'execution')}, and {minimum:,} are wanted "
        "(minimum-executions)"
    )


def nothing_decides() -> str:
    """No state has the level error."""
    return "no state decides: every one is at level warn or off"


def nothing_in_common() -> str:
    """The sets share no type of execution."""
    return "no type of execution is in both sets: nothing to compare"


def too_few_executions(alpha: float, needed: int) -> str:
    """The permutation test cannot reach its level."""
    return f"too few executions to decide at alpha {alpha:g}: the smaller set needs {needed}"


def hidden_by_levels() -> str:
    """A baseline refuses what the levels of states let pass."""
    return (
        "the levels of states let this pass a gate, but a baseline takes in only what is slower "
        "in no state at all"
    )


def outlying_executions(count: int, total: int) -> str:
    """Executions of an anomaly stand out."""
    return f"{_of_sample(count, total)} stand out"


def outliers_alone(count: int, total: int) -> str:
    """Executions stand out, and the sets do not differ."""
    return (
        f"{_of_sample(count, total)} ({format_share(count / total)}) are outliers on their own, "
        "which the sets as a whole do not bear out"
    )


def _of_sample(count: int, total: int) -> str:
    return f"{count} of {plural(total, 'sample execution')}"


def within_sessions(share: float) -> str:
    """A change is no larger than what two sessions can differ by."""
    return (
        f"{format_share(share)} is not beyond what two sessions of one program can "
        "differ by: record them with --interleave, or give several normal recordings"
    )


# What a rule flags, or why it flags nothing.


def flagged_by_rule(detection: Detection) -> str:
    """Any rule fires: the largest difference, and how many states it flags."""
    states = [s for s in detection.states if s.flagged and s.level == "error"]
    worst = max(states, key=lambda s: s.effect)
    return f"{format_effect(worst.name, worst.effect)}; {_flagged(detection)}"


def not_flagged_by_rule(detection: Detection) -> str:
    """Any rule fires for nothing."""
    return f"the {detection.rule} rule fires for no state"


def flagged_by_gate(detection: Detection) -> str:
    """The gate fires: the largest change, its type and its p."""
    return f"{format_change(detection.slower[0])}; {_flagged(detection)}"


def not_flagged_by_gate(detection: Detection) -> str:
    """The gate fires for nothing: what is nearest, and what would have shown."""
    faster, shown = _faster(detection), _detectable(detection)
    if detection.slight:
        nearest = f"{_slight(detection.slight[0])}{shown}"
        return f"{faster}; {nearest}" if faster else nearest
    at = f"at alpha {detection.alpha:g}{shown}"
    if all(s.level != "error" for s in detection.states[:-1]):
        total = "the total, which alone decides, is not slower"
        return f"{faster}; {total} {at}" if faster else f"{total} {at}"
    some = any(s.level != "error" for s in detection.states)
    which = "no state that decides" if some else "no state"
    return f"{faster}; {which} is slower {at}" if faster else f"{which} differs {at}"


def format_change(change: Change) -> str:
    """Return what is slower, by how much, in which type, and its p."""
    of = f" of type n{change.kind}" if change.kind >= 0 else ""
    return f"{format_effect(change.name, change.effect)}{of} (p = {change.p_value:.2g})"


def format_effect(name: str, effect: float) -> str:
    """Return by how much a state, or the total, is slower (ns)."""
    return f"{name} is {format_ns(effect, sign=True)} an execution"


def _flagged(detection: Detection) -> str:
    states = [s for s in detection.states if s.flagged and s.level == "error"]
    counted = sum(s.name != "total" for s in states)  # the total is no state
    named = [plural(counted, "state")] if counted else []
    named += ["the total"] if counted < len(states) else []
    return f"flagged by the {detection.rule} rule: {' and '.join(named)}"


def _slight(change: Change) -> str:
    why = (
        f"below the floor of {format_ns(change.floor)}"
        if change.effect < change.floor
        else "by a mean too uncertain to count"
    )
    return f"no state is slower enough: {format_change(change)}, {why}"


def _detectable(detection: Detection) -> str:
    if detection.detectable is None:
        return ""
    mean = detection.states[-1].normal_mean
    share = f" ({format_share(detection.detectable / mean)})" if mean else ""
    size = format_ns(detection.detectable, sign=True)
    where = "mean" if detection.whole is None else "total of what decides"
    return f"; a change of {size}{share} in the {where} would have shown"


def _faster(detection: Detection) -> str:
    """Return by how much the sample is faster, "" where that is below the floor or in doubt."""
    total = detection.states[-1]
    if total.level != "error" or not total.effect_high < -detection.floor:  # False for NaN, too
        return ""
    mean = total.normal_mean
    share = f" ({format_share(total.effect / mean)})" if mean else ""
    of = "" if detection.whole is None else " of what decides"
    ends = " to ".join(format_ns(x, sign=True) for x in (total.effect_low, total.effect_high))
    return (
        f"the sample is faster: the total{of} is {format_ns(total.effect, sign=True)} an execution"
        f"{share}, 95 % interval {ends}"
    )
