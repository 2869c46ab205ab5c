# cython: language_level=3
"""Finds the event blocks of TSDL text that can be parsed one by one, when they are needed.

LTTng describes every event that a kernel could have, and a recording holds a tenth of
them.  Only blocks in the tracers' own form are found (see `plain_events`); whatever
looks otherwise is left to the parser.
"""

from libc.stdint cimport int64_t
from libc.string cimport memchr, memcmp

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL


cdef inline bint _blank(char c) noexcept nogil:
    return c == b" " or b"\t" <= c <= b"\r"


cdef inline bint _word(char c) noexcept nogil:
    return b"a" <= c <= b"z" or b"A" <= c <= b"Z" or b"0" <= c <= b"9" or c == b"_"


cdef inline int64_t _skip(const char* p, int64_t i, int64_t n) noexcept nogil:
    while i < n and _blank(p[i]):
        i += 1
    return i


cdef inline int64_t _literal(const char* p, int64_t i, int64_t n, const char* text,
                             int64_t length) noexcept nogil:
    """The position behind a literal and blanks around it, -1 if it is not there."""
    i = _skip(p, i, n)
    if n - i < length or memcmp(p + i, text, length) != 0:
        return -1
    return _skip(p, i + length, n)


cdef struct Block:
    int64_t name
    int64_t name_end
    int64_t id
    int64_t stream
    int64_t refers
    int64_t rest
    int64_t end


cdef int64_t _number(const char* p, int64_t i, int64_t n, int64_t* value) noexcept nogil:
    """Parse ``= NUMBER;``; the position behind it, or -1."""
    cdef int64_t start
    i = _literal(p, i, n, b"=", 1)
    if i < 0:
        return -1
    start, value[0] = i, 0
    while i < n and b"0" <= p[i] <= b"9" and i - start < 18:
        value[0] = value[0] * 10 + (p[i] - 48)
        i += 1
    if i == start or (p[start] == b"0" and i - start > 1):  # that would be octal
        return -1
    return _literal(p, i, n, b";", 1)


cdef bint _plain(const char* p, int64_t i, int64_t n, Block* block) noexcept nogil:
    """Whether a plain block goes on behind the word ``event``."""
    cdef int64_t depth = 1, start
    cdef char c
    cdef const char* found
    i = _literal(p, i, n, b"{", 1)
    if i < 0:
        return False
    i = _literal(p, i, n, b"name", 4)
    if i < 0:
        return False
    i = _literal(p, i, n, b"=", 1)
    if i < 0 or i >= n or p[i] != b'"':
        return False
    block.name = i + 1
    found = <const char*>memchr(p + i + 1, 34, n - i - 1)
    if found == NULL:
        return False
    block.name_end = found - p
    for start in range(block.name, block.name_end):
        if p[start] == b"\\" or p[start] == b"\n":
            return False
    i = _literal(p, block.name_end + 1, n, b";", 1)
    if i < 0:
        return False
    i = _literal(p, i, n, b"id", 2)
    if i < 0:
        return False
    i = _number(p, i, n, &block.id)
    if i < 0:
        return False
    i = _literal(p, i, n, b"stream_id", 9)
    if i < 0:
        return False
    i = _number(p, i, n, &block.stream)
    if i < 0:
        return False
    block.refers, block.rest = 0, i
    while i < n:
        c = p[i]
        if _word(c):
            start = i
            while i < n and _word(p[i]):
                i += 1
            if i - start == 3 and memcmp(p + start, b"map", 3) == 0:
                block.refers = 1
            continue
        if c == b"{":
            depth += 1
        elif c == b"}":
            depth -= 1
            if depth == 0:
                break
        elif c == b"[" or c == b"<":
            start = _skip(p, i + 1, n)
            if start < n and not b"0" <= p[start] <= b"9":
                block.refers = 1
        elif c == b'"':
            i += 1
            while i < n and p[i] != b'"':
                if p[i] == b"\\" or p[i] == b"\n":
                    return False
                i += 1
        elif c == b"'" or c == b"/":
            return False
        i += 1
    if i >= n:
        return False
    i = _skip(p, i + 1, n)
    if i >= n or p[i] != b";":
        return False
    block.end = i + 1
    return True


def plain_events(str text):
    """Find the event blocks at the top level of a text that are written the plain way.

    That is ``event { name = "..."; id = N; stream_id = N; ... };`` with braces that
    match, and without comments, escapes and characters in single quotes.

    Parameters
    ----------
    text : str
        ASCII.

    Returns
    -------
    list of (begin, end, name, id, stream, refers, rest)
        Positions in the text, what the block says first, whether it may name a clock
        or fields elsewhere, and where it goes on behind that; empty where the text is
        not well-formed around them.
    """
    cdef Py_ssize_t size = 0
    cdef const char* p = PyUnicode_AsUTF8AndSize(text, &size)
    cdef int64_t n = size, i = 0, start, depth = 0
    cdef char c, last = b";"
    cdef Block block
    cdef const char* found
    result = []
    while i < n:
        c = p[i]
        if _blank(c):
            i += 1
            continue
        if _word(c):
            start = i
            while i < n and _word(p[i]):
                i += 1
            if (depth == 0 and i - start == 5 and (last == b";" or last == b"}")
                    and memcmp(p + start, b"event", 5) == 0 and _plain(p, i, n, &block)):
                result.append((start, block.end, text[block.name:block.name_end],
                               block.id, block.stream, bool(block.refers), block.rest))
                i = block.end
                c = b";"
        elif c == b'"' or c == b"'":
            i += 1
            while i < n and p[i] != c:
                if p[i] == b"\n":
                    return []
                i += 2 if p[i] == b"\\" else 1
            if i >= n:
                return []
            i += 1
        elif c == b"/" and i + 1 < n and p[i + 1] == b"/":
            found = <const char*>memchr(p + i, 10, n - i)
            i = n if found == NULL else found - p
            continue
        elif c == b"/" and i + 1 < n and p[i + 1] == b"*":
            i += 2
            while True:
                found = <const char*>memchr(p + i, 42, n - i) if i < n else NULL
                if found == NULL:
                    return []
                i = found - p + 1
                if i < n and p[i] == b"/":
                    break
            i += 1
            continue
        else:
            depth += (c == b"{") - (c == b"}")
            if depth < 0:
                return []
            i += 1
        last = c
    return result if depth == 0 else []


def plain_fields(str text, int64_t i, int64_t n):
    """Cut the rest of a plain event into its fields.

    Parameters
    ----------
    text : str
        ASCII, as `plain_events` had it.
    i, n : int
        From what follows ``stream_id`` to the block's end.

    Returns
    -------
    list of (type, name, dimensions) or None
        Each field as it is written; None if there is more than
        ``fields := struct { TYPE NAME DIMENSIONS; ... };``.
    """
    cdef Py_ssize_t size = 0
    cdef const char* p = PyUnicode_AsUTF8AndSize(text, &size)
    cdef int64_t begin, name, name_end, dimensions, type_end, depth, start
    cdef char c
    if n > size:
        n = size
    i = _literal(p, i, n, b"fields", 6)
    if i >= 0:
        i = _literal(p, i, n, b":=", 2)
    if i >= 0:
        i = _literal(p, i, n, b"struct", 6)
    if i >= 0:
        i = _literal(p, i, n, b"{", 1)
    if i < 0:
        return None
    result = []
    while i < n and p[i] != b"}":
        begin, name, name_end, dimensions, depth = i, -1, -1, -1, 0
        while i < n and (depth or p[i] != b";"):
            c = p[i]
            if _word(c):
                start = i
                while i < n and _word(p[i]):
                    i += 1
                if depth == 0 and dimensions < 0:
                    name, name_end = start, i
                continue
            if c == b"{":
                depth += 1
            elif c == b"}":
                depth -= 1
                if depth < 0:
                    return None
            elif depth == 0:
                if c == b"[" and dimensions < 0:
                    dimensions = i
                elif c == b"," or c == b"<" or c == b'"' or c == b":":
                    return None
            i += 1
        if i >= n or name <= begin or b"0" <= p[name] <= b"9":
            return None
        # Between the name and what ends the field there is nothing.
        if _skip(p, name_end, n) != (i if dimensions < 0 else dimensions):
            return None
        type_end = name
        while type_end > begin and _blank(p[type_end - 1]):
            type_end -= 1
        result.append((text[begin:type_end], text[name:name_end],
                       "" if dimensions < 0 else text[dimensions:i]))
        i = _skip(p, i + 1, n)
    i = _literal(p, i, n, b"}", 1)
    if i >= 0:
        i = _literal(p, i, n, b";", 1)
    if i >= 0:
        i = _literal(p, i, n, b"}", 1)
    if i >= 0:
        i = _literal(p, i, n, b";", 1)
    return result if i == n else None
