"""Files that critpath writes: extracted critical paths, and text, always whole.

``extract`` saves a `PathSet` as Parquet, one row per execution, its segments as a
list of structures, so that pandas, polars and DuckDB read it as it stands
(``SELECT id, unnest(segments, recursive := true) FROM 'paths.parquet'``).  What is
not per execution is JSON in the file's metadata, under ``critpath``.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from critpath.errors import UnreadableError, UsageError
from critpath.model import CriticalPaths, Executions, Loss, PathSet, State

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "critpath/paths/1"
_KEY: Final = b"critpath"
_MAGIC: Final = b"PAR1"
_STATES: Final = tuple(State(code).name for code in range(len(State)))
_EXECUTION: Final = {
    "id": "string",
    "begin": "int64",
    "end": "int64",
    "tid": "int64",
    "host": "int64",
    "comm": "string",
    "label": "string",
    "session": "int64",
    "lossy": "bool",
}
_SEGMENT: Final = {
    "begin": "int64",
    "end": "int64",
    "state": "string",
    "detail": "string",
    "comm": "string",
    "tid": "int64",
    "host": "int64",
    "cpu": "int32",
    "lossy": "bool",
}
Wrong = Callable[[object], UnreadableError]
_DO: Final = "make it again with critpath extract"


# ------------------------------------------------------------------- writing


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name only when it is whole.

    Parameters
    ----------
    path : Path
        Where a symbolic link leads is replaced, not the link.  Something that is
        not a regular file (``/dev/null``, a pipe) is written directly.

    Yields
    ------
    IO[bytes]

    Raises
    ------
    UsageError
        If it cannot be created or written.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:200]}.{os.urandom(6).hex()}.partial")
    special = target.exists() and not stat.S_ISREG(target.stat().st_mode)
    try:
        if special:
            with target.open("wb") as stream:
                yield stream
            return
        # "xb" under the user's umask: neither follows a link nor leaves a private mode.
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}",
            "choose a place that you may write to and that has room",
        ) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8; lone surrogates become ``?``.

    Raises
    ------
    UsageError
        If it cannot be written; nothing is left behind then.
    """
    with atomic(path) as stream:
        stream.write(text.encode("utf-8", "replace"))


def save_paths(path_set: PathSet, file: Path) -> None:
    """Save critical paths as Parquet, atomically; equal input gives equal bytes.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - 0.1 s that only these two functions need

    table = _table(path_set)
    with atomic(file) as stream:
        pq.write_table(
            table,
            stream,
            compression="zstd",
            use_dictionary=True,
            write_statistics=False,
            store_schema=True,
            write_page_checksum=True,
        )


def _schema() -> pa.Schema:
    """Return the columns, with which any file of this format must agree."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    def make(columns: Mapping[str, str]) -> list[pa.Field]:
        types = {name: pa.type_for_alias(alias) for name, alias in columns.items()}
        return [pa.field(name, kind, nullable=False) for name, kind in types.items()]

    element = pa.field("element", pa.struct(make(_SEGMENT)), nullable=False)
    return pa.schema([*make(_EXECUTION), pa.field("segments", pa.list_(element), nullable=False)])


def _table(path_set: PathSet) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415 - as above

    executions, paths = path_set.executions, path_set.paths
    schema = _schema()
    segment = schema.field("segments").type.value_type
    names = [_utf8(s) for s in paths.strings]

    def words(codes: Any, texts: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(texts, pa.string())).cast(
            pa.string()
        )

    columns = {
        **{name: getattr(paths, name) for name in _SEGMENT},
        "state": words(paths.state.astype(np.int32), list(_STATES)),
        "detail": words(paths.detail, names),
        "comm": words(paths.comm, names),
    }
    structures = pa.StructArray.from_arrays(
        [pa.array(columns[f.name], f.type) for f in segment], fields=list(segment)
    )
    segments = pa.ListArray.from_arrays(
        pa.array(paths.start.astype(np.int32)),
        structures,
        type=schema.field("segments").type,
    )
    values: dict[str, Any] = {
        **{name: getattr(executions, name) for name in ("begin", "end", "tid", "host")},
        **{name: list(map(_utf8, getattr(executions, name))) for name in ("id", "comm", "label")},
        "session": path_set.session,
        "lossy": path_set.lossy,
    }
    arrays = [pa.array(values[f.name], f.type) for f in schema if f.name != "segments"]
    about = {
        "format": FORMAT,
        "specification": path_set.specification,
        "sources": path_set.sources,
        "losses": [asdict(loss) for loss in path_set.losses],
        "environment": [dict(e) for e in path_set.environment],
        "events": path_set.events,
        "warnings": path_set.warnings,
        "incomplete": executions.incomplete,
        "notes": executions.notes,
        "strings": names,
    }
    metadata = {_KEY: json.dumps(about, separators=(",", ":"))}
    return pa.Table.from_arrays([*arrays, segments], schema=schema.with_metadata(metadata))


def _utf8(text: str) -> str:
    """Parquet holds UTF-8 only; a trace's text may hold what is none."""
    return text.encode("utf-8", "replace").decode("utf-8")


# ------------------------------------------------------------------- reading


def is_paths_file(path: Path) -> bool:
    """Tell whether something is a Parquet file, whatever is in it; never raises."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except (OSError, ValueError):
        return False


def load_paths(file: Path) -> PathSet:
    """Load what `save_paths` saved, checked in every respect.

    Raises
    ------
    UnreadableError
        If the file cannot be read, is not of this format, or contradicts itself:
        a segment that does not begin where the one before it ends, an unknown
        state, a recording that is not listed.
    """
    import pyarrow as pa  # noqa: PLC0415 - as above

    wrong = partial(_wrong, file)
    table, about = _read(file, wrong)
    try:
        return _path_set(table, about, wrong)
    except (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError) as error:
        # Whatever a damaged file makes pyarrow or the model object to.
        raise wrong(error) from error


def _wrong(file: Path, problem: object) -> UnreadableError:
    """Return the error about one file; of a library's message only the first line."""
    return UnreadableError(f"{file}: {(str(problem) or 'damaged').splitlines()[0]}", _DO)


def _read(file: Path, wrong: Wrong) -> tuple[pa.Table, dict[str, Any]]:
    """Return the table, of exactly our schema, and the checked metadata."""
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    try:
        with (
            file.open("rb") as stream,
            pq.ParquetFile(stream, page_checksum_verification=True) as parquet,
        ):
            schema = parquet.schema_arrow
            metadata = schema.metadata or {}
            if _KEY not in metadata:
                raise wrong("a Parquet file, but not one of critpath extract")
            about = json.loads(metadata[_KEY])
            found = about.get("format") if isinstance(about, dict) else None
            if found != FORMAT:
                raise wrong(f"format {found!r:.60}, this critpath reads {FORMAT}")
            if not schema.remove_metadata().equals(_schema()):
                raise wrong("other columns than format " + FORMAT + " has")
            table = parquet.read()
    except OSError as error:
        raise wrong(f"cannot be read: {error.strerror or error}") from error
    except (pa.ArrowException, ValueError, RecursionError) as error:
        raise wrong(f"damaged: {error}") from error
    for name, valid in _ABOUT.items():
        if name not in about or not valid(about[name]):
            raise wrong(f"the metadata has no valid '{name}'")
    return table.combine_chunks(), about


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_environments(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(e, dict) and all(isinstance(v, str | int) for v in e.values()) for e in value
    )


def _is_losses(value: object) -> bool:
    types = {f.name: str if f.name == "reason" else int for f in fields(Loss)}
    return isinstance(value, list) and all(
        isinstance(loss, dict)
        and loss.keys() == types.keys()
        and all(type(loss[name]) is kind for name, kind in types.items())
        for loss in value
    )


_ABOUT: Final[Mapping[str, Callable[[object], bool]]] = {
    "specification": lambda value: isinstance(value, str),
    "sources": _is_texts,
    "losses": _is_losses,
    "environment": _is_environments,
    "events": _is_count,
    "warnings": _is_texts,
    "incomplete": _is_count,
    "notes": _is_texts,
    "strings": _is_texts,
}


def _path_set(table: pa.Table, about: Mapping[str, Any], wrong: Wrong) -> PathSet:
    executions = Executions(
        **{name: _texts(table, name) for name in ("id", "comm", "label")},
        **{name: _numbers(table, name) for name in ("begin", "end", "tid", "host")},
        incomplete=about["incomplete"],
        notes=tuple(about["notes"]),
    )
    session = _numbers(table, "session")
    if len(session) and not 0 <= session.min() <= session.max() < len(about["sources"]):
        raise wrong("an execution comes from a recording that is not listed")
    if bool((executions.begin > executions.end).any()):
        raise wrong("an execution ends before it begins")
    paths = _paths(table, tuple(about["strings"]), wrong)
    _check_tiling(executions, paths, wrong)
    return PathSet(
        executions=executions,
        paths=paths,
        session=session,
        sources=tuple(about["sources"]),
        specification=about["specification"],
        losses=tuple(Loss(**loss) for loss in about["losses"]),
        lossy=_numbers(table, "lossy"),
        environment=tuple(about["environment"]),
        events=about["events"],
        warnings=tuple(about["warnings"]),
    )


def _texts(table: pa.Table, name: str) -> Any:
    return tuple(table.column(name).to_pylist())


def _numbers(table: pa.Table, name: str) -> Any:
    return table.column(name).to_numpy()


def _paths(table: pa.Table, strings: tuple[str, ...], wrong: Wrong) -> CriticalPaths:
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    lists = table.column("segments")
    lists = lists.chunk(0) if lists.num_chunks else pa.array([], lists.type)
    # flatten() honours the list's own offset, which .values does not.
    segments = lists.flatten()
    start = np.concatenate([[0], np.cumsum(pc.list_value_length(lists).to_numpy(), dtype=np.int64)])

    def codes(name: str, texts: tuple[str, ...]) -> Any:
        found = pc.index_in(segments.field(name), pa.array(texts, pa.string()))
        if found.null_count:
            raise wrong(f"a segment with an unknown {name}")
        return found.to_numpy()

    return CriticalPaths(
        start=start,
        state=codes("state", _STATES).astype(np.uint8),
        detail=codes("detail", strings),
        comm=codes("comm", strings),
        **{
            name: segments.field(name).to_numpy(zero_copy_only=False)
            for name in ("begin", "end", "tid", "host", "cpu", "lossy")
        },
        strings=strings,
    )


def _check_tiling(executions: Executions, paths: CriticalPaths, wrong: Wrong) -> None:
    """Every nanosecond of every execution has exactly one segment."""
    first, last = paths.start[:-1], paths.start[1:] - 1
    empty = first > last
    lasting = executions.end > executions.begin
    if bool((empty & lasting).any()):
        raise wrong("an execution without segments")
    first, last = first[~empty], last[~empty]
    joined = np.ones(len(paths.begin), np.bool_)
    joined[1:] = paths.begin[1:] == paths.end[:-1]
    joined[first] = paths.begin[first] == executions.begin[~empty]
    if not (
        joined.all()
        and (paths.end >= paths.begin).all()
        and (paths.end[last] == executions.end[~empty]).all()
    ):
        raise wrong("the segments of an execution do not tile it exactly")
    if len(paths.cpu) and (int(paths.cpu.min()) < -1 or int(paths.host.min()) < 0):
        raise wrong("a segment with a cpu or host out of range")
