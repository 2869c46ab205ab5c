"""Become a command whose turns on a cpu are short: it need not wait long for its own.

``python short_slice.py COMMAND...``.  What others compute on the machine meanwhile then
delays the application less; everything that is compared is run like this.  Kernels before
6.12 take the wish and ignore it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from typing import Final

SLICE_NS: Final = 100_000  # the shortest that the kernel grants
# linux/sched/types.h: size, policy, flags, nice, priority, runtime, deadline, period, clamps.
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQII")
_CALL: Final = {"x86_64": 314, "aarch64": 274}  # sched_setattr


def shorten() -> None:
    """Ask for short turns, for this thread and what it starts."""
    number = _CALL.get(platform.machine())
    if number is not None:
        wish = _ATTRIBUTES.pack(_ATTRIBUTES.size, 0, 0, os.nice(0), 0, SLICE_NS, 0, 0, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, wish, 0)


if __name__ == "__main__":
    shorten()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - to become it is the purpose
