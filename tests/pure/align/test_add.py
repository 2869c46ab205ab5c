"""Rows added to an alignment that stays as it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.align.multiple import RowGroup, align
from critpath.errors import UsageError

ROWS = st.lists(
    st.lists(
        st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.sampled_from([1, 2, 14])),
        max_size=3,
    ).map(lambda parts: np.array([x for unit, n in parts for x in unit * n], np.uint8)),
    max_size=6,
)


def ones(sequences):
    return [np.ones(len(s), np.int64) for s in sequences]


def without(alignment, row):
    """Return the symbols of the other rows, less columns that only this row needs."""
    symbols = np.delete(alignment.symbols, row, axis=0)
    return symbols[:, (symbols >= 0).any(axis=0)]


@given(ROWS, ROWS.filter(bool))
def test_the_groups_rows_keep_their_place(sequences, others):
    group = RowGroup(sequences, ones(sequences), 4, others=others)
    alone = None
    for other in others:
        added = group.add(other, np.ones(len(other), np.int64))
        assert added.rows.shape[0] == len(sequences) + 1
        for row, sequence in zip(added.rows, [*sequences, other], strict=True):
            assert row[row >= 0].tolist() == list(range(len(sequence)))
        assert (added.rows >= 0).any(axis=0).all()
        alone = without(added, -1).tolist() if alone is None else alone
        assert without(added, -1).tolist() == alone


@given(ROWS.filter(bool), st.data())
def test_a_row_that_the_group_has_stands_where_it_stands(sequences, data):
    which = data.draw(st.integers(0, len(sequences) - 1))
    added = RowGroup(sequences, ones(sequences), 4).add(sequences[which], ones(sequences)[which])
    assert added.rows[-1].tolist() == added.rows[which].tolist()
    together = align([*sequences, sequences[which]], ones([*sequences, sequences[which]]), 4)
    assert added.rows.tolist() == together.rows.tolist()
    assert added.score == pytest.approx(together.score)


@given(ROWS, ROWS.filter(bool), st.data())
def test_what_was_added_before_changes_nothing(sequences, others, data):
    """Equal sequences are aligned once; their durations are each one's own."""
    group = RowGroup(sequences, ones(sequences), 4, others=others)
    for number, which in enumerate(data.draw(st.lists(st.sampled_from(range(len(others)))))):
        lasts = np.full(len(others[which]), number + 1, np.int64)
        added = group.add(others[which], lasts)
        fresh = RowGroup(sequences, ones(sequences), 4, others=others).add(others[which], lasts)
        assert added.rows.tolist() == fresh.rows.tolist()
        assert added.score == fresh.score
        assert [d.tolist() for d in added.durations] == [d.tolist() for d in fresh.durations]


def test_a_group_of_one_or_none(family):
    a, b = family(1, count=2, length=30)
    added = RowGroup([a], ones([a]), 6, method="muscle").add(b, ones([b])[0])
    both = align([a, b], ones([a, b]), 6, method="muscle")
    assert added.rows.tolist() == both.rows.tolist()
    # Between equally good ones the order of the two decides.
    added = RowGroup([a], ones([a]), 6).add(b, ones([b])[0])
    assert added.rows.shape == align([a, b], ones([a, b]), 6).rows.shape
    alone = RowGroup([], [], 6).add(b, ones([b])[0])
    assert alone.rows.tolist() == [list(range(len(b)))]
    empty = np.array([], np.uint8)
    assert RowGroup([a], ones([a]), 6).add(empty, ones([empty])[0]).rows.shape == (2, len(a))
    assert RowGroup([empty], ones([empty]), 6).add(a, ones([a])[0]).rows.shape == (2, len(a))


def test_a_state_that_the_group_never_has():
    group = [np.array([0, 1, 2, 3, 0, 1], np.uint8)] * 3
    other = np.array([0, 1, 2, 5, 3, 0, 1], np.uint8)
    added = RowGroup(group, ones(group), 6).add(other, ones([other])[0])
    assert added.symbols.tolist() == [[0, 1, 2, -1, 3, 0, 1]] * 3 + [other.tolist()]


def test_a_loop_of_the_added_row_alone_and_of_the_group_alone():
    head, tail, unit = [0, 1, 2], [3, 2, 0], [4, 5]
    few = np.array([*head, *unit * 3, *tail], np.uint8)
    many = np.array([*head, *unit * 50, *tail], np.uint8)
    none = np.array([*head, *tail], np.uint8)
    group = RowGroup([few, few, none], ones([few, few, none]), 6, others=[many])
    (loop,) = group.add(many, ones([many])[0]).loops
    assert loop.iterations.tolist() == [3, 3, 0, 50]
    group = RowGroup([many, many], ones([many, many]), 6, others=[few, none])
    assert group.add(few, ones([few])[0]).loops[0].iterations.tolist() == [50, 50, 3]
    assert group.add(none, ones([none])[0]).loops[0].iterations.tolist() == [50, 50, 0]


def test_permuted_groups_give_the_same(family):
    *group, other = family(4, count=8, length=60)
    order = [4, 2, 6, 0, 1, 5, 3]
    first = RowGroup(group, ones(group), 6).add(other, ones([other])[0])
    mixed = [group[i] for i in order]
    second = RowGroup(mixed, ones(mixed), 6).add(other, ones([other])[0])
    assert first.rows[[*order, 7]].tolist() == second.rows.tolist()


def test_adding_is_about_as_good_as_aligning_together(family):
    close = []
    for seed in range(10):
        *group, other = family(seed, count=7, length=60)
        added = RowGroup(group, ones(group), 6).add(other, ones([other])[0])
        together = align([*group, other], ones([*group, other]), 6)
        close.append(added.score / together.score)
    assert np.mean(close) > 0.98


def test_wrong_input_is_refused(family):
    a, b = family(2, count=2, length=40)
    group = RowGroup([a], ones([a]), 6, max_cells=100, method="muscle")
    with pytest.raises(UsageError, match="too long to align"):
        group.add(b, ones([b])[0])
    with pytest.raises(ValueError, match="differ in length"):
        group.add(b, np.ones(3, np.int64))
    with pytest.raises(ValueError, match="at most 64"):
        RowGroup([a], ones([a]), 65)


def test_sixty_four_letters_are_aligned():
    whole = np.arange(64, dtype=np.uint8)
    holes = [np.delete(whole, h) for h in (5, 40)]
    result = align([whole, *holes], ones([whole, *holes]), 64)
    assert result.rows.shape == (3, 64)
    with pytest.raises(ValueError, match="alphabet of 65 letters: at most 64"):
        align([whole], ones([whole]), 65)
