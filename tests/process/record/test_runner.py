"""How the runner hears of the end of a command."""

from __future__ import annotations

import os
import threading

from critpath.record.runner import Runner, find_executable
from critpath.record.signals import InheritedState, Signals


def test_the_end_is_seen_that_another_thread_hears_of(monkeypatch):
    """A thread from before the signals were blocked, as of a library, may take SIGCHLD."""
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    wait = Signals.wait

    def wait_late(*given):
        """When the command has ended and nobody waited for a signal."""
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        return wait(*given)

    monkeypatch.setattr(Signals, "wait", wait_late)
    inherited = InheritedState.capture()
    try:
        with Signals(inherited, print) as signals:
            runner = Runner(inherited, None, signals, print)
            command = find_executable(["sh", "-c", "exit 3"], inherited.environment)
            result = runner.run(command, environment={}, timeout=60)
            assert (result.exit_code, result.timed_out) == (3, False)
    finally:
        over.set()
        other.join()
