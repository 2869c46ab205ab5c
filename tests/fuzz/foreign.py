"""Target: a file of another tool, converted and read: perf.data, trace.dat, Perfetto, text.

An input is the whole file: what it begins with says of which tool it is.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from contract import ContractError, hold, scratch

from critpath.convert import convert_foreign
from critpath.read import KERNEL_EVENTS, Recording

LONGEST = 1 << 20  # bytes of what is made of an input, for each of its bytes


def convert(data: bytes) -> None:
    """Convert the file, and read all kernel events of what was made."""
    file, made = scratch() / "foreign", scratch() / "made"
    file.write_bytes(data)
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    converted = convert_foreign(file, made)
    size = sum(of.stat().st_size for of in made.rglob("*"))
    if size > LONGEST * max(len(data), 16):
        raise ContractError(f"{size} bytes were made of {len(data)}")
    events = Recording(made).read(KERNEL_EVENTS)
    if events.total < converted.events:
        raise ContractError(f"{converted.events} events were converted, {events.total} are read")


def one(data: bytes) -> str:
    """Try one input."""
    return hold(lambda: convert(data))


def json_begins(_: bytes) -> int:
    """Return -1: no input has JSON."""
    return -1
