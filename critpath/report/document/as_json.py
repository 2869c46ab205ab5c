"""Documents as JSON text, and back, trusting nothing in what is read."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from critpath.errors import UnreadableError
from critpath.report.document.comparison import COMPARISON_FORMAT
from critpath.report.document.path import escape_more
from critpath.report.document.schema import SHAPES, check_document
from critpath.report.document.shapes import Invalid, expect
from critpath.report.palette import with_letters
from critpath.untrusted import TooLargeError, load_json

# No measurement comes near: sums and products of what is below stay finite.
_LARGEST: Final = 1e30
# What a renderer repeats a thousand times must not be large itself: a file of 1 MB would make a
# page of 300.  A thread's name has 15 letters in Linux, and no sentence of ours has 10,000.
_MOST_LETTERS: Final = 100_000
_MOST_OF_A_NAME: Final = 4_096
_NAMES: Final = frozenset({"comm", "role"})
# The guide tree names every row of an alignment, and no renderer shows it.
_UNLIMITED: Final = frozenset({"tree"})

_DO = "give a file that `critpath compare --json FILE` wrote"


def to_json(document: dict[str, Any]) -> str:
    """Render a document as JSON: one line per key, and per item of a list.

    Parameters
    ----------
    document : dict
        From `comparison_document`, `calibration_document` or `path_document`.

    Returns
    -------
    str
        Strict JSON in ASCII, keys sorted, no control character but the newline:
        equal documents give equal bytes, and showing them moves no cursor.
    """
    lines = []
    for key in sorted(document):
        value = document[key]
        if isinstance(value, list) and value:
            items = ",\n  ".join(_compact(item) for item in value)
            lines.append(f" {_compact(key)}: [\n  {items}\n ]")
        else:
            lines.append(f" {_compact(key)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def to_json_line(document: dict[str, Any]) -> str:
    """Render a document as one line of JSON, without the newline."""
    return _compact(document)


def _compact(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, allow_nan=False, separators=(", ", ": "))
    return escape_more(text)


def load_document(text: str | bytes) -> dict[str, Any]:
    """Read a document back, checked so that every renderer can rely on its shape.

    Parameters
    ----------
    text : str or bytes
        The JSON of a comparison, a calibration or one path.

    Returns
    -------
    dict
        Equal to the document that `to_json` was given.

    Raises
    ------
    UnreadableError
        If it is not JSON, not ours, of another version, or not of that shape.
    """
    try:
        document = load_json(
            text.encode() if isinstance(text, str) else text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except TooLargeError as error:
        raise UnreadableError(f"a document that {error}", _DO) from error
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"not JSON: {error}", _DO) from error
    name = document.get("format") if isinstance(document, dict) else None
    if not isinstance(name, str):
        raise UnreadableError("JSON without critpath's `format`", _DO)
    try:
        if name not in SHAPES:
            _refuse_format(name)
        check_document(document)
        _check_lengths(document)
    except Invalid as error:
        raise UnreadableError(f"damaged {name} document: {error}", _DO) from error
    if name == COMPARISON_FORMAT:
        # They follow from the symbols, and the first files of this version have none.
        document["symbols"] = with_letters(document["symbols"], document["aligned"])
    return dict(document)


def _check_lengths(document: dict[str, Any]) -> None:
    """Raise `Invalid` where a text is longer than any that critpath writes."""
    todo: list[tuple[str, Any]] = [("document", document)]
    while todo:
        key, value = todo.pop()
        if isinstance(value, str):
            most = _MOST_OF_A_NAME if key in _NAMES else _MOST_LETTERS
            fits = len(value) <= most or key in _UNLIMITED
            expect(fits, key[:60], f"a text of at most {most:,} letters")
        elif isinstance(value, dict):
            todo += [("a key", name) for name in value]
            todo += value.items()
        elif isinstance(value, list):
            todo += [(key, item) for item in value if isinstance(item, str | dict | list)]


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
    for known in SHAPES:
        stem = known.rpartition("/")[0]
        if name.rpartition("/")[0] == stem:
            raise UnreadableError(
                f"format {shown!r}: this critpath reads {known!r}",
                "update critpath, or compare the recordings again with this version",
            )
    raise UnreadableError(f"format {shown!r} is not critpath's", _DO)
