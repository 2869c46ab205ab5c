"""Events -> timelines, as they come: prepares the tables and feeds the native replay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from critpath.errors import InconclusiveError, UnreadableError
from critpath.model import (
    I32,
    I64,
    LOCAL_PACKET,
    REMOTE_PACKET,
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
from critpath.model.gaps import Gaps
from critpath.model.packing import BlockArena, BufferPool, PackedTable
from critpath.model.task_states import prev_states
from critpath.read import PACKETS
from critpath.schema.environment import Environment, name_interrupts, name_timers
from critpath.timeline._replay import CPU_LIMIT, Replay
from critpath.timeline.after_gaps import (
    IN_CALL,
    NOTHING,
    Resumed,
    find_resumed,
    gap_tables,
)
from critpath.timeline.contexts import (
    SOFTIRQS,
    device_state,
    syscall_name,
    syscall_state,
    vector_name,
    vector_state,
)
from critpath.timeline.holders import HolderRecord, find_holds
from critpath.timeline.network import NetRecord, linked_packets, network_events


class Replayer:
    """Rebuilds what every thread was doing, from events as they come.

    Parameters
    ----------
    hosts : sequence of str
        All that events may come from; `EventClass.host` is an index into them.
    environment : sequence of Environment
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
    addresses : collection of int
        Of IPv4, the traced host's own; none where they are not known.
    gaps : Gaps, optional
        When nothing was recorded.
    resumed : Resumed
        What was going on at their ends.

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
        environment: Sequence[Environment],
        losses: Sequence[Loss],
        code: Callable[[str], int],
        text: Callable[[int], str],
        has_waking: bool,
        has_syscalls: bool,
        addresses: Collection[int] = (),
        gaps: Gaps | None = None,
        resumed: Resumed = NOTHING,
    ) -> None:
        table, edges = gap_tables(gaps or Gaps())
        told, call_states = _recode(resumed, code)
        self._code, self._text = code, text
        self._functions = name_timers(environment)
        self._devices = name_interrupts(environment)
        self._core = Replay(
            len(hosts),
            has_waking=int(has_waking),
            has_syscalls=int(has_syscalls),
            prev_states=prev_states(hosts, environment),
            losses=loss_table(losses),
            addresses=np.array(sorted(addresses), np.int64),
            gaps=table,
            edges=edges,
            resumed=told,
            call_states=call_states,
            **fixed_tables(code),
        )
        self._buffers, self._arena = BufferPool(), BlockArena()
        self._classes: list[EventSemantics] = []
        self._declared: set[Kind] = set()
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
            If an event names a cpu that no machine has, or lies in a gap that leaves it out.
        """
        self._declared.update(one.kind for one in classes[len(self._classes) :])
        n = len(chunk.timestamp)
        if not n:
            return
        for event_class in classes[len(self._classes) :]:
            self._classes.append(event_semantics(event_class, self._code))
            self._core.add_class(*self._classes[-1])
            self._network |= event_class.kind in PACKETS
        columns = (chunk.timestamp, chunk.cpu, chunk.event_class, chunk.offset, chunk.values)
        at = self._core.feed(*columns, 0)
        while at < n:
            if chunk.cpu[at] >= CPU_LIMIT:
                raise UnreadableError(
                    f"the trace names cpu {chunk.cpu[at]}, which no machine has",
                    "the trace is damaged; record it again",
                )
            semantics = self._classes[chunk.event_class[at]]
            if semantics.qualifier < 0:
                # A processor's first softirq.
                cpu = int(chunk.cpu[at])
                self._core.name_ksoftirqd(semantics.host, cpu, self._code(f"ksoftirqd/{cpu}"))
            else:
                value = int(chunk.values[chunk.offset[at] + semantics.qualifier])
                if semantics.kind == Kind.TIMER_FUNCTION:
                    name = self._functions.get(value, "TIMER")
                    meaning = self._code(name), int(State.WAIT_TIMER)
                else:
                    meaning = qualify(semantics.kind, value, self._code, self._text)
                if semantics.kind == Kind.IRQ_ENTRY and self._devices:
                    device = self._devices.get(self._text(meaning[0]), "")
                    meaning = (self._code(device), int(State.WAIT_NET)) if device else meaning
                self._core.add_qualifier(semantics.kind, value, *meaning)
            at = self._core.feed(*columns, at)
        self._require_silence()
        self.last = int(chunk.timestamp[-1])
        if not self._network:
            self._core.forget_sleeps(self.last)

    def _require_silence(self) -> None:
        """Raise UnreadableError if there was an event where a gap says that there is none."""
        if self._core.misplaced < np.iinfo(np.int64).max:
            raise UnreadableError(
                f"an event at {self._core.misplaced} ns lies in a gap of the recording",
                "its list of gaps is of another recording, or damaged: record it again",
            )

    def load(self, end: int) -> Environment:
        """Return how busy the machine was until then: a step of what an extraction counts."""
        slot, busy = self._core.busy(end)
        if not slot:
            return Environment()
        return Environment(load=tuple(round(100 * ns / slot) for ns in busy), load_slot_ns=slot)

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
        UnreadableError, InconclusiveError
            If there was no ``sched_switch`` event: without it no thread has a state.
        """
        require_switches(self.present, self._declared)
        end = max(end, self.last)
        self._core.close_all(end)
        return self._block(end, last=True)

    def _block(self, cut: int, *, last: bool) -> PackedBlock:
        base, tables = self._core.packed(int(last), cut, self._buffers.take, self._arena.take)
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
        """Which kinds of events came so far; without ``OTHER``."""
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

    def holders(self) -> HolderRecord:
        """Return what links waits with time-outs: see `critpath.timeline.holders.find_holds`."""
        return HolderRecord(*self._core.holders())


class NoSwitchesError(UnreadableError):
    """A trace has no event of a switch, and none was asked for (exit 4)."""


def require_switches(present: Collection[Kind], declared: Collection[Kind]) -> None:
    """Raise UnreadableError if there is no ``sched_switch``, InconclusiveError if none happened.

    What is declared was asked for: a recorder that is killed as it begins has recorded none yet.
    """
    if Kind.SWITCH in present:
        return
    if Kind.SWITCH in declared:
        raise InconclusiveError(
            "not one sched_switch event was recorded: the recorder ended, or was killed, before "
            "there was any",
            "record again, for longer; critpath doctor shows whether this machine can record",
        )
    raise NoSwitchesError(
        "the trace has no sched_switch event",
        "record with the sched tracepoints enabled (critpath's `minimal` profile)",
    )


def replay(events: Events, addresses: Collection[int] = ()) -> Timelines:
    """Rebuild what every thread was doing from the events of a whole recording.

    Parameters
    ----------
    events : Events
        At least ``sched_switch``; fields in the canonical order of each `Kind`.
    addresses : collection of int
        As `Replayer` has them.

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
    require_switches(present, {c.kind for c in events.classes})
    strings = list(events.strings) or [""]
    codes = {text: code for code, text in reversed(list(enumerate(strings)))}

    def code_of(text: str) -> int:
        if text not in codes:
            codes[text] = len(strings)
            strings.append(text)
        return codes[text]

    gaps = events.gaps
    replayer = Replayer(
        hosts=events.hosts,
        environment=events.environment,
        losses=events.losses,
        code=code_of,
        text=strings.__getitem__,
        has_waking=Kind.WAKING in present,
        has_syscalls=Kind.SYSCALL_ENTRY in present,
        addresses=addresses,
        gaps=gaps,
        resumed=find_resumed([events], events.classes, gaps) if len(gaps) else NOTHING,
    )
    replayer.feed(events, events.classes)
    block = replayer.finish(events.end).unpacked()
    workers = replayer.workers()
    return Timelines(
        workers=workers,
        **block.by_name(),
        processors=replayer.processors,
        strings=tuple(strings),
        losses=events.losses,
        warnings=replayer.warnings,
        packets=linked_packets(network_events(events), replayer.network()),
        holds=find_holds(events, replayer.holders(), workers, strings).links,
    )


# What event classes, hosts and losses mean to the replay: its tables, prepared.


_DETAILS: Final = (
    "no_wake",
    "idle_waker",
    "context_unknown",
    "lost_events",
    "hrtimer",
    "idle",
    LOCAL_PACKET,
    REMOTE_PACKET,
)
_WAKES: Final = frozenset({Kind.WAKING, Kind.WAKEUP, Kind.WAKEUP_NEW})
_NOT_SAID: Final = -1  # technical
# What a thread waits for that is woken from what an event begins, by the event's qualifier.
_STATES: Final[dict[Kind, Callable[[str], State]]] = {Kind.IRQ_ENTRY: device_state}


class EventSemantics(NamedTuple):
    """What an event class says by its name and its fields.

    Attributes
    ----------
    kind, host : int
    detail : int
        Code of what the class's name says: system call, vector.
    state : int
        What a thread waits for that it is about, -1 if that is open.
    qualifier : int
        Field of `Kind.qualifier`, which says detail and state instead; -1 where there is none.
    has_success, has_target : bool
        Whether a wake has a ``success`` field and a ``target_cpu``.
    """

    kind: Kind
    host: int
    detail: int = 0
    state: int = 0
    qualifier: int = -1
    has_success: bool = False
    has_target: bool = False


def event_semantics(event_class: EventClass, code: Callable[[str], int]) -> EventSemantics:
    """Return what an event class means; ``code`` interns the names it gives."""
    kind, host = event_class.kind, event_class.host
    types = dict(zip(event_class.fields, event_class.types, strict=True))
    if kind in {Kind.SYSCALL_ENTRY, Kind.FUTEX}:
        name = syscall_name(event_class.name)
        waits = syscall_state(name)
        return EventSemantics(kind, host, code(name), _NOT_SAID if waits is None else int(waits))
    if kind in {Kind.VECTOR_ENTRY, Kind.VECTOR_EXIT}:
        name = vector_name(event_class.name)
        return EventSemantics(kind, host, code(name), int(vector_state(name)))
    if kind in _WAKES:
        has = {field for field, its in types.items() if its != "absent"}
        return EventSemantics(
            kind, host, has_success="success" in has, has_target="target_cpu" in has
        )
    detail, state, qualifier = 0, 0, -1
    if kind == Kind.IRQ_ENTRY:
        detail, state = code("irq"), int(device_state("irq"))
    if kind == Kind.TIMER_FUNCTION:
        detail = code("TIMER")
    if kind.qualifier is not None and types.get(kind.qualifier.field) in kind.qualifier.types:
        qualifier = event_class.fields.index(kind.qualifier.field)
    return EventSemantics(kind, host, detail, state, qualifier)


def qualify(
    kind: Kind, value: int, code: Callable[[str], int], text: Callable[[int], str]
) -> tuple[int, int]:
    """Return the detail (a code) and the state that a value of the qualifying field says."""
    detail = value
    if kind.qualifier is not None and kind.qualifier.form:
        detail = code(kind.qualifier.text(value))
    state = _STATES[kind](text(detail)) if kind in _STATES else State.UNKNOWN
    return detail, int(state)


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


def _recode(resumed: Resumed, code: Callable[[str], int]) -> tuple[I64, I32]:
    """Return what was going on after gaps with codes of system calls, and their states by code."""
    rows = resumed.rows.copy()
    calls = np.flatnonzero(rows[:, 1] == IN_CALL)
    codes = np.array([code(name) if name else 0 for name in resumed.calls], np.int64)
    rows[calls, 3] = np.where(rows[calls, 3] < 0, -1, codes[rows[calls, 3]])
    states = np.full(int(codes.max(initial=0)) + 1, _NOT_SAID, np.int32)
    for name, number in zip(resumed.calls, codes.tolist(), strict=True):
        waits = syscall_state(name) if name else None
        states[number] = _NOT_SAID if waits is None else int(waits)
    return rows, states


def loss_table(losses: Sequence[Loss]) -> I64:
    """Return the ends, hosts and cpus of losses, in order of the ends."""
    rows = [(loss.end, loss.host, loss.cpu) for loss in sorted(losses, key=lambda x: x.end)]
    return np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, 3).T)
