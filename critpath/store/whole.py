"""Files and directories that appear under their names only when they are whole.

What a killed process left beside a name is removed by the next that writes there.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from critpath.errors import UsageError
from critpath.store.claims import (
    beside,
    claimed_directory,
    claimed_file,
    let_read,
    remove_abandoned,
)
from critpath.store.followed import followed

_DO: Final = "choose a place that you may write to and that has room"


@contextmanager
def atomic(path: Path, *, sweep: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name only when it is whole.

    Parameters
    ----------
    path : Path
        Where a symbolic link leads is replaced, not the link.  Something that is
        not a regular file (``/dev/null``, a pipe) is written directly.
    sweep : bool
        Look through its directory for what a killed process left beside it: not for every
        file of a directory of which that is done as a whole.

    Yields
    ------
    IO[bytes]

    Raises
    ------
    UsageError
        If it cannot be created or written.
    """
    target = followed(path)
    temporary: Path | None = None
    try:
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            with target.open("wb") as stream:
                yield stream
            return
        if sweep:
            remove_abandoned(target)
        with claimed_file(target) as stream:
            temporary = Path(stream.name)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            # Before it is closed: until then nobody else takes it away.
            temporary.replace(target)
    except BaseException as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UsageError(f"cannot write {path}: {error.strerror or error}", _DO) from error
        raise


@contextmanager
def whole_directory(path: Path) -> Iterator[Path]:
    """Make a directory that appears under its name only when it is whole.

    Parameters
    ----------
    path : Path
        Where a symbolic link leads is replaced, not the link.  What stands there gives
        way when the new one is whole: that it may is for the caller to know.

    Yields
    ------
    Path
        An empty directory beside it, to be filled.

    Raises
    ------
    UsageError
        If it cannot be created or take its place.
    """
    target = followed(path)
    old = beside(target, "old")
    remove_abandoned(target)
    try:
        with claimed_directory(target) as temporary:
            try:
                yield temporary
                if target.exists():
                    target.rename(old)
                temporary.rename(target)
            except BaseException:
                _give_back(temporary, old, target)
                raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}", _DO) from error
    if old.is_dir():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.unlink(missing_ok=True)


@contextmanager
def scratch_directory(path: Path) -> Iterator[Path]:
    """Make a directory beside a file that is being written, for what is needed until then.

    Parameters
    ----------
    path : Path
        Of the file; for something that is no regular file it is where ``TMPDIR`` says.

    Raises
    ------
    UsageError
        If it cannot be created.
    """
    target = followed(path)
    if target.exists() and not target.is_file():
        with tempfile.TemporaryDirectory(prefix="critpath-") as name:
            yield Path(name)
        return
    try:
        with claimed_directory(target) as place:
            try:
                yield place
            finally:
                shutil.rmtree(place, ignore_errors=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}", _DO) from error


def readable(stream: IO[bytes]) -> Path:
    """Return the path of a file that `atomic` opened, to be read before it appears.

    It is not to be written to any more.
    """
    stream.flush()
    let_read(stream.fileno())
    return Path(stream.name)


def _give_back(temporary: Path, old: Path, target: Path) -> None:
    """Leave things as they were."""
    if old.exists() and not target.exists():
        old.rename(target)
    shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8; lone surrogates become ``?``.

    Raises
    ------
    UsageError
        If it cannot be written; nothing is left behind then.
    """
    with atomic(path) as stream:
        stream.write(text.encode("utf-8", "replace"))
