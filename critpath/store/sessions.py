"""The recordings of a baseline as sets of paths, and what tells one from another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from critpath.errors import UsageError
from critpath.schema.environment import Environment
from critpath.schema.notes import NotInBaseline
from critpath.text.notes import word
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.model import PathSet
    from critpath.store.baseline import Baseline, Session


def require_new(parts: Sequence[PathSet], known: set[tuple[object, ...]], file: str) -> None:
    """Refuse recordings that are in a baseline already, or given twice."""
    seen = set(known)
    for part in parts:
        moments = set(list_moments(part))
        if not moments.isdisjoint(seen):
            inside = not moments.isdisjoint(known)
            name = ", ".join(part.sources)
            raise UsageError(
                f"{name} is in {file} already" if inside else f"{name} is given twice",
                "record again: the same executions twice would count as evidence twice",
            )
        seen |= moments


def note_left_out(name: str, kept: int, out: int) -> NotInBaseline:
    """Say that a baseline has not all executions of a recording."""
    return NotInBaseline(name, out, kept + out)


def drop_left_out_note(part: PathSet) -> tuple[PathSet, int]:
    """Return a set without the note of `split_baseline`, and how many executions it left out."""
    marks = [(e, e.left_out) for e in part.environment if e.left_out is not None]
    if not marks:
        return part, 0
    said = {
        word(note_left_out(str(mark.left_out_of), mark.left_out_kept, out))
        for mark, out in marks
        if mark.left_out_kept is not None
    }
    plain = replace(
        part,
        environment=tuple(e for e in part.environment if e.left_out is None),
        warnings=tuple(w for w in part.warnings if word(w) not in said),
    )
    return plain, sum(out for _, out in marks)


def split_baseline(baseline: Baseline, file: Path, *, interrupts: bool) -> list[PathSet]:
    """Return the path sets of a baseline, with a warning where it is not the whole recording."""
    if baseline.interrupts != interrupts:
        made = "with" if baseline.interrupts else "without"
        raise UsageError(
            f"{file} was made {made} interrupt work told apart (--interrupts)",
            "give the same option to every command, or set interrupts in the settings file",
        )
    result = []
    for session in baseline.sessions:
        paths, out = session.paths, session.left_out
        if out:
            name = ", ".join(paths.sources)
            mark = Environment(left_out=out, left_out_of=name, left_out_kept=len(paths))
            paths = replace(
                paths,
                environment=(*paths.environment, mark),
                warnings=(*paths.warnings, note_left_out(name, len(paths), out)),
            )
        result.append(paths)
    return result


def count_recordings(sessions: Sequence[Session]) -> int:
    """Return how many recordings some sessions are of."""
    return sum(len(session.paths.sources) for session in sessions)


def list_moments(paths: PathSet) -> Iterator[tuple[object, ...]]:
    """Yield what no execution of another recording has in common with each of these."""
    epochs = [e.clock_epoch for e in paths.environment if e.clock_epoch is not None]
    known = len(epochs) == len(paths.sources)
    executions = paths.executions
    begins, ends = executions.begin.tolist(), executions.end.tolist()
    of = paths.session.tolist()
    for begin, end, name, session in zip(begins, ends, executions.id, of, strict=True):
        yield epochs[session] if known else tuple(epochs), begin, end, name


def describe_baseline(baseline: Baseline) -> str:
    """Return what is in a baseline, in a few words."""
    count = sum(len(session.paths) for session in baseline.sessions)
    recordings = count_recordings(baseline.sessions)
    return f"{plural(count, 'execution')} of {plural(recordings, 'recording')}"
