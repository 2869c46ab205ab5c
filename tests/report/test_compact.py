"""Packed columns read back as the page's script reads them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.report.html.page_data import (
    ALPHABET,
    FINE,
    ROUGH,
    encode_runs,
    pack_durations,
    pack_shares,
    pack_symbols,
)

BASE = len(ALPHABET)


def levels(text, width):
    values = [ALPHABET.index(letter) for letter in text]
    groups = [values[i : i + width] for i in range(0, len(values), width)]
    return [sum(v * BASE ** (width - 1 - k) for k, v in enumerate(group)) for group in groups]


def duration(level, bits):
    if not level:
        return None
    exponent = max(0, ((level - 1) >> bits) - 1)
    mantissa = level - 1 - (exponent << bits)
    return (mantissa + (0.5 if exponent else 0)) * 2**exponent


@pytest.mark.parametrize(("form", "within"), [(ROUGH, 0.004), (FINE, 0.0001)])
@given(values=st.lists(st.none() | st.integers(0, 2**62), max_size=20))
def test_durations_are_as_near_as_is_said(form, within, values):
    width, bits = form
    found = [duration(level, bits) for level in levels(pack_durations(values, form), width)]
    assert len(found) == len(values)
    for value, read in zip(values, found, strict=True):
        if value is None or value < 2**bits:
            assert read == value
        else:
            assert abs(read - value) <= within * value


@given(values=st.lists(st.none() | st.floats(0, 1), max_size=20))
def test_shares_are_within_a_ten_thousandth(values):
    found = levels(pack_shares(values), 2)
    for value, level in zip(values, found, strict=True):
        assert (level == 0) == (value is None)
        if value is not None:
            assert abs((level - 1) / 7000 - value) < 0.0001


def test_symbols_have_one_character_each_that_nothing_escapes():
    codes = [-1, *range(300)]
    text = pack_symbols(codes)
    assert len(text) == len(set(text)) == len(codes)
    assert not set(text) & set("\"\\<>&'")
    assert text[0] == "."


@given(st.lists(st.integers(-1, 3)))
def test_runs_say_the_same(values):
    flat = encode_runs(values)
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    assert [value for value, times in pairs for _ in range(times)] == values
    assert all(a != b for (a, _), (b, _) in pairwise(pairs))
