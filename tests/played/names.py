"""Names of sessions whose process is gone."""

from __future__ import annotations

import os
from itertools import count

from critpath_marks.sessions import pid_namespace

_pids = count(5_000_000)  # above all that a kernel gives


def dead_name() -> str:
    """Return a session's name, of a process that there is not and that no other name has."""
    return f"critpath-{pid_namespace()}-{next(_pids)}-1-{os.urandom(4).hex()}"
