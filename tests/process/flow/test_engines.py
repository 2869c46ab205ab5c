"""Recordings in several processes: the same results and errors as in one, whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from critpath.engines.tasks import DaskScheduler
from critpath.errors import UsageError

# Processes find a task's function by its module's name, which a test's module has not.
PROGRAM = """
import faulthandler, os, signal, sys, time
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from critpath.errors import CritpathError, UnreadableError
from critpath.engines.tasks import run

def square(task):
    return os.getpid(), task * task

def late(task):
    time.sleep(0.3 if task == 0 else 0)
    if task in (1, 2):
        raise UnreadableError(f"task {task}", "do it again")
    return task

def fall(task):
    mark = Path(sys.argv[2]) / str(task)
    if task in (3, 4) and not mark.exists():
        mark.write_text("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return task

def always(task):
    if task == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return task

def same(task):
    return task

def start_late(process, start=BaseProcess.start, begun=[]):
    # While every second one begins, the one before is killed.
    start(process)
    begun.append(process)
    if len(begun) % 2 == 0 and begun[-2].is_alive():
        begun[-2].kill()
        wait([begun[-2].sentinel])
        wait([], 0.2)  # until the pool's own thread has seen it

def large(task):
    return bytes(5_000_000)  # many times what a pipe holds

def sleep(task):
    (Path(sys.argv[2]) / str(os.getpid())).write_text("x")
    time.sleep(600)

if __name__ == "__main__":
    faulthandler.dump_traceback_later(100)  # where it hangs, should it
    told = []
    try:
        if sys.argv[1] == "large":
            results = run(large, range(100), jobs=2)
            next(results)
            results.close()
            print("closed")
            sys.exit()
        work = globals()[sys.argv[1]]
        if work is same:
            BaseProcess.start = start_late
        results = list(run(work, range(6), jobs=2, progress=told.append))
        if sys.argv[1] == "square":
            others = {result[0] for result in results} - {os.getpid()}
            print(sorted(result[1] for result in results), len(others))
        else:
            print(results)
        print(told[0], told[-1], sep=", ")
    except CritpathError as error:
        print(type(error).__name__, error.what, "|", error.do)
"""


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

    def start(*arguments: object, **options: bool) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, file, *map(str, arguments), tmp_path],
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    return start


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate()
    assert err == ""
    return out.strip()


def test_tasks_run_elsewhere_and_come_in_order(program):
    results, told = finished(program("square")).splitlines()
    assert results in {"[0, 1, 4, 9, 16, 25] 1", "[0, 1, 4, 9, 16, 25] 2"}
    assert told == "starting 2 processes, read 6 of 6 recordings"


def test_the_first_failure_is_raised_whichever_came_first(program):
    assert finished(program("late")) == "UnreadableError task 1 | do it again"


def test_what_a_killed_process_was_at_is_done_again(program):
    assert finished(program("fall")).splitlines()[0] == "[0, 1, 2, 3, 4, 5]"


def test_what_kills_every_process_is_named(program):
    assert finished(program("always")).startswith(
        "CritpathError the process that read 2 was killed, 3 times | it may have taken too much"
    )


def test_what_is_killed_while_another_begins_is_done_again(program):
    """The pool's thread would end those that it knows by then, and wait for the new one."""
    assert finished(program("same")).splitlines()[0] == "[0, 1, 2, 3, 4, 5]"


def test_who_is_sending_a_large_result_when_nobody_asks_any_more(program):
    """Half a result is in the pipe then, and nobody will write the rest."""
    assert finished(program("large")) == "closed"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nobody_is_left_when_it_is_interrupted(program, wait_for, tmp_path, how):
    process = program("sleep")
    try:
        workers = wait_for(lambda: [int(f.name) for f in tmp_path.iterdir() if f.name.isdigit()])
        process.send_signal(how)
        process.communicate()
    finally:
        process.kill()
    wait_for(lambda: not any(map(lives, workers)))


def servers_of(session: int) -> int:
    """Return how many processes of a session are the server that forks others, or are forked."""
    count = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if b"\0from multiprocessing.forkserver" in command:
                count += os.getsid(int(entry.name)) == session
    return count


@pytest.mark.parametrize("moment", ["the server", "its first child", "the first task"])
def test_an_interrupt_while_processes_start(program, wait_for, tmp_path, moment):
    """To all of them, as a terminal sends it."""
    process = program("sleep", start_new_session=True)
    come = {
        "the server": lambda: servers_of(process.pid) > 0,
        "its first child": lambda: servers_of(process.pid) > 1,
        "the first task": lambda: any(f.name.isdigit() for f in tmp_path.iterdir()),
    }
    try:
        wait_for(come[moment])
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate()
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT
    assert "Fatal" not in err
    assert err.count("Traceback") == err.count("KeyboardInterrupt") == 1
    wait_for(lambda: not servers_of(process.pid))


def lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_scheduler_that_is_not_there(monkeypatch):
    monkeypatch.setattr("critpath.engines.tasks._SECONDS", 0.1)
    with pytest.raises(UsageError) as caught, DaskScheduler("tcp://127.0.0.1:9").connect():
        pass
    assert caught.value.what.startswith("no dask scheduler answers at tcp://127.0.0.1:9: ")
    assert "\n" not in caught.value.what
    assert "dask scheduler" in caught.value.do


def test_what_listens_and_is_no_scheduler(monkeypatch):
    # Dask itself would never say so.
    monkeypatch.setattr("critpath.engines.tasks._SECONDS", 0.1)
    monkeypatch.setattr("critpath.engines.tasks._GRACE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(UsageError) as caught, DaskScheduler(address).connect():
            pass
    assert "the scheduler's own port" in caught.value.do
    assert caught.value.what == f"what answers at {address} is no dask scheduler"


def test_tls_without_certificates():
    with (
        pytest.raises(UsageError, match="no certificates") as caught,
        DaskScheduler("tls://a:1").connect(),
    ):
        pass
    assert "distributed.comm.tls" in caught.value.do


def test_without_distributed(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(UsageError, match="not installed") as caught,
        DaskScheduler("tcp://a:1").connect(),
    ):
        pass
    assert "critpath-core[dask]" in caught.value.do
