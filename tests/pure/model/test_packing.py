"""Packed blocks: whatever the values, they are the same again."""

from __future__ import annotations

from contextlib import closing
from dataclasses import fields

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import Block, CriticalPaths, PackedPaths
from critpath.model.packing import pack
from critpath.timeline.streaming import SpilledBlocks

TIMES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**33),
    st.sampled_from([-1, 0, 2**32 - 1, 2**32, 2**63 - 1, -(2**63)]),
)
CODES = st.one_of(
    st.integers(-(2**31), 2**31 - 1), st.integers(-1, 3), st.sampled_from([2**31 - 1, -(2**31)])
)
STATES = st.integers(0, 255)


def tables(*values):
    """Rows by owner: sometimes each begins where the one before it ended."""
    row = st.tuples(st.booleans(), TIMES, TIMES, *values)
    some = st.lists(st.lists(row, max_size=5), max_size=6)
    # So many of one owner that their number takes more than a byte.
    many = st.builds(lambda rows, times: [rows * times, rows], st.lists(row, max_size=3), RUNS)
    return st.one_of(some, many)


RUNS = st.integers(80, 200)


def columns(table, kinds):
    start, rows = [0], []
    for of_owner in table:
        last = None
        for follows, begin, end, *values in of_owner:
            rows.append((last if follows and last is not None else begin, end, *values))
            last = end
        start.append(len(rows))
    by_column = zip(*rows, strict=True) if rows else [[]] * len(kinds)
    return [
        np.array(start, np.int64),
        *(np.array(c, kind) for c, kind in zip(by_column, kinds, strict=True)),
    ]


def block_of(cut, threads, stolen, ran):
    i64, i32, u8 = np.int64, np.int32, np.uint8
    return Block(
        cut,
        *columns(threads, (i64, i64, u8, i32, i32, i32, i64)),
        *columns(stolen, (i64, i64, u8, i32)),
        *columns(ran, (i64, i64, i32)),
    )


BLOCKS = st.builds(
    block_of,
    TIMES,
    tables(STATES, CODES, CODES, CODES, TIMES),
    tables(STATES, CODES),
    tables(CODES),
)


def assert_same(tables, block):
    for name in ("intervals", "stolen", "ran"):
        found, expected = getattr(tables, name)(), getattr(block, name)()
        for mine, its in zip(found, expected, strict=True):
            assert mine.dtype == its.dtype
            np.testing.assert_array_equal(mine, its)


@given(BLOCKS)
def test_all_values_survive(block):
    packed = pack(block)
    assert packed.cut == block.cut
    assert len(packed) == len(block) + len(block.stolen_begin) + len(block.ran_begin)
    assert_same(packed.unpacked(), block)


@given(
    st.lists(BLOCKS, max_size=5),
    st.randoms(use_true_random=False),
    st.sampled_from([(0, True), (0, False), (300, False), (1 << 20, False)]),
)
def test_blocks_in_any_order_in_memory_and_not(blocks, chance, size):
    with closing(SpilledBlocks(size[0], limited=size[1])) as kept:
        for block in blocks:
            kept.append(pack(block))
        check_kept(kept, blocks, chance)


def check_kept(kept, blocks, chance):
    assert len(kept) == len(blocks)
    assert kept.cuts.tolist() == [block.cut for block in blocks]
    held = []
    for _ in range(10 if blocks else 0):
        k = chance.randrange(len(blocks))
        assert_same(kept[k], blocks[k])
        held.append((kept[k].intervals(), blocks[k].intervals()))
    # What somebody still holds was not overwritten.
    for mine, its in held:
        assert all(np.array_equal(a, b) for a, b in zip(mine, its, strict=True))


def test_an_ordinary_block_takes_few_bytes():
    times = np.arange(0, 20_000_000, 1000)
    n = len(times) - 1
    halves = np.zeros(n, np.int32)
    nobody = np.full(n, -1, np.int32)
    start = np.array([0, n // 2, n])
    states = np.ones(n, np.uint8)
    block = Block(
        int(times[-1]),
        *(start, times[:-1], times[1:], states, halves, halves, nobody, np.full(n, -1)),
        *(start, times[:-1], times[1:], states, halves),
        *(start, times[:-1], times[1:], halves),
    )
    packed = pack(block)
    assert sum(len(table.data) for table in packed.tables) < 10 * len(packed)


TEXTS = {"strings", "details", "stacks"}
COLUMNS = tuple(f.name for f in fields(CriticalPaths) if f.name not in TEXTS)
NUMBERS = st.sampled_from([-1, 0, 1, 127, 128, 255, 2**16, 2**31, 2**32, 2**53 + 1, 2**61 - 1])


@given(st.data(), st.lists(st.integers(0, 4), max_size=6))
def test_packed_paths_are_the_same(data, counts):
    """Whatever numbers a store has: no path, paths without segments, values far apart."""
    rows = sum(counts)

    def column(numbers, dtype=np.int64):
        return np.array(data.draw(st.lists(numbers, min_size=rows, max_size=rows)), dtype)

    length = column(st.integers(0, 2**40))
    start = np.cumsum([0, *counts])
    firsts = data.draw(
        st.lists(st.integers(-(2**61), 2**61), min_size=len(counts), max_size=len(counts))
    )
    begin = np.cumsum(length) - length
    for path, first in enumerate(firsts):
        mine = slice(start[path], start[path + 1])
        begin[mine] += first - begin[mine][:1]
    paths = CriticalPaths(
        start=start,
        begin=begin,
        end=begin + length,
        state=column(st.integers(0, 255), np.uint8),
        detail=column(st.sampled_from([0, 1, 300]), np.int32),
        comm=column(st.integers(0, 2), np.int32),
        tid=column(NUMBERS),
        host=column(st.integers(0, 2**31 - 1)),
        cpu=column(st.integers(-1, 2**31 - 1), np.int32),
        lossy=column(st.booleans(), np.bool_),
        strings=("", "a", "b"),
        elsewhere_idle=column(NUMBERS),
        beneath=column(st.integers(0, 3), np.uint8),
        uncertainty=column(NUMBERS),
        confidence=column(st.sampled_from([0.25, 1.0]), np.float64),
        others=column(st.booleans(), np.bool_),
    )
    packed = pack_and_compare(paths)
    assert packed.nbytes <= sum(getattr(paths, name).nbytes for name in COLUMNS) + 8


def pack_and_compare(paths: CriticalPaths) -> PackedPaths:
    """Return paths packed, after a look that they come out as they went in."""
    packed = PackedPaths(paths)
    again = packed.unpack()
    for name in COLUMNS:
        one, other = getattr(paths, name), getattr(again, name)
        assert one.dtype == other.dtype, name
        assert one.tolist() == other.tolist(), name
    for rows in (np.arange(len(paths))[::-2], np.arange(len(paths))[-1:], np.arange(0)):
        some, expected = packed.unpack().take(rows), paths.take(rows)
        for name in COLUMNS:
            assert getattr(some, name).tolist() == getattr(expected, name).tolist(), name
    assert again.strings is paths.strings
    assert again.details is paths.details
    assert again.stacks is paths.stacks
    return packed


def test_packed_paths_name_kinds_of_segments():
    """Of many segments of a few kinds each costs its duration and the number of its kind."""
    rng = np.random.default_rng(1)
    rows = 4000
    length = rng.integers(1, 2**31, rows)
    end = np.cumsum(length)
    paths = CriticalPaths(
        start=np.arange(0, rows + 1, 100),
        begin=end - length,
        end=end,
        state=rng.choice(np.array([1, 4, 9], np.uint8), rows),
        detail=rng.integers(0, 3, rows).astype(np.int32),
        comm=rng.integers(0, 3, rows).astype(np.int32),
        tid=rng.integers(-1, 4, rows),
        host=np.zeros(rows, np.int64),
        cpu=rng.integers(0, 2, rows).astype(np.int32),
        lossy=rng.random(rows) < 0.5,
        strings=("", "a", "b"),
    )
    packed = pack_and_compare(paths)
    assert packed.nbytes < 9 * rows
