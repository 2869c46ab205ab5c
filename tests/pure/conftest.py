"""Holds every test in this folder to what it is: no process, no sleep, no kernel.

What the product does counts as well, so this is asked of Python's audit events while a test
runs; `test_suites.py` looks at the texts of tests for clocks, which have no event.
"""

from __future__ import annotations

import multiprocessing.process
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy.testing  # noqa: F401 - scipy 1.11 imports it, and then numpy 1.26 starts lscpu
import pytest

HERE = Path(__file__).resolve().parent
REFUSED = {
    *("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"),
    "time.sleep",
}
KERNEL = ("/sys/kernel/tracing", "/sys/kernel/debug", "/sys/fs/bpf")

_running: list[str] = []
_seen: list[str] = []


def _notice(event: str, arguments: tuple[object, ...]) -> None:
    if not _running:
        return
    if event in REFUSED:
        _seen.append(event)
    elif event in {"open", "os.mkdir", "os.listdir"} and arguments:
        place = arguments[0]
        if not isinstance(place, str):
            # A number is a file that is open already.
            place = str(place) if isinstance(place, int) or place is None else os.fsdecode(place)
        if place.startswith(KERNEL):
            _seen.append(f"{event} {place}")


sys.addaudithook(_notice)

# Workers of a pool are started without an event.
_start = multiprocessing.process.BaseProcess.start


def _note_start(process: multiprocessing.process.BaseProcess) -> None:
    if _running:
        _seen.append("multiprocessing")
    _start(process)


multiprocessing.process.BaseProcess.start = _note_start  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Watch one test, with its set-up and its end."""
    if HERE not in item.path.parents:
        return (yield)
    _running.append(item.nodeid)
    _seen.clear()
    try:
        return (yield)
    finally:
        _running.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that did what its folder says it does not."""
    found = yield
    if HERE in item.path.parents and _seen:
        pytest.fail(f"a test in tests/pure did: {', '.join(sorted({*_seen}))}", pytrace=False)
    return found
