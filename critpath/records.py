"""Frozen dataclasses that compile no methods: what they do is the same function for all.

`dataclasses` writes the methods of each class as a text and compiles it when its module is
imported: half a millisecond for each, of which a short command imports eighty.
"""

from __future__ import annotations

import dataclasses
import inspect
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        made: type | None = None, /, *, frozen: bool = False, slots: bool = False, **options: bool
    ) -> Any:
        """Return a dataclass, as `dataclasses.dataclass` does."""
        if made is None:
            return lambda one: dataclass(one, frozen=frozen, slots=slots, **options)
        if not frozen or slots:
            return dataclasses.dataclass(made, frozen=frozen, slots=slots, **options)
        return _freeze(made, **options)


__all__ = ["dataclass"]


def _freeze(made: type, *, eq: bool = True, repr: bool = True, kw_only: bool = False) -> type:  # noqa: A002 - as `dataclasses` has it
    made.__doc__ = made.__doc__ or made.__name__  # else `dataclasses` writes one
    made = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(made)
    methods: dict[str, Any] = {
        "__init__": _initializer(made),
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__signature__": _Signature(),
    }
    if repr:
        methods["__repr__"] = _show
    if eq:
        methods |= _comparing(made)
    for name, method in methods.items():
        if vars(made).get(name) is None:
            setattr(made, name, method)
    return made


def _initializer(made: type) -> Any:
    """Return what sets the fields of one, in their order."""
    missing = dataclasses.MISSING
    of = dataclasses.fields(made)
    places = tuple(f.name for f in of if not f.kw_only)
    defaults = {f.name: f.default for f in of}
    factories = {f.name: f.default_factory for f in of if f.default_factory is not missing}
    needed = [f.name for f in of if f.default is missing]
    after = hasattr(made, "__post_init__")

    def __init__(self: Any, /, *given: Any, **named: Any) -> None:  # noqa: N807 - it is one
        values = {**defaults, **dict(zip(places, given, strict=False)), **named}
        wrong = len(given) > len(places) or len(values) > len(defaults)
        if wrong or (given and named and not named.keys().isdisjoint(places[: len(given)])):
            raise TypeError(f"{made.__name__}: fields are {', '.join(defaults)}, each once")
        for name in needed:
            if values[name] is missing:
                if name not in factories:
                    raise TypeError(f"{made.__name__}: no {name}")
                values[name] = factories[name]()
        self.__dict__.update(values)
        if after:
            self.__post_init__()

    return __init__


def _refuse(_self: object, name: str, *_value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")


def _show(self: Any) -> str:
    of = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(of)})"


def _comparing(made: type) -> dict[str, Any]:
    """Return what compares the fields of two."""
    names = [f.name for f in dataclasses.fields(made) if f.compare]
    values: Any = attrgetter(*names) if names else (lambda _: ())

    def __eq__(self: object, other: object) -> bool:  # noqa: N807 - it is one
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


class _Signature:
    """What a class is called with, for who asks."""

    def __get__(self, _one: object, made: type) -> inspect.Signature:
        missing, parameter = dataclasses.MISSING, inspect.Parameter
        return inspect.Signature(
            [
                parameter(
                    f.name,
                    parameter.KEYWORD_ONLY if f.kw_only else parameter.POSITIONAL_OR_KEYWORD,
                    default=f.default_factory() if f.default_factory is not missing
                    else parameter.empty if f.default is missing else f.default,
                    annotation=f.type,
                )
                for f in sorted(dataclasses.fields(made), key=lambda f: bool(f.kw_only))
            ]
        )  # fmt: skip
