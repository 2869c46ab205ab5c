"""A recording all the way: found, decoded, replayed, walked, counted, and two ways compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from contract import ContractError

from critpath.engines.limits import Budget
from critpath.errors import CritpathError
from critpath.flow import extract_recording
from critpath.model import EventRequest, ExtractSettings, Kind, PathSet
from critpath.model.joining import join_sets
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.recording import Recording
from critpath.read.streaming import EventStream, OutOfOrder
from critpath.read.traces import find_traces, read_events
from critpath.vectors.table import Coder, vectors_of

EVERYTHING: Final = (EventRequest(Kind.OTHER, ("*",), (("*",),)),)
SPECIFICATIONS: Final = (
    "thread",
    "process",
    "events:app:request_begin,app:request_end,key=id,label=type",
    "events:sched_switch,sched_switch",
    "marker",
    None,
    "thread,comm=worker",
    "events:*sched_waking,*sched_switch,key=tid",
)


@dataclass(frozen=True)
class Way:
    """How a recording is read: the bits of one byte."""

    byte: int

    @property
    def specification(self) -> str | None:
        """What an execution is."""
        return SPECIFICATIONS[self.byte & 7]

    @property
    def budget(self) -> Budget:
        """As without ``--max-memory``, or blocks and groups as small as they can be."""
        return Budget(50, 3, spills=True) if self.byte & 8 else Budget()

    @property
    def every_field(self) -> bool:
        """Decode every field of every event, where events are compared."""
        return bool(self.byte & 16)

    @property
    def compares(self) -> bool:
        """Read events as a stream and as a whole, instead of extracting paths."""
        return bool(self.byte & 64)

    @property
    def interrupts(self) -> bool:
        """Tell interrupt work apart."""
        return not self.byte & 32


def read_all(recording: Path, way: Way) -> None:
    """Read a recording in some way, and hold what comes of it against itself.

    Raises
    ------
    CritpathError
        As extraction does.
    ContractError
        If the answer contradicts itself, or two ways of reading differ.
    """
    if way.compares:
        both_ways(recording, EVERYTHING if way.every_field else KERNEL_EVENTS)
        return
    # Chosen by the bytes, not by the memory of this machine.
    Budget.within = classmethod(lambda _cls, _limit: way.budget)  # type: ignore[method-assign]
    settings = ExtractSettings(
        specification=way.specification, interrupts=way.interrupts, max_memory=1 << 40
    )
    paths = join_sets(list(extract_recording(Recording(recording), settings)))
    check_paths(paths)
    for vector in ("thread", "state"):
        table = vectors_of(paths, Coder((paths,), vector))
        window = paths.executions.end - paths.executions.begin
        if not np.array_equal(table.durations.sum(axis=1), window):
            raise ContractError(f"durations by {vector} do not add up to the windows")


def both_ways(recording: Path, wanted: tuple[EventRequest, ...]) -> None:
    """Read the events as a stream and as a whole: they must be the same."""
    traces = find_traces(recording)
    refusal, whole = None, None
    try:
        whole = read_events(recording, wanted)
    except CritpathError as error:
        refusal = error
    try:
        with EventStream(traces, wanted, chunk=64) as stream:
            count, last = 0, None
            stamps, cpus, names = [], [], []
            for chunk in stream:
                stamps.append(np.array(chunk.timestamp))
                cpus.append(np.array(chunk.cpu))
                names += [stream.classes[c].name for c in chunk.event_class.tolist()]
                count += len(chunk.timestamp)
                if last is not None and len(stamps[-1]) and stamps[-1][0] < last:
                    raise ContractError("chunks are not in the order of time")
                last = int(stamps[-1][-1]) if len(stamps[-1]) else last
            about = stream.finish()
    except OutOfOrder:
        return
    except CritpathError as error:
        if refusal is None or refusal.what != error.what:
            raise ContractError(f"{refusal!r} as a whole, {error!r} as a stream") from error
        raise
    if whole is None:
        raise ContractError(f"{refusal!r} as a whole, {count} events as a stream")
    same = (
        whole.total == about.total
        and whole.losses == about.losses
        and len(whole) == count
        and np.array_equal(whole.timestamp, np.concatenate([whole.timestamp[:0], *stamps]))
        and np.array_equal(whole.cpu, np.concatenate([whole.cpu[:0], *cpus]))
        and [whole.classes[c].name for c in whole.event_class.tolist()] == names
    )
    if not same:
        raise ContractError("events as a stream are not those as a whole")


def check_paths(paths: PathSet) -> None:
    """Every path is one piece after the other from its begin to its end."""
    of, executions = paths.paths.resident(), paths.executions
    start = of.start
    if len(executions) != len(start) - 1 or (np.diff(start) < 0).any() or start[0] != 0:
        raise ContractError("paths and executions do not go together")
    if (of.end < of.begin).any() or (executions.end < executions.begin).any():
        raise ContractError("something ends before it begins")
    for i in range(len(executions)):
        begin, end = of.begin[start[i] : start[i + 1]], of.end[start[i] : start[i + 1]]
        if not len(begin):
            continue
        whole = begin[0] == executions.begin[i] and end[-1] == executions.end[i]
        if not whole or (begin[1:] != end[:-1]).any():
            raise ContractError(f"path {i} has a gap, or is not of its execution")
