"""Reads ``counts.jsonl``, which may be hostile: how often what happened, per interval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from critpath.errors import UnreadableError
from critpath.model.signatures import (
    COUNTS_FORMAT,
    LONGEST_TERM,
    MOST_COUNT,
    MOST_SCOPES,
    Counts,
)
from critpath.untrusted import load_json

MOST_NAMES: Final = 65_536  # terms; kernel functions are many
MOST_INTERVALS: Final = 1_000_000  # of all scopes together
MOST_ROWS: Final = 50_000_000
_LONGEST: Final = 4 << 20  # bytes of a line
_LATEST: Final = 1 << 62
_SOURCES: Final = ("bpf", "perf", "free")
_DO: Final = "take the file as it was recorded, or record again"


class _WrongError(ValueError):
    """A malformed line."""


def read_counts(file: Path) -> tuple[Counts, tuple[str, ...]]:
    """Return the counts of a file, with notes for the user.

    Parameters
    ----------
    file : Path
        ``counts.jsonl`` of a recording.

    Returns
    -------
    counts : Counts
        Every interval once per scope.  Intervals that contradict others (they overlap, lie
        before their predecessor, count something twice) are lossy.
    notes : tuple of str
        One line each: what contradicts what.

    Raises
    ------
    UnreadableError
        If it is missing or malformed: what is wrong, and in which line.  A last line that was
        cut off by a kill is the end.
    """
    if file.is_symlink():
        raise UnreadableError(f"{file}: counts are no link", _DO)
    try:
        with file.open("rb") as stream:
            return _read(stream, file)
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror or error}", _DO) from error


def parse_counts(header: dict[str, Any], lines: Iterable[dict[str, Any]]) -> Counts:
    """Return the counts of lines that this process counted itself."""
    found = _Found()
    found.begin_file(header)
    for number, line in enumerate(lines, 2):
        found.add(line, number)
    return found.counts()


def _read(stream: IO[bytes], file: Path) -> tuple[Counts, tuple[str, ...]]:
    found = _Found()
    for number, line in enumerate(_lines(stream, file), 1):
        try:
            one = load_json(line)
            if not isinstance(one, dict):
                raise _WrongError("no JSON object")
            if number == 1:
                found.begin_file(one)
            else:
                found.add(one, number)
        except (ValueError, RecursionError) as error:
            why = error if isinstance(error, _WrongError) else "no JSON object"
            raise UnreadableError(f"{file}: line {number}: {why}", _DO) from error
    if not found.scopes:
        raise UnreadableError(f"{file}: has no first line that names its terms", _DO)
    return found.counts(), tuple(f"{file}: {note}" for note in found.notes)


def _lines(stream: IO[bytes], file: Path) -> Iterator[bytes]:
    """Yield the whole lines: one that is cut off is the last, and none."""
    while line := stream.readline(_LONGEST + 1):
        if len(line) > _LONGEST:
            raise UnreadableError(f"{file}: a line has more than {_LONGEST:,} bytes", _DO)
        if line.endswith(b"\n"):
            yield line


@dataclass
class _Found:
    """What was read so far."""

    terms: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    interval: int = 0
    source: str = ""
    begin: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    lossy: list[bool] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    rows: int = 0
    notes: list[str] = field(default_factory=list)

    def begin_file(self, one: dict[str, Any]) -> None:
        if one.get("format") != COUNTS_FORMAT:
            raise _WrongError(
                f"its format is {one.get('format')!r:.60}, this critpath reads {COUNTS_FORMAT!r}"
            )
        self.terms = _names(one, "terms", MOST_NAMES)
        self.scopes = _names(one, "scopes", MOST_SCOPES)
        if not self.scopes:
            raise _WrongError("'scopes' is empty")
        interval, source = one.get("interval", 0), one.get("how", "")
        if type(interval) is not int or not 0 <= interval < _LATEST:
            raise _WrongError("'interval' is no time")
        if source not in _SOURCES:
            raise _WrongError("'how' is none that this critpath knows")
        self.interval, self.source = interval, source

    def add(self, one: dict[str, Any], number: int) -> None:
        begin, end, loss = _time(one, "begin"), _time(one, "end"), one.get("loss")
        if type(loss) is not int or not 0 <= loss <= MOST_COUNT:
            raise _WrongError("'loss' is no count")
        parts = one.get("counts")
        if not isinstance(parts, list) or len(parts) != len(self.scopes):
            raise _WrongError("'counts' is not a list for each scope")
        wrong = []
        if end <= begin:
            wrong.append(f"ends before it begins ({begin} to {end})")
        if self.begin and begin < self.end[-1]:
            how = "overlaps its predecessor" if end > self.begin[-1] else "lies before it"
            wrong.append(f"{how} ({begin}, {self.end[-1]})")
        for part in parts:
            pairs, twice = _pairs(part, len(self.terms))
            if twice:
                wrong.append(f"counts {self.terms[twice[0]]!r} twice")
            self.parts.append(pairs)
            self.sizes.append(len(pairs))
            self.rows += len(pairs)
        self.begin.append(begin)
        self.end.append(end)
        self.lossy.append(bool(loss or wrong))
        self.notes += [f"line {number}: the interval {what}" for what in wrong]
        if len(self.sizes) > MOST_INTERVALS or self.rows > MOST_ROWS:
            raise _WrongError(
                f"more than {MOST_INTERVALS:,} intervals or {MOST_ROWS:,} counts before it"
            )

    def counts(self) -> Counts:
        scopes, documents = len(self.scopes), len(self.sizes)
        rows = np.concatenate([np.zeros((0, 2), np.int64), *self.parts])
        # The vocabulary is sorted, whatever the file's order.
        order = sorted(range(len(self.terms)), key=self.terms.__getitem__)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        document = np.repeat(np.arange(documents, dtype=np.int32), self.sizes)
        term = place[rows[:, 0]] if len(rows) else np.zeros(0, np.int32)
        sort = np.lexsort((term, document))
        return Counts(
            tuple(self.terms[at] for at in order),
            self.scopes,
            np.repeat(np.array(self.begin, np.int64), scopes),
            np.repeat(np.array(self.end, np.int64), scopes),
            np.tile(np.arange(scopes, dtype=np.int32), len(self.begin)),
            np.repeat(np.array(self.lossy, np.bool_), scopes),
            *(document[sort], term[sort], rows[sort, 1], self.interval, self.source),
        )


def _time(one: dict[str, Any], key: str) -> int:
    time = one.get(key)
    if type(time) is not int or not -_LATEST < time < _LATEST:
        raise _WrongError(f"{key!r} is no time")
    return time


def _names(one: dict[str, Any], key: str, most: int) -> tuple[str, ...]:
    names = one.get(key)
    if not isinstance(names, list) or len(names) > most:
        raise _WrongError(f"{key!r} is not a list of at most {most:,}")
    if not all(isinstance(name, str) and 0 < len(name) <= LONGEST_TERM for name in names):
        raise _WrongError(f"{key!r} has what is no name of at most {LONGEST_TERM} letters")
    if len({*names}) < len(names):
        raise _WrongError(f"{key!r} has a name twice")
    return tuple(names)


def _pairs(part: Any, terms: int) -> tuple[Any, list[int]]:
    """Return an interval's (term, count), each term once, and the terms that stood twice."""
    if not isinstance(part, list):
        raise _WrongError("'counts' is not a list for each scope")
    seen: dict[int, int] = {}
    twice = []
    for pair in part:
        if not isinstance(pair, list) or len(pair) != 2 or any(type(v) is not int for v in pair):
            raise _WrongError("'counts' has what is no pair of a term and a count")
        term, count = pair
        if not 0 <= term < terms or not 0 <= count <= MOST_COUNT:
            raise _WrongError("'counts' has a term that is none, or a count below 0 or too large")
        if term in seen:
            twice.append(term)
        elif count:
            seen[term] = count
    return np.array(list(seen.items()), np.int64).reshape(-1, 2), twice
