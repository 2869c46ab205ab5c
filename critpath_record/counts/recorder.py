"""The recorder that records no events: what happens is only counted, see `counting`."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from critpath.errors import CritpathError
from critpath.model.recording import COUNTS
from critpath_record import bpf
from critpath_record.counts.attach import ProgramCounts
from critpath_record.counts.counting import Reader
from critpath_record.counts.events import FREE, Counted, missing_events
from critpath_record.counts.fallback import PerfCounts
from critpath_record.counts.functions import find_functions
from critpath_record.counts.groups import find_root
from critpath_record.ftrace import tracefs
from critpath_record.recorder import RecorderSettings, Requirement
from critpath_record.source import Source, Taken

_ROOT = "sudo critpath record --recorder counts ..."


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
    try:
        own = version("critpath")
    except PackageNotFoundError:
        own = ""
    return {"name": "counts", "version": own, "events": [], "event_count": 0}


def find_needs(settings: RecorderSettings | None = None) -> list[Requirement]:
    """Return everything that is missing here, each with its fix."""
    if sys.platform != "linux":
        return [Requirement("linux", "only Linux can be counted", "record on a Linux machine")]
    if settings is not None and settings.counts is not None and settings.counts.events == FREE:
        return []
    if os.geteuid() != 0:
        return [Requirement("root", "counting what the kernel does needs root", _ROOT)]
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
    missing = missing_events(line.replace(":", "/", 1) for line in lines)
    if missing:
        found.append(
            Requirement(
                "events",
                f"this kernel has no {', '.join(missing[:3])}{', ...' * (len(missing) > 3)}",
                "boot a kernel with CONFIG_FTRACE_SYSCALLS=y to count system calls, too",
                fatal=False,
            )
        )
    try:
        os.close(bpf.make_array(4096, mapped=True))
    except OSError as error:
        found.append(
            Requirement(
                "bpf",
                f"the kernel takes no programs that count ({error.strerror}): perf counts a few "
                "events instead",
                "boot Linux 5.5 or later with CONFIG_BPF_SYSCALL=y",
                fatal=False,
            )
        )
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
        "programs at tracepoints": _tried(lambda: ProgramCounts([probe], None)),
        "perf counting events": _tried(
            lambda: PerfCounts([Counted("sched/sched_switch", ("x",))], None)
        ),
        "programs at functions": _tried(lambda: ProgramCounts(functions, None)),
        "function_profile_enabled": bool(root and (root / "function_profile_enabled").exists()),
        "function tracer": bool(root and _readable(root / "available_filter_functions")),
        "fprobe": bool(root and _mentions(root / "README", "f[:[<group>/]")),
        "control groups": bool(find_root()),
        "32-bit programs": _mentions(Path("/proc/kallsyms"), "__do_compat_sys_"),
    }


def _tried(attach: Callable[[], Reader]) -> bool:
    try:
        source = attach()
    except OSError:
        return False
    offered = not source.skipped
    source.close()
    return offered


def _readable(file: Path) -> bool:
    with contextlib.suppress(OSError), file.open("rb") as stream:
        return bool(stream.read(1))
    return False


def _mentions(file: Path, text: str) -> bool:
    with contextlib.suppress(OSError):
        return text.encode() in file.read_bytes()
    return False


def finish_killed(directory: Path, report: Callable[[str], None]) -> Taken | None:
    """Return the result of a killed recorder: its counts are whole up to the last line."""
    del report
    return Taken(facts=_facts()) if (directory / COUNTS).is_file() else None
