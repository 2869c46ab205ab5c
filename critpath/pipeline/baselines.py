"""Baselines: made of a recording, and held against the next one before they change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from critpath.errors import UsageError
from critpath.pipeline.portable import only, portable, spread
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.baseline.format import Baseline, Session
    from critpath.model import CompareSettings, Comparison, PathSet


def make_sessions(parts: Sequence[PathSet], most: int) -> tuple[Session, ...]:
    """Make a session of every recording.

    Parameters
    ----------
    parts : sequence of PathSet
        One per recording, as `extract_each` gives them.
    most : int
        Executions that each keeps, evenly spread within each label; 0 for all.
    """
    from critpath.baseline.format import Session
    from critpath.report.document.sets import set_document

    sessions = []
    for part in portable(parts):
        rows = spread(part.executions.label, most)
        kept = part if len(rows) == len(part) else only(part, rows)
        sessions.append(Session(kept, tuple(set_document(part)["recorded"]), len(part) - len(rows)))
    return tuple(sessions)


def sets_of(baseline: Baseline, file: Path, *, interrupts: bool) -> list[PathSet]:
    """Return the path sets of a baseline, with a warning where it is not the whole recording.

    Raises
    ------
    UsageError
        If it was made with other paths than are to be compared with it.
    """
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
            said = f"{', '.join(paths.sources)}: {out:,} of {len(paths) + out:,} executions are "
            said += "not in the baseline (--executions)"
            paths = replace(paths, warnings=(*paths.warnings, said))
        result.append(paths)
    return result


@dataclass(frozen=True, eq=False)
class Update:
    """What became of an update.

    Attributes
    ----------
    comparison : Comparison
        The new recording as sample, the baseline as the normal set.
    baseline : Baseline or None
        What to save; None if the update is refused.
    dropped : tuple of str
        Recordings that made way.
    """

    comparison: Comparison
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
    from critpath.graph.concatenate import join_sets
    from critpath.pipeline.comparison import compare

    old = sets_of(baseline, file, interrupts=settings.interrupts)
    known = {moment for part in old for moment in _moments(part)}
    for part in parts:
        if not known.isdisjoint(_moments(part)):
            raise UsageError(
                f"{', '.join(part.sources)} is in {file} already",
                "record again: the same executions twice would count as evidence twice",
            )
    new = make_sessions(parts, executions)
    comparison = compare(join_sets(old), join_sets(list(parts)), settings)
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
    renamed = portable([session.paths for session in new], taken)
    added = [replace(s, paths=paths) for s, paths in zip(new, renamed, strict=True)]
    whole = replace(baseline, sessions=(*kept, *added), version=version)
    return Update(comparison, whole, tuple(dropped_names))


def _recordings(sessions: Sequence[Session]) -> int:
    return sum(len(session.paths.sources) for session in sessions)


def _moments(paths: PathSet) -> Iterator[tuple[object, ...]]:
    """Yield what no execution of another recording has in common with each of these."""
    epochs = tuple(e["clock_epoch"] for e in paths.environment if "clock_epoch" in e)
    executions = paths.executions
    begins, ends = executions.begin.tolist(), executions.end.tolist()
    for begin, end, name in zip(begins, ends, executions.id, strict=True):
        yield epochs, begin, end, name


def saved_paths(file: Path) -> PathSet:
    """Return the paths in a file of `extract` or in a baseline, as they were saved.

    Raises
    ------
    UnreadableError
    """
    from critpath import store
    from critpath.baseline.read import load_baseline
    from critpath.graph.concatenate import join_sets

    if store.is_paths_file(file):
        return store.load_paths(file)
    baseline = load_baseline(file)
    return join_sets(sets_of(baseline, file, interrupts=baseline.interrupts))


def join_sets(parts: Sequence[PathSet]) -> PathSet:
    """Join recordings into one set, one session each."""
    from critpath.graph.concatenate import join_sets as join

    return join(parts)


def said_of(baseline: Baseline) -> str:
    """Return what is in a baseline, in a few words."""
    count = sum(len(session.paths) for session in baseline.sessions)
    return f"{plural(count, 'execution')} of {plural(_recordings(baseline.sessions), 'recording')}"
