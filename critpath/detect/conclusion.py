"""What a calibration comes to, in sentences: the answer first, then what to do."""

from __future__ import annotations

from collections.abc import Sequence

from critpath.model import CompareSettings, Detectable, FalseAlarms, FloorAdvice, Rate
from critpath.units import format_ns, format_share, plural, round_up

# The size that the first sentence is about, if the recordings allow it.
_USUAL = 30
# Above this a gate would miss what most people would call a slow-down.
_BLUNT = 0.2


def conclude(
    settings: CompareSettings,
    alarms: Sequence[FalseAlarms],
    detectable: Sequence[Detectable],
    floor: FloorAdvice,
    mean: float,
) -> tuple[str, tuple[str, ...]]:
    """Return the verdict of a calibration and its reasons.

    Parameters
    ----------
    settings : CompareSettings
    alarms : sequence of FalseAlarms
        At least one.
    detectable : sequence of Detectable
    floor : FloorAdvice
    mean : float
        Mean duration (ns).

    Returns
    -------
    verdict : str
        ``alarming`` if the lower bound of a rate of false alarms is above the level.
    reasons : tuple of str
    """
    too_many = [a for a in alarms if a.alarms.low > settings.alpha]
    across = _at(alarms, "sessions")
    doubtful = [a for a in across if a.alarms.share > settings.alpha]
    # What speaks against the gate comes first.
    reasons = [
        *(_too_many(a, settings, floor) for a in too_many),
        *(_across(a, settings) for a in doubtful),
        _answer(settings, alarms, detectable, floor, mean),
        *(_across(a, settings) for a in across if a not in doubtful),
        _about_floor(settings, floor),
    ]
    if (floor.floor or floor.in_force) > _BLUNT and floor.spread is not None:
        reasons.append(
            "a floor this high hides most slow-downs: record both sides in alternation "
            "(critpath record --interleave A B), which shares the differences between "
            "sessions, or on a quieter machine"
        )
    return ("alarming" if too_many else "calibrated"), tuple(reasons)


def _at(alarms: Sequence[FalseAlarms], kind: str) -> list[FalseAlarms]:
    """Return the rate of a kind at 30 executions, or at the largest size there is."""
    mine = [a for a in alarms if a.kind == kind]
    if not mine:
        return []
    sizes = [a.sample for a in mine]
    return [mine[sizes.index(_USUAL if _USUAL in sizes else max(sizes))]]


def interval(rate: Rate) -> str:
    """Render a rate with its interval, for example ``0.7 % (0.1 to 2.4 %)``."""
    low, high = (format_share(x).removesuffix(" %") for x in (rate.low, rate.high))
    return f"{format_share(rate.share)} ({low} to {high} %)"


def _answer(
    settings: CompareSettings,
    alarms: Sequence[FalseAlarms],
    detectable: Sequence[Detectable],
    floor: FloorAdvice,
    mean: float,
) -> str:
    found = (_at(alarms, "shuffled") or _at(alarms, "sessions"))[0]
    sentence = (
        f"at {found.sample} executions compare alarms in {interval(found.alarms)} of "
        f"comparisons of equal sets"
    )
    if settings.rule == "gate" and floor.in_force > settings.floor:
        sentence += f", with the floor of {format_share(floor.in_force)} that they ask for"
    shown = [d for d in detectable if d.kind == "total" and d.sample == found.sample]
    if settings.rule != "gate":
        return f"{sentence} by the {settings.rule} rule"
    if not shown:
        return sentence
    shift = shown[0].shift
    if shift is None:
        return f"{sentence}; no slow-down, however large, would show"
    return (
        f"{sentence}; the smallest slow-down it shows is {format_share(shift / mean)} "
        f"({format_ns(shift, sign=True)})"
    )


def _across(found: FalseAlarms, settings: CompareSettings) -> str:
    more = ""
    if found.alarms.low <= settings.alpha < found.alarms.share:
        more = f", more than {format_share(settings.alpha)}; more recordings tell if by chance"
    return (
        f"a recording held against the others ({found.sample} executions of it): "
        f"alarms in {interval(found.alarms)}{more}; {plural(found.units, 'recording')} "
        "are all that this is known from"
    )


def _too_many(found: FalseAlarms, settings: CompareSettings, floor: FloorAdvice) -> str:
    where = "shuffled executions" if found.kind == "shuffled" else "recordings"
    said = (
        f"equal {where} alarm in {interval(found.alarms)} at {found.sample}, more than "
        f"{format_share(settings.alpha)}"
    )
    better = found.recommended
    if better is not None and floor.floor is not None and better.low <= settings.alpha:
        least = f"{100 * round_up(floor.floor):g} %"
        return f"{said}: a floor of {least} leaves {format_share(better.share)}"
    if settings.rule != "gate":
        return f"{said}: use --rule gate"
    if found.kind == "sessions":
        return (
            f"{said}: record both sides in alternation (critpath record --interleave A B), "
            "or raise the floor"
        )
    return f"{said}: raise the floor"


def _about_floor(settings: CompareSettings, floor: FloorAdvice) -> str:
    if floor.spread is None or floor.spread_high is None:
        return (
            "what sessions differ by cannot be known from one recording: make three or more, "
            "at different times, before setting a floor"
        )
    said = f"recordings differ by {format_share(floor.spread)} of the mean (sd of "
    said += f"{plural(len(floor.sources), 'recording')}; with 95 % confidence below "
    said += f"{format_share(floor.spread_high)})"
    if floor.floor is None:
        return f"{said}: too few to recommend a floor, make one more"
    advice = f"{said}: floor {format_share(floor.floor)} recommended"
    if floor.floor <= settings.floor:
        return f"{advice}, {format_share(settings.floor)} is in force"
    return advice
