"""The recorder that records no events: what happens is only counted, see `counting`."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from critpath import __version__
from critpath.errors import CritpathError, with_sudo
from critpath.model.recording import COUNTS
from critpath_record import bpf
from critpath_record.counts.attach import ProgramCounts
from critpath_record.counts.events import FREE, Counted, missing_events
from critpath_record.counts.fallback import PerfCounts
from critpath_record.counts.functions import find_functions
from critpath_record.counts.groups import find_root
from critpath_record.ftrace import tracefs
from critpath_record.identity import CAP_BPF, CAP_PERFMON, has_capability
from critpath_record.proc import read_text
from critpath_record.recorder import RecorderSettings, Requirement
from critpath_record.source import Source, Taken


def open_recorder(settings: RecorderSettings) -> Source:
    """Return a recorder, which does nothing: the session counts."""
    del settings
    return CountsRecorder()


class CountsRecorder(Source):
    """Records nothing."""

    def open(self) -> int:
        """Return the time."""
        return time.monotonic_ns()

    def close(self) -> int:
        """Return the time."""
        return time.monotonic_ns()

    def drain(self, report: Callable[[str], None]) -> Taken:
        """Return what there is to say."""
        del report
        return Taken(facts=_facts())


def _facts() -> Mapping[str, object]:
    return {"name": "counts", "version": __version__, "events": [], "event_count": 0}


def find_needs(settings: RecorderSettings | None = None) -> list[Requirement]:
    """Return everything that is missing here, each with its fix."""
    if sys.platform != "linux":
        return [Requirement("linux", "only Linux can be counted", "record on a Linux machine")]
    if settings is not None and settings.counts is not None and settings.counts.events == FREE:
        return []
    if os.geteuid() and not (has_capability(CAP_PERFMON) and has_capability(CAP_BPF)):
        do = with_sudo("record --recorder counts ...")
        return [Requirement("root", "counting what the kernel does needs root", do)]
    root = tracefs.find() or (tracefs.mount() if settings is not None else None)
    if root is None:
        what = f"tracefs is not mounted at {tracefs.MOUNT_POINT}; a recording mounts it"
        return [Requirement("tracefs", what, tracefs.MOUNT_COMMAND, fatal=False)]
    try:
        lines = (root / "available_events").read_text(encoding="ascii").splitlines()
    except OSError as error:
        what = f"the kernel's events cannot be listed: {error.strerror}"
        return [Requirement("events", what, "record on the machine itself, as root")]
    found = []
    if missing := missing_events(line.replace(":", "/", 1) for line in lines):
        what = f"this kernel has no {', '.join(missing[:3])}{', ...' * (len(missing) > 3)}"
        do = "boot a kernel with CONFIG_FTRACE_SYSCALLS=y to count system calls, too"
        found.append(Requirement("events", what, do, fatal=False))
    try:
        os.close(bpf.make_array(4096, mapped=True))
    except OSError as error:
        why = f"the kernel takes no programs that count ({error.strerror})"
        do = "boot Linux 5.5 or later with CONFIG_BPF_SYSCALL=y"
        what = f"{why}: perf counts a few events instead"
        found.append(Requirement("bpf", what, do, fatal=False))
    return found


def offered_way() -> str:
    """Return "": counts have no requests of servers."""
    return ""


def offered_counting() -> dict[str, bool]:
    """Return what this kernel offers to count by, tried now where only trying tells."""
    root = tracefs.find()
    probe = Counted("raw_syscalls/sys_enter", ("x",))
    functions: list[Counted] = []
    with contextlib.suppress(CritpathError):
        functions = find_functions(("vfs_read",))
    return {
        "programs at tracepoints": _can_count(ProgramCounts, [probe]),
        "perf counting events": _can_count(PerfCounts, [Counted("sched/sched_switch", ("x",))]),
        "programs at functions": _can_count(ProgramCounts, functions),
        "function_profile_enabled": bool(root and (root / "function_profile_enabled").exists()),
        "function tracer": bool(root and read_text(root / "available_filter_functions")),
        "fprobe": bool(root and "f[:[<group>/]" in read_text(root / "README")),
        "control groups": bool(find_root()),
        "32-bit programs": "__do_compat_sys_" in read_text("/proc/kallsyms"),
    }


def _can_count(reader: type[ProgramCounts | PerfCounts], counted: list[Counted]) -> bool:
    with contextlib.suppress(OSError):
        source = reader(counted, None)
        source.close()
        return not source.skipped
    return False


def finish_killed(directory: Path, report: Callable[[str], None]) -> Taken | None:
    """Return the result of a killed recorder: its counts are whole up to the last line."""
    del report
    return Taken(facts=_facts()) if (directory / COUNTS).is_file() else None
