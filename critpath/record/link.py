"""Gives the second recording of an interleaved session the trace of the first."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def link_tree(source: Path, target: Path) -> None:
    """Make a directory with the same files: hard links, copies where links fail.

    Parameters
    ----------
    source : Path
        Links in it are copied as links.
    target : Path
        Must not be there.
    """
    shutil.copytree(source, target, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target, follow_symlinks=False)
