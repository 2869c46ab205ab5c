"""Stacks by the kernel's perf events: with which threads went to sleep, woke others, and ran.

What the kernel copied (`critpath_record.stacks.events`) a process of the invoking user unwinds and
names after the recording (`critpath_record.stacks.unwind`), as it has to open the programs' files
and those are hostile; then the raw memory is deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from critpath.errors import CritpathError, with_sudo
from critpath.units import plural, safe_text
from critpath_record.counts.groups import find_root
from critpath_record.identity import CAP_PERFMON, has_capability
from critpath_record.lttng.program import trusted_program
from critpath_record.recorder import Requirement
from critpath_record.source import Source, Taken
from critpath_record.stacks.events import (
    DEPTH,
    PYTHON_DEPTH,
    StackEvents,
    StackFile,
    is_supported,
)
from critpath_record.stacks.sources import FRAMES, RAW_STACKS, SAMPLES, StackRequest

_NAMES, _NAME = 3, 200  # stripped programs that a warning names, and letters of each
_UNWINDING: Final = 600.0  # s
_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def find_needs() -> list[Requirement]:
    """Return what taking native stacks lacks here."""
    if trusted_program("perf") is None:
        return [Requirement("perf", "there is no perf here", "apt-get install linux-perf")]
    if not is_supported():
        what = "no stacks are taken on this kind of machine"
        return [Requirement("perf", what, "record without --stacks")]
    if os.geteuid() and not has_capability(CAP_PERFMON):
        return [Requirement("root", "taking stacks needs root", with_sudo("record --stacks"))]
    return []


@dataclass
class PerfSource(Source):
    """Events of the kernel, the file that they are moved to, and perf, which unwinds it."""

    name: ClassVar[str] = "stacks"
    follows: ClassVar[bool] = True

    request: StackRequest
    program: str
    events: StackEvents | None = None
    file: StackFile | None = None
    data: int = -1
    wakes: str = ""  # where a wake has whom it woke, and which samples are wakes
    own: tuple[int, ...] = field(default_factory=lambda: (os.getpid(),))
    programs: dict[tuple[int, int, int], int] = field(default_factory=dict)  # of containers

    def open(self) -> int:
        """Take stacks from now on; under a budget it says when."""
        request = self.request
        root = find_root() if request.group else None
        group = -1 if root is None else os.open(root / request.group.lstrip("/"), os.O_RDONLY)
        depth = PYTHON_DEPTH if request.python else DEPTH
        try:
            self.events = StackEvents(self._threads(), group=group, depth=depth)
            self.events.make()
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            self.data = os.open(request.directory / RAW_STACKS, flags, 0o600)
            self.file = StackFile(self.events, self.data, self._processes())
        finally:
            if group >= 0:
                os.close(group)
        if not request.budgeted:
            self.events.open()
        return 0

    @property
    def gate(self) -> StackEvents | None:
        """What a budget opens and closes."""
        return self.events

    def _threads(self) -> list[int]:
        """Return whose events are taken: of the machine and of a group none is named."""
        request = self.request
        if request.group or (request.machine and not request.processes):
            return []
        found = [] if request.processes else [os.getpid()]
        for pid in request.processes:
            with contextlib.suppress(OSError):
                found += map(int, os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - names
        return found

    def _processes(self) -> list[int]:
        """Return whose files are known: a command's own is told by the kernel."""
        if not self.request.machine:
            return [os.getpid()]
        if self.request.processes and not self.request.group:
            return [*self.request.processes]
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208

    @property
    def mode(self) -> str:
        """How callers are found."""
        return f"dwarf,{PYTHON_DEPTH if self.request.python else DEPTH}"

    def environment(self) -> Mapping[str, str]:
        """Return what has Python 3.12 and later write a map of its functions."""
        return {"PYTHONPERFSUPPORT": "1"} if self.request.python else {}

    def close(self) -> int:
        """Take no more, and move what the kernel still has."""
        if self.request.machine:
            self.programs = open_programs()
        if self.file is not None and self.events is not None:
            self.file.stop()
            self.wakes = self.events.wakes
        return 0

    def drain(self, report: Callable[[str], None]) -> Taken:
        """Unwind as the invoking user, then delete what perf wrote."""
        report("unwinding stacks")
        user, directory = self.request.user, self.request.directory
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        made = [os.open(directory / name, flags, 0o600) for name in (FRAMES, SAMPLES)]
        descriptors, own = [self.data, *made], ",".join(map(str, self.own))
        elsewhere = [":".join(map(str, (*key, at))) for key, at in self.programs.items()]
        command = [sys.executable, "-I", "-m", "critpath_record.stacks.unwind", self.program]
        try:
            if user is not None:  # perf opens it by name once more
                os.fchown(self.data, user.uid, user.gid)
            done = subprocess.run(  # noqa: S603 - our own module
                [*command, self.wakes, own, *map(str, descriptors), *elsewhere],
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

    def _read_counts(self, said: list[str]) -> Taken:
        """Take what the child process counted, bounded, as it read what others wrote."""
        try:
            counted: Any = json.loads(said[-1])
            facts = {name: int(counted[name]) for name in ("samples", "stacks", "lost", "cut")}
            stripped, absent, replaced = (
                _listed(counted[name]) for name in ("stripped", "absent", "replaced")
            )
        except (IndexError, KeyError, TypeError, ValueError, RecursionError):
            return self._dropped("what was unwound is not counted")
        warnings = []
        if facts["lost"]:
            lost = plural(facts["lost"], "stack")
            warnings.append(f"{lost} were lost: they could not be written fast enough")
        # Of a machine's every program nobody asked for names.
        if stripped and not self.request.held:
            warnings.append(
                f"no function of {stripped} has a name, as it is stripped: install its debug "
                "symbols, or keep them when it is built"
            )
        if absent and not self.request.held:
            warnings.append(
                f"no function of {absent} has a name, as no such file is here: of a program in a "
                "container record with -a while it runs"
            )
        if counted.get("java"):
            warnings.append(
                "functions of Java have no names: start java with -XX:+PreserveFramePointer, and "
                "while it is recorded have it write them: jcmd PID Compiler.perfmap (JDK 17 and "
                "later), or an agent such as perf-map-agent"
            )
        if replaced:
            warnings.append(
                f"no function of {replaced} has a name, as another file is there since it ran: "
                "record before it is built or installed anew"
            )
        if self.file is not None and self.file.failure:
            why = safe_text(self.file.failure)
            warnings.append(f"of the recording's end there are no stacks: {why}")
        if not facts["samples"]:
            warnings.append("no stacks were taken")
        about = {"source": "perf", "mode": self.mode, "scope": self.request.scope}
        return Taken(facts={**about, **facts}, warnings=tuple(warnings))

    def abort(self) -> None:
        """Take no more and delete what there is."""
        if self.file is not None:
            self.file.stop()
        for name in (RAW_STACKS, FRAMES, SAMPLES):
            self._discard(name)
        self._close()

    def _close(self) -> None:
        for descriptor in {self.data, *self.programs.values()} - {-1}:
            os.close(descriptor)
        if self.events is not None:
            self.events.close_all()
        self.programs, self.data, self.events = {}, -1, None

    def _discard(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self.request.directory / name).unlink()

    def _dropped(self, why: str) -> Taken:
        for name in (FRAMES, SAMPLES):
            self._discard(name)
        return Taken(warnings=(f"the stacks could not be read: {safe_text(why)}",))


def open_source(request: StackRequest) -> PerfSource:
    """Return perf for a request."""
    program = trusted_program("perf")
    if program is None:
        raise CritpathError("there is no perf here", "apt-get install linux-perf")
    return PerfSource(request, program)


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
_GONE: Final = " (deleted)\n"  # what the kernel says of them
_MOST_LINES: Final = 20_000  # of a process' mappings
# Kinds of file systems that answer by themselves, not a program or another machine.
_LOCAL: Final = {
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs"),
    *("tmpfs", "ramfs", "rootfs", "overlay", "squashfs", "erofs"),
}


def open_programs() -> dict[tuple[int, int, int], int]:
    """Return descriptors of files that are not where their paths say, by device and inode.

    That is what processes with another root execute, and what was replaced or removed since.  Of
    each file the numbers are those of its mappings, which both ``/proc`` and perf have.
    """
    found: dict[tuple[int, int, int], int] = {}
    here = _place("self")
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdecimal() or (place := _place(name)) is None:
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            local = _local_devices("self") | _local_devices(name)
            for key, mapping, is_gone in _executed(name):
                if place == here and not is_gone:
                    continue
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


def _executed(pid: str) -> Iterator[tuple[tuple[int, int, int], str, bool]]:
    """Yield device and inode of what a process executes, the mapping, whether it was removed."""
    with Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="replace") as stream:
        for line, _ in zip(stream, range(_MOST_LINES), strict=False):
            addresses, rights, _, device, inode = line.split(maxsplit=5)[:5]
            if rights[2] == "x" and inode != "0":
                major, minor = (int(number, 16) for number in device.split(":"))
                begin, end = (int(number, 16) for number in addresses.split("-"))
                yield (major, minor, int(inode)), f"{begin:x}-{end:x}", line.endswith(_GONE)


def _open_regular(link: str) -> int:
    if not stat.S_ISREG(os.stat(link).st_mode):  # noqa: PTH116
        raise OSError("no file")
    return os.open(link, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
