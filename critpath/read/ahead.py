"""Makes the next things in a background thread while the present one is worked on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Calls a function in one background thread, some calls ahead of who wants the results.

    Calls are made one after the other.  How many were begun hangs on `next` alone, so
    that behind `settle` everything is as it would be whichever thread was faster.  The
    thread ends with `close`, when this object is gone, or with the interpreter, whatever
    comes first; it must not be what keeps this object alive.

    Parameters
    ----------
    make : callable
        Of no arguments, and without a reference to this object.  Where it raises, `next`
        does, and later calls must do no harm.
    depth : int
        Calls ahead.
    """

    def __init__(self, make: Callable[[], T], depth: int = 1) -> None:
        self._make, self._depth = make, depth
        self._pool: ThreadPoolExecutor | None = None
        self._begun: deque[Future[T]] = deque()

    def next(self) -> T:
        """Return the next result; begin another call in its place."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="critpath-ahead")
            self._begun.extend(self._pool.submit(self._make) for _ in range(self._depth))
        # What was made before may be overwritten only now.
        self._begun.append(self._pool.submit(self._make))
        return self._begun.popleft().result()

    def settle(self) -> None:
        """Wait until all that was begun is done."""
        wait(self._begun)

    def close(self) -> None:
        """Drop what was not begun, wait for what was, end the thread."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._begun.clear()
