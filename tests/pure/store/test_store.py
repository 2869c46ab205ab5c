"""Saved critical paths: the same again, whole or not at all, checked on the way in."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from detailing import detailed, texts_of
from hypothesis import given
from hypothesis import strategies as st

from critpath.errors import TooMuchTimeError, UnreadableError, UsageError
from critpath.files import atomic, write_text
from critpath.model import CriticalPaths, Executions, Loss, PathSet, State
from critpath.model.joining import join_sets
from critpath.model.stacks import read_stack
from critpath.schema.environment import Environment
from critpath.store import FORMAT, PathsWriter, save_paths
from critpath.store.columns import DETAILS, LATER, SEGMENTS, arrow_schema
from critpath.store.formats import is_paths_file
from critpath.store.reading import load_paths

STRINGS = ("", "virtio0-req.0", "worker-1", "kw\u202eorker", "\u0000", "a'\"</script>")


CODES = ("comm", "stack", "waker_stack")
ROOT = Path(__file__).resolve().parents[3]
TEXTS = {*CODES, "strings", "detail", "details"}


def with_stacks(paths: PathSet) -> PathSet:
    """Return paths of which some segments have stacks, of a recording that has some."""
    random, texts = np.random.default_rng(1), ("f\ta.c\t1\tapp\ng\t\t0\tapp", "h\t\t0\tapp")
    total = len(paths.paths.begin)
    codes = {
        name: random.integers(0, 3, total).astype(np.int32) - np.int32(1)
        for name in ("stack", "waker_stack")
    }
    changed = replace(paths.paths, stacks=tuple(map(read_stack, texts)), **codes)
    return replace(paths, paths=changed, environment=(*paths.environment, Environment(stacks=9)))


def path_set(lengths=(3, 0, 1), *, seed=1) -> PathSet:
    """Executions with that many segments each; none lasts 0 ns."""
    random = np.random.default_rng(seed)
    count, total = len(lengths), sum(lengths)
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    begins, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
    segment_begin, segment_end = [], []
    for i, length in enumerate(lengths):
        times = 10_000 * i + np.concatenate([[0], np.cumsum(random.integers(1, 99, length))])
        begins[i], ends[i] = times[0], times[-1]
        segment_begin += times[:-1].tolist()
        segment_end += times[1:].tolist()
    return PathSet(
        executions=Executions(
            id=tuple(f"id {i}" for i in range(count)),
            begin=begins,
            end=ends,
            tid=random.integers(1, 999, count),
            host=np.zeros(count, np.int64),
            comm=tuple("worker-1" for _ in range(count)),
            label=tuple("write" for _ in range(count)),
            incomplete=4,
            notes=("4 begins without an end",),
        ),
        paths=detailed(
            CriticalPaths(
                start=start,
                begin=np.array(segment_begin, np.int64),
                end=np.array(segment_end, np.int64),
                state=random.integers(0, len(State), total).astype(np.uint8),
                detail=random.integers(0, len(STRINGS), total).astype(np.int32),
                comm=random.integers(0, len(STRINGS), total).astype(np.int32),
                tid=random.integers(1, 999, total),
                host=np.zeros(total, np.int64),
                cpu=random.integers(-1, 8, total).astype(np.int32),
                lossy=random.integers(0, 2, total).astype(np.bool_),
                strings=STRINGS,
                elsewhere_idle=random.integers(
                    0, np.array(segment_end, np.int64) - np.array(segment_begin, np.int64) + 1
                ),
            )
        ),
        session=np.zeros(count, np.int64),
        sources=("tra\udce9ce/one",),
        specification="events:a:b,a:e",
        losses=(Loss(1, 2, 0, -1, 3, 0, "discarded"),),
        lossy=random.integers(0, 2, count).astype(np.bool_),
        environment=(Environment(hostname="guest", tracer_major=2),),
        events=12345,
        warnings=("odd",),
    )


def assert_same(one: object, other: object) -> None:
    """Equal but for the order of strings, which are those that a segment has."""
    for field in fields(one):
        if isinstance(one, CriticalPaths) and field.name in {
            *CODES,
            "strings",
            "detail",
            "details",
            "stacks",
        }:
            continue
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, field.name
            assert a.tolist() == b.tolist(), field.name
        elif isinstance(a, Executions | CriticalPaths):
            assert_same(a, b)
            if isinstance(a, CriticalPaths):
                for column in CODES:
                    of = (
                        [
                            (*(p.strings if column == "comm" else p.stacks), None)[code]
                            for code in getattr(p, column)
                        ]
                        for p in (a, b)
                    )
                    assert next(of) == next(of), column
                assert [a.details[c] for c in a.detail] == [b.details[c] for c in b.detail]
        else:
            assert a == b, field.name


def test_a_file_of_the_first_format_is_read_and_saved_anew(tmp_path):
    file = ROOT / "fixtures" / "requests" / "shop.paths" / "part-00000.parquet"
    kind = pq.read_schema(file).field(SEGMENTS).type.value_type
    assert kind.get_field_index("detail") >= 0
    paths = load_paths(file)
    save_paths(paths, tmp_path / "p.parquet")
    assert_same(load_paths(tmp_path / "p.parquet").paths, paths.paths)
    table = pq.read_table(file, columns=[SEGMENTS]).column(SEGMENTS).combine_chunks()
    texts = table.flatten().field("detail").to_pylist()
    assert texts_of(paths.paths) == texts
    assert {of.rival for of in paths.paths.details} >= {"postgres"}


@pytest.mark.parametrize("lacking", [4, 8, 9, 10])
def test_a_file_from_before_all_was_told_of_details_is_read(tmp_path, lacking):
    saved = path_set((3, 0, 1))
    save_paths(saved, tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    missing = LATER[-lacking:]
    of = [
        [{name: value for name, value in each.items() if name not in missing} for each in details]
        for details in table.column(DETAILS).to_pylist()
    ]
    schema = arrow_schema(lacking=lacking)
    columns = {**{name: table.column(name) for name in schema.names}, DETAILS: of}
    older = pa.table(columns, schema=schema.with_metadata(table.schema.metadata))
    pq.write_table(older, tmp_path / "q.parquet", write_page_checksum=True)
    assert_same(load_paths(tmp_path / "q.parquet"), saved)


@pytest.mark.parametrize("lengths", [(3, 0, 1), (), (1,), (0,), (50, 1, 2, 700)])
def test_loading_gives_what_was_saved(tmp_path, lengths):
    saved = path_set(lengths)
    save_paths(saved, tmp_path / "p.parquet")
    assert_same(load_paths(tmp_path / "p.parquet"), saved)


@pytest.mark.parametrize("lengths", [(), (3, 0, 1), (2,) * 9500])
def test_a_thread_that_writes_writes_the_same(tmp_path, lengths):
    saved = path_set(lengths)
    save_paths(saved, tmp_path / "p.parquet")
    with (tmp_path / "q.parquet").open("wb") as stream, PathsWriter(stream, aside=True) as writer:
        for first in range(0, max(len(saved), 1), 700):
            rows = np.arange(first, min(first + 700, len(saved)))
            writer.write(saved.take(rows), more=first > 0)
    assert (tmp_path / "q.parquet").read_bytes() == (tmp_path / "p.parquet").read_bytes()


def test_what_keeps_a_thread_from_writing_is_raised():
    saved = path_set((2,) * 9500)
    with Path("/dev/full").open("wb", buffering=0) as full:
        writer = PathsWriter(full, aside=True)
        with pytest.raises(OSError, match="No space left"), writer:
            writer.write(saved)


@pytest.mark.parametrize("lengths", [(3, 0, 1), (0,), (50, 1, 2, 700)])
def test_stacks_are_saved_where_there_are_any(tmp_path, lengths):
    saved = with_stacks(path_set(lengths))
    save_paths(saved, tmp_path / "p.parquet")
    loaded = load_paths(tmp_path / "p.parquet")
    assert_same(loaded, saved)
    save_paths(loaded, tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "p.parquet").read_bytes()
    save_paths(path_set(lengths), tmp_path / "without.parquet")
    assert b"waker_stack" not in (tmp_path / "without.parquet").read_bytes()
    with (tmp_path / "several").open("wb") as stream, PathsWriter(stream, stacks=True) as writer:
        for part in (path_set(lengths), saved):
            writer.write(part)
    several = load_paths(tmp_path / "several")
    assert_same(several.take(np.arange(len(saved), 2 * len(saved))).paths, saved.paths)
    joined = join_sets([loaded, path_set(lengths)])
    assert_same(joined.take(np.arange(len(saved))).paths, saved.paths)


@given(lengths=st.lists(st.integers(0, 5), max_size=6), seed=st.integers(0, 1000), name=st.text())
def test_any_paths_survive(tmp_path_factory, lengths, seed, name):
    file = tmp_path_factory.mktemp("any") / "p.parquet"
    saved = path_set(lengths, seed=seed)
    count = len(saved)
    executions = replace(saved.executions, label=(name,) * count)
    saved = replace(saved, executions=executions, specification=name)
    save_paths(saved, file)
    assert_same(load_paths(file), saved)


def test_equal_input_gives_equal_bytes(tmp_path):
    for name in ("a", "b"):
        save_paths(path_set(), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_many_recordings_of_one_execution_each_are_read(tmp_path):
    """Each is a row group, whose columns take more room in the footer than in pages."""
    file = tmp_path / "p.parquet"
    one = path_set((5,))
    with file.open("wb") as stream, PathsWriter(stream) as writer:
        for _ in range(300):
            writer.write(one)
    assert len(load_paths(file)) == 300


def lasting(each, many):
    """Return a set of executions of so many ns each, with one segment."""
    one = path_set((1,) * many)
    begin = np.arange(many, dtype=np.int64)
    return replace(
        one,
        executions=replace(one.executions, begin=begin, end=begin + each),
        paths=replace(one.paths, begin=begin, end=begin + each),
    )


def test_long_executions_are_read_and_what_cannot_be_added_up_is_not_written(tmp_path):
    """4,000 of ten hours each are no forgery; sums are exact up to the limit."""
    hours = lasting(36_000 * 10**9, 4000)
    most = lasting(2**60 - 1, 2)
    for paths in (hours, most):
        save_paths(paths, tmp_path / "p.parquet")
        assert_same(load_paths(tmp_path / "p.parquet"), paths)
    assert most.executions.time == 2**61 - 2
    for many in (lasting(2**60, 2), lasting(2**61, 5)):
        with pytest.raises(TooMuchTimeError):
            save_paths(many, tmp_path / "beyond.parquet")
        with pytest.raises(TooMuchTimeError):
            join_sets([many])
    assert not (tmp_path / "beyond.parquet").exists()
    with pytest.raises(TooMuchTimeError):
        join_sets([most, most])


def test_others_can_read_it(tmp_path):
    saved = path_set()
    save_paths(saved, tmp_path / "p.parquet")
    rows = pq.read_table(tmp_path / "p.parquet").to_pylist()
    assert [row["id"] for row in rows] == ["id 0", "id 1", "id 2"]
    assert [len(row["segments"]) for row in rows] == [3, 0, 1]
    first = rows[0]["segments"][0]
    assert first["state"] in State.__members__
    assert first["begin"] == saved.executions.begin[0]


def test_text_that_is_no_unicode_is_stored_as_such(tmp_path):
    saved = path_set((1,))
    odd = replace(saved, executions=replace(saved.executions, label=("a\udcff",)))
    save_paths(odd, tmp_path / "p")
    assert load_paths(tmp_path / "p").executions.label == ("a?",)


# ---------------------------------------------------------------- is it ours?


def test_what_is_a_paths_file(tmp_path):
    save_paths(path_set(), tmp_path / "yes")
    (tmp_path / "no").write_text("PAR")
    assert is_paths_file(tmp_path / "yes")
    assert not is_paths_file(tmp_path / "no")
    assert not is_paths_file(tmp_path)
    assert not is_paths_file(tmp_path / "absent")
    assert not is_paths_file(Path("nul\0byte"))


def rewrite(file: Path, *, about=None, column=None, segments=None) -> None:
    """Change a saved file's metadata, one column, or its segments."""
    table = pq.read_table(file)
    schema = table.schema
    if about is not None:
        found = json.loads(schema.metadata[b"critpath"])
        about(found)
        table = table.replace_schema_metadata({b"critpath": json.dumps(found)})
    if column is not None:
        name, values = column
        place = schema.get_field_index(name)
        field = schema.field(name)
        table = table.set_column(place, field, pa.array(values, field.type))
    if segments is not None:
        rows = table.column("segments").to_pylist()
        segments(rows)
        place = schema.get_field_index("segments")
        field = schema.field("segments")
        table = table.set_column(place, field, pa.array(rows, field.type))
    pq.write_table(table, file)


def shorten(rows):
    rows[0][-1]["end"] -= 1


def shift(rows):
    rows[0][1]["begin"] += 1


def drop_first(rows):
    del rows[0][0]


def drop_all(rows):
    rows[0].clear()


def swap_inside(rows):
    rows[0][0]["end"], rows[0][1]["begin"] = rows[0][0]["begin"] - 5, rows[0][0]["begin"] - 5


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"about": lambda a: a.update(format="critpath/paths/3")}, "format 'critpath/paths/3'"),
        ({"about": lambda a: a.pop("strings")}, "'strings'"),
        ({"about": lambda a: a.update(strings=["", 1])}, "'strings'"),
        ({"about": lambda a: a.update(strings=[""])}, "unknown"),
        ({"about": lambda a: a.update(sources=[])}, "not listed"),
        ({"about": lambda a: a.update(events=-1)}, "'events'"),
        ({"about": lambda a: a.update(events=True)}, "'events'"),
        ({"about": lambda a: a["losses"][0].update(cpu="x")}, "'losses'"),
        ({"about": lambda a: a["losses"][0].update(more=1)}, "'losses'"),
        ({"about": lambda a: a.update(environment=[{"a": []}])}, "'environment'"),
        ({"column": ("session", [0, 0, -1])}, "not listed"),
        ({"column": ("session", [0, 0, 1])}, "not listed"),
        ({"column": ("end", [0, 10_000, 0])}, "ends before it begins"),
        ({"segments": shorten}, "do not tile"),
        ({"segments": shift}, "do not tile"),
        ({"segments": drop_first}, "do not tile"),
        ({"segments": swap_inside}, "do not tile"),
        ({"segments": drop_all}, "without segments"),
        ({"segments": lambda rows: rows[0][0].update(state="SLEEP")}, "unknown state"),
        ({"segments": lambda rows: rows[0][0].update(comm="nobody")}, "unknown comm"),
        ({"segments": lambda rows: rows[0][0].update(cpu=-2)}, "out of range"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path, change, says):
    file = tmp_path / "p.parquet"
    save_paths(path_set(), file)
    load_paths(file)
    rewrite(file, **change)
    with pytest.raises(UnreadableError) as caught:
        load_paths(file)
    assert says in caught.value.what
    assert str(file) in caught.value.what
    assert "export" in caught.value.do


def test_other_parquet_and_other_columns(tmp_path):
    file = tmp_path / "p.parquet"
    pq.write_table(pa.table({"a": [1]}), file)
    with pytest.raises(UnreadableError, match="not one of saved paths"):
        load_paths(file)
    save_paths(path_set(), file)
    metadata = pq.read_schema(file).metadata
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(metadata), file)
    with pytest.raises(UnreadableError, match=f"other columns than format {FORMAT}"):
        load_paths(file)


def test_damaged_bytes_are_refused_or_harmless(tmp_path):
    good = tmp_path / "good"
    save_paths(path_set((20, 20, 20)), good)
    content = good.read_bytes()
    file = tmp_path / "bad"
    random = np.random.default_rng(7)
    refused = 0
    for place in random.integers(0, len(content), 150).tolist():
        file.write_bytes(content[:place] + bytes([content[place] ^ 0x5A]) + content[place + 1 :])
        try:
            load_paths(file)
        except UnreadableError:
            refused += 1
    assert refused > 50
    for cut in (0, 3, 4, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:cut])
        with pytest.raises(UnreadableError):
            load_paths(file)
    with pytest.raises(UnreadableError, match="cannot be read"):
        load_paths(tmp_path / "absent")


# -------------------------------------------------------------------- writing


def test_nothing_half_written(tmp_path):
    file = tmp_path / "f"
    file.write_text("old")

    def fail() -> None:
        with atomic(file) as stream:
            stream.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_place_that_cannot_be_written(tmp_path):
    for file in (tmp_path / "absent" / "f", tmp_path):
        with pytest.raises(UsageError, match="cannot write"):
            write_text(file, "x")
    assert list(tmp_path.iterdir()) == []


def test_links_modes_and_devices(tmp_path):
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "f", "ü\udcff\n")
    finally:
        os.umask(old)
    assert (tmp_path / "f").read_bytes() == "ü?\n".encode()
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640
    (tmp_path / "link").symlink_to("f")
    write_text(tmp_path / "link", "through")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "f").read_text() == "through"
    write_text(Path(os.devnull), "x")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
