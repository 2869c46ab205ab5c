"""What ``critpath clocks --json`` writes, as types."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from critpath.documents.base import Part, Span, doc

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


class ClocksDocument(Part):
    """What critpath clocks --json writes."""

    format: Annotated[Literal["critpath/clocks/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    reference: Annotated[str, doc("the host whose clock the others are expressed in")]
    hosts: Annotated[list[HostClockEntry], doc("every host, in the order of their names")]
    warnings: Annotated[list[str], doc("what a reader must know, in sentences")]
