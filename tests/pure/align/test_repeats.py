"""Loops: found, collapsed, put back, counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.align.multiple import METHODS, align
from critpath.align.repeats import collapse, expand, find_units


def codes(text):
    return np.array([ord(c) - ord("a") for c in text], np.uint8)


def run(texts, **options):
    sequences = [codes(t) for t in texts]
    durations = [np.arange(1, len(s) + 1, dtype=np.int64) for s in sequences]
    return align(sequences, durations, 26, **{"method": "muscle", **options})


def text_of(row):
    return "".join("-" if c < 0 else chr(c + ord("a")) for c in row)


def check_whole(alignment):
    for row, sequence in zip(alignment.rows, alignment.sequences, strict=True):
        assert row[row >= 0].tolist() == list(range(len(sequence)))
    assert (alignment.rows >= 0).any(axis=0).all()


def check_loops(alignment):
    """Loops are disjoint, and every row has as many iterations there as are counted."""
    reached = 0
    for loop in alignment.loops:
        assert reached <= loop.first < loop.last <= alignment.rows.shape[1]
        reached = loop.last
        texts = [
            "".join(map(chr, row[row >= 0] + ord("a")))
            for row in alignment.symbols[:, loop.first : loop.last]
        ]
        units = {
            text[i : i + loop.period] for text in texts for i in range(len(text) - loop.period + 1)
        }
        counts = loop.iterations.tolist()
        assert any(
            [max(text.count(u[i:] + u[:i]) for i in range(len(u))) for text in texts] == counts
            for u in units
        )


LOOPS = st.lists(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 2), min_size=1, max_size=4),
            st.integers(1, 30),
        ),
        max_size=4,
    ).map(lambda parts: np.array([x for unit, n in parts for x in unit * n], np.uint8)),
    max_size=6,
)


@pytest.mark.parametrize("method", METHODS)
@given(LOOPS, st.randoms(use_true_random=False))
def test_whatever_is_collapsed_comes_back(method, sequences, random):
    durations = [np.ones(len(s), np.int64) for s in sequences]
    result = align(sequences, durations, 3, method=method)
    check_whole(result)
    check_loops(result)
    order = list(range(len(sequences)))
    random.shuffle(order)
    same = [sequences[i] for i in order]
    again = align(same, durations_of(sequences, order), 3, method=method)
    assert result.rows[order].tolist() == again.rows.tolist()
    for loop, same in zip(result.loops, again.loops, strict=True):
        assert loop.iterations[order].tolist() == same.iterations.tolist()


def durations_of(sequences, order):
    return [np.ones(len(sequences[i]), np.int64) for i in order]


@given(LOOPS)
def test_collapsed_rows_hold_what_the_runs_leave(sequences):
    units = find_units(sequences)
    for sequence in sequences:
        row = collapse(sequence, units)
        back = [sequence[:0]]
        at = 0
        for run, begin in zip(row.runs, row.begins(), strict=True):
            unit = row.letters[begin : begin + run.period]
            back += [row.letters[at:begin], np.tile(unit, run.iterations)]
            at = begin + run.period
        back.append(row.letters[at:])
        assert np.concatenate(back).tolist() == sequence.tolist()


def test_loops_of_unlike_counts_meet():
    texts = ["xyz" + "abc" * n + "uvw" for n in (12, 40, 3, 1, 0)]
    result = run(texts)
    check_loops(result)
    (loop,) = result.loops
    assert (loop.first, loop.last, loop.period) == (3, 123, 3)
    assert loop.iterations.tolist() == [12, 40, 3, 1, 0]
    assert result.rows.shape == (5, 126)
    assert text_of(result.symbols[2]) == "xyz" + "abc" * 3 + "-" * 111 + "uvw"


def test_a_loop_begins_as_most_of_its_runs_do():
    texts = ["x" + "abc" * 20 + "z", "x" + "abc" * 15 + "z", "xbc" + "abc" * 14 + "z"]
    result = run(texts)
    (loop,) = result.loops
    check_loops(result)
    assert loop.iterations.tolist() == [20, 15, 14]


def test_copies_and_empty_rows_have_their_counts():
    texts = ["x" + "ab" * 20 + "y", "", "x" + "ab" * 20 + "y", "xy"]
    result = run(texts)
    (loop,) = result.loops
    assert loop.iterations.tolist() == [20, 0, 20, 0]
    assert len(result.tree.split(":")) > 3


def test_copies_do_not_decide_how_a_loop_begins():
    texts = ["xa" + "bca" * 15 + "z", "x" + "abc" * 20 + "z", "x" + "abc" * 15 + "z"]
    first, second = run(texts), run([*texts, texts[0], texts[0]])
    assert first.rows.tolist() == second.rows[:3].tolist()


def test_short_loops_stay_as_they_are():
    texts = ["x" + "abc" * 8 + "z", "x" + "abc" * 3 + "z"]
    result = run(texts)
    (loop,) = result.loops
    assert loop.iterations.tolist() == [8, 3]
    assert result.rows.tolist() == run(texts, collapse=False).rows.tolist()
    assert run(["x" + "abc" * 3 + "z", "xz"]).loops == ()


@pytest.mark.parametrize("method", METHODS)
def test_what_breaks_a_loop_stands_in_it(method):
    """Not two loops of half the iterations: another state between two of them."""
    whole, broken = "x" + "ab" * 37 + "z", "x" + "ab" * 18 + "c" + "ab" * 19 + "z"
    result = run([whole, whole + "z", broken], method=method)
    (loop,) = result.loops
    assert loop.iterations.tolist() == [37, 37, 37]
    alone = (result.rows[:2] < 0).all(axis=0)
    assert text_of(result.symbols[2, alone]) == "c"
    assert text_of(result.symbols[2, alone | (result.rows[2] >= 0)]) == broken


def test_a_broken_loop_stays_as_it_is_unless_it_is_long():
    assert find_units([codes("abc" * 14 + "x" + "abc" * 14)]) == set()
    assert find_units([codes("abc" * 14 + "x" + "abc" * 1000)]) == {codes("abc").tobytes()}


def test_nested_loops_are_taken_as_the_larger_unit():
    assert find_units([codes("aaaab" * 13)]) == {codes("aaaab").tobytes()}
    assert find_units([codes("ababab" * 13)]) == {codes("ab").tobytes()}


def test_loops_of_thousands_of_iterations_cost_what_one_does(monkeypatch):
    """The claim of this module, by counting what is aligned."""
    from critpath.align import multiple  # noqa: PLC0415 - to patch what it calls

    seen = []
    original = multiple.align_distinct

    def watching(sequences, *rest, **options):
        seen.extend(len(s) for s in sequences)
        return original(sequences, *rest, **options)

    monkeypatch.setattr(multiple, "align_distinct", watching)
    result = run(["xyz" + "abcd" * n + "uvw" for n in (5000, 4000, 4500)])
    assert seen == [10]
    assert result.loops[0].iterations.tolist() == [5000, 4000, 4500]


def test_a_loop_torn_by_the_alignment_comes_back_whole(override):
    """Columns of a unit with others in between."""
    override("loops.least_iterations", 2)
    rows = [collapse(codes("abab"), {codes("ab").tobytes()}), collapse(codes("acb"), ())]
    aligned = np.array([[0, -1, 1], [0, 2, 1]], np.int8)
    positions = expand(aligned, rows, [0, 1])
    assert positions.tolist() == [[0, -1, 1, 2, 3], [0, 1, 2, -1, -1]]


@pytest.mark.parametrize("least", [1, 2])
def test_period_up_to_sixteen(least):
    unit = "abcdefghijklmnopq"[: 15 + least]
    units = find_units([codes(unit * 20)])
    assert units == ({codes(unit).tobytes()} if least == 1 else set())


@given(LOOPS.filter(bool), st.data())
def test_a_copy_changes_no_loop(sequences, data):
    which = data.draw(st.integers(0, len(sequences) - 1))
    more = [*sequences, sequences[which]]
    first = align(sequences, durations_of(sequences, range(len(sequences))), 3)
    second = align(more, durations_of(more, range(len(more))), 3)
    assert second.rows.tolist() == [*first.rows.tolist(), first.rows[which].tolist()]
    for loop, same in zip(first.loops, second.loops, strict=True):
        assert same.iterations.tolist() == [*loop.iterations.tolist(), loop.iterations[which]]


@given(LOOPS.filter(bool), st.permutations([0, 1, 2]))
def test_numbering_of_letters_does_not_decide_on_loops(sequences, order):
    """Save where letters occur alike, as for the alignment itself."""
    counts = [np.bincount(s, minlength=3) for s in sequences]
    if len({tuple(column) for column in np.transpose(counts)}) < 3:
        return
    other = [np.array(order, np.uint8)[s] for s in sequences]
    first = align(sequences, durations_of(sequences, range(len(sequences))), 3)
    second = align(other, durations_of(other, range(len(other))), 3)
    assert first.rows.tolist() == second.rows.tolist()
