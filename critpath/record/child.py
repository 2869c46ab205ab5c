"""Records in a child process.

A recorder handles signals and adopts orphans of its command.  It must not do so in a
program that has children and signal handlers of its own, such as a test runner.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence


def record_in_child(arguments: Sequence[str]) -> tuple[int, str]:
    """Run ``critpath record`` and wait for it.

    Returns
    -------
    code : int
        The exit code of `critpath record`: the command's, or 125.
    stderr : str
        What critpath and the command wrote to stderr; stdout is inherited.
    """
    # -P: a directory called critpath where the tests run is not this package.
    command = [sys.executable, "-P", "-m", "critpath", "record", *arguments]
    done = subprocess.run(  # noqa: S603 - our own command
        command, stderr=subprocess.PIPE, check=False, text=True, errors="replace"
    )
    return done.returncode, done.stderr
