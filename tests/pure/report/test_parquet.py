"""Segments and vectors as Parquet: what DuckDB, polars and pandas read is what was there."""

from __future__ import annotations

from io import BytesIO

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from detailing import texts_of

from critpath.model import State
from critpath.report.document.comparison import comparison_document
from critpath.report.exports.as_parquet import segments_parquet, vectors_parquet
from critpath.report.exports.exported import Exported, read_aligned_executions


@pytest.fixture(scope="module")
def comparison(factory):
    return factory.comparison()


@pytest.fixture(scope="module")
def sets(comparison):
    return [Exported("normal", comparison.normal), Exported("sample", comparison.sample)]


def written(tmp_path, pieces, name="f.parquet"):
    file = tmp_path / name
    file.write_bytes(b"".join(pieces))
    return str(file)


def test_segments_are_the_paths_in_every_program(sets, tmp_path):
    file = written(tmp_path, segments_parquet(sets))
    of_duckdb = duckdb.execute("SELECT * FROM read_parquet(?)", [file]).fetchall()
    of_polars = pl.read_parquet(file)
    of_pandas = pd.read_parquet(file)
    assert of_duckdb == of_polars.rows()
    assert list(of_pandas.columns) == of_polars.columns
    assert len(of_pandas) == len(of_duckdb) == sum(len(one.paths.paths.begin) for one in sets)
    assert of_pandas["begin_ns"].to_list() == of_polars["begin_ns"].to_list()
    at = 0
    for one in sets:
        paths, executions = one.paths.paths, one.paths.executions
        details = texts_of(paths)
        for row in range(len(paths.begin)):
            found = of_polars.row(at + row, named=True)
            path = int(paths.path[row])
            assert found["set"] == one.name
            assert (found["execution"], found["position"]) == (executions.id[path], path)
            assert found["segment"] == row - paths.start[path]
            assert (found["begin_ns"], found["end_ns"]) == (paths.begin[row], paths.end[row])
            assert found["duration_ns"] == found["end_ns"] - found["begin_ns"]
            assert found["state"] == State(int(paths.state[row])).name
            assert found["detail"] == details[row]
            assert found["comm"] == paths.strings[paths.comm[row]]
            assert (found["tid"], found["cpu"]) == (paths.tid[row], paths.cpu[row])
            assert (found["cluster"], found["lossy"]) == (None, False)
        at += len(paths.begin)


def test_vectors_are_one_row_an_execution(sets, comparison, tmp_path):
    tables = [comparison.normal_vectors, comparison.sample_vectors]
    file = written(tmp_path, vectors_parquet(sets, tables))
    frame = pl.read_parquet(file)
    assert len(frame) == sum(map(len, tables))
    counts = frame.select(pl.selectors.starts_with("count_")).to_numpy()
    times = frame.select(pl.selectors.starts_with("ns_")).to_numpy()
    assert (counts == np.concatenate([table.counts for table in tables])).all()
    assert (times == np.concatenate([table.durations for table in tables])).all()
    assert (times.sum(axis=1) == frame["duration_ns"].to_numpy()).all()
    # No quotes needed, which is what the names are for.
    rows = duckdb.execute(
        "SELECT execution, count_RUN, ns_RUN_at_kworker FROM read_parquet(?) ORDER BY ALL", [file]
    ).fetchall()
    assert len(rows) == len(frame)
    assert (
        b'"column":"RUN_at_kworker","state":"RUN","role":"kworker/#:#"'
        in pq.read_schema(file).metadata[b"critpath"]
    )


def test_types_come_with_a_comparison(comparison, tmp_path):
    document = comparison_document(comparison)
    one = read_aligned_executions(document, "c.json", ())
    frame = pl.read_parquet(written(tmp_path, segments_parquet([one])))
    known = {e.id: e.cluster for e in document.executions if e.set == "sample"}
    assert {(row["execution"], row["cluster"]) for row in frame.iter_rows(named=True)} == {
        (a.execution, known[a.execution]) for a in document.aligned
    }


def test_sets_without_executions_keep_the_columns(factory, tmp_path):
    empty = factory.comparison(normals=0, samples=0, anomalous=0)
    full = factory.comparison()
    some = [Exported("a", full.normal), Exported("b", empty.sample)]
    none = [Exported("b", empty.sample)]
    schema = pq.read_schema(written(tmp_path, segments_parquet(some), "some"))
    assert pq.read_schema(written(tmp_path, segments_parquet(none), "none")).equals(schema)
    assert all(not pa.types.is_dictionary(field.type) for field in schema)


def test_the_same_bytes_for_the_same_paths(sets):
    assert b"".join(segments_parquet(sets)) == b"".join(segments_parquet(sets))


@pytest.mark.parametrize("name", ["\ud800", "a\x00b", "'; DROP TABLE x; --", "\u202e"])
def test_names_are_data(factory, name):
    comparison = factory.comparison(
        names=factory.Names(comm=name, helper=name, role=name, detail=name, label=name),
        normals=3,
        samples=2,
        anomalous=1,
        columns=7,
    )
    one = Exported(name, comparison.sample)
    read = pq.read_table(BytesIO(b"".join(segments_parquet([one]))))
    assert set(read.column("comm").to_pylist()) == {name.encode("utf-8", "replace").decode()}
    vectors = b"".join(vectors_parquet([one], [comparison.sample_vectors]))
    assert all(column.isidentifier() for column in pq.read_schema(BytesIO(vectors)).names)
