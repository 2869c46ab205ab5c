"""A recorder with nothing to decide waits without Python, and looks at the kernel's counts."""

from __future__ import annotations

import os
import select
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaitingError
from pathlib import Path

import pytest

from critpath_record import _pulse

NEVER = 1 << 62
PACE = 1_000_000  # ns
LOOKS = 0.05  # s, in which it has looked many times

Rest = Callable[..., "Future[bool]"]


@pytest.fixture
def ready() -> Iterator[int]:
    descriptor = os.eventfd(0, os.EFD_CLOEXEC)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def rest(tmp_path: Path, ready: int) -> Iterator[Rest]:
    """Begin to rest, beside 95 events of which each is charged a half."""
    counts = tmp_path / "stats"
    counts.write_text("entries: 70\noverrun: 20\ncommit overrun: 5\nread events: 5\n")
    file = os.open(counts, os.O_RDONLY | os.O_CLOEXEC)
    with ThreadPoolExecutor(1) as thread:

        def begin(before: int, limit: float, counter: int = file) -> Future[bool]:
            of = array("i", [counter]), array("q", [before]), array("d", [0.5])
            files = array("i", [ready, select.POLLIN])
            return thread.submit(_pulse.rest, files, *of, array("d", [limit]), PACE, NEVER)

        yield begin
        os.eventfd_write(ready, 1)
    os.close(file)


@pytest.mark.parametrize(("before", "limit"), [(95, 0.5), (0, 48.0)])
def test_it_goes_on_until_a_file_is_ready_where_little_was_spent(rest, ready, before, limit):
    resting = rest(before, limit)
    with pytest.raises(StillWaitingError):
        resting.result(LOOKS)
    os.eventfd_write(ready, 1)
    assert resting.result(60) is False


@pytest.mark.parametrize(("before", "limit"), [(0, 47.5), (94, 0.5)])
def test_it_ends_where_as_much_was_spent(rest, before, limit):
    assert rest(before, limit).result(60) is True


def test_it_ends_where_nothing_tells(rest):
    assert rest(95, 0.5, counter=-1).result(60) is True


def test_counts_that_do_not_go_together_are_refused():
    none = array("d")
    with pytest.raises(ValueError, match="do not go together"):
        _pulse.rest(array("i"), array("i"), array("q"), none, none, 1, 1)
