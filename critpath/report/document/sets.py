"""One set of executions as plain data: where it came from and what is missing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from critpath.model import PathSet
from critpath.units import NS_PER_S

# Losses are listed one by one up to here; their sums are always complete.
_MOST_LOSSES = 200
_END_OF_DATES: Final = 253_402_300_800 * NS_PER_S  # the year 10000


def set_document(paths: PathSet) -> dict[str, Any]:
    """Build the document of one set.

    Parameters
    ----------
    paths : PathSet

    Returns
    -------
    dict
        ``window`` in ns from the first execution's begin to the last one's end,
        None without executions; ``loss`` summed, and place by place up to 200;
        ``machines``, ``processors``, ``cpus``, ``profiles`` and ``commands``: what critpath's own
        recordings say of where and how they were made, empty for others.
    """
    executions = paths.executions
    window = (
        {"begin": int(executions.begin.min()), "end": int(executions.end.max())}
        if len(executions)
        else None
    )
    losses = [
        {
            "begin": loss.begin,
            "end": loss.end,
            "host": loss.host,
            "cpu": loss.cpu,
            "events": loss.events,
            "packets": loss.packets,
            "reason": loss.reason,
        }
        for loss in paths.losses
    ]
    return {
        "sources": list(paths.sources),
        "specification": paths.specification,
        "executions": len(executions),
        "events": paths.events,
        "window": window,
        "hosts": _from_environment(paths, "hostname"),
        "kernels": _from_environment(paths, "kernel_release"),
        "tracers": _tracers(paths),
        "machines": _from_environment(paths, "recorded_on"),
        "processors": _from_environment(paths, "recorded_cpu"),
        "cpus": _from_environment(paths, "recorded_cpus"),
        "profiles": _from_environment(paths, "recorded_profile"),
        "commands": _from_environment(paths, "recorded_command"),
        "epochs": _epochs(paths),
        "recorded": [_utc(moment) for moment in _moments(paths)],
        "loss": {
            "events": sum(loss.events for loss in paths.losses),
            "packets": sum(loss.packets for loss in paths.losses),
            "places": losses[:_MOST_LOSSES],
            "places_left_out": max(0, len(losses) - _MOST_LOSSES),
        },
        "lossy": int(paths.lossy.sum()),
        "incomplete": executions.incomplete,
        "notes": list(executions.notes),
        "warnings": list(paths.warnings),
    }


def _epochs(paths: PathSet) -> list[int]:
    """Return what to add to a time of each source for ns since 1970, 0 where unknown."""
    known = {
        e["recording"]: e["clock_epoch"]
        for e in paths.environment
        if "recording" in e and "clock_epoch" in e
    }
    epochs = (known.get(source, 0) for source in paths.sources)
    return [epoch if isinstance(epoch, int) else 0 for epoch in epochs]


def _moments(paths: PathSet) -> list[int]:
    """Return when each source's first execution began (ns since 1970), 0 where unknown."""
    found = []
    for source, epoch in enumerate(_epochs(paths)):
        begins = paths.executions.begin[paths.session == source]
        found.append(int(begins.min()) + epoch if epoch and len(begins) else 0)
    return found


def _utc(moment: int) -> str:
    """Return a time as ``2026-11-21T04:35:27Z``, "" where it is unknown or no date."""
    if not 0 < moment < _END_OF_DATES:
        return ""
    whole = datetime.fromtimestamp(moment // NS_PER_S, UTC).replace(tzinfo=None)
    return f"{whole.isoformat()}Z"


def _from_environment(paths: PathSet, key: str) -> list[str]:
    return sorted({str(env[key]) for env in paths.environment if key in env})


def _tracers(paths: PathSet) -> list[str]:
    found = set()
    for env in paths.environment:
        if "tracer_name" in env:
            parts = [env.get(f"tracer_{part}") for part in ("major", "minor", "patchlevel")]
            numbers = ".".join(str(part) for part in parts if part is not None)
            found.add(f"{env['tracer_name']} {numbers}".strip())
    return sorted(found)
