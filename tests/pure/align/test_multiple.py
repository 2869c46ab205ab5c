"""The multiple alignment, seen from outside; test_properties.py has what always holds."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from Bio import Phylo

from critpath.align import posteriors as consistency
from critpath.align.multiple import align
from critpath.align.profiles import f81_model, sum_of_pairs
from critpath.align.progressive import realign_split
from critpath.errors import UsageError
from critpath.text.notes import word


def run(sequences, alphabet=6, **options):
    durations = [np.arange(1, len(s) + 1, dtype=np.int64) * 1000 for s in sequences]
    return align(sequences, durations, alphabet, **options)


def symbols(alignment):
    return alignment.symbols.tolist()


def check_whole(alignment, sequences):
    """Degapped rows are the input; no column is all gaps."""
    assert alignment.rows.shape[0] == len(sequences)
    for row, sequence in zip(alignment.rows, sequences, strict=True):
        assert row[row >= 0].tolist() == list(range(len(sequence)))
    assert (alignment.rows >= 0).any(axis=0).all()
    for row, sequence in zip(alignment.symbols, sequences, strict=True):
        assert row[row >= 0].tolist() == sequence.tolist()
    totals = alignment.column_durations.sum(axis=1).tolist()
    assert totals == [int(d.sum()) for d in alignment.durations]


def test_no_one_or_two_rows():
    assert run([]).rows.shape == (0, 0)
    one = np.array([1, 2, 3], np.uint8)
    assert run([one]).rows.tolist() == [[0, 1, 2]]
    two = run([one, np.array([1, 3], np.uint8)])
    assert two.rows.tolist() == [[0, 1, 2], [0, -1, 1]]


def test_empty_sequences_are_rows_of_gaps():
    empty, one = np.array([], np.uint8), np.array([1, 2], np.uint8)
    assert run([empty, one, empty]).rows.tolist() == [[-1, -1], [0, 1], [-1, -1]]
    assert run([empty, empty]).rows.shape == (2, 0)


@pytest.mark.parametrize("seed", range(6))
def test_score_is_the_twins_sum_of_pairs(oracle, family, seed):
    sequences = family(seed, count=5, length=20)
    sequences = [*sequences, sequences[0], np.array([], np.uint8)]
    result = run(sequences)
    distinct = {s.tobytes(): s for s in sequences}.values()
    model = f81_model(np.bincount(np.concatenate(list(distinct)), minlength=6))
    expected = oracle.sum_of_pairs(
        symbols(result), [1] * 7, model.log_ratio.tolist(), -3.5, -0.25, 0.3
    )
    assert result.score == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_realigning_a_split_only_ever_improves(oracle, family, seed):
    sequences = family(seed, count=6, length=40, rate=0.3)
    result = run(sequences, refine=0)
    rows = result.symbols.astype(np.int8)
    model = f81_model(np.bincount(np.concatenate(sequences), minlength=6))
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 1, 6)

    def objective(rows):
        return oracle.sum_of_pairs(
            rows.tolist(), weights, model.log_ratio.tolist(), -3.5, -0.25, 0.3
        )

    assert sum_of_pairs(rows, weights, model) == pytest.approx(objective(rows))
    improved = 0
    for _ in range(10):
        side = np.zeros(6, np.uint8)
        side[rng.permutation(6)[: rng.integers(1, 6)]] = 1
        candidate = realign_split(rows, side, weights, model)
        if candidate is not None:
            assert objective(candidate) > objective(rows)
            rows = candidate
            improved += 1
        else:
            assert realign_split(rows, side, weights, model) is None
    assert [r[r >= 0].tolist() for r in rows] == [s.tolist() for s in sequences]


def test_refinement_raises_the_score_of_divergent_families(family):
    gains = []
    for seed in range(10):
        sequences = family(seed, count=8, length=60, rate=0.4)
        scores = [run(sequences, refine=n, method="muscle").score for n in (4, 0)]
        gains.append(scores[0] - scores[1])
    assert np.mean(gains) > 0


def test_two_rows_score_what_the_programme_found(family):
    """The pairwise optimum is an upper bound that the result of two rows attains."""
    a, b = family(1, count=2, length=30)
    both = run([a, b])
    shifted = both.symbols.astype(np.int8)
    model = f81_model(np.bincount(np.concatenate([a, b]), minlength=6))
    for shift in (1, 3):  # any other alignment is worse
        width = shifted.shape[1] + shift
        other = np.full((2, width), -1, np.int8)
        other[0, : len(a)] = a
        other[1, width - len(b) :] = b
        assert sum_of_pairs(other, np.ones(2), model) < both.score


def test_tree_is_newick_of_all_rows(family):
    sequences = family(5, count=6)
    sequences = [*sequences, sequences[2], np.array([], np.uint8)]
    tree = Phylo.read(StringIO(run(sequences).tree), "newick")
    assert sorted(int(leaf.name) for leaf in tree.get_terminals()) == list(range(8))
    depths = tree.depths()
    assert len({round(depths[leaf], 4) for leaf in tree.get_terminals() if leaf.name != "7"}) == 1


def test_refinement_left_out_is_said(family):
    sequences = family(2, count=5, length=40)
    assert run(sequences).notes == ()
    result = run(sequences, refine_work=1000, method="muscle")
    (note,) = result.notes
    assert word(note).startswith("refinement of the alignment left out: 5 distinct paths")
    assert symbols(result) == symbols(run(sequences, refine=0, method="muscle"))


def test_too_long_is_refused(family):
    with pytest.raises(UsageError, match="too long to align"):
        run(family(2, count=3, length=40), max_cells=100, method="muscle")


def test_too_much_for_posteriors_is_aligned_by_profiles(family, monkeypatch):
    sequences = family(2, count=5, length=40)
    monkeypatch.setattr(consistency, "PAIR_CELLS", 10_000)
    result = run(sequences)
    (note,) = result.notes
    assert word(note).startswith("5 distinct paths of up to ")
    assert word(note).endswith(
        " segments are too many for an alignment by posteriors: aligned by profiles"
    )
    assert symbols(result) == symbols(run(sequences, method="muscle"))


def test_wrong_input_is_refused():
    one = np.array([5], np.uint8)
    with pytest.raises(ValueError, match="letter 5 of 5"):
        run([one], alphabet=5)
    with pytest.raises(ValueError, match="differ in length"):
        align([one], [np.array([1, 2], np.int64)], 6)


def test_long_paths_are_aligned(family):
    sequences = family(4, count=4, length=3000, letters=12, rate=0.05)
    result = run(sequences, alphabet=12)
    check_whole(result, sequences)
    agree = [
        ((result.symbols[0] == row) & (row >= 0)).sum() / len(sequences[0])
        for row in result.symbols[1:]
    ]
    assert min(agree) > 0.8
