"""Tries each thing that a recorder does to a machine, which a container may keep from it."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath_marks.sessions import new_session_name, pid_namespace
from critpath_record import limits, registry, scripts
from critpath_record.ftrace import tracefs
from critpath_record.ftrace.drain import raise_priority
from critpath_record.group_names import list_runtimes
from critpath_record.identity import INITIAL_PID_NAMESPACE
from critpath_record.proc import list_pids

_EXIT: Final = 0x95  # an instruction
_INITIAL_GROUPS: Final = "cgroup:[4026531835]"  # the kernel's PROC_CGROUP_INIT_INO
_INITIAL_USERS: Final = "user:[4026531837]"


class _LackError(Exception):
    """What was tried did not work."""


@dataclass(frozen=True)
class Trial:
    """Something that was tried, and why it did not work: "" where it did."""

    name: str
    fatal: bool  # nothing is recorded without it
    why: str


def try_all() -> list[Trial]:
    """Try everything, and leave nothing behind."""
    return [Trial(name, name in _FATAL, _why(attempt)) for name, attempt in _TRIALS.items()]


def _why(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except OSError as error:
        return error.strerror or str(error)
    except CritpathError as error:
        return error.what
    except _LackError as error:
        return str(error)
    return ""


def _require(*, holds: bool, else_why: str) -> None:
    if not holds:
        raise _LackError(else_why)


def _trace() -> None:
    root = tracefs.find()
    if root is None:
        raise _LackError(f"tracefs is not mounted at {tracefs.MOUNT_POINT}")
    instance = tracefs.Instance.pin(root, new_session_name())
    try:
        instance.make()
        instance.write("set_event", "sched:sched_switch")
        os.close(instance.open("per_cpu/cpu0/trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK))
    finally:
        instance.remove()


def _see_pids() -> None:
    own = pid_namespace()
    _require(holds=own == INITIAL_PID_NAMESPACE, else_why=f"this pid namespace is {own}")


def _compare_namespace(kind: str, initial: str, name: str) -> None:
    own = os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115 - no path
    _require(holds=own == initial, else_why=f"this {name} namespace is {own}")


def _read_limits() -> None:
    places = list(limits.hierarchies(Path("/proc/self/mountinfo")))
    _require(holds=bool(places), else_why="no control groups are mounted")
    for place, *_ in places:
        os.listdir(place)  # noqa: PTH208 - whether that can be


def _keep_notes() -> None:
    place = registry.registry_directory(create=True)
    _require(holds=place is not None, else_why="there is no directory of ours, nor can one be made")


def _look_at_processes() -> None:
    seen = hidden = 0
    for pid in list_pids():
        try:
            os.stat(f"/proc/{pid}/ns/net")  # noqa: PTH116 - as a recorder does
            seen += 1
        except PermissionError:
            hidden += 1
        except OSError:  # it has ended
            continue
    # Some hide themselves from everybody.
    _require(holds=seen > hidden, else_why=f"{hidden} of {seen + hidden} processes are closed")


def _read_of_others() -> None:
    with tempfile.TemporaryDirectory(prefix=".critpath-") as place:
        file = Path(place) / secrets.token_hex(4)
        file.touch(mode=0)  # closed to its owner, too, but for who may read everything
        file.read_bytes()


def _load_programs() -> None:
    from critpath_record import bpf  # noqa: PLC0415 - rarely needed

    code = bpf.Assembler()
    code.set(0, 0)
    code.put(_EXIT)
    os.close(bpf.load(code.bytes(), b"doctor"))


def _sample() -> None:
    from critpath_record.counts.events import Counted  # noqa: PLC0415 - as above
    from critpath_record.counts.fallback import PerfCounts  # noqa: PLC0415 - rarely needed

    source = PerfCounts([Counted("sched/sched_switch", ("x",))], None)
    source.close()
    _require(holds=not source.skipped, else_why="the kernel refuses it")


def _hurry() -> None:
    policy, nice = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    try:
        _require(holds=raise_priority() != "normal", else_why="the kernel refuses it")
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, policy, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, 0, nice)


_FATAL: Final = {"tracing", "root"}
_TRIALS: Final[dict[str, Callable[[], None]]] = {
    "tracing": _trace,
    "root": lambda: _compare_namespace("user", _INITIAL_USERS, "user"),
    "processes of the host": _see_pids,
    "control groups of the host": lambda: _compare_namespace(
        "cgroup", _INITIAL_GROUPS, "control group"
    ),
    "limits": _read_limits,
    "names of containers": lambda: _require(
        holds=bool(list_runtimes()), else_why="no runtime's files are here"
    ),
    "/run/critpath": _keep_notes,
    "CAP_SYS_PTRACE": _look_at_processes,
    "CAP_DAC_READ_SEARCH": _read_of_others,
    "CAP_PERFMON": _sample,
    "CAP_BPF": _load_programs,
    "programs that begin": lambda: scripts.listen().close(),
    "CAP_SYS_NICE": _hurry,
}
