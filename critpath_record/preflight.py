"""Checks what this machine lacks for recording, each thing with its fix."""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath.errors import CritpathError
from critpath_marks.sessions import pid_namespace
from critpath_record.identity import (
    FOREIGN_CLOCK,
    INITIAL_PID_NAMESPACE,
    NO_PROC,
    has_foreign_clock,
    lacks_proc,
)
from critpath_record.proc import read_text
from critpath_record.recorder import (
    NEEDS,
    RECORDERS,
    TRACING,
    Leftover,
    RecorderSettings,
    Requirement,
)

if TYPE_CHECKING:
    from critpath_record.trials import Trial

# Bytes that a recording should find free.  A pipe between two processes that does
# nothing else makes about 50 MB of trace a second; most programs make a hundredth.
_LITTLE_SPACE: Final = 1 << 30
_NO_SPACE: Final = 1 << 26
# Read by a system call or from slow hardware, with every event.
_CLOCKSOURCE: Final = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_SLOW_CLOCKS: Final = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")


@dataclass(frozen=True)
class Preflight:
    """What a machine can record."""

    # For each recorder, what it lacks here, in the order that ``auto`` tries them.
    recorders: Mapping[str, tuple[Requirement, ...]]
    obstacles: tuple[Requirement, ...]  # what concerns every recorder
    # Facts, as JSON has them: ``kernel``, ``machine``, ``cpus``, ``clocksource``, ``lockdown``,
    # ``python``, ``user``, ``pid_namespace``, ``container``, ``free_bytes``.
    host: Mapping[str, object]
    # By which way requests of servers can be found in what each recorder records here
    # (`critpath.schema.ways.way_of_requests`).
    ways: Mapping[str, str] = field(default_factory=dict)
    # What the kernel offers to count by, to root; empty for others.
    counting: Mapping[str, bool] = field(default_factory=dict)

    @staticmethod
    def find_stack_sources() -> dict[str, list[Requirement]]:
        """Return what can take stacks beside a recording, and what each lacks here."""
        from critpath_record.stacks.sources import SOURCES, find_obstacles  # noqa: PLC0415 - rare

        return {name: find_obstacles(name) for name in SOURCES}

    @staticmethod
    def find_leftovers(directories: Sequence[Path] = ()) -> list[Leftover]:
        """Return everything that dead recorders left, and what of `directories` is unfinished."""
        from critpath_record.cleanup import find_leftovers  # noqa: PLC0415 - rare

        return find_leftovers(directories)

    @staticmethod
    def try_all() -> list[Trial]:
        """Try each thing that a recorder does, which a container may keep from it."""
        from critpath_record.trials import try_all  # noqa: PLC0415 - rare

        return try_all()

    def why_not(self, recorder: str = "auto") -> str:
        """Return why nothing can be recorded here by a recorder, "" if it can."""
        fatal = [o.what for o in self.obstacles if o.fatal]
        names = TRACING if recorder == "auto" else (recorder,)
        asked = [self.recorders[name] for name in names if name in self.recorders]
        lacking = [[o.what for o in of if o.fatal] for of in asked]
        if fatal or all(lacking):
            return "; ".join(fatal or [of[0] for of in lacking][:1])
        return ""

    @property
    def recorder(self) -> str | None:
        """The recorder that ``auto`` takes, None if none can record."""
        return next((name for name in TRACING if not self.why_not(name)), None)


def doctor(directory: Path, settings: RecorderSettings | None = None) -> Preflight:
    """Check everything that a recording into `directory` needs; it need not exist."""
    host = _host(directory)
    counting = settings is None and os.geteuid() == 0 and sys.platform == "linux"
    return Preflight(
        recorders={name: _find_missing(name, settings) for name in RECORDERS},
        obstacles=tuple(_general(host)),
        host=host,
        ways={name: _ask(name, "offered_way") or "" for name in RECORDERS},
        counting=(_ask("counts", "offered_counting") or {}) if counting else {},
    )


def _find_missing(recorder: str, settings: RecorderSettings | None) -> tuple[Requirement, ...]:
    try:
        return tuple(importlib.import_module(NEEDS[recorder]).find_needs(settings))
    except CritpathError as error:
        return (Requirement("failed", error.what, error.do),)
    except (OSError, ImportError) as error:
        # One recorder that cannot even look must not hide the other.
        what = f"the {recorder} recorder cannot look at this machine: {error}"
        do = "install critpath again, or report this with critpath doctor --json"
        return (Requirement("failed", what, do),)


def _ask(recorder: str, what: str) -> Any:
    """Return what a recorder offers here; None where it cannot look: what it lacks says more."""
    with contextlib.suppress(CritpathError, OSError, ImportError):
        return getattr(importlib.import_module(NEEDS[recorder]), what)()


def _host(directory: Path) -> dict[str, object]:
    namespace = pid_namespace()
    # The mode that is chosen: none, integrity, confidentiality.
    lockdown = re.search(r"\[(\w+)\]", read_text("/sys/kernel/security/lockdown"))
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "clocksource": read_text(_CLOCKSOURCE).strip(),
        "lockdown": lockdown[1] if lockdown else "none",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "user": _user(),
        "pid_namespace": {"id": namespace, "initial": namespace == INITIAL_PID_NAMESPACE},
        "container": _container(),
        "free_bytes": _free(directory),
    }


def _general(host: Mapping[str, object]) -> Iterator[Requirement]:
    if sys.platform != "linux":
        yield Requirement("linux", "only Linux can be recorded", "record on a Linux machine")
    # Unknown (0) where /proc is not mounted: then other things fail, with their reason.
    elif pid_namespace() not in {0, INITIAL_PID_NAMESPACE}:
        yield Requirement(
            "pid-namespace",
            "this is inside a container (its own pid namespace): the kernel numbers processes "
            "differently there than here",
            "record outside, choosing the container: critpath record -a --container NAME",
            fatal=False,
        )
    if sys.platform == "linux" and lacks_proc():
        yield Requirement("proc", *NO_PROC)
    if has_foreign_clock():
        yield Requirement("time-namespace", *FOREIGN_CLOCK)
    free = host["free_bytes"]
    if isinstance(free, int) and free < _LITTLE_SPACE:
        yield Requirement(
            "disk",
            f"{free >> 20} MiB are free here; a busy machine makes 50 MB of trace a second",
            "make room, or record elsewhere: critpath record -o DIR",
            fatal=free < _NO_SPACE,
        )
    if host["clocksource"] in _SLOW_CLOCKS:
        yield Requirement(
            "clock",
            f"the kernel reads the time from {host['clocksource']}, which is slow: every event "
            "costs more",
            "see why the TSC was found unstable: dmesg | grep -i -e tsc -e clocksource",
            fatal=False,
        )
    if host["lockdown"] == "confidentiality":
        yield Requirement(
            "lockdown",
            "the kernel is locked down (confidentiality): nobody may trace it",
            "boot with lockdown=integrity or without Secure Boot",
        )


def _user() -> dict[str, object]:
    """Return who records, and as whom the command runs."""
    import grp  # noqa: PLC0415 - not there on every system that can import critpath

    try:
        tracing = grp.getgrnam("tracing").gr_gid in {*os.getgroups(), os.getegid()}
    except KeyError:
        tracing = False
    return {
        "uid": os.geteuid(),
        "root": os.geteuid() == 0,
        "sudo_user": os.environ.get("SUDO_USER", "") if os.geteuid() == 0 else "",
        "tracing_group": tracing,
    }


def _container() -> str:
    """Return what kind of container this runs in, "" if none can be seen."""
    if Path("/run/.containerenv").exists():
        return "podman"
    if Path("/.dockerenv").exists():
        return "docker"
    # A container's first process has it in its environment.
    variable = os.environ.get("container", "")  # noqa: SIM112 - systemd's convention
    named = read_text("/run/systemd/container").strip() or variable
    return re.sub(r"[^\w.-]", "", named)[:40]


def _free(directory: Path) -> int:
    """Return the free bytes where a directory is, or will be."""
    for place in (directory.absolute(), *directory.absolute().parents):
        try:
            return shutil.disk_usage(place).free
        except FileNotFoundError:
            continue
        except OSError:
            break
    return 0
