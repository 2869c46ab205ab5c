"""Where a name leads: through links, but none that another user put where everybody may write.

The kernel has the same rule (``fs.protected_symlinks``, ``fs.protected_fifos``), for who
opens a file; a file that is replaced is named, and its links are looked up before.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from critpath.errors import UsageError

_MOST_LINKS: Final = 40


def followed(path: Path) -> Path:
    """Return the place that a path leads to, which need not exist.

    Raises
    ------
    UsageError
        If it leads through a link, or to a pipe or device, of another user in a directory
        like ``/tmp``.
    """
    place, todo, links = Path("/"), list(reversed(Path(os.path.abspath(path)).parts[1:])), 0  # noqa: PTH100 - resolve() follows links
    while todo and links < _MOST_LINKS:
        part = todo.pop()
        if part == "..":
            place = place.parent
            continue
        here = place / part
        try:
            status = here.lstat()
            if stat.S_ISLNK(status.st_mode):
                _check(path, here, status)
                links += 1
                target = here.readlink()
                place = Path("/") if target.is_absolute() else place
                todo += reversed([p for p in target.parts if p != "/"])
                continue
            if not (todo or stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                _check(path, here, status)
        except OSError:  # nothing there, or a loop: whoever opens it is told
            break
        place = here
    return Path(os.path.realpath(path))


def _check(path: Path, here: Path, status: os.stat_result) -> None:
    above = here.parent.stat()
    shared = above.st_mode & stat.S_ISVTX and above.st_mode & stat.S_IWOTH
    if shared and status.st_uid not in {os.geteuid(), above.st_uid}:
        raise UsageError(
            f"cannot write {path}: {here} was put there by another user",
            "name a place in a directory of your own",
        )
