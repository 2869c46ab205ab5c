"""Signals to the processes of a run."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from dataclasses import replace

import pytest

from critpath_record import runner


@pytest.mark.parametrize("handles", [True, False])
def test_only_the_process_that_was_meant_gets_a_signal(monkeypatch, handles):
    def none(_):
        raise OSError(errno.ENOSYS, "Function not implemented")  # Linux before 5.3

    if not handles:
        monkeypatch.setattr(os, "pidfd_open", none)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        [process] = [p for p in runner.descendants(os.getpid()) if p.pid == child.pid]
        # Had this one reached it, it would have died of it.
        replace(process, started=process.started - 1).send(signal.SIGKILL)
        process.send(signal.SIGTERM)
        assert child.wait(60) == -signal.SIGTERM
        process.send(signal.SIGTERM)  # gone: no error
