"""Layers of a recording under a budget: instances whose events are opened and closed.

Closed softly, an event stays attached and returns at once: a trigger that can never fire keeps it
so.  Where the kernel refuses that, or for more events than it is worth, ``tracing_on`` of the
instance closes; `off` takes the costliest events away altogether.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath_record.budget.control import SOFT, TRACING_ON
from critpath_record.budget.gaps import BASE
from critpath_record.ftrace.drain import Drain, online_cpus
from critpath_record.ftrace.events import abbreviate_groups
from critpath_record.ftrace.preflight import CLOCK
from critpath_record.ftrace.tracefs import LAYER, Instance

_ALWAYS: Final = frozenset(
    {
        *("sched/sched_process_fork", "sched/sched_process_exec", "sched/sched_process_exit"),
        *("task/task_newtask", "cgroup/cgroup_attach_task"),
    }
)
_BASE: Final = re.compile(
    r"sched/(sched_switch|sched_waking|sched_wakeup_new)|irq/.*|timer/(hrtimer|timer)_expire_.*"
)
_NETWORK: Final = frozenset({"net", "sock", "tcp", "skb"})
_RARE: Final = "sched/sched_kthread_stop"
_TRIGGER: Final = f"events/{_RARE}/trigger"
_MOST_SOFT: Final = 64
_COSTLIEST: Final = ("sched/sched_switch", "sched/sched_waking")
_MOST_BYTES: Final = 8 << 20
_EVENT_BYTES: Final = 40  # of the smallest that are frequent
_MOST_FULL: Final = 25  # percent of a buffer that may wait to be moved


def split_layers(events: Iterable[str]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Return the events that are always recorded, and those of each layer, `BASE` first."""
    always: list[str] = []
    base: list[str] = []
    rest: list[str] = []
    for event in events:
        (always if event in _ALWAYS else base if _BASE.fullmatch(event) else rest).append(event)
    layers = {BASE: tuple(base)}
    if rest:
        groups = {event.partition("/")[0] for event in rest}
        name = "syscalls" if groups == {"syscalls"} else "full"
        layers["network" if groups <= _NETWORK else name] = tuple(rest)
    return tuple(always), layers


def lasts(events: Iterable[str]) -> bool:
    """Return whether an always-on recorder records all of these all the time, as sockets' are."""
    return {event.partition("/")[0] for event in events} <= {"sock", "tcp"}


def instance_name(layer: str, session: str) -> str:
    """Return the name of a layer's instance."""
    return f"{LAYER}{layer}.{session}"


class Layer:
    """One layer: its instance, the threads that move its pages, and its gate.

    Closed when it is made; `open` and `close` take microseconds.
    """

    def __init__(self, root: Path, session: str, name: str, events: Sequence[str]) -> None:
        self.name, self.events = name, tuple(events)
        self.instance = Instance.pin(root, instance_name(name, session))
        self.state = TRACING_ON
        self.drain: Drain | None = None
        self.is_open = self.is_off = False
        self._switches: dict[str, int] = {}
        self._stats: dict[int, int] = {}
        self._on = -1
        self._buffer_bytes = _MOST_BYTES
        self.missing: tuple[str, ...] = ()

    def make(self, available: list[str], buffer_bytes: int, most: int = _MOST_BYTES) -> None:
        """Make the instance and its gate; raises CritpathError."""
        instance = self.instance
        instance.make()
        instance.own({*self.events, _RARE})
        instance.write("tracing_on", "0")
        self._on = instance.open("tracing_on", os.O_RDWR)
        instance.write("trace_clock", CLOCK)
        instance.write("options/overwrite", "1")
        instance.write("options/markers", "0")
        kib = -(-min(buffer_bytes, most) // 1024)
        instance.write("buffer_size_kb", str(kib))
        self._buffer_bytes = kib << 10
        with contextlib.suppress(CritpathError):
            instance.write("buffer_percent", "1")
        if len(self.events) <= _MOST_SOFT and self._make_soft(self.events):
            self.state = SOFT
            for event in self.events:
                self._switches[event] = instance.open(f"events/{event}/enable", os.O_RDWR)
            instance.write("tracing_on", "1")
        else:
            instance.enable_events(abbreviate_groups(self.events, available))
            enabled = set(instance.enabled_events())
            self.missing = tuple(event for event in self.events if event not in enabled)
            self.events = tuple(sorted(enabled))
            self._switches[""] = self._on

    def _make_soft(self, events: Sequence[str]) -> bool:
        """Set triggers that never fire; return whether the kernel takes them."""
        done = []
        try:
            for event in events:
                self._trigger("", event)
                done.append(event)
        except (CritpathError, OSError):
            for event in done:
                with contextlib.suppress(CritpathError, OSError):
                    self._trigger("!", event)
            return False
        return True

    def _trigger(self, sign: str, event: str) -> None:
        name = event.replace("/", ":", 1)
        self.instance.append(_TRIGGER, f"{sign}enable_event:{name} if common_pid < 0")

    def start(
        self,
        raw: Path,
        page_bytes: int,
        failed: Callable[[], None],
        moved: Callable[[], None],
    ) -> None:
        """Move pages from now on, as `Drain` does."""
        raw.mkdir(mode=0o700, parents=True)
        self.drain = Drain(self.instance, raw, page_bytes, _MOST_BYTES, failed, moved=moved)
        self.drain.start(online_cpus())
        self.open_counts(online_cpus())

    def open_counts(self, cpus: Sequence[int]) -> None:
        """Keep the kernel's counts open, for `counts`."""
        for cpu in cpus:
            self._stats[cpu] = self.instance.open(f"per_cpu/cpu{cpu}/stats", os.O_RDONLY)

    def move_after(self, events: float) -> None:
        """Move pages, which is when the count is looked at, after so many events of a cpu."""
        percent = int(100 * _EVENT_BYTES * events / self._buffer_bytes)
        with contextlib.suppress(CritpathError):
            self.instance.write("buffer_percent", str(min(max(percent, 1), _MOST_FULL)))

    def open(self) -> None:
        """Record from now on."""
        if self.is_off:
            self.turn_on()
        for switch in self._switches.values():
            os.pwrite(switch, b"1", 0)
        self.is_open = True

    def close(self) -> None:
        """Record nothing from now on; what met the gate returns at once."""
        for switch in self._switches.values():
            os.pwrite(switch, b"0", 0)
        self.is_open = False

    def adopt(self) -> None:
        """Know that a program has opened it."""
        if self.is_off:
            self.turn_on()
        self.is_open = True

    def end(self) -> None:
        """Record nothing more, whoever opens it."""
        with contextlib.suppress(CritpathError):
            self.instance.write("tracing_on", "0")

    @property
    def switches(self) -> tuple[int, ...]:
        """The descriptors to which ``1`` opens."""
        return tuple(self._switches.values())

    def turn_off(self) -> None:
        """Take the costliest events away, while closed."""
        if self.state != SOFT or self.is_off:
            return
        for event in _COSTLIEST:
            if event in self._switches:
                self._trigger("!", event)
        self.is_off = True

    def turn_on(self) -> None:
        """Undo `turn_off`."""
        for event in _COSTLIEST if self.is_off else ():
            if event in self._switches:
                self._trigger("", event)
        self.is_off = False

    def put_right(self) -> bool:
        """Switch as it should be what somebody else has switched; return whether they had."""
        on = self.state == SOFT or self.is_open
        wrong = os.pread(self._on, 1, 0) != b"%d" % on
        first = next(iter(self._switches.values()))
        if self.state == SOFT and not self.is_off:
            wrong |= os.pread(first, 1, 0) != b"%d" % self.is_open
        if wrong:
            if self.state == SOFT:
                self.instance.write("tracing_on", "1")
            (self.open if self.is_open else self.close)()
        return wrong

    def cpu_time(self) -> float:
        """Return the cpu time of the threads that move pages (s)."""
        return self.drain.cpu_time() if self.drain is not None else 0.0

    def count_files(self, cpus: Sequence[int]) -> list[int]:
        """Return the descriptors from which `counts` is read."""
        return [self._stats[cpu] for cpu in cpus]

    def counts(self, cpus: Sequence[int]) -> list[int]:
        """Return how many events each cpu recorded so far."""
        return [_count(os.pread(self._stats[cpu], 512, 0)) for cpu in cpus]

    def lost(self, cpus: Sequence[int]) -> list[int]:
        """Return how many events each cpu lost so far, but for those that were overwritten."""
        return [count_lost(os.pread(self._stats[cpu], 512, 0)) for cpu in cpus]

    def stop(self) -> Mapping[int, Mapping[str, int]]:
        """Close, move the rest, and return the kernel's counts by cpu."""
        with contextlib.suppress(OSError):
            self.close()
        self.instance.write("tracing_on", "0")
        if self.drain is not None:
            self.drain.stop()
        stats = {cpu: self.instance.stats(cpu) for cpu in self.instance.cpus()}
        return {cpu: of for cpu, of in stats.items() if any(of.values())}

    def remove(self) -> None:
        """Remove the instance; raises CritpathError if somebody holds it."""
        for descriptor in {*self._switches.values(), *self._stats.values(), self._on}:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._switches, self._stats, self._on = {}, {}, -1
        if self.drain is not None:
            self.drain.abandon()
        self.instance.remove()


_COUNTS: Final = re.compile(rb"^(?:entries|overrun|read events): (\d+)", re.MULTILINE)


_LOST: Final = re.compile(rb"^(?:commit overrun|dropped events): (\d+)", re.MULTILINE)


def count_lost(text: bytes) -> int:
    """Return how many events a cpu's buffer could not take, by the kernel's counts."""
    return sum(int(number) for number in _LOST.findall(text))


def _count(text: bytes) -> int:
    """Return what was ever written to a cpu's buffer."""
    return sum(int(number) for number in _COUNTS.findall(text))


def make_layers(
    root: Path, session: str, events: Sequence[str], available: list[str], buffer_bytes: int
) -> tuple[list[str], list[Layer]]:
    """Make the layers of a profile, closed; return the events that are always recorded, too."""
    always, layers = split_layers(events)
    made = [Layer(root, session, name, own) for name, own in layers.items()]
    try:
        for layer in made:
            layer.make(available, buffer_bytes)
    except BaseException:
        for layer in made:
            with contextlib.suppress(CritpathError, OSError):
                layer.remove()
        raise
    return [*always], made
