"""Frames of HTTP/2 in what is sent and received: of each its head, of headers their block.

A program of the kernel (bpf) at the tracepoints of sends and receives follows each direction of a
connection from frame to frame: it remembers how much of one is still to come.  A connection is
known by its first bytes; an older one by a message that has whole frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from critpath_record import bpf
from critpath_record.hpack import Headers

Handed = tuple[int, int, int, int, bytes]  # when, socket, thread, bytes, what was handed over
# When, socket, thread, bytes, trace id; stream with its frames' flags and bytes; label.
Row = tuple[int, int, int, int, bytes, int, int, int, str]

# Bits of a row's flags, and types of frames that are told of.
SENT, HEADERS, END, RESET = 1, 2, 4, 8
SESSION: Final = 16  # of a session of TLS: what has the place of the socket is no socket
_DATA, _HEADERS, _RESET = 0, 1, 3
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY = 1, 4, 8, 32

TRACEPOINTS: Final = b"sock_recv_length", b"sock_send_length"
_CALLS: Final = ((0, 45, 1, 44), (19, 20), (47, 46))  # plain, of a vector, of a message
_SENDS: Final = (1, 20, 44, 46)
_PEEK: Final = 2
_SECOND, _NUMBER = 104, 120  # of struct pt_regs
_IOV: Final = 16  # of struct msghdr; the count is behind it
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD: Final = 9
_MOST_TYPE: Final = 16  # of frames
_CONNECTIONS: Final = 1 << 15  # directions that are followed; the longest unused is forgotten
_STEPS: Final = 300  # technical: vectors and frames of one message that are gone through
BLOCK: Final = 320  # bytes of headers that are looked at
FACTS: Final = 40  # when, socket, thread, bytes; the frame's head
_STATE: Final = 32  # what is left of a frame, how much of a head is known, that
_PART: Final = 8

# On the stack.
_KEY, _NEXT, _COUNT, _LEFT, _VECTOR = -8, -16, -24, -32, -48
_TAKEN, _OTHER, _START = -56, -64, -96
_RECORD: Final = -96 - FACTS - BLOCK

_AT_MOST_OTHER, _ADD, _SUBTRACT, _OR, _OR_REGISTER = 0xBD, 0x0F, 0x1F, 0x47, 0x4F
_STORE8: Final = 0x73


def make_states() -> int:
    """Make the map of what is known of each direction; raises OSError."""
    return bpf.make_map(bpf.NEWEST, 8, _STATE, _CONNECTIONS)


def assemble(
    ring: int, lost: int, *, states: int, find: Callable[[bpf.Assembler], None] | None = None
) -> bytes:
    """Return the program: arguments are (socket, bytes, flags), unless `find` finds the bytes.

    Registers: 6 where the bytes are, 7 how many of this part, 8 steps, 9 the direction's state.
    """
    a = bpf.Assembler()
    (find or _find_bytes)(a)
    _find_state(a, states)
    a.set(8, 0)
    a.name("step")
    a.add(8, 1)
    a.jump_if(8, _STEPS, "astray", code=bpf.MORE)
    # Through memory: what is known of it by the way here makes more to check than is allowed.
    a.put(bpf.STORE64, 10, 7, _TAKEN)
    a.put(bpf.LOAD32, 7, 10, _TAKEN)
    a.jump_if(7, 0, "bytes", code=bpf.NOT_EQUAL)
    a.put(bpf.LOAD64, 1, 10, _LEFT)
    a.jump_if(1, 0, "out")
    _take_vector(a)
    a.jump("step")
    a.name("bytes")
    a.put(bpf.LOAD32, 1, 9, 0)
    a.jump_if(1, 0, "head")
    a.copy(2, 1)
    a.put(_AT_MOST_OTHER, 2, 7, 1)
    a.copy(2, 7)
    a.put(_ADD, 6, 2)
    a.put(_SUBTRACT, 7, 2)
    a.put(_SUBTRACT, 1, 2)
    a.put(bpf.STORE32, 9, 1, 0)
    a.jump("step")
    a.name("head")
    _take_head(a)
    _hand_over(a, ring)
    a.jump("step")
    a.name("astray")
    _use_key(a, states, bpf.DELETE)
    a.jump("out")
    # What follows in this message was not gone through.
    a.name("lost")
    _use_key(a, states, bpf.DELETE)
    bpf.count_loss(a, lost)
    return a.bytes()


def _find_bytes(a: bpf.Assembler) -> None:
    """Take the arguments, and find the first part of what was sent or received."""
    a.copy(6, 1)
    a.put(bpf.LOAD64, 7, 6, 8)
    a.put(0x67, 7, value=32)
    a.put(0xC7, 7, value=32)
    a.jump_if(7, 0, "out", code=bpf.AT_MOST_SIGNED)
    a.put(bpf.LOAD64, 1, 6, 16)
    a.mask(1, _PEEK)
    a.jump_if(1, 0, "out", code=bpf.NOT_EQUAL)
    clear_stack(a)
    a.put(bpf.LOAD64, 1, 6, 0)
    a.put(bpf.STORE64, 10, 1, _KEY)
    a.put(bpf.STORE64, 10, 1, _RECORD + 8)
    a.put(bpf.STORE64, 10, 7, _LEFT)
    a.put(bpf.STORE32, 10, 7, _RECORD + 20)
    a.call(bpf.CURRENT)
    a.copy(1, 0)
    a.call(bpf.REGISTERS)
    a.put(bpf.LOAD64, 8, 0, _SECOND)
    a.put(bpf.LOAD64, 9, 0, _NUMBER)
    for number in _SENDS:
        a.jump_if(9, number, "sent")
    a.jump("way")
    a.name("sent")
    a.put(bpf.LOAD64, 1, 10, _KEY)
    a.put(_OR, 1, value=1)  # addresses are even
    a.put(bpf.STORE64, 10, 1, _KEY)
    a.name("way")
    for number in _CALLS[0]:
        a.jump_if(9, number, "plain")
    for number in _CALLS[1]:
        a.jump_if(9, number, "vector")
    for number in _CALLS[2]:
        a.jump_if(9, number, "message")
    a.jump("out")
    a.name("message")
    _read_user(a, _VECTOR, 16, 8, _IOV)
    a.put(bpf.LOAD64, 8, 10, _VECTOR)
    a.put(bpf.LOAD64, 1, 10, _VECTOR + 8)
    a.put(bpf.STORE64, 10, 1, _COUNT)
    a.jump("vectors")
    a.name("vector")
    # Bytes end it: how many parts there are is not looked up.
    a.put(bpf.LOAD64, 1, 10, _LEFT)
    a.add(1, _IOV)
    a.put(bpf.STORE64, 10, 1, _COUNT)
    a.name("vectors")
    a.put(bpf.STORE64, 10, 8, _NEXT)
    _take_vector(a)
    a.jump("there")
    a.name("plain")
    a.copy(6, 8)
    a.set(1, 0)
    a.put(bpf.STORE64, 10, 1, _LEFT)
    a.name("there")


def clear_stack(a: bpf.Assembler) -> None:
    """Write zeros where they are expected."""
    # Of a block no more is handed over than was read: only a new state's bytes must be 0 at first.
    a.set(1, 0)
    for at in (*range(_RECORD, _RECORD + FACTS + _STATE, 8), *range(_START, 0, 8)):
        a.put(bpf.STORE64, 10, 1, at)


def tell_bytes(a: bpf.Assembler, when: int, of: int, size: int) -> None:
    """Say by registers what the bytes that others found are of: all are in one part.

    When 0 is now; `of` has the direction as its lowest bit.
    """
    a.put(bpf.STORE64, 10, when, _RECORD)
    a.put(bpf.STORE64, 10, of, _KEY)
    a.mask(of, -2)
    a.put(bpf.STORE64, 10, of, _RECORD + 8)
    a.put(bpf.STORE32, 10, size, _RECORD + 20)


def _take_vector(a: bpf.Assembler) -> None:
    """Go on to the next part of a message: no more of it than there are bytes."""
    a.put(bpf.LOAD64, 1, 10, _COUNT)
    a.jump_if(1, 0, "out")
    a.add(1, -1)
    a.put(bpf.STORE64, 10, 1, _COUNT)
    a.put(bpf.LOAD64, 3, 10, _NEXT)
    a.copy(1, 10)
    a.add(1, _VECTOR)
    a.set(2, 16)
    a.call(bpf.READ_USER)
    a.jump_if(0, 0, "out", code=bpf.NOT_EQUAL)
    a.put(bpf.LOAD64, 1, 10, _NEXT)
    a.add(1, 16)
    a.put(bpf.STORE64, 10, 1, _NEXT)
    a.put(bpf.LOAD64, 6, 10, _VECTOR)
    a.put(bpf.LOAD64, 7, 10, _VECTOR + 8)
    a.put(bpf.LOAD64, 1, 10, _LEFT)
    a.put(_AT_MOST_OTHER, 7, 1, 1)
    a.copy(7, 1)
    a.put(_SUBTRACT, 1, 7)
    a.put(bpf.STORE64, 10, 1, _LEFT)


def _read_user(a: bpf.Assembler, to: int, size: int, register: int, offset: int = 0) -> None:
    a.copy(1, 10)
    a.add(1, to)
    a.set(2, size)
    a.copy(3, register)
    a.add(3, offset)
    a.call(bpf.READ_USER)
    a.jump_if(0, 0, "out", code=bpf.NOT_EQUAL)


def _find_state(a: bpf.Assembler, states: int) -> None:
    """Find what is known of this direction, or that a connection begins; else end."""
    a.copy(2, 7)
    a.jump_if(2, 24, "some", code=bpf.AT_MOST)
    a.set(2, 24)
    a.name("some")
    a.copy(1, 10)
    a.add(1, _START)
    a.copy(3, 6)
    a.call(bpf.READ_USER)
    a.jump_if(0, 0, "out", code=bpf.NOT_EQUAL)
    a.put(bpf.LOAD64, 1, 10, _START)
    a.set64(2, int.from_bytes(_PREFACE[:8], "little"))
    a.put(bpf.NOT_EQUAL_REGISTERS, 1, 2, "goes on")
    # Both directions begin; what follows is a frame, behind the preface.
    a.put(bpf.LOAD64, 1, 10, _KEY)
    a.put(0xA7, 1, value=1)
    a.put(bpf.STORE64, 10, 1, _OTHER)
    _update(a, states, _OTHER)
    a.set(1, len(_PREFACE))
    a.put(bpf.STORE32, 10, 1, _RECORD + FACTS)
    _update(a, states, _KEY)
    a.set(1, 0)
    a.put(bpf.STORE32, 10, 1, _RECORD + FACTS)
    a.jump("known")
    a.name("goes on")
    _use_key(a, states, bpf.LOOKUP)
    a.jump_if(0, 0, "found", code=bpf.NOT_EQUAL)
    # An older one: a frame that the message ends with, or another head behind it.
    a.jump_if(7, _HEAD, "out", code=bpf.LESS)
    _check_head(a, _START, "out")
    a.put(bpf.LOAD8, 1, 10, _START)
    a.jump_if(1, 0, "out", code=bpf.NOT_EQUAL)
    for at in (1, 2):
        a.put(bpf.LOAD8, 2, 10, _START + at)
        a.shift_left(1, 8)
        a.put(_ADD, 1, 2)
    a.add(1, _HEAD)
    a.put(0x1D, 1, 7, "older")
    a.put(0x2D, 1, 7, "out")
    a.copy(2, 7)
    a.put(_SUBTRACT, 2, 1)
    a.jump_if(2, _HEAD, "out", code=bpf.LESS)
    a.copy(3, 6)
    a.put(_ADD, 3, 1)
    a.copy(1, 10)
    a.add(1, _START + 9)
    a.set(2, _HEAD)
    a.call(bpf.READ_USER)
    a.jump_if(0, 0, "out", code=bpf.NOT_EQUAL)
    _check_head(a, _START + 9, "out")
    a.put(bpf.LOAD8, 1, 10, _START + 9)
    a.jump_if(1, 0, "out", code=bpf.NOT_EQUAL)
    a.name("older")
    _update(a, states, _KEY)
    a.name("known")
    _use_key(a, states, bpf.LOOKUP)
    a.jump_if(0, 0, "out")
    a.name("found")
    a.copy(9, 0)
    a.set(1, 0)
    for at in range(_RECORD + FACTS + _STATE, _START, 8):
        a.put(bpf.STORE64, 10, 1, at)
    a.put(bpf.LOAD64, 1, 10, _RECORD)
    a.jump_if(1, 0, "timed", code=bpf.NOT_EQUAL)
    a.call(bpf.NOW)
    a.put(bpf.STORE64, 10, 0, _RECORD)
    a.name("timed")
    a.call(bpf.PID_TGID)
    a.put(bpf.STORE32, 10, 0, _RECORD + 16)


def _update(a: bpf.Assembler, states: int, key: int) -> None:
    a.map(1, states)
    a.copy(2, 10)
    a.add(2, key)
    a.copy(3, 10)
    a.add(3, _RECORD + FACTS)
    a.set(4, 0)
    a.call(bpf.UPDATE)


def _use_key(a: bpf.Assembler, states: int, helper: int) -> None:
    a.map(1, states)
    a.copy(2, 10)
    a.add(2, _KEY)
    a.call(helper)


def _check_head(a: bpf.Assembler, at: int, name: str, base: int = 10) -> None:
    """Jump for what is no frame's head: its type, a bit that is none, data of no stream."""
    checked = f"checked {base} {at}"
    a.put(bpf.LOAD8, 1, base, at + 5)
    a.jump_if(1, 0x7F, name, code=bpf.MORE)
    for byte in range(6, _HEAD):
        a.put(bpf.LOAD8, 2, base, at + byte)
        a.put(_OR_REGISTER, 1, 2)
    a.put(bpf.LOAD8, 2, base, at + 3)
    a.jump_if(2, _MOST_TYPE, name, code=bpf.MORE)
    a.jump_if(2, _HEADERS, checked, code=bpf.MORE)
    a.jump_if(1, 0, name)
    a.name(checked)


def _take_head(a: bpf.Assembler) -> None:
    """Read what is missing of a head; go on once it is whole."""
    a.put(bpf.LOAD32, 1, 9, 4)
    a.jump_if(1, _HEAD - 1, "astray", code=bpf.MORE)
    a.set(2, _HEAD)
    a.put(_SUBTRACT, 2, 1)
    a.put(_AT_MOST_OTHER, 2, 7, 1)
    a.copy(2, 7)
    a.mask(2, 15)
    a.put(bpf.STORE64, 10, 2, _TAKEN)
    a.copy(3, 6)
    a.put(_ADD, 6, 2)
    a.put(_SUBTRACT, 7, 2)
    a.copy(4, 1)
    a.put(_ADD, 4, 2)
    a.put(bpf.STORE32, 9, 4, 4)
    a.copy(4, 9)
    a.put(_ADD, 4, 1)
    a.copy(1, 4)
    a.add(1, _PART)
    a.call(bpf.READ_USER)
    a.jump_if(0, 0, "astray", code=bpf.NOT_EQUAL)
    a.put(bpf.LOAD32, 1, 9, 4)
    a.jump_if(1, _HEAD, "step", code=bpf.LESS)
    a.set(1, 0)
    a.put(bpf.STORE32, 9, 1, 4)
    _check_head(a, _PART, "astray", base=9)
    a.put(bpf.LOAD8, 1, 9, _PART)
    for at in (1, 2):
        a.put(bpf.LOAD8, 2, 9, _PART + at)
        a.shift_left(1, 8)
        a.put(_ADD, 1, 2)
    a.put(bpf.STORE32, 9, 1, 0)


def _hand_over(a: bpf.Assembler, ring: int) -> None:
    """Hand over a frame of a stream, with a block of headers as far as it is there."""
    a.copy(4, 1)
    a.set(2, 0)
    a.put(bpf.LOAD8, 3, 9, _PART + 3)
    a.jump_if(3, _DATA, "told")
    a.jump_if(3, _RESET, "told")
    a.jump_if(3, _HEADERS, "step", code=bpf.NOT_EQUAL)
    a.copy(2, 4)
    a.put(_AT_MOST_OTHER, 2, 7, 1)
    a.copy(2, 7)
    a.jump_if(2, BLOCK, "told", code=bpf.AT_MOST)
    a.set(2, BLOCK)
    a.name("told")
    a.put(bpf.LOAD64, 1, 9, _PART)
    a.put(bpf.STORE64, 10, 1, _RECORD + 24)
    a.put(bpf.LOAD64, 1, 9, _PART + 8)
    a.mask(1, 0xFF)
    a.put(bpf.LOAD64, 5, 10, _KEY)
    a.mask(5, 1)
    a.shift_left(5, 8)
    a.put(_ADD, 1, 5)
    a.put(bpf.STORE64, 10, 1, _RECORD + 32)
    a.put(bpf.STORE64, 10, 2, _TAKEN)
    a.jump_if(2, 0, "block")
    a.copy(1, 10)
    a.add(1, _RECORD + FACTS)
    a.copy(3, 6)
    a.call(bpf.READ_USER)
    a.jump_if(0, 0, "astray", code=bpf.NOT_EQUAL)
    a.name("block")
    a.map(1, ring)
    a.copy(2, 10)
    a.add(2, _RECORD)
    a.put(bpf.LOAD64, 3, 10, _TAKEN)
    a.jump_if(3, BLOCK, "astray", code=bpf.MORE)
    a.add(3, FACTS)
    a.set(4, bpf.NO_WAKEUP)
    a.call(bpf.OUTPUT)
    a.jump_if(0, 0, "lost", code=bpf.NOT_EQUAL)


# What becomes of it


class Streams:
    """Rows of streams from what the program hands over."""

    def __init__(self) -> None:
        self._headers: dict[tuple[int, int], Headers] = {}

    def tell(self, found: Iterable[Handed], *, headers: bool, session: int = 0) -> list[Row]:
        """Return a row for what each message has of a stream: trace ids if asked for."""
        rows: dict[tuple[int, int, int, int], Row] = {}
        for when, sock, tid, size, data in found:
            length, kind, flags = int.from_bytes(data[:3]), data[3], data[4]
            stream, way = int.from_bytes(data[5:9]) & 0x7FFFFFFF, data[9] & SENT
            if not stream:
                continue
            told = way | session | (RESET if kind == _RESET else 0)
            label, trace = "", bytes(16)
            if kind == _HEADERS:
                told |= HEADERS
                label, known = self._label(sock, way, stream, flags, length, data[16:])
                trace = known if headers else trace
            if kind != _RESET and flags & _END_STREAM:
                told |= END
            key, more = (when, sock, way, stream), _HEAD + length
            if key in rows:
                before = rows[key]
                trace, label = (before[4], before[8]) if before[8] else (trace, label)
                told, more = told | before[6], more + before[7]
            rows[key] = (when, sock, tid, size, trace, stream, told, more, label)
        return list(rows.values())

    def _label(
        self, sock: int, way: int, stream: int, flags: int, length: int, block: bytes
    ) -> tuple[str, bytes]:
        key = sock, way
        if stream == 1 and key in self._headers:
            del self._headers[key]  # another connection of the same address
        if key not in self._headers:
            while len(self._headers) >= _CONNECTIONS:
                del self._headers[next(iter(self._headers))]
            self._headers[key] = Headers()
        whole = len(block) >= length and bool(flags & _END_HEADERS)
        block = block[:length]
        if flags & _PADDED:
            block = block[1 : max(1, len(block) - block[0])] if block else block
        if flags & _PRIORITY:
            block = block[5:]
        return self._headers[key].label(block, whole=whole)
