"""Where marks go: to the recording that a program is part of, else to any there is.

Chosen at the first mark, anew after a fork, and when what was chosen takes no more:

1. what the recorder put into the environment of its command: ``CRITPATH_MARKER_FD``, an
   inherited descriptor (for programs that may not open the file), ``CRITPATH_MARKER``,
   the file's path, or ``CRITPATH_RECORDER``, which says that LTTng records;
2. for a program that was there before the recorder (``critpath record -a``): the tracefs
   instances of live recorders, where they may be opened, else LTTng's logger file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator

MARKER: Final = "CRITPATH_MARKER"
DESCRIPTOR: Final = "CRITPATH_MARKER_FD"
RECORDER: Final = "CRITPATH_RECORDER"

LOGGER: Final = "critpath"  # what the recorder enables in LTTng's Python domain
LOGGER_FILE: Final = "/proc/lttng-logger"
INSTANCES: Final = ("/sys/kernel/tracing/instances", "/sys/kernel/debug/tracing/instances")

_RESCAN_S: Final = 1.0
# Daemons close low descriptors, known or not, and get the same numbers again for other
# files; nobody reaches as high by accident.
_HIGH: Final = 800


class Channel(Protocol):
    """Something that takes marks."""

    def ready(self) -> bool:
        """Tell whether a mark would be taken, at next to no cost where not."""

    def write(self, message: bytes) -> bool:
        """Write a mark; False if it was not taken."""

    def close(self) -> None:
        """Let go of it."""


def channel(*, agent: bool = True) -> Channel | None:
    """Return what takes marks now, None if nothing does.

    Parameters
    ----------
    agent : bool
        Whether LTTng's Python agent may be used, whose start takes its time.
    """
    global _chosen  # noqa: PLW0603 - the state of the process, as sys.stdout is
    chosen = _chosen
    if chosen is None:
        _chosen = chosen = next(_candidates(agent=agent))
    return chosen if chosen.ready() else None


def forget() -> None:
    """Let go of what was chosen, and choose anew at the next mark."""
    global _chosen
    before, _chosen = _chosen, None
    if before is not None:
        before.close()


_chosen: Channel | None = None
# Instances that take no more: their names are never used again.
_ended: set[str] = set()


def _candidates(*, agent: bool) -> Iterator[Channel]:
    environment = os.environ
    link = environment.get(MARKER, "")
    inherited = _inherited(environment.get(DESCRIPTOR, ""))
    if inherited is not None:
        yield inherited
    if os.path.isabs(link) and os.path.basename(link) == "trace_marker" and link not in _ended:  # noqa: PTH117, PTH119 - pathlib is slow to import
        descriptor = _open(link)
        if descriptor is not None:
            yield _File(descriptor, link)
    recorder = environment.get(RECORDER, "")
    if recorder == "lttng" and agent:
        logger = _agent()
        if logger is not None:
            yield logger
    yield _Any(logger_first=recorder.startswith("lttng"))


def _open(path: str) -> int | None:
    try:
        return _high(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        return None


def _high(descriptor: int) -> int:
    """Move a descriptor out of the way."""
    import fcntl  # noqa: PLC0415 - only where something records

    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:  # beyond the limit
        return descriptor
    os.close(descriptor)
    return moved


def _inherited(text: str) -> Channel | None:
    """Return the channel of an inherited descriptor, if it still is what it was."""
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        return None
    try:
        link = os.readlink(f"/proc/self/fd/{int(text)}")  # noqa: PTH115 - pathlib is slow to import
        if not link.endswith("/trace_marker") or link in _ended:
            return None
        # The original stays for the children, and for others in this process.
        return _File(_high(os.dup(int(text))), link)
    except OSError:
        return None


class _File:
    """A file of the recorder that the environment names."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    def ready(self) -> bool:
        """Tell that it is there."""
        return True

    def write(self, message: bytes) -> bool:
        """Write, or turn to another channel for good if this one takes no more."""
        descriptor = self._descriptor
        if descriptor >= 0:
            try:
                os.write(descriptor, message)
            except OSError as error:
                return self._failed(error, descriptor, message)
            return True
        return self._elsewhere(message)

    def close(self) -> None:
        """Close the file, which the recorder wants to remove one day."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)

    def _failed(self, error: OSError, descriptor: int, message: bytes) -> bool:
        import errno  # noqa: PLC0415 - at the end of a recording

        if error.errno not in {errno.EBADF, errno.EINVAL, errno.ENODEV, errno.EPERM, errno.EIO}:
            return False  # this mark only: no memory, a signal
        self._descriptor = -1
        try:
            # With tracing off, the kernel says EBADF of a good descriptor.  Closed, it
            # no longer keeps the recorder from removing its instance.
            os.close(descriptor)
        except OSError:
            pass  # somebody closed it: the file may still be good
        else:
            _ended.add(self._path)
        return self._elsewhere(message)

    def _elsewhere(self, message: bytes) -> bool:
        global _chosen  # noqa: PLW0603 - as above
        if _chosen is self:
            _chosen = None
        other = channel()
        return other is not None and other is not self and other.write(message)


class _Any:
    """Whatever records the whole machine, looked for once a second at most.

    An instance's file is opened for every mark: a program that lives on and is silent
    would otherwise keep its recorder from removing it.
    """

    def __init__(self, *, logger_first: bool) -> None:
        self._logger_first = logger_first
        self._next = 0.0
        self._files: tuple[str, ...] = ()
        self._logger: int | None = None

    def ready(self) -> bool:
        """Tell whether anything was there within the last second."""
        if monotonic() >= self._next:
            self._look()
        return bool(self._files) or self._logger is not None

    def _look(self) -> None:
        self._next = monotonic() + _RESCAN_S
        if self._logger is None and self._logger_first:
            self._logger = _open(LOGGER_FILE)
        first = self._logger_first and self._logger is not None
        self._files = () if first else tuple(_instances())
        if self._logger is None and not self._files:
            self._logger = _open(LOGGER_FILE)

    def write(self, message: bytes) -> bool:
        """Write to every recorder's instance; without any, to the logger file."""
        taken = False
        for path in self._files:
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
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
        """Close the logger file."""
        descriptor, self._logger = self._logger, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    def _drop(self, path: str) -> None:
        """Leave a file alone until the next look."""
        self._files = tuple(f for f in self._files if f != path)


def _instances() -> Iterator[str]:
    """Yield the marker files of live recorders' instances."""
    for place in INSTANCES:
        try:
            names = os.listdir(place)  # noqa: PTH208 - pathlib is slow to import
        except OSError:
            continue
        names = [n for n in names if n.startswith("critpath-")]
        if names:
            from critpath.record.identity import owner_of  # noqa: PLC0415 - slow to import

            owners = {n: owner_of(n) for n in names}
            yield from (
                f"{place}/{name}/trace_marker"
                for name, owner in sorted(owners.items())
                if owner is not None and not owner.is_gone()
            )
            return  # the second place is the same file system


class _Agent:
    """LTTng-UST's Python agent: records of our logger, given to its handler alone."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._else = _Any(logger_first=True)

    def _handlers(self) -> list[logging.Handler]:
        return [h for h in self._logger.root.handlers if type(h).__module__.startswith("lttngust")]

    def ready(self) -> bool:
        """Tell whether a session records loggers of Python."""
        return bool(self._handlers()) or self._else.ready()

    def write(self, message: bytes) -> bool:
        """Hand a record to the agent; the program's own handlers never see it."""
        handlers = self._handlers()
        if not handlers:  # it did not reach the session daemon, or the session is over
            return self._else.ready() and self._else.write(message)
        text = message.decode("ascii").rstrip("\n")
        # With a function's name, which the agent takes for granted.
        record = self._logger.makeRecord(LOGGER, 20, "critpath", 0, text, (), None, "mark")
        for handler in handlers:
            handler.handle(record)
        return True

    def close(self) -> None:
        """Let go of the logger file; the agent has threads of its own."""
        self._else.close()


def _agent() -> Channel | None:
    import logging  # noqa: PLC0415 - LTTng only
    from importlib import import_module  # noqa: PLC0415 - LTTng only

    root = logging.getLogger()
    level = root.level
    try:
        # Connects to the session daemon, and waits for it (5 s at most).
        import_module("lttngust")
    except Exception:  # noqa: BLE001 - whatever is wrong with it, the program goes on
        return None
    finally:
        # The agent makes the root logger let everything pass, into the program's own
        # handlers too.
        root.setLevel(level)
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return _Agent(logger)
