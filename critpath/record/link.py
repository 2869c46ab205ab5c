"""Gives the second recording of an interleaved session the trace of the first."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from critpath.record.recorder import UnfinishedError


def link_tree(source: Path, target: Path) -> None:
    """Make a directory with the same files: hard links, copies where links fail.

    Parameters
    ----------
    source : Path
        Links in it are copied as links.
    target : Path
        Must not be there.

    Raises
    ------
    UnfinishedError
        If it cannot be made; what there is of it stays.
    """
    try:
        shutil.copytree(source, target, symlinks=True, copy_function=_link)
    except OSError as error:
        # Of several files there is a list, of which the first says enough.
        wrong = error.args[0] if isinstance(error, shutil.Error) else ()
        why = str(wrong[0][-1]) if wrong else error.strerror or error
        raise UnfinishedError(f"{target} cannot be made: {why}", "make room there") from None


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target, follow_symlinks=False)
