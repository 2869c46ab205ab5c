"""Runs the `lttng` program and parses its output."""

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
from critpath_record.proc import read_text

LIMIT: Final = 60.0  # seconds for one answer; a session daemon may be loading modules
_NO_DAEMON: Final = "no session daemon"


class LttngError(CritpathError):
    """`lttng` failed; ``reason`` is the last line that it printed."""

    def __init__(self, what: str, do: str, reason: str) -> None:
        super().__init__(what, do)
        self.reason = reason


@dataclass(frozen=True)
class ChannelCounts:
    """One channel of a session, as `lttng list` counts it."""

    domain: str  # ``KERNEL`` or ``UST``
    name: str
    # Per cpu.
    subbuffer_size: int
    subbuffer_count: int
    # Of all cpus together, since the session was made.
    discarded: int
    lost_packets: int


def is_installed() -> bool:
    """Return whether the client and the session daemon are on PATH, where root trusts them."""
    return all(map(trusted_program, ("lttng", "lttng-sessiond")))


def run_lttng(*arguments: str, limit: float = LIMIT) -> str:
    """Run one `lttng` command, without spawning a session daemon; return its stdout."""
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
    reason = safe_text(lines[-1].removeprefix("Error: ")) if lines else f"exit {done.returncode}"
    raise LttngError(f"{shown} failed: {reason}", "critpath doctor", reason)


def _missing() -> LttngError:
    return LttngError("there is no lttng here", "install lttng-tools", "")


def query(*arguments: str, limit: float = LIMIT) -> ET.Element:
    """Run one `lttng` command and return its answer as XML (`lttng --mi xml`)."""
    text = run_lttng("--mi", "xml", *arguments, limit=limit)
    try:
        return ET.fromstring(text)  # noqa: S314 - only what lttng itself prints
    except ET.ParseError as error:
        raise LttngError(
            f"lttng printed no XML: {error}", "check the installation of lttng-tools", ""
        ) from None


def is_reachable() -> bool:
    """Return whether a session daemon answers this user."""
    try:
        run_lttng("list")
    except LttngError as error:
        if error.reason.lower().find(_NO_DAEMON) >= 0:
            return False
        raise
    return True


def list_sessions() -> dict[str, str]:
    """Return the daemon's sessions, each with the directory of its trace."""
    return {
        child_text(session, "name"): child_text(session, "path")
        for session in query("list").iterfind(".//{*}session")
    }


def describe_session(session: str) -> dict[str, str]:
    """Return what decides what a session records: each part by name, and its state."""
    found = {}
    for one in query("list", session).iterfind(".//{*}session"):
        found["the session"] = child_text(one, "enabled")
        for domain in one.iterfind(".//{*}domain"):
            kind = child_text(domain, "type").lower()
            trackers = domain.find("{*}process_attr_trackers")
            if trackers is not None:
                found[f"the tracked processes ({kind})"] = ET.tostring(trackers, "unicode")
            for channel in domain.iterfind(".//{*}channel"):
                name = child_text(channel, "name")
                found[f"the channel {name}"] = child_text(channel, "enabled")
                for event in channel.iterfind(".//{*}event"):
                    state = child_text(event, "enabled"), child_text(event, "filter_expression")
                    found[f"the event {child_text(event, 'name')}"] = " ".join(state)
    return found


def list_channels(session: str, limit: float = LIMIT) -> list[ChannelCounts]:
    """Return a session's channels with their counts."""
    return [
        ChannelCounts(
            child_text(domain, "type"),
            child_text(channel, "name"),
            _number(channel, "subbuffer_size"),
            _number(channel, "subbuffer_count"),
            _number(channel, "discarded_events"),
            _number(channel, "lost_packets"),
        )
        for domain in query("list", session, limit=limit).iterfind(".//{*}domain")
        for channel in domain.iterfind(".//{*}channel")
    ]


def list_kernel_events() -> set[str]:
    """Return the names of the tracepoints that the kernel tracer offers."""
    return {
        child_text(event, "name") for event in query("list", "--kernel").iterfind(".//{*}event")
    }


def version() -> str:
    """Return lttng-tools' version, for example ``2.13.9``."""
    return child_text(query("version"), ".//{*}version/{*}string")


def modules_version() -> str:
    """Return lttng-modules' version, "" while they are not loaded."""
    return read_text("/sys/module/lttng_tracer/version").strip()


def parse_version(shown: str) -> tuple[int, ...]:
    """Return a version's first two numbers, for comparisons."""
    found = []
    for part in shown.split(".")[:2]:
        digits = "".join(c for c in part if c in "0123456789")
        found.append(int(digits) if digits else 0)
    return tuple(found)


def child_text(element: ET.Element, name: str) -> str:
    """Return the text of the named child, "" without one, ignoring namespaces."""
    return element.findtext(name if name.startswith(".") else "{*}" + name) or ""


def _number(channel: ET.Element, name: str) -> int:
    # In <attributes>; older releases have the counts there, too.
    try:
        return int(child_text(channel, f".//{{*}}{name}") or 0)
    except ValueError:
        return 0


# Programs that root may run: only those that no other user can exchange


def trusted_program(name: str) -> str | None:
    """Find a program along PATH, never in the current directory; None if there is none.

    For root it must belong to root, in directories that do, all the way from ``/``, and be
    writable by no group but root's: a PATH that came through ``sudo env "PATH=$PATH"`` may
    lead into directories of other users.
    """
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if not Path(place).is_absolute():
            continue
        path = Path(place, name)
        # Not `Path.is_file`, which raises where a directory may not be looked into.
        found = os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113
        if found and (os.geteuid() or _is_controlled_by_root(path)):
            return str(path)
    return None


def _is_controlled_by_root(path: Path) -> bool:
    """Return whether only root controls where a name leads, both as named and resolved."""
    try:
        real = path.resolve(strict=True)
        return all(map(_only_root_writes, {path.parent, *path.parent.parents, real, *real.parents}))
    except (OSError, RuntimeError):  # a loop of links
        return False


def _only_root_writes(path: Path) -> bool:
    status = path.stat()
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    others = stat.S_IWOTH | (stat.S_IWGRP if status.st_gid else 0)
    return status.st_uid == 0 and (bool(sticky) or not status.st_mode & others)
