"""Control groups that hold a program back: a CPU quota, a memory limit, an I/O limit.

A `Group` is one group in every hierarchy that it needs, of version 1 or 2, whichever the
machine has the controller in (``/proc/self/mountinfo``).  It is made when the ``with``
begins and gone when it ends, whatever happens in between; groups of a program that was
killed are removed by the next one.  Needs root, and no container engine.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

PREFIX: Final = "critpath-evaluation-"
# A hundred times what other programs get: what neighbours do must not look like a limit.
WEIGHT: Final = 100
_MOUNTS: Final = Path("/proc/self/mountinfo")
_CONTROLLERS: Final = ("cpu", "memory", "io")
_V1_NAMES: Final = {"cpu": "cpu", "memory": "memory", "io": "blkio"}
_PATIENCE: Final = 5.0  # seconds for killed processes to leave


class NoLimitError(Exception):
    """This machine does not offer the limit; the text says why."""


@dataclass(frozen=True)
class Limits:
    """What a group may have; None is all of it.

    Attributes
    ----------
    quota : (int, int) or None
        Microseconds of CPU time, and of the period they are for.
    memory : int or None
        Bytes, page cache among them.
    disk : (str, int) or None
        A disk as ``MAJOR:MINOR``, and how many bytes a second may be read from it, and
        written to it.
    """

    quota: tuple[int, int] | None = None
    memory: int | None = None
    disk: tuple[str, int] | None = None

    def needed(self) -> tuple[str, ...]:
        """Return the controllers that set these limits, by their names in version 2."""
        wanted = {"cpu": self.quota, "memory": self.memory, "io": self.disk}
        return tuple(name for name, value in wanted.items() if value is not None)

    def files(self, controller: str, version: int) -> tuple[tuple[str, str], ...]:
        """Return the files of a controller and what to write to them, in order."""
        if controller == "cpu":
            return self._cpu(version)
        if controller == "memory" and self.memory is not None:
            file = "memory.max" if version == 2 else "memory.limit_in_bytes"
            return ((file, str(self.memory)),)
        if controller == "io" and self.disk is not None:
            disk, bps = self.disk
            if version == 2:
                return (("io.max", f"{disk} rbps={bps} wbps={bps}"),)
            return tuple((f"blkio.throttle.{w}_bps_device", f"{disk} {bps}") for w in _READ_WRITE)
        return ()

    def _cpu(self, version: int) -> tuple[tuple[str, str], ...]:
        weight = ("cpu.weight", str(100 * WEIGHT)) if version == 2 else ("cpu.shares", _SHARES)
        if self.quota is None:
            return (weight,)
        quota, period = map(str, self.quota)
        if version == 2:
            return weight, ("cpu.max", f"{quota} {period}")
        return weight, ("cpu.cfs_period_us", period), ("cpu.cfs_quota_us", quota)


_READ_WRITE: Final = ("read", "write")
_SHARES: Final = str(1024 * WEIGHT)


@dataclass(frozen=True)
class Hierarchy:
    """Where a controller is: the directory of its topmost group, and 1 or 2."""

    root: Path
    version: int


def find_hierarchies(mounts: Path = _MOUNTS) -> dict[str, Hierarchy]:
    """Return where each controller can be used; those that are nowhere are left out.

    Parameters
    ----------
    mounts : Path
        A file as ``/proc/self/mountinfo``.
    """
    found: dict[str, Hierarchy] = {}
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        place = Path(before.split()[4].encode().decode("unicode_escape"))
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup":
            here = [n for n in _CONTROLLERS if _V1_NAMES[n] in options.split(" ")[-1].split(",")]
            found |= {name: Hierarchy(place, 1) for name in here}
        elif kind == "cgroup2":
            with contextlib.suppress(OSError):
                for name in (place / "cgroup.controllers").read_text().split():
                    if name in _CONTROLLERS:
                        found.setdefault(name, Hierarchy(place, 2))
    return found


def disk_of(directory: Path) -> str:
    """Return the whole disk that holds a directory, as ``MAJOR:MINOR``.

    Raises
    ------
    NoLimitError
        If it is on no disk (tmpfs, overlay, a network).
    """
    device = directory.stat().st_dev
    place = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not place.exists():
        raise NoLimitError(f"{directory} is on no disk of its own")
    place = place.resolve()
    # Limits are a disk's, not a partition's.
    if (place / "partition").exists():
        place = place.parent
    return (place / "dev").read_text().strip()


@dataclass
class Group:
    """A control group with limits, for as long as the ``with`` lasts.

    Attributes
    ----------
    limits : Limits
    name : str
        Tells groups of one program apart.
    hierarchies : mapping
        As `find_hierarchies` gives them.

    Raises
    ------
    NoLimitError
        On entry, if this machine does not offer a limit.
    """

    limits: Limits
    name: str
    hierarchies: Mapping[str, Hierarchy] = field(default_factory=find_hierarchies)
    places: list[Path] = field(default_factory=list, init=False)
    _enabled: list[tuple[Path, str]] = field(default_factory=list, init=False)

    def __enter__(self) -> Self:
        try:
            self._make()
        except OSError as error:
            self._remove()
            raise NoLimitError(f"{error.filename or 'the kernel'}: {error.strerror}") from error
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return a command that enters the group and becomes that one."""
        enter = "".join(
            f"echo $$ > {shlex.quote(str(p / 'cgroup.procs'))} && " for p in self.places
        )
        return "sh", "-c", f'{enter}exec "$@"', "sh", *command

    def add(self, pid: int) -> None:
        """Move a process into the group."""
        for place in self.places:
            (place / "cgroup.procs").write_text(str(pid))

    def _make(self) -> None:
        needed = self.limits.needed()
        for name in needed:
            if name not in self.hierarchies:
                raise NoLimitError(f"no control group hierarchy has the controller {name}")
        # The weight is wished for: a machine without it only is a little noisier.
        wanted = dict.fromkeys(("cpu", *needed) if "cpu" in self.hierarchies else needed)
        for name in wanted:
            hierarchy = self.hierarchies[name]
            _remove_left(hierarchy.root)
            if hierarchy.version == 2:
                self._enable(hierarchy.root, name)
            place = hierarchy.root / f"{PREFIX}{os.getpid()}-{self.name}"
            if place not in self.places:
                place.mkdir()
                self.places.append(place)
            for file, text in self.limits.files(name, hierarchy.version):
                (place / file).write_text(text)

    def _enable(self, root: Path, name: str) -> None:
        control = root / "cgroup.subtree_control"
        if name not in control.read_text().split():
            control.write_text(f"+{name}")
            self._enabled.append((control, name))

    def _remove(self) -> None:
        for place in self.places:
            _end(place)
        self.places.clear()
        for control, name in self._enabled:
            with contextlib.suppress(OSError):  # somebody else uses it by now
                control.write_text(f"-{name}")
        self._enabled.clear()


@contextlib.contextmanager
def ended_properly() -> Iterator[None]:
    """Have SIGTERM and SIGHUP unwind the program as Ctrl-C does: groups are removed."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {s: signal.signal(s, stop) for s in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _remove_left(root: Path) -> None:
    """Remove groups whose program is gone."""
    for place in root.glob(f"{PREFIX}*"):
        pid = place.name.removeprefix(PREFIX).split("-")[0]
        if not Path(f"/proc/{pid}").exists():
            _end(place)


def _end(place: Path) -> None:
    """End what is left in a group, which nobody but us put there, and remove it."""
    enough = time.monotonic() + _PATIENCE
    while place.exists():
        with contextlib.suppress(OSError):
            for pid in map(int, (place / "cgroup.procs").read_text().split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        try:
            place.rmdir()
        except OSError:
            if time.monotonic() > enough:
                raise
            time.sleep(0.02)
