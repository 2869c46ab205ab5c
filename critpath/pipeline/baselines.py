"""Baselines: made of a recording, and held against the next one before they change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.errors import UsageError
from critpath.text import notes, reasons
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.model import I64, CompareSettings, Comparison, PathSet
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
    from critpath.detect.gate import seed
    from critpath.report.document.sets import set_document
    from critpath.store.baseline import Session

    _check_new(parts, set(), "")
    sessions = []
    for part, before in map(_without_left_out, portable(parts)):
        moments = np.column_stack([part.executions.begin, part.executions.end])
        rows = spread(part.executions.label, most, seed(moments))
        kept = part if len(rows) == len(part) else only(part, rows)
        out = before + len(part) - len(rows)
        sessions.append(Session(kept, tuple(set_document(part)["recorded"]), out))
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


def _said_left_out(name: str, kept: int, out: int) -> str:
    return notes.not_in_baseline(name, out, kept + out)


def _without_left_out(part: PathSet) -> tuple[PathSet, int]:
    """Return a set without what `sets_of` says of it, and how many executions that was of."""
    marks = [e for e in part.environment if "left_out" in e]
    if not marks:
        return part, 0
    said = {
        _said_left_out(str(m.get("left_out_of")), int(m["left_out_kept"]), int(m["left_out"]))
        for m in marks
        if isinstance(m["left_out"], int) and isinstance(m.get("left_out_kept"), int)
    }
    plain = replace(
        part,
        environment=tuple(e for e in part.environment if "left_out" not in e),
        warnings=tuple(w for w in part.warnings if w not in said),
    )
    return plain, sum(m["left_out"] for m in marks if isinstance(m["left_out"], int))


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
            name = ", ".join(paths.sources)
            mark: dict[str, str | int] = {
                "left_out": out,
                "left_out_of": name,
                "left_out_kept": len(paths),
            }
            paths = replace(
                paths,
                environment=(*paths.environment, mark),
                warnings=(*paths.warnings, _said_left_out(name, len(paths), out)),
            )
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
    from critpath.graph.critical_path import join_sets
    from critpath.pipeline.comparison import compare

    old = sets_of(baseline, file, interrupts=settings.interrupts)
    known = {moment for part in old for moment in _moments(part)}
    _check_new(parts, known, str(file))
    new = make_sessions(parts, executions)
    comparison = compare(join_sets(old), join_sets(list(parts)), settings)
    if comparison.verdict == "ok" and settings.level:
        # What a level hides from the gate would be normal from then on.
        full = compare(join_sets(old), join_sets(list(parts)), replace(settings, level=()))
        if full.verdict == "anomaly":
            comparison = replace(full, reasons=(reasons.hidden_by_levels(), *full.reasons))
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
    epochs = [e["clock_epoch"] for e in paths.environment if "clock_epoch" in e]
    known = len(epochs) == len(paths.sources)
    executions = paths.executions
    begins, ends = executions.begin.tolist(), executions.end.tolist()
    of = paths.session.tolist()
    for begin, end, name, session in zip(begins, ends, executions.id, of, strict=True):
        yield epochs[session] if known else tuple(epochs), begin, end, name


def saved_paths(file: Path) -> PathSet:
    """Return the paths in what `extract` wrote or in a baseline, as they were saved.

    Raises
    ------
    UnreadableError
    """
    from critpath import store
    from critpath.graph.critical_path import join_sets
    from critpath.store.baseline import load_baseline

    if store.is_paths_file(file):
        return store.open_paths(file)
    if store.is_dataset(file):
        return join_sets(store.load_dataset(file))
    baseline = load_baseline(file)
    return join_sets(sets_of(baseline, file, interrupts=baseline.interrupts))


def join_sets(parts: Sequence[PathSet]) -> PathSet:
    """Join recordings into one set, one session each."""
    from critpath.graph.critical_path import join_sets as join

    return join(parts)


def said_of(baseline: Baseline) -> str:
    """Return what is in a baseline, in a few words."""
    count = sum(len(session.paths) for session in baseline.sessions)
    return f"{plural(count, 'execution')} of {plural(_recordings(baseline.sessions), 'recording')}"


# -----------------------------------------------------------------------------
# What a baseline keeps of a recording: executions that stand for all, no machine's paths.


# A path of somebody's machine within a sentence.
_ABSOLUTE: Final = re.compile(r"(?<![\w.:/~-])/(?:[^\s/,;:'\"]+/)+([^\s/,;:'\"]+)")
_WINDOWS: Final = "windows:"


def portable(parts: Sequence[PathSet], taken: Sequence[str] = ()) -> list[PathSet]:
    """Return path sets without the directories of the machine that they were read on.

    Recordings are called by their own names; where two have one, a number is added.
    """
    used = set(taken)
    result = []
    for part in parts:
        names: dict[str, str] = {}
        for source in part.sources:
            names[source] = _free(PurePath(source).name or "recording", used)
            used.add(names[source])
        result.append(_renamed(part, names))
    return result


def _free(name: str, used: set[str]) -> str:
    number = 2
    free = name
    while free in used:
        free, number = f"{name}-{number}", number + 1
    return free


def _renamed(part: PathSet, names: Mapping[str, str]) -> PathSet:
    from critpath.model import Loss

    def clean(text: str) -> str:
        for source in sorted(names, key=len, reverse=True):
            if "/" in source.strip("/"):
                text = text.replace(source, names[source])
            elif text.startswith(f"{source}: "):
                text = names[source] + text.removeprefix(source)
        return _ABSOLUTE.sub(r"\1", text)

    specification = part.specification
    if specification.startswith(_WINDOWS):
        file = specification.removeprefix(_WINDOWS)
        specification = _WINDOWS + PurePath(file).name
    return replace(
        part,
        executions=replace(part.executions, notes=tuple(map(clean, part.executions.notes))),
        sources=tuple(names[source] for source in part.sources),
        specification=specification,
        losses=tuple(
            Loss(x.begin, x.end, x.host, x.cpu, x.events, x.packets, clean(x.reason))
            for x in part.losses
        ),
        environment=tuple(
            {
                # Arguments may hold what is nobody else's business.
                key: each.get("recorded_program", "")
                if key == "recorded_command"
                else value
                if not isinstance(value, str)
                else names.get(value, value)
                if key == "recording"
                else _ABSOLUTE.sub(r"\1", value)
                for key, value in each.items()
            }
            for each in part.environment
        ),
        warnings=tuple(map(clean, part.warnings)),
    )


def spread(labels: Sequence[str], most: int, seed: int) -> I64:
    """Choose executions that stand for all: of each label its share, evenly spread.

    A label's executions are cut into as many stretches as are to be chosen, and one of
    each stretch is drawn.  (Every second of a program that does two things in turn would
    be all of one kind.)

    Parameters
    ----------
    labels : sequence of str
        In order of time.
    most : int
        How many to choose, but one of each label at the least; 0 for all.
    seed : int
        Of what is drawn; made of the executions, so that equal ones give equal rows.

    Returns
    -------
    int64
        Rows, ascending.
    """
    if not most or len(labels) <= most:
        return np.arange(len(labels), dtype=np.int64)
    _, code = np.unique(np.array(labels, dtype=object), return_inverse=True)
    members = [np.flatnonzero(code == c) for c in range(int(code.max()) + 1)]
    exact = [most * len(rows) / len(labels) for rows in members]
    sizes = [max(1, int(share)) for share in exact]
    # What rounding down left goes to the largest remainders.
    for c in sorted(range(len(exact)), key=lambda c: (sizes[c] - exact[c], c)):
        if sum(sizes) < most and sizes[c] < len(members[c]):
            sizes[c] += 1
    rng = np.random.default_rng(seed)
    chosen = []
    for rows, size in zip(members, sizes, strict=True):
        edges = np.arange(size + 1) * len(rows) // size
        chosen.append(rows[rng.integers(edges[:-1], edges[1:])])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def only(paths: PathSet, rows: I64) -> PathSet:
    """Return a set with some of its executions."""
    return paths.take(rows)
