"""Pieces of work that ``scale.py`` times in a process that stays: see `measuring.Worker`.

python evaluation/benchmarks/scale_work.py TRACE EXECUTION
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from critpath.flow import extract
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.streaming import EventStream
from critpath.read.traces import find_traces
from critpath.vectors.table import by_thread, vector_table


def decode(trace: Path, _: str) -> dict[str, Any]:
    """Decode all events that critpath reads of the kernel's, and keep none."""
    with EventStream(find_traces(trace), KERNEL_EVENTS) as stream:
        stream.skim()
        return {"events": stream.finish().total}


def merge(trace: Path, _: str) -> dict[str, Any]:
    """Decode them, and merge them into chunks in the order of time."""
    with EventStream(find_traces(trace), KERNEL_EVENTS) as stream:
        return {"events": sum(len(chunk) for chunk in stream)}


def vectors(trace: Path, execution: str) -> dict[str, Any]:
    """From the trace to the critical path and the vector of every execution."""
    paths = extract([trace], specification=execution, jobs=None)
    alphabet = by_thread([paths])
    table = vector_table(paths, alphabet.symbols, alphabet.codes[0])
    return {"executions": len(table), "segments": len(paths.paths.begin)}


WORK: dict[str, Callable[[Path, str], dict[str, Any]]] = {
    "decode": decode,
    "merge": merge,
    "vectors": vectors,
}


def main() -> None:
    """Do what is asked for on stdin, line by line."""
    trace, execution = Path(sys.argv[1]), sys.argv[2]
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        said = WORK[line.strip()](trace, execution)
        said["cpu"] = time.process_time() - cpu
        said["wall"] = time.perf_counter() - wall
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
