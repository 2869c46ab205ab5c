"""Finds the programs that critpath runs as root: only those that nobody else can exchange."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def trusted_program(name: str) -> str | None:
    """Find a program along PATH, never in the current directory.

    Parameters
    ----------
    name : str

    Returns
    -------
    str or None
        Its path.  For root only one that belongs to root, in directories that do, all the
        way from ``/``, and that no group but root's may write to: a PATH that came through
        ``sudo env "PATH=$PATH"`` may have places of other users in it.
    """
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if not Path(place).is_absolute():
            continue
        path = Path(place, name)
        if path.is_file() and os.access(path, os.X_OK) and (os.geteuid() or _is_roots(path)):
            return str(path)
    return None


def _is_roots(path: Path) -> bool:
    """Tell whether only root decides what a name leads to; both ways to it count."""
    try:
        real = path.resolve(strict=True)
        return all(map(_is_kept, {path.parent, *path.parent.parents, real, *real.parents}))
    except (OSError, RuntimeError):  # a loop of links
        return False


def _is_kept(path: Path) -> bool:
    status = path.stat()
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    others = stat.S_IWOTH | (stat.S_IWGRP if status.st_gid else 0)
    return status.st_uid == 0 and (bool(sticky) or not status.st_mode & others)
