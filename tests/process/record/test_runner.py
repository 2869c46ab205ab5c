"""How the runner finds, signals and collects the processes of a command."""

from __future__ import annotations

import os
import signal
import threading

from critpath_record import runner as module
from critpath_record.runner import Runner, descendants, find_executable
from critpath_record.session import subreaper
from critpath_record.signals import InheritedState, Signals


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


def test_a_timeout_ends_the_whole_tree_and_orphans_are_collected(tmp_path, monkeypatch):
    """Processes that the kernel knows, found in /proc and signalled by their handles."""
    monkeypatch.setattr(module, "GRACE", 0.05)
    inherited = InheritedState.capture()
    with Signals(inherited, print) as signals, subreaper():
        runner = Runner(inherited, None, signals, print)

        def run(line, timeout=0.0):
            command = find_executable(["sh", "-c", line], inherited.environment)
            return runner.run(command, environment={"AT": str(tmp_path)}, timeout=timeout)

        deaf = "trap '' TERM; setsid sh -c 'echo $$ >$AT/pid; exec sleep 600' & exec sleep 600"
        done = run(deaf, timeout=0.1)
        assert (done.exit_code, done.timed_out, done.outlived) == (124, True, 0)
        ended = "[ ! -e /proc/$p ] || grep -q ^State:.Z /proc/$p/status"
        done = run(
            "for i in 1 2 3; do (true & echo $! >>$AT/go); done;"
            "setsid sleep 600 & echo $! >$AT/stays;"
            f"for p in $(cat $AT/go); do until {ended}; do :; done; done"
        )
        assert (done.exit_code, done.outlived) == (0, 1)
        assert [process.alive for process in descendants(os.getpid(), runner._helpers)] == [True]
        for process in descendants(os.getpid(), runner._helpers):
            process.send(signal.SIGKILL)
            os.waitpid(process.pid, 0)
