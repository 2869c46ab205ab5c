"""Checks what this machine lacks for recording through tracefs."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath.schema.ways import way_of_requests
from critpath_record.ftrace import tracefs
from critpath_record.ftrace.drain import online_cpus
from critpath_record.ftrace.events import SEGMENTS, lttng_name
from critpath_record.identity import CAP_SYS_ADMIN, has_capability
from critpath_record.recorder import RecorderSettings, Requirement

CLOCK: Final = "mono"
DEFAULT_BYTES: Final = 8 << 20  # per cpu
LEAST_BYTES: Final = 1 << 20  # below which the recorder does not go on its own
_SHARE: Final = 16  # of the free memory, all cpus together
_LOCKDOWN: Final = Path("/sys/kernel/security/lockdown")
_FILE_SYSTEMS: Final = Path("/proc/filesystems")
_MEMORY: Final = Path("/proc/meminfo")

_ROOT: Final = "sudo critpath record ..."
_KERNEL: Final = (
    "boot a kernel with CONFIG_FTRACE=y, CONFIG_ENABLE_DEFAULT_TRACERS=y (or any tracer) "
    "and CONFIG_EVENT_TRACING=y, as every distribution's is"
)


def find_needs(settings: RecorderSettings | None = None) -> list[Requirement]:
    """Return everything that is missing here, each with its fix.

    With `settings`, tracefs is mounted if necessary; without, nothing is changed.
    """
    if sys.platform != "linux":
        return [
            Requirement(
                "linux", f"this is {sys.platform}, not Linux", "record on Linux, compare anywhere"
            )
        ]
    found = [*_lockdown(), *_memory(settings)]
    root = tracefs.find()
    if root is None:
        unmounted = _unmounted(mount=settings is not None)
        found += unmounted
        root = tracefs.find()
        if root is None:
            return found
    if not os.access(root / "instances", os.W_OK | os.X_OK, effective_ids=True):
        found.append(_unwritable(root))
        return found
    return found + _kernel(root)


def offered_way() -> str:
    """Return by which way requests of servers can be found in what this kernel records."""
    root = tracefs.find()
    if root is None:
        return ""
    try:
        lines = (root / "available_events").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return ""
    return way_of_requests(
        (lttng_name(*line.split(":", 1)) for line in lines if ":" in line), SEGMENTS
    )


def buffer_bytes(settings: RecorderSettings) -> int:
    """Return the size of each CPU's buffer."""
    if settings.buffer_bytes:
        return settings.buffer_bytes
    free = free_memory()
    share = free // _SHARE // max(len(online_cpus()), 1) if free else DEFAULT_BYTES
    return max(LEAST_BYTES, min(DEFAULT_BYTES, share))


def free_memory() -> int:
    """Return the available memory in bytes, 0 if unknown."""
    try:
        text = _MEMORY.read_text(encoding="ascii")
    except (OSError, ValueError):
        return 0
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _lockdown() -> list[Requirement]:
    with contextlib.suppress(OSError):
        # LOCKDOWN_TRACEFS is one of the reasons of "confidentiality" (security.h).
        if "[confidentiality]" in _LOCKDOWN.read_text(encoding="ascii"):
            return [
                Requirement(
                    "lockdown",
                    "the kernel is locked down (confidentiality): it shows no events to anybody",
                    "boot with lockdown=integrity, or without lockdown= on the kernel's command "
                    "line (Secure Boot may set it)",
                )
            ]
    return []


def _memory(settings: RecorderSettings | None) -> list[Requirement]:
    free = free_memory()
    if not free:
        return []
    cpus = len(online_cpus())
    each = buffer_bytes(settings) if settings else LEAST_BYTES
    if cpus * each <= free // 2:
        return []
    return [
        Requirement(
            "memory",
            f"{cpus} buffers of {each >> 10} KiB are too much: {free >> 20} MiB of memory are free",
            f"critpath record --buffer-size {max(free // 8 // cpus >> 10, 64)}K ...",
        )
    ]


def _unmounted(*, mount: bool) -> list[Requirement]:
    known = ""
    with contextlib.suppress(OSError):
        known = _FILE_SYSTEMS.read_text(encoding="ascii", errors="replace")
    if known and "tracefs" not in known.split():
        return [Requirement("tracefs", "this kernel has no tracefs", _KERNEL)]
    what = f"tracefs is not mounted at {tracefs.MOUNT_POINT}"
    if os.geteuid() != 0:
        return [
            Requirement("root", "tracing through tracefs needs root", _ROOT),
            Requirement("tracefs", what, f"sudo {tracefs.MOUNT_COMMAND}"),
        ]
    if not has_capability(CAP_SYS_ADMIN):
        return [
            Requirement(
                "tracefs",
                f"{what}, and this process may not mount it (no CAP_SYS_ADMIN)",
                f"give the container the host's: -v {tracefs.MOUNT_POINT}:{tracefs.MOUNT_POINT}",
            )
        ]
    if not mount:
        return [
            Requirement(
                "tracefs", f"{what}; a recording mounts it", tracefs.MOUNT_COMMAND, fatal=False
            )
        ]
    try:
        tracefs.mount()
    except CritpathError as error:
        return [Requirement("tracefs", error.what, error.do)]
    return []


def _unwritable(root: Path) -> Requirement:
    if os.geteuid() != 0:
        return Requirement("root", f"only root may use {root}", _ROOT)
    if not (root / "instances").is_dir():
        return Requirement(
            "instances", f"{root} has no instances: it is hidden or not whole", _KERNEL
        )
    return Requirement(
        "tracefs",
        f"{root} cannot be written to, even by root: it is mounted read-only, or this is a "
        "container",
        f"mount -o remount,rw {root}, or record on the machine itself",
    )


def _kernel(root: Path) -> list[Requirement]:
    found = []
    if not (root / "events/sched/sched_switch").is_dir():
        found.append(Requirement("events", "this kernel has no scheduling events", _KERNEL))
    try:
        clocks = (root / "trace_clock").read_text(encoding="ascii")
    except OSError as error:
        found.append(
            Requirement(
                "tracefs",
                f"{root / 'trace_clock'} cannot be read: {error.strerror}",
                "record on the machine itself, or in a privileged container",
            )
        )
        return found
    if CLOCK not in clocks.replace("[", " ").replace("]", " ").split():
        found.append(
            Requirement(
                "clock", "this kernel's tracer has no monotonic clock", "boot Linux 4.1 or later"
            )
        )
    return found
