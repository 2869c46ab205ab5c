"""Stacks by Linux' perf: with which a thread went to sleep, woke another, and ran.

perf copies registers and the top of the stack at each such event (DWARF mode, which needs no
frame pointers).  After the recording a process of the invoking user unwinds and names them
(`critpath_record.stacks.unwind`), as it has to open the programs' files and those are hostile;
then the raw memory is deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from critpath.errors import CritpathError
from critpath.units import plural, safe_text
from critpath_record._spawn import SpawnError, collect, spawn
from critpath_record.ftrace.drain import raise_priority
from critpath_record.lttng.program import trusted_program
from critpath_record.recorder import Requirement
from critpath_record.stacks.sources import FRAMES, RAW_STACKS, SAMPLES, StackFacts, StackRequest

_DEPTH: Final = 2048  # bytes of stack: what costs no more than frame pointers
_PYTHON_DEPTH: Final = 4096  # its interpreter's own frames lie above the function
_RATE: Final = 199  # samples a second of threads that run
_EVENTS: Final = 3
_BUFFERS: Final = "4M"  # per cpu
_MOST_OWN: Final = 64  # threads that a filter names
_LARGEST: Final = "4G"  # of perf.data
_PATIENCE: Final = 20.0  # s for perf to begin and to end
_NAMES, _NAME = 3, 200  # stripped programs that a warning names, and letters of each
_UNWINDING: Final = 600.0  # s
# Neither runnable nor preempted.
_SLEEPS: Final = "prev_state != 0 && prev_state != 256"
_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def obstacles() -> list[Requirement]:
    """Return what taking native stacks lacks here."""
    if trusted_program("perf") is None:
        return [Requirement("perf", "there is no perf here", "apt-get install linux-perf")]
    if os.geteuid():
        return [Requirement("root", "taking stacks needs root", "sudo critpath record --stacks")]
    return []


@dataclass
class PerfSource:
    """perf record as a child of this process, and what it wrote."""

    request: StackRequest
    program: str
    pid: int = 0
    process: int = 0  # perf's number, also when it has ended
    data: int = -1  # where perf writes
    errors: int = -1  # a file without a name for what perf says
    early: bool = False  # it ended by itself
    programs: dict[tuple[int, int, int], int] = field(default_factory=dict)  # of containers
    pipes: tuple[int, ...] = ()  # of perf's control: closed before its end, perf would lose all

    def start(self) -> None:
        """Start perf, and return when it has begun."""
        self.errors = os.memfd_create("perf-errors")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self.data = os.open(self.request.directory / RAW_STACKS, flags, 0o600)
        begin, acknowledge = os.pipe(), os.pipe()
        own = [f"common_pid != {thread}" for thread in _own_threads()]
        command = [
            *("perf", "record", "-q", "-N", "-k", "CLOCK_MONOTONIC", "-m", _BUFFERS),
            *("--max-size", _LARGEST, "--user-callchains", "--call-graph", self.mode),
            *("--inherit", "-D", "-1", "--control", f"fd:{begin[0]},{acknowledge[1]}"),
            *("-e", "sched:sched_switch", "--filter", " && ".join([_SLEEPS, *own])),
            *("-e", "sched:sched_waking", "--filter", " && ".join(own)),
            *("-e", f"cpu-clock/freq={_RATE}/u", *self.whom),
            *("-o", f"/proc/self/fd/{self.data}"),
        ]
        variables = {**_ENVIRONMENT, "PERF_CONFIG": os.devnull}
        try:
            with Path(os.devnull).open("r+b", buffering=0) as nothing:
                self.pid, _, _ = spawn(
                    os.fsencode(self.program),
                    [os.fsencode(word) for word in command],
                    [os.fsencode(f"{name}={value}") for name, value in variables.items()],
                    keep=(begin[0], acknowledge[1], self.data),
                    death_signal=signal.SIGKILL,
                    streams=(nothing.fileno(), nothing.fileno(), self.errors),
                )
            self.process = self.pid
            raise_priority(self.pid)  # else it loses stacks beside what has the cpus
            os.close(acknowledge[1])
            acknowledge = (acknowledge[0], -1)
            self.pipes = (*begin, acknowledge[0])
            os.write(begin[1], b"enable\n")
            ready, _, _ = select.select([acknowledge[0]], [], [], _PATIENCE)
            if not ready or not os.read(acknowledge[0], 16).startswith(b"ack"):
                raise self._failed("did not begin")
        except (OSError, SpawnError) as error:
            raise CritpathError(
                f"perf cannot be started: {error.strerror}", "record without --stacks"
            ) from None
        finally:
            for descriptor in {*begin, *acknowledge} - {*self.pipes, -1}:
                os.close(descriptor)

    @property
    def whom(self) -> list[str]:
        """Whose threads perf follows."""
        request = self.request
        if request.group:
            return ["-a", "-G", ",".join([request.group.lstrip("/")] * _EVENTS)]
        if request.processes:
            return ["-p", ",".join(map(str, request.processes))]
        return ["-a"] if request.machine else ["-t", str(os.getpid())]

    @property
    def mode(self) -> str:
        """How perf finds callers."""
        return f"dwarf,{_PYTHON_DEPTH if self.request.python else _DEPTH}"

    def environment(self) -> Mapping[str, str]:
        """Return what has Python 3.12 and later write a map of its functions."""
        return {"PYTHONPERFSUPPORT": "1"} if self.request.python else {}

    def stop(self) -> None:
        """End perf, which writes what it still has."""
        if self.request.machine:
            self.programs = open_programs()
        if self.pid and collect(self.pid) is not None:
            self.pid, self.early = 0, True
        elif self.pid and not self._end(signal.SIGINT):
            self._end(signal.SIGKILL)

    def read(self) -> StackFacts:
        """Unwind as the invoking user, then delete what perf wrote."""
        user, directory = self.request.user, self.request.directory
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        made = [os.open(directory / name, flags, 0o600) for name in (FRAMES, SAMPLES)]
        descriptors, own = [self.data, *made], f"{os.getpid()},{self.process}"
        elsewhere = [":".join(map(str, (*key, at))) for key, at in self.programs.items()]
        command = [sys.executable, "-I", "-m", "critpath_record.stacks.unwind", self.program]
        try:
            if user is not None:  # perf opens it by name once more
                os.fchown(self.data, user.uid, user.gid)
            done = subprocess.run(  # noqa: S603 - our own module
                [*command, f"{self.early:d}", own, *map(str, descriptors), *elsewhere],
                pass_fds=[*descriptors, *self.programs.values()],
                env={**_ENVIRONMENT, **(_texts(user.environment) if user else {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                timeout=_UNWINDING,
                check=False,
                **_as_user(user),
            )
        except (OSError, subprocess.SubprocessError) as error:
            return self._dropped(str(error))
        finally:
            self._discard(RAW_STACKS)
            for descriptor in made:
                os.close(descriptor)
            self._close()
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        if done.returncode:
            return self._dropped(said[-1] if said else f"exit {done.returncode}")
        return self._read_counts(said)

    def _read_counts(self, said: list[str]) -> StackFacts:
        """Take what the child process counted, bounded, as it read what others wrote."""
        try:
            counted: Any = json.loads(said[-1])
            facts = {name: int(counted[name]) for name in ("samples", "stacks", "lost", "cut")}
            stripped, absent = _listed(counted["stripped"]), _listed(counted["absent"])
        except (IndexError, KeyError, TypeError, ValueError, RecursionError):
            return self._dropped("what was unwound is not counted")
        warnings = []
        if facts["lost"]:
            lost = plural(facts["lost"], "stack")
            warnings.append(f"{lost} were lost: perf could not write them fast enough")
        if stripped:
            warnings.append(
                f"no function of {stripped} has a name, as it is stripped: install its debug "
                "symbols, or keep them when it is built"
            )
        if absent:
            warnings.append(
                f"no function of {absent} has a name, as no such file is here: of a program in a "
                "container record with -a while it runs"
            )
        if self.early:
            warnings.append("perf ended before the recording did: of its end there are no stacks")
        if not facts["samples"]:
            warnings.append("no stacks were taken")
        about = {"source": "perf", "mode": self.mode, "scope": self.request.scope}
        return StackFacts({**about, **facts}, tuple(warnings))

    def abort(self) -> None:
        """Kill perf and delete what it wrote."""
        if self.pid:
            self._end(signal.SIGKILL)
        for name in (RAW_STACKS, FRAMES, SAMPLES):
            self._discard(name)
        self._close()

    def _close(self) -> None:
        for descriptor in {self.data, self.errors, *self.pipes, *self.programs.values()} - {-1}:
            os.close(descriptor)
        self.programs = {}
        self.data, self.errors, self.pipes = -1, -1, ()

    def _discard(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self.request.directory / name).unlink()

    def _dropped(self, why: str) -> StackFacts:
        for name in (FRAMES, SAMPLES):
            self._discard(name)
        return StackFacts(warnings=(f"the stacks could not be read: {safe_text(why)}",))

    def _end(self, number: int) -> bool:
        """Send a signal and wait; return whether perf has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        until = time.monotonic() + _PATIENCE
        while collect(self.pid) is None:
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        self.pid = 0
        return True

    def _failed(self, what: str) -> CritpathError:
        said = os.pread(self.errors, 1 << 16, 0).decode("utf-8", "replace").split("\n")
        lines = [line.strip() for line in said if line.strip()]
        why = f": {safe_text(lines[0])}" if lines else ""
        return CritpathError(f"perf {what}{why}", "record without --stacks")


def open_source(request: StackRequest) -> PerfSource:
    """Return perf for a request."""
    program = trusted_program("perf")
    if program is None:
        raise CritpathError("there is no perf here", "apt-get install linux-perf")
    return PerfSource(request, program)


def _own_threads() -> list[str]:
    """Return this process' threads: those that come later are left out when stacks are read."""
    return sorted(os.listdir("/proc/self/task"), key=int)[:_MOST_OWN]  # noqa: PTH208 - names


def _listed(names: list[object]) -> str:
    """Name the first of some files."""
    shown = [safe_text(str(name)[-_NAME:]) for name in names[:_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _texts(environment: Mapping[bytes, bytes]) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}


def _as_user(user: Any) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user.uid, "group": user.gid, "extra_groups": user.groups}


# Programs whose files lie elsewhere, in containers: opened while their processes run.
#
# What a process executes is found by its mappings, whatever path it has there, and was opened by
# those who recorded; it is read by the user who called sudo, for the names of functions.


_MOST: Final = 256  # files
_MOST_LINES: Final = 20_000  # of a process' mappings
# Kinds of file systems that answer by themselves, not a program or another machine.
_LOCAL: Final = {
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs"),
    *("tmpfs", "ramfs", "rootfs", "overlay", "squashfs", "erofs"),
}


def open_programs() -> dict[tuple[int, int, int], int]:
    """Return descriptors of what processes with another root execute, by device and inode.

    Of each file the numbers are those of its mappings, which both ``/proc`` and perf have.
    """
    found: dict[tuple[int, int, int], int] = {}
    here = _place("self")
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdecimal() or (place := _place(name)) is None or place == here:
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            local = _local_devices("self") | _local_devices(name)
            for key, mapping in _executed(name):
                if key not in found and key[:2] in local and len(found) < _MOST:
                    with contextlib.suppress(OSError):
                        found[key] = _open_regular(f"/proc/{name}/map_files/{mapping}")
    return found


def _place(pid: str) -> tuple[int, int, int] | None:
    """Return the mounts and the root that a process has."""
    try:
        root = os.stat(f"/proc/{pid}/root")  # noqa: PTH116
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino, root.st_dev, root.st_ino  # noqa: PTH116
    except OSError:
        return None


def _local_devices(pid: str) -> set[tuple[int, int]]:
    found = set()
    for line in Path(f"/proc/{pid}/mountinfo").read_text("utf-8", "replace").splitlines():
        mounted, _, kind = line.partition(" - ")
        if kind.split(" ", 1)[0] in _LOCAL:
            major, _, minor = mounted.split(" ")[2].partition(":")
            found.add((int(major), int(minor)))
    return found


def _executed(pid: str) -> Iterator[tuple[tuple[int, int, int], str]]:
    """Yield device and inode of what a process has mapped to execute, and the mapping."""
    with Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="replace") as stream:
        for line, _ in zip(stream, range(_MOST_LINES), strict=False):
            addresses, rights, _, device, inode = line.split(maxsplit=5)[:5]
            if rights[2] == "x" and inode != "0":
                major, minor = (int(number, 16) for number in device.split(":"))
                begin, end = (int(number, 16) for number in addresses.split("-"))
                yield (major, minor, int(inode)), f"{begin:x}-{end:x}"


def _open_regular(link: str) -> int:
    if not stat.S_ISREG(os.stat(link).st_mode):  # noqa: PTH116
        raise OSError("no file")
    return os.open(link, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
