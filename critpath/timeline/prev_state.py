"""What ``prev_state`` of ``sched_switch`` means, per kernel release: the one table.

Values are those LTTng writes.  Before 4.14 the task's raw state, with the bit one
above the highest state (TASK_STATE_MAX) set alone when the thread was preempted: 0x200
before TASK_PARKED came with 3.9, 0x400 before TASK_NOLOAD came with 4.2, 0x800 before
TASK_NEW came with 4.8, then 0x1000.  With 4.14 the kernel's own tracepoint turned to the
"reported" state (linux/sched.h, TASK_REPORT), where 0x100 alone (TASK_REPORT_MAX) means
preempted, 0x40 parked and 0x80 an idle kernel thread; LTTng's modules followed only after
releases for 4.14 to 5.0 that still wrote the raw state.  The two do not contradict each
other but in 0x80, which is death in the raw state.  What was added since (TASK_RTLOCK_WAIT
with 5.15, TASK_FREEZABLE and TASK_FROZEN with 6.1) is reported as one of the states before.
Checked against traces of kernels 3.6, 3.10, 3.19, 4.4, 4.15 and 6.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class PrevState:
    """How to read ``prev_state``.

    Attributes
    ----------
    runnable : frozenset of int
        Exact values of a thread that still wants the cpu.
    dead : int
        Any of these bits: the thread will not run again.
    stopped : int
        Any of these bits: stopped by a signal or a debugger.
    """

    runnable: frozenset[int]
    dead: int
    stopped: int = 4 | 8


# (first release it holds for, meaning), newest first.
_TABLE: tuple[tuple[tuple[int, int], PrevState], ...] = (
    ((4, 18), PrevState(frozenset({0, 256, 4096}), dead=16 | 32)),
    ((4, 14), PrevState(frozenset({0, 256, 4096}), dead=16 | 32 | 128)),
    ((4, 8), PrevState(frozenset({0, 4096}), dead=16 | 32 | 64)),
    ((4, 2), PrevState(frozenset({0, 2048}), dead=16 | 32 | 64)),
    ((3, 9), PrevState(frozenset({0, 1024}), dead=16 | 32 | 64)),
    ((0, 0), PrevState(frozenset({0, 512}), dead=16 | 32 | 64)),
)

# Where no trace names its kernel: every marker that is unambiguous when it stands
# alone; 64 and 128 may be death or parking, so there the exit event decides.
UNKNOWN_RELEASE = PrevState(frozenset({0, 256, 1024, 2048, 4096}), dead=16 | 32)


def prev_state_of(release: str) -> PrevState:
    """Return the meaning of ``prev_state`` on a kernel.

    Parameters
    ----------
    release : str
        ``kernel_release`` of the trace's env, for example ``6.1.0-50-cloud-amd64``.
    """
    found = re.match(r"(\d+)\.(\d+)", release)
    if not found:
        return UNKNOWN_RELEASE
    version = (int(found[1]), int(found[2]))
    return next(meaning for since, meaning in _TABLE if version >= since)
