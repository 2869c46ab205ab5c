"""Requests of servers, found without markers: what threads did with sockets, and what it was for.

Words and rules: docs/requests.md.  Every table is in order of its first time column; text is
codes into the ``strings`` of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from critpath.model.table import F64, I32, I64, TEXTS, U8, Bool, FlatTable, col
from critpath.records import dataclass
from critpath.schema.environment import RequestCounts

if TYPE_CHECKING:
    from critpath.model.clocks import HostClock
    from critpath.model.details import Detail
    from critpath.schema.notes import Remark

ASKS: Final = " → "  # between a service and those that it asks


def service_of(label: str) -> str:
    """Return the service that a label names, without those that it asks."""
    return label.partition(ASKS)[0]


def names_service(label: str, service: str) -> bool:
    """Tell whether a label is of a service, or of one that asks it."""
    return f", {service}, " in f", {label.replace(ASKS, ', ')}, "


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
    TASK = 13  # a task of a runtime goes on; value: its number (`critpath.requests.tasks`)


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
    TASK = 10  # the runtime said which task ran
    TRACED = 11  # of one trace, as both messages say
    BLOCKED = 12  # it blocked its loop, which went on for that request


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


# What codes mean.
ACTS: Final = tuple(act.name for act in Act)
CERTAINTIES: Final = tuple(one.name.lower() for one in Certainty)
RULES: Final = tuple(rule.name.lower() for rule in Rule)
LINK_KINDS: Final = ("wake", "message", "create")


@dataclass(frozen=True, eq=False)
class Activity(FlatTable):
    """What threads of one recording did with sockets and each other, in order of time."""

    time_ns: I64 = field(metadata=col("when"))
    act: U8 = field(metadata=col("what, of `Act`", words=ACTS))
    tid: I32 = field(metadata=col("who; none where an interrupt did it", least=0))
    host: I32 = field(metadata=col("where"))
    endpoint: I32 = field(
        metadata=col("row of the `Endpoints`; none for what threads do to each other", least=0)
    )
    value: I64 = field(metadata=col("see `Act`"))


class Frame(IntEnum):
    """Columns of frames of HTTP/2: a row for what a message had of one stream.

    And of messages that TLS hides: of none.
    """

    TIME = 0
    HOST = 1
    SOCKET = 2
    LENGTH = 3  # bytes of the message, which may have frames of many streams
    STREAM = 4
    FLAGS = 5  # of `FrameFlag`
    SIZE = 6  # bytes of these frames
    HIGH = 7  # of the trace id
    LOW = 8
    LABEL = 9  # place in `Collected.called`
    TID = 10  # who received or sent it


class FrameFlag(IntFlag):
    """What is known of frames."""

    SENT = 1  # else received
    HEADERS = 2
    END = 4  # its side says nothing more
    RESET = 8
    SESSION = 16  # the socket is a number of a session of TLS


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
    frames : int64 [n, 11]
        Of every such event that tells of a stream, or of a session of TLS: `Frame`.
    called : sequence of str
        Labels of these.
    paths : mapping of int to str
        Paths of endpoints that are known already.
    way : str
        How sockets were followed: see `critpath.schema.ways`.
    unknown, rings : int
        Uses of unknown descriptors (by packets, of sockets without ends), and of ``io_uring``.
    alike : bool
        All sockets have one address, though it has several ends at once.
    """

    activity: Activity
    endpoints: I64
    dumped: Sequence[tuple[int | str, ...]]
    hidden: int = 0
    messages: Sequence[tuple[int, int, int, int, int, str]] = ()
    frames: I64 = field(default_factory=lambda: np.zeros((0, len(Frame)), np.int64))
    called: Sequence[str] = ()
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
class Endpoints(FlatTable):
    """One life of a socket (or pipe end) per row."""

    COUNTED = "endpoint"

    host: I32 = field(metadata=col("where"))
    family: I32 = field(metadata=col("as the kernel has it: 2, 10, 1; 0 for a pipe or an eventfd"))
    local_address: I32 = field(
        metadata=col(
            "IPv4 mapped into IPv6 is the IPv4 one; code 0 where not known", words="strings"
        )
    )
    local_port: I32 = field(metadata=col("0 where not known"))
    remote_address: I32 = field(metadata=col("as the local one", words="strings"))
    remote_port: I32 = field(metadata=col("0 where not known"))
    path: I32 = field(metadata=col("of a unix socket or pipe", words="strings"))
    serves: I32 = field(metadata=col("1 it serves, 0 it asks", least=0))
    role_how: I32 = field(
        metadata=col("accepted, connected, listened, bound or first", words="strings")
    )
    opened_ns: I64 = field(metadata=col("begin of its life within the recording"))
    closed_ns: I64 = field(metadata=col("end of it"))
    peer: I32 = field(
        metadata=col(
            "row of the connection's other endpoint; none on another machine or unknown",
            least=0,
            of="endpoints",
        )
    )
    strings: tuple[str, ...] = ("",)


@dataclass(frozen=True, eq=False)
class RequestTable(FlatTable):
    """One turn at an endpoint that serves per row: a message in, and the one out that follows."""

    COUNTED = "request"

    endpoint: I32 = field(metadata=col("row of the `Endpoints`", of="endpoints"))
    turn: I32 = field(metadata=col("number of the endpoint's turns, from 1"))
    service: I32 = field(metadata=col("gunicorn:9082", words="strings"))
    label: I32 = field(metadata=col("gunicorn:9082 → postgres:5432", words="strings"))
    begin_ns: I64 = field(metadata=col("arrival"))
    received_ns: I64 = field(metadata=col("first receive"))
    answered_ns: I64 = field(metadata=col("first send of the answer"))
    end_ns: I64 = field(metadata=col("its last send"))
    reader_tid: I32 = field(metadata=col("who received first"))
    tid: I32 = field(metadata=col("who sent last: the run's thread"))
    bytes_in: I64 = field(metadata=col("of the request"))
    bytes_out: I64 = field(metadata=col("of the answer"))
    parent: I32 = field(
        metadata=col("the request whose sub-request this is", least=0, of="requests")
    )
    true_ns: I64 = field(metadata=col("own time"))
    asked_ns: I64 = field(metadata=col("time of sub-requests; with the own end - begin"))
    queued_ns: I64 = field(metadata=col("from arrival to the first receive"))
    threads: I32 = field(metadata=col("how many worked for it"))
    boundary: U8 = field(metadata=col("how sure begin and end are", words=CERTAINTIES))
    why: I32 = field(metadata=col("what makes it less than certain", words="strings"))
    message: I32 = field(
        metadata=col(
            "what it is called by its first bytes: GET /users/:id; code 0 where not known",
            words="strings",
        )
    )
    trace_id: I32 = field(
        metadata=col(
            "of the trace that it says it belongs to; code 0 where not known", words="strings"
        )
    )
    strings: tuple[str, ...] = ("",)


@dataclass(frozen=True, eq=False)
class Subrequests(FlatTable):
    """One turn at an endpoint that asks per row."""

    COUNTED = "subrequest"

    endpoint: I32 = field(metadata=col("row of the `Endpoints`", of="endpoints"))
    begin_ns: I64 = field(metadata=col("first send"))
    end_ns: I64 = field(metadata=col("last receive of the answer"))
    tid: I32 = field(metadata=col("who asked"))
    request: I32 = field(metadata=col("for which request", least=0, of="requests"))
    child: I32 = field(
        metadata=col(
            "the request that it is on the other side, where that is recorded",
            least=0,
            of="requests",
        )
    )
    how: U8 = field(metadata=col("the `Rule`", words=RULES))
    attribution: U8 = field(metadata=col("how sure that is", words=CERTAINTIES))
    connects: U8 = field(
        metadata=col("1 for the opening of a connection, attributed like a sub-request")
    )
    # Left out: by the certainty.
    probability: F64 = field(
        default_factory=lambda: np.zeros(0),
        metadata=col("that the request is right; 0 where it is not known whose it is"),
    )
    # Left out: 1, and 0 of no request's.
    candidates: I32 = field(
        default_factory=lambda: np.zeros(0, np.int32),
        metadata=col(
            "of how many requests it may be one's, where that is in doubt: those that its process "
            "had received and not answered; of more than one without a request it is not said whose"
        ),
    )

    def __post_init__(self) -> None:
        if not len(self.candidates) and len(self.request):
            object.__setattr__(self, "candidates", (self.request >= 0).astype(np.int32))
        if not len(self.probability) and len(self.request):
            sure = np.array(PROBABLE)[np.minimum(self.attribution, len(PROBABLE) - 1)]
            object.__setattr__(self, "probability", np.where(self.request >= 0, sure, 0.0))
        super().__post_init__()

    def find_asked(self) -> I64:
        """Return the requests on the other side of those (`find_untold`)."""
        child = self.child[self.find_untold()]
        return child[child >= 0].astype(np.int64)

    def find_untold(self) -> I64:
        """Return which are of one of several requests, and it is not said of which."""
        untold = (self.request < 0) & (self.candidates > 1) & (self.connects == 0)
        return np.flatnonzero(untold).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Slices(FlatTable):
    """One stretch of one thread, done for one request or shared by several, per row."""

    COUNTED = "slice"

    tid: I32 = field(metadata=col("whose"))
    host: I32 = field(metadata=col("where"))
    begin_ns: I64 = field(metadata=col("begin"))
    end_ns: I64 = field(metadata=col("end"))
    request: I32 = field(
        metadata=col("none for a shared stretch of a loop", least=0, of="requests")
    )
    unanswered: I32 = field(metadata=col("requests that the thread had received and not answered"))
    how: U8 = field(metadata=col("the `Rule`", words=RULES))
    attribution: U8 = field(metadata=col("how sure that is", words=CERTAINTIES))
    run_ns: I64 = field(metadata=col("on a cpu"))
    idle_ns: I64 = field(metadata=col("asleep"))
    cpus: I64 = field(
        metadata=col(
            "a bit for each processor below 63 on which it ran; bit 62 stands for all above"
        )
    )


@dataclass(frozen=True, eq=False)
class RequestFacts(FlatTable):
    """What is known of executions that are requests, a row for each: it goes where they go."""

    COUNTED = "position"

    service: Sequence[str] = field(metadata=col("gunicorn:9082"))
    parent: Sequence[str] = field(
        metadata=col("id of the request of this recording whose sub-request it is")
    )
    asks: Sequence[str] = field(metadata=col("JSON: how many sub-requests of each service it made"))
    boundary: Sequence[str] = field(metadata=col("how sure begin and end are"))
    attribution: Sequence[str] = field(metadata=col("how sure it is what it asked"))
    message: Sequence[str] = field(metadata=col("as in `RequestTable`"))
    trace_id: Sequence[str] = field(metadata=col("as there"))
    client: Sequence[str] = field(
        metadata=col("who asked: its process's name where recorded, else its address")
    )
    true_ns: I64 = field(metadata=col("own time"))
    asked_ns: I64 = field(metadata=col("time of sub-requests"))
    queued_ns: I64 = field(metadata=col("from arrival to the first receive"))
    bytes_in: I64 = field(metadata=col("of the request"))
    bytes_out: I64 = field(metadata=col("of the answer"))
    threads: I64 = field(metadata=col("that worked for it"))


@dataclass(frozen=True, eq=False)
class Passed(FlatTable):
    """One message that went through a broker, with whose it was and who worked for it, per row."""

    COUNTED = "message"

    job: I32 = field(metadata=col("the request that is the work for it", of="requests"))
    producer: I32 = field(
        metadata=col("the request that put it into the queue", least=0, of="requests")
    )
    broker: I32 = field(metadata=col("whose queue: redis-server:6379", words="strings"))
    put_ns: I64 = field(metadata=col("when it was put there"))
    received_ns: I64 = field(metadata=col("when it was received"))
    before: I32 = field(metadata=col("how many were in the queue when it was put there"))
    attribution: U8 = field(metadata=col("how sure the producer is", words=CERTAINTIES))
    probability: F64 = field(metadata=col("that it is the right one; 0 where none is known"))
    strings: tuple[str, ...] = ("",)

    @classmethod
    def make_empty(cls) -> Passed:
        """Return a table without messages."""
        small, large = np.zeros(0, np.int32), np.zeros(0, np.int64)
        sure = np.zeros(0, np.uint8)
        return cls(small, small, small, large, large, small, sure, np.zeros(0))


# Columns of `RequestFacts`.
_FACTS: Final = RequestFacts.declared()
FACT_TEXTS: Final = tuple(name for name, (_, kind) in _FACTS.items() if kind == TEXTS)
FACT_NUMBERS: Final = tuple(name for name in _FACTS if name not in FACT_TEXTS)


def join_facts(parts: Sequence[RequestFacts | None]) -> RequestFacts | None:
    """Join what is known of several executions: nothing, if it is not known of all."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not parts:
        return None
    return RequestFacts(**RequestFacts.join_columns(known))


@dataclass(frozen=True, eq=False)
class Links(FlatTable):
    """What leads from one slice to another."""

    from_slice: I32 = field(metadata=col("row of the `Slices`", of="slices"))
    to_slice: I32 = field(metadata=col("another", of="slices"))
    sent_ns: I64 = field(metadata=col("when it was sent"))
    received_ns: I64 = field(metadata=col("when it was received"))
    kind: U8 = field(metadata=col("what", words=LINK_KINDS))


@dataclass(frozen=True, kw_only=True)
class RequestAccount(RequestCounts):
    """What became of everything that endpoints did: nothing is dropped without a count.

    Attributes
    ----------
    way : str
        How sockets were followed: see `critpath.schema.ways`.
    """

    requests: int = 0
    doubtful: int = 0
    way: str = "sockets"


class CutRequests(Protocol):
    """Requests that can be cut into pieces, some at a time."""

    @property
    def arrivals(self) -> I64:
        """As of `Pieces`."""

    @property
    def work(self) -> I64:
        """As of `Pieces`."""

    def take(self, rows: I64) -> CutRequests:
        """Return some of the requests, in the order of their positions ``rows``."""

    def cut(self, rows: slice) -> Pieces:
        """Return the pieces of the requests at some positions."""


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
        Of what is on its way between hosts, where to or from; what was waited for, or what its
        thread did for others: codes into ``details``, else -1.
    details : tuple of Detail
    confidence : float64 [pieces]
        How probable it is that what was done then was for the request; omitted, 1.
    asker : int64 [pieces]
        The thread of this host that asked for what is done in it; omitted, or -1, not known.
    endpoint : int64 [pieces]
        Where the request is served that is worked for; omitted, or -1, not known.
    root : int64 [pieces]
        The outermost request that it serves, whatever thread asks; -1, or omitted, if unknown.
    arrivals : int64 [n, 3]
        What came for loops to serve, of all requests: thread, when, endpoint.
    work : int64 [n, 4]
        What threads did for requests: thread, begin, end, the request in the end, -1 of several;
        by thread and in order of time.
    """

    start: I64
    host: I64
    tid: I64
    begin: I64
    end: I64
    state: U8
    by: I64
    about: I64
    details: tuple[Detail, ...] = ()
    confidence: F64 = field(default_factory=lambda: np.zeros(0))
    asker: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    endpoint: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    root: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    arrivals: I64 = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    work: I64 = field(default_factory=lambda: np.zeros((0, 4), np.int64))

    def __post_init__(self) -> None:
        if not len(self.confidence):
            object.__setattr__(self, "confidence", np.ones(len(self.begin)))
        for name in ("asker", "endpoint", "root"):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(len(self.begin), NONE, np.int64))

    def cut(self, rows: slice) -> Pieces:
        """Return the pieces of the requests at some positions."""
        return self.take(np.arange(len(self.start) - 1)[rows])

    def take(self, rows: I64) -> Pieces:
        """Return the pieces of some requests, in the order of their positions ``rows``."""
        counts = self.start[rows + 1] - self.start[rows]
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        mine = np.arange(start[-1]) + np.repeat(self.start[rows] - start[:-1], counts)
        columns = (
            *("host", "tid", "begin", "end", "state"),
            *("by", "about", "confidence", "asker", "endpoint", "root"),
        )
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
    notes : tuple of Note or str
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
    cut : bool [requests]
        Which touch a time that was not recorded, or may be another's; none where omitted.
    left_out : mapping
        How many of each service that are, and for how many others stand.
    passed : Passed
        What went through brokers.
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
    notes: tuple[Remark, ...] = ()
    doubtful: bool = False
    hosts: tuple[str, ...] = ()
    clocks: tuple[HostClock, ...] = ()
    epoch: int = 0
    alone: int = 0
    cut: Bool = field(default_factory=lambda: np.zeros(0, np.bool_))
    left_out: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    passed: Passed = field(default_factory=Passed.make_empty)

    def __post_init__(self) -> None:
        if not len(self.cut):
            object.__setattr__(self, "cut", np.zeros(len(self.requests), np.bool_))


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
        Own, asked and unknown together.
    own_ns, asked_ns, queued_ns : float or None
        See `RequestTable`; None where it is on another machine, or its requests were not found.
    threads : int
        That answered.
    unknown_ns : float or None
        Of which it is doubtful whether it is its own, or who was asked for it.
    """

    service: str
    depth: int
    requests: int
    latency_ns: float
    own_ns: float | None
    asked_ns: float | None
    queued_ns: float | None
    threads: int
    unknown_ns: float | None = None


@dataclass(frozen=True)
class Untold:
    """Requests of which it is doubtful what they asked, or what that asked.

    Attributes
    ----------
    requests : int
    median_ns, told_ns : float
        How long they take, and how long those of which it is known.
    unlike : bool
        Whether these are further apart than those of one set are.
    """

    requests: int
    median_ns: float
    told_ns: float
    unlike: bool
