"""Numbers of pairs, and the last row of a group that has begun: as dictionaries have them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from critpath.model._lookup import Numbers, last_begun

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
