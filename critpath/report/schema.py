"""The shape of every document, and the check of one that was read from a file.

A shape is a type; a tuple of types of which one must fit; a list with the shape of
its items; a dict of required keys (more keys are welcome: newer minor versions add
some); or ``Each`` for a mapping from any text to one shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from critpath.model import State

NONE: Final = type(None)
NUMBER: Final = (int, float)
MAYBE: Final = (int, float, NONE)
TEXTS: Final = [str]


class Invalid(Exception):  # noqa: N818 - never seen outside; as_json turns it into an error
    """A document is not of its shape; says where and what is wrong."""


@dataclass(frozen=True)
class Each:
    """A mapping from any text to values of one shape."""

    shape: Any


_LOSS = {
    "events": int,
    "packets": int,
    "places": [
        {
            "begin": int,
            "end": int,
            "host": int,
            "cpu": int,
            "events": int,
            "packets": int,
            "reason": str,
        }
    ],
    "places_left_out": int,
}

_SET = {
    "sources": TEXTS,
    "specification": str,
    "executions": int,
    "events": int,
    "window": ({"begin": int, "end": int}, NONE),
    "hosts": TEXTS,
    "kernels": TEXTS,
    "tracers": TEXTS,
    "loss": _LOSS,
    "lossy": int,
    "incomplete": int,
    "notes": TEXTS,
    "warnings": TEXTS,
}

_STATE = {
    "state": str,
    "role": str,
    **dict.fromkeys(("normal_mean", "sample_mean", "normal_std", "effect"), MAYBE),
    **dict.fromkeys(("effect_low", "effect_high", "p_value", "average_threshold"), MAYBE),
    **dict.fromkeys(("normal_above", "sample_above", "probability_threshold"), MAYBE),
    **dict.fromkeys(("cliffs_delta", "median_ratio"), MAYBE),
    **dict.fromkeys(("flagged", "new_state", "average_fires", "probability_fires"), bool),
}

_CLUSTERS = {
    "method": str,
    "notes": TEXTS,
    "clusters": [{"cluster": int, "size": int, "weak": int, "mean_duration": MAYBE}],
    "ordering": [int],
    "reachability": [MAYBE],
}

_EXECUTION = {
    "id": str,
    "set": str,
    "position": int,
    "source": int,
    "begin": int,
    "end": int,
    "tid": int,
    "comm": str,
    "label": str,
    "cluster": (int, NONE),
    "weak": bool,
    "pair": (int, NONE),
    "anomalous": bool,
    "excess": (int, NONE),
    "score": MAYBE,
    "p_value": MAYBE,
    "paper": bool,
    "symbol": (str, NONE),
    "lossy": bool,
}

_FINDING = {
    "execution": str,
    "position": int,
    "rank": int,
    "columns": [int],
    **dict.fromkeys(("kind", "state", "role", "detail", "comm", "before"), str),
    **dict.fromkeys(("tid", "begin", "end"), int),
    **dict.fromkeys(("observed", "expected", "contribution", "share", "probability"), MAYBE),
    "parts": [{"kind": str, "contribution": MAYBE}],
    "abnormal": bool,
    **dict.fromkeys(("p", "offset", "iterations"), MAYBE),
    "normal_iterations": [MAYBE],
}

_SEGMENT = {"begin": int, "end": int, "tid": int, "comm": str, "state": str, "detail": str}

_ALIGNED: Final[dict[str, Any]] = {
    "execution": str,
    "position": int,
    "columns": int,
    "left_out": int,
    "excess": MAYBE,
    "unexplained": MAYBE,
    "score": MAYBE,
    "tree": str,
    "rows": [{"set": str, "position": int, "id": str, "symbols": [int], "durations": [int]}],
    "statistics": {
        **{name: [MAYBE] for name in ("probability", "normal_probability", "mean", "std")},
        **{name: [MAYBE] for name in ("p_structure", "p_duration")},
        **{name: [int] for name in ("normal_symbol", "contribution")},
        **{name: [bool] for name in ("abnormal_state", "abnormal_duration", "missing")},
        "abnormal": [bool],
    },
    "note": str,
    "segments": [{"column": int, **_SEGMENT}],
}

# Not in the first files of this version, so not required.
_LOOPS: Final[list[Any]] = [{"first": int, "last": int, "period": int, "iterations": [int]}]

_CIRCUMSTANCES: Final = ("recorded", "machines", "processors", "cpus", "profiles")

COMPARISON: Final[dict[str, Any]] = {
    "format": str,
    "version": str,
    "verdict": str,
    "reasons": TEXTS,
    "warnings": TEXTS,
    "settings": dict,
    "sets": {"normal": _SET, "sample": _SET},
    "symbols": [{"name": str, "state": str, "role": str}],
    "states": [_STATE],
    "detection": {
        "rule": str,
        "flagged": bool,
        "alpha": MAYBE,
        "floor": MAYBE,
        "detectable": MAYBE,
        "permutations": int,
        "enough": bool,
        "needed": int,
        "paper_false_alarms": MAYBE,
        "notes": TEXTS,
    },
    "clusters": {
        "normal": _CLUSTERS,
        "sample": _CLUSTERS,
        "pairs": [{"sample": int, "normal": int, "score": MAYBE, "weak": bool, "novel": bool}],
        "notes": TEXTS,
    },
    "plane": (
        {"normal": [[NUMBER]], "sample": [[NUMBER]], "explained": [NUMBER]},
        NONE,
    ),
    "outliers": {"anomalous": int, "paper": int, "notes": TEXTS},
    "executions": [_EXECUTION],
    "findings": [_FINDING],
    "causes": [
        {
            "sentence": str,
            "findings": [int],
            "executions": TEXTS,
            "positions": [int],
            "contribution": MAYBE,
            "share": MAYBE,
            "main": int,
            "minor": bool,
        }
    ],
    "aligned": [_ALIGNED],
}

PATH: Final[dict[str, Any]] = {
    "format": str,
    "subject": {"tid": int, "comm": str},
    "begin": int,
    "end": int,
    "segments": [_SEGMENT],
    "totals": Each(int),
    "unexplained": int,
    "loss": {"events": int, "packets": int},
}


def check(value: Any, shape: Any, place: str = "document") -> None:
    """Raise `Invalid` where a value does not have a shape.

    Parameters
    ----------
    value : JSON value
    shape : shape
        As the module describes.
    place : str
        Where the value stands, for the message.
    """
    if isinstance(shape, dict):
        _expect(isinstance(value, dict), place, "an object")
        for key, inner in shape.items():
            _expect(key in value, place, f"a key {key!r}")
            check(value[key], inner, f"{place}.{key}")
    elif isinstance(shape, list):
        _expect(isinstance(value, list), place, "a list")
        for i, item in enumerate(value):
            check(item, shape[0], f"{place}[{i}]")
    elif isinstance(shape, Each):
        _expect(isinstance(value, dict), place, "an object")
        for item in value.values():
            check(item, shape.shape, f"{place}[...]")
    elif isinstance(shape, tuple):
        _one_of(value, shape, place)
    else:
        _expect(_is(value, shape), place, f"{shape.__name__}")


def _one_of(value: Any, shapes: tuple[Any, ...], place: str) -> None:
    simple = [s for s in shapes if isinstance(s, type)]
    if any(_is(value, s) for s in simple):
        return
    for shape in shapes:
        if not isinstance(shape, type):
            check(value, shape, place)
            return
    _expect(False, place, " or ".join(s.__name__ for s in simple))


def _is(value: Any, wanted: type) -> bool:
    # JSON's true is no number, though Python's is.
    return isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))


def _expect(holds: bool, place: str, wanted: str) -> None:
    if not holds:
        raise Invalid(f"{place} lacks or is not {wanted}")


_VERDICTS: Final = ("ok", "anomaly", "inconclusive")


def check_comparison(document: dict[str, Any]) -> None:
    """Raise `Invalid` where parts of a comparison contradict each other.

    Parameters
    ----------
    document : dict
        Of the shape `COMPARISON`.
    """
    _expect(document["verdict"] in _VERDICTS, "document.verdict", f"one of {_VERDICTS}")
    for i, row in enumerate(document["executions"]):
        _expect(row["set"] in {"normal", "sample"}, f"executions[{i}].set", "normal or sample")
    for i, finding in enumerate(document["findings"]):
        _expect(len(finding["columns"]) == 2, f"findings[{i}].columns", "a pair")
        turns = finding["normal_iterations"]
        _expect(len(turns) == 2, f"findings[{i}].normal_iterations", "a pair")
        _expect(finding["state"] in State.__members__, f"findings[{i}].state", "a state")
    for i, symbol in enumerate(document["symbols"]):
        _expect(symbol["state"] in State.__members__, f"symbols[{i}].state", "a state")
    for which in ("normal", "sample"):
        _check_set(document, which)
    for i, state in enumerate(document["states"]):
        check(state.get("level", ""), (str, NONE), f"states[{i}].level")
    if document["plane"] is not None:
        for which in ("normal", "sample"):
            for point in document["plane"][which]:
                _expect(len(point) == 2, f"plane.{which}", "a list of pairs")
        _expect(len(document["plane"]["explained"]) == 2, "plane.explained", "a pair")
    for i, aligned in enumerate(document["aligned"]):
        _check_aligned(aligned, len(document["symbols"]), f"aligned[{i}]")


def _check_set(document: dict[str, Any], which: str) -> None:
    for name in _CIRCUMSTANCES:
        check(document["sets"][which].get(name, []), TEXTS, f"sets.{which}.{name}")
    found = document["clusters"][which]
    known = all(0 <= i < len(found["reachability"]) for i in found["ordering"])
    _expect(known, f"clusters.{which}.ordering", "places of reachability")


def _check_aligned(aligned: dict[str, Any], symbols: int, place: str) -> None:
    columns = aligned["columns"]
    _expect(bool(aligned["rows"]), f"{place}.rows", "a row")
    for row in aligned["rows"]:
        for name in ("symbols", "durations"):
            _expect(len(row[name]) == columns, f"{place}.rows.{name}", f"{columns} columns")
        _expect(all(-1 <= s < symbols for s in row["symbols"]), f"{place}.rows", "known symbols")
        _expect(all(d >= 0 for d in row["durations"]), f"{place}.rows", "durations from 0")
    for name in _ALIGNED["statistics"]:
        sized = len(aligned["statistics"][name]) == columns
        _expect(sized, f"{place}.statistics.{name}", f"a list of {columns}")
    known = all(-1 <= s < symbols for s in aligned["statistics"]["normal_symbol"])
    _expect(known, f"{place}.statistics.normal_symbol", "known symbols")
    for segment in aligned["segments"]:
        _expect(0 <= segment["column"] < columns, f"{place}.segments", "a column of it")
        _expect(segment["state"] in State.__members__, f"{place}.segments", "a state")
    check(aligned.get("loops", []), _LOOPS, f"{place}.loops")
    passed = 0
    for loop in aligned.get("loops", []):
        inside = passed <= loop["first"] < loop["last"] <= columns and loop["period"] > 0
        _expect(inside, f"{place}.loops", "blocks of columns from left to right")
        passed = loop["last"]
        counted = len(loop["iterations"]) == len(aligned["rows"])
        within = all(0 <= n < 2**31 for n in loop["iterations"])
        _expect(counted and within, f"{place}.loops.iterations", "a number per row")
