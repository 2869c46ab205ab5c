"""How fast a trace.dat is converted, beside ``trace-cmd report``, and in how much memory.

    python evaluation/foreign/trace_dat_speed.py [--events N] [--largest N] [--rounds N]

The pages of the shipped recording of the ftrace recorder, many times over as one that lasted
longer, are printed by ``trace-cmd report`` (to nothing) and converted, in turns; then a file of
``--largest`` events is converted. Wanted: five times the events per second, by the clock, and less
than 512 MiB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from oracle.trace_dat_write import PAGE, UNAME, Buffer, wrap_raw  # noqa: E402 - of the tests
from perf_speed import MEMORY, WANTED, convert, run  # noqa: E402 - beside

ARCHIVE = ROOT / "fixtures" / "ftrace-raw" / "minimal.tar.xz"
# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
EVENTS = 1862  # of the shipped recording


class Repeated:
    """Pages that follow one another again and again, each time later."""

    def __init__(self, once: bytes, lasted: int, times: int) -> None:
        self.once, self.lasted, self.times = once, lasted, times

    def __len__(self) -> int:
        """Return how many bytes all of them have."""
        return self.times * len(self.once)

    def __iter__(self) -> Iterator[bytes]:
        """Yield them."""
        for number in range(self.times):
            for at in range(0, len(self.once), PAGE):
                begin = int.from_bytes(self.once[at : at + 8], "little") + number * self.lasted
                yield begin.to_bytes(8, "little") + self.once[at + 8 : at + PAGE]


def write_large(place: Path, raw: Path, events: int) -> int:
    """Write a file; return how many events it has."""
    about = json.loads((raw / "raw.json").read_text())
    lasted, times = about["end"] - about["begin"] + 1, max(1, events // EVENTS)
    trace = wrap_raw(raw, options=[(UNAME, b"Linux box 6.18 x86_64\0")])
    once = trace.buffers[0].cpus
    trace.buffers = [Buffer({cpu: Repeated(of, lasted, times) for cpu, of in once.items()})]
    with place.open("wb") as stream:
        for piece in trace.pieces_6():
            stream.write(piece)
    return EVENTS * times


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000, help="in turns with trace-cmd")
    parser.add_argument("--largest", type=int, default=20_000_000, help="of which the memory is")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if not shutil.which("trace-cmd"):
        print("trace.dat: left out, it needs trace-cmd")
        return 0
    met, ratios = True, []
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        with tarfile.open(ARCHIVE) as tar:
            tar.extractall(place, **DATA_ONLY)  # noqa: S202 - an archive of our own
        file = place / "trace.dat"
        events = write_large(file, place / "minimal", asked.events)
        print(f"{events:,} events, {file.stat().st_size / 1e6:,.0f} MB", flush=True)
        for _ in range(asked.rounds):
            theirs = run(["trace-cmd", "report", "-i", str(file)])
            ours = convert(file, place)
            ratios.append(theirs[0] / ours[0])
            print(
                f"trace-cmd report {events / theirs[0] / 1e6:.2f} M events/s, critpath convert"
                f" {events / ours[0] / 1e6:.2f} M events/s: {ratios[-1]:.1f} times"
                f" ({theirs[1] / ours[1]:.1f} by the time on a cpu)",
                flush=True,
            )
        middle = statistics.median(ratios)
        met &= middle >= WANTED
        print(f"median {middle:.1f} times; wanted {WANTED:g}")
        if asked.largest:
            events = write_large(file, place / "minimal", asked.largest)
            size = file.stat().st_size
            seconds, _, memory = convert(file, place)
            met &= memory < MEMORY
            print(
                f"{events:,} events, {size / 1e6:,.0f} MB: {seconds:.1f} s,"
                f" {memory} MiB; wanted less than {MEMORY}"
            )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
