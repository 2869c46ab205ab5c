"""What a recording is made of: sources, all of which a session asks in one loop.

A tracer (ftrace, LTTng), counts, stacks, functions: each takes a part.  The module of one says
by ``find_needs`` what this machine lacks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from critpath.errors import CritpathError
    from critpath.model import CpuLoss, Gap, StreamFacts
    from critpath_record.budget.gates import BesideGate
    from critpath_record.budget.recording import BudgetRecording


@dataclass(frozen=True)
class Count:
    """What a running source has so far."""

    events: int
    lost: int


@dataclass(frozen=True)
class Taken:
    """What a source knows once what it took is in place."""

    loss: tuple[CpuLoss, ...] = ()  # as counted, whatever the trace's own marks say
    facts: Mapping[str, object] = field(default_factory=dict)  # for the manifest's recorder
    warnings: tuple[str, ...] = ()
    # Deletes what a trace was made from, once the manifest is written: a recorder that is killed
    # before must not lose the counts of the loss.
    release: Callable[[], None] = field(default=lambda: None, compare=False)
    begin: int = 0  # of what is finished later (ns); 0 if unknown
    end: int = 0
    gaps: tuple[Gap, ...] = ()  # when somebody kept the tracer from recording
    gaps_file: str = ""  # under a budget, where its gaps are listed
    overhead: Mapping[str, object] = field(default_factory=dict)  # what it was allowed to cost
    beside: tuple[str, ...] = ()  # files of the recording's directory, with `gaps_file`
    streams: tuple[StreamFacts, ...] = ()  # of the trace, where its maker knows them


class Source:
    """A source, called in this order: prepare, open, close, drain; or abort at any time.

    Every method raises `critpath.errors.CritpathError` that names a way out, and leaves nothing
    behind when it does; except `UnfinishedError`, which keeps what was recorded.
    """

    name: ClassVar[str] = ""  # in the manifest, and of its part of what a budget spends
    follows: ClassVar[bool] = False  # it explains a tracer's events, and ends after that
    span: tuple[int, int] = (0, 0)  # when the tracer recorded (ns), which is known at `drain`

    @property
    def failure(self) -> CritpathError | None:
        """The error that ended it while the command ran, such as a full disk."""
        return None

    @property
    def gate(self) -> Any:
        """What a budget opens and closes of it, once it has begun: a `BesideGate`, or None."""
        return None

    @property
    def group(self) -> int:
        """Descriptor by which the command joins a control group; -1 for none."""
        return -1

    def prepare(self) -> None:
        """Make what must be there before it begins."""

    def open(self) -> int:
        """Begin; return when everything was taken (ns, CLOCK_MONOTONIC), 0 if that says nothing."""
        return 0

    def environment(self) -> Mapping[str, str]:
        """Return the variables that the command needs."""
        return {}

    def descriptors(self) -> tuple[int, ...]:
        """Return the file descriptors that the command inherits."""
        return ()

    def begin_run(self, kind: str, *, limited: bool) -> bool:
        """Get ready for the next run, of a kind; return whether it is recorded.

        Under a budget, one that lasts far longer than its kind is given up, unless its time is
        `limited`.
        """
        del kind, limited
        return True

    def end_run(self, kind: str, busy: int) -> None:
        """Note that a run has ended, which had so much cpu time (ns)."""

    def note_run(self, kind: str, number: int, begin: int, pid: int) -> None:
        """Note the run that ended, if it was recorded."""

    def count_events(self) -> Count | None:
        """Return what it has and lost so far; None where asking would disturb, or nothing tells."""
        return None

    def cost(self) -> float | None:
        """Return what it has cost so far (s of cpu time); None where only a budget's law says."""
        return None

    def open_beside(self, gates: Sequence[BesideGate]) -> None:
        """Open and close these, too, as its budget allows; before it begins."""

    def charge_beside(self, part: str, spent: Callable[[], float]) -> None:
        """Charge to its budget, if it has one, what another source has cost so far."""

    def tell(self) -> Mapping[str, object]:
        """Return fields of the manifest, which are asked for when it has begun and ended."""
        return {}

    def close(self) -> int:
        """Take no more; return when that was (ns), 0 if that says nothing."""
        return 0

    def drain(self, report: Callable[[str], None]) -> Taken:
        """Put what was taken into place."""
        del report
        return Taken()

    def abort(self) -> None:
        """End at once; what was taken need not become anything.  Idempotent."""


class UnderBudget:
    """What a recorder hands on to its budget, if it has one."""

    _budget: BudgetRecording | None
    _beside: tuple[BesideGate, ...] = ()

    def open_beside(self, gates: Sequence[BesideGate]) -> None:
        """Open and close these, too, as the budget allows; before anything is started."""
        self._beside = tuple(gates)

    def charge_beside(self, part: str, spent: Callable[[], float]) -> None:
        """Charge what something else has spent so far to the budget, if there is one."""
        if self._budget is not None:
            self._budget.charge_beside(part, spent)

    def begin_run(self, kind: str, *, limited: bool) -> bool:
        """Open for a run that is recorded, if there is a budget."""
        return self._budget.begin_run(kind, limited=limited) if self._budget else True

    def end_run(self, kind: str, busy: int) -> None:
        """Close after a run, if there is a budget."""
        if self._budget is not None:
            self._budget.end_run(kind, busy)

    def note_run(self, kind: str, number: int, begin: int, pid: int) -> None:
        """Note a run that was recorded under a budget."""
        if self._budget is not None:
            self._budget.note_selected(kind, number, begin, pid)
