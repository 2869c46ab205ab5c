"""Reads ``gaps.jsonl``, which may be hostile: when a recording was not recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from critpath.errors import UnreadableError
from critpath.model.gaps import BASE, LAYERS, REASONS, Gaps, join_gaps, make_gaps
from critpath.units import safe_text, shorten
from critpath.untrusted import load_json, open_regular

if TYPE_CHECKING:
    from critpath.model import Manifest
    from critpath.model.clocks import HostClock

MOST_GAPS: Final = 10_000_000
_LONGEST: Final = 1_000  # bytes of a line
_BATCH: Final = 10_000  # lines that are read at a time
_SELECTED: Final = "selected.jsonl"
_LATEST: Final = 1 << 62
_TIMES: Final = ("begin", "closed", "opening", "end")
_DO: Final = "take the file as it was recorded, or record again: without it gaps look like sleep"
_LAYER_CODES: Final = {name: code for code, name in enumerate(LAYERS)}
_REASON_CODES: Final = {name: code for code, name in enumerate(REASONS)}
_OTHER: Final = _REASON_CODES["other"]


class _WrongError(ValueError):
    """A malformed line."""


def read_gaps(recording: Path, manifest: Manifest) -> Gaps:
    """Return when a recording of one host was not recorded, by its manifest.

    Parameters
    ----------
    recording : Path
    manifest : Manifest

    Returns
    -------
    Gaps
        Of host 0: those of ``gaps.jsonl``, and those that the recorder noticed and did not make.

    Raises
    ------
    UnreadableError
        If the file is missing or malformed: what is wrong, and in which line.
    """
    noticed = [
        (gap.begin, end, end, end, BASE, _OTHER, 0)
        for gap in manifest.gaps
        for end in [max(gap.begin, gap.end)]
        if end > gap.begin
    ]
    found = [make_gaps(noticed)] if noticed else []
    if manifest.gaps_file:
        found.append(_read_file(recording, manifest))
    return join_gaps(found) if found else Gaps()


def check_selected(recording: Path, manifest: Manifest) -> Iterator[str]:
    """Yield what is wrong with the list of what a budget chose, ``selected.jsonl``, a line each."""
    file, counted = recording / _SELECTED, manifest.overhead.get("executions")
    rows: Counter[str] = Counter()
    try:
        with open_regular(file) as stream:
            for number, line in enumerate(chain.from_iterable(_batches(stream, file)), 1):
                try:
                    rows[_chosen_kind(load_json(line))] += 1
                except (ValueError, RecursionError) as error:
                    why = error if isinstance(error, _WrongError) else "no JSON object"
                    yield f"{_SELECTED}: line {number}: {why}"
                    return
    except FileNotFoundError:
        pass  # where nothing was chosen there is none
    except OSError as error:
        yield f"{_SELECTED} cannot be read: {error.strerror}"
        return
    for kind, of in counted.items() if isinstance(counted, dict) else ():
        selected = of.get("selected") if isinstance(of, dict) else None
        if isinstance(selected, int) and selected != rows[kind]:
            name = shorten(safe_text(kind))
            yield f"{_SELECTED} has {rows[kind]:,} runs of {name}: {selected:,} were chosen"


def _chosen_kind(one: Any) -> str:
    if not isinstance(one, dict) or not isinstance(one.get("kind"), str):
        raise _WrongError("no run with its kind")
    chance = one.get("chance")
    if not isinstance(chance, int | float) or isinstance(chance, bool) or not 0 < chance <= 1:
        raise _WrongError("'chance' is none")
    begin, tid = one.get("begin"), one.get("tid")
    if type(begin) is not int or not -_LATEST < begin < _LATEST or type(tid) is not int:
        raise _WrongError("'begin' or 'tid' is no number")
    return str(one["kind"])


def move_gaps(gaps: Gaps, host: int, clock: HostClock | None) -> Gaps:
    """Return the gaps of a host in the time of the clock that all hosts' times are of."""
    times = {name: getattr(gaps, name) for name in _TIMES}
    if clock is not None:
        times = {name: clock.move(time) for name, time in times.items()}
    return replace(gaps, **times, host=np.full(len(gaps), host, np.int64))


def _read_file(recording: Path, manifest: Manifest) -> Gaps:
    file = recording / manifest.gaps_file
    if file.parent != recording or file.is_symlink():
        raise UnreadableError(f"{recording}: its list of gaps is not beside its manifest", _DO)
    rows: list[I64Rows] = []
    line = 0
    try:
        with file.open("rb") as stream:
            for batch in _batches(stream, file):
                rows.append(_check(_parse(batch, file, line), manifest, file, line))
                line += len(batch)
                if line > MOST_GAPS:
                    raise UnreadableError(f"{file}: has more than {MOST_GAPS:,} gaps", _DO)
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror or error}", _DO) from error
    table = np.concatenate([np.zeros((0, 7), np.int64), *rows])
    _check_order(table, file)
    return make_gaps(table[np.lexsort((table[:, 4], table[:, 0]))])  # type: ignore[arg-type]


I64Rows = Any  # int64 [lines, 7]


def _batches(stream: IO[bytes], file: Path) -> Iterator[list[bytes]]:
    """Yield the whole lines, some at a time: one that is cut off is the last, and none."""
    while True:
        batch = list(islice(iter(lambda: stream.readline(_LONGEST + 1), b""), _BATCH))
        if not batch:
            return
        whole = [line for line in batch if line.endswith(b"\n")]
        if any(len(line) > _LONGEST for line in batch):
            raise UnreadableError(f"{file}: a line has more than {_LONGEST:,} bytes", _DO)
        if whole:
            yield whole


def _parse(batch: list[bytes], file: Path, before: int) -> I64Rows:
    try:
        return _rows(load_json(b"[" + b",".join(batch) + b"]"), len(batch))
    except (ValueError, RecursionError):
        pass  # one of them is wrong: which
    rows = []
    for number, line in enumerate(batch, before + 1):
        try:
            rows.append(_rows([load_json(line)], 1))
        except (ValueError, RecursionError) as error:
            why = error if isinstance(error, _WrongError) else "no JSON object"
            raise UnreadableError(f"{file}: line {number}: {why}", _DO) from error
    return np.concatenate(rows)


def _rows(found: list[Any], count: int) -> I64Rows:
    if len(found) != count:
        raise _WrongError("no JSON object")
    return np.array([_row(one) for one in found], np.int64).reshape(-1, 7)


def _row(one: Any) -> tuple[int, ...]:
    if not isinstance(one, dict):
        raise _WrongError("no JSON object")
    times = []
    for name in _TIMES:
        time = one.get(name)
        if type(time) is not int or not -_LATEST < time < _LATEST:
            raise _WrongError(f"{name!r} is no time")
        times.append(time)
    layer, why = one.get("layer"), one.get("why")
    if not isinstance(layer, str) or layer not in _LAYER_CODES:
        raise _WrongError("'layer' is none that this critpath knows")
    if not isinstance(why, str) or why not in _REASON_CODES:
        raise _WrongError("'why' is none that this critpath knows")
    return (*times, _LAYER_CODES[layer], _REASON_CODES[why], 0)


def _check(rows: I64Rows, manifest: Manifest, file: Path, before: int) -> I64Rows:
    """Refuse gaps that end before they begin, and those outside the recording."""
    times = rows[:, :4]
    low, high = manifest.begin, manifest.end or _LATEST
    wrong = {
        "the gap ends before it begins": (np.diff(times, axis=1) < 0).any(axis=1),
        "the gap lies outside the recording": (times[:, 0] < low) | (times[:, 3] > high),
    }
    for what, where in wrong.items():
        if where.any():
            at = int(where.argmax())
            begin, end = times[at, 0], times[at, 3]
            raise UnreadableError(f"{file}: line {before + at + 1}: {what} ({begin} to {end})", _DO)
    return rows


def _check_order(table: I64Rows, file: Path) -> None:
    """Refuse gaps of one layer that are out of order, or overlap."""
    for layer in np.unique(table[:, 4]).tolist():
        lines = np.flatnonzero(table[:, 4] == layer)
        begin, end = table[lines, 0], table[lines, 3]
        wrong = np.flatnonzero(begin[1:] < end[:-1])
        if len(wrong):
            at = int(wrong[0]) + 1
            how = "is out of order" if begin[at] < begin[at - 1] else "overlaps the one before it"
            what = f"the gap of {LAYERS[layer]} {how} ({begin[at]} to {end[at]})"
            raise UnreadableError(f"{file}: line {int(lines[at]) + 1}: {what}", _DO)
