"""What a baseline keeps of a recording: executions that stand for all, no machine's paths."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from critpath.model import I64, PathSet

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
