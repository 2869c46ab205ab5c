"""Events a second of the conversion from raw pages, as a ratio to babeltrace2 reading them.

    python evaluation/benchmarks/convert_speed.py [--rounds 7] [--copies 400]

The shipped raw recording many times over, some 0.7 M events with 400 copies. The conversion has
to be faster than babeltrace2 is in reading what it makes: else exit code 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from measuring import run

from critpath_record.ftrace.convert import convert

ARCHIVE = Path(__file__).resolve().parents[2] / "fixtures" / "ftrace-raw" / "minimal.tar.xz"
# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
# Pages begin with their time: copies of a recording are one that lasted longer.
PAGE = 4096


def make_raw(home: Path, copies: int) -> Path:
    """Write the shipped raw recording, so many times over."""
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(home, **DATA_ONLY)  # noqa: S202 - an archive of our own
    directory = home / "minimal"
    about = json.loads((directory / "raw.json").read_text())
    lasted = about["end"] - about["begin"] + 1
    for cpu in about["cpus"]:
        once = (directory / f"cpu{cpu}").read_bytes()
        with (directory / f"cpu{cpu}").open("wb") as stream:
            for copy in range(copies):
                for at in range(0, len(once), PAGE):
                    begin = int.from_bytes(once[at : at + 8], "little") + copy * lasted
                    stream.write(begin.to_bytes(8, "little") + once[at + 8 : at + PAGE])
    about["end"] += copies * lasted
    (directory / "raw.json").write_text(json.dumps(about))
    (directory / "stats.json").unlink()
    return directory


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--copies", type=int, default=400, help="of the shipped recording")
    given = parser.parse_args()
    if not shutil.which("babeltrace2"):
        print("conversion: left out, it needs babeltrace2")
        return 0
    ours, elapsed, theirs, events = [], [], [], 0
    with tempfile.TemporaryDirectory(prefix="critpath-convert-") as scratch:
        raw = make_raw(Path(scratch), given.copies)
        for number in range(given.rounds):
            trace = Path(scratch) / str(number)
            cpu, begin = time.process_time(), time.perf_counter()
            events = convert(raw, trace, lambda _: None).events
            ours.append(time.process_time() - cpu)
            elapsed.append(time.perf_counter() - begin)
            theirs.append(run(["babeltrace2", str(trace), "-o", "dummy"]).cpu)
            shutil.rmtree(trace)
    mine, its = statistics.median(ours), statistics.median(theirs)
    print(
        f"raw pages to CTF: {events:,} events; {events / mine / 1e6:.1f} M/s of CPU,"
        f" {events / statistics.median(elapsed) / 1e6:.1f} M/s elapsed;"
        f" babeltrace2 -o dummy on the result {events / its / 1e6:.2f} M/s of CPU,"
        f" ratio {its / mine:.1f}"
    )
    return int(mine >= its)


if __name__ == "__main__":
    sys.exit(main())
