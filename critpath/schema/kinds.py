"""What events mean, and what threads do: the one table of each.

The build writes the same numbers for the native modules, as ``KIND_SWITCH`` and ``STATE_RUN``
(``tools/cython_enums.py``).
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, NamedTuple, Self


class Qualifier(NamedTuple):
    """The field of an event that says more about what begins with it: a segment's detail.

    Attributes
    ----------
    field : str
        The field's first spelling (`EventRequest.fields`).
    form : str
        How a number becomes a text, for `str.format`; "" where the field is a text.
    scale : float
        What the number is multiplied by before.
    """

    field: str
    form: str = ""
    scale: float = 1.0

    @property
    def types(self) -> frozenset[str]:
        """Types of the field (`EventClass.types`) that can be read so."""
        return frozenset({"int", "uint"} if self.form else {"str"})

    def text(self, value: int) -> str:
        """Return a number as the detail has it."""
        return self.form.format(value * self.scale)


class Kind(IntEnum):
    """What an event means to critpath, whatever its tracer calls it.

    Attributes
    ----------
    meaning : str
        What it tells, in the words of docs/critical-path.md.
    qualifier : Qualifier or None
    """

    meaning: str
    qualifier: Qualifier | None

    def __new__(  # noqa: D102
        cls, value: int, meaning: str = "", qualifier: Qualifier | None = None
    ) -> Self:
        self = int.__new__(cls, value)
        self._value_ = value
        self.meaning = meaning
        self.qualifier = qualifier
        return self

    OTHER = 0, "asked for by its name only, to tell runs"
    SWITCH = 1, "who leaves a processor, in which state, and who gets it"
    WAKING = 2, "a thread is woken, by the waker"
    WAKEUP = 3, "a woken thread is in the queue"
    WAKEUP_NEW = 4, "a created thread is in the queue for the first time"
    FORK = 5, "a thread is created"
    EXEC = 6, "a thread runs another program"
    EXIT = 7, "a thread ends"
    IRQ_ENTRY = 8, "a device's interrupt begins; its name says the device", Qualifier("name")
    IRQ_EXIT = 9, "it ends"
    SOFTIRQ_ENTRY = 10, "deferred work begins, by its vector"
    SOFTIRQ_EXIT = 11, "it ends"
    TIMER_ENTRY = 12, "a high-resolution timer's function begins"
    TIMER_EXIT = 13, "it ends"
    STATEDUMP = 14, "a thread was there when the recording began"
    SYSCALL_ENTRY = 15, "a system call begins, by the event's name"
    SYSCALL_EXIT = 16, "it ends"
    NET_SEND = 17, "a packet leaves a machine"
    NET_RECEIVE = 18, "a packet comes to one"
    VECTOR_ENTRY = 19, "an interrupt vector of x86 begins: local timer, another processor"
    VECTOR_EXIT = 20, "it ends"
    CURRENT = 21, "the thread that has a processor, where no switch told of it"
    SOFTIRQ_RAISE = 22, "deferred work is asked for: by who runs, or the interrupt that is open"
    TIMER_FUNCTION = 23, "the function that `TIMER` calls next", Qualifier("function", "{:.0f}")
    DISK_ISSUE = 24, "a request goes to the disk (profile `io`)"
    DISK_COMPLETE = 25, "it is done"
    RECLAIM_BEGIN = 26, "a thread begins to free memory, as there is no more (profile `io`)"
    RECLAIM_END = 27, "it ends"
    FILE_LOCK = 28, "a lock of a file is asked for, refused or given back (profile `locks`)"
    DISK_INSERT = 29, "a request waits in its disk's queue, by whose it is (profile `io`)"
    # Read where requests are asked for:
    SOCKET_SEND = 30, "a thread sent something at a socket (profile `requests`)"
    SOCKET_RECEIVE = 31, "a thread received something"
    SOCKET_ARRIVAL = 32, "data, a connection or an end of either is there to be taken"
    SOCKET_STATE = 33, "a TCP connection opens, listens, ends"
    SOCKET_OF = 34, "what connection a socket is of"
    SOCKET_STATEDUMP = 35, "a socket was there when the recording began or ended"
    FUTEX = 36, "`futex` with its address (profiles `locks`, `syscalls`, `full`)"
    MESSAGE_LABEL = 37, "what a received message is called (`--labels-from`)"
    # Read where requests are found by system calls:
    SOCKET_SEGMENT = 38, "TCP took a packet for a socket, where sockets have no events"
    DESCRIPTOR_STATEDUMP = 39, "a descriptor of a socket was there at begin or end"
    # Where functions of Python were recorded:
    FUNCTION_ENTRY = 40, "a function of Python begins or goes on (`--functions`)"
    FUNCTION_EXIT = 41, "it ends or pauses"
    TASKS = 42, "which tasks a runtime ran, and when (`--tasks`)"


class State(IntEnum):
    """States of a thread on a path; names as in the path's JSON.

    Attributes
    ----------
    trace_compass : str
        Trace Compass' coarser name, for cross-checks with its views.
    meaning : str
        What the thread does, in the words of docs/critical-path.md.
    detail : str
        What the detail of a segment tells; "" where it has none.
    """

    trace_compass: str
    meaning: str
    detail: str

    def __new__(  # noqa: D102
        cls, value: int, trace_compass: str = "UNKNOWN", meaning: str = "", detail: str = ""
    ) -> Self:
        self = int.__new__(cls, value)
        self._value_ = value
        self.trace_compass = trace_compass
        self.meaning = meaning
        self.detail = detail
        return self

    UNKNOWN = 0, "UNKNOWN", "was not observed"
    RUN = 1, "RUNNING", "runs, where system calls were not recorded"
    RUN_USER = 2, "RUNNING", "runs its own code"
    RUN_SYSCALL = 3, "RUNNING", "runs in the kernel", "the system call"
    IRQ = 4, "INTERRUPTED", "has the processor, which an interrupt uses", "the interrupt's name"
    SOFTIRQ = 5, "INTERRUPTED", "has the processor, which deferred work uses", "its vector"
    WAIT_CPU = 6, "PREEMPTED", "could run and does not", "who ran instead, `comm (tid)`, or `idle`"
    WAIT_TASK = 7, "BLOCKED", "sleeps until a thread wakes it that is not followed", "the call"
    WAIT_DISK = 8, "BLOCK_DEVICE", "sleeps until a disk is done", "the interrupt, or the disk"
    WAIT_NET = 9, "NETWORK", "sleeps until a network device has something", "the device (`eth0`)"
    WAIT_TIMER = 10, "TIMER", "sleeps until a timer", "`hrtimer`, or the kernel's function"
    WAIT_DEVICE = 11, "INTERRUPTED", "sleeps until another device's interrupt", "which"
    WAIT_SOFTIRQ = 12, "INTERRUPTED", "sleeps until other deferred work", "which"
    WAIT_IPI = 13, "IPI", "sleeps until another processor's interrupt", "which"
    WAIT_FUTEX = 14, "BLOCKED", "sleeps in `futex`; nothing says better what for", "the system call"
    WAIT_POLL = 15, "BLOCKED", "sleeps in a call like `poll`, likewise", "the system call"
    WAIT_PIPE = 16, "BLOCKED", "sleeps at a pipe, likewise", "the system call"
    WAIT_STOPPED = 17, "BLOCKED", "is stopped by a signal or a debugger"
    NET_TRANSIT = 18, "NETWORK", "waits for a packet that is under way"
    WAIT_UNEXPLAINED = 19, "UNKNOWN", "sleeps, and nothing says why it woke", "why not (below)"
    WAIT_QUOTA = 20, "PREEMPTED", "its control group's cpu quota held it back", "group and quota"
    RECLAIM = 21, "RUNNING", "frees memory before it gets any, less waits for a cpu", "whose limit"
    QUEUED = 22, "BLOCKED", "works for other requests (on paths of requests)"
    SHARED = 23, "RUNNING", "is a loop that works for several requests at once"
    NOT_RECORDED = 24, "UNKNOWN", "was not recorded: in a gap, or not known because of one"
    WAIT_POOL = 25, "BLOCKED", "waits for a connection that other requests hold", "which pool"
    WAIT_QUEUE = 26, "BLOCKED", "its message lies in the queue of a broker", "which broker"


# Details of `State.WAIT_NET` where a packet's sender is no thread that is known.
LOCAL_PACKET: Final = "packet from this host"
REMOTE_PACKET: Final = "packet from another host"

# Names by code.
STATES: Final = tuple(State(code).name for code in range(len(State)))

RUNNING: Final = frozenset({State.RUN, State.RUN_USER, State.RUN_SYSCALL})

WAITS: Final = frozenset(state for state in State if state.name.startswith("WAIT_"))

# What the machine does to an execution, rather than the execution itself.
INTERFERENCE: Final = frozenset({State.IRQ, State.SOFTIRQ, State.WAIT_CPU, State.WAIT_QUOTA})
MACHINE_STATES: Final = INTERFERENCE - {State.WAIT_QUOTA}  # without what somebody has set
# Nothing was seen that could be the reason.
UNSEEN: Final = frozenset({State.UNKNOWN, State.WAIT_UNEXPLAINED, State.NOT_RECORDED})


# Threads that record: critpath's own, LTTng's daemons, and what takes stacks.
_RECORDERS: Final = re.compile(r"critpath-[a-z]+\d*|lttng(-[a-z]+)?|perf|py-spy")


def is_recorder(comm: str) -> bool:
    """Tell whether a thread of that name records."""
    return _RECORDERS.fullmatch(comm) is not None
