"""Documents as JSON text, and back, trusting nothing in what is read."""

from __future__ import annotations

import json
from itertools import product
from typing import Any, Final, NoReturn

import msgspec

from critpath.documents import (
    TYPES,
    AbDocument,
    AlignedEntry,
    CalibrationDocument,
    ComparisonDocument,
    Document,
    Pictures,
)
from critpath.errors import UnreadableError
from critpath.report.document.path import escape_more
from critpath.report.document.pictures import describe_kinds
from critpath.report.palette import choose_letters
from critpath.untrusted import ROOM, TooLargeError, load_json

# No measurement comes near: sums and products of what is below stay finite.
_LARGEST: Final = 1e30
# What a renderer repeats a thousand times must not be large itself: a file of 1 MB would make a
# page of 300.  A thread's name has 15 letters in Linux, and no sentence of ours has 10,000.
_MOST_LETTERS: Final = 100_000
_MOST_OF_A_NAME: Final = 4_096
_NAMES: Final = frozenset({"comm", "role"})
# The guide tree names every row of an alignment, and no renderer shows it.
_UNLIMITED: Final = frozenset({"tree"})

# technical: bytes of memory for each of a file's, by the bound that `load_json` has: what
# `critpath compare` writes takes 7 to 11, the more the fewer of its executions were examined.
_OF_A_BYTE: Final = 12

_DO = "give a file that `critpath compare --json FILE` wrote"


class InvalidError(Exception):
    """A document contradicts itself; says where and what is wrong."""


def to_json(document: Document | dict[str, Any]) -> str:
    """Render a document as JSON: one line per key, and per item of a list.

    Parameters
    ----------
    document : Document or dict
        From `comparison_document`, `path_document` or `critpath.detect.calibrate`; or plain
        data of a format that is not read back.

    Returns
    -------
    str
        Strict JSON in ASCII, keys sorted, no control character but the newline:
        equal documents give equal bytes, and showing them moves no cursor.
    """
    keys = document if isinstance(document, dict) else msgspec.structs.asdict(document)
    lines = []
    for key in sorted(keys):
        value = keys[key]
        if isinstance(value, list) and value:
            items = ",\n  ".join(_compact(item) for item in value)
            lines.append(f" {_compact(key)}: [\n  {items}\n ]")
        else:
            lines.append(f" {_compact(key)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def to_plain(document: Any) -> Any:
    """Return a document, or a part of one, as the dicts and lists that its JSON has."""
    return msgspec.to_builtins(document, enc_hook=_unwrap)


def _compact(value: Any) -> str:
    # msgspec's own writer has other bytes: no spaces, no escapes, other digits of large numbers.
    text = json.dumps(to_plain(value), sort_keys=True, allow_nan=False, separators=(", ", ": "))
    return escape_more(text)


def _unwrap(value: Any) -> Any:
    """Return a scalar of numpy, which a stage may have left in its result, as Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def load_document(text: str | bytes) -> Document:
    """Read a document back, checked so that every renderer can rely on its shape.

    Parameters
    ----------
    text : str or bytes
        The JSON of a comparison, a calibration or one path.

    Returns
    -------
    Document
        Equal to the document that `to_json` was given.

    Raises
    ------
    UnreadableError
        If it is not JSON, not ours, of another version, or not of that shape.
    """
    try:
        content = text.encode() if isinstance(text, str) else text
        found = load_json(
            content,
            room=max(ROOM, _OF_A_BYTE * len(content)),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except TooLargeError as error:
        raise UnreadableError(
            f"a document that {error}",
            f"{_DO}; if it did, ask for fewer services (--execution 'requests:?' lists them)",
        ) from error
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"not JSON: {error}", _DO) from error
    name = found.get("format") if isinstance(found, dict) else None
    if not isinstance(name, str):
        raise UnreadableError("JSON without critpath's `format`", _DO)
    if name not in TYPES:
        _refuse_format(name)
    try:
        document = msgspec.convert(found, TYPES[name])
        _check_lengths(found)
        _check_consistency(document)
    except msgspec.ValidationError as error:
        wrong = str(error).replace("`$", "`document")
        raise UnreadableError(f"damaged {name} document: {wrong}", _DO) from error
    except InvalidError as error:
        raise UnreadableError(f"damaged {name} document: {error}", _DO) from error
    if isinstance(document, ComparisonDocument):
        # They follow from the symbols, and the first files of this version have none.
        document.symbols = choose_letters(document.symbols, document.aligned)
        if document.pictures is None:
            kinds = describe_kinds(document)
            document.pictures = Pictures(threads=[], doings=[], kinds=kinds, paths=[])
    return document


def _finite(text: str) -> float:
    value = float(text)
    if not abs(value) <= _LARGEST:
        raise ValueError(f"{text[:20]} is out of range")
    return value


def _bounded(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{text[:20]} is out of range")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _refuse_format(name: str) -> NoReturn:
    shown = name[:60]
    if name.startswith("critpath/baseline/"):
        raise UnreadableError(
            "a baseline, no comparison",
            "critpath baseline show FILE shows it; critpath compare FILE SAMPLE --json makes a "
            "comparison",
        )
    for known in TYPES:
        stem = known.rpartition("/")[0]
        if name.rpartition("/")[0] == stem:
            raise UnreadableError(
                f"format {shown!r}: this critpath reads {known!r}",
                "update critpath, or compare the recordings again with this version",
            )
    raise UnreadableError(f"format {shown!r} is not critpath's", _DO)


def _check_lengths(document: dict[str, Any]) -> None:
    """Raise `InvalidError` where a text is longer than any that critpath writes."""
    todo: list[tuple[str, Any]] = [("document", document)]
    while todo:
        key, value = todo.pop()
        if isinstance(value, str):
            most = _MOST_OF_A_NAME if key in _NAMES else _MOST_LETTERS
            fits = len(value) <= most or key in _UNLIMITED
            _expect(fits, key[:60], f"a text of at most {most:,} letters")
        elif isinstance(value, dict):
            todo += [("a key", name) for name in value]
            todo += value.items()
        elif isinstance(value, list):
            todo += [(key, item) for item in value if isinstance(item, str | dict | list)]


def _check_consistency(document: Document) -> None:
    """Raise `InvalidError` where parts of a document do not agree, which no type says."""
    if isinstance(document, ComparisonDocument):
        for which in ("normal", "sample"):
            found = document.clusters[which]
            known = all(0 <= i < len(found.reachability) for i in found.ordering)
            _expect(known, f"clusters.{which}.ordering", "places of reachability")
        for i, aligned in enumerate(document.aligned):
            _check_aligned(aligned, len(document.symbols), f"aligned[{i}]")
        _check_references(document)
        _check_pictures(document)
    elif isinstance(document, CalibrationDocument):
        _check_calibration(document)
    elif isinstance(document, AbDocument):
        _check_blocks(document)


def _check_references(document: ComparisonDocument) -> None:
    """Raise `InvalidError` where a finding or a cause refers to what is not there."""
    columns = {one.position: one.columns for one in document.aligned}
    for i, finding in enumerate(document.findings):
        first, last = finding.columns
        inside = 0 <= first < last <= columns.get(finding.position, last)
        _expect(inside, f"findings[{i}].columns", "columns of its alignment")
    count = len(document.findings)
    for i, cause in enumerate(document.causes):
        known = all(0 <= place < count for place in [cause.main, *cause.findings])
        _expect(known, f"causes[{i}].findings", "places in the list of findings")


def _check_pictures(document: ComparisonDocument) -> None:
    """Raise `InvalidError` where pictures refer to what is not there."""
    pictures = document.pictures
    if pictures is None:
        return
    threads, doings = len(pictures.threads), len(pictures.doings)
    for i, thread in enumerate(pictures.threads):
        _expect(0 <= thread.colour <= 6, f"pictures.threads[{i}].colour", "a number from 0 to 6")
    for i, kind in enumerate(pictures.kinds):
        place = f"pictures.kinds[{i}]"
        _expect(all(n >= 0 for n in kind.executions), f"{place}.executions", "numbers from 0")
        times = [*kind.mean, *kind.slowest, *kind.p50, *kind.p95, *kind.p99, *kind.usual]
        _expect(all(time is None or time >= 0 for time in times), place, "durations from 0")
        _expect(len(kind.medians) == 2, f"{place}.medians", "two places")
        for mean in kind.means:
            for one in mean.stretches:
                known = 0 <= one.thread < threads and one.time >= 0
                _expect(known, f"{place}.means", "threads that are listed, times from 0")
    for i, path in enumerate(pictures.paths):
        known = all(
            len(step) == 4 and step[1] >= 0 and 0 <= step[2] < threads and 0 <= step[3] < doings
            for step in path.steps
        )
        _expect(known, f"pictures.paths[{i}].steps", "begin, length, thread and doing")
    for i, node in enumerate(pictures.flame):
        place = f"pictures.flame[{i}]"
        above = -1 if i == 0 else 0
        _expect(above <= node.parent < max(i, 0), f"{place}.parent", "a node before it")
        _expect(-1 <= node.thread < threads, f"{place}.thread", "a thread that is listed")
        _expect(min(node.before, node.after) >= 0, place, "times from 0")
        _expect(len(node.executions) in {0, 2}, f"{place}.executions", "two numbers, or none")


def _check_aligned(aligned: AlignedEntry, symbols: int, place: str) -> None:
    columns, statistics = aligned.columns, aligned.statistics
    for row in aligned.rows:
        for name, values in (("symbols", row.symbols), ("durations", row.durations)):
            _expect(len(values) == columns, f"{place}.rows.{name}", f"{columns} columns")
        _expect(all(-1 <= s < symbols for s in row.symbols), f"{place}.rows", "known symbols")
        _expect(all(d >= 0 for d in row.durations), f"{place}.rows", "durations from 0")
    for name in statistics.__struct_fields__:
        sized = len(getattr(statistics, name)) == columns
        _expect(sized, f"{place}.statistics.{name}", f"a list of {columns}")
    known = all(-1 <= s < symbols for s in statistics.normal_symbol)
    _expect(known, f"{place}.statistics.normal_symbol", "known symbols")
    for segment in aligned.segments:
        _expect(0 <= segment.column < columns, f"{place}.segments", "a column of it")
    for name, times in (("mean", statistics.mean), ("std", statistics.std)):
        positive = all(value is None or value >= 0 for value in times)
        _expect(positive, f"{place}.statistics.{name}", "durations from 0")
    passed = 0
    for loop in aligned.loops:
        inside = passed <= loop.first < loop.last <= columns and loop.period > 0
        _expect(inside, f"{place}.loops", "blocks of columns from left to right")
        passed = loop.last
        counted = len(loop.iterations) == len(aligned.rows)
        within = all(0 <= n < 2**31 for n in loop.iterations)
        _expect(counted and within, f"{place}.loops.iterations", "a number per row")


def _check_blocks(document: AbDocument) -> None:
    """Raise `InvalidError` where blocks could not be judged again."""
    _expect(len(document.commands) == 2, "document.commands", "two commands")
    shares = [document.alpha, document.floor, *(1 - q for q in document.tails)]
    _expect(all(share > 0 for share in shares), "document", "shares above 0")
    _expect(all(q > 0 for q in document.tails), "document.tails", "quantiles")
    _expect(0 <= document.slot <= 10_000, "document.slot", "a number of runs")
    for i, block in enumerate(document.block_log):
        place = f"block_log[{i}]"
        sizes = [len(slot) for slot in block.times]
        _expect(len(sizes) == 4, f"{place}.times", "four slots")
        _expect([len(s) for s in block.run] == sizes, f"{place}.run", "as many times")
        whole = any(block.failed) or all(sizes)
        _expect(whole, f"{place}.times", "a run in every slot")
        _expect(len(block.failed) in {0, 4}, f"{place}.failed", "four numbers")
        labelled = not block.labels or [len(s) for s in block.labels] == sizes
        _expect(labelled, f"{place}.labels", "a label per run")
        positive = all(t >= 0 for slots in (block.times, block.run) for slot in slots for t in slot)
        _expect(positive, f"{place}.times", "times from 0")
        probed = all(len(times) == 4 and min(times) > 0 for times in block.probes.values())
        _expect(probed, f"{place}.probes", "four times")


def _check_calibration(document: CalibrationDocument) -> None:
    """Raise `InvalidError` where a table of a calibration would have holes."""
    _expect(bool(document.false_alarms), "document.false_alarms", "a row")
    floor = document.floor
    if floor.spread is not None:
        known = None not in {floor.spread_high, floor.expected}
        _expect(known, "document.floor", "figures beside its spread")
    rows = {(row.kind, row.state, row.sample): row for row in document.detectable}
    states = {row.state for row in document.detectable if row.kind == "state"}
    kinds = [("total", ""), ("rare", ""), ("new", ""), *product(["state"], sorted(states))]
    for (kind, state), size in product(kinds, sorted({size for _, _, size in rows})):
        found = (kind, state, size) in rows
        _expect(found, "document.detectable", f"{kind} {state} at {size}")
    for row in rows.values():
        given = row.shift is None or row.of_total is not None
        _expect(given, "document.detectable", "shares of the shifts")


def _expect(holds: bool, place: str, wanted: str) -> None:
    if not holds:
        raise InvalidError(f"{place} lacks or is not {wanted}")
