"""Numbers of pairs, and the last row of a group that has begun: as dictionaries have them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model._lookup import Numbers, find_used, last_begun, list_distinct, translate

WIDE = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
PAIRS = st.lists(st.tuples(WIDE, WIDE), max_size=300)


def columns(pairs):
    """Return them as columns of one table, whose values are not side by side."""
    return np.array(pairs, np.int64).reshape(-1, 2).T


@given(PAIRS, PAIRS, PAIRS)
def test_pairs_have_the_number_of_their_first_time(one, other, asked):
    numbers, known = Numbers(), {}
    for pairs in (one, other):
        expected = [known.setdefault(pair, len(known)) for pair in pairs]
        assert numbers.add(*columns(pairs)).tolist() == expected
    assert len(numbers) == len(known)
    assert [*zip(*numbers.since(0).tolist(), strict=True)] == [*known]
    assert numbers.find(*columns(asked)).tolist() == [known.get(pair, -1) for pair in asked]


@given(st.lists(st.lists(st.integers(0, 9), min_size=1).map(sorted), max_size=5), st.data())
def test_the_last_that_has_begun(groups, data):
    of, time = columns(
        data.draw(st.lists(st.tuples(st.integers(-1, len(groups) - 1), st.integers(-1, 10))))
    )
    start = np.cumsum([0, *map(len, groups)])
    begin = np.array([one for group in groups for one in group], np.int64)
    found = last_begun(of.astype(np.int32), start, begin, time)
    for group, at, row in zip(of.tolist(), time.tolist(), found.tolist(), strict=True):
        begun = [i for i, one in enumerate(groups[group]) if one <= at] if group >= 0 else []
        assert row == (-1 if group < 0 else start[group] + max(begun, default=0))


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("of", [np.int32, np.int64])
def test_codes_are_translated_as_numpy_does_it(kind, of):
    codes, table = np.array([3, 0, 3, 1, 0], kind), np.array([5, -6, 7, 1 << 30], of)
    assert find_used(codes, 4).tolist() == [0, 1, 3]
    assert translate(codes[::2], table).tolist() == table[codes[::2]].tolist()
    assert translate(codes, table).dtype == of
    assert not len(find_used(codes[:0], 0))
    assert not len(translate(codes[:0], table[:0]))


@pytest.mark.parametrize("code", [4, -1])
def test_a_code_that_means_nothing_is_refused(code):
    codes = np.array([0, code], np.int32)
    for asked in (lambda: find_used(codes, 4), lambda: translate(codes, np.zeros(4, np.int64))):
        with pytest.raises(IndexError):
            asked()


@given(st.lists(st.lists(st.integers(0, 60), max_size=80), max_size=5), st.randoms())
def test_each_group_has_its_ranks_once_and_in_order(groups, drawn):
    rank = np.array([0, *drawn.sample(range(60), 60)], np.int32)
    start = np.cumsum([0, *map(len, groups)])
    codes = np.array([one for group in groups for one in group], np.int32)
    bounds, ranks, places = list_distinct(start, codes, rank)
    for g, group in enumerate(groups):
        expected = sorted({int(rank[one]) for one in group if one})
        assert ranks[bounds[g] : bounds[g + 1]].tolist() == expected
        at = places[start[g] : start[g + 1]].tolist()
        assert at == [expected.index(rank[one]) if one else -1 for one in group]
