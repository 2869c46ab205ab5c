"""Segments and vectors as Parquet, for DuckDB, polars and pandas.

These are tables to look into; what ``critpath`` itself reads back is `store`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from critpath.model import Column, Rows, VectorTable, identifiers
from critpath.model.requests import (
    Certainty,
    Endpoints,
    Links,
    Passed,
    RequestTable,
    Sketches,
    Slices,
    Subrequests,
)
from critpath.model.table import FlatTable
from critpath.report.exports.exported import Exported
from critpath.units import safe_text

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENTS: Final = "critpath/segments/1"
VECTORS: Final = "critpath/vectors/1"


def segments_parquet(sets: Sequence[Exported]) -> Iterator[bytes]:
    """Write a row per segment: those of `PathSet`, with set and type in front."""
    yield _file([_segments(one) for one in sets], {"format": SEGMENTS})


def write_vectors(sets: Sequence[Exported]) -> Iterator[bytes]:
    """Return the vectors of every execution, counted here, as `vectors_parquet` writes them."""
    from critpath import vectors  # noqa: PLC0415 - numpy and the stages

    return vectors_parquet(sets, vectors.tables_of([one.paths for one in sets]))


def vectors_parquet(sets: Sequence[Exported], tables: Sequence[VectorTable]) -> Iterator[bytes]:
    """Write a row per execution: who and when, then count and time of every symbol.

    Parameters
    ----------
    sets : sequence of Exported
    tables : sequence of VectorTable
        Of every set, over one alphabet.
    """
    symbols = tables[0].symbols if tables else ()
    about = [
        {"column": name, "state": s.state.name, "role": safe_text(s.role)}
        for name, s in zip(identifiers(symbols), symbols, strict=True)
    ]
    parts = [_vectors(one, table) for one, table in zip(sets, tables, strict=True)]
    yield _file(parts, {"format": VECTORS, "symbols": about})


SKETCH_TABLES: Final[Mapping[str, type[FlatTable]]] = {
    "endpoints": Endpoints,
    "requests": RequestTable,
    "subrequests": Subrequests,
    "slices": Slices,
    "links": Links,
    "passed": Passed,
}
# Tables of sketches, and which of their columns count rows of which table.
SKETCHES: Final = {
    name: ({of.COUNTED: name} if of.COUNTED else {})
    | {column: what.of for column, (what, _) in of.declared().items() if what.of}
    for name, of in SKETCH_TABLES.items()
}


def sketch_tables(sketches: Sequence[Sketches]) -> dict[str, pa.Table]:
    """Return what is known of requests as tables, those of all recordings as one.

    Rows are numbered through all recordings, so that no join mixes two of them.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    parts: dict[str, list[pa.Table]] = {name: [] for name in SKETCHES}
    names = tuple(dict.fromkeys(one.recording for one in sketches)) or ("",)
    first = dict.fromkeys(SKETCHES, 0)
    for one in sketches:
        for name, counted in SKETCHES.items():
            table = getattr(one, name)
            columns = {
                "recording": Column(np.full(len(table), names.index(one.recording)), names),
                **table.table_columns(),
            }
            for column, of in counted.items():
                known = columns[column]
                numbers = known.values + np.where(known.values >= 0, first[of], 0)
                columns[column] = Column(numbers.astype(np.int64), valid=known.valid)
            if name == "requests":
                columns |= _request_columns(one)
            parts[name].append(Rows("", columns).to_arrow())
        for name in SKETCHES:
            first[name] += len(getattr(one, name))
    return {
        name: pa.concat_tables(of, promote_options="permissive").unify_dictionaries()
        for name, of in parts.items()
    }


def slice_tables(
    found: Sequence[tuple[str, Mapping[str, Column], Mapping[str, Column]]],
) -> dict[str, pa.Table]:
    """Return slices without a network, and what led to which, of all recordings as one.

    Parameters
    ----------
    found : sequence of (recording, slices, links)
        As columns; numbers of slices are those of their recording.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    names = tuple(dict.fromkeys(recording for recording, *_ in found)) or ("",)
    parts: dict[str, list[pa.Table]] = {"slices": [], "links": []}
    first = 0
    for recording, *tables in found:
        for (name, of), table in zip(parts.items(), tables, strict=True):
            columns = dict(table)
            size = len(next(iter(columns.values())))
            for column in {"slice", "parent", "root", "from_slice", "to_slice"} & columns.keys():
                known = columns[column]
                numbers = known.values + np.where(known.values >= 0, first, 0)
                columns[column] = Column(numbers.astype(np.int64), valid=known.valid)
            where = Column(np.full(size, names.index(recording), np.int32), names)
            of.append(Rows("", {"recording": where, **columns}).to_arrow())
            if name == "slices":
                mine = size
        first += mine
    return {
        name: pa.concat_tables(of, promote_options="permissive").unify_dictionaries()
        for name, of in parts.items()
    }


def _request_columns(one: Sketches) -> dict[str, Column]:
    """Return of requests what executions are called, and how sure it is what each asked."""
    above = one.requests.parent
    rows = np.arange(len(above), dtype=np.int32)
    ids = one.id or ("",)
    duration = one.requests.end_ns - one.requests.begin_ns
    return {
        "duration_ns": Column(duration),
        "attribution": Column(one.attribution, [c.name.lower() for c in Certainty]),
        "execution": Column(rows, ids),
        "parent_execution": Column(above, ids, above >= 0),
        "chosen": Column(one.chosen),
    }


def table_parquet(table: pa.Table) -> bytes:
    """Write any table, such as the rows of a query."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import

    file = BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()


def _segments(one: Exported) -> pa.Table:
    columns = dict(one.paths.table_columns())
    position = columns["position"].values
    return Rows("", {**_of_set(one, position), **columns}).to_arrow()


def _vectors(one: Exported, table: VectorTable) -> pa.Table:
    position = np.arange(len(one.paths), dtype=np.int64)
    executions = dict(one.paths.executions.table_columns())
    columns = {
        **_of_set(one, position),
        "recording": Column(one.paths.session, one.paths.sources or ("",)),
        "execution": executions.pop("execution"),
        "position": Column(position),
        **executions,
        "lossy": Column(one.paths.lossy),
        "segments": Column(np.diff(one.paths.paths.start)),
        **{k: v for k, v in table.table_columns().items() if k != "total_ns"},
    }
    return Rows("", columns).to_arrow()


def _of_set(one: Exported, position: Any) -> dict[str, Column]:
    known = [one.cluster(index) for index in range(len(one.paths))]
    clusters = np.array([-1 if c is None else c for c in known], np.int64)[position]
    return {
        "set": Column(np.zeros(len(position), np.int8), (one.name,)),
        "cluster": Column(clusters, valid=clusters >= 0),
    }


def _file(parts: Sequence[pa.Table], about: dict[str, Any]) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    # Sets have dictionaries of their own; of any size, so that all have one schema.
    schema = pa.schema(
        [
            (field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
            for field in parts[0].schema
        ],
        metadata={"critpath": json.dumps(about, separators=(",", ":"))},
    )
    table = pa.concat_tables([part.cast(schema) for part in parts])
    file = BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()
