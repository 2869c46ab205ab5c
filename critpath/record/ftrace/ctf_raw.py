"""Reads what a recorder left beside the pages: what they are, and what was counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from critpath.errors import CritpathError

RAW_FORMAT: Final = "critpath/raw/1"
_LARGEST_PAGE: Final = 1 << 27
_MOST: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Thread:
    """One row of a statedump.

    Attributes
    ----------
    time : int
        When it was read (ns).
    tid, tgid, ppid : int
    comm : str
    state : str
        Letter of ``/proc/TID/stat``.
    cpu : int
    kernel : bool
        A kernel thread.
    namespace : int
        Inode number of its pid namespace, 0 if unknown.
    """

    time: int
    tid: int
    tgid: int
    ppid: int
    comm: str
    state: str
    cpu: int
    kernel: bool
    namespace: int


@dataclass(frozen=True)
class Cgroup:
    """A control group that a process is in.

    Attributes
    ----------
    time : int
        When it was read (ns).
    tgid : int
    hierarchy : int
        Its number: 0 for version 2's only one.
    path : str
    """

    time: int
    tgid: int
    hierarchy: int
    path: str


@dataclass(frozen=True)
class Raw:
    """A raw directory, less its pages.

    Attributes
    ----------
    directory : Path
    session : str
    epoch : int
        To be added to a time to get time since the Unix epoch (ns).
    page_bytes : int
    cpus : tuple of int
    begin, end : int
        ns; end is 0 if the recorder did not get to its end.
    host, recorder : mapping
    threads, threads_end : tuple of Thread
        At the start and at the end.
    stats : mapping of int to mapping of str to int, or None
        By cpu what the kernel counted; None if that was not written.
    cgroups : tuple of Cgroup
        At the start.
    """

    directory: Path
    session: str
    epoch: int
    page_bytes: int
    cpus: tuple[int, ...]
    begin: int
    end: int
    host: Mapping[str, Any]
    recorder: Mapping[str, Any]
    threads: tuple[Thread, ...]
    threads_end: tuple[Thread, ...]
    stats: Mapping[int, Mapping[str, int]] | None
    cgroups: tuple[Cgroup, ...] = ()


def _broken(file: Path, what: str) -> CritpathError:
    return CritpathError(f"{file}: {what}", "convert a raw directory of `critpath record`")


def _load(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except OSError as error:
        raise _broken(file, error.strerror or "cannot be read") from error
    except (ValueError, RecursionError) as error:
        raise _broken(file, "is not JSON") from error


def _whole(file: Path, of: Mapping[str, Any], name: str, *, low: int = 0) -> int:
    value = of.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= _MOST:
        raise _broken(file, f"{name!r} is not a number as it should be")
    return value


def _mapping(of: Any) -> Mapping[str, Any]:
    return of if isinstance(of, dict) else {}


def _threads(file: Path) -> tuple[Thread, ...]:
    """Read a statedump; a recorder that was killed may have left none, or half of one."""
    if not file.exists():
        return ()
    try:
        rows = _load(file)
    except CritpathError:
        return ()
    found = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, list) or len(row) != 9:
            raise _broken(file, "has a row that is not a thread's")
        time, tid, tgid, ppid, comm, state, cpu, kernel, namespace = row
        if not all(
            isinstance(v, int) and 0 <= v < limit
            for v, limit in (
                *((time, 1 << 63), (tid, 1 << 31), (tgid, 1 << 31), (ppid, 1 << 31)),
                *((cpu, 1 << 31), (namespace, 1 << 32)),
            )
        ):
            raise _broken(file, "has a row that is not a thread's")
        found.append(
            Thread(time, tid, tgid, ppid, str(comm), str(state), cpu, bool(kernel), namespace)
        )
    return tuple(sorted(found, key=lambda t: t.time))


def _cgroups(file: Path) -> tuple[Cgroup, ...]:
    """Read which control groups processes were in; damaged, it is as if it were not there."""
    try:
        rows = _load(file) if file.exists() else []
    except CritpathError:
        return ()
    found = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, list) or len(row) != 4:
            raise _broken(file, "has a row that is not of a control group")
        time, tgid, hierarchy, path = row
        numbers = ((time, 1 << 63), (tgid, 1 << 31), (hierarchy, 1 << 31))
        if not isinstance(path, str) or not all(
            isinstance(value, int) and 0 <= value < limit for value, limit in numbers
        ):
            raise _broken(file, "has a row that is not of a control group")
        found.append(Cgroup(time, tgid, hierarchy, path))
    return tuple(sorted(found, key=lambda cgroup: cgroup.time))


def _stats(file: Path) -> Mapping[int, Mapping[str, int]] | None:
    if not file.exists():
        return None
    try:
        counted = _load(file)
    except CritpathError:
        return None
    return {
        int(cpu): {str(k): v for k, v in _mapping(of).items() if isinstance(v, int) and v >= 0}
        for cpu, of in _mapping(counted).items()
        if cpu.isdecimal()
    }


def read_raw(directory: Path) -> Raw:
    """Read a raw directory's descriptions.

    Raises
    ------
    CritpathError
        If ``raw.json`` is missing or is not one.
    """
    file = directory / "raw.json"
    about = _mapping(_load(file))
    if about.get("format") != RAW_FORMAT:
        raise _broken(file, f"is not {RAW_FORMAT}")
    if about.get("clock") != "mono":
        raise _broken(file, "the clock is not mono")
    cpus = about.get("cpus")
    if not isinstance(cpus, list) or not all(isinstance(c, int) and 0 <= c < 1 << 16 for c in cpus):
        raise _broken(file, "'cpus' is not a list of numbers")
    page_bytes = _whole(file, about, "page_bytes", low=64)
    if page_bytes > _LARGEST_PAGE:
        raise _broken(file, "'page_bytes' is not a size of pages")
    return Raw(
        directory=directory,
        session=str(about.get("session", "")),
        epoch=_whole(file, about, "epoch", low=-_MOST),
        page_bytes=page_bytes,
        cpus=tuple(dict.fromkeys(cpus)),
        begin=_whole(file, about, "begin"),
        end=_whole(file, about, "end") if about.get("end") else 0,
        host=_mapping(about.get("host")),
        recorder=_mapping(about.get("recorder")),
        threads=_threads(directory / "statedump.json"),
        threads_end=_threads(directory / "statedump-end.json"),
        cgroups=_cgroups(directory / "cgroups.json"),
        stats=_stats(directory / "stats.json"),
    )
