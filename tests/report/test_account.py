"""The account of the excess: what is printed adds up, whatever the parts."""

from __future__ import annotations

import re
from decimal import Decimal
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from critpath.text import verdict

_NS = st.floats(-1e12, 1e12, allow_nan=False) | st.integers(-(10**6), 10**6)
_CAUSES = st.lists(st.tuples(_NS, st.integers(1, 5), st.booleans()), max_size=8)


def a_document(excess, causes=()):
    return SimpleNamespace(
        aligned=[SimpleNamespace(excess=ns, unexplained=0.0) for ns in excess],
        causes=[
            SimpleNamespace(contribution=ns, positions=list(range(size)), minor=minor, sentence="x")
            for ns, size, minor in causes
        ],
    )


@given(st.lists(_NS, min_size=1, max_size=5), _CAUSES, st.integers(0, 6))
def test_parts_add_up_exactly_as_printed(excess, causes, shown):
    document = a_document(excess, causes)
    whole, parts = verdict.account(document, shown)
    figures = [Decimal(part.shown.split()[0]) for part in parts]
    assert sum(figures) == Decimal(whole.shown.split()[0])
    assert {part.shown.split()[1] for part in parts} == {whole.shown.split()[1]}
    assert sum(part.ns for part in parts) == pytest.approx(sum(excess), rel=1e-9, abs=1e-2)
    if whole.share:
        assert sum(int(part.share.split()[0]) for part in parts) == 100
    else:
        assert max(abs(part.ns) for part in parts) > 10 * whole.ns or whole.ns <= 0
        assert not any(part.share for part in parts)


@given(st.lists(_NS, min_size=1, max_size=5), _CAUSES)
def test_no_figure_is_further_off_than_one_step(excess, causes):
    whole, parts = verdict.account(a_document(excess, causes), 6)
    unit = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}[whole.shown.split()[1]]
    for part in parts:
        assert abs(float(part.shown.split()[0]) - part.ns / unit) <= 0.0101 + abs(part.ns) * 1e-9


@given(
    st.integers(-(10**8), 10**8),
    st.sampled_from([1, 10, 10**4, 10**7]),
    st.lists(st.integers(-(10**4), 10**4), max_size=4),
)
@example(29_965, 10, [])
@example(29_965, 10, [0])
def test_halves_of_a_step_add_up_too(steps, step, parts):
    """Every amount is whole steps and a half of what is printed: 299,655 ns is 299.655 us."""
    whole = steps * step + step // 2
    causes = [(float(n * step + step // 2), 1, False) for n in parts]
    total, found = verdict.account(a_document([float(whole)], causes), 6)
    figures = [Decimal(part.shown.split()[0]) for part in found]
    assert sum(figures) == Decimal(total.shown.split()[0])
    if total.share:
        assert sum(int(part.share.split()[0]) for part in found) == 100


def test_every_cause_is_in_one_part():
    causes = [(6e6, 4, False), (5e6, 1, False), (-1e6, 2, False), (1e5, 3, True), (4e6, 1, False)]
    said = verdict.account_sentence(a_document([4e7], causes), 3)
    assert said == (
        "The whole excess, +40.00 ms in 1 execution examined: +29.00 ms (72 %) listed, "
        "-2.00 ms (-5 %) that went the other way, +4.30 ms (11 %) in smaller differences, "
        "+8.70 ms (22 %) unexplained."
    )
    assert sum(map(int, re.findall(r"(-?\d+) %", said))) == 100


def test_without_an_excess_there_is_no_account():
    assert verdict.account_sentence(a_document([]), 3) == ""
    assert verdict.account(a_document([1.0, None]), 3) is None
    assert verdict.account(a_document([1.7e308, 1.7e308]), 3) is None
