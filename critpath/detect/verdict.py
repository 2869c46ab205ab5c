"""The verdict of a comparison, and the sentences that say why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from critpath.model import Bool, Detection, Loss, Outliers
from critpath.units import format_ns, format_share, plural

# A set that lost more of its executions than this cannot speak for the others.
LOSSY_SHARE = 0.05


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
    if reasons:
        return "inconclusive", tuple(reasons)
    if not detection.enough and detection.rule == "gate":
        what = f"too few executions to decide at alpha {detection.alpha:g}"
        return "inconclusive", (f"{what}: the smaller set needs {detection.needed}",)
    count = int(marked.sum())
    if detection.flagged:
        states = [s for s in detection.states if s.flagged]
        worst = max(states, key=lambda s: s.effect)
        reasons.append(
            f"{worst.name} is {format_ns(worst.effect, sign=True)} an execution "
            f"(p = {worst.p_value:.2g}); {plural(len(states), 'state')} flagged by the "
            f"{detection.rule} rule"
        )
        reasons.append(f"{count} of {plural(len(marked), 'sample execution')} stand out")
        return "anomaly", tuple(reasons)
    shown = ""
    if detection.detectable is not None:
        shown = f"; a change of {format_ns(detection.detectable, sign=True)} would have shown"
    reasons.append(f"no state differs at alpha {detection.alpha:g}{shown}")
    if count:
        reasons.append(
            f"{count} of {plural(len(marked), 'sample execution')} "
            f"({format_share(count / len(marked))}) are outliers on their own, which the sets "
            "as a whole do not bear out"
        )
    return "ok", tuple(reasons)
