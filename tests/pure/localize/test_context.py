"""Where on its path a finding stands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from detailing import detailed
from pure.localize.findings import make_finding

from critpath.localize.segments import find_context
from critpath.model import Context, CriticalPaths, Executions, PathSet, State, Symbol
from critpath.model.stacks import Frame

STRINGS = ("", "worker", "helper", "virtio0-req.0", "read", "pread64", "other")


def path_of(*segments):
    """Return one execution of thread 7: (state, detail, name), a microsecond each."""
    n = len(segments)
    edges = np.arange(n + 1, dtype=np.int64) * 1000
    comm = np.array([STRINGS.index(name) for *_, name in segments], np.int32)
    return PathSet(
        executions=Executions(
            ("0",),
            edges[:1],
            edges[-1:],
            np.full(1, 7, np.int64),
            np.zeros(1, np.int64),
            ("worker",),
            ("",),
        ),
        paths=detailed(
            CriticalPaths(
                np.array([0, n], np.int64),
                edges[:-1],
                edges[1:],
                np.array([state for state, *_ in segments], np.uint8),
                np.array([STRINGS.index(detail) for _, detail, _ in segments], np.int32),
                comm,
                np.where(comm == 1, 7, 8).astype(np.int64),
                np.zeros(n, np.int64),
                np.zeros(n, np.int32),
                np.zeros(n, np.bool_),
                STRINGS,
            )
        ),
        session=np.zeros(1, np.int64),
        sources=("here",),
        specification="process",
        losses=(),
        lossy=np.zeros(1, np.bool_),
    )


def finding_at(segment, state, role=""):
    return make_finding(
        symbol=Symbol(state, role),
        begin=segment * 1000,
        end=segment * 1000 + 1,
        observed=2.0,
        expected=1.0,
        contribution=1.0,
        share=1.0,
    )


RUN, CALL = (State.RUN_USER, "", "worker"), (State.RUN_SYSCALL, "read", "worker")
READ = (State.RUN_SYSCALL, "pread64", "worker")
DISK = (State.WAIT_DISK, "virtio0-req.0", "worker")
CPU = (State.WAIT_CPU, "other", "worker")
IRQ = (State.IRQ, "virtio0-req.0", "worker")
HELPS, LATE = (State.RUN, "", "helper"), (State.WAIT_CPU, "", "helper")


@pytest.mark.parametrize(
    ("segments", "at", "state", "role", "call"),
    [
        # It waits in the call it ran last; interrupts in between tell nothing.
        ([RUN, READ, DISK], 2, State.WAIT_DISK, "", "pread64"),
        ([RUN, READ, IRQ, CPU, DISK], 4, State.WAIT_DISK, "", "pread64"),
        # It came back to user space: no call.
        ([READ, RUN, DISK], 2, State.WAIT_DISK, "", ""),
        # Running is in no call that it waits in.
        ([READ, DISK, READ, RUN], 3, State.RUN_USER, "", ""),
        ([RUN], 0, State.RUN_USER, "", ""),
        # A wait before it is over, with its call.
        ([READ, DISK, CPU, DISK], 3, State.WAIT_DISK, "", ""),
        # A path leaves a thread where that thread woke the subject.
        ([CALL, LATE, HELPS, CPU, CALL, RUN, READ, DISK], 7, State.WAIT_DISK, "", "pread64"),
        # On the other thread: what the subject did when it began to wait.
        ([RUN, CALL, LATE, HELPS], 3, State.RUN, "helper", "read"),
        ([READ, DISK, CALL, HELPS], 3, State.RUN, "helper", "read"),
        # A missing segment would have begun where the path ends.
        ([READ, DISK], 2, State.RUN, "", ""),
    ],
)
def test_the_call_that_it_waits_in(segments, at, state, role, call):
    assert find_context(path_of(*segments), finding_at(at, state, role)) == Context(call)


def test_where_in_the_code_both_threads_are():
    """The other thread's segments have their place, and the subject's sleep before has where."""
    found = path_of(RUN, CALL, HELPS, RUN)
    stacks = (Frame("flush", "a/log.c", 4, "a/app"),), (Frame("get", "a/pool.c", 8, "a/app"),)
    stack = np.array([-1, 1, 0, -1], np.int32)
    found = replace(found, paths=replace(found.paths, stacks=stacks, stack=stack))
    context = find_context(found, finding_at(2, HELPS[0], "helper"))
    assert context.location == {"flush (a/log.c:4)": 1000}
    assert context.waits_at == "get (a/pool.c:8)"
    assert not context.waker_location


def test_where_in_the_code_it_waits_and_who_ended_that():
    found = path_of(RUN, DISK, RUN)
    stacks = (Frame("read", "a/io.c", 4, "a/app"),), (Frame("done", "a/io.c", 8, "a/app"),)
    at = np.array([-1, 0, -1], np.int32)
    paths = replace(found.paths, stacks=stacks, stack=at, waker_stack=at + (at >= 0))
    context = find_context(replace(found, paths=paths), finding_at(1, State.WAIT_DISK))
    assert context.location == {"read (a/io.c:4)": 1000}
    assert context.waker_location == {"done (a/io.c:8)": 1000}
    assert not context.waits_at


def test_of_a_service_that_asks_another_its_own_wait_is_where_that_is_waited_for():
    """Client, service and backend; what the service asked and has answered is over."""
    found = path_of(*[(State.RUN, "", "worker")] * 8)
    tids = np.array([7, 8, 9, 8, 10, 8, 7, 7], np.int64)
    own = [("recv", "client.c", 1), ("ask", "web.c", 2), ("put", "old.c", 3)]
    stacks = tuple((Frame(name, f"a/{file}", line, "a/app"),) for name, file, line in own)
    stack = np.array([0, 1, 2, 1, -1, 1, -1, -1], np.int32)
    state = np.full(8, State.RUN, np.uint8)
    state[4] = State.WAIT_TIMER
    paths = replace(found.paths, stacks=stacks, stack=stack, tid=tids, state=state)
    at_backend = finding_at(4, State.WAIT_TIMER, "backend")
    assert find_context(replace(found, paths=paths), at_backend).waits_at == "ask (a/web.c:2)"
    unknown = replace(paths, stack=np.where(tids == 8, -1, stack).astype(np.int32))
    context = find_context(replace(found, paths=unknown), at_backend)
    assert context.waits_at == "recv (a/client.c:1)"
    # A thread of the kernel is for the service's call, which is its location.
    names = (*STRINGS, *own, "kworker/0:1")
    comm = np.where(tids == 10, len(names) - 1, 0).astype(np.int32)
    placed = stack.copy()
    placed[4] = stack[1]
    helped = replace(paths, strings=names, comm=comm, stack=placed)
    context = find_context(replace(found, paths=helped), at_backend)
    assert context.location == {"ask (a/web.c:2)": 1000}
    assert context.waits_at == "recv (a/client.c:1)"
