"""What ``prev_state`` of ``sched_switch`` means, per kernel release: the one table.

Values are those LTTng writes.  Before 4.14 the task's raw state, with the bit one
above the highest state set alone when the thread was preempted; from 4.18 the
"reported" state, where 0x100 alone means preempted and 0x80 an idle kernel thread
(linux/sched.h, TASK_REPORT and TASK_REPORT_MAX).  Checked against traces of kernels
3.6, 3.10, 3.19, 4.4, 4.15 and 6.1.
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
    ((4, 18), PrevState(frozenset({0, 256}), dead=16 | 32)),
    ((4, 14), PrevState(frozenset({0, 256, 4096}), dead=16 | 32 | 128)),
    ((4, 8), PrevState(frozenset({0, 4096}), dead=16 | 32 | 64)),
    ((4, 2), PrevState(frozenset({0, 2048}), dead=16 | 32 | 64)),
    ((0, 0), PrevState(frozenset({0, 1024}), dead=16 | 32 | 64)),
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
