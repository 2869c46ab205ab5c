"""Recordings in several processes: the same results and errors as in one, whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from time import sleep

import numpy as np
import pytest

from critpath.errors import CritpathError, UnreadableError, UsageError
from critpath.pipeline import ExtractSettings
from critpath.pipeline.engines import (
    Failure,
    catch_failure,
    choose_jobs,
    dask_address,
    dask_engine,
    run,
)
from critpath.pipeline.recordings import fit_jobs, split_resources

# Processes find a task's function by its module's name, which a test's module has not.
PROGRAM = """
import faulthandler, os, signal, sys, time
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from critpath.errors import CritpathError, UnreadableError
from critpath.pipeline.engines import run

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
    return bytes(50_000_000)

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
    out, err = process.communicate(timeout=120)
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


@pytest.mark.parametrize("attempt", range(3))
def test_who_is_sending_a_large_result_when_nobody_asks_any_more(program, attempt):
    """Half a result is in the pipe then, and nobody will write the rest."""
    del attempt
    assert finished(program("large")) == "closed"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nobody_is_left_when_it_is_interrupted(program, tmp_path, how):
    process = program("sleep")
    try:
        workers = eventually(lambda: [int(f.name) for f in tmp_path.iterdir() if f.name.isdigit()])
        process.send_signal(how)
        process.communicate(timeout=60)
    finally:
        process.kill()
    eventually(lambda: not any(map(lives, workers)))


@pytest.mark.parametrize("wait", [0, 0.005, 0.01, 0.02, 0.05, 0.3])
def test_an_interrupt_while_processes_start(program, wait):
    """To all of them, as a terminal sends it."""
    process = program("sleep", start_new_session=True)

    def server():
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and b"\0from multiprocessing.forkserver" in said(entry):
                with suppress(OSError):
                    if os.getsid(int(entry.name)) == process.pid:
                        return True
        return False

    try:
        eventually(server)
        time.sleep(wait)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT
    assert "Fatal" not in err
    assert err.count("Traceback") == err.count("KeyboardInterrupt") == 1
    eventually(lambda: not server())


def said(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def eventually(found):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if result := found():
            return result
        time.sleep(0.05)
    raise AssertionError("it did not come about")


def lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_one_job_does_each_task_when_it_is_asked_for():
    done: list[int] = []
    results = run(lambda task: done.append(task) or task, [5, 6])
    assert done == []
    assert (next(results), done) == (5, [5])


def test_any_executor_is_an_engine():
    with ThreadPoolExecutor(2) as pool:
        assert list(run(str, [3, 1, 2], engine=pool)) == ["3", "1", "2"]

    class Least:
        """All that an engine has to have."""

        def submit(self, task, /, *arguments):
            future: Future[object] = Future()
            future.set_result(task(*arguments))
            return future

    assert list(run(str, [3, 1], engine=Least())) == ["3", "1"]

    def fail(task):
        raise UnreadableError(f"no {task}", "look")

    with pytest.raises(UnreadableError, match="no 7"):
        list(run(fail, [7, 8], engine=Least()))


def test_results_are_there_before_the_last_is():
    """Whoever uses the first ones works beside the engine; what is used is not kept."""
    go = [Event(), Event(), Event()]

    def work(task):
        assert go[task].wait(60)
        return np.full(1, task)

    with ThreadPoolExecutor(3) as engine:
        results = run(work, [0, 1, 2], engine=engine)
        go[0].set()
        first = weakref.ref(next(results))
        go[1].set()
        assert next(results) == 1
        assert first() is None
        go[2].set()
        assert [*results] == [2]


def test_what_nobody_asks_for_any_more_is_not_begun():
    begun = []

    def work(task):
        begun.append(task)
        return task

    with ThreadPoolExecutor(1) as engine:
        results = run(lambda task: (sleep(0.05), work(task))[1], range(100), engine=engine)
        assert next(results) == 0
        results.close()
    assert len(begun) < 10


def test_an_engine_that_loses_a_task_is_a_fault():
    class Losing(ThreadPoolExecutor):
        def submit(self, task, /, *arguments):
            future = super().submit(task, *arguments)
            if arguments[-1] == 1:
                future = Future()
                future.cancel()
                future.set_running_or_notify_cancel()
            return future

    with Losing(1) as engine, pytest.raises(RuntimeError, match="no result of task 2 of 3"):
        list(run(str, [0, 1, 2], engine=engine))


def test_a_fault_of_ours_is_not_hidden():
    def fail(task):
        raise ZeroDivisionError(task)

    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        list(run(fail, [1], engine=pool))


def test_errors_go_as_values():
    def fail(_):
        raise UsageError("what", "do")

    failure = catch_failure(fail, None)
    assert failure == Failure(2, "what", "do")
    assert isinstance(failure.error(), UsageError)
    assert type(Failure(125, "a", "b").error()) is CritpathError


def test_as_many_jobs_as_pay(tmp_path, monkeypatch):
    recordings = [tmp_path / str(number) for number in range(5)]
    for recording in recordings:
        recording.mkdir()
        with (recording / "stream").open("wb") as stream:
            stream.truncate(40 << 20)
    monkeypatch.setattr("critpath.pipeline.engines.usable_cores", lambda: 4)
    monkeypatch.setattr("critpath.pipeline.engines.available_memory", lambda: 1 << 40)
    assert choose_jobs(None, recordings) == 3
    assert choose_jobs(None, recordings[:1]) == 1
    assert choose_jobs(None, []) == 1
    assert choose_jobs(2, recordings) == 2
    assert choose_jobs(64, recordings) == 5
    assert choose_jobs(None, [*recordings, *recordings]) == 4
    # Each may take 256 MiB, and half of its trace.
    monkeypatch.setattr("critpath.pipeline.engines.available_memory", lambda: 560 << 20)
    assert choose_jobs(None, recordings) == 2
    # Or no more than a limit that is below that.
    assert choose_jobs(None, recordings, 1 << 40) == 2
    assert choose_jobs(None, recordings, 180 << 20) == 3
    monkeypatch.setattr("critpath.pipeline.engines.available_memory", lambda: 0)
    assert choose_jobs(None, recordings) == 1
    assert choose_jobs(None, recordings, 180 << 20) == 1
    assert choose_jobs(3, recordings) == 3


def test_what_auto_chose_is_not_refused(tmp_path, monkeypatch):
    """What the process takes grows between two looks: there is only one."""
    looks = iter(range(100 << 20, 200 << 20, 10 << 20))
    monkeypatch.setattr("critpath.pipeline.recordings.least_room", lambda: next(looks))
    monkeypatch.setattr("critpath.pipeline.limits.least_room", lambda: next(looks))
    monkeypatch.setattr("critpath.pipeline.recordings.choose_jobs", lambda *_: 4)
    recordings = [tmp_path / str(number) for number in range(5)]
    assert fit_jobs(None, recordings, ExtractSettings(max_memory=300 << 20)) == 3
    assert next(looks) == 110 << 20
    assert fit_jobs(None, [], ExtractSettings(max_memory=1)) == 4
    assert fit_jobs(None, recordings, ExtractSettings()) == 4
    assert next(looks) == 120 << 20


@pytest.mark.parametrize(
    ("jobs", "count", "ahead"),
    [
        *((None, 1, True), (None, 2, True), (None, 3, False), (1, 1, False), (2, 1, True)),
        *((2, 2, False), (64, 2, True), (3, 2, False)),
    ],
)
def test_a_second_processor_for_each_decodes_ahead(monkeypatch, jobs, count, ahead):
    monkeypatch.setattr("critpath.pipeline.recordings.usable_cores", lambda: 4)
    shared = split_resources(ExtractSettings(max_memory=1000), count, jobs)
    assert (shared.ahead, shared.max_memory) == (ahead, 1000 // count)
    assert not split_resources(ExtractSettings(), count, jobs, remote=True).ahead


def test_the_largest_is_begun_first_and_results_are_in_order():
    begun = []

    def work(task):
        begun.append(task)
        return task

    with ThreadPoolExecutor(1) as pool:
        assert list(run(work, [2, 7, 1, 7], engine=pool, size=int)) == [2, 7, 1, 7]
    assert begun == [7, 7, 2, 1]


def test_the_first_failure_is_raised_though_a_larger_one_came_first():
    def fail(task):
        raise UnreadableError(f"no {task}", "look")

    with ThreadPoolExecutor(1) as pool, pytest.raises(UnreadableError, match="no 1"):
        list(run(fail, [1, 2, 3], engine=pool, size=int))


# ----------------------------------------------------------------------- dask


@pytest.mark.parametrize("text", ["tcp://127.0.0.1:8786", "tls://a-b.c_d:1", "tcp://[::1]:65535"])
def test_addresses(text):
    assert dask_address(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "127.0.0.1:8786", "tcp://:8786", "tcp://a", "tcp://a:0", "tcp://a:65536"),
        *("inproc://a:1", "ucx://a:1", "tcp://a:1/x", "tcp://a b:1", "tcp://a:1\n", "tcp://-a:1"),
        *("http://a:1", "tcp://user@a:1", "tcp://a:\u0661", "tcp://\u202ea:1", "TCP://a:1"),
    ],
)
def test_what_is_no_address(text):
    with pytest.raises(UsageError, match="no address of a dask scheduler"):
        dask_address(text)


def test_a_scheduler_that_is_not_there(monkeypatch):
    monkeypatch.setattr("critpath.pipeline.engines._SECONDS", 0.5)
    with pytest.raises(UsageError) as caught, dask_engine("tcp://127.0.0.1:9"):
        pass
    assert caught.value.what.startswith("no dask scheduler answers at tcp://127.0.0.1:9: ")
    assert "\n" not in caught.value.what
    assert "dask scheduler" in caught.value.do


def test_what_listens_and_is_no_scheduler(monkeypatch):
    monkeypatch.setattr("critpath.pipeline.engines._SECONDS", 1)
    monkeypatch.setattr("critpath.pipeline.engines._GRACE", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        start = time.monotonic()
        with pytest.raises(UsageError) as caught, dask_engine(address):
            pass
        assert time.monotonic() - start < 10
    assert "the scheduler's own port" in caught.value.do
    assert caught.value.what == f"what answers at {address} is no dask scheduler"


def test_tls_without_certificates():
    with pytest.raises(UsageError, match="no certificates") as caught, dask_engine("tls://a:1"):
        pass
    assert "distributed.comm.tls" in caught.value.do


@pytest.mark.parametrize("text", ["localhost:8786", "tcp:localhost:8786", "[::1]:8786"])
def test_an_address_without_its_kind_is_guessed(text):
    with pytest.raises(UsageError) as caught:
        dask_address(text)
    host = text.removeprefix("tcp:")
    assert caught.value.do == f"did you mean dask:tcp://{host}?"


def test_without_distributed(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match="not installed") as caught, dask_engine("tcp://a:1"):
        pass
    assert "critpath[dask]" in caught.value.do
