"""Finds the pid namespace of a container in /proc, by its id or what its runtime calls it."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.errors import UsageError
from critpath.model.containers import ControlGroup
from critpath.units import plural, safe_text
from critpath_marks.sessions import pid_namespace
from critpath_record.group_names import RuntimeFiles

_PROC: Final = Path("/proc")
_LINK: Final = re.compile(r"pid:\[(\d{1,10})\]")
_SHORTEST_PREFIX: Final = 8  # of a container's id; docker shows 12 digits
_SHOWN: Final = 5

# A component of a cgroup's path is the container's id or name with what its manager puts
# around: docker-ID.scope, cri-containerd-ID.scope, libpod-ID, lxc.payload.NAME, NAME.service.
_SUFFIX: Final = re.compile(r"\.(?:scope|service|slice)$")
_PREFIX: Final = re.compile(
    r"^(?:docker|libpod|libpod-conmon|crio|cri-containerd|containerd|lxc\.payload|lxc|machine)[-.]"
)
_CLONE_NEWUTS: Final = 0x04000000


@dataclass(frozen=True)
class _NamespaceMember:
    """A process, as this pid namespace numbers it."""

    pid: int
    namespace: int


def resolve_container(name: str) -> int:
    """Return the pid namespace that a name leads to."""
    wanted = name.strip()
    if not wanted:
        raise UsageError("a container without a name", "give --container the name of one")
    mine = pid_namespace()
    processes = [p for p in _processes() if p.namespace != mine]
    for matches in _matchers(wanted, mine):
        found = sorted({p.namespace for p in processes if matches(p)})
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(
                f"{safe_text(wanted)} is in {len(found)} pid namespaces: "
                + _format_namespaces(found, processes),
                "name one by its number: --container NUMBER",
            )
    raise _not_found(wanted, mine, processes)


def _matchers(wanted: str, mine: int) -> Iterator[Callable[[_NamespaceMember], bool]]:
    """Yield a predicate for each meaning of a name, the most certain first."""
    link = _LINK.fullmatch(wanted)
    if link:
        yield lambda p: p.namespace == int(link[1])
        return
    # Inode numbers of namespaces begin at 0xF0000000, far above the largest pid (2^22).
    if wanted.isascii() and wanted.isdigit() and len(wanted) <= 10:
        number = int(wanted)
        yield lambda p: p.namespace == number
        if pid_namespace(number) not in {0, mine}:
            own = pid_namespace(number)
            yield lambda p: p.namespace == own
    cgroups: dict[int, tuple[str, ...]] = {}

    def components(process: _NamespaceMember) -> tuple[str, ...]:
        if process.pid not in cgroups:
            cgroups[process.pid] = tuple(_components(process.pid))
        return cgroups[process.pid]

    yield lambda p: wanted in components(p)
    files = RuntimeFiles(Path("/"))
    yield lambda p: any(of.matches(wanted) for of in _name_groups(p.pid, files))
    if len(wanted) >= _SHORTEST_PREFIX:
        yield lambda p: any(c.startswith(wanted) for c in components(p))
    hosts = _HostNames()
    yield lambda p: hosts.of(p.pid) == wanted


def _processes() -> Iterator[_NamespaceMember]:
    for entry in os.listdir(_PROC):  # noqa: PTH208 - names are all that is needed
        if entry.isdigit():
            namespace = pid_namespace(entry)
            if namespace:  # else it is gone, or not ours to look at
                yield _NamespaceMember(int(entry), namespace)


def _components(pid: int) -> Iterator[str]:
    try:
        text = (_PROC / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    yield from cgroup_names(text)


def _name_groups(pid: int, files: RuntimeFiles) -> Iterator[ControlGroup]:
    """Yield the containers of a process by the names of their runtimes; not what keeps a pod."""
    try:
        place = _PROC / str(pid)
        owner = place.stat().st_uid
        text = (place / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for path in {line.partition(":")[2].partition(":")[2] for line in text.splitlines()}:
        named = files.name_group(path, owner)
        if named is not None and not named.is_sandbox:
            yield named


def cgroup_names(text: str) -> Iterator[str]:
    """Yield the components of a cgroup file's paths, whole and without affixes.

    `text` has lines ``HIERARCHY:CONTROLLERS:PATH``, see cgroups(7).
    """
    for line in text.splitlines():
        for component in line.split(":", 2)[-1].split("/"):
            if component:
                bare = _SUFFIX.sub("", component)
                yield from {component, bare, _PREFIX.sub("", bare)}


class _HostNames:
    """Host names of UTS namespaces, each looked up once.

    /proc does not show another process's host name: a thread enters its UTS namespace for
    a moment, which needs CAP_SYS_ADMIN.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def of(self, pid: int) -> str:
        """Return the host name that a process sees, "" if unknown."""
        path = f"/proc/{pid}/ns/uts"
        try:
            inode = os.stat(path).st_ino  # noqa: PTH116 - no object per process
        except OSError:
            return ""
        if inode not in self._names:
            self._names[inode] = _host_name(path)
        return self._names[inode]


def _host_name(path: str) -> str:
    """Return the host name of a UTS namespace, "" if it may not be entered."""
    found: list[str] = []

    def enter_and_look() -> None:
        # Only this thread enters; with its end nothing is left to undo.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWUTS) == 0:
                found.append(os.uname().nodename)
        finally:
            os.close(descriptor)

    thread = threading.Thread(target=enter_and_look, name="critpath-host-name")
    thread.start()
    thread.join()
    return found[0] if found else ""


def _not_found(wanted: str, mine: int, processes: list[_NamespaceMember]) -> UsageError:
    shown = safe_text(wanted)
    number = wanted.removeprefix("pid:[").removesuffix("]")
    if number == str(mine):
        return UsageError(
            f"{shown} is the pid namespace of the recorder itself, not of a container",
            "leave --container out to choose among all processes",
        )
    if wanted.isascii() and wanted.isdigit() and pid_namespace(wanted) == mine:
        return UsageError(
            f"the process {shown} is in the pid namespace of the recorder itself, in no container",
            "name a process inside the container, or the namespace as lsns -t pid prints it",
        )
    there = sorted({p.namespace for p in processes})
    if not there:
        return UsageError(
            f"no container {shown}: no process is in another pid namespace",
            "start the container first; as root all of them are seen (lsns -t pid)",
        )
    listed = _format_namespaces(there, processes)
    return UsageError(
        f"no container {shown} among the pid namespaces here: {listed}",
        "name one by its number: --container NUMBER",
    )


def _format_namespaces(namespaces: list[int], processes: list[_NamespaceMember]) -> str:
    """Format namespaces with the name and pid of the first process in each."""
    parts = []
    for namespace in namespaces[:_SHOWN]:
        # The namespace's init process is its oldest; pids may have wrapped around, but
        # only its own says that it is number 1 inside.
        members = [p.pid for p in processes if p.namespace == namespace]
        first = next((pid for pid in members if _inner_pid(pid) == 1), min(members))
        parts.append(f"{namespace} ({safe_text(_comm(first))}, pid {first})")
    more = len(namespaces) - _SHOWN
    return ", ".join(parts) + (f" and {plural(more, 'other')}" if more > 0 else "")


def _comm(pid: int) -> str:
    try:
        text = (_PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "?"
    return text.removesuffix("\n")


def _inner_pid(pid: int) -> int:
    """Return a process's pid in its own namespace, 0 if it cannot be read."""
    try:
        text = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    found = re.search(r"^NSpid:.*?(\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0
