"""What a calibration comes to: its reasons, the answer first.

A function is one sentence, named after its subject; its arguments are the facts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from critpath.units import format_ns, format_share, format_span, plural, round_up

if TYPE_CHECKING:
    from critpath.documents import FalseAlarmsEntry, FloorEntry, RateEntry
    from critpath.model import CompareSettings


def describe_left(seconds: float) -> str:
    """Return how long a calibration may still go on, "" where nothing bounds it."""
    return f", at most {format_span(max(seconds, 1))} more" if math.isfinite(seconds) else ""


def format_rate(rate: RateEntry) -> str:
    """Render a rate with its interval, for example ``0.7 % (0.1 to 2.4 %)``."""
    low, high = (format_share(x).removesuffix(" %") for x in (rate.low, rate.high))
    return f"{format_share(rate.share)} ({low} to {high} %)"


def alarm_rate(found: FalseAlarmsEntry, raised_floor: float | None, outcome: str) -> str:
    """How often equal sets alarm; ``raised_floor`` is one that the recordings ask for."""
    sentence = (
        f"at {found.sample} runs compare alarms in {format_rate(found.alarms)} of "
        f"comparisons of equal sets"
    )
    if raised_floor is not None:
        sentence += f", with the floor of {format_share(raised_floor)} that they ask for"
    return f"{sentence}{outcome}"


def by_rule(rule: str) -> str:
    """End the answer for a rule whose smallest change is not known."""
    return f" by the {rule} rule"


def smallest_change(shift: float | None, mean: float) -> str:
    """End the answer with the smallest slowdown that shows (ns), None for none."""
    if shift is None:
        return "; no slowdown, however large, would show"
    return (
        f"; the smallest slowdown it shows is {format_share(shift / mean)} "
        f"({format_ns(shift, sign=True)})"
    )


def across_recordings(found: FalseAlarmsEntry, alpha: float) -> str:
    """How often a recording alarms against the others."""
    more = ""
    if found.alarms.low <= alpha < found.alarms.share:
        more = f", more than {format_share(alpha)}; more recordings tell if by chance"
    return (
        f"a recording held against the others ({found.sample} runs of it): "
        f"alarms in {format_rate(found.alarms)}{more}; {plural(found.units, 'recording')} "
        "are all that this is known from"
    )


def too_many_alarms(
    found: FalseAlarmsEntry, settings: CompareSettings, floor: FloorEntry, *, has_floor: bool
) -> str:
    """Equal sets alarm more often than the level promises, and what helps."""
    where = "shuffled runs" if found.kind == "shuffled" else "recordings"
    sentence = (
        f"equal {where} alarm in {format_rate(found.alarms)} at {found.sample}, more than "
        f"{format_share(settings.alpha)}"
    )
    better = found.recommended
    if better is not None and floor.recommended is not None and better.low <= settings.alpha:
        least = f"{100 * round_up(floor.recommended):g} %"
        return f"{sentence}: a floor of {least} leaves {format_share(better.share)}"
    if not has_floor:
        return f"{sentence}: use --rule gate"
    if found.kind == "sessions":
        return (
            f"{sentence}: record both sides in alternation (critpath record --interleave A B), "
            "or raise the floor"
        )
    return f"{sentence}: raise the floor"


def advised_floor(settings: CompareSettings, floor: FloorEntry) -> str:
    """What recordings differ by, and the floor that follows."""
    if floor.spread is None or floor.spread_high is None:
        return (
            "what sessions differ by cannot be known from one recording: make three or more, "
            "at different times, before setting a floor"
        )
    spread = (
        f"recordings differ by {format_share(floor.spread)} of the mean (sd of "
        f"{plural(len(floor.recordings), 'recording')}; with 95 % confidence below "
        f"{format_share(floor.spread_high)})"
    )
    if floor.recommended is None:
        return f"{spread}: too few to recommend a floor, make one more"
    advice = f"{spread}: floor {format_share(floor.recommended)} recommended"
    if floor.recommended <= settings.floor:
        return f"{advice}, {format_share(settings.floor)} is in force"
    return advice


def blunt_floor() -> str:
    """The floor is so high that it hides most slowdowns."""
    return (
        "a floor this high hides most slowdowns: record both sides in alternation "
        "(critpath record --interleave A B), which shares the differences between "
        "sessions, or on a quieter machine"
    )
