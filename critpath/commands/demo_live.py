"""The demo's own recordings: a bundled workload on this machine, healthy and with a fault."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Final

from critpath.commands.output import hint
from critpath.commands.record import Teller
from critpath.errors import CritpathError
from critpath.units import plural

if TYPE_CHECKING:
    from critpath.record.user import User

NORMAL: Final = "normal"
EXECUTIONS: Final = 180  # of all kinds together
SEED: Final = 1
PRIORITY: Final = 2  # the workload lowers its own by one, but for `intruder`

# Names are those of critpath.record.workload, which is not imported to show --help.
FAULTS: Final = {
    "lock": "the thread `holder` keeps a lock longer",
    "delay": "the process `helper` sleeps before it answers",
    "fsync": "a file is written to the disk in between",
    "cpu": "the process `intruder` computes on the same cpu",
}
DEFAULT_FAULT: Final = "lock"


def why_not() -> str:
    """Return why this machine cannot be recorded here and now, "" if it can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "recording needs root (sudo critpath demo)"
    from critpath.record.preflight import look  # noqa: PLC0415 - start-up time

    found = look(Path.cwd())
    if found.recorder is not None:
        return ""
    fatal = [o for o in (*found.obstacles, *sum(found.recorders.values(), ())) if o.fatal]
    return f"{fatal[0].what if fatal else 'nothing can record'} (critpath doctor says more)"


def record_both(directory: Path, fault: str, *, quiet: bool) -> tuple[Path, Path]:
    """Record the workload twice, the second time with a fault.

    Returns
    -------
    tuple of Path
        The normal and the sample recording.

    Raises
    ------
    CritpathError
        If that fails, or is interrupted.
    """
    places = directory / NORMAL, directory / f"sample-{fault}"
    hand_over(directory, entire=False)
    for place, options in zip(places, ((), ("--fault", fault)), strict=True):
        _record(place, options, directory, quiet=quiet)
    return places


def explain(fault: str) -> str:
    """Return what was done to the sample, in a sentence."""
    from critpath.record import workload  # noqa: PLC0415 - start-up time

    faulty = sum(bool(f) for _, f in workload.plan(SEED, EXECUTIONS, fault))
    return (
        f"Both were recorded on this machine just now. In the sample {FAULTS[fault]}, in "
        f"{plural(faulty, 'execution')} of the kind `{workload.FAULTS[fault]}`."
    )


def hand_over(directory: Path, *, entire: bool) -> None:
    """Give the demo's directory to the user who called sudo, whom the workload runs as.

    Parameters
    ----------
    directory : Path
    entire : bool
        With the files in it (not those of its directories: recordings are handed over).
    """
    user = _user()
    if user is None:
        return
    for place in (directory, *(directory.iterdir() if entire else ())):
        status = place.lstat()
        # A hard link to a file of somebody else's may have been put there.
        if place == directory or (S_ISREG(status.st_mode) and status.st_nlink == 1):
            os.chown(place, user.uid, user.gid, follow_symlinks=False)


def _user() -> User | None:
    from critpath.record.user import invoking_user  # noqa: PLC0415 - start-up time

    return invoking_user(os.environb, as_root=False)


def _record(place: Path, options: tuple[str, ...], directory: Path, *, quiet: bool) -> None:
    from critpath import __version__  # noqa: PLC0415 - the version only
    from critpath.record.request import Request  # noqa: PLC0415 - start-up time
    from critpath.record.session import record  # noqa: PLC0415 - start-up time

    # -P: a module of the current directory must not take the place of one of Python's.
    command = (
        *(sys.executable, "-P", "-m", "critpath.record.workload"),
        *("--seed", str(SEED), "--executions", str(EXECUTIONS)),
        *("--directory", str(directory.absolute()), *options),
    )
    tell = Teller(quiet=True)
    hint(f"recording {place}", quiet=quiet)
    try:
        with _before_others():
            outcome = record(
                Request(
                    output=place,
                    commands=(command,),
                    version=__version__,
                    execution="marker",
                    force=True,
                ),
                tell,
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
