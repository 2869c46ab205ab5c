"""Path sets of every shape, for hypothesis."""

from __future__ import annotations

import numpy as np
from detailing import detailed
from hypothesis import strategies as st

from critpath.model import CriticalPaths, Executions, Loss, PathSet, State
from critpath.model.stacks import read_stack
from critpath.schema.environment import read_environment

HOSTILE = (
    "</ScRiPt><img src=x onerror=alert(1)>",
    "\x1b[31mred",
    "\u202eevil",
    "a\u2028b",
    "line\nbreak",
    "%0A::error::",
    '","path":[',
    "caf\udce9",
    "<<<<<<< HEAD",
)
TEXTS = st.one_of(st.sampled_from(["", "worker-1", "kworker/0:1H", *HOSTILE]), st.text(max_size=9))
# As far as a reader takes them: no difference and no sum overflows.
NUMBERS = st.integers(-(2**62), 2**62 - 1)


@st.composite
def path_sets(draw: st.DrawFn) -> PathSet:
    sources = draw(st.lists(TEXTS.filter(bool), min_size=1, max_size=3, unique=True))
    strings = ("", *dict.fromkeys(t for t in draw(st.lists(TEXTS, max_size=5)) if t))
    lengths = draw(st.lists(st.integers(0, 4), max_size=6))
    count, total = len(lengths), sum(lengths)
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    begin = np.array(draw(st.lists(st.integers(-(2**61), 2**61), min_size=count, max_size=count)))
    duration = draw(st.lists(st.integers(0, 2**52), min_size=total, max_size=total))
    segment_begin, segment_end, end = [], [], []
    for i in range(count):
        clock = int(begin[i])
        for step in duration[start[i] : start[i + 1]]:
            segment_begin.append(clock)
            clock += step
            segment_end.append(clock)
        end.append(clock)

    def column(low, high, size, dtype=np.int64):
        values = draw(st.lists(st.integers(low, high), min_size=size, max_size=size))
        return np.array(values, dtype)

    def texts(size):
        return tuple(draw(st.lists(TEXTS, min_size=size, max_size=size)))

    return PathSet(
        executions=Executions(
            id=texts(count),
            begin=begin.astype(np.int64),
            end=np.array(end, np.int64),
            tid=column(-1, 2**62, count),
            host=column(0, 2, count),
            comm=texts(count),
            label=texts(count),
            incomplete=draw(st.integers(0, 9)),
            notes=draw(st.lists(TEXTS, max_size=2).map(tuple)),
        ),
        paths=detailed(
            CriticalPaths(
                start=start,
                begin=np.array(segment_begin, np.int64),
                end=np.array(segment_end, np.int64),
                state=column(0, len(State) - 1, total, np.uint8),
                detail=column(0, len(strings) - 1, total, np.int32),
                comm=column(0, len(strings) - 1, total, np.int32),
                tid=column(-1, 2**40, total),
                host=column(0, 2, total),
                cpu=column(-1, 2**31 - 1, total, np.int32),
                lossy=column(0, 1, total).astype(np.bool_),
                strings=strings,
                elsewhere_idle=np.minimum(
                    column(0, 9, total), np.array(segment_end, np.int64) - segment_begin
                ),
                beneath=column(0, len(State) - 1, total, np.uint8),
                uncertainty=column(-1, 9, total),
                confidence=column(1, 3, total) / 3,
                others=column(0, 1, total).astype(np.bool_),
                stack=column(-1, len(strings) - 2, total, np.int32),
                waker_stack=column(-1, len(strings) - 2, total, np.int32),
                stacks=tuple(map(read_stack, strings[1:])),
            )
        ),
        session=column(0, len(sources) - 1, count),
        sources=tuple(sources),
        specification=draw(TEXTS),
        losses=draw(
            st.lists(st.builds(Loss, *[NUMBERS] * 6, TEXTS), max_size=2).map(tuple),
        ),
        lossy=column(0, 1, count).astype(np.bool_),
        environment=draw(
            st.lists(st.dictionaries(TEXTS, st.one_of(TEXTS, NUMBERS), max_size=3), max_size=2).map(
                lambda given: tuple(map(read_environment, given))
            )
        ),
        events=draw(st.integers(0, 2**62)),
        warnings=draw(st.lists(TEXTS, max_size=2).map(tuple)),
    )
