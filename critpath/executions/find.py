"""Finds the executions of a recording, and chooses the specification to find them by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from critpath.errors import UnspecifiedError, UsageError
from critpath.executions.events import find_by_events
from critpath.executions.fields import SYNTAX
from critpath.executions.marker import MARKER_EVENTS, find_markers
from critpath.executions.process import (
    find_command_runs,
    find_processes,
    find_threads,
    select_within_runs,
)
from critpath.executions.specification import Specification, parse_specification
from critpath.executions.windows import find_windows
from critpath.model import Events, Executions, Run, Script
from critpath.schema.notes import ExecutionChosen, LabelledByField, Note
from critpath.stores import open_place
from critpath.units import escape_name, safe_text, shorten

if TYPE_CHECKING:
    from critpath.read import Recording

NEAREST = 5  # technical


def find_executions(
    events: Events,
    specification: Specification | str,
    known: Sequence[str] = (),
    runs: Sequence[Run] = (),
    *,
    interleaved: bool = False,
    scripts: Sequence[Script] = (),
) -> Executions:
    """Find the executions that a specification describes, in order of their begin.

    Parameters
    ----------
    events : Events
        The kernel events and those that `Specification.get_requests` asks for.
    specification : Specification or str
    known : sequence of str
        Names of all event classes of the trace, for the message about an unknown one;
        by default the classes of ``events``.
    runs : sequence of Run
        Of a recorded command: with ``process``, they are the executions; with a filter
        (``process,comm=NAME``), executions must begin during one.
    interleaved : bool
        The trace also has another command's runs: executions of any kind must begin
        during one of ``runs``.
    scripts : sequence of Script
        What interpreters ran, for the labels of processes.

    Returns
    -------
    Executions
        ``incomplete`` counts what could not become an execution; ``notes`` say why.

    Raises
    ------
    UsageError
        If the specification names an unknown event, or a field that its event lacks.
    UnreadableError
        If a file of windows is malformed.
    """
    if isinstance(specification, str):
        specification = parse_specification(specification)
    if specification.kind == "process" and (runs or interleaved) and not specification.where:
        return find_command_runs(events, runs)
    found = (
        find_processes(events, specification.where, scripts)
        if specification.kind == "process"
        else FINDERS[specification.kind](
            events, specification, known or [c.name for c in events.classes]
        )
    )
    if specification.kind == "windows":
        return found
    # Without a run of its own an interleaved recording has nothing but the other's.
    own = interleaved or (specification.kind == "process" and runs)
    return select_within_runs(found, runs, interleaved=interleaved) if own else found


def require_events(specification: Specification, known: Sequence[str]) -> None:
    """Raise a UsageError if a specification names an event that is not among ``known``."""
    for pattern in (specification.begin, specification.end):
        if pattern is not None and pattern.name not in known:
            raise _unknown_event_error(pattern.name, sorted(set(known)))


def _find_by_patterns(
    events: Events, specification: Specification, known: Sequence[str]
) -> Executions:
    begin, end = specification.begin, specification.end
    if begin is None or end is None:
        raise UsageError("events without a begin and an end", SYNTAX)
    require_events(specification, known)
    return find_by_events(events, begin, end, key=specification.key, label=specification.label)


def _unknown_event_error(name: str, known: list[str]) -> UsageError:
    """List similar event names, or all of them if the name is ``?``."""
    if name == "?":
        return UsageError(
            f"the events of this trace: {safe_text(', '.join(known)) or '(none)'}",
            "name two of them: events:BEGIN,END",
        )
    import difflib  # noqa: PLC0415 - start-up time

    near = difflib.get_close_matches(name, known, n=NEAREST, cutoff=0.5)
    # Of the same provider, for a name that was not remembered at all.
    provider, colon, _ = name.partition(":")
    near += [k for k in known if colon and k.startswith(provider + colon) and k not in near]
    shown = safe_text(", ".join(near[:NEAREST]))
    return UsageError(
        f"no event {shorten(name)} among the {len(known)} event classes of this trace",
        (f"did you mean {shown}? " if near else "") + "--execution 'events:?,?' lists all of them",
    )


def _find_named_slices(events: Events, specification: Specification) -> Executions:
    from critpath.executions.named_slices import find_named_slices  # noqa: PLC0415 - start-up time

    return find_named_slices(events, specification)


FINDERS: Final[dict[str, Callable[[Events, Specification, Sequence[str]], Executions]]] = {
    "events": _find_by_patterns,
    "process": lambda events, specification, _: find_processes(events, specification.where),
    "thread": lambda events, specification, _: find_threads(events, specification.where),
    "windows": lambda events, of, _: find_windows(events, open_place(of.file)),
    "marker": lambda events, _, __: find_markers(events),
    "slice": lambda events, specification, _: _find_named_slices(events, specification),
}


# Choosing a specification: the user's, the recording's or a suggestion.


class Choice(NamedTuple):
    """What is an execution of a recording, as it is parsed and as it was written."""

    specification: Specification
    text: str
    notes: tuple[Note, ...]


def choose(
    recording: Recording, given: str | None, marks: Callable[[], Events], only: str = ""
) -> Choice:
    """Choose what is an execution of a recording: what the user says, else what it suggests.

    `marks` reads the events that may hold critpath's marks.  Raises UsageError if nothing or too
    much suggests itself, if it is another kind than `only`, or for an event that there is not.
    """
    names = recording.event_names
    possible = any(name in names for entry in MARKER_EVENTS for name in entry.names)
    text, how = choose_specification(
        *(given, recording.manifest.execution, recording, names), marks if possible else None
    )
    texts = [of.texts for of in recording.descriptions]
    chosen, labelled = add_label(parse_specification(text), texts)
    if chosen.where.container:
        groups = tuple(chain.from_iterable(recording.groups.values()))
        chosen = structs.replace(chosen, where=structs.replace(chosen.where, groups=groups))
    if only and chosen.kind != only:
        raise UsageError(
            f"{recording}: its runs are not {only}: {safe_text(text)}",
            f"add --execution {only}",
        )
    with recording.named():
        # Before anything is read, so that a misspelt name fails at once.
        require_events(chosen, names)
    return Choice(chosen, text, (*how, *labelled))


def choose_specification(
    given: str | None,
    recorded: str,
    recording: object,
    names: Sequence[str],
    marks: Callable[[], Events] | None = None,
) -> tuple[str, tuple[Note, ...]]:
    """Return the specification to use, and a note if it was inferred.

    Parameters
    ----------
    given : str or None
        The user's.
    recorded : str
        The manifest's, "" without one.
    recording
        What errors name.
    names : sequence of str
        Names of the recording's event classes.
    marks : callable, optional
        Reads the events that may hold critpath's marks (`marker.MARKER_EVENTS`); called
        only if neither the user nor the manifest specifies an execution.

    Raises
    ------
    UsageError
        If none was given and the recording suggests none or several.
    """
    if given:
        return given, ()
    if recorded:
        return recorded, ()
    if marks is not None and len(find_markers(marks())):
        return "marker", (ExecutionChosen("marker", "as critpath's marks are there"),)
    found = suggest_specifications(names)
    if len(found) == 1:
        return found[0], (ExecutionChosen(found[0], "the only pair of events"),)
    if found:
        several = UnspecifiedError(
            f"{recording}: several pairs of events could be runs",
            "choose one with --execution: " + " | ".join(found[:5]),
        )
        several.suggested = tuple(found)
        raise several
    raise UnspecifiedError(
        f"{recording}: nothing says what a run is",
        "give --execution process, thread, marker, or events:BEGIN,END[,key=FIELD]",
    )


def add_label(
    specification: Specification, texts: Sequence[Mapping[str, Sequence[str]]]
) -> tuple[Specification, tuple[Note, ...]]:
    """Label executions by the first text field of their begin event, unless a label is given.

    Programs that trace requests mostly record the kind of each; an execution is then compared
    with those of its own kind.

    Parameters
    ----------
    specification : Specification
    texts : sequence of mappings of str to sequence of str
        Text fields of the payload by event name, one mapping per trace.

    Returns
    -------
    specification : Specification
    notes : tuple of Note
        The field used, and how to undo it.
    """
    begin = specification.begin
    if not specification.label_open or begin is None or begin.conditions:
        return specification, ()
    named = next((names[begin.name] for names in texts if begin.name in names), ())
    fields = [f for f in named if f != specification.key]
    if not fields:
        return specification, ()
    return structs.replace(specification, label=fields[0]), (
        LabelledByField(fields[0], begin.name),
    )


PAIRS: Final = (
    ("begin", ("end",)),
    ("entry", ("exit",)),
    ("start", ("end", "stop", "done")),
)

# perf and ftrace spell the kernel's own events SUBSYSTEM:EVENT, as user space does.
KERNEL_PROVIDERS: Final = frozenset(
    {
        *("block", "bridge", "cgroup", "clk", "compaction", "cpuhp", "drm", "exceptions", "ext4"),
        *("fib", "filelock", "filemap", "ftrace", "gpio", "huge_memory", "i2c", "io_uring"),
        *("iomap", "iommu", "irq", "irq_matrix", "irq_vectors", "jbd2", "kmem", "kvm", "kvmmmu"),
        *("libata", "mce", "migrate", "mmap", "module", "msr", "napi", "neigh", "net", "nvme"),
        *("oom", "page_isolation", "percpu", "power", "printk", "probe", "qdisc", "random", "ras"),
        *("raw_syscalls", "rcu", "regmap", "rpm", "rseq", "sched", "scsi", "signal", "skb"),
        *("sock", "spi", "swiotlb", "sync_trace", "syscalls", "task", "tcp", "thermal"),
        *("timer", "tlb", "udp", "vmscan", "vsyscall", "wbt", "workqueue", "writeback", "x86_fpu"),
        *("xdp", "xen", "xfs", "btrfs"),
    }
)


def suggest_specifications(names: Sequence[str]) -> list[str]:
    """Return ``events:`` specifications for pairs of user-space events, sorted.

    Pairs are ``X_begin``/``X_end``, ``X_entry``/``X_exit`` and ``X_start`` with ``X_end``,
    ``X_stop`` or ``X_done`` of one provider (``_``, ``:``, ``.`` or ``-`` before the word).
    LTTng's own user-space providers are left out.
    """
    present = {name for name in names if _from_user_space(name)}
    found = []
    for name in sorted(present):
        for first, lasts in PAIRS:
            stem = name.removesuffix(first)
            if stem == name or not stem or stem[-1] not in "_:.-":
                continue
            found += [
                f"events:{escape_name(name)},{escape_name(stem + last)}"
                for last in lasts
                if stem + last in present
            ]
    return found


def _from_user_space(name: str) -> bool:
    provider, colon, _ = name.partition(":")
    return bool(colon) and provider not in KERNEL_PROVIDERS and not provider.startswith("lttng_ust")
