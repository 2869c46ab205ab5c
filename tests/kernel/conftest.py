"""What traces this kernel: tests in this folder are skipped where that is not possible."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def pytest_configure() -> None:
    """Mount tracefs, which a fresh machine has not; what needs it skips without.

    Before the first test is even collected, and not by our own code: a recorder says
    once, in the process that did it, that it did.
    """
    place = Path("/sys/kernel/tracing")
    if os.geteuid() == 0 and place.is_dir() and not (place / "instances").exists():
        command = ["mount", "-t", "tracefs", "nodev", str(place)]
        subprocess.run(command, check=False, capture_output=True)
