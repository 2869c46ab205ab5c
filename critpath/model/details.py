"""What qualifies a segment's state: typed fields, and the text that people read.

Segments have a code into a table of details, so that native code counts numbers.  Names of a
recording become details once, when paths are made; the text is made where it is shown, and read
back only from files that have nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from critpath.model._lookup import Numbers, find_used, translate
from critpath.model.table import I32, I64, U8
from critpath.model.vectors import number_codes
from critpath.schema.kinds import LOCAL_PACKET, REMOTE_PACKET, State
from critpath.units import format_ns

IDLE: Final = "idle"  # why one waits for a cpu: no thread ran instead
MACHINE: Final = "the machine has no more"  # why memory is freed
MEMORY: Final = "its group's memory limit"  # likewise; of the control group, where it is known
OTHERS: Final = "above all "  # before a name that holds no more than half
# The kernel's softirqs: as a detail they would not be understood without that word.
SOFTIRQS: Final = frozenset(
    {"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}
)
PACKETS: Final = {"local": LOCAL_PACKET, "remote": REMOTE_PACKET}
# System calls that alone say what was waited for.
_CALLS: Final = re.compile(r"recv|accept|connect|f?(data)?sync|\w*nanosleep")
_THREAD: Final = re.compile(r"(?s)(.*) \((\d+)\)")
_GROUP, _UNDER, _BUSY = "control group ", ", under ", ", busy with requests of "
_LIMIT, _MEMORY, _OF_GROUP = ", limit of ", "memory limit", ", control group "
_EACH: Final = " in each "
_RATES: Final = {"rbps": "read", "wbps": "written", "riops": "reads", "wiops": "writes"}
# What a name is that qualifies a state; what is not here, why the state is what it is.
_NAMES: Final = {
    **dict.fromkeys((State.RUN, State.RUN_USER, State.WAIT_TIMER), "function"),
    **dict.fromkeys((State.RUN_SYSCALL, State.WAIT_TASK, State.WAIT_STOPPED), "call"),
    **dict.fromkeys((State.WAIT_FUTEX, State.WAIT_POLL, State.WAIT_PIPE), "call"),
    **dict.fromkeys((State.IRQ, State.WAIT_DEVICE, State.NET_TRANSIT), "device"),
    **dict.fromkeys((State.WAIT_DISK, State.WAIT_NET, State.WAIT_POOL, State.WAIT_QUEUE), "device"),
    **dict.fromkeys((State.SOFTIRQ, State.WAIT_SOFTIRQ, State.WAIT_IPI), "interrupt"),
    **dict.fromkeys((State.WAIT_CPU, State.QUEUED, State.SHARED), "peer"),
}


class Kin(StrEnum):
    """What a thread that had the cpu is to the one that waited for it.

    The program of an execution is its thread's process and what that began.
    """

    UNKNOWN = ""
    THREAD = "thread"  # of the same process
    CHILD = "child"  # of a process that the waiter's began, or one of these
    PARENT = "parent"  # of one that began the waiter's, and is of the program
    PROGRAM = "program"  # of the program, and otherwise not related
    SIBLING = "sibling"  # of another process of the same parent, all running one program
    NAMESAKE = "namesake"  # of another process: its name is the same
    STARTER = "starter"  # of one that began the program
    STRANGER = "stranger"


_OWN: Final = frozenset({Kin.THREAD, Kin.CHILD, Kin.PARENT, Kin.PROGRAM, Kin.SIBLING})
_OTHERS: Final = frozenset({Kin.NAMESAKE, Kin.STARTER, Kin.STRANGER})


def is_of_program(kin: str) -> bool | None:
    """Tell whether who is so related is of the program itself; None if nothing tells."""
    return True if kin in _OWN else False if kin in _OTHERS else None


class Detail(NamedTuple):
    """What qualifies a segment's state; what does not apply is empty.

    Attributes
    ----------
    peer, peer_tid
        The thread that had the cpu, or whose requests came first or kept a disk busy; -1: a
        name alone.
    device : str
        The disk, or whose interrupt; of what is in flight, the address.
    interrupt : str
        The softirq, or the interrupt of another processor.
    packet : str
        ``local`` or ``remote``: where the packet was from that ended a wait.
    call : str
        The system call.
    function, caller : str
        What ran, and the project's function around it; of a timer, what the kernel called.
    control_group, limit : str
        The group whose limit held the thread, and that limit.
    why : str
        What else is known: nothing ran instead, why no wake is known, who has no memory.
    kin : str
        What the peer is to the thread that waited: a `Kin`.  Where there is no peer, what the
        thread itself is to the execution's own, if it is of the same name or process, or a child.
    place : str
        In which container, pod or service the peer is, or else the thread itself, if that is
        another than the execution's: ``pod shop/db-*``.
    loop : str
        The service whose loop worked for others, or was shared: ``node:3000``.
    request : str
        What most of those that it worked for are called: ``GET /login``.
    asks : str
        Whom the loop waited for meanwhile, asleep though requests were there: it was blocked in a
        call.
    under_way : int
        How many requests the loop had not answered then, this one with them.
    connections : int
        How many lead to the device, where a request waits for one of them.
    held : int
        For which share of that time (%) those called `request` held them.
    before : int
        How many messages were in a queue before the one that waits there.
    others : bool
        Of several segments: it holds no more than half, the rest is of others.
    """

    peer: str = ""
    peer_tid: int = -1
    device: str = ""
    interrupt: str = ""
    packet: str = ""
    call: str = ""
    function: str = ""
    caller: str = ""
    control_group: str = ""
    limit: str = ""
    why: str = ""
    kin: str = ""
    place: str = ""
    loop: str = ""
    request: str = ""
    asks: str = ""
    under_way: int = 0
    connections: int = 0
    held: int = 0
    before: int = 0
    others: bool = False

    def with_texts(self, change: Callable[[str], str]) -> Detail:
        """Return it with every text changed that is of a recording."""
        changed = Detail._make(change(of) if isinstance(of, str) else of for of in self)
        return changed._replace(kin=self.kin)

    @property
    def idle(self) -> bool:
        """Of a wait for a cpu: no thread ran instead."""
        return self.why == IDLE

    @property
    def rival(self) -> str:
        """The name of who had the cpu; `IDLE` for nobody."""
        return self.why if self.idle else self.peer

    @property
    def local(self) -> bool | None:
        """Whether the packet that ended a wait came from this host; None if nothing tells."""
        return self.packet == "local" if self.packet else None


NO_DETAIL: Final = Detail()
# technical: details that are kept from set to set, 6 MB; threads hardly come again much later.
_MOST_KNOWN: Final = 20_000
DETAIL_NUMBERS: Final = ("peer_tid", "under_way", "connections", "held", "before")
DETAIL_TEXTS: Final = tuple(f for f in Detail._fields if f not in {*DETAIL_NUMBERS, "others"})


def code_details(
    state: U8, codes: I32 | I64, find: Callable[[State, int], Detail]
) -> tuple[I32, tuple[Detail, ...]]:
    """Return codes of details and the table of them, for segments with other codes.

    Parameters
    ----------
    state : uint8 [segments]
    codes : int32 or int64 [segments]
        Of names or texts.
    find : callable
        Returns what a state's code means; asked once for each of both.
    """
    states = len(State)
    used, place = number_codes(codes * np.int64(states) + state)
    table = {NO_DETAIL: 0}
    found = [
        table.setdefault(find(State(one % states), one // states), len(table))
        for one in used.tolist()
    ]
    return np.array(found, np.int32)[place], tuple(table)


class DetailCoder:
    """Codes the details of set after set of a recording's paths: each is made once.

    Parameters
    ----------
    find : callable
        Returns what a key of two numbers means.

    Attributes
    ----------
    known : list of Detail
    """

    def __init__(self, find: Callable[[int, int], Detail]) -> None:
        self._find = find
        self._forget()

    def _forget(self) -> None:
        self.known = [NO_DETAIL]
        self._places = {NO_DETAIL: 0}
        self._keys = Numbers()
        # By the number of a key: what it means, and the key.
        self._place_of: I64 = np.zeros(0, np.int64)
        self._pairs: I64 = np.zeros((2, 0), np.int64)

    def _put(self, of: Detail) -> int:
        place = self._places.setdefault(of, len(self.known))
        if place == len(self.known):
            self.known.append(of)
        return place

    def code(self, first: I64, second: I64) -> tuple[I32, tuple[Detail, ...]]:
        """Return codes of details and the table of them, for segments with keys."""
        if len(self.known) > _MOST_KNOWN:
            self._forget()
        number, used = self._number(first, second)
        order = np.lexsort((self._pairs[1, used], self._pairs[0, used]))
        return self._arrange(number, used[order])

    def recode(
        self, codes: I32, details: Sequence[Detail], second: I64
    ) -> tuple[I32, tuple[Detail, ...]]:
        """Return the same of segments with codes and a table: places in `known` become keys."""
        if len(self.known) > _MOST_KNOWN:
            self._forget()
        places = np.array([*map(self._put, details)], np.int64)
        number, used = self._number(translate(codes, places), second)
        rank = np.zeros(len(self.known), np.int64)
        rank[places] = np.arange(len(places))
        order = np.lexsort((rank[self._pairs[0, used]], self._pairs[1, used]))
        return self._arrange(number, used[order])

    def _number(self, first: I64, second: I64) -> tuple[I32, I64]:
        """Return the numbers of keys, and which numbers there are."""
        number = self._keys.add(first, second)
        if len(self._keys) > len(self._place_of):
            fresh = self._keys.since(len(self._place_of))
            more = [self._put(self._find(*key)) for key in zip(*fresh.tolist(), strict=True)]
            self._place_of = np.append(self._place_of, np.array(more, np.int64))
            self._pairs = np.concatenate([self._pairs, fresh], axis=1)
        return number, find_used(number, len(self._keys))

    def _arrange(self, number: I32, used: I64) -> tuple[I32, tuple[Detail, ...]]:
        """Return codes and table in an order that does not depend on sets before."""
        table = {0: 0}  # the first says nothing
        codes = np.zeros(len(self._keys), np.int32)
        places = self._place_of[used].tolist()
        codes[used] = [table.setdefault(place, len(table)) for place in places]
        return translate(number, codes), tuple(self.known[place] for place in table)


def name_detail(state: State, name: str) -> Detail:
    """Return the detail of a state that a name in a recording qualifies."""
    if not name:
        return NO_DETAIL
    field = _NAMES.get(state, "why")
    if state == State.WAIT_NET and name in PACKETS.values():
        return Detail(packet="local" if name == LOCAL_PACKET else "remote")
    if state in {State.WAIT_DISK, State.WAIT_NET} and name in SOFTIRQS:
        field = "interrupt"
    elif state in {State.WAIT_DISK, State.WAIT_NET, State.WAIT_TIMER} and _CALLS.match(name):
        field = "call"
    elif state == State.WAIT_NET:  # what comes through a device is from outside
        return Detail(device=name, packet="remote")
    return Detail(**{field: name})  # type: ignore[arg-type]  # a field of text


def word_detail(of: Detail) -> str:
    """Return a detail as people read it."""
    if of.others:
        return OTHERS + word_detail(of._replace(others=False))
    if of.loop:
        return _word_loop(of)
    if of.connections:
        return _word_connection(of)
    if of.before:
        return f"{of.device}, behind {of.before} other messages"
    if of.device and of.limit:
        return f"{of.device}{_LIMIT}{of.limit}{_OF_GROUP}{of.control_group}"
    if of.device and of.peer:
        return f"{of.device}{_BUSY}`{of.peer}`"
    if of.why == MEMORY and of.control_group:
        size = f" of {of.limit}" if of.limit else ""
        return f"{_MEMORY}{size}{_OF_GROUP}{of.control_group}"
    if of.control_group:
        return f"{_GROUP}{of.control_group}" + (f", {of.limit}" if of.limit else "")
    if of.caller:
        return f"{of.function}{_UNDER}{of.caller}"
    if of.peer_tid >= 0:
        return f"{of.peer} ({of.peer_tid})"
    name = of.peer or of.device or of.interrupt or of.call or of.function or of.why
    return name or of.request or PACKETS.get(of.packet, "")


def _word_loop(of: Detail) -> str:
    """Return what a loop did: ``node:3000, for GET /login, 8 requests under way``."""
    said = [
        of.loop,
        *([f"blocked in a call to {of.asks}"] if of.asks else []),
        *([f"for {of.request}"] if of.request else []),
        *([f"{of.under_way} requests under way"] if of.under_way > 1 else []),
    ]
    return ", ".join(said)


def _word_connection(of: Detail) -> str:
    """Return what was waited for, and what held it: ``one of 4 connections to postgres:5432``."""
    many = f"one of {of.connections} connections" if of.connections > 1 else "the only connection"
    share = f" ({of.held} %)" if of.held else ""
    which = f", which {of.request} held{share}" if of.request else ""
    return f"{many} to {of.device}{which}"


# Texts of files that have no fields.


@lru_cache(maxsize=4096)
def read_detail(state: State, text: str) -> Detail:
    """Return what the text of a detail of a state means; its words are the same text."""
    found = _read_text(state, text)
    return found if word_detail(found) == text else Detail(why=text)


def read_details(state: U8, codes: I32, texts: Sequence[str]) -> tuple[I32, tuple[Detail, ...]]:
    """Return codes of details and the table of them, for segments with codes of texts."""
    return code_details(state, codes, lambda of, code: read_detail(of, texts[code]))


def _read_text(state: State, text: str) -> Detail:
    if state == State.WAIT_CPU:
        known = _THREAD.fullmatch(text)
        if text == IDLE or not known:
            return Detail(why=IDLE) if text == IDLE else Detail(peer=text)
        return Detail(peer=known[1], peer_tid=int(known[2]))
    if state in {State.RUN, State.RUN_USER} and _UNDER in text:
        function, _, caller = text.partition(_UNDER)
        return Detail(function=function, caller=caller)
    if state == State.WAIT_DISK and _LIMIT in text:
        device, _, rest = text.partition(_LIMIT)
        limit, _, group = rest.partition(_OF_GROUP)
        return Detail(device=device, control_group=group, limit=limit)
    if state == State.WAIT_DISK and _BUSY in text:
        device, _, peer = text.partition(_BUSY)
        return Detail(device=device, peer=peer.strip("`"))
    if state == State.WAIT_QUOTA and text.startswith(_GROUP):
        group, comma, limit = text.removeprefix(_GROUP).rpartition(", ")
        if not comma or _EACH not in limit:
            group, limit = text.removeprefix(_GROUP), ""
        return Detail(control_group=group, limit=limit)
    if state == State.RECLAIM and text.startswith(_MEMORY):
        limit, _, group = text.removeprefix(_MEMORY).partition(_OF_GROUP)
        return Detail(control_group=group, limit=limit.removeprefix(" of "), why=MEMORY)
    return name_detail(state, text)


# What is found out about waits.


def quota_of(group: str, quota: int, period: int) -> Detail:
    """Return the detail of time in which a control group's quota (ns) held a thread back."""
    size = f"{format_ns(quota)}{_EACH}{format_ns(period)}" if quota and period else ""
    return Detail(control_group=group, limit=size)


def memory_of(group: str, limit: int, *, of_group: bool) -> Detail:
    """Return the detail of time in which a thread freed memory: what had none left."""
    if not of_group:
        return Detail(why=MACHINE)
    size = f"{limit / 2**20:,.0f} MiB" if limit and group else ""
    return Detail(control_group=group, limit=size, why=MEMORY)


def disk_limit(name: str, group: str, rate: str, limit: int) -> Detail:
    """Return the detail of a wait for a disk that a control group's limit made."""
    amount = f"{limit / 2**20:,.1f} MiB" if rate.endswith("bps") else f"{limit:,}"
    held = f"{amount} {_RATES.get(rate, rate)} a second"
    return Detail(device=name, control_group=group, limit=held)


def family_of(of: Detail) -> Detail:
    """Return a detail with the numbers of names taken out: ``virtio#-req.#``."""
    family = of.with_texts(lambda text: re.sub(r"\d+", "#", text))
    return family._replace(
        peer_tid=min(of.peer_tid, 0), limit="", request="", under_way=0, held=0, before=0
    )
