"""What shells complete, and the manual pages, made from the declarations of the commands."""  # noqa: INP001 - a script's part

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from critpath import __version__
from critpath.commands.overview import DESCRIPTION, EPILOG, VERBS
from critpath.commands.parser import Parser, build_parser

SHARE: Final = Path(__file__).resolve().parent.parent / "share"
# Where shells and man look below a prefix, such as a virtual environment's or /usr.
COMPLETIONS: Final = {
    "bash": SHARE / "bash-completion" / "completions" / "critpath",
    "zsh": SHARE / "zsh" / "site-functions" / "_critpath",
    "fish": SHARE / "fish" / "vendor_completions.d" / "critpath.fish",
}
MANUAL: Final = SHARE / "man" / "man1"
_ABOVE: Final = Parser(prog="critpath", description=DESCRIPTION, add_help=False)
# What stands for a file or a directory, among the names of values.
_PLACES: Final = {
    *("FILE", "DIR", "TRACE", "SOURCE", "NORMAL", "SAMPLE", "RECORDING", "REC", "STORE", "OUT"),
    *("PAGE", "BASELINE", "A", "B"),
}


def files() -> dict[Path, str]:
    """Return every file below share/, by its place."""
    import shtab  # noqa: PLC0415 - of the group docs

    parser = build_parser(VERBS)
    for action in _actions(parser):
        shown = action.metavar if isinstance(action.metavar, str) else ""
        if shown.partition(".")[0] in _PLACES or action.nargs == argparse.REMAINDER:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # how shtab is told
    found = {place: shtab.complete(parser, shell) for shell, place in COMPLETIONS.items()}
    for parser_of_page in _pages(build_parser(VERBS)):
        name = parser_of_page.prog.replace(" ", "-")
        found[MANUAL / f"{name}.1"] = _manual(name, parser_of_page)
    return found


def _pages(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield what has a manual page: critpath, and each verb."""
    yield parser
    yield from getattr(_choices(parser), "choices", {}).values()


def _choices(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[Parser] | None:
    actions = parser._actions  # noqa: SLF001 - argparse shows them nowhere else
    return next((a for a in actions if isinstance(a, argparse._SubParsersAction)), None)  # noqa: SLF001 - as above


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the actions of a parser and of all below it."""
    choices = _choices(parser)
    yield from parser._actions  # noqa: SLF001 - as above
    for below in choices.choices.values() if choices else ():
        yield from _actions(below)


def _manual(name: str, parser: argparse.ArgumentParser) -> str:
    """Return one manual page; of critpath the verbs, of which each has its own."""
    from argparse_manpage.manpage import Manpage  # noqa: PLC0415 - of the group docs

    top = parser.prog == "critpath"
    if top:
        parser = argparse.ArgumentParser(
            "critpath", usage="critpath COMMAND ...", description=DESCRIPTION, epilog=EPILOG
        )
        commands = parser.add_argument_group("commands", "Each has a page: critpath-record(1).")
        for verb, what in VERBS.items():
            commands.add_argument(verb, help=what)
    # A page has no day: it is made again when what it says is another.
    page = Manpage(parser, _data={"date": " ", "project_name": "critpath", "version": __version__})
    page.prog, page.manual = name, "critpath"
    page.description = (parser.description or "").rstrip(".")
    return str(page)
