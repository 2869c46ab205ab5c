"""Python functions of the recorded command: from `critpath.functions` to a stream of the trace.

The agent runs in the command's own interpreter and writes into a directory of the recording,
which it gets as an open descriptor.  At the end that becomes a trace of its own beside the
kernel's, with the same clock, and ``functions.json``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import re
import shutil
import stat
import struct
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from critpath.errors import CritpathError, UsageError
from critpath.units import plural, safe_text
from critpath_record.ctf.trace import CtfEventClass, TraceWriter, declare_integer
from critpath_record.dirfd import list_matching, open_dir
from critpath_record.scripts import split_python
from critpath_record.shared import SharedPlace
from critpath_record.source import Source, Taken

if TYPE_CHECKING:
    import numpy as np

    from critpath_record.runner import Executable
    from critpath_record.user import User

FILE: Final = "functions.json"
FORMAT: Final = "critpath/functions/1"
RAW: Final = "functions.raw"
SHARE: Final = 0.03  # of the command's cpu time, without a budget

_OLDEST: Final = (3, 12)
_ASK: Final = "import sys; print(*sys.version_info[:3]); sys.exit(sys.version_info < (3, 12))"
_PYTHON: Final = re.compile(r"(python|pypy)[\d.]*")
_WITHOUT: Final = "record without --functions"
# As the agent writes (critpath/functions/_ring.c).
_MAGIC: Final = b"critfun1"
_HEAD: Final = struct.Struct("<8sIIQQQ")
_HEADER, _WINDOW, _EVENT = 4096, 4096, 16
_UNKNOWN: Final = 450.0  # ns of an event where its process does not say
_COLD: Final = 1.2  # a program's caches are colder than those of the loop that measured an event
_DEAREST: Final = 1e5  # ns of an event, whatever a program says
_SLOT: Final = re.compile(r"(\d{1,10})-p?\d{1,10}\.slot")
_MOST_NAMES: Final = 1 << 28  # bytes of a process's list
_MOST_BYTES: Final = 1 << 30  # of all lists
_MOST_FILES: Final = 1 << 16  # lists, and files of events
_MOST_EVENTS: Final = 1 << 32
_MOST_FUNCTIONS: Final = 1 << 20
_LONGEST: Final = 500  # letters of a name
_MOST_SLOT: Final = _HEADER + (2 + 64) * _WINDOW * _EVENT  # bytes of a thread's file, or a list
_MOST_HELD: Final = 256 << 20  # of all, in a dump
_RARELY: Final = 5.0  # s between looks at what noting has taken
_CLOCK_UUID: Final = re.compile(r'clock \{[^}]*?uuid = "([0-9a-f-]{36})"', re.DOTALL)
_CLOCK_OFFSET: Final = re.compile(r"clock \{[^}]*?\boffset = (\d{1,20});", re.DOTALL)
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_CODE: Final = (declare_integer("code", 4, signed=False),)


def with_agent(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command with the agent before what its Python runs.

    Raises UsageError if it is no Python, or what it runs is not sure.
    """
    name = command[0].rpartition("/")[2]
    options, rest = split_python(command[1:])
    if not _PYTHON.fullmatch(name) or not rest:
        raise UsageError(
            f"--functions: {safe_text(' '.join(command[:2]))} does not say which Python runs what",
            "give it as python SCRIPT, or python -m MODULE",
        )
    agent = importlib.util.find_spec("critpath.functions.agent")
    if agent is None or not agent.origin:
        raise CritpathError("critpath.functions is missing", "install critpath anew")
    return (command[0], *options, agent.origin, *rest)


def check_python(program: Executable, user: User | None) -> None:
    """Ask the command's Python for its version.

    Raises UsageError if it is older than what can be recorded.
    """
    whose: dict[str, Any] = {}
    if user is not None:
        whose = {"user": user.uid, "group": user.gid, "extra_groups": user.groups}
    try:
        done = subprocess.run(  # noqa: S603 - the user's own, as the user
            [program.path, b"-IS", b"-c", _ASK.encode()],
            executable=program.path,
            capture_output=True,
            check=False,
            timeout=60,
            **whose,
        )
    except (OSError, subprocess.SubprocessError):
        done = None
    if done is None or done.returncode:
        words = done.stdout.decode("ascii", "replace").split() if done else []
        version = f"Python {'.'.join(words)}" if len(words) == 3 else "a program that is no Python"
        raise UsageError(
            f"--functions needs Python 3.12 or later; {safe_text(program.name)} is "
            f"{safe_text(version)}",
            f"name a later python, or {_WITHOUT}",
        )


@dataclass
class FunctionFiles(Source):
    """What the command's agents write, and where."""

    name: ClassVar[str] = "functions"
    directory: Path  # of the recording, as this process writes to it
    share: float  # of the command's cpu time that recording functions may take
    user: User | None = None  # whom the command runs as
    _descriptor: int = -1
    _costs: dict[str, float] = field(default_factory=dict)  # of an event, by process (ns)

    def prepare(self) -> None:
        """Make the directory, and open it for the command."""
        place = self.directory / RAW
        place.mkdir(mode=0o700)
        self._descriptor = open_dir(place)
        if self.user is not None:
            os.fchown(self._descriptor, self.user.uid, self.user.gid)
        os.set_inheritable(self._descriptor, True)

    def environment(self) -> Mapping[str, str]:
        """Return what the agent looks for."""
        found = importlib.util.find_spec("critpath.functions._ring")
        native = found.origin if found is not None else None
        return {
            "CRITPATH_FUNCTIONS": f"/proc/self/fd/{self._descriptor}",
            "CRITPATH_FUNCTIONS_SHARE": f"{self.share:.6f}",
            "CRITPATH_FUNCTIONS_NATIVE": native or "python",
        }

    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptor that the command inherits."""
        return (self._descriptor,)

    def cost(self) -> float:
        """Return what noting functions took so far (s of cpu time): events by their cost.

        Each process measured what an event costs it, which depends on its callbacks; where that
        cannot be read, an upper value is taken.
        """
        events = _count_events(self._descriptor)
        return sum(_weigh(self._descriptor, events, self._costs).values())

    def drain(self, report: Callable[[str], None]) -> Taken:
        """Make a trace of what agents wrote while the tracer recorded."""
        report("writing functions")
        self.abort()
        return Taken(warnings=convert_functions(self.directory, self.span), beside=(FILE,))

    def abort(self) -> None:
        """Let the directory go."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _weigh(descriptor: int, events: Mapping[str, int], costs: dict[str, float]) -> dict[str, float]:
    """Return what events took, by process (s); `costs`: what one does (ns), as far as read."""
    for process in events.keys() - costs.keys():
        if cost := _read_cost(descriptor, process):
            costs[process] = cost
    return {of: _COLD * count * costs.get(of, _UNKNOWN) / 1e9 for of, count in events.items()}


class HeldFunctions:
    """What programs write for a flight recorder, which begin while it runs: the newest of it."""

    def __init__(self, shared: SharedPlace) -> None:
        self._shared, self._descriptor = shared, shared.descriptor
        self._costs, self._spent = dict[str, float](), dict[str, float]()
        self._total, self._due = 0.0, 0.0

    def cost(self) -> float:
        """Return what noting functions took so far (s of cpu time); looked at every few seconds."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _RARELY
            now = _weigh(self._descriptor, _count_events(self._descriptor), self._costs)
            self._total += sum(max(0.0, of - self._spent.get(p, 0.0)) for p, of in now.items())
            self._spent = now
        return self._total

    def save(self, building: Path) -> None:
        """Copy what there is to a dump; of programs that have ended it is forgotten then."""
        place, room = building / RAW, _MOST_HELD
        place.mkdir(mode=0o700)
        for name in sorted(os.listdir(self._descriptor))[:_MOST_FILES]:  # noqa: PTH208 - as above
            if not (_SLOT.fullmatch(name) or (name.endswith(".names") and name[:-6].isdecimal())):
                continue
            with _open(self._descriptor, name) as stream:
                data = stream.read(min(_MOST_SLOT, room)) if stream else b""
            room -= len(data)
            if data:
                (place / name).write_bytes(data)
        self._shared.clear(lambda name: not _runs(name))


def _runs(name: str) -> bool:
    """Return whether the process whose file this is may still write to it."""
    process = name.partition("-")[0].removesuffix(".names")
    return not process.isdecimal() or os.path.isdir(f"/proc/{process}")  # noqa: PTH112


def convert_functions(
    directory: Path, span: tuple[int, int], *, held: bool = False
) -> tuple[str, ...]:
    """Make a trace and ``functions.json`` of what agents wrote, if they did; return warnings.

    `directory`: of the recording, whose ``trace`` is there.  `span`: its begin and end (ns): what
    was noted outside is left out.  `held`: for a dump; that nobody has noted any is no wonder.
    """
    place = directory / RAW
    try:
        descriptor = open_dir(place)
    except FileNotFoundError:
        return ()
    try:
        found = _read_all(descriptor)
        if held and not found.slots:
            return ()
        warnings = _write_all(directory, found, span)
    finally:
        os.close(descriptor)
        shutil.rmtree(place, ignore_errors=True)
    return warnings


@dataclass
class _Found:
    """What all agents of a recording wrote."""

    names: dict[tuple[str, str, str, int, bool], int] = field(default_factory=dict)
    off: dict[int, int] = field(default_factory=dict)  # times that a function was switched off
    codes: dict[int, dict[int, int]] = field(default_factory=dict)  # by process
    slots: list[tuple[int, str]] = field(default_factory=list)  # process, name
    costs: list[float] = field(default_factory=list)
    lost: int = 0
    read: int = 0  # bytes of lists
    left_out: int = 0  # files, wholly or in part
    descriptor: int = -1


def _read_all(descriptor: int) -> _Found:
    """Read the lists of functions, and find the slots."""
    found = _Found(descriptor=descriptor)
    for name in sorted(os.listdir(descriptor)):
        if name.endswith(".names") and name[:-6].isdecimal():
            _read_names(found, name, int(name[:-6]))
        elif matched := _SLOT.fullmatch(name):
            with _open(descriptor, name) as stream:
                head = stream.read(_HEAD.size) if stream else b""
            if len(head) == _HEAD.size:
                magic, *_, lost, _ = _HEAD.unpack(head)
                if magic == _MAGIC and len(found.slots) == _MOST_FILES:
                    found.left_out += 1
                elif magic == _MAGIC:
                    found.slots.append((int(matched[1]), name))
                    found.lost += min(lost, 1 << 48)
    return found


@contextlib.contextmanager
def _open(descriptor: int, name: str) -> Iterator[Any]:
    """Open a file that a program wrote, if it is an ordinary one."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=descriptor)
    except OSError:
        yield None
        return
    with open(file, "rb", buffering=0) as stream:  # noqa: PTH123 - a descriptor
        yield stream if stat.S_ISREG(os.fstat(file).st_mode) else None


def _count_events(descriptor: int) -> Counter[str]:
    """Return how many events there are by process; no more than the files have room for."""
    events = Counter[str]()
    with contextlib.suppress(OSError):  # it was let go
        for name in list(filter(_SLOT.fullmatch, os.listdir(descriptor)))[:_MOST_FILES]:
            with _open(descriptor, name) as stream:
                head = stream.read(_HEAD.size) if stream else b""
                if len(head) == _HEAD.size:
                    magic, _, count, windows, _, kept = _HEAD.unpack(head)
                    most = os.fstat(stream.fileno()).st_size // (_EVENT * _WINDOW)
                    windows = min(windows, 1 << 32) if 0 < kept <= most else min(windows, most)
                    known = windows * _WINDOW + min(count, _WINDOW)
                    events[name.partition("-")[0]] += known if magic == _MAGIC else 0
    return events


def _read_cost(descriptor: int, process: str) -> float:
    """Return what an event costs a process (ns): the first line of its list; 0 if not known."""
    with _open(descriptor, f"{process}.names") as stream:
        line = stream.read(_LONGEST).partition(b"\n")[0] if stream else b""
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError, OverflowError):
        cost = float(json.loads(line)["cost"])
        return min(cost, _DEAREST) if math.isfinite(cost) and cost > 0 else 0.0
    return 0.0


def _read_names(found: _Found, name: str, pid: int) -> None:
    most = min(_MOST_NAMES, _MOST_BYTES - found.read)
    if most <= 0 or len(found.codes) == _MOST_FILES:
        found.left_out += 1
        return
    codes = found.codes.setdefault(pid, {})
    with _open(found.descriptor, name) as stream:
        text = stream.read(most) if stream else b""
        found.left_out += bool(stream and stream.read(1))
    found.read += len(text)
    for written in text.splitlines():
        try:
            row = json.loads(written)
            if "cost" in row:
                if math.isfinite(cost := float(row["cost"])) and cost > 0:
                    found.costs.append(cost)
            elif "off" in row:
                number = codes.get(int(row["off"]), 0)
                found.off[number] = found.off.get(number, 0) + 1
            elif "number" in row and len(found.names) < _MOST_FUNCTIONS:
                module, qualified, file = (str(word)[:_LONGEST] for word in row["words"])
                line = int(row["line"]) & 0x7FFF_FFFF
                key = module, qualified, file, line, bool(row.get("project"))
                number = found.names.setdefault(key, len(found.names) + 1)
                codes[int(row["number"])] = number
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            continue  # a line that a killed program did not finish, or that is none


def _write_all(directory: Path, found: _Found, span: tuple[int, int]) -> tuple[str, ...]:
    """Write the trace and the list of functions."""
    import numpy as np  # noqa: PLC0415 - nothing has it while a recording is made

    place = directory / "trace" / "functions"
    read = written = 0
    used: set[int] = set()

    def pack(stream: Any, table: Any) -> Iterator[tuple[int, int, list[bytes]]]:
        nonlocal read, written
        last = span[0]
        for rows in _read_events(stream):
            if read >= _MOST_EVENTS:
                found.left_out += 1
                return
            kept, last = _select(rows, table, last, span[1])
            read += len(rows)
            written += len(kept)
            if len(kept):
                used.update(np.unique(kept["code"] >> 1).tolist())
                yield int(kept["time"][0]), last, [_pack(kept)]

    if found.slots:
        place.mkdir(mode=0o700)
        clock, epoch = _find_clock(directory)
        classes = [
            CtfEventClass(f"critpath_function_{name}", number, _CODE)
            for number, name in enumerate(("entry", "exit"))
        ]
        environment = {"hostname": os.uname().nodename, "domain": "kernel"}
        writer = TraceWriter(place, classes, clock=clock, epoch=epoch, environment=environment)
        for number, (pid, name) in enumerate(found.slots):
            table = _code_table(found.codes.get(pid, {}))
            with _open(found.descriptor, name) as stream:
                writer.write_stream(f"functions_{number}", number, pack(stream, table))
    listed = [
        {"number": number, "module": module, "name": name, "file": file, "line": line}
        | ({"project": True} if project else {})
        | ({"switched_off": found.off[number]} if number in found.off else {})
        for (module, name, file, line, project), number in found.names.items()
        if number in used or number in found.off
    ]
    content = {
        "format": FORMAT,
        "events": written,
        "lost": found.lost,
        "event_ns": round(sorted(found.costs)[len(found.costs) // 2], 1) if found.costs else None,
        "functions": listed,
    }
    (directory / FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    warnings = []
    if not found.slots:
        warnings.append("no functions were recorded: the command ended before it ran any")
    if found.lost:
        warnings.append(f"{plural(found.lost, 'event')} of functions were lost: the disk was full")
    if found.left_out:
        files = plural(found.left_out, "file")
        warnings.append(f"{files} of functions left out or cut: there are too many, or too large")
    return tuple(warnings)


def _find_clock(directory: Path) -> tuple[uuid.UUID, int]:
    """Return the identity of the kernel trace's clock, and its offset (ns)."""
    for metadata in list_matching(directory / "trace", "*", "metadata"):
        text = metadata.read_bytes()[: 1 << 20].decode("utf-8", "replace")
        clock, offset = _CLOCK_UUID.search(text), _CLOCK_OFFSET.search(text)
        if clock and offset:
            return uuid.UUID(clock[1]), int(offset[1])
    boot = _BOOT.read_text(encoding="ascii").strip()  # what LTTng names the kernel's clock by
    return uuid.UUID(boot), time.time_ns() - time.monotonic_ns()


def _code_table(codes: Mapping[int, int]) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the recording's numbers by a process's own."""
    import numpy as np  # noqa: PLC0415 - as above

    most = min(max(codes, default=0), _MOST_FUNCTIONS)
    table = np.zeros(most + 1, np.uint32)
    for mine, number in codes.items():
        if 0 <= mine <= most:
            table[mine] = number
    return table


def _read_events(stream: Any) -> Iterator[Any]:
    """Yield a slot's events, window by window; the one that was not full comes last."""
    import numpy as np  # noqa: PLC0415 - as above

    if stream is None:
        return
    kind = np.dtype([("time", "<u8"), ("code", "<u4"), ("tid", "<i4")])
    head = os.pread(stream.fileno(), _HEAD.size, 0)
    if len(head) < _HEAD.size:
        return
    _, _, count, windows, _, most = _HEAD.unpack(head)
    if 0 < most < windows:
        yield from _read_windows(stream, kind, windows % most, most - windows % most)
        windows %= most
    yield from _read_windows(stream, kind, 0, windows)
    data = os.pread(stream.fileno(), min(count, _WINDOW) * _EVENT, _HEADER)
    yield np.frombuffer(data[: len(data) - len(data) % _EVENT], kind)


def _read_windows(stream: Any, kind: Any, first: int, windows: int) -> Iterator[Any]:
    """Yield the events of so many full windows."""
    import numpy as np  # noqa: PLC0415 - as above

    size = _WINDOW * _EVENT
    if first > _MOST_EVENTS:
        return
    at, group = _HEADER + size * (1 + first), 16  # windows at a time
    while windows > 0:
        # A forged file can be a hole of any size.
        try:
            hole = (os.lseek(stream.fileno(), at, os.SEEK_DATA) - at) // size
        except (OSError, OverflowError):  # nothing comes any more
            break
        windows -= hole
        at += hole * size
        if windows <= 0:
            break
        data = os.pread(stream.fileno(), size * min(windows, group), at)
        if len(data) < _EVENT:
            break
        yield np.frombuffer(data[: len(data) - len(data) % _EVENT], kind)
        windows -= group
        at += len(data)


def _select(rows: Any, table: Any, last: int, end: int) -> tuple[Any, int]:
    """Return events of known functions in order of time, with the recording's numbers."""
    import numpy as np  # noqa: PLC0415 - as above

    mine = rows["code"] >> 1
    number = table[np.minimum(mine, len(table) - 1)]
    number[mine >= len(table)] = 0
    time = rows["time"].astype(np.int64)
    # A window that was stored twice as its writer was killed, or a forged one.
    ascending = time >= np.maximum(np.maximum.accumulate(np.append(last, time))[:-1], last)
    kept = (number > 0) & ascending & (time <= end) & (rows["tid"] > 0)
    chosen = rows[kept].copy()
    chosen["code"] = 2 * number[kept] + (chosen["code"] & 1)
    return chosen, int(chosen["time"][-1]) if len(chosen) else last


def _pack(rows: Any) -> bytes:
    """Return a packet's events, each with its full time and its thread."""
    import numpy as np  # noqa: PLC0415 - as above

    packed = np.zeros(
        len(rows),
        np.dtype(
            [("mark", "u1"), ("id", "<u4"), ("time", "<u8"), ("tid", "<i4"), ("flags", "u1"),
             ("code", "<u4")]
        ),
    )  # fmt: skip
    packed["mark"] = 0x1F
    packed["id"] = rows["code"] & 1
    packed["time"], packed["tid"], packed["code"] = rows["time"], rows["tid"], rows["code"] >> 1
    return packed.tobytes()
