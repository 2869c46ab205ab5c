"""Recordings on a dask cluster: its workers as an engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

from critpath.errors import CritpathError, UsageError
from critpath.pipeline.engines import Engine

Result = TypeVar("Result")

_SECONDS: Final = 12  # for a scheduler to answer, and to have a worker
_GRACE: Final = 3  # for dask to say that it did not
_ADDRESS: Final = re.compile(
    r"(tcp|tls)://([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})"
)


def dask_address(text: str) -> str:
    """Return the address of a dask scheduler, checked.

    Raises
    ------
    UsageError
        If it is not ``tcp://HOST:PORT`` or ``tls://HOST:PORT``.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None and _ADDRESS.fullmatch(meant := "tcp://" + text.removeprefix("tcp:")):
        raise UsageError(f"{text} is no address of a dask scheduler", f"did you mean dask:{meant}?")
    if found is None or not 0 < int(found[3]) < 65536:
        raise UsageError(
            f"{text} is no address of a dask scheduler",
            "give tcp://HOST:PORT, or tls://HOST:PORT, as dask scheduler prints it",
        )
    return text


@contextmanager
def dask_engine(address: str) -> Iterator[Engine]:
    """Connect to a dask scheduler, whose workers then run the tasks.

    Parameters
    ----------
    address : str
        See `dask_address`.

    Raises
    ------
    UsageError
        If dask.distributed is not installed, or nobody answers there.
    CritpathError
        If the scheduler is lost, or too many workers die of one task.
    """
    try:
        from distributed import Client, KilledWorker
        from distributed.cfexecutor import ClientExecutor
    except ImportError:
        raise UsageError(
            "--engine dask needs dask.distributed, which is not installed",
            "install critpath[dask], here and where the workers are",
        ) from None
    from concurrent.futures import CancelledError

    def connect() -> Any:
        return Client(address, timeout=_SECONDS, set_as_default=False)

    try:
        client = _within(_SECONDS + _GRACE, connect)
    except _LateError:
        raise UsageError(
            f"what answers at {address} is no dask scheduler",
            "give the scheduler's own port (8786 by default), not the dashboard's",
        ) from None
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        if address.startswith("tls:") and "ssl_context" in str(error):
            raise UsageError(
                f"dask has no certificates for {address}",
                "set distributed.comm.tls in dask's configuration, or give tcp://HOST:PORT",
            ) from error
        raise UsageError(
            f"no dask scheduler answers at {address}: {_first_line(error)}",
            "give the address that dask scheduler prints, or leave out --engine to read here",
        ) from error
    try:
        try:
            _within(_SECONDS + _GRACE, lambda: client.wait_for_workers(1, timeout=_SECONDS))
        except (OSError, TimeoutError, _LateError):
            raise UsageError(
                f"the dask scheduler at {address} has no worker",
                f"start some: dask worker {address}",
            ) from None
        yield ClientExecutor(client, pure=False)
    except KilledWorker as error:
        raise CritpathError(
            f"a recording could not be read: the workers that tried died ({_first_line(error)})",
            "look into the workers' logs; they may need more memory, or --max-memory",
        ) from error
    except (OSError, CancelledError) as error:
        raise CritpathError(
            f"the dask scheduler at {address} was lost: {_first_line(error)}",
            "start it and the workers again, then repeat the command",
        ) from error
    finally:
        client.close(timeout=_SECONDS)


class _LateError(Exception):
    """What was to be done in some time was not."""


def _within(seconds: float, work: Callable[[], Result]) -> Result:
    """Do something that may never end, and wait so long for it.

    It goes on in its thread, which ends with this process.

    Raises
    ------
    _LateError
        If it is not done.
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
