"""What qualifies a segment's state: as the text that paths have, and as what it means.

A segment's detail is a code into texts, so that native code counts numbers and a saved file has
names.  The texts that critpath composes are made here and read here, and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from critpath.schema.kinds import LOCAL_PACKET, REMOTE_PACKET, State
from critpath.units import format_ns

IDLE: Final = "idle"  # of WAIT_CPU: no thread ran instead
OTHERS: Final = "above all "  # before a name that holds no more than half
# The kernel's softirqs: as a detail they would not be understood without that word.
SOFTIRQS: Final = frozenset(
    {"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}
)
_RECEIVING: Final = re.compile("recv|accept|connect")  # system calls
_THREAD: Final = re.compile(r"(?s)(.*) \((\d+)\)")
_GROUP, _UNDER, _BUSY = "control group ", ", under ", ", busy with requests of "
_EACH, _LIMIT, _MEMORY, _OF_GROUP = (
    " in each ",
    ", limit of ",
    "memory limit of ",
    ", control group ",
)
_RATES: Final = {"rbps": "read", "wbps": "written", "riops": "reads", "wiops": "writes"}
_NAMED_DEVICE: Final = frozenset(
    {State.WAIT_NET, State.WAIT_DEVICE, State.WAIT_SOFTIRQ, State.NET_TRANSIT}
    | {State.IRQ, State.SOFTIRQ}
)


@dataclass(frozen=True)
class Detail:
    """What a segment's detail means; what does not apply is empty.

    Attributes
    ----------
    peer, tid
        The thread that had the cpu, or whose requests came first or kept a disk busy.
    idle : bool
        Of a wait for a cpu: no thread ran instead.
    device : str
        The disk, interrupt or softirq.
    group, limit : str
        The control group whose limit held the thread, and that limit.
    function, caller : str
        What ran, and the project's function around it.
    call : str
        The system call.
    local : bool or None
        Whether the packet that ended a wait came from this host; None if nothing tells.
    others : bool
        It holds no more than half; the rest is of others.
    """

    peer: str = ""
    tid: int = -1
    idle: bool = False
    device: str = ""
    group: str = ""
    limit: str = ""
    function: str = ""
    caller: str = ""
    call: str = ""
    local: bool | None = None
    others: bool = False


@lru_cache(maxsize=4096)
def read_detail(state: State, text: str) -> Detail:
    """Return what a detail of a state means."""
    if text.startswith(OTHERS):
        return replace(read_detail(state, text.removeprefix(OTHERS)), others=True)
    if state == State.WAIT_CPU and text == IDLE:
        return Detail(idle=True)
    if state in {State.RUN, State.RUN_USER}:
        function, _, caller = text.partition(_UNDER)
        return Detail(function=function, caller=caller)
    if state == State.RUN_SYSCALL:
        return Detail(call=text)
    if state == State.WAIT_DISK:
        return _read_disk(text)
    if state == State.WAIT_QUOTA:
        group, comma, limit = text.removeprefix(_GROUP).rpartition(", ")
        if not comma or _EACH not in limit:
            group, limit = text.removeprefix(_GROUP), ""
        return Detail(group=group, limit=limit)
    if state == State.RECLAIM:
        limit, _, group = text.partition(_OF_GROUP)
        known = limit.startswith(_MEMORY)
        return Detail(group=group, limit=limit.removeprefix(_MEMORY) if known else "")
    name, tid = read_thread(text)
    device = text if state in _NAMED_DEVICE and text not in {LOCAL_PACKET, REMOTE_PACKET} else ""
    local = whose_packet(text) if state == State.WAIT_NET else None
    return Detail(peer=name, tid=tid, device=device, local=local)


def _read_disk(text: str) -> Detail:
    name, _, peer = text.partition(_BUSY)
    device, limited, rest = name.partition(_LIMIT)
    limit, _, group = rest.partition(_OF_GROUP) if limited else ("", "", "")
    return Detail(peer=peer.strip("`"), device=device, group=group, limit=limit)


def read_thread(text: str) -> tuple[str, int]:
    """Return the name of a thread and its id, -1 where it is a name alone."""
    known = _THREAD.fullmatch(text)
    return (known[1], int(known[2])) if known else (text, -1)


def whose_packet(text: str) -> bool | None:
    """Return whether the packet that ended a wait was from this host; None if nothing tells.

    What came through a device is from outside.
    """
    if text in {LOCAL_PACKET, REMOTE_PACKET}:
        return text == LOCAL_PACKET
    return None if not text or text in SOFTIRQS or _RECEIVING.match(text) else False


def quota_of(group: str, quota: int, period: int) -> str:
    """Return the detail of time in which a control group's quota (ns) held a thread back."""
    size = f", {format_ns(quota)}{_EACH}{format_ns(period)}" if quota and period else ""
    return f"{_GROUP}{group}{size}"


def memory_of(group: str, limit: int, *, of_group: bool) -> str:
    """Return the detail of time in which a thread freed memory: what had none left."""
    if not of_group:
        return "the machine has no more"
    size = f" of {limit / 2**20:,.0f} MiB" if limit else ""
    return f"memory limit{size}{_OF_GROUP}{group}" if group else "its group's memory limit"


def function_of(name: str, caller: str) -> str:
    """Return the detail of running in a function: which, and the project's that called it."""
    return name + (f"{_UNDER}{caller}" if caller else "")


def disk_of(name: str, others: str) -> str:
    """Return the detail of a wait for a disk: which, and whose requests it was busy with."""
    return name + (f"{_BUSY}`{others}`" if others else "")


def disk_limit(name: str, group: str, rate: str, limit: int) -> str:
    """Return the detail of a wait for a disk that a control group's limit made."""
    return f"{name}{_LIMIT}{rate_of(rate, limit)}{_OF_GROUP}{group}"


def rate_of(rate: str, limit: int) -> str:
    """Say a limit of a disk's rate."""
    amount = f"{limit / 2**20:,.1f} MiB" if rate.endswith("bps") else f"{limit:,}"
    return f"{amount} {_RATES.get(rate, rate)} a second"
