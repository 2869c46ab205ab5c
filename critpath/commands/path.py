"""``critpath path``: the critical path of a thread, or of every execution; or what is there."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from msgspec import structs

from critpath.commands.declared import FORCE, TO, either, flag, option
from critpath.commands.formats import format_by_ending, format_name
from critpath.commands.looking import FORMATS as LOOKS
from critpath.commands.looking import ROWS_OF, SORTS, is_asked, names_paths, show_look
from critpath.commands.output import (
    STDOUT,
    Progress,
    check_outputs,
    check_terminal,
    hint,
    make_console,
    warn,
    write_output,
    write_pieces,
)
from critpath.commands.settings import CODING, READING, Settings, whole
from critpath.commands.sources import (
    check_inputs,
    extract_sources,
    messages_of,
    no_executions,
    words_of,
)
from critpath.errors import UnspecifiedError, UsageError
from critpath.report.exports import FORMATS, PATHS, WINDOW
from critpath.stores import show_place
from critpath.units import format_ns, format_share, plural, safe_text

if TYPE_CHECKING:
    from critpath.executions import ListedRow
    from critpath.model import PathSet

SETTINGS = (*READING, *CODING)
_SOME_IDS = 5
_LEAST_TRACE = 32  # letters of a trace's id
_SHOWN = ("text", "json")
_WRITTEN = tuple(name for name, format_ in FORMATS.items() if format_.of in {PATHS, WINDOW})


OPTIONS: Final = (
    option("trace", "TRACE", "a recording or CTF trace", Path),
    either(
        option("--tid", "N", "this thread's whole life", whole(1, 2**31 - 1)),
        option("--comm", "NAME", "every thread of this name"),
    ),
    option("--from", "NS", "begin of the window, in ns of the trace's clock", whole(0, 2**63 - 1),
        dest="begin"),
    option("--to", "NS", "end of the window, in ns of the trace's clock", whole(0, 2**63 - 1),
        dest="end"),
    option("--id", "ID", "only the run that reports name so, or those of the trace with this "
        "id; may be repeated (default: all)", action="append"),
    flag("--segments", "text: what each run did in order of time, not where those of each "
        "label spend their time"),
    flag("--look", "what is there: load, processes and threads, who waited for a CPU and what "
        "blocks them; also without this where nothing says what a run is"),
    option("--sort", None, "of a look, what comes first (default: cpu)", choices=SORTS),
    option("--top", "N", "of a recording with stacks, the N places in the code where most of the "
        "time goes; of a look, the first N threads", whole(1, 10_000)),
    option("--by", None, "tier: of requests, what each service takes by itself and what it asks of "
        "others, on average; process or thread: of a look, these alone",
        choices=("tier", *ROWS_OF)),
    option("--format", None, "json: one object a line; csv: a look; graphml: the graph of one "
        "window (default: by the ending of FILE, text for stdout)", format_name,
        choices=(*_SHOWN, "csv", *_WRITTEN)),
    TO,
    flag("--all-threads", "graphml of a path: also the threads that are not on it and woke none "
        "that is"),
    flag("--partial", "of a recording under a budget, show the runs that were not recorded "
        "whole"),
    FORCE,
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Show or write the paths and return the exit code."""
    check_inputs([arguments.trace])
    name = _format(arguments)
    if arguments.all_threads and not (name in FORMATS and FORMATS[name].of == WINDOW):
        raise UsageError("--all-threads is for the graph of a window", "add --format graphml")
    check_outputs([arguments.output], [arguments.trace], force=arguments.force)
    check_terminal(arguments.output, name, binary=name in FORMATS and FORMATS[name].binary)
    if is_asked(arguments) or name == "csv":
        show_look(arguments, settings, name)
        return 0
    if name in FORMATS:
        FORMATS[name].check(name)
    if name in FORMATS and FORMATS[name].of == WINDOW:
        write_pieces(arguments.output, _window(arguments, settings, name))
        return 0
    if arguments.by:
        _check_by_tier(arguments, name)
    if arguments.top and (name not in _SHOWN or arguments.by or arguments.segments):
        raise UsageError(
            "--top is a table of places in the code", "choose --format text or json for it alone"
        )
    try:
        if arguments.by:
            write_output(arguments.output, _tiers(arguments, settings, name))
            return 0
        paths = _paths(arguments, settings)
    except UnspecifiedError:
        if name not in LOOKS or names_paths(arguments):
            raise
        show_look(arguments, settings, name)
        return 0
    except UsageError as asked:
        rows: Sequence[ListedRow] | None = getattr(asked, "rows", None)
        if rows is None:
            raise
        print_listed(rows, getattr(asked, "noun", "requests"))
        return 0
    _write(arguments, settings, paths, name)
    return 0


def _write(arguments: argparse.Namespace, settings: Settings, paths: PathSet, name: str) -> None:
    """Write paths in a format, or where in the code their time goes."""
    warn(messages_of(paths), quiet=settings["quiet"], words=words_of(paths))
    if arguments.top:
        write_output(arguments.output, _top(arguments, settings, paths, name))
    elif name in FORMATS:
        from critpath.commands.export import (  # noqa: PLC0415 - start-up time
            SCHEDULED,
            add_timelines,
        )
        from critpath.report.exports import Exported  # noqa: PLC0415 - as above

        sets = [Exported(show_place(arguments.trace), paths)]
        if name == SCHEDULED:
            sets = add_timelines(sets, settings)
        write_pieces(arguments.output, FORMATS[name].render(sets))
        hint_written(arguments, paths, quiet=settings["quiet"])
    elif name == "json":
        from critpath.report.document import write_paths  # noqa: PLC0415 - start-up time

        write_pieces(arguments.output, write_paths(paths))
        hint_written(arguments, paths, quiet=settings["quiet"])
    elif arguments.output == STDOUT:
        print_paths(paths, segments=arguments.segments)
        if not arguments.segments:
            which = "" if len(paths) == 1 else f" --id ID (of {_some_ids(paths)})"
            hint(f"next:{which} --segments lists it in order of time", quiet=settings["quiet"])
    else:
        text = StringIO()
        print_paths(paths, text, segments=arguments.segments)
        write_output(arguments.output, text.getvalue())
        hint_written(arguments, paths, quiet=settings["quiet"])


def _check_by_tier(arguments: argparse.Namespace, name: str) -> None:
    if name not in _SHOWN:
        raise UsageError(f"--by tier is no {name}", "choose --format text or json")
    threads = (arguments.tid, arguments.comm, arguments.begin, arguments.end)
    if arguments.segments or any(one is not None for one in threads):
        raise UsageError(
            "--by tier is about requests, not about a thread, a window or segments",
            "choose some with --execution requests:port=N, or one with --id",
        )


def _tiers(arguments: argparse.Namespace, settings: Settings, format_: str) -> str:
    """Return what each service takes of requests: a table, or an object a line."""
    from critpath import flow, model  # noqa: PLC0415 - numpy and the stages
    from critpath.requests import sum_tiers  # noqa: PLC0415 - as above

    with Progress(quiet=settings["quiet"]) as progress:
        found = flow.read_sketches(
            [arguments.trace],
            model.ExtractSettings(
                settings["execution"], settings["reader"], max_memory=settings["max-memory"]
            ),
            progress,
        )
    known = [name for one in found for name in one.id]
    traces = [
        one.requests.strings[code] for one in found for code in one.requests.trace_id.tolist()
    ]
    chosen = _resolve(arguments, known, traces)
    said = [note for one in found for note in one.notes]
    if not any(one.chosen.any() for one in found):
        raise no_executions([arguments.trace], said)
    warn(said, quiet=settings["quiet"])
    doubtful = any(one.doubtful for one in found)
    tiers, untold = sum_tiers(found, ids=chosen, doubtful=doubtful)
    if format_ == "json":
        if untold.requests:
            from critpath.text.sentences import tiers_untold  # noqa: PLC0415 - as below

            counted = sum(tier.requests for tier in tiers if not tier.depth)
            warn([tiers_untold(untold, counted)], quiet=settings["quiet"])
        return "".join(json.dumps(asdict(tier)) + "\n" for tier in tiers)
    from critpath.report.text import render_tiers  # noqa: PLC0415 - start-up time

    text = StringIO()
    render_tiers(tiers, untold, make_console(text))
    return text.getvalue()


def _top(arguments: argparse.Namespace, settings: Settings, paths: PathSet, format_: str) -> str:
    """Return where in the code the time goes: a table, or an object a line."""
    from critpath.report.document import summarize_code  # noqa: PLC0415 - start-up time
    from critpath.report.text import render_code  # noqa: PLC0415 - as above
    from critpath.text.page import noun_of_paths  # noqa: PLC0415 - as above

    places, left = summarize_code(paths, arguments.top)
    if not any(place.location for place in places):
        raise UsageError(
            f"{arguments.trace} has no stacks that name a place in the code",
            "record with --stacks native or python (docs/code-locations.md); threads are listed "
            f"by --look --top {arguments.top}",
        )
    if format_ == "json":
        if left:
            further = f"{plural(left.executions, 'further place')}, {format_share(left.share)}"
            hint(f"critpath: {further} of the time: --top N for more", quiet=settings["quiet"])
        return "".join(json.dumps(structs.asdict(place)) + "\n" for place in places)
    text = StringIO()
    render_code(places, left, len(paths), make_console(text), noun_of_paths(paths, 1))
    hint("next: critpath compare NORMAL SAMPLE names what changed", quiet=settings["quiet"])
    return text.getvalue()


def print_listed(rows: Sequence[ListedRow], noun: str) -> None:
    """Show what ``requests:?``, ``slices:?`` and ``slice:?`` ask for."""
    what = {"requests": "service", "slices": "marker"}.get(noun, "name")
    remark = "confidence" if noun == "requests" else "most are of"
    head = (what, noun.rsplit(maxsplit=1)[-1], "incomplete", "median", "99 %", "threads", remark)
    table = [head] + [
        (
            safe_text(row.name),
            *(f"{row.count:,}", f"{row.incomplete:,}"),
            *(format_ns(row.median_ns), format_ns(row.slow_ns)),
            *(f"{row.threads:,}", safe_text(row.remark)),
        )
        for row in rows
    ]
    widths = [max(len(line[at]) for line in table) for at in range(len(head))]
    for line in table:
        first, *figures, last = (
            text.ljust(width) if at in {0, len(head) - 1} else text.rjust(width)
            for at, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        sys.stdout.write("  ".join([first, *figures, last]).rstrip() + "\n")


def hint_written(arguments: argparse.Namespace, paths: PathSet, *, quiet: bool) -> None:
    """Say how many executions a file has."""
    if arguments.output != STDOUT:
        hint(f"{plural(len(paths), 'path')} written to {arguments.output}", quiet=quiet)


def _format(arguments: argparse.Namespace) -> str:
    """Return the format asked for by name, else by the file's ending."""
    if arguments.format is not None:
        return str(arguments.format)
    if arguments.output == STDOUT:
        return "text"
    name = arguments.output.lower()
    for ending, shown in ((".txt", "text"), (".json", "json"), (".csv", "csv")):
        if name.endswith(ending) and not name.endswith(".speedscope.json"):
            return shown
    return format_by_ending(arguments.output, (*_SHOWN, *_WRITTEN))


def _window(arguments: argparse.Namespace, settings: Settings, name: str) -> Iterable[bytes]:
    """Return the file of a window's graph; one execution's path is marked in it."""
    from critpath.store import find_format  # noqa: PLC0415 - numpy

    if find_format(arguments.trace) in {"paths", "dataset"}:
        raise UsageError(
            f"{name} is the graph of a trace, and {arguments.trace} holds paths alone",
            "name the recording that they were extracted from",
        )

    def tell(message: str) -> None:
        hint(message, quiet=settings["quiet"])

    begin, end = arguments.begin, arguments.end
    named = arguments.id or arguments.tid is not None or arguments.comm is not None
    if not named and (begin is not None or end is not None):
        _check_window(arguments)
        return FORMATS[name].render(arguments.trace, settings, tell=tell, begin=begin, end=end)
    paths = _paths(arguments, settings)
    warn(messages_of(paths), quiet=settings["quiet"], words=words_of(paths))
    if len(paths) != 1:
        raise UsageError(
            f"{name} is the graph of one window, and {arguments.trace} has {len(paths):,} paths",
            "choose one with --id ID or --tid N, or give --from and --to",
        )
    source = Path(paths.sources[int(paths.session[0])])
    return FORMATS[name].render(
        source,
        settings,
        tell=tell,
        begin=begin,
        end=end,
        paths=paths,
        all_threads=arguments.all_threads,
    )


def _check_window(arguments: argparse.Namespace) -> None:
    if None not in {arguments.begin, arguments.end} and arguments.begin >= arguments.end:
        raise UsageError("--from is not before --to", "exchange them")


def _paths(arguments: argparse.Namespace, settings: Settings) -> PathSet:
    window = arguments.begin is not None or arguments.end is not None
    threads = window or arguments.tid is not None or arguments.comm is not None
    if threads and settings.origins["execution"] == "command line":
        raise UsageError(
            "--execution together with a thread or a window", "use one way to say what to show"
        )
    _check_window(arguments)

    from critpath import graph  # noqa: PLC0415 - numpy and the stages

    with Progress(quiet=settings["quiet"]) as progress:
        progress(f"reading {arguments.trace}")
        if not threads:
            paths = extract_sources(
                *([arguments.trace], settings, progress),
                jobs=None,
                partial=arguments.partial,
                bystanders=True,
            )
            return _choose_paths(paths, arguments, settings)
        paths = graph.thread_paths(
            arguments.trace,
            tid=arguments.tid,
            comm=arguments.comm,
            begin=arguments.begin,
            end=arguments.end,
            reader=settings["reader"],
            interrupts=settings["interrupts"],
            max_memory=settings["max-memory"],
        )
    if not len(paths):
        who = (
            f"thread {arguments.tid}"
            if arguments.tid is not None
            else f"thread named {arguments.comm}"
            if arguments.comm is not None
            else "thread"
        )
        raise UsageError(
            f"no {who} in {arguments.trace}" + " within the window" * window,
            f"critpath path {arguments.trace} --execution thread shows every thread",
        )
    return _choose_paths(paths, arguments, settings)


def _choose_paths(paths: PathSet, arguments: argparse.Namespace, settings: Settings) -> PathSet:
    from critpath import graph  # noqa: PLC0415 - numpy and the stages

    return graph.mark_own(choose_paths(paths, arguments), settings["own"], settings["not-own"])


def choose_paths(paths: PathSet, arguments: argparse.Namespace) -> PathSet:
    """Return the executions that ``arguments.id`` names, all of them by default."""
    from critpath import graph  # noqa: PLC0415 - numpy and the stages

    wanted = _resolve(arguments, paths.executions.id, graph.traces_of(paths))
    return graph.choose_executions(paths, wanted)


def _resolve(arguments: argparse.Namespace, ids: Sequence[str], traces: Sequence[str]) -> list[str]:
    """Return the executions that are named, by themselves or by their trace."""
    if not arguments.id:
        return []
    from critpath import graph  # noqa: PLC0415 - numpy and the stages

    wanted: list[str] = graph.resolve_ids(arguments.id, ids, traces)
    known = set(ids)
    missing = [name for name in wanted if name not in known]
    if missing:
        traced = "" if any(traces) else "; no trace id was recorded (--labels-from traceparent)"
        some = safe_text(", ".join(ids[:_SOME_IDS])) + ", ..." * (len(ids) > _SOME_IDS)
        raise UsageError(
            f"{arguments.trace} has no run {missing[0]}",
            f"name one of {some}" + traced * (len(missing[0]) >= _LEAST_TRACE),
        )
    return wanted


def _some_ids(paths: PathSet) -> str:
    known = paths.executions.id[:_SOME_IDS]
    return safe_text(", ".join(known)) + ", ..." * (len(paths) > len(known))


def print_paths(paths: PathSet, stream: IO[str] | None = None, *, segments: bool = False) -> None:
    """Print a set's paths in sums, or every one."""
    from critpath.report.document import path_document, summarize_paths  # noqa: PLC0415 - start-up time
    from critpath.report.text import render_path, render_summary  # noqa: PLC0415 - as above

    console = make_console(stream)
    if not segments:
        from critpath import vectors  # noqa: PLC0415 - numpy and the stages
        from critpath.text.page import noun_of_paths  # noqa: PLC0415 - as above

        summaries = summarize_paths(paths, vectors.tables_of([paths])[0])
        render_summary(summaries, console, noun_of_paths(paths, 1))
        return
    for index in range(len(paths)):
        document = path_document(
            paths.paths,
            index,
            tid=int(paths.executions.tid[index]),
            comm=paths.executions.comm[index],
            execution=paths.executions.id[index],
            label=paths.executions.label[index],
            losses=paths.losses,
            uncertainty=paths.uncertainty(index),
            confidence=paths.confidence(index),
        )
        render_path(document, console)
