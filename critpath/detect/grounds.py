"""What a verdict rests on: figures that were held against numbers, in the order of the rules."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from critpath.detect.rules import RULES
from critpath.detect.verdict import ERROR, Apart, is_alarm
from critpath.documents.base import as_float
from critpath.model import Bool, Change, Detection, Ground
from critpath.schema.parameters.detect import COMPARABILITY, MACHINE
from critpath.schema.parameters.shared import DEFAULTS, NORMAL


def find_grounds(
    verdict: str,
    detection: Detection,
    lossy: tuple[Bool, Bool],
    *,
    apart: Apart | None,
    minimum: int,
) -> tuple[Ground, ...]:
    """Return what a verdict rests on.

    Parameters
    ----------
    verdict : str
    detection : Detection
    lossy : (bool array, bool array)
        Executions of the normal and of the sample set whose window overlaps a loss.
    apart : Apart or None
        What is known of sets that were recorded at different times.
    minimum : int
        Fewest executions of either set that a verdict may rest on.
    """
    found = list(_of_sets(verdict, detection, lossy, minimum))
    if detection.gate is not None:
        found += _of_percentile(verdict, detection)
    elif RULES[detection.rule].permutation_test:
        found += _of_tests(verdict, detection)
    slower = is_alarm(detection, None)
    if apart is not None and slower and RULES[detection.rule].permutation_test:
        found += _of_machine(verdict, detection, apart)
    return tuple(found)


def _of_sets(
    verdict: str, detection: Detection, lossy: tuple[Bool, Bool], minimum: int
) -> Iterator[Ground]:
    other = "" if verdict == "inconclusive" else "inconclusive"
    limit = COMPARABILITY.lossy
    for name, torn in zip(("normal", "sample"), lossy, strict=True):
        lost = float(np.mean(torn)) if len(torn) else 0.0
        yield Ground(
            "lost", name, "", lost, limit, "share", "comparability.lossy", least=False,
            otherwise=other,
        )  # fmt: skip
    needed, fewer = max(minimum, detection.needed), min(map(len, lossy))
    if needed:
        of = "defaults.alpha" if needed > minimum else ""
        yield Ground(
            "executions", "", "", fewer, needed, "executions", of, least=True, otherwise=other
        )


def _of_percentile(verdict: str, detection: Detection) -> Iterator[Ground]:
    gate = detection.gate
    if gate is None:
        return
    if gate.low is None:
        yield Ground("executions", "", "", min(gate.executions), gate.needed, "executions",
                     "tails.confidence", least=True)  # fmt: skip
        return
    other = "ok" if verdict == "anomaly" else ""
    floor = detection.floor_share * (gate.normal or 0.0)
    yield Ground("percentile", gate.name, gate.label, gate.low, 0.0, "ns", "tails.confidence",
                 least=True, otherwise=other)  # fmt: skip
    yield Ground("floor", gate.name, gate.label, gate.effect, floor, "ns", "defaults.floor",
                 least=True, otherwise=other)  # fmt: skip


def _of_tests(verdict: str, detection: Detection) -> Iterator[Ground]:
    """Yield what the gate asks of a change: that it is certain, large enough and surely one."""
    deciding = {test.state for test in detection.states if test.level == ERROR}
    changes = [c for c in detection.slower or detection.slight[:1] if c.name in deciding]
    if not changes:
        total = detection.states[-1]
        error = (as_float(total.effect_high) - as_float(total.effect_low)) / (2 * NORMAL.q975)
        changes = [
            Change(
                *(total.state, total.effect),
                p_value=total.p_value,
                floor=detection.floor,
                mean=total.normal_mean,
                error=error,
            )
        ]
    # One of several changes decides nothing alone.
    other = "ok" if verdict == "anomaly" and len(detection.slower) == 1 else ""
    for change in changes:
        limits = [("level", as_float(change.p_value), detection.alpha, "p", "defaults.alpha")]
        raised = detection.floor_share > DEFAULTS.floor
        floor = "gate.sigmas" if raised else "defaults.floor"
        limits += [("floor", change.effect, change.floor, "ns", floor)]
        if change.error > 0:
            ratio = change.effect / change.error
            limits += [("sure", ratio, NORMAL.q90, "standard errors", "normal.q90")]
        for kind, value, limit, unit, parameter in limits:
            yield Ground(
                *(kind, change.name, change.label, value, limit, unit, parameter),
                least=kind != "level",
                otherwise=other,
            )


def _of_machine(verdict: str, detection: Detection, apart: Apart) -> Iterator[Ground]:
    """Yield what tells a change of the program from one of the machine."""
    added = detection.states[-1].effect
    other = "inconclusive" if verdict == "anomaly" else "anomaly"
    alone = len(detection.signs) == 1 and not apart.slower > apart.beyond
    if not detection.signs:
        yield Ground("signs", "", "", 0, 1, "signs", "machine.explains", least=True,
                     otherwise=other)  # fmt: skip
    for sign in detection.signs:
        part = (sign.effect or 0.0) / added if added > 0 else 1.0
        yield Ground("sign", sign.kind, sign.label, part, min(MACHINE.explains, part), "share",
                     "machine.explains", least=True, otherwise=other if alone else "")  # fmt: skip
    if math.isfinite(apart.beyond):
        yield Ground("recordings", "", "", apart.slower, apart.beyond, "share", "", least=True,
                     otherwise="" if detection.signs else other)  # fmt: skip
