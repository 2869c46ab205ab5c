"""What ``critpath requests --json`` writes, as types."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from critpath.documents.base import Part, change, doc

REQUESTS_FORMAT: Final = "critpath/requests/1"


class LeftOut(Part):
    """What times that were not recorded leave out of a service, and what the others stand for."""

    requests: Annotated[int, doc("that touch such a time, or may")]
    unsure: Annotated[int, doc("of which it hides whose work is whose")]
    middle_ns: Annotated[int, doc("for how long those that touch it are known to last: the middle")]
    longest_ns: Annotated[int, doc("the longest of them")]
    whole: Annotated[int, doc("requests that touch none")]
    estimated: Annotated[
        int, doc("for how many these stand, each weighed by its chance to be seen whole")
    ]
    p50_ns: Annotated[int, doc("what half of them take, so weighed")]
    p99_ns: Annotated[int, doc("what 99 % of them do not exceed, so weighed")]


def join_left_out(one: LeftOut, other: LeftOut) -> LeftOut:
    """Return what is left out of two recordings: weighed times are those of the one with more."""
    most = one if one.whole >= other.whole else other
    counted = ("requests", "unsure", "whole", "estimated")
    sums = {name: getattr(one, name) + getattr(other, name) for name in counted}
    return change(most, **sums, longest_ns=max(one.longest_ns, other.longest_ns))


class UntoldCalls(Part):
    """Calls of which it is only known that they are of one of several requests."""

    calls: Annotated[int, doc("how many")]
    fewest: Annotated[int, doc("requests of which it is one, at least")]
    most: Annotated[int, doc("and at most")]


class ServiceEntry(Part):
    """A service: a process and the port that it serves."""

    service: Annotated[str, doc("its process and port; of several hosts PROCESS@HOST:PORT")]
    requests: Annotated[int, doc("how many it was asked")]
    calls: Annotated[dict[str, float], doc("what it asks of whom, on average for each request")]
    callers: Annotated[dict[str, int], doc("requests by the service that asked; empty: outside")]
    sure: Annotated[
        float | None,
        doc("how probable it is of its calls that it is known whose they are; null of none"),
    ]
    how: Annotated[dict[str, float], doc("share of its calls by the rule that says whose they are")]
    left_out: Annotated[
        LeftOut | None, doc("of a recording with gaps: what they leave out; null: nothing")
    ] = None
    untold: Annotated[
        UntoldCalls | None, doc("its calls of one of several requests; null: there is none")
    ] = None


class HostBound(Part):
    """A host, and how surely its clock is known."""

    host: Annotated[str, doc("name of the host")]
    aligned: Annotated[bool, doc("whether its times are on the others' line")]
    uncertainty_ns: Annotated[
        int | None, doc("by how much they may be wrong, in the middle; null: not known")
    ]


class RequestsDocument(Part):
    """What critpath requests --json writes."""

    format: Annotated[Literal["critpath/requests/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    services: Annotated[list[ServiceEntry], doc("who asks comes before who is asked")]
    hosts: Annotated[list[HostBound], doc("of several hosts recorded together")]
    alone: Annotated[int, doc("calls that are for no request: work of a process's own")]
    several_at_once: Annotated[int, doc("connections with several requests under way at once")]
    not_recorded: Annotated[int, doc("calls to hosts that were not recorded")]
    notes: Annotated[list[str], doc("the account of all requests, in sentences")]
