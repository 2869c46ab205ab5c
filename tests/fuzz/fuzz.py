"""One target under libFuzzer; `run.py` starts it with what it needs.

fuzz.py TARGET [libFuzzer's options and directories]
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import os
import pkgutil
import shlex
import signal
import sys
from pathlib import Path

import atheris
from mutating import mutator

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import contract  # noqa: E402 - found by the path above

# Where Python looks at bytes of others itself; behind it are native modules, which count on
# their own, and what only goes on with what these have checked.
STAGES = (
    *("critpath.convert", "critpath.executions", "critpath.explore", "critpath.read"),
    *("critpath.requests", "critpath.store", "critpath_record.stacks"),
)
MODULES = (
    *("critpath.report.document.as_json", "critpath.model.containers", "critpath_record.hpack"),
    *("critpath_record.messages", "critpath_record.group_names", "critpath_record.ftrace.frames"),
)


def instrumented() -> None:
    """Import the stages, so that libFuzzer sees which of their branches an input takes."""
    with atheris.instrument_imports(include=[*STAGES, *MODULES]):
        for stage in STAGES:
            package = importlib.import_module(stage)
            for module in pkgutil.walk_packages(package.__path__, f"{stage}."):
                if not module.name.rpartition(".")[2].startswith("_"):
                    importlib.import_module(module.name)
        for name in MODULES:
            importlib.import_module(name)


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
def leave(status: int, _: int | None) -> None:
    """End at once: what follows destroys Arrow's threads while this one has Python's lock.

    libFuzzer ends a process from within, and Python does not get to clean up.
    """
    contract.scratch_removed()
    os._exit(status)


def leave_first() -> None:
    """Have `leave` be called before what was there up to now is destroyed."""
    ctypes.CDLL(None).on_exit(leave, None)


def main() -> None:
    """Run libFuzzer until it finds something, or its time is over."""
    # `run.py` asks with it where a process stands that does not end.
    faulthandler.register(signal.SIGUSR1)
    name = sys.argv.pop(1)
    # What libFuzzer calls again, through a shell, to merge.
    sys.argv[0] = shlex.join([sys.executable, sys.argv[0], name])
    instrumented()
    target = importlib.import_module(name)

    tried = 0

    def one(data: bytes) -> None:
        nonlocal tried
        target.one(data)
        tried += 1
        if tried & tried - 1 == 0:  # once more, as libraries begin threads when they need them
            leave_first()

    atheris.Setup(sys.argv, one, custom_mutator=mutator(atheris.Mutate, target.json_begins))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
