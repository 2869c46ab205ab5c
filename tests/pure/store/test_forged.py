"""Files of paths that somebody made by hand: refused, at no great cost."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from critpath.errors import UnreadableError
from critpath.store.columns import (
    EXECUTION,
    FIRST,
    FIRST_SEGMENT,
    FORMAT,
    MORE_OF_SEGMENT,
    SEGMENT,
    arrow_schema,
)
from critpath.store.reading import DamagedError, check_pages, load_paths

MIB = 1 << 20
NOTHING = {"string": "", "bool": False}
ABOUT = {
    "format": FORMAT,
    "specification": "",
    "sources": ["one"],
    "losses": [],
    "environment": [],
    "events": 1,
    "warnings": [],
    "incomplete": 0,
    "notes": [],
    "strings": [""],
}


def column(kind, values):
    if isinstance(values, pa.Array):
        return values
    return pa.array(values, pa.type_for_alias(kind))


def repeated(kind, value, times):
    return pa.repeat(pa.scalar(value, pa.type_for_alias(kind)), times)


def forge(
    file, rows=1, *, lengths=(), about=None, segments=None, text=None, older=False, **columns
):
    """Write a file of so many executions that last 0 ns, but for what is said."""
    of_segment = FIRST_SEGMENT if older else SEGMENT | MORE_OF_SEGMENT
    values = {
        name: columns.get(name, repeated(kind, NOTHING.get(kind, 0), rows))
        for name, kind in EXECUTION.items()
    }
    lengths = lengths or [0] * rows
    total = sum(lengths)
    usual = {"state": "RUN", "detail": "" if older else -1}
    inside = {
        name: (segments or {}).get(
            name, repeated(kind, usual.get(name, NOTHING.get(kind, 0)), total)
        )
        for name, kind in of_segment.items()
    }
    schema = arrow_schema(older=older, first=older)
    element = schema.field("segments").type.value_type
    struct = pa.StructArray.from_arrays(
        [column(kind, inside[name]) for name, kind in of_segment.items()], fields=list(element)
    )
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, struct, type=schema.field("segments").type)
    bare = [] if older else [pa.array([[]] * rows, schema.field("details").type)]
    table = pa.table(
        [*(column(kind, values[name]) for name, kind in EXECUTION.items()), *bare, lists],
        schema=schema,
    )
    first = {"format": FIRST} if older else {}
    said = text or json.dumps({**ABOUT, **first, **(about or {})})
    with pq.ParquetWriter(
        file, schema, compression="zstd", write_statistics=False, store_schema=False
    ) as writer:
        writer.write_table(table, row_group_size=rows)
        writer.add_key_value_metadata({b"critpath": said.encode()})
    return file


def test_the_forger_can_write_what_is_read(tmp_path):
    file = forge(tmp_path / "p.parquet", 3, lengths=[1, 0, 2])
    assert len(load_paths(file)) == 3


def test_a_file_of_before_waits_said_who_was_idle_is_read(tmp_path):
    forge(tmp_path / "p.parquet", lengths=[1], end=[7], segments={"end": [7]}, older=True)
    paths = load_paths(tmp_path / "p.parquet").paths
    assert paths.elsewhere_idle.tolist() == [-1]  # nobody knows
    assert paths.duration.tolist() == [7]


@pytest.mark.parametrize("place", [0, -2, 2**31 - 1])
def test_a_detail_that_its_execution_has_not_is_refused(tmp_path, place):
    file = forge(tmp_path / "p.parquet", lengths=[1], segments={"detail": [place]})
    with pytest.raises(UnreadableError, match="an unknown detail"):
        load_paths(file)


FORGED = {
    "times that a difference overflows": {"begin": [-(2**63)], "end": [2**63 - 1]},
    "a time beyond": {"begin": [2**62], "end": [2**62]},
    "a time before": {"begin": [-(2**63)], "end": [-(2**63)]},
    "a negative duration": {"begin": [5], "end": [4]},
    "more time than there is": {"begin": [0], "end": [2**61]},
    "a host that is none": {"host": [-1]},
    "a host that is an index of gigabytes": {"host": [2**40]},
    "a recording that is none": {"session": [2**62]},
    "a text as long as a book": {"id": ["x" * 100_001]},
    "segments of a negative duration": {
        "lengths": [2],
        "end": [10],
        "segments": {"begin": [0, 2**62], "end": [2**62, 10]},
    },
    "a segment on a host that is none": {"lengths": [1], "segments": {"host": [2**50]}},
    "a segment on a cpu that is none": {"lengths": [1], "segments": {"cpu": [-5]}},
    "a wait longer elsewhere than here": {
        "lengths": [1],
        "end": [7],
        "segments": {"end": [7], "elsewhere_idle": [8]},
    },
    "a wait of negative idleness": {"lengths": [1], "segments": {"elsewhere_idle": [-2]}},
    "nested JSON": {"text": "[" * 200_000},
    "nested JSON that ends": {"text": '{"format":' + "[" * 100_000 + "]" * 100_000 + "}"},
    "a number of many digits": {"text": '{"format": ' + "9" * 1_000_000 + "}"},
    "no number": {"about": {"events": float("nan")}},
    "an endless number": {"about": {"events": float("inf")}},
    "a count that no integer holds": {"about": {"events": 2**63}},
    "a number in the environment that none holds": {"about": {"environment": [{"a": 10**30}]}},
    "a loss at a time that none holds": {
        "about": {
            "losses": [
                {"begin": 10**20, "end": 10**21, "host": 0, "cpu": 0, "events": 1, "packets": 0,
                 "reason": ""}
            ]
        }
    },
    "a warning as long as a book": {"about": {"warnings": ["x" * 100_001]}},
    "JSON that is a thousand times its size": {"text": "[" + "{}," * 2_000_000 + "{}]"},
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_forged_numbers_and_texts(tmp_path, name):
    file = forge(tmp_path / "p.parquet", **FORGED[name])
    for load in (load_paths, lambda f: load_paths(f, resident=-1).paths.chunks().__next__()):
        with pytest.raises(UnreadableError) as caught:
            load(file)
        assert caught.value.what.startswith(str(file))
        assert len(caught.value.what) < 500
        assert "\n" not in caught.value.what + caught.value.do


def test_an_extreme_that_is_harmless_is_read(tmp_path):
    paths = load_paths(
        forge(tmp_path / "p.parquet", tid=[-(2**63)], begin=[2**62 - 1], end=[2**62 - 1])
    )
    assert paths.executions.tid.tolist() == [-(2**63)]


class Strange(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.int64(), "critpath.test.strange")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


TYPES = {
    "a large list": lambda t: t.set_column(
        9, "segments", t.column("segments").cast(pa.large_list(t.schema.field(9).type.value_type))
    ),
    "large strings": lambda t: t.set_column(0, "id", t.column("id").cast(pa.large_string())),
    "a dictionary": lambda t: t.set_column(0, "id", t.column("id").dictionary_encode()),
    "texts for numbers": lambda t: t.set_column(1, "begin", t.column("begin").cast(pa.string())),
    "floats": lambda t: t.set_column(1, "begin", t.column("begin").cast(pa.float64())),
    "unsigned": lambda t: t.set_column(1, "begin", t.column("begin").cast(pa.uint64())),
    "times": lambda t: t.set_column(1, "begin", t.column("begin").cast(pa.timestamp("ns"))),
    "nulls": lambda t: t.set_column(
        0, pa.field("id", pa.string(), nullable=True), pa.array([None], pa.string())
    ),
    "an extension type": lambda t: t.set_column(
        1,
        "begin",
        pa.ExtensionArray.from_storage(Strange(), t.column(1).chunk(0)),
    ),
    "a column less": lambda t: t.drop_columns(["lossy"]),
    "a column twice": lambda t: t.append_column("lossy", t.column("lossy")),
}


@pytest.mark.parametrize("name", TYPES)
def test_columns_of_other_types(tmp_path, name):
    file = forge(tmp_path / "p.parquet")
    table = pq.read_table(file)
    pq.write_table(TYPES[name](table), file, store_schema=True)
    with pytest.raises(UnreadableError):
        load_paths(file)


def test_metadata_of_pandas_is_not_looked_at(tmp_path):
    """It may name types and pickled things; nothing here reads it."""
    file = forge(tmp_path / "p.parquet")
    table = pq.read_table(file)
    pickled = b"cos\nsystem\n(S'false'\ntR."
    with pq.ParquetWriter(file, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        about = json.dumps(ABOUT).encode()
        writer.add_key_value_metadata({b"critpath": about, b"pandas": pickled})
    assert len(load_paths(file)) == 1


# ------------------------------------------------------------------------------------- bombs


def text_bomb(file):
    forge(file, id=["x" * (100 * MIB)])


def metadata_bomb(file):
    forge(file, text="[" + "[]," * 3_000_000 + "[]]")


def rows_bomb(file):
    forge(file, 200_000)


def segments_bomb(file):
    forge(file, lengths=[3_000_000])


def repeated_bomb(file):
    forge(file, 3_000, id=["x" * 20_000] * 3_000)


# A test of processes reads them: small as a file, and large in memory before they were counted.
BOMBS = {
    make.__name__: make
    for make in (text_bomb, metadata_bomb, rows_bomb, segments_bomb, repeated_bomb)
}


# ------------------------------------------------------------------------------------- pages


def test_an_empty_row_group_is_read(tmp_path):
    file = forge(tmp_path / "p.parquet", 2, lengths=[1, 2])
    table = pq.read_table(file)
    with pq.ParquetWriter(file, table.schema, store_schema=False) as writer:
        for rows in (0, 2, 0):
            writer.write_table(table.slice(0, rows))
        writer.add_key_value_metadata({b"critpath": json.dumps(ABOUT).encode()})
    assert pq.read_metadata(file).num_row_groups == 3
    assert len(load_paths(file)) == 2
    pq.write_table(table.slice(0, 0), file)
    with file.open("rb") as stream:
        check_pages(stream, pq.read_metadata(file))


def test_pages_of_a_few_bytes_are_counted(tmp_path):
    """A column's own pages are its own; more than the file has bytes for are refused."""
    file = tmp_path / "p.parquet"
    table = pa.table({"a": np.zeros(40_000, np.int64)})
    pq.write_table(table, file, data_page_size=1, write_batch_size=1, use_dictionary=False)
    with file.open("rb") as stream, pytest.raises(DamagedError, match="more pages"):
        check_pages(stream, pq.read_metadata(file))


def footer_of(file, **changes):
    """Return a footer whose first column says something else."""
    real = pq.read_metadata(file)

    def group(number):
        found = real.row_group(number)

        def column(place):
            mine = found.column(place)
            names = ("data_page_offset", "has_dictionary_page", "dictionary_page_offset")
            said = {n: getattr(mine, n) for n in (*names, "total_compressed_size", "num_values")}
            return SimpleNamespace(**said) if place else SimpleNamespace(**{**said, **changes})

        return SimpleNamespace(num_columns=found.num_columns, column=column)

    return SimpleNamespace(num_row_groups=real.num_row_groups, row_group=group)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_values": 1},
        {"num_values": 7},
        {"num_values": -1},
        {"data_page_offset": -4, "has_dictionary_page": False},
        {"data_page_offset": 2**62, "has_dictionary_page": False},
        {"total_compressed_size": 2**62},
        {"total_compressed_size": -1},
        {"total_compressed_size": 10},
        {"data_page_offset": 5, "has_dictionary_page": False},
    ],
)
def test_a_footer_that_lies(tmp_path, changes):
    file = forge(tmp_path / "p.parquet", 3, id=["a", "b", "c"])
    with file.open("rb") as stream:
        check_pages(stream, footer_of(file))
        with pytest.raises(DamagedError):
            check_pages(stream, footer_of(file, **changes))


def test_any_bytes_in_place_of_headers(tmp_path):
    """Refused, or read as what they say; never an error of another kind, never for long."""
    file = forge(tmp_path / "p.parquet", 3, id=["a", "b", "c"])
    footer = pq.read_metadata(file)
    content = file.read_bytes()
    random = np.random.default_rng(8)
    for _ in range(300):
        damaged = bytearray(content)
        for place in random.integers(4, len(content) - 8, 3):
            damaged[place] = random.integers(256)
        file.write_bytes(damaged)
        with file.open("rb") as stream:
            try:
                check_pages(stream, footer)
            except DamagedError as error:
                assert str(error)  # noqa: PT017 - either way is right
