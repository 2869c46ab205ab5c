"""Parquet -> critical paths, checked in every respect, a row group at a time."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct

from critpath.errors import UnreadableError
from critpath.extras import require
from critpath.files import open_overflow
from critpath.model import (
    MOST_TIME,
    CriticalPaths,
    Executions,
    Loss,
    PackedPaths,
    PathSet,
    Piece,
    RequestFacts,
    StoredPaths,
    join_paths,
)
from critpath.model.details import DETAIL_NUMBERS, DETAIL_TEXTS, NO_DETAIL, Detail, read_details
from critpath.model.requests import FACT_NUMBERS, FACT_TEXTS
from critpath.model.stacks import read_stack
from critpath.model.texts import Texts, number_texts
from critpath.model.vectors import number_rows
from critpath.schema.environment import read_environment
from critpath.schema.kinds import STATES
from critpath.store.columns import (
    ABOUT,
    DETAILS,
    EXECUTION,
    FIRST,
    FORMAT,
    KEY,
    LATER,
    MORE_OF_SEGMENT,
    NAMES,
    OLDER,
    REQUEST,
    SEGMENTS,
    STACK_SEGMENT,
    SURE_SEGMENT,
    WORDS,
    arrow_schema,
    is_count,
    numbers,
    read_remarks,
    texts_of,
)
from critpath.store.formats import RESIDENT
from critpath.stores import RangeFile, open_file
from critpath.untrusted import load_json

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# Bytes of packed row groups that a process keeps in memory, as a comparison reads them some ten
# times: those of a hundred thousand paths of 40 segments each.  Further ones are in a temporary
# file; where that has no room, they are decoded again.
_KEPT: Final = 32 << 20
_FEW: Final = 1 << 16  # executions, of which a file of any size may say that it has them
_LONGEST: Final = 100_000  # letters of a text
_LETTERS: Final = 1 << 24  # of all texts of a column, in a file of any size
_RATIO: Final = 32  # and in one that is larger, for each byte
_TIME: Final = 2**62  # times are within this, so that no difference of two overflows
_HOSTS: Final = 2**31
# A thread of pyarrow's that still holds the Python file as the interpreter ends aborts the
# process; columns of one row group are decoded no faster by several.
_THREADS: Final = False
_DO: Final = "make it again: critpath export --format paths"
Wrong = Callable[[object], UnreadableError]
Pread = Callable[[int, int], bytes]  # size, begin


def load_paths(
    file: Path,
    *,
    resident: int = 1 << 62,
    segments: int | None = None,
    later: Path | None = None,
) -> PathSet:
    """Load what `save_paths` saved, checked in every respect.

    Segments stay in the file if there are more than ``resident``.  A file that this process has
    just written is found by its name, ``later``, when it has that; facts of requests stay in it.
    """
    opened = _PathsFile(file, later)
    if segments is not None and not 0 <= opened.segments - segments <= sum(opened.rows):
        raise opened.wrong(f"it has not {segments} segments, as listed")
    return opened.set(resident=opened.segments <= resident)


def wrong_file(file: Path, problem: object) -> UnreadableError:
    """Return the error about one file; of a library's message only the first line."""
    return UnreadableError(f"{file}: {(str(problem) or 'damaged').splitlines()[0]}", _DO)


class _Identity(Struct, frozen=True):
    """What tells one version of a file from another that took its name."""

    device: int
    inode: int
    size: int
    changed: int | str


def _identify(stream: IO[bytes]) -> _Identity:
    if isinstance(stream, RangeFile):
        size, stamp = stream.identity()
        if size != stream.size:
            raise OSError(f"{size:,} bytes, and {stream.size:,} when it was opened")
        return _Identity(-1, -1, size, stamp)
    status = os.fstat(stream.fileno())
    return _Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


# Bytes of packed row groups that this process keeps, of all files.
_kept: Final = [0]


def _forget(packed: dict[int, PackedPaths]) -> None:
    _kept[0] -= sum(each.nbytes for each in packed.values())


class _OneByOne:
    """Columns of a file, each read when it is asked for: all together take as much again."""

    def __init__(self, parquet: pq.ParquetFile) -> None:
        self._parquet = parquet

    def __len__(self) -> int:
        return int(self._parquet.metadata.num_rows)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column."""
        return self._parquet.read(columns=[name], use_threads=_THREADS).column(0)


class _PathsFile:
    """A file of paths: what it says of itself, and its row groups.

    It is opened for every reading: a dataset may have more files than a process may
    have open.  One that changes in between is refused.
    """

    def __init__(self, file: Path, later: Path | None = None) -> None:
        self.file, self._later = file, later
        self.wrong: Wrong = partial(wrong_file, later or file)
        self._identity: _Identity | None = None
        self._footer: Any = None  # pq.FileMetaData
        self.columns = list(EXECUTION)
        self.words: list[str] = []
        self.lists: list[str] = []
        self._checked = self._written = later is not None  # this process has just written it
        self._kept: dict[int, PackedPaths] = {}
        weakref.finalize(self, _forget, self._kept)

        def look(parquet: pq.ParquetFile) -> dict[str, Any]:
            metadata = parquet.metadata.metadata or {}
            if KEY not in metadata:
                raise self.wrong("a Parquet file, but not one of saved paths")
            about = load_json(metadata[KEY], surrogates=True)  # names of files have some
            found = about.get("format") if isinstance(about, dict) else None
            if found not in {FORMAT, FIRST}:
                raise self.wrong(f"format {found!r:.60}, this critpath reads {FORMAT}")
            first = found == FIRST
            schema = parquet.metadata.schema.to_arrow_schema()
            found, requests = schema.remove_metadata(), "true_ns" in schema.names
            known = [name for name in REQUEST if name in schema.names]
            self.columns = [*EXECUTION, *(known if requests else ())]
            more = _find_elements(schema, SEGMENTS)
            texts = [name for name in WORDS if _has_field(more, name)]
            stacks = "stack" in texts
            details = _find_elements(schema, DETAILS)
            asked = () if first else LATER
            lacking = sum(not (_has_field(details, k) or _has_field(more, k)) for k in asked)
            of = {"requests": requests, "stacks": stacks, "first": first, "lacking": lacking}
            allowed = (arrow_schema(**of, older=each) for each in range(OLDER if first else 1))
            if not any(found.equals(expected) for expected in allowed):
                raise self.wrong("other columns than format " + FORMAT + " has")
            self.words = [f"{SEGMENTS}.list.element.{name}" for name in texts]
            given = () if first else filter(partial(_has_field, details), DETAIL_TEXTS)
            self.words += [f"{DETAILS}.list.element.{name}" for name in given]
            self.lists = [SEGMENTS] if first else [DETAILS, SEGMENTS]
            for name, valid in ABOUT.items():
                if name not in about or not valid(about[name]):
                    raise self.wrong(f"the metadata has no valid '{name}'")
            self._check_sizes(parquet.metadata)
            self._footer = parquet.metadata
            return dict(about)

        self.about = self._reading(look)
        self.strings = tuple(self.about["strings"])
        footer: Any = self._footer
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        self.rows = [group.num_rows for group in groups]
        self.segments = sum(group.column(group.num_columns - 1).num_values for group in groups)

    def _check_sizes(self, footer: pq.FileMetaData) -> None:
        """Refuse a small file that would be large in memory, before any of it is."""
        size = 0 if self._identity is None else self._identity.size
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        segments = [
            max(group.column(place).num_values for place in range(group.num_columns))
            for group in groups
        ]
        rows = [group.num_rows for group in groups]
        if min((*rows, *segments, 0)) < 0 or sum(rows) > max(_FEW, size):
            raise self.wrong(f"{sum(rows):,} runs in {size:,} bytes")
        if sum(segments) > max(RESIDENT, size):
            raise self.wrong(f"{sum(segments):,} segments in {size:,} bytes")

    def _reading(
        self,
        read: Callable[[pq.ParquetFile], Any],
        columns: Sequence[str] = (),
        groups: Sequence[int] | None = None,
    ) -> Any:
        """Open the file, read something of it, and say what is wrong with it.

        Of an object on a store only the pages of what is read are looked at, before it is.
        """
        require(f"{self.file}, which is Parquet,", "parquet")
        import pyarrow as pa  # noqa: PLC0415 - 0.1 s that only readers of paths need
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        if self._later is not None and not self.file.exists():
            self.file, self._later = self._later, None
        try:
            with open_file(self.file) as stream:
                identity = _identify(stream)
                if self._identity not in {None, identity}:
                    raise self.wrong("changed while it was read")
                self._identity = identity
                with pq.ParquetFile(
                    stream,
                    metadata=self._footer,
                    # Columns that another file need not have: once they are known.
                    read_dictionary=[*self.words, *self._names()] if self.words else None,
                    page_checksum_verification=True,
                ) as parquet:
                    if isinstance(stream, RangeFile):
                        if self._footer is not None and columns:
                            check_pages(stream, parquet.metadata, groups, columns)
                        return read(parquet)
                    made = read(parquet)
                    if not self._checked:
                        check_pages(stream, parquet.metadata)
                        self._checked = True
                    return made
        except OSError as error:
            raise self.wrong(f"cannot be read: {error.strerror or error}") from error
        except (
            *(pa.ArrowException, ValueError, TypeError, KeyError),
            *(OverflowError, RecursionError),
        ) as error:
            # Whatever a damaged file makes pyarrow, json or the model object to.
            raise self.wrong(f"damaged: {error}") from error

    def set(self, *, resident: bool) -> PathSet:
        """Return the whole file as a set."""
        pieces = [Piece(rows, partial(self._group, i)) for i, rows in enumerate(self.rows)]
        if resident:
            wanted = [*self.columns, *self.lists]
            parts = [
                self._reading(partial(self._read_group, i), wanted, [i])
                for i in range(len(self.rows))
            ]
            executions = self._join([part[0] for part in parts])
            paths = join_paths([part[1] for part in parts]) if parts else _none(self.strings)
            made: PathSet = self._reading(lambda _: self._set(executions, paths))
        else:
            stored = StoredPaths(pieces)
            made = self._reading(
                lambda parquet: self._set(_OneByOne(parquet), stored), self.columns
            )
        return made

    def _names(self) -> list[str]:
        return [name for name in (*NAMES, *FACT_TEXTS) if name in self.columns]

    def _join(self, tables: list[pa.Table]) -> pa.Table:
        import pyarrow as pa  # noqa: PLC0415 - as above

        if not tables:
            requests = len(self.columns) > len(EXECUTION)
            return arrow_schema(requests=requests).empty_table().select(self.columns)
        return pa.concat_tables(tables).combine_chunks()

    def _set(self, table: pa.Table | _OneByOne, paths: CriticalPaths) -> PathSet:
        about = self.about
        texts: dict[str, Any] = {name: self._texts(table, name) for name in NAMES}
        executions = Executions(
            **texts,
            **{name: _numbers(table, name) for name in ("begin", "end", "tid", "host")},
            incomplete=about["incomplete"],
            notes=read_remarks("notes", about),
            requests=None if self._written else self._request_facts(table),
        )
        session = _numbers(table, "session")
        if len(session) and not 0 <= session.min() <= session.max() < len(about["sources"]):
            raise self.wrong("a run comes from a recording that is not listed")
        _check_times(executions.begin, executions.end, self.wrong)
        if executions.time >= MOST_TIME:
            raise self.wrong("runs that take more time together than can be added up")
        if len(executions) and not 0 <= executions.host.min() <= executions.host.max() < _HOSTS:
            raise self.wrong("a run with a host out of range")
        return PathSet(
            executions=executions,
            paths=paths,
            session=session,
            sources=tuple(about["sources"]),
            specification=about["specification"],
            losses=tuple(Loss(**loss) for loss in about["losses"]),
            lossy=_numbers(table, "lossy"),
            environment=tuple(map(read_environment, about["environment"])),
            events=about["events"],
            warnings=read_remarks("warnings", about),
        )

    def _request_facts(self, table: pa.Table | _OneByOne) -> RequestFacts | None:
        """Return what is known of requests, None where the file does not know it of all."""
        if len(self.columns) == len(EXECUTION):
            return None
        nothing = ("",) * len(table)
        texts: dict[str, Any] = {
            name: self._texts(table, name) if name in self.columns else nothing
            for name in FACT_TEXTS
        }
        known = RequestFacts(**texts, **{name: _numbers(table, name) for name in FACT_NUMBERS})
        if not len(known) or "" in number_texts(known.service)[1]:
            return None
        length = _numbers(table, "end") - _numbers(table, "begin")
        for name in FACT_NUMBERS:
            column = getattr(known, name)
            if column.min() < -_TIME or column.max() >= _TIME:
                raise self.wrong(f"a request with {name} out of range")
        if bool((known.true_ns + known.asked_ns != length).any()):
            raise self.wrong("a request whose own time and that of its sub-requests are not it")
        for asked in number_texts(known.asks)[1]:
            counts = load_json(asked.encode())
            if not isinstance(counts, dict) or not all(map(is_count, counts.values())):
                raise self.wrong("a request that asks nobody knows what")
        return known

    def _texts(self, table: pa.Table | _OneByOne, name: str) -> Sequence[str]:
        """Return a column's texts, equal ones once: a file may repeat a long one often."""
        parts = [texts_of(chunk) for chunk in table.column(name).chunks]
        letters = 0
        for part in parts:
            sizes = part.count_letters()
            if len(sizes) and int(sizes.max()) > _LONGEST:
                raise self.wrong(f"{name} has a text of more than {_LONGEST:,} letters")
            letters += int(sizes[part.codes].sum())
        size = 0 if self._identity is None else self._identity.size
        if letters > max(_LETTERS, _RATIO * size):  # who writes them out has each again
            raise self.wrong(f"{letters:,} letters of {name} in {size:,} bytes")
        return Texts.join([part.in_few_bytes() for part in parts])

    def _group(self, number: int) -> CriticalPaths:
        """Fetch the paths of a row group."""
        if number in self._kept:
            return self._kept[number].unpack()
        wanted = ["begin", "end", *self.lists]
        paths: CriticalPaths = self._reading(
            partial(self._read_paths, number, ()), wanted, [number]
        )[1]
        packed = PackedPaths(paths)
        if _kept[0] < _KEPT:
            _kept[0] += packed.nbytes
        elif not self._spill(packed):
            return paths
        self._kept[number] = packed
        if len(self._kept) == len(self.rows):
            self._footer = None  # a megabyte, of every file
        return paths

    def _spill(self, packed: PackedPaths) -> bool:
        """Have a row group's paths in a temporary file, if that has room."""
        try:
            packed.move(open_overflow().put)
        except OSError:
            return False
        return True

    def _read_group(self, number: int, parquet: pq.ParquetFile) -> tuple[pa.Table, CriticalPaths]:
        """Return the executions of a row group, and their paths."""
        return self._read_paths(number, self.columns, parquet)

    def _read_paths(
        self, number: int, columns: Sequence[str], parquet: pq.ParquetFile
    ) -> tuple[pa.Table, CriticalPaths]:
        """Return some columns of a row group's executions, and their paths."""
        wanted = [*dict.fromkeys((*columns, "begin", "end", *self.lists))]
        table = parquet.read_row_group(number, columns=wanted, use_threads=_THREADS)
        table = table.combine_chunks()
        begin, end = _numbers(table, "begin"), _numbers(table, "end")
        _check_times(begin, end, self.wrong)
        paths = _paths(table, self.strings, self.wrong)
        _check_tiling(begin, end, paths, self.wrong)
        return table.select(columns), paths


def _find_elements(schema: pa.Schema, name: str) -> Any:
    """Return the type of what a column has lists of, None where it has none."""
    kind = schema.field(name).type if name in schema.names else None
    return getattr(kind, "value_type", None)


def _has_field(kind: Any, name: str) -> bool:
    return hasattr(kind, "get_field_index") and kind.get_field_index(name) >= 0


def _none(strings: tuple[str, ...]) -> CriticalPaths:
    i64, i32 = np.zeros(0, np.int64), np.zeros(0, np.int32)
    u8, no = np.zeros(0, np.uint8), np.zeros(0, np.bool_)
    return CriticalPaths(np.zeros(1, np.int64), i64, i64, u8, i32, i32, i64, i64, i32, no, strings)


def _numbers(table: pa.Table | _OneByOne, name: str) -> Any:
    return numbers(table.column(name))


def _paths(table: pa.Table, strings: tuple[str, ...], wrong: Wrong) -> CriticalPaths:
    import pyarrow as pa  # noqa: PLC0415 - as above

    def flatten(name: str) -> tuple[Any, pa.StructArray]:
        lists = table.column(name)
        lists = lists.chunk(0) if lists.num_chunks else pa.array([], lists.type)
        if lists.null_count:
            raise wrong(f"a run without {name}")
        # .values does not honour the list's own offset; flatten() does, but by pyarrow.compute,
        # which takes longer to import than a small set to read.
        start = numbers(lists.offsets).astype(np.int64)
        return start - start[0], lists.values.slice(start[0], start[-1] - start[0])

    start, segments = flatten(SEGMENTS)
    code_of = {texts: {text: i for i, text in enumerate(texts)} for texts in (STATES, strings)}

    def codes(name: str, texts: tuple[str, ...], of: pa.StructArray = segments) -> Any:
        # The file's few words are looked up, and each segment's among them.
        words = of.field(name).dictionary_encode()
        index = words.indices
        if index.null_count:
            raise wrong(f"a segment without {name}")
        code = code_of[texts]
        known = np.array([code.get(word, -1) for word in words.dictionary.to_pylist()], np.int32)
        result = known[numbers(index)]
        if bool((result < 0).any()):
            raise wrong(f"a segment with an unknown {name}")
        return result

    stacks = {n: codes(n, strings) for n in STACK_SEGMENT if _has_field(segments.type, n)}
    used = np.unique(np.concatenate([np.zeros(0, np.int32), *stacks.values()])).tolist()
    used = [code for code in used if strings[code]]
    stack_of = np.full(len(strings), -1, np.int32)
    stack_of[used] = np.arange(len(used))
    more = [name for name in (*MORE_OF_SEGMENT, *SURE_SEGMENT) if _has_field(segments.type, name)]
    state = codes("state", STATES).astype(np.uint8)
    if DETAILS not in table.column_names:
        detail, details = read_details(state, codes("detail", strings), strings)
    else:
        bounds, entries = flatten(DETAILS)
        counts: dict[str, Any] = {
            name: numbers(entries.field(name))
            for name in DETAIL_NUMBERS
            if _has_field(entries.type, name)
        }
        given = [name for name in DETAIL_TEXTS if _has_field(entries.type, name)]
        columns: dict[str, Any] = {name: codes(name, strings, entries) for name in given}
        first, found = number_rows((*columns.values(), *counts.values()), len(entries))
        known = {NO_DETAIL: 0}
        each = [
            Detail(
                **{n: strings[code[row]] for n, code in columns.items()},
                **{n: int(count[row]) for n, count in counts.items()},  # type: ignore[arg-type]
            )
            for row in first.tolist()
        ]
        of_kind = np.array([known.setdefault(one, len(known)) for one in each], np.int32)
        place = numbers(segments.field("detail"))
        path = np.repeat(np.arange(len(start) - 1), np.diff(start))
        if bool(((place < -1) | (place >= np.diff(bounds)[path])).any()):
            raise wrong("a segment with an unknown detail")
        detail, some = np.zeros(len(place), np.int32), np.flatnonzero(place >= 0)
        detail[some] = of_kind[found][bounds[path[some]] + place[some]]
        details = tuple(known)
    plain = ("begin", "end", "tid", "host", "cpu", "lossy", *more)
    known_of = {name: numbers(segments.field(name)) for name in plain}
    if "confidence" in more and "others" not in more:  # in older files it says so
        known_of["others"] = known_of["confidence"] == 0
    return CriticalPaths(
        start=start,
        state=state,
        detail=detail,
        details=details,
        comm=codes("comm", strings),
        **known_of,
        **{name: stack_of[found] for name, found in stacks.items()},
        stacks=tuple(read_stack(strings[code]) for code in used),
        strings=strings,
        beneath=codes("beneath", STATES).astype(np.uint8)
        if _has_field(segments.type, "beneath")
        else np.zeros(0, np.uint8),
    )


def _check_times(begin: Any, end: Any, wrong: Wrong) -> None:
    """Every execution has its time, and none that a later sum or difference cannot hold."""
    if not len(begin):
        return
    if begin.min() < -_TIME or end.max() >= _TIME:
        raise wrong("a run out of the range of times")
    if bool((begin > end).any()):
        raise wrong("a run ends before it begins")


def _check_tiling(begins: Any, ends: Any, paths: CriticalPaths, wrong: Wrong) -> None:
    """Every nanosecond of every execution has exactly one segment."""
    first, last = paths.start[:-1], paths.start[1:] - 1
    empty = first > last
    if bool((empty & (ends > begins)).any()):
        raise wrong("a run without segments")
    first, last = first[~empty], last[~empty]
    joined = np.ones(len(paths.begin), np.bool_)
    joined[1:] = paths.begin[1:] == paths.end[:-1]
    joined[first] = paths.begin[first] == begins[~empty]
    if not (
        joined.all()
        and (paths.end >= paths.begin).all()
        and (paths.end[last] == ends[~empty]).all()
    ):
        raise wrong("the segments of a run do not tile it exactly")
    hosts = paths.host
    if len(hosts) and (paths.cpu.min() < -1 or not 0 <= hosts.min() <= hosts.max() < _HOSTS):
        raise wrong("a segment with a cpu or host out of range")
    elsewhere = paths.elsewhere_idle
    if bool(((elsewhere < -1) | (elsewhere > paths.duration)).any()):
        raise wrong("a wait during which other processors were idle for longer than it lasts")
    if len(hosts) and paths.uncertainty.min() < -1:
        raise wrong("a time between hosts that is wrong by less than nothing")
    if not ((paths.confidence >= 0) & (paths.confidence <= 1)).all():
        raise wrong("a segment with a probability that is none")


# The sizes of a Parquet file's pages, from their headers, before any page is read.


# Bytes of a row group's pages that are read however well they were compressed, and how much
# more than their compressed size larger ones may be.  zstd makes of what critpath writes a
# third to a twentieth.
_ROOM: Final = 64 << 20
# Each column of a row group, which takes its place in the footer, may have a dictionary and a
# page of values however short they are; further pages are of some hundred bytes and more.
_FEW_PAGES: Final = 10_000
_BYTES_OF_A_PAGE: Final = 128
_OF_A_COLUMN: Final = 2
_HEADER: Final = 512  # bytes of a header that are read first
_LONGEST_HEADER: Final = 1 << 16
_DEEPEST: Final = 8
_DICTIONARY: Final = 2  # PageType
# Field numbers of a PageHeader, of the structures in it that count values.
_TYPE, _INFLATED, _SIZE = 1, 2, 3
_COUNTING: Final = {5, 7, 8}
# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS: Final = {4, 5, 6}


class DamagedError(ValueError):
    """Pages are not what they should be."""


class _Page(Struct, frozen=True):
    kind: int
    inflated: int
    size: int
    values: int
    header: int


def check_pages(
    stream: IO[bytes],
    footer: pq.FileMetaData,
    groups: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
) -> None:
    """Check that a file's pages are as its footer says, and no larger than they may be.

    Of all row groups and columns, or of some.
    """
    size = stream.seek(0, os.SEEK_END)
    pread = stream.pread if isinstance(stream, RangeFile) else partial(os.pread, stream.fileno())
    left = _FEW_PAGES + size // _BYTES_OF_A_PAGE
    inflated = 0
    for number in range(footer.num_row_groups) if groups is None else groups:
        group = footer.row_group(number)
        left += _OF_A_COLUMN * group.num_columns
        mine = compressed = 0
        for place in range(group.num_columns):
            column = group.column(place)
            if columns is not None and not _is_of(column.path_in_schema, columns):
                continue
            for page in _pages_of(pread, size, column):
                mine += page.inflated
                compressed += page.size
                left -= 1
                if left < 0:
                    raise DamagedError("more pages than a file of this size has")
        inflated += mine
        for large, small in ((mine, compressed), (inflated, size)):
            if large > max(_ROOM, _RATIO * small):
                raise DamagedError(f"{small:,} bytes would become {large:,}")


def _is_of(path: str, columns: Sequence[str]) -> bool:
    """Tell whether a column of pages is one of some, or a part of one."""
    return any(path == name or path.startswith(f"{name}.") for name in columns)


def _pages_of(pread: Pread, size: int, column: pq.ColumnChunkMetaData) -> Iterator[_Page]:
    """Yield a column's pages, and say at their end whether they are as many as they should be."""
    place = column.data_page_offset
    if column.num_values == 0 and place == 0:  # an empty row group's: a dictionary at the most
        place = column.total_compressed_size and size
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < place:
        place = column.dictionary_page_offset
    elif column.num_values == column.total_compressed_size == 0:
        return
    end = place + column.total_compressed_size
    if not 0 < place <= end <= size:
        raise DamagedError("a column's pages are not where the footer says")
    values = 0
    while place < end:
        page = _page(pread, place, end)
        place += page.header + page.size
        if place > end:
            raise DamagedError("a page reaches beyond its column")
        values += 0 if page.kind == _DICTIONARY else page.values
        yield page
    if values != column.num_values:
        raise DamagedError("a column has not as many values as the footer says")


def _page(pread: Pread, place: int, end: int) -> _Page:
    for length in (_HEADER, _LONGEST_HEADER):
        reader = _Thrift(pread(min(length, end - place), place))
        try:
            found, counted = reader.page_header()
        except IndexError:
            continue
        kind, inflated, size = (found.get(key, -1) for key in (_TYPE, _INFLATED, _SIZE))
        if min(kind, inflated, size, counted) < 0:
            break
        return _Page(kind, inflated, size, counted, reader.at)
    raise DamagedError("a page's header is not valid")


class _Thrift:
    """Reads the compact protocol; raises IndexError at the end of what was given."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def page_header(self) -> tuple[dict[int, int], int]:
        """Return the header's own numbers by field, and how many values it counts."""
        numbers: dict[int, int] = {}
        counted = 0
        for field, kind in self._fields():
            if kind in _INTEGERS:
                numbers[field] = self._zigzag()
            elif kind == _STRUCT and field in _COUNTING:
                counted = self._count_values()
            else:
                self._skip(kind, 0)
        return numbers, counted

    def _count_values(self) -> int:
        counted = -1
        for field, kind in self._fields():
            if field == 1 and kind in _INTEGERS:
                counted = self._zigzag()
            else:
                self._skip(kind, 0)
        return counted

    def _fields(self) -> Iterator[tuple[int, int]]:
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            yield field, head & 15

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise DamagedError("a page's header is not valid")
        if kind in {_TRUE, _FALSE}:
            return
        skips: dict[int, Callable[[], object]] = {
            _BYTE: self._byte,
            _DOUBLE: lambda: self._pass(8),
            _BINARY: lambda: self._pass(self._varint()),
            **dict.fromkeys(_INTEGERS, self._varint),
        }
        if kind in skips:
            skips[kind]()
        elif kind in {_LIST, _SET}:
            head = self._byte()
            for _ in range(self._varint() if head >> 4 == 15 else head >> 4):
                self._skip(_BYTE if head & 15 in {_TRUE, _FALSE} else head & 15, depth + 1)
        elif kind == _STRUCT:
            for _, inner in self._fields():
                self._skip(inner, depth + 1)
        else:  # a map, which no page header has
            raise DamagedError("a page's header is not valid")

    def _byte(self) -> int:
        value = self._content[self.at]
        self.at += 1
        return value

    def _pass(self, length: int) -> None:
        self.at += length
        if self.at > len(self._content):
            raise IndexError

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise DamagedError("a page's header is not valid")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
