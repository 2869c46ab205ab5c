"""How the clocks of several hosts relate, and how surely that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from critpath.model.table import F64, I64

# How an alignment is known: `HostClock.source`.
REFERENCE: Final = "reference"
MESSAGES: Final = "messages"
SAME_KERNEL: Final = "same kernel"
SAMPLES: Final = "samples"
UNALIGNED: Final = "none"


@dataclass(frozen=True)
class ClockLine:
    """A stretch of a host's clock that is a straight line against another clock.

    Attributes
    ----------
    begin, end : int
        Times of the host's own clock (ns).
    offset : int
        ns to add to the host's time at `begin` to get the other clock's.
    drift : float
        By how much `offset` grows per ns.
    """

    begin: int
    end: int
    offset: int
    drift: float

    def at(self, time: int) -> int:
        """Return the offset at a time."""
        return self.offset + round(self.drift * (time - self.begin))


@dataclass(frozen=True, eq=False)
class HostClock:
    """One host's clock against the reference's.

    Attributes
    ----------
    host : str
    source : str
        ``reference``, ``messages``, ``same kernel``, ``samples``, or ``none``: not aligned.
    lines : tuple of ClockLine
        In order; empty where the host is not aligned.  Where one does not go on from the
        other's end the clock stepped.
    sure : int64 [n, 3]
        Time (the host's own), and what the true offset may be less or more than the line's
        there (ns, ``low <= 0 <= high``); between two times they change evenly.
    steps : tuple of (int, int)
        When the clock stepped, and by how much (ns).
    messages : (int, int)
        That bound the clock: those that the host got, those that it sent.
    claim : int
        By how much the operating systems say that their clocks are wrong at most, both
        together (ns); -1 where they say nothing.
    claim_held : bool
        Whether the messages allow that.
    """

    host: str
    source: str
    lines: tuple[ClockLine, ...] = ()
    sure: I64 = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    steps: tuple[tuple[int, int], ...] = ()
    messages: tuple[int, int] = (0, 0)
    claim: int = -1
    claim_held: bool = True

    @property
    def aligned(self) -> bool:
        """Whether the host's times can be expressed in the reference's."""
        return self.source != UNALIGNED

    @property
    def bound(self) -> int:
        """By how much an aligned time is wrong at most (ns)."""
        return int(np.abs(self.sure[:, 1:]).max(initial=0))

    @property
    def middle_bound(self) -> int:
        """The same in the middle of the recording."""
        if not len(self.sure):
            return 0
        return int(np.abs(self.sure[len(self.sure) // 2, 1:]).max())

    def offsets(self, times: I64) -> I64:
        """Return what to add to times of this host to have the reference's."""
        if not self.lines:
            return np.zeros(len(times), np.int64)
        begins = np.array([line.begin for line in self.lines], np.int64)
        shift = np.array([line.offset for line in self.lines], np.int64)
        drift = np.array([line.drift for line in self.lines])
        of = np.maximum(np.searchsorted(begins, times, "right") - 1, 0)
        moved = np.rint(drift[of] * (times - begins[of]).astype(np.float64))
        result: I64 = shift[of] + moved.astype(np.int64)
        return result

    def bounds(self, times: I64) -> tuple[F64, F64]:
        """Return by how much the true offset may be less and more than `offsets` says."""
        if not len(self.sure):
            none = np.zeros(len(times))
            return none, none
        at = self.sure[:, 0].astype(np.float64) - float(self.sure[0, 0])
        asked = (times - self.sure[0, 0]).astype(np.float64)
        return np.interp(asked, at, self.sure[:, 1]), np.interp(asked, at, self.sure[:, 2])


@dataclass(frozen=True)
class ClockAlignment:
    """The clocks of all hosts on the reference's line.

    Attributes
    ----------
    reference : str
    hosts : tuple of HostClock
        In the order of the hosts, the reference's among them.
    """

    reference: str
    hosts: tuple[HostClock, ...]


@dataclass(frozen=True, eq=False)
class Crossings:
    """Messages from one host to another, as far as they bound the clocks.

    Attributes
    ----------
    left : int64 [n]
        Earliest at which each can have left (ns of the sender's clock).
    arrived : int64 [n]
        Latest at which it was there (ns of the receiver's clock).
    """

    left: I64
    arrived: I64

    def __len__(self) -> int:
        return len(self.left)


def join_crossings(parts: Sequence[Crossings]) -> Crossings:
    """Return the messages of several ways to find them together."""
    none = np.zeros(0, np.int64)
    return Crossings(
        np.concatenate([none, *(part.left for part in parts)]),
        np.concatenate([none, *(part.arrived for part in parts)]),
    )


@dataclass(frozen=True)
class ClockFacts:
    """What a host's recording says of its own clock.

    Attributes
    ----------
    host : str
    begin, end : int
        Of the recording (ns of its clock).
    kernel : str
        Of two recordings the same where one kernel's clock counted both; "" unknown.
    samples : int64 [n, 2]
        The clock's time, and time since the Unix epoch at that moment (ns).
    error : int
        By how much that is wrong at most, as the operating system says (ns); -1 unknown.
    synchronised : str
        ``chrony``, ``ntp``, ``ptp``, ``yes``, ``no``, "" unknown.
    """

    host: str
    begin: int
    end: int
    kernel: str = ""
    samples: I64 = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    error: int = -1
    synchronised: str = ""
