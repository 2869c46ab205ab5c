"""Ends a session so that its trace is whole, and reads back what was lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError, UnreadableError
from critpath.model import CpuLoss
from critpath.record.lttng.daemon import end_daemon, end_orphans, own_daemons
from critpath.record.lttng.program import Channel, LttngError, channels, installed, run, sessions
from critpath.record.reading import read_manifest
from critpath.record.recorder import Leftover, Recorded
from critpath_marks.sessions import owner_of

DATA_LIMIT: Final = 120.0  # seconds the consumer daemon may take to write what is left

# What was lost by sessions that this process ended for dead recorders: LTTng forgets it
# with the session, and the manifest is written afterwards.
_ended: Final[dict[str, tuple[CpuLoss, ...]]] = {}


def stop_session(session: str, limit: float = DATA_LIMIT) -> str:
    """Turn tracing off and wait until the trace is written.

    Returns
    -------
    str
        A warning if it was not written in time, else "".
    """
    try:
        # Stops first, then asks again and again whether data is pending.
        run("stop", session, limit=limit)
    except LttngError as error:
        if error.said == "timeout":
            return (
                f"{limit:.0f} s after tracing was turned off, LTTng's consumer daemon had"
                " not written everything: the trace may lack its end"
            )
        if "already stopped" not in error.said.lower() and "not started" not in error.said.lower():
            raise
    return ""


def destroy_session(session: str, *, wait: bool = True) -> None:
    """Remove a session from its daemon; one that is not there is removed already."""
    try:
        run("destroy", *(() if wait else ("--no-wait",)), session, limit=DATA_LIMIT)
    except LttngError as error:
        if error.said == "timeout" and wait:
            destroy_session(session, wait=False)
        elif "not found" not in error.said.lower():
            raise


def loss_of(counted: list[Channel]) -> tuple[CpuLoss, ...]:
    """Return what channels lost: LTTng counts for all cpus together."""
    events = sum(channel.discarded for channel in counted)
    packets = sum(channel.lost_packets for channel in counted)
    return (CpuLoss(-1, events, packets),) if events or packets else ()


def end_session(session: str) -> None:
    """Stop and destroy the session of a dead recorder: its trace is readable then."""
    stop_session(session)
    with contextlib.suppress(CritpathError):
        _ended[session] = loss_of(channels(session))
    destroy_session(session)


def finish_dead(directory: Path, tell: Callable[[str], None]) -> Recorded:
    """Finish the recording of a recorder that was killed.

    LTTng's consumer daemon went on writing: the trace is whole once its session is
    ended, here or by `leftovers` before.

    Parameters
    ----------
    directory : Path
        The recording's.
    tell : callable
        Told what is being done.

    Raises
    ------
    CritpathError
        If the session cannot be ended, or left no trace.
    """
    place = (directory / "trace").absolute()
    session = _session(directory)
    there: dict[str, str] = {}
    if installed():
        with contextlib.suppress(LttngError):  # no daemon: no session
            there = sessions()
    if session in there:
        owner = owner_of(session)
        if owner is None or owner.gone() is not True:
            raise CritpathError(
                f"the session {session} still records into {directory}",
                "end its recorder first",
            )
        tell("ending its LTTng session")
        end_session(session)
        end_orphans()
    if not (place / "kernel" / "metadata").is_file():
        raise CritpathError(f"no trace in {place}", "nothing was recorded: remove it")
    if session not in _ended:
        return Recorded(
            facts={"name": "lttng"},
            warnings=("LTTng's count of discarded events is lost: the trace's own marks tell",),
        )
    return Recorded(loss=_ended[session], facts={"name": "lttng"})


def leftovers() -> list[Leftover]:
    """Return the sessions and session daemons of dead recorders."""
    found: list[Leftover] = []
    if not installed():
        return found
    with contextlib.suppress(LttngError):  # no daemon: no session
        found += [
            Leftover("session", name, name, partial(end_session, name))
            for name in sessions()
            if _dead(name)
        ]
    found += [
        Leftover("daemon", str(pid), name, partial(_end_daemon, pid))
        for pid, name in own_daemons()
        if _dead(name)
    ]
    return found


def _dead(session: str) -> bool:
    owner = owner_of(session)
    return owner is not None and owner.gone() is True


def _end_daemon(pid: int) -> None:
    if not end_daemon(pid):
        raise CritpathError(
            f"the session daemon {pid} still has sessions of others: {', '.join(sessions())}",
            "end those, then: critpath doctor --clean",
        )


def _session(directory: Path) -> str:
    """Return the session that a recording's manifest names, "" if it has none."""
    try:
        return read_manifest(directory).session
    except UnreadableError:
        return ""
