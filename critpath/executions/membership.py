"""Which pid namespace or control group a thread belongs to.

A thread's pid namespace is in LTTng's context ``pid_ns``, in ``child_ns_inum`` of its
fork, and in the process statedump; a fork without it leaves the child where its parent
is.  Control groups are in ``cgroup_attach_task`` and in the statedump of the ftrace
recorder; LTTng has the cgroup *namespace*, as context and in its statedump.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np
from msgspec import Struct

from critpath.executions.fields import field_numbers, field_texts
from critpath.executions.scheduling import rows_of_kind
from critpath.model import I64, Bool, EventRequest, Events, Kind
from critpath.model.containers import (
    ControlGroup,
    Places,
    find_group,
    index_groups,
    is_container,
    parse_group,
)
from critpath.units import safe_text

ThreadKey = tuple[int, int]  # host, tid
_SHOWN: Final = 5  # technical: places that a note names
_MOST_NAMES: Final = 12  # technical: containers and units that a note names

# What must be read beyond the kernel's own selection.
# LTTng before 2.12, and the ftrace recorder, have the namespaces with the state.
PID_NAMESPACES: Final = EventRequest(
    Kind.OTHER,
    ("lttng_statedump_process_pid_ns", "lttng_statedump_process_state"),
    (("tid",), ("ns_inum",), ("ns_level",)),
)
CGROUP_NAMESPACES: Final = EventRequest(
    Kind.OTHER, ("lttng_statedump_process_cgroup_ns",), (("tid",), ("ns_inum",))
)
_GROUP_STATE: Final = "critpath_statedump_cgroup"
CGROUPS: Final = EventRequest(
    Kind.OTHER,
    ("cgroup_attach_task", "cgroup:cgroup_attach_task", _GROUP_STATE),
    (("pid", "tid"), ("dst_root",), ("dst_path", "path")),
)


class ThreadFilter(Struct, frozen=True):
    """Selects processes or threads.

    Attributes
    ----------
    ns, cgroup_ns : int
        Inode numbers of a pid namespace and of a cgroup namespace, 0 for any.  Namespaces
        below it do not match.
    cgroup : str
        Path of a control group, which includes those below it; "" for any.
    comm : str
        Name of the program or the thread, "" for any.
    container : str
        Any name, or an id's begin, of a container, pod or unit; "" for any.
    groups : tuple of ControlGroup
        By which that is looked up: those that the recording names.
    """

    ns: int = 0
    cgroup_ns: int = 0
    cgroup: str = ""
    comm: str = ""
    container: str = ""
    groups: tuple[ControlGroup, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ns or self.cgroup_ns or self.cgroup or self.comm or self.container)

    def get_requests(self) -> tuple[EventRequest, ...]:
        """Return the events to read for this filter."""
        asked = (
            (self.ns, PID_NAMESPACES),
            (self.cgroup_ns, CGROUP_NAMESPACES),
            (self.cgroup or self.container, CGROUPS),
        )
        return tuple(request for value, request in asked if value)

    def match(self, events: Events, host: I64, tid: I64, rows: I64) -> tuple[Bool, int]:
        """Match threads with the namespaces and the control group (not the comm)."""
        inside = np.ones(len(rows), np.bool_)
        unknown = np.zeros(len(rows), np.bool_)
        threads = list(
            zip(zip(host.tolist(), tid.tolist(), strict=True), rows.tolist(), strict=True)
        )

        def test(
            asked: Sequence[tuple[ThreadKey, int]],
            histories: Sequence[_History],
            meant: Callable[[int | str], bool],
        ) -> None:
            for i, (thread, row) in enumerate(asked):
                values = [v for history in histories if (v := history.at(thread, row)) is not None]
                unknown[i] |= not values
                inside[i] &= any(map(meant, values))

        if self.ns:
            test(threads, [_read_pid_namespaces(events)], lambda value: value == self.ns)
        if self.cgroup_ns:
            test(threads, [_read_cgroup_namespaces(events)], lambda value: value == self.cgroup_ns)
        if self.cgroup or self.container:
            process = _read_processes(events)
            leaders = [
                ((thread[0], int(process.at(thread, row) or thread[1])), row)
                for thread, row in threads
            ]
            histories = _read_cgroups(events)
            if self.cgroup:
                test(leaders, histories, lambda value: _is_below(str(value), self.cgroup))
            if self.container:
                test(leaders, histories, _match_container(self))
        return inside, int(unknown.sum())


ALL_THREADS: Final = ThreadFilter()


class _History:
    """A value of every thread over time, by row."""

    def __init__(self) -> None:
        self._rows: dict[ThreadKey, list[int]] = {}
        self._values: dict[ThreadKey, list[int | str]] = {}

    def set(self, thread: ThreadKey, row: int, value: int | str) -> None:
        self._rows.setdefault(thread, []).append(row)
        self._values.setdefault(thread, []).append(value)

    def at(self, thread: ThreadKey, row: int) -> int | str | None:
        """Return the value known at a row, else the first one known after it."""
        rows = self._rows.get(thread)
        if not rows:
            return None
        return self._values[thread][max(0, bisect_right(rows, row) - 1)]

    def steps(self) -> Iterator[tuple[ThreadKey, int, int | str]]:
        """Yield every thread, row and value."""
        for thread, rows in self._rows.items():
            for row, value in zip(rows, self._values[thread], strict=True):
                yield thread, row, value

    def last(self) -> Iterator[int | str]:
        """Yield the last value of every thread."""
        return (values[-1] for values in self._values.values())


def describe_known_places(events: Events, where: ThreadFilter) -> tuple[str, ...]:
    """Return notes on the places that the trace shows, one for each kind in the filter."""
    kinds: tuple[tuple[int | str, str, Callable[[Events], list[_History]]], ...] = (
        (where.ns, "pid namespace", lambda events: [_read_pid_namespaces(events)]),
        (where.cgroup_ns, "cgroup namespace", lambda events: [_read_cgroup_namespaces(events)]),
        (where.cgroup, "control group", _read_cgroups),
    )
    notes = []
    if where.container:
        names = sorted({of.place for of in where.groups})
        more = f" and {len(names) - _MOST_NAMES} others" if len(names) > _MOST_NAMES else ""
        there = f"the recording has {', '.join(map(safe_text, names[:_MOST_NAMES]))}{more}"
        known = there if names else "the recording names none"
        notes.append(f"nothing in {safe_text(where.container)}: {known}")
    for asked, kind, find in kinds:
        if asked:
            counts = Counter(place for history in find(events) for place in history.last())
            seen = [f"{safe_text(str(p))} ({n:,})" for p, n in counts.most_common(_SHOWN)]
            known = f"threads are known in {', '.join(seen)}" if seen else "the trace names none"
            notes.append(f"nothing in {kind} {safe_text(str(asked))}: {known}")
    return tuple(notes)


def _match_container(where: ThreadFilter) -> Callable[[int | str], bool]:
    """Return what tells whether a path is of the container that is asked for."""
    named = index_groups(where.groups)

    @cache
    def is_inside(path: int | str) -> bool:
        known = find_group(str(path), named)
        found = (*([known] if known else []), *parse_group(str(path)))
        return any(of.matches(where.container) for of in found)

    return is_inside


def _is_below(path: str, group: str) -> bool:
    group = "/" + group.strip("/")
    return group in {"/", path} or path.startswith(group + "/")


def _rows_named(events: Events, request: EventRequest) -> I64:
    parts = [np.zeros(0, np.int64), *(events.rows(name) for name in request.names)]
    return np.sort(np.concatenate(parts))


class ProcessPlaces(Places):
    """In which container, pod or service each process was, over time.

    Parameters
    ----------
    events : Events
        With those that are `WANTED`.
    groups : mapping
        Whose control groups were, by the name of their host; "" where there is one.
    """

    WANTED: Final = (CGROUPS,)  # what must be read for it

    def __init__(self, events: Events, groups: Mapping[str, Sequence[ControlGroup]]) -> None:
        super().__init__(_find_moves(events, groups))


def _find_moves(
    events: Events, groups: Mapping[str, Sequence[ControlGroup]]
) -> list[tuple[int, int, int, str]]:
    """Return when each process was first in which place: host, process, time, place."""
    named = {
        number: index_groups(groups[name])
        for number, name in enumerate(events.hosts if len(events.hosts) > 1 else ("",))
        if name in groups
    }
    steps: list[tuple[int, int, ThreadKey, str]] = []
    for hierarchy, history in enumerate(_read_cgroups(events) if named else ()):
        steps += [(row, hierarchy, of, str(path)) for of, row, path in history.steps()]
    now: dict[ThreadKey, dict[int, str]] = {}
    places: dict[tuple[int, str], str] = {}
    times = events.timestamp.tolist()
    moves: list[tuple[int, int, int, str]] = []
    for row, hierarchy, thread, path in sorted(steps, key=lambda step: step[0]):
        key = thread[0], path
        if key not in places:
            places[key] = _name_place(find_group(path, named.get(thread[0], {})))
        mine = now.setdefault(thread, {})
        mine[hierarchy] = places[key]
        moves.append((*thread, times[row], max(mine.values(), key=_rank_place)))
    return moves


def _name_place(group: ControlGroup | None) -> str:
    """Return what a group is called, "" where that says nothing: a session, a user's manager."""
    if group is None or (group.unit and not group.unit.endswith(".service")):
        return ""
    return "" if group.unit.startswith("user@") else group.place


def _rank_place(place: str) -> int:
    """Order what several hierarchies say: a container before a unit, before nothing."""
    return 2 * is_container(place) + bool(place)


def _read_processes(events: Events) -> _History:
    """Return the process of every thread but process leaders."""
    known = [
        *_read_numbers(events, rows_of_kind(events, Kind.STATEDUMP), "tid", "pid"),
        *_read_numbers(events, rows_of_kind(events, Kind.FORK), "child_tid", "child_pid"),
    ]
    history = _History()
    for row, thread, process in sorted(known):
        history.set(thread, row, process)
    return history


def _inherit(
    events: Events, known: Sequence[tuple[int, ThreadKey, int | str]], *, processes: bool = False
) -> _History:
    """Combine observed values with what children inherit, in the order of the trace.

    ``known`` has (row, thread, value).  With ``processes``, all threads of a process share a
    value, which is observed of the leader.
    """
    forks = rows_of_kind(events, Kind.FORK)
    parents, born = (events.column(forks, f"{who}_tid") for who in ("parent", "child"))
    if processes:
        groups = [events.column(forks, f"{who}_pid") for who in ("parent", "child")]
        parents, born = (
            np.where(group > 0, group, tid)
            for group, tid in zip(groups, (parents, born), strict=True)
        )
        other = parents != born  # else a further thread of the same process
        forks, parents, born = forks[other], parents[other], born[other]
    children = zip(
        forks.tolist(),
        events.hosts_of(forks).tolist(),
        parents.tolist(),
        born.tolist(),
        strict=True,
    )
    # At the same row, an observed value comes after an inherited one, and wins.
    steps: list[tuple[int, int, ThreadKey, ThreadKey | None, int | str]] = [
        (row, 0, (host, child), (host, parent), 0) for row, host, parent, child in children
    ]
    steps += [(row, 1, thread, None, value) for row, thread, value in known]
    history = _History()
    # The statedump may reach a thread older than the trace only after it has forked: such
    # children look forward.
    late: list[tuple[int, ThreadKey, ThreadKey]] = []
    for row, _, thread, parent, value in sorted(steps, key=lambda step: step[:2]):
        if parent is None:
            history.set(thread, row, value)
            continue
        inherited = history.at(parent, row)
        if inherited is None:
            late.append((row, thread, parent))
        else:
            history.set(thread, row, inherited)
    for row, thread, parent in late:
        inherited = history.at(parent, row)
        if inherited is not None and history.at(thread, row) is None:
            history.set(thread, row, inherited)
    return history


def _read_pid_namespaces(events: Events) -> _History:
    known: list[tuple[int, ThreadKey, int | str]] = []
    for kind, tid_field, field in (
        (Kind.FORK, "child_tid", "child_ns_inum"),
        (Kind.EXEC, "tid", "pid_ns"),
    ):
        known += _read_numbers(events, rows_of_kind(events, kind), tid_field, field)
    # A thread has one event per level of nesting; its own namespace is the deepest.
    rows = _rows_named(events, PID_NAMESPACES)
    level, _ = field_numbers(events, rows, "ns_level")
    has = field_numbers(events, rows, "ns_inum")[0] > 0
    dump = _read_numbers(events, rows[has], "tid", "ns_inum")
    deepest: dict[ThreadKey, tuple[int, int, int | str]] = {}
    for depth, (row, thread, value) in zip(level[has].tolist(), dump, strict=True):
        if depth >= deepest.get(thread, (-1, 0, 0))[0]:
            deepest[thread] = (depth, row, value)
    known += [(row, thread, value) for thread, (_, row, value) in deepest.items()]
    return _inherit(events, known)


def _read_cgroup_namespaces(events: Events) -> _History:
    dump = _read_numbers(events, _rows_named(events, CGROUP_NAMESPACES), "tid", "ns_inum")
    execs = rows_of_kind(events, Kind.EXEC)
    return _inherit(events, [*dump, *_read_numbers(events, execs, "tid", "cgroup_ns")])


def _read_cgroups(events: Events) -> list[_History]:
    """Return the control groups of processes, in every hierarchy (version 1 has several)."""
    rows = _rows_named(events, CGROUPS)
    hierarchy = events.column(rows, "dst_root")
    return [_read_hierarchy(events, rows[hierarchy == each]) for each in np.unique(hierarchy)]


def _read_hierarchy(events: Events, rows: I64) -> _History:
    tid, _ = field_numbers(events, rows, "pid")
    texts = field_texts(events, rows, "dst_path")
    hosts = events.hosts_of(rows).tolist()
    known = [
        (row, (host, thread), text)
        for row, host, thread, text in zip(rows.tolist(), hosts, tid.tolist(), texts, strict=True)
        if text
    ]
    states = {*events.rows(_GROUP_STATE).tolist()}
    return _inherit(events, _put_at_births(events, known, states), processes=True)


def _put_at_births(
    events: Events, known: Sequence[tuple[int, ThreadKey, str]], states: set[int]
) -> list[tuple[int, ThreadKey, str]]:
    """Let what the first word of a process says be so since its birth, if that is no move.

    The kernel lets a process be born in another group than its parent's, and tells of no move.
    """
    forks = rows_of_kind(events, Kind.FORK)
    born = zip(
        events.hosts_of(forks).tolist(),
        events.column(forks, "child_tid").tolist(),
        forks.tolist(),
        strict=True,
    )
    birth: dict[ThreadKey, int] = {(host, child): row for host, child, row in born}
    first: dict[ThreadKey, int] = {}
    for row, thread, _ in sorted(known):
        if row > birth.get(thread, row):
            first.setdefault(thread, row)
    return [
        (birth[thread], thread, text)
        if row in states and first.get(thread) == row
        else (row, thread, text)
        for row, thread, text in known
    ]


def _read_numbers(
    events: Events, rows: I64, tid_field: str, field: str
) -> list[tuple[int, ThreadKey, int]]:
    """Read a positive number of a thread from events, as (row, thread, number)."""
    tid, _ = field_numbers(events, rows, tid_field)
    value, has = field_numbers(events, rows, field)
    return [
        (row, (host, thread), number)
        for row, host, thread, number, known in zip(
            rows.tolist(),
            events.hosts_of(rows).tolist(),
            tid.tolist(),
            value.tolist(),
            has.tolist(),
            strict=True,
        )
        if known and number > 0
    ]
