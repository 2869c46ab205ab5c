"""Work whose events are numbered (``numbered.c``), and what a recording has of the numbers.

That is how loss is told from outside, without any counter of the tracer: a number that was
reached and is not in the trace is lost.  It is lost silently if the recording names no loss on
that cpu at that time, or names fewer events than are missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from critpath.model import EventRequest, Kind, Loss, Manifest
from critpath.read.manifest import add_counted_losses
from critpath.read.streaming import EventStream
from critpath.read.traces import find_traces
from critpath_record.manifests import read_manifest
from critpath_record.profiles import profile_events

SOURCE = Path(__file__).with_name("numbered.c")
CALL = (EventRequest(Kind.OTHER, ("syscall_entry_lseek",), (("fd",), ("offset",), ("whence",))),)
MOST, EVERY, STAMPS = 8, 256, 1 << 20


def compile_c(source: Path, target: Path, *options: str) -> Path:
    """Compile a program or a library; raises FileNotFoundError without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler: cc is not on PATH")
    subprocess.run([compiler, "-O1", *options, "-o", target, source], check=True)
    return target


def build(directory: Path) -> Path:
    """Compile the program that makes numbered calls."""
    return compile_c(SOURCE, directory / "numbered")


def write_profile(directory: Path) -> Path:
    """Write what to record: these calls, and little of others' work."""
    tracepoints = profile_events("minimal").tracepoints
    rule = "<event><name>{}</name><enabled>true</enabled><type>{}</type></event>"
    rules = [rule.format(name, "TRACEPOINT") for name in tracepoints]
    rules.append(rule.format("lseek", "SYSCALL"))
    file = directory / "numbered.lttng"
    file.write_text(
        "<sessions><session><name>x</name><domains><domain><type>KERNEL</type><channels><channel>"
        f"<name>kernel</name><enabled>true</enabled><events>{''.join(rules)}</events></channel>"
        "</channels></domain></domains></session></sessions>",
        encoding="utf-8",
    )
    return file


@dataclass(frozen=True)
class Seen:
    """What a recording has of the numbers.

    Attributes
    ----------
    events : int
        In the trace, of every kind.
    made : int
        Numbers that were reached before the recording's end.
    found : int
        Of these, those in the trace.
    reported : int
        Events that the recording says were lost, on all cpus.
    silent : int
        Numbers that are missing where the recording says nothing of it.
    """

    events: int
    made: int
    found: int
    reported: int
    silent: int


class Numbers:
    """Numbered work in progress, or done.

    Parameters
    ----------
    program : Path
        From `build`.
    shared : Path
        File in which it counts; should be on a file system in memory.
    name : int
        Tells its calls from those of others that are recorded at the same time.
    """

    def __init__(self, program: Path, shared: Path, name: int = 1000) -> None:
        self.program, self.shared, self.name = program, shared, name
        self.cpus: list[int] = []

    def calls(
        self, seconds: float, rate: int = 0, cpus: Sequence[int] | None = None
    ) -> tuple[str, ...]:
        """Return the command that makes `rate` numbered calls a second on every cpu."""
        cpus = sorted(os.sched_getaffinity(0)) if cpus is None else cpus
        self.cpus = list(cpus)[:MOST]
        words = (self.program, self.shared, "calls", seconds, rate, self.name, *self.cpus)
        return tuple(map(str, words))

    def processes(self, count: int, program: str) -> tuple[str, ...]:
        """Return the command that runs a program so often."""
        return tuple(map(str, (self.program, self.shared, "processes", count, program)))

    def _numbers(self, first: int, count: int) -> np.ndarray:
        return np.fromfile(self.shared, np.int64, count, offset=8 * first)

    @property
    def done(self) -> list[int]:
        """How far each process came."""
        return self._numbers(0, len(self.cpus)).tolist()

    @property
    def seconds(self) -> float:
        """How long the slowest took; 0 if it was killed."""
        return max(self._numbers(MOST, MOST).tolist()) / 1e9

    def made_by(self, process: int, time: int) -> int:
        """Return how many calls a process had made for sure at a time."""
        done, ended = self.done[process], int(self._numbers(2 * MOST, MOST)[process])
        if ended and ended <= time:
            return done
        stamps = self._numbers(3 * MOST + process * STAMPS, done // EVERY + 1)[1:]
        return int(np.searchsorted(stamps, time, side="right")) * EVERY

    def seen(self, recording: Path) -> Seen:
        """Look for every number in a recording."""
        manifest = read_manifest(recording)
        gaps = [_Gaps(manifest.begin) for _ in self.cpus]
        with EventStream(list(find_traces(recording)), CALL) as stream:
            for chunk in stream:
                values = chunk.values.reshape(-1, 3)
                for process, of in enumerate(gaps):
                    rows = values[:, 2] == self.name + process
                    of.add(values[rows, 1], chunk.timestamp[rows], chunk.cpu[rows])
            events = add_counted_losses(stream.finish(), manifest)
        end = manifest.end
        made = [self.made_by(process, end) for process in range(len(gaps))]
        silent = 0
        missing: dict[int, int] = {}
        for cpu, count, of in zip(self.cpus, made, gaps, strict=True):
            assert of.cpus <= {cpu}
            for first, last, begin, until in of.all(count, end):
                missing[cpu] = missing.get(cpu, 0) + last - first + 1
                if not _covered(events.losses, cpu, begin, until):
                    silent += last - first + 1
        for cpu, count in missing.items():
            silent += max(0, count - _reported(manifest, cpu))
        return Seen(
            events=events.total,
            made=sum(made),
            found=sum(made) - sum(missing.values()),
            reported=sum(loss.events for loss in manifest.loss),
            silent=silent,
        )


class _Gaps:
    """The numbers that one process should have made and are not there."""

    def __init__(self, begin: int) -> None:
        self.last, self.time = 0, begin
        self.cpus: set[int] = set()
        self._gaps: list[tuple[int, int, int, int]] = []

    def add(self, numbers: np.ndarray, times: np.ndarray, cpus: np.ndarray) -> None:
        """Add the next numbers of the trace, which ascend."""
        if not len(numbers):
            return
        known = np.concatenate([[self.last], numbers])
        when = np.concatenate([[self.time], times])
        steps = np.diff(known)
        assert (steps > 0).all(), "a number twice, or out of order"
        for at in np.flatnonzero(steps > 1):
            gap = known[at] + 1, known[at + 1] - 1, when[at], when[at + 1]
            self._gaps.append(tuple(int(x) for x in gap))
        self.last, self.time = int(known[-1]), int(when[-1])
        self.cpus.update(np.unique(cpus).tolist())

    def all(self, made: int, end: int) -> list[tuple[int, int, int, int]]:
        """Return each gap: its first and last number, and the times around it."""
        rest = [(self.last + 1, made, self.time, end)] if self.last < made else []
        return [*self._gaps, *rest]


def _covered(losses: Sequence[Loss], cpu: int, begin: int, end: int) -> bool:
    return any(x.cpu in {-1, cpu} and x.begin <= end and begin <= x.end for x in losses)


def _reported(manifest: Manifest, cpu: int) -> int:
    return sum(loss.events for loss in manifest.loss if loss.cpu in {-1, cpu})
