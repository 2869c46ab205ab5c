"""Every document's shape, and the check of one that was read from a file.

A shape says what stands where; what parts of a document must agree on beyond that (as many
durations as columns) only the checks here know.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

from critpath.report.document.calibration import CALIBRATION_FORMAT
from critpath.report.document.comparison import COMPARISON_FORMAT
from critpath.report.document.path import PATH_FORMAT
from critpath.report.document.schema_comparison import ALIGNED, COMPARISON
from critpath.report.document.schema_others import CALIBRATION, PATH
from critpath.report.document.shapes import check, expect

# By name of the format, as it stands in a document.
SHAPES: Final[dict[str, dict[str, Any]]] = {
    COMPARISON_FORMAT: COMPARISON,
    PATH_FORMAT: PATH,
    CALIBRATION_FORMAT: CALIBRATION,
}
_STATISTICS: Final = tuple(ALIGNED["statistics"].shape.shape)


def check_document(document: dict[str, Any]) -> None:
    """Raise `Invalid` where a document is not of its format's shape, or contradicts itself.

    Parameters
    ----------
    document : dict
        Its ``format`` is one of `SHAPES`.
    """
    name = document["format"]
    check(document, SHAPES[name])
    if name == COMPARISON_FORMAT:
        _check_comparison(document)
    elif name == CALIBRATION_FORMAT:
        _check_calibration(document)


def _check_comparison(document: dict[str, Any]) -> None:
    for which in ("normal", "sample"):
        found = document["clusters"][which]
        known = all(0 <= i < len(found["reachability"]) for i in found["ordering"])
        expect(known, f"clusters.{which}.ordering", "places of reachability")
    for i, aligned in enumerate(document["aligned"]):
        _check_aligned(aligned, len(document["symbols"]), f"aligned[{i}]")
    _check_references(document)


def _check_references(document: dict[str, Any]) -> None:
    """Raise `Invalid` where a finding or a cause refers to what is not there."""
    columns = {one["position"]: one["columns"] for one in document["aligned"]}
    for i, finding in enumerate(document["findings"]):
        first, last = finding["columns"]
        inside = 0 <= first < last <= columns.get(finding["position"], last)
        expect(inside, f"findings[{i}].columns", "columns of its alignment")
    count = len(document["findings"])
    for i, cause in enumerate(document["causes"]):
        places = [cause["main"], *cause["findings"]]
        known = all(0 <= place < count for place in places)
        expect(known, f"causes[{i}].findings", "places in the list of findings")


def _check_aligned(aligned: dict[str, Any], symbols: int, place: str) -> None:
    columns = aligned["columns"]
    for row in aligned["rows"]:
        for name in ("symbols", "durations"):
            expect(len(row[name]) == columns, f"{place}.rows.{name}", f"{columns} columns")
        expect(all(-1 <= s < symbols for s in row["symbols"]), f"{place}.rows", "known symbols")
        expect(all(d >= 0 for d in row["durations"]), f"{place}.rows", "durations from 0")
    for name in _STATISTICS:
        sized = len(aligned["statistics"][name]) == columns
        expect(sized, f"{place}.statistics.{name}", f"a list of {columns}")
    known = all(-1 <= s < symbols for s in aligned["statistics"]["normal_symbol"])
    expect(known, f"{place}.statistics.normal_symbol", "known symbols")
    for segment in aligned["segments"]:
        expect(0 <= segment["column"] < columns, f"{place}.segments", "a column of it")
    for name in ("mean", "std"):
        positive = all(value is None or value >= 0 for value in aligned["statistics"][name])
        expect(positive, f"{place}.statistics.{name}", "durations from 0")
    passed = 0
    for loop in aligned.get("loops", []):
        inside = passed <= loop["first"] < loop["last"] <= columns and loop["period"] > 0
        expect(inside, f"{place}.loops", "blocks of columns from left to right")
        passed = loop["last"]
        counted = len(loop["iterations"]) == len(aligned["rows"])
        within = all(0 <= n < 2**31 for n in loop["iterations"])
        expect(counted and within, f"{place}.loops.iterations", "a number per row")


def _check_calibration(document: dict[str, Any]) -> None:
    """Raise `Invalid` where a table of a calibration would have holes."""
    expect(bool(document["false_alarms"]), "document.false_alarms", "a row")
    floor = document["floor"]
    if floor["spread"] is not None:
        known = None not in {floor["spread_high"], floor["expected"]}
        expect(known, "document.floor", "figures beside its spread")
    rows = {(row["kind"], row["state"], row["sample"]): row for row in document["detectable"]}
    states = {row["state"] for row in document["detectable"] if row["kind"] == "state"}
    kinds = [("total", ""), ("rare", ""), ("new", ""), *product(["state"], sorted(states))]
    for (kind, state), size in product(kinds, sorted({size for _, _, size in rows})):
        found = (kind, state, size) in rows
        expect(found, "document.detectable", f"{kind} {state} at {size}")
    for row in rows.values():
        told = row["shift"] is None or row["of_total"] is not None
        expect(told, "document.detectable", "shares of the shifts")
