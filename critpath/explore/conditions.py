"""Conditions as people write them: parsed by us, never evaluated as code.

::

    condition = or ;  or = and { "or" and } ;  and = not { "and" not }
    not       = [ "not" ] ( "(" or ")" | "any" "(" or ")" | test )
    test      = FIELD ( "==" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "in" ) value
    value     = NUMBER [ "ns" | "us" | "ms" | "s" | "%" ] | "p" NUMBER | 'TEXT' | "TEXT"
              | "[" value { "," value } "]"
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np

from critpath.errors import UsageError
from critpath.model import Bool
from critpath.model.exploration import Condition, Fact, FactTable, Junction, Test
from critpath.units import safe_text, shorten
from critpath.untrusted import check_pattern, fit_pattern

LONGEST: Final = 10_000  # technical: characters of a condition
TERMS: Final = 64  # technical
DEEPEST: Final = 32  # technical
MOST_VALUES: Final = 1000  # technical: of one list
UNITS: Final = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "%": 0.01}  # technical
_ORDER: Final = ("<", "<=", ">", ">=")
_TOKEN: Final = re.compile(
    r"\s*(?:"
    r"(?P<operator>==|!=|<=|>=|<|>|~)|(?P<mark>[()\[\],])"
    r"|(?P<text>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")"
    r"|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3})?(?:\s*(?:ns|us|µs|ms|s|%)(?![\w.@]))?)"
    r"(?![\w.@])"
    r"|(?P<name>`[^`]+`|[^\W\d][\w.@#:/*+-]*))"
)
_QUANTILE: Final = re.compile(r"p([0-9]{1,2}(?:\.[0-9]+)?)")


class _Parser:
    """Tokens, and where reading them has come to."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = list(_tokens(source))
        self.at = 0
        self.terms = 0

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self) -> tuple[str, str]:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, kind: str, text: str) -> bool:
        if self.peek() == (kind, text):
            self.at += 1
            return True
        return False

    def fail(self, wanted: str) -> UsageError:
        kind, text = self.peek()
        found = "it ends" if kind == "end" else f"there is {_quote(text, 40)}"
        return UsageError(
            f"condition {_quote(self.source)}: {wanted} expected where {found}",
            "conditions look like: latency >= p90 and thread == 'worker 7'",
        )

    def either(self, depth: int) -> Condition:
        parts = [self.both(depth)]
        while self.accept("name", "or"):
            parts.append(self.both(depth))
        return parts[0] if len(parts) == 1 else Junction("or", tuple(parts))

    def both(self, depth: int) -> Condition:
        parts = [self.negated(depth)]
        while self.accept("name", "and"):
            parts.append(self.negated(depth))
        return parts[0] if len(parts) == 1 else Junction("and", tuple(parts))

    def negated(self, depth: int) -> Condition:
        if depth > DEEPEST:
            raise UsageError(
                f"condition {_quote(self.source)} has more than {DEEPEST} brackets in each other",
                "write it with fewer brackets",
            )
        if self.accept("name", "not"):
            return Junction("not", (self.negated(depth + 1),))
        if self.accept("mark", "("):
            return self.closed(depth)
        if self.peek() == ("name", "any") and self.tokens[self.at + 1 : self.at + 2] == [
            ("mark", "(")
        ]:
            self.at += 2
            return Junction("any", (self.closed(depth),))
        return self.test()

    def closed(self, depth: int) -> Condition:
        inner = self.either(depth + 1)
        if not self.accept("mark", ")"):
            raise self.fail(")")
        return inner

    def test(self) -> Condition:
        self.terms += 1
        if self.terms > TERMS:
            raise UsageError(
                f"condition {_quote(self.source)} has more than {TERMS} terms",
                "ask in several steps: --given may be repeated",
            )
        kind, field = self.peek()
        if kind != "name" or field in {"and", "or", "not", "in"}:
            raise self.fail("a field")
        self.take()
        kind, operator = self.peek()
        if kind != "operator" and (kind, operator) != ("name", "in"):
            raise self.fail("==, !=, <, <=, >, >=, ~ or in")
        self.take()
        if operator == "in":
            return Test(field.strip("`"), operator, self.values())
        return Test(field.strip("`"), operator, self.value())

    def values(self) -> tuple[Any, ...]:
        if not self.accept("mark", "["):
            raise self.fail("[")
        found = [self.value()]
        while self.accept("mark", ","):
            found.append(self.value())
            if len(found) > MOST_VALUES:
                raise UsageError(
                    f"condition {_quote(self.source)} lists more than {MOST_VALUES} values",
                    "choose them by a comparison or by ~",
                )
        if not self.accept("mark", "]"):
            raise self.fail("] or ,")
        return tuple(found)

    def value(self) -> Any:
        kind, text = self.peek()
        quantile = _QUANTILE.fullmatch(text) if kind == "name" else None
        if kind == "text":
            result: Any = text[1:-1].replace(text[0] * 2, text[0])
        elif kind == "number":
            found = re.fullmatch(r"(.*?)\s*(ns|us|µs|ms|s|%|)", text)
            number = float(found[1]) if found else math.nan
            if not math.isfinite(number) or abs(number) > 1e300:
                raise self.fail("a smaller number")
            unit = found[2] if found else ""
            result = (number * UNITS[unit] if unit else number, unit)
        elif quantile:
            result = ("p", float(quantile[1]))
        else:
            raise self.fail("a number, a quantile such as p90, or a text in quotes")
        self.take()
        return result


def _tokens(source: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(source.rstrip())
    while at < end:
        found = _TOKEN.match(source, at)
        if found is None:
            raise UsageError(
                f"condition {_quote(source)}: nothing begins with {_quote(source[at:], 20)}",
                "put texts in quotes, and names of fields with other characters in backticks",
            )
        yield str(found.lastgroup), found[0].strip()
        at = found.end()


def _quote(source: str, most: int = 80) -> str:
    return safe_text(shorten(source, most).replace("\n", " "))


def parse_condition(source: str) -> Condition:
    """Read a condition.

    Parameters
    ----------
    source : str
        From a command line, a file or a page.

    Returns
    -------
    Condition
        Fields are not looked up yet: `check_condition` does.

    Raises
    ------
    UsageError
        If it is none, or larger than it may be.
    """
    if len(source) > LONGEST:
        raise UsageError(
            f"condition of {len(source):,} characters: at most {LONGEST:,} are read",
            "ask in several steps: --given may be repeated",
        )
    parser = _Parser(source)
    result = parser.either(0)
    if parser.peek()[0] != "end":
        raise parser.fail("and, or, or its end")
    return result


def tests_of(condition: Condition) -> Iterator[Test]:
    """Yield every comparison in a condition."""
    if isinstance(condition, Test):
        yield condition
        return
    for part in condition.parts:
        yield from tests_of(part)


def check_condition(condition: Condition, facts: FactTable) -> None:
    """Refuse fields that are not there, and values that do not fit theirs.

    Raises
    ------
    UsageError
    """
    for test in tests_of(condition):
        fact = facts.facts.get(test.field)
        if fact is None:
            near = nearest(test.field, facts.facts)
            raise UsageError(
                f"no field {safe_text(shorten(test.field, 60))} among {len(facts.facts)}",
                f"did you mean {', '.join(map(safe_text, near))}?",
            )
        values = test.value if test.operator == "in" else (test.value,)
        for value in values:
            _check_value(fact, test.operator, value)


def nearest(name: str, known: Collection[str]) -> list[str]:
    """Return the three names that are nearest to one."""
    by_nearness = sorted(
        known,
        key=lambda one: (-difflib.SequenceMatcher(None, name.lower(), one.lower()).ratio(), one),
    )
    return by_nearness[:3]


def _check_value(fact: Fact, operator: str, value: Any) -> None:
    check = _check_text if fact.kind == "text" else _check_number
    check(fact, safe_text(fact.name), operator, value)


def _check_text(fact: Fact, name: str, operator: str, value: Any) -> None:
    del fact
    if operator in _ORDER:
        raise UsageError(
            f"{name} is a text, which {operator} does not compare", "use ==, !=, ~ or in"
        )
    if not isinstance(value, str):
        raise UsageError(f"{name} is a text", f"put its value in quotes: {name} == '...'")
    if operator == "~":
        check_pattern(value)


def _check_number(fact: Fact, name: str, operator: str, value: Any) -> None:
    if operator == "~":
        raise UsageError(f"{name} is a number, which ~ does not compare", "use ==, < or >")
    if isinstance(value, str):
        raise UsageError(f"{name} is a number, not a text", f"leave out the quotes: {name} >= 1")
    if value[0] == "p":
        if operator not in _ORDER:
            raise UsageError(f"{name} {operator} a quantile", f"write {name} >= p90 or < p90")
        return
    number, unit = value
    if fact.kind == "time" and unit in {"", "%"} and number:
        raise UsageError(f"{name} is a time without a unit", f"write {name} >= 20ms, or >= p90")
    if fact.kind == "number" and unit not in {"", "%"}:
        raise UsageError(f"{name} is a number and no time", f"leave out {unit}")


def evaluate(condition: Condition, facts: FactTable, within: Bool) -> Bool:
    """Tell for which executions a condition holds.

    Parameters
    ----------
    condition : Condition
        Checked.
    facts : FactTable
    within : bool array
        Quantiles are of these executions.

    Returns
    -------
    bool array
        For all executions, also those that are not ``within``.
    """
    if isinstance(condition, Test):
        return _evaluate_test(condition, facts, within)
    parts = [evaluate(part, facts, within) for part in condition.parts]
    if condition.kind == "not":
        return ~parts[0]
    if condition.kind == "any":
        return _find_parents(parts[0], facts.parent)
    combine = np.logical_and if condition.kind == "and" else np.logical_or
    return np.asarray(combine.reduce(parts), np.bool_)


def _find_parents(found: Bool, parent: Any) -> Bool:
    """Return those that are found, and whose sub-requests are, at any depth."""
    result = found.copy()
    row = np.flatnonzero(found)
    while len(row):  # a level at a time, those only that were not there before
        row = np.unique(parent[row])
        row = row[row >= 0]
        row = row[~result[row]]
        result[row] = True
    return result


def _evaluate_test(test: Test, facts: FactTable, within: Bool) -> Bool:
    fact = facts.facts[test.field]
    operator = "==" if test.operator == "!=" else test.operator
    values: Any = fact.values
    if fact.kind == "text":
        wanted = set(test.value if operator == "in" else (test.value,))
        fits = (
            fit_pattern(test.value, fact.words)
            if operator == "~"
            else [word in wanted for word in fact.words]
        )
        hit = np.array(fits, np.bool_)[values] if fits else np.zeros(len(values), np.bool_)
    elif operator == "in":
        hit = np.isin(values, [value[0] for value in test.value])
    else:
        bound = resolve(test, fact, within)
        compare = {
            "==": np.equal,
            "<": np.less,
            "<=": np.less_equal,
            ">": np.greater,
            ">=": np.greater_equal,
        }[operator]
        hit = compare(values, bound)
    if fact.rows is not None:
        result = np.zeros(len(facts), np.bool_)
        result[fact.rows[hit]] = True
    else:
        result = hit if fact.valid is None else hit & fact.valid
    return ~result if test.operator == "!=" else result


def settle(condition: Condition, facts: FactTable) -> Condition:
    """Return a condition whose regular expressions are lists of the texts that they fit."""
    if isinstance(condition, Junction):
        return Junction(condition.kind, tuple(settle(part, facts) for part in condition.parts))
    if condition.operator != "~":
        return condition
    words = facts.facts[condition.field].words
    fits = fit_pattern(condition.value, words)
    listed = tuple(word for word, fit in zip(words, fits, strict=True) if fit)
    return Test(condition.field, "in", listed)


def resolve(test: Test, fact: Fact, within: Bool) -> float:
    """Return the number that a test compares with: a quantile is of the executions within."""
    kind, number = test.value
    if kind != "p":
        return float(kind)
    if fact.rows is not None:
        values = fact.values[within[fact.rows]]
    else:
        values = fact.values[within if fact.valid is None else within & fact.valid]
    return min(quantiles(values, [number / 100]), default=math.nan)


def quantiles(values: Any, shares: Sequence[float]) -> set[float]:
    """Return the values below which each share of all is; nothing of none."""
    if not len(values):
        return set()
    at = [min(len(values) - 1, math.floor(share * len(values))) for share in shares]
    return set(np.partition(values, at)[at].astype(np.float64).tolist())
