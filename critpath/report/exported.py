"""Sets of critical paths on their way to another program's format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from critpath.model import I64, Bool, CriticalPaths, Executions, PathSet, State
from critpath.units import safe_text

UNSEEN = "unknown thread"


@dataclass(frozen=True, eq=False)
class Exported:
    """One set of executions to export.

    Attributes
    ----------
    name : str
        What the set is called: the source as the user named it.
    paths : PathSet
    clusters : tuple of (int or None)
        The type of every execution, where a comparison found it; else empty.
    findings : tuple of tuple of dict
        Of every execution, the findings of a comparison's document; else empty.
    """

    name: str
    paths: PathSet
    clusters: tuple[int | None, ...] = ()
    findings: tuple[tuple[dict[str, Any], ...], ...] = ()

    def cluster(self, index: int) -> int | None:
        """Return the type of an execution, None where it is not known."""
        return self.clusters[index] if self.clusters else None


def wakes(paths: CriticalPaths) -> Bool:
    """Return which segments end in a wake: their path goes on in another thread.

    Parameters
    ----------
    paths : CriticalPaths

    Returns
    -------
    bool [segments]
        The thread of such a segment woke (or created, or sent to) that of the next.
    """
    result = np.zeros(len(paths.begin), np.bool_)
    result[:-1] = (paths.tid[1:] != paths.tid[:-1]) | (paths.host[1:] != paths.host[:-1])
    last = paths.start[1:][np.diff(paths.start) > 0] - 1
    result[last] = False
    return result


def path_of(paths: CriticalPaths) -> I64:
    """Return the path that every segment belongs to."""
    return np.repeat(np.arange(len(paths), dtype=np.int64), np.diff(paths.start))


def thread_name(comm: str, tid: int) -> str:
    """Return a thread as reports name it, safe to show."""
    if tid < 0:
        return safe_text(comm) or UNSEEN
    return f"{safe_text(comm)} {tid}".lstrip()


def execution_name(executions: Executions, index: int) -> str:
    """Return an execution as reports name it, safe to show: id, label, thread."""
    label = executions.label[index]
    shown = safe_text(executions.id[index]) + (f" ({safe_text(label)})" if label else "")
    thread = thread_name(executions.comm[index], int(executions.tid[index]))
    # An execution that nobody named is called TID@BEGIN.
    return shown if not executions.comm[index] else f"{shown}, {thread}"


def executions_aligned(document: dict[str, Any], name: str, chosen: Sequence[str]) -> Exported:
    """Return what a saved comparison knows segment by segment: its anomalous executions.

    Parameters
    ----------
    document : dict
        Of `comparison_document`, or read back from its JSON.
    name : str
        What to call the set.
    chosen : sequence of str
        Ids of the executions wanted; all if empty.

    Returns
    -------
    Exported
        With types and findings.
    """
    aligned = [one for one in document["aligned"] if not chosen or one["execution"] in chosen]
    known = {e["position"]: e for e in document["executions"] if e["set"] == "sample"}
    rows = [known[one["position"]] for one in aligned]
    segments = [s for one in aligned for s in one["segments"]]
    codes: dict[str, int] = {"": 0}
    columns: dict[str, list[int]] = {
        name: [s[name] for s in segments] for name in ("begin", "end", "tid", "cpu")
    }
    for text in ("detail", "comm"):
        columns[text] = [codes.setdefault(s[text], len(codes)) for s in segments]
    counts = [len(one["segments"]) for one in aligned]
    source = document["sets"]["sample"]
    environment = [
        {"recording": recording, "clock_epoch": epoch}
        for recording, epoch in zip(source["sources"], source.get("epochs", ()), strict=False)
    ]
    paths = PathSet(
        executions=Executions(
            **{key: tuple(row[key] for row in rows) for key in ("id", "comm", "label")},
            **{key: np.array([r[key] for r in rows], np.int64) for key in ("begin", "end", "tid")},
            host=np.zeros(len(rows), np.int64),
        ),
        paths=CriticalPaths(
            start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            state=np.array([State[s["state"]] for s in segments], np.uint8),
            **{key: np.array(columns[key], np.int64) for key in ("begin", "end", "tid")},
            **{key: np.array(columns[key], np.int32) for key in ("detail", "comm", "cpu")},
            host=np.zeros(len(segments), np.int64),
            lossy=np.repeat(np.array([row["lossy"] for row in rows], np.bool_), counts),
            strings=tuple(codes),
        ),
        session=np.array([row["source"] for row in rows], np.int64),
        sources=tuple(source["sources"]),
        specification=source["specification"],
        losses=(),
        lossy=np.array([row["lossy"] for row in rows], np.bool_),
        environment=tuple(environment),
    )
    findings = tuple(
        tuple(f for f in document["findings"] if f["position"] == one["position"])
        for one in aligned
    )
    return Exported(name, paths, tuple(row["cluster"] for row in rows), findings)
