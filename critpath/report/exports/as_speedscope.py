"""Critical paths in speedscope's format, for https://www.speedscope.app.

The rules are those of https://www.speedscope.app/file-format-schema.json: a profile per
execution, of the kind whose samples have weights, here the nanoseconds of a segment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from critpath import __version__
from critpath.model import State
from critpath.model.details import word_detail
from critpath.model.stacks import frame_name
from critpath.report.exports.exported import Exported, execution_name, thread_name
from critpath.report.palette import LOOKS
from critpath.units import safe_text

_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
_COLUMNS: Final = ("tid", "comm", "state", "detail", "stack")


def speedscope_profiles(sets: Sequence[Exported]) -> Iterator[bytes]:
    """Write critical paths as speedscope profiles, one per execution.

    A stack is thread, state and, where there is one, the state's qualifier; then functions of the
    program where they are known.  Time counts
    from the begin of the execution: the viewer's numbers are 53 bits wide, which those of
    a clock may not be.

    Parameters
    ----------
    sets : sequence of Exported

    Yields
    ------
    bytes
        One after the other they are the file, in ASCII.
    """
    frames: dict[str, int] = {}
    head = {
        "$schema": _SCHEMA,
        "exporter": f"critpath {__version__}",
        "name": " and ".join(safe_text(one.name) for one in sets),
        "activeProfileIndex": 0,
    }
    yield (json.dumps(head)[:-1] + ', "profiles": [').encode("ascii")
    between = ""
    for one in sets:
        stacks = _Stacks(one, frames)
        for index in range(len(one.paths)):
            name = execution_name(one.paths.executions, index)
            shown = f"{safe_text(one.name)}: {name}" if len(sets) > 1 else name
            yield (between + _profile(one, index, shown, stacks)).encode("ascii")
            between = ", "
    shared = json.dumps({"frames": [{"name": name} for name in frames]})
    yield f'], "shared": {shared}}}\n'.encode("ascii").replace(b"\x7f", b"\\u007f")


class _Stacks(dict[tuple[int, ...], list[int]]):
    """The stack of a segment, made once per kind."""

    def __init__(self, one: Exported, frames: dict[str, int]) -> None:
        super().__init__()
        self.paths, self.frames = one.paths.paths, frames

    def __missing__(self, kind: tuple[int, ...]) -> list[int]:
        tid, comm, state, detail, stack = kind
        names = [thread_name(self.paths.strings[comm], tid), LOOKS[State(state).name].words]
        if said := word_detail(self.paths.details[detail]):
            names.append(safe_text(said))
        if stack >= 0:
            frames = reversed(self.paths.stacks[stack])
            names += [safe_text(frame_name(frame)) for frame in frames]
        self[kind] = [self.frames.setdefault(name, len(self.frames)) for name in names]
        return self[kind]


def _profile(one: Exported, index: int, name: str, stacks: _Stacks) -> str:
    paths = one.paths.paths
    rows = slice(int(paths.start[index]), int(paths.start[index + 1]))
    kinds = zip(*(getattr(paths, column)[rows].tolist() for column in _COLUMNS), strict=True)
    profile = {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": int((paths.end[rows] - paths.begin[rows]).sum()),
        "samples": [stacks[kind] for kind in kinds],
        "weights": (paths.end[rows] - paths.begin[rows]).tolist(),
    }
    return json.dumps(profile, separators=(",", ":"))
