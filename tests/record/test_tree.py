"""Signals to the processes of a run."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from dataclasses import replace

import pytest

from critpath.record import runner

pytestmark = pytest.mark.xdist_group("kernel")


@pytest.mark.parametrize("handles", [True, False])
def test_only_the_process_that_was_meant_gets_a_signal(monkeypatch, handles):
    def none(_):
        raise OSError(errno.ENOSYS, "Function not implemented")  # Linux before 5.3

    if not handles:
        monkeypatch.setattr(os, "pidfd_open", none)
    child = subprocess.Popen(["sleep", "60"])
    try:
        [process] = [p for p in runner.descendants(os.getpid()) if p.pid == child.pid]
        replace(process, started=process.started - 1).send(signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.1)
        process.send(signal.SIGTERM)
        assert child.wait(10) == -signal.SIGTERM
        process.send(signal.SIGTERM)  # gone: no error
    finally:
        child.kill()
