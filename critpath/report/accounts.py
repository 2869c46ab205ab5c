"""What the causes add up to, so that their shares visibly make the whole.

A cause that took less time has no share of an excess, and the shares of the others
then make more than the whole.  Here every part stands with its sign: what is listed,
what went the other way, what stays unexplained; their sum is the excess, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from critpath.report import verdict
from critpath.units import plural


@dataclass(frozen=True)
class Accounts:
    """The whole excess, and what it is made of.

    Attributes
    ----------
    parts : tuple of (str, float)
        What, and its nanoseconds, signed.
    whole : float
        Their sum: by how much the executions that were examined and took longer than
        their normal group did so, all together (ns).
    executions : int
        How many were examined.
    """

    parts: tuple[tuple[str, float], ...]
    whole: float
    executions: int


def accounts(document: dict[str, Any], listed: int) -> Accounts | None:
    """Sum up what the causes of a document explain.

    Parameters
    ----------
    document : dict
    listed : int
        How many causes a report lists before it folds the others.

    Returns
    -------
    Accounts or None
        None where no execution was examined, or none of them took longer.
    """
    examined = [
        one
        for one in document["aligned"]
        if one["excess"] is not None and one["unexplained"] is not None
    ]
    whole = math.fsum(one["excess"] for one in examined if one["excess"] > 0)
    if not document["causes"] or whole <= 0:
        return None
    main = verdict.main_causes(document, listed)
    slower: list[float] = []
    smaller: list[float] = []
    faster: list[float] = []
    for cause in document["causes"]:
        ns = (cause["contribution"] or 0.0) * len(cause["positions"])
        (faster if ns < 0 else slower if cause in main else smaller).append(ns)
    parts = []
    if slower:
        many = f" ({len(slower)})" if len(slower) > 1 else ""
        parts.append((f"slower, listed above{many}", math.fsum(slower)))
    if smaller:
        parts.append((f"slower, {plural(len(smaller), 'smaller difference')}", math.fsum(smaller)))
    if faster:
        parts.append(("took less time, the other way", math.fsum(faster)))
    # The executions that took less than their group are no part of the whole.
    back = -math.fsum(one["excess"] for one in examined if one["excess"] < 0)
    if back:
        parts.append(("executions faster than their group, not counted", back))
    # Per execution this is its excess less its findings; taken as what is left, so that
    # a document whose figures were rounded still adds up.
    parts.append(("unexplained", whole - math.fsum(ns for _, ns in parts)))
    return Accounts(tuple(parts), whole, len(examined))


def in_steps(values: Sequence[float], step: float) -> list[int]:
    """Round values to whole steps so that the rounded ones add up to the rounded sum.

    Parameters
    ----------
    values : sequence of float
    step : float
        More than 0.

    Returns
    -------
    list of int
        Each the value in steps rounded down or up: up where most is left (largest
        remainder, ties to the first).
    """
    exact = [value / step for value in values]
    whole = [math.floor(value) for value in exact]
    # A sum of floors is below the rounded sum by at most as many steps as there are values.
    missing = round(math.fsum(exact)) - sum(whole)
    order = sorted(range(len(values)), key=lambda i: (whole[i] - exact[i], i))
    for i in order[: max(0, missing)]:
        whole[i] += 1
    return whole
