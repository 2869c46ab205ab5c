"""Who goes with whom: the cheapest assignment, a largest matching, and what could be exchanged."""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t


def assign(
    const double[:, ::1] cost,
    int64_t[::1] column,
    double[:, ::1] room,
    int64_t[:, ::1] marks,
):
    """Give every row a column of its own so that the costs together are least.

    By shortest ways round: Crouse, "On implementing 2D rectangular assignment algorithms" (2016);
    of equal ones the first that reaches a free column.

    Parameters
    ----------
    cost : float64 [rows, columns]
        Finite; no more rows than columns.
    column : int64 [rows]
        What is found.
    room : float64 [3, columns]
    marks : int64 [3, columns]
        To work in.
    """
    cdef Py_ssize_t rows = cost.shape[0], columns = cost.shape[1], each, row, to, at, left, best
    cdef double[::1] of_row = room[0], of_column = room[1], way = room[2]
    cdef int64_t[::1] owner = marks[0], before = marks[1], open_ = marks[2]
    cdef double length, least
    cdef int64_t swapped
    with nogil:
        of_row[:] = 0
        of_column[:] = 0
        owner[:] = -1
        column[:] = -1
        for each in range(rows):
            way[:] = INFINITY
            for at in range(columns):
                open_[at] = columns - 1 - at
            left = columns
            row, length = each, 0.0
            while True:
                least, best = INFINITY, -1
                for at in range(left):
                    to = open_[at]
                    if length + cost[row, to] - of_row[row] - of_column[to] < way[to]:
                        way[to] = length + cost[row, to] - of_row[row] - of_column[to]
                        before[to] = row
                    if way[to] < least or (way[to] == least and owner[to] < 0):
                        least, best = way[to], at
                length = least
                to = open_[best]
                # What was reached stands behind what is open, to be found again.
                left -= 1
                open_[best], open_[left] = open_[left], to
                if owner[to] < 0:
                    break
                row = owner[to]
            of_row[each] += length
            for at in range(left, columns):
                if owner[open_[at]] >= 0:
                    of_row[owner[open_[at]]] += length - way[open_[at]]
                of_column[open_[at]] -= length - way[open_[at]]
            while True:
                row = before[to]
                owner[to] = row
                swapped = column[row]
                column[row] = to
                if row == each:
                    break
                to = swapped


def pair(
    const int64_t[::1] first,
    const int64_t[::1] to,
    int64_t[::1] chosen,
    int64_t[::1] owner,
    int64_t[:, ::1] marks,
):
    """Give as many as possible one of their own each.

    Parameters
    ----------
    first : int64 [n + 1]
        Where those of each begin.
    to : int64 [pairs]
        What each may have.
    chosen : int64 [n]
        What each has then; -1 for none.
    owner : int64 [m]
        Who has it.
    marks : int64 [4, max(n, m)]
        To work in.
    """
    cdef Py_ssize_t many = first.shape[0] - 1, each, at, deep, other
    cdef int64_t[::1] seen = marks[0], next_ = marks[1], stack = marks[2], came = marks[3]
    cdef int64_t had
    cdef bint more = True
    with nogil:
        chosen[:] = -1
        owner[:] = -1
        while more:
            # What led nowhere leads nowhere until the next round, the last of which finds nothing.
            more = False
            seen[:] = 0
            for each in range(many):
                next_[each] = first[each]
            for each in range(many):
                if chosen[each] >= 0:
                    continue
                deep, stack[0] = 0, each
                while deep >= 0:
                    at = stack[deep]
                    if next_[at] == first[at + 1]:
                        deep -= 1
                        continue
                    other = to[next_[at]]
                    next_[at] += 1
                    if seen[other]:
                        continue
                    seen[other] = 1
                    came[other] = at
                    if owner[other] >= 0:
                        deep += 1
                        stack[deep] = owner[other]
                        continue
                    more = True
                    while True:
                        at = came[other]
                        had = chosen[at]
                        chosen[at] = other
                        owner[other] = at
                        if at == each:
                            break
                        other = had
                    break


def find_circles(
    const int64_t[::1] first, const int64_t[::1] to, int64_t[::1] circle, int64_t[:, ::1] marks
):
    """Number what leads to each other: strongly connected components (Tarjan 1972).

    Parameters
    ----------
    first : int64 [n + 1]
    to : int64 [edges]
    circle : int64 [n]
        What is found.
    marks : int64 [5, n]
        To work in.

    Returns
    -------
    int
        How many circles there are.
    """
    cdef Py_ssize_t many = first.shape[0] - 1, each, at, other
    cdef Py_ssize_t deep, waiting = 0, count = 0, found = 0
    cdef int64_t[::1] order = marks[0], low = marks[1], next_ = marks[2]
    cdef int64_t[::1] stack = marks[3], waits = marks[4]
    with nogil:
        circle[:] = -1
        order[:] = -1
        for each in range(many):
            if order[each] >= 0:
                continue
            deep, stack[0] = 0, each
            while deep >= 0:
                at = stack[deep]
                if order[at] < 0:
                    order[at] = low[at] = count
                    count += 1
                    next_[at] = first[at]
                    waits[waiting] = at
                    waiting += 1
                if next_[at] < first[at + 1]:
                    other = to[next_[at]]
                    if order[other] < 0:
                        deep += 1
                        stack[deep] = other
                        continue
                    next_[at] += 1
                    # One that was just returned from has its least by now.
                    if circle[other] < 0 and low[other] < low[at]:
                        low[at] = low[other]
                    continue
                if low[at] == order[at]:
                    while True:
                        waiting -= 1
                        circle[waits[waiting]] = found
                        if waits[waiting] == at:
                            break
                    found += 1
                deep -= 1
    return found


def reach(
    const int64_t[::1] first,
    const int64_t[::1] to,
    Py_ssize_t begin,
    uint8_t[::1] reached,
    int64_t[::1] stack,
):
    """Mark what can be reached, with where it begins.

    Parameters
    ----------
    first : int64 [n + 1]
    to : int64 [edges]
    begin : int
    reached : bool [n]
        As bytes, all 0.
    stack : int64 [n]
        To work in.
    """
    cdef Py_ssize_t waiting = 1, at, edge
    with nogil:
        reached[begin] = 1
        stack[0] = begin
        while waiting:
            waiting -= 1
            at = stack[waiting]
            for edge in range(first[at], first[at + 1]):
                if not reached[to[edge]]:
                    reached[to[edge]] = 1
                    stack[waiting] = to[edge]
                    waiting += 1
