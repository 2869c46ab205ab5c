"""Frozen dataclasses that compile nothing are as those of `dataclasses`."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Any

import pytest

from critpath import records


def declare(dataclass: Any) -> tuple[Any, Any]:
    """Declare the same two classes by one decorator."""

    @dataclass(frozen=True)
    class Base:
        """One."""

        a: int
        b: str
        c: float = 1.0
        d: list[int] = field(default_factory=list, repr=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "b", f"{self.b}!")

        @cached_property
        def twice(self) -> int:
            return 2 * self.a

    @dataclass(frozen=True, kw_only=True, eq=False)
    class More(Base):
        e: int = 3
        f: int

    return Base, More


OURS, THEIRS = declare(records.dataclass), declare(dataclasses.dataclass)

SEEN: dict[str, Callable[[Any, Any], object]] = {
    "fields": lambda base, _: [f.name for f in dataclasses.fields(base(1, "x"))],
    "dict": lambda base, _: dataclasses.asdict(base(1, b="x", d=[2])),
    "order": lambda base, _: list(vars(base(b="x", a=1))),
    "replace": lambda base, _: repr(dataclasses.replace(base(1, "x"), c=2.0)),
    "shown": lambda base, more: repr((base(1, "x"), more(1, "x", 2.0, f=4))),
    "equal": lambda base, _: base(1, "x", d=[1]) == base(1, "x", d=[2]),
    "unequal": lambda base, _: base(1, "x") == base(1, "y"),
    "another": lambda base, more: base(1, "x") == more(1, "x", f=4) or base(1, "x") == 1,
    "itself": lambda _, more: more(1, "x", f=4) == more(1, "x", f=4),
    "hash": lambda base, _: len({base(1, "x"), base(1, "x"), base(2, "x")}),
    "list of its own": lambda base, _: base(1, "x").d is base(1, "x").d,
    "computed": lambda base, _: base(4, "x").twice,
    "copied": lambda base, _: repr(copy.deepcopy(base(1, "x"))),
    "matched": lambda base, _: base.__match_args__,
    "asked": lambda base, more: [
        [(p.name, p.kind, p.annotation) for p in inspect.signature(one).parameters.values()]
        for one in (base, more)
    ],
}
WRONG: dict[str, Callable[[Any, Any], object]] = {
    "too few": lambda base, _: base(1),
    "too many": lambda base, _: base(1, "x", 2.0, [], 5),
    "twice": lambda base, _: base(1, "x", b="y"),
    "unknown": lambda base, _: base(1, "x", z=1),
    "by place": lambda _, more: more(1, "x", 2.0, [], 5, f=4),
    "none by name": lambda _, more: more(1, "x"),
    "set": lambda base, _: setattr(base(1, "x"), "a", 2),
    "new": lambda base, _: setattr(base(1, "x"), "z", 2),
    "deleted": lambda base, _: delattr(base(1, "x"), "a"),
}


@pytest.mark.parametrize("what", SEEN)
def test_is_as_theirs(what: str) -> None:
    assert SEEN[what](*OURS) == SEEN[what](*THEIRS)


@pytest.mark.parametrize("what", WRONG)
def test_refuses_as_theirs(what: str) -> None:
    with pytest.raises((TypeError, dataclasses.FrozenInstanceError)) as theirs:
        WRONG[what](*THEIRS)
    with pytest.raises(theirs.type):
        WRONG[what](*OURS)


def test_those_that_change_are_made_by_dataclasses() -> None:
    @records.dataclass
    class Counted:
        n: int = 0

    one = Counted()
    one.n = 3
    assert one == Counted(3)
