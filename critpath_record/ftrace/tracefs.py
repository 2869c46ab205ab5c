"""The kernel's tracing directory: where it is, and private instances in it.

See the kernel's Documentation/trace/ftrace.rst, "Instances".
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath_marks.sessions import pid_namespace
from critpath_record import rooted
from critpath_record.registry import note_change
from critpath_record.rooted import NAMES_OPTION, restore_names

__all__ = ["NAMES_OPTION", "Files", "Instance", "TracingWatchdog", "restore_names", "scan_threads"]

MOUNT_POINT: Final = Path(rooted.TRACEFS)
MOUNT_COMMAND: Final = f"mount -t tracefs nodev {MOUNT_POINT}"

LAYER: Final = "critpath-layer-"  # of a layer's instance; then its name, a dot and the session's

_MOUNTS: Final = Path("/proc/self/mounts")
_BUSY_TRIES, _BUSY_PAUSE = 20, 0.05  # a file of the instance that is just being closed

_mounted: Final[set[Path]] = set()

_DO: Final = {
    errno.ENOMEM: "give a smaller --buffer-size, or free memory",
    errno.ENOSPC: "give a smaller --buffer-size, or free memory",
    errno.EACCES: "run critpath doctor: it says what this machine refuses, and why",
    errno.EPERM: "run critpath doctor: it says what this machine refuses, and why",
    errno.EBUSY: "end the other tracer, or wait until it has ended",
}
_DO_ELSE: Final = "run critpath doctor, or take the other recorder: --recorder lttng"


def find() -> Path | None:
    """Return where tracefs is mounted, None if it is not."""
    mounts = list(_mounts())
    found = [place for kind, place in mounts if kind == "tracefs"]
    if MOUNT_POINT in found:
        return MOUNT_POINT
    if rooted.channel is not None:  # elsewhere nothing is handed over
        return None
    # Looking into debugfs mounts tracefs there, on kernels before 6.17 and some since.
    found += [place / "tracing" for kind, place in mounts if kind == "debugfs"]
    for place in found:
        with contextlib.suppress(OSError):
            if (place / "events").is_dir():
                return place
    return None


def mount() -> Path:
    """Mount tracefs at its usual place, permanently: others expect it there too."""
    try:
        files.mount()
        _mounted.add(MOUNT_POINT)
    except OSError as error:
        if error.errno != errno.EBUSY or find() != MOUNT_POINT:
            raise CritpathError(
                f"tracefs cannot be mounted at {MOUNT_POINT}: {error.strerror}",
                f"run as root, on the machine itself or in a privileged container: {MOUNT_COMMAND}",
            ) from None
    return MOUNT_POINT


def was_mounted_here() -> bool:
    """Return whether this process mounted tracefs."""
    return bool(_mounted)


def _mounts() -> Iterator[tuple[str, Path]]:
    """Yield type and mount point of every mount."""
    try:
        text = _MOUNTS.read_bytes()
    except OSError:
        return
    for line in text.splitlines():
        fields = line.split(b" ")
        if len(fields) > 2:
            place = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), fields[1])
            yield os.fsdecode(fields[2]), Path(os.fsdecode(place))


class Files:
    """The calls by which tracefs is used, each through here: tests play a kernel in its place."""

    def mount(self) -> None:
        """Mount tracefs."""
        rooted.mount("nodev", str(MOUNT_POINT), "tracefs", 0)

    def may_make(self, root: Path) -> bool:
        """Tell whether instances can be made."""
        return os.access(root / "instances", os.W_OK | os.X_OK, effective_ids=True)

    def has_event(self, root: Path, event: str) -> bool:
        """Tell whether the kernel has an event, as ``group/event``."""
        return (root / "events" / event).is_dir()

    def pin(self, place: Path) -> int:
        """Open the directory of instances, so that they stay reachable; -1 where they do anyway."""
        return os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def reach(self, path: Path) -> Path:
        """Return by which path an instance can be reached."""
        return path

    def names_off(self, path: Path) -> contextlib.AbstractContextManager[None]:
        """Let the instance that is made meanwhile at a path leave the table of names alone."""
        return rooted.names_off(str(path.parents[1]), lambda: note_change(path.name))

    def own(self, place: Path, events: Iterable[str]) -> None:
        """Make sure that the files of events in an instance may be used."""

    def make(self, place: Path) -> None:
        """Make an instance."""
        place.mkdir()

    def remove(self, place: Path) -> None:
        """Remove an instance."""
        place.rmdir()

    def open(self, place: Path, flags: int) -> int:
        """Open a file, not inherited by children."""
        return os.open(place, flags | os.O_CLOEXEC)

    def read(self, place: Path) -> bytes:
        """Return the content of a file."""
        return place.read_bytes()

    def write(self, descriptor: int, text: bytes) -> None:
        """Write a setting, or a part of one, to an open file."""
        os.write(descriptor, text)


class Handed(Files):
    """The same for a user, to whom `critpath_record.rooted` hands over what only root opens."""

    def __init__(self, made: Mapping[str, int] | None = None) -> None:
        self._made = dict(made or {})

    def mount(self) -> None:
        """Have it mounted."""
        rooted.ask("mount")

    def may_make(self, root: Path) -> bool:
        """Tell whether it is where the helper makes them."""
        return root == MOUNT_POINT

    def has_event(self, root: Path, event: str) -> bool:
        """Look for its number."""
        with contextlib.suppress(OSError):
            return bool(self.read(root / "events" / event / "id"))
        return False

    def pin(self, place: Path) -> int:  # noqa: ARG002 - as above
        """None: each instance has a descriptor of its own."""
        return -1

    def reach(self, path: Path) -> Path:
        """Return the path through the instance's descriptor."""
        found = self._made.get(path.name)
        return path if found is None else Path(f"/proc/self/fd/{found}")

    def names_off(self, path: Path) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        """Nothing: who makes it does that."""
        return contextlib.nullcontext()

    def own(self, place: Path, events: Iterable[str]) -> None:
        """Have the files given to this user."""
        names = sorted(events)
        for at in range(0, len(names), rooted.EVENTS):
            rooted.ask("own", place.name, *names[at : at + rooted.EVENTS])

    def make(self, place: Path) -> None:
        """Have an instance made."""
        _, self._made[place.name] = rooted.ask("make", place.name)

    def remove(self, place: Path) -> None:
        """Have an instance removed; its path is not that by which it is reached."""
        rooted.ask("remove", place.name)
        os.close(self._made.pop(place.name, -1))

    def read(self, place: Path) -> bytes:
        """Return the content of a file of ours, or what the kernel says to all who may trace."""
        if not place.is_relative_to(MOUNT_POINT):
            return super().read(place)
        _, descriptor = rooted.ask("read", str(place.relative_to(MOUNT_POINT)))
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            return stream.read()


files: Files = Handed() if rooted.channel is not None else Files()


@dataclass(frozen=True)
class Instance:
    """A private set of ring buffers and settings, which no other tracer sees."""

    path: Path
    # A descriptor of the directory of instances, closed by `remove`: it keeps the instance
    # reachable if tracefs is unmounted.  -1 for none.
    home: int = -1

    @classmethod
    def pin(cls, root: Path, name: str) -> Instance:
        """Return an instance that stays reachable until it is removed; raises CritpathError."""
        place = root / "instances"
        try:
            home = files.pin(place)
        except OSError as error:
            raise _refusal("open", place, error) from None
        return cls(place / name, home)

    @classmethod
    def at(cls, root: Path, name: str) -> Instance:
        """Return the instance of a name, which need not exist."""
        return cls(root / "instances" / name)

    def make(self, *mounts: Path) -> None:
        """Make the instance with the kernel's default settings; raises CritpathError.

        Whatever becomes of this process, it traces no more afterwards, and what is mounted at
        `mounts` is there no more.
        """
        try:
            with files.names_off(self.path):
                files.make(self.place)
        except OSError as error:
            raise _refusal("make", self.path, error) from None
        _watched[self.path] = TracingWatchdog(self, *mounts)

    def own(self, events: Iterable[str]) -> None:
        """Make sure that files of events may be used; raises CritpathError."""
        try:
            files.own(self.path, events)
        except OSError as error:
            raise _refusal("use events of", self.path, error) from None

    def read(self, name: str) -> str:
        """Return the text of a file."""
        return self.read_bytes(name).decode("utf-8", errors="replace")

    def read_bytes(self, name: str) -> bytes:
        """Return the content of a file; raises CritpathError."""
        try:
            return files.read(self.place / name)
        except OSError as error:
            raise _refusal("read", self.path / name, error) from None

    def write(self, name: str, value: str) -> None:
        """Write a setting; raises CritpathError, with what to do, if the kernel refuses."""
        self._write(name, [value], os.O_WRONLY | os.O_TRUNC)

    def append(self, name: str, value: str) -> None:
        """Add a line to a setting; raises CritpathError, too."""
        self._write(name, [value], os.O_WRONLY | os.O_APPEND)

    def enable_events(self, events: Iterable[str]) -> list[str]:
        """Enable further events (``group:event`` or ``group:*``).

        Returns those that the kernel refused, each with the reason.
        """
        # The kernel takes one name per write, however many are offered.
        refused = []
        descriptor = self.open("set_event", os.O_WRONLY | os.O_APPEND)
        try:
            for event in events:
                try:
                    files.write(descriptor, f"{event}\n".encode())
                except OSError as error:
                    refused.append(f"{event} ({error.strerror})")
        finally:
            os.close(descriptor)
        return refused

    def enabled_events(self) -> list[str]:
        """Return the enabled events as ``group/event``, sorted."""
        lines = self.read("set_event").splitlines()
        return sorted(line.replace(":", "/", 1) for line in lines if ":" in line)

    def cpus(self) -> list[int]:
        """Return the CPUs that may have a buffer."""
        names = [p.name for p in (self.place / "per_cpu").iterdir()]
        return sorted(int(name[3:]) for name in names if re.fullmatch(r"cpu\d+", name))

    def stats(self, cpu: int) -> dict[str, int]:
        """Return the kernel's counts of a CPU's buffer, by the kernel's names."""
        return parse_stats(self.read(f"per_cpu/cpu{cpu}/stats"))

    def turn_off(self) -> None:
        """Turn tracing off and free the buffers, as far as the kernel lets us."""
        for name, value in (("tracing_on", "0"), ("set_event", ""), ("buffer_size_kb", "1")):
            with contextlib.suppress(CritpathError):
                self.write(name, value)

    def remove(self) -> None:
        """Remove the instance if it exists."""
        if (watch := _watched.pop(self.path, None)) is not None:
            watch.dismiss()
        try:
            self._remove()
        finally:
            if self.home >= 0:
                os.close(self.home)

    def _remove(self) -> None:
        for attempt in range(_BUSY_TRIES):
            try:
                files.remove(self.place if self.home >= 0 else self.path)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno == errno.ENODEV:  # somebody else removes it just now
                    return
                if error.errno != errno.EBUSY and attempt:  # once may be by chance
                    raise _refusal("remove", self.path, error) from None
                if attempt == 0:
                    self.turn_off()
                    _close_own(self.path)
                time.sleep(_BUSY_PAUSE)
            else:
                return
        who = ", ".join(find_holders(self.path)) or "somebody"
        raise CritpathError(
            f"the tracing instance {self.path} is turned off but held open by {who}",
            "end that, then: critpath doctor --clean",
        )

    @property
    def place(self) -> Path:
        """The path by which it can be reached now, whatever is mounted."""
        if self.home < 0:
            return files.reach(self.path)
        return Path(f"/proc/self/fd/{self.home}") / self.path.name

    def open(self, name: str, flags: int) -> int:
        """Open a file, not inherited by children; raises CritpathError."""
        try:
            return files.open(self.place / name, flags)
        except OSError as error:
            raise _refusal("open", self.path / name, error) from None

    def _write(self, name: str, values: Iterable[str], flags: int) -> None:
        descriptor = self.open(name, flags)
        try:
            for value in values:
                files.write(descriptor, f"{value}\n".encode())
        except OSError as error:
            raise _refusal(f"write {value!r} to", self.path / name, error) from None
        finally:
            os.close(descriptor)


def split_name(instance: str) -> tuple[str, str]:
    """Return layer and session of an instance by its name; no layer for another kind."""
    if not instance.startswith(LAYER):
        return "", instance
    layer, _, session = instance.removeprefix(LAYER).partition(".")
    return layer, session


# Waits in the instance's directory for a line, or for the end of the process that writes it.
# The buffers stay: what is in them belongs to the recording.
_SCRIPT: Final = (
    "trap '' HUP INT QUIT TERM USR1 USR2; read -r _ && exit; echo 0 >tracing_on; : >set_event; "
    'for place; do umount -l "$place"; done'
)
_PATIENCE: Final = 5.0  # s


class TracingWatchdog:
    """A small process that turns tracing off if its recorder is killed.

    `Instance.make` has one for each; of what else is to be undone it knows mounts.
    """

    def __init__(self, instance: Instance, *mounts: Path) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        # A machine without a shell, or without a process to spare, can be recorded all the same.
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(  # noqa: S603 - our own words
                ["/bin/sh", "-c", _SCRIPT, "critpath-watch", *map(str, mounts)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=instance.place,
                env={},
                start_new_session=True,  # what is sent to the recorder's group is not meant
            )

    def dismiss(self) -> None:
        """End the process: the recorder lives, and turns tracing off itself."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError), process.stdin as stdin:
            stdin.write(b"\n")
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# All that this process has made in the kernel and must be undone: programs and perf events are
# gone with their descriptors.  What a killed one leaves is found by its name (`cleanup`).
_watched: Final[dict[Path, TracingWatchdog]] = {}


def parse_stats(text: str) -> dict[str, int]:
    """Parse the counts, not the times, of ``per_cpu/cpuN/stats``."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if value.strip().isdecimal():
            found[name.strip()] = int(value)
    return found


def find_holders(path: Path) -> list[str]:
    """Return the processes that hold a file of an instance open."""
    inside = _path_fragment(path)
    marker = path / "trace_marker"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            links = [(link, str(link.readlink())) for link in (process / "fd").iterdir()]
            # Opened where it was mounted, the marker has another path, and then none.
            if any(inside in to for _, to in links) or any(
                (to.endswith("/" + marker.name) or to == "/") and link.samefile(marker)
                for link, to in links
            ):
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                found.append(f"process {process.name} ({name})")
    return found


def _close_own(path: Path) -> None:
    """Close our own files of an instance.

    An exception that a signal raises just after an open leaks the descriptor.
    """
    inside = _path_fragment(path)
    for link in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if inside in str(link.readlink()):
                os.close(int(link.name))


def _path_fragment(path: Path) -> str:
    """Return the part that the paths of all files of an instance share, mounted or not."""
    return f"/instances/{path.name}/"


def _refusal(what: str, path: Path, error: OSError) -> CritpathError:
    return CritpathError(
        f"cannot {what} {path}: {error.strerror}", _DO.get(error.errno or 0, _DO_ELSE)
    )


# Threads at the start, from /proc


# One thread: ns, tid, tgid, ppid, comm, state, cpu, kernel thread (0 or 1), pid namespace.
ThreadRow = tuple[int, int, int, int, str, str, int, int, int]

_KERNEL_THREAD: Final = 0x0020_0000  # PF_KTHREAD, include/linux/sched.h
_COMM_BYTES: Final = 15


def scan_threads() -> list[ThreadRow]:
    """Return a row for every thread; one that exits meanwhile is left out."""
    rows: list[ThreadRow] = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - no object per thread: this is timed
        if not name.isdecimal():
            continue
        namespace = -1
        try:
            threads = os.listdir(f"/proc/{name}/task")  # noqa: PTH208 - as above
        except OSError:
            continue
        for tid in threads:
            try:
                with open(f"/proc/{name}/task/{tid}/stat", "rb") as stream:  # noqa: PTH123 - as above
                    text = stream.read()
                row = _parse_stat(text, int(tid), int(name))
            except (OSError, ValueError, IndexError):
                continue
            if row[7] == 0:
                namespace = pid_namespace(name) if namespace < 0 else namespace
                row = (*row[:8], namespace)
            rows.append(row)
    return rows


def _parse_stat(text: bytes, tid: int, tgid: int) -> ThreadRow:
    # The name may hold brackets and spaces: the last bracket is the one that counts.
    before, _, after = text.rpartition(b")")
    comm = before.partition(b"(")[2]
    fields = after.split()
    kernel = int(bool(int(fields[6]) & _KERNEL_THREAD))
    if kernel and comm.startswith(b"kworker/") and not comm.startswith(b"kworker/R-"):
        # /proc adds what a worker is busy with; the scheduler's events do not.
        comm = comm.partition(b"-")[0].partition(b"+")[0]
    return (
        time.monotonic_ns(),
        tid,
        tgid,
        int(fields[1]),
        comm[:_COMM_BYTES].decode("utf-8", errors="replace"),
        fields[0].decode("ascii", errors="replace"),
        int(fields[36]),
        kernel,
        0,
    )
