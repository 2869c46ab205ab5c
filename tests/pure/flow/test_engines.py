"""Tasks in several threads or one: the same results and errors; how many jobs pay."""

from __future__ import annotations

import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from critpath.engines.tasks import (
    DaskScheduler,
    Failure,
    catch_failure,
    choose_jobs,
    fit_jobs,
    run,
    split_resources,
)
from critpath.errors import CritpathError, UnreadableError, UsageError
from critpath.model import ExtractSettings


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
    begun, go = [], Event()

    def work(task):
        begun.append(task)
        assert not task or go.wait(60)
        return task

    with ThreadPoolExecutor(1) as engine:
        results = run(work, range(100), engine=engine)
        assert next(results) == 0
        results.close()
        go.set()
    assert begun in ([0], [0, 1])


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
    monkeypatch.setattr("critpath.engines.tasks.usable_cores", lambda: 4)
    monkeypatch.setattr("critpath.engines.tasks.available_memory", lambda: 1 << 40)
    assert choose_jobs(None, recordings) == 3
    assert choose_jobs(None, recordings[:1]) == 1
    assert choose_jobs(None, []) == 1
    assert choose_jobs(2, recordings) == 2
    assert choose_jobs(64, recordings) == 5
    assert choose_jobs(None, [*recordings, *recordings]) == 4
    # Each may take 256 MiB, and half of its trace.
    monkeypatch.setattr("critpath.engines.tasks.available_memory", lambda: 560 << 20)
    assert choose_jobs(None, recordings) == 2
    # Or no more than a limit that is below that.
    assert choose_jobs(None, recordings, 1 << 40) == 2
    assert choose_jobs(None, recordings, 180 << 20) == 3
    monkeypatch.setattr("critpath.engines.tasks.available_memory", lambda: 0)
    assert choose_jobs(None, recordings) == 1
    assert choose_jobs(None, recordings, 180 << 20) == 1
    assert choose_jobs(3, recordings) == 3


def test_what_auto_chose_is_not_refused(tmp_path, monkeypatch):
    """What the process takes grows between two looks: there is only one."""
    looks = iter(range(100 << 20, 200 << 20, 10 << 20))
    monkeypatch.setattr("critpath.engines.tasks.least_room", lambda: next(looks))
    monkeypatch.setattr("critpath.engines.limits.least_room", lambda: next(looks))
    monkeypatch.setattr("critpath.engines.tasks.choose_jobs", lambda *_: 4)
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
    monkeypatch.setattr("critpath.engines.tasks.usable_cores", lambda: 4)
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


@pytest.mark.parametrize("text", ["tcp://127.0.0.1:8786", "tls://a-b.c_d:1", "tcp://[::1]:65535"])
def test_addresses(text):
    assert DaskScheduler(text).address == text


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
        DaskScheduler(text)


@pytest.mark.parametrize("text", ["localhost:8786", "tcp:localhost:8786", "[::1]:8786"])
def test_an_address_without_its_kind_is_guessed(text):
    with pytest.raises(UsageError) as caught:
        DaskScheduler(text)
    host = text.removeprefix("tcp:")
    assert caught.value.do == f"did you mean dask:tcp://{host}?"
