"""Every number that judges or decides: its value, unit, what it is, and where it is from.

A module for each stage declares its groups; a stage reads a number where it uses it, such as
``MACHINE.pace``, never into a constant of its own, so that `overridden` reaches it.  How to change
one: docs/parameters.md, which is made from these declarations.  Numbers of memory, work, formats
and of how an answer is laid out stay where they are used, marked ``# technical``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

Number = int | float | tuple[int | float, ...]
N = TypeVar("N", bound=Number)


class Source:
    """Where a number is from."""

    def __init__(self, source: str) -> None:
        self.source = source


class Derived(Source):
    """The number follows from another, or from mathematics."""


class Paper(Source):
    """The number is one that a publication or a specification gives."""


class Chosen(Source):
    """Somebody set the number: on recordings, on simulated sets, or by what is usual."""


FIXTURES: Final = Chosen("fixtures")
STUDIES: Final = Chosen("studies")
LOCATIONS: Final = Chosen("locations")
SERVICES: Final = Chosen("services")
SERVERS: Final = Chosen("servers")
HOSTS: Final = Chosen("hosts")
SIMULATED: Final = Chosen("simulated")
SIMULATED_STREAMS: Final = Chosen("streams")
FAMILIES: Final = Chosen("families")
SIGNATURES: Final = Chosen("signatures")
WEATHER: Final = Chosen("weather")
OVERHEAD: Final = Chosen("overhead")
COST: Final = Chosen("cost")
CUSTOM: Final = Chosen("custom")
SIGHT: Final = Chosen("sight")
CORPORA: Final[Mapping[str, str]] = {
    "fixtures": "the recordings in fixtures/: a program with four faults, traced in a guest",
    "locations": "programs whose code and files are known (evaluation/locations)",
    "studies": "the case studies of the paper, recorded anew (evaluation.md)",
    "services": "real services, healthy and with faults of known kind (evaluation.md)",
    "servers": "requests of real servers against their own logs (evaluation.md)",
    "hosts": "recordings of two hosts and more, and drawn worlds (decision 14)",
    "simulated": "sets drawn from distributions (evaluation/alarms.md, evaluation/ab.md)",
    "streams": "days of requests that were drawn, healthy and with slowdowns (evaluation/night)",
    "families": "families of paths that were drawn, seeds of 50,000 and above (decision 8)",
    "signatures": "workloads counted on several days (evaluation.md, signatures)",
    "weather": "faults that were reported publicly, beside busy neighbours (evaluation/weather)",
    "overhead": "programs recorded under a budget (evaluation.md, what recording costs)",
    "cost": "no answers: what it takes in time and memory",
    "custom": "no recordings: what is usual in statistics, or what readers expect",
    "sight": "no recordings: how an answer reads",
}


class Parameter(Generic[N]):
    """One number; as an attribute of its group it is the number itself.

    Parameters
    ----------
    value
        As it is declared.
    unit : str
        What it counts, or what it is a share or a multiple of.
    what : str
        Read after the unit: "2 times as long may a state last".
    source : Derived, Paper or Chosen
    guards : str
        What it is there for, if no recording that critpath is tried on needs it.
    """

    def __init__(self, value: N, unit: str, what: str, source: Source, guards: str = "") -> None:
        self.value = value
        self.declared = value
        self.unit = unit
        self.what = what
        self.source = source
        self.guards = guards
        self.name = ""

    def __get__(self, group: object, of: type | None = None) -> N:
        return self.value

    def __set__(self, group: object, value: N) -> None:
        raise AttributeError(f"{self.name} is declared: see critpath.schema.parameters.overridden")


class Group:
    """Numbers of one subject, each an attribute of its declaration's name.

    ``guards`` is what they are there for where no recording that critpath is tried on needs them.
    """

    groups: ClassVar[list[type[Group]]] = []
    name: ClassVar[str]

    def __init_subclass__(cls, name: str, guards: str = "") -> None:
        if any(group.name == name for group in cls.groups):
            raise TypeError(f"two groups of numbers are called {name}")
        cls.name = name
        cls.groups.append(cls)
        for attribute, found in vars(cls).items():
            if isinstance(found, Parameter):
                found.name = f"{name}.{attribute}"
                found.guards = found.guards or guards


@cache
def list_parameters() -> Mapping[str, Parameter[Number]]:
    """Return every parameter by its name, such as ``machine.pace``, as they are declared."""
    import pkgutil  # noqa: PLC0415 - not for every command
    from importlib import import_module  # noqa: PLC0415 - as above

    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    return {
        found.name: cast("Parameter[Number]", found)
        # Whatever was imported first.
        for group in sorted(Group.groups, key=lambda one: one.__module__)
        for found in vars(group).values()
        if isinstance(found, Parameter)
    }


@cache
def read_sensitivities() -> Mapping[str, Any]:
    """Return what evaluation/parameters.py found: which answers change with which number.

    ``cases`` has the names of what was answered; ``parameters`` has for each number that an answer
    reads in how many it does (``read``), and for ``0.5`` and ``2`` (halved, doubled) the ``value``
    and the answers of which the ``verdict``, or else the first ``cause``, became another.
    """
    import json  # noqa: PLC0415 - not for every command
    from pathlib import Path  # noqa: PLC0415 - as above

    file = Path(__file__).parents[1] / "sensitivities.json"
    found: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


@contextmanager
def overridden(name: str, value: Number) -> Iterator[None]:
    """Give a parameter another value for the while, in all threads of this process.

    What was computed from it before, and other processes, keep what they have.

    Raises
    ------
    KeyError
        No parameter has this name.
    """
    parameter = list_parameters()[name]
    before, parameter.value = parameter.value, value
    try:
        yield
    finally:
        parameter.value = before
