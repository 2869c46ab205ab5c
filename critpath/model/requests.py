"""Requests of servers, found without markers: what threads did with sockets, and what it was for.

Words and rules: docs/requests.md.  Every table is in order of its first time column; text is
codes into the ``strings`` of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from critpath.model.table import F64, I32, I64, U8, Bool, Column, Table, freeze_columns
from critpath.schema.environment import RequestCounts

if TYPE_CHECKING:
    from critpath.model.clocks import HostClock

ASKS: Final = " → "  # between a service and those that it asks


def service_of(label: str) -> str:
    """Return the service that a label names, without those that it asks."""
    return label.partition(ASKS)[0]


NONE: Final = -1  # technical: no endpoint, request or slice


class Act(IntEnum):
    """What a row of `Activity` tells."""

    OPEN = 0  # an endpoint begins; value: 1 accepted, 2 connected, 0 not known
    ARRIVAL = (
        1  # data is there to be received; the thread is the sender's, if it is on this machine
    )
    RECEIVE = 2  # value: bytes
    SEND = 3  # value: bytes
    FINISH = 4  # the other side sends nothing more
    CLOSE = 5
    SLEEP = 6  # a thread gives its cpu away until it is woken
    WAKE = 7  # value: the thread that is woken; the row's thread woke it, -1 an interrupt
    CREATE = 8  # value: the new thread
    EXIT = 9
    RUN = 10  # a thread gets a cpu; value: which
    PREEMPT = 11  # a thread that could go on loses its cpu
    LEAVE = 12  # a thread's first packet since it last received or sent goes to a device


class Certainty(IntEnum):
    """How sure a boundary or an attribution is; the lowest is the surest."""

    CERTAIN = 0
    LIKELY = 1
    DOUBTFUL = 2


# technical: how probable what is called so is: of 36,391 certain and likely ones all but two
# were right, of those in doubt 21 to 47 % (docs/evaluation.md).
PROBABLE: Final = (1.0, 0.99, 0.25)


class Rule(IntEnum):
    """The rule by which work belongs to a request (docs/requests.md)."""

    NONE = 0
    OWN = 1
    ANSWER = 2
    GIVE_BACK = 3
    RESUME = 4
    ALONE = 5
    ORDER = 6
    HAND_OVER = 7
    IMPLICIT = 8  # slices without a network
    ASSIGNED = 9  # a loop's, or a helper's, that no other rule decides


@dataclass(frozen=True)
class Marker:
    """What cuts threads into slices without a network (docs/slices.md).

    Attributes
    ----------
    profile : str
        The least profile with its events.
    calls : tuple of (str, str)
        System calls that threads wait in, and the field that says what for.
    writes : tuple of (str, str)
        Those by which another thread ends such a wait; none where every thread may.
    others : tuple of (str, str)
        Those that show what kind of descriptor a number is, or that it is none any more; with ""
        their result is one.
    events : tuple of str
        Events without which nothing is found; none where the scheduler's suffice.
    """

    profile: str
    calls: tuple[tuple[str, str], ...] = ()
    writes: tuple[tuple[str, str], ...] = ()
    others: tuple[tuple[str, str], ...] = ()
    events: tuple[str, ...] = ()


_READS: Final = (("read", "fd"), ("readv", "fd"))
_WRITES: Final = tuple((name, "fd") for name in ("write", "writev"))
_MAKERS: Final = tuple(
    (name, "")
    for name in ("socket", "accept", "accept4", "open", "openat", "openat2", "timerfd_create")
)
_SPEAKERS: Final = tuple(
    (name, "fd") for name in ("connect", "bind", "sendto", "recvfrom", "sendmsg", "recvmsg")
)
_EVENTFD: Final = (("eventfd2", ""), ("eventfd", ""), ("close", "fd"))

MARKERS: Final[Mapping[str, Marker]] = {
    "wake": Marker("minimal"),
    "fork": Marker("minimal"),
    "futex": Marker("syscalls", (("futex", "uaddr"), ("futex_wait", "uaddr"))),
    "semaphore": Marker("syscalls", (("semop", "semid"), ("semtimedop", "semid"))),
    "queue": Marker("syscalls", (("msgrcv", "msqid"), ("mq_timedreceive", "mqdes"))),
    "pipe": Marker("syscalls", _READS, _WRITES, (*_MAKERS, *_SPEAKERS, *_EVENTFD)),
    "eventfd": Marker("syscalls", _READS, _WRITES, _EVENTFD),
    "unix": Marker("requests", events=("sk_data_ready", "sock:sk_data_ready")),
    "signal": Marker("full", events=("signal_deliver", "signal:signal_deliver")),
}


@dataclass(frozen=True, eq=False)
class Activity(Table):
    """What threads of one recording did with sockets and with each other, in order of time.

    Attributes
    ----------
    time_ns : int64 [n]
    act : uint8 [n]
        `Act`.
    tid : int32 [n]
        -1 where an interrupt did it.
    host : int32 [n]
    endpoint : int32 [n]
        Row of the `Endpoints`; -1 for what threads do to each other.
    value : int64 [n]
        See `Act`.
    """

    time_ns: I64
    act: U8
    tid: I32
    host: I32
    endpoint: I32
    value: I64

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.time_ns))

    def __len__(self) -> int:
        return len(self.time_ns)

    def table_columns(self) -> Mapping[str, Column]:
        """Return a row per thing done."""
        return {
            "time_ns": Column(self.time_ns),
            "act": Column(self.act, [a.name for a in Act]),
            "tid": Column(self.tid, valid=self.tid >= 0),
            "host": Column(self.host),
            "endpoint": Column(self.endpoint, valid=self.endpoint >= 0),
            "value": Column(self.value),
        }


@dataclass(frozen=True, eq=False)
class Collected:
    """What a recording's events told of sockets, before anybody asks who serves.

    Attributes
    ----------
    activity : Activity
    endpoints : int64 [n, 18]
        `critpath.requests.endpoints.EndpointColumn`; a row for each life of a socket.
    dumped : sequence of tuple
        Fields of every `Kind.SOCKET_STATEDUMP`, after its host; text where the trace has text.
    hidden : int
        Events of sockets whose addresses the kernel did not tell.
    messages : sequence of tuple
        Of every `Kind.MESSAGE_LABEL`, in order of time: when, host, socket, trace id (two
        halves), label.
    paths : mapping of int to str
        Paths of endpoints that are known already.
    way : str
        ``sockets``, ``calls+packets`` or ``calls``: what told of sockets.
    unknown, rings : int
        By system calls: uses of descriptors that nobody knows, and of ``io_uring``.
    alike : bool
        All sockets have one address, though it has several ends at once.
    """

    activity: Activity
    endpoints: I64
    dumped: Sequence[tuple[int | str, ...]]
    hidden: int = 0
    messages: Sequence[tuple[int, int, int, int, int, str]] = ()
    paths: Mapping[int, str] = field(default_factory=dict)
    way: str = "sockets"
    unknown: int = 0
    rings: int = 0
    alike: bool = False

    @property
    def unnamed(self) -> bool:
        """Whether the kernel did not tell of any socket which it is."""
        return self.alike or (self.hidden > 0 and not len(self.endpoints))


@dataclass(frozen=True, eq=False)
class Endpoints(Table):
    """One life of a socket (or pipe end) per row.

    Attributes
    ----------
    host, family : int32 [n]
        ``family`` as the kernel has it: 2, 10, 1; 0 for a pipe or an eventfd.
    local_address, remote_address, path : int32 [n]
        Codes; 0 where not known.  An IPv4 address mapped into IPv6 is the IPv4 one.
    local_port, remote_port : int32 [n]
        0 where not known.
    serves : int32 [n]
        1 it serves, 0 it asks, -1 not known.
    role_how : int32 [n]
        Code: ``accepted``, ``connected``, ``listened``, ``bound``, ``first``.
    opened_ns, closed_ns : int64 [n]
        Ends of its life within the recording.
    peer : int32 [n]
        Row of the connection's other endpoint, -1 where it is on another machine or not known.
    """

    host: I32
    family: I32
    local_address: I32
    local_port: I32
    remote_address: I32
    remote_port: I32
    path: I32
    serves: I32
    role_how: I32
    opened_ns: I64
    closed_ns: I64
    peer: I32
    strings: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.host))

    def __len__(self) -> int:
        return len(self.host)

    def table_columns(self) -> Mapping[str, Column]:
        """Return a row per endpoint."""
        return {
            "endpoint": Column(np.arange(len(self))),
            "host": Column(self.host),
            "family": Column(self.family),
            "local_address": Column(self.local_address, self.strings),
            "local_port": Column(self.local_port),
            "remote_address": Column(self.remote_address, self.strings),
            "remote_port": Column(self.remote_port),
            "path": Column(self.path, self.strings),
            "serves": Column(self.serves, valid=self.serves >= 0),
            "role_how": Column(self.role_how, self.strings),
            "opened_ns": Column(self.opened_ns),
            "closed_ns": Column(self.closed_ns),
            "peer": Column(self.peer, valid=self.peer >= 0),
        }


@dataclass(frozen=True, eq=False)
class RequestTable(Table):
    """One turn at an endpoint that serves per row: a message in, and the message out that follows.

    Attributes
    ----------
    endpoint, turn : int32 [n]
        ``turn`` counts the endpoint's turns from 1.
    service, label : int32 [n]
        Codes: ``gunicorn:9082``, ``gunicorn:9082 → postgres:5432``.
    begin_ns, received_ns, answered_ns, end_ns : int64 [n]
        Arrival, first receive, first and last send of the answer.
    reader_tid, tid : int32 [n]
        Who received first, and who sent last: the execution's thread.
    bytes_in, bytes_out : int64 [n]
    parent : int32 [n]
        The request whose sub-request this is, -1 for none.
    true_ns, asked_ns, queued_ns : int64 [n]
        Own time, time of sub-requests (``true + asked = end - begin``), and the time from arrival
        to the first receive.
    threads : int32 [n]
        How many worked for it.
    boundary : uint8 [n]
        `Certainty` of begin and end.
    why : int32 [n]
        Code: what makes it less than certain.
    message, trace_id : int32 [n]
        Codes: what it is called by its first bytes (``GET /users/:id``), and the id of the trace
        that it says it belongs to; 0 where that is not known.
    """

    endpoint: I32
    turn: I32
    service: I32
    label: I32
    begin_ns: I64
    received_ns: I64
    answered_ns: I64
    end_ns: I64
    reader_tid: I32
    tid: I32
    bytes_in: I64
    bytes_out: I64
    parent: I32
    true_ns: I64
    asked_ns: I64
    queued_ns: I64
    threads: I32
    boundary: U8
    why: I32
    message: I32
    trace_id: I32
    strings: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.endpoint))

    def __len__(self) -> int:
        return len(self.endpoint)

    def table_columns(self) -> Mapping[str, Column]:
        """Return a row per request."""
        certainties = [c.name.lower() for c in Certainty]
        return {
            "request": Column(np.arange(len(self))),
            "endpoint": Column(self.endpoint),
            "turn": Column(self.turn),
            "service": Column(self.service, self.strings),
            "label": Column(self.label, self.strings),
            "begin_ns": Column(self.begin_ns),
            "received_ns": Column(self.received_ns),
            "answered_ns": Column(self.answered_ns),
            "end_ns": Column(self.end_ns),
            "reader_tid": Column(self.reader_tid),
            "tid": Column(self.tid),
            "bytes_in": Column(self.bytes_in),
            "bytes_out": Column(self.bytes_out),
            "parent": Column(self.parent, valid=self.parent >= 0),
            "true_ns": Column(self.true_ns),
            "asked_ns": Column(self.asked_ns),
            "queued_ns": Column(self.queued_ns),
            "threads": Column(self.threads),
            "boundary": Column(self.boundary, certainties),
            "why": Column(self.why, self.strings),
            "message": Column(self.message, self.strings),
            "trace_id": Column(self.trace_id, self.strings),
        }


@dataclass(frozen=True, eq=False)
class Subrequests(Table):
    """One turn at an endpoint that asks per row.

    Attributes
    ----------
    endpoint : int32 [n]
    begin_ns, end_ns : int64 [n]
        First send, and the last receive of the answer.
    tid : int32 [n]
        Who asked.
    request : int32 [n]
        For which request, -1 where not known.
    child : int32 [n]
        The request that it is on the other side, -1 where that is not in the recording.
    how, attribution : uint8 [n]
        `Rule` and `Certainty`.
    connects : uint8 [n]
        1 for the opening of a connection, which is attributed like a sub-request.
    probability : float64 [n]
        That the request is right; 0 where it is not known whose it is.  Left out: by the certainty.
    """

    endpoint: I32
    begin_ns: I64
    end_ns: I64
    tid: I32
    request: I32
    child: I32
    how: U8
    attribution: U8
    connects: U8
    probability: F64 = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not len(self.probability) and len(self.request):
            sure = np.array(PROBABLE)[np.minimum(self.attribution, len(PROBABLE) - 1)]
            object.__setattr__(self, "probability", np.where(self.request >= 0, sure, 0.0))
        freeze_columns(self, len(self.endpoint))

    def __len__(self) -> int:
        return len(self.endpoint)

    def table_columns(self) -> Mapping[str, Column]:
        """Return a row per sub-request."""
        return {
            "subrequest": Column(np.arange(len(self))),
            "endpoint": Column(self.endpoint),
            "begin_ns": Column(self.begin_ns),
            "end_ns": Column(self.end_ns),
            "tid": Column(self.tid),
            "request": Column(self.request, valid=self.request >= 0),
            "child": Column(self.child, valid=self.child >= 0),
            "how": Column(self.how, [r.name.lower() for r in Rule]),
            "attribution": Column(self.attribution, [c.name.lower() for c in Certainty]),
            "connects": Column(self.connects),
            "probability": Column(self.probability),
        }


@dataclass(frozen=True, eq=False)
class Slices(Table):
    """One stretch of one thread, done for one request or shared by several, per row.

    Attributes
    ----------
    tid, host : int32 [n]
    begin_ns, end_ns : int64 [n]
    request : int32 [n]
        -1 for a shared stretch of a loop.
    unanswered : int32 [n]
        Requests that the thread had received and not answered.
    how, attribution : uint8 [n]
        `Rule` and `Certainty`.
    run_ns, idle_ns : int64 [n]
    cpus : int64 [n]
        A bit for each processor below 63 on which it ran; bit 62 stands for all above.
    """

    tid: I32
    host: I32
    begin_ns: I64
    end_ns: I64
    request: I32
    unanswered: I32
    how: U8
    attribution: U8
    run_ns: I64
    idle_ns: I64
    cpus: I64

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.tid))

    def __len__(self) -> int:
        return len(self.tid)

    def table_columns(self) -> Mapping[str, Column]:
        """Return a row per slice."""
        return {
            "slice": Column(np.arange(len(self))),
            "tid": Column(self.tid),
            "host": Column(self.host),
            "begin_ns": Column(self.begin_ns),
            "end_ns": Column(self.end_ns),
            "request": Column(self.request, valid=self.request >= 0),
            "unanswered": Column(self.unanswered),
            "how": Column(self.how, [r.name.lower() for r in Rule]),
            "attribution": Column(self.attribution, [c.name.lower() for c in Certainty]),
            "run_ns": Column(self.run_ns),
            "idle_ns": Column(self.idle_ns),
            "cpus": Column(self.cpus),
        }


# Columns of `RequestFacts`.
FACT_TEXTS: Final = (
    *("service", "parent", "asks", "boundary", "attribution"),
    *("message", "trace_id", "client"),
)
FACT_NUMBERS: Final = ("true_ns", "asked_ns", "queued_ns", "bytes_in", "bytes_out", "threads")


@dataclass(frozen=True, eq=False)
class RequestFacts(Table):
    """What is known of executions that are requests, a row for each: it goes where they go.

    Attributes
    ----------
    service : tuple of str
    parent : tuple of str
        The id of the request of the same recording whose sub-request it is; "" for none.
    asks : tuple of str
        JSON: how many sub-requests of each service it made.
    boundary, attribution : tuple of str
        How sure begin and end are, and what it asked.
    message, trace_id : tuple of str
        As in `RequestTable`.
    client : tuple of str
        Who asked: its process's name where it was recorded, else its address; "" not known.
    true_ns, asked_ns, queued_ns, bytes_in, bytes_out, threads : int64 [n]
        As in `RequestTable`.
    """

    service: tuple[str, ...]
    parent: tuple[str, ...]
    asks: tuple[str, ...]
    boundary: tuple[str, ...]
    attribution: tuple[str, ...]
    message: tuple[str, ...]
    trace_id: tuple[str, ...]
    client: tuple[str, ...]
    true_ns: I64
    asked_ns: I64
    queued_ns: I64
    bytes_in: I64
    bytes_out: I64
    threads: I64

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.service))
        if any(len(getattr(self, name)) != len(self) for name in FACT_TEXTS):
            raise ValueError("RequestFacts: text columns of unequal length")

    def __len__(self) -> int:
        return len(self.service)

    def take(self, rows: I64 | slice) -> RequestFacts:
        """Return some rows, in the order of their positions."""
        texts: dict[str, Any] = {name: getattr(self, name) for name in FACT_TEXTS}
        if isinstance(rows, slice):
            texts = {name: column[rows] for name, column in texts.items()}
        else:
            chosen = rows.tolist()
            texts = {name: tuple(map(c.__getitem__, chosen)) for name, c in texts.items()}
        return RequestFacts(**texts, **{name: getattr(self, name)[rows] for name in FACT_NUMBERS})

    def table_columns(self) -> Mapping[str, Column]:
        """Return a row per execution; ``position`` numbers them."""
        return {
            "position": Column(np.arange(len(self))),
            **{name: Column(getattr(self, name)) for name in (*FACT_TEXTS, *FACT_NUMBERS)},
        }


def join_facts(parts: Sequence[RequestFacts | None]) -> RequestFacts | None:
    """Join what is known of several executions: nothing, if it is not known of all."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not parts:
        return None
    texts: dict[str, Any] = {
        name: tuple(chain.from_iterable(getattr(part, name) for part in known))
        for name in FACT_TEXTS
    }
    numbers: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in known]) for name in FACT_NUMBERS
    }
    return RequestFacts(**texts, **numbers)


LINK_KINDS: Final = ("wake", "message", "create")


@dataclass(frozen=True, eq=False)
class Links(Table):
    """What leads from one slice to another.

    Attributes
    ----------
    from_slice, to_slice : int32 [n]
    sent_ns, received_ns : int64 [n]
    kind : uint8 [n]
        Index into `LINK_KINDS`.
    """

    from_slice: I32
    to_slice: I32
    sent_ns: I64
    received_ns: I64
    kind: U8

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.kind))

    def __len__(self) -> int:
        return len(self.kind)

    def table_columns(self) -> Mapping[str, Column]:
        """Return a row per link."""
        return {
            "from_slice": Column(self.from_slice),
            "to_slice": Column(self.to_slice),
            "sent_ns": Column(self.sent_ns),
            "received_ns": Column(self.received_ns),
            "kind": Column(self.kind, LINK_KINDS),
        }


@dataclass(frozen=True, kw_only=True)
class RequestAccount(RequestCounts):
    """What became of everything that endpoints did: nothing is dropped without a count.

    Attributes
    ----------
    way : str
        What told of sockets: ``sockets``, ``calls+packets``, ``calls``.
    """

    requests: int = 0
    doubtful: int = 0
    way: str = "sockets"


@dataclass(frozen=True, eq=False)
class Pieces:
    """What the paths of requests are joined from: ``start[i]:start[i + 1]`` tile request ``i``.

    Attributes
    ----------
    start : int64 [requests + 1]
    host, tid : int64 [pieces]
        The thread whose path is the request's in this piece, or that it waited for.
    begin, end : int64 [pieces]
    state : uint8 [pieces]
        The `State` of the whole piece; UNKNOWN where the thread's path tells.
    by : int64 [pieces]
        Where it waits behind other requests, the thread of this host that asked for most of
        that; -1 where that is not known.
    about : int64 [pieces]
        Of what is on its way between hosts, where to or from: codes into ``names``, else -1.
    names : tuple of str
    confidence : float64 [pieces]
        How probable it is that what was done then was for the request; omitted, 1.
    """

    start: I64
    host: I64
    tid: I64
    begin: I64
    end: I64
    state: U8
    by: I64
    about: I64
    names: tuple[str, ...] = ()
    confidence: F64 = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not len(self.confidence):
            object.__setattr__(self, "confidence", np.ones(len(self.begin)))

    def take(self, rows: I64) -> Pieces:
        """Return the pieces of some requests, in the order of their positions ``rows``."""
        counts = self.start[rows + 1] - self.start[rows]
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        mine = np.arange(start[-1]) + np.repeat(self.start[rows] - start[:-1], counts)
        columns = ("host", "tid", "begin", "end", "state", "by", "about", "confidence")
        return replace(self, start=start, **{name: getattr(self, name)[mine] for name in columns})


@dataclass(frozen=True, eq=False)
class Sketches:
    """Everything that is known of the requests of one recording, and which are asked for.

    Attributes
    ----------
    recording : str
    endpoints : Endpoints
    requests : RequestTable
    subrequests : Subrequests
    slices : Slices
    links : Links
    attribution : uint8 [requests]
        `Certainty` of what each asked: that of its least sure sub-request.
    id : tuple of str
        Every request's, as an execution.
    chosen : bool [requests]
        Whether the specification asks for it.
    notes : tuple of str
        The account of all requests.
    doubtful : bool
        What is doubtful counts as well, as the specification asks.
    hosts : tuple of str
    clocks : tuple of HostClock
        Of several hosts, as `Events` has them.
    epoch : int
        To add to a time for time since the Unix epoch (ns); 0 where not known.
    alone : int
        Sub-requests of processes that serve, for nobody.
    """

    recording: str
    endpoints: Endpoints
    requests: RequestTable
    subrequests: Subrequests
    slices: Slices
    links: Links
    attribution: U8
    id: tuple[str, ...]
    chosen: Bool
    notes: tuple[str, ...] = ()
    doubtful: bool = False
    hosts: tuple[str, ...] = ()
    clocks: tuple[HostClock, ...] = ()
    epoch: int = 0
    alone: int = 0


@dataclass(frozen=True)
class Tier:
    """A service in the tree of who asks whom, and what its requests take on average.

    Attributes
    ----------
    service : str
    depth : int
        0 for those that are asked from outside; it is asked by the nearest before it of a depth
        less.
    requests : int
    latency_ns : float
        Own and asked together.
    own_ns, asked_ns, queued_ns : float or None
        See `RequestTable`; None where it is on another machine, or its requests were not found.
    threads : int
        That answered.
    """

    service: str
    depth: int
    requests: int
    latency_ns: float
    own_ns: float | None
    asked_ns: float | None
    queued_ns: float | None
    threads: int
