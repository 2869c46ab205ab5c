"""``critpath compare``: is the sample slower than the normal set, and why."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import structs

from critpath.commands.declared import flag, option
from critpath.commands.output import Progress, hint, warn
from critpath.commands.reports import OUTPUTS, wanted_outputs, write_reports
from critpath.commands.settings import (
    CODING,
    COMPARING,
    KNOWING,
    LINKING,
    READING,
    RUNNING,
    Settings,
)
from critpath.commands.sources import check_inputs, extract_sources
from critpath.errors import (
    CODE_BY_VERDICT,
    EXIT_ANOMALY,
    EXIT_OK,
    UnreadableError,
    UnspecifiedError,
    UsageError,
)
from critpath.extras import require
from critpath.units import safe_text

if TYPE_CHECKING:
    from critpath.documents import ComparisonDocument, KnownEntry
    from critpath.model import Analysis, PathSet

SETTINGS = (*READING, *RUNNING, *COMPARING, *CODING, *LINKING, *KNOWING)

# What --help shows together; the last group has the rest.
GROUPS: Final = {
    "everyday": ("html", "explore", "verbose", "why", "execution", "json", "jobs", "trace-url"),
    "seen before": ("known", "known-always"),
    "gate, for CI": (
        *("gate", "floor", "least", "alpha", "level", "minimum-executions", "strict-environment"),
        "fail-on-machine",
        *("allow-missing-baseline", "junit", "markdown", "github", "session-spread"),
    ),
    "method": (),
}


_SET: Final = "is {}: a recording, a directory of them, a CTF trace, saved paths, a baseline"
OPTIONS: Final = (
    option("normal", "NORMAL", f"what {_SET.format('known to be good')}", Path),
    option("sample", "SAMPLE", f"what {_SET.format('to be judged')}", Path),
    flag("--allow-missing-baseline", "if NORMAL does not exist, say so and exit with 0: for the "
        "first run of a CI job"),
    option("--explore", "FILE", "write a page on which to ask what the slow ones after the change "
        "have in common, and link it in the report of --html; inline: as a part of that report"),
    flag("--known-always", "look what was found up in --known STORE even where it is no anomaly"),
    flag("--why", "print what the verdict rests on, why the causes are in their order, which "
        "numbers were used, and what would have turned the answer"),
    *OUTPUTS,
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Compare, write what was asked for and return the verdict's exit code."""
    sources = [arguments.normal, arguments.sample]
    if not os.path.lexists(arguments.normal):
        absent = missing_baseline(arguments.normal, arguments.sample)
        if not arguments.allow_missing_baseline:
            raise absent
        check_inputs([arguments.sample])
        warn([f"{absent.what}: nothing was compared"], quiet=False)
        hint(absent.do, quiet=settings["quiet"])
        return EXIT_OK
    check_inputs(sources)
    if settings["known"]:
        require("--known", "known")
    outputs = wanted_outputs(arguments, sources, settings["trace-url"])
    written = bool(outputs.places) or outputs.github
    comparison = compare_sources(arguments.normal, arguments.sample, settings, flame=written)
    comparison = warn_swapped_arguments(comparison, arguments.normal, arguments.sample)

    from critpath.documents import SLOWER  # noqa: PLC0415 - as above
    from critpath.report.document import comparison_document  # noqa: PLC0415 - start-up time
    from critpath.text.notes import Words  # noqa: PLC0415 - as above
    from critpath.text.phrases import VERDICTS  # noqa: PLC0415 - as above

    explore = _explore(comparison, sources, settings) if outputs.explore else ""
    with Progress(quiet=settings["quiet"]) as progress:
        progress(f"{VERDICTS[comparison.verdict]}; drawing up the answer")
        document = comparison_document(comparison, entries=written)
    if settings["known"] and (comparison.verdict in SLOWER or arguments.known_always):
        document.known = look_up(document, sources, settings)
    write_reports(document, outputs, explore)
    if arguments.why:
        _print_why(comparison, document, to_stderr=outputs.to_stdout)
    if outputs.to_stdout:
        types = Words(types=comparison.name_types())
        warn(comparison.warnings, quiet=settings["quiet"], words=types)
    if comparison.verdict == "by_machine" and settings["fail-on-machine"]:
        return EXIT_ANOMALY
    return CODE_BY_VERDICT[comparison.verdict]


def _print_why(comparison: Analysis, document: ComparisonDocument, *, to_stderr: bool) -> None:
    """Print what the answer rests on, in lines as wide as the terminal."""
    from critpath.commands.output import make_console  # noqa: PLC0415 - start-up time
    from critpath.text.why import explain_answer  # noqa: PLC0415 - as above

    width = make_console().width
    for line in ("", *explain_answer(comparison, document)):
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        for part in textwrap.wrap(line, width, subsequent_indent=indent) or [""]:
            print(part, file=sys.stderr if to_stderr else sys.stdout)


def look_up(document: ComparisonDocument, sources: list[Path], settings: Settings) -> KnownEntry:
    """Return whether the store knows what became slower; it changes no verdict."""
    from critpath.flow import look_up_comparison  # noqa: PLC0415 - as above
    from critpath.known import open_store  # noqa: PLC0415 - numpy and the stages
    from critpath.signatures import SignSettings  # noqa: PLC0415 - as above
    from critpath.stores import open_place  # noqa: PLC0415 - start-up time

    with Progress(quiet=settings["quiet"]) as progress:
        progress("looking up what was seen before")
        store = open_store(open_place(settings["known"]))
        return look_up_comparison(
            *(store, document, (sources[0], sources[1])),
            SignSettings(reader=settings["reader"]),
            level=settings["known-level"],
        )


def _explore(comparison: Analysis, sources: list[Path], settings: Settings) -> str:
    """Return the page to explore the executions of both sets on."""
    from critpath.explore import SAMPLE, explore, facts_of  # noqa: PLC0415 - numpy and the stages
    from critpath.model import joining  # noqa: PLC0415 - numpy and the stages
    from critpath.report.explore import render_page  # noqa: PLC0415 - as above

    with Progress(quiet=settings["quiet"]) as progress:
        progress("looking at what the slow ones have in common")
        paths = joining.join_sets([comparison.normal, comparison.sample])
        known = facts_of(paths, normal=len(comparison.normal.sources))
        exploration = explore(paths, given=[SAMPLE], facts=known)
        return render_page(
            exploration, paths, command=list(map(str, sources)), trace_url=settings["trace-url"]
        )


def warn_swapped_arguments(comparison: Analysis, normal: Path, sample: Path) -> Analysis:
    """Add a warning if SAMPLE is a baseline and NORMAL is none."""
    from critpath.store import find_format  # noqa: PLC0415 - numpy

    if find_format(sample) != "baseline" or find_format(normal) == "baseline":
        return comparison
    warning = (
        f"SAMPLE, {sample}, is a baseline and NORMAL is none: is the order wrong? "
        f"critpath compare {sample} {normal}"
    )
    return structs.replace(comparison, warnings=(warning, *comparison.warnings))


def missing_baseline(normal: Path, sample: Path) -> UnreadableError:
    """Return what is wrong if there is nothing to compare with, and how to come by it."""
    if "baseline" not in normal.name and normal.suffix != ".json":
        return UnreadableError(
            f"{normal} does not exist",
            "name a recording, a directory of them, a CTF trace, saved paths or a baseline",
        )
    good = "RECORDING" if sample.suffix == ".json" else str(sample)
    return UnreadableError(
        f"the baseline {normal} does not exist",
        f"make it of a recording that is known to be good: critpath baseline save {good} "
        f"-o {normal}",
    )


def compare_sources(
    normal: Path, sample: Path, settings: Settings, *, flame: bool = True
) -> Analysis:
    """Extract both sets and compare them."""
    from critpath import flow, graph  # noqa: PLC0415 - numpy and the stages

    with Progress(quiet=settings["quiet"]) as progress:

        def extract(source: Path) -> PathSet:
            progress(f"reading {source}")
            paths = extract_sources([source], settings, progress)
            return graph.mark_own(paths, settings["own"], settings["not-own"])

        before = extract(normal)
        try:
            after = extract(sample)
        except UnspecifiedError as error:
            kept = shlex.quote(before.specification)
            raise UsageError(
                error.what, f"--execution {safe_text(kept)} chooses the same as before"
            ) from None
        sets = before, after
        progress("comparing")
        return flow.compare(*sets, settings.for_comparing(), progress=progress, flame=flame)
