"""``critpath export``: executions and alignments, in the formats of other programs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath.commands.declared import FORCE, TO, option
from critpath.commands.formats import format_by_ending, format_name
from critpath.commands.output import (
    STDOUT,
    Progress,
    check_outputs,
    check_terminal,
    hint,
    warn,
    write_pieces,
)
from critpath.commands.reports import is_saved, load_comparison
from critpath.commands.settings import READING, RUNNING, Settings
from critpath.commands.sources import check_inputs, extract_sources, messages_of, words_of
from critpath.errors import UsageError, name_places
from critpath.extras import require
from critpath.report.exports import ALIGNMENTS, FORMATS, PATHS
from critpath.stores import open_place
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.documents import AlignedEntry, ComparisonDocument
    from critpath.report.exports import Exported
    from critpath.requests import SliceSketches
    from critpath.schema.notes import Remark

LOCAL: Final = "local"  # the engine
SETTINGS = (*READING, *RUNNING)
SKETCHES = "sketches"  # the only format that is a directory
SPANS = "otlp-json"
SAVED = "paths"
SCHEDULED: Final = "perfetto"  # the format that shows all threads and cpus
_OFFERED = tuple(name for name, format_ in FORMATS.items() if format_.of in {PATHS, ALIGNMENTS})


OPTIONS: Final = (
    option("sources", "SOURCE", "of compare --json (- for stdin); or recordings, CTF traces, "
        "directories of recordings, saved paths, baselines: each is a set of runs",
        nargs="+"),
    option("--format", None, "what to write (default: by the ending of FILE); paths: the critical "
        "path of every run, for compare and report: one file where FILE ends in .parquet, "
        "else a dataset, a directory with a file per recording; sketches: of requests, a "
        "directory with a Parquet file for each table that critpath query has of them",
        format_name, choices=(SAVED, *FORMATS, SKETCHES, SPANS)),
    TO,
    option("--engine", "ENGINE", "with --format paths, what reads the recordings: local (processes "
        "of this machine, see --jobs) or dask:ADDRESS (workers of a dask scheduler at "
        "tcp://HOST:PORT or tls://HOST:PORT); default: local", default=LOCAL),
    option("--id", "ID", "only the run that reports name so, or those of the trace with this "
        "id; may be repeated (default: all)", action="append"),
    FORCE,
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write and return 0: the verdict was given when the comparison was made."""
    if arguments.format == SAVED:
        from critpath.commands.saving import save_paths  # noqa: PLC0415 - start-up time

        return save_paths(arguments, settings)
    if arguments.engine != LOCAL:
        raise UsageError("--engine is of --format paths", "leave it out")
    if arguments.format == SKETCHES:
        return _write_sketches(arguments, settings)
    if arguments.format == SPANS:
        return _write_spans(arguments, settings)
    name = arguments.format or format_by_ending(arguments.output, _OFFERED)
    format_ = FORMATS[name]
    if name not in _OFFERED:
        raise UsageError(
            f"{name} is the graph of a window, which only a trace has",
            f"critpath path TRACE --from NS --to NS --format {name}",
        )
    inputs = [Path(source) for source in arguments.sources if source != STDOUT]
    check_inputs(inputs)
    check_outputs([arguments.output], inputs, force=arguments.force)
    check_terminal(arguments.output, name, binary=format_.binary)
    format_.check(name)
    if any(map(is_saved, arguments.sources)) and settings.origins["execution"] == "command line":
        raise UsageError(
            "a saved comparison has its runs already", "choose some of them with --id ID"
        )
    if format_.of == ALIGNMENTS:
        document, chosen = _alignments(arguments, name)
        write_pieces(arguments.output, format_.render(document, chosen))
        count, what = len(chosen), "guide tree" if name == "newick" else "alignment"
    else:
        sets = _sets(arguments, settings)
        if name == SCHEDULED:
            sets = add_timelines(sets, settings)
        write_pieces(arguments.output, format_.render(sets))
        count, what = sum(len(one.paths) for one in sets), "path"
    if arguments.output != STDOUT:
        hint(f"{plural(count, what)} written to {arguments.output}", quiet=settings["quiet"])
    return 0


def _write_sketches(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write a Parquet file for each table of requests and of what was done for them."""
    if arguments.output == STDOUT:
        raise UsageError("sketches are a directory of tables", "name it with -o DIRECTORY")
    if arguments.id:
        raise UsageError(
            "the tables of sketches belong together, --id would part them",
            "choose with --execution requests:...; the column chosen says which",
        )
    sources = [Path(source) for source in arguments.sources]
    check_inputs(sources)
    require("the format sketches", "parquet")
    _check_directory(arguments.output, sources, force=arguments.force)
    from critpath import flow, model  # noqa: PLC0415 - numpy and the stages
    from critpath.files import atomic_directory  # noqa: PLC0415 - as above
    from critpath.report.exports import sketch_tables, table_parquet  # noqa: PLC0415 - as above

    with Progress(quiet=settings["quiet"]) as progress:
        reading = model.ExtractSettings(
            settings["execution"], settings["reader"], max_memory=settings["max-memory"]
        )
        slices = str(settings["execution"] or "").partition(":")[0] == "slices"
        if slices:
            notes: list[Remark]
            tables, notes = _slices(flow.read_slices(sources, reading, progress))
        else:
            found = flow.read_sketches(sources, reading, progress)
            tables, notes = sketch_tables(found), [n for one in found for n in one.notes]
    warn(notes, quiet=settings["quiet"])
    with atomic_directory(Path(arguments.output)) as place:
        for name, table in tables.items():
            (place / f"{name}.parquet").write_bytes(table_parquet(table))
    noun = "slice" if slices else "request"
    what = plural(tables[f"{noun}s"].num_rows, noun)
    hint(f"{what} written to {arguments.output}/", quiet=settings["quiet"])
    return 0


def _slices(found: Sequence[SliceSketches]) -> tuple[dict[str, Any], list[Remark]]:
    """Return slices as tables, and what there is to say of them."""
    from critpath.model import Column  # noqa: PLC0415 - start-up time
    from critpath.report.exports import slice_tables  # noqa: PLC0415 - as above

    tables = [
        (
            one.recording,
            {**one.slices.table_columns(), "comm": Column(one.names), "chosen": Column(one.chosen)},
            one.slices.link_columns(),
        )
        for one in found
    ]
    return slice_tables(tables), [note for one in found for note in one.notes]


def _write_spans(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write requests, and what was asked for them, as spans of OpenTelemetry."""
    from critpath.text.notes import epoch_unknown  # noqa: PLC0415 - numpy

    if arguments.id:
        raise UsageError(
            "otlp-json has all requests, with what was asked for each",
            "choose with --execution requests:...",
        )
    sources = [Path(source) for source in arguments.sources]
    check_inputs(sources)
    check_outputs([arguments.output], sources, force=arguments.force)
    from critpath import flow, model  # noqa: PLC0415 - numpy and the stages
    from critpath.report.exports import otlp_spans  # noqa: PLC0415 - as above

    with Progress(quiet=settings["quiet"]) as progress:
        reading = model.ExtractSettings(
            settings["execution"], settings["reader"], max_memory=settings["max-memory"]
        )
        found = flow.read_sketches(sources, reading, progress)
    said: list[Remark] = [note for one in found for note in one.notes]
    said += [epoch_unknown(one.recording) for one in found if not one.epoch]
    warn(said, quiet=settings["quiet"])
    write_pieces(arguments.output, otlp_spans(found))
    if arguments.output != STDOUT:
        count = plural(sum(int(one.chosen.sum()) for one in found), "request")
        hint(f"{count} written to {arguments.output}", quiet=settings["quiet"])
    return 0


def _check_directory(output: str, sources: Sequence[Path], *, force: bool) -> None:
    """Refuse a directory that cannot be made, or that holds what is not ours to replace."""
    place = Path(output)
    if not place.is_dir():
        check_outputs([output], sources)
        return
    if place.resolve() in {source.resolve() for source in sources}:
        raise UsageError(f"{output} is both input and output", "give the output another name")
    if not force:
        raise UsageError(f"{output} exists already", "use --force to replace it")
    from critpath.report.exports import SKETCHES as TABLES  # noqa: PLC0415 - numpy

    tables = {f"{name}.parquet" for name in TABLES}
    others = sorted({one.name for one in place.iterdir()} - tables)
    if others:
        raise UsageError(
            f"{output} holds {others[0]}, which is no table of sketches",
            "give the output another name; --force replaces tables only",
        )


def _sets(arguments: argparse.Namespace, settings: Settings) -> list[Exported]:
    """Return the executions of every source, those that are wanted."""
    from critpath import graph  # noqa: PLC0415 - numpy and the stages
    from critpath.report.exports import (  # noqa: PLC0415 - start-up time
        Exported,
        read_aligned_executions,
    )

    wanted = arguments.id or []
    sets = []
    with Progress(quiet=settings["quiet"]) as progress:
        for source in arguments.sources:
            if is_saved(source):
                document = load_comparison(source)
                sets.append(read_aligned_executions(document, name_places(source), wanted))
                if not wanted:
                    _say_left_out(document, sets[-1], source, quiet=settings["quiet"])
                continue
            paths = extract_sources([Path(source)], settings, progress, jobs=None)
            warn(messages_of(paths), quiet=settings["quiet"], words=words_of(paths))
            sets.append(Exported(name_places(source), graph.choose_executions(paths, wanted)))
    found: set[str] = set()
    missing = wanted
    for one in sets:
        ids, traces = one.paths.executions.id, graph.traces_of(one.paths)
        found.update(ids)
        missing = [n for n in missing if found.isdisjoint(graph.resolve_ids([n], ids, traces))]
    if missing or not found:
        shown = " or ".join(arguments.sources)
        raise UsageError(
            f"{shown} has no run {missing[0]}" if missing else f"{shown} has no run",
            "critpath path and critpath compare show what runs are called",
        )
    return sets


def add_timelines(sets: list[Exported], settings: Settings) -> list[Exported]:
    """Add what all threads did, if one recording is read; otherwise a hint says why not."""
    from critpath import flow  # noqa: PLC0415 - numpy and the stages

    (one, *others) = sets
    if others or is_saved(one.name):
        return sets
    with Progress(quiet=settings["quiet"]) as progress:
        progress("reading threads and cpus")
        timelines = flow.read_timelines(open_place(one.name), settings["reader"])
    if timelines is None:
        hint(
            "only threads on critical paths are in it: all threads and CPUs are written of one"
            f" recording of one host, of at most {flow.SHOWN_AT_ONCE >> 20} MiB",
            quiet=settings["quiet"],
        )
    from msgspec import structs  # noqa: PLC0415 - start-up time

    return [structs.replace(one, timelines=timelines)]


def _say_left_out(document: ComparisonDocument, one: Exported, source: str, *, quiet: bool) -> None:
    """Say that a comparison knows only those segments that it has aligned."""
    every = document.sets.sample.executions + document.sets.normal.executions
    left = every - len(one.paths)
    if left > 0:
        held = plural(len(one.paths), "path")
        text = f"{source} holds {held}, of what it explains, not those of {left:,} others"
        warn([f"{text}: export the recordings for these"], quiet=quiet)


def _alignments(
    arguments: argparse.Namespace, name: str
) -> tuple[ComparisonDocument, Sequence[AlignedEntry]]:
    """Return the comparison and those of its alignments that are wanted."""
    if len(arguments.sources) > 1:
        raise UsageError(
            f"{name} is of one saved comparison, not of {len(arguments.sources)} sources",
            "name one file of critpath compare --json",
        )
    (source,) = arguments.sources
    document = load_comparison(source)
    chosen = _choose_aligned(document, source, arguments.id)
    if len(chosen) > 1 and not FORMATS[name].several:
        known = ", ".join(one.execution for one in chosen[:5]) + ", ..." * (len(chosen) > 5)
        raise UsageError(
            f"a {name} file holds one alignment, and {source} has {len(chosen)}",
            f"choose one with --id ({known}), or take --format stockholm for all",
        )
    return document, chosen


def _choose_aligned(
    document: ComparisonDocument, source: str, wanted: Sequence[str] | None
) -> Sequence[AlignedEntry]:
    aligned = document.aligned
    if not aligned:
        raise UsageError(
            f"{source} has no alignment: no run of it was found anomalous",
            "compare with a sample that is slower, or with --rule paper",
        )
    if not wanted:
        return aligned
    chosen = [one for one in aligned if one.execution in wanted]
    missing = [name for name in wanted if name not in {one.execution for one in chosen}]
    if missing:
        names = ", ".join(one.execution for one in aligned[:5])
        raise UsageError(
            f"{source} has no alignment of run {missing[0]}",
            f"name one of {names}" + ", ..." * (len(aligned) > 5),
        )
    return chosen
