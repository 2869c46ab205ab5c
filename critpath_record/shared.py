"""Where programs of any user note functions for a flight recorder, and whose that place is."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath_marks.sessions import start_time
from critpath_record.dirfd import open_dir
from critpath_record.recorder import Leftover

# As the agent has them (critpath/functions/agent.py).
PLACE: Final = "/dev/shm/critpath-functions"  # noqa: S108 - root's, or it is not used
SHARE: Final = "share"  # of cpu time, and which process records since when


def find_recorder(directory: int) -> int:
    """Return the process that records into an open directory, 0 if it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(SHARE, flags, dir_fd=directory)
        try:
            words = os.read(file, 256).split()
        finally:
            os.close(file)
        if start_time(int(words[1])) == int(words[2]):
            return int(words[1])
    return 0


class SharedPlace:
    """The place, made for a recorder, from construction to `close`.

    `share`: of a program's cpu time that noting may take.

    Raises CritpathError if another flight recorder, or somebody else, has it.
    """

    def __init__(self, share: float, place: Path = Path(PLACE)) -> None:
        self._place = place
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o700)
        try:
            self.descriptor = open_dir(place)
        except OSError as error:
            raise self._refuse(error.strerror or str(error)) from None
        try:
            self._begin(share)
        except BaseException:
            os.close(self.descriptor)
            raise

    def _begin(self, share: float) -> None:
        """Say that programs may write there, and to whom; what the last one left is gone."""
        if os.fstat(self.descriptor).st_uid != os.geteuid():
            raise self._refuse("it is another user's")
        if process := find_recorder(self.descriptor):
            raise self._refuse(f"the flight recorder of process {process} has it")
        self.clear(lambda _: True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(SHARE, flags, 0o600, dir_fd=self.descriptor)
        with os.fdopen(file, "w") as stream:
            stream.write(f"{share:.6f} {os.getpid()} {start_time(os.getpid())}")
            os.fchmod(stream.fileno(), 0o644)
        os.fchmod(self.descriptor, 0o1777)

    def _refuse(self, why: str) -> CritpathError:
        what = f"--functions: {self._place} cannot be used: {why}"
        return CritpathError(what, "record without --functions")

    def clear(self, chosen: Callable[[str], bool]) -> None:
        """Forget files."""
        for name in filter(chosen, os.listdir(self.descriptor)):  # noqa: PTH208 - a descriptor
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.descriptor)

    def close(self) -> None:
        """Let programs note no more."""
        shutil.rmtree(self._place, ignore_errors=True)
        os.close(self.descriptor)


def find_leftovers(place: Path = Path(PLACE)) -> list[Leftover]:
    """Return the place of a recorder that was killed."""
    try:
        directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        if os.fstat(directory).st_uid != os.geteuid() or find_recorder(directory):
            return []
    finally:
        os.close(directory)
    return [Leftover("directory", str(place), "", lambda: shutil.rmtree(place, ignore_errors=True))]
