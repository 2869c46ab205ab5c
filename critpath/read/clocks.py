"""The traces of a recording, and how their clocks relate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path

from critpath.model import Clock
from critpath.read.metadata.schema import ClockClass, StreamClass, TraceClass, get_event_names
from critpath.records import dataclass
from critpath.units import NS_PER_S, format_ns

_FAR = 1 << 61  # a shift this large leaves no room for timestamps


@dataclass(frozen=True)
class Trace:
    """One CTF trace of a recording.

    Attributes
    ----------
    name : str
        Its directory below the recording.
    directory : Path
    files : tuple of Path
        Its stream files in natural order.
    schema : TraceClass
    """

    name: str
    directory: Path
    files: tuple[Path, ...]
    schema: TraceClass

    @property
    def domain(self) -> str:
        """``kernel``, ``ust`` or what the environment says."""
        return known if (known := self.schema.environment.domain) is not None else "kernel"

    @property
    def host(self) -> str:
        """Name of the traced machine, "" if unknown."""
        return self.schema.environment.hostname or ""

    @property
    def event_names(self) -> Iterator[str]:
        """Names of its classes of events, stream after stream."""
        for stream in self.schema.streams.values():
            yield from get_event_names(stream.events).values()


def natural_key(path: Path) -> tuple[tuple[int, str], ...]:
    """Sort digits as numbers: chan_0_2 before chan_0_10."""
    parts = re.split(r"(\d+)", path.name)
    return tuple((int(p), "") if p.isdecimal() and len(p) < 19 else (-1, p) for p in parts)


def clock_of(schema: TraceClass, stream: StreamClass) -> ClockClass | None:
    """Return the clock that a stream's timestamps count."""
    return schema.clocks.get(stream.clock) if stream.clock else None


def epoch_of(clock: ClockClass, version: tuple[int, int]) -> int:
    """Return the ns from the Unix epoch to a clock's zero, 0 for a clock of another origin."""
    if version >= (2, 0) and not clock.absolute:
        return 0
    return clock.offset_seconds * NS_PER_S + clock.offset * NS_PER_S // max(clock.frequency, 1)


@dataclass
class Clocks:
    """Aligns the timestamps of all traces with the clock of the first trace that has one.

    Clocks of one UUID are one clock, whatever their offsets: LTTng measures the offset anew
    for each trace, which makes them differ by microseconds.
    """

    traces: Sequence[Trace]
    warnings: list[str] = field(default_factory=list)
    reference: Clock = field(default_factory=Clock)
    _known: bool = False
    _warned: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for trace in self.traces:
            for stream in trace.schema.streams.values():
                clock = clock_of(trace.schema, stream)
                if clock is not None and not self._known:
                    epoch = epoch_of(clock, trace.schema.version)
                    self.reference = Clock(clock.name, clock.uuid, clock.frequency, epoch)
                    self._known = True

    def shift(self, trace: Trace, clock: ClockClass | None) -> int:
        """Return the ns to add to a trace's timestamps."""
        if clock is None or not self._known:
            return 0
        if clock.uuid and clock.uuid == self.reference.uuid:
            return 0
        epoch = epoch_of(clock, trace.schema.version)
        shift = epoch - self.reference.epoch
        if not self.reference.uuid and not clock.uuid and shift == 0:
            return 0
        if trace.name in self._warned:
            return shift if abs(shift) < _FAR else 0
        self._warned.add(trace.name)
        if abs(shift) >= _FAR:
            self.warnings.append(
                f"{trace.name}: its clock is {format_ns(shift)} away from the first trace's,"
                " which cannot be right: its events are not aligned"
            )
            return 0
        self.warnings.append(
            f"{trace.name}: has another clock than the first trace; aligned by their offsets"
            f" to the epoch ({format_ns(shift, sign=True)}), which is no better than a few us"
        )
        return shift
