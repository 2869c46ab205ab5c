"""Dumps and saved paths of many hosts, simulated from recorded ones.

What a server did is in ``fixtures/requests``: `repeat_recording` makes an hour of the recording of
memcached (320 requests), again and again at drawn moments; `draw_paths` draws requests of
nginx, gunicorn and PostgreSQL (788, with their critical paths), each with durations of its own.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final

import numpy as np

import critpath
from critpath.model import Executions, PathSet, State
from critpath.model.requests import RequestFacts

REQUESTS: Final = Path(__file__).resolve().parents[2] / "fixtures" / "requests"
HOUR: Final = 3600 * 10**9  # ns
OF_MEMCACHED: Final = 320  # requests in its recording
_STEP: Final = 1 << 27  # ns: short timestamps of events stay as they are
_PACKET: Final = struct.Struct("<5Q")  # after the header: begin, end, bits, those in all, number
_HEADER: Final = 32  # bytes
_LONG: Final = re.compile(rb"\x1f.\0\0\0(.{8})", re.DOTALL)  # an event's header with a whole time
_AT_ONCE: Final = 20_000  # requests that are drawn together
_NOISE: Final = 0.1  # of the logarithm of durations, of each segment
_BETWEEN: Final = 0.05  # and of each host
# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY: Final = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def repeat_recording(place: Path, requests: int, seed: int) -> None:
    """Write a dump of an hour in which memcached is asked at least so often."""
    rng = np.random.default_rng(seed)
    with tarfile.open(REQUESTS / "memcached.tar.xz") as tar:
        tar.extractall(place, **DATA_ONLY)  # noqa: S202 - an archive of our own
    (made,) = place.iterdir()
    about = json.loads((made / "critpath.json").read_text())
    lasted = (about["end"] - about["begin"]) // _STEP + 2
    times = -(-requests // OF_MEMCACHED)
    free = max(HOUR // _STEP - times * lasted, 0)
    later = (np.sort(rng.integers(0, free + 1, times)) + lasted * np.arange(times)) * _STEP
    later -= later[0]  # what was there when recording began is listed before the first
    for stream in sorted((made / "trace" / "kernel").glob("kernel_*")):
        once = stream.read_bytes()
        with stream.open("wb") as out:
            number = count()
            for by in later.tolist():
                out.write(b"".join(_move_packets(once, by, number)))
    about["end"] += int(later[-1])
    for name in ("machine", "streams"):  # of one repetition only
        about.pop(name, None)
    about["recorder"].pop("event_count", None)
    about["runs"] = []
    (made / "critpath.json").write_text(json.dumps(about))
    for entry in list(made.iterdir()):
        shutil.move(entry, place)
    made.rmdir()


def _move_packets(stream: bytes, by: int, numbers: Iterator[int]) -> Iterator[bytes]:
    """Yield the packets of a stream, so much later, numbered on."""
    at = 0
    while at < len(stream):
        begin, end, content, whole, _ = _PACKET.unpack_from(stream, at + _HEADER)

        def move(found: re.Match[bytes], begin: int = begin, end: int = end) -> bytes:
            time = int.from_bytes(found[1], "little")
            if not begin <= time <= end:
                return found[0]
            return found[0][:5] + (time + by).to_bytes(8, "little")

        first = at + _HEADER + _PACKET.size
        about = begin + by, end + by, content, whole, next(numbers)
        yield stream[at : at + _HEADER] + _PACKET.pack(*about)
        at += whole // 8
        yield _LONG.sub(move, stream[first:at])


def draw_paths(requests: int, host: int, *, slower: float = 1.0) -> Iterator[PathSet]:
    """Draw what a host answered in an hour; waiting for a CPU takes so many times as long."""
    recorded = critpath.load(REQUESTS / "shop.paths")
    rng = np.random.default_rng(host)
    speed = rng.lognormal(0, _BETWEEN)
    arrived = np.sort(rng.integers(0, HOUR, requests)) + int(recorded.executions.begin.min())
    for first in range(0, requests, _AT_ONCE):
        begin = arrived[first : first + _AT_ONCE]
        names = tuple(f"web-{host}:{first + number}" for number in range(len(begin)))
        yield _draw(recorded, begin, names, rng, speed, slower)


def _draw(
    recorded: PathSet,
    begin: np.ndarray,
    names: tuple[str, ...],
    rng: np.random.Generator,
    speed: float,
    slower: float,
) -> PathSet:
    """Draw requests that arrive at these moments."""
    found = recorded.take(rng.integers(0, len(recorded), len(begin)))
    paths = found.paths
    drawn = speed * rng.lognormal(0, _NOISE, len(paths.begin))
    drawn *= np.where(paths.state == State.WAIT_CPU, slower, 1.0)
    lasted = np.maximum(np.rint(paths.duration * drawn), 1).astype(np.int64)
    ends = np.cumsum(lasted)
    before = np.concatenate([[0], ends])[paths.start]
    ends += np.repeat(begin - before[:-1], np.diff(paths.start))
    return replace(
        found,
        executions=replace(
            found.executions,
            id=names,
            begin=begin,
            end=begin + np.diff(before),
            requests=_stretch(found.executions, np.diff(before)),
        ),
        paths=replace(paths, begin=ends - lasted, end=ends),
    )


def _stretch(of: Executions, duration: np.ndarray) -> RequestFacts | None:
    """Return what is known of requests that take so long instead; what asked is another then."""
    facts = of.requests
    if facts is None:
        return None
    factor = duration / of.duration
    asked, queued = (
        np.floor(each * factor).astype(np.int64) for each in (facts.asked_ns, facts.queued_ns)
    )
    return replace(
        facts,
        parent=("",) * len(duration),
        asked_ns=asked,
        queued_ns=queued,
        true_ns=duration - asked,
    )
