"""A baseline as text: one line per execution, so that version control shows what changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from critpath.baseline.format import FORMAT, STATES, Baseline, Session, mean_times, utf8
from critpath.errors import TooMuchTimeError
from critpath.model import I64, MOST_TIME, PathSet
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
    """Return a baseline as JSON of known line breaks, in ASCII.

    Raises
    ------
    TooMuchTimeError
        If what its executions take cannot be added up by who reads it.
    """
    if sum(session.paths.executions.time for session in baseline.sessions) >= MOST_TIME:
        raise TooMuchTimeError
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
        paths=replace(paths.paths.resident(), strings=tuple(map(utf8, paths.paths.strings))),
    )


def _session_lines(session: Session) -> Iterator[str]:
    paths = _with_clean_names(session.paths)
    executions = paths.executions
    origin = int(executions.begin[0]) if len(paths) else 0
    (kinds, kind), (threads, thread) = _kinds(paths), _threads(paths)
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
        "losses": _clean([loss.saved() for loss in paths.losses]),
        "environment": _clean([dict(e) for e in paths.environment]),
        "means": [list(pair) for pair in mean_times(paths)],
        "kinds": list(map(list, kinds)),
        "threads": list(map(list, threads)),
        "executions": list(_rows(paths, origin, kind, thread, threads)),
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


def _coded(*columns: I64) -> tuple[list[tuple[int, ...]], I64]:
    """Return the distinct rows of some columns, and which of them each row is."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, code = np.unique(column, return_inverse=True)
        # Numbered anew each time, so that the product stays below the square of the rows.
        joined = key * (int(code.max(initial=0)) + 1) + code.reshape(-1)
        _, key = np.unique(joined, return_inverse=True)
        key = key.reshape(-1)
    _, first = np.unique(key, return_index=True)
    rows = zip(*(column[first].tolist() for column in columns), strict=True)
    return list(rows), np.asarray(key, np.int64)


def _kinds(paths: PathSet) -> tuple[list[tuple[str, str]], I64]:
    """Return every state with its detail, sorted, and the place of each segment's."""
    of = paths.paths
    rows, codes = _coded(of.state.astype(np.int64), of.detail.astype(np.int64))
    named = [(STATES[state], of.strings[detail]) for state, detail in rows]
    table = sorted(set(named))
    place = {kind: code for code, kind in enumerate(table)}
    return table, np.array([place[kind] for kind in named], np.int64)[codes]


def _threads(paths: PathSet) -> tuple[list[tuple[int, int, str]], I64]:
    """Return every thread, sorted, and the place of each segment's."""
    of, executions = paths.paths, paths.executions
    rows, codes = _coded(of.tid, of.host, of.comm.astype(np.int64))
    named = [(tid, host, of.strings[comm]) for tid, host, comm in rows]
    tids, hosts = executions.tid.tolist(), executions.host.tolist()
    table = sorted({*named, *zip(tids, hosts, executions.comm, strict=True)})
    place = {thread: code for code, thread in enumerate(table)}
    return table, np.array([place[thread] for thread in named], np.int64)[codes]


def _rows(
    paths: PathSet, origin: int, kinds: I64, threads: I64, table: Sequence[tuple[int, int, str]]
) -> Iterator[dict[str, Any]]:
    """Yield what is on each execution's line; what is usual is left out."""
    thread_of = {thread: code for code, thread in enumerate(table)}
    of, executions = paths.paths, paths.executions
    steps = np.column_stack([kinds, threads, of.cpu, of.duration])
    for i, name in enumerate(executions.id):
        mine = slice(int(of.start[i]), int(of.start[i + 1]))
        subject = int(executions.tid[i]), int(executions.host[i]), executions.comm[i]
        row: dict[str, Any] = {"id": utf8(name), "thread": thread_of[subject]}
        if executions.label[i]:
            row["label"] = utf8(executions.label[i])
        if paths.session[i]:
            row["source"] = int(paths.session[i])
        row["begin"] = int(executions.begin[i]) - origin
        if paths.lossy[i]:
            row["lossy"] = True
        if of.lossy[mine].any():
            row["lossy_segments"] = np.flatnonzero(of.lossy[mine]).tolist()
        row["path"] = steps[mine].reshape(-1).tolist()
        yield row
