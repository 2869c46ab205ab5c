"""Events -> timelines, as they come: prepares the tables and feeds the native replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from critpath.errors import UnreadableError
from critpath.model import (
    I64,
    EventChunk,
    EventClass,
    Events,
    Kind,
    Loss,
    PackedBlock,
    State,
    Timelines,
    Workers,
)
from critpath.model.packing import Arena, Desk, PackedTable
from critpath.timeline._replay import Replay
from critpath.timeline.contexts import (
    SOFTIRQS,
    device_state,
    prev_state_of,
    syscall_name,
    syscall_state,
    vector_name,
    vector_state,
)
from critpath.timeline.network import PACKETS, NetRecord, linked_packets, network_events

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_CPUS: Final = 32768
_IRQ_NAME: Final = 1  # field of an interrupt's entry, in the canonical order


class Replayer:
    """Rebuilds what every thread was doing, from events as they come.

    Parameters
    ----------
    hosts : sequence of str
        All that events may come from; `EventClass.host` is an index into them.
    environment : sequence of mapping
        The ``env`` of every trace: what ``prev_state`` means depends on the kernel.
    losses : sequence of Loss
        As far as they are known; one that ends before an event is taken into account
        at that event.
    code : callable
        Interns a text in the table that the events' strings are in.
    text : callable
        The text of a code.
    has_waking, has_syscalls : bool
        Whether there will be ``sched_waking`` and entries of system calls.  What turns
        out to be wrong is seen in `present`, and has to be replayed again.

    Attributes
    ----------
    last : int
        Time of the last event.

    Notes
    -----
    Giraldeau and Dagenais, "Wait analysis of distributed systems using kernel
    tracing" (TPDS 2016), with the corrections listed in docs/critical-path.md:
    a wake is read from ``sched_waking`` and its interrupt context, a wake that
    races the switch-out is kept, idle is never a waker.
    """

    def __init__(
        self,
        *,
        hosts: Sequence[str],
        environment: Sequence[Mapping[str, str | int]],
        losses: Sequence[Loss],
        code: Callable[[str], int],
        text: Callable[[int], str],
        has_waking: bool,
        has_syscalls: bool,
    ) -> None:
        self._code, self._text = code, text
        self._core = Replay(
            len(hosts),
            has_waking=int(has_waking),
            has_syscalls=int(has_syscalls),
            prev_states=prev_states(hosts, environment),
            losses=loss_table(losses),
            **fixed_tables(code),
        )
        self._desk, self._arena = Desk(), Arena()
        self._classes = 0
        self._network = False
        self.last = int(np.iinfo(np.int64).min)

    def feed(self, chunk: EventChunk | Events, classes: Sequence[EventClass]) -> None:
        """Replay some events, which come after those before.

        Parameters
        ----------
        chunk : EventChunk
            Fields in the canonical order of each `Kind`.
        classes : sequence of EventClass
            All that are known now; those of an earlier call come first.

        Raises
        ------
        UnreadableError
            If an event names a cpu that no machine has.
        """
        n = len(chunk.timestamp)
        if not n:
            return
        for event_class in classes[self._classes :]:
            self._core.add_class(*meaning_of(event_class, self._code))
            self._network |= event_class.kind in PACKETS
        self._classes = len(classes)
        columns = (chunk.timestamp, chunk.cpu, chunk.event_class, chunk.offset, chunk.values)
        at = self._core.feed(*columns, 0)
        while at < n:
            if chunk.cpu[at] >= _MOST_CPUS:
                raise UnreadableError(
                    f"the trace names cpu {chunk.cpu[at]}, which no machine has",
                    "the trace is damaged; record it again",
                )
            name = int(chunk.values[chunk.offset[at] + _IRQ_NAME])
            self._core.name_irq(name, int(device_state(self._text(name))))
            at = self._core.feed(*columns, at)
        self.last = int(chunk.timestamp[-1])
        if not self._network:
            self._core.forget_sleeps(self.last)

    @property
    def waiting(self) -> int:
        """Rows since the last cut."""
        return self._core.waiting

    def cut(self) -> PackedBlock:
        """Return what ended since the last cut."""
        return self._block(self.last, last=False)

    def finish(self, end: int) -> PackedBlock:
        """Return what ended since the last cut, and what went on to the end.

        Parameters
        ----------
        end : int
            Of the recording (ns); the last event's time if that is later.

        Raises
        ------
        UnreadableError
            If there was no ``sched_switch`` event: without it no thread has a state.
        """
        require_switches(self.present)
        end = max(end, self.last)
        self._core.close_all(end)
        return self._block(end, last=True)

    def _block(self, cut: int, *, last: bool) -> PackedBlock:
        base, tables = self._core.packed(int(last), cut, self._desk.take, self._arena.take)
        return PackedBlock(cut, base, tuple(PackedTable(*table) for table in tables))

    def workers(self) -> Workers:
        """Return the threads seen so far."""
        return Workers(**self._core.worker_table())

    @property
    def processors(self) -> tuple[tuple[int, int], ...]:
        """(host, cpu) of every processor seen so far."""
        return self._core.processor_table()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was left out, one line each."""
        if not self._core.unplaced:
            return ()
        return (f"{self._core.unplaced:,} kernel events name no cpu and were left out",)

    @property
    def present(self) -> frozenset[Kind]:
        """Which kinds of events came so far; ``OTHER`` is not told."""
        return frozenset(kind for kind in Kind if self._core.seen >> kind & 1)

    @property
    def contradicted(self) -> bool:
        """Whether `missing_switches` may find something to put in.

        That is so if a switch came from another thread than the one before it on its cpu
        went to, which was idle, or the trace tells who is current.
        """
        return self._core.contradictions > 0

    def network(self) -> NetRecord:
        """Return what links packets: see `critpath.timeline.network.linked_packets`."""
        return NetRecord(*self._core.network())


def require_switches(present: frozenset[Kind]) -> None:
    """Raise UnreadableError if there was no ``sched_switch``."""
    if Kind.SWITCH not in present:
        raise UnreadableError(
            "the trace has no sched_switch event",
            "record with the sched tracepoints enabled (critpath's `minimal` profile)",
        )


def replay(events: Events) -> Timelines:
    """Rebuild what every thread was doing from the events of a whole recording.

    Parameters
    ----------
    events : Events
        At least ``sched_switch``; fields in the canonical order of each `Kind`.

    Returns
    -------
    Timelines
        Intervals per worker, interrupt work and occupation per processor, packets.

    Raises
    ------
    UnreadableError
        As `Replayer` does.
    """
    kinds = np.array([c.kind for c in events.classes] or [Kind.OTHER], np.uint8)
    present = frozenset(
        Kind(k) for k in kinds[np.flatnonzero(np.bincount(events.event_class))].tolist()
    )
    require_switches(present)
    strings = list(events.strings) or [""]
    codes = {text: code for code, text in reversed(list(enumerate(strings)))}

    def code_of(text: str) -> int:
        if text not in codes:
            codes[text] = len(strings)
            strings.append(text)
        return codes[text]

    replayer = Replayer(
        hosts=events.hosts,
        environment=events.environment,
        losses=events.losses,
        code=code_of,
        text=strings.__getitem__,
        has_waking=Kind.WAKING in present,
        has_syscalls=Kind.SYSCALL_ENTRY in present,
    )
    replayer.feed(events, events.classes)
    block = replayer.finish(events.end).unpacked()
    return Timelines(
        workers=replayer.workers(),
        **block.by_name(),
        processors=replayer.processors,
        strings=tuple(strings),
        losses=events.losses,
        warnings=replayer.warnings,
        packets=linked_packets(network_events(events), replayer.network()),
    )


# -----------------------------------------------------------------------------
# What event classes, hosts and losses mean to the replay: its tables, prepared.


_DETAILS: Final = (
    "no_wake",
    "idle_waker",
    "context_unknown",
    "lost_events",
    "hrtimer",
    "idle",
)
_WAKES: Final = frozenset({Kind.WAKING, Kind.WAKEUP, Kind.WAKEUP_NEW})
_NOT_SAID: Final = -1
_HAS_SUCCESS, _HAS_NAME, _HAS_TARGET = 1, 2, 4


class Meaning(NamedTuple):
    """What an event class says by its name and its fields.

    Attributes
    ----------
    kind, host : int
    detail : int
        Code of the qualifier: system call, vector.
    state : int
        What a thread waits for that it is about, -1 if that is open.
    flags : int
        Bit 0 where a wake has a ``success`` field, bit 1 where an interrupt has a name,
        bit 2 where a wake has a ``target_cpu``.
    """

    kind: int
    host: int
    detail: int
    state: int
    flags: int


def meaning_of(event_class: EventClass, code: Callable[[str], int]) -> Meaning:
    """Return what an event class means; ``code`` interns the names it gives."""
    c = event_class
    has = {f for f, t in zip(c.fields, c.types, strict=True) if t != "absent"}
    detail, state, flags = 0, 0, 0
    if c.kind == Kind.SYSCALL_ENTRY:
        name = syscall_name(c.name)
        detail = code(name)
        waits = syscall_state(name)
        state = _NOT_SAID if waits is None else int(waits)
    elif c.kind in {Kind.VECTOR_ENTRY, Kind.VECTOR_EXIT}:
        name = vector_name(c.name)
        detail, state = code(name), int(vector_state(name))
    elif c.kind == Kind.IRQ_ENTRY:
        detail, state = code("irq"), int(device_state("irq"))
        flags = _HAS_NAME if ("name", "str") in zip(c.fields, c.types, strict=True) else 0
    elif c.kind in _WAKES:
        flags = _HAS_SUCCESS if "success" in has else 0
        flags |= _HAS_TARGET if "target_cpu" in has else 0
    return Meaning(int(c.kind), c.host, detail, state, flags)


def fixed_tables(code: Callable[[str], int]) -> dict[str, Any]:
    """Return what the replay knows of texts of its own, as it takes them."""
    details = {name: code(name) for name in _DETAILS}
    softirqs = [code(name) for name, _ in SOFTIRQS] + [code("softirq")]
    states = [state for _, state in SOFTIRQS] + [State.WAIT_SOFTIRQ]
    return {
        "details": details,
        "timer_state": int(State.WAIT_TIMER),
        "softirq_state": np.array(states, np.int32),
        "softirq_detail": np.array(softirqs, np.int32),
    }


def prev_states(
    hosts: Sequence[str], environment: Sequence[Mapping[str, str | int]]
) -> NDArray[np.int64]:
    """Return per host: dead mask, stopped mask, then the runnable values (padded by repeats)."""
    releases = {
        str(e.get("hostname", "")): str(e["kernel_release"])
        for e in environment
        if "kernel_release" in e
    }
    rows = []
    for host in hosts:
        meaning = prev_state_of(releases.get(host, ""))
        runnable = sorted(meaning.runnable)
        rows.append(
            [meaning.dead, meaning.stopped, *runnable, *[runnable[0]] * (5 - len(runnable))]
        )
    return np.array(rows, np.int64)


def loss_table(losses: Sequence[Loss]) -> I64:
    """Return the ends, hosts and cpus of losses, in order of the ends."""
    rows = [(loss.end, loss.host, loss.cpu) for loss in sorted(losses, key=lambda x: x.end)]
    return np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, 3).T)
