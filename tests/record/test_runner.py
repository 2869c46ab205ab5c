"""Signals passed on to a command that is forking meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

from critpath.record import runner as module
from critpath.record.runner import descendants, find_executable
from critpath.record.signals import InheritedState, Signals


def test_a_child_forked_after_the_look_gets_the_signal_too(monkeypatch, wait_for, is_alive):
    runner = module.Runner(None, None, None, print)
    runner._remember_children(descendants(os.getpid()))  # children of other tests are not its own
    command = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600; :"])
    try:
        tree = wait_for(lambda: (t := runner._live_processes()) and len(t) == 3 and t)
        looks = []

        def late(root, without=()):
            found = descendants(root, without)
            looks.append(found)
            # At the first look one child is not there, at the second the other is not.
            return [p for p in found if p not in tree[len(looks) :]]

        monkeypatch.setattr(module, "descendants", late)
        runner._forward(command.pid, signal.SIGTERM)
        assert command.wait(10) == -signal.SIGTERM
        wait_for(lambda: not any(is_alive(p.pid) for p in tree))
        assert len(looks) == 4
    finally:
        for process in descendants(os.getpid(), runner._others):
            process.send(signal.SIGKILL)
        command.wait()


def test_the_end_is_seen_that_another_thread_hears_of(monkeypatch):
    """A thread from before the signals were blocked, as of a library, may take SIGCHLD."""
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    wait = Signals.wait
    monkeypatch.setattr(Signals, "wait", lambda *given: time.sleep(0.2) or wait(*given))
    inherited = InheritedState.capture()
    try:
        with Signals(inherited, print) as signals:
            runner = module.Runner(inherited, None, signals, print)
            command = find_executable(["sleep", "0.05"], inherited.environment)
            # It ends while nobody waits.
            result = runner.run(command, environment={}, timeout=20)
            assert (result.exit_code, result.timed_out) == (0, False)
            assert result.end - result.begin < 15e9
    finally:
        over.set()
        other.join()


def test_a_command_that_cleans_up_may_start_programs(wait_for, tmp_path, no_orphans):
    """What a trap starts came after the signal: as from a terminal, it does not get it."""
    runner = module.Runner(None, None, None, print)
    runner._remember_children(descendants(os.getpid()))
    say = "sleep 0.3; echo clean >out; exit 3"
    # No long sleep: a shell that gets the signal just before it starts one waits for its end.
    line = f"trap '{say}' TERM; echo >set; while :; do sleep 0.1; done"
    command = subprocess.Popen(["sh", "-c", line], cwd=tmp_path)
    no_orphans.append(command.pid)
    wait_for((tmp_path / "set").exists)
    begin = time.monotonic()
    runner._forward(command.pid, signal.SIGTERM)
    assert command.wait(5) == 3
    assert time.monotonic() - begin >= 0.3
    assert (tmp_path / "out").read_text() == "clean\n"
