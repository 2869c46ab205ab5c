"""Critical paths -> Parquet, a row group at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, Self

import numpy as np

from critpath.model import I32, I64, U8, CriticalPaths, PathSet
from critpath.store.atomic import atomic
from critpath.store.columns import FORMAT, KEY, SEGMENT, SEGMENTS, STATES, arrow_schema, utf8

if TYPE_CHECKING:
    import pyarrow as pa

# What a reader has in memory at a time: 64 MB of segments at the most, or one execution.
GROUP_EXECUTIONS: Final = 1000
GROUP_SEGMENTS: Final = 1 << 20


class PathsWriter:
    """Writes sets of paths one after the other into one file; equal input gives equal bytes.

    Parameters
    ----------
    stream : IO[bytes]
        The file; use the writer as a context, whose end makes it whole.

    Attributes
    ----------
    segments : int
        Written so far.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415 - 0.1 s that only writers of paths need

        self._parquet = pq.ParquetWriter(
            stream,
            arrow_schema(),
            compression="zstd",
            use_dictionary=True,
            write_statistics=False,
            store_schema=False,
            write_page_checksum=True,
        )
        self._about: dict[str, Any] = {}
        self._specifications: dict[str, None] = {}
        self._strings: list[tuple[str, ...]] = []
        self._base = 0
        self.segments = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._parquet.add_key_value_metadata({KEY: self._metadata()})
        self._parquet.close()

    def write(self, paths: PathSet, *, more: bool = False) -> None:
        """Append a set.

        Parameters
        ----------
        paths : PathSet
            Stored paths are fetched and written a chunk at a time.
        more : bool
            Further executions of the same recordings as the set before: whose facts are
            known already.
        """
        if not more:
            self._base = len(self._about.get("sources", ()))
            self._add(paths)
        for chunk in paths.chunks():
            self.segments += len(chunk.paths.begin)
            if not any(known is chunk.paths.strings for known in self._strings):
                self._strings.append(chunk.paths.strings)
            for rows in _groups(chunk.paths.start):
                table = _table(chunk, rows, self._base)
                self._parquet.write_table(table, row_group_size=max(1, len(table)))

    def _add(self, paths: PathSet) -> None:
        facts = {
            "sources": paths.sources,
            "losses": tuple(asdict(loss) for loss in paths.losses),
            "environment": tuple(dict(e) for e in paths.environment),
            "events": paths.events,
            "warnings": paths.warnings,
            "incomplete": paths.executions.incomplete,
            "notes": paths.executions.notes,
        }
        for name, value in facts.items():
            self._about[name] = self._about[name] + value if name in self._about else value
        self._specifications[paths.specification] = None

    def _metadata(self) -> str:
        strings = self._strings[0] if self._strings else ("",)
        if len(self._strings) > 1:
            strings = tuple(dict.fromkeys(("", *(s for some in self._strings for s in some))))
        about = {
            "format": FORMAT,
            "specification": " | ".join(self._specifications),
            **self._about,
            "strings": [utf8(s) for s in strings],
        }
        return json.dumps(about, separators=(",", ":"))


def save_paths(path_set: PathSet, file: Path) -> None:
    """Save critical paths as Parquet, atomically; equal input gives equal bytes.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    with atomic(file) as stream, PathsWriter(stream) as writer:
        writer.write(path_set)


def _groups(start: I64) -> Iterator[slice]:
    """Cut paths into row groups that a reader can hold."""
    first, total = 0, len(start) - 1
    while first < total:
        # The last path that ends within the limit; one that alone is beyond it stays whole.
        fit = int(np.searchsorted(start, start[first] + GROUP_SEGMENTS, side="right")) - 1
        last = min(max(fit, first + 1), first + GROUP_EXECUTIONS, total)
        yield slice(first, last)
        first = last


def _table(chunk: PathSet, rows: slice, base: int) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415 - as above

    schema = arrow_schema()
    executions = chunk.executions
    values: dict[str, Any] = {
        **{name: getattr(executions, name)[rows] for name in ("begin", "end", "tid", "host")},
        **{name: [*map(utf8, getattr(executions, name)[rows])] for name in ("id", "comm", "label")},
        "session": chunk.session[rows] + base,
        "lossy": chunk.lossy[rows],
    }
    arrays = [pa.array(values[f.name], f.type) for f in schema if f.name != SEGMENTS]
    segments = _segments(chunk.paths, rows, schema.field(SEGMENTS).type)
    return pa.Table.from_arrays([*arrays, segments], schema=schema)


def _segments(paths: CriticalPaths, rows: slice, kind: pa.DataType) -> pa.ListArray:
    import pyarrow as pa  # noqa: PLC0415 - as above

    start = paths.start[rows.start : rows.stop + 1]
    within = slice(int(start[0]), int(start[-1]))

    def words(codes: I64 | I32 | U8, texts: tuple[str, ...]) -> pa.Array:
        used, index = np.unique(codes, return_inverse=True)
        few = pa.array([utf8(texts[code]) for code in used.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32)), few).cast(
            pa.string()
        )

    columns = {
        **{name: getattr(paths, name)[within] for name in SEGMENT},
        "state": words(paths.state[within], STATES),
        "detail": words(paths.detail[within], paths.strings),
        "comm": words(paths.comm[within], paths.strings),
    }
    element = list(kind.value_type)
    structures = pa.StructArray.from_arrays(
        [pa.array(columns[f.name], f.type) for f in element], fields=element
    )
    offsets = pa.array((start - start[0]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, structures, type=kind)
