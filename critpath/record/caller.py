"""What critpath was started with, so that the command gets the same and not ours."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Python ignores these from its start on; a program that it starts must not.
_PYTHONS_OWN = frozenset({signal.SIGPIPE, signal.SIGXFSZ})


@dataclass(frozen=True)
class Caller:
    """The state of the process before anything of it was changed for recording.

    Attributes
    ----------
    mask, ignored : frozenset of int
        Signals that were blocked and ignored.
    descriptors : tuple of int
        Beyond 2, that were inherited and are inheritable.
    nice : int
    scheduler : tuple of int
        Policy and priority.
    environment : mapping of bytes
    """

    mask: frozenset[int]
    ignored: frozenset[int]
    descriptors: tuple[int, ...]
    nice: int
    scheduler: tuple[int, int]
    environment: Mapping[bytes, bytes]

    @classmethod
    def now(cls) -> Caller:
        """Take it down; to be called by the main thread before anything else."""
        ignored = {
            number
            for number in signal.valid_signals() - _PYTHONS_OWN
            if signal.getsignal(number) is signal.SIG_IGN
        }
        return cls(
            mask=frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            ignored=frozenset(ignored),
            descriptors=_inheritable(),
            nice=os.getpriority(os.PRIO_PROCESS, 0),
            scheduler=(os.sched_getscheduler(0), os.sched_getparam(0).sched_priority),
            environment=dict(os.environb),
        )


def _inheritable() -> tuple[int, ...]:
    """Return descriptors beyond 2 without close-on-exec: a make's job server, 3<FILE."""
    try:
        names = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    except OSError:
        return ()
    found = []
    for number in sorted(names):
        try:
            if number > 2 and os.get_inheritable(number):
                found.append(number)
        except OSError:  # the one that listed them
            continue
    return tuple(found)
