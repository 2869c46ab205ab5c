"""Which request a block of HTTP/2's headers is: its method and path, and no other value.

Headers are compressed against those before (RFC 7541): so all of a connection are gone through,
and of what is remembered of them only method, path and whether it is gRPC have their text.  After
a block that was not seen whole what was remembered before it is not known any more.
"""

from __future__ import annotations

import re
from collections import deque
from functools import lru_cache
from itertools import islice
from typing import Final

from critpath_record.messages import METHODS, cut_text, label_message

METHOD, PATH, TYPE, TRACE = range(1, 5)
# Places of the static table: headers that are requests', and what their values are there.
_NAMES: Final = {2: METHOD, 3: METHOD, 4: PATH, 5: PATH, 31: TYPE}
_VALUES: Final = {2: b"GET", 3: b"POST", 4: b"/", 5: b"/index.html"}
_STATUS: Final = range(8, 15)
_STATIC: Final = 61
_SIZE: Final = 4096  # bytes that a table has until something else is agreed on
_MOST: Final = 1 << 16  # technical: bytes that any table is followed for
_ENTRY: Final = 32  # that the standard counts for each entry
_TRACEPARENT: Final = b"traceparent"
_GRPC: Final = b"application/grpc"
# Names of a service of gRPC and of its method are the program's.
_CALLED: Final = re.compile(rb"(?:/[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*){2}", re.ASCII)
_TRACE_ID: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
# Codes are given out in order of their lengths and symbols; longer ones have no text.
_SYMBOLS: Final = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\0$@[]~",
    14: b"^}",
    15: b"<`{",
}


def _give_codes() -> dict[tuple[int, int], int]:
    codes, code, before = {}, 0, 5
    for length, symbols in _SYMBOLS.items():
        code <<= length - before
        before = length
        for symbol in symbols:
            codes[length, code] = symbol
            code += 1
    return codes


_CODES: Final = _give_codes()


class UnknownBlockError(ValueError):
    """A block that is cut, or of no known form."""


@lru_cache(4096)
def decode_text(data: bytes) -> bytes:
    """Return the text of Huffman's code; raises UnknownBlockError."""
    text, code, length = bytearray(), 0, 0
    for byte in data:
        for bit in range(7, -1, -1):
            code, length = code << 1 | byte >> bit & 1, length + 1
            symbol = _CODES.get((length, code))
            if symbol is not None:
                text.append(symbol)
                code = length = 0
            elif length > max(_SYMBOLS):
                raise UnknownBlockError
    if length > 7 or code != (1 << length) - 1:  # technical: what fills the last byte
        raise UnknownBlockError
    return bytes(text)


class Headers:
    """What one side of a connection has sent of headers."""

    def __init__(self) -> None:
        self._table: deque[tuple[int, bytes, int]] = deque()  # what, its text, its size
        self._size, self._most = 0, _SIZE
        self._answers = False
        self._data, self._at = b"", 0

    def label(self, block: bytes, *, whole: bool) -> tuple[str, bytes]:
        """Return the label of a request whose headers these are, and its trace id.

        "" for an answer, or what is not known; `whole` says that nothing of the block is missing.
        """
        found: dict[int, bytes] = {}
        trace = bytes(16)
        if self._answers:
            return "", trace
        self._data, self._at = block, 0
        try:
            while self._at < len(block):
                kind, text = self._read_header()
                if self._answers:
                    return "", trace
                found.setdefault(kind, text)
        except UnknownBlockError:
            whole = False
        if not whole:
            self._table.clear()
            self._size = 0
        if match := _TRACE_ID.fullmatch(found.get(TRACE, b"")):
            trace = bytes.fromhex(match[1].decode())
        return _label(found), trace

    def _read_header(self) -> tuple[int, bytes]:
        first = self._data[self._at]
        if first & 0x80:
            return self._look_up(self._read_number(7))
        if first & 0x40:
            return self._read_literal(6, keeps=True)
        if first & 0x20:
            self._most = min(self._read_number(5), _MOST)
            self._evict()
            return 0, b""
        return self._read_literal(4, keeps=False)

    def _read_literal(self, bits: int, *, keeps: bool) -> tuple[int, bytes]:
        place = self._read_number(bits)
        if place in _STATUS:
            self._answers = True
        kind, length = _NAMES.get(place, 0), 0
        if place == 0:
            name = self._read_text()
            kind, length = (TRACE if name == _TRACEPARENT else 0), len(name)
        elif place > _STATIC:
            kind = self._look_up(place)[0]
        text = self._read_text()
        if keeps:
            # Names of the tables are counted as of no bytes: it is forgotten a little late.
            size = _ENTRY + length + len(text)
            self._table.appendleft((kind, text if kind in {METHOD, PATH, TYPE} else b"", size))
            self._size += size
            self._evict()
        return kind, text

    def _evict(self) -> None:
        while self._size > self._most:
            self._size -= self._table.pop()[2]

    def _look_up(self, place: int) -> tuple[int, bytes]:
        if place in _STATUS:
            self._answers = True
        if 0 < place <= _STATIC:
            return _NAMES.get(place, 0), _VALUES.get(place, b"")
        if place == 0:
            raise UnknownBlockError
        found = next(islice(self._table, place - _STATIC - 1, None), (0, b"", 0))
        return found[:2]

    def _read_number(self, bits: int) -> int:
        data, most = self._data, (1 << bits) - 1
        number = data[self._at] & most
        self._at += 1
        shift = 0
        while number >= most or shift:
            if self._at >= len(data) or shift > 21:  # technical: larger ones are none
                raise UnknownBlockError
            byte = data[self._at]
            self._at += 1
            number += (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        return number

    def _read_text(self) -> bytes:
        if self._at >= len(self._data):
            raise UnknownBlockError
        coded = self._data[self._at] & 0x80
        length = self._read_number(7)
        text = self._data[self._at : self._at + length]
        self._at += length
        if len(text) < length:
            raise UnknownBlockError
        return decode_text(text) if coded else text


def _label(found: dict[int, bytes]) -> str:
    """Return method and path with what varies folded, as of HTTP/1."""
    method, path = found.get(METHOD, b""), found.get(PATH, b"")
    if method not in METHODS:
        return ""
    if not path:
        return f"{method.decode()} …"
    if found.get(TYPE, b"").startswith(_GRPC) and _CALLED.fullmatch(path):
        return cut_text(f"{method.decode()} {path.decode()}")
    return label_message(method + b" " + path + b" HTTP/1.1")
