"""How the clocks of several hosts relate, and how surely that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Final

import numpy as np

from critpath.model.requests import CERTAINTIES
from critpath.model.table import (
    F64,
    I32,
    I64,
    U8,
    Bool,
    FlatTable,
    col,
)
from critpath.records import dataclass

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

    @property
    def drift(self) -> float:
        """By how much the clock runs ahead of the reference's for each ns, on average."""
        whole = sum(line.end - line.begin for line in self.lines)
        return -sum(line.drift * (line.end - line.begin) for line in self.lines) / max(whole, 1)

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

    @property
    def floors(self) -> I64:
        """The times of the other clock that each line begins after, so that none goes back."""
        if not self.lines:
            return np.zeros(0, np.int64)
        lowest = np.iinfo(np.int64).min
        ends = [line.end + line.at(line.end) for line in self.lines[:-1]]
        return np.maximum.accumulate(np.array([lowest, *ends], np.int64))

    def move(self, times: I64) -> I64:
        """Return times of this host in the reference's clock, which never goes back."""
        if not self.lines:
            return times
        begins = np.array([line.begin for line in self.lines], np.int64)
        of = np.maximum(np.searchsorted(begins, times, "right") - 1, 0)
        moved: I64 = np.maximum(times + self.offsets(times), self.floors[of])
        return moved

    def bounds(self, times: I64) -> tuple[F64, F64]:
        """Return by how much the true offset may be less and more than `offsets` says."""
        if not len(self.sure):
            none = np.zeros(len(times))
            return none, none
        at = self.sure[:, 0].astype(np.float64) - float(self.sure[0, 0])
        asked = (times - self.sure[0, 0]).astype(np.float64)
        return np.interp(asked, at, self.sure[:, 1]), np.interp(asked, at, self.sure[:, 2])

    def bound_at(self, times: I64) -> I64:
        """Return by how much moved times are wrong at most (ns); -1 where the host is not aligned.

        Parameters
        ----------
        times : int64 array
            Of the reference's clock.
        """
        if not self.aligned:
            return np.full(len(times), -1, np.int64)
        if not len(self.sure):
            return np.zeros(len(times), np.int64)
        at = self.move(self.sure[:, 0])
        wide = np.abs(self.sure[:, 1:]).max(axis=1).astype(np.float64)
        asked = (times - at[0]).astype(np.float64)
        found = np.interp(asked, (at - at[0]).astype(np.float64), wide)
        bounds: I64 = np.ceil(found).astype(np.int64)
        return bounds


def describe_clocks(clocks: Sequence[HostClock]) -> tuple[dict[str, object], ...]:
    """Return what a set of paths keeps of its hosts' clocks, in their order: as `HostEntry`."""
    return tuple(
        {
            "host": clock.host,
            "source": clock.source,
            "ahead_ns": -clock.lines[0].offset if clock.lines else 0,
            "drift": f"{clock.drift:.12f}",
            "uncertainty_ns": clock.bound if clock.aligned else None,
            "middle_ns": clock.middle_bound if clock.aligned else None,
            "steps": [{"at": at, "by_ns": -by} for at, by in clock.steps],
            "messages": list(clock.messages),
        }
        for clock in clocks
    )


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


@dataclass(frozen=True, eq=False)
class Messages(FlatTable):
    """Bytes that one operation sent and one received, per row, in order of `received_ns`.

    A send whose bytes are received in three pieces has three rows, and so has a receive of what
    three sends wrote.  Within a host (loopback, unix sockets) and between hosts alike.
    """

    sender_host: I32 = field(
        metadata=col("as `Events.hosts`, or the order in which hosts were given")
    )
    sender_endpoint: I32 = field(metadata=col("row of its `Endpoints`"))
    sender_tid: I32 = field(metadata=col("who sent", least=0))
    receiver_host: I32 = field(metadata=col("as the sender"))
    receiver_endpoint: I32 = field(metadata=col("row of its `Endpoints`"))
    receiver_tid: I32 = field(metadata=col("who received", least=0))
    left_ns: I64 = field(
        metadata=col(
            "earliest at which the bytes can have left: the thread's first packet after whatever "
            "it did with a socket before, or that (of the sender's clock)"
        )
    )
    sent_ns: I64 = field(
        metadata=col("when the send was done; the receiver may have had the bytes before")
    )
    arrived_ns: I64 = field(
        metadata=col("latest at which they were there to be received (of the receiver's clock)")
    )
    received_ns: I64 = field(metadata=col("when they had been received"))
    bytes: I64 = field(metadata=col("how many"))
    position: I64 = field(
        metadata=col(
            "bytes of this direction before them, as the sender counts; from the connection's "
            "begin, the recording's, or that of what follows a loss"
        )
    )
    last: Bool = field(metadata=col("whether the receive got nothing behind them"))
    sure: U8 = field(
        metadata=col(
            "of who sent them: counted from the connection's begin; put together by sizes; or by "
            "time alone, where sizes are all alike",
            words=CERTAINTIES,
        )
    )
    bound_ns: I64 = field(
        metadata=col(
            "by how much the time between both ends may be wrong, as the two clocks are known; 0 "
            "on one kernel; none where they are not aligned",
            least=0,
        )
    )

    def pairs(self) -> I64:
        """Return the two ends of every connection that any of them went over, each once."""
        both = np.column_stack([self.sender_endpoint, self.receiver_endpoint]).astype(np.int64)
        return np.unique(np.sort(both, axis=1), axis=0)


@dataclass(frozen=True)
class JoinedAccount:
    """What became of the connections of which two ends were recorded.

    Attributes
    ----------
    joined, within : int
        Connections between hosts, and within one.
    unmatched : int
        Directions of those between hosts whose bytes could not be put together.
    lost : int
        Connections between hosts that were open while something was lost: of what was lost they
        tell nothing.
    translated : int
        Connections whose addresses differ at both ends, joined by the sizes of messages.
    doubtful : int
        Ends that may belong to several others, left out.
    """

    joined: int = 0
    unmatched: int = 0
    lost: int = 0
    within: int = 0
    translated: int = 0
    doubtful: int = 0


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
    probes : int64 [n, 3]
        When it was asked the time, what it said, and when that was heard: the first and last by
        one clock, of who recorded all hosts (ns).
    asker : str
        That clock's kernel; "" unknown.
    """

    host: str
    begin: int
    end: int
    kernel: str = ""
    samples: I64 = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    error: int = -1
    synchronised: str = ""
    probes: I64 = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    asker: str = ""
