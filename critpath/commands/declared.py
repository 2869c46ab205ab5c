"""What a verb takes, declared: options, operands and actions as data, of which grammar is made."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Final

from critpath.records import dataclass


@dataclass(frozen=True)
class VerbOption:
    """An option or an operand: its names, and the arguments of argparse for it."""

    names: tuple[str, ...]
    given: dict[str, Any]


@dataclass(frozen=True)
class SubVerb:
    """A verb of a verb: ``critpath baseline save``."""

    what: str
    run: Callable[..., int]
    options: tuple[VerbOption, ...]
    settings: tuple[str, ...] = ()


# Alternatives, of which one may be given.
Options = tuple[VerbOption | tuple[VerbOption, ...], ...]


def option(
    names: str,
    metavar: str | tuple[str, ...] | None,
    shown: str,
    parse: Callable[[Any], Any] | None = None,
    default: Any = None,
    **given: Any,
) -> VerbOption:
    """Declare an option, or an operand, that takes a value; its text is as argparse has it."""
    given |= {"help": shown}
    if default is not None:
        given["default"] = default
    if metavar is not None:
        given["metavar"] = metavar
    if parse is not None:
        given["type"] = parse
    return VerbOption(tuple(names.split()), given)


def flag(names: str, shown: str) -> VerbOption:
    """Declare an option without a value."""
    return VerbOption(tuple(names.split()), {"action": "store_true", "help": shown})


def command(metavar: str, shown: str) -> VerbOption:
    """Declare the rest of the line: a command with its own options."""
    return VerbOption(
        ("command",), {"metavar": metavar, "nargs": argparse.REMAINDER, "help": shown}
    )


def either(*options: VerbOption) -> tuple[VerbOption, ...]:
    """Declare options of which one may be given."""
    return options


# What several verbs take.
FORCE: Final = flag("--force", "replace FILE if it exists")
VERBOSE: Final = flag("-v --verbose", "a line after every block")
TO: Final = option("-o --output", "FILE", "where to (default: - for stdout)", default="-")
JSON: Final = option("--json", "FILE", "write everything as JSON (- for stdout)")
RECORDINGS: Final = "recordings, directories of them, CTF traces, saved paths"
