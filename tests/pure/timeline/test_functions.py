"""Functions of threads: whatever is missing, spans nest, and a segment has its innermost one."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import State
from critpath.model.details import NO_DETAIL, Detail, word_detail
from critpath.text import phrases
from critpath.timeline._functions import find_longest
from critpath.timeline.functions import find_callers, nest_functions

sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
import functions as twin

ENTRY, EXIT, LAST = twin.ENTRY, twin.EXIT, twin.LAST
KINDS = (ENTRY, EXIT, ENTRY, EXIT, LAST)
events = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 4), st.sampled_from(KINDS)),
    max_size=60,
)


def rows_of(found, *, host=0, tid=7):
    """Rows as the collector has them, from steps of time."""
    time, rows = 0, []
    for step, code, what in found:
        time += step
        rows.append((time, host, tid, code, what))
    return rows


def spans_of(rows, end):
    found = nest_functions(np.array(rows, np.int64).reshape(-1, 5), end)
    columns = (found.begin, found.end, found.code, found.parent)
    return found, list(zip(*(c.tolist() for c in columns), strict=True))


def assert_nested(found):
    """Children lie within their parents and beside each other; their sum never exceeds it."""
    inner = np.flatnonzero(found.parent >= 0)
    parent = found.parent[inner]
    assert (found.end >= found.begin).all()
    assert (found.begin[inner] >= found.begin[parent]).all()
    assert (found.end[inner] <= found.end[parent]).all()
    assert (found.thread[inner] == found.thread[parent]).all()
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, parent, found.end[inner] - found.begin[inner])
    assert (sums <= found.end - found.begin).all()
    # Siblings follow each other.
    order = np.lexsort((found.begin[inner], parent))
    same = np.flatnonzero(np.diff(parent[order]) == 0)
    of = inner[order]
    assert (found.end[of[same]] <= found.begin[of[same + 1]]).all()


@given(events)
def test_whatever_is_missing_spans_nest_as_those_of_the_twin(found):
    rows = rows_of(found)
    end = (rows[-1][0] if rows else 0) + 3
    nested, mine = spans_of(rows, end)
    expected, changes = twin.nest([(t, c, w) for t, _, _, c, w in rows], end)
    assert mine == expected
    if expected:
        assert nested.changes.tolist() == [list(one) for one in changes]
    assert_nested(nested)


def random_tree(random, calls):
    """A tree's events, and its spans: (begin, end, code)."""
    rows, truth, time = [], [], 0

    def call(left):
        nonlocal time
        code = int(random.integers(1, 9))
        time += int(random.integers(0, 50))
        begin, place = time, len(truth)
        truth.append(None)
        rows.append((time, code, ENTRY))
        left -= 1
        while left > 0 and random.random() < 0.7:
            mine = int(random.integers(1, left + 1))
            left -= mine
            call(mine)
        time += int(random.integers(0, 50))
        rows.append((time, code, EXIT))
        truth[place] = (begin, time, code)

    call(calls)
    return rows, truth


def test_a_tree_comes_back_as_it_was():
    random = np.random.default_rng(19)
    for _ in range(300):
        rows, truth = random_tree(random, int(random.integers(1, 30)))
        found, spans = spans_of([(t, 0, 7, c, w) for t, c, w in rows], 1 << 40)
        assert [span[:3] for span in spans] == truth
        assert_nested(found)


@pytest.mark.deep
def test_children_never_take_longer_than_their_parent_in_many_trees():
    """Trees of up to 12 calls, a thread each; of a tenth of them a tenth of the events is lost."""
    random = np.random.default_rng(1906)
    trees = 0
    while trees < 200_000:
        rows = []
        for tid in range(1, 20_001):
            found, _ = random_tree(random, int(random.integers(1, 13)))
            if tid % 10 == 0:
                found = [one for one in found if random.random() >= 0.1]
            rows += [(t, 0, tid, c, w) for t, c, w in found]
            trees += 1
        rows = np.array(rows, np.int64)
        assert_nested(nest_functions(rows[np.argsort(rows[:, 0], kind="stable")], 1 << 40))


@given(events, st.lists(st.tuples(st.integers(0, 90), st.integers(1, 40)), min_size=1, max_size=8))
def test_the_innermost_function_of_a_stretch_is_that_of_most_nanoseconds(found, stretches):
    rows = rows_of(found)
    end = (rows[-1][0] if rows else 0) + 3
    nested, spans = spans_of(rows, end)
    if not spans:
        return
    kind = nested.code - 1
    tally, winner = np.zeros(5, np.int64), np.full(len(stretches), -2, np.int64)
    begins = np.array([begin for begin, _ in stretches], np.int64)
    ends = np.array([begin + length for begin, length in stretches], np.int64)
    _, _, first, after = nested.threads[0].tolist()
    find_longest(nested.changes, first, after, kind, begins, ends, tally, winner)
    assert not tally.any()
    changes = [tuple(row) for row in nested.changes.tolist()]
    for one, begin, stop in zip(winner.tolist(), begins.tolist(), ends.tolist(), strict=True):
        assert one in twin.longest(changes, kind.tolist(), begin, stop)


def test_threads_and_hosts_have_functions_of_their_own():
    rows = [
        (1, 0, 7, 1, ENTRY), (2, 0, 8, 2, ENTRY), (3, 1, 7, 3, ENTRY),
        (4, 0, 7, 1, EXIT), (5, 1, 7, 0, LAST), (9, 0, 8, 1, EXIT),
    ]  # fmt: skip
    found, spans = spans_of(rows, 10)
    assert sorted(spans) == [(1, 4, 1, -1), (2, 10, 2, -1), (3, 5, 3, -1)]
    assert found.threads[:, :2].tolist() == [[0, 7], [0, 8], [1, 7]]


def test_the_projects_function_around_is_the_caller():
    """render calls dumps, which calls encode; main called render; encode alone has no caller."""
    rows = [
        *((0, 0, 7, 1, ENTRY), (1, 0, 7, 2, ENTRY), (2, 0, 7, 3, ENTRY), (3, 0, 7, 4, ENTRY)),
        *((4, 0, 7, 1, EXIT), (5, 0, 7, 4, ENTRY)),
    ]
    found, _ = spans_of(rows, 9)
    own = np.array([False, True, True, False, False])
    assert dict(zip(found.begin.tolist(), find_callers(found, own).tolist(), strict=True)) == {
        0: 0,
        1: 0,
        2: 2,
        3: 2,
        5: 0,
    }


def test_the_words_for_a_function():
    detail = Detail(function="encode (json/encoder.py:42)", caller="render (shop.py:7)")
    assert word_detail(detail) == "encode (json/encoder.py:42), under render (shop.py:7)"
    assert phrases.doing(State.RUN, detail) == (
        "running in `encode` (json/encoder.py:42), under `render` (shop.py:7)"
    )
    assert phrases.doing(State.RUN, NO_DETAIL) == "running"
