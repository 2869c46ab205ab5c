"""Executions between any two events, paired in one thread or by a key."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from msgspec import Struct

from critpath.errors import UsageError
from critpath.executions.fields import (
    EventPattern,
    Occurrences,
    field_texts,
    find_occurrences,
)
from critpath.executions.scheduling import (
    UNKNOWN,
    Doubts,
    Owners,
    Scheduling,
    Sightings,
    find_owners,
)
from critpath.model import F64, I64, Bool, Events, Executions
from critpath.model._lookup import Numbers
from critpath.model.texts import Texts
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
    if events.aside is not None:
        return _find_aside(events, (begin, end), key, label)
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
    notes = [*begins.notes, *ends.notes]
    notes += _note_pairs(found, (begins.pattern, ends.pattern), key, (count, len(ends.rows)))
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


def _note_pairs(
    found: Pairs, patterns: tuple[EventPattern, EventPattern], key: str, counts: tuple[int, int]
) -> list[str]:
    """Return notes on pairs that so many begins and ends made."""
    notes = [*found.notes()]
    if patterns[0] == patterns[1] and counts[0]:
        of = f"of the same {key}" if key else "in the same thread"
        notes.insert(
            0,
            f"begin and end are the same event, {patterns[0].name}: "
            f"runs last from one to the next {of}",
        )
    if found.unknown:
        missing = f"the field {key}" if key else "a known thread"
        notes.append(f"{plural(found.unknown, 'event')} left out: without {missing}")
    notes += [
        f"no event of the recording matches {of.name}"
        for of, count in zip(patterns, counts, strict=True)
        if not count
    ]
    return notes


def _process_names(events: Events, rows: I64, own: Bool) -> list[str]:
    """Return the ``procname`` context of the begins that are in the subject's thread."""
    names = field_texts(events, rows, "procname")
    return [n if n is not None and mine else "" for n, mine in zip(names, own, strict=True)]


def _number_groups(
    begins: Occurrences, ends: Occurrences, owners: Owners, *, key: str, within: str
) -> I64:
    """Return a number for what a begin and its end share, -1 where it is unknown; begins first."""
    shared, known = _share(begins, ends, owners, key)
    group = _number_shared(shared, owners.host, known)
    if within:
        more, has = _share(begins, ends, owners, within)
        group = Numbers().add(group, _number_shared(more, owners.host, has)).astype(np.int64)
        group[~(known & has)] = -1
    return group


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
    left : int64 array
        Positions of the open begins.
    """

    begin: I64
    end: I64
    repeated: int
    open: int
    unbegun: int
    unknown: int
    left: I64 = np.zeros(0, np.int64)

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
    last_of_group = np.ones(len(order), np.bool_)
    last_of_group[:-1] = group[1:] != group[:-1]
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
        np.sort(order[begins & last_of_group] - count),
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
    more = _note_left_out(int((~known).sum()), int((~lasting & known).sum()))
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


def _note_left_out(unknown: int, instant: int) -> list[str]:
    """Return notes on runs that cannot have a path."""
    notes = []
    if unknown:
        notes.append(
            f"{plural(unknown, 'run')} left out: the thread is unknown "
            "(no vtid context, and no sched_switch says who held the cpu)"
        )
    if instant:
        notes.append(f"{plural(instant, 'run')} of 0 ns left out")
    return notes


# Events that are too many to be in memory together.

# Of a begin, until its end comes: its row in the recording and more.
_Begun = dict[str, np.ndarray[Any, Any]]


def _find_aside(
    events: Events, patterns: tuple[EventPattern, EventPattern], key: str, label: str
) -> Executions:
    """Find executions as `find_between` does, of events that are read part by part.

    Of a run that is found its columns are kept, of a begin what its end asks for.
    """
    seen = Sightings()
    counts = np.zeros(2, np.int64)
    for _, part in events.iter_aside():
        rows = [part.rows(of.name) for of in patterns]
        counts += [*map(len, rows)]
        seen.see(part, np.concatenate(rows), Scheduling(part))
    begun: _Begun = {}
    found: list[_Found] = []
    said = np.zeros((3, 3), np.int64)  # of pairs, of owners, of runs
    for position, part in events.iter_aside():
        begins, ends = (Occurrences(part, of, part.rows(of.name), {}) for of in patterns)
        count = len(begins.rows)
        owners = find_owners(part, np.concatenate([begins.rows, ends.rows]), Scheduling(part), seen)
        shared, known = _share(begins, ends, owners, key)
        fresh: _Begun = {
            "row": position[begins.rows],
            "time": part.timestamp[begins.rows],
            "host": owners.host[:count],
            "tid": owners.tid[:count],
            "shared": shared[:count],
            "name": field_texts(part, begins.rows, "procname"),
            "id": begins.texts(key) if key else np.full(count, None, object),
            "label": begins.texts(label) if label else np.full(count, "", object),
        }
        waiting = len(begun["row"]) if begun else 0
        begun = {k: np.concatenate([begun[k], v]) for k, v in fresh.items()} if begun else fresh
        known = np.concatenate([np.ones(waiting, np.bool_), known])
        group = _number_shared(
            np.concatenate([begun["shared"], shared[count:]]),
            np.concatenate([begun["host"], owners.host[count:]]),
            known,
        )
        of_begins = waiting + count
        pairs = pair_events(begun["row"], group[:of_begins], position[ends.rows], group[of_begins:])
        runs, left_out = _make_runs(part, pairs, begun, ends, owners, label)
        found.append(runs)
        said += [(pairs.repeated, pairs.unbegun, pairs.unknown), owners.doubts, (*left_out, 0)]
        begun = {name: column[pairs.left] for name, column in begun.items()}
    (repeated, unbegun, unknown), doubts, (unowned, instant, _) = said.tolist()
    none = np.zeros(0, np.int64)
    pairs = Pairs(none, none, repeated, len(begun["row"]), unbegun, unknown)
    notes = dict.fromkeys(_note_pairs(pairs, patterns, key, (int(counts[0]), int(counts[1]))))
    return _join_runs(
        events,
        found,
        pairs.incomplete + unowned + instant,
        (*notes, *Doubts(*doubts).word(), *_note_left_out(unowned, instant)),
    )


def _share(
    begins: Occurrences, ends: Occurrences, owners: Owners, key: str
) -> tuple[np.ndarray[Any, Any], Bool]:
    """Return what a begin and its end share, a number or a text, and where it is known."""
    if not key:
        return owners.tid, owners.tid != UNKNOWN
    sides = [side.numbers(key) for side in (begins, ends)]
    if all(side is not None for side in sides):  # their texts differ as they do
        values, known = zip(*(side for side in sides if side is not None), strict=True)
        return np.concatenate(values), np.concatenate(known)
    texts = np.concatenate([begins.texts(key), ends.texts(key)])
    return texts, np.array([text is not None for text in texts.tolist()], np.bool_)


def _number_shared(shared: np.ndarray[Any, Any], host: I64, known: Bool) -> I64:
    """Return a number for each value on each host, -1 where it is unknown."""
    if shared.dtype == object:
        numbers: dict[str, int] = {}
        texts = shared.tolist()
        shared = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
    group: I64 = Numbers().add(shared, host).astype(np.int64)
    group[~known] = -1
    return group


# Columns of executions that were found, where each begins in the recording, and what its thread
# calls itself.
_Found = dict[str, Any]


def _make_runs(
    part: Events,
    pairs: Pairs,
    begun: _Begun,
    ends: Occurrences,
    owners: Owners,
    label: str,
) -> tuple[_Found, tuple[int, int]]:
    """Return the runs of pairs, and how many are left out: of no known thread, of 0 ns."""
    first, last = pairs.begin, pairs.end
    of_ends = len(owners.tid) - len(ends.rows)
    tid, mine = owners.tid[of_ends:][last], begun["tid"][first]
    tid = np.where(tid == UNKNOWN, mine, tid)
    begin, end = begun["time"][first], part.timestamp[ends.rows[last]]
    known, lasting = tid != UNKNOWN, end > begin
    keep = np.flatnonzero(known & lasting)
    first, last, begin, end, tid = first[keep], last[keep], begin[keep], end[keep], tid[keep]
    names = np.where(mine[keep] == tid, begun["name"][first], np.array(None, object)).tolist()
    ids = zip(begun["id"][first].tolist(), tid.tolist(), begin.tolist(), strict=True)
    texts = begun["label"][first]
    if label:
        texts = np.where(texts == None, ends.take(last).texts(label), texts)  # noqa: E711 - of each
    runs = {
        "begin": begin,
        "end": end,
        "tid": tid,
        "host": owners.host[of_ends:][last],
        "row": begun["row"][first],
        "id": Texts.of([text if text is not None else f"{who}@{t}" for text, who, t in ids]),
        "label": Texts.of(["" if text is None else text for text in texts.tolist()]),
        "name": Texts.of([name or "" for name in names]),
    }
    return runs, (int((~known).sum()), int((~lasting & known).sum()))


# technical: runs whose threads are named together.
_NAMED: Final = 1 << 16


def _join_runs(
    events: Events, found: list[_Found], incomplete: int, notes: tuple[str, ...]
) -> Executions:
    """Return the runs of all parts, in order, with their threads' names."""
    columns: _Found = {}
    order = np.zeros(0, np.int64)
    for name in [*found[0]]:
        parts = [runs.pop(name) for runs in found]
        joined = Texts.join(parts) if name in {"id", "label", "name"} else None
        columns[name] = np.concatenate(parts) if joined is None else joined
        del parts
        if name == "row":  # numbers are there: of equal ones the first in the recording is first
            keys = (columns[key] for key in ("row", "tid", "end", "begin"))
            order = np.lexsort(tuple(keys))
            columns = {key: column[order] for key, column in columns.items()}
        elif joined is not None:
            columns[name] = joined[order].in_few_bytes()
    scheduling, position = Scheduling(events), events.aside.position if events.aside else order
    row, own = columns.pop("row"), columns.pop("name")
    names = []
    for first in range(0, len(row), _NAMED):
        some = slice(first, first + _NAMED)
        # The last of the events in memory that is before it.
        at = np.searchsorted(position, row[some]) - 1
        shown = scheduling.names(columns["host"][some], columns["tid"][some], at)
        names.append(Texts.of([a or b for a, b in zip(shown, own[some], strict=True)]))
    return Executions(comm=Texts.join(names), incomplete=incomplete, notes=notes, **columns)
