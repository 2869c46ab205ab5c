"""Executions between any two events, paired in one thread or by a key."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain

import numpy as np
from msgspec import Struct

from critpath.errors import UsageError
from critpath.executions.fields import (
    EventPattern,
    Occurrences,
    field_texts,
    find_occurrences,
)
from critpath.executions.scheduling import UNKNOWN, Owners, Scheduling, find_owners
from critpath.model import F64, I64, Bool, Events, Executions
from critpath.model._lookup import Numbers
from critpath.units import plural


def find_by_events(
    events: Events, begin: EventPattern, end: EventPattern, *, key: str = "", label: str = ""
) -> Executions:
    """Find executions from events that match one pattern to events that match another.

    Without a key, a begin and its end are in one thread.  With a key, they share its value
    and the host, and may be in different threads: the subject is then the thread of the
    *end*, because the critical path is walked backward from there; where that thread is
    unknown, the thread of the begin.
    """
    begins, ends = find_occurrences(events, begin), find_occurrences(events, end)
    if key:
        for found in (begins, ends):
            _require_field(found, key, "key")
    if label and not begins.has(label):
        _require_field(ends, label, "label")
    return find_between(events, begins, ends, key=key, label=label)


def find_between(
    events: Events,
    begins: Occurrences,
    ends: Occurrences,
    *,
    key: str = "",
    within: str = "",
    label: str = "",
) -> Executions:
    """Pair occurrences by a key, or by thread if it is ""; see `find_by_events`."""
    scheduling = Scheduling(events)
    # Together: whether a vtid is the kernel's is judged from all of its events.
    owners = find_owners(events, np.concatenate([begins.rows, ends.rows]), scheduling)
    count = len(begins.rows)
    begin_owner = Owners(owners.host[:count], owners.tid[:count], ())
    end_owner = Owners(owners.host[count:], owners.tid[count:], ())
    groups = _number_groups(begins, ends, owners, key=key, within=within)
    found = pair_events(begins.rows, groups[:count], ends.rows, groups[count:])
    del groups
    first, last = found.begin, found.end
    tid = end_owner.tid[last]
    subject = np.where(tid == UNKNOWN, begin_owner.tid[first], tid)
    notes = [*begins.notes, *ends.notes, *found.notes()]
    if begins.pattern == ends.pattern and len(begins.rows):
        of = f"of the same {key}" if key else "in the same thread"
        notes.insert(
            0,
            f"begin and end are the same event, {begins.pattern.name}: "
            f"runs last from one to the next {of}",
        )
    if found.unknown:
        missing = f"the field {key}" if key else "a known thread"
        notes.append(f"{plural(found.unknown, 'event')} left out: without {missing}")
    notes += [
        f"no event of the recording matches {side.pattern.name}"
        for side in (begins, ends)
        if not len(side.rows)
    ]
    return build_executions(
        events,
        scheduling,
        (begins.rows[first], ends.rows[last]),
        Owners(end_owner.host[last], subject, owners.notes),
        begins.take(first).texts(key).tolist() if key else [None] * len(first),
        _choose_labels(begins, ends, first, last, label),
        incomplete=found.incomplete,
        notes=tuple(dict.fromkeys(notes)),
        names=_process_names(events, begins.rows[first], begin_owner.tid[first] == subject),
    )


def _process_names(events: Events, rows: I64, own: Bool) -> list[str]:
    """Return the ``procname`` context of the begins that are in the subject's thread."""
    names = field_texts(events, rows, "procname")
    return [n if n is not None and mine else "" for n, mine in zip(names, own, strict=True)]


def _number_groups(
    begins: Occurrences, ends: Occurrences, owners: Owners, *, key: str, within: str
) -> I64:
    """Return a number for what a begin and its end share, -1 where it is unknown; begins first."""
    shared = _number_values(begins, ends, key) if key else (owners.tid, owners.tid != UNKNOWN)
    more = _number_values(begins, ends, within) if within else (owners.host, shared[1])
    group: I64 = Numbers().add(shared[0], more[0]).astype(np.int64)
    if within:
        group = Numbers().add(group, owners.host).astype(np.int64)
    group[~(shared[1] & more[1])] = -1
    return group


def _number_values(begins: Occurrences, ends: Occurrences, field: str) -> tuple[I64, Bool]:
    """Return a number for each text that a field has, of begins and then of ends; where it has."""
    sides = [side.numbers(field) for side in (begins, ends)]
    if all(side is not None for side in sides):  # their texts differ as they do
        values, known = zip(*(side for side in sides if side is not None), strict=True)
        return np.concatenate(values), np.concatenate(known)
    numbers: dict[str, int] = {}
    texts = chain(begins.texts(field), ends.texts(field))
    found = [-1 if text is None else numbers.setdefault(text, len(numbers)) for text in texts]
    made = np.array(found, np.int64)
    return made, made >= 0


def _choose_labels(
    begins: Occurrences, ends: Occurrences, first: I64, last: I64, label: str
) -> list[str]:
    if not label:
        return [""] * len(first)
    of_begin, of_end = begins.take(first).texts(label), ends.take(last).texts(label)
    return [
        b if b is not None else e if e is not None else ""
        for b, e in zip(of_begin, of_end, strict=True)
    ]


def _require_field(found: Occurrences, field: str, role: str) -> None:
    named = any(c.name == found.pattern.name for c in found.events.classes)
    if named and not found.has(field):
        raise UsageError(
            f"{found.pattern.name} has no field {field} to be the {role}",
            f"name one of its fields with {role}=, or parse it: "
            f"{found.pattern.name}[FIELD~(?P<{field}>REGEX)]",
        )


# Pairing, and making executions of pairs.


class Pairs(Struct, frozen=True):
    """Begins with their ends.

    Attributes
    ----------
    begin, end : int64 [pairs]
        Position of the begin and of its end, in their own sequences; begins ascend.
    repeated : int
        Begins dropped because the same group began again.
    open : int
        Begins without an end.
    unbegun : int
        Ends without a begin.
    unknown : int
        Begins and ends whose group is None.
    """

    begin: I64
    end: I64
    repeated: int
    open: int
    unbegun: int
    unknown: int

    @property
    def incomplete(self) -> int:
        """Number of events that are in no pair."""
        return self.repeated + self.open + self.unbegun + self.unknown

    def notes(self) -> tuple[str, ...]:
        """Return one line per reason that left something out."""
        reasons = (
            (self.repeated, "begin", "given up: the same thread or key began again before an end"),
            (self.open, "begin", "without an end in the recording"),
            (self.unbegun, "end", "without a begin in the recording"),
        )
        return tuple(f"{plural(count, noun)} {why}" for count, noun, why in reasons if count)


def pair_events(
    begin_rows: I64,
    begin_groups: I64 | Sequence[Hashable],
    end_rows: I64,
    end_groups: I64 | Sequence[Hashable],
) -> Pairs:
    """Pair every end with the last begin of its group: a number, -1 for none, or a name or None.

    A group that begins again before its end drops the earlier begin: its end was lost or
    never emitted, and pairing it with a later end would invent a long execution.  An event
    that is both ends the old execution first.
    """
    if isinstance(begin_groups, np.ndarray) and isinstance(end_groups, np.ndarray):
        group = np.concatenate([end_groups, begin_groups])
    else:
        numbers: dict[Hashable, int] = {}
        group = np.array(
            [
                -1 if name is None else numbers.setdefault(name, len(numbers))
                for name in chain(end_groups, begin_groups)
            ],
            np.int64,
        )
    count = len(end_rows)
    # By group, in it by position; stable: ends come before begins of the same event.
    order = np.lexsort((np.concatenate([end_rows, begin_rows]), group))
    order = order[np.searchsorted(group[order], 0) :]
    group, begins = group[order], order >= count
    follows = np.zeros(len(order), np.bool_)  # a begin of the same group
    follows[1:] = begins[:-1] & (group[1:] == group[:-1])
    closing = np.flatnonzero(follows & ~begins)
    first, last = order[closing - 1] - count, order[closing]
    paired = np.argsort(first)
    repeated = int((follows & begins).sum())
    return Pairs(
        first[paired],
        last[paired],
        repeated,
        int(begins.sum()) - repeated - len(paired),
        int((~begins).sum()) - len(paired),
        len(begin_rows) + count - len(order),
    )


def build_executions(
    events: Events,
    scheduling: Scheduling,
    rows: tuple[I64, I64],
    owners: Owners,
    ids: Sequence[str | None],
    labels: Sequence[str],
    *,
    incomplete: int,
    notes: tuple[str, ...],
    forward: bool = False,
    names: Sequence[str] | None = None,
    chance: F64 | None = None,
) -> Executions:
    """Make executions of paired rows, counting those that cannot have a path."""
    begin, end = (events.timestamp[r] for r in rows)
    known = owners.tid != UNKNOWN
    lasting = end > begin
    more = []
    if not known.all():
        more.append(
            f"{plural(int((~known).sum()), 'run')} left out: the thread is unknown "
            "(no vtid context, and no sched_switch says who held the cpu)"
        )
    if not (lasting | ~known).all():
        count = int((~lasting & known).sum())
        more.append(f"{plural(count, 'run')} of 0 ns left out")
    keep = np.flatnonzero(known & lasting)
    keep = keep[np.lexsort((owners.tid[keep], end[keep], begin[keep]))]
    shown = scheduling.names(owners.host[keep], owners.tid[keep], rows[0][keep], forward=forward)
    if names is not None:
        shown = [a or names[k] for a, k in zip(shown, keep.tolist(), strict=True)]
    return Executions(
        id=tuple(
            text if (text := ids[k]) is not None else f"{owners.tid[k]}@{begin[k]}"
            for k in keep.tolist()
        ),
        begin=begin[keep],
        end=end[keep],
        tid=owners.tid[keep],
        host=owners.host[keep],
        comm=tuple(shown),
        label=tuple(labels[k] for k in keep.tolist()),
        incomplete=incomplete + len(known) - len(keep),
        notes=(*notes, *owners.notes, *more),
        chance=None if chance is None else chance[keep],
    )
