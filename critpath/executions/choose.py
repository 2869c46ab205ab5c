"""Which specification of executions to use: the user's, the recording's, or the obvious one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from critpath.errors import UsageError
from critpath.executions.candidates import candidates
from critpath.executions.marker import find_markers
from critpath.executions.specification import Specification
from critpath.model import Events


def choose_specification(
    given: str | None,
    said: str,
    recording: Path,
    names: Sequence[str],
    marks: Callable[[], Events] | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Return the specification to use, and a note where it was not the user's.

    Parameters
    ----------
    given : str or None
        What the user gave.
    said : str
        What the recording's manifest says, "" without one.
    recording : Path
    names : sequence of str
        Names of the recording's event classes.
    marks : callable, optional
        Reads the events that may hold critpath's marks (`marker.WANTED`); called only if
        nobody said what an execution is.

    Raises
    ------
    UsageError
        If none was given and the recording suggests none or several.
    """
    if given:
        return given, ()
    if said:
        return said, ()
    if marks is not None and len(find_markers(marks())):
        return "marker", ("no --execution given: used marker, as critpath's marks are there",)
    found = candidates(names)
    if len(found) == 1:
        return found[0], (f"no --execution given: used {found[0]}, the only pair of events",)
    if found:
        raise UsageError(
            f"{recording}: several pairs of events could be executions",
            "choose one with --execution: " + " | ".join(found[:5]),
        )
    raise UsageError(
        f"{recording}: nothing says what an execution is",
        "give --execution process, thread, marker, or events:BEGIN,END[,key=FIELD]",
    )


def with_label(
    specification: Specification, texts: Sequence[Mapping[str, Sequence[str]]]
) -> tuple[Specification, tuple[str, ...]]:
    """Label executions by the first text field of their begin event, where none is named.

    Programs that trace requests mostly say what kind each is; an execution is then
    compared with those of its own kind.

    Parameters
    ----------
    specification : Specification
    texts : sequence of mappings of str to sequence of str
        Text fields of the payload by event name, one mapping per trace.

    Returns
    -------
    specification : Specification
    notes : tuple of str
        Says what was done, and how to undo it.
    """
    begin = specification.begin
    if not specification.label_open or begin is None or begin.conditions:
        return specification, ()
    named = next((names[begin.name] for names in texts if begin.name in names), ())
    fields = [f for f in named if f != specification.key]
    if not fields:
        return specification, ()
    note = (
        f"executions are labelled by field '{fields[0]}' of {begin.name} "
        "(label=FIELD names another, label=- none)"
    )
    return replace(specification, label=fields[0]), (note,)
