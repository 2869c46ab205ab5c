"""The native decoder against its plain twin, on random schemas and broken packets."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle.ctf_decode import Trace as Twin
from oracle.ctf_write import Generator

from critpath.errors import UnreadableError
from critpath.model import EventRequest, Kind
from critpath.read.clocks import Trace
from critpath.read.streaming import read_traces

EVERYTHING = (EventRequest(Kind.OTHER, ("*",), (("*",),)),)


def fields_of(events, row):
    """One event's fields as Python values, by name."""
    of = events.classes[events.event_class[row]]
    start = int(events.offset[row])
    result = {}
    for name, kind, value in zip(
        of.fields, of.types, events.values[start : start + len(of.fields)].tolist(), strict=True
    ):
        if kind == "str":
            result[name] = events.strings[value]
        elif kind == "float":
            result[name] = struct.unpack("<d", struct.pack("<q", value))[0]
        elif kind == "uint":
            result[name] = value % (1 << 64)
        else:
            result[name] = value
    return of, result


def same(ours, theirs, kind):
    if kind == "float":
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    if kind == "int":  # options of either sign share one column
        return (ours - theirs) % (1 << 64) == 0
    return ours == theirs


def compare(schema, files, directory):
    """Decode with both; every event, value and damaged packet must agree."""
    paths = []
    for number, data in enumerate(files):
        path = directory / f"stream_{number}"
        path.write_bytes(data)
        paths.append(path)
    trace = Trace("t", directory, tuple(paths), schema)
    twin = Twin(schema)
    frequency = schema.clocks["c"].frequency
    expected, damaged = [], 0
    for data in files:
        decoded = twin.file(data)
        expected += decoded.events
        damaged += sum(bad for _, bad in decoded.packets)
    try:
        events = read_traces([trace], EVERYTHING)
    except UnreadableError:
        assert not expected
        return 0
    assert events.total == len(expected)
    assert (
        len([x for x in events.losses if x.reason.split(":")[0] in {"damaged", "truncated"}])
        == damaged
    )
    times = [min(e.timestamp * 10**9 // frequency, (1 << 63) - 1) for e in expected]
    order = np.argsort(np.array(times, np.int64), kind="stable")
    assert events.timestamp.tolist() == [times[i] for i in order]
    for row, place in enumerate(order.tolist()):
        event = expected[place]
        of, values = fields_of(events, row)
        assert of.name == event.name
        cpu = event.cpu if event.cpu < 1 << 31 else -1
        assert events.cpu[row] == cpu
        for name, kind in zip(of.fields, of.types, strict=True):
            if name in event.fields:
                theirs = event.fields[name]
                assert same(values[name], theirs, kind), (name, values[name], theirs)
            else:
                assert values[name] == ("" if kind == "str" else 0)
        assert set(event.fields) <= set(of.fields)
    return len(expected)


def written(seed):
    """A schema and two stream files of a few packets."""
    make = Generator(seed)
    schema = make.schema()
    files = []
    for _ in range(2):
        clock, data = make.rng.randrange(1 << 40), b""
        for _ in range(make.rng.randint(1, 3)):
            packet, clock = make.packet(schema, clock, make.rng.randint(0, 6))
            data += packet
        files.append(data)
    return make.rng, schema, files


quiet = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@quiet
@given(st.integers(0, 1 << 32))
def test_random_schemas_decode_as_the_twin_does(tmp_path: Path, seed: int):
    _, schema, files = written(seed)
    compare(schema, files, tmp_path)


@quiet
@given(st.integers(0, 1 << 32))
def test_broken_packets_lose_what_the_twin_loses(tmp_path: Path, seed: int):
    rng, schema, files = written(seed)
    broken = []
    for data in files:
        damaged = bytearray(data)
        for _ in range(rng.choice([1, 2, 8])):
            how = rng.random()
            if how < 0.6 and damaged:
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            elif how < 0.8:
                del damaged[rng.randrange(len(damaged) + 1) :]
            else:
                damaged += rng.randbytes(rng.randrange(64))
        broken.append(bytes(damaged))
    compare(schema, broken, tmp_path)


@pytest.mark.parametrize("seed", range(40))
def test_noise_neither_crashes_nor_hangs(tmp_path: Path, seed: int):
    rng = random.Random(seed)  # noqa: S311 - test data
    _, schema, _ = written(seed)
    compare(schema, [rng.randbytes(rng.randrange(4000)) for _ in range(2)], tmp_path)


def test_the_generator_writes_events_that_are_read(tmp_path: Path):
    assert sum(compare(*written(seed)[1:], tmp_path) for seed in range(30)) > 100
