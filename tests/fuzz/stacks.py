"""Target: what perf and addr2line print, perf's own file, and the stacks of a recording.

The first byte of an input says which (`KINDS`).  Whatever programs are called and do, what is
written of them has to be what the reader of a recording takes.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import cycle
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from contract import ContractError, hold, scratch

from critpath.model.stacks import location_of, own_stack, read_stack, word_stack
from critpath.read.stacks import open_stacks
from critpath_record.stacks import unwind

KINDS: Final = ("printed", "data", "frames", "samples")
BETWEEN: Final = b"\n==lines==\n"  # between what perf and what addr2line prints
FRAMES: Final = json.dumps(
    {
        "format": "critpath/stacks/1",
        "frames": [["f", "src/a.c", 3, "/srv/app", False], ["main", "", 0, "/srv/app", True]],
        "stacks": [[0, 1], [1]],
        "lost": 0,
    }
).encode()
SAMPLES: Final = unwind.ROW.pack(5, 7, 0, 1, 0) + unwind.ROW.pack(9, 7, 8, -1, 1)


def directory() -> Path:
    """Return where a recording has its stacks."""
    place = scratch() / "recording" / "stacks"
    place.mkdir(parents=True, exist_ok=True)
    return place


def use_printed(data: bytes) -> None:
    """Read what perf prints, name it by what addr2line prints, and read what that makes."""
    printed, _, named = data.partition(BETWEEN)
    # No program of this machine is asked: its answers are in the input.
    groups = [group for _, group in unwind._groups(named.decode("utf-8", "replace"))]
    unwind.find_lines = lambda found, *_: dict(zip(found, cycle(groups or [[]])))
    with (directory() / "samples.bin").open("wb") as rows:
        lines = printed.decode("utf-8", "replace").splitlines(keepends=True)
        found = unwind.read_perf(lines, rows)
    with (directory() / "frames.json").open("w", encoding="ascii") as stream:
        unwind.write_frames(found, stream)
    unwind.find_unnamed(found.addresses)
    try:
        use_stacks()
    except Exception as error:
        raise ContractError(f"what was written cannot be read: {error}") from error


def use_data(data: bytes) -> None:
    """Change mappings in what perf wrote."""
    file = scratch() / "perf.data"
    file.write_bytes(data or b"\0")
    descriptor = os.open(file, os.O_RDWR)
    try:
        unwind.forget_replaced_programs(descriptor)
        unwind.rename_programs(descriptor, [(0, 0, 0, 9), (0, 39, 5, 10)])
    finally:
        os.close(descriptor)
    if file.stat().st_size != len(data or b"\0"):
        raise ContractError("another size")


def use_stacks() -> None:
    """Read the stacks of a recording, and every frame in them."""
    stacks = open_stacks(directory().parent)
    if stacks is None:
        raise ContractError("no stacks")
    for stack in stacks.distinct:
        if location_of(own_stack(stack)) != location_of(stack):
            raise ContractError(f"another location without what is not own: {stack!r}")
        if stack and read_stack(word_stack(stack)) != stack:
            raise ContractError(f"frames run together: {stack!r}")


def one(data: bytes) -> str:
    """Try one input."""
    if not data or data[0] >= len(KINDS):
        return "nothing"
    kind, rest = KINDS[data[0]], data[1:]
    if kind == "printed":
        return hold(lambda: use_printed(rest))
    if kind == "data":
        return hold(lambda: use_data(rest))
    (directory() / "frames.json").write_bytes(rest if kind == "frames" else FRAMES)
    (directory() / "samples.bin").write_bytes(rest if kind == "samples" else SAMPLES)
    return hold(use_stacks)


def json_begins(data: bytes) -> int:
    """Return where an input's JSON begins, -1 if it has none."""
    return 1 if data and KINDS[data[0] % len(KINDS)] == "frames" else -1
