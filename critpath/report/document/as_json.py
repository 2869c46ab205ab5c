"""Documents as JSON text, and back, trusting nothing in what is read."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from critpath.errors import UnreadableError
from critpath.report.document.comparison import COMPARISON_FORMAT
from critpath.report.document.path import escape_more
from critpath.report.document.schema import SHAPES, check_document
from critpath.report.document.shapes import Invalid
from critpath.report.palette import with_letters

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


def load_document(text: str) -> dict[str, Any]:
    """Read a document back, checked so that every renderer can rely on its shape.

    Parameters
    ----------
    text : str
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
        document = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_bounded
        )
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"not JSON: {error}", _DO) from error
    name = document.get("format") if isinstance(document, dict) else None
    if not isinstance(name, str):
        raise UnreadableError("JSON without critpath's `format`", _DO)
    try:
        if name not in SHAPES:
            _refuse_format(name)
        check_document(document)
    except Invalid as error:
        raise UnreadableError(f"damaged {name} document: {error}", _DO) from error
    if name == COMPARISON_FORMAT:
        # They follow from the symbols, and the first files of this version have none.
        document["symbols"] = with_letters(document["symbols"], document["aligned"])
    return dict(document)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
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
