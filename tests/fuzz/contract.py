"""What must hold for whatever bytes critpath is given, checked on each input.

Only a `CritpathError` that blames the input or says that it gives no answer may come out,
and soon.  That nothing crashes, and what memory is taken, is watched from outside: by the
sanitizers and libFuzzer, or by the test that replays the corpus.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from critpath.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_UNREADABLE,
    EXIT_USAGE,
    CritpathError,
)

# Of the processor, not of the clock: others work on the machine.
SECONDS: Final = 2.0
# Sanitizers and the coverage of Python code make everything slower.
SLOWER: Final = float(os.environ.get("CRITPATH_FUZZ_SLOWER", "1"))
CODES: Final = frozenset({EXIT_USAGE, EXIT_INCONCLUSIVE, EXIT_UNREADABLE})


class ContractError(AssertionError):
    """An input made critpath break a promise."""


@cache
def scratch() -> Path:
    """Return a directory of this process, in memory where that can be."""
    memory = "/dev/shm"  # noqa: S108 - the files in it are read by this process only
    place = Path(
        tempfile.mkdtemp(
            prefix="critpath-fuzz-", dir=memory if os.access(memory, os.W_OK) else None
        )
    )
    atexit.register(scratch_removed)
    return place


def scratch_removed() -> None:
    """Remove the directory, if this process has one."""
    if scratch.cache_info().currsize:
        shutil.rmtree(scratch(), ignore_errors=True)


def hold(work: Callable[[], None]) -> str:
    """Do something with an input; return "accepted", or the name of the clean error.

    Raises
    ------
    ContractError
        If an error is not clean, or it took too long.
    """
    begin = time.process_time()
    outcome = "accepted"
    try:
        work()
    except CritpathError as error:
        if error.exit_code not in CODES:
            raise ContractError(f"exit code {error.exit_code}: {error.what}") from error
        if not error.what or not error.do or "\n" in error.what + error.do:
            raise ContractError(f"not two lines: {error.what!r}, {error.do!r}") from error
        outcome = type(error).__name__
    taken = time.process_time() - begin
    if taken > SECONDS * SLOWER:
        raise ContractError(f"took {taken:.1f} s of the processor")
    return outcome
