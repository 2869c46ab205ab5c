"""Count and duration vectors over an alphabet of symbols."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from critpath.model.details import read_thread
from critpath.model.table import I64, Column, Table, freeze_columns

if TYPE_CHECKING:
    from critpath.model.table import F64, Bool, Whole
    from critpath.schema.kinds import State


# Numbers that count instances (kworker/u4:1, worker-12, pool3), not those that are
# part of a program's name (jbd2, x264 ...).
_INSTANCE: Final = re.compile(r"(?<![A-Za-z])\d+|(?<=/u)\d+(?=:)|\d+$")


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


def role_name(comm: str, number: str = "#", hosts: Collection[str] | None = None) -> str:
    """Return a thread's name without the numbers that tell its instances apart.

    Those of the host that it is on stay: another host is another role.
    """
    own, host = split_host(comm, hosts)
    return _INSTANCE.sub(number, own) + host


def name_family(name: str) -> str:
    """Return a thread's name without any numbers but its host's."""
    own, host = split_host(name)
    return re.sub(r"\d+", "#", own) + host


def rival_name(detail: str) -> str:
    """Return the name of who had the cpu, without its id."""
    return read_thread(detail)[0]


def rival_role(detail: str, hosts: Collection[str] | None = None) -> str:
    """Return the role of who had the cpu."""
    return role_name(rival_name(detail), hosts=hosts)


@dataclass(frozen=True, order=True)
class Symbol:
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


@dataclass(frozen=True, eq=False)
class VectorTable(Table):
    """Count and duration vectors of executions, over one alphabet.

    Attributes
    ----------
    symbols : tuple of Symbol
        Columns; at most 64.
    counts : int32 [executions, symbols]
        Segments of each symbol.
    durations : int64 [executions, symbols]
        Nanoseconds in each symbol.
    structure : int32 [executions, symbols]
        Segments of each symbol once interference (interrupts, waits for the cpu) is
        taken out and neighbours are joined: what the program did, whatever else the
        machine did meanwhile.  Types of executions are found on these; the counts
        themselves where they are not given.
    """

    symbols: tuple[Symbol, ...]
    counts: Whole
    durations: I64
    structure: Whole = None  # type: ignore[assignment]  # replaced below, so never None to a reader

    def __post_init__(self) -> None:
        if self.structure is None:
            object.__setattr__(self, "structure", self.counts)
        freeze_columns(self, -1, counts=np.int32, durations=np.int64, structure=np.int32)
        shape = (len(self.counts), len(self.symbols))
        if not shape == self.counts.shape == self.durations.shape == self.structure.shape:
            raise ValueError("VectorTable: executions x symbols expected")

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
            result[f"ns_{name}"] = Column(self.durations[:, code])
        return result


FRAME: Final = "\t"  # what a part of a chain begins with that is no thread's role but a function


@dataclass(frozen=True, eq=False)
class ChainTimes:
    """How long executions do what, by whom they wait for, and whom these wait for.

    Attributes
    ----------
    chains : tuple of tuple of str
        Roles from the thread that an execution waits for to the last of the chain; the first
        chain is that of its own thread, ``()``.  With stacks, behind each (and first of all of
        the own thread) the functions that it was in, each with `FRAME` before it.
    leaves : tuple of (int, State)
        Columns: a chain, and what its last thread does.  States that pictures do not tell
        apart are one: see `critpath.vectors.chains`.
    normal, sample : int64 [executions, leaves]
        Nanoseconds; each row adds up to the execution's duration.
    """

    chains: tuple[tuple[str, ...], ...]
    leaves: tuple[tuple[int, State], ...]
    normal: I64
    sample: I64


@dataclass(frozen=True)
class FlameNode:
    """A node of the tree of where time goes; the nodes below it add up to it.

    Attributes
    ----------
    parent : int
        Place of the node above among all nodes; -1 for the first, which is everything.
    kind : str
        ``all``, ``label``, ``thread`` (what is waited for), ``frame`` (in which function),
        ``state``, or ``rest``: what is too small to be shown alone.
    name : str
        The label, the thread's role, the function or the state.
    role : str
        The thread that the time is spent on, "" for the execution's own.
    before, after : float
        Mean time of all executions (ns), in the sample's mix of labels.
    executions : (int, int)
        How many of both sets have this label, or are there.
    p_value : float
        Of the change, adjusted for all nodes and both directions; NaN where it is not tested.
    change : str
        ``more`` or ``less`` where a test supports it, else "".
    """

    parent: int
    kind: str
    name: str
    role: str
    before: float
    after: float
    executions: tuple[int, int]
    p_value: float = math.nan
    change: str = ""


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


# The few statistics of scipy's that every comparison needs, without scipy's import.


def excess_over_types(values: tuple[I64, I64], types: tuple[I64, I64]) -> I64:
    """Return what each of the sample's values is over the mean of its type's normal ones."""
    size = np.maximum(np.bincount(types[0]), 1)
    mean = np.bincount(types[0], values[0].astype(np.float64)) / size
    return np.rint(values[1] - mean[types[1]]).astype(np.int64)


def mid_ranks(values: F64 | I64) -> F64:
    """Rank every column from 1; equal values share the mean of their ranks.

    Parameters
    ----------
    values : float64 or int64 [n, columns]

    Returns
    -------
    float64 [n, columns]
        As ``scipy.stats.rankdata``.
    """
    n, columns = values.shape
    result = np.empty((n, columns))
    for column in range(columns):
        mine = np.ascontiguousarray(values[:, column])
        order = np.argsort(mine, kind="stable")  # twice as fast on columns with equal values
        ordered = mine[order]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        last = np.append(first[1:], n)
        result[order, column] = np.repeat((first + last + 1) / 2, last - first)
    return result


def order_rows(*tables: F64 | Whole) -> I64:
    """Return the order of rows by their first column, then the next, of all tables in turn.

    As `np.lexsort` does of the columns from the last one to the first; a table may be one column.

    Only rows that are equal so far are sorted by a further column: of durations, few are.
    """
    rows = len(tables[0])
    order = np.arange(rows)
    # Places in the order whose rows are equal so far, and which of such runs each is in.
    places, run = order.copy(), np.zeros(rows, np.int64)
    for column in (column for table in tables for column in np.atleast_2d(table.T)):
        if not len(places):
            break
        some = order[places]
        by = np.lexsort((column[some], run))
        order[places] = some[by]
        values = column[some[by]]
        new = np.ones(len(places), np.bool_)
        new[1:] = (run[1:] != run[:-1]) | (values[1:] != values[:-1])
        several = ~(new & np.append(new[1:], True))
        places, run = places[several], np.cumsum(new)[several]
    return order


def number_codes(codes: I64) -> tuple[I64, I64]:
    """Return the distinct codes, ascending, and each one's place among them, as `np.unique` does.

    Small numbers are looked up in a table, which takes a tenth of sorting them.
    """
    size = int(codes.max(initial=-1)) + 1
    if size > 4 * len(codes) or codes.min(initial=0) < 0:
        found, place = np.unique(codes, return_inverse=True)
        return found, place.reshape(-1)
    used = np.zeros(size, np.bool_)
    used[codes] = True
    return np.flatnonzero(used), (np.cumsum(used) - 1)[codes]


def draw_groups(rng: np.random.Generator, rows: int, size: int) -> I64:
    """Draw groups of so many rows [groups, size]; those left over are in none."""
    return rng.permutation(rows)[: rows // size * size].reshape(-1, size)


def sum_groups(rows: F64, groups: I64) -> F64:
    """Add up the rows of every group."""
    return np.asarray(rows[groups].sum(axis=1), np.float64)


def column_blocks(columns: int) -> list[slice]:
    """Divide the columns of a table, so that work on them needs no copy of the whole.

    Into blocks of several: numpy adds up a single column in another order, with another rounding.
    """
    count = max(columns // 3, 1)
    edges = [columns * i // count for i in range(count + 1)]
    return [slice(*pair) for pair in pairwise(edges)]


def row_blocks(rows: int, size: int = 1 << 15) -> list[slice]:
    """Divide the rows of a table, in the same way."""
    return [slice(first, first + size) for first in range(0, rows, size)]


def benjamini_hochberg(p: F64, level: float) -> Bool:
    """Select p-values at a false discovery rate (Benjamini and Hochberg 1995).

    Parameters
    ----------
    p : float64 [m]
    level : float

    Returns
    -------
    bool [m]
        Where ``scipy.stats.false_discovery_control`` is at most the level.
    """
    order = np.argsort(p)
    adjusted = p[order] * (len(p) / np.arange(1, len(p) + 1))
    adjusted[::-1] = np.minimum.accumulate(adjusted[::-1])
    selected = np.zeros(len(p), np.bool_)
    selected[order] = np.minimum(adjusted, 1.0) <= level
    return selected


_FARTHEST = 40.0  # technical


def hypergeometric_tail(above: int, m: int, n: int, least: int) -> float:
    """Return how likely at least ``least`` of ``above`` marked ones are among m of m + n.

    As ``scipy.stats.hypergeom.sf(least - 1, n + m, above, m)``, summed up from logarithms.
    """
    fewest = max(0, above - n)
    if least <= fewest:
        return 1.0
    fewest, weights = _hypergeometric(above, m, n, least)
    return float(min(1.0, weights[least - fewest :].sum() / weights.sum()))


@lru_cache(maxsize=1 << 14)  # random splits ask for a few numbers of marked ones again and again
def least_rare(above: int, m: int, n: int, level: float) -> int:
    """Return the least number whose `hypergeometric_tail` is at most a level, below 1."""
    fewest, weights = _hypergeometric(above, m, n, (above + 1) * (m + 1) // (m + n + 2))
    tails = np.cumsum(weights[::-1])[::-1] / weights.sum()
    return fewest + int(np.searchsorted(-tails, -level))


def _hypergeometric(above: int, m: int, n: int, least: int) -> tuple[int, F64]:
    """Return the least number of marked ones that counts, and how likely each from there on is.

    Not as shares of 1; with those of ``least``.
    """
    fewest, most = max(0, above - n), min(above, m)
    # The probabilities rise to the likeliest number and fall beyond it: what is forty standard
    # deviations from it adds nothing, unless what is asked for is there.
    middle = (above + 1) * (m + 1) / (m + n + 2)
    width = _FARTHEST * (1 + math.sqrt(middle))
    fewest = max(fewest, min(math.floor(middle - width), least))
    most = min(most, max(math.ceil(middle + width), least))
    count = np.arange(fewest, most, dtype=np.float64)
    # How much likelier one more is; the probabilities add up to 1.
    ratio = (above - count) * (m - count) / ((count + 1) * (n - above + count + 1))
    logs = np.concatenate([[0.0], np.cumsum(np.log(ratio))])
    return fewest, np.exp(logs - logs.max())


def student_tails(distance: F64, freedom: int) -> F64:
    """Return how likely Student's t is at least as far from 0, on either side.

    Parameters
    ----------
    distance : float64 [n]
        Not negative.
    freedom : int
        Degrees of freedom, at least 2.

    Returns
    -------
    float64 [n]
        As ``2 * scipy.special.stdtr(freedom, -distance)``, to 1e-14.

    Notes
    -----
    The finite series for whole degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = np.arctan(distance / math.sqrt(freedom))
    odd = freedom % 2
    term = np.sin(angle) * np.cos(angle) ** odd
    total = term.copy()
    for i in range(2 + odd, freedom, 2):
        term *= np.cos(angle) ** 2 * ((i - 1) / i)
        total += term
    result: F64 = 1 - (2 / np.pi * (angle + total) if odd else total)
    return result
