"""All that the functions of a package return, as facts of which a change can be seen.

`Watch` stands in front of every public function of some modules while a case runs, and `tell`
writes what they returned: for each function a digest of all results, and the largest one's rows.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache, wraps
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

from critpath.model.texts import Texts
from critpath.schema.environment import Environment

ROWS = 6  # of a table that are shown
LONG = 110  # characters of a row that are shown
DEEP = 6  # how far into a result
WORDS = 3  # of a text that is no sentence
MANY = 4  # tables of a result that are shown


def digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:8]


def one(value: Any) -> Any:
    """Return a value that JSON can have, the same on every machine."""
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, int | str) else value.name
    if isinstance(value, float | np.floating):
        return float(f"{float(value):.6g}") + 0.0
    if isinstance(value, int | np.integer | np.bool_):
        return int(value)
    # Sentences and directories may change; names may not.
    if isinstance(value, str):
        return value.rpartition("/")[2] if len(value.split()) <= WORDS else "..."
    return None


def tables_of(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, list[Any]]]:
    """Yield what a result consists of: names, and rows."""
    if isinstance(value, np.ndarray):
        yield name, [plain(row) for row in np.atleast_1d(value).tolist()]
    elif is_table(value) and depth < DEEP:
        yield from columns_of(value, name, depth)
    elif hasattr(value, "nodes") and hasattr(value, "edges"):
        yield f"{name} graph", [plain(value.graph)]
        yield f"{name} nodes", sorted((plain(each) for each in value.nodes(data=True)), key=str)
        yield f"{name} edges", sorted((plain(each) for each in value.edges(data=True)), key=str)
    elif not isinstance(value, tuple | list | Texts):
        yield name, [plain(value)]
    elif any(is_table(each) or isinstance(each, np.ndarray) for each in value) and depth < DEEP:
        for number, each in enumerate(value):
            yield from tables_of(each, f"{name}[{number}]", depth + 1)
    else:
        yield name, [plain(each) for each in value]


def is_table(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type | Environment)


def columns_of(value: Any, name: str, depth: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the tables of a dataclass: arrays of one length are the columns of one."""
    by_length = defaultdict(list)
    for field in fields(value):
        held = getattr(value, field.name)
        if isinstance(held, np.ndarray) and held.ndim == 1:
            by_length[len(held)].append((field.name, [one(each) for each in held.tolist()]))
        else:
            yield from tables_of(held, f"{name}.{field.name}", depth + 1)
    for columns in by_length.values():
        names = " ".join(key for key, _ in columns)
        rows = zip(*(column for _, column in columns), strict=True)
        yield f"{name} {names}", [list(row) for row in rows]


def plain(value: Any, depth: int = 0) -> Any:
    """Return a small value as JSON has it; of objects, what they hold."""
    found: Any = None
    if depth < DEEP:
        if isinstance(value, tuple | list | np.ndarray | Texts):
            found = [plain(each, depth + 1) for each in value]
        elif isinstance(value, set | frozenset):
            found = sorted((plain(each, depth + 1) for each in value), key=str)
        elif isinstance(value, Environment):
            found = plain(value.saved(), depth)
        elif isinstance(value, Mapping):
            rows = [[plain(k, depth + 1), plain(v, depth + 1)] for k, v in value.items()]
            found = sorted(rows, key=str)
        elif is_table(value):
            found = [[f.name, plain(getattr(value, f.name), depth + 1)] for f in fields(value)]
        elif type(value).__module__.startswith("critpath.") and not isinstance(value, Enum):
            found = plain(getattr(value, "__dict__", None), depth + 1)
        else:
            found = one(value)
    return found


def texts_of(value: Any) -> list[tuple[str, list[str]]]:
    return [(name, [json.dumps(row) for row in rows]) for name, rows in tables_of(value)]


@lru_cache(1)
def named_functions(modules: int) -> list[tuple[ModuleType, str, FunctionType]]:
    """Return every name of a function in modules of ours, found once for so many modules."""
    del modules
    ours = [m for n, m in sys.modules.items() if n.startswith(("critpath", "test_"))]
    return [
        (module, name, of)
        for module in ours
        for name, of in vars(module).items()
        if isinstance(of, FunctionType)
    ]


class Watch:
    """What the public functions of modules returned since it began."""

    def __init__(self, modules: Collection[ModuleType]) -> None:
        self.results: dict[str, list[tuple[str, Any]]] = defaultdict(list)
        self._patch = pytest.MonkeyPatch()
        known = {
            id(of): self._watched(f"{module.__name__.removeprefix('critpath.')}.{name}", of)
            for module in modules
            for name, of in vars(module).items()
            if isinstance(of, FunctionType)
            and of.__module__ == module.__name__
            and not name.startswith("_")
        }
        for module, name, of in named_functions(len(sys.modules)):
            if id(of) in known:
                self._patch.setattr(module, name, known[id(of)])
        for module in modules:
            for of in list(vars(module).values()):
                if isinstance(of, type) and of.__module__ == module.__name__:
                    self._watch_methods(of)

    def _watch_methods(self, of: type) -> None:
        place = f"{of.__module__.removeprefix('critpath.')}.{of.__name__}"
        for name, method in list(vars(of).items()):
            if isinstance(method, FunctionType) and not name.startswith("_"):
                self._patch.setattr(of, name, self._watched(f"{place}.{name}", method))

    def _watched(self, name: str, of: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(of)
        def watched(*positional: Any, **named: Any) -> Any:
            result = of(*positional, **named)
            if inspect.isgenerator(result):
                return self._each(name, result)
            self._keep(name, result)
            return result

        return watched

    def _each(self, name: str, results: Iterator[Any]) -> Iterator[Any]:
        for result in results:
            self._keep(name, result)
            yield result

    def _keep(self, name: str, result: Any) -> None:
        if result is None or inspect.isfunction(result):
            return
        texts = texts_of(result)
        whole = digest([text for table, rows in texts for text in (table, *rows)])
        self.results[name].append((whole, texts))

    def stop(self) -> None:
        self._patch.undo()

    def tell(self, case: str, shown: int) -> Iterator[str]:
        """Yield lines: whose results, how many, their digest; then rows of the largest."""
        for name in sorted(self.results):
            found = self.results[name]
            whole = digest(sorted(each for each, _ in found))
            yield json.dumps([case, name, len(found), whole])
            _, texts = max(found, key=lambda x: (sum(len(rows) for _, rows in x[1]), x[0]))
            for table, rows in texts[:MANY]:
                for row in rows[:shown]:
                    cut = row if len(row) <= LONG else row[:LONG] + "..."
                    yield json.dumps([table.split(" ")[0], cut])


def run_watched(
    modules: Collection[ModuleType], case: str, run: Callable[[], object], shown: int = ROWS
) -> Iterator[str]:
    """Run a case; yield what the functions of modules returned meanwhile."""
    watch = Watch(modules)
    try:
        run()
    finally:
        watch.stop()
    yield from watch.tell(case, shown)


def cases_of(
    module: ModuleType, fixtures: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the tests of a module that need no other fixture, with each of their parameters."""
    known = fixtures or {}
    for name, test in list(vars(module).items()):
        if not (name.startswith("test_") and isinstance(test, FunctionType)):
            continue
        if hasattr(test, "hypothesis") or test.__module__ != module.__name__:
            continue
        marks = [m for m in getattr(test, "pytestmark", ()) if m.name == "parametrize"]
        if len(marks) != len(getattr(test, "pytestmark", ())):
            continue
        chosen = [list(named(mark)) for mark in marks]
        for number, parts in enumerate(itertools.product(*chosen)):
            words = {key: value for part in parts for key, value in part.items()}
            asked = inspect.signature(test).parameters
            words |= {key: known[key] for key in asked if key in known}
            if set(words) == set(asked):
                case = name.removeprefix("test_") + (f"[{number}]" if marks else "")
                yield case, lambda test=test, words=words: test(**words)


def named(mark: pytest.Mark) -> Iterator[dict[str, Any]]:
    """Yield the arguments that a mark of parameters has, by name."""
    names, values = mark.args
    names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    for value in values:
        held = getattr(value, "values", None) if hasattr(value, "marks") else None
        row = held if held is not None else value if len(names) > 1 else (value,)
        yield dict(zip(names, row, strict=True))


def written(lines: Collection[str]) -> str:
    """Return lines as one JSON list, a row a line."""
    return "[\n" + ",\n".join(lines) + "\n]\n"
