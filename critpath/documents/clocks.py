"""What ``critpath clocks --json`` writes, as types."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from critpath.documents.base import Pair, Part, Span, doc

CLOCKS_FORMAT: Final = "critpath/clocks/1"


class ClockPiece(Part):
    """A stretch in which a clock is a straight line against the reference's."""

    begin: Annotated[int, doc("when it begins, in ns of the host's own clock")]
    end: Annotated[int, doc("when it ends")]
    offset_ns: Annotated[int, doc("ns to add at its begin to have the reference's time")]
    drift: Annotated[str, doc("by how much that grows per ns, as a decimal of 12 digits")]


class ClockStep(Part):
    """A step of a clock."""

    at: Annotated[int, doc("when, in ns of the host's own clock")]
    by_ns: Annotated[int, doc("by how much it leapt ahead")]


class HostClockEntry(Part):
    """The clock of one host."""

    host: Annotated[str, doc("name of the host")]
    source: Annotated[
        Literal["reference", "messages", "same kernel", "samples", "none"],
        doc("how its clock is known; none: it is not"),
    ]
    pieces: Annotated[list[ClockPiece], doc("in order of time; empty where it is not known")]
    uncertainty_ns: Annotated[
        list[Annotated[list[int], Meta(min_length=3, max_length=3)]],
        doc("[time, low, high]: the true offset is within; between two they change evenly"),
    ]
    steps: Annotated[list[ClockStep], doc("where one piece does not go on from the other's end")]
    messages: Annotated[Span, doc("that bound it: those that the host got, and sent")]
    claim_ns: Annotated[
        int | None, doc("how wrong both clocks are at most, as their systems say; null if not said")
    ]
    claim_held: Annotated[bool, doc("whether the messages allow that")]


class HostEntry(Part):
    """A host of several that were recorded together, and how its clock is known."""

    host: Annotated[str, doc("name of the host")]
    source: Annotated[str, doc("how its clock is known; none: it is not, and taken as it is")]
    ahead_ns: Annotated[int, doc("by how much it was ahead of the reference's at its begin")] = 0
    drift: Annotated[str, doc("by how much that grows per ns, as a decimal of 12 digits")] = "0"
    uncertainty_ns: Annotated[
        int | None, doc("by how much its times may be wrong at most; null: not known")
    ] = None
    middle_ns: Annotated[int | None, doc("the same in the middle of the recording")] = None
    steps: Annotated[list[ClockStep], doc("when it stepped, and by how much")] = []
    messages: Annotated[list[int], doc("that bound it: those that the host got, and sent")] = []


class HostWaitEntry(Part):
    """How long who waited for whom, over several hosts: normal first, then sample."""

    who: Annotated[str, doc("a thread's name and host, with # for the numbers of several")]
    whom: Annotated[str, doc("likewise; of what was not recorded, its address")]
    requests: Annotated[Span, doc("runs in which that happened")]
    mean: Annotated[Pair, doc("mean time of all runs (ns)")]
    transit: Annotated[Pair, doc("of it, on its way between hosts (ns)")]
    queued: Annotated[Pair, doc("of it, behind other requests (ns)")]


class ClocksDocument(Part):
    """What critpath clocks --json writes."""

    format: Annotated[Literal["critpath/clocks/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    reference: Annotated[str, doc("the host whose clock the others are expressed in")]
    hosts: Annotated[list[HostClockEntry], doc("every host, in the order of their names")]
    warnings: Annotated[list[str], doc("what a reader must know, in sentences")]
