"""Two commands in random blocks, until it is shown whether the second is slower."""

from __future__ import annotations

import math
import random
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from critpath import __version__
from critpath.ab.effects import machine_summary
from critpath.ab.judgement import COUNTED, Judge, computes, tail_blocks
from critpath.documents import AbBlock, AbCause, AbDocument, AbPlan
from critpath.documents.base import narrow
from critpath.errors import CritpathError, UsageError
from critpath.schema.parameters.ab import EVIDENCE
from critpath.text import ab as text
from critpath.units import NS_PER_S, format_ns

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

SLOT_NS: Final = 20_000_000  # technical: shorter commands are executed several times in a slot
MOST_IN_SLOT: Final = 64  # technical
_LOOK: Final = 1.0  # technical: seconds
_COST: Final = 20  # technical: a look may take one part in so many of the time


class Teller(Protocol):
    """Receives what there is to say while blocks run."""

    def say(self, line: str) -> None:
        """Show a line that stays."""

    def look(self, line: str) -> None:
        """Show the latest state in place of the one before."""


class AbRequest(AbPlan, kw_only=True):
    """What to compare, and how: the plan of the analysis, and what only measuring needs.

    Attributes
    ----------
    time : float
        Seconds after which no block begins.
    warmup : int
        Executions of each command that are discarded; with ``traced`` they are not recorded, so
        that the cost of it is known.
    prepare : str
        A command to run before each slot.
    timeout : float
        Seconds an execution may last, 0 for any time.
    label : str
        A regular expression that finds an execution's kind in what it prints; "" for none.
    specification, profile : str
        What the cause is named of, and recorded for; "" for whole runs.
    every_block : bool
        Look after every block.
    """

    time: float = 600.0  # technical: seconds
    warmup: int = 2
    prepare: str = ""
    timeout: float = 0.0
    as_root: bool = False
    show_output: bool = False
    label: str = ""
    specification: str = ""
    profile: str = "minimal"
    every_block: bool = False

    @property
    def plan(self) -> AbPlan:
        """The part of it that the analysis needs."""
        return narrow(AbPlan, self)


def block_order(seed: int, block: int) -> Literal["ABBA", "BAAB"]:
    """Return the order of a block's slots: a fair coin, the same for the same seed."""
    coin = random.Random(f"{seed}:{block}")  # noqa: S311 - a schedule, not a secret
    return "ABBA" if coin.random() < 0.5 else "BAAB"


def compare_commands(
    request: AbRequest,
    slots: AbstractContextManager[Slots],
    teller: Teller,
    traced: TracedSlots | None = None,
) -> AbDocument:
    """Run blocks in `slots` until something is shown, or the limits are reached.

    With ``traced`` these run the blocks, after warm-up executions without tracing.

    Raises
    ------
    CommandError
        If a command cannot be executed.
    UsageError
        If the time cannot suffice.
    """
    with slots as untraced:
        run = _Run(request, untraced, teller)
        discarded = run.warm_up()
        if traced is None or discarded is None or untraced.interrupted:
            return run.run(discarded)
    return _Run(request, traced, teller).run(discarded)


class _Ended(Protocol):
    """How an execution ended; times are in ns."""

    @property
    def exit_code(self) -> int: ...

    @property
    def executed(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def running(self) -> int: ...


class Slots(Protocol):
    """Runs blocks of executions."""

    @property
    def interrupted(self) -> bool:
        """Whether the user asked for an end."""

    @property
    def ended_by(self) -> int:
        """The signal that asked for it; 0 where that is not known."""

    def run_block(self, order: Literal["ABBA", "BAAB"], executions: int) -> AbBlock | None:
        """Run a block; None if the user ended it."""


@dataclass
class TracedSlots:
    """Runs blocks that are recorded, `EVIDENCE.cause_blocks` at a time, one execution a slot.

    Each such part is a pair of recordings below ``place``, which `record` makes: it is told where
    to, the orders of the blocks, and whom to tell of every execution.
    """

    request: AbRequest
    place: Path
    record: Callable[[Path, Sequence[str], Callable[[str, _Ended], None]], None]
    interrupted: bool = False
    ended_by: int = 0
    parts: list[Path] = field(default_factory=list)
    _ready: list[AbBlock] = field(default_factory=list)

    def run_block(self, _order: Literal["ABBA", "BAAB"], _executions: int) -> AbBlock | None:
        """Return the next block of what was recorded; None if the user ended it.

        The order is that of the request's seed, as the caller's is.
        """
        if not self._ready and not self.interrupted:
            self._record()
        return self._ready.pop(0) if self._ready else None

    def _record(self) -> None:
        first = len(self.parts) * EVIDENCE.cause_blocks
        numbers = range(first, min(first + EVIDENCE.cause_blocks, self.request.max_blocks))
        orders = [block_order(self.request.seed, number) for number in numbers]
        done: list[_Ended] = []
        target = self.place / f"{len(self.parts):03}"
        self.record(target, orders, lambda _, run: done.append(run))
        self.parts.append(target)
        self.interrupted = len(done) < 4 * len(orders)
        for i, order in enumerate(orders[: len(done) // 4]):
            four = done[4 * i : 4 * i + 4]
            fine = [run.exit_code == 0 for run in four]
            self._ready.append(
                AbBlock(
                    order=order,
                    times=[[r.end - r.executed] * ok for r, ok in zip(four, fine, strict=True)],
                    run=[[r.running] * ok for r, ok in zip(four, fine, strict=True)],
                    failed=[] if all(fine) else [int(not ok) for ok in fine],
                )
            )


@dataclass
class _Run:
    request: AbRequest
    slots: Slots
    teller: Teller
    looked: float = 0.0
    look_cost: float = 0.0
    begin: float = field(default_factory=time.monotonic)

    def run(self, discarded: AbBlock | None) -> AbDocument:
        plan = self.request.plan
        judge = Judge(plan)
        if discarded is not None:
            plan.slot = self._slot(discarded)
            # Before the first coin, so that it takes no part of the level.
            plan.computes = plan.of == "time" and computes(
                plan.floor, [discarded], find=lambda side: min(side, key=lambda x: abs(x - 1))
            )
            self._announce(plan, discarded)
        stopped: Any = self._asked if discarded is None or self.slots.interrupted else ""
        self.begin = time.monotonic()
        number = 0
        while not stopped:
            block = self.slots.run_block(block_order(plan.seed, number), plan.slot)
            number += 1
            if block is None:
                stopped = self._asked
                break
            judge.add(block)
            if judge.invalid:
                stopped = "invalid"
            elif judge.decided:
                stopped = "e"
            elif number >= plan.max_blocks:
                stopped = "max_blocks"
            elif time.monotonic() - self.begin > self.request.time:
                stopped = "time"
            else:
                self._look(judge)
        spent = round(time.monotonic() - self.begin, 3)
        return judge.document(
            version=__version__, discarded=discarded, spent_s=spent, stopped_by=stopped
        )

    @property
    def _asked(self) -> Literal["user", "signal"]:
        """Who asked for the end."""
        return "user" if self.slots.ended_by in {0, signal.SIGINT} else "signal"

    def warm_up(self) -> AbBlock | None:
        """Run what is discarded: by rule, never until it looks stable."""
        found = AbBlock(order="ABBA", times=[[], [], [], []], run=[[], [], [], []])
        for _ in range(max(1, math.ceil(self.request.warmup / 2))):
            block = self.slots.run_block("ABBA", 1)
            if block is None:
                return None
            if any(block.failed):
                if self.request.failures_are_slow:
                    continue
                side = "A" if block.failed[0] or block.failed[3] else "B"
                both = any(block.failed[i] for i in (0, 3)) and any(block.failed[1:3])
                command = " ".join(self.request.commands["AB".index(side)])
                raise CommandFailedError(
                    f"{'both commands fail' if both else f'{side} fails'} before anything is "
                    f"measured: {command}",
                    "run it by hand to see why; where its exit code does not matter: sh -c "
                    "'CMD || true'",
                )
            for slot in range(4):
                for name in ("times", "run", "waited", "counted", "labels"):
                    if more := getattr(block, name):
                        so_far = getattr(found, name) or [[], [], [], []]
                        setattr(found, name, so_far)
                        so_far[slot] += more[slot]
        if self.request.label and not any(name for slot in found.labels for name in slot):
            raise UsageError(
                f"--label: {self.request.label!r} is found in nothing that the commands print",
                "run one by hand: a label is looked for in its standard output",
            )
        return found

    def _slot(self, discarded: AbBlock) -> int:
        if self.request.slot:
            return self.request.slot
        first = int(self.request.skip_first)
        times = [time for slot in discarded.times for time in slot]
        if not times:
            return 1 + first
        found = max(1, math.ceil(SLOT_NS / statistics.median(times)))
        # Where half of the times are equal the clock is too coarse for so few.
        by = {"run": discarded.run, **dict.fromkeys(COUNTED, discarded.counted)}
        deciding = by.get(self.request.of, discarded.times)
        measured = [time for slot in deciding for time in slot]
        if 2 * len(set(measured)) <= len(measured):
            found *= 2
        return min(MOST_IN_SLOT, found + first)

    def _announce(self, plan: AbPlan, discarded: AbBlock) -> None:
        """Say how long it may take, or refuse what cannot be decided in the time."""
        times = [time for slot in discarded.times for time in slot]
        if not times:
            return
        block = 4 * plan.slot * statistics.mean(times) / NS_PER_S
        if block * EVIDENCE.least_blocks > self.request.time:
            most = self.request.time / (4 * EVIDENCE.least_blocks * plan.slot)
            raise UsageError(
                f"a run takes {format_ns(statistics.mean(times))}: with --time "
                f"{self.request.time:g}s nothing slower than {format_ns(most * NS_PER_S)} can be "
                f"decided, as {EVIDENCE.least_blocks} blocks of 4 slots are the least",
                f"give --time {math.ceil(block * 100)}s or more",
            )
        self.teller.say(text.expected(block, plan, self.request.time))
        for q in plan.asked_tails:
            self.teller.say(text.tail_takes(float(q), tail_blocks(float(q))))

    def _look(self, judge: Judge) -> None:
        now = time.monotonic()
        since = now - self.looked
        if not self.request.every_block and since < max(_LOOK, _COST * self.look_cost):
            return
        if judge.blocks and any(judge.blocks[-1].failed):
            return
        result, left = judge.look()
        machine = machine_summary(judge.blocks)
        spent = now - self.begin
        self.teller.look(text.progress(result, judge.plan, spent, left, machine, judge.wanted))
        self.looked = time.monotonic()
        self.look_cost = self.looked - now


class CommandFailedError(CritpathError):
    """A command fails before anything is measured (exit 4)."""

    exit_code = 4


def judge_again(document: AbDocument) -> AbDocument:
    """Compute everything anew from a document's log of blocks."""
    judge = Judge(narrow(AbPlan, document))
    for block in document.block_log:
        judge.add(block)
    found = judge.document(
        version=document.version,
        discarded=document.discarded,
        spent_s=document.spent_s,
        stopped_by=document.stopped_by,
    )
    return add_cause(found, document.cause)


# The cause: further blocks, recorded.


def add_cause(document: AbDocument, cause: AbCause | None) -> AbDocument:
    """Add what recorded blocks say of why; the verdict stays."""
    document.cause = cause
    if cause is not None:
        document.sentences += cause.sentences
        if cause.verdict == "ok":
            document.sentences.append(text.cause_disagrees(cause.verdict))
    return document
