"""Events a second of the conversion from raw pages, as a ratio to babeltrace2 reading them."""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from critpath.record.ftrace.convert import convert

pytestmark = pytest.mark.benchmark
ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / "fixtures" / "ftrace-raw" / "minimal.tar.xz"
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
ROUNDS = 7
COPIES = 400
# Pages begin with their time: copies of a recording are one that lasted longer.
PAGE = 4096


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """Return the shipped raw recording, many times over: some 0.7 M events."""
    home = tmp_path_factory.mktemp("raw")
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(home, **DATA_ONLY)  # noqa: S202 - an archive of our own
    directory = home / "minimal"
    about = json.loads((directory / "raw.json").read_text())
    lasted = about["end"] - about["begin"] + 1
    for cpu in about["cpus"]:
        once = (directory / f"cpu{cpu}").read_bytes()
        with (directory / f"cpu{cpu}").open("wb") as stream:
            for copy in range(COPIES):
                for at in range(0, len(once), PAGE):
                    begin = int.from_bytes(once[at : at + 8], "little") + copy * lasted
                    stream.write(begin.to_bytes(8, "little") + once[at + 8 : at + PAGE])
    about["end"] += COPIES * lasted
    (directory / "raw.json").write_text(json.dumps(about))
    (directory / "stats.json").unlink()
    return directory


def babeltrace2_seconds(path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["babeltrace2", str(path), "-o", "dummy"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.skipif(not shutil.which("babeltrace2"), reason="needs the babeltrace2 command")
def test_conversion_against_reading_with_babeltrace2(raw, tmp_path, capsys):
    ours, elapsed, theirs, events = [], [], [], 0
    for number in range(ROUNDS):
        trace = tmp_path / str(number)
        cpu, begin = time.process_time(), time.perf_counter()
        events = convert(raw, trace, lambda _: None).events
        ours.append(time.process_time() - cpu)
        elapsed.append(time.perf_counter() - begin)
        theirs.append(babeltrace2_seconds(trace))
        shutil.rmtree(trace)
    mine, its = statistics.median(ours), statistics.median(theirs)
    with capsys.disabled():
        sys.stdout.write(
            f"\nraw pages to CTF: {events:,} events; {events / mine / 1e6:.1f} M/s of CPU,"
            f" {events / statistics.median(elapsed) / 1e6:.1f} M/s elapsed;"
            f" babeltrace2 -o dummy on the result {events / its / 1e6:.2f} M/s of CPU,"
            f" ratio {its / mine:.1f}\n"
        )
    assert mine < its
