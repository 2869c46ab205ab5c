"""``critpath demo``: a fault found in recordings made here, or in shipped ones."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Final

from critpath.commands.compare import compare_sources
from critpath.commands.declared import flag, option
from critpath.commands.output import hint, make_console
from critpath.commands.record import ProgressReporter, survey_recorded
from critpath.commands.reports import write_files
from critpath.commands.settings import Settings
from critpath.errors import CritpathError, UsageError, with_sudo
from critpath.units import plural

if TYPE_CHECKING:
    import tarfile
    from importlib.resources.abc import Traversable

    from critpath_record import User


SPECIFICATION: Final = "events:app:request_begin,app:request_end,key=id"
NORMAL: Final = "normal"
SAMPLE: Final = "sample-lock"
# Below the demo's directory: never mixed up with what was recorded here.
SHIPPED: Final = "shipped"
# A directory with this file is the demo's own and may be written to again.
MARKER: Final = ".critpath-demo"


FAULTS: Final = {
    "lock": "the thread `holder` keeps a lock longer",
    "delay": "the process `helper` sleeps before it answers",
    "fsync": "a file is written to the disk in between",
    "cpu": "the process `intruder` computes on the same cpu",
}
DEFAULT_FAULT: Final = "lock"

OPTIONS: Final = (
    option("directory", "DIR", "where to put it (default: critpath-demo)", default="critpath-demo",
        nargs="?"),
    flag("--shipped", "do not record: compare recordings that come with critpath"),
    option("--fault", None, f"what to do to the recorded sample (default: {DEFAULT_FAULT})",
        default=DEFAULT_FAULT, choices=tuple(FAULTS)),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Record or unpack, compare, write the report and return 0, whatever the verdict."""
    directory, quiet = Path(arguments.directory), settings["quiet"]
    archives = [_archive(name) for name in (NORMAL, SAMPLE)]
    _prepare(directory)
    why = "--shipped was given" if arguments.shipped else why_not()
    if not why:
        try:
            places = record_both(directory, arguments.fault, quiet=quiet)
        except CritpathError as error:
            why = error.what
    if why:
        for archive in archives:
            _unpack(archive, directory / SHIPPED / archive.name.removesuffix(".tar.xz"))
        places = directory / SHIPPED / NORMAL, directory / SHIPPED / SAMPLE
        about = (
            "These are recordings that come with critpath, made in a virtual machine; "
            f"nothing of this machine was recorded: {why}."
        )
        specification = SPECIFICATION
    else:
        about, specification = explain(arguments.fault), "marker"
    settings = replace(settings, values={**settings.values, "execution": specification})
    comparison = compare_sources(*places, settings)
    report = directory / "report.html"

    from critpath.report.document import comparison_document  # noqa: PLC0415 - start-up time

    document = comparison_document(comparison)
    write_files(document, {"html": str(report), "json": str(directory / "comparison.json")})
    hand_over(directory, entire=True)

    from critpath.report.text import render_comparison  # noqa: PLC0415 - start-up time

    render_comparison(document, make_console(), places=[str(report)])
    hint(about, quiet=quiet)
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
    """Write the files of an archive, all in one directory, below another; nothing else.

    ``extractall(filter="data")`` does more, but Python has it only from 3.11.4 on and
    Debian 12 ships 3.11.2.
    """
    for member in tar:
        parts = Path(member.name).parts[1:]
        stream = tar.extractfile(member) if member.isfile() else None
        if stream is None or not parts or ".." in parts:
            continue
        target = directory.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(stream.read())


def _unpack(archive: Traversable, directory: Path) -> None:
    """Unpack one shipped recording; its files cannot leave the directory."""
    import tarfile  # noqa: PLC0415 - start-up time of the other verbs

    from critpath.files import atomic_directory  # noqa: PLC0415 - as above

    try:
        directory.parent.mkdir(exist_ok=True)
        with (
            atomic_directory(directory) as place,
            archive.open("rb") as stream,
            tarfile.open(fileobj=stream, mode="r:xz") as tar,
        ):
            _extract(tar, place)
    except (tarfile.TarError, EOFError) as error:
        raise CritpathError(
            f"the demo's recording {archive.name} is damaged: {error}", "install critpath again"
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot unpack into {directory}: {error.strerror or error}",
            "name another directory: critpath demo DIR",
        ) from None


# The demo's own recordings: a bundled workload on this machine, healthy and with a fault.


EXECUTIONS: Final = 180  # of all kinds together
SEED: Final = 1
PRIORITY: Final = 2  # the workload lowers its own by one, but for `intruder`

# Names are those of critpath.commands.workload, which is not imported to show --help.


def why_not() -> str:
    """Return why this machine cannot be recorded here and now, "" if it can."""
    if os.name != "posix" or os.geteuid() != 0:
        return f"recording needs root ({with_sudo('demo')})"
    from critpath_record import doctor  # noqa: PLC0415 - start-up time

    why = doctor(Path.cwd()).why_not()
    return why and f"{why} (critpath doctor says more)"


def record_both(directory: Path, fault: str, *, quiet: bool) -> tuple[Path, Path]:
    """Record the workload twice, the second time with a fault."""
    places = directory / NORMAL, directory / f"sample-{fault}"
    hand_over(directory, entire=False)
    for place, options in zip(places, ((), ("--fault", fault)), strict=True):
        _record(place, options, directory, quiet=quiet)
    return places


def explain(fault: str) -> str:
    """Return what was done to the sample, in a sentence."""
    from critpath.commands import workload  # noqa: PLC0415 - start-up time

    faulty = sum(bool(f) for _, f in workload.plan(SEED, EXECUTIONS, fault))
    return (
        f"Both were recorded on this machine just now. In the second {FAULTS[fault]}, in "
        f"{plural(faulty, 'request')} of the kind `{workload.FAULTS[fault]}`."
    )


def hand_over(directory: Path, *, entire: bool) -> None:
    """Give the demo's directory to the user who called sudo, whom the workload runs as."""
    user = _user()
    if user is None:
        return
    for place in (directory, *(directory.iterdir() if entire else ())):
        status = place.lstat()
        # A hard link to a file of somebody else's may have been put there.
        if place == directory or (S_ISREG(status.st_mode) and status.st_nlink == 1):
            os.chown(place, user.uid, user.gid, follow_symlinks=False)


def _user() -> User | None:
    from critpath_record import User  # noqa: PLC0415 - start-up time

    return User.behind_sudo(os.environb, as_root=False)


def _record(place: Path, options: tuple[str, ...], directory: Path, *, quiet: bool) -> None:
    from critpath import __version__  # noqa: PLC0415 - the version only
    from critpath_record import (  # noqa: PLC0415 - start-up time
        RecordRequest,
        record,
    )

    # -P: a module of the current directory must not take the place of one of Python's.
    command = (
        *(sys.executable, "-P", "-m", "critpath.commands.workload"),
        *("--seed", str(SEED), "--executions", str(EXECUTIONS)),
        *("--directory", str(directory.absolute()), *options),
    )
    tell = ProgressReporter(quiet=True)
    hint(f"recording {place}", quiet=quiet)
    try:
        with _before_others():
            outcome = record(
                RecordRequest(
                    output=place,
                    commands=(command,),
                    version=__version__,
                    execution="marker",
                    force=True,
                ),
                tell,
                survey_recorded,
            )
    finally:
        tell.close()
    if outcome.exit_code > 128:
        raise KeyboardInterrupt
    if outcome.exit_code or not outcome.recordings:
        raise CritpathError(
            f"the demo's workload ended with exit code {outcome.exit_code}",
            "critpath demo --shipped compares recordings that come with critpath",
        )
    manifest = outcome.recordings[0].manifest
    if manifest.lost:
        hint(f"warning: {plural(manifest.lost, 'event')} lost in {place}", quiet=False)


@contextlib.contextmanager
def _before_others() -> Iterator[None]:
    """Have the command run before other processes: what they do is not the demo's fault."""
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(OSError):  # not in every container
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameter)
