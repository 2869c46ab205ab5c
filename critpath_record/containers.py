"""Finds the pid namespace of a container in /proc, by its id or what its runtime calls it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.errors import UsageError
from critpath.model.containers import ControlGroup
from critpath.units import plural, safe_text
from critpath_marks.sessions import pid_namespace
from critpath_record.group_names import RuntimeFiles
from critpath_record.identity import look_inside
from critpath_record.proc import list_pids, read_name, read_text

_PROC: Final = Path("/proc")
_LINK: Final = re.compile(r"pid:\[(\d{1,10})\]")
_SHORTEST_PREFIX: Final = 8  # of a container's id; docker shows 12 digits
_SHOWN: Final = 5
_FIRST: Final = re.compile(r"^NSpid:.*\b1$", re.MULTILINE)  # in its own namespace

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
    for pid in list_pids(_PROC):
        if namespace := pid_namespace(pid):  # else it is gone, or not ours to look at
            yield _NamespaceMember(pid, namespace)


def _components(pid: int) -> Iterator[str]:
    return cgroup_names(read_text(f"{_PROC}/{pid}/cgroup"))


def _name_groups(pid: int, files: RuntimeFiles) -> Iterator[ControlGroup]:
    """Yield the containers of a process by the names of their runtimes; not what keeps a pod."""
    try:
        owner = (_PROC / str(pid)).stat().st_uid
    except OSError:
        return
    text = read_text(f"{_PROC}/{pid}/cgroup")
    for path in {line.partition(":")[2].partition(":")[2] for line in text.splitlines()}:
        named = files.name_group(path, owner)
        if named is not None and not named.is_sandbox:
            yield named


def cgroup_names(text: str) -> Iterator[str]:
    """Yield the components of the paths of cgroups(7)'s lines, whole and without affixes."""
    for line in text.splitlines():
        for component in line.split(":", 2)[-1].split("/"):
            if component:
                bare = _SUFFIX.sub("", component)
                yield from {component, bare, _PREFIX.sub("", bare)}


class _HostNames:
    """Host names of UTS namespaces, each looked up once: /proc does not show them."""

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
            found = look_inside(path, _CLONE_NEWUTS, lambda: os.uname().nodename)
            self._names[inode] = found or ""
        return self._names[inode]


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
        inside = (p for p in members if _FIRST.search(read_text(f"{_PROC}/{p}/status")))
        first = next(inside, min(members))
        parts.append(f"{namespace} ({safe_text(read_name(first)) or '?'}, pid {first})")
    more = len(namespaces) - _SHOWN
    return ", ".join(parts) + (f" and {plural(more, 'other')}" if more > 0 else "")
