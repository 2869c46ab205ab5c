"""``critpath baseline``: what is normal, in a file that is kept with the source."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath.commands.declared import FORCE, RECORDINGS, SubVerb, flag, option
from critpath.commands.output import (
    STDOUT,
    Progress,
    as_asked,
    check_outputs,
    hint,
    make_console,
    warn,
    write_output,
)
from critpath.commands.settings import (
    COMPARING,
    READING,
    RUNNING,
    Settings,
    whole,
)
from critpath.commands.sources import check_inputs, messages_of, require_executions
from critpath.errors import CODE_BY_VERDICT, EXIT_OK, UnreadableError, UsageError
from critpath.schema.environment import Environment, list_values
from critpath.units import format_ns, plural

if TYPE_CHECKING:
    from critpath.model import PathSet
    from critpath.store import Baseline, Session

_EXECUTIONS = 300
_SESSIONS = 5
_FEW = 10


def _save(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.output == STDOUT:
        raise UsageError("a baseline cannot go to stdout", "name a file with -o")
    check_inputs(arguments.recordings)
    check_outputs([arguments.output], arguments.recordings, force=arguments.force)

    from critpath import __version__  # noqa: PLC0415 - numpy and the stages
    from critpath.model import joining  # noqa: PLC0415 - numpy and the stages
    from critpath.store import Baseline, make_sessions  # noqa: PLC0415 - start-up time

    with Progress(quiet=settings["quiet"]) as progress:
        parts = _extract(arguments.recordings, settings, progress)
        sessions = make_sessions(parts, arguments.executions)
        baseline = Baseline(sessions, settings["interrupts"], __version__)
        baseline.save(Path(arguments.output))
    quiet = settings["quiet"]
    warn(messages_of(joining.join_sets(parts)), quiet=quiet)
    left_out = sum(session.left_out for session in sessions)
    kept = sum(len(session.paths) for session in sessions)
    lossy = sum(int(session.paths.lossy.sum()) for session in sessions)
    if lossy:
        warn([f"{plural(lossy, 'run')} overlap a loss: record again"], quiet=quiet)
    if kept < _FEW:
        warn([f"{plural(kept, 'run')} can hardly tell a change from chance"], quiet=quiet)
    rest = f", {left_out:,} left out (--executions)" if left_out else ""
    hint(
        f"{baseline.describe()} saved to {arguments.output}{rest}; "
        f"next: critpath compare {arguments.output} SAMPLE{as_asked(settings)}",
        quiet=quiet,
    )
    return EXIT_OK


def _show(arguments: argparse.Namespace, settings: Settings) -> int:
    del settings
    check_baseline(arguments.file)
    from critpath.store import Baseline  # noqa: PLC0415 - start-up time

    show(Baseline.load(arguments.file), as_json=arguments.json)
    return EXIT_OK


def _update(arguments: argparse.Namespace, settings: Settings) -> int:
    check_baseline(arguments.file)
    check_inputs(arguments.recordings)
    check_outputs([str(arguments.file)], arguments.recordings)

    from critpath import __version__, flow  # noqa: PLC0415 - numpy and the stages
    from critpath.report.document import comparison_document  # noqa: PLC0415 - start-up time
    from critpath.report.text import render_comparison  # noqa: PLC0415 - start-up time
    from critpath.store import Baseline  # noqa: PLC0415 - start-up time

    with Progress(quiet=settings["quiet"]) as progress:
        baseline = Baseline.load(arguments.file)
        parts = _extract(arguments.recordings, settings, progress)
        progress("comparing")
        outcome = flow.update(
            baseline,
            arguments.file,
            parts,
            settings.for_comparing(),
            version=__version__,
            executions=arguments.executions,
            sessions=arguments.sessions,
            accept=arguments.accept,
        )
        if outcome.baseline is not None:
            outcome.baseline.save(arguments.file)
    render_comparison(comparison_document(outcome.comparison), make_console())
    quiet = settings["quiet"]
    if outcome.baseline is None:
        hint(
            f"{arguments.file} stays as it is; if this is how the program is to be from now on: "
            "the same with --accept",
            quiet=quiet,
        )
        return CODE_BY_VERDICT[outcome.comparison.verdict]
    if outcome.dropped:
        hint(f"made way: {', '.join(outcome.dropped)}", quiet=quiet)
    hint(f"{arguments.file} has {outcome.baseline.describe()} now", quiet=quiet)
    return EXIT_OK


def _extract(recordings: Sequence[Path], settings: Settings, progress: Progress) -> list[PathSet]:
    from critpath import flow  # noqa: PLC0415 - numpy and the stages

    parts = flow.extract_each(
        recordings,
        **settings.for_reading(),
        jobs=settings["jobs"],
        progress=progress,
    )
    for part in parts:
        require_executions(part, part.sources)
    return parts


def check_baseline(file: Path) -> None:
    """Refuse a baseline that is not there, before any work."""
    check_inputs([file])
    if file.is_dir():
        raise UnreadableError(
            f"{file} is a directory, no baseline",
            f"name the file, or make one of a recording: critpath baseline save {file} -o "
            "NAME.baseline.json",
        )


# What is in a baseline, for people and for programs.


FORMAT: Final = "critpath/baseline-summary/1"
# What tells one machine and tracer from another; see critpath.detect.comparability.
_FACTS: Final[Mapping[str, Callable[[Environment], str | int | None]]] = {
    "host": lambda entry: entry.hostname,
    "kernel": lambda entry: entry.kernel_release,
    "tracer": lambda entry: entry.tracer_name,
    "processor": lambda entry: entry.recorded_cpu,
    "cpus": lambda entry: entry.recorded_cpus,
    "profile": lambda entry: entry.recorded_profile,
}


def show(baseline: Baseline, *, as_json: bool) -> None:
    """Print a baseline's contents on stdout."""
    document = summary(baseline)
    if as_json:
        from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

        write_output(STDOUT, to_json(document))
    else:
        _print(document)


def summary(baseline: Baseline) -> dict[str, Any]:
    """Return a baseline's contents, less the paths themselves, as plain data."""
    from critpath.store import BASELINE_FORMAT as BASELINE  # noqa: PLC0415 - start-up time

    return {
        "format": FORMAT,
        "baseline": BASELINE,
        "critpath": baseline.version,
        "interrupts": baseline.interrupts,
        "sessions": [_session(session) for session in baseline.sessions],
    }


def _session(session: Session) -> dict[str, Any]:
    from critpath.detect import note_repaired_switches  # noqa: PLC0415 - start-up time
    from critpath.text.notes import word_all  # noqa: PLC0415 - start-up time

    paths = session.paths
    labels = paths.executions.label
    return {
        "sources": list(paths.sources),
        "recorded": list(session.recorded),
        "specification": paths.specification,
        "executions": len(paths),
        "left_out": session.left_out,
        "labels": {label: labels.count(label) for label in sorted(set(labels)) if label},
        "segments": len(paths.paths.begin),
        "lossy": int(paths.lossy.sum()),
        "means": {name: mean for name, mean, _ in paths.mean_times()},
        **{name: list_values(paths.environment, of) for name, of in _FACTS.items()},
        "warnings": word_all(note_repaired_switches(paths).warnings),
    }


def _print(document: dict[str, Any]) -> None:
    from critpath.report.text import print_line  # noqa: PLC0415 - start-up time
    from critpath.text.answer import is_usual  # noqa: PLC0415 - start-up time

    console = make_console()
    sessions = document["sessions"]
    count = sum(one["executions"] for one in sessions)
    handling = "told apart" if document["interrupts"] else "counted as running"
    print_line(
        console,
        f"{plural(count, 'run')} of {plural(len(sessions), 'recording')}, "
        f"saved by critpath {document['critpath']}, interrupts {handling}",
        style="bold",
    )
    for one in sessions:
        console.print()
        print_line(console, ", ".join(one["sources"]), style="bold")
        print_line(console, f"  recorded    {_word_recorded(one)}")
        print_line(console, f"  runs        {_word_executions(one)}")
        print_line(console, f"  mean        {_word_means(one['means'])}")
        for warning in one["warnings"]:
            usual = is_usual(warning)
            line = f"  {warning}" if usual else f"  warning: {warning}"
            print_line(console, line, style="" if usual else "yellow")


def _word_recorded(one: dict[str, Any]) -> str:
    when = [", ".join(filter(None, one["recorded"])) or "at an unknown time"]
    hosts, kernels = ", ".join(one["host"]), ", ".join(one["kernel"])
    where = [f"on {hosts}"] * bool(hosts) + [f"(kernel {kernels})"] * bool(kernels)
    by = [f"by {', '.join(one['tracer'])}"] * bool(one["tracer"])
    machine = [f"{', '.join(one['cpus'])} cpus"] * bool(one["cpus"])
    facts = [*machine, *one["processor"], *(f"profile {name}" for name in one["profile"])]
    return ", ".join([" ".join([*when, *where, *by]), *facts])


def _word_executions(one: dict[str, Any]) -> str:
    out = f", {one['left_out']:,} more left out" if one["left_out"] else ""
    lossy = f", {one['lossy']:,} overlap a loss" if one["lossy"] else ""
    spec = f"{one['executions']:,}{out}{lossy} ({one['specification']})"
    return f"{spec}; {_word_labels(one['labels'])}" if one["labels"] else spec


def _word_means(means: dict[str, int]) -> str:
    states = sorted(means.items(), key=lambda pair: (-pair[1], pair[0]))
    listed = ", ".join(f"{state} {format_ns(ns)}" for state, ns in states if state != "total")
    return f"{format_ns(means['total'])}: {listed}"


def _word_labels(labels: dict[str, int]) -> str:
    return ", ".join(f"{label} {count:,}" for label, count in labels.items())


_RECORDINGS: Final = option("recordings", "RECORDING", RECORDINGS, Path, nargs="+")
_KEPT: Final = option("--executions", "N", "runs that are kept of a recording, evenly spread "
    f"within each label; 0 for all ({_EXECUTIONS})", whole(0, 1_000_000), _EXECUTIONS)  # fmt: skip
_FILE: Final = option("file", "FILE", "a baseline", Path)

ACTIONS: Final = {
    "save": SubVerb("make a baseline of recordings", _save, (
        _RECORDINGS,
        option("-o --output", "FILE", "where to save it", required=True),
        FORCE,
        _KEPT,
    ), (*READING, *RUNNING)),
    "show": SubVerb("say what is in a baseline", _show, (
        _FILE, flag("--json", "write it as JSON"),
    )),
    "update": SubVerb("compare recordings with a baseline, and add them if nothing is slower",
        _update, (
        _FILE,
        _RECORDINGS,
        flag("--accept", "if something is slower (or nothing can be said): begin anew with the "
            "recordings"),
        option("--sessions", "K", f"recordings that are kept; the oldest make way ({_SESSIONS})",
            whole(1, 10_000), _SESSIONS),
        _KEPT,
    ), (*READING, *RUNNING, *COMPARING)),
}  # fmt: skip
