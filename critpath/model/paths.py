"""Critical paths, and the sets of them that are saved and compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from critpath.model.details import NO_DETAIL, Detail, word_detail
from critpath.model.recording import QUOTA_HELD
from critpath.model.stacks import Stack, word_stack
from critpath.model.table import (
    F64,
    I32,
    I64,
    U8,
    Bool,
    Column,
    Declared,
    FlatTable,
    Table,
    col,
    column_types,
    freeze_columns,
)
from critpath.model.vectors import look_up, name_on_host, number_codes, role_name
from critpath.records import dataclass
from critpath.schema.environment import Environment
from critpath.schema.kinds import STATES, State
from critpath.units import NS_PER_S, format_ns, plural, safe_text

# Writes a set into a file: `critpath.api`, whose types have methods, puts there who does.
WRITERS: list[Callable[[PathSet, Path], None]] = []

if TYPE_CHECKING:
    from critpath.model.events import Loss
    from critpath.model.requests import RequestFacts
    from critpath.schema.notes import Remark


# The executions of a recording: who, from when to when.


# technical: nanoseconds that the executions of a set are below in all, 73 years, so that no sum
# of two sets overflows.
MOST_TIME: Final = 2**61


@dataclass(frozen=True, eq=False)
class Executions(FlatTable):
    """The executions of one recording: who, from when to when.

    Attributes
    ----------
    incomplete : int
        Begins without an end and ends without a begin: counted, never guessed.
    notes : tuple of str
        One line each: what was left out and why.
    requests : RequestFacts or None
        Where all of them are requests of servers: what is known besides.
    causes : tuple of str
        Of slices, the id of the one that caused each, "" for none; empty where it is not known,
        as of what was saved.
    chance : float64 or None
        Under a budget that chose executions: the chance that each had, NaN for one that was
        recorded without being chosen.  None where nothing chose, and of what was saved.
    """

    COMPUTED: ClassVar = {"duration": Declared("how long it takes", "duration_ns")}
    ORDER = ("id", "label", "begin", "end", "duration", "tid", "comm", "host")

    id: Sequence[str] = field(metadata=col("the key's value, else TID@BEGIN", "execution"))
    begin: I64 = field(metadata=col("when it begins", "begin_ns"))
    end: I64 = field(metadata=col("when it ends", "end_ns"))
    tid: I64 = field(metadata=col("whose it is", least=0))
    host: I64 = field(metadata=col("where"))
    comm: Sequence[str] = field(metadata=col("the thread's name at the begin"))
    label: Sequence[str] = field(metadata=col("a name that the specification gives"))
    incomplete: int = 0
    notes: tuple[Remark, ...] = ()
    requests: RequestFacts | None = None
    causes: tuple[str, ...] = ()
    chance: F64 | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chance is not None:
            freeze_columns(self, len(self.id), "chance")
        if self.requests is not None and len(self.requests) != len(self.id):
            raise ValueError("Executions: facts of other requests")
        if self.causes and len(self.causes) != len(self.id):
            raise ValueError("Executions: causes of other slices")

    @property
    def time(self) -> int:
        """What all of them take together (ns), exactly, however much it is."""
        each = self.duration
        return (int((each >> 31).sum()) << 31) + int((each & (2**31 - 1)).sum())

    def find_rows(self, keys: Collection[tuple[int, int, int]]) -> I64:
        """Return the rows of some, by begin, end and thread."""
        columns = (column.tolist() for column in (self.begin, self.end, self.tid))
        found = [row for row, key in enumerate(zip(*columns, strict=True)) if key in keys]
        return np.array(found, np.int64)

    def take(self, rows: I64 | slice) -> Executions:
        """Return some executions, in the order of their positions or of a slice."""
        at = np.arange(len(self))[rows].tolist() if self.causes else ()
        return replace(
            self,
            **self.take_columns(rows),
            requests=self.requests and self.requests.take(rows),
            causes=tuple(self.causes[row] for row in at),
            chance=None if self.chance is None else self.chance[rows],
        )

    @property
    def duration(self) -> I64:
        """How long each takes (ns)."""
        return self.end - self.begin


def find_crossings(start: I64, host: I64, state: U8) -> tuple[Bool, I64]:
    """Return which segments come from another host or go to one, and which host that is.

    What is in flight does, where its neighbour is elsewhere; else the first segment over there.
    """
    other = host
    if not len(host) or (host == host[0]).all():
        return np.zeros(len(host), np.bool_), other
    other = host.copy()
    inside = np.ones(len(host), np.bool_)
    inside[start[:-1][start[:-1] < len(host)]] = False
    changes = np.flatnonzero(inside[1:] & (host[1:] != host[:-1]))
    flies = state == State.NET_TRANSIT
    # The side that is in flight; where both are, the first, which is the longer way.
    before = changes[flies[changes]]
    other[before] = host[before + 1]
    after = changes[~flies[changes]] + 1
    other[after] = host[after - 1]
    return other != host, other


@dataclass(frozen=True, eq=False)
class CriticalPaths(Table):
    """Critical paths of several executions, one after the other.

    ``start[i]:start[i + 1]`` are the segments of path ``i``; they tile
    ``[begin, end]`` of the execution exactly.

    Attributes
    ----------
    start : int64 [paths + 1]
    strings : tuple of str
    details : tuple of Detail
        Each once, the first of which says nothing.
    stacks : tuple of Stack
        What ``stack`` and ``waker_stack`` are codes into; -1: none.
    """

    COMPUTED: ClassVar = {
        "path": Declared("whose path it is of"),
        "segment": Declared("its number in its path"),
        "duration": Declared("how long it lasts", "duration_ns"),
        "woken": Declared(
            "the thread that it woke at its end, where the path goes on", "wakes", least=0
        ),
    }
    ORDER = (
        *("path", "segment", "begin", "end", "duration", "state", "detail", "tid", "comm", "cpu"),
        *("host", "lossy", "elsewhere_idle", "beneath", "woken", "uncertainty", "confidence"),
        *("others", "stack", "waker_stack"),
    )

    start: I64
    begin: I64 = field(metadata=col("when it begins", "begin_ns"))
    end: I64 = field(metadata=col("when it ends", "end_ns"))
    state: U8 = field(metadata=col("what its thread does, or waits for", words=STATES))
    detail: I32 = field(metadata=col("what qualifies the state", words="words_of_details"))
    comm: I32 = field(metadata=col("name of the thread that it is spent on", words="strings"))
    tid: I64 = field(metadata=col("the thread that it is spent on, often another", least=0))
    host: I64 = field(metadata=col("where that is"))
    cpu: I32 = field(metadata=col("where it ran, or waited to run", least=0))
    lossy: Bool = field(metadata=col("it overlaps a loss on its host"))
    strings: tuple[str, ...]
    # Which other processor the thread might have used no event says.
    elsewhere_idle: I64 = field(
        default_factory=lambda: np.zeros(0, np.int64),
        metadata=col(
            "of a wait for a cpu, how long another was idle meanwhile", "elsewhere_idle_ns", least=0
        ),
    )
    beneath: U8 = field(
        default_factory=lambda: np.zeros(0, np.uint8),
        metadata=col(
            "where a request is QUEUED or SHARED, what the thread did meanwhile, mostly",
            words=STATES,
            least=1,
        ),
    )
    uncertainty: I64 = field(
        default_factory=lambda: np.zeros(0, np.int64),
        metadata=col(
            "where the path comes from another host, how wrong that may be",
            "uncertainty_ns",
            least=0,
        ),
    )
    # 1 but for requests, where who worked for whom is inferred.
    confidence: F64 = field(
        default_factory=lambda: np.zeros(0, np.float64),
        metadata=col("how probable it is that it was for the run"),
    )
    others: Bool = field(
        default_factory=lambda: np.zeros(0, np.bool_),
        metadata=col("it was for others, whose work woke the thread that the path goes on in"),
    )
    stack: I32 = field(
        default_factory=lambda: np.zeros(0, np.int32),
        metadata=col(
            "in which its thread slept, or ran until it slept or woke the next: a line per frame, "
            "innermost first, of function, file, line and module with tabs between",
            words="words_of_stacks",
            least=0,
        ),
    )
    waker_stack: I32 = field(
        default_factory=lambda: np.zeros(0, np.int32),
        metadata=col(
            "of a wait, that in which its thread was woken", words="words_of_stacks", least=0
        ),
    )
    details: tuple[Detail, ...] = (NO_DETAIL,)
    stacks: tuple[Stack, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.uncertainty):
            unknown = np.where(find_crossings(self.start, self.host, self.state)[0], -1, 0)
            object.__setattr__(self, "uncertainty", unknown)
        usual = {
            "stack": -1,
            "waker_stack": -1,
            "elsewhere_idle": -1,
            "confidence": 1,
            "beneath": 0,
            "others": False,
        }
        for name, value in usual.items():
            if not len(getattr(self, name)):
                column = np.full(len(self.begin), value, SEGMENT_COLUMNS[name])
                object.__setattr__(self, name, column)
        freeze_columns(self, len(self.begin), *SEGMENT_COLUMNS)
        freeze_columns(self, -1, "start")

    def __len__(self) -> int:
        return len(self.start) - 1

    def chunks(self) -> Iterator[CriticalPaths]:
        """Yield all paths in order, as many at a time as are in memory together: here, all.

        `StoredPaths` fetches them chunk by chunk; what adds up over paths is computed so.
        """
        yield self

    def resident(self) -> CriticalPaths:
        """Return these paths with all their segments in memory."""
        return self

    def map(self, change: Callable[[CriticalPaths], CriticalPaths]) -> CriticalPaths:
        """Change every path by itself; of stored ones, when they are fetched.

        Parameters
        ----------
        change : callable
            Returns as many paths as it is given, in their order.
        """
        return change(self)

    def map_stacks(self, change: Callable[[Stack], Stack]) -> CriticalPaths:
        """Change every stack; without frames it leaves its segments without one."""
        return self.map(partial(_with_stacks, change=change))

    def keep(self, rows: I64) -> CriticalPaths:
        """Return the same paths, with some in memory: `take` of these fetches nothing.

        Parameters
        ----------
        rows : int64 array
        """
        del rows
        return self

    def take(self, rows: I64) -> CriticalPaths:
        """Return some of the paths.

        Parameters
        ----------
        rows : int64 array
            Their positions, in the order wanted.
        """
        rows = np.asarray(rows, np.int64)
        counts = self.start[rows + 1] - self.start[rows]
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        segments: slice | I64
        if len(rows) and (np.diff(rows) == 1).all():  # no copy: consecutive paths may be long
            segments = slice(int(self.start[rows[0]]), int(self.start[rows[-1] + 1]))
        else:
            segments = np.arange(start[-1]) + np.repeat(self.start[rows] - start[:-1], counts)
        columns: dict[str, Any] = {name: self._part(name, segments) for name in SEGMENT_COLUMNS}
        columns |= {name: getattr(self, name) for name in _CODES}
        return CriticalPaths(start=start, **columns)

    def _part(self, name: str, segments: slice | I64) -> Any:
        """Return a column of some segments."""
        return getattr(self, name)[segments]

    @property
    def duration(self) -> I64:
        """Duration of every segment (ns)."""
        return self.end - self.begin

    @property
    def path(self) -> I64:
        """Which path every segment belongs to."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.start))

    def find_served(self) -> I64:
        """Return of every segment itself; of what was for others, the next that was not.

        There the thread goes on that others woke.  What is last on a path is its own.
        """
        at = np.arange(len(self.begin))
        own = ~self.others
        own[self.start[1:][np.diff(self.start) > 0] - 1] = True
        served = np.where(own, at, len(at))
        return np.asarray(np.minimum.accumulate(served[::-1])[::-1], np.int64)

    @property
    def wakes(self) -> Bool:
        """Whether a segment ends in a wake: its thread woke that of the next segment.

        Not every change of thread is one.  Where a thread begins to wait, its path goes
        on in the thread that will wake it; where that wakes it, the path comes back.
        Only the way back is a wake (or a creation, or a packet).  So, from the end of a
        path: a thread that the path is not inside of yet was followed through a wake.
        """
        result = np.zeros(len(self.begin), np.bool_)
        thread = self.host * 2**32 + self.tid
        changes = np.flatnonzero(thread[1:] != thread[:-1])
        path, last = self.path, self.start[1:] - 1
        changes = changes[path[changes] == path[changes + 1]]
        inside: list[int] = []
        current = -1
        for at, of, before in zip(
            changes[::-1].tolist(),
            path[changes][::-1].tolist(),
            thread[changes][::-1].tolist(),
            strict=True,
        ):
            if of != current:
                current, inside = of, [int(thread[last[of]])]
            if before in inside:
                del inside[inside.index(before) + 1 :]
            else:
                inside.append(before)
                result[at] = True
        return result

    @property
    def segment(self) -> I64:
        """The number of every segment in its path."""
        path = self.path
        return np.arange(len(path), dtype=np.int64) - self.start[path]

    @property
    def woken(self) -> I64:
        """The thread that every segment's own woke at its end; -1: it woke none."""
        return np.where(self.wakes, np.append(self.tid, -1)[1:][: len(self.tid)], -1)

    @property
    def words_of_details(self) -> tuple[str, ...]:
        """What qualifies states, as people read it."""
        return tuple(map(word_detail, self.details))

    @property
    def words_of_stacks(self) -> tuple[str, ...]:
        """The stacks as texts."""
        return tuple(map(word_stack, self.stacks))


# Of segments, each with its dtype.
SEGMENT_COLUMNS: Final = {
    name: column_types(CriticalPaths)[name] for name in CriticalPaths.declared()
}


@dataclass(frozen=True, eq=False)
class PathSet(Table):
    """Executions with their critical paths: what ``extract`` saves and ``compare`` reads.

    Attributes
    ----------
    executions : Executions
    paths : CriticalPaths
        One path per execution.
    session : int64 [executions]
        Which recording each came from: index into ``sources``.
    sources : tuple of str
        Names of the recordings, as given by the user.
    specification : str
        The ``--execution`` specification that found them.
    losses : tuple of Loss
    lossy : bool [executions]
        The execution's window overlaps a loss on its host.
    environment : tuple of Environment
        What each trace, manifest and step of the extraction says.
    events : int
        Events in the recordings.
    warnings : tuple of Note or str
    """

    executions: Executions
    paths: CriticalPaths
    session: I64
    sources: tuple[str, ...]
    specification: str
    losses: tuple[Loss, ...]
    lossy: Bool
    environment: tuple[Environment, ...] = ()
    events: int = 0
    warnings: tuple[Remark, ...] = ()

    def __post_init__(self) -> None:
        freeze_columns(self, len(self.executions))
        if len(self.paths) != len(self.executions):
            raise ValueError("PathSet: one path per run")

    def __len__(self) -> int:
        return len(self.executions)

    def __repr__(self) -> str:
        executions = self.executions
        mean = float((executions.end - executions.begin).mean()) if len(self) else 0.0
        notes = [self.specification, f"{format_ns(mean)} on average"]
        lossy = int(self.lossy.sum())
        notes += [f"{lossy:,} overlap a loss"] if lossy else []
        notes += [plural(len(self.warnings), "warning")] if self.warnings else []
        return (
            f"PathSet: {plural(len(self), 'run')} of "
            f"{plural(len(self.sources), 'recording')}\n({safe_text(', '.join(notes))})"
        )

    @property
    def kind(self) -> str:
        """What its executions are: ``requests``, ``process`` ..."""
        return kind_of(self.specification)

    @property
    def quota_held(self) -> bool:
        """Whether its recorders say that a CPU quota held threads back, with when or without."""
        return any(isinstance(said, str) and QUOTA_HELD in said for said in self.warnings)

    @property
    def has_stacks(self) -> bool:
        """Whether a recording of them has stacks."""
        return any(about.stacks is not None for about in self.environment)

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts that threads' names end with; none of recordings of one host each."""
        found = set()
        for about in self.environment:
            clocks = about.clocks or ()
            if all("host" in clock for clock in clocks):  # else a trace's own, of that name
                found |= {name_on_host("-", str(clock["host"])) for clock in clocks}
        return frozenset(name.removeprefix("-@") for name in found)

    def mean_times(self) -> list[tuple[str, int, int]]:
        """Return every state's time: the mean of an execution (ns, rounded down), and all of it.

        The total comes first.  The means are for people who look at the difference between two
        versions of a baseline; the sums tell a file that was changed by hand.
        """
        count, of = max(len(self), 1), self.paths
        spent = [0] * len(STATES)
        for state in np.unique(of.state).tolist():
            spent[state] = int(of.duration[of.state == state].sum())
        named = [(name, ns // count, ns) for name, ns in zip(STATES, spent, strict=True) if ns]
        return [("total", sum(spent) // count, sum(spent)), *sorted(named)]

    def uncertainty(self, index: int) -> int | None:
        """Return by how much times between the hosts that a path crosses may be wrong (ns).

        The largest over its crossings; 0 of one that stays on a host, and where hosts are one
        kernel's; None where it crosses to a host whose clock is not known.
        """
        bounds = self._column_of("uncertainty", index)
        return None if (bounds < 0).any() else int(bounds.max(initial=0))

    def confidence(self, index: int) -> float:
        """Return how probable it is of the least sure part of a path that it is the execution's."""
        sure, others = (self._column_of(name, index) for name in ("confidence", "others"))
        return float(sure[~others].min(initial=1.0))

    def _column_of(self, name: str, index: int) -> Any:
        """Return a column of one path's segments; of stored paths only its piece is fetched."""
        if isinstance(self.paths, StoredPaths):
            return getattr(self.paths.take(np.array([index])), name)
        first, last = self.paths.start[index : index + 2].tolist()
        return getattr(self.paths, name)[first:last]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save as Parquet, for `critpath.load`: whole or not at all, equal sets to equal bytes.

        Parameters
        ----------
        path : str or path

        Raises
        ------
        UsageError
            If it cannot be written there.
        """
        [write] = WRITERS
        write(self, Path(path))

    def chunks(self) -> Iterator[PathSet]:
        """Yield the set in order, as many executions at a time as are in memory together.

        Each has the set's facts, and its paths in memory.
        """
        first = 0
        for paths in self.paths.chunks():
            if len(paths) == len(self):
                yield self if paths is self.paths else replace(self, paths=paths)
                return
            rows = slice(first, first + len(paths))
            first += len(paths)
            yield replace(
                self,
                executions=self.executions.take(rows),
                paths=paths,
                session=self.session[rows],
                lossy=self.lossy[rows],
            )

    def sum_beneath(self, state: State | None = None, role: str | None = None) -> I64:
        """Return for each execution how long a thread was in each state beneath others' requests.

        Parameters
        ----------
        state : State, optional
            QUEUED or SHARED; None for both.
        role : str, optional
            Of threads that are counted; "" for the execution's own, None for all.
        """
        found = np.zeros((len(self), len(State)), np.int64)
        first, hosts = 0, self.hosts
        for some in self.chunks():
            paths, of = some.paths, some.executions
            chosen = (paths.beneath > 0) & ((state is None) | (paths.state == state))
            own = (paths.tid == of.tid[paths.path]) & (paths.host == of.host[paths.path])
            if role == "":
                chosen &= own
            elif role is not None:
                theirs = look_up(
                    paths.comm, paths.strings, lambda n: role_name(n, hosts=hosts) == role
                )
                chosen &= ~own & (theirs > 0)
            rows = np.flatnonzero(chosen)
            place = (paths.path[rows] + first, paths.beneath[rows].astype(np.int64))
            np.add.at(found, place, paths.duration[rows])
            first += len(some)
        return found

    def take(self, rows: I64) -> PathSet:
        """Return some executions, with their paths in memory, as a set.

        Parameters
        ----------
        rows : int64 array
            Their positions, in the order wanted.
        """
        return replace(
            self,
            executions=self.executions.take(rows),
            paths=self.paths.take(rows),
            session=self.session[rows],
            lossy=self.lossy[rows],
        )

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Return what each column means, of a row per segment."""
        rest = CriticalPaths.meanings()
        del rest["path"]
        of = Executions.meanings()
        return {
            "recording": "where the run comes from",
            "execution": of["execution"],
            "position": "its number: ids need not differ",
            "label": of["label"],
            **rest,
        }

    def table_columns(self) -> dict[str, Column]:
        """Return a row per segment, with the execution that it is of."""
        rest = dict(self.paths.table_columns())
        path = rest.pop("path").values
        codes = path.astype(np.int32)
        return {
            "recording": Column(self.session[path].astype(np.int32), self.sources or ("",)),
            "execution": Column(codes, self.executions.id or ("",)),
            "position": Column(path),
            "label": Column(codes, self.executions.label or ("",)),
            **rest,
        }


def kind_of(specification: str) -> str:
    """Return what executions are by their specification: the word that it begins with."""
    return specification.partition(":")[0].partition(",")[0].strip()


def join_paths(parts: Sequence[CriticalPaths]) -> CriticalPaths:
    """Join tables of paths; what has codes gets one common table of what they mean.

    Parameters
    ----------
    parts : sequence of CriticalPaths
        In memory; pieces of one table, which share what codes mean, keep that.

    Returns
    -------
    CriticalPaths
        The paths of all parts in order.
    """
    columns: dict[str, Any] = {}
    for table, (first, names) in _CODES.items():
        columns[table] = getattr(parts[0], table) if parts else first
        if any(getattr(part, table) is not columns[table] for part in parts):
            numbers: dict[Any, int] = {each: at for at, each in enumerate(first)}
            codes = [  # the last is -1: nothing
                np.array(
                    [*(numbers.setdefault(e, len(numbers)) for e in getattr(part, table)), -1],
                    np.int32,
                )
                for part in parts
            ]
            columns[table] = tuple(numbers)
            for name in names:
                recoded = [of[getattr(p, name)] for of, p in zip(codes, parts, strict=True)]
                columns[name] = np.concatenate(recoded)
    for name, kind in SEGMENT_COLUMNS.items():
        if name not in columns:
            none: Any = np.zeros(0, kind)
            columns[name] = np.concatenate([none, *(getattr(part, name) for part in parts)])
    counts = [np.diff(part.start) for part in parts]
    start = np.cumsum(np.concatenate([[0], *counts])).astype(np.int64)
    return CriticalPaths(start=start, **columns)


# What codes of segments mean: what there is at least of it, and the columns of the codes.
_CODES: Final[Mapping[str, tuple[tuple[Any, ...], tuple[str, ...]]]] = {
    "strings": (("",), ("comm",)),
    "details": ((NO_DETAIL,), ("detail",)),
    "stacks": ((), ("stack", "waker_stack")),
}


# Critical paths that stay where they are stored, and are fetched as they are needed.


@dataclass(frozen=True)
class Piece:
    """Consecutive paths that are fetched together: a row group of a file.

    Attributes
    ----------
    length : int
        Paths.
    load : callable
        Fetches them, checked; may raise UnreadableError.
    """

    length: int
    load: Callable[[], CriticalPaths]


class StoredPaths(CriticalPaths):
    """Paths that are in memory a piece at a time.

    Asked for a column they are `CriticalPaths`: then all pieces are fetched
    and kept.  `chunks`, `map` and `take` keep only what they return, so that sets are
    compared that do not fit in memory.

    Parameters
    ----------
    pieces : sequence of Piece
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        # The dataclass's own columns stay unset until one is asked for: `__getattr__`.
        self.__dict__["pieces"] = tuple(pieces)
        self.__dict__["bounds"] = np.cumsum([0, *(piece.length for piece in pieces)])

    def __len__(self) -> int:
        return int(self.__dict__["bounds"][-1])

    def __getattr__(self, name: str) -> Any:
        if name not in _COLUMNS or "pieces" not in self.__dict__:
            raise AttributeError(name)
        whole = join_paths([piece.load() for piece in self._pieces])
        self.__dict__.update({column: getattr(whole, column) for column in _COLUMNS})
        return self.__dict__[name]

    @property
    def _pieces(self) -> tuple[Piece, ...]:
        pieces: tuple[Piece, ...] = self.__dict__["pieces"]
        return pieces

    def chunks(self) -> Iterator[CriticalPaths]:
        """Yield the pieces in order; each may be forgotten before the next is fetched."""
        for piece in self._pieces:
            yield piece.load()

    def resident(self) -> CriticalPaths:
        """Return the same paths with all their segments in memory."""
        return CriticalPaths(**{column: getattr(self, column) for column in _COLUMNS})

    def map(self, change: Callable[[CriticalPaths], CriticalPaths]) -> CriticalPaths:
        """Return paths with every piece changed when it is fetched."""
        return StoredPaths(
            [Piece(p.length, partial(_load_changed, p, change)) for p in self._pieces]
        )

    def keep(self, rows: I64) -> CriticalPaths:
        """Return the same paths, with some in memory."""
        result = StoredPaths(self._pieces)
        known = np.unique(np.asarray(rows, np.int64))
        result.__dict__["kept"] = known, self.take(known)
        return result

    def take(self, rows: I64) -> CriticalPaths:
        """Return some of the paths in memory; only the pieces that have them are fetched."""
        rows = np.asarray(rows, np.int64)
        if "kept" in self.__dict__ and len(self.__dict__["kept"][0]):
            known, paths = self.__dict__["kept"]
            place = np.searchsorted(known, rows)
            if np.array_equal(known[np.minimum(place, len(known) - 1)], rows):
                taken: CriticalPaths = paths.take(place)
                return taken
        bounds = self.__dict__["bounds"]
        if len(rows) and not 0 <= rows.min() <= rows.max() < bounds[-1]:
            raise IndexError("StoredPaths: no such path")
        piece_of = np.searchsorted(bounds, rows, side="right") - 1
        found, order = [], []
        for number in np.unique(piece_of).tolist():
            mine = np.flatnonzero(piece_of == number)
            found.append(self._pieces[number].load().take(rows[mine] - bounds[number]))
            order.append(mine)
        joined = join_paths(found)
        if not order:
            return joined
        back = np.empty(len(rows), np.int64)
        back[np.concatenate(order)] = np.arange(len(rows))
        return joined.take(back)


_COLUMNS = tuple(column.name for column in fields(CriticalPaths))


class PackedPaths:
    """Paths in few bytes, to be kept where they are asked for again and again.

    Of a column one value where all are equal.  Columns of few values are one of the kinds of
    segments that there are, others the narrowest numbers that hold them; of times those of the
    paths' begins and how long segments last.  Some 5 to 15 bytes a segment, not 70.

    Parameters
    ----------
    paths : CriticalPaths
        In memory; the segments of each tile it.

    Attributes
    ----------
    nbytes : int
    """

    def __init__(self, paths: CriticalPaths) -> None:
        self._meanings = {name: getattr(paths, name) for name in _CODES}
        counts = np.diff(paths.start)
        self._counts: Any = counts.astype(np.int32)
        self._first: Any = paths.begin[paths.start[:-1][counts > 0]]
        columns = {name: getattr(paths, name) for name in SEGMENT_COLUMNS if name not in _TIMES}
        columns["duration"] = paths.duration
        few, kind = _kinds_of(columns)
        first = np.empty(int(kind.max(initial=-1)) + 1, np.int64)
        first[kind[::-1]] = np.arange(len(kind))[::-1]
        self._of_kind = {name: columns.pop(name)[first] for name in few}
        self._kind, self._rows = _narrow(kind), len(paths.begin)
        self._columns = {name: (column.dtype, _narrow(column)) for name, column in columns.items()}
        kept = (*self._of_kind.values(), *(each for _, each in self._columns.values()))
        self.nbytes = sum(each.nbytes for each in (self._counts, self._first, self._kind, *kept))

    def move(self, put: Callable[[Any], Any]) -> None:
        """Have the columns elsewhere: ``put`` returns what gives an array, whole or a part."""
        self._columns = {name: (kind, put(each)) for name, (kind, each) in self._columns.items()}
        self._kind, self._first = put(self._kind), put(self._first)
        self._counts = put(self._counts)
        self.nbytes = 0

    def unpack(self) -> CriticalPaths:
        """Return the paths as they were; each column is made when it is first asked for."""
        return _UnpackedPaths(self)

    def column(self, name: str, at: slice | I64 = slice(None)) -> Any:
        """Return a column of the paths but `begin`, or how long segments last.

        ``at`` chooses segments; `start` and `end` are always whole.
        """
        if name in self._meanings:
            return self._meanings[name]
        if name in self._of_kind:
            return self._of_kind[name][self._kind[at]]
        if name in self._columns:
            dtype, column = self._columns[name]
            if len(column) > 1:
                return column[at].astype(dtype)
            rows = len(range(self._rows)[at]) if isinstance(at, slice) else len(at)
            return np.full(rows, column[0], dtype) if len(column) else column
        counts = self._counts[:]
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        if name == "start":
            return start
        duration = self.column("duration")
        end, begins = np.cumsum(duration), start[:-1][counts > 0]
        moved = self._first[:] - end[begins] + duration[begins]
        end += np.repeat(moved, counts[counts > 0])
        return end


class _UnpackedPaths(CriticalPaths):
    """Paths whose columns are unpacked one by one: who adds up over a set asks for a few."""

    def __init__(self, packed: PackedPaths) -> None:
        self.__dict__["packed"] = packed
        self.__dict__.update({name: packed.column(name) for name in _CODES})

    def __getattr__(self, name: str) -> Any:
        if name not in _COLUMNS or "packed" not in self.__dict__:
            raise AttributeError(name)
        packed = self.__dict__["packed"]
        column = self.end - self.duration if name == "begin" else packed.column(name)
        column.flags.writeable = False
        self.__dict__[name] = column
        return column

    @property
    def duration(self) -> I64:
        """Duration of every segment (ns)."""
        found: I64 = self.__dict__["packed"].column("duration")
        return found

    def resident(self) -> CriticalPaths:
        """Return the same paths with all columns unpacked."""
        return CriticalPaths(**{column: getattr(self, column) for column in _COLUMNS})

    def _part(self, name: str, segments: slice | I64) -> Any:
        """Return a column of some segments, of which only these are unpacked."""
        if name in _TIMES:
            return getattr(self, name)[segments]
        return self.__dict__["packed"].column(name, segments)


_TIMES: Final = ("begin", "end")


def _kinds_of(columns: Mapping[str, Any]) -> tuple[list[str], I64]:
    """Return columns that have several of few values, and which of their rows each one is."""
    rows = len(columns["duration"])
    few: list[str] = []
    kind, kinds = np.zeros(rows, np.int64), 1
    for name, column in columns.items():
        low, high = (int(column.min()), int(column.max())) if rows else (0, 0)
        wide = high - low + 1
        if column.dtype.kind in "iu" and wide > 1 and kinds * wide <= min(rows, _MOST_KINDS):
            found, finer = number_codes(kind * wide + (column.astype(np.int64) - low))
            if len(found) * _OF_A_KIND <= rows:
                few, kind, kinds = [*few, name], finer, len(found)
    return (few, kind) if kinds > 1 else ([], np.zeros(0, np.int64))


_MOST_KINDS: Final = 1 << 16  # technical
_OF_A_KIND: Final = 16  # technical: segments on average, or the table of kinds would be too large


def _narrow(column: Any) -> Any:
    """Return a column in the narrowest numbers that hold it; one where all are equal."""
    if not len(column):
        return column
    low, high = column.min(), column.max()
    if low == high:
        return column[:1].copy()
    if column.dtype.kind not in "iu":
        return column
    # Not what numpy has for both ends together: for -1 and 2**32 that is a float.
    fits = (
        each
        for each in ("BHI" if low >= 0 else "bhi")
        if np.iinfo(each).min <= low and high <= np.iinfo(each).max
    )
    return column.astype(next(fits, column.dtype))


def _with_stacks(paths: CriticalPaths, change: Callable[[Stack], Stack]) -> CriticalPaths:
    known: dict[Stack, int] = {}
    changed = [change(stack) for stack in paths.stacks]
    codes = [known.setdefault(each, len(known)) if each else -1 for each in changed]
    table = np.array([*codes, -1], np.int32)  # the last is of those without
    stack, waker = table[paths.stack], table[paths.waker_stack]
    return replace(paths, stacks=tuple(known), stack=stack, waker_stack=waker)


def _load_changed(piece: Piece, change: Callable[[CriticalPaths], CriticalPaths]) -> CriticalPaths:
    return change(piece.load().resident())


def join_stored(parts: Sequence[CriticalPaths]) -> CriticalPaths:
    """Join paths; where one of the parts is stored, all stay where they are.

    Parameters
    ----------
    parts : sequence of CriticalPaths

    Returns
    -------
    CriticalPaths
        In memory, if all parts are; else a `StoredPaths`.
    """
    if not any(isinstance(part, StoredPaths) for part in parts):
        return join_paths(parts)
    pieces: list[Piece] = []
    for part in parts:
        if isinstance(part, StoredPaths):
            pieces += part._pieces  # noqa: SLF001 - of its own kind
        else:
            pieces.append(Piece(len(part), part.resident))
    return StoredPaths(pieces)


_END_OF_DATES: Final = 253_402_300_800 * NS_PER_S  # technical: the year 10000


def begin_dates(paths: PathSet) -> list[str]:
    """Return when each source's first execution began (UTC), "" where unknown."""
    dates = []
    for source, epoch in enumerate(find_epochs(paths)):
        begins = paths.executions.begin[paths.session == source]
        dates.append(_format_utc(int(begins.min()) + epoch if epoch and len(begins) else 0))
    return dates


def find_epochs(paths: PathSet) -> list[int]:
    """Return what to add to a time of each source for ns since 1970, 0 where unknown."""
    known = {e.recording: e.clock_epoch for e in paths.environment if e.clock_epoch is not None}
    return [known.get(source) or 0 for source in paths.sources]


def _format_utc(moment: int) -> str:
    """Return a time as ``2026-11-21T04:35:27Z``, "" where it is unknown or no date."""
    if not 0 < moment < _END_OF_DATES:
        return ""
    whole = datetime.fromtimestamp(moment // NS_PER_S, UTC).replace(tzinfo=None)
    return f"{whole.isoformat()}Z"
