"""What received messages are called, from their first bytes: only where it is asked for.

The bytes of a receive are in the receiver's memory when the kernel's tracepoint of it is
passed, and no event has them; a program for that tracepoint (bpf) looks at them, hands over
what begins like a request, and is gone with the process that holds it.  What it hands over
is labelled at once: the bytes are in memory only, what is written are labels.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import platform
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

from critpath.errors import CritpathError
from critpath.units import plural
from critpath_record import bpf
from critpath_record._pulse import name_thread
from critpath_record.ftrace import frames
from critpath_record.messages import (
    AMQP,
    BASIC,
    COMMAND,
    HEADERS,
    LABEL,
    METHODS,
    NATS,
    WINDOW,
    MessageLabels,
    find_trace_id,
)
from critpath_record.source import Source, Taken

# A row of the file: when (ns), the socket's address in the kernel, who received, how many
# bytes, trace id (zeros: none); a stream of HTTP/2, flags and bytes of its frames; label.
ROW: Final = struct.Struct(f"<QQII16sIII{LABEL}s")

if TYPE_CHECKING:
    from critpath_record.ftrace.decrypted import Decrypted

_HEAD: Final = struct.Struct("<IIQQII")  # the ring's own header; when, socket, thread, bytes
_OWN: Final = 8  # of the ring
_FACTS: Final = 24  # before the bytes
_RING: Final = 1 << 23  # bytes; headers need more
_RING_OF_HEADERS: Final = 1 << 25
_BUSY, _DISCARDED = 1 << 31, 1 << 30
_PAUSE: Final = 0.2  # s between looks; the ring holds as much of 400,000 messages a second
_PROBE: Final = b"GET /critpath/asks/%s HTTP/1.1\r\n"  # whether bytes can be read
NO_SOCKETS: Final = (
    "labels from bytes are of requests, and nothing here records their sockets",
    "add --profile requests (Linux 6.3 and later), or leave --labels-from out",
)
_WITHOUT: Final = "record without --labels-from; services and what they ask are found all the same"


class ReceivedLabels(Source):
    """Labels what is received anywhere on the machine, into a file.

    `file`: rows of `ROW`, in order of time.  `headers`: whether to look through a request's headers
    and a statement's comments for a traceparent.
    """

    name: ClassVar[str] = "labels"

    def __init__(self, file: Path, *, headers: bool, decrypted: Decrypted | None = None) -> None:
        self._headers = headers
        self._decrypted = decrypted
        self._lost = 0
        self._labels, self._streams = MessageLabels(), frames.Streams()
        self._last = 0
        self.count = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        with contextlib.ExitStack() as opened:
            if decrypted is not None:
                opened.enter_context(decrypted)
            self._probe = opened.enter_context(open_probe(headers=headers))
            self._framed = opened.enter_context(_load_frames())
            for tracepoint in frames.TRACEPOINTS:
                self._framed.attach(tracepoint)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.fdopen(os.open(file, flags, 0o600), "wb")
            opened.callback(self._file.close)
            self._closing = opened.pop_all()

    def open(self) -> int:
        """Label from now on."""
        self._thread = threading.Thread(target=self._run, name="labels", daemon=True)
        self._thread.start()
        return time.monotonic_ns()

    def _run(self) -> None:
        name_thread(b"critpath-labels")
        while not self._stopping.wait(_PAUSE):
            try:
                self._label()
            except OSError:  # the drain says that the disk is full
                return

    def _label(self) -> None:
        rows = []
        for probe, framed, session in self._list_probes():
            rows += self._streams.tell(framed.take(), headers=self._headers, session=session)
            for when, sock, tid, size, read in probe.take():
                data = read[:size]
                label = self._labels.label(sock, data[:WINDOW])
                trace = find_trace_id(data) if len(data) > WINDOW else bytes(16)
                if label or any(trace):
                    rows.append((when, sock, tid, size, trace, 0, session, 0, label))
        rows.sort(key=lambda row: row[0])
        for when, *facts, label in rows:
            # Of two processors the later may come first.
            self._last = max(self._last, when)
            self._file.write(ROW.pack(self._last, *facts, label.encode()))
        self.count += len(rows)

    def _list_probes(self) -> Iterator[tuple[Probe, Probe, int]]:
        """Yield what hands messages over and what frames, and what rows of these are."""
        yield self._probe, self._framed, 0
        if self._decrypted is not None:
            yield self._decrypted.labels, self._decrypted.frames, frames.SESSION

    def close(self) -> int:
        """End, and label what is left."""
        self._end_thread()
        with self._closing:
            for source in (self._probe, self._framed, self._decrypted):
                if source is not None:
                    source.detach()
            with contextlib.suppress(OSError):
                self._label()
            self._lost = sum(a.lost() + b.lost() for a, b, _ in self._list_probes())
        return time.monotonic_ns()

    def drain(self, report: Callable[[str], None]) -> Taken:
        """Return what there is to say: the file is whole by now."""
        del report
        window = HEADERS if self._headers else WINDOW
        facts = {"count": self.count, "lost": self._lost}
        facts |= {"bytes": WINDOW, "looked_through": window}
        if self._decrypted is not None:
            facts["libraries"] = self._decrypted.libraries
        said = f"{plural(self._lost, 'message')} came too fast to be labelled"
        return Taken(facts=facts, warnings=(said,) if self._lost else ())

    def _end_thread(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def abort(self) -> None:
        """End without looking at what is left."""
        self._end_thread()
        with contextlib.suppress(OSError):
            self._closing.close()


def read_labels(file: Path) -> Iterator[frames.Row]:
    """Yield the rows of a file; what a killed recorder did not write whole is left out."""
    try:
        with file.open("rb") as stream:
            while len(block := stream.read(ROW.size * 4096)) >= ROW.size:
                whole = memoryview(block)[: len(block) - len(block) % ROW.size]
                for *facts, label in ROW.iter_unpack(whole):
                    yield (*facts, label.rstrip(b"\0").decode("utf-8", "replace"))
    except FileNotFoundError:
        return


# The program: instructions of bpf, put together here


_TRACEPOINT: Final = b"sock_recv_length"
_PEEK: Final = 2  # MSG_PEEK
# Of struct pt_regs: the system call's second argument and its number.
_SECOND, _NUMBER = 104, 120
_READ, _READV, _RECVFROM, _RECVMSG = 0, 19, 45, 47
_IOV: Final = 16  # of struct msghdr


_NAMED: Final = 16  # bytes of what comes from a broker that are looked at
_DATA: Final = -WINDOW  # on the stack, behind what is said of it
_RECORD: Final = _DATA - _FACTS


def assemble(
    ring: int, lost: int, *, headers: bool, find: Callable[[bpf.Assembler], None] | None = None
) -> bytes:
    """Return the program; registers: 6 what is of the socket, 7 bytes, 8 where, 9 the record."""
    a = bpf.Assembler()
    (find or _find_received)(a)
    _load_window(a)
    _choose_requests(a)
    _hand_over(a, ring, lost, headers=headers)
    return a.bytes()


def _find_received(a: bpf.Assembler) -> None:
    """Find what was received: arguments are (socket, bytes, flags)."""
    a.copy(6, 1)
    a.put(bpf.LOAD64, 7, 6, 8)
    a.put(0x67, 7, value=32)
    a.put(0xC7, 7, value=32)
    a.jump_if(7, 0, "out", code=bpf.AT_MOST_SIGNED)
    a.put(bpf.LOAD64, 1, 6, 16)
    a.put(0x57, 1, value=_PEEK)
    a.jump_if(1, 0, "out", code=bpf.NOT_EQUAL)
    a.call(bpf.CURRENT)
    a.copy(1, 0)
    a.call(bpf.REGISTERS)
    a.put(bpf.LOAD64, 8, 0, _SECOND)
    a.put(bpf.LOAD64, 1, 0, _NUMBER)
    for number in (_READ, _RECVFROM):
        a.jump_if(1, number, "there")
    a.jump_if(1, _READV, "vector")
    a.jump_if(1, _RECVMSG, "out", code=bpf.NOT_EQUAL)
    _read_user(a, -8, 8, _IOV)
    a.put(bpf.LOAD64, 8, 10, -8)
    a.name("vector")
    _read_user(a, -16, 16, 0)
    a.put(bpf.LOAD64, 8, 10, -16)
    a.put(bpf.LOAD64, 1, 10, -8)
    a.put(0xBD, 7, 1, "there")  # no more than the first part has room for
    a.copy(7, 1)
    a.name("there")


def _read_user(a: bpf.Assembler, to: int, size: int, offset: int) -> None:
    """Read so many bytes of the receiver's memory, from register 8 on, to the stack."""
    a.copy(1, 10)
    a.add(1, to)
    a.set(2, size)
    a.copy(3, 8)
    a.add(3, offset)
    a.call(bpf.READ_USER)
    a.jump_if(0, 0, "out", code=bpf.NOT_EQUAL)


def _load_window(a: bpf.Assembler) -> None:
    """Read the first bytes to the stack, with zeros behind them."""
    a.set(1, 0)
    for at in range(_RECORD, 0, 8):
        a.put(bpf.STORE64, 10, 1, at)
    a.copy(2, 7)
    a.jump_if(2, WINDOW, "short", code=bpf.AT_MOST)
    a.set(2, WINDOW)
    a.name("short")
    a.copy(1, 10)
    a.add(1, _DATA)
    a.copy(3, 8)
    a.call(bpf.READ_USER)
    a.jump_if(0, 0, "out", code=bpf.NOT_EQUAL)


def _choose_requests(a: bpf.Assembler) -> None:
    """Go on for what begins like a request, and end for all else; of a command keep its name."""
    a.put(bpf.LOAD32, 1, 10, _DATA)
    for word in {(method + b" ")[:4] for method in METHODS}:
        a.jump_if(1, int.from_bytes(word, "little"), "far", code=bpf.EQUAL32)
    for word in NATS:
        a.jump_if(1, int.from_bytes(word, "little"), "name", code=bpf.EQUAL32)
    for at, register in enumerate((1, 2, 3, 4, 5)):
        a.put(bpf.LOAD8, register, 10, _DATA + at)
    a.jump_if(1, ord("*"), "command")
    a.jump_if(1, 1, "amqp")
    a.jump_if(2, 0, "mysql", code=bpf.NOT_EQUAL)
    for kind in "QP":  # PostgreSQL's query, parse, bind; shorter than 16 MB
        a.jump_if(1, ord(kind), "far")
    a.jump_if(1, ord("B"), "small")
    a.name("mysql")
    a.jump_if(3, 0, "out", code=bpf.NOT_EQUAL)
    a.jump_if(4, 0, "startup", code=bpf.NOT_EQUAL)
    a.jump_if(5, 3, "far")
    a.jump("out")
    # With PostgreSQL's first message a connection begins: what was prepared before is gone.
    a.name("startup")
    for register in (1, 2, 5):
        a.jump_if(register, 0, "out", code=bpf.NOT_EQUAL)
    a.put(bpf.LOAD8, 1, 10, _DATA + 5)
    a.jump_if(1, 3, "small")
    a.jump("out")
    # A method of AMQP is named from byte 7 on: its class, and the method.
    a.name("amqp")
    a.put(bpf.LOAD8, 1, 10, _DATA + 8)
    a.jump_if(1, BASIC, "out", code=bpf.NOT_EQUAL)
    a.put(bpf.LOAD8, 1, 10, _DATA + 10)
    for method in AMQP:
        a.jump_if(1, method, "name")
    a.jump("out")
    a.name("command")
    a.jump_if(2, ord("1"), "out", code=bpf.LESS)
    a.jump_if(2, ord("9"), "out", code=bpf.MORE)
    a.jump("command's")
    a.name("name")
    a.set(1, 0)
    for at in range(_DATA + _NAMED, _DATA + COMMAND, 8):
        a.put(bpf.STORE64, 10, 1, at)
    a.name("command's")
    a.set(1, 0)
    for at in range(_DATA + COMMAND, 0, 8):
        a.put(bpf.STORE64, 10, 1, at)
    a.jump("small")


def _hand_over(a: bpf.Assembler, ring: int, lost: int, *, headers: bool) -> None:
    a.name("far")
    if headers:
        a.jump_if(7, WINDOW, "small", code=bpf.AT_MOST)
        a.map(1, ring)
        a.set(2, _FACTS + HEADERS)
        a.set(3, 0)
        a.call(bpf.RESERVE)
        a.jump_if(0, 0, "lost")
        a.copy(9, 0)
        _tell_facts(a, 9, 0)
        a.copy(2, 7)
        a.jump_if(2, HEADERS, "whole", code=bpf.AT_MOST)
        a.set(2, HEADERS)
        a.name("whole")
        a.copy(1, 9)
        a.add(1, _FACTS)
        a.copy(3, 8)
        a.call(bpf.READ_USER)
        a.copy(1, 9)
        a.set(2, bpf.NO_WAKEUP)
        a.call(bpf.SUBMIT)
        a.jump("out")
    a.name("small")
    _tell_facts(a, 10, _RECORD)
    a.map(1, ring)
    a.copy(2, 10)
    a.add(2, _RECORD)
    a.set(3, _FACTS + WINDOW)
    a.set(4, bpf.NO_WAKEUP)
    a.call(bpf.OUTPUT)
    a.jump_if(0, 0, "out")
    a.name("lost")
    bpf.count_loss(a, lost)


def _tell_facts(a: bpf.Assembler, base: int, offset: int) -> None:
    """Write when, which socket, which thread and how many bytes."""
    a.call(bpf.NOW)
    a.put(bpf.STORE64, base, 0, offset)
    a.put(bpf.LOAD64, 1, 6, 0)
    a.put(bpf.STORE64, base, 1, offset + 8)
    a.call(bpf.PID_TGID)
    a.put(bpf.STORE32, base, 0, offset + 16)
    a.put(bpf.STORE32, base, 7, offset + 20)


# Loading it, and taking what it hands over


@dataclass
class Probe:
    """The program in the kernel: gone when its descriptors are closed."""

    lost_map: int
    program: int
    size: int
    taken: mmap.mmap
    given: mmap.mmap
    closing: contextlib.ExitStack
    refused: tuple[str, str]
    links: list[int] = field(default_factory=list)

    @staticmethod
    def make(
        size: int,
        assemble: Callable[[int, int], bytes],
        name: bytes,
        what: str,
        do: str,
        kind: int = bpf.RAW_TRACEPOINT,
    ) -> Probe:
        """Load what is assembled for a ring and a count of what is lost; raises CritpathError."""
        with contextlib.ExitStack() as opened:
            try:
                ring = bpf.make_ring(size)
                opened.callback(os.close, ring)
                lost = bpf.make_array(8)
                opened.callback(os.close, lost)
                program = bpf.load(assemble(ring, lost), name, kind=kind)
                opened.callback(os.close, program)
            except OSError as error:
                raise _refusal(error, what, do) from None
            page = mmap.PAGESIZE
            taken = opened.enter_context(mmap.mmap(ring, page))
            given = opened.enter_context(
                mmap.mmap(ring, page + 2 * size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
            )
            return Probe(lost, program, size, taken, given, opened.pop_all(), (what, do))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()
        self.closing.close()

    def attach(self, tracepoint: bytes) -> None:
        """Run it at every hit of a tracepoint from now on."""
        try:
            self.links.append(bpf.attach(tracepoint, self.program))
        except OSError as error:
            raise _refusal(error, *self.refused) from None

    def detach(self) -> None:
        """Run it no more; idempotent."""
        while self.links:
            os.close(self.links.pop())

    def take(self) -> Iterator[tuple[int, int, int, int, bytes]]:
        """Yield what it handed over: when, socket, thread, bytes received, the first of them."""
        page, at = mmap.PAGESIZE, int.from_bytes(self.taken[:8], "little")
        end = int.from_bytes(self.given[:8], "little")
        try:
            while at < end:
                place = page + at % self.size
                head, _, when, sock, tid, received = _HEAD.unpack_from(self.given, place)
                if head & _BUSY:
                    break
                size = head & (_DISCARDED - 1)
                first = place + _HEAD.size
                at += (_OWN + size + 7) & ~7
                if not head & _DISCARDED:
                    yield when, sock, tid, received, self.given[first : place + _OWN + size]
        finally:
            self.taken[:8] = at.to_bytes(8, "little")

    def lost(self) -> int:
        """Return how many messages found no room."""
        return int.from_bytes(bpf.read_element(self.lost_map, 8), "little")


def _refusal(error: OSError, what: str, do: str) -> CritpathError:
    name = errno.errorcode.get(error.errno or 0, "")
    return CritpathError(f"the kernel refuses {what} ({name}: {error.strerror})", do)


def open_probe(*, headers: bool) -> Probe:
    """Return the program at work; raises CritpathError where it does not see what is received."""
    with contextlib.ExitStack() as opened:
        probe = opened.enter_context(_load(headers=headers))
        probe.attach(_TRACEPOINT)
        _check(probe)
        opened.pop_all()
    return probe


def _check(probe: Probe) -> None:
    """Receive something and see whether it is read; what came before is forgotten."""
    # Its own thread's number it does not know where pids are not the kernel's (a container).
    words = _PROBE % os.urandom(8).hex().encode()
    sender, receiver = socket.socketpair()
    with sender, receiver:
        for receive in (receiver.recv, lambda most: os.read(receiver.fileno(), most)):
            sender.sendall(words)
            receive(len(words))
            found = [(size, data[: len(words)]) for _, _, _, size, data in probe.take()]
            if (len(words), words) not in found:
                raise CritpathError(
                    "this kernel's program for received bytes does not see what was received",
                    _WITHOUT,
                )


def _load(*, headers: bool) -> Probe:
    """Load the program that reads received bytes; raises CritpathError."""
    if platform.machine() != "x86_64":
        raise CritpathError(
            f"labels from bytes are read on x86-64 only, this is {platform.machine()}", _WITHOUT
        )
    return Probe.make(
        _RING_OF_HEADERS if headers else _RING,
        partial(assemble, headers=headers),
        b"critpath_labels",
        "the program that reads received bytes",
        _WITHOUT,
    )


def _load_frames() -> Probe:
    """Load the program that follows frames of HTTP/2; raises CritpathError."""
    with contextlib.ExitStack() as opened:

        def assemble_frames(ring: int, lost: int) -> bytes:
            states = frames.make_states()
            opened.callback(os.close, states)  # the program holds it
            return frames.assemble(ring, lost, states=states)

        name, what = b"critpath_frames", "the program that follows frames of HTTP/2"
        return Probe.make(_RING, assemble_frames, name, what, _WITHOUT)
