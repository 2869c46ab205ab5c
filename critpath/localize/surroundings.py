"""Where on its path a finding stands: in which system call, and after what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from critpath.localize.chosen import rows_of
from critpath.localize.phrases import doing, quoted
from critpath.model import INTERFERENCE, RUNNING, Finding, PathSet, State


@dataclass(frozen=True)
class Surroundings:
    """What a sentence says of a finding's place.

    Attributes
    ----------
    call : str
        System call in which the subject waited; "" if it did not, or the trace has none.
    after : str
        The last thing before that was no running of its own: what it waited for, or which
        thread woke it, in words.  "" at the beginning.
    """

    call: str = ""
    after: str = ""


def surroundings(paths: PathSet, finding: Finding) -> Surroundings:
    """Look back along the path from where a finding begins.

    Its own running, and what the machine does to it (interrupts, the wait for a cpu),
    come before nearly everything and tell nothing: they are skipped.

    Parameters
    ----------
    paths : PathSet
        The sample.
    finding : Finding
    """
    path = paths.paths
    rows = rows_of(path, finding.execution)
    subject = int(paths.executions.tid[finding.execution])
    first = rows.start + int(np.searchsorted(path.begin[rows], finding.begin))
    call, after = "", ""
    waits = finding.symbol.state not in RUNNING or finding.symbol.role != ""
    elsewhere = finding.symbol.role != ""
    for i in range(first - 1, rows.start - 1, -1):
        state, own = State(int(path.state[i])), int(path.tid[i]) == subject
        if elsewhere and not own:
            continue  # what the subject was already waiting for by then
        elsewhere = False
        detail = path.strings[path.detail[i]]
        if own and state in INTERFERENCE:
            continue
        if own and state in RUNNING:
            # Only what it ran last can be the call it waited in.
            call = detail if waits and state == State.RUN_SYSCALL else call
            waits = False
            continue
        after = doing(state, detail) if own else woken_by(path.strings[path.comm[i]])
        break
    return Surroundings(call, after)


def woken_by(comm: str) -> str:
    """Say that a thread ended the subject's wait."""
    return f"{quoted(comm)} woke it"
