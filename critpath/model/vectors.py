"""Count and duration vectors over an alphabet of symbols."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct

from critpath.model.table import I32, I64, Column, Table
from critpath.records import dataclass

if TYPE_CHECKING:
    from critpath.model.table import Whole
    from critpath.schema.kinds import State


Entry = TypeVar("Entry")

# Identifiers of letters and digits (conn-5f3a9c, not face2face), whole words of them.
_HEXADECIMAL: Final = (
    r"(?<![^\W_])(?:0x[0-9a-f]+|(?=(?:[a-f]*[0-9]){2})(?=[0-9]*[a-f])[0-9a-f]{6,})(?![^\W_])"
)
# Numbers that count instances (kworker/u4:1, worker-12, pool3, GC Thread#3), not those that are
# part of a program's name (jbd2, x264 ...).
_INSTANCE: Final = re.compile(rf"{_HEXADECIMAL}|#?(?<![A-Za-z])\d+|(?<=/u)\d+(?=:)|\d+$", re.ASCII)
_NUMBER: Final = re.compile(rf"{_HEXADECIMAL}|#?\d+", re.ASCII)


def name_on_host(name: str, host: str) -> str:
    """Return what a thread is called where there are several hosts: ``redis-server@db1``."""
    return f"{name}@{host if host.strip('0123456789') else f'host-{host}'}" if name else name


def split_host(name: str, hosts: Collection[str] | None = None) -> tuple[str, str]:
    """Return a thread's own name and, with its @, the host that it is on; "" for none.

    A name may have an @ of its own: where the hosts of its set are known (`PathSet.hosts`, as
    names have them), what follows is one of these, elsewhere anything but an instance's number.
    """
    own, at, host = name.rpartition("@")
    known = host.strip("0123456789") if hosts is None else host in hosts
    return (own, at + host) if own and known else (name, "")


def host_of(name: str) -> str:
    """Return the host that a thread's name ends with, "" for none."""
    return split_host(name)[1][1:]


def role_name(comm: str, number: str = "#", hosts: Collection[str] | None = None) -> str:
    """Return a thread's name without the numbers that tell its instances apart.

    Those of the host that it is on stay: another host is another role.
    """
    own, host = split_host(comm, hosts)
    return _INSTANCE.sub(number, own) + host


def name_family(name: str) -> str:
    """Return a thread's name without any numbers but its host's."""
    own, host = split_host(name)
    return _NUMBER.sub("#", own) + host


def may_hold_id(name: str) -> bool:
    """Tell whether a thread's name has a number that is long enough to be an id."""
    return re.search(r"\d{3}", split_host(name)[0]) is not None


def show_family(name: str) -> str:
    """Return a family's or a role's name as people read it: ``iou-wrk-*``, ``GC Thread*``.

    One thread's name, whose own ``#`` stands before a number, is as it is.
    """
    return re.sub(r"#(?!\d)", "*", name)


class Symbol(Struct, frozen=True, order=True):
    """One letter of the alphabet that vectors count and alignments align.

    Attributes
    ----------
    state : State
    role : str
        "" for the subject's own thread; else the thread's name with its numbers
        taken out (``kworker/u#:#``), so that the same helper is the same symbol in
        every execution.
    place : str
        Where in the code, in an alphabet that tells it; else "".
    """

    state: State
    role: str = ""
    place: str = ""

    @property
    def thread(self) -> str:
        """``STATE`` or ``STATE@role``."""
        return f"{self.state.name}@{self.role}" if self.role else self.state.name

    @property
    def name(self) -> str:
        """``STATE`` or ``STATE@role``, and after a colon the place."""
        return f"{self.thread}:{self.place}" if self.place else self.thread


# How wide the columns of a table of vectors may be.
COUNTS: Final = tuple(map(np.dtype, (np.int8, np.int16, np.int32)))
TIMES: Final = tuple(map(np.dtype, (np.int32, np.int64)))


def widen(column: Whole, most: int, kinds: Sequence[np.dtype[Any]]) -> Whole:
    """Return counts or times as wide as larger ones take, too."""
    fits = next((kind for kind in kinds if 2 * most <= np.iinfo(kind).max), kinds[-1])
    return column.astype(fits) if fits.itemsize > column.itemsize else column


@dataclass(frozen=True, eq=False)
class VectorTable(Table):
    """Count and duration vectors of executions, over one alphabet.

    Attributes
    ----------
    symbols : tuple of Symbol
        Columns; at most 64.
    counts : int8, int16 or int32 [executions, symbols]
        Segments of each symbol: as wide as leaves room for the sum of any two.
    durations : int32 or int64 [executions, symbols]
        Nanoseconds in each symbol; int32 where no execution takes half of what that holds.
    structure : as counts
        Segments of each symbol once interference (interrupts, waits for the cpu) is
        taken out and neighbours are joined: what the program did, whatever else the
        machine did meanwhile.  Types of executions are found on these; the counts
        themselves where they are not given.
    """

    symbols: tuple[Symbol, ...]
    counts: Whole
    durations: Whole
    structure: Whole = None  # type: ignore[assignment]  # replaced below, so never None to a reader

    def __post_init__(self) -> None:
        if self.structure is None:
            object.__setattr__(self, "structure", self.counts)
        for name, kinds in (("counts", COUNTS), ("structure", COUNTS), ("durations", TIMES)):
            column = np.asarray(getattr(self, name))
            if column.dtype not in kinds:
                column = column.astype(kinds[-1], casting="same_kind")
            # Native code, and Arrow, take columns as they lie in memory.
            column = np.ascontiguousarray(column).view()
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        shape = (len(self.counts), len(self.symbols))
        if not shape == self.counts.shape == self.durations.shape == self.structure.shape:
            raise ValueError("VectorTable: runs x symbols expected")

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def total(self) -> I64:
        """Duration of every execution (ns)."""
        return np.asarray(self.durations.sum(axis=1), dtype=np.int64)

    def table_columns(self) -> dict[str, Column]:
        """Return a row per execution: ``total_ns``, then ``count_X`` and ``ns_X`` per symbol X.

        What stands for a symbol is made by `identifiers`.
        """
        result = {"total_ns": Column(self.total)}
        for code, name in enumerate(identifiers(self.symbols)):
            result[f"count_{name}"] = Column(self.counts[:, code].astype(np.int64))
            result[f"ns_{name}"] = Column(self.durations[:, code].astype(np.int64))
        return result


class InCode(NamedTuple):
    """A part of a chain that is no thread's role, but a function that the thread was in."""

    function: str


Part = str | InCode


class ChainTimes(Struct, frozen=True, eq=False):
    """How long executions do what, by whom they wait for, and whom these wait for.

    Attributes
    ----------
    chains : tuple of tuple of str or InCode
        Roles from the thread that an execution waits for to the last of the chain; the first
        chain is that of its own thread, ``()``.  With stacks, behind each (and first of all of
        the own thread) the functions that it was in.
    leaves : tuple of (int, State)
        Columns: a chain, and what its last thread does.  States that pictures do not tell
        apart are one: see `critpath.vectors.chains`.
    normal, sample : int64 [executions, leaves]
        Nanoseconds; each row adds up to the execution's duration.
    """

    chains: tuple[tuple[Part, ...], ...]
    leaves: tuple[tuple[int, State], ...]
    normal: I64
    sample: I64


def identifiers(symbols: Sequence[Symbol]) -> list[str]:
    """Return a name for every symbol that no language has to quote.

    Parameters
    ----------
    symbols : sequence of Symbol

    Returns
    -------
    list of str
        ``STATE``, or ``STATE_at_role``, and ``_in_place``, with one ``_`` for whatever of
        these is no ASCII letter or digit.  They differ even where a program ignores case:
        the second of two has ``_2`` behind it.
    """
    result: list[str] = []
    taken: set[str] = set()
    for symbol in symbols:
        stem = symbol.state.name
        for joint, part in (("at", symbol.role), ("in", symbol.place)):
            plain = re.sub(r"[^A-Za-z0-9]+", "_", part).strip("_") or "other"
            stem += f"_{joint}_{plain}" if part else ""
        name, number = stem, 1
        while name.lower() in taken:
            number += 1
            name = f"{stem}_{number}"
        taken.add(name.lower())
        result.append(name)
    return result


def excess_over_types(values: tuple[I64, I64], types: tuple[I64, I64]) -> I64:
    """Return what each of the sample's values is over the mean of its type's normal ones."""
    size = np.maximum(np.bincount(types[0]), 1)
    mean = np.bincount(types[0], values[0].astype(np.float64)) / size
    return np.rint(values[1] - mean[types[1]]).astype(np.int64)


def number_codes(codes: I64) -> tuple[I64, I64]:
    """Return the distinct codes, ascending, and each one's place among them, as `np.unique` does.

    Small numbers are looked up in a table, which takes a tenth of sorting them.
    """
    least = int(codes.min(initial=0))
    size = int(codes.max(initial=-1)) + 1 - least
    if size > 4 * len(codes):
        found, place = np.unique(codes, return_inverse=True)
        return found, place.reshape(-1)
    used = np.zeros(size, np.bool_)
    used[codes - least] = True
    return np.flatnonzero(used) + least, (np.cumsum(used) - 1)[codes - least]


def look_up(codes: I32, table: Sequence[Entry], find: Callable[[Entry], int]) -> I64:
    """Return what is found for some codes of a table; each that occurs is asked for once."""
    used, place = number_codes(codes.astype(np.int64))
    return np.array([find(table[code]) for code in used.tolist()], np.int64)[place]


_FEW: Final = 256  # technical: rows that are sorted as soon as looked up column by column


def number_rows(columns: Iterable[np.ndarray[Any, Any]], rows: int) -> tuple[I64, I64]:
    """Return where each distinct row of some columns is first, and which of them each one is."""
    kind = np.zeros(rows, np.int64)
    columns = [*columns]
    if 0 < rows <= _FEW and (table := np.array(columns)).dtype.kind == "i":
        order = np.lexsort(table[::-1])
        table = table[:, order]
        new = np.zeros(rows, np.bool_)
        (table[:, 1:] != table[:, :-1]).any(axis=0, out=new[1:])
        kind[order] = np.cumsum(new)
        new[0] = True
        return order[new], kind
    for column in columns:
        if rows and (column != column[0]).any():  # most are the same everywhere
            if column.dtype.kind == "f":
                values, place = np.unique(column, return_inverse=True)
            else:
                values, place = number_codes(column.astype(np.int64))
            _, kind = number_codes(kind * len(values) + place)
    first = np.zeros(int(kind.max(initial=-1)) + 1, np.int64)
    first[kind[::-1]] = np.arange(rows)[::-1]
    return first, kind


def find_distinct(table: I32 | I64) -> tuple[I64, I64]:
    """Return the distinct rows of a table, in order, and which of them each one is."""
    first, kind = number_rows(table.T, len(table))
    return table[first].astype(np.int64), kind
