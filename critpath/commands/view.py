"""``critpath view``: a window of a recording on one page, threads and CPUs over time."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands.declared import option
from critpath.commands.output import STDOUT, Progress, check_outputs, hint, warn, write_output
from critpath.commands.path import choose_paths
from critpath.commands.settings import READING, Settings, whole
from critpath.commands.sources import check_inputs, extract_sources, messages_of
from critpath.errors import UsageError

if TYPE_CHECKING:
    from critpath.model import PathSet

SETTINGS = READING
_MARGIN: Final = 10  # of an execution: a tenth before and behind it is shown, too

OPTIONS: Final = (
    option("trace", "TRACE", "a recording, a set of hosts' or a CTF trace", Path),
    option("--around", "ID", "the run or request that reports name so, or those of the trace "
        "with this id: its window and a tenth more, its critical path lit", dest="id",
        action="append"),
    option("--from", "NS", "begin of the window, in ns of the trace's clock (default: the "
        "recording's)", whole(0, 2**63 - 1), dest="begin"),
    option("--to", "NS", "end of the window, likewise", whole(0, 2**63 - 1), dest="end"),
    option("--tid", "N", "light this thread's critical path through the window",
        whole(1, 2**31 - 1)),
    option("-o --output", "FILE", "the page, - for stdout (default: view.html)",
        default="view.html"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write the page and return 0."""
    from critpath.store import find_format  # noqa: PLC0415 - numpy

    check_inputs([arguments.trace])
    check_outputs([arguments.output], [arguments.trace])
    if find_format(arguments.trace) in {"paths", "dataset"}:
        raise UsageError(
            f"a window is of a trace, and {arguments.trace} holds paths alone",
            "name the recording that they were extracted from",
        )
    begin, end = arguments.begin, arguments.end
    if None not in {begin, end} and begin >= end:
        raise UsageError("--from is not before --to", "exchange them")
    if arguments.id and arguments.tid is not None:
        raise UsageError("--around together with --tid", "name the run or the thread")
    with Progress(quiet=settings["quiet"]) as progress:
        path, source = _path(arguments, settings, progress), arguments.trace
        if path is not None:
            source = Path(path.sources[int(path.session[0])])
        if arguments.id and path is not None:
            least, most = int(path.executions.begin.min()), int(path.executions.end.max())
            more = (most - least) // _MARGIN
            begin = max(least - more, 0) if begin is None else begin
            end = most + more if end is None else end
            path = _longest(path)
        progress("drawing the page")
        page, left = _render(arguments, settings, source, (begin, end), path)
    if path is not None:
        warn(messages_of(path), quiet=settings["quiet"])
    if left:
        warn([left], quiet=settings["quiet"])
    write_output(arguments.output, page)
    if arguments.output != STDOUT:
        hint(f"{arguments.output}: open it in a browser", quiet=settings["quiet"])
    return 0


def _render(
    arguments: argparse.Namespace,
    settings: Settings,
    source: Path,
    asked: tuple[int | None, int | None],
    path: PathSet | None,
) -> tuple[str, str]:
    from critpath import timeline  # noqa: PLC0415 - numpy and the stages
    from critpath.report.view import render_window  # noqa: PLC0415 - as above

    begin, end = asked
    events, timelines = timeline.read_timelines(
        source, settings["reader"], begin=begin, end=end, max_memory=settings["max-memory"]
    )
    low = max(events.begin, events.begin if begin is None else begin)
    high = min(events.end, events.end if end is None else end)
    if low >= high:
        raise UsageError(
            f"nothing was recorded between {begin if begin is not None else low} and "
            f"{end if end is not None else high}",
            f"the recording lasts from {events.begin} to {events.end}",
        )
    return render_window(
        timelines,
        span=(low, high),
        hosts=events.hosts,
        path=path,
        recording=str(arguments.trace),
        command=_command(arguments, settings),
    )


def _path(arguments: argparse.Namespace, settings: Settings, progress: Progress) -> PathSet | None:
    """Return the executions or the thread whose path is asked for."""
    progress(f"reading {arguments.trace}")
    if arguments.id:
        paths = extract_sources(
            *([arguments.trace], settings, progress), jobs=None, bystanders=True
        )
        return choose_paths(paths, arguments)
    if arguments.tid is None:
        return None
    from critpath import graph  # noqa: PLC0415 - numpy and the stages

    paths = graph.thread_paths(
        arguments.trace,
        tid=arguments.tid,
        comm=None,
        begin=arguments.begin,
        end=arguments.end,
        reader=settings["reader"],
        interrupts=settings["interrupts"],
        max_memory=settings["max-memory"],
    )
    if not len(paths):
        raise UsageError(
            f"no thread {arguments.tid} in {arguments.trace} within the window",
            f"critpath path {arguments.trace} --execution thread shows every thread",
        )
    return _longest(paths)


def _longest(paths: PathSet) -> PathSet:
    """Return the one that lasts longest: of a request, what asked for all the others."""
    lengths = paths.executions.end - paths.executions.begin
    return paths.take(lengths.argsort(kind="stable")[-1:])


def _command(arguments: argparse.Namespace, settings: Settings) -> str:
    words = ["critpath", "view", str(arguments.trace)]
    for name, value in (("--from", arguments.begin), ("--to", arguments.end)):
        words += [name, str(value)] if value is not None else []
    words += [word for one in arguments.id or () for word in ("--around", one)]
    words += ["--tid", str(arguments.tid)] if arguments.tid is not None else []
    if settings.origins["execution"] == "command line":
        words += ["--execution", settings["execution"]]
    return shlex.join(words)
