# cython: language_level=3
"""Passes over all segments: what they are spent on, and how often and how long."""

from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np

cdef enum:
    STATES = 32
    DEPTH = 64
    DEEP = 8  # threads of a chain: what is behind counts as the last one's


def spent_on(const int64_t[::1] start, const int64_t[::1] tid, const int64_t[::1] host,
             const int32_t[::1] comm, const int64_t[::1] own_tid, const int64_t[::1] own_host,
             int32_t[::1] result, uint8_t[::1] used):
    """Fill in whose name counts in every segment, 0 for the execution's own thread.

    Parameters
    ----------
    start : int64 [paths + 1]
    tid, host : int64 [segments]
    comm : int32 [segments]
    own_tid, own_host : int64 [paths]
    result : int32 [segments]
    used : uint8 [strings]
        Set where a name counts in some segment.
    """
    cdef Py_ssize_t i, j
    cdef int32_t name
    with nogil:
        for i in range(start.shape[0] - 1):
            for j in range(start[i], start[i + 1]):
                name = comm[j]
                if tid[j] < 0 or (tid[j] == own_tid[i] and host[j] == own_host[i]):
                    name = 0
                result[j] = name
                used[name] = 1


def add_up(int32_t[::1] key, const int64_t[::1] row, const uint8_t[::1] state,
           const int64_t[::1] begin, const int64_t[::1] end, int64_t[::1] counts,
           int64_t[::1] sums):
    """Replace names by keys, ``row[name] * 32 + state``; count and add up time by key."""
    cdef Py_ssize_t j
    cdef int32_t k
    with nogil:
        for j in range(key.shape[0]):
            k = <int32_t>(row[key[j]] * STATES + state[j])
            key[j] = k
            counts[k] += 1
            sums[k] += end[j] - begin[j]


def count(const int64_t[::1] start, const int64_t[::1] begin, const int64_t[::1] end,
          const uint8_t[::1] state, const uint8_t[::1] codes, const uint8_t[::1] interference,
          int32_t[:, ::1] counts, int64_t[:, ::1] durations, int32_t[:, ::1] structure):
    """Add up segments, their time, and runs of equal ones without interference, by symbol.

    Parameters
    ----------
    start : int64 [paths + 1]
    begin, end : int64 [segments]
    state, codes : uint8 [segments]
    interference : uint8 [256]
        By state.
    counts, structure : int32 [paths, symbols]
    durations : int64 [paths, symbols]
    """
    cdef Py_ssize_t i, j
    cdef int code, last
    with nogil:
        for i in range(start.shape[0] - 1):
            last = -1
            for j in range(start[i], start[i + 1]):
                code = codes[j]
                counts[i, code] += 1
                durations[i, code] += end[j] - begin[j]
                if not interference[state[j]]:
                    if code != last:
                        structure[i, code] += 1
                    last = code


def count_trips(const int64_t[::1] start, const int64_t[::1] tid, const int64_t[::1] host,
                const uint8_t[::1] codes, const uint8_t[::1] kind, const int64_t[::1] role,
                const int64_t[::1] rival, int64_t[:, ::1] trips):
    """Count how often every path goes from a thread to another, by that one's role.

    Who woke whom is read from the end of a path: what it comes from before that is the same
    trip still.  Of two trips from ``app`` to ``database`` within one to ``app``, these are one
    and two.  A thread that another's work took the cpu from, as it ran, made a trip to that one.

    Parameters
    ----------
    start : int64 [paths + 1]
    tid, host : int64 [segments]
    codes : uint8 [segments]
    kind : uint8 [segments]
        1 where a thread runs, 2 where an interrupt holds it up, 0 else.
    role : int64 [256]
        Column of every symbol's role, -1 for the execution's own thread.
    rival : int64 [segments]
        Column of who has the cpu that a segment waits for, -1 for nobody who counts.
    trips : int64 [paths, roles]
    """
    cdef Py_ssize_t i, j, before
    cdef int64_t there
    cdef int64_t tids[DEPTH]
    cdef int64_t hosts[DEPTH]
    cdef int64_t roles[DEPTH]
    cdef int depth, k
    with nogil:
        for i in range(start.shape[0] - 1):
            depth = 0
            for j in range(start[i + 1] - 1, start[i] - 1, -1):
                there = role[codes[j]]
                k = depth if there >= 0 else 0
                while k > 0 and not (tids[k - 1] == tid[j] and hosts[k - 1] == host[j]):
                    k -= 1
                if there >= 0 and k == 0:
                    trips[i, there] += 1
                    if depth == DEPTH:
                        depth = 0
                    tids[depth] = tid[j]
                    hosts[depth] = host[j]
                    roles[depth] = there
                    depth += 1
                else:
                    depth = k
                if rival[j] < 0:
                    continue
                before = j - 1
                while before >= start[i] and kind[before] == 2:
                    before -= 1
                if before < start[i] or kind[before] != 1:
                    continue
                if tid[before] != tid[j] or host[before] != host[j]:
                    continue
                k = depth
                while k > 0 and roles[k - 1] != rival[j]:
                    k -= 1
                if k == 0:
                    trips[i, rival[j]] += 1


def follow_chains(const int64_t[::1] start, const int64_t[::1] tid, const int64_t[::1] host,
                  const uint8_t[::1] codes, const int64_t[::1] role, int32_t[:, ::1] below,
                  int32_t[::1] above, Py_ssize_t known, int32_t[::1] result):
    """Fill in of every segment the chain of threads that were waited for; return their number.

    From the end, where a path is the execution's own: a thread that the path is not inside of
    yet was waited for by the one after it.

    Parameters
    ----------
    start : int64 [paths + 1]
    tid, host : int64 [segments]
    codes : uint8 [segments]
    role : int64 [256]
        Column of every symbol's role, -1 for the execution's own thread.
    below : int32 [chains, roles]
        The chain that goes on with a role, -1 where none is known yet: new ones are added.
    above : int32 [chains]
        The chain that each goes on from; 0 is the execution's own thread.
    known : int
        Chains so far.
    result : int32 [segments]
    """
    cdef Py_ssize_t i, j, many = known
    cdef int64_t there
    cdef int64_t tids[DEPTH]
    cdef int64_t hosts[DEPTH]
    cdef int32_t chains[DEPTH]
    cdef int32_t chain
    cdef int depth, k
    with nogil:
        for i in range(start.shape[0] - 1):
            depth = 0
            for j in range(start[i + 1] - 1, start[i] - 1, -1):
                there = role[codes[j]]
                if there < 0:
                    depth = 0
                    result[j] = 0
                    continue
                k = depth
                while k > 0 and not (tids[k - 1] == tid[j] and hosts[k - 1] == host[j]):
                    k -= 1
                if k > 0:
                    depth = k
                    result[j] = chains[k - 1]
                    continue
                chain = chains[depth - 1] if depth else 0
                if depth < DEEP:
                    if below[chain, there] < 0 and many < below.shape[0]:
                        below[chain, there] = many
                        above[many] = chain
                        many += 1
                    if below[chain, there] >= 0:
                        chain = below[chain, there]
                    tids[depth] = tid[j]
                    hosts[depth] = host[j]
                    chains[depth] = chain
                    depth += 1
                result[j] = chain
    return many


def fold_steps(const int64_t[::1] start, const int64_t[::1] begin, const int64_t[::1] end,
               const int64_t[::1] tid, const int64_t[::1] host, const int32_t[::1] comm,
               const uint8_t[::1] state, const uint8_t[::1] beneath, const int32_t[::1] detail,
               const int64_t[::1] own_tid, const int64_t[::1] own_host,
               const int64_t[::1] thread_of, const int64_t[::1] doing_of,
               const int64_t[::1] beneath_of, const uint8_t[::1] idle, const int64_t[::1] doings,
               int64_t late, double hair, int64_t[:, ::1] steps, int64_t[:, ::1] hairs):
    """Join the neighbours of a thread that do the same, short interrupts with what they cut.

    Parameters
    ----------
    start : int64 [paths + 1]
    begin, end, tid, host : int64 [segments]
    comm, detail : int32 [segments]
    state, beneath : uint8 [segments]
    own_tid, own_host : int64 [paths]
    thread_of : int64 [strings]
        Thread by its name; an execution's own is 0.
    doing_of, beneath_of : int64 [256]
        By state.
    idle : uint8 [details]
        Nobody had the cpu.
    doings : int64 [4]
        Running, an interrupt, a wait for a cpu, one for that it was idle for so long as ``late``.
    hair : float
        Of a stretch's running time: shorter interrupts are part of it.
    steps : int64 [6, segments]
        Filled in: path, begin, length, thread, doing, beneath.
    hairs : int64 [2, segments]
        Filled in: path and begin of interrupts that became part of others.

    Returns
    -------
    tuple of int
        How many steps and hairs there are.
    """
    cdef Py_ssize_t i, j, k, first, last, many = 0, cut = 0
    cdef int64_t thread, doing, under, ran, run = doings[0], interrupt = doings[1]
    with nogil:
        for i in range(start.shape[0] - 1):
            first = many
            for j in range(start[i], start[i + 1]):
                thread = thread_of[comm[j]]
                if tid[j] == own_tid[i] and host[j] == own_host[i]:
                    thread = 0
                doing = doing_of[state[j]]
                if doing == doings[2] and idle[detail[j]] and end[j] - begin[j] >= late:
                    doing = doings[3]
                under = beneath_of[beneath[j]]
                k = many - 1
                if (k >= first and steps[3, k] == thread and steps[4, k] == doing
                        and steps[5, k] == under):
                    steps[2, k] += end[j] - begin[j]
                    continue
                steps[0, many], steps[1, many], steps[2, many] = i, begin[j], end[j] - begin[j]
                steps[3, many], steps[4, many], steps[5, many] = thread, doing, under
                many += 1
            # Stretches of a thread that does nothing but run and is interrupted.
            j = first
            while j < many:
                last, ran = j, 0
                while (last < many and steps[3, last] == steps[3, j]
                       and (steps[4, last] == run or steps[4, last] == interrupt)):
                    if steps[4, last] == run:
                        ran += steps[2, last]
                    last += 1
                for k in range(j, last):
                    if steps[4, k] == interrupt and <double>steps[2, k] < hair * <double>ran:
                        hairs[0, cut], hairs[1, cut] = i, steps[1, k]
                        cut += 1
                        steps[4, k] = run
                j = last if last > j else j + 1
            last = first
            for j in range(first + 1, many):
                if (steps[3, last] == steps[3, j] and steps[4, last] == steps[4, j]
                        and steps[5, last] == steps[5, j]):
                    steps[2, last] += steps[2, j]
                    continue
                last += 1
                for k in range(6):
                    steps[k, last] = steps[k, j]
            if many > first:
                many = last + 1
    return many, cut


def find_waits(const int64_t[::1] start, const int64_t[::1] tid, const int64_t[::1] host,
               const uint8_t[::1] state, const int64_t[::1] own_tid, const int64_t[::1] own_host,
               const uint8_t[::1] kind, int64_t[::1] rows, uint8_t[::1] woken,
               int64_t[::1] wakes):
    """Find waits for a cpu, whether their thread was woken, how often an own one goes on.

    Parameters
    ----------
    start : int64 [paths + 1]
    tid, host : int64 [segments]
    state : uint8 [segments]
    own_tid, own_host : int64 [paths]
    kind : uint8 [256]
        By state: 1 running, 2 an interrupt, 3 a wait for a cpu, else 0.
    rows : int64 [segments]
        Filled in: the waits.
    woken : uint8 [segments]
        Filled in, of each wait: its thread did not run before what comes between runs.
    wakes : int64 [paths]
        Filled in.

    Returns
    -------
    int
        How many waits there are.
    """
    cdef Py_ssize_t i, j, last, many = 0
    cdef bint active, before
    cdef uint8_t what
    with nogil:
        for i in range(start.shape[0] - 1):
            last = -1
            before = False
            for j in range(start[i], start[i + 1]):
                what = kind[state[j]]
                active = what and tid[j] == own_tid[i] and host[j] == own_host[i]
                if active and not before:
                    wakes[i] += 1
                before = active
                if what == 3:
                    rows[many] = j
                    woken[many] = not (last >= 0 and kind[state[last]] == 1
                                       and tid[last] == tid[j] and host[last] == host[j])
                    many += 1
                if what < 2:
                    last = j
    return many
