"""Times slots: executions of one of two commands, and what the machine did; nothing is traced."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from critpath.documents import AbBlock
from critpath.errors import CritpathError
from critpath.units import NS_PER_S
from critpath_record.machine import make_probes, read_pressures, read_ticks
from critpath_record.runner import Executable, Runner, find_executable
from critpath_record.session import subreaper
from critpath_record.signals import InheritedState, Signals
from critpath_record.user import User

_PADDING: Final = "CRITPATH_PADDING"
_PROBES: Final = ("l1", "syscall")  # after each slot: those that take less than 0.1 ms
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_MICROSECONDS: Final = 1_000_000
_MOST_PRINTED: Final = 1 << 20  # bytes of what is printed that a label is looked for in
_LONGEST_LABEL: Final = 100


@dataclass
class SlotRunner:
    """Runs slots of the two commands, ``A`` and ``B``."""

    runner: Runner
    signals: Signals
    programs: Mapping[str, Executable]
    prepare: str
    timeout: float
    streams: tuple[int, int, int]
    user: User | None
    label: re.Pattern[bytes] | None = None
    printed: int = -1  # a file in memory that takes what an execution prints

    @classmethod
    @contextmanager
    def open(
        cls,
        inherited: InheritedState,
        commands: Sequence[Sequence[str]],
        *,
        prepare: str,
        timeout: float,
        as_root: bool,
        show_output: bool,
        label: str = "",
    ) -> Iterator[SlotRunner]:
        """Get ready to run two commands; signals are taken from here on.

        With ``label``, a regular expression, executions are labelled by what they print.
        """
        user = User.behind_sudo(inherited.environment, as_root=as_root)
        programs = [find_executable(command, inherited.environment) for command in commands]
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        printed = os.memfd_create("critpath-printed") if label else -1
        said: list[str] = []
        try:
            with Signals(inherited, said.append) as signals, subreaper():
                runner = Runner(inherited, user, signals, said.append)
                streams = (nothing, -1, -1) if show_output else (nothing, nothing, nothing)
                both = dict(zip("AB", programs, strict=True))
                found = re.compile(os.fsencode(label)) if label else None
                yield cls(runner, signals, both, prepare, timeout, streams, user, found, printed)
        finally:
            os.close(nothing)
            if label:
                os.close(printed)

    def __post_init__(self) -> None:
        # What the kernel lays out above a program's stack is equally long for both: where the
        # stack begins alone can change a time by some per cent.
        lengths = {
            side: len(program.path) + sum(len(argument) + 1 for argument in program.argv)
            for side, program in self.programs.items()
        }
        longest = max(lengths.values())
        probes = make_probes()
        self._probes = {kind: probes[kind] for kind in _PROBES}
        self._environments = {
            side: {_PADDING: "x" * (longest - length)} if len(set(lengths.values())) > 1 else {}
            for side, length in lengths.items()
        }

    @property
    def interrupted(self) -> bool:
        """Whether the user asked for an end."""
        return self.signals.poll()

    def run_block(self, order: Literal["ABBA", "BAAB"], executions: int) -> AbBlock | None:
        """Run a block; None if the user ended it."""
        block = AbBlock(order=order, times=[], run=[], probes={kind: [] for kind in self._probes})
        failed = []
        before = _read_counters()
        for side in order:
            labels: list[str] = []
            times, running, wrong = self._run_slot(side, executions, labels)
            if self.interrupted:
                return None
            if self.label:
                block.labels.append(labels)
            block.times.append(times)
            block.run.append(running)
            failed.append(wrong)
            for kind, probe in self._probes.items():
                block.probes[kind].append(probe())
        after = _read_counters()
        block.machine = {key: round(after[key] - before[key], 6) for key in before if key in after}
        if any(failed):
            block.failed = failed
        return block

    def _run_slot(
        self, side: str, executions: int, labels: list[str]
    ) -> tuple[list[int], list[int], int]:
        times, running, failed = [], [], 0
        if self.prepare:
            self._run_prepare()
        streams = self.streams
        if self.label:
            streams = (streams[0], self.printed, streams[2])
        for _ in range(executions):
            if self.label:  # what the one before has printed goes
                os.ftruncate(self.printed, 0)
                os.lseek(self.printed, 0, os.SEEK_SET)
            done = self.runner.run(
                self.programs[side],
                environment=self._environments[side],
                timeout=self.timeout,
                streams=streams,
            )
            if self.interrupted:
                break
            if done.exit_code:
                failed += 1
            else:
                times.append(done.end - done.executed)
                running.append(done.running)
                labels.append(self._read_label())
        return times, running, failed

    def _read_label(self) -> str:
        """Return what the expression finds in what was printed: its first group, if it has one."""
        if self.label is None:
            return ""
        found = self.label.search(os.pread(self.printed, _MOST_PRINTED, 0))
        text = found[min(1, self.label.groups)] if found else b""
        return (text or b"").decode(errors="replace")[:_LONGEST_LABEL]

    def _run_prepare(self) -> None:
        shell = Executable(b"/bin/sh", (b"sh", b"-c", os.fsencode(self.prepare)))
        done = self.runner.run(shell, environment={}, streams=self.streams)
        if done.exit_code and not self.interrupted:
            raise CritpathError(
                f"--prepare failed with {done.exit_code}: {self.prepare}",
                "correct it, or end it with '|| true' if its failure does not matter",
            )


def _read_counters() -> dict[str, float]:
    """Return seconds since some moment, of the machine and of us with what we started."""
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) / NS_PER_S
    found = {"seconds": now, "own": sum(os.times()[:4])}
    busy, steal, idle = (ticks / _TICKS for ticks in read_ticks())
    if busy:
        found.update(busy=busy, steal=steal, capacity=busy + steal + idle)
    pressure = read_pressures()[0]
    if pressure >= 0:
        found["psi"] = pressure / _MICROSECONDS
    return found
