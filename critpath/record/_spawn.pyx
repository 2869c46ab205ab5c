# cython: language_level=3
"""Starts a process from a program that has threads.

Between fork and exec the child may only do what is safe in a signal handler: any lock
of the C library or of Python could be held by a thread that is not there any more.
So everything it needs is laid out before, and it is plain C.
"""

from cpython.bytes cimport PyBytes_AsString
from libc.stdlib cimport calloc, free

import errno
import os

include "_child.pxi"


cdef char** _texts(list texts) except NULL:
    """Lay out pointers into bytes that the caller keeps alive."""
    cdef char** table = <char**>calloc(len(texts) + 1, sizeof(char*))
    cdef Py_ssize_t i
    if table == NULL:
        raise MemoryError
    for i in range(len(texts)):
        table[i] = PyBytes_AsString(texts[i])
    return table


def spawn(bytes path not None, list argv not None, list env not None, *, bytes cwd=None,
          user=None, mask=(), ignored=(), keep=(), int death_signal=0, nice=None,
          scheduler=None):
    """Start a program as a child of the calling thread.

    Parameters
    ----------
    path : bytes
        The program; a file that is no format of the kernel's is run by ``/bin/sh``.
    argv, env : list of bytes
        Its arguments with the name in front; its environment, ``NAME=value``.
    cwd : bytes, optional
    user : (uid, gid, groups), optional
        Whom it runs as.
    mask, ignored : collection of int
        Signals that it has blocked and ignored; all others are as by default.
    keep : sequence of int
        Descriptors beyond 2 that it inherits, and no others.
    death_signal : int
        Sent to it when the calling thread dies; 0 for none.
    nice, scheduler : int, (policy, priority), optional
        Set in the child; else inherited.

    Returns
    -------
    pid : int
    begin : int
        Just before the fork (ns, CLOCK_MONOTONIC).

    Raises
    ------
    SpawnError
        If the child failed before or at exec; it is collected then.
    OSError
        If there can be no process.
    """
    cdef critpath_plan plan
    cdef critpath_failure failure
    cdef int64_t begin = 0
    cdef pid_t pid
    cdef int reader, writer, error, i
    cdef ssize_t got
    cdef list shell = [b"/bin/sh", path, *argv[1:]]
    for text in (path, *argv, *env, *(() if cwd is None else (cwd,))):
        if not isinstance(text, bytes):
            raise TypeError("bytes only")
        if b"\0" in text:
            raise ValueError("embedded null byte")
    if not argv:
        raise ValueError("no arguments")
    plan.path = path
    plan.argv = plan.envp = plan.shell = NULL
    plan.groups = NULL
    plan.keep = NULL
    reader = writer = -1
    try:
        plan.argv = _texts(argv)
        plan.envp = _texts(env)
        plan.shell = _texts(shell)
        plan.cwd = NULL if cwd is None else PyBytes_AsString(cwd)
        plan.change_user = user is not None
        if user is not None:
            plan.uid, plan.gid, groups = user
            plan.n_groups = len(groups)
            plan.groups = <gid_t*>calloc(len(groups) + 1, sizeof(gid_t))
            if plan.groups == NULL:
                raise MemoryError
            for i in range(len(groups)):
                plan.groups[i] = groups[i]
        sigemptyset(&plan.mask)
        for number in mask:
            sigaddset(&plan.mask, number)
        sigemptyset(&plan.ignored)
        for number in ignored:
            sigaddset(&plan.ignored, number)
        plan.n_keep = len(keep)
        plan.keep = <int*>calloc(len(keep) + 1, sizeof(int))
        if plan.keep == NULL:
            raise MemoryError
        for i in range(len(keep)):
            plan.keep[i] = keep[i]
        plan.death_signal = death_signal
        plan.set_nice = nice is not None
        plan.nice = 0 if nice is None else nice
        plan.set_policy = scheduler is not None
        plan.policy, plan.priority = (0, 0) if scheduler is None else scheduler
        reader, writer = os.pipe2(os.O_CLOEXEC)
        with nogil:
            pid = critpath_start(&plan, writer, &begin)
            error = get_errno
        os.close(writer)
        writer = -1
        if pid < 0:
            raise OSError(error, os.strerror(error))
        with nogil:
            got = critpath_failed(reader, &failure)
        if got == sizeof(failure):
            os.waitpid(pid, 0)
            wrong = SpawnError(failure.error, os.strerror(failure.error))
            wrong.step = _STEPS.get(failure.step, "exec")
            raise wrong
        return pid, begin
    finally:
        free(plan.argv)
        free(plan.envp)
        free(plan.shell)
        free(plan.groups)
        free(plan.keep)
        for descriptor in (reader, writer):
            if descriptor >= 0:
                os.close(descriptor)


def collect(int pid):
    """Collect a child if it has exited.

    Returns
    -------
    (status, end) or None
        The status as `os.waitpid` gives it, and the time just after the wait (ns,
        CLOCK_MONOTONIC); None while the child runs.

    Raises
    ------
    ChildProcessError
        If there is no such child.
    """
    cdef int status = 0
    cdef int64_t end = 0
    cdef pid_t got
    cdef int error
    with nogil:
        got = critpath_collect(pid, &status, &end)
        error = get_errno
    if got == 0 or (got < 0 and error == errno.EINTR):
        return None
    if got < 0:
        raise OSError(error, os.strerror(error))
    return status, end


def become_subreaper(bint on):
    """Have orphaned descendants become children of this process.

    Returns
    -------
    bool
        Whether it was so before.
    """
    cdef int before = critpath_subreaper(on)
    if before < 0:
        raise OSError(get_errno, os.strerror(get_errno))
    return bool(before)
