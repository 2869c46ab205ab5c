"""``critpath export``: what was saved, in the formats of other programs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from critpath.commands.output import STDOUT, check_outputs, hint, write_output
from critpath.commands.saved import load_comparison
from critpath.commands.settings import Settings
from critpath.errors import UsageError
from critpath.units import plural

SUMMARY = "write a saved comparison's alignments, or their guide trees, for other programs"
SETTINGS = ()

Render = Callable[[dict[str, Any], Sequence[dict[str, Any]]], str]


def _alignments(document: dict[str, Any], aligned: Sequence[dict[str, Any]], as_: str) -> str:
    from critpath.report.alignments import write_alignments  # noqa: PLC0415 - start-up time

    return write_alignments(document, aligned, as_)


def _trees(_: dict[str, Any], aligned: Sequence[dict[str, Any]]) -> str:
    from critpath.report.alignments import write_trees  # noqa: PLC0415 - start-up time

    return write_trees(aligned)


@dataclass(frozen=True)
class Format:
    """How one format is written.

    Attributes
    ----------
    render : callable
        Takes the document and those of its alignments that are wanted, returns text.
    endings : tuple of str
        File names that ask for it.
    several : bool
        A file may hold more than one.
    """

    render: Render
    endings: tuple[str, ...]
    several: bool


FORMATS: Final[dict[str, Format]] = {
    "fasta": Format(partial(_alignments, as_="fasta"), (".fasta", ".fa", ".afa"), several=False),
    "clustal": Format(partial(_alignments, as_="clustal"), (".aln", ".clustal"), several=False),
    "stockholm": Format(
        partial(_alignments, as_="stockholm"), (".sto", ".stk", ".stockholm"), several=True
    ),
    "newick": Format(_trees, (".nwk", ".newick", ".tree"), several=True),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes beside settings."""
    parser.add_argument("result", metavar="RESULT", help="of compare --json (- for stdin)")
    parser.add_argument(
        "--format", choices=tuple(FORMATS), help="what to write (default: by the ending of FILE)"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", default=STDOUT, help="where to (default: - for stdout)"
    )
    parser.add_argument(
        "--execution",
        metavar="ID",
        action="append",
        help="only the alignment of this execution, as the report names it; may be repeated "
        "(default: all)",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write and return 0: the verdict was given when the comparison was made."""
    format_ = _format(arguments)
    inputs = [] if arguments.result == STDOUT else [Path(arguments.result)]
    check_outputs([arguments.output], inputs, force=arguments.force)
    document = load_comparison(arguments.result)
    chosen = _chosen(document, arguments)
    if len(chosen) > 1 and not FORMATS[format_].several:
        known = ", ".join(one["execution"] for one in chosen[:5]) + ", ..." * (len(chosen) > 5)
        raise UsageError(
            f"a {format_} file holds one alignment, and {arguments.result} has {len(chosen)}",
            f"choose one with --execution ({known}), or take --format stockholm for all",
        )
    write_output(arguments.output, FORMATS[format_].render(document, chosen))
    if arguments.output != STDOUT:
        what = "guide tree" if format_ == "newick" else "alignment"
        hint(f"{plural(len(chosen), what)} written to {arguments.output}", quiet=settings["quiet"])
    return 0


def _format(arguments: argparse.Namespace) -> str:
    if arguments.format is not None:
        return str(arguments.format)
    ending = Path(arguments.output).suffix.lower()
    for name, format_ in FORMATS.items():
        if ending in format_.endings:
            return name
    raise UsageError(
        "which format to write is not said"
        if arguments.output == STDOUT
        else f"the name {arguments.output} does not say which format to write",
        f"add --format {'|'.join(FORMATS)}",
    )


def _chosen(document: dict[str, Any], arguments: argparse.Namespace) -> Sequence[dict[str, Any]]:
    aligned: list[dict[str, Any]] = document["aligned"]
    if not aligned:
        raise UsageError(
            f"{arguments.result} has no alignment: no execution of it was found anomalous",
            "compare with a sample that is slower, or with --rule paper",
        )
    wanted = arguments.execution
    if not wanted:
        return aligned
    chosen = [one for one in aligned if one["execution"] in wanted]
    missing = [name for name in wanted if name not in {one["execution"] for one in chosen}]
    if missing:
        names = ", ".join(one["execution"] for one in aligned[:5])
        raise UsageError(
            f"{arguments.result} has no alignment of execution {missing[0]}",
            f"name one of {names}" + ", ..." * (len(aligned) > 5),
        )
    return chosen
