"""Files and directories that appear under their names only when they are whole."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from critpath.errors import UsageError

_DO: Final = "choose a place that you may write to and that has room"


def _beside(target: Path, what: str) -> Path:
    """Return a name beside another that nobody has."""
    return target.with_name(f".{target.name[:200]}.{os.urandom(6).hex()}.{what}")


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name only when it is whole.

    Parameters
    ----------
    path : Path
        Where a symbolic link leads is replaced, not the link.  Something that is
        not a regular file (``/dev/null``, a pipe) is written directly.

    Yields
    ------
    IO[bytes]

    Raises
    ------
    UsageError
        If it cannot be created or written.
    """
    target = Path(os.path.realpath(path))
    temporary = _beside(target, "partial")
    special = target.exists() and not stat.S_ISREG(target.stat().st_mode)
    try:
        if special:
            with target.open("wb") as stream:
                yield stream
            return
        # "xb" under the user's umask: neither follows a link nor leaves a private mode.
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror or error}", _DO) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
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
    target = Path(os.path.realpath(path))
    temporary, old = _beside(target, "partial"), _beside(target, "old")
    try:
        temporary.mkdir()
        yield temporary
        if target.exists():
            target.rename(old)
        temporary.rename(target)
    except OSError as error:
        _give_back(temporary, old, target)
        raise UsageError(f"cannot write {path}: {error.strerror or error}", _DO) from error
    except BaseException:
        _give_back(temporary, old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


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
