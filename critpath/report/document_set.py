"""One set of executions as plain data: where it came from and what is missing."""

from __future__ import annotations

from typing import Any

from critpath.model import PathSet

# Losses are listed one by one up to here; their sums are always complete.
_MOST_LOSSES = 200


def set_document(paths: PathSet) -> dict[str, Any]:
    """Build the document of one set.

    Parameters
    ----------
    paths : PathSet

    Returns
    -------
    dict
        ``window`` in ns from the first execution's begin to the last one's end,
        None without executions; ``loss`` summed, and place by place up to 200.
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
