"""Control groups: the one whose doing is counted apart, and what the kernel counts of it itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError, UsageError
from critpath.units import plural, safe_text
from critpath_marks.sessions import pid_namespace
from critpath_record import grouped, rooted
from critpath_record.identity import is_dead_session
from critpath_record.limits import hierarchies
from critpath_record.proc import list_pids, read_text
from critpath_record.recorder import Leftover

_MOUNTS: Final = Path("/proc/self/mountinfo")
_OWN: Final = Path("/proc/self/cgroup")
_NAMESPACE: Final = Path("/proc/self/ns/cgroup")
_INITIAL: Final = "cgroup:[4026531835]"
_MOST_GROUPS: Final = 100_000  # that are looked through for a name
_LARGEST_FILE: Final = 1 << 20  # bytes of a file of counters
_NUMBER: Final = re.compile(r"[0-9]{1,19}")

# What the kernel counts for a group without being asked, by file; the number divides.
# Version 1 has other names, and nanoseconds; `total_` is with the groups below, as of version 2.
_FREE: Final = {
    "cpu.stat": {
        "user_usec": ("cpu.user_ms", 1000),
        "system_usec": ("cpu.system_ms", 1000),
        "nr_throttled": ("cpu.throttles", 1),
        "throttled_usec": ("cpu.throttled_ms", 1000),
        "throttled_time": ("cpu.throttled_ms", 1_000_000),
    },
    "memory.stat": {
        prefix + name: (f"memory.{name}", 1)
        for prefix in ("", "total_")
        for name in (
            *("pgfault", "pgmajfault", "pgscan", "pgsteal", "workingset_refault_anon"),
            "workingset_refault_file",
        )
    },
    "io.stat": {
        "rbytes": ("io.read_kb", 1024),
        "wbytes": ("io.written_kb", 1024),
        "rios": ("io.reads", 1),
        "wios": ("io.writes", 1),
    },
    "blkio.throttle.io_service_bytes_recursive": {
        "Read": ("io.read_kb", 1024),
        "Write": ("io.written_kb", 1024),
    },
    "blkio.throttle.io_serviced_recursive": {
        "Read": ("io.reads", 1),
        "Write": ("io.writes", 1),
    },
}


@dataclass(frozen=True)
class Group:
    """A control group of version 2."""

    path: Path  # its directory
    name: str  # its path below the hierarchy's root, as /proc shows it

    @property
    def id(self) -> int:
        """What programs in the kernel know it by."""
        return self.path.stat().st_ino

    @property
    def level(self) -> int:
        """How deep it is below the root."""
        return len([part for part in self.name.split("/") if part])


def find_root() -> Path | None:
    """Return where control groups of version 2 are mounted, None if nowhere."""
    return next((place for place, version, _ in hierarchies(_MOUNTS) if version == 2), None)


def group_of(pid: int | str) -> str:
    """Return the path of a process's group, "" where there are none."""
    lines = read_text(f"/proc/{pid}/cgroup").splitlines()
    return next((line[3:] for line in lines if line.startswith("0::")), "")


def every_process() -> Iterator[tuple[int, str]]:
    """Yield each process with its group's path."""
    for pid in list_pids():
        yield pid, group_of(pid)


def _root() -> Path:
    root = find_root()
    if root is None:
        raise CritpathError(
            "no control groups of version 2 are mounted here: one group cannot be counted apart",
            "count the machine: --scope machine",
        )
    if str(_NAMESPACE.readlink()) != _INITIAL:
        raise CritpathError(
            "this is inside a container, which has a tree of control groups of its own",
            "count outside, choosing the container: --scope NAME",
        )
    return root


def group_of_container(namespace: int) -> Group:
    """Return the group that a container's first process is in."""
    root = _root()
    inside = (pid for pid in sorted(list_pids()) if pid_namespace(pid) == namespace)
    name = group_of(next(inside, ""))
    if not name.strip("/"):
        raise CritpathError(
            "the container is in no control group of its own, of version 2",
            "count the machine: --scope machine",
        )
    return Group(root / name.lstrip("/"), name)


def make_group(session: str) -> tuple[Group, int]:
    """Make a group for a command, within the one that this process is in; return by what to join.

    By its file of processes, or where a helper is root by what that answers.
    """
    root, own = _root(), group_of("self")
    group = Group(root / own.lstrip("/") / session, f"{own.rstrip('/')}/{session}")
    try:
        if rooted.channel is not None:
            return group, rooted.ask("group", session)[1]
        group.path.mkdir(mode=0o755)
        return group, os.open(group.path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CritpathError(
            f"a control group for the command cannot be made: {error.strerror}",
            "count the machine: --scope machine",
        ) from None


def remove_group(group: Path) -> None:
    """Remove a group; processes that still are in it go to the one around it."""
    try:
        if rooted.channel is not None:
            rooted.ask("ungroup", group.name)
        else:
            grouped.remove_group(str(group))
    except OSError:
        raise CritpathError(
            f"the control group {group} cannot be removed: processes are in it",
            f"end them, then: rmdir {group}",
        ) from None


def find_leftovers() -> list[Leftover]:
    """Return the groups of dead recorders' commands; nothing else outlives a recorder of counts."""
    return [
        Leftover("group", group.name, group.name, partial(remove_group, group))
        for group in (_walk() if os.geteuid() == 0 else ())
        if is_dead_session(group.name)
    ]


def _walk() -> Iterator[Path]:
    root = find_root()
    for path, *_ in islice(os.walk(root) if root else (), _MOST_GROUPS):
        yield Path(path)


def find_group(name: str) -> Group:
    """Return the group of a name: its path, or what its container or service is called."""
    root = _root()
    wanted = name.rstrip("/")
    if name.startswith("/"):
        path = root / wanted.lstrip("/")
        if ".." not in path.parts and wanted and (path / "cgroup.procs").is_file():
            return Group(path, wanted)
    else:
        from critpath_record.containers import cgroup_names  # noqa: PLC0415 - by name only

        found = [
            path for path in _walk() if path != root and wanted in cgroup_names(f"0::/{path.name}")
        ]
        if len(found) > 1:
            raise UsageError(
                f"{safe_text(name)} is the name of {plural(len(found), 'control group')}",
                f"give a path: --scope /{safe_text(str(found[0].relative_to(root)))}",
            )
        if found:
            return Group(found[0], f"/{found[0].relative_to(root)}")
    raise UsageError(
        f"no control group {safe_text(name)}",
        "give machine, command, or a path as /proc/PID/cgroup shows it behind 0::",
    )


def free_places(path: Path, name: str = "", mounts: Path = _MOUNTS) -> tuple[Path, ...]:
    """Return where the kernel counts for a group: its directory, and its twins of version 1."""
    older = [root / name.lstrip("/") for root, version, _ in hierarchies(mounts) if version == 1]
    return path, *(place for place in older if place.is_dir())


def read_free(places: Sequence[Path]) -> dict[str, int]:
    """Return what the kernel has counted of a group since it was made, by term."""
    found: dict[str, int] = {}
    for place in places:
        for file in _FREE:
            for term, amount in _read_file(place / file).items():
                found.setdefault(term, amount)
    return found


def _read_file(file: Path) -> dict[str, int]:
    wanted = _FREE[file.name]
    try:
        with file.open(encoding="ascii", errors="replace") as stream:
            text = stream.read(_LARGEST_FILE)
    except OSError:
        return {}
    sums: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        # Of disks there are several: MAJOR:MINOR rbytes=... wbytes=..., or MAJOR:MINOR Read ...
        pairs = [w.split("=", 1) for w in words[1:] if "=" in w] or [words[-2:]]
        for pair in pairs:
            if len(pair) == 2 and pair[0] in wanted and _NUMBER.fullmatch(pair[1]):
                sums[pair[0]] = sums.get(pair[0], 0) + int(pair[1])
    # In the order of the table: what is with the groups below comes last, and is taken.
    taken = {wanted[name]: sums[name] for name in wanted if name in sums}
    return {f"cg:{term}": amount // divisor for (term, divisor), amount in taken.items()}


def free_terms() -> list[str]:
    """Return the terms that a group may have."""
    return list(dict.fromkeys(f"cg:{term}" for w in _FREE.values() for term, _ in w.values()))
