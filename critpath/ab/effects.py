"""What else the log of blocks shows: drift, carry-over, and what the machine did."""

from __future__ import annotations

import math

import numpy as np

from critpath.documents import AbBlock, AbCarryOver, AbMachine
from critpath.model import F64
from critpath.schema.parameters.ab import EVIDENCE
from critpath.schema.parameters.shared import NORMAL
from critpath.stats.evidence import BoundProcess


def drift(blocks: list[AbBlock]) -> float:
    """Return by which share both became slower from the first to the last block."""
    if len(blocks) < EVIDENCE.least_blocks:
        return 0.0
    levels = np.array([np.mean(_slot_logs(block)) for block in blocks])
    i, j = np.triu_indices(len(levels), 1)
    slope = float(np.median((levels[j] - levels[i]) / (j - i)))  # Theil and Sen
    return math.expm1(slope * (len(levels) - 1))


def difference_change(d: F64) -> tuple[float, float] | None:
    """Return the difference at first and in the last half, if it is not the same.

    How many blocks of the first third lie above the median of all is hypergeometric where
    their order does not matter.
    """
    first = len(d) // 3
    if first < EVIDENCE.least_blocks:
        return None
    high = d > np.median(d)
    above, in_first = int(high.sum()), int(high[:first].sum())
    total = math.comb(len(d), first)
    chances = [
        math.comb(above, k) * math.comb(len(d) - above, first - k) / total for k in range(first + 1)
    ]
    p = 2 * min(sum(chances[: in_first + 1]), sum(chances[in_first:]))
    if p > EVIDENCE.level:
        return None
    return (
        math.expm1(float(np.median(d[:first]))),
        math.expm1(float(np.median(d[len(d) // 2 :]))),
    )


def carry_over(blocks: list[AbBlock]) -> AbCarryOver:
    """Estimate how much slower an execution is after B than after A.

    Least squares within blocks, over slots 2 to 4: the side, and the side before.
    """
    if len(blocks) < EVIDENCE.least_blocks:
        return AbCarryOver(None, [None, None])
    rows, values = [], []
    for block in blocks:
        logs = _slot_logs(block)[1:]
        side = np.array([s == "B" for s in block.order[1:]], np.float64)
        before = np.array([s == "B" for s in block.order[:-1]], np.float64)
        rows.append(np.stack([side - side.mean(), before - before.mean()], axis=1))
        values.append(logs - logs.mean())
    x, y = np.concatenate(rows), np.concatenate(values)
    inverse = np.linalg.pinv(x.T @ x)
    found = inverse @ x.T @ y
    residual = y - x @ found
    freedom = max(1, len(y) - len(blocks) - 2)
    error = math.sqrt(float(residual @ residual) / freedom * float(inverse[1, 1]))
    ends = [math.expm1(float(found[1]) + sign * NORMAL.q995 * error) for sign in (-1, 1)]
    return AbCarryOver(math.expm1(float(found[1])), [ends[0], ends[1]])


def _slot_logs(block: AbBlock) -> F64:
    means = np.array([np.mean(slot) for slot in block.times])
    logs: F64 = np.log(np.maximum(means, 1.0))
    return logs


def machine_summary(blocks: list[AbBlock]) -> AbMachine:
    """Return what the probes and the system's counters say of the machine."""
    seconds, capacity, busy, own, steal, psi = (
        sum(float(b.machine.get(key, 0)) for b in blocks)
        for key in ("seconds", "capacity", "busy", "own", "steal", "psi")
    )
    speeds = [
        np.concatenate([np.array(b.probes[name], np.float64) for b in blocks if name in b.probes])
        for name in _probe_names(blocks)
    ]
    low, high = EVIDENCE.spread
    spread = max(
        (
            float(np.quantile(s, high) / np.quantile(s, low))
            for s in speeds
            if len(s) and s.min() > 0
        ),
        default=None,
    )
    # A host that does not tell what it took shows 0 there, whatever the probes see.
    known = steal > 0 or (spread is not None and spread <= EVIDENCE.speed)
    return AbMachine(
        others_share=max(0.0, busy - own) / capacity if capacity else None,
        psi=psi / seconds if seconds else None,
        steal=steal / capacity if capacity and known else None,
        speed_p90_p10=spread,
        probe_r2={
            "run": _explain(blocks, wait=False),
            "wait": _explain(blocks, wait=True),
        },
        by_side={name: _by_side(blocks, name) for name in _probe_names(blocks)},
    )


def _probe_names(blocks: list[AbBlock]) -> list[str]:
    return sorted({name for block in blocks for name in block.probes})


def _explain(blocks: list[AbBlock], *, wait: bool) -> float | None:
    """Return the share of the variance between slots that the probes explain."""
    names = _probe_names(blocks)
    usable = [b for b in blocks if all(name in b.probes for name in names)]
    if not names or len(usable) < EVIDENCE.least_blocks:
        return None
    values, probes = [], []
    for block in usable:
        run = np.array([np.mean(slot) for slot in block.run])
        times = np.array([np.mean(slot) for slot in block.times])
        chosen = np.maximum(times - run, 0.0) if wait else np.log(np.maximum(run, 1.0))
        side = np.array([s == "B" for s in block.order])
        for which in (False, True):  # within a side of a block: no difference of the programs
            values.append(chosen[side == which] - chosen[side == which].mean())
            logs = np.stack([np.log(np.maximum(block.probes[n], 1)) for n in names], axis=1)
            probes.append(logs[side == which] - logs[side == which].mean(axis=0))
    y, x = np.concatenate(values), np.concatenate(probes)
    if not float(y @ y):
        return None
    found = np.linalg.lstsq(x, y, rcond=None)[0]
    residual = y - x @ found
    return max(0.0, 1 - float(residual @ residual) / float(y @ y))


def _by_side(blocks: list[AbBlock], name: str) -> dict[str, int | float]:
    """Return a probe's median after each side, and the evidence that they differ."""
    up, down = BoundProcess(0.0, 1), BoundProcess(0.0, -1)
    after: dict[str, list[int]] = {"A": [], "B": []}
    for block in blocks:
        if name not in block.probes:
            continue
        logs: dict[str, list[float]] = {"A": [], "B": []}
        for side, time in zip(block.order, block.probes[name], strict=True):
            after[side].append(time)
            logs[side].append(math.log(max(time, 1)))
        d = float(np.mean(logs["B"]) - np.mean(logs["A"]))
        up.add(d)
        down.add(d)
    e = float(up.wealth.peak[0] + down.wealth.peak[0]) / 2
    return {
        "a": float(np.median(after["A"])) if after["A"] else 0.0,
        "b": float(np.median(after["B"])) if after["B"] else 0.0,
        "e": min(e, 1e12),
    }
