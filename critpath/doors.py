"""Doors: a stage's `__init__` lists what it hands on, which is imported when it is asked for.

The list is that of its imports under ``if TYPE_CHECKING:``, so a name stands there once, with a
type for who checks them and at no cost for who starts.
"""

import sys

TYPE_CHECKING = False  # that of `typing`, which takes as long to import as Python to start
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
else:
    ModuleType = type(sys)


def hand_on(package: str) -> "Callable[[str], object]":
    """Return the `__getattr__` of a package that imports what it hands on when it is asked for."""
    homes: dict[str, tuple[str, str]] = {}

    def find(name: str) -> object:
        from importlib import import_module  # noqa: PLC0415 - start-up time

        if not homes:
            homes.update(_read_homes(package))
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, own = homes[name]
        return getattr(import_module(module), own)

    return find


class _Function(ModuleType):
    """A package whose name is also a function of the API: ``critpath.explore(...)``."""

    @property
    def __wrapped__(self) -> "Callable[..., object]":  # whose signature it has
        from importlib import import_module  # noqa: PLC0415 - start-up time

        api, name = import_module("critpath.api"), self.__name__.rpartition(".")[2]
        found: Callable[..., object] = getattr(api, name)
        return found

    def __call__(self, *arguments: object, **named: object) -> object:
        return self.__wrapped__(*arguments, **named)


def be_function(package: str) -> None:
    """Let a package be called, for the function of the API that has its name.

    Python gives a package's name to who imports it; without this the name would mean the one or
    the other, by what was imported before.
    """
    sys.modules[package].__class__ = _Function


def _read_homes(package: str) -> dict[str, tuple[str, str]]:
    """Return of each name that a package lists its module, and what it is called there."""
    with open(str(sys.modules[package].__file__), encoding="utf-8") as source:  # noqa: PTH123
        text = source.read()
    listed = text.partition("\nif TYPE_CHECKING:\n")[2].partition("\nelse:\n")[0]
    homes = {}
    for line in listed.replace("(", "").replace(")", "").split("    from ")[1:]:
        module, _, names = line.partition(" import ")
        for entry in filter(None, map(str.strip, names.split(","))):
            own, _, name = entry.partition(" as ")
            homes[name or own] = module, own
    return homes
