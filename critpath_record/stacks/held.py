"""Stacks that a flight recorder holds: the newest, in memory, and what a dump makes of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath_record.lttng.program import trusted_program
from critpath_record.source import Taken
from critpath_record.stacks.events import StackEvents, add_maps, save_rings
from critpath_record.stacks.files import FileEvents, name_files
from critpath_record.stacks.perf import PerfSource, open_programs
from critpath_record.stacks.samples import SamplesSource
from critpath_record.stacks.sources import (
    PYTHON_FRAMES,
    PYTHON_SAMPLES,
    RAW_OBJECTS,
    RAW_STACKS,
    STACKS,
    StackRequest,
)
from critpath_record.stacks.unwind import FORMAT, ROW

if TYPE_CHECKING:
    from critpath_record.budget.gates import BesideGate

PART: Final = 4  # of the memory, for stacks
_HELD: Final = "held.json"  # in stacks/, until they are unwound
_ROWS: Final = ".rows"


class HeldStacks:
    """What takes stacks, and holds them, from construction until `close`.

    `sources`: of `critpath_record.stacks.sources.SOURCES`.  `memory`: bytes, of all cpus.
    """

    def __init__(self, sources: Sequence[str], memory: int, cpus: Sequence[int]) -> None:
        self._events: StackEvents | None = None
        self._samples: SamplesSource | None = None
        self._files: FileEvents | None = None
        request = StackRequest(Path(), machine=True, budgeted=True, held=True)
        native = bool({"native", "python"} & {*sources})
        rings = max(len(cpus), 1) * max(native + ("files" in sources), 1)
        size = 1 << max(16, (memory // rings).bit_length() - 1)
        if native:
            self._events = StackEvents(cpus=cpus, size=size, overwritten=True)
            self._events.make()
        if "files" in sources:
            self._files = FileEvents(request, cpus, size=size, overwritten=True)
        if "samples" in sources:
            self._samples = SamplesSource(request)
            self._samples.open()

    @property
    def _ringed(self) -> list[StackEvents | FileEvents]:
        """What the kernel itself holds."""
        return [one for one in (self._events, self._files) if one is not None]

    @property
    def gates(self) -> list[BesideGate]:
        """What the budget opens and closes."""
        found: list[BesideGate] = [*self._ringed]
        if self._samples is not None and self._samples.gate is not None:
            found.append(self._samples.gate)
        return found

    def pause(self) -> None:
        """Take none from now on, whatever is opened, until `resume`: what is held can be saved."""
        for one in self._ringed:
            one.pause()

    def save(self, directory: Path, since: int) -> None:
        """Write what is held to ``stacks/`` of a dump, from which `finish` makes what is read.

        Of the kernel's what is as young as `since` (ns).
        """
        place = directory / STACKS
        place.mkdir(mode=0o700)
        about: dict[str, Any] = {"own": os.getpid(), "wakes": "", "python": 0}
        if self._events is not None:
            about["wakes"] = self._events.wakes
            with (place / RAW_STACKS).open("xb", buffering=0) as stream:
                save_rings(self._events, stream.fileno(), since)
        if self._files is not None:
            with (place / RAW_OBJECTS).open("xb", buffering=0) as stream:
                for ring in self._files.rings.values():
                    ring.take(stream.fileno(), since)
        for rows, document in self._samples.hold() if self._samples is not None else ():
            (place / f"{about['python']}{_ROWS}").write_bytes(rows)
            (place / f"{about['python']}.json").write_text(json.dumps(document), encoding="ascii")
            about["python"] += 1
        (place / _HELD).write_text(json.dumps(about), encoding="ascii")

    def resume(self) -> list[BesideGate]:
        """Take stacks again, as the budget allows; return whose were not taken meanwhile."""
        for one in self._ringed:
            one.resume()
        return [*self._ringed]

    def close(self) -> None:
        """Take no more, and forget all."""
        if self._samples is not None:
            self._samples.close()
        for one in self._ringed:
            one.close_all()


def finish(directory: Path) -> tuple[dict[str, Mapping[str, object]], tuple[str, ...]]:
    """Make stacks of what was saved, in the dump's own process; return facts and warnings."""
    place = directory / STACKS
    try:
        about = json.loads((place / _HELD).read_bytes())
    except FileNotFoundError:
        return {}, ()
    (place / _HELD).unlink()
    facts: dict[str, Mapping[str, object]] = {}
    warnings: tuple[str, ...] = ()
    if about["wakes"]:
        found = _unwind(place, str(about["wakes"]), int(about["own"]))
        warnings += found.warnings
        facts |= {"stacks": found.facts} if found.facts else {}
    if (place / RAW_OBJECTS).exists():
        named = name_files(place, 0)
        warnings += named.warnings
        facts |= {"files": named.facts} if named.facts else {}
    if about["python"]:
        facts["samples"] = _join(place, range(about["python"]))
    return facts, warnings


def _unwind(place: Path, wakes: str, own: int) -> Taken:
    program = trusted_program("perf")
    data = os.open(place / RAW_STACKS, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    add_maps(data)
    request = StackRequest(place, machine=True, held=True)
    source = PerfSource(request, program or "", data=data, wakes=wakes)
    source.own = (own, os.getpid())
    if program is None:
        source.abort()
        return Taken(warnings=("stacks could not be named: there is no perf here",))
    source.programs = open_programs()
    return source.drain(lambda _: None)


def _join(place: Path, parts: Iterable[int]) -> dict[str, object]:
    """Make one list of frames, and one of rows, of what was sampled before and since."""
    whole: dict[str, Any] = {"format": FORMAT, "frames": [], "stacks": [], "cut": [], "lost": 0}
    samples = 0
    with (place / PYTHON_SAMPLES).open("xb") as stream:
        for part in parts:
            document = json.loads((place / f"{part}.json").read_bytes())
            frames, stacks = len(whole["frames"]), len(whole["stacks"])
            whole["frames"] += document["frames"]
            whole["stacks"] += [[frames + one for one in of] for of in document["stacks"]]
            whole["lost"] += document["lost"]
            whole["period"] = document["period"]
            rows = (place / f"{part}{_ROWS}").read_bytes()
            for time, tid, woken, stack, kind in ROW.iter_unpack(rows):
                number = stack + stacks if stack >= 0 else stack
                stream.write(ROW.pack(time, tid, woken, number, kind))
                samples += 1
            for name in (f"{part}.json", f"{part}{_ROWS}"):
                (place / name).unlink()
    (place / PYTHON_FRAMES).write_text(json.dumps(whole, separators=(",", ":")), encoding="ascii")
    about = {"source": "samples", "samples": samples, "stacks": len(whole["stacks"])}
    return {**about, "lost": whole["lost"], "cut": 0}
