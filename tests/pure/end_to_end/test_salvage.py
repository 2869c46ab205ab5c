"""A recording that is damaged: what can be read is read, and the rest is a loss in its place.

The guest's recording with the fault ``lock`` is damaged as files get damaged, once before
its last request began and once after all of them have ended, and the whole command is run.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fuzz"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mutate_seeds import get, put, split, walk

from critpath.read.traces import find_traces

REQUESTS = "events:app:request_begin,app:request_end,key=id"
KERNEL = "trace/kernel/kernel_{}"
UST = "trace/ust/uid/0/64-bit/ust_{}"
MS = 1_000_000
OK, ANOMALY, INCONCLUSIVE, UNREADABLE = 0, 1, 3, 4


class Damaged:
    """The recording in packets of 10 ms and more, to be damaged."""

    def __init__(self, whole: Path, into: Path):
        self.whole, self.into = whole, into
        rows = [r.split(",") for r in (whole / "truth.csv").read_text().splitlines()[1:]]
        self.windows = {r[0]: (int(r[4]), int(r[5])) for r in rows}
        self.begin = min(b for b, _ in self.windows.values())
        self.end = max(e for _, e in self.windows.values())
        self.files, self.places = {}, {}
        times = [*range(self.begin - 10 * MS, self.end + 5 * MS, 20 * MS), self.end + 5 * MS]
        for trace in find_traces(whole):
            for path in trace.files:
                name = str(path.relative_to(whole))
                data = path.read_bytes()
                if trace.domain == "kernel":
                    data = split(data, walk(trace.schema, data), times)
                self.files[name] = data
                self.places[name] = walk(trace.schema, data)

    def packet(self, name: str, time: int):
        """Return the packet of a file in which a time lies."""
        data = self.files[name]
        return next(p for p in self.places[name] if get(data, p.fields["timestamp_end"]) >= time)

    def write(self, name: str, data: bytes | None) -> Path:
        """Write the recording with one file that is damaged, or none."""
        shutil.rmtree(self.into, ignore_errors=True)
        shutil.copytree(self.whole, self.into)
        for other, good in self.files.items():
            (self.into / other).write_bytes(good)
        if data is None:
            (self.into / name).unlink()
        else:
            (self.into / name).write_bytes(data)
        return self.into


@pytest.fixture(scope="module")
def damaged(guest, tmp_path_factory):
    return Damaged(guest("sample-lock"), tmp_path_factory.mktemp("damaged") / "recording")


# --------------------------------------------------------------- how files get damaged


def truncated(of, name, time):
    place = of.packet(name, time)
    return of.files[name][: (place.begin + place.content) // 16]


def without_packet(of, name, time):
    place = of.packet(name, time)
    return of.files[name][: place.begin // 8] + of.files[name][place.end // 8 :]


def cut_after_packet(of, name, time):
    return of.files[name][: of.packet(name, time).begin // 8]


def crashed(of, name, time):
    """The packet that was written when the tracer died: lttng-crash sets its sizes."""
    place = of.packet(name, time)
    data = bytearray(of.files[name][: place.end // 8])
    put(data, place.fields["timestamp_end"], 0)
    return bytes(data)


def half_written(of, name, time):
    """The same where nothing of its second half has reached the disk."""
    place = of.packet(name, time)
    data = bytearray(crashed(of, name, time))
    middle = (place.begin + place.content) // 16
    data[middle:] = bytes(len(data) - middle)
    return bytes(data)


def stale_end(of, name, time):
    """Its end is that of the packet before."""
    place = of.packet(name, time)
    data = bytearray(of.files[name][: place.end // 8])
    before = of.places[name][of.places[name].index(place) - 1]
    put(data, place.fields["timestamp_end"], get(data, before.fields["timestamp_end"]) - 1)
    return bytes(data)


def no_sizes(of, name, time, value=0):
    """Its sizes were never written."""
    place = of.packet(name, time)
    data = bytearray(of.files[name][: place.end // 8])
    for field in ("content_size", "packet_size", "timestamp_end"):
        put(data, place.fields[field], value)
    return bytes(data)


def all_ones(of, name, time):
    return no_sizes(of, name, time, (1 << 64) - 1)


def stale_sizes(of, name, time):
    place = of.packet(name, time)
    data = bytearray(of.files[name])
    before = of.places[name][of.places[name].index(place) - 1]
    for field in ("content_size", "packet_size"):
        put(data, place.fields[field], get(data, before.fields[field]))
    return bytes(data)


def clock_between(of, name, time, jump=-300 * MS):
    """From a packet on, the clock is another."""
    data = bytearray(of.files[name])
    first = of.places[name].index(of.packet(name, time))
    for place in of.places[name][first:]:
        for field in ("timestamp_begin", "timestamp_end"):
            put(data, place.fields[field], get(data, place.fields[field]) + jump)
    return bytes(data)


def clock_forwards(of, name, time):
    return clock_between(of, name, time, 300 * MS)


def clock_within(of, name, time):
    """An event in the middle of a packet is 60 ms late by its time: so are all that follow."""
    place = of.packet(name, time)
    data = bytearray(of.files[name])
    begin, payload, _ = place.events[len(place.events) // 2]
    assert payload - begin == 32  # a compact header: 5 bits of id, 27 of time
    put(data, (begin, 32), get(data, (begin, 32)) ^ 1 << 31)
    return bytes(data)


DAMAGES = [
    truncated, without_packet, cut_after_packet, crashed, half_written, stale_end, no_sizes,
    all_ones, stale_sizes, clock_between, clock_forwards, clock_within,
]  # fmt: skip


def paths_of(done) -> dict[str, dict]:
    return {d["execution"]: d for d in map(json.loads, done.stdout.splitlines())}


def shown(run, recording: Path) -> dict[str, dict]:
    """Return what ``critpath path`` has to tell of every request."""
    done = run("path", recording, "--execution", REQUESTS, "--format", "json")
    assert done.returncode == OK, done.stderr
    return paths_of(done)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_what_is_lost_lies_in_its_place(critpath, damaged, damage):
    """Requests that ended before the damage are not touched by it; those during it are."""
    middle = damaged.end - 15 * MS
    name = KERNEL.format(1)
    where = damaged.packet(name, middle)
    data = damaged.files[name]
    low, high = (get(data, where.fields[f"timestamp_{x}"]) for x in ("begin", "end"))
    found = shown(critpath, damaged.write(name, damage(damaged, name, middle)))
    assert found.keys() == damaged.windows.keys()
    marked = {one for one, d in found.items() if d["loss"]["packets"]}
    # What was never finished is right as far as it goes.
    since = high if damage is crashed else (low + high) // 2
    hit = {one for one, (b, e) in damaged.windows.items() if b < high and e > since}
    spared = {one for one, (_, e) in damaged.windows.items() if e < low - 30 * MS}
    assert hit
    assert spared
    assert hit <= marked
    # A clock that jumped 300 ms back could be wrong anywhere in between.
    assert damage is clock_between or not spared & marked


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_behind_the_last_request_no_loss_matters(critpath, damaged, damage):
    """The verdict stands: what was lost lies behind every execution."""
    name = KERNEL.format(1)
    after = get(damaged.files[name], damaged.places[name][-1].fields["timestamp_end"])
    recording = damaged.write(name, damage(damaged, name, after))
    found = shown(critpath, recording)
    assert found.keys() == damaged.windows.keys()
    marked = {one for one, d in found.items() if d["loss"]["packets"]}
    assert not marked or damage is clock_between


@pytest.mark.parametrize("name", [KERNEL.format(0), UST.format(1)])
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_stream_that_is_missing_is_a_loss_of_all_its_time(critpath, damaged, name, how):
    found = shown(critpath, damaged.write(name, None if how == "gone" else b""))
    assert found
    assert all(d["loss"]["packets"] for d in found.values())


def test_the_verdict_is_inconclusive_only_if_it_matters(critpath, extracted, damaged):
    """Exit code 1 with a harmless loss, 3 with another."""
    options = ("--execution", REQUESTS, "--quiet")
    name = KERNEL.format(1)
    after = get(damaged.files[name], damaged.places[name][-1].fields["timestamp_end"])
    recording = damaged.write(name, truncated(damaged, name, after))
    done = critpath("compare", extracted("normal-2"), recording, *options)
    assert done.returncode == ANOMALY, done.stdout + done.stderr
    assert "1 packet" in done.stdout
    recording = damaged.write(name, truncated(damaged, name, damaged.end - 15 * MS))
    done = critpath("compare", extracted("normal-2"), recording, *options)
    assert done.returncode == INCONCLUSIVE, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert re.match(
        r"\? INCONCLUSIVE The after recording lost packets in \d+ % of its requests ", said
    )
    assert re.search(
        r"⚠ The recording after lost \d+ packets?: \d+ of \d+ requests touched\.", said
    )


def test_extract_says_what_was_lost(critpath, damaged, tmp_path):
    name = KERNEL.format(0)
    recording = damaged.write(name, truncated(damaged, name, damaged.end - 15 * MS))
    out = tmp_path / "paths.parquet"
    done = critpath("export", "--format", "paths", recording, "--execution", REQUESTS, "-o", out)
    assert done.returncode == OK
    assert " lost or damaged (truncated: trace/kernel/kernel_0 ends within" in done.stderr
    assert " overlap a loss" in done.stderr


def test_nothing_that_can_be_read_is_an_error(critpath, damaged):
    name = KERNEL.format(0)
    recording = damaged.write(name, b"")
    for path in recording.rglob("*_[01]"):
        path.write_bytes(path.read_bytes()[:40])
    done = critpath("path", recording, "--execution", REQUESTS)
    assert done.returncode == UNREADABLE
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize(
    "value",
    [
        *((1 << 64) - 1, 1 << 62),
        *(pytest.param(n, marks=pytest.mark.deep) for n in ((1 << 63) - 1, 1 << 63, 1 << 61)),
    ],
)
def test_whatever_a_packet_says_its_paths_can_be_saved(critpath, damaged, tmp_path, value):
    name = KERNEL.format(0)
    for number in (0, len(damaged.places[name]) // 2, -1):
        data = bytearray(damaged.files[name])
        for field in ("timestamp_end", "events_discarded", "packet_seq_num", "timestamp_begin"):
            place = damaged.places[name][number].fields[field]
            before = get(data, place)
            put(data, place, value)
            recording = damaged.write(name, bytes(data))
            put(data, place, before)
            out = tmp_path / "paths.parquet"
            done = critpath(
                "export",
                "--format",
                "paths",
                recording,
                "--execution",
                REQUESTS,
                "--force",
                "-o",
                out,
            )
            assert done.returncode == OK, (number, field, done.stderr)
        assert critpath("path", out).returncode == OK
    out = tmp_path / "baseline.json"
    done = critpath("baseline", "save", recording, "--execution", REQUESTS, "-o", out)
    assert done.returncode == OK, done.stderr
    assert critpath("baseline", "show", out).returncode == OK
