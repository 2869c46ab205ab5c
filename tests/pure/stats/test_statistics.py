"""The statistics of ours are scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaincinv, chdtri, stdtr
from scipy.stats import false_discovery_control, hypergeom, rankdata

from critpath.model import number_codes
from critpath.stats.rows import (
    hash_rows,
    mid_ranks,
    order_hashed,
    order_rows,
    seed_hashed,
)
from critpath.stats.tails import (
    benjamini_hochberg,
    beta_quantile,
    chi_square_quantile,
    hypergeometric_tail,
    least_rare,
    student_quantile,
    student_tails,
)


@pytest.mark.parametrize("kind", [float, np.int64])
def test_equal_values_share_the_mean_of_their_ranks(kind):
    values = np.random.default_rng(1).integers(0, 40, (100, 3)).astype(kind)
    assert mid_ranks(values).tolist() == rankdata(values, axis=0).tolist()
    assert mid_ranks(values[:1]).tolist() == [[1, 1, 1]]
    assert mid_ranks(values[:0]).shape == (0, 3)


@pytest.mark.parametrize("most", [1, 2, 5, 10**9])
@pytest.mark.parametrize("rows", [0, 1, 2, 300])
def test_rows_are_in_the_order_of_lexsort(rows, most):
    """Also where many are equal, as those of one table or of several."""
    rng = np.random.default_rng(rows)
    table = rng.integers(-most, most, (rows, 4))
    expected = np.lexsort(table.T[::-1])
    assert order_rows(table).tolist() == expected.tolist()
    assert order_rows(table[:, 0], table[:, 1:]).tolist() == expected.tolist()
    assert order_rows(table / 7).tolist() == expected.tolist()
    assert order_rows(table[:, :0]).tolist() == list(range(rows))


@pytest.mark.parametrize("kind", [np.int64, float])
def test_rows_are_ordered_by_their_content_alone(kind):
    """Two rows that differ anywhere are told apart, and in which order they come is no matter."""
    rng = np.random.default_rng(6)
    table = (rng.integers(0, 3, (70_000, 6)) << rng.integers(0, 60, 6)).astype(kind)
    hashes = hash_rows(table[:, 0], table[:, 1:])
    assert len(np.unique(hashes)) == len(np.unique(table, axis=0))
    mixed = rng.permutation(len(table))
    again = hash_rows(table[mixed, 0], table[mixed, 1:])
    assert seed_hashed(again) == seed_hashed(hashes)
    assert (table[mixed][order_hashed(again)] == table[order_hashed(hashes)]).all()
    assert seed_hashed(hashes[1:]) != seed_hashed(hashes)
    assert seed_hashed(hashes, hashes[:5]) != seed_hashed(hashes[:5], hashes)


@pytest.mark.parametrize("codes", [[], [3], [3, 0, 3, 5], [-1, 4, -1], [10**12, 7, 7]])
def test_codes_are_numbered_as_unique_does(codes):
    for many in (1, 50):
        each = np.array(codes * many, np.int64)
        found, place = number_codes(each)
        expected = np.unique(each, return_inverse=True)
        assert found.tolist() == expected[0].tolist()
        assert place.tolist() == expected[1].reshape(-1).tolist()


def test_benjamini_hochberg_as_counted_by_hand():
    rng = np.random.default_rng(2)
    for _ in range(200):
        p = rng.random(8) ** 3
        passing = [k for k in range(1, 9) if np.sort(p)[k - 1] <= 0.05 * k / 8]
        limit = np.sort(p)[max(passing) - 1] if passing else -1.0
        assert benjamini_hochberg(p, 0.05).tolist() == (p <= limit).tolist()
        selected = benjamini_hochberg(p, 0.05).tolist()
        assert selected == (false_discovery_control(p) <= 0.05).tolist()
    assert benjamini_hochberg(np.zeros(0), 0.05).tolist() == []
    assert benjamini_hochberg(np.array([0.01, 0.02, 0.9]), 0.05).tolist() == [True, True, False]


@pytest.mark.parametrize("seed", range(40))
def test_the_tail_is_that_of_the_hypergeometric_distribution(seed):
    """Sums of a few terms and of ten thousands, of the middle and far out."""
    rng = np.random.default_rng(seed)
    m, n = (int(10 ** rng.uniform(0, 5)) for _ in range(2))
    above = int(rng.integers(0, m + n + 1))
    fewest, most = max(0, above - n), min(above, m)
    for least in {fewest, most, (fewest + most) // 2, round(above * m / (m + n))}:
        expected = hypergeom.sf(least - 1, n + m, above, m)
        assert hypergeometric_tail(above, m, n, least) == pytest.approx(
            expected, rel=1e-8, abs=1e-290
        )


@pytest.mark.parametrize("level", [1e-9, 0.01 / 30, 0.05])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 40), (40, 5), (300, 200)])
def test_the_least_rare_number_is_the_first_whose_tail_is_at_most_the_level(m, n, level):
    for above in range(0, m + n + 1, max((m + n) // 40, 1)):
        numbers = range(max(0, above - n), min(above, m) + 1)
        rare = [k for k in numbers if hypergeometric_tail(above, m, n, k) <= level]
        assert least_rare(above, m, n, level) == min(rare, default=numbers.stop)


def test_the_tails_are_those_of_students_t():
    distance = np.linspace(0, 60, 500)
    for freedom in (2, 3, 4, 5, 14, 15, 49, 50, 1001):
        expected = 2 * stdtr(freedom, -distance)
        assert student_tails(distance, freedom) == pytest.approx(expected, abs=1e-13)


def test_a_distance_is_beyond_the_quantile_where_scipys_is():
    """Distances are rounded to 1e-9; scipy's quantile is good to some 1e-12.

    It is made of the incomplete beta function, as `stdtrit` of scipy 1.11 is good to 1e-8 only.
    """
    for freedom in range(4, 100):
        symbols = np.arange(1, 301)
        quantile = np.sqrt(freedom / betaincinv(freedom / 2, 0.5, 0.05 / symbols) - freedom)
        for steps in (-1, 2):
            near = np.round((np.floor(quantile * 1e9) + steps) / 1e9, 9)
            assert ((student_tails(near, freedom) < 0.05 / symbols) == (near > quantile)).all()


@pytest.mark.parametrize("seed", range(4))
def test_quantiles_of_beta_are_scipys(seed):
    """Made of the distribution: `betaincinv` of scipy 1.11 is good to 1e-8 only."""
    rng = np.random.default_rng(seed)
    for _ in range(100):
        a, b = np.exp(rng.uniform(-1, 8, 2)).tolist()
        probability = float(rng.choice([1e-6, 0.025, 0.5, 0.95, 0.975]))
        found = beta_quantile(probability, a, b)
        assert stats.beta.cdf(found, a, b) == pytest.approx(probability, rel=1e-8)


def test_a_quantile_of_beta_may_be_nearer_to_one_than_numbers_tell():
    """As the bound of a share is where nearly all of two independent units have it."""
    assert beta_quantile(0.975, 2.97, 0.03) == 1
    assert 0 <= beta_quantile(0.025, 1e-3, 3.0) < 1e-60


def test_quantiles_of_student_and_chi_square_are_scipys():
    for freedom in (1.0, 1.3, 2.0, 7.0, 33.3, 250.0, 499.9, 500.0, 1e4, 1e9):
        for probability in (0.6, 0.975, 0.9995):
            found = student_quantile(probability, freedom)
            assert stats.t.sf(found, freedom) == pytest.approx(1 - probability, rel=1e-8)
    assert student_quantile(0.975, np.inf) == pytest.approx(stats.norm.ppf(0.975), rel=1e-14)
    for freedom in (1, 2, 3, 10, 57, 2000):
        for probability in (0.001, 0.05, 0.95):
            found = chi_square_quantile(probability, freedom)
            assert found == pytest.approx(chdtri(freedom, 1 - probability), rel=1e-9)
