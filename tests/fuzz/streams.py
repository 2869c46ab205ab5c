"""Target: stream files of any bytes, under metadata that is good.

The first byte of an input chooses the metadata: one of ``metadata/``, or a schema that
`tests/oracle/ctf_write.py` draws; of that the plain decoder `tests/oracle/ctf_decode.py`
must find the same events.  The second byte is how to read (`reading.Way`).  The rest is
stream files, divided by `BETWEEN`.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

from contract import hold, scratch
from oracle.ctf_write import Generator
from reading import Way, read_all
from twins import compare

HERE: Final = Path(__file__).resolve().parent

METADATA: Final = ("lttng-2.13.tsdl", "lttng-2.1.tsdl", "big-endian.tsdl", "ctf2.json")
BETWEEN: Final = b"\n==next file==\n"
TRACES: Final = ("kernel", "other")
# A bit of the second byte: every other file belongs to another trace, of the next metadata.
TWO_HOSTS: Final = 128
MOST_FILES: Final = 6
# The plain decoder takes a tenth of a second for as much.
MOST_FOR_TWIN: Final = 2048


@cache
def drawn(seed: int) -> object:
    """Return a random schema, always the same for a number."""
    return Generator(seed).schema()


@cache
def place(*names: str) -> Path:
    """Make the directory of a recording: a trace for each metadata, of a host of its own."""
    recording = scratch() / "streams" / "+".join(names)
    for trace, name in zip(TRACES, names, strict=False):
        directory = recording / trace
        directory.mkdir(parents=True)
        (directory / "metadata").write_bytes((HERE / "metadata" / name).read_bytes())
    return recording


def write_files(directory: Path, files: list[bytes]) -> None:
    """Leave exactly these stream files in a trace's directory."""
    for number in range(MOST_FILES):
        path = directory / f"channel_{number}"
        if number < len(files):
            path.write_bytes(files[number])
        else:
            path.unlink(missing_ok=True)


def one(data: bytes) -> str:
    """Try one input."""
    if len(data) < 2:
        return "nothing"
    files = data[2:].split(BETWEEN)[:MOST_FILES]
    if data[0] >= len(METADATA):
        if sum(map(len, files)) > MOST_FOR_TWIN:
            return "nothing"
        return hold(lambda: compare(drawn(data[0]), files, scratch()))
    names = [METADATA[data[0]]]
    if data[1] & TWO_HOSTS:
        names.append(METADATA[(data[0] + 1) % len(METADATA)])
    recording = place(*names)
    for number, trace in enumerate(TRACES[: len(names)]):
        write_files(recording / trace, files[number :: len(names)])
    return hold(lambda: read_all(recording, Way(data[1])))


def json_begins(_data: bytes) -> int:
    """Return -1: there is no JSON in streams."""
    return -1
