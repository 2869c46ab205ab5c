"""Chains of threads that were waited for, against a walk in plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import CriticalPaths, Executions, PathSet, State
from critpath.model.stacks import read_stack
from critpath.model.vectors import InCode
from critpath.schema.environment import Environment
from critpath.vectors.chains import chain_times

NAMES = ("own", "db", "disk", "cache")
STEP = st.tuples(
    st.integers(0, len(NAMES) - 1),
    st.sampled_from([State.RUN, State.WAIT_CPU, State.WAIT_TIMER]),
    st.integers(1, 1_000_000),
)


def path_set(paths):
    begin, end, tid, state, start = [], [], [], [], [0]
    at = 0
    spans = []
    for steps in paths:
        spans.append(at)
        for thread, what, length in steps:
            begin.append(at)
            at += length
            end.append(at)
            tid.append(thread + 1)
            state.append(what)
        start.append(len(begin))
    n = len(paths)
    whole = CriticalPaths(
        start=np.array(start), begin=np.array(begin), end=np.array(end),
        state=np.array(state, np.uint8), detail=np.zeros(len(begin), np.int32),
        comm=np.array(tid, np.int32), tid=np.array(tid), host=np.zeros(len(begin), np.int64),
        cpu=np.zeros(len(begin), np.int32), lossy=np.zeros(len(begin), np.bool_),
        strings=("", *NAMES),
    )  # fmt: skip
    ends = [*spans[1:], at]
    executions = Executions(
        id=tuple(map(str, range(n))), begin=np.array(spans), end=np.array(ends),
        tid=np.ones(n, np.int64), host=np.zeros(n, np.int64), comm=("own",) * n, label=("",) * n,
    )  # fmt: skip
    none = np.zeros(n, np.int64)
    return PathSet(executions, whole, none, ("x",), "x", (), np.zeros(n, np.bool_))


def walk(steps):
    """Return the time by chain and state: from the end, what is not on the stack goes onto it."""
    stack: list[int] = []
    time: Counter = Counter()
    for thread, state, length in reversed(steps):
        if thread == 0:
            stack = []
        elif thread in stack:
            stack = stack[: stack.index(thread) + 1]
        else:
            stack.append(thread)
        time[tuple(NAMES[t] for t in stack), state] += length
    return time


@given(st.lists(st.lists(STEP, min_size=1, max_size=12), min_size=1, max_size=6))
def test_time_by_chain_is_that_of_a_plain_walk(paths):
    one = path_set(paths)
    times = chain_times(one, one)
    for number, steps in enumerate(paths):
        assert times.normal[number].sum() == sum(length for *_, length in steps)
        found = Counter()
        for (chain, state), ns in zip(times.leaves, times.normal[number].tolist(), strict=True):
            if ns:
                found[times.chains[chain], state] += ns
        assert found == walk(steps)
    assert np.array_equal(times.normal, times.sample)


STACKS = (
    "f\t\t0\tapp",
    "g\t\t0\tapp\nmalloc\t\t0\t/lib/libc.so.6\nf\ta/b/x.py\t3\tapp",
    "k\t\t0\tlibc.so.6",
)
FRAMES = ((InCode("f (app)"),), (InCode("f (b/x.py)"), InCode("g (app)")), ())


def walk_with_places(steps, stacks):
    """Return the time by threads and functions: what is waited for is below where that is done."""
    stack, chains = [], []
    for thread, *_ in reversed(steps):
        if thread == 0:
            stack = []
        elif thread in stack:
            stack = stack[: stack.index(thread) + 1]
        else:
            stack = [*stack, thread]
        chains.append(tuple(NAMES[t] for t in stack))
    time: Counter = Counter()
    last: dict = {}
    for chain, (_, state, length), code in zip(reversed(chains), steps, stacks, strict=True):
        above = last.get(chain[:-1], chain[:-1]) if chain else ()
        last[chain] = (*above, *chain[-1:], *(FRAMES[code] if code >= 0 else ()))
        time[last[chain], state] += length
    return time


@given(
    st.lists(
        st.lists(st.tuples(STEP, st.integers(-1, 2)), min_size=1, max_size=12),
        min_size=1,
        max_size=6,
    )
)
def test_time_by_functions_is_that_of_a_plain_walk(drawn):
    paths = [[(thread, state, 10**6) for (thread, state, _), _ in steps] for steps in drawn]
    codes = [[code for _, code in steps] for steps in drawn]
    one = path_set(paths)
    stack = np.array([code for each in codes for code in each], np.int32)
    changed = replace(one.paths, stacks=tuple(map(read_stack, STACKS)), stack=stack)
    with_stacks = replace(one, paths=changed, environment=(Environment(stacks=9),))
    times = chain_times(with_stacks, with_stacks)
    for number, (steps, own) in enumerate(zip(paths, codes, strict=True)):
        found = Counter()
        for (chain, state), ns in zip(times.leaves, times.normal[number].tolist(), strict=True):
            if ns:
                found[times.chains[chain], state] += ns
        assert found == walk_with_places(steps, own)
    # Where one set alone has stacks, its functions are no change.
    alone = chain_times(one, with_stacks)
    assert alone.chains == chain_times(one, one).chains
    assert np.array_equal(alone.normal, alone.sample)
