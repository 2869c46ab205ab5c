"""Where recordings are read: here, in processes of this machine, or wherever an engine has them.

An engine is a `concurrent.futures.Executor`, or anything with its ``submit`` (`Engine`).
The unit of work is one recording.  Whatever runs it, results come back in the order of
the tasks, and the error that is raised is that of the first task that failed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast
from weakref import WeakSet

from msgspec import Struct
from msgspec.structs import replace

from critpath.engines.limits import available_memory, least_room, require_room, usable_cores
from critpath.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_UNREADABLE,
    EXIT_USAGE,
    CritpathError,
    InconclusiveError,
    UnreadableError,
    UsageError,
)
from critpath.extras import require
from critpath.files import size_of
from critpath.model import ExtractSettings
from critpath.processes import begin_server, uninterrupted
from critpath.progress import Progress
from critpath.units import plural

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.process import BaseProcess

Task = TypeVar("Task")
Result = TypeVar("Result")

# technical: A process has to start before it reads: a guess, below which it would not pay.
_WORTH: Final = 64 << 20
# technical: what a process takes that reads a small recording, rounded up: more than that is
# the trace's.
_PROCESS: Final = 256 << 20
_ROUNDS: Final = 3  # technical: how often what a dying process was at is tried


class Engine(Protocol):
    """What runs tasks somewhere: `concurrent.futures.Executor` and its like."""

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Begin a task."""


class NoResultError(RuntimeError):
    """An engine ended, or gave up what it was given."""


class Failure(Struct, frozen=True):
    """An error as a value: it goes from one machine to another without its class.

    Attributes
    ----------
    exit_code : int
    what, do : str
    """

    exit_code: int
    what: str
    do: str

    def error(self) -> CritpathError:
        """Return it as an error."""
        kinds = {
            EXIT_USAGE: UsageError,
            EXIT_UNREADABLE: UnreadableError,
            EXIT_INCONCLUSIVE: InconclusiveError,
        }
        return kinds.get(self.exit_code, CritpathError)(self.what, self.do)


def catch_failure(work: Callable[[Task], Result], task: Task) -> Result | Failure:
    """Do a task; an error that a user can cause becomes a `Failure`."""
    try:
        return work(task)
    except CritpathError as error:
        return Failure(error.exit_code, error.what, error.do)


def choose_jobs(jobs: int | None, recordings: Sequence[Path], limit: int = 0) -> int:
    """Return how many processes read some recordings."""
    most = len(recordings)
    if jobs is not None or most < 2:
        return max(1, min(jobs or 1, most))
    sizes = [size_of(recording) for recording in recordings]
    # What is kept of a trace until its executions have been walked, and the process.
    each = _PROCESS + max(sizes) // 2
    room = available_memory() // (min(each, limit) if limit else each)
    return max(1, min(usable_cores(), most, sum(sizes) // _WORTH, room))


# How processes that read at the same time share processors and memory.


def share_out(
    settings: ExtractSettings,
    recordings: Sequence[Path],
    jobs: int | None,
    *,
    remote: bool = False,
) -> tuple[int, ExtractSettings]:
    """Return how many processes read some recordings, and what each may take."""
    count = 1 if remote else fit_jobs(jobs, recordings, settings)
    return count, split_resources(settings, count, jobs, remote=remote)


def fit_jobs(jobs: int | None, recordings: Sequence[Path], settings: ExtractSettings) -> int:
    """Return how many processes read some recordings."""
    limit = settings.max_memory
    count = choose_jobs(jobs, recordings, limit)
    if not recordings or not limit:
        return count
    # Once: a second look may find more, and refuse what was chosen by the first.
    least = least_room()
    if jobs is None:
        count = max(1, min(count, limit // least))
    require_room(limit, count, least)
    return count


def split_resources(
    settings: ExtractSettings, count: int, jobs: int | None, *, remote: bool = False
) -> ExtractSettings:
    """Divide what there is among as many as read at the same time."""
    cores = usable_cores() if jobs is None else min(jobs, usable_cores())
    return replace(
        settings,
        max_memory=settings.max_memory // count,
        ahead=cores >= 2 * count and not remote,
    )


def run(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    jobs: int = 1,
    engine: Engine | None = None,
    size: Callable[[Task], int] | None = None,
    progress: Progress | None = None,
) -> Generator[Result]:
    """Do all tasks and yield their results in order, each as soon as may be.

    To be closed: while it is suspended, others go on.

    Parameters
    ----------
    work : callable
        A function of a module, as processes find it by its name.
    tasks : sequence
    jobs : int
        Processes; with one, tasks are done here, each when its result is asked for.
    engine : Engine or None
        What runs them instead.
    size : callable or None
        Of processes and engines: they begin with the largest task, so that it is not the
        last one that all wait for.
    progress : callable or None
        Told how many are done.

    Raises
    ------
    CritpathError
        Of the first task that failed, in their order.
    """
    tell = progress or (lambda _: None)
    if engine is None and jobs == 1:
        for task in tasks:
            yield work(task)
        return
    order = dict(enumerate(tasks))
    if size is not None:
        order = dict(sorted(order.items(), key=lambda item: -size(item[1])))
    found = (
        _in_processes(work, order, jobs, tell)
        if engine is None
        else _results(engine, work, order, tell, len(tasks))
    )
    with closing(found):
        yield from _in_order(found, len(tasks))


def _in_order(found: Iterator[tuple[int, Any]], count: int) -> Iterator[Any]:
    """Yield results in the order of their numbers, each as soon as those before it are there."""
    waiting: dict[int, Any] = {}
    upcoming = 0
    for number, done in found:
        waiting[number] = done
        while upcoming in waiting:
            result = waiting.pop(upcoming)
            if isinstance(result, Failure):
                raise result.error()
            upcoming += 1
            yield result
    if upcoming < count:
        raise NoResultError(f"an engine gave no result of task {upcoming + 1} of {count}")


def _results(
    engine: Engine,
    work: Callable[[Any], Any],
    tasks: dict[int, Any],
    tell: Progress,
    total: int,
) -> Generator[tuple[int, Any]]:
    """Do tasks on an engine, and yield what is done as it is; after a failure no later ones."""
    from concurrent.futures import (
        BrokenExecutor,
        CancelledError,
        ProcessPoolExecutor,
        as_completed,
    )

    futures: dict[Future[Any], int] = {}
    # A process may have died of the first task before the last is handed over.
    with uninterrupted(), suppress(BrokenExecutor):
        for number, task in tasks.items():
            futures[engine.submit(catch_failure, work, task)] = number
    done = total - len(tasks)
    try:
        for future in as_completed([*futures]):
            # Forgotten here as there: results do not pile up.
            number = futures.pop(future)
            try:
                result = future.result()
            except (BrokenExecutor, CancelledError):
                continue  # the engine's caller sees which are missing
            del future
            done += 1
            tell(f"read {done} of {plural(total, 'recording')}")
            if isinstance(result, Failure):
                # Those before it may fail as well, and theirs is the error to raise.
                for other, later in futures.items():
                    if later > number:
                        other.cancel()
            yield number, result
    finally:
        # A pool of processes cancels them as it is shut down: done here, its own thread may
        # fail with a traceback if a process is killed just then (until Python 3.12).
        if not isinstance(engine, ProcessPoolExecutor):
            for other in futures:
                other.cancel()


# ---------------------------------------------------------------- on this machine


def _in_processes(
    work: Callable[[Task], Any], tasks: dict[int, Task], jobs: int, tell: Progress
) -> Generator[tuple[int, Any]]:
    """Do tasks in processes; what one that died was at is tried again, at last alone."""
    done: set[int] = set()
    failed = len(tasks)
    for attempt in range(_ROUNDS):
        rest = {n: task for n, task in tasks.items() if n < failed and n not in done}
        if not rest:
            return
        last = attempt == _ROUNDS - 1
        for group in [{n: task} for n, task in rest.items()] if last else [rest]:
            count = min(jobs, len(group))
            if not last:
                tell(f"starting {plural(count, 'process')}")
            with _processes(count) as engine:
                for number, result in _results(engine, work, group, tell, len(tasks)):
                    done.add(number)
                    if isinstance(result, Failure):
                        failed = min(failed, number)
                    yield number, result
            if last and not done >= group.keys():
                (task,) = group.values()
                raise CritpathError(
                    f"the process that read {task} was killed, {plural(_ROUNDS, 'time')}",
                    "it may have taken too much memory: try --jobs 1, or --max-memory",
                )


@contextmanager
def _processes(count: int) -> Iterator[Engine]:
    """Start processes for tasks, and leave none behind."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = begin_server()
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_begin)
    # All of them begin before the first task, as a pool of forks does it.  One that began with a
    # later task could be missed: if another dies of its task just then, the pool's own thread ends
    # those that it knows and waits for all, for ever for the new one, which waits for a task.
    pool._safe_to_dynamically_spawn_children = False  # type: ignore[attr-defined]  # noqa: SLF001
    try:
        yield pool
    except BaseException as reason:
        # One that dies while it sends leaves half a result, and who reads it would wait for
        # the rest as long as anybody could write it, which is this process itself.
        pool._result_queue._writer.close()  # type: ignore[attr-defined]  # noqa: SLF001
        if isinstance(reason, KeyboardInterrupt | SystemExit):
            # Whatever they are at is not waited for.
            _end(set(multiprocessing.active_children()) - before)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Make a process end when it is interrupted, or when the one that began it is gone."""
    import multiprocessing
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # of `uninterrupted`
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _end(processes: set[BaseProcess]) -> None:
    for process in processes:
        process.terminate()


# Recordings on a dask cluster: its workers as an engine.


_SECONDS: Final = 12  # technical: for a scheduler to answer, and to have a worker
_GRACE: Final = 3  # technical: for dask to say that it did not
_PERIOD: Final = 2  # technical: s between two questions to a scheduler whether it is there
_SILENT: Final = 60  # technical: s for its answer, which a busy one gives late
_ALONE: Final = 30  # technical: s without any worker, in which a nanny starts another
# A scheduler that is gone is reported in two lines; the logs of dask would repeat it.
_LOGS: Final = (
    *("distributed", "distributed.client", "tornado", "tornado.application", "asyncio"),
    "concurrent.futures",
)
_ADDRESS: Final = re.compile(
    r"(tcp|tls)://([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})"
)


class DaskScheduler(Struct, frozen=True):
    """Where a scheduler of dask listens, checked: ``tcp://HOST:PORT`` or ``tls://HOST:PORT``."""

    address: str

    def __post_init__(self) -> None:
        text = self.address
        found = _ADDRESS.fullmatch(text)
        if found is None and _ADDRESS.fullmatch(meant := "tcp://" + text.removeprefix("tcp:")):
            raise UsageError(
                f"{text} is no address of a dask scheduler", f"did you mean dask:{meant}?"
            )
        if found is None or not 0 < int(found[3]) < 65536:
            raise UsageError(
                f"{text} is no address of a dask scheduler",
                "give tcp://HOST:PORT, or tls://HOST:PORT, as dask scheduler prints it",
            )

    @contextmanager
    def connect(self) -> Iterator[Engine]:
        """Connect to it; its workers then run the tasks.

        Raises UsageError without dask.distributed, or if nothing answers there; CritpathError if
        it is lost, or all of its workers are, or too many die of one task.
        """
        require("--engine dask, here and where the workers are,", "dask")
        import logging
        from concurrent.futures import CancelledError

        from distributed import Client, KilledWorker
        from distributed.client import ClosedClientError

        for name in _LOGS:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)

        def connect() -> Any:
            return Client(self.address, timeout=_SECONDS, set_as_default=False)

        try:
            client = _within(_SECONDS + _GRACE, connect)
        except _LateError:
            raise UsageError(
                f"what answers at {self.address} is no dask scheduler",
                "give the scheduler's own port (8786 by default), not the dashboard's",
            ) from None
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            if self.address.startswith("tls:") and "ssl_context" in str(error):
                raise UsageError(
                    f"dask has no certificates for {self.address}",
                    "set distributed.comm.tls in dask's configuration, or give tcp://HOST:PORT",
                ) from error
            raise UsageError(
                f"no dask scheduler answers at {self.address}: {_first_line(error)}",
                "give the address that dask scheduler prints, or leave out --engine to read here",
            ) from error
        try:
            try:
                _within(_SECONDS + _GRACE, lambda: client.wait_for_workers(1, timeout=_SECONDS))
            except (OSError, TimeoutError, _LateError):
                raise UsageError(
                    f"the dask scheduler at {self.address} has no worker",
                    f"start some: dask worker {self.address}",
                ) from None
            with closing(_Guarded(client)) as engine:
                yield engine
        except KilledWorker as error:
            raise CritpathError(
                "a recording could not be read: the workers that tried died "
                f"({_first_line(error)})",
                "look into the workers' logs; they may need more memory, or --max-memory",
            ) from error
        except _NoWorkerError as error:
            raise CritpathError(
                f"the dask scheduler at {self.address} has no worker any more",
                f"start some: dask worker {self.address}; their logs say why the others ended",
            ) from error
        except (OSError, CancelledError, NoResultError, ClosedClientError) as error:
            raise CritpathError(
                f"the dask scheduler at {self.address} was lost",
                "start it and the workers again, then repeat the command",
            ) from error
        finally:
            with suppress(_LateError):  # of what is lost
                _within(_SECONDS + _GRACE, lambda: client.close(timeout=_SECONDS))


class _NoWorkerError(NoResultError):
    """All workers of a scheduler have ended."""


class _Guarded:
    """An engine of a dask client whose tasks end, too, when scheduler or workers are lost.

    Dask's own waits for ever for a worker, and for a result that it was fetching just then.
    """

    def __init__(self, client: Any) -> None:
        import threading

        from distributed.cfexecutor import ClientExecutor

        self._client, self._executor = client, ClientExecutor(client, pure=False)
        self._given: WeakSet[Future[Any]] = WeakSet()
        self._lost: NoResultError | None = None
        self._lock, self._ending = threading.Lock(), threading.Event()
        threading.Thread(target=self._watch, name="dask-guard", daemon=True).start()

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Begin a task."""
        with self._lock:
            if self._lost is not None:
                raise self._lost
            future: Future[Any] = self._executor.submit(task, *arguments)
            self._given.add(future)
            return future

    def close(self) -> None:
        """Watch no more."""
        self._ending.set()

    def _watch(self) -> None:
        seen = time.monotonic()
        while not self._ending.wait(_PERIOD):
            now = time.monotonic()
            try:
                there = _within(_SILENT, self._ask)
            except Exception:  # noqa: BLE001 - whatever it is, there is no answer
                there = None
            if there is None:
                return self._end(NoResultError("no answer"))
            seen = now if there else seen
            if now - seen > _ALONE:
                return self._end(_NoWorkerError("no worker"))
        return None

    def _ask(self) -> Any:
        """Return which workers there are; None without a scheduler."""
        return self._client.nthreads() if self._client.status == "running" else None

    def _end(self, lost: NoResultError) -> None:
        from concurrent.futures import InvalidStateError

        with self._lock:
            self._lost = lost
            for future in [*self._given]:
                with suppress(InvalidStateError):  # it has its result
                    future.set_exception(lost)


class _LateError(Exception):
    """What was to be done in some time was not."""


def _within(seconds: float, work: Callable[[], Result]) -> Result:
    """Do something that may never end, and wait so long for it.

    It goes on in its thread, which ends with this process.
    """
    import queue
    import threading

    answers: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def do() -> None:
        try:
            answers.put((work(), None))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            answers.put((None, error))

    threading.Thread(target=do, daemon=True).start()
    try:
        result, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise _LateError from None
    if error is not None:
        raise error
    return cast("Result", result)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
