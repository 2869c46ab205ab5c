"""When a layer's gate was closed: noted as it happens, put in order at the end.

The journal has a line when a gate closes and one when it opens, so that a killed recorder
leaves both; ``gaps.jsonl`` of a recording has a line for each gap.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

FILE: Final = "gaps.jsonl"  # of a recording
JOURNAL: Final = "gaps-journal.jsonl"  # in raw/
# ns after the last step that closes, in which an event may still be written that met an open gate:
# a virtual cpu can be taken away just there.
_IN_FLIGHT: Final = 1_000_000
BUDGET, START, RECORD_OFF = "budget", "start", "off"


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

    def close_layer(self, layer: str, why: str, act: Callable[[], None]) -> None:
        """Close a layer by `act`, and note when."""
        begin = time.monotonic_ns()
        act()
        self.note_closed(layer, begin, time.monotonic_ns(), why)

    def open_layer(self, layer: str, act: Callable[[], None]) -> None:
        """Open a layer by `act`, and note when."""
        opening = time.monotonic_ns()
        act()
        self.note_opened(layer, opening, time.monotonic_ns())

    def note_closed(self, layer: str, begin: int, closed: int, why: str) -> None:
        """Note when a layer was closed."""
        self._write(f'{{"layer":"{layer}","begin":{begin},"closed":{closed},"why":"{why}"}}\n')

    def note_opened(self, layer: str, opening: int, end: int) -> None:
        """Note when a layer was opened."""
        self._write(f'{{"layer":"{layer}","opening":{opening},"end":{end}}}\n')

    def _write(self, row: str) -> None:
        # Names of layers and reasons are ours: a serializer would take longer than to close does.
        os.write(self._file, row.encode("ascii"))

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_journal(path: Path, begin: int, end: int) -> list[LayerGap]:
    """Return the gaps between a recording's begin and end (ns), in order for each layer."""
    closed: dict[str, tuple[int, int, str]] = {}
    found = []
    for row in _read_rows(path):
        layer = str(row.get("layer"))
        if "begin" in row:
            closed.setdefault(layer, (row["begin"], row["closed"], str(row.get("why"))))
        elif layer in closed:
            found.append(_clip(layer, closed.pop(layer), row["opening"], row["end"], begin, end))
    # Closed until the recording ended; programs may have opened after its recorder was killed.
    found += [_clip(layer, was, was[1], end, begin, end) for layer, was in closed.items()]
    return sorted((gap for gap in found if gap.end > gap.begin), key=lambda g: (g.begin, g.layer))


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
            times = [row.get(key, 0) for key in ("begin", "closed", "opening", "end")]
            if isinstance(row.get("layer"), str) and all(type(at) is int for at in times):
                yield row


def write_gaps(path: Path, gaps: list[LayerGap]) -> None:
    """Write ``gaps.jsonl``, whole or not at all."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    lines = "".join(json.dumps(asdict(gap), separators=(",", ":")) + "\n" for gap in gaps)
    unfinished.write_text(lines, encoding="ascii")
    unfinished.replace(path)
