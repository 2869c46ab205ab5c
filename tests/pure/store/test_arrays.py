"""Columns to Arrow and back: the same as pyarrow's own converters make of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from critpath.model.texts import Texts
from critpath.store.columns import numbers, of_numbers, of_texts

KINDS = [np.bool_, np.uint8, np.int32, np.int64]


@given(st.sampled_from(KINDS).flatmap(lambda kind: hnp.arrays(kind, st.integers(0, 70))))
def test_numbers_are_what_pyarrow_makes_of_them(values):
    array = of_numbers(values, pa.from_numpy_dtype(values.dtype))
    array.validate(full=True)
    assert array.equals(pa.array(values))
    assert numbers(array).tolist() == values.tolist()


def test_numbers_take_their_type_or_are_refused():
    assert of_numbers(np.array([1, 2]), pa.int32()).type == pa.int32()
    with pytest.raises(pa.ArrowInvalid):
        of_numbers(np.array([1 << 40]), pa.int32())
    assert of_numbers(np.arange(10)[::2], pa.int64()).to_pylist() == [0, 2, 4, 6, 8]


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=20),
    st.integers(0, 5),
)
def test_texts_are_what_pyarrow_makes_of_them(texts, first):
    column, alike = Texts.of(texts), Texts.of(texts[:1] * 8)
    coded = Texts.spell(np.arange(len(texts)) // 2, texts)
    for given_ in (texts, column, column[first:], coded, coded[first:], alike, alike[first:]):
        array = of_texts(given_)
        array.validate(full=True)
        assert array.equals(pa.array([*given_], pa.string()))


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_parts_of_arrays_are_read_as_such(values, begin, length):
    for array in (pa.array(values, pa.bool_()), pa.array(list(map(int, values)), pa.int64())):
        part = array.slice(min(begin, len(values)), length)
        assert numbers(part).tolist() == part.to_pylist()
        several = pa.chunked_array([part, array, part])
        assert numbers(several).tolist() == several.to_pylist()
    assert numbers(pa.chunked_array([], pa.int32())).tolist() == []


def test_missing_values_do_not_pass_for_numbers():
    assert numbers(pa.array([1, None], pa.int64())).dtype != np.int64
    assert numbers(pa.array([True, None])).dtype != np.bool_
