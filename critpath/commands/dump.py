"""The flight recorder: ``critpath record --always``, and ``critpath dump``, which asks it."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from critpath.commands.declared import flag, option
from critpath.commands.output import hint
from critpath.commands.settings import Settings
from critpath.errors import CritpathError, InconclusiveError, UsageError
from critpath.units import format_share as percent
from critpath.units import format_span, plural, safe_text

_ALL: Final = 0.995  # of the time, but for dumps and what was before the first second
_OVERHEAD: Final = "1%"  # where none is named
_OTHERS: Final = (
    *("all", "interleave", "container", "hosts", "runs", "duration", "then"),
    *("tasks", "counts", "kernel_functions", "keep_raw", "force"),
)
# What a recorder that works refuses a request for, and what to do then.
_REFUSED: Final = {
    "disk full": "free space where the dumps go, or keep fewer of them (record --dumps)",
    "nothing was": "allow more (record --overhead), or wait until something was recorded",
    "a dump is being made": "wait until it is there: critpath dump --status",
}


OPTIONS: Final = (
    option("directory", "DIR", "of the flight recorder (default: the one that runs)", Path,
        nargs="?"),
    option("--reason", "TEXT", "goes into the dump's manifest", default=""),
    flag("--status", "say what is held now, and what it costs"),
    flag("--stop", "end the flight recorder"),
    flag("--json", "print the answer as JSON"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Ask, and return the exit code."""
    from critpath_record import RunningFlight  # noqa: PLC0415 - start-up time

    if arguments.reason and (arguments.status or arguments.stop):
        raise UsageError("--reason with --status or --stop", "leave it out: no dump is made")
    flight = RunningFlight.find(arguments.directory)
    if arguments.status or arguments.stop:
        answer = flight.ask({"stop" if arguments.stop else "status": True}, 10)
        if arguments.json:
            print(json.dumps(answer))
        elif arguments.stop:
            hint("the flight recorder ends", quiet=settings["quiet"])
        else:
            print_status(answer)
        return 0
    answer = flight.ask({"dump": arguments.reason})
    if arguments.json:
        print(json.dumps(answer))
    if "dump" not in answer:
        raise code_of_refusal(safe_text(str(answer.get("refused"))))
    if not arguments.json:
        print(safe_text(str(answer["dump"])))
    return 0


def code_of_refusal(why: str) -> CritpathError:
    """Return what a refusal comes to: nothing to look at yet (3), or a recorder that failed."""
    what = f"no dump was made: {why}"
    for begins, do in _REFUSED.items():
        if why.startswith(begins):
            return InconclusiveError(what, do)
    return CritpathError(what, "the flight recorder's own output says more (its log, or journal)")


def print_status(answer: dict[str, Any]) -> None:
    """Print the lines of ``--status``, which a recorder of another user's may have made up."""
    try:
        lines = describe_status(answer)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CritpathError(
            f"the flight recorder answers otherwise: {type(error).__name__}",
            "take the critpath that it is of",
        ) from None
    print("\n".join(map(safe_text, lines)))


def describe_status(of: dict[str, Any]) -> list[str]:
    """Return the lines of ``--status``."""
    dumps = of["dumps"]
    lines = [
        f"running for {format_span(of['since'])}, profile {of['profile']}, process {of['pid']}"
    ]
    if "held" in of:
        overhead, covers = of["overhead"], of["covers"]
        whole = "all of the time" if covers > _ALL else f"{percent(covers)} of the time"
        held, room = format_span(of["held"]), format_span(of["room"])
        lines.append(
            f"holds {held} of {room} at the present rate, {of['used'] / 2**20:.0f} of "
            f"{of['memory'] / 2**20:.0f} MiB; recorded is {whole}"
        )
        lines.append(
            f"overhead {percent(overhead['counted'])} counted of {100 * overhead['target']:g} % "
            f"({overhead['of']}), {percent(overhead['now'])} in the last second"
        )
        if "threads" in overhead:  # a recorder of before does not say
            lines.append(f"its own threads take {percent(overhead['threads'])} of a cpu")
    refused = ", ".join(f"{n} {safe_text(why)}" for why, n in dumps["refused"].items())
    lines.append(
        f"{plural(dumps['made'], 'dump')} made, {dumps['kept']} kept, of a kind at most "
        f"{dumps['most']}, {dumps['removed']} removed; refused: {refused or 'none'}"
    )
    if dumps["last"]:
        lines.append(
            f"last: {safe_text(dumps['last'])}, gates closed for {1000 * dumps['closed']:.0f} ms; "
            f"dumps took {dumps['cpu']:.1f} s of cpu time in all"
        )
    lines += [f"when {safe_text(text)}" for text in of["conditions"]]
    return lines


def record_always(arguments: argparse.Namespace, settings: Settings) -> int:
    """Be a flight recorder until a signal, or until it is asked to stop."""
    import critpath  # noqa: PLC0415 - the version only
    from critpath.commands.record import (  # noqa: PLC0415 - as above
        check_execution,
        find_stacks,
        make_budget,
    )
    from critpath_record import (  # noqa: PLC0415 - start-up time
        PROFILES,
        Condition,
        Flight,
        FlightRequest,
        User,
    )

    wrong = [name for name in _OTHERS if getattr(arguments, name)]
    if arguments.command or wrong:
        what = f"--{wrong[0].replace('_', '-')}" if wrong else "a command"
        raise UsageError(
            f"--always together with {what}", "critpath record --always [--when COND] -o DIR"
        )
    if settings["recorder"] not in {"auto", "ftrace"}:
        raise UsageError(
            f"--always with --recorder {settings['recorder']}", "leave --recorder out: ftrace can"
        )
    if arguments.output is None:
        raise UsageError("--always without a directory for dumps", "name one: -o DIR")
    if settings["overhead-of"] == "command":
        raise UsageError("--overhead-of command without a command", "busiest, or machine")
    given = settings.origins["profile"] != "default"
    budget = make_budget(settings, commands=False)
    if budget is None:
        asked = {**settings.values, "overhead": _OVERHEAD}
        budget = make_budget(replace(settings, values=asked), commands=False)
    if budget is None:
        raise RuntimeError("there is a default")
    conditions = tuple(Condition.parse(text) for text, _ in settings["when"])
    # Who asks for slow marked executions will ask for the paths of those.
    marked = "marker" if any(one.word == "latency" and not one.window for one in conditions) else ""
    specification = settings["execution"] or marked
    if specification != marked:
        check_execution(specification)
    if "traceparent" in (arguments.labels_from or ""):
        raise UsageError(
            f"--always with --labels-from {arguments.labels_from}",
            "--labels-from bytes or bytes,tls: trace ids are kept by a recording, not by a flight "
            "recorder",
        )
    user = User.behind_sudo(os.environb, as_root=arguments.as_root) or User.behind_helper()
    request = FlightRequest(
        directory=arguments.output,
        budget=budget,
        keep=settings["keep"],
        memory=settings["memory"],
        conditions=conditions,
        at_most=settings["at-most"],
        dumps=settings["dumps"],
        usual=settings["usual"],
        after=settings["after"],
        profiles=(str(settings["profile"]),) if given else PROFILES,
        execution=specification,
        version=critpath.__version__,
        mark_users=User.find_markers(arguments.marks_from, user),
        marks_required=arguments.marks_from not in {"", "none"},
        stacks=find_stacks(arguments, settings, commands=False),
        functions=arguments.functions,
        labels=bool(arguments.labels_from),
        tls="tls" in (arguments.labels_from or ""),
    )
    quiet = settings["quiet"]

    def say(line: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads it any more: no reason to end
            hint(f"critpath: {line}", quiet=quiet and not line.startswith("warning: "))

    # What goes on for months is tidied as Python does by itself, not as a short command is; less
    # what there is by now.
    gc.freeze()
    gc.set_threshold(700, 10, 10)
    return Flight(request, say).run()
