"""A baseline as text: one line per execution, so that version control shows what changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from critpath.baseline.format import FORMAT, STATES, Baseline, Session, mean_times, utf8
from critpath.model import PathSet
from critpath.store import write_text


def save_baseline(baseline: Baseline, file: Path) -> None:
    """Save a baseline atomically; equal input gives equal bytes.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    write_text(file, baseline_text(baseline))


def baseline_text(baseline: Baseline) -> str:
    """Return a baseline as JSON of known line breaks, in ASCII."""
    head = {"format": FORMAT, "critpath": baseline.version, "interrupts": baseline.interrupts}
    lines = [f"{_json(key)}: {_json(value)}," for key, value in head.items()]
    sessions = ["\n".join(_session_lines(session)) for session in baseline.sessions]
    return "\n".join(["{", *lines, '"sessions": [', ",\n".join(sessions), "]", "}", ""])


def _json(value: object) -> str:
    # Whatever could act on the terminal of someone who looks at a difference is escaped.
    return json.dumps(value, separators=(",", ":")).replace("\x7f", "\\u007f")


def _clean(value: Any) -> Any:
    """Return a value of texts and numbers with every text as UTF-8 holds it."""
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, dict):
        return {utf8(key): _clean(inner) for key, inner in value.items()}
    return [_clean(inner) for inner in value] if isinstance(value, list | tuple) else value


def _with_clean_names(paths: PathSet) -> PathSet:
    return replace(
        paths,
        executions=replace(paths.executions, comm=tuple(map(utf8, paths.executions.comm))),
        paths=replace(paths.paths, strings=tuple(map(utf8, paths.paths.strings))),
    )


def _session_lines(session: Session) -> Iterator[str]:
    paths = _with_clean_names(session.paths)
    executions = paths.executions
    origin = int(executions.begin[0]) if len(paths) else 0
    kinds, threads = _kinds(paths), _threads(paths)
    single = {
        "sources": paths.sources,
        "recorded": session.recorded,
        "specification": paths.specification,
        "events": paths.events,
        "incomplete": executions.incomplete,
        "left_out": session.left_out,
        "origin": origin,
    }
    lists: dict[str, list[Any]] = {
        "notes": _clean(executions.notes),
        "warnings": _clean(paths.warnings),
        "losses": _clean([asdict(loss) for loss in paths.losses]),
        "environment": _clean([dict(e) for e in paths.environment]),
        "means": [list(pair) for pair in mean_times(paths)],
        "kinds": [list(kind) for kind in sorted(kinds)],
        "threads": [list(thread) for thread in sorted(threads)],
        "executions": list(_rows(paths, origin, sorted(kinds), sorted(threads))),
    }
    yield "{"
    for key, value in single.items():
        yield f"{_json(key)}: {_json(_clean(value))},"
    last = list(lists)[-1]
    for key, items in lists.items():
        end = "" if key == last else ","
        if not items:
            yield f"{_json(key)}: []{end}"
            continue
        yield f"{_json(key)}: ["
        yield ",\n".join(map(_json, items))
        yield f"]{end}"
    yield "}"


def _kinds(paths: PathSet) -> set[tuple[str, str]]:
    segments = paths.paths
    pairs = np.unique(np.column_stack([segments.state, segments.detail]), axis=0).tolist()
    return {(STATES[state], segments.strings[detail]) for state, detail in pairs}


def _threads(paths: PathSet) -> set[tuple[int, int, str]]:
    segments, executions = paths.paths, paths.executions
    columns = np.column_stack([segments.tid, segments.host, segments.comm])
    found = {(t, h, segments.strings[c]) for t, h, c in np.unique(columns, axis=0).tolist()}
    tids, hosts = executions.tid.tolist(), executions.host.tolist()
    return found | set(zip(tids, hosts, executions.comm, strict=True))


def _rows(
    paths: PathSet,
    origin: int,
    kinds: Sequence[tuple[str, str]],
    threads: Sequence[tuple[int, int, str]],
) -> Iterator[dict[str, Any]]:
    """Yield what is on each execution's line; what is usual is left out."""
    kind_of = {kind: code for code, kind in enumerate(kinds)}
    thread_of = {thread: code for code, thread in enumerate(threads)}
    segments, executions = paths.paths, paths.executions
    strings = segments.strings
    duration = segments.duration.tolist()
    state, detail = segments.state.tolist(), segments.detail.tolist()
    tid, host, comm = segments.tid.tolist(), segments.host.tolist(), segments.comm.tolist()
    cpu, lossy = segments.cpu.tolist(), segments.lossy
    for i, name in enumerate(executions.id):
        first, last = int(segments.start[i]), int(segments.start[i + 1])
        subject = int(executions.tid[i]), int(executions.host[i]), executions.comm[i]
        row: dict[str, Any] = {"id": utf8(name), "thread": thread_of[subject]}
        if executions.label[i]:
            row["label"] = utf8(executions.label[i])
        if paths.session[i]:
            row["source"] = int(paths.session[i])
        row["begin"] = int(executions.begin[i]) - origin
        if paths.lossy[i]:
            row["lossy"] = True
        if lossy[first:last].any():
            row["lossy_segments"] = np.flatnonzero(lossy[first:last]).tolist()
        steps: list[int] = []
        for s in range(first, last):
            steps += (
                kind_of[STATES[state[s]], strings[detail[s]]],
                thread_of[tid[s], host[s], strings[comm[s]]],
                cpu[s],
                duration[s],
            )
        row["path"] = steps
        yield row
