"""Critical paths -> Parquet, a row group at a time."""

from __future__ import annotations

import io
import json
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, Self

import numpy as np

from critpath.errors import TooMuchTimeError
from critpath.extras import require
from critpath.files import atomic
from critpath.model import (
    I32,
    I64,
    MOST_TIME,
    U8,
    CriticalPaths,
    Executions,
    PathSet,
    RequestFacts,
    join_facts,
    join_paths,
)
from critpath.model._lookup import find_used, list_distinct, translate
from critpath.model.details import DETAIL_NUMBERS, DETAIL_TEXTS, Detail
from critpath.model.requests import FACT_NUMBERS, FACT_TEXTS
from critpath.model.stacks import word_stack
from critpath.schema.kinds import STATES
from critpath.store.columns import (
    DETAILS,
    FORMAT,
    KEY,
    REPEATED,
    SEGMENTS,
    STACK_SEGMENT,
    arrow_schema,
    of_numbers,
    of_texts,
    save_remarks,
)
from critpath.units import utf8

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# What a reader has in memory at a time: 8 MB of segments at the most, or one execution.  Each of
# the 57 columns of a group costs 0.1 ms, however short: more than what 1,000 requests have in it.
GROUP_EXECUTIONS: Final = 4000
GROUP_SEGMENTS: Final = 1 << 17
# technical: segments of row groups that wait for the thread that makes them: two large ones, or
# as many as there are of paths walked together.
_AHEAD: Final = 2 * GROUP_SEGMENTS


class PathsWriter:
    """Writes sets of paths one after the other into one file; equal input gives equal bytes.

    Parameters
    ----------
    stream : IO[bytes]
        The file; use the writer as a context, whose end makes it whole.
    stacks : bool
        Some set will have stacks, though the first may have none.
    aside : bool
        Another thread makes the row groups, one after the other, while the next paths are found.

    Attributes
    ----------
    segments : int
        Written so far.
    """

    def __init__(self, stream: IO[bytes], *, stacks: bool = False, aside: bool = False) -> None:
        require("writing paths as Parquet", "parquet")
        self._stream, self._stacks = stream, stacks
        self._parquet: pq.ParquetWriter | None = None
        self._about: dict[str, Any] = {}
        self._specifications: dict[str, None] = {}
        # Those that a segment has; in order of text, whatever the order they came in.
        self._strings: set[str] = set()
        self._base = 0
        # The last row group, which more executions of the same recordings may fill: so
        # the bytes do not depend on how many come at a time.
        self._rest: PathSet | None = None
        self.segments = 0
        self._time = 0
        self._thread = ThreadPoolExecutor(1, "critpath-writer") if aside else None
        self._begun: deque[tuple[Future[None], int]] = deque()

    def _open(self, *, requests: bool) -> pq.ParquetWriter:
        """Return what writes rows; the first ones say what more is known: of requests, of code."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - 0.1 s that only writers of paths need

        if self._parquet is None:
            self._parquet = pq.ParquetWriter(
                self._stream,
                arrow_schema(requests=requests, coded=True, stacks=self._stacks),
                compression="zstd",
                use_dictionary=[*REPEATED],
                write_statistics=False,
                store_schema=False,
                write_page_checksum=True,
            )
        return self._parquet

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._flush()
                self._wait(-1)
                self._open(requests=False).add_key_value_metadata({KEY: self._metadata()})
        finally:
            if self._thread is not None:
                self._thread.shutdown(cancel_futures=True)  # what it has begun uses the file
            if self._parquet is not None:
                self._parquet.close()
                self._parquet = None  # which has what it said of every row group

    @staticmethod
    def settle() -> None:
        """Take now the memory that writing paths takes, and have it given back after use.

        The library that writes Parquet takes some 50 MB by itself when it first writes
        anything, and keeps what it once had; a process with a memory limit calls this
        before looking how much is left.
        """
        require("--max-memory", "parquet")
        import pyarrow as pa  # noqa: PLC0415 - as above

        pa.set_memory_pool(pa.system_memory_pool())
        with PathsWriter(io.BytesIO()) as writer:
            writer.write(_one_segment())

    def write(self, paths: PathSet, *, more: bool = False) -> None:
        """Append a set.

        Parameters
        ----------
        paths : PathSet
            Stored paths are fetched and written a chunk at a time.
        more : bool
            Further executions of the same recordings as the set before: whose facts are
            known already, but for what may have to be said of these executions.

        Raises
        ------
        TooMuchTimeError
            If all sets together take more time than a reader could add up.
        """
        self._time += paths.executions.time
        if self._time >= MOST_TIME:
            raise TooMuchTimeError
        if not more:
            self._flush()
            self._base = len(self._about.get("sources", ()))
            self._add(paths)
        else:
            known = self._about["warnings"]
            self._about["warnings"] = (*known, *(w for w in paths.warnings if w not in known))
        for chunk in paths.chunks():
            self.segments += len(chunk.paths.begin)
            first = 0
            if self._rest is not None:
                first = self._fill(self._rest, chunk)
            *full, last = _groups(chunk.paths.start, first) or [slice(0, 0)]
            for rows in full:
                self._begin(chunk, rows)
            if first < len(chunk) or self._rest is None:
                whole = len(chunk) == last.stop - last.start
                self._rest = chunk if whole else chunk.take(np.arange(last.start, last.stop))

    def _fill(self, rest: PathSet, chunk: PathSet) -> int:
        """Write the row group that was begun, if what comes after ends it; count what is in it."""
        start = rest.paths.start
        group = _groups(np.append(start, start[-1] + chunk.paths.start[1:]))[0]
        first = int(group.stop) - len(rest)
        if first:
            self._rest = rest = _join_sets(rest, chunk.take(np.arange(first)))
        if first < len(chunk):
            self._begin(rest, slice(0, len(rest)))
            self._rest = None
        return first

    def _flush(self) -> None:
        if self._rest is not None and len(self._rest):
            self._begin(self._rest, slice(0, len(self._rest)))
        self._rest = None

    def _begin(self, chunk: PathSet, rows: slice) -> None:
        """Write a row group, now or by the thread."""
        if self._thread is None:
            self._write(chunk, rows, self._base)
            return
        segments = int(chunk.paths.start[rows.stop] - chunk.paths.start[rows.start])
        self._wait(max(_AHEAD - segments, 0))
        done = self._thread.submit(self._write, chunk, rows, self._base)
        self._begun.append((done, segments))

    def _wait(self, left: int) -> None:
        """Wait until so many segments at most are left to write; raise what kept some from it."""
        while self._begun and sum(many for _, many in self._begun) > left:
            self._begun.popleft()[0].result()

    def _write(self, chunk: PathSet, rows: slice, base: int) -> None:
        stacked = chunk.has_stacks
        if self._parquet is None:
            self._stacks |= stacked
        elif stacked and not self._stacks:
            raise ValueError("stacks in a file without")
        several = any(about.clocks is not None for about in chunk.environment)
        parquet = self._open(requests=several or chunk.executions.requests is not None)
        table = _table(chunk, rows, base, parquet.schema, self._strings)
        parquet.write_table(table, row_group_size=len(table))

    def _add(self, paths: PathSet) -> None:
        facts = {
            "sources": paths.sources,
            "losses": tuple(loss.saved() for loss in paths.losses),
            "environment": tuple(e.saved() for e in paths.environment),
            "events": paths.events,
            "warnings": paths.warnings,
            "incomplete": paths.executions.incomplete,
            "notes": paths.executions.notes,
        }
        for name, value in facts.items():
            self._about[name] = self._about[name] + value if name in self._about else value
        self._specifications[paths.specification] = None

    def _metadata(self) -> str:
        about = {
            "format": FORMAT,
            "specification": " | ".join(self._specifications),
            **self._about,
            **save_remarks("warnings", self._about["warnings"]),
            **save_remarks("notes", self._about["notes"]),
            "strings": ["", *sorted(self._strings - {""})],
        }
        return json.dumps(about, separators=(",", ":"))


def _one_segment() -> PathSet:
    """Return the smallest set that there is something of to write."""
    wide, narrow, no = np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(1, np.bool_)
    state, ends = np.zeros(1, np.uint8), wide + 1
    start = np.array([0, 1], np.int64)
    paths = CriticalPaths(start, wide, ends, state, narrow, narrow, wide, wide, narrow, no, ("",))
    executions = Executions(("",), wide, ends, wide, wide, ("",), ("",))
    return PathSet(executions, paths, wide, ("",), "", (), no)


def save_paths(path_set: PathSet, file: Path) -> None:
    """Save critical paths as Parquet, atomically; equal input gives equal bytes.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    with atomic(file) as stream, PathsWriter(stream) as writer:
        writer.write(path_set)


def _join_sets(first: PathSet, second: PathSet) -> PathSet:
    """Join executions of the same recordings."""
    a, b = first.executions, second.executions
    return replace(
        second,
        executions=replace(
            b,
            requests=join_facts([e.requests for e in (a, b) if len(e)]),
            **Executions.join_columns([a, b]),
        ),
        paths=join_paths([first.paths, second.paths]),
        session=np.append(first.session, second.session),
        lossy=np.append(first.lossy, second.lossy),
    )


def _groups(start: I64, first: int = 0) -> list[slice]:
    """Cut paths, from one on, into row groups that a reader can hold."""
    groups = []
    total = len(start) - 1
    while first < total:
        # The last path that ends within the limit; one that alone is beyond it stays whole.
        fit = int(np.searchsorted(start, start[first] + GROUP_SEGMENTS, side="right")) - 1
        last = min(max(fit, first + 1), first + GROUP_EXECUTIONS, total)
        groups.append(slice(first, last))
        first = last
    return groups


def _table(
    chunk: PathSet, rows: slice, base: int, schema: pa.Schema, strings: set[str]
) -> pa.Table:
    """Return executions as rows of a file; add what texts their segments have to some."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    executions = chunk.executions
    values: dict[str, Any] = {
        **{name: getattr(executions, name)[rows] for name in ("begin", "end", "tid", "host")},
        **{name: getattr(executions, name)[rows] for name in ("id", "comm", "label")},
        "session": chunk.session[rows] + base,
        "lossy": chunk.lossy[rows],
        **_request_columns(executions.requests, rows),
    }
    arrays = [
        of_texts(values[f.name]) if f.type == pa.string() else of_numbers(values[f.name], f.type)
        for f in schema
        if f.name not in {DETAILS, SEGMENTS}
    ]
    details, segments = _segments(chunk.paths, rows, schema, strings)
    return pa.Table.from_arrays([*arrays, details, segments], schema=schema)


def _request_columns(known: RequestFacts | None, rows: slice) -> dict[str, Any]:
    """Return the columns of requests; no service says that nothing is known."""
    if known is None:
        count = rows.stop - rows.start
        texts, zeros = [""] * count, np.zeros(count, np.int64)
        return {**dict.fromkeys(FACT_TEXTS, texts), **dict.fromkeys(FACT_NUMBERS, zeros)}
    return {
        **{name: getattr(known, name)[rows] for name in FACT_TEXTS},
        **{name: getattr(known, name)[rows] for name in FACT_NUMBERS},
    }


def _segments(
    paths: CriticalPaths, rows: slice, schema: pa.Schema, strings: set[str]
) -> tuple[pa.ListArray, pa.ListArray]:
    """Return the details that each execution has, and its segments."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    start = paths.start[rows.start : rows.stop + 1]
    within = slice(int(start[0]), int(start[-1]))

    def words(codes: I64 | I32 | U8, used: I64, named: Sequence[str], known: set[str]) -> pa.Array:
        """Return texts by codes: what those that are used are named, which becomes known."""
        # In order of text: bytes must not depend on how words are numbered.
        if not "".join(named).isascii():
            named = [*map(utf8, named)]
        distinct = sorted(set(named))
        known.update(distinct)
        if len(distinct) == 1:  # most of what qualifies states
            indices = np.zeros(len(codes), np.int32)
        else:
            place = {text: i for i, text in enumerate(distinct)}
            table = np.zeros(int(used[-1:].sum()) + 1, np.int32)
            table[used] = [place[text] for text in named]
            indices = translate(codes, table)
        of = of_numbers(indices, pa.int32())
        return pa.DictionaryArray.from_arrays(of, of_texts(distinct), safe=False)

    def words_of(
        codes: I64 | I32 | U8, texts: tuple[Any, ...], word: Callable[[Any], str] = str
    ) -> pa.Array:
        used = find_used(codes, len(texts))
        named = [word(texts[code]) for code in used.tolist()]
        return words(codes, used, named, set() if texts is STATES else strings)

    def list_of(name: str, bounds: I64, columns: Sequence[pa.Array]) -> pa.ListArray:
        kind = schema.field(name).type
        structures = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
        return pa.ListArray.from_arrays(of_numbers(bounds, pa.int32()), structures, type=kind)

    texts = {"state": STATES, "comm": paths.strings, "beneath": STATES}
    elements = schema.field(SEGMENTS).type.value_type
    stacks = (*paths.stacks, ())  # the last is -1: none
    bounds, entries, places = _place_details(paths, start)
    some = find_used(entries, len(paths.details))
    columns = zip(*(paths.details[code] for code in some.tolist()), strict=True)
    fields = dict(zip(Detail._fields, columns, strict=False))  # nothing of no details
    details = [words(entries, some, fields.get(name, ()), strings) for name in DETAIL_TEXTS]
    for name in DETAIL_NUMBERS:
        counts = np.zeros(len(paths.details), np.int64)
        counts[some] = fields.get(name, ())
        details.append(of_numbers(translate(entries, counts), pa.int64()))

    def column(f: pa.Field) -> pa.Array:
        codes = places if f.name == "detail" else getattr(paths, f.name)[within]
        if f.name in STACK_SEGMENT:
            return words_of(codes % len(stacks), stacks, word_stack)
        return words_of(codes, texts[f.name]) if f.name in texts else of_numbers(codes, f.type)

    segments = list_of(SEGMENTS, start - start[0], [*map(column, elements)])
    return list_of(DETAILS, bounds, details), segments


def _place_details(paths: CriticalPaths, start: I64) -> tuple[I64, I32, I32]:
    """Return where each path's details begin, these, each once, and each segment's place there.

    In the details' own order, however they are numbered; -1: the segment has none.
    """
    order = np.array(sorted(range(len(paths.details)), key=paths.details.__getitem__), np.int32)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    bounds, found, places = list_distinct(
        start - start[0], paths.detail[start[0] : start[-1]], rank
    )
    return bounds, translate(found, order), places
