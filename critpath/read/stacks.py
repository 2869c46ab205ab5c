"""The stacks of a recording, checked in every respect."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from critpath.model.stacks import KINDS, Frame, Frames, Stacks
from critpath.units import safe_text
from critpath.untrusted import LARGEST, load_json, refuse_damaged

_FORMAT: Final = "critpath/stacks/1"
_ROW: Final = np.dtype(
    [("time", "<i8"), ("tid", "<i4"), ("woken", "<i4"), ("stack", "<i4"), ("kind", "u1")]
)
_MOST: Final = 1 << 30  # bytes of rows
_TIME: Final = 2**62  # no difference of two below this overflows
_SAMPLING: Final = 10**9  # ns between two samples
_LETTERS: Final = 400
_FRAMES: Final = 1024  # of one stack
_DO: Final = "record it again, or remove its directory stacks to do without"


# What a recording may have beside its trace, callers first: where Pythons were sampled to be,
# where in the code, and for which file or peer.
STACKS, OBJECTS = ("frames.json", "samples.bin"), ("files.json", "files.bin")
EVERY: Final = (("python.json", "python.bin"), STACKS, OBJECTS)


def find_stacks(recording: Path, names: tuple[str, str] = STACKS) -> tuple[Path, Path] | None:
    """Return the files of a recording's frames and samples; None without stacks."""
    named, rows = (recording / "stacks" / name for name in names)
    return (named, rows) if named.is_file() and rows.is_file() else None


def open_stacks(recording: Path, names: tuple[str, str] = STACKS) -> Stacks | None:
    """Return the stacks that were recorded beside a trace; None without any.

    Raises
    ------
    UnreadableError
        If what is there is not what a recorder writes.
    """
    if (found := find_stacks(recording, names)) is None:
        return None
    named, rows = found
    place = named.parent
    with refuse_damaged(place, _DO, "not stacks of a recording"):
        frames, stacks, lost, period = _read_frames(named)
        events = _read_rows(rows, len(stacks))
    listed = zip(frames.function, frames.file, frames.line.tolist(), frames.module, strict=True)
    known = [Frame(*frame) for frame in listed]
    columns: Any = {name: events[name].astype(np.int64) for name in ("time", "tid", "woken")}
    columns |= {"kind": events["kind"].copy(), "stack": events["stack"].astype(np.int32)}
    if (np.diff(columns["time"]) < 0).any():
        order = np.argsort(columns["time"], kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    return Stacks(
        **columns,
        distinct=[tuple(map(known.__getitem__, stack)) for stack in stacks],
        frames=frames,
        complete=not lost,
        period=period,
    )


def _read_frames(file: Path) -> tuple[Frames, list[list[int]], int, int]:
    if file.stat().st_size > LARGEST:
        raise ValueError(f"{file.name} is larger than {LARGEST:,} bytes")
    document = load_json(file.read_bytes())
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT}")
    rows, stacks = document.get("frames"), document.get("stacks")
    lost = document.get("lost")
    if not isinstance(rows, list) or not isinstance(stacks, list) or type(lost) is not int:
        raise TypeError("no lists of frames and stacks, or no number of lost ones")
    period = document.get("period", 0)
    if type(period) is not int or not 0 <= period <= _SAMPLING:
        raise ValueError("samples at no times")
    columns: Any = [[], [], [], [], []]
    for row in rows:
        if not _is_frame(row):
            raise ValueError("a frame is not a function, file, line, module and whether inlined")
        for column, value in zip(columns, row, strict=True):
            column.append(safe_text(value) if isinstance(value, str) else value)
    for stack in stacks:
        # No number is compared that is none: True is 1.
        fits = isinstance(stack, list) and len(stack) <= _FRAMES and {*map(type, stack)} <= {int}
        if not fits or (stack and not 0 <= min(stack) <= max(stack) < len(rows)):
            raise ValueError("a stack is not a list of frames")
    function, name, line, module, inlined = columns
    return (
        Frames(
            *(tuple(function), tuple(name), np.array(line, np.int32), tuple(module)),
            np.array(inlined, np.bool_),
        ),
        stacks,
        lost,
        period,
    )


def _is_frame(row: Any) -> bool:
    if not isinstance(row, list) or len(row) != 5:
        return False
    texts = (row[0], row[1], row[3])
    fits = all(isinstance(text, str) and len(text) <= _LETTERS for text in texts)
    return fits and type(row[2]) is int and 0 <= row[2] < 2**31 and type(row[4]) is bool


def _in_range(time: Any) -> bool:
    return bool(time.min() > -_TIME and time.max() < _TIME)


def _read_rows(file: Path, stacks: int) -> Any:
    size = file.stat().st_size
    if size > _MOST or size % _ROW.itemsize:
        raise ValueError(f"{file.name} has {size:,} bytes")
    rows = np.fromfile(file, _ROW)
    if len(rows) and not -1 <= rows["stack"].min() <= rows["stack"].max() < stacks:
        raise ValueError("an event of no stack")
    if len(rows) and (rows["kind"].max() >= len(KINDS) or not _in_range(rows["time"])):
        raise ValueError("an event of no kind, or of no time")
    return rows
