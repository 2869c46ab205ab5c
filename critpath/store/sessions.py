"""What is normal: a baseline, its sessions, what these keep of recordings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path, PurePath
from typing import Final

import numpy as np
from msgspec import Struct, structs

from critpath.errors import UsageError
from critpath.model import I64, Loss, PathSet
from critpath.model.paths import begin_dates
from critpath.model.stacks import own_stack
from critpath.schema.environment import Environment
from critpath.schema.notes import NotInBaseline, rename
from critpath.stats.rows import make_seed
from critpath.text.notes import word
from critpath.units import plural

# A path of somebody's machine within a sentence.
_ABSOLUTE: Final = re.compile(r"(?<![\w.:/~-])/(?:[^\s/,;:'\"]+/)+([^\s/,;:'\"]+)")
_WINDOWS: Final = "windows:"


class Session(Struct, frozen=True, eq=False):
    """Executions that were saved together.

    Attributes
    ----------
    paths : PathSet
    recorded : tuple of str
        When each of its sources was recorded, as ``2026-11-21T04:35:27Z``, "" unknown.
    left_out : int
        Executions of the recording that are not in the baseline.
    """

    paths: PathSet
    recorded: tuple[str, ...]
    left_out: int = 0


class Baseline(Struct, frozen=True, eq=False):
    """What is normal, of one or more sessions, the oldest first.

    Attributes
    ----------
    sessions : tuple of Session
    interrupts : bool
        Interrupt work was separated from running.
    version : str
        Of the critpath that wrote it.
    """

    sessions: tuple[Session, ...]
    interrupts: bool
    version: str

    @classmethod
    def load(cls, file: Path) -> Baseline:
        """Load one that was saved, checked in every respect."""
        from critpath.store.baseline import load_baseline  # noqa: PLC0415 - it imports this

        return load_baseline(file)

    def save(self, file: Path) -> None:
        """Save it atomically; equal input gives equal bytes."""
        from critpath.store.baseline import save_baseline  # noqa: PLC0415 - it imports this

        save_baseline(self, file)

    def describe(self) -> str:
        """Return what is in it, in a few words."""
        count = sum(len(session.paths) for session in self.sessions)
        recordings = _count_recordings(self.sessions)
        return f"{plural(count, 'run')} of {plural(recordings, 'recording')}"

    def list_sets(self, file: Path, *, interrupts: bool) -> list[PathSet]:
        """Return a path set per session, with a warning where it is not the whole recording."""
        if self.interrupts != interrupts:
            made = "with" if self.interrupts else "without"
            raise UsageError(
                f"{file} was made {made} interrupt work told apart (--interrupts)",
                "give the same option to every command, or set interrupts in the settings file",
            )
        result = []
        for session in self.sessions:
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

    def require_new(self, parts: Sequence[PathSet], file: Path) -> None:
        """Refuse recordings that are in it already, or given twice."""
        _require_new(parts, self.sessions, str(file))

    def add(
        self, new: Sequence[Session], version: str, most: int
    ) -> tuple[Baseline, tuple[str, ...]]:
        """Return it with sessions more, and which recordings made way: the oldest.

        What is new stays in any case, though there are more recordings than ``most`` then.
        """
        kept, dropped = list(self.sessions), list[str]()
        while kept and _count_recordings(kept) + _count_recordings(new) > most:
            dropped += kept.pop(0).paths.sources
        taken = [name for session in kept for name in session.paths.sources]
        renamed = anonymize([session.paths for session in new], taken)
        added = [structs.replace(s, paths=paths) for s, paths in zip(new, renamed, strict=True)]
        return structs.replace(self, sessions=(*kept, *added), version=version), tuple(dropped)

    def thin(self, most: int, recordings: int) -> Baseline:
        """Return it with fewer recordings, and fewer executions of a kind, evenly spread."""
        kept = list(self.sessions)
        while len(kept) > recordings:
            del kept[_find_crowded([session.recorded[0] for session in kept])]
        shares = _share_evenly([session.paths.executions.label for session in kept], most)
        thinned = []
        for session, of in zip(kept, shares, strict=True):
            paths = session.paths
            label = np.array(paths.executions.label, dtype=object)
            rows = [np.flatnonzero(label == name) for name in of]
            # The middle of as many stretches as are kept.
            spread = [
                each[(2 * np.arange(n) + 1) * len(each) // (2 * n)]
                for each, n in zip(rows, of.values(), strict=True)
                if n
            ]
            if not spread:
                continue
            chosen = np.sort(np.concatenate(spread)).astype(np.int64)
            out = session.left_out + len(paths) - len(chosen)
            taken = paths if len(chosen) == len(paths) else paths.take(chosen)
            thinned.append(structs.replace(session, paths=taken, left_out=out))
        return structs.replace(self, sessions=tuple(thinned))


def _find_crowded(recorded: Sequence[str]) -> int:
    """Return which of some recordings is nearest to both beside it: never the first or last."""
    if len(recorded) < 3:
        return 0
    seconds = [_read_second(text) for text in recorded]
    return min(range(1, len(seconds) - 1), key=lambda i: (seconds[i + 1] - seconds[i - 1], i))


def _read_second(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _share_evenly(labels: Sequence[Sequence[str]], most: int) -> list[dict[str, int]]:
    """Return how many of each label each session keeps: as many as the others, if it has them."""
    counts = [Counter(of) for of in labels]
    kept: list[dict[str, int]] = [{} for _ in labels]
    for label in sorted({label for of in counts for label in of}):
        left = most
        having = sorted(
            (i for i, of in enumerate(counts) if of[label]), key=lambda i: counts[i][label]
        )
        for place, i in enumerate(having):
            kept[i][label] = min(counts[i][label], left // (len(having) - place))
            left -= kept[i][label]
    return kept


def make_sessions(parts: Sequence[PathSet], most: int) -> tuple[Session, ...]:
    """Make a session of every recording: at most so many executions of each label, 0 for all.

    Raises UsageError if one recording is there twice.
    """
    _require_new(parts, (), "")
    sessions = []
    for part, before in map(_drop_left_out_note, anonymize(parts)):
        moments = np.column_stack([part.executions.begin, part.executions.end])
        rows = stratified_sample(part.executions.label, most, make_seed(moments))
        kept = part if len(rows) == len(part) else part.take(rows)
        out = before + len(part) - len(rows)
        sessions.append(Session(kept, tuple(begin_dates(part)), out))
    return tuple(sessions)


def _require_new(parts: Sequence[PathSet], old: Sequence[Session], file: str) -> None:
    """Refuse recordings that are among those of a baseline already, or given twice."""
    known = {moment for session in old for moment in _list_moments(session.paths)}
    seen = set(known)
    for part in parts:
        moments = set(_list_moments(part))
        if not moments.isdisjoint(seen):
            inside = not moments.isdisjoint(known)
            name = ", ".join(part.sources)
            raise UsageError(
                f"{name} is in {file} already" if inside else f"{name} is given twice",
                "record again: the same runs twice would count as evidence twice",
            )
        seen |= moments


def _note_left_out(name: str, kept: int, out: int) -> NotInBaseline:
    """Say that a baseline has not all executions of a recording."""
    return NotInBaseline(name, out, kept + out)


def _drop_left_out_note(part: PathSet) -> tuple[PathSet, int]:
    """Return a set without the note of `split_baseline`, and how many executions it left out."""
    marks = [(e, e.left_out) for e in part.environment if e.left_out is not None]
    if not marks:
        return part, 0
    said = {
        word(_note_left_out(str(mark.left_out_of), mark.left_out_kept, out))
        for mark, out in marks
        if mark.left_out_kept is not None
    }
    plain = replace(
        part,
        environment=tuple(e for e in part.environment if e.left_out is None),
        warnings=tuple(w for w in part.warnings if word(w) not in said),
    )
    return plain, sum(out for _, out in marks)


def _count_recordings(sessions: Sequence[Session]) -> int:
    """Return how many recordings some sessions are of."""
    return sum(len(session.paths.sources) for session in sessions)


def _list_moments(paths: PathSet) -> Iterator[tuple[object, ...]]:
    """Yield what no execution of another recording has in common with each of these."""
    epochs = [e.clock_epoch for e in paths.environment if e.clock_epoch is not None]
    known = len(epochs) == len(paths.sources)
    executions = paths.executions
    begins, ends = executions.begin.tolist(), executions.end.tolist()
    of = paths.session.tolist()
    for begin, end, name, session in zip(begins, ends, executions.id, of, strict=True):
        yield epochs[session] if known else tuple(epochs), begin, end, name


def anonymize(parts: Sequence[PathSet], taken: Sequence[str] = ()) -> list[PathSet]:
    """Return path sets without the directories of the machine that they were read on.

    Recordings are called by their own names; where two have one, a number is added.
    """
    used = set(taken)
    result = []
    for part in parts:
        names: dict[str, str] = {}
        for source in part.sources:
            names[source] = _unused_name(PurePath(source).name or "recording", used)
            used.add(names[source])
        result.append(_rename_sources(part, names))
    return result


def _unused_name(name: str, used: set[str]) -> str:
    number = 2
    free = name
    while free in used:
        free, number = f"{name}-{number}", number + 1
    return free


def _rename_sources(part: PathSet, names: Mapping[str, str]) -> PathSet:
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
        executions=replace(
            part.executions, notes=tuple(rename(note, clean) for note in part.executions.notes)
        ),
        paths=part.paths.map_stacks(own_stack),
        sources=tuple(names[source] for source in part.sources),
        specification=specification,
        losses=tuple(
            Loss(x.begin, x.end, x.host, x.cpu, x.events, x.packets, clean(x.reason))
            for x in part.losses
        ),
        environment=tuple(_hide_places(each, names) for each in part.environment),
        warnings=tuple(rename(warning, clean) for warning in part.warnings),
    )


def _hide_places(told: Environment, names: Mapping[str, str]) -> Environment:
    """Return an environment with other names of recordings, without directories and arguments."""
    hidden = told.map_texts(lambda text: _ABSOLUTE.sub(r"\1", text))
    if told.recording is not None:
        hidden = hidden.with_texts(recording=names.get(told.recording, told.recording))
    if told.recorded_command is not None:  # arguments may be confidential
        hidden = hidden.with_texts(recorded_command=told.recorded_program or "")
    return hidden


def stratified_sample(labels: Sequence[str], most: int, seed: int) -> I64:
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
