"""What a confined command made gets its name: by a process beside it that reads nothing.

A confined command writes into directories that were made beside its outputs before it began to
read.  The steward moves what is whole from there to those names and to no others, and removes the
directories when the command has ended, however it ended.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # mypy knows none
import _socket  # what is imported of Python's own is only what costs no time
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from sys import byteorder
from threading import Lock
from typing import Any, Final, Self

AF_UNIX: Final = _socket.AF_UNIX
TREE: Final = "tree"  # in the directory beside an output that may be a directory
_LONGEST: Final = 1 << 14  # bytes of a request: two paths
_lock: Final = Lock()
_line: _socket.socket | None = None
_process = 0
_rooms: Mapping[Path, Path | OSError] = {}


def begin(
    rooms: Mapping[Path, Path | OSError], scratch: Path | None, end: Callable[[], object]
) -> None:
    """Leave a steward behind for this process; to be called where it has no other thread.

    Parameters
    ----------
    rooms : Mapping from Path to Path or OSError
        By place of an output, the directory beside it; or why there is none.
    scratch : Path or None
        For temporary files, and for sockets that programs of ours listen at.
    end : callable
        What the steward does at last.
    """
    global _line, _process, _rooms  # noqa: PLW0603 - one of a process
    ours, theirs = _socket.socketpair(AF_UNIX, _socket.SOCK_SEQPACKET)
    _process = os.fork()
    if _process == 0:
        try:
            ours.close()
            _serve(theirs, rooms, scratch)
            end()
        finally:
            os._exit(0)
    theirs.close()
    _line, _rooms = ours, rooms


def finish() -> None:
    """Let the steward tidy up, and wait for that."""
    global _line  # noqa: PLW0603 - as above
    if _line is not None:
        _line.close()
        with suppress(ChildProcessError):
            os.waitpid(_process, 0)
        _line = None


def room_for(target: Path) -> Path | None:
    """Return the directory in which what gets this name is made; None for beside it."""
    room = _rooms.get(target) if _line is not None else None
    if isinstance(room, OSError):
        raise room
    return room


def take_tree(target: Path, path: Path) -> bool:
    """Take the directory that was made for an output, which can still be read where it ends."""
    room = room_for(target)
    if room is None or not (room / TREE).is_dir():
        return False
    (room / TREE).rename(path)
    return True


def move(place: Path, target: Path) -> None:
    """Give what is whole its name, or take what has it away."""
    if _line is None or (target not in _rooms and place not in _rooms):
        place.replace(target)
        return
    _ask("move", str(place), str(target))


def is_here() -> bool:
    """Tell whether this process has a steward."""
    return _line is not None


class Socket(_socket.socket):
    """One of this machine, as `socket.socket`; the steward lets it listen, or connects it to ours.

    A confined process makes none: it could connect them to anything, where it may connect others.
    """

    def __init__(self, family: int = AF_UNIX) -> None:
        one, _ = _socket.socketpair(family)
        super().__init__(family, fileno=one.detach())

    def bind(self, address: Any) -> None:
        """Listen, too."""
        self._become("listen", address)

    def listen(self) -> None:  # type: ignore[override]
        """Do nothing more."""

    def connect(self, address: Any) -> None:
        """Connect it."""
        self._become("connect", address)

    def _become(self, what: str, address: Any) -> None:
        found = _ask(what, os.fsdecode(address))
        os.dup2(found, self.fileno(), inheritable=False)
        os.close(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ask(*words: str) -> int:
    with _lock:
        if _line is None:
            raise BrokenPipeError(32, "no steward")
        # Not by calls of sockets, which this process has none of.
        os.write(_line.fileno(), "\0".join(words).encode("utf-8", "surrogateescape"))
        answer, ancillary, _, _ = _line.recvmsg(_LONGEST, _socket.CMSG_SPACE(4))
    number = int(answer or 5)  # EIO: it is gone
    if number:
        raise OSError(number, os.strerror(number))
    return int.from_bytes(ancillary[0][2][:4], byteorder) if ancillary else -1


# In the steward.


def _serve(
    line: _socket.socket, rooms: Mapping[Path, Path | OSError], scratch: Path | None
) -> None:
    """Do what is asked until the command is gone; nothing else ends it."""
    for number in (1, 2, 3, 15):  # hang-up, interrupt, quit, terminate
        _signal.signal(number, _signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):  # whoever reads the command's output does not wait for this
        os.dup2(null, descriptor)
    while request := line.recv(_LONGEST):
        words = request.decode("utf-8", "surrogateescape").split("\0")
        found, answer = [], 0
        try:
            if words[0] == "move" and len(words) == 3:
                _move(words[1], words[2], rooms)
            elif words[0] in {"connect", "listen"} and len(words) == 2 and scratch is not None:
                found = [_open(words[0], words[1], scratch)]
            else:
                answer = 1  # EPERM
        except (OSError, ValueError) as error:
            answer = getattr(error, "errno", None) or 22
        rights = b"".join(one.fileno().to_bytes(4, byteorder) for one in found)
        more = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if found else []
        line.sendmsg([str(answer).encode()], more)
        for one in found:
            one.close()


def _move(place: str, target: str, rooms: Mapping[Path, Path | OSError]) -> None:
    """Rename between a name of an output and one directly in its directory, either way."""
    for of, room in rooms.items():
        for inside, outside in ((place, target), (target, place)):
            above, name = os.path.split(inside)
            if outside == str(of) and above == str(room) and name not in {"", ".", ".."}:
                os.rename(place, target)  # noqa: PTH104 - texts
                return
    raise PermissionError(1, "refused")


def _open(what: str, name: str, scratch: Path) -> _socket.socket:
    """Connect to a socket below the directory for temporary files, or listen at one.

    No link can be made there.
    """
    if ".." in Path(name).parts or scratch not in Path(name).parents:
        raise PermissionError(1, "refused")
    one = _socket.socket(AF_UNIX, _socket.SOCK_STREAM)  # closed with its last reference
    if what == "connect":
        one.connect(name)
    else:
        one.bind(name)
        one.listen()
    return one
