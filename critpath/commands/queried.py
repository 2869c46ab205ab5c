"""Which events a query in SQL is about: what its reader need not decode is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from critpath.read import EventQuestion

TABLE: Final = "events"
_SWAPPED: Final = {
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
}


def parse_query(connection: Any, sql: str) -> Any:
    """Return a query as DuckDB's parser has it; None of what is none."""
    found = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    tree = json.loads(found[0]) if found else None
    return None if not isinstance(tree, dict) or tree.get("error") else tree


def tables_of(tree: Any) -> set[str]:
    """Return the names of the tables that a query names, but for those that it makes."""
    made = {
        str(entry.get("key", "")).lower()
        for node in _walk(tree)
        if isinstance(ctes := node.get("cte_map"), dict)
        for entry in ctes.get("map", ())
    }
    named = {
        str(node.get("table_name", "")).lower()
        for node in _walk(tree)
        if node.get("type") == "BASE_TABLE"
    }
    return named - made


def question_of(tree: Any) -> EventQuestion:
    """Return which events a query can be about, at least: all where it is not plain.

    Conditions count that stand in ``WHERE`` with ``AND`` between them, of a query that names the
    table once.
    """
    from critpath.read import EventQuestion  # noqa: PLC0415 - numpy

    of_table = [
        node
        for node in _walk(tree)
        if str(node.get("table_name", "")).lower() == TABLE and node.get("type") == "BASE_TABLE"
    ]
    selects = [
        node
        for node in _walk(tree)
        if node.get("type") == "SELECT_NODE" and node.get("from_table") in of_table
    ]
    asked: dict[str, Any] = {}
    if len(of_table) == len(selects) == 1:
        for condition in _conjuncts(selects[0].get("where_clause")):
            _take(asked, condition)
    stars = any(node.get("class") == "STAR" for node in _walk(tree))
    named = {str(node["column_names"][-1]) for node in _walk(tree) if node.get("column_names")}
    return EventQuestion(**asked, columns=None if stars else frozenset(named))


def _walk(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a tree."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            left += node.values()
        elif isinstance(node, list):
            left += node


def _conjuncts(condition: Any) -> Iterator[dict[str, Any]]:
    left = [condition]
    while left:
        node = left.pop()
        if not isinstance(node, dict):
            continue
        if node.get("type") == "CONJUNCTION_AND":
            left += node.get("children", ())
        else:
            yield node


def _column(node: Any) -> str:
    names = node.get("column_names") if isinstance(node, dict) else None
    return str(names[-1]).lower() if names else ""


def _constant(node: Any) -> str | None:
    """Return a constant as text, None of anything else."""
    if not isinstance(node, dict) or node.get("class") != "CONSTANT":
        return None
    literal = node.get("literal")
    if isinstance(literal, dict):
        return str(literal.get("text"))
    value = node.get("value")  # before DuckDB 2
    return str(value.get("value")) if isinstance(value, dict) else None


def _take(asked: dict[str, Any], condition: dict[str, Any]) -> None:
    """Take a condition, if the reader can apply it."""
    kind = str(condition.get("type"))
    children = condition.get("children", [])
    if kind == "COMPARE_BETWEEN":
        column = _column(condition.get("input"))
        _bound(asked, column, "COMPARE_GREATERTHANOREQUALTO", _constant(condition.get("lower")))
        _bound(asked, column, "COMPARE_LESSTHANOREQUALTO", _constant(condition.get("upper")))
    elif kind == "COMPARE_IN" and children:
        values = [_constant(child) for child in children[1:]]
        if None not in values:
            _choose(asked, _column(children[0]), [str(value) for value in values])
    elif condition.get("function_name") == "~~":
        found = [one.get("expression", one) for one in condition.get("arguments", children)]
        pattern = _constant(found[1]) if len(found) > 1 else None
        if pattern and _column(found[0]) == "name" and not set(pattern) & set("*?[\\"):
            _choose(asked, "name", [pattern.replace("%", "*").replace("_", "?")])
    elif kind.startswith("COMPARE_"):
        left, right = condition.get("left"), condition.get("right")
        if _constant(left) is not None:
            left, right, kind = right, left, _SWAPPED.get(kind, kind)
        value = _constant(right)
        if value is not None and kind == "COMPARE_EQUAL":
            _choose(asked, _column(left), [value])
            _bound(asked, _column(left), kind, value)
        else:
            _bound(asked, _column(left), kind, value)


def _choose(asked: dict[str, Any], column: str, values: list[str]) -> None:
    """Note that a column has one of some values; a second condition of it is left to DuckDB."""
    if column == "name":
        asked.setdefault("names", tuple(value for value in values if not set(value) & set("[\\")))
        if not asked["names"]:
            del asked["names"]
        return
    key = {"cpu": "cpus", "current_tid": "tids"}.get(column)
    if key and all(value.removeprefix("-").isdecimal() for value in values):
        asked.setdefault(key, frozenset(map(int, values)))


def _bound(asked: dict[str, Any], column: str, kind: str, value: str | None) -> None:
    if column != "time_ns" or value is None or not value.removeprefix("-").isdecimal():
        return
    number = int(value)
    if not -(1 << 62) < number < 1 << 62:
        return
    if kind in {"COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO", "COMPARE_EQUAL"}:
        asked["begin"] = max(number, asked.get("begin", number))
    if kind in {"COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO", "COMPARE_EQUAL"}:
        asked["end"] = min(number, asked.get("end", number))
