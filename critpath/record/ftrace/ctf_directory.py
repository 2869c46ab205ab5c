"""Makes a directory whole or not at all, also when its maker is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError

_UNFINISHED: Final = ".{}.converting"


def _refuse_existing(trace: Path) -> None:
    if trace.is_symlink() or (trace.exists() and (not trace.is_dir() or any(trace.iterdir()))):
        raise CritpathError(
            f"{trace}: exists already", "choose another place, or remove what is there"
        )


@contextlib.contextmanager
def whole_or_nothing(trace: Path) -> Iterator[Path]:
    """Give a directory that becomes `trace` at the end, and is gone after an error.

    Who is killed leaves ``.NAME.converting`` beside it, which the next one removes.

    Parameters
    ----------
    trace : Path
        Must not exist, or be an empty directory.

    Raises
    ------
    CritpathError
        If it exists, or another process makes one beside it.
    """
    _refuse_existing(trace)
    unfinished = trace.parent / _UNFINISHED.format(trace.name)
    holder = os.open(trace.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CritpathError(
                f"{trace.parent}: another process converts into it", "wait until it has finished"
            ) from error
        # Of a conversion that was killed: who has the lock is alone.
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir(mode=0o700)
        try:
            yield unfinished
            unfinished.rename(trace)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    finally:
        os.close(holder)
