"""Switches that a kernel did not write, put where they must have been.

Some kernels leave out a few per cent of the switches, most of them from the idle thread
to another, for every tracer and without counting them as lost (docs/evaluation.md has
figures).  What the thread does then would be taken for idle's, and who it wakes would
have no waker.

The cpu's next switch names the thread that ran.  An idle cpu runs a thread as soon as it
is woken: the missing switch is put after the thread's last wake before that switch, and
after the interrupts that were open on the cpu then.  Otherwise it is put before the
first event of which the trace says that this thread was current (``critpath_current``,
which the ftrace recorder puts in).  Where neither is there, or events were lost, nothing
is put in.

A recording is searched in one pass (`MissingSwitches`), and what was found is put in on
the next (`insert_switches`): what a thread was woken for is known only later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from msgspec import Struct, structs

from critpath.model import I32, I64, Bool, EventChunk, EventClass, Events, Kind, Loss
from critpath.model.gaps import BASE, Gaps
from critpath.schema.environment import Environment
from critpath.timeline._missing import Search
from critpath.units import plural

_FIELDS: Final = 5  # technical
# technical: of what happened on cpus since their last switch, at most this much is kept (64
# MB).
_MOST_KEPT: Final = 4_000_000


class Insertions(Struct, frozen=True, eq=False):
    """Switches to put in, in order.

    Attributes
    ----------
    after : int64 [n]
        Which event of the recording (counted from 0) each comes after.
    cpu, event_class : int32 [n]
    values : int64 [n, 5]
        Its fields.
    written : int
        Switches in the recording.
    left : int
        Contradictions for which no place was sought, because too much happened
        between two switches of a cpu.
    """

    after: I64
    cpu: I32
    event_class: I32
    values: I64
    written: int
    left: int = 0

    def __len__(self) -> int:
        return len(self.after)

    @property
    def counted(self) -> Environment:
        """What a set says of them."""
        return Environment(switches_put_in=len(self), switches_written=self.written)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line if some were left."""
        if not self.left:
            return ()
        pairs = plural(self.left, "pair")
        return (f"switches that are missing: {pairs} left as they are, too much happens between",)

    def recoded(self, text: Callable[[int], str], code: Callable[[str], int]) -> Insertions:
        """Return the same for a stream whose strings have other codes.

        Parameters
        ----------
        text : callable
            The text of a code, in the stream that was searched.
        code : callable
            The code of a text, in the stream that they are to be put in.
        """
        values = self.values.copy()
        comms = values[:, [0, 3]]
        known, places = np.unique(comms, return_inverse=True)
        fresh = np.array([code(text(old)) for old in known.tolist()], np.int64)
        if len(known):
            values[:, [0, 3]] = fresh[places].reshape(comms.shape)
        return structs.replace(self, values=values)


class MissingSwitches:
    """Finds the switches that a kernel left out, in events as they come.

    Parameters
    ----------
    hosts : int
    most : int
        How much to keep of what happened since the last switches; see `Insertions.left`.
    """

    def __init__(self, hosts: int, most: int = _MOST_KEPT) -> None:
        self._search = Search(hosts, most)
        self._kinds = np.zeros(0, np.uint8)
        self._hosts = np.zeros(0, np.int32)

    def feed(self, chunk: EventChunk | Events, classes: Sequence[EventClass]) -> None:
        """Search the next events.

        Parameters
        ----------
        chunk : EventChunk
            Fields in the canonical order of each `Kind`.
        classes : sequence of EventClass
            All that are known now; those of an earlier call come first.
        """
        if len(classes) != len(self._kinds):
            self._kinds = np.array([c.kind for c in classes], np.uint8)
            self._hosts = np.array([c.host for c in classes], np.int32)
        self._search.feed(
            chunk.timestamp,
            chunk.cpu,
            chunk.event_class,
            chunk.offset,
            chunk.values,
            self._kinds,
            self._hosts,
        )

    def finish(self, losses: Sequence[Loss], gaps: Gaps | None = None) -> Insertions:
        """Return what to put in: nothing where events were lost, or not recorded, in between."""
        found = self._search.table()
        base = (gaps or Gaps()).of(BASE)
        columns = (base.begin.tolist(), base.end.tolist(), base.host.tolist())
        silent = [Loss(*span, -1, 0, 0, "") for span in zip(*columns, strict=True)]
        found = found[~_find_lossy(found, [*losses, *silent])]
        place, before, following = found.T[:3]
        found = found[np.lexsort((following, before, place))]
        return Insertions(
            after=found[:, 0].copy(),
            cpu=found[:, 12].astype(np.int32),
            event_class=found[:, 10].astype(np.int32),
            values=np.ascontiguousarray(found[:, 5:10]),
            written=self._search.written,
            left=self._search.left,
        )


def _find_lossy(found: I64, losses: Sequence[Loss]) -> Bool:
    """Return for each pair of switches whether events were lost between them."""
    lost = np.zeros(len(found), bool)
    if not len(found) or not losses:
        return lost
    host, cpu = found[:, 11], found[:, 12]
    # Of one cpu the pairs follow each other in time.
    order = np.lexsort((np.arange(len(found)), cpu, host))
    keys, first = np.unique(found[order][:, [11, 12]], axis=0, return_index=True)
    pairs = dict(zip(map(tuple, keys.tolist()), np.split(order, first[1:]), strict=True))
    times = {key: (found[rows, 3], found[rows, 4]) for key, rows in pairs.items()}
    for loss in losses:
        here = (loss.host, loss.cpu)
        for key in [here] if loss.cpu >= 0 else [key for key in pairs if key[0] == loss.host]:
            if key in pairs:
                begin, end = times[key]
                low = np.searchsorted(end, loss.begin, side="left")
                high = np.searchsorted(begin, loss.end, side="right")
                lost[pairs[key][low:high]] = True
    return lost


def insert_switches(
    chunks: Iterable[EventChunk], insertions: Insertions, classes: Sequence[EventClass]
) -> Iterator[EventChunk]:
    """Put switches into events as they come.

    Parameters
    ----------
    chunks : iterable of EventChunk
        The recording that was searched, from its beginning, with the same classes.
    insertions : Insertions
    classes : sequence of EventClass
        All that are known when a chunk comes.

    Yields
    ------
    EventChunk
        Holds until the next is asked for.

    Raises
    ------
    ValueError
        If the classes are not those of the search.
    """
    rows = at = 0
    for chunk in chunks:
        end = int(np.searchsorted(insertions.after, rows + len(chunk)))
        if end > at:
            numbers = set(insertions.event_class[at:end].tolist())
            if any(classes[number].kind != Kind.SWITCH for number in numbers):
                raise ValueError("these are not the classes of the recording that was searched")
            # A class may have more fields than a switch has by itself: they are not known here.
            width = max(len(classes[number].fields) for number in numbers)
            yield _insert(chunk, insertions, rows, at, end, width)
        else:
            yield chunk
        rows, at = rows + len(chunk), end


def _insert(
    chunk: EventChunk, insertions: Insertions, rows: int, low: int, high: int, width: int
) -> EventChunk:
    """Return a chunk, whose first event is number ``rows``, with some switches put in."""
    place = insertions.after[low:high] - rows
    values = np.zeros((high - low, max(width, _FIELDS)), np.int64)
    values[:, :_FIELDS] = insertions.values[low:high]
    offset = len(chunk.values) + values.shape[1] * np.arange(high - low)
    at = place + 1
    return EventChunk(
        timestamp=np.insert(chunk.timestamp, at, chunk.timestamp[place]),
        cpu=np.insert(chunk.cpu, at, insertions.cpu[low:high]),
        event_class=np.insert(chunk.event_class, at, insertions.event_class[low:high]),
        offset=np.insert(chunk.offset, at, offset),
        values=np.concatenate([chunk.values, values.ravel()]),
    )


def repair_switches(events: Events) -> Events:
    """Return the events of a whole recording with the switches that the kernel left out.

    Parameters
    ----------
    events : Events
        Fields in the canonical order of each `Kind`.

    Returns
    -------
    Events
        With an ``environment`` of its own that tells how many were put in; the same
        object if none was.
    """
    search = MissingSwitches(len(events.hosts))
    search.feed(events, events.classes)
    insertions = search.finish(events.losses, events.gaps)
    warnings = (*events.warnings, *insertions.warnings)
    if not len(insertions):
        return replace(events, warnings=warnings) if insertions.left else events
    whole = EventChunk(
        events.timestamp, events.cpu, events.event_class, events.offset, events.values
    )
    (filled,) = insert_switches([whole], insertions, events.classes)
    return replace(
        events,
        timestamp=filled.timestamp,
        cpu=filled.cpu,
        event_class=filled.event_class,
        offset=filled.offset,
        values=filled.values,
        environment=(*events.environment, insertions.counted),
        warnings=warnings,
    )
