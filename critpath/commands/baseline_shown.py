"""What is in a baseline, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from critpath.commands.output import STDOUT, make_console, write_output
from critpath.units import format_ns, plural

if TYPE_CHECKING:
    from critpath.baseline.format import Baseline, Session
    from critpath.model import PathSet

FORMAT: Final = "critpath/baseline-summary/1"
# What tells one machine and tracer from another; see critpath.detect.circumstances.
_FACTS: Final = {
    "hostname": "host",
    "kernel_release": "kernel",
    "tracer_name": "tracer",
    "recorded_cpu": "processor",
    "recorded_cpus": "cpus",
    "recorded_profile": "profile",
}


def show(baseline: Baseline, *, as_json: bool) -> None:
    """Print a baseline's contents on stdout."""
    document = summary(baseline)
    if as_json:
        from critpath.report.document.as_json import to_json  # noqa: PLC0415 - start-up time

        write_output(STDOUT, to_json(document))
    else:
        _print(document)


def summary(baseline: Baseline) -> dict[str, Any]:
    """Return a baseline's contents, less the paths themselves, as plain data."""
    from critpath.baseline.format import FORMAT as BASELINE  # noqa: PLC0415 - numpy

    return {
        "format": FORMAT,
        "baseline": BASELINE,
        "critpath": baseline.version,
        "interrupts": baseline.interrupts,
        "sessions": [_session(session) for session in baseline.sessions],
    }


def _session(session: Session) -> dict[str, Any]:
    from critpath.baseline.format import mean_times  # noqa: PLC0415 - numpy
    from critpath.pipeline import with_switches  # noqa: PLC0415 - numpy

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
        "means": {name: mean for name, mean, _ in mean_times(paths)},
        **{name: _fact(paths, key) for key, name in _FACTS.items()},
        "warnings": list(with_switches(paths).warnings),
    }


def _fact(paths: PathSet, key: str) -> list[str]:
    return sorted({str(e[key]) for e in paths.environment if key in e})


def _print(document: dict[str, Any]) -> None:
    from critpath.report.text.table import print_line  # noqa: PLC0415 - rich

    console = make_console()
    sessions = document["sessions"]
    count = sum(one["executions"] for one in sessions)
    told = "told apart" if document["interrupts"] else "counted as running"
    print_line(
        console,
        f"{plural(count, 'execution')} of {plural(len(sessions), 'recording')}, "
        f"saved by critpath {document['critpath']}, interrupts {told}",
        style="bold",
    )
    for one in sessions:
        console.print()
        print_line(console, ", ".join(one["sources"]), style="bold")
        print_line(console, f"  recorded    {_recorded(one)}")
        print_line(console, f"  executions  {_executions(one)}")
        print_line(console, f"  mean        {_means(one['means'])}")
        for warning in one["warnings"]:
            print_line(console, f"  warning: {warning}", style="yellow")


def _recorded(one: dict[str, Any]) -> str:
    when = [", ".join(filter(None, one["recorded"])) or "at an unknown time"]
    hosts, kernels = ", ".join(one["host"]), ", ".join(one["kernel"])
    where = [f"on {hosts}"] * bool(hosts) + [f"(kernel {kernels})"] * bool(kernels)
    by = [f"by {', '.join(one['tracer'])}"] * bool(one["tracer"])
    machine = [f"{', '.join(one['cpus'])} cpus"] * bool(one["cpus"])
    facts = [*machine, *one["processor"], *(f"profile {name}" for name in one["profile"])]
    return ", ".join([" ".join([*when, *where, *by]), *facts])


def _executions(one: dict[str, Any]) -> str:
    out = f", {one['left_out']:,} more left out" if one["left_out"] else ""
    lossy = f", {one['lossy']:,} overlap a loss" if one["lossy"] else ""
    spec = f"{one['executions']:,}{out}{lossy} ({one['specification']})"
    return f"{spec}; {_labels(one['labels'])}" if one["labels"] else spec


def _means(means: dict[str, int]) -> str:
    states = sorted(means.items(), key=lambda pair: (-pair[1], pair[0]))
    listed = ", ".join(f"{state} {format_ns(ns)}" for state, ns in states if state != "total")
    return f"{format_ns(means['total'])}: {listed}"


def _labels(labels: dict[str, int]) -> str:
    return ", ".join(f"{label} {count:,}" for label, count in labels.items())
