"""Channels that take marks: the recording that a program is part of, else any there is.

A process chooses its channel at the first mark, again after a fork, and again when the chosen
one takes no more marks:

1. what the recorder put into the environment of its command: ``CRITPATH_MARKER_FD``, an
   inherited descriptor (for programs that may not open the file), ``CRITPATH_MARKER``,
   the file's path, or ``CRITPATH_RECORDER``, for LTTng;
2. for a program that was started before the recorder (``critpath record -a``): the tracefs
   instances of live recorders, where they may be opened, or the files that they open for other
   users below `PLACE`, else LTTng's logger file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from critpath_marks.gate import GATE, SUFFIX, Gate, open_gate

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator
    from typing import Final

MARKER: Final = "CRITPATH_MARKER"
DESCRIPTOR: Final = "CRITPATH_MARKER_FD"
RECORDER: Final = "CRITPATH_RECORDER"
# Whether the command's runtimes are asked which task runs (`critpath_marks.tasks`).
TASKS: Final = "CRITPATH_TASKS"

LOGGER: Final = "critpath"  # what the recorder enables in LTTng's Python domain
LOGGER_FILE: Final = "/proc/lttng-logger"
# Files for programs whose users may not write to tracefs, and where they ask for one.
PLACE: Final = "/run/critpath-marks"
ASK: Final = ".ask"
TASKS_SUFFIX: Final = ".tasks"  # a recording with such a file asks runtimes which task runs
INSTANCES: Final = ("/sys/kernel/tracing/instances", "/sys/kernel/debug/tracing/instances")

_RESCAN_S: Final = 1.0
_WRITE: Final = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)  # other systems only import this
# Daemons close low descriptors, known or not, and get the same numbers again for other
# files; none of them goes this high.
_HIGH: Final = 800


class Channel(Protocol):
    """Something that takes marks.

    Attributes
    ----------
    gate : Gate or None
        Of a recording under a budget: what an execution passes before it is marked.
    """

    gate: Gate | None

    def ready(self) -> bool:
        """Return whether it would take a mark, at next to no cost where not."""

    def write(self, message: bytes) -> bool:
        """Write a mark; return False if it was not taken."""

    def close(self) -> None:
        """Release the files."""


def find_channel(*, agent: bool = True) -> Channel | None:
    """Return the channel that takes marks now, None if there is none.

    Parameters
    ----------
    agent : bool
        Whether LTTng's Python agent, which is slow to start, may be used.
    """
    global _chosen  # noqa: PLW0603 - the state of the process, as sys.stdout is
    chosen = _chosen
    if chosen is None:
        _chosen = chosen = next(_candidates(agent=agent))
    return chosen if chosen.ready() else None


def forget_channel() -> None:
    """Close the chosen channel, and choose again at the next mark."""
    global _chosen
    before, _chosen = _chosen, None
    if before is not None:
        before.close()


_chosen: Channel | None = None
# Instances that take no more marks: their names are never used again.
_ended: set[str] = set()


def _candidates(*, agent: bool) -> Iterator[Channel]:
    environment = os.environ
    link = environment.get(MARKER, "")
    inherited = _open_inherited(environment.get(DESCRIPTOR, ""))
    if inherited is not None:
        yield _File(*inherited, _open_gate())
    if os.path.isabs(link) and os.path.basename(link) == "trace_marker" and link not in _ended:  # noqa: PTH117, PTH119 - pathlib is slow to import
        descriptor = _open(link)
        if descriptor is not None:
            yield _File(descriptor, link, _open_gate())
    recorder = environment.get(RECORDER, "")
    if recorder == "lttng" and agent:
        logger = _start_agent()
        if logger is not None:
            yield logger
    yield _Any(logger_first=recorder.startswith("lttng"))


def _open(path: str) -> int | None:
    try:
        return _move_high(os.open(path, _WRITE))
    except OSError:
        return None


def _move_high(descriptor: int) -> int:
    """Move a descriptor to where daemons do not close it."""
    import fcntl  # noqa: PLC0415 - only where something records

    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:  # beyond the limit
        return descriptor
    os.close(descriptor)
    return moved


def _open_gate() -> Gate | None:
    text = os.environ.get(GATE, "")
    return open_gate(text, _move_high) if text else None


def _open_inherited(text: str) -> tuple[int, str] | None:
    """Return an inherited descriptor and its file, if it is still a trace marker."""
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        return None
    try:
        link = os.readlink(f"/proc/self/fd/{int(text)}")
        if not link.endswith("/trace_marker") or link in _ended:
            return None
        # The original stays for the children, and for others in this process.
        return _move_high(os.dup(int(text))), link
    except OSError:
        return None


class _File:
    """A file of the recorder that the environment names."""

    def __init__(self, descriptor: int, path: str, gate: Gate | None) -> None:
        self._descriptor = descriptor
        self._path = path
        self.gate = gate

    def ready(self) -> bool:
        """Return True: it was opened."""
        return True

    def write(self, message: bytes) -> bool:
        """Write, or change to another channel for good if this one takes no more."""
        descriptor = self._descriptor
        if descriptor >= 0:
            try:
                os.write(descriptor, message)
            except OSError as error:
                return self._handle_error(error, descriptor, message)
            return True
        return self._write_to_next(message)

    def close(self) -> None:
        """Close the file: the recorder removes it after the recording."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)
        self._close_gate()

    def _close_gate(self) -> None:
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.close()

    def _handle_error(self, error: OSError, descriptor: int, message: bytes) -> bool:
        import errno  # noqa: PLC0415 - at the end of a recording

        if error.errno not in {errno.EBADF, errno.EINVAL, errno.ENODEV, errno.EPERM, errno.EIO}:
            return False  # this mark only: no memory, a signal
        self._descriptor = -1
        self._close_gate()
        try:
            # With tracing off, the kernel says EBADF of a good descriptor.  Closed, it
            # no longer keeps the recorder from removing its instance.
            os.close(descriptor)
        except OSError:
            pass  # the program closed it: the file may still be good
        else:
            _ended.add(self._path)
        return self._write_to_next(message)

    def _write_to_next(self, message: bytes) -> bool:
        global _chosen  # noqa: PLW0603 - as above
        if _chosen is self:
            _chosen = None
        other = find_channel()
        return other is not None and other is not self and other.write(message)


class _Any:
    """Recorders of the whole machine, looked for once a second at most.

    An instance's file is opened for every mark: a long-lived program that makes no marks
    would otherwise keep the recorder from removing it.
    """

    def __init__(self, *, logger_first: bool, files: tuple[str, ...] = ()) -> None:
        self._logger_first = logger_first
        self._next = 0.0
        self._files = files
        self._logger: int | None = None
        self.gate: Gate | None = None
        self._gate_of = ""  # which file says so

    def ready(self) -> bool:
        """Return whether a recorder was there within the last second."""
        if monotonic() >= self._next:
            self._look()
        return bool(self._files) or self._logger is not None

    def _look(self) -> None:
        self._next = monotonic() + _RESCAN_S
        if self._logger is None and self._logger_first:
            self._logger = _open(LOGGER_FILE)
        first = self._logger_first and self._logger is not None
        self._files = () if first else tuple(_list_instances())
        if self._logger is None and not self._files:
            self._logger = _open(LOGGER_FILE)
        if self._logger is None and not self._files:
            self._files = tuple(_list_markers())
        self._look_for_gate()

    def _look_for_gate(self) -> None:
        """Pass the gate of the one recording under a budget that marks are written to, if any."""
        found = ""
        if len(self._files) == 1:
            found = f"{PLACE}/{self._files[0].split('/')[-2]}{SUFFIX}"
        if not os.access(found, os.R_OK):
            found = ""
        if found == self._gate_of:
            return
        before, self.gate, self._gate_of = self.gate, None, found
        if before is not None:
            before.close()
        if found:
            with suppress(OSError, ValueError):
                file = os.open(found, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    text = os.read(file, 2000).decode("ascii")
                finally:
                    os.close(file)
                self.gate = open_gate(text, _move_high)

    def write(self, message: bytes) -> bool:
        """Write to every recorder's instance; without any, to the logger file."""
        taken = False
        for path in self._files:
            try:
                descriptor = os.open(path, _WRITE)
            except OSError:
                self._drop(path)
                continue
            try:
                os.write(descriptor, message)
                taken = True
            except OSError:  # not being traced, or no more
                self._drop(path)
            finally:
                os.close(descriptor)
        if not taken and self._logger is not None:
            try:
                os.write(self._logger, message)
                taken = True
            except OSError:
                self._logger = None
        return taken

    def close(self) -> None:
        """Close the logger file, and the gate."""
        gate, self.gate = self.gate, None
        if gate is not None:
            gate.close()
        descriptor, self._logger = self._logger, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    def _drop(self, path: str) -> None:
        """Ignore a file until the next look."""
        self._files = tuple(f for f in self._files if f != path)


def _list_instances() -> Iterator[str]:
    """Yield the marker files of live recorders' instances."""
    for place in INSTANCES:
        try:
            names = os.listdir(place)  # noqa: PTH208 - pathlib is slow to import
        except OSError:
            continue
        names = [n for n in names if n.startswith("critpath-")]
        if names:
            from critpath_marks.sessions import owner_of  # noqa: PLC0415 - slow to import

            owners = {n: owner_of(n) for n in names}
            yield from (
                f"{place}/{name}/trace_marker"
                for name, owner in sorted(owners.items())
                if owner is not None and not owner.is_gone()
            )
            return  # the second place is the same file system


def find_asking() -> Channel | None:
    """Return what takes which tasks run, None where no recording asks for that."""
    if TASKS in os.environ:
        channel = find_channel(agent=False)
        return channel if isinstance(channel, _File) else None
    try:
        names = os.listdir(PLACE)  # noqa: PTH208 - pathlib is slow to import
    except OSError:
        return None
    asking = [name[: -len(TASKS_SUFFIX)] for name in names if name.endswith(TASKS_SUFFIX)]
    places = (f"{place}/{name}/trace_marker" for name in asking for place in (*INSTANCES, PLACE))
    files = {file.split("/")[-2]: file for file in places if os.access(file, os.W_OK)}
    return _Any(logger_first=False, files=tuple(files.values())) if files else None


def _list_markers() -> Iterator[str]:
    """Yield the files that recorders opened for this user; ask for those that are for others."""
    try:
        names = os.listdir(PLACE)  # noqa: PTH208 - pathlib is slow to import
    except OSError:
        return
    found = []
    for name in sorted(names):
        path = f"{PLACE}/{name}/trace_marker"
        if not name.endswith(ASK) and os.access(path, os.W_OK):
            found.append(name)
            yield path
    for name in names:
        if name.endswith(ASK) and name[: -len(ASK)] not in found:
            _ask(f"{PLACE}/{name}")


def _ask(path: str) -> None:
    """Tell a recorder that this program would mark executions, if it might."""
    import socket  # noqa: PLC0415 - only where something records that this user may not mark for

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            asking.setblocking(False)
            asking.sendto(b"", path)
    except OSError:
        pass  # nobody listens, or too many ask


class _Agent:
    """LTTng-UST's Python agent: takes records of our logger through its own handlers."""

    gate: Gate | None = None

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._else = _Any(logger_first=True)

    def _handlers(self) -> list[logging.Handler]:
        return [h for h in self._logger.root.handlers if type(h).__module__.startswith("lttngust")]

    def ready(self) -> bool:
        """Return whether a session records loggers of Python."""
        return bool(self._handlers()) or self._else.ready()

    def write(self, message: bytes) -> bool:
        """Give a record to the agent's handlers, none to the program's own."""
        handlers = self._handlers()
        if not handlers:  # it did not reach the session daemon, or the session has ended
            return self._else.ready() and self._else.write(message)
        text = message.decode("ascii").rstrip("\n")
        # With a function's name, which the agent needs.
        record = self._logger.makeRecord(LOGGER, 20, "critpath", 0, text, (), None, "mark")
        for handler in handlers:
            handler.handle(record)
        return True

    def close(self) -> None:
        """Close the logger file; the agent's threads are its own."""
        self._else.close()


def _start_agent() -> Channel | None:
    import logging  # noqa: PLC0415 - LTTng only
    from importlib import import_module  # noqa: PLC0415 - LTTng only

    root = logging.getLogger()
    level = root.level
    try:
        # Connects to the session daemon, and waits for it (5 s at most).
        import_module("lttngust")
    except Exception:  # noqa: BLE001 - a broken agent must not stop the program
        return None
    finally:
        # The agent makes the root logger let everything pass, into the program's own
        # handlers too.
        root.setLevel(level)
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return _Agent(logger)
