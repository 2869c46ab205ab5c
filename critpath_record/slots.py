"""Times slots: runs of one of two commands, and what the machine did; nothing is traced."""

from __future__ import annotations

import errno
import os
import re
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from critpath.documents import AbBlock
from critpath.errors import CritpathError, UsageError
from critpath.units import NS_PER_S
from critpath_record.machine import make_probes, read_pressures, read_ticks
from critpath_record.runner import Executable, Runner, RunResult, find_executable
from critpath_record.session import subreaper
from critpath_record.signals import InheritedState, Signals
from critpath_record.stacks.rings import ATTRIBUTES, open_event
from critpath_record.user import User

_PADDING: Final = "CRITPATH_PADDING"
_PROBES: Final = ("l1", "syscall")  # after each slot: those that take less than 0.1 ms
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_MICROSECONDS: Final = 1_000_000
_MOST_PRINTED: Final = 1 << 20  # bytes of what is printed that a label is looked for in
_LONGEST_LABEL: Final = 100

_EVENTS: Final = {"cycles": (0, 0), "instructions": (0, 1)}  # of the hardware
# Bits of how an event is to be: off here, and in what is started from its exec on; of the
# program's own code alone, as anyone may count.
_HERE_OFF, _INHERITED, _NO_KERNEL, _NO_HOST, _FROM_EXEC = 1, 1 << 1, 1 << 5, 1 << 6, 1 << 12
_WITH_TIMES: Final = 3  # for how long it was to count, and did
_READ: Final = struct.Struct("<QQQ")
_LACKING: Final = {errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.ENOSYS, errno.EINVAL}


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
    counter: Counter | None = None

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
        counted: str = "",
    ) -> Iterator[SlotRunner]:
        """Get ready to run two commands; signals are taken from here on.

        With ``label``, a regular expression, runs are labelled by what they print; of what is
        ``counted``, instructions or cycles, each is told how many it took.
        """
        user = User.behind_sudo(inherited.environment, as_root=as_root)
        programs = [find_executable(command, inherited.environment) for command in commands]
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        printed = os.memfd_create("critpath-printed") if label else -1
        said: list[str] = []
        counter = Counter(counted) if counted else None
        try:
            with Signals(inherited, said.append) as signals, subreaper():
                runner = Runner(inherited, user, signals, said.append)
                streams = (nothing, -1, -1) if show_output else (nothing, nothing, nothing)
                both = dict(zip("AB", programs, strict=True))
                found = re.compile(os.fsencode(label)) if label else None
                more = (streams, user, found, printed, counter)
                yield cls(runner, signals, both, prepare, timeout, *more)
        finally:
            os.close(nothing)
            if label:
                os.close(printed)
            if counter is not None:
                counter.close()

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

    @property
    def ended_by(self) -> int:
        """The signal that asked for it, 0 for none."""
        return self.signals.first

    def run_block(self, order: Literal["ABBA", "BAAB"], executions: int) -> AbBlock | None:
        """Run a block; None if the user ended it."""
        probes: dict[str, list[int]] = {kind: [] for kind in self._probes}
        block = AbBlock(order=order, times=[], run=[], waited=[], counted=[], probes=probes)
        failed = []
        before = _read_counters()
        for side in order:
            labels: list[str] = []
            done, wrong = self._run_slot(side, executions, labels)
            if self.interrupted:
                return None
            if self.label:
                block.labels.append(labels)
            block.times.append([run.end - run.executed for run in done])
            block.run.append([run.running for run in done])
            block.waited.append([run.waited for run in done])
            if self.counter is not None:
                block.counted.append([run.counted for run in done])
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
    ) -> tuple[list[RunResult], int]:
        """Return the runs that did not fail, and how many did."""
        whole, failed = [], 0
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
                counter=self.counter,
            )
            if self.interrupted:
                break
            if done.exit_code:
                failed += 1
            else:
                whole.append(done)
                labels.append(self._read_label())
        return whole, failed

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


class Counter:
    """Counts in all that is started after it, until that has ended.

    `code`: kind and number of the event, as ``perf_event_open`` has them.
    """

    def __init__(self, name: str, code: tuple[int, int] | None = None) -> None:
        kind, number = code or _EVENTS[name]
        how = _HERE_OFF | _NO_KERNEL | _NO_HOST | _FROM_EXEC
        self._last = 0, 0, 0
        try:
            # The second counts nothing.  But what does not inherit all events of ours is no twin
            # of us, and the kernel, which is free to swap the events of twins, leaves ours alone.
            self._event, self._other = (
                open_event(
                    ATTRIBUTES.pack(
                        kind, ATTRIBUTES.size, number, 0, 0, _WITH_TIMES, bits, *[0] * 8
                    ),
                    *(0, -1, -1, 0),
                )
                for bits in (how | _INHERITED, how)
            )
        except (OSError, KeyError) as error:
            number = getattr(error, "errno", errno.ENOSYS)
            if number in _LACKING:
                raise UsageError(
                    f"this machine counts no {name}: a virtual machine often has no counters",
                    "give --of run (time on a cpu), which every machine has",
                ) from None
            raise UsageError(
                f"{name} may not be counted here: {os.strerror(number)}",
                "sysctl kernel.perf_event_paranoid=2, or --of run",
            ) from None

    def take(self) -> int:
        """Return how many there were since the last call.

        What is missing where others had the counters for a while is put in by proportion.
        """
        now = _READ.unpack(os.read(self._event, _READ.size))
        count, wanted, had = (one - before for one, before in zip(now, self._last, strict=True))
        self._last = now
        return round(count * wanted / had) if had else 0

    def close(self) -> None:
        """Count no more."""
        os.close(self._event)
        os.close(self._other)
