"""``critpath export --format paths``: critical paths of every execution, saved."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands.export import LOCAL
from critpath.commands.output import STDOUT, Progress, as_asked, check_outputs, hint, warn
from critpath.commands.settings import Settings
from critpath.commands.sources import check_inputs, messages_of, require_executions, words_of
from critpath.errors import UsageError
from critpath.extras import require
from critpath.processes import begin_early
from critpath.stores import is_stored
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.engines import DaskScheduler
    from critpath.model import PathSet

_DASK: Final = "dask:"
_FILES: Final = (".parquet", ".pq")
# Who ends a name so means a file, and would get a directory.
_OTHERS: Final = (
    *(".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".html", ".md", ".xml", ".xlsx"),
    *(".arrow", ".feather", ".ipc", ".orc", ".avro", ".h5", ".hdf5", ".npz", ".pkl", ".baseline"),
    *(".db", ".sqlite", ".duckdb", ".gz", ".zst", ".bz2", ".xz", ".zip", ".tar", ".tgz"),
)


def save_paths(arguments: argparse.Namespace, settings: Settings) -> int:
    """Extract, save and return the exit code."""
    if STDOUT in arguments.sources:
        raise UsageError("saved paths are of recordings, not of stdin", "name a recording")
    if arguments.id:
        raise UsageError("--id chooses some runs, and all are saved", "leave it out")
    traces = [Path(source) for source in arguments.sources]
    if arguments.output == STDOUT:
        raise UsageError("Parquet cannot go to stdout", "name a file with -o")
    if not arguments.output:
        raise UsageError("-o names nothing", "name a directory, or a file that ends in .parquet")
    into_file = arguments.output.lower().endswith(_FILES)
    if arguments.output.lower().endswith(_OTHERS):
        raise UsageError(
            f"{arguments.output}: critical paths are saved as Parquet",
            "end the name in .parquet for one file, in nothing for a dataset",
        )
    # The allocators that pyarrow brings keep what was freed: 40 MB of a large recording's.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    scheduler = _find_scheduler(arguments.engine, settings, into_file=into_file)
    check_inputs(traces)
    if into_file:
        check_outputs([arguments.output], traces, force=arguments.force)
    else:
        check_directory(arguments.output, traces, force=arguments.force)
    require("a file of paths, which is Parquet,", "parquet")
    if scheduler is None:
        begin_early(settings["jobs"], traces)

    from critpath import flow, model  # noqa: PLC0415 - numpy and the stages

    out = Path(arguments.output)
    how = model.ExtractSettings(
        **settings.for_reading(),
    )

    def check_executions(paths: PathSet) -> None:
        require_executions(paths, traces)

    with Progress(quiet=settings["quiet"]) as progress:
        save = partial(
            flow.extract_file if into_file else flow.extract_dataset,
            traces,
            out,
            how,
            require=check_executions,
            jobs=settings["jobs"],
            progress=progress,
        )
        if scheduler is None:
            paths = save()
        else:
            progress(f"connecting to {scheduler.address}")
            with scheduler.connect() as engine:
                paths = save(engine=engine)
    warn(messages_of(paths), quiet=settings["quiet"], words=words_of(paths))
    from critpath.text.page import noun_of_paths  # noqa: PLC0415 - start-up time

    files = "" if into_file else f" (a dataset of {plural(_parts(out), 'file')})"
    hint(
        f"{plural(len(paths), noun_of_paths(paths, 1))} of "
        f"{plural(len(paths.sources), 'recording')} saved to {out}{files}; "
        f"next: critpath compare {out} SAMPLE{as_asked(settings)}",
        quiet=settings["quiet"],
    )
    return 0


def _parts(dataset: Path) -> int:
    return sum(1 for _ in dataset.glob("*.parquet"))


def _find_scheduler(engine: str, settings: Settings, *, into_file: bool) -> DaskScheduler | None:
    """Return the scheduler that ``--engine`` names; None for this machine."""
    if engine == LOCAL:
        return None
    if not engine.startswith(_DASK):
        raise UsageError(f"--engine {engine} is not known", "give local or dask:tcp://HOST:PORT")
    from critpath.engines import DaskScheduler  # noqa: PLC0415 - numpy and the stages

    scheduler = DaskScheduler(engine.removeprefix(_DASK))
    if into_file:
        raise UsageError(
            "the workers of --engine dask write a file per recording, and -o names one file",
            "name a directory with -o, which ends in no .parquet",
        )
    if settings.origins["jobs"] == "command line":
        raise UsageError(
            "--jobs is of this machine, and --engine dask reads elsewhere",
            "start as many workers as should work",
        )
    return scheduler


def check_directory(place: str, inputs: list[Path], *, force: bool) -> None:
    """Refuse a place where a dataset cannot be, before any work."""
    from critpath.store import Dataset, find_format  # noqa: PLC0415 - numpy

    real = Path(os.path.realpath(place))
    sources = {Path(os.path.realpath(path)) for path in inputs}
    if real in sources:
        raise UsageError(f"{place} is both input and output", "give the output another name")
    if any(real in source.parents for source in sources):
        raise UsageError(f"{place} is a directory above an input", "give the output another name")
    parent = real.parent
    if not parent.is_dir():
        raise UsageError(f"{parent} is not a directory", f"make it first: mkdir -p {parent}")
    if not os.access(parent, os.W_OK):
        raise UsageError(f"{place} cannot be written", "choose a place that you may write to")
    if real.is_dir():
        empty = next(real.iterdir(), None) is None
        ours = find_format(real) == "dataset" or (is_stored(real) and Dataset(real).has_parts_only)
        if not empty and not ours:
            raise UsageError(
                f"{place} is a directory with other things in it", "name one that is not there"
            )
        if not empty and not force:
            raise UsageError(f"{place} exists already", "use --force to replace it")
    elif real.exists() and not (real.is_file() and force):
        raise UsageError(f"{place} exists already", "use --force to replace it")
