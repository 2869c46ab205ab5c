"""Runs the `lttng` program and reads what it answers."""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from critpath.errors import CritpathError
from critpath.units import safe_text

LIMIT: Final = 60.0  # seconds for one answer; a session daemon may be loading modules
_NO_DAEMON: Final = "no session daemon"


class LttngError(CritpathError):
    """`lttng` refused; ``said`` is its own last line."""

    def __init__(self, what: str, do: str, said: str) -> None:
        super().__init__(what, do)
        self.said = said


@dataclass(frozen=True)
class Channel:
    """One channel of a session, as `lttng list` counts it.

    Attributes
    ----------
    domain : str
        ``KERNEL`` or ``UST``.
    name : str
    subbuffer_size, subbuffer_count : int
        Per cpu.
    discarded, lost_packets : int
        Of all cpus together, since the session was made.
    """

    domain: str
    name: str
    subbuffer_size: int
    subbuffer_count: int
    discarded: int
    lost_packets: int


def installed() -> bool:
    """Tell whether the client and the session daemon are on PATH, where root trusts them."""
    return all(map(trusted_program, ("lttng", "lttng-sessiond")))


def run(*arguments: str, limit: float = LIMIT) -> str:
    """Run one `lttng` command; a session daemon is never spawned by it.

    Parameters
    ----------
    *arguments : str
    limit : float
        Seconds it may take.

    Returns
    -------
    str
        What it printed on stdout.

    Raises
    ------
    LttngError
        If it is not there, refuses or does not answer in time.
    """
    client = trusted_program("lttng")
    if client is None:
        raise _missing()
    command = [client, "--no-sessiond", *arguments]
    shown = "lttng " + next((a for a in arguments if not a.startswith("-") and a != "xml"), "")
    try:
        done = subprocess.run(  # noqa: S603 - an argument list
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit,
            check=False,
            # Not the terminal's foreground group: a Ctrl-C is for the command.
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise _missing() from None
    except subprocess.TimeoutExpired:
        raise LttngError(
            f"{shown} did not answer in {limit:.0f} s",
            "see whether the session daemon is alive: systemctl status lttng-sessiond",
            "timeout",
        ) from None
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace")
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    said = safe_text(lines[-1].removeprefix("Error: ")) if lines else f"exit {done.returncode}"
    raise LttngError(f"{shown} failed: {said}", "critpath doctor", said)


def _missing() -> LttngError:
    return LttngError("there is no lttng here", "install lttng-tools", "")


def ask(*arguments: str, limit: float = LIMIT) -> ET.Element:
    """Run one `lttng` command and return its answer as XML (`lttng --mi xml`)."""
    text = run("--mi", "xml", *arguments, limit=limit)
    try:
        return ET.fromstring(text)  # noqa: S314 - only what lttng itself prints
    except ET.ParseError as error:
        raise LttngError(
            f"lttng printed no XML: {error}", "check the installation of lttng-tools", ""
        ) from None


def reachable() -> bool:
    """Tell whether a session daemon answers this user."""
    try:
        run("list")
    except LttngError as error:
        if error.said.lower().find(_NO_DAEMON) >= 0:
            return False
        raise
    return True


def sessions() -> dict[str, str]:
    """Return the sessions that the daemon has, each with where its trace goes."""
    return {
        text(session, "name"): text(session, "path")
        for session in ask("list").iterfind(".//{*}session")
    }


def channels(session: str, limit: float = LIMIT) -> list[Channel]:
    """Return a session's channels with their counts."""
    return [
        Channel(
            text(domain, "type"),
            text(channel, "name"),
            _number(channel, "subbuffer_size"),
            _number(channel, "subbuffer_count"),
            _number(channel, "discarded_events"),
            _number(channel, "lost_packets"),
        )
        for domain in ask("list", session, limit=limit).iterfind(".//{*}domain")
        for channel in domain.iterfind(".//{*}channel")
    ]


def kernel_events() -> set[str]:
    """Return the names of the tracepoints that the kernel tracer offers."""
    return {text(event, "name") for event in ask("list", "--kernel").iterfind(".//{*}event")}


def version() -> str:
    """Return lttng-tools' version, for example ``2.13.9``."""
    return text(ask("version"), ".//{*}version/{*}string")


def modules_version() -> str:
    """Return lttng-modules' version, "" while they are not loaded."""
    try:
        return Path("/sys/module/lttng_tracer/version").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def numbers(shown: str) -> tuple[int, ...]:
    """Return a version's first two numbers, to compare with."""
    found = []
    for part in shown.split(".")[:2]:
        digits = "".join(c for c in part if c in "0123456789")
        found.append(int(digits) if digits else 0)
    return tuple(found)


def text(element: ET.Element, name: str) -> str:
    """Return the text of the named child, "" without one; namespaces do not matter."""
    return element.findtext(name if name.startswith(".") else "{*}" + name) or ""


def _number(channel: ET.Element, name: str) -> int:
    # In <attributes>; older releases have the counts there, too.
    try:
        return int(text(channel, f".//{{*}}{name}") or 0)
    except ValueError:
        return 0


# -----------------------------------------------------------------------------
# Finds the programs that critpath runs as root: only those that nobody else can exchange.


def trusted_program(name: str) -> str | None:
    """Find a program along PATH, never in the current directory.

    Parameters
    ----------
    name : str

    Returns
    -------
    str or None
        Its path.  For root only one that belongs to root, in directories that do, all the
        way from ``/``, and that no group but root's may write to: a PATH that came through
        ``sudo env "PATH=$PATH"`` may have places of other users in it.
    """
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if not Path(place).is_absolute():
            continue
        path = Path(place, name)
        if path.is_file() and os.access(path, os.X_OK) and (os.geteuid() or _is_roots(path)):
            return str(path)
    return None


def _is_roots(path: Path) -> bool:
    """Tell whether only root decides what a name leads to; both ways to it count."""
    try:
        real = path.resolve(strict=True)
        return all(map(_is_kept, {path.parent, *path.parent.parents, real, *real.parents}))
    except (OSError, RuntimeError):  # a loop of links
        return False


def _is_kept(path: Path) -> bool:
    status = path.stat()
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    others = stat.S_IWOTH | (stat.S_IWGRP if status.st_gid else 0)
    return status.st_uid == 0 and (bool(sticky) or not status.st_mode & others)
