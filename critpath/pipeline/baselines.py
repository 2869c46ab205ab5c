"""Baselines: made of a recording, and held against the next one before they change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from critpath.errors import UsageError
from critpath.schema.environment import Environment
from critpath.schema.notes import HiddenByLevels
from critpath.text import notes
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.model import Analysis, CompareSettings, PathSet
    from critpath.store.baseline import Baseline, Session


def make_sessions(parts: Sequence[PathSet], most: int) -> tuple[Session, ...]:
    """Make a session of every recording.

    Parameters
    ----------
    parts : sequence of PathSet
        One per recording, as `extract_each` gives them.
    most : int
        Executions that each keeps, evenly spread within each label; 0 for all.

    Raises
    ------
    UsageError
        If one recording is there twice.
    """
    from critpath.report.document.comparison import begin_dates
    from critpath.stats.rows import make_seed
    from critpath.store.baseline import Session, anonymize, stratified_sample

    _check_new(parts, set(), "")
    sessions = []
    for part, before in map(_drop_left_out_note, anonymize(parts)):
        moments = np.column_stack([part.executions.begin, part.executions.end])
        rows = stratified_sample(part.executions.label, most, make_seed(moments))
        kept = part if len(rows) == len(part) else part.take(rows)
        out = before + len(part) - len(rows)
        sessions.append(Session(kept, tuple(begin_dates(part)), out))
    return tuple(sessions)


def _check_new(parts: Sequence[PathSet], known: set[tuple[object, ...]], file: str) -> None:
    """Refuse recordings that are in a baseline already, or given twice."""
    seen = set(known)
    for part in parts:
        moments = set(_moments(part))
        if not moments.isdisjoint(seen):
            inside = not moments.isdisjoint(known)
            name = ", ".join(part.sources)
            raise UsageError(
                f"{name} is in {file} already" if inside else f"{name} is given twice",
                "record again: the same executions twice would count as evidence twice",
            )
        seen |= moments


def _note_left_out(name: str, kept: int, out: int) -> str:
    return notes.not_in_baseline(name, out, kept + out)


def _drop_left_out_note(part: PathSet) -> tuple[PathSet, int]:
    """Return a set without the note of `split_baseline`, and how many executions it left out."""
    marks = [(e, e.left_out) for e in part.environment if e.left_out is not None]
    if not marks:
        return part, 0
    said = {
        _note_left_out(str(mark.left_out_of), mark.left_out_kept, out)
        for mark, out in marks
        if mark.left_out_kept is not None
    }
    plain = replace(
        part,
        environment=tuple(e for e in part.environment if e.left_out is None),
        warnings=tuple(w for w in part.warnings if w not in said),
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
                warnings=(*paths.warnings, _note_left_out(name, len(paths), out)),
            )
        result.append(paths)
    return result


@dataclass(frozen=True, eq=False)
class Update:
    """What became of an update.

    Attributes
    ----------
    comparison : Analysis
        The new recording as sample, the baseline as the normal set.
    baseline : Baseline or None
        What to save; None if the update is refused.
    dropped : tuple of str
        Recordings that made way.
    """

    comparison: Analysis
    baseline: Baseline | None
    dropped: tuple[str, ...] = ()


def update(
    baseline: Baseline,
    file: Path,
    parts: Sequence[PathSet],
    settings: CompareSettings,
    *,
    version: str,
    executions: int,
    sessions: int,
    accept: bool = False,
) -> Update:
    """Hold new recordings against a baseline, and add them if nothing is slower.

    Parameters
    ----------
    baseline : Baseline
    file : Path
        Its name, for messages.
    parts : sequence of PathSet
        New recordings.
    settings : CompareSettings
    version : str
        Of critpath.
    executions, sessions : int
        Most executions of a recording, and most recordings, that are kept.
    accept : bool
        Begin anew with the new recordings if the verdict is not ``ok``: what was
        normal before must not be mixed with them.

    Raises
    ------
    UsageError
        If a recording is in the baseline already.
    """
    from critpath.pipeline.comparison import compare
    from critpath.pipeline.recordings import join_sets
    from critpath.store.baseline import anonymize

    old = split_baseline(baseline, file, interrupts=settings.interrupts)
    known = {moment for part in old for moment in _moments(part)}
    _check_new(parts, known, str(file))
    new = make_sessions(parts, executions)
    comparison = compare(join_sets(old), join_sets(list(parts)), settings)
    if comparison.verdict == "ok" and settings.level:
        # What a level hides from the gate would be normal from then on.
        full = compare(join_sets(old), join_sets(list(parts)), replace(settings, level=()))
        if full.verdict == "anomaly":
            # A warning: every answer says it, and what the verdict alone says is another.
            comparison = replace(full, warnings=(HiddenByLevels(), *full.warnings))
    if comparison.verdict != "ok":
        anew = replace(baseline, sessions=new, version=version) if accept else None
        dropped = tuple(s for part in old for s in part.sources) if accept else ()
        return Update(comparison, anew, dropped)
    kept = list(baseline.sessions)
    dropped_names: list[str] = []
    # What was just recorded stays in any case.
    while kept and _recordings(kept) + _recordings(new) > sessions:
        dropped_names += kept.pop(0).paths.sources
    taken = [name for session in kept for name in session.paths.sources]
    renamed = anonymize([session.paths for session in new], taken)
    added = [replace(s, paths=paths) for s, paths in zip(new, renamed, strict=True)]
    whole = replace(baseline, sessions=(*kept, *added), version=version)
    return Update(comparison, whole, tuple(dropped_names))


def _recordings(sessions: Sequence[Session]) -> int:
    return sum(len(session.paths.sources) for session in sessions)


def _moments(paths: PathSet) -> Iterator[tuple[object, ...]]:
    """Yield what no execution of another recording has in common with each of these."""
    epochs = [e.clock_epoch for e in paths.environment if e.clock_epoch is not None]
    known = len(epochs) == len(paths.sources)
    executions = paths.executions
    begins, ends = executions.begin.tolist(), executions.end.tolist()
    of = paths.session.tolist()
    for begin, end, name, session in zip(begins, ends, executions.id, of, strict=True):
        yield epochs[session] if known else tuple(epochs), begin, end, name


def load_saved_paths(file: Path) -> PathSet:
    """Return the paths in what `extract` wrote or in a baseline, as they were saved.

    Raises
    ------
    UnreadableError
    """
    from critpath import store
    from critpath.pipeline.recordings import join_sets
    from critpath.store.baseline import load_baseline

    if store.is_paths_file(file):
        return store.open_paths(file)
    if store.is_dataset(file):
        return join_sets(store.load_dataset(file))
    baseline = load_baseline(file)
    return join_sets(split_baseline(baseline, file, interrupts=baseline.interrupts))


def describe_baseline(baseline: Baseline) -> str:
    """Return what is in a baseline, in a few words."""
    count = sum(len(session.paths) for session in baseline.sessions)
    return f"{plural(count, 'execution')} of {plural(_recordings(baseline.sessions), 'recording')}"
