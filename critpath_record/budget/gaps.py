"""When a layer's gate was closed: noted as it happens, put in order at the end.

The journal has a line before a gate is closed, one when it is and one when it was opened, so that
whatever moment a recorder is killed at, no time in which a gate was closed is without one;
``gaps.jsonl`` of a recording has a line for each gap.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from critpath.model import Gap
from critpath_record.dirfd import write_whole

FILE: Final = "gaps.jsonl"  # of a recording
JOURNAL: Final = "gaps-journal.jsonl"  # in raw/
# ns after the last step that closes, in which an event may still be written that met an open gate:
# a virtual cpu can be taken away just there.
_IN_FLIGHT: Final = 1_000_000
_TIMES: Final = ("closing", "begin", "closed", "opening", "end")
SUMMARY: Final = "budget.json"  # in raw/: what the manifest says of a budget
BASE: Final = "base"  # the layer without which there is no path
SELECTED: Final = "selected.jsonl"  # of a recording, and in raw/: executions that were chosen
BUDGET, START, OTHER, RECORD_OFF = "budget", "start", "other", "off"


@dataclass(frozen=True)
class LayerGap:
    """A time in which a layer was not recorded (ns): as ``gaps.jsonl`` has it.

    `begin` is before the first write that closes and `closed` after the last; `opening` and
    `end` are the same of what opens.
    """

    begin: int
    closed: int
    opening: int
    end: int
    layer: str
    why: str


class Journal:
    """Notes every closing and opening; a line is whole or ignored."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._torn = False

    def close_layer(self, layer: str, why: str, act: Callable[[], None]) -> None:
        """Close a layer by `act`, and note when."""
        begin = time.monotonic_ns()
        self.note_closing(layer, begin, why)
        act()
        self.note_closed(layer, begin, time.monotonic_ns(), why)

    def open_layer(self, layer: str, act: Callable[[], None]) -> None:
        """Open a layer by `act`, and note when."""
        opening = time.monotonic_ns()
        act()
        self.note_opened(layer, opening, time.monotonic_ns())

    def note_closing(self, layer: str, begin: int, why: str) -> None:
        """Note that a layer is about to be closed."""
        self._write(f'{{"layer":"{layer}","closing":{begin},"why":"{why}"}}\n')

    def note_closed(self, layer: str, begin: int, closed: int, why: str) -> None:
        """Note when a layer was closed."""
        self._write(f'{{"layer":"{layer}","begin":{begin},"closed":{closed},"why":"{why}"}}\n')

    def note_opened(self, layer: str, opening: int, end: int) -> None:
        """Note when a layer was opened."""
        self._write(f'{{"layer":"{layer}","opening":{opening},"end":{end}}}\n')

    def _write(self, row: str) -> None:
        # Names of layers and reasons are ours: a serializer would take longer than to close does.
        data = f"\n{row}".encode("ascii") if self._torn else row.encode("ascii")
        self._torn = True  # half a line would spoil the next
        while data:
            data = data[os.write(self._file, data) :]
        self._torn = False

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def is_under_budget(raw: Path) -> bool:
    """Return whether a raw directory is of a recording under a budget."""
    return (raw / JOURNAL).is_file()


def read_journal(path: Path, begin: int, end: int) -> list[LayerGap]:
    """Return the gaps between a recording's begin and end (ns), in order for each layer."""
    closed: dict[str, tuple[int, int, str]] = {}
    closing: dict[str, tuple[int, int, str]] = {}
    found = []
    for row in _read_rows(path):
        layer, why = str(row.get("layer")), str(row.get("why"))
        if "closing" in row:
            closing.setdefault(layer, (row["closing"], row["closing"], why))
        elif "begin" in row:
            since = closing.pop(layer, (row["begin"], 0, ""))[0]
            closed.setdefault(layer, (since, row["closed"], why))
        elif layer in closed:
            closing.pop(layer, None)
            found.append(_clip(layer, closed.pop(layer), row["opening"], row["end"], begin, end))
        elif layer in closing:  # by a recorder that could not close it altogether
            was = closing.pop(layer)
            found.append(_clip(layer, was, was[1], row["end"], begin, end))
    # Closed until the recording ended; programs may have opened after its recorder was killed.
    # Killed while it closed, a recorder may have closed nothing, or everything.
    ends = {**closing, **closed}
    found += [_clip(layer, was, was[1], end, begin, end) for layer, was in ends.items()]
    return sorted((gap for gap in found if gap.end > gap.begin), key=lambda g: (g.begin, g.layer))


def last_time(path: Path) -> int:
    """Return the last time that a journal has (ns), 0 without one."""
    return max((row.get(key, 0) for row in _read_rows(path) for key in _TIMES), default=0)


def _clip(
    layer: str, was: tuple[int, int, str], opening: int, end: int, low: int, high: int
) -> LayerGap:
    closed = max(was[1], min(was[1] + _IN_FLIGHT, opening))
    times = [min(max(at, low), high) for at in (was[0], closed, opening, end)]
    return LayerGap(times[0], times[1], times[2], times[3], layer, was[2])


def _read_rows(path: Path) -> Iterator[dict[str, int]]:
    try:
        text = path.read_bytes()
    except OSError:
        return
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            times = [row.get(key, 0) for key in _TIMES]
            if isinstance(row.get("layer"), str) and all(type(at) is int for at in times):
                yield row


def write_gaps(path: Path, gaps: list[LayerGap]) -> None:
    """Write ``gaps.jsonl``, whole or not at all."""
    lines = "".join(json.dumps(asdict(gap), separators=(",", ":")) + "\n" for gap in gaps)
    write_whole(path, lines)


def finish_gaps(raw: Path, directory: Path, begin: int, end: int, noticed: Sequence[Gap]) -> None:
    """Write ``gaps.jsonl`` of a recording from the journal, and what others did to the tracer."""
    gaps = read_journal(raw / JOURNAL, begin, end)
    for gap in noticed:
        low, high = max(gap.begin, begin), min(gap.end, end)
        if high > low:
            gaps.append(LayerGap(low, high, high, high, BASE, OTHER))
    write_gaps(directory / FILE, join_overlapping(gaps))
    if (raw / SELECTED).exists():
        chosen = (raw / SELECTED).read_text(encoding="utf-8", errors="replace")
        write_whole(directory / SELECTED, chosen)


def join_overlapping(gaps: Sequence[LayerGap]) -> list[LayerGap]:
    """Return gaps of each layer that do not overlap, in order."""
    found: list[LayerGap] = []
    last: dict[str, int] = {}
    for gap in sorted(gaps, key=lambda g: (g.begin, g.end)):
        at = last.get(gap.layer)
        if at is not None and gap.begin < found[at].end:
            before = found[at]
            closed, opening = _join_silences(before, gap)
            end = max(before.end, gap.end)
            # What the recorder did on purpose needs no explanation; what others did does.
            why = OTHER if gap.why == OTHER else before.why
            found[at] = LayerGap(before.begin, closed, opening, end, before.layer, why)
        else:
            last[gap.layer] = len(found)
            found.append(gap)
    return found


def _join_silences(before: LayerGap, gap: LayerGap) -> tuple[int, int]:
    """Return from when until when neither of two gaps allows an event: no longer than they say."""
    sides = [(one.closed, one.opening) for one in (before, gap)]
    if max(closed for closed, _ in sides) <= min(opening for _, opening in sides):
        return min(closed for closed, _ in sides), max(opening for _, opening in sides)
    return max(sides, key=lambda side: side[1] - side[0])


def read_summary(raw: Path) -> dict[str, object]:
    """Return what a recorder wrote of its budget; of one that was killed nothing but that."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads((raw / SUMMARY).read_bytes())
        if isinstance(found, dict):
            return found
    return {"target": None, "counted": None}
