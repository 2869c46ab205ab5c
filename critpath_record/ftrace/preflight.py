"""Checks what this machine lacks for recording through tracefs."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError, with_sudo
from critpath.schema.ways import way_of_requests
from critpath_record import rooted
from critpath_record.ftrace import tracefs
from critpath_record.ftrace.drain import online_cpus
from critpath_record.ftrace.events import SEGMENTS, lttng_name
from critpath_record.identity import CAP_SYS_ADMIN, has_capability
from critpath_record.proc import read_text
from critpath_record.recorder import RecorderSettings, Requirement

CLOCK: Final = "mono"
DEFAULT_BYTES: Final = 8 << 20  # per cpu
LEAST_BYTES: Final = 1 << 20  # below which the recorder does not go on its own
_SHARE: Final = 16  # of the free memory, all cpus together
_LOCKDOWN: Final = Path("/sys/kernel/security/lockdown")
_FILE_SYSTEMS: Final = Path("/proc/filesystems")
_MEMORY: Final = Path("/proc/meminfo")

_KERNEL: Final = (
    "boot a kernel with CONFIG_FTRACE=y, CONFIG_ENABLE_DEFAULT_TRACERS=y (or any tracer) "
    "and CONFIG_EVENT_TRACING=y, as every distribution's is"
)


def find_needs(settings: RecorderSettings | None = None) -> list[Requirement]:
    """Return what is missing here, each with its fix; with `settings`, tracefs is mounted."""
    return list(_find_needs(settings))


def _find_needs(settings: RecorderSettings | None) -> Iterator[Requirement]:
    if sys.platform != "linux":
        what = f"this is {sys.platform}, not Linux"
        yield Requirement("linux", what, "record on Linux, compare anywhere")
        return
    # LOCKDOWN_TRACEFS is one of the reasons of "confidentiality" (security.h).
    if "[confidentiality]" in read_text(_LOCKDOWN):
        yield Requirement(
            "lockdown",
            "the kernel is locked down (confidentiality): it shows no events to anybody",
            "boot with lockdown=integrity, or without lockdown= on the kernel's command line "
            "(Secure Boot may set it)",
        )
    free, cpus = free_memory(), len(online_cpus())
    each = buffer_bytes(settings) if settings else LEAST_BYTES
    if free and cpus * each > free // 2:
        yield Requirement(
            "memory",
            f"{cpus} buffers of {each >> 10} KiB are too much: {free >> 20} MiB of memory are free",
            f"critpath record --buffer-size {max(free // 8 // cpus >> 10, 64)}K ...",
        )
    if tracefs.find() is None:
        yield from _unmounted(mount=settings is not None)
    root = tracefs.find()
    if root is None:
        return
    if tracefs.files.may_make(root):
        yield from _kernel(root)
        yield from _capabilities()
    elif os.geteuid() != 0:
        what = f"only root may use {root}, or who has CAP_DAC_OVERRIDE"
        yield Requirement("root", what, with_sudo("record ..."))
    elif not (root / "instances").is_dir():
        what = f"{root} has no instances: it is hidden or not whole"
        yield Requirement("instances", what, _KERNEL)
    else:
        yield Requirement(
            "tracefs",
            f"{root} cannot be written to, even by root: it is mounted read-only, or this is a "
            "container",
            f"mount -o remount,rw {root}, or record on the machine itself",
        )


def offered_way(*, mount: bool = False) -> str:
    """Return by which way requests of servers can be found in what this kernel records.

    Without `mount`, "" as well where nobody has mounted what would tell.
    """
    root = tracefs.find() or (tracefs.mount() if mount else None)
    if root is None:
        return ""
    lines: list[str] = []
    with contextlib.suppress(OSError):  # it says nothing to who may not trace
        lines = (
            tracefs.files.read(root / "available_events").decode("utf-8", "replace").splitlines()
        )
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
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", read_text(_MEMORY), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _unmounted(*, mount: bool) -> Iterator[Requirement]:
    known = read_text(_FILE_SYSTEMS)
    what = f"tracefs is not mounted at {tracefs.MOUNT_POINT}"
    if known and "tracefs" not in known.split():
        yield Requirement("tracefs", "this kernel has no tracefs", _KERNEL)
    elif os.geteuid() != 0 and rooted.channel is None:
        yield Requirement("root", "tracing through tracefs needs root", with_sudo("record ..."))
        yield Requirement("tracefs", what, f"sudo {tracefs.MOUNT_COMMAND}")
    elif rooted.channel is None and not has_capability(CAP_SYS_ADMIN):
        yield Requirement(
            "tracefs",
            f"{what}, and this process may not mount it (no CAP_SYS_ADMIN)",
            f"give the container the host's: -v {tracefs.MOUNT_POINT}:{tracefs.MOUNT_POINT}",
        )
    elif not mount:
        what = f"{what}; a recording mounts it"
        yield Requirement("tracefs", what, tracefs.MOUNT_COMMAND, fatal=False)
    else:
        try:
            tracefs.mount()
        except CritpathError as error:
            yield Requirement("tracefs", error.what, error.do)


# What a user who may record lacks without a capability; docs/least-root.md has all of them.
_LOST: Final = {
    "CAP_DAC_READ_SEARCH": "names of containers and files of others' programs are not read",
    "CAP_SYS_PTRACE": "sockets and namespaces of others' processes are not known",
    "CAP_SYS_NICE": "on a busy machine buffers may overflow before they are moved",
    "CAP_PERFMON": "no --stacks, no --labels-from, no counts",
    "CAP_BPF": "no --files, no --labels-from, no counts",
}


def _capabilities() -> Iterator[Requirement]:
    """Yield what a user lacks who is not root and may record."""
    if os.geteuid() == 0:
        return
    for name, lost in _LOST.items():
        if not has_capability(rooted.KEPT[name]):
            do = f"give it: AmbientCapabilities={name} in a unit, setpriv --ambient-caps, or sudo"
            yield Requirement(name, f"without {name} {lost}", do, fatal=False)


def _kernel(root: Path) -> Iterator[Requirement]:
    if not tracefs.files.has_event(root, "sched/sched_switch"):
        yield Requirement("events", "this kernel has no scheduling events", _KERNEL)
    try:
        clocks = tracefs.files.read(root / "trace_clock").decode("ascii", "replace")
    except OSError as error:
        yield Requirement(
            "tracefs",
            f"{root / 'trace_clock'} cannot be read: {error.strerror}",
            "record on the machine itself, or in a privileged container",
        )
        return
    if CLOCK not in clocks.replace("[", " ").replace("]", " ").split():
        what = "this kernel's tracer has no monotonic clock"
        yield Requirement("clock", what, "boot Linux 4.1 or later")
