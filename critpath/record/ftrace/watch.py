"""Turns tracing off when its recorder is killed.

Else the kernel would go on: every event would cost the machine time, and overwrite what the
buffers hold of the recording, until the next ``critpath record`` removes the instance.
"""

from __future__ import annotations

import contextlib
import subprocess
from typing import Final

from critpath.record.ftrace.tracefs import Instance

# Waits in the instance's directory for a line, or for the end of whoever could write one.
# The buffers stay: what is in them belongs to the recording.
_SCRIPT: Final = "trap '' HUP INT QUIT TERM; read -r _ && exit; echo 0 >tracing_on; : >set_event"
_PATIENCE: Final = 5.0  # s


class Watch:
    """A small process that outlives its recorder; costs nothing while that lives.

    Parameters
    ----------
    instance : Instance
        Which is there.
    """

    def __init__(self, instance: Instance) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        # A machine without a shell, or without a process to spare, can be recorded all the same.
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(  # noqa: S603 - our own words
                ["/bin/sh", "-c", _SCRIPT, "critpath-watch"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=instance.path,
                env={},
                start_new_session=True,  # what is sent to the recorder's group is not meant
            )

    def dismiss(self) -> None:
        """End it: the recorder lives, and turns tracing off itself."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError), process.stdin as stdin:
            stdin.write(b"\n")
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
