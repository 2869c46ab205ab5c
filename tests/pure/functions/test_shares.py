"""How many functions may be noted: fair shares, as the laws of budgets have them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from critpath.functions.agent import Shares, find_level
from critpath_record.budget import laws

demands = st.lists(st.floats(0, 1), min_size=1, max_size=40)


@given(demands, st.floats(0.001, 0.5))
def test_the_level_is_that_of_the_law(wanted, total):
    assert find_level(wanted, total) == laws.find_level(wanted, total)


@given(
    st.lists(st.tuples(st.integers(1, 60_000), st.integers(200, 40_000)), min_size=1, max_size=12),
    st.floats(0.005, 0.2),
)
def test_functions_that_are_short_hold_their_share(functions, share):
    """Each is called so often a second, and takes so long (ns); an event costs 100 ns."""
    cost, switched = 1e-7, {}
    shares = Shares(share, cost, switched.__setitem__)
    totals = {number: [0, 0] for number in range(len(functions))}
    spent = 0.0
    for step in range(1, 301):
        counts = []
        for number, (rate, length) in enumerate(functions):
            if switched.get(number, True):
                made = rate // 10
                totals[number][0] += made
                totals[number][1] += made * length
                if made:
                    counts.append((number, 2 * made, *totals[number]))
                    spent += 2 * made * cost if length < 10_000 else 0.0
        shares.adjust(step / 10, 0.1, counts)
    demand = sum(2 * rate * cost for rate, length in functions if length < 10_000)
    # A look's worth of each function at most before it is known what it wants.
    first = sum(2 * (rate // 10) * cost for rate, length in functions if length < 10_000)
    assert spent <= 1.5 * min(demand, share) * 30 + 3 * first
    if sum(2 * rate * cost for rate, _ in functions) <= share:
        assert not switched
