"""Every verb with URLs: what it is given, and what it writes; for a store of any kind."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import critpath

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
REQUESTS = "events:app:request_begin,app:request_end,key=id"
MARKS = f"--execution {REQUESTS}"

# A line of words, and which of them is written there; {NAME} is something of `put_inputs`.
WORKING = (
    f"path {{normal}} {MARKS}",
    f"path {{normal}} {MARKS} --format json",
    "path {normal} --execution windows:{windows}",
    "path {normal} --config {settings}",
    f"compare {{normal}} {{lock}} {MARKS} --html {{new}}/report.html --json {{new}}/a.json",
    f"compare {{normal}} {{lock}} {MARKS} --known {{known}} --known-always",
    "compare {normal} {lock} --config {settings} --known-always",
    "report {answers}/1.json --html {new}/report.html",
    "trend {answers} --html {new}/trend.html",
    "calibrate {normal} --execution process",
    "requests {memcached} --json {new}/requests.json",
    "clocks {memcached} {normal}",
    f"explore {{lock}} {MARKS} -o {{new}}/explore.html",
    f"view {{normal}} {MARKS} -o {{new}}/view.html",
    "top {memcached} --json",
    f"baseline save {{normal}} {MARKS} -o {{new}}/base.json",
    f"export {{normal}} {MARKS} --format speedscope -o {{new}}/speed.json",
    "export {memcached} --execution requests --format sketches -o {new}/sketches",
    f"query {{normal}} {MARKS} --tables",
    "signature {normal} -o {new}/counts.parquet",
    "convert {perf} -o {new}/converted",
    "doctor {normal} --deep",
    "known list {known}",
    "known search {known} {counts}",
    "known check {known}",
    "known groups {known}",
    "known add {known} {counts} --label mine --link {normal}",
)
# Those that work on what this machine does, or write as it goes on.
REFUSED = (
    "record -o {normal} true",
    "ab -o {normal} -- A true -- B true",
    "bisect --good {normal} -- true",
    "demo {normal}",
    "dump {normal}",
    "metrics {normal}",
    "incidents {normal}",
    "record --config {settings} true",
)
# Those that are given no place.
NOTHING = ("mark", "completion")


def put_inputs(
    put: Callable[[Path | bytes, str], str],
    guest: Callable[[str], Path],
    unpack: Callable[[Path], Path],
) -> dict[str, str]:
    """Put what the verbs read on a store; return the URLs. `put` takes what, and its name."""
    normal = guest("normal")
    known = put(FIXTURES / "known" / "team.known", "team.known")
    windows = put(write_windows(normal), "windows.csv")
    memcached = unpack(FIXTURES / "requests" / "memcached.tar.xz")
    answer = critpath.compare(normal, guest("sample-lock"), execution=REQUESTS).to_json()
    for number in (1, 2):
        put(answer.encode(), f"answers/{number}.json")
    return {
        "normal": put(normal, "normal"),
        "lock": put(guest("sample-lock"), "lock"),
        "memcached": put(next(memcached.rglob("critpath.json")).parent, "memcached"),
        "perf": put(
            next(unpack(FIXTURES / "perf-data" / "recorded.tar.xz").rglob("sched.data")), "perf"
        ),
        "counts": put(FIXTURES / "known" / "unknown", "counts"),
        "known": known,
        "windows": windows,
        "settings": put(
            f'known = "{known}"\nexecution = "windows:{windows}"\n'.encode(), "settings.toml"
        ),
        "answers": known.replace("team.known", "answers"),
        "new": known.replace("team.known", "new"),
    }


def write_windows(recording: Path) -> bytes:
    """Return its requests as a file of windows."""
    of = critpath.extract(recording, execution=REQUESTS).executions
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("begin_ns", "end_ns", "tid"))
    writer.writerows(zip(of.begin.tolist(), of.end.tolist(), of.tid.tolist(), strict=True))
    return text.getvalue().encode()
