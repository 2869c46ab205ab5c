"""What a verb takes, declared: options, operands and actions as data, of which grammar is made."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Option:
    """An option or an operand: its names, and what argparse is told of it."""

    names: tuple[str, ...]
    given: dict[str, Any]


@dataclass(frozen=True)
class Action:
    """A verb of a verb: ``critpath baseline save``."""

    what: str
    run: Callable[..., int]
    options: tuple[Option, ...]
    settings: tuple[str, ...] = ()


# Alternatives, of which one may be given.
Options = tuple[Option | tuple[Option, ...], ...]


def option(
    names: str,
    metavar: str | tuple[str, ...] | None,
    shown: str,
    parse: Callable[[Any], Any] | None = None,
    default: Any = None,
    **given: Any,
) -> Option:
    """Declare an option, or an operand, that takes a value; its text is as argparse has it."""
    given |= {"help": shown}
    if default is not None:
        given["default"] = default
    if metavar is not None:
        given["metavar"] = metavar
    if parse is not None:
        given["type"] = parse
    return Option(tuple(names.split()), given)


def flag(names: str, shown: str) -> Option:
    """Declare an option without a value."""
    return Option(tuple(names.split()), {"action": "store_true", "help": shown})


def command(metavar: str, shown: str) -> Option:
    """Declare the rest of the line: a command with its own options."""
    return Option(("command",), {"metavar": metavar, "nargs": argparse.REMAINDER, "help": shown})


def either(*options: Option) -> tuple[Option, ...]:
    """Declare options of which one may be given."""
    return options


# What several verbs take.
FORCE: Final = flag("--force", "replace FILE if it exists")
VERBOSE: Final = flag("-v --verbose", "a line after every block")
TO: Final = option("-o --output", "FILE", "where to (default: - for stdout)", default="-")
JSON: Final = option("--json", "FILE", "write everything as JSON (- for stdout)")
RECORDINGS: Final = "recordings, directories of them, CTF traces, extract files"
