"""What a control loop opens and closes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from typing import Protocol

from critpath_record.budget.gaps import BUDGET, START, Journal


class Gate(Protocol):
    """A layer that can be opened and closed."""

    name: str
    state: str
    is_open: bool

    def open(self) -> None:
        """Record from now on."""

    def close(self) -> None:
        """Record nothing from now on."""

    def turn_off(self) -> None:
        """Take the costliest events away, while closed."""

    def adopt(self) -> int | None:
        """Know that somebody else has opened the gates; when it is open (ns), if it only is now."""

    def end(self) -> None:
        """Record nothing more, whoever opens it."""

    def counts(self, cpus: Sequence[int]) -> list[int]:
        """Return how many events each cpu recorded so far."""

    def cpu_time(self) -> float:
        """Return the cpu time of the threads that move pages (s)."""


class BesideGate(Gate, Protocol):
    """What is opened and closed beside the layers.

    `event_ns` is what an event costs, 0 where that is to be measured by a probe; `closed_ns` what
    one costs that meets it closed, if that is not measured.
    """

    event_ns: float
    closed_ns: float
    opened_for: float  # s so far
    windows: int

    @property
    def cpus(self) -> Sequence[int]:
        """Whose events it counts."""

    def probe(self, cpu: int) -> contextlib.AbstractContextManager[Gate]:
        """Make a gate whose events cost the same, and go nowhere."""


class Gates:
    """All gates of a recorder, closed at first; what the others need is the first.

    `lasting`: those of which it is asked for how long they were open by themselves.
    """

    def __init__(
        self,
        every: Sequence[Gate],
        journal: Journal,
        cpus: Sequence[int],
        lasting: Collection[str] = (),
    ) -> None:
        self.every, self.journal, self.cpus = tuple(every), journal, tuple(cpus)
        self.windows = 0
        self._lasted = dict.fromkeys((self.every[0].name, *lasting), 0.0)
        self._since: dict[str, float] = {}  # when those of them that are open were opened
        self._counts = self._read()
        for gate in self.every:
            journal.close_layer(gate.name, START, lambda: None)

    @property
    def is_open(self) -> bool:
        """Whether what the others need is open."""
        return self.every[0].is_open

    @property
    def opened(self) -> frozenset[str]:
        """The names of those that are open."""
        return frozenset(gate.name for gate in self.every if gate.is_open)

    @property
    def open_at(self) -> float:
        """Since when the first is open (s)."""
        return self._since.get(self.every[0].name, time.monotonic())

    def open_seconds(self, name: str = "") -> float:
        """Return for how long a lasting gate was open so far (s), else the first."""
        name = name if name in self._lasted else self.every[0].name
        since = self._since.get(name)
        return self._lasted[name] + (0.0 if since is None else time.monotonic() - since)

    def note_open(self, name: str, since: float) -> None:
        """Note since when (s) a gate is open."""
        if name in self._lasted:
            self._since[name] = since
            self.windows += name == self.every[0].name

    def note_closed(self, name: str, until: float) -> None:
        """Note until when (s) a gate was open."""
        if (since := self._since.pop(name, None)) is not None:
            self._lasted[name] += max(0.0, until - since)

    def switch(self, opened: Collection[str], why: str = BUDGET) -> None:
        """Open and close: what others need opens first and closes last."""
        for gate in self.every:
            if gate.name in opened and not gate.is_open:
                self.journal.open_layer(gate.name, gate.open)
                self.note_open(gate.name, time.monotonic())
        for gate in reversed(self.every):
            if gate.name not in opened and gate.is_open:
                self.journal.close_layer(gate.name, why, gate.close)
                self.note_closed(gate.name, time.monotonic())

    def turn_off(self) -> None:
        """Take the costliest events of those away that are closed."""
        for gate in self.every:
            if not gate.is_open:
                gate.turn_off()

    def end(self) -> None:
        """See to it that nothing is recorded any more, whoever opens."""

    def cpu_time(self) -> float:
        """Return the cpu time of the threads that move pages (s)."""
        return sum(gate.cpu_time() for gate in self.every)

    def _read(self) -> dict[str, list[int]]:
        return {gate.name: gate.counts(self.cpus) for gate in self.every}

    def list_counters(self) -> tuple[list[int], list[int]] | None:
        """Return the kernel's files of counts, each gate's of all cpus, and what was taken last.

        None where a gate has none, as its events are counted in another way.
        """
        each = [getattr(gate, "count_files", None) for gate in self.every]
        if not all(each):
            return None
        files = [file for files_of in each if files_of for file in files_of(self.cpus)]
        return files, [count for gate in self.every for count in self._counts[gate.name]]

    def count(self, *, take: bool = True) -> dict[str, list[int]]:
        """Return how many events came since they were taken last, by gate and cpu."""
        now, before = self._read(), self._counts
        if take:
            self._counts = now
        # Less than before, if it was forgotten meanwhile.
        return {
            name: [max(0, b - a) for a, b in zip(before[name], of, strict=True)]
            for name, of in now.items()
        }
