"""``critpath convert``: keep what another tool recorded as a recording: CTF and a manifest."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from critpath.commands.declared import flag, option
from critpath.commands.output import Progress, hint, warn
from critpath.commands.settings import Settings
from critpath.commands.sources import check_inputs
from critpath.errors import UsageError
from critpath.units import plural

OPTIONS: Final = (
    option("file", "FILE", "what another tool recorded: trace.dat, perf.data, a trace of Perfetto, "
        "ftrace's text", Path),
    option("-o --output", "DIR", "the recording that is made of it", Path, required=True),
    flag("--force", "replace DIR if it is a recording"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Convert the file and return the exit code."""
    source, output = arguments.file, arguments.output
    check_inputs([source])
    _check_directory(source, output, force=arguments.force)
    from critpath.convert import convert_foreign  # noqa: PLC0415 - start-up time
    from critpath.files import atomic_directory  # noqa: PLC0415 - as above

    with atomic_directory(output) as place, Progress(quiet=settings["quiet"]) as progress:
        converted = convert_foreign(source, place, progress)
    warn(converted.manifest.warnings, quiet=settings["quiet"])
    lost = sum(of.events for of in converted.manifest.loss)
    what = f"{plural(converted.events, 'event')} of {source} ({converted.kind})"
    hint(f"{what} in {output}, in {converted.seconds:.1f} s", quiet=settings["quiet"])
    if lost:
        hint(f"{plural(lost, 'event')} had been lost", quiet=settings["quiet"])
    hint(f"next: critpath path {output}", quiet=settings["quiet"])
    return 0


def _check_directory(source: Path, output: Path, *, force: bool) -> None:
    """Refuse a directory that cannot be made, or that holds what is not ours to replace."""
    from critpath.model import MANIFEST  # noqa: PLC0415 - start-up time

    real = Path(os.path.realpath(output))
    if real in {place := source.resolve(), *place.parents}:
        raise UsageError(f"{output} has the input in it", "name another directory with -o")
    if not real.parent.is_dir():
        raise UsageError(
            f"{real.parent} is not a directory", f"make it first: mkdir -p {real.parent}"
        )
    if os.path.lexists(real) and not real.is_dir():
        raise UsageError(f"{output} exists and is no directory", "name another with -o")
    if real.is_dir() and any(real.iterdir()):
        if not (real / MANIFEST).is_file():
            raise UsageError(
                f"{output} is a directory with other things in it", "name one that is not there"
            )
        if not force:
            raise UsageError(f"{output} has a recording already", "use --force to replace it")
