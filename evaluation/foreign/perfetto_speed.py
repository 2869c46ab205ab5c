"""How fast a trace of Perfetto is converted, and in how much memory.

    python evaluation/foreign/perfetto_speed.py [--events N] [--largest N] [--rounds N]

The events of the shipped recording of the ftrace recorder, written by Perfetto's schema many times
over as one that lasted longer, are converted, and parsed by protobuf's own library (C behind
Python, no field is looked at), in turns; then a file of ``--largest`` events is converted.
Perfetto's traceconv, which converts to text, is in no package that this machine reaches: its speed
is not known here. Wanted: less than 512 MiB.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from perf_speed import MEMORY, convert, run  # noqa: E402 - beside
from pure.convert.perfetto_writer import Bundle, Event, Writer, read_bundles  # noqa: E402 - tests

ARCHIVE = ROOT / "fixtures" / "ftrace-raw" / "minimal.tar.xz"
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
PARSE = (
    "import sys; from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as p; "
    "t = p.Trace(); t.ParseFromString(open(sys.argv[1], 'rb').read()); print(len(t.packet))"
)
WIDE = (1 << 62) - 1  # a time of nine bytes, in whose place others are written
BYTES = 9


def write_large(place: Path, raw: Path, events: int) -> int:
    """Write a file; return how many events it has."""
    bundles = list(read_bundles(raw))
    times = np.array([e.time for b in bundles for e in b.events], np.uint64)
    lasted = np.uint64(times.max() - times.min() + 1000)
    writer = Writer()
    for bundle in bundles:
        moved = [
            Event(WIDE - n, e.pid, e.name, e.values, e.flags) for n, e in enumerate(bundle.events)
        ]
        writer.bundle(Bundle(bundle.cpu, moved))
    once = np.frombuffer(writer.bytes(), np.uint8).copy()
    places, at, whole = [], 0, once.tobytes()
    for bundle in bundles:
        for number in range(len(bundle.events)):
            at = whole.index(b"\x08" + varint(WIDE - number), at) + 1
            places.append(at)
            at += BYTES
    columns = np.array(places)
    head = Writer()
    head.clocks(int(times.min()), 10**18)
    repeated = max(1, events // len(times))
    with place.open("wb") as stream:
        stream.write(head.bytes())
        for number in range(repeated):
            moved_times = times + np.uint64(number) * lasted
            for byte in range(BYTES):
                part = (moved_times >> np.uint64(7 * byte)) & np.uint64(127)
                once[columns + byte] = part | (128 if byte < BYTES - 1 else 0)
            stream.write(once.tobytes())
    return repeated * len(times)


def varint(value: int) -> bytes:
    """Return a number in groups of seven bits."""
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000, help="in turns with protobuf")
    parser.add_argument("--largest", type=int, default=20_000_000, help="of which the memory is")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        with tarfile.open(ARCHIVE) as tar:
            tar.extractall(place, **DATA_ONLY)  # noqa: S202 - an archive of our own
        file, raw = place / "trace.pftrace", place / "minimal"
        events = write_large(file, raw, asked.events)
        print(f"{events:,} events, {file.stat().st_size / 1e6:,.0f} MB", flush=True)
        ours = []
        for _ in range(asked.rounds):
            theirs = run([sys.executable, "-P", "-c", PARSE, str(file)])
            ours.append(convert(file, place))
            print(
                f"protobuf parses {events / theirs[0] / 1e6:.2f} M events/s, critpath converts"
                f" {events / ours[-1][0] / 1e6:.2f} M events/s"
                f" ({events / ours[-1][1] / 1e6:.2f} by the time on a cpu)",
                flush=True,
            )
        middle = statistics.median(one[0] for one in ours)
        print(f"median {events / middle / 1e6:.2f} M events/s; no peer here")
        if not asked.largest:
            return 0
        events = write_large(file, raw, asked.largest)
        seconds, _, memory = convert(file, place)
        print(
            f"{events:,} events, {file.stat().st_size / 1e6:,.0f} MB: {seconds:.1f} s,"
            f" {memory} MiB; wanted less than {MEMORY}"
        )
        return 0 if memory < MEMORY else 1


if __name__ == "__main__":
    sys.exit(main())
