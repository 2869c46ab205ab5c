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
    qualifier : Qualifier or None
    """

    qualifier: Qualifier | None

    def __new__(cls, value: int, qualifier: Qualifier | None = None) -> Self:  # noqa: D102
        self = int.__new__(cls, value)
        self._value_ = value
        self.qualifier = qualifier
        return self

    OTHER = 0  # asked for by name only (executions, tests)
    SWITCH = 1
    WAKING = 2
    WAKEUP = 3
    WAKEUP_NEW = 4
    FORK = 5
    EXEC = 6
    EXIT = 7
    IRQ_ENTRY = 8, Qualifier("name")
    IRQ_EXIT = 9
    SOFTIRQ_ENTRY = 10
    SOFTIRQ_EXIT = 11
    TIMER_ENTRY = 12
    TIMER_EXIT = 13
    STATEDUMP = 14
    SYSCALL_ENTRY = 15
    SYSCALL_EXIT = 16
    NET_SEND = 17
    NET_RECEIVE = 18
    VECTOR_ENTRY = 19  # x86 interrupt vectors: local timer, reschedule, function calls
    VECTOR_EXIT = 20
    CURRENT = 21  # the thread that has the cpu, where no switch was written
    SOFTIRQ_RAISE = 22  # by a thread, where no interrupt is open
    TIMER_FUNCTION = 23, Qualifier("function", "{:.0f}")  # which the softirq TIMER calls next
    DISK_ISSUE = 24  # a request goes to a disk
    DISK_COMPLETE = 25
    RECLAIM_BEGIN = 26  # a thread begins to free memory, because there is no more
    RECLAIM_END = 27
    FILE_LOCK = 28  # a thread asks for a lock of a file, or gives it back
    DISK_INSERT = 29  # a request waits in its disk's queue: by who made it
    # Read where requests are asked for:
    SOCKET_SEND = 30
    SOCKET_RECEIVE = 31
    SOCKET_ARRIVAL = 32  # data, a connection or an end of either is there to be taken
    SOCKET_STATE = 33  # of a TCP connection
    SOCKET_OF = 34  # what connection a socket is of
    SOCKET_STATEDUMP = 35
    FUTEX = 36  # the system call futex: a `SYSCALL_ENTRY` with the address it is about
    MESSAGE_LABEL = 37  # what a received message is called, by its first bytes
    # Read where requests are found by system calls:
    SOCKET_SEGMENT = 38  # TCP took a packet, for the socket whose ends it has
    DESCRIPTOR_STATEDUMP = 39
    # Where functions of Python were recorded:
    FUNCTION_ENTRY = 40  # one begins, or goes on
    FUNCTION_EXIT = 41


class State(IntEnum):
    """States of a thread on a path; names as in the path's JSON.

    Attributes
    ----------
    trace_compass : str
        Trace Compass' coarser name, for cross-checks with its views.
    """

    trace_compass: str

    def __new__(cls, value: int, trace_compass: str = "UNKNOWN") -> Self:  # noqa: D102
        self = int.__new__(cls, value)
        self._value_ = value
        self.trace_compass = trace_compass
        return self

    UNKNOWN = 0, "UNKNOWN"
    RUN = 1, "RUNNING"
    RUN_USER = 2, "RUNNING"
    RUN_SYSCALL = 3, "RUNNING"
    IRQ = 4, "INTERRUPTED"
    SOFTIRQ = 5, "INTERRUPTED"
    WAIT_CPU = 6, "PREEMPTED"
    WAIT_TASK = 7, "BLOCKED"
    WAIT_DISK = 8, "BLOCK_DEVICE"
    WAIT_NET = 9, "NETWORK"
    WAIT_TIMER = 10, "TIMER"
    WAIT_DEVICE = 11, "INTERRUPTED"
    WAIT_SOFTIRQ = 12, "INTERRUPTED"
    WAIT_IPI = 13, "IPI"
    WAIT_FUTEX = 14, "BLOCKED"
    WAIT_POLL = 15, "BLOCKED"
    WAIT_PIPE = 16, "BLOCKED"
    WAIT_STOPPED = 17, "BLOCKED"
    NET_TRANSIT = 18, "NETWORK"
    WAIT_UNEXPLAINED = 19, "UNKNOWN"
    WAIT_QUOTA = 20, "PREEMPTED"
    RECLAIM = 21, "RUNNING"
    QUEUED = 22, "BLOCKED"  # a request, while its thread works for other requests
    SHARED = 23, "RUNNING"  # a request, while a loop works for it or for others: not known which
    NOT_RECORDED = 24, "UNKNOWN"  # in a gap of the recording, or not known because of one


# Details of `State.WAIT_NET` where a packet's sender is no thread that is known.
LOCAL_PACKET: Final = "packet from this host"
REMOTE_PACKET: Final = "packet from another host"

# Names by code.
STATES: Final = tuple(State(code).name for code in range(len(State)))

RUNNING: Final = frozenset({State.RUN, State.RUN_USER, State.RUN_SYSCALL})

# What the machine does to an execution, rather than the execution itself.
INTERFERENCE: Final = frozenset({State.IRQ, State.SOFTIRQ, State.WAIT_CPU, State.WAIT_QUOTA})
MACHINE_STATES: Final = INTERFERENCE - {State.WAIT_QUOTA}  # without what somebody has set


# Threads that record: critpath's own, LTTng's daemons, and what takes stacks.
_RECORDERS: Final = re.compile(r"critpath-[a-z]+\d*|lttng(-[a-z]+)?|perf|py-spy")


def is_recorder(comm: str) -> bool:
    """Tell whether a thread of that name records."""
    return _RECORDERS.fullmatch(comm) is not None
