"""Every table of the model is a stream that pyarrow, polars, DuckDB, pandas and nanoarrow take."""

from __future__ import annotations

import dataclasses
import inspect
import re
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Final

import duckdb
import nanoarrow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import critpath
import critpath.model
from critpath.explore.questions import facts_of
from critpath.model import (
    Activity,
    Block,
    Column,
    CriticalPaths,
    Endpoints,
    Executions,
    Links,
    Loop,
    Passed,
    RequestFacts,
    RequestTable,
    Rows,
    Slices,
    State,
    StoredPaths,
    Subrequests,
    Symbol,
    Table,
    identifiers,
)
from critpath.model.clocks import Messages
from critpath.model.exploration import FactTable
from critpath.model.gaps import Gaps
from critpath.model.paths import _UnpackedPaths
from critpath.model.signatures import Counts
from critpath.model.stacks import Frames, Stacks, read_stack
from critpath.model.table import TEXTS, FlatTable, column_types
from critpath.signatures.weights import weigh
from critpath.timeline.streaming import read_timelines

MODEL = Path(critpath.model.__file__).parent


def answered(comparison):
    """The tables of the public answer."""
    answer = critpath.Comparison._of(comparison)
    return {n: getattr(answer, n) for n in ("causes", "findings", "states", "executions")}


def request_tables():
    """A row of each table of requests: codes of texts are 0, whatever else 1."""
    for kind in (Activity, Endpoints, RequestTable, Subrequests, Slices, Links, Passed):
        columns = [f.name for f in dataclasses.fields(kind) if f.name != "strings"]
        texts = ("how", "attribution", "boundary", "kind", "act", "label", "service", "why")
        codes = (*texts, *("path", "role_how", "local_address", "remote_address"))
        codes = (*codes, "message", "trace_id", "broker")
        ones = (np.array([name not in codes], np.uint8) for name in columns)
        yield kind.__name__, kind(*ones)
    yield "RequestFacts", RequestFacts(*[("made",)] * 8, *[np.ones(1, np.int64)] * 6)


def no_messages():
    names, one = Messages.__dataclass_fields__, np.ones(1, np.int64)
    return Messages(**{**dict.fromkeys(names, one), "last": one > 0, "sure": one.astype(np.uint8)})


COUNTED = Counts(
    *(("sys:read", "sys:write"), ("machine",), np.zeros(1, np.int64), np.ones(1, np.int64)),
    *(np.zeros(1, np.int32), np.zeros(1, np.bool_), np.zeros(2, np.int32)),
    term=np.arange(2, dtype=np.int32),
    count=np.array([3, 4]),
)


def stack_tables():
    one = np.ones(1, np.int64)
    line, inlined = np.array([0, 7, 0]), np.zeros(3, np.bool_)
    frames = Frames(("f", "g", "h"), ("", "a.c", ""), line, ("m",) * 3, inlined)
    kind, which = np.ones(1, np.uint8), np.zeros(1, np.int32)
    return {
        "frames": frames,
        "stacks": Stacks(one, one, one, kind, which, [read_stack("f")], frames),
    }


def tables_of(factory):
    comparison = factory.comparison()
    aligned = comparison.aligned[0]
    return {
        "executions": comparison.normal.executions,
        "paths": comparison.normal.paths,
        "path set": comparison.sample,
        "vectors": comparison.normal_vectors,
        "clustering": comparison.normal_clusters,
        "pairs": comparison.pairs,
        "outliers": comparison.outliers,
        "alignment": aligned.alignment,
        "statistics": aligned.statistics,
        "facts": facts_of(comparison.sample),
        "messages": no_messages(),
        "gaps": Gaps(
            *[np.ones(1, np.int64)] * 4, *[np.zeros(1, np.uint8)] * 2, np.zeros(1, np.int64)
        ),
        "counts": COUNTED,
        "signatures": weigh(COUNTED),
        "loop": Loop(0, 4, 2, np.array([1, 2, 3], np.int32)),
        **stack_tables(),
        **dict(request_tables()),
        **{f"of the comparison: {k}": t for k, t in answered(comparison).items()},
    }


@pytest.fixture(scope="module")
def tables(factory, guest):
    events, timelines = read_timelines(guest("sample-lock"))
    found = tables_of(factory)
    return {**found, "events": events, "timelines": timelines, "workers": timelines.workers}


def types_with_columns():
    """Every dataclass of the model that freezes columns and is handed to users."""
    for file in sorted(MODEL.glob("*.py")):
        module = import_module(f"critpath.model.{file.stem}")
        for _, kind in inspect.getmembers(module, dataclasses.is_dataclass):
            made = getattr(kind, "__post_init__", None)
            names = made.__code__.co_names if made is not None else ()
            # A block is a piece of `Timelines` on its way between stages; stored paths are
            # `CriticalPaths` that are not in memory, and so are those that are unpacked as asked.
            if kind in (Block, StoredPaths, _UnpackedPaths):
                continue
            if kind.__module__ == module.__name__ and "freeze_columns" in names:
                yield kind


def test_every_type_with_columns_is_a_table(tables):
    kinds = set(types_with_columns())
    assert {k.__name__ for k in kinds if not issubclass(k, Table)} == set()
    assert {k.__name__ for k in kinds} - {type(t).__name__ for t in tables.values()} == set()
    assert len(kinds) > 10


def test_every_program_sees_the_same_rows(tables):
    for name, table in tables.items():
        arrow = pa.table(table)
        assert arrow.num_rows > 0, name
        assert arrow.schema.equals(pa.schema(table))
        assert list(table.table_columns()) == arrow.column_names
        arrow.validate(full=True)
        of_polars = pl.DataFrame(table)
        assert of_polars.shape == (arrow.num_rows, arrow.num_columns), name
        assert pl.Series(table).struct.unnest().shape == of_polars.shape
        assert nanoarrow.ArrayStream(table).read_all().n_children == arrow.num_columns
        stream = table  # noqa: F841 - DuckDB finds it by its name
        counted = duckdb.sql("SELECT count(*) FROM stream")
        assert counted.fetchall() == [(arrow.num_rows,)], name
        assert pd.DataFrame.from_arrow(table).shape == (arrow.num_rows, arrow.num_columns)
        rows = [tuple(row.values()) for row in arrow.to_pylist()]
        nan = [tuple("nan" if v != v else v for v in row) for row in rows]  # noqa: PLR0124 - NaN
        assert [
            tuple("nan" if v != v else v for v in row)  # noqa: PLR0124 - as above
            for row in of_polars.iter_rows()
        ] == nan, name


def test_names_of_columns_need_no_quotes(tables):
    # Facts are called as in conditions: `time.RUN@holder`.
    for table in (t for t in tables.values() if not isinstance(t, FactTable)):
        stream = table.to_arrow()  # noqa: F841 - DuckDB finds it by its name
        names = list(table.table_columns())
        assert all(name.isidentifier() and name.isascii() for name in names)
        query = f"SELECT {', '.join(names)} FROM stream LIMIT 1"  # noqa: S608 - names of our own
        assert duckdb.sql(query).columns == names


def test_numbers_are_not_copied(tables):
    for name, columns in (
        ("timelines", ("begin_ns", "end_ns", "state", "detail")),
        ("events", ("time_ns", "event")),
        ("executions", ("begin_ns", "host")),
        ("clustering", ("cluster", "reachability")),
    ):
        table = tables[name]
        arrow = table.to_arrow()
        for column in columns:
            mine = table.table_columns()[column]
            chunk = arrow.column(column).chunk(0)
            indices = chunk.indices if pa.types.is_dictionary(chunk.type) else chunk
            assert indices.buffers()[1].address == vars(mine)["values"].ctypes.data, (name, column)


def test_states_and_texts_go_by_name(factory):
    sample = factory.comparison().sample
    arrow = sample.to_arrow()
    assert pa.types.is_dictionary(arrow.schema.field("state").type)
    states = [State(int(code)).name for code in sample.paths.state]
    assert arrow.column("state").to_pylist() == states
    path = sample.paths.path
    assert arrow.column("execution").to_pylist() == [sample.executions.id[p] for p in path]
    assert arrow.column("comm").to_pylist() == [
        sample.paths.strings[code] for code in sample.paths.comm
    ]
    assert arrow.column("duration_ns").type == pa.int64()
    assert set(arrow.column("recording").to_pylist()) == {"recordings/sample"}


def test_the_sum_of_segments_and_of_vectors_is_the_duration(factory):
    comparison = factory.comparison()
    sample, vectors, names = comparison.sample, comparison.sample_vectors, []
    duckdb.register("segments", sample.to_arrow())
    found = duckdb.sql(
        "SELECT position, sum(duration_ns) FROM segments GROUP BY position ORDER BY position"
    ).fetchall()
    executions = sample.executions
    assert [ns for _, ns in found] == (executions.end - executions.begin).tolist()
    names = [c for c in vectors.to_arrow().column_names if c.startswith("ns_")]
    assert pl.DataFrame(vectors).select(pl.sum_horizontal(names)).to_series().to_list() == [
        ns for _, ns in found
    ]


def test_wakes_are_the_way_back(factory):
    """Into who is waited for leads no wake; back from it does."""
    paths = factory.comparison().sample.paths
    table = paths.to_arrow().to_pylist()
    for row, after in pairwise(table):
        same = row["path"] == after["path"]
        if same and row["tid"] == 33 and after["tid"] == 1201:
            assert row["wakes"] == 1201
        else:
            assert row["wakes"] is None
    assert any(row["wakes"] for row in table)


@pytest.mark.parametrize(
    ("threads", "wakes"),
    [
        ("S", ""),
        ("SHS", "H"),  # S waits for H
        ("SHKHS", "KH"),  # and H for K meanwhile
        ("SHKS", "HK"),  # S waits for K, which H woke
        ("HS", "H"),  # the wait began before the execution; or H created S
        ("SHSKS", "HK"),
        ("PSHS", "PH"),
        ("SSHHSS", "H"),
    ],
)
def test_only_the_way_back_is_a_wake(threads, wakes):
    """Each thread is one letter; those of the segments that end in a wake."""
    n = len(threads)
    tids = np.array([ord(letter) for letter in threads])
    at = np.arange(n, dtype=np.int64)
    zeros = np.zeros(n, np.int64)
    paths = CriticalPaths(
        start=np.array([0, n, n, 2 * n]),  # twice, with an empty one between
        begin=np.tile(at, 2),
        end=np.tile(at + 1, 2),
        tid=np.tile(tids, 2),
        host=np.tile(zeros, 2),
        lossy=np.zeros(2 * n, bool),
        strings=("",),
        **{
            name: np.zeros(2 * n, dtype)
            for name, dtype in (
                *(("state", np.uint8), ("detail", np.int32)),
                *(("comm", np.int32), ("cpu", np.int32)),
            )
        },
    )
    found = "".join(threads[i % n] for i in np.flatnonzero(paths.wakes))
    assert found == 2 * wakes


def test_a_table_without_rows_has_its_columns(factory):
    empty = factory.comparison(normals=0, samples=0, anomalous=0)
    for name, table in {
        "path set": empty.sample,
        "executions": empty.sample.executions,
        "paths": empty.sample.paths,
        "vectors": empty.sample_vectors,
        **answered(empty),
    }.items():
        arrow = pa.table(table)
        full = pa.table({**tables_of(factory), **answered(factory.comparison())}[name])
        assert arrow.schema.equals(full.schema), name
        assert "row" in table._repr_html_()
    assert pa.table(empty.sample).num_rows == 0


def test_text_that_is_no_utf_8_and_equal_words():
    words = ("", "a\ud800", "a?", "a\ud801")
    table = Rows("t", {"name": Column(np.array([1, 2, 3, 0], np.int32), words)})
    assert table.to_arrow().column("name").to_pylist() == ["a?", "a?", "a?", ""]
    assert pl.DataFrame(table).to_series().to_list() == ["a?", "a?", "a?", ""]
    executions = Executions(("\udcff",), [1], [2], [3], [0], ("x\ud800",), ("",))
    assert pa.table(executions).column("execution").to_pylist() == ["?"]


def test_names_of_vectors_need_no_quotes_anywhere():
    symbols = [
        Symbol(State.RUN),
        Symbol(State.RUN, "kworker/u#:#"),
        Symbol(State.RUN, "KWORKER u"),
        Symbol(State.RUN, "kworker_u_2"),
        Symbol(State.RUN, "*"),
        Symbol(State.RUN, "\u00fc; DROP TABLE x --"),
        Symbol(State.WAIT_DISK, "other"),
    ]
    names = identifiers(symbols)
    assert names == [
        *("RUN", "RUN_at_kworker_u", "RUN_at_KWORKER_u_2", "RUN_at_kworker_u_2_2"),
        *("RUN_at_other", "RUN_at_DROP_TABLE_x", "WAIT_DISK_at_other"),
    ]
    assert len({name.lower() for name in names}) == len(names)
    assert all(name.isidentifier() and name.isascii() for name in names)


# Tables that are no columns of their own, and what a row of theirs is made of.
BY_HAND: Final = {
    "Alignment": "a row per segment, of rectangles with gaps",
    "Counts": "a row per document and term: documents' columns, repeated",
    "Events": "classes of events, each in three columns",
    "FactTable": "facts that executions have",
    "PathSet": "paths and executions",
    "Signatures": "as Counts",
    "Timelines": "intervals and their workers",
    "VectorTable": "symbols that executions have",
}


def test_who_says_columns_by_hand_has_a_reason():
    for file in MODEL.glob("*.py"):
        import_module(f"critpath.model.{file.stem}")
    kinds = [Table]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = [kind for kind in kinds if kind.__module__.startswith("critpath.")]
    hand = {kind.__name__ for kind in ours if "table_columns" in vars(kind)}
    assert hand - {"Table", "Rows", "Records"} == {*BY_HAND}


def test_what_is_declared_is_what_other_programs_get(tables):
    """In that order; a table that is computed of others says what its columns mean."""
    for name, table in tables.items():
        if meanings := type(table).meanings() if dataclasses.is_dataclass(table) else {}:
            first = [table.COUNTED] if table.COUNTED else []
            assert [*first, *meanings] == list(table.table_columns()), name
            assert all(meanings.values()), name


@pytest.mark.parametrize("kind", FlatTable.__subclasses__(), ids=lambda kind: kind.__name__)
def test_declared_columns_have_a_dtype_a_meaning_and_a_name_of_sql(kind):
    for field, (column, annotation) in kind.declared().items():
        assert annotation == TEXTS or field in column_types(kind), field
        assert column.meaning, field
        assert re.fullmatch(r"[a-z_]+", column.name or field)


def test_rows_are_taken_of_every_declared_column():
    frames = Frames(
        ("f", "g", "h"), ("", "a.c", ""), np.array([0, 7, 0]), ("m",) * 3, np.zeros(3, bool)
    )
    for rows in (np.array([2, 1]), slice(1, 3), np.array([False, True, True])):
        taken = frames.take(rows)
        assert len(taken) == 2
        assert taken.line.tolist() == frames.line[rows].tolist()
        assert taken.function == tuple(np.array(frames.function)[rows].tolist())
    assert [row["line"] for row in frames.to_arrow().to_pylist()] == [None, 7, None]
    with pytest.raises(ValueError, match="unequal length"):
        dataclasses.replace(frames, file=("",))
