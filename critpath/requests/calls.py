"""What threads do with sockets, told by system calls: where a tracer has no events of sockets.

Descriptor tables of all processes give the rows that events of sockets give (`Act`): accepting
and connecting begin an endpoint, what is sent and received through its names is its own.  When
data arrived is known by packets, joined by their ends; without them it is not.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntFlag, auto
from typing import Final

import numpy as np

from critpath.model import I64, Bool, EventChunk, EventClass, Events, Kind
from critpath.model.requests import NONE, Act
from critpath.records import dataclass
from critpath.requests.endpoints import (
    INET6,
    LISTEN,
    UDP,
    UNIX,
    Dumped,
    EndpointColumn,
    Ends,
    read_ends,
    take_address,
)

_TCP: Final = 6  # technical
_INET: Final = 2  # technical
_STREAM, _DATAGRAM = 1, 2  # technical: types of sockets, behind their flags
_KINDS: Final = 15  # technical
_STANDARD: Final = 2  # technical: the last of the descriptors that every program is given
_PEEK: Final = 2  # technical: MSG_PEEK: what is received stays there
_IN_PROGRESS: Final = -115  # technical
_DUPLICATES: Final = {0, 1030}  # F_DUPFD, F_DUPFD_CLOEXEC
_ESTABLISHED: Final = 1  # technical
_SYN, _SYN_ACK = 2, 18  # technical: flags of TCP
_UNSEGMENTED: Final = 16_384  # technical: bytes that are sent in one packet on the way to oneself
_NO_LIVES: Final[deque[Opened]] = deque()


class Does(IntFlag):
    """What a system call does with the descriptor that it names."""

    RECEIVES = auto()
    SENDS = auto()
    # Nothing but a socket can be meant.
    SOCKETS = auto()


_RECEIVES, _SENDS, _SOCKETS = Does.RECEIVES, Does.SENDS, Does.SOCKETS
_MOVES: Final[dict[str, Does]] = {
    **dict.fromkeys(("read", "readv"), _RECEIVES),
    **dict.fromkeys(("recvfrom", "recvmsg", "recvmmsg"), _RECEIVES | _SOCKETS),
    **dict.fromkeys(("write", "writev", "sendfile64", "sendfile", "splice"), _SENDS),
    **dict.fromkeys(("sendto", "sendmsg", "sendmmsg"), _SENDS | _SOCKETS),
}
_SEVERAL: Final = frozenset({"recvmmsg", "sendmmsg"})  # they return a number of messages
_MOST_MESSAGES: Final = 1024  # technical: UIO_MAXIOV: more the kernel does not take
_PREFIXES: Final = (
    *("syscall_entry_", "compat_syscall_entry_", "syscalls:sys_enter_"),
    *("syscall_exit_", "compat_syscall_exit_", "syscalls:sys_exit_"),
)
_ACCEPTS: Final = ("accept", "accept4")
# Where `read.event_names.CALL_EVENTS` has the fields of an entry and of an exit.
_TID, _PID, _FD, _SECOND, _FLAGS, _FAMILY, _PORT, _PROTOCOL = range(8)
_RET, _PEER_FAMILY, _PEER_PORT = range(2, 5)


@dataclass(slots=True, eq=False)
class Opened:
    """What descriptors name: shared by all that were duplicated or inherited."""

    host: int
    opened: int
    family: int = 0
    protocol: int = 0
    opening: int = 0  # 1 accepted, 2 connected
    first: int = 0  # 1 received first, 2 sent first
    local: Ends = (0, 0, 0)
    remote: Ends = (0, 0, 0)
    known: bool = False
    listens: bool = False
    names: int = 0
    closed: int = NONE
    inode: int = 0
    listener: Opened | None = None
    row: int = NONE
    moved: bool = False

    def name(self, local: Ends, remote: Ends) -> None:
        """Take the ends of its connection."""
        if not self.known and local[2] and remote[2]:
            self.local, self.remote, self.known = local, remote, True
            self.family, self.protocol = self.family or _INET, self.protocol or _TCP


class _Tables:
    """Descriptors of processes; who was forked shares its creator's until one of them changes."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, int], dict[int, Opened]] = {}
        self._users: dict[int, int] = {}  # processes of a table, by its id

    def get(self, process: tuple[int, int], fd: int) -> Opened | None:
        """Return what a descriptor names."""
        table = self._of.get(process)
        return table.get(fd) if table else None

    def change(self, process: tuple[int, int]) -> dict[int, Opened]:
        """Return a process's own table, to be changed."""
        table = self._of.get(process)
        if table is None:
            table = self._of[process] = {}
            self._users[id(table)] = 1
        elif self._users[id(table)] > 1:
            self._users[id(table)] -= 1
            table = self._of[process] = dict(table)
            self._users[id(table)] = 1
            for of in table.values():
                of.names += 1
        return table

    def share(self, parent: tuple[int, int], child: tuple[int, int]) -> None:
        """Give a child what its parent has."""
        table = self._of.get(parent)
        if table is not None:
            self._of[child] = table
            self._users[id(table)] += 1

    def drop(self, process: tuple[int, int]) -> dict[int, Opened]:
        """Take a process's table away; return it if nobody else has it."""
        table = self._of.pop(process, None)
        if table is None:
            return {}
        self._users[id(table)] -= 1
        if self._users[id(table)]:
            return {}
        del self._users[id(table)]
        return table


@dataclass(slots=True)
class _Call:
    """A system call that a thread is in."""

    name: str
    time: int
    of: Opened | None
    process: tuple[int, int]
    fd: int
    does: Does
    second: Opened | None = None
    number: int = 0
    flags: int = 0
    packets: list[tuple[Ends, Ends, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Arrival:
    time: int
    tid: int
    host: int
    local: Ends
    remote: Ends


@dataclass(frozen=True)
class CallRows:
    """What `CallEvents.finish` returns: rows of an `Activity` and of its endpoints.

    Attributes
    ----------
    rows : int64 [n, 6]
        Time, act, thread, host, endpoint, value; in order of time.
    endpoints : int64 [m, 18]
        `EndpointColumn`.
    paths : mapping of int to str
        Paths of endpoints that are unix sockets.
    unknown : int
        Receives and sends of sockets of which nobody knows what they are.
    rings : int
        Calls of ``io_uring_enter``: what is received and sent by it is not seen.
    """

    rows: I64
    endpoints: I64
    paths: dict[int, str]
    unknown: int
    rings: int


class CallEvents:
    """Follows the descriptors of every process, from events as they come."""

    def __init__(self) -> None:
        self._tables = _Tables()
        self._process: dict[tuple[int, int], int] = {}
        self._calls: dict[tuple[int, int], _Call] = {}
        # Threads that were in a system call when the recording began, and its descriptor.
        self._begun: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}
        self._all: list[Opened] = []
        self._by_inode: dict[tuple[int, int], Opened] = {}
        self._rows: list[tuple[int, int, int, int, Opened, int]] = []
        self._arrivals: list[_Arrival] = []
        self._listened: list[tuple[int, int, Ends]] = []
        self._rings = 0
        self._handlers: list[tuple[Callable[..., None], tuple[object, ...], int] | None] = []
        self._wanted: Bool = np.zeros(0, np.bool_)

    # ------------------------------------------------------------ events

    def feed(self, chunk: EventChunk | Events, classes: Sequence[EventClass]) -> None:
        """Take note of some events, which come after those before."""
        if len(classes) > len(self._handlers):
            self._handlers = [self._find_handler(of) for of in classes]
            self._wanted = np.array([h is not None for h in self._handlers], np.bool_)
        rows = np.flatnonzero(self._wanted[chunk.event_class])
        if not len(rows):
            return
        values = chunk.values.tolist()
        columns = (chunk.timestamp[rows], chunk.event_class[rows], chunk.offset[rows])
        for time, number, at in zip(*(c.tolist() for c in columns), strict=True):
            found = self._handlers[number]
            if found is not None:
                handler, given, width = found
                handler(*given, time, values[at : at + width])

    def end_gap(self, host: int) -> None:
        """Forget which calls threads of a host are in: their ends were not recorded."""
        self._calls = {thread: call for thread, call in self._calls.items() if thread[0] != host}

    def _find_handler(
        self, of: EventClass
    ) -> tuple[Callable[..., None], tuple[object, ...], int] | None:
        """Return what takes events of a class, what it is given first, and how many fields."""
        width, host = len(of.fields), of.host
        plain: dict[Kind, Callable[..., None]] = {
            Kind.FORK: self._fork,
            Kind.EXEC: self._exec,
            Kind.EXIT: self._exit,
            Kind.STATEDUMP: self._thread,
            Kind.DESCRIPTOR_STATEDUMP: self._dump,
            Kind.SOCKET_STATE: self._state,
            Kind.SOCKET_OF: self._socket_of,
            Kind.SOCKET_SEGMENT: self._segment,
            Kind.NET_RECEIVE: self._packet,
        }
        # The fields of `CALL_EVENTS` follow those of the kind.
        start = of.fields.index("tid") if "tid" in of.fields else 0
        if of.kind in {Kind.SOCKET_STATE, Kind.SOCKET_OF, Kind.NET_RECEIVE}:
            return (plain[of.kind], (host, start), width) if start else None
        if of.kind in plain:
            return plain[of.kind], (host,), width
        prefix = next((p for p in _PREFIXES if of.name.startswith(p)), None)
        if prefix is None or "tid" not in of.fields or of.types[start] == "absent":
            return None
        name = of.name.removeprefix(prefix)
        if "exit" in prefix:
            return self._leave, (host, name, start), width
        return self._enter, (host, name, start), width

    def _find_process(self, host: int, tid: int, pid: int) -> tuple[int, int]:
        """Return the process of a thread; itself where it is not known."""
        return host, pid if pid > 0 else self._process.get((host, tid), tid)

    def _thread(self, host: int, time: int, v: list[int]) -> None:
        del time
        self._process[host, v[0]] = v[1]

    def _fork(self, host: int, time: int, v: list[int]) -> None:
        parent, child = v[1], v[3]
        self._process[host, v[2]] = child
        if child > 0 and child != parent:
            # Of a process of this number before, the end was lost.
            self._drop(time, host, v[2], (host, child))
            self._tables.share((host, parent), (host, child))

    def _exec(self, host: int, time: int, v: list[int]) -> None:
        """Forget descriptors: which of them are closed on exec, nobody tells."""
        process = self._find_process(host, v[0], 0)
        kept = {fd: of for fd in range(_STANDARD + 1) if (of := self._tables.get(process, fd))}
        for of in kept.values():
            of.names += 1
        self._drop(time, host, v[0], process)
        if kept:
            self._tables.change(process).update(kept)

    def _exit(self, host: int, time: int, v: list[int]) -> None:
        tid = v[0]
        self._calls.pop((host, tid), None)
        self._begun.pop((host, tid), None)
        if self._process.get((host, tid), tid) == tid:
            self._drop(time, host, tid, (host, tid))

    def _drop(self, time: int, host: int, tid: int, process: tuple[int, int]) -> None:
        """End all names of a process."""
        for of in self._tables.drop(process).values():
            self._release(time, host, tid, of)

    # ------------------------------------------------------------ descriptors

    def _make(self, host: int, time: int, family: int = 0) -> Opened:
        of = Opened(host, time, family)
        self._all.append(of)
        return of

    def _name(self, time: int, tid: int, process: tuple[int, int], fd: int, of: Opened) -> None:
        """Let a descriptor name this; what it named before, it names no longer."""
        before = self._tables.get(process, fd)
        if before is not of:
            of.names += 1
            self._tables.change(process)[fd] = of
            if before is not None:
                self._release(time, process[0], tid, before)

    def _close(self, time: int, tid: int, process: tuple[int, int], fd: int) -> None:
        if self._tables.get(process, fd) is not None:
            self._release(time, process[0], tid, self._tables.change(process).pop(fd))

    def _release(self, time: int, host: int, tid: int, of: Opened) -> None:
        of.names -= 1
        if of.names <= 0 and of.closed < 0:
            of.closed = time
            self._put(time, Act.CLOSE, tid, host, of, 0)

    def _put(self, time: int, act: Act, tid: int, host: int, of: Opened, value: int) -> None:
        self._rows.append((time, act, tid, host, of, value))

    def _dump(self, host: int, time: int, v: list[int]) -> None:
        """Take note of a descriptor from before the recording, or one that is there at its end."""
        pid, fd, inode, tid = v[:4]
        process = host, pid
        of = self._tables.get(process, fd)
        known = self._by_inode.get((host, inode))
        if of is None:
            if known is None or known.closed >= 0:
                known = self._make(host, time)
                known.inode = inode
                self._by_inode[host, inode] = known
            self._name(time, pid, process, fd, known)
        elif not of.inode:
            of.inode = inode
            self._by_inode.setdefault((host, inode), of)
        if tid > 0 and (host, tid) not in self._calls:
            self._begun[host, tid] = process, fd

    # ------------------------------------------------------------ system calls

    def _enter(self, host: int, name: str, start: int, time: int, v: list[int]) -> None:
        v = v[start:]
        tid, fd = v[_TID], v[_FD]
        key = host, tid
        process = self._find_process(host, tid, v[_PID])
        if name == "io_uring_enter":
            self._rings += 1
            return
        if name == "close":
            # Another thread may be given the number before this call ends.
            self._close(time, tid, process, fd)
            return
        of = self._tables.get(process, fd)
        does = _MOVES.get(name, Does(0))
        if of is None and (does & _SOCKETS or name in _ACCEPTS or name == "connect"):
            of = self._make(host, time)
            self._name(time, tid, process, fd, of)
        call = _Call(name, time, of, process, fd, does, None, v[_SECOND], v[_FLAGS])
        if name == "connect" and of is not None:
            of.family = of.family or v[_FAMILY]
            if v[_PORT]:
                of.remote = (0, 0, v[_PORT])
        elif name == "socket":
            call.flags = v[_FAMILY]
        elif name == "splice":
            call.of, call.second = self._tables.get(process, call.number), of
            call.fd = call.number
        self._calls[key] = call

    def _leave(self, host: int, name: str, start: int, time: int, v: list[int]) -> None:
        v = v[start:]
        tid, ret = v[_TID], v[_RET]
        call = self._calls.pop((host, tid), None)
        begun = self._begun.pop((host, tid), None)
        if call is None or call.name != name:
            process, fd = begun or (self._find_process(host, tid, v[_PID]), NONE)
            known = self._tables.get(process, fd)
            call = _Call(name, time, known, process, fd, _MOVES.get(name, Does(0)))
            if name not in _ACCEPTS and not call.does & _RECEIVES:
                return
        of = call.of
        if call.does:
            self._finish_move(time, tid, call, ret)
        elif name in _ACCEPTS and ret >= 0:
            self._accept(time, tid, call.process, of, v)
        elif name == "connect" and of is not None and ret in {0, _IN_PROGRESS}:
            of.opening = 2
            self._put(call.time, Act.OPEN, tid, host, of, 2)
        elif name == "socket" and ret >= 0:
            made = self._make(host, time, family=call.flags)
            if made.family in {_INET, INET6}:
                made.protocol = {_STREAM: _TCP, _DATAGRAM: UDP}.get(call.number & _KINDS, NONE)
            self._name(time, tid, call.process, ret, made)
        elif name.startswith("dup") or (name == "fcntl" and call.number in _DUPLICATES):
            self._duplicate(time, tid, call, ret)

    def _duplicate(self, time: int, tid: int, call: _Call, ret: int) -> None:
        """Let another descriptor name what is called; what it named before, it names no longer."""
        if ret >= 0 and call.of is not None:
            self._name(time, tid, call.process, ret, call.of)
        elif ret >= 0:
            self._close(time, tid, call.process, ret)

    def _accept(
        self, time: int, tid: int, process: tuple[int, int], by: Opened | None, v: list[int]
    ) -> None:
        """Begin the endpoint that was accepted."""
        family = v[_PEER_FAMILY]
        if by is not None:
            by.listens = True
            family = by.family or family
            by.family = family
        made = self._make(process[0], time, family)
        made.opening, made.listener = 1, by
        made.remote = (0, 0, v[_PEER_PORT])
        self._name(time, tid, process, v[_RET], made)
        self._put(time, Act.OPEN, tid, process[0], made, 1)

    def _finish_move(self, time: int, tid: int, call: _Call, ret: int) -> None:
        """Take note of what a call that ends here received or sent."""
        of = call.of
        several = call.name in _SEVERAL
        for local, remote, size in call.packets if ret > 0 and not several else ():
            # Of what this thread sends, not of what came meanwhile.
            if size == ret or size >= _UNSEGMENTED <= ret:
                if of is None:
                    of = call.of = self._make(call.process[0], call.time)
                    self._name(call.time, tid, call.process, call.fd, of)
                of.name(local, remote)
                break
        if of is not None and several:
            # How many messages they were is told, not how many bytes.
            for _ in range(min(ret, _MOST_MESSAGES)):
                self._move(time, tid, call, of, NONE)
        elif of is not None and ret >= 0:
            self._move(time, tid, call, of, ret)
        if call.second is not None and ret > 0:
            self._receive(time, tid, call.second, ret)

    def _move(self, time: int, tid: int, call: _Call, of: Opened, count: int) -> None:
        if call.does & _SENDS:
            if count:
                of.moved, of.first = True, of.first or 2
                self._put(time, Act.SEND, tid, of.host, of, max(count, 0))
        elif not (call.does & _SOCKETS and call.flags & _PEEK):
            self._receive(time, tid, of, count)

    def _receive(self, time: int, tid: int, of: Opened, count: int) -> None:
        of.moved, of.first = True, of.first or int(count != 0)
        self._put(time, Act.RECEIVE if count else Act.FINISH, tid, of.host, of, max(count, 0))

    # ------------------------------------------------------------ sockets and packets

    def _state(self, host: int, start: int, time: int, v: list[int]) -> None:
        del time
        if v[12] == LISTEN:
            self._listened.append((host, v[3], (*take_address(v[3], v[4], v[6], v[7]), v[1])))
        elif v[12] == _ESTABLISHED:
            call = self._calls.get((host, v[start]))
            if call is not None and call.name == "connect":
                self._name_connecting(call, *read_ends(v[1:10]))

    def _socket_of(self, host: int, start: int, time: int, v: list[int]) -> None:
        """Who received, received from the socket with these ends."""
        tid = v[start]
        call = self._calls.get((host, tid))
        if call is None or not call.does & _RECEIVES:
            return
        if call.of is None:
            call.of = self._make(host, time)
            self._name(time, tid, call.process, call.fd, call.of)
        call.of.family = call.of.family or v[3]
        call.of.name(*read_ends(v[1:10]))

    def _segment(self, host: int, time: int, v: list[int]) -> None:
        if v[9] > 0:
            local, remote = read_ends(v[:9])
            self._arrivals.append(_Arrival(time, self._sender(host, v[10]), host, local, remote))

    def _packet(self, host: int, start: int, time: int, v: list[int]) -> None:
        """Note a packet that came to this machine, from itself or another."""
        _, length, near, sport, far, dport, _, _, flags = v[:9]
        tid, _, header, offset = v[start : start + 4]
        if not sport or not dport or not offset:
            return
        source, target = (0, near & 0xFFFFFFFF, sport), (0, far & 0xFFFFFFFF, dport)
        size = length - 4 * (header or 10) - 4 * offset
        call = self._calls.get((host, tid))
        if call is not None and call.does & _SENDS:
            call.packets.append((source, target, size))
        elif flags & _SYN_ACK == _SYN and call is not None and call.name == "connect":
            self._name_connecting(call, source, target)
        if size > 0:
            self._arrivals.append(_Arrival(time, self._sender(host, tid), host, target, source))

    def _name_connecting(self, call: _Call, local: Ends, remote: Ends) -> None:
        if call.of is not None and call.of.protocol in {0, _TCP}:
            call.of.name(local, remote)

    def _sender(self, host: int, tid: int) -> int:
        """Return who sends what arrives while this thread has the cpu; -1 for who does not."""
        call = self._calls.get((host, tid))
        return tid if call is not None and (call.does & _SENDS or call.name == "connect") else NONE

    # ------------------------------------------------------------ what was found

    def finish(self, dumped: Sequence[Dumped]) -> CallRows:
        """Return the rows; `dumped` are the sockets that were written down."""
        sockets = {(of.host, of.inode): of for of in dumped}
        self._complete(sockets)
        arrivals = list(self._join_arrivals())
        if not self._arrivals:
            # Of those that were there before, what is read first is no rest of something.
            arrivals += [
                (of.opened, Act.OPEN, NONE, of.host, of, 0)
                for of in self._all
                if of.inode and not of.opening
            ]
        paths = {}
        endpoints = [of for of in self._all if of.moved or of.opening or of.listens]
        for row, of in enumerate(endpoints):
            of.row = row
            found = sockets.get((of.host, of.inode)) if of.inode else None
            if found is None and of.listener is not None:
                found = sockets.get((of.host, of.listener.inode))
            if found is not None and found.path:
                paths[row] = found.path
        stream = {row for row, of in enumerate(endpoints) if of.protocol != UDP}
        moves = {Act.RECEIVE, Act.SEND, Act.ARRIVAL}
        rows = [
            (time, act, tid, host, of.row, value)
            for time, act, tid, host, of, value in (*self._rows, *arrivals)
            if of.row >= 0 and not of.listens and (act in moves or of.row in stream)
        ]
        unknown = sum(1 for _, act, *_, of, _ in self._rows if act in moves and not of.family)
        made = np.array(rows, np.int64).reshape(-1, 6)
        return CallRows(
            made[np.argsort(made[:, 0], kind="stable")],
            np.array([*map(_describe, endpoints), *self._describe_listened()], np.int64).reshape(
                -1, len(EndpointColumn)
            ),
            paths,
            unknown,
            self._rings,
        )

    def _complete(self, sockets: Mapping[tuple[int, int], Dumped]) -> None:
        """Say of everything what was written down of it, and what follows."""
        for of in self._all:
            found = sockets.get((of.host, of.inode)) if of.inode else None
            if found is not None:
                of.family, of.protocol = found.family, 0 if found.family == UNIX else found.protocol
                of.listens |= found.state == LISTEN and found.protocol != UDP
                if found.local[2]:
                    of.local = found.local
                of.name(found.local, found.remote)
        for of in self._all:
            if of.opening:
                # What is accepted or connects is a socket, of the internet where nothing else
                # is said.
                of.family = of.family or (of.listener.family if of.listener else 0) or _INET
            if of.opening == 1:
                of.protocol = 0 if of.family == UNIX else _TCP

    def _join_arrivals(self) -> Iterator[tuple[int, int, int, int, Opened, int]]:
        """Yield arrivals at sockets whose ends are known; these learn addresses from them."""
        by_ports: dict[tuple[int, int, int], deque[Opened]] = defaultdict(deque)
        for of in self._all:
            listener = of.listener
            if not of.local[2] and listener is not None:
                of.local = (0, 0, listener.local[2])
            if of.local[2] and of.remote[2] and of.protocol != UDP:
                by_ports[of.host, of.local[2], of.remote[2]].append(of)
        for each in self._arrivals:
            lives = by_ports.get((each.host, each.local[2], each.remote[2]), _NO_LIVES)
            while lives and 0 <= lives[0].closed < each.time:
                lives.popleft()  # of the same ports there may be thousands, one after another
            for of in lives:
                if 0 <= of.closed < each.time or not _agree(of, each):
                    continue
                of.name(each.local, each.remote)
                yield each.time, Act.ARRIVAL, each.tid, each.host, of, 0
                break

    def _describe_listened(self) -> Iterator[list[int]]:
        """Yield a row for each socket that began to listen."""
        for host, family, ends in self._listened:
            yield _describe(Opened(host, 0, family, _TCP, local=ends, listens=True))


def _agree(of: Opened, arrival: _Arrival) -> bool:
    """Return whether what arrived is for this socket, as far as addresses are known."""
    return all(
        mine[:2] == its[:2] or not any(mine[:2]) or not any(its[:2])
        for mine, its in ((of.local, arrival.local), (of.remote, arrival.remote))
    )


def _describe(of: Opened) -> list[int]:
    """Return a row of `EndpointColumn`."""
    return [
        *(max(of.inode, 0), of.host, of.family, of.protocol, *of.local, *of.remote),
        *(of.opened, of.closed, of.opening, of.first, NONE, 0, of.known, of.listens),
    ]
