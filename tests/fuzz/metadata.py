"""Target: any bytes as metadata, in any of its forms; what it describes is then read.

The streams below it stay what they are: one for each metadata of ``metadata/``, packets of
bytes that mean something under nearly every description, and one byte.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

from contract import hold, scratch
from reading import EVERYTHING, Way, both_ways, read_all

from critpath.read.traces import describe

HERE: Final = Path(__file__).resolve().parent


def fixed_streams() -> list[bytes]:
    """Return the stream files: one that fits each good metadata, and made ones."""
    fitting = [path.read_bytes() for path in sorted((HERE / "metadata").glob("*.stream"))]
    counting = bytes(range(256)) * 2
    made = [b"\xc1\x1f\xfc\xc1" + counting, b"\xc1\xfc\x1f\xc1" + bytes(64) + counting, b"\1"]
    return [*fitting, *made]


@cache
def place() -> Path:
    """Make the directory of the recording."""
    recording = scratch() / "metadata"
    trace = recording / "kernel"
    trace.mkdir(parents=True)
    for number, data in enumerate(fixed_streams()):
        (trace / f"channel_{number}").write_bytes(data)
    return recording


def one(data: bytes) -> str:
    """Try one input."""
    recording = place()
    (recording / "kernel" / "metadata").write_bytes(data)

    def work() -> None:
        describe(recording)
        # Every event and field that it describes, and now and then all the rest.
        if len(data) % 3 == 0:
            read_all(recording, Way(len(data) // 3 % 64))
        else:
            both_ways(recording, EVERYTHING)

    return hold(work)


def json_begins(data: bytes) -> int:
    """Return 0 for CTF 2, -1 for all else."""
    return 0 if data[:1] == b"\x1e" else -1
