"""Datasets: every part is there, is the one that was written, and is read by anybody."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from detailing import texts_of

from critpath import files
from critpath.errors import UnreadableError, UsageError
from critpath.files import atomic, atomic_directory
from critpath.model import (
    CriticalPaths,
    Executions,
    PathSet,
    Piece,
    State,
    StoredPaths,
    join_paths,
    join_stored,
)
from critpath.model.paths import SEGMENT_COLUMNS
from critpath.store import MANIFEST, Dataset, Part, PathsWriter, reading, save_paths
from critpath.store.dataset import part_name
from critpath.store.formats import is_dataset
from critpath.store.reading import load_paths
from critpath.store.writing import GROUP_EXECUTIONS

COLUMNS = ("begin", "end", "state", "detail", "comm", "tid", "host", "cpu", "lossy")


def a_set(lengths: list[int], *, name: str = "rec", first: str = "a") -> PathSet:
    """Executions with that many segments each, of threads whose names begin so."""
    random = np.random.default_rng(len(lengths))
    total, n = sum(lengths), len(lengths)
    start = np.cumsum([0, *lengths])
    ends = np.cumsum(random.integers(1, 50, total))
    begins = np.concatenate([[0], ends])[:-1]
    last = np.append(begins, ends[-1:])
    return PathSet(
        executions=Executions(
            id=tuple(f"{name}-{i}" for i in range(n)),
            begin=last[start[:-1]],
            end=last[start[1:]],
            tid=np.full(n, 7),
            host=np.zeros(n, np.int64),
            comm=("main",) * n,
            label=("",) * n,
            notes=(f"note of {name}",),
        ),
        paths=CriticalPaths(
            start=start,
            begin=begins,
            end=ends,
            state=random.integers(0, len(State), total).astype(np.uint8),
            detail=np.zeros(total, np.int32),
            comm=random.integers(0, 3, total).astype(np.int32),
            tid=random.integers(1, 9, total),
            host=np.zeros(total, np.int64),
            cpu=np.zeros(total, np.int32),
            lossy=np.zeros(total, np.bool_),
            strings=("", f"{first}1", f"{first}2"),
        ),
        session=np.zeros(n, np.int64),
        sources=(name,),
        specification="thread",
        losses=(),
        lossy=np.zeros(n, np.bool_),
        events=total,
    )


def rows(paths: CriticalPaths) -> list[list[tuple[object, ...]]]:
    """Return every path as text: what does not depend on how strings are coded."""
    words = paths.strings
    every = list(
        zip(
            paths.begin.tolist(),
            paths.end.tolist(),
            paths.state.tolist(),
            texts_of(paths),
            [words[c] for c in paths.comm.tolist()],
            paths.tid.tolist(),
            strict=True,
        )
    )
    return [every[a:b] for a, b in zip(paths.start[:-1], paths.start[1:], strict=True)]


def make(directory: Path, *sets: PathSet) -> list[Part]:
    with atomic_directory(directory) as place:
        parts = [Dataset(place).write_part(number, [one]) for number, one in enumerate(sets)]
        Dataset(place).seal(parts, {"version": "0"})
    return parts


def test_what_was_written_is_read(tmp_path):
    sets = [a_set([3, 1, 2]), a_set([4, 4], name="other", first="b")]
    make(tmp_path / "d", *sets)
    assert is_dataset(tmp_path / "d")
    assert sorted(f.name for f in (tmp_path / "d").iterdir()) == [
        MANIFEST,
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    for limit in (1 << 20, 0):
        loaded = Dataset(tmp_path / "d").load(resident=limit)
        assert [one.executions.id for one in loaded] == [one.executions.id for one in sets]
        assert [rows(one.paths.resident()) for one in loaded] == [rows(one.paths) for one in sets]
        assert isinstance(loaded[0].paths, StoredPaths) == (limit == 0)
    listed = json.loads((tmp_path / "d" / MANIFEST).read_text())
    assert [p["recordings"] for p in listed["parts"]] == [["rec"], ["other"]]
    assert (listed["executions"], listed["segments"]) == (5, 14)
    assert "/" not in json.dumps(listed["parts"])


def test_every_part_is_a_file_that_anybody_reads(tmp_path):
    make(tmp_path / "d", a_set([3, 1, 2]), a_set([4, 4], name="other"))
    assert len(load_paths(tmp_path / "d" / part_name(1))) == 2
    glob = f"{tmp_path}/d/*.parquet"
    sql = f"select count(*), sum(len(segments)) from '{glob}'"  # noqa: S608 - our own name
    assert duckdb.sql(sql).fetchall() == [(5, 14)]
    assert pl.scan_parquet(glob).select(pl.len()).collect().item() == 5
    assert pq.read_table(tmp_path / "d").num_rows == 5  # it passes over the list


def test_a_part_is_the_same_however_often_it_is_written(tmp_path):
    first = Dataset(tmp_path).write_part(3, [a_set([3, 1])])
    content = (tmp_path / "part-00003.parquet").read_bytes()
    assert Dataset(tmp_path).write_part(3, [a_set([3, 1])]) == first
    assert (tmp_path / "part-00003.parquet").read_bytes() == content
    assert [f.name for f in tmp_path.iterdir()] == ["part-00003.parquet"]


def test_sets_of_one_recording_are_one_part(tmp_path):
    whole = a_set([3, 1, 2, 5])
    halves = [whole.take(np.array([0, 1])), whole.take(np.array([2, 3]))]
    Dataset(tmp_path).write_part(0, halves)
    found = load_paths(tmp_path / part_name(0))
    assert rows(found.paths) == rows(whole.paths)
    assert (found.sources, found.events) == (whole.sources, whole.events)
    assert found.executions.notes == whole.executions.notes
    assert found.session.tolist() == [0] * 4


def test_the_bytes_do_not_depend_on_how_many_executions_come_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("critpath.store.writing.GROUP_EXECUTIONS", 4)
    monkeypatch.setattr("critpath.store.writing.GROUP_SEGMENTS", 9)
    whole = a_set([3, 1, 2, 5, 1, 1, 1, 1, 12, 2, 1])
    Dataset(tmp_path).write_part(0, [whole])
    for number, sizes in enumerate(([1] * 11, [5, 0, 6], [10, 1], [4, 4, 3]), 1):
        ends = np.cumsum(sizes)
        cut = [np.arange(end - n, end) for n, end in zip(sizes, ends, strict=True)]
        Dataset(tmp_path).write_part(number, [whole.take(rows) for rows in cut])
    parts = {part_name(n): (tmp_path / part_name(n)).read_bytes() for n in range(5)}
    assert len(set(parts.values())) == 1


def test_several_recordings_in_one_file_keep_apart(tmp_path):
    sets = [a_set([3, 1]), a_set([2], name="other", first="b")]
    with atomic(tmp_path / "f.parquet") as stream, PathsWriter(stream) as writer:
        for one in sets:
            writer.write(one)
    found = load_paths(tmp_path / "f.parquet")
    assert found.session.tolist() == [0, 0, 1]
    assert found.sources == ("rec", "other")
    assert found.specification == "thread"
    assert found.executions.notes == ("note of rec", "note of other")
    assert found.events == 6
    assert rows(found.paths) == rows(join_paths([one.paths for one in sets]))


def test_row_groups_are_small_and_read_one_at_a_time(tmp_path, monkeypatch):
    many = a_set([1] * (2 * GROUP_EXECUTIONS + 5))
    save_paths(many, tmp_path / "f")
    footer = pq.ParquetFile(tmp_path / "f").metadata
    assert [footer.row_group(i).num_rows for i in range(3)] == [*2 * [GROUP_EXECUTIONS], 5]
    monkeypatch.setattr("critpath.store.writing.GROUP_SEGMENTS", 10)
    save_paths(a_set([4, 4, 4, 11, 1, 9, 12]), tmp_path / "g")
    footer = pq.ParquetFile(tmp_path / "g").metadata
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [2, 1, 1, 2, 1]
    stored = load_paths(tmp_path / "g", resident=0)
    assert [len(c) for c in stored.paths.chunks()] == [2, 1, 1, 2, 1]
    assert rows(stored.paths.resident()) == rows(load_paths(tmp_path / "g").paths)


def test_stored_paths_are_paths():
    whole = a_set([3, 1, 2, 5, 1, 4])
    cut = [[0, 1], [2], [3, 4, 5]]
    fetched: list[int] = []

    def piece(number: int) -> Piece:
        def load() -> CriticalPaths:
            fetched.append(number)
            return whole.paths.take(np.array(cut[number]))

        return Piece(len(cut[number]), load)

    stored = StoredPaths([piece(number) for number in range(3)])
    assert (len(stored), fetched) == (6, [])
    for order in ([0], [5, 0, 5], [4, 2, 2, 1], []):
        assert rows(stored.take(np.array(order, np.int64))) == [rows(whole.paths)[i] for i in order]
    fetched.clear()
    assert rows(stored.take(np.array([3, 5]))) == [rows(whole.paths)[i] for i in (3, 5)]
    assert fetched == [2]
    kept = stored.keep(np.array([5, 1]))
    fetched.clear()
    assert rows(kept.take(np.array([1, 5, 1]))) == [rows(whole.paths)[i] for i in (1, 5, 1)]
    assert fetched == []
    assert rows(kept.take(np.array([0]))) == [rows(whole.paths)[0]]
    with pytest.raises(IndexError):
        stored.take(np.array([6]))
    halved = stored.map(lambda paths: replace(paths, tid=paths.tid * 2))
    assert (
        halved.take(np.array([3])).tid.tolist()
        == (whole.paths.take(np.array([3])).tid * 2).tolist()
    )
    for name in (*COLUMNS, "start"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(whole.paths, name))
    with pytest.raises(AttributeError):
        _ = stored.nothing
    together = join_stored([stored, whole.paths])
    assert isinstance(together, StoredPaths)
    assert rows(together.resident()) == rows(whole.paths) * 2


def test_chunks_of_a_set_are_the_set(tmp_path):
    save_paths(a_set([2] * (2 * GROUP_EXECUTIONS + 500)), tmp_path / "f")
    stored, whole = load_paths(tmp_path / "f", resident=0), load_paths(tmp_path / "f")
    chunks = list(stored.chunks())
    assert [len(chunk) for chunk in chunks] == [GROUP_EXECUTIONS, GROUP_EXECUTIONS, 500]
    assert [name for chunk in chunks for name in chunk.executions.id] == [*whole.executions.id]
    assert np.concatenate([c.executions.begin for c in chunks]).tolist() == (
        whole.executions.begin.tolist()
    )
    assert [c is whole for c in whole.chunks()] == [True]


# -------------------------------------------------------------- what is not right


def listed(change: Callable[[dict], object]) -> Callable[[Path], object]:
    def apply(directory: Path) -> None:
        content = json.loads((directory / MANIFEST).read_text())
        change(content)
        (directory / MANIFEST).write_text(json.dumps(content))

    return apply


def of_part(**values: object) -> Callable[[Path], object]:
    return listed(lambda content: content["parts"][1].update(values))


def swap(directory: Path) -> None:
    (directory / part_name(0)).rename(directory / "x")
    (directory / part_name(1)).rename(directory / part_name(0))
    (directory / "x").rename(directory / part_name(1))


def pipe(directory: Path) -> None:
    (directory / part_name(1)).unlink()
    os.mkfifo(directory / part_name(1))


def device(directory: Path) -> None:
    (directory / part_name(1)).unlink()
    (directory / part_name(1)).symlink_to("/dev/zero")


def inflate(content: dict) -> None:
    content["parts"][1]["segments"] += 1
    content["segments"] += 1


def flip(directory: Path) -> None:
    content = bytearray((directory / part_name(0)).read_bytes())
    content[40] ^= 1
    (directory / part_name(0)).write_bytes(content)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: (d / part_name(1)).unlink(), "part-00001.parquet is missing"),
        (lambda d: (d / part_name(1)).write_bytes(b""), "part-00001.parquet is not the file"),
        (swap, "part-00000.parquet is not the file"),
        (flip, "part-00000.parquet is not the file"),
        (pipe, "part-00001.parquet is not the file"),
        (device, "part-00001.parquet is not the file"),
        (listed(inflate), "it has not 9 segments, as listed"),
        (lambda d: save_paths(a_set([1]), d / "part-00002.parquet"), "is not in _critpath.json"),
        (lambda d: (d / MANIFEST).write_text("{"), "is no JSON"),
        (lambda d: (d / MANIFEST).write_text("[" * 100_000), "is no JSON"),
        (lambda d: (d / MANIFEST).write_bytes(b"\xff"), "is no JSON"),
        (lambda d: (d / MANIFEST).write_text("[]"), "format None"),
        (listed(lambda c: c.update(format="critpath/dataset/2")), "format 'critpath/dataset/2'"),
        (listed(lambda c: c.pop("parts")), "'parts'"),
        (listed(lambda c: c["parts"].append(1)), "part 2 in"),
        (listed(lambda c: c["parts"].reverse()), "'file' of part 0"),
        (listed(lambda c: c["parts"].pop()), "not the sum"),
        (listed(lambda c: c.update(executions=4)), "not the sum"),
        (of_part(file="../part-00001.parquet"), "'file' of part 1"),
        (of_part(executions=-1), "'executions' of part 1"),
        (of_part(executions=True), "'executions' of part 1"),
        (of_part(recordings="x"), "'recordings' of part 1"),
        (of_part(sha256="0"), "'sha256' of part 1"),
        (of_part(sha256="0" * 64), "part-00001.parquet is not the file"),
        (of_part(more=1), "part 1 in"),
    ],
)
def test_what_is_not_as_listed_is_refused(tmp_path, change, says):
    make(tmp_path / "d", a_set([3, 1, 2]), a_set([4, 4], name="other"))
    Dataset(tmp_path / "d").load()
    change(tmp_path / "d")
    with pytest.raises(UnreadableError) as caught:
        Dataset(tmp_path / "d").load()
    assert says in caught.value.what
    assert "export" in caught.value.do


def test_executions_without_segments_are_as_listed(tmp_path):
    make(tmp_path / "d", a_set([0, 3, 0]))
    (loaded,) = Dataset(tmp_path / "d").load()
    assert len(loaded) == 3


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    save_paths(a_set([1] * (GROUP_EXECUTIONS + 500)), tmp_path / "f")
    stored = load_paths(tmp_path / "f", resident=0)
    chunks = stored.paths.chunks()
    next(chunks)
    save_paths(a_set([1] * (GROUP_EXECUTIONS + 500), name="other"), tmp_path / "f")
    with pytest.raises(UnreadableError, match="changed while it was read"):
        next(chunks)


def test_what_is_fetched_later_is_checked_then(tmp_path):
    good = a_set([2] * 3)
    bad = replace(good, paths=replace(good.paths, begin=good.paths.begin + 1))
    save_paths(bad, tmp_path / "f")
    stored = load_paths(tmp_path / "f", resident=0)
    with pytest.raises(UnreadableError, match="do not tile"):
        next(stored.paths.chunks())


def test_what_a_killed_worker_began_is_taken_out(tmp_path):
    with atomic_directory(tmp_path / "d") as place:
        parts = [Dataset(place).write_part(0, [a_set([1])])]
        (place / ".part-00000.parquet.abc.partial").write_bytes(b"PAR1")
        Dataset(place).seal(parts, {})
    assert sorted(f.name for f in (tmp_path / "d").iterdir()) == [MANIFEST, part_name(0)]
    with pytest.raises(UnreadableError, match="is not there"):
        Dataset(tmp_path).seal(parts, {})


def test_a_directory_is_not_looked_through_for_every_part(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("critpath.files.remove_abandoned", seen.append)
    make(tmp_path / "d", *[a_set([1])] * 5)
    assert [each.name for each in seen] == ["d", MANIFEST]


def test_a_directory_appears_whole_or_not_at_all(tmp_path):
    make(tmp_path / "d", a_set([1]))
    before = Dataset(tmp_path / "d").load()[0].executions.id

    def fail() -> None:
        with atomic_directory(tmp_path / "d") as place:
            Dataset(place).write_part(0, [a_set([2], name="new")])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert Dataset(tmp_path / "d").load()[0].executions.id == before
    assert [f.name for f in tmp_path.iterdir()] == ["d"]
    make(tmp_path / "d", a_set([2], name="new"))
    assert Dataset(tmp_path / "d").load()[0].executions.id == ("new-0",)
    assert [f.name for f in tmp_path.iterdir()] == ["d"]
    with pytest.raises(UsageError, match="cannot write"), atomic_directory(tmp_path / "no" / "d"):
        pass


@pytest.mark.parametrize("room", [True, False])
def test_what_is_beyond_memory_is_read_again(tmp_path, monkeypatch, room):
    """In a temporary file, or where that has no room from the set itself."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(reading, "_KEPT", 0)
    monkeypatch.setattr(files, "_ROOM", 0 if room else 1 << 62)
    save_paths(a_set([*range(1, 60)] * 40), tmp_path / "f")
    stored, whole = load_paths(tmp_path / "f", resident=0), load_paths(tmp_path / "f").paths
    for _ in range(2):
        first = 0
        for chunk in stored.paths.chunks():
            mine = whole.take(np.arange(first, first + len(chunk)))
            first += len(chunk)
            for name in (*SEGMENT_COLUMNS, "start"):
                assert np.array_equal(getattr(chunk, name), getattr(mine, name)), name
        assert first == len(whole)
    some = np.array([7, 1500, 3])
    for name in SEGMENT_COLUMNS:
        mine, theirs = (getattr(of.take(some), name) for of in (stored.paths, whole))
        assert np.array_equal(mine, theirs), name
    assert [*tmp_path.glob("critpath-*")] == []  # it has no name
