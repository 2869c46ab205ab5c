"""Texts in few bytes are read as a tuple of them is."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest

from critpath.model.texts import Texts, join_texts, number_texts


def _draw(kind: str, rows: int) -> list[str]:
    rng = random.Random(f"{kind} {rows}")  # noqa: S311 - a test
    if kind == "few":
        return [rng.choice(["", "app", "Straße", "\udcff"]) for _ in range(rows)]
    letters = "ab9@" if kind == "ascii" else "aé€\U0001f600\udcff"
    return [f"{''.join(rng.choices(letters, k=rng.randrange(9)))}{row}" for row in range(rows)]


@pytest.mark.parametrize("rows", [0, 1, 5, 17_000])
@pytest.mark.parametrize("kind", ["few", "ascii", "letters"])
def test_a_column_is_read_as_a_tuple(kind, rows):
    texts = _draw(kind, rows)
    of, rng = Texts.of(texts), np.random.default_rng(rows)
    assert (len(of), [*of], of) == (rows, texts, tuple(texts))
    assert pickle.loads(pickle.dumps(of)) == texts  # noqa: S301 - as other processes get it
    some, chosen = rng.integers(0, max(rows, 1), rows // 2), rng.random(rows) < 0.5
    assert [*of[some]] == [texts[row] for row in some.tolist()]
    assert [*of[chosen]] == [text for text, is_ in zip(texts, chosen, strict=True) if is_]
    for part in (slice(2, rows // 2), slice(None, None, 2), slice(5, 2), slice(-3, None)):
        assert [*of[part]] == texts[part]
        assert [*of[part][1:]] == texts[part][1:]
    assert np.array(of, object).tolist() == texts
    assert [of[row] for row in (0, rows // 2, -1) if rows] == [
        texts[row] for row in (0, rows // 2, -1) if rows
    ]
    codes, words = number_texts(of)
    assert words == [*dict.fromkeys(texts)]
    assert [words[code] for code in codes.tolist()] == texts


@pytest.mark.parametrize("kinds", [("few", "few"), ("few", "ascii"), ("letters", "ascii"), ()])
def test_columns_are_joined(kinds):
    parts = [_draw(kind, 300 + number) for number, kind in enumerate(kinds)]
    whole = [text for part in parts for text in part]
    assert Texts.join([Texts.of(part) for part in parts]) == whole
    assert join_texts([*map(tuple, parts)]) == tuple(whole)
    if parts:
        assert join_texts([Texts.of(parts[0])[7:], *parts[1:]]) == whole[7:]


@pytest.mark.parametrize("rows", [0, 1, 400])
def test_codes_are_spelled(rows):
    codes = np.random.default_rng(rows).integers(0, 5, rows)
    words = ["", "app", "Straße", "\udcff", "b", "never"]
    assert Texts.spell(codes, words) == [words[code] for code in codes.tolist()]
    assert "never" not in Texts.spell(codes, words).words


def test_letters_are_counted():
    for kind in ("few", "ascii", "letters"):
        texts = dict.fromkeys(_draw(kind, 100))
        assert Texts.of([*texts]).count_letters().tolist() == [*map(len, texts)]


def test_a_column_takes_few_bytes():
    rows = 10_000
    ids = Texts.of([f"1200@{17_000_000_000_000 + row}" for row in range(rows)])
    assert ids.nbytes <= (19 + 4) * (rows + 1)
    assert Texts.of(["app", "other"] * (rows // 2)).nbytes <= rows + 100
    assert Texts.of(["app"] * rows).nbytes <= rows + 100


def test_what_differs_differs():
    assert Texts.of(["a", "b"]) != ("a", "c")
    assert Texts.of(["a"]) != ("a", "a")
    assert Texts.of(["a"]) != "a"
    with pytest.raises(IndexError):
        Texts.of(["a"])[1]
