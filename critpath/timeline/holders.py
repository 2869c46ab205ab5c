"""Holders: who had what a thread waited for with time-outs, or asked for again and again.

Docs: docs/critical-path.md, "Holders".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct

from critpath.model import F64, I32, I64, Bool, Events, Kind, Loss, Workers, number_codes, role_name
from critpath.schema.environment import Environment
from critpath.schema.parameters.replay import WAITING

NO_HOLDER: Final = -1  # technical
_NEVER: Final = int(np.iinfo(np.int64).max)
_WRITE, _FREE = 1, 2  # technical: F_WRLCK, F_UNLCK

# As `critpath.model.Timelines.holds` has them.
Link = tuple[int, int, int, int]


class HolderRecord(NamedTuple):
    """What the replay knows of sleeps that a timer ended and that were tries.

    Attributes
    ----------
    sleeper, begin, end : int64 [sleeps]
        A worker, and its sleep (ns); in order of both.
    holder : int64 [sleeps]
        The worker that had not slept at its end, and ended the wait or woke who did so; -1 if
        there is none, -2 if there may be one.
    since : int64 [sleeps]
        Since when the holder had not slept (ns).
    waker : int64 [sleeps]
        The worker that ended the wait, -1 where a file lock was refused before the sleep.
    attempt : int64 [sleeps]
        Which event of a file lock refused it, -1 where none did.
    observed : int64 [sleeps]
        1 where who ended the wait did so by the futex that was waited on, whose address was
        recorded; it is the holder then.
    asker : int32 [events of file locks]
        The worker that asks for each lock, or gives it back; -1 unknown.
    timed : int32 [all sleeps that a timer ended]
        The worker, also of those that were no tries.
    length : float32 [all sleeps that a timer ended]
        How long it slept (ns).
    """

    sleeper: I64
    begin: I64
    end: I64
    holder: I64
    since: I64
    waker: I64
    attempt: I64
    observed: I64
    asker: I32
    timed: I32
    length: np.ndarray[Any, np.dtype[np.float32]]


class Holds(Struct, frozen=True):
    """Sleeps that are their holders' doing.

    Attributes
    ----------
    links : tuple of Link
        Holder, when it gave back what it had (ns, the sleep's end at the latest), sleeper, end
        of the sleep (ns); holders and sleepers are workers.
    inferred : frozenset of str
        Names of holders that were inferred, and of those that were recorded.
    recorded : frozenset of str
    """

    links: tuple[Link, ...] = ()
    inferred: frozenset[str] = frozenset()
    recorded: frozenset[str] = frozenset()

    @property
    def counted(self) -> Environment:
        """What a set says of them."""
        return Environment(
            holders_inferred=self.inferred or None, holders_recorded=self.recorded or None
        )


def find_holds(
    events: Events, record: HolderRecord, workers: Workers, strings: Sequence[str]
) -> Holds:
    """Judge which timed sleeps were somebody's doing.

    Parameters
    ----------
    events : Events
        Of a recording, with every `Kind.FILE_LOCK`.
    record : HolderRecord
        Of a replay that was fed the same events, and all others.
    workers : Workers
    strings : sequence of str
        What names are codes into.
    """
    names, name_of = number_codes(workers.name.astype(np.int64))
    texts = [strings[code] for code in names.tolist()]
    codes: dict[str, int] = {}
    role = np.array([codes.setdefault(role_name(text), len(codes)) for text in texts], np.int64)
    found = _find_coincidences(record, role[name_of], events.losses)
    rows = np.flatnonzero((record.observed == 1) & ~_find_lossy(record, events.losses))
    held = [_link(record, row, int(record.holder[row])) for row in rows.tolist()]
    held += _find_held_locks(events, record)
    return Holds(
        tuple(sorted(found + held)),
        frozenset(texts[name_of[row[0]]] for row in found),
        frozenset(texts[name_of[row[0]]] for row in held),
    )


# technical: sleeps that are counted together: a recording has one in thirty events.
_COUNTED: Final = 1 << 16


def _find_coincidences(record: HolderRecord, role: I64, losses: Sequence[Loss]) -> list[Link]:
    """Return the time-outs of waits whose ends and holders coincide as a rule, not by chance.

    `role` is the number of each worker's.
    """
    slept: Counter[int] = Counter()
    for first in range(0, len(record.timed), _COUNTED):
        some = slice(first, first + _COUNTED)
        timed = record.length[some].astype(np.float64)
        kinds, many = np.unique(_number_kinds(role[record.timed[some]], timed), return_counts=True)
        slept.update(dict(zip(kinds.tolist(), many.tolist(), strict=True)))
    guessed = (record.waker >= 0) & (record.observed == 0)
    rows = np.flatnonzero(guessed & ~_find_lossy(record, losses))
    length = (record.end - record.begin)[rows]
    kinds, kind = number_codes(_number_kinds(role[record.sleeper[rows]], length))
    holder = record.holder[rows]
    had = (holder >= 0) & (record.since <= record.begin)[rows]
    times, held, against = (
        np.bincount(kind[of], minlength=len(kinds))
        for of in (slice(None), had, holder == NO_HOLDER)
    )
    tried = WAITING.least_tries * np.array([slept[one] for one in kinds.tolist()], np.int64)
    rule = (held >= np.maximum(WAITING.least_timeouts, WAITING.least_held * times)) & (
        times >= tried
    )
    rule &= against <= WAITING.most_against * times
    chosen = np.flatnonzero(rule[kind] & (holder >= 0))
    return [_link(record, int(rows[at]), int(holder[at])) for at in chosen.tolist()]


def _number_kinds(name: I64, length: I64 | F64) -> I64:
    """Return numbers of names and of which sleeps have about the same length (ns), as one."""
    alike: I64 = np.round(np.log(np.maximum(length, 1)) / np.log(WAITING.alike)).astype(np.int64)
    return (name << 32) + alike


def _link(record: HolderRecord, row: int, holder: int, released: int = _NEVER) -> Link:
    """Return the link of a sleep to its holder."""
    end = int(record.end[row])
    return holder, min(released, end), int(record.sleeper[row]), end


def _find_lossy(record: HolderRecord, losses: Sequence[Loss]) -> Bool:
    """Return in which sleeps, or soon after, events were lost."""
    result = np.zeros(len(record.begin), bool)
    for loss in losses:
        until = 2 * record.end - record.begin
        result |= (record.begin <= loss.end) & (loss.begin <= until)
    return result


# File locks: who had one when another was refused it.


class _Lock(Struct, eq=False):
    """A range of a file that somebody has locked."""

    owner: int
    begin: int
    end: int
    writes: bool
    holder: int
    released: int = _NEVER

    def refuses(self, other: _Lock) -> bool:
        """Tell whether another lock cannot be there as well."""
        apart = self.begin > other.end or other.begin > self.end
        return self.owner != other.owner and not apart and (self.writes or other.writes)


def _find_held_locks(events: Events, record: HolderRecord) -> list[Link]:
    """Return the sleeps after a file lock was refused whose holder is known."""
    waits = {place: row for row, place in enumerate(record.attempt.tolist()) if place >= 0}
    if not waits:
        return []
    kinds = np.array([c.kind for c in events.classes], np.int64)
    rows = np.flatnonzero(kinds[events.event_class] == Kind.FILE_LOCK)
    fields = ("ret", "type", "s_dev", "i_ino", "owner", "fl_start", "fl_end")
    columns = [events.column(rows, name).tolist() for name in fields]
    times, classes = events.timestamp[rows].tolist(), events.event_class[rows].tolist()
    ends = sorted((loss.end for loss in events.losses), reverse=True)
    files: defaultdict[tuple[Any, ...], list[_Lock]] = defaultdict(list)
    found = []
    for place, (ret, kind, device, inode, owner, begin, end) in enumerate(
        zip(*columns, strict=True)
    ):
        while ends and ends[-1] <= times[place]:
            # What was given back meanwhile is not known.
            ends.pop()
            files.clear()
        # What flock() locks is nothing to fcntl(), and the other way round.
        of = events.classes[classes[place]]
        locks = files[of.host, of.name, device, inode]
        wanted = _Lock(owner, begin, end, kind == _WRITE, int(record.asker[place]))
        if ret == 0:
            _change(locks, wanted, times[place], free=kind == _FREE)
        elif place in waits:
            found.append((waits[place], [one for one in locks if one.refuses(wanted)]))
    lost = _find_lossy(record, events.losses)
    links = []
    for row, locks in found:
        last = max(locks, key=lambda one: one.released, default=None)
        if last and last.holder >= 0 and last.released > record.begin[row] and not lost[row]:
            links.append(_link(record, row, last.holder, last.released))
    return links


def _change(locks: list[_Lock], new: _Lock, time: int, *, free: bool) -> None:
    """Let an owner lock a range anew, or give it back."""
    for old in [k for k in locks if k.owner == new.owner]:
        if old.begin > new.end or new.begin > old.end:
            continue
        locks.remove(old)
        old.released = time
        for begin, end in ((old.begin, new.begin - 1), (new.end + 1, old.end)):
            if begin <= end:
                locks.append(_Lock(old.owner, begin, end, old.writes, old.holder))
    if not free:
        locks.append(new)
