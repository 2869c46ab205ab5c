"""The executions of a recording, by whatever finder the specification names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from critpath.errors import UsageError
from critpath.executions.events import find_by_events
from critpath.executions.marker import find_markers
from critpath.executions.pattern import SYNTAX
from critpath.executions.process import find_processes
from critpath.executions.runs import find_runs, within_runs
from critpath.executions.specification import Specification, parse_specification
from critpath.executions.thread import find_threads
from critpath.executions.windows import find_windows
from critpath.model import Events, Executions, Run
from critpath.units import safe_text, shorten

NEAREST = 5


def find_executions(
    events: Events,
    specification: Specification | str,
    known: Sequence[str] = (),
    runs: Sequence[Run] = (),
    *,
    interleaved: bool = False,
) -> Executions:
    """Find the executions that a specification describes, in order of their begin.

    Parameters
    ----------
    events : Events
        The kernel's selection and what `critpath.executions.specification.wanted` asks for.
    specification : Specification or str
    known : sequence of str
        Names of every event class of the trace, decoded or not, for the message
        about an unknown one; without it the classes of ``events``.
    runs : sequence of Run
        Of a recorded command: with ``process``, they are the executions; where some
        processes are chosen (``process,comm=NAME``), those that begin during a run.
    interleaved : bool
        The trace has another command's runs too: only what begins during one of ``runs``
        is the recording's own, of whatever kind.

    Returns
    -------
    Executions
        What could not become an execution is counted in ``incomplete`` and said
        in ``notes``.

    Raises
    ------
    UsageError
        If the specification names an event that the trace has no class for, or a
        field that the event does not have.
    UnreadableError
        If a file of windows is wrong.
    """
    if isinstance(specification, str):
        specification = parse_specification(specification)
    if specification.kind == "process" and (runs or interleaved) and not specification.where:
        return find_runs(events, runs)
    found = FINDERS[specification.kind](
        events, specification, known or [c.name for c in events.classes]
    )
    if specification.kind == "windows":
        return found
    # Without a run of its own an interleaved recording has nothing but the other's.
    own = interleaved or (specification.kind == "process" and runs)
    return within_runs(found, runs) if own else found


def require_events(specification: Specification, known: Sequence[str]) -> None:
    """Refuse a specification that names an event which a trace has no class for.

    Parameters
    ----------
    specification : Specification
    known : sequence of str
        Names of every event class of the trace.

    Raises
    ------
    UsageError
    """
    for pattern in (specification.begin, specification.end):
        if pattern is not None and pattern.name not in known:
            raise _unknown(pattern.name, sorted(set(known)))


def _events(events: Events, specification: Specification, known: Sequence[str]) -> Executions:
    begin, end = specification.begin, specification.end
    if begin is None or end is None:
        raise UsageError("events without a begin and an end", SYNTAX)
    require_events(specification, known)
    return find_by_events(events, begin, end, key=specification.key, label=specification.label)


def _unknown(name: str, known: list[str]) -> UsageError:
    """Say which events there are: all of them if the name is ``?``."""
    if name == "?":
        return UsageError(
            f"the events of this trace: {safe_text(', '.join(known)) or '(none)'}",
            "name two of them: events:BEGIN,END",
        )
    near = difflib.get_close_matches(name, known, n=NEAREST, cutoff=0.5)
    # Of the same provider, for a name that was not remembered at all.
    provider, colon, _ = name.partition(":")
    near += [k for k in known if colon and k.startswith(provider + colon) and k not in near]
    shown = safe_text(", ".join(near[:NEAREST]))
    return UsageError(
        f"no event {shorten(name)} among the {len(known)} event classes of this trace",
        (f"did you mean {shown}? " if near else "") + "--execution 'events:?,?' lists all of them",
    )


FINDERS: Final[dict[str, Callable[[Events, Specification, Sequence[str]], Executions]]] = {
    "events": _events,
    "process": lambda events, specification, _: find_processes(events, specification.where),
    "thread": lambda events, specification, _: find_threads(events, specification.where),
    "windows": lambda events, specification, _: find_windows(events, Path(specification.file)),
    "marker": lambda events, _, __: find_markers(events),
}
