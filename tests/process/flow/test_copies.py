"""Works on very many rows: done by a copy of the process, as if by the process itself."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from critpath import processes
from critpath.errors import UsageError
from critpath.processes import side_by_side


def _do_apart(monkeypatch, *works):
    """Do works as of very many rows: a half here, the other in a copy of this process."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("threading.active_count", lambda: 1)
    monkeypatch.setattr(processes, "_ROWS_AT_ONCE", 1)
    return side_by_side(*works, rows=2)


def test_of_very_many_rows_a_copy_of_the_process_does_a_half(monkeypatch):
    here, also, there, and_there = _do_apart(monkeypatch, *[os.getpid] * 4)
    assert here == also == os.getpid() != there == and_there
    with pytest.raises(ChildProcessError):  # and it is no zombie
        os.waitpid(there, os.WNOHANG)


def test_what_a_copy_gives_is_as_it_was_made(monkeypatch):
    _, found = _do_apart(monkeypatch, lambda: 0, lambda: np.arange(1_000_000))
    assert np.array_equal(found, np.arange(1_000_000))


def test_in_a_copy_works_are_done_in_order(monkeypatch):
    _, found = _do_apart(monkeypatch, lambda: 0, lambda: side_by_side(os.getpid, os.getpid, rows=2))
    assert found[0] == found[1]


def test_one_copy_is_at_work_at_a_time(monkeypatch, tmp_path):
    """The second is made while the first works, and works when that has done."""
    said = tmp_path / "said"

    def say(text, seconds=0.0):
        with said.open("a") as stream:
            stream.write(f"{text} begins\n")
        time.sleep(seconds)
        with said.open("a") as stream:
            stream.write(f"{text} ends\n")
        return text

    def divide():
        while not said.exists():
            time.sleep(0.01)
        return side_by_side(lambda: "here", lambda: say("second"), rows=2)

    found = _do_apart(monkeypatch, divide, lambda: say("first", 0.5))
    assert found == [["here", "second"], "first"]
    assert said.read_text().split("\n")[:-1] == [
        *("first begins", "first ends", "second begins", "second ends"),
    ]


def test_a_copy_that_gave_all_is_not_done_again_however_late_it_ends(monkeypatch):
    leave = os._exit
    monkeypatch.setattr("os._exit", lambda status: (time.sleep(0.2), leave(status)))
    here, there = _do_apart(monkeypatch, os.getpid, os.getpid)
    assert here != there


def test_the_error_of_a_copy_is_its_works(monkeypatch):
    def fail(what):
        raise UsageError(what, "do")

    with pytest.raises(UsageError, match="second"):
        _do_apart(monkeypatch, lambda: 0, lambda: fail("second"))
    with pytest.raises(UsageError, match="first"):
        _do_apart(monkeypatch, lambda: fail("first"), lambda: fail("second"))


def test_a_copy_that_dies_is_done_without(monkeypatch):
    own = os.getpid()
    work = lambda: "here" if os.getpid() == own else os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
    assert _do_apart(monkeypatch, lambda: 0, work) == [0, "here"]


def test_no_copy_is_made_beside_other_threads(monkeypatch):
    """One of them might hold a lock, which the copy would wait for, for ever."""
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    try:
        monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
        monkeypatch.setattr(processes, "_ROWS_AT_ONCE", 1)
        assert side_by_side(os.getpid, os.getpid, rows=2) == [os.getpid()] * 2
    finally:
        ended.set()
        other.join()


def test_a_copy_ends_with_who_waits_for_it(tmp_path):
    """However that ends: here by a signal that it cannot catch."""
    begun = tmp_path / "begun"
    code = f"""
import os, time
from pathlib import Path
from critpath import processes
os.sched_getaffinity = lambda _: {{0, 1}}
processes._ROWS_AT_ONCE = 1
def copy():
    Path({str(begun)!r}).write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)
processes.side_by_side(lambda: time.sleep(1000), copy, rows=2)
"""
    with subprocess.Popen([sys.executable, "-P", "-c", code]) as process:
        while not (begun.exists() and begun.read_text()):
            time.sleep(0.01)
        copy = os.pidfd_open(int(begun.read_text()))
        process.kill()
    # It ends when the pipe's other end is closed: there is nothing else to wait for.
    assert select.select([copy], [], [], 60)[0]
    os.close(copy)
