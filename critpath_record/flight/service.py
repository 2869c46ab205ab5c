"""The flight recorder: a policy that waits for triggers, and saves."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import resource
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from critpath.errors import CritpathError
from critpath.model.recording import SAMPLED, SAMPLED_FORMAT
from critpath.schema.parameters.budget import CONTROL, DUMPS
from critpath.units import NS_PER_S, format_span, plural, safe_text
from critpath_marks.sessions import new_session_name
from critpath_record import rooted
from critpath_record._pulse import name_thread
from critpath_record.budget.account import SLOTS, Allowance, overhead_of, share_of
from critpath_record.budget.calibrate import add_costs, find_costs
from critpath_record.budget.control import Budget, Control
from critpath_record.budget.gates import Gate, Gates
from critpath_record.budget.loop import Loop, Task
from critpath_record.budget.policies import Windows
from critpath_record.budget.recording import lengthen_horizon
from critpath_record.cleanup import remove_leftovers
from critpath_record.flight.conditions import COMMAND, LASTING, USUAL, Condition
from critpath_record.flight.dumps import Dump, Trigger, dump_request, find_dumps
from critpath_record.flight.kinds import HeldLabels, Kinds
from critpath_record.flight.live import Execution, Formats, LiveExecutions
from critpath_record.flight.memory import DUMP, Before, Held, Memory, allow_pipes
from critpath_record.flight.state import FORMAT, hold_lock, listen, prepare_directory, write_state
from critpath_record.flight.triggers import Triggers
from critpath_record.ftrace import raw as raws
from critpath_record.ftrace import recorder as ftrace
from critpath_record.ftrace import tracefs
from critpath_record.ftrace.cleanup import describe_left
from critpath_record.ftrace.events import (
    find_net_devices,
    find_timer_functions,
    select_events,
)
from critpath_record.ftrace.gate import lasts, split_layers
from critpath_record.ftrace.preflight import CLOCK
from critpath_record.ftrace.received import NO_SOCKETS
from critpath_record.functions import HeldFunctions
from critpath_record.limits import Limits
from critpath_record.profiles import profile_events, profile_label
from critpath_record.recorder import Leftover
from critpath_record.registry import once_a_boot
from critpath_record.shared import SharedPlace
from critpath_record.sockets import LISTEN, UNIX, scan_sockets
from critpath_record.stacks.held import PART, HeldStacks

PROFILES: Final = ("requests", "minimal")  # the first of which the kernel has all events
_TICK: Final = (0.05, 1.0)  # s between two looks at marks: where triggers ask for them, else
_SECOND: Final = 1.0
_LOOKS: Final = 50  # at counts in a horizon, at least, while everything is open
_STATE_EVERY: Final = 60.0  # s
_KEEP_EVERY: Final = 600.0  # s between two times that what is usual is written down
USUAL_TIMES: Final = "usual.json"  # below the directory of dumps
_SCAN_EVERY, _SCAN_SHARE = 60.0, 0.05  # s between two looks at threads; of the budget at most
_ALL: Final = 0.995  # of the time
_SUSPENDED: Final = NS_PER_S // 10  # ns of one suspension, at least
_LAST: Final = 60.0  # s for a dump that is being made at the end
_HOUR, _AGAIN = 3600.0, 60.0  # s; between two dumps for one condition, at least
_WALKED: Final = 60.0  # s from one dump to the next while somebody looks on who walks them
_SAY_EVERY: Final = 60.0  # s between two lines about triggers that are refused for one reason
# Why there is no dump.
FAILED, FULL, UNDER_WAY = "failed", "disk full", "a dump is being made"
TOO_MANY, TOO_SOON, ENDS = "too many an hour", "too soon after another", "it ends"
REFUSALS: Final = frozenset({FAILED, FULL, UNDER_WAY, TOO_MANY, TOO_SOON, ENDS})
_SIGNALS: Final = (*(signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.SIGUSR1, signal.SIGUSR2)
_ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_ROOM: Final = 64 << 20  # bytes of a disk that a dump leaves free
_MOST_WORDS: Final = 4096  # bytes of a request
_CLIENTS: Final = 16
_SUSPENSIONS: Final = 1000  # that are remembered
_WAITING: Final = 20_000  # executions that are held for who watches
_LOOKED_ON: Final = 10.0  # s for which executions are found after somebody asked for them
_TOLD: Final = 100_000  # bytes of them in one answer: it is one message of a socket
_ROW, _LONGEST_LETTER = 64, 12  # bytes of one without its kind, and of a letter of that, at most


@dataclass(frozen=True)
class FlightRequest:
    """What a flight recorder is asked to do."""

    directory: Path
    budget: Budget
    keep: float  # s of history that a dump has at most
    memory: int  # bytes of all buffers
    conditions: tuple[Condition, ...]
    at_most: int  # dumps an hour
    dumps: int  # that are kept
    usual: float = 0.0  # s from one dump of what is usual to the next; 0 for none
    after: float = 0.0  # s for which it goes on to record before it saves what goes on
    # Richest first; the first of which the kernel has all events is taken
    profiles: tuple[str, ...] = PROFILES
    execution: str = ""
    version: str = ""
    # Uids whose programs may mark executions though they may not trace; -1 for all
    mark_users: tuple[int, ...] = ()
    marks_required: bool = False  # whether these were asked for
    stacks: tuple[str, ...] = ()  # what takes stacks besides
    functions: bool = False  # whether programs may note functions of Python
    labels: bool = False  # whether requests are called by their first bytes
    tls: bool = False  # and by those that libraries decrypt


@dataclass
class Writing:
    """What a dump's own thread is told, and tells when it has ended."""

    end: int  # when gates were closed (ns)
    epoch: int  # from the clock to the Unix epoch at that time (ns)
    begin: int = 0  # since when everything is there (ns)
    seconds: float = 0.0  # of cpu time


class Refusals:
    """How many dumps conditions may make; what was refused is counted, by why."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._made: deque[tuple[float, str]] = deque(maxlen=most)
        self._said: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def refusal(self, when: str) -> str:
        """Return why there may be none for a condition now, "" if there may."""
        now = self._clock()
        if len(self._made) == self._most and now - self._made[0][0] < _HOUR:
            return TOO_MANY
        return TOO_SOON if now < self.next_at(when) else ""

    def next_at(self, when: str) -> float:
        """Return from when on there may be one for a condition again.

        Of what has lasted since the last dump little is held, and the hour's would soon be gone.
        """
        return max((at + _AGAIN for at, of in self._made if of == when), default=-math.inf)

    def note_made(self, when: str) -> None:
        """Count one that is made for a condition."""
        self._made.append((self._clock(), when))

    def note(self, why: str) -> bool:
        """Count one that was refused, for one of few reasons; return whether to say so now."""
        self.counts[why] = self.counts.get(why, 0) + 1
        now = self._clock()
        if now - self._said.get(why, -_SAY_EVERY) < _SAY_EVERY:
            return False
        self._said[why] = now
        return True


class Flight(Windows):
    """A flight recorder, from construction until `run` returns."""

    # There are from `_start` on.
    _triggers: Triggers
    _memory: Memory
    _control: Control
    _live: LiveExecutions
    _woken: int  # has a byte for each signal
    _server: socket.socket
    _ticks: Task
    _stacks: HeldStacks | None = None
    _functions: HeldFunctions | None = None
    _labels: HeldLabels | None = None

    def __init__(self, request: FlightRequest, say: Callable[[str], None]) -> None:
        super().__init__()
        self.request, self._say = request, say
        self.session = new_session_name()
        self._refusals = Refusals(request.at_most)
        self._dump: Dump | None = None
        self._pending: Trigger | None = None  # of who asked, or what was noticed, meanwhile
        self._going_on: dict[str, tuple[float, Trigger]] = {}  # by condition, when to save it
        self._asked: list[socket.socket] = []  # who waits for the dump under way
        self._waiting: list[socket.socket] = []  # and for the one after it
        self._clients: dict[int, socket.socket] = {}
        self._ended: deque[Execution] = deque(maxlen=_WAITING)
        self._watched = 0.0  # until when somebody looks on
        self._seen = 0  # executions in all, of which the newest are held
        self._lasting: frozenset[str] = frozenset()  # layers that are moved as they come
        self._followed = 0  # until when (ns)
        self._awake = time.monotonic_ns()  # when it was looked at how long the machine has slept
        self._slept = max(measure_slept() for _ in range(64))
        # Of suspensions, between which looks they were, how long it had slept then, and slept.
        self._suspensions: deque[tuple[int, int, int, int]] = deque(maxlen=_SUSPENSIONS)
        self._profile = ""
        self._began = time.monotonic()
        self._usual_due = self._began + min(request.usual, request.keep)
        self._usual_made = self._began
        self._keep_due = self._began + _KEEP_EVERY
        self._since = time.monotonic_ns()  # when what is held begins, at the earliest
        self._before: Before | None = None  # and what the last dump of what is usual took
        self._right = self._since  # when nobody else had switched anything
        self._made = self._removed = 0
        self._closed = 0.0
        self._last = ""
        self._status: dict[str, object] = {}  # as it was written last
        self._second: tuple[float, float, float] = (0.0, 0.0, 0.0)
        # What dumps cost is on an account of its own (s of cpu time, here and in all).
        self._moved = self._spent = 0.0
        self._idle_until = 0.0  # when the one under way may take what others want
        self._for_dumps = Allowance(DUMPS.share, DUMPS.most)
        self._times = 0.0
        self._ends_at: float | None = None  # when it ends, whatever is being made
        self._threads: list[tracefs.ThreadRow] = []
        self._limits = Limits()  # of control groups, that held threads back
        self._scan_due = 0.0
        self._description: dict[str, Any] = {}

    # From start to end

    def run(self) -> int:
        """Record until a signal, or until it is asked to stop."""
        rooted.use_capabilities()
        fatal = [one for one in ftrace.find_needs(None) if one.fatal]
        if fatal:
            raise CritpathError(
                f"a flight recorder cannot run here: {fatal[0].what}",
                f"{fatal[0].do} (critpath doctor shows all that is missing)",
            )
        # A service that was killed is started again.
        if rooted.channel is None:
            remove_leftovers(self._say_removed)
        elif said := describe_left():
            self._say(f"warning: {said}")
        with contextlib.ExitStack() as stack:
            directory = self.request.directory.absolute()
            place = stack.enter_context(hold_lock(directory, self.session))
            prepare_directory(directory)
            self._woken = stack.enter_context(_signals())
            self._server = stack.enter_context(listen(place))
            self._triggers = Triggers(self.request.conditions)
            stack.callback(self._triggers.close)
            stack.callback(self._close_clients)
            self._start(stack)
            stack.callback(self._end)
            self._write_state("running")
            _notify("READY=1", f"STATUS={self._headline()}")
            self._say(self._headline())
            self.loop.run()
            _notify("STOPPING=1")
        return 0

    def _say_removed(self, leftover: Leftover, error: CritpathError | None) -> None:
        if error is None:
            self._say(f"removed {leftover.kind} {leftover.name} of a killed recorder")
        else:
            self._say(f"warning: {error.what} ({error.do})")

    def _start(self, stack: contextlib.ExitStack) -> None:
        name_thread(b"critpath-flight")
        root = tracefs.find() or tracefs.mount()
        lines = tracefs.Instance(root).read("available_events").splitlines()
        available = [line.replace(":", "/", 1) for line in lines if ":" in line]
        most = self.request.memory
        of_stacks = most // PART if self.request.stacks else 0
        self._memory = memory = Memory(root, self.session, most - of_stacks)
        stack.callback(memory.remove)
        allow_pipes(self.request.memory)
        for profile in self.request.profiles:
            events = select_events(profile_events(profile), available)
            if not events.missing:
                break
        always, layers = split_layers(events.events)
        lasting = [name for name, of in layers.items() if lasts(of)]
        memory.make(always)
        self._open_marks(memory)
        memory.make_layers(layers, available, lasting)
        budget = self.request.budget
        costs = find_costs(budget.calibrate, memory.layers, memory.cpus[-1])
        memory.drop()
        self._profile, budget = profile, lengthen_horizon(budget, costs)
        self._describe(memory, root, events.missing)
        gates: list[Gate] = [*memory.layers]
        if of_stacks:
            self._stacks = HeldStacks(self.request.stacks, of_stacks, memory.cpus)
            stack.callback(self._stacks.close)
            costs = add_costs(costs, budget.calibrate, self._stacks.gates, memory.cpus[-1])
            gates += self._stacks.gates
        names = [gate.name for gate in gates]
        self._control = control = Control(
            *(budget, costs, names, len(memory.cpus), 1),
            lasting=lasting,
            free=CONTROL.own * budget.share,
        )
        control.owe("calibration", costs.seconds)
        control.paid = CONTROL.paid_always
        control.longest = max(control.longest, budget.horizon / _LOOKS)
        control.closed = budget.horizon / (2 * _LOOKS), budget.horizon / SLOTS / 2
        self._live = live = LiveExecutions(Formats.read(memory.instance), Kinds())
        if lasting:
            rows = [row for row in scan_sockets()[0] if row[3] != UNIX and row[5] == LISTEN]
            live.requests.listen({row[7] for row in rows}, every=bool(rows))
            self._triggers.follow(live)
            if self._triggers.requests is not None:
                self._triggers.requests.recall(self.request.directory / USUAL_TIMES)
        if self.request.labels:
            if not lasting:
                raise CritpathError(*NO_SOCKETS)
            self._labels = HeldLabels(
                live.requests, live.kinds, self.request.memory, tls=self.request.tls
            )
            stack.callback(self._labels.close)
        self._lasting = frozenset(lasting)
        self._look_at_threads()
        self._since = time.monotonic_ns()
        self.rest = budget.horizon / SLOTS
        if self.request.functions:
            shared = SharedPlace(share_of(budget.overhead / 2))
            stack.callback(shared.close)
            self._functions = HeldFunctions(shared)
        loop = Loop(control, Gates(gates, memory.journal, memory.cpus, lasting), self)
        stack.callback(loop.stop)
        if self._functions is not None:
            loop.charge_beside("functions", self._functions.cost)

    def _open_marks(self, memory: Memory) -> None:
        """Let other users' programs mark executions, if any may."""
        if not self.request.mark_users:
            return
        try:
            memory.open_user_marks(self.request.mark_users)
        except CritpathError as error:
            if self.request.marks_required:
                raise
            self._say(f"warning: {error.what} ({error.do})")

    def _describe(self, memory: Memory, root: Path, missing: Sequence[str]) -> None:
        host = os.uname()
        self._events = (*memory.events, *(e for layer in memory.layers for e in layer.events))
        self._description = {
            "clock": CLOCK,
            "page_bytes": memory.page,
            "cpus": memory.cpus,
            "profile": profile_label(self._profile),
            "events": list(self._events),
            "missing": list(missing),
            "buffer_bytes": self.request.memory // len(memory.cpus),
            "tracefs": str(root),
            "host": {
                "name": host.nodename,
                "kernel": host.release,
                "machine": host.machine,
                "timer_functions": once_a_boot("timer_functions", find_timer_functions),
                "net_devices": find_net_devices(),
            },
            "recorder": {"name": "ftrace", "version": self.request.version},
        }

    def _end(self) -> None:
        """Give up what is still being made."""
        if self._dump is not None:
            self._dump.discard()
        self._keep_before(None)
        self._write_state("stopped")

    # What the loop does

    def begin(self) -> None:
        """Wait for signals, for who asks, and for what fires a trigger; look at the rest."""
        loop, triggers = self.loop, self._triggers
        loop.watch(self._woken, self._take_signals)
        loop.watch(self._server.fileno(), self._accept)
        for file, mask in triggers.files():
            loop.watch(file, partial(self._take_ready, file), mask)
        self._ticks = loop.plan(self._tick)
        loop.plan(self._look_each_second)
        loop.plan(self._look_each_minute)

    def _take_ready(self, file: int) -> None:
        self._fire(self._triggers.ready(file, time.monotonic_ns()))

    def _tick(self) -> float:
        self._look_at_marks()
        self._look_at_dump()
        self._look_at_what_is_due()
        self._look_at_threads()
        if self._ends_at is not None and (self._dump is None or time.monotonic() >= self._ends_at):
            self.loop.finish()
        waits = self._dump is not None or bool(self._going_on)
        return _TICK[not (self._triggers.watches_marks or waits)]

    def _look_each_second(self) -> float:
        memory = self._memory
        if measure_slept() > self._slept + _SUSPENDED:
            self._look_at_marks()
        self._note_cost()
        self._look_at_hands()
        memory.note_losses()
        self._fire(self._triggers.counted(memory.lost, self._times, time.monotonic_ns()))
        return _SECOND

    def _look_each_minute(self) -> float:
        self._write_state("running")
        return _STATE_EVERY

    def _finish(self) -> None:
        """End when what is being made is there, within a minute."""
        self._pending = None
        self._ends_at = time.monotonic() + _LAST
        self.loop.hasten(self._ticks)

    def _take_signals(self) -> None:
        for number in os.read(self._woken, 256):
            if number in _ENDING:
                self._finish()
                continue
            found = self._triggers.signalled(number)
            if found is None and number != signal.SIGUSR1:
                continue
            when = found.text if found else "signal USR1"
            kind = found.name if found else "USR1"
            asked = number == signal.SIGUSR1
            self._fire([Trigger(when, kind=kind, at=time.monotonic_ns(), asked=asked)])

    def _look_at_marks(self) -> None:
        """Move what marks there are, and look at the executions that ended."""
        until = time.monotonic_ns()
        if ended := self._add_marks(self._memory.read_marks(), until):
            self._fire(self._triggers.ended(ended, time.monotonic_ns()))

    def _add_marks(self, pages: Sequence[bytes], until: int) -> list[Execution]:
        """Follow what was moved; all that happened until a time is among it, or was before."""
        if self._was_suspended():
            # Nobody knows what of it was before.
            pages, until = (), time.monotonic_ns()
            self._live.forget()
        looks = self._triggers.watches_marks or time.monotonic() <= self._watched
        if not (looks or self._lasting):
            self._live.forget()
            return []
        if self._labels is not None:
            self._labels.take()
        opened = self._memory.journal.list_opened(self._lasting, self._followed)
        self._followed = until
        ended = self._live.add([*pages], until, opened, looks=looks)
        self._ended.extend(ended)
        self._seen += len(ended)
        return ended

    def _was_suspended(self) -> bool:
        """Return whether the machine was suspended since the last look; if so, that is a gap.

        Time stands still then, but programs are stopped a while before, and go on a while after.
        """
        before, was = self._awake, self._slept
        self._awake = time.monotonic_ns()
        self._slept = max(was, measure_slept())
        lasted = self._slept - was
        if lasted < _SUSPENDED:
            return False
        for gate in self.loop.gates.every:
            self._memory.journal.note_other(gate.name, before)
        self._suspensions.append((before, time.monotonic_ns(), was, lasted))
        return True

    def _look_at_hands(self) -> None:
        """Put right what somebody else has switched; the time since the last look is a gap."""
        before, self._right = self._right, time.monotonic_ns()
        wrong = self._memory.put_right(before)
        if wrong:
            self._say(f"warning: somebody else switched {', '.join(wrong)}: it is put right")

    def _note_cost(self) -> None:
        """Note what the last second cost."""
        control = self._control
        if self._labels is not None:
            control.charge("labels", self._labels.charge())
        cost, busy = max(
            zip(control.tally.cost, control.tally.busy, strict=True), key=lambda x: x[0]
        )
        was_cost, was_busy, _ = self._second
        share = min(0.99, (cost - was_cost) / max(busy - was_busy, 0.05))
        self._second = cost, busy, overhead_of(max(0.0, share))
        self._times = self._second[2] / control.budget.overhead

    def _fire(self, triggers: Iterator[Trigger] | Sequence[Trigger]) -> None:
        for trigger in triggers:
            lasts = trigger.when.partition(" ")[0] in LASTING and self.request.after > 0
            if not lasts or trigger.when in self._going_on:
                if not lasts:
                    self._save(trigger)
                continue
            why = self._refusals.refusal(trigger.when)
            if why and why != TOO_SOON:
                self._refuse(trigger, why)
                continue
            # What is noticed soon after another is saved when there may be one: it is held.
            due = max(time.monotonic() + self.request.after, self._refusals.next_at(trigger.when))
            self._going_on[trigger.when] = due, trigger

    def _look_at_what_is_due(self) -> None:
        """Save what went on for long enough; else what is usual, if it is time for that."""
        if self._dump is not None:
            return
        now = time.monotonic()
        for when, (due, trigger) in self._going_on.items():
            if now >= due:
                del self._going_on[when]
                self._save(trigger)
                return
        if self.request.usual and not self._going_on and now >= self._usual_due:
            why = self._save(Trigger(USUAL, at=time.monotonic_ns()))
            self._usual_due = now + (min(_AGAIN, self.request.usual) if why else self.request.usual)
            self._usual_made = now

    # Dumps

    def _save(self, trigger: Trigger) -> str:
        """Begin a dump; return why not, "" if it was begun, or will be after the one under way."""
        if self._dump is not None and trigger.when != USUAL and self._ends_at is None:
            self._pending = self._pending or trigger
            return ""
        why = self._refusal(trigger)
        if not why:
            before = time.thread_time()
            try:
                self._move(trigger)
                if not (trigger.asked or trigger.when == USUAL):
                    self._refusals.note_made(trigger.when)
            except (CritpathError, OSError) as error:
                why = self._give_up(error)
            self._pay_for_moving(time.thread_time() - before)
        if why:
            self._refuse(trigger, why)
        return why

    def _give_up(self, error: CritpathError | OSError) -> str:
        """Say that a dump failed, and return why."""
        text = error.what if isinstance(error, CritpathError) else str(error.strerror)
        self._say(f"warning: a dump was given up: {safe_text(text)}")
        return FULL if isinstance(error, OSError) and error.errno in raws.FULL else FAILED

    def _pay_for_moving(self, seconds: float) -> None:
        """Let the account of dumps pay what this thread had (s), in place of the budget."""
        self._moved += seconds
        self.loop.excuse(seconds)

    def _refuse(self, trigger: Trigger, why: str) -> None:
        if self._refusals.note(why if why in REFUSALS else FAILED):
            self._say(f"refused ({why}): {safe_text(trigger.when)}; more of these are counted")

    def _refusal(self, trigger: Trigger) -> str:
        if self._ends_at is not None:
            return ENDS
        if self._dump is not None:
            return UNDER_WAY
        limited = not (trigger.asked or trigger.when == USUAL)
        if limited and (why := self._refusals.refusal(trigger.when)):
            return why
        # Nothing is closed, moved or begun for what would come to nothing.
        if self._memory.is_empty() and (self._before is None or trigger.when == USUAL):
            since = (time.monotonic_ns() - self._since) / NS_PER_S
            return f"nothing was recorded in the last {format_span(since)}: the budget is used up"
        used, _ = self._memory.used()
        try:
            found = os.statvfs(self.request.directory)
        except OSError:
            return FAILED
        free = found.f_bavail * found.f_frsize
        return FULL if found.f_blocks and free < 2 * used + _ROOM else ""

    def _move(self, trigger: Trigger) -> None:
        """Close the gates, move what is held, and begin to write it beside."""
        memory = self._memory
        request = dump_request(self.request.version, self._profile, self.request.execution)
        dump = Dump(self.request.directory, trigger, request)
        dump.make()
        held = None
        begun = time.monotonic_ns()
        # A dump of what is usual leaves what it took to the next one that is made of a trouble.
        before = None if trigger.when == USUAL else self._before
        try:
            with self.loop.closed(DUMP):
                closed = time.monotonic_ns()
                oldest = closed - round(self.request.keep * NS_PER_S)
                since = max(self._since, oldest)
                try:
                    held = memory.take()
                finally:
                    if held is None:
                        memory.drop()
                    self._since = time.monotonic_ns()
            self._closed = (time.monotonic_ns() - begun) / NS_PER_S
            writing = Writing(closed, ftrace.measure_epoch())
            if before is not None:
                before = replace(before, begin=max(before.begin, oldest))
        except BaseException:
            dump.discard()
            raise
        self._dump = dump
        self._add_marks(held.came, closed)
        self.loop.work_beside(
            lambda: self._write(dump, held, since, writing, before),
            lambda failed: self._make(dump, held, writing, failed),
        )

    def _write(
        self, dump: Dump, held: Held, since: int, writing: Writing, before: Before | None
    ) -> None:
        """Write what was moved, in a thread of its own."""
        try:
            with contextlib.closing(held):
                writing.begin = held.save(dump.raw, since, writing.end, before)
            self._save_stacks(dump.building, writing.begin)
            if self._functions is not None:
                self._functions.save(dump.building)
            raws.copy_descriptions(self._memory.instance, dump.raw, self._events)
        finally:
            writing.seconds = time.thread_time()

    def _make(self, dump: Dump, held: Held, writing: Writing, failed: Exception | None) -> None:
        """Begin to make a recording of what was written."""
        self._moved += writing.seconds  # here, as two threads would lose some
        before = time.thread_time()
        try:
            if failed is not None:
                raise failed
            begin, end = writing.begin, writing.end
            self._limits.look(begin)
            slept = [one for one in self._suspensions if one[1] > begin]
            sampled = {"format": SAMPLED_FORMAT, "requests": self._live.list_sampled(begin)}
            raws.write_json(dump.building / SAMPLED, sampled)
            labels: dict[str, object] = {}
            if self._labels is not None:
                labels["labels"] = self._labels.save(dump.raw / raws.LABELS, begin)
            dump.start(
                {
                    "begin": begin,
                    "end": end,
                    "layers": [layer.name for layer in self._memory.windowed],
                    "journal": self._memory.journal.rows_since(begin),
                    "overhead": self._overhead(dump.trigger),
                    "threads": self._threads,
                    "limits": self._limits.facts(),
                    "slept": slept[0][2] if slept else self._slept,
                    "said": [_tell_suspension(b - begin, of) for b, _, _, of in slept if b < end],
                    "keep": self.request.dumps,
                    "leave": str(dump.place_left) if dump.trigger.when == USUAL else "",
                    "description": {
                        **self._description,
                        **labels,
                        "gaps": held.silences(begin),
                        "session": dump.session,
                        "epoch": writing.epoch,
                    },
                }
            )
            self._idle_until = time.monotonic() + DUMPS.idle
            self.loop.hasten(self._ticks)
        except (CritpathError, OSError) as error:
            dump.discard()
            why = self._give_up(error)
            self._refuse(dump.trigger, why)
            self._go_on({"refused": why})
        self._pay_for_moving(time.thread_time() - before)

    def _save_stacks(self, building: Path, begin: int) -> None:
        """Write the stacks that are held; of the time that it takes there are none."""
        if self._stacks is None:
            return
        since = time.monotonic_ns()
        with self.loop.waiting():
            self._stacks.pause()
        try:
            self._stacks.save(building, begin)
        finally:
            with self.loop.waiting():
                for gate in self._stacks.resume():
                    self._memory.journal.note_other(gate.name, since)

    def _look_at_threads(self) -> None:
        """Note which threads there are, as those that end meanwhile cannot be asked any more."""
        now = time.monotonic()
        if now < self._scan_due:
            return
        before = time.thread_time()
        self._threads = tracefs.scan_threads()
        self._limits.look(time.monotonic_ns() - round(self.request.keep * NS_PER_S))
        took = time.thread_time() - before
        self._scan_due = now + max(_SCAN_EVERY, took / (_SCAN_SHARE * self.request.budget.share))

    def _keep_before(self, before: Before | None) -> None:
        """Keep what a dump of what is usual took, in place of what the last one did."""
        old, self._before = self._before, before
        if old is not None:
            old.remove()

    def _look_at_dump(self) -> None:
        dump = self._dump
        said = dump.poll() if dump is not None else None
        if dump is None:
            return
        if said is None:
            now = time.monotonic()
            if now >= self._idle_until and self._for_dumps.credit(now) > 0:
                self._idle_until = math.inf
                dump.hurry()
            return
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = self._moved + used.ru_utime + used.ru_stime
        self._for_dumps.pay(spent - self._spent)
        self._spent = spent
        self._keep_before(dump.left)
        if said:
            self._refusals.note(FAILED)
            self._say(f"warning: a dump was given up: {safe_text(said)}")
            self._go_on({"refused": said})
            return
        self._made += 1
        self._removed += dump.removed
        self._last = str(dump.target)
        # So soon after another one there is little to save.
        pause = min(self.request.usual, self.request.keep)
        self._usual_due = max(self._usual_due, time.monotonic() + pause)
        self._say(f"{dump.target}: {safe_text(dump.trigger.when)} {dump.trigger.value}".rstrip())
        self._go_on({"dump": str(dump.target), "closed": round(self._closed, 4)})

    def _go_on(self, answer: dict[str, object]) -> None:
        """Tell who asked what became of the dump, and begin the one that is asked for next."""
        self._dump = None
        for client in self._asked:
            _reply(client, answer)
        self._asked, self._waiting = self._waiting, []
        pending, self._pending = self._pending, None
        if pending is not None and (why := self._save(pending)):
            for client in self._asked:
                _reply(client, {"refused": why})
            self._asked = []
        self._write_state("running")
        _notify(f"STATUS={self._headline()}")

    # Who asks

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._server.accept()
            if len(self._clients) >= _CLIENTS:  # one of those that say nothing
                oldest = next(iter(self._clients))
                self.loop.ignore(oldest)
                self._clients.pop(oldest).close()
            client.setblocking(False)
            file = client.fileno()
            self._clients[file] = client
            self.loop.watch(file, partial(self._answer, file))

    def _answer(self, file: int) -> None:
        client = self._clients.pop(file)
        self.loop.ignore(file)
        try:
            asked = json.loads(client.recv(_MOST_WORDS) or b"null")
        except (OSError, ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            client.close()
        elif "dump" in asked:
            reason = safe_text(str(asked["dump"]))[:200]
            after = self._dump is not None
            if why := self._save(Trigger(COMMAND, reason, at=time.monotonic_ns(), asked=True)):
                _reply(client, {"refused": why})
            else:
                (self._waiting if after else self._asked).append(client)
        elif "top" in asked:
            if "walks" in asked:
                self._note_walks(asked["walks"])
            _reply(client, self._tell(asked["top"], asked.get("from")))
        else:
            if "stop" in asked:
                self._finish()
            _reply(client, self.status())

    def _note_walks(self, took: object) -> None:
        """Charge what walking a dump took where dumps are; have another one when that allows it."""
        if isinstance(took, (int, float)) and 0 <= took < _HOUR:
            self._for_dumps.pay(took)
        now = time.monotonic()
        if self.request.usual and self._for_dumps.credit(now) > 0:
            self._usual_due = min(self._usual_due, self._usual_made + _WALKED)

    def _tell(self, seen: object, number: object) -> dict[str, object]:
        """Return the executions that ended after so many, as many as an answer holds.

        And what requests of kinds from a number on there were so far, as many kinds as it holds.
        """
        self._watched = time.monotonic() + _LOOKED_ON
        first = self._seen - len(self._ended)
        after = min(seen, self._seen) if isinstance(seen, int) and seen >= 0 else self._seen
        rows: list[list[object]] = []
        room = _TOLD
        for one in itertools.islice(self._ended, max(after - first, 0), None):
            rows.append([one.what, one.kind, one.begin, one.end])
            room -= _ROW + _LONGEST_LETTER * len(one.kind)
            if room < 0:
                break
        until = max(after, first) + len(rows)
        return {
            "now": time.monotonic_ns(),
            "seen": until,
            "more": until < self._seen,
            "missed": max(first - after, 0),
            "ended": rows,
            **self._live.tell(number if isinstance(number, int) else 0, max(room, _TOLD // 2)),
            "dump": self._last,
            "covers": self._covers(),
            "overhead": round(self._second[2], 5),
        }

    def _close_clients(self) -> None:
        for client in (*self._clients.values(), *self._asked, *self._waiting):
            client.close()

    # What is told

    def status(self) -> dict[str, object]:
        """Return what is held now, what it costs, and what became of triggers."""
        memory, control = self._memory, self._control
        now = time.monotonic_ns()
        since = self._before.begin if self._before is not None else self._since
        oldest = max(memory.oldest(), since, now - round(self.request.keep * NS_PER_S))
        held = (now - oldest) / NS_PER_S
        used, fullest = memory.used()
        return {
            "format": FORMAT,
            "session": self.session,
            "pid": os.getpid(),
            "since": round(time.monotonic() - self._began, 1),
            "profile": self._profile,
            "conditions": [one.text for one in self.request.conditions],
            "memory": self.request.memory,
            "keep": self.request.keep,
            "dumps": {
                "made": self._made,
                "kept": len(find_dumps(self.request.directory)),
                "most": self.request.dumps,
                "removed": self._removed,
                "last": self._last,
                "closed": round(self._closed, 4),
                "cpu": round(self._spent, 2),
                "refused": dict(sorted(self._refusals.counts.items())),
            },
            "held": round(held, 1),
            "room": round(min(held / max(fullest, 1e-6), self.request.keep), 1),
            "used": used,
            "layers": [layer.name for layer in memory.layers],
            "covers": self._covers(),
            "layers_cover": {layer.name: self._covers(layer.name) for layer in memory.layers},
            "unnamed": self._live.requests.unnamed,
            "gaps": round(max(0.0, self._elapsed() - self.loop.gates.open_seconds()), 3),
            "overhead": {
                "target": self.request.budget.overhead,
                "counted": round(control.counted(), 5),
                "used": round(control.counted() / control.budget.overhead, 4),
                "now": round(self._second[2], 5),
                "of": self.request.budget.of,
                "threads": self._share_of_threads(),
            },
        }

    def _share_of_threads(self) -> float:
        """Return what the recorder's own threads take, as a share of a cpu, charged or not."""
        own = self._control.tally.parts.get("controller", 0.0)
        return round(own / max(self._elapsed(), 1e-9), 5)

    def _covers(self, layer: str = "") -> float:
        """Return the share of the time in which everything was recorded, or a layer."""
        covers = self.loop.gates.open_seconds(layer) / max(self._elapsed(), 1e-9)
        return round(min(1.0, covers), 4)

    def _elapsed(self) -> float:
        return time.monotonic() - self.loop.begun

    def _covers_of(self, gate: Gate) -> float:
        """Return the share of the time in which a gate was open."""
        opened: float | None = getattr(gate, "opened_for", None)
        if opened is None:
            return self._covers(gate.name)
        return round(min(1.0, opened / max(self._elapsed(), 1e-9)), 4)

    def _overhead(self, trigger: Trigger) -> dict[str, object]:
        control = self._control
        counted = round(control.counted(), 6)
        return control.summarize() | {
            "seed": 1,
            "command": None,
            "compared": None,
            "felt": {},
            "while_open": counted,
            "events_ns": {n: round(control.costs.events[n], 1) for n in control.layers},
            "layers": {
                gate.name: {"covers": self._covers_of(gate)} for gate in self.loop.gates.every
            },
            "executions": {},
            "trigger": {
                "when": trigger.when,
                "value": trigger.value,
                "kind": trigger.kind,
                "id": trigger.id,
                "at": trigger.at,
                **({"noticed": trigger.noticed} if trigger.noticed else {}),
            },
        }

    def _headline(self) -> str:
        budget = self.request.budget
        covers, dumps = self._covers(), plural(len(find_dumps(self.request.directory)), "dump")
        how = "" if covers > _ALL else f", open {100 * covers:.0f} % of the time"
        if time.monotonic() < self.loop.begun + budget.horizon:  # it is not known yet
            how = ""
        return (
            f"flight recorder: profile {self._profile}, under {100 * budget.overhead:g} %{how}; "
            f"{dumps}"
        )

    def _write_state(self, state: str) -> None:
        with contextlib.suppress(OSError):
            if self._triggers.requests is not None and (
                state != "running" or time.monotonic() >= self._keep_due
            ):
                self._keep_due = time.monotonic() + _KEEP_EVERY
                self._triggers.requests.keep(self.request.directory / USUAL_TIMES)
            with contextlib.suppress(CritpathError):  # else the tracer is gone
                self._status = self.status()
            write_state(self.request.directory, {**self._status, "state": state})


def measure_slept() -> int:
    """Return for how long the machine was suspended since it was booted (ns), or a bit less."""
    boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return boot - time.monotonic_ns()


def _tell_suspension(after: int, lasted: int) -> str:
    return (
        f"the machine was suspended for {format_span(lasted / NS_PER_S)}, "
        f"{format_span(max(after, 0) / NS_PER_S)} after the begin: that is part of no run, "
        "and times of day before it are too late by as much"
    )


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """Yield a descriptor that has a byte for each signal."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def _reply(client: socket.socket, document: object) -> None:
    with contextlib.suppress(OSError):
        client.send(json.dumps(document).encode())
    client.close()


def _notify(*lines: str) -> None:
    """Tell the service manager, where there is one."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.sendto(
            "\n".join(lines).encode(), place.replace("@", "\0", 1) if place[0] == "@" else place
        )
