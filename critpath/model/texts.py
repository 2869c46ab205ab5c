"""A column of texts in few bytes: Python's own of a short one, and its place, take sixty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, Self, overload

import numpy as np

if TYPE_CHECKING:
    from critpath.model.table import I64, U8, Bool

# technical: rows that are decoded, or gathered, at a time
_BLOCK: Final = 1 << 14
# technical: rows a text on average, from which on rows have the number of their text
_ROWS_OF_A_TEXT: Final = 4


class Texts(Sequence[str]):
    """Texts, one behind the other, made when they are asked for; read as a tuple of them is.

    Parameters
    ----------
    data : uint8 array
        The texts in UTF-8; surrogates, of names that are none, as Python passes them.
    start : uint32 or int64 [texts + 1]
        Where in it each text begins, and where the last ends.
    codes : array of unsigned integers [rows], optional
        Which text each row has; without, each has its own.
    """

    __slots__ = ("_words", "codes", "data", "start")

    def __init__(self, data: U8, start: Any, codes: Any = None) -> None:
        self.data, self.start, self.codes = data, start, codes
        self._words: tuple[str, ...] | None = None

    @classmethod
    def of(cls, texts: Sequence[str]) -> Texts:
        """Return texts as a column; equal ones once, where many are."""
        if isinstance(texts, Texts):
            return texts
        words = dict.fromkeys(texts)
        if len(words) * _ROWS_OF_A_TEXT > len(texts):
            return cls(*pack_texts(texts))
        numbers = {word: number for number, word in enumerate(words)}
        codes = np.fromiter(map(numbers.__getitem__, texts), np.int64, len(texts))
        return cls(*pack_texts([*words]), _narrow(codes, len(words)))

    @classmethod
    def spell(cls, codes: Any, words: Sequence[str]) -> Texts:
        """Return what codes stand for; words that no row has are not kept."""
        used = np.zeros(len(words), np.bool_)
        used[codes] = True
        number = (np.cumsum(used) - 1)[codes]
        named = [words[code] for code in np.flatnonzero(used).tolist()]
        return cls(*pack_texts(named), _narrow(number, len(named)))

    @classmethod
    def join(cls, parts: Sequence[Sequence[str]]) -> Texts:
        """Return the texts of some columns, one column behind the other."""
        columns = [cls.of(part) for part in parts if len(part)]
        if len(columns) == 1:
            return columns[0]
        own = sum(len(each) for each in columns if each.codes is None)
        if columns and own * _ROWS_OF_A_TEXT <= sum(map(len, columns)):
            numbers: dict[str, int] = {}
            codes = [
                np.array([numbers.setdefault(w, len(numbers)) for w in each.words], np.uint32)[
                    slice(None) if each.codes is None else each.codes
                ]
                for each in columns
            ]
            return cls(*pack_texts([*numbers]), _narrow(np.concatenate(codes), len(numbers)))
        plain = [e if e.codes is None else cls(*_gather(e, e.codes)) for e in columns]
        data = [each.data[int(each.start[0]) : int(each.start[-1])] for each in plain]
        lengths = [np.diff(each.start) for each in plain]
        none = np.zeros(0, np.uint8)
        start = _sum_up(np.concatenate([none.astype(np.uint32), *lengths]))
        return cls(np.concatenate([none, *data]), start)

    @property
    def words(self) -> tuple[str, ...]:
        """The texts that rows have the numbers of; more than are used, where rows were taken."""
        if self._words is None:
            self._words = tuple(self._decode(0, len(self.start) - 1))
        return self._words

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        codes = 0 if self.codes is None else self.codes.nbytes
        return int(self.data.nbytes + self.start.nbytes + codes)

    def gather(self) -> tuple[U8, Any]:
        """Return the bytes of all rows, and where each begins."""
        first, last = int(self.start[0]), int(self.start[-1])
        if self.codes is None:
            return self.data[first:last], self.start - self.start[0]
        if len(self.start) == 2:  # all rows have one
            return np.tile(self.data[first:last], len(self)), np.arange(len(self) + 1) * (
                last - first
            )
        return _gather(self, self.codes)

    def in_few_bytes(self) -> Texts:
        """Return the column with equal texts once where many are, else with one for each row."""
        if self.codes is None:
            return self
        texts = len(self.start) - 1
        if texts * _ROWS_OF_A_TEXT <= len(self.codes):
            return Texts(self.data, self.start, _narrow(self.codes, texts))
        if len(self.codes) == texts and (self.codes == np.arange(texts)).all():
            return Texts(self.data, self.start)
        return Texts(*_gather(self, self.codes))

    def count_letters(self) -> I64:
        """Return how many letters each text has, whichever rows have it."""
        first = (self.data & 0xC0) != 0x80  # the other bytes of a letter begin with 10
        if first.all():
            letters: I64 = np.diff(self.start).astype(np.int64)
        else:
            letters = np.diff(np.concatenate([[0], np.cumsum(first)])[self.start])
        return letters

    def __len__(self) -> int:
        return len(self.start) - 1 if self.codes is None else len(self.codes)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice | I64 | Bool) -> Self: ...
    def __getitem__(self, at: int | slice | I64 | Bool) -> str | Self:
        kind = type(self)
        if isinstance(at, slice | np.ndarray):
            if self.codes is not None:
                return kind(self.data, self.start, self.codes[at])
            if isinstance(at, slice) and (at.step or 1) == 1:
                first, last, _ = at.indices(len(self))
                return kind(self.data, self.start[first : max(first, last) + 1])
            return kind(*_gather(self, _places(at, len(self))))
        row = range(len(self))[at]
        if self.codes is not None:
            return self.words[int(self.codes[row])]
        first, last = int(self.start[row]), int(self.start[row + 1])
        return self.data[first:last].tobytes().decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _BLOCK):
            if self.codes is None:
                yield from self._decode(first, min(first + _BLOCK, len(self)))
            else:
                yield from map(self.words.__getitem__, self.codes[first : first + _BLOCK].tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as equal to lists, too

    def __repr__(self) -> str:
        return f"<Texts of {len(self):,}>"

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Return the texts as numpy has them."""
        if self.codes is not None and dtype == np.dtype(object):
            return np.array(self.words, object)[self.codes]
        return np.array([*self], dtype)

    def _decode(self, first: int, last: int) -> list[str]:
        """Return some of the texts themselves."""
        bounds = self.start[first : last + 1].astype(np.int64)
        bounds -= (begin := int(bounds[0]))
        whole = self.data[begin : begin + int(bounds[-1])].tobytes()
        at = bounds.tolist()
        if whole.isascii():  # most are: a letter is a byte
            text = whole.decode("ascii")
            return [text[a:b] for a, b in pairwise(at)]
        return [whole[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(at)]


def join_texts(parts: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the texts of some columns, one behind the other; in few bytes where some are."""
    if any(isinstance(part, Texts) for part in parts):
        return Texts.join(parts)
    return tuple(chain.from_iterable(parts))


def number_texts(texts: Sequence[str]) -> tuple[I64, list[str]]:
    """Return which of the distinct texts each row has, and these, in the order they come in."""
    if isinstance(texts, Texts) and texts.codes is not None:
        found, first = np.unique(texts.codes, return_index=True)
        order = found[np.argsort(first)]
        numbers = np.zeros(len(texts.words), np.int64)
        numbers[order] = np.arange(len(order))
        return numbers[texts.codes], [texts.words[code] for code in order.tolist()]
    known: dict[str, int] = {}
    codes = [known.setdefault(text, len(known)) for text in texts]
    return np.array(codes, np.int64), [*known]


def _places(at: slice | I64 | Bool, rows: int) -> Any:
    """Return which rows are chosen; of some of very many nothing is made of all."""
    if isinstance(at, slice) or at.dtype.kind == "b":
        return np.arange(rows)[at]
    return np.where(at < 0, at + rows, at)


def _gather(texts: Texts, which: Any) -> tuple[U8, Any]:
    """Return the bytes of some of a column's texts, and where each begins."""
    begin = texts.start[which].astype(np.int64)
    lengths = texts.start[1:][which] - begin
    start = _sum_up(lengths)
    data = np.empty(int(start[-1]), np.uint8)
    for first in range(0, len(which), _BLOCK):
        some = which[first : first + _BLOCK]
        rows = slice(first, first + len(some))
        bounds = start[first : first + len(some) + 1].astype(np.int64)
        moved = np.repeat(begin[rows] - bounds[:-1], lengths[rows])
        data[bounds[0] : bounds[-1]] = texts.data[np.arange(bounds[0], bounds[-1]) + moved]
    return data, start


def pack_texts(texts: Sequence[str]) -> tuple[U8, Any]:
    """Return the bytes of texts, and where each begins."""
    joined = "".join(texts)
    if joined.isascii():
        data, lengths = joined.encode("ascii"), map(len, texts)
    else:
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        data, lengths = b"".join(encoded), map(len, encoded)
    start = _sum_up(np.fromiter(lengths, np.uint32, len(texts)))
    return np.frombuffer(data, np.uint8), start


def _sum_up(lengths: Any) -> Any:
    """Return where texts of some lengths begin, one behind the other, in narrow numbers."""
    start = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=start[1:])
    return start.astype(np.uint32) if start[-1] < 1 << 32 else start


def _narrow(codes: Any, texts: int) -> Any:
    """Return numbers of texts in few bytes."""
    fits = next(kind for kind in (np.uint8, np.uint16, np.uint32) if texts <= np.iinfo(kind).max)
    return codes.astype(fits)
