"""``critpath demo``: a fault found in recordings made here, or in shipped ones."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands import demo_live
from critpath.commands.compare import compare_sources
from critpath.commands.output import hint, make_console
from critpath.commands.reports import write_files
from critpath.commands.settings import Settings
from critpath.errors import CritpathError, UsageError

if TYPE_CHECKING:
    import tarfile
    from importlib.resources.abc import Traversable

SETTINGS = ()

SPECIFICATION: Final = "events:app:request_begin,app:request_end,key=id"
NORMAL: Final = "normal"
SAMPLE: Final = "sample-lock"
# Below the demo's directory: never mixed up with what was recorded here.
SHIPPED: Final = "shipped"
# A directory with this file is the demo's own and may be written to again.
MARKER: Final = ".critpath-demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes beside settings."""
    parser.add_argument(
        "directory",
        metavar="DIR",
        nargs="?",
        default="critpath-demo",
        help="where to put it (default: critpath-demo)",
    )
    parser.add_argument(
        "--shipped",
        action="store_true",
        help="do not record: compare recordings that come with critpath",
    )
    parser.add_argument(
        "--fault",
        choices=tuple(demo_live.FAULTS),
        default=demo_live.DEFAULT_FAULT,
        help=f"what to do to the recorded sample (default: {demo_live.DEFAULT_FAULT})",
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Record or unpack, compare, write the report and return 0, whatever the verdict."""
    directory, quiet = Path(arguments.directory), settings["quiet"]
    archives = [_archive(name) for name in (NORMAL, SAMPLE)]
    _prepare(directory)
    why = "--shipped was given" if arguments.shipped else demo_live.why_not()
    if not why:
        try:
            places = demo_live.record_both(directory, arguments.fault, quiet=quiet)
        except CritpathError as error:
            why = error.what
    if why:
        for archive in archives:
            _unpack(archive, directory / SHIPPED)
        places = directory / SHIPPED / NORMAL, directory / SHIPPED / SAMPLE
        told = (
            "These are recordings that come with critpath, made in a virtual machine; "
            f"nothing of this machine was recorded: {why}."
        )
        specification = SPECIFICATION
    else:
        told, specification = demo_live.explain(arguments.fault), "marker"
    settings = replace(settings, values={**settings.values, "execution": specification})
    comparison = compare_sources(*places, settings)
    report = directory / "report.html"

    from critpath.report.document.comparison import comparison_document  # noqa: PLC0415 - start-up time

    document = comparison_document(comparison)
    write_files(document, {"html": str(report), "json": str(directory / "comparison.json")})
    demo_live.hand_over(directory, entire=True)

    from critpath.report.text.as_text import render_comparison  # noqa: PLC0415 - start-up time

    # A first look: the alignments and the clusters are in the report.
    render_comparison(document, make_console(), short=True)
    hint(told, quiet=quiet)
    hint(f"report: {report} (open it in a browser)", quiet=quiet)
    command = ["critpath", "compare", *map(str, places), "--execution", specification]
    hint(f"next: {shlex.join(command)}", quiet=quiet)
    return 0


def _prepare(directory: Path) -> None:
    """Make the directory, or refuse one that is not the demo's."""
    try:
        if directory.exists():
            empty = directory.is_dir() and not any(directory.iterdir())
            if not empty and not (directory / MARKER).is_file():
                raise UsageError(
                    f"{directory} exists and is not of an earlier demo",
                    "name another directory: critpath demo DIR",
                )
        directory.mkdir(parents=True, exist_ok=True)
        (directory / MARKER).touch()
    except OSError as error:
        raise UsageError(
            f"cannot use {directory}: {error.strerror}", "name another directory: critpath demo DIR"
        ) from None


def _archive(name: str) -> Traversable:
    """Return one shipped recording, or refuse before anything is made."""
    import importlib.resources  # noqa: PLC0415 - start-up time of the other verbs

    archive = importlib.resources.files("critpath") / "demo" / f"{name}.tar.xz"
    if not archive.is_file():
        raise CritpathError(
            f"this installation lacks the demo's recording {name}.tar.xz",
            "install critpath again",
        )
    return archive


def _extract(tar: tarfile.TarFile, directory: Path) -> None:
    """Write the files of an archive below a directory, and nothing else.

    ``extractall(filter="data")`` does more, but Python has it only from 3.11.4 on and
    Debian 12 ships 3.11.2.
    """
    for member in tar:
        parts = Path(member.name).parts
        stream = tar.extractfile(member) if member.isfile() else None
        if stream is None or not parts or ".." in parts or Path(member.name).is_absolute():
            continue
        target = directory.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(stream.read())


def _unpack(archive: Traversable, directory: Path) -> None:
    """Unpack one shipped recording; its files cannot leave the directory."""
    import tarfile  # noqa: PLC0415 - start-up time of the other verbs

    try:
        with archive.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:xz") as tar:
            _extract(tar, directory)
    except (tarfile.TarError, EOFError) as error:
        raise CritpathError(
            f"the demo's recording {archive.name} is damaged: {error}", "install critpath again"
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot unpack into {directory}: {error.strerror or error}",
            "name another directory: critpath demo DIR",
        ) from None
