"""The verdict of a comparison, and the sentences that say why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.model import Bool, Change, Detection, Loss, Outliers
from critpath.units import format_ns, format_share, plural

# A set that lost more of its executions than this cannot speak for the others.
LOSSY_SHARE = 0.05
# Share of the mean that two sessions of one program can differ by: with a per-session
# deviation of 5 %, a floor of 10 % holds the false alarms at 0 to 1.3 %
# (docs/evaluation-simulated.md).
APART = 0.10


def describe_losses(losses: Sequence[Loss]) -> str:
    """Return what was lost in words, "" for nothing."""
    events = sum(loss.events for loss in losses)
    packets = sum(loss.packets for loss in losses)
    parts = [plural(events, "event")] if events else []
    parts += [plural(packets, "packet")] if packets else []
    if losses and not parts:
        parts = [plural(len(losses), "range") + " of the trace"]
    return " and ".join(parts)


def decide(
    detection: Detection,
    outliers: Outliers,
    normal_lossy: Bool,
    sample_lossy: Bool,
    losses: tuple[Sequence[Loss], Sequence[Loss]],
    *,
    apart: bool = False,
    minimum: int = 0,
    unlike: Sequence[str] = (),
    part: str = "",
) -> tuple[str, tuple[str, ...]]:
    """Return the verdict and its reasons.

    Parameters
    ----------
    detection : Detection
        Decides between ``ok`` and ``anomaly``.
    outliers : Outliers
        Named in the reasons; alone they make no anomaly, since one execution in a
        few is an outlier of any healthy set.
    normal_lossy, sample_lossy : bool arrays
        Executions whose window overlaps a loss.
    losses : (losses of the normal set, of the sample set)
    apart : bool
        Each set is one session, and not the same: what sessions differ by is unknown.
    minimum : int
        Fewest executions of either set that a verdict may rest on.
    unlike : sequence of str
        Differences between the sets' surroundings that no verdict may rest on.
    part : str
        What `critpath.detect.circumstances.partly` says: it qualifies an anomaly.

    Returns
    -------
    verdict : str
        ``ok``, ``anomaly`` or ``inconclusive``.
    reasons : tuple of str
        One sentence each, the decisive one first.
    """
    reasons: list[str] = []
    marked = outliers.anomalous
    for name, lossy, lost in (
        ("normal", normal_lossy, losses[0]),
        ("sample", sample_lossy, losses[1]),
    ):
        affected = int(lossy.sum())
        matters = affected > LOSSY_SHARE * len(lossy)
        if name == "sample":
            matters = matters or bool(np.any(lossy & marked))
        if matters:
            reasons.append(
                f"{describe_losses(lost)} were lost in the {name} set and "
                f"{affected} of {plural(len(lossy), 'execution')} overlap a loss"
            )
    reasons += unlike
    reasons += [
        f"the {name} set has {plural(len(lossy), 'execution')}, and {minimum:,} are wanted "
        "(minimum-executions)"
        for name, lossy in (("normal", normal_lossy), ("sample", sample_lossy))
        if len(lossy) < minimum
    ]
    if reasons:
        return "inconclusive", tuple(reasons)
    if not any(s.level == "error" for s in detection.states):
        return "ok", ("no state decides: every one is at level warn or off",)
    if not detection.enough and detection.rule == "gate":
        what = f"too few executions to decide at alpha {detection.alpha:g}"
        if not detection.needed:
            return "inconclusive", ("no type of execution is in both sets: nothing to compare",)
        return "inconclusive", (f"{what}: the smaller set needs {detection.needed}",)
    count = int(marked.sum())
    standing_out = f"{count} of {plural(len(marked), 'sample execution')}"
    if detection.flagged:
        doubted = _doubted(detection, apart=apart)
        doubted += (part,) if part else ()
        return "anomaly", (_slower(detection), f"{standing_out} stand out", *doubted)
    reasons.append(_not_slower(detection))
    if count:
        reasons.append(
            f"{standing_out} ({format_share(count / len(marked))}) are outliers on their own, "
            "which the sets as a whole do not bear out"
        )
    return "ok", tuple(reasons)


def _slower(detection: Detection) -> str:
    states = [s for s in detection.states if s.flagged and s.level == "error"]
    counted = sum(s.name != "total" for s in states)  # the total is no state
    named = [plural(counted, "state")] if counted else []
    named += ["the total"] if counted < len(states) else []
    flagged = f"flagged by the {detection.rule} rule: {' and '.join(named)}"
    if detection.rule != "gate":
        worst = max(states, key=lambda s: s.effect)
        return f"{worst.name} is {format_ns(worst.effect, sign=True)} an execution; {flagged}"
    return f"{told(detection.slower[0])}; {flagged}"


def told(change: Change) -> str:
    """Return a change in words: what, by how much, in which type, and its p."""
    of = f" of type n{change.kind}" if change.kind >= 0 else ""
    size = format_ns(change.effect, sign=True)
    return f"{change.name} is {size} an execution{of} (p = {change.p_value:.2g})"


def _doubted(detection: Detection, *, apart: bool) -> tuple[str, ...]:
    shares = [c.effect / c.mean for c in detection.slower if c.mean > 0]
    if not apart or not shares or max(shares) >= APART:
        return ()
    said = (
        f"{format_share(max(shares))} is not beyond what two sessions of one program can "
        "differ by: record them with --interleave, or give several normal recordings"
    )
    return (said,)


def _not_slower(detection: Detection) -> str:
    if detection.rule != "gate":
        return f"the {detection.rule} rule fires for no state"
    mean = detection.states[-1].normal_mean
    shown = ""
    if detection.detectable is not None:
        share = f" ({format_share(detection.detectable / mean)})" if mean else ""
        size = format_ns(detection.detectable, sign=True)
        where = "mean" if detection.whole is None else "total of what decides"
        shown = f"; a change of {size}{share} in the {where} would have shown"
    faster = _faster(detection)
    if not detection.slight:
        some = any(s.level != "error" for s in detection.states)
        which = "no state that decides" if some else "no state"
        if all(s.level != "error" for s in detection.states[:-1]):
            which = "the total, which alone decides, is not slower"
            which = f"{faster}; {which}" if faster else which
            return f"{which} at alpha {detection.alpha:g}{shown}"
        if faster:
            return f"{faster}; {which} is slower at alpha {detection.alpha:g}{shown}"
        return f"{which} differs at alpha {detection.alpha:g}{shown}"
    most = detection.slight[0]
    why = (
        f"below the floor of {format_ns(most.floor)}"
        if most.effect < most.floor
        else "by a mean too uncertain to count"
    )
    said = f"no state is slower enough: {told(most)}, {why}{shown}"
    return f"{faster}; {said}" if faster else said


def _faster(detection: Detection) -> str:
    """Say by how much the sample is faster, "" where that is below the floor or in doubt."""
    total = detection.states[-1]
    floor = detection.floor
    if total.level != "error" or not total.effect_high < -floor:  # False for NaN, too
        return ""
    mean = total.normal_mean
    share = f" ({format_share(total.effect / mean)})" if mean else ""
    of = "" if detection.whole is None else " of what decides"
    ends = " to ".join(format_ns(x, sign=True) for x in (total.effect_low, total.effect_high))
    return (
        f"the sample is faster: the total{of} is {format_ns(total.effect, sign=True)} an execution"
        f"{share}, 95 % interval {ends}"
    )
