"""A recording read as a stream has the events that it has when it is read at once."""

from __future__ import annotations

import itertools
import resource
import struct
import threading
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle.ctf_write import Generator
from pure.read.test_decode_packets import (
    CONTEXT,
    EVENT_HEADER,
    HEADER,
    TEXT,
    VALUES,
    clocked,
    integer,
    other,
    packet,
    schema,
    structure,
    tick,
    trace,
)

from critpath.errors import UnreadableError
from critpath.model import EventChunk, EventRequest, Kind
from critpath.read.clocks import Trace
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.metadata.schema import (
    ArrayClass,
    ClockClass,
    EventRecordClass,
    StreamClass,
    StringClass,
    TraceClass,
)
from critpath.read.streaming import EventStream, OutOfOrder, read_traces, split_into_chunks
from critpath.read.traces import find_traces

EVERYTHING = (EventRequest(Kind.OTHER, ("*",), (("*",),)),)
PUBLIC = [
    "bt-multi-domains",
    "bt-tracefile-rotation",
    "cb-nodes-pipeline",
    "selora-namespace_live",
    "selora-old_trace",
    "tc-bug446190",
    "tc-many-threads",
    "tc-uneven-streams-PARTIAL",
]


class Content:
    """What rows hold, whatever number their classes and strings have."""

    def __init__(self):
        self.codes = {}
        self.classes = {}

    def of(self, chunks, classes, strings):
        """Timestamp, cpu and class of every row, and each class's matrix of values."""
        texts = np.array([self.codes.setdefault(s, len(self.codes)) for s in strings], np.int64)
        known = [self.classes.setdefault(c, len(self.classes)) for c in classes]
        names = np.array(known or [0], np.int64)
        rows = [(c.timestamp, c.cpu.astype(np.int64), names[c.event_class]) for c in chunks]
        columns = [np.concatenate([r[i] for r in rows]) for i in range(3)]
        values = {}
        for index, event_class in enumerate(classes):
            places = np.arange(len(event_class.fields))
            parts = [c.values[c.offset[c.event_class == index][:, None] + places] for c in chunks]
            matrix = np.concatenate(parts)
            for place, kind in enumerate(event_class.types):
                if kind == "str":
                    matrix[:, place] = texts[matrix[:, place]]
            values.setdefault(known[index], []).append(matrix)
        return columns, values


def copied(chunk):
    """A chunk that still holds when the next one is there."""
    return EventChunk(*(getattr(chunk, name).copy() for name in EventChunk.__slots__))


def streamed(traces, wanted, size, ahead=0):
    with EventStream(traces, wanted, size, ahead=ahead) as stream:
        chunks = [copied(chunk) for chunk in stream]
        rest = stream.finish()
    assert len(rest) == len(rest.values) == 0
    assert all(1 <= len(chunk) <= size for chunk in chunks)
    return chunks, rest


def assert_made_ahead(traces, wanted, size, chunks, rest):
    """What a thread in the background decodes is the same, number by number."""
    before = threading.active_count()
    mine, its = streamed(traces, wanted, size, ahead=2)
    assert threading.active_count() == before
    assert len(mine) == len(chunks)
    for one, two in zip(mine, chunks, strict=True):
        for name in EventChunk.__slots__:
            assert np.array_equal(getattr(one, name), getattr(two, name))
    for name in (f.name for f in fields(rest)):
        if name == "gaps":
            assert len(its.gaps) == len(rest.gaps) == 0
        elif not isinstance(getattr(rest, name), np.ndarray):
            assert getattr(its, name) == getattr(rest, name), name


def assert_same(traces, wanted, size):
    """Compare a stream with what is read at once; the number of chunks."""
    whole = read_traces(traces, wanted)
    chunks, rest = streamed(traces, wanted, size)
    assert_made_ahead(traces, wanted, size, chunks, rest)
    for name in ("hosts", "losses", "clock", "begin", "end", "total", "environment", "warnings"):
        assert getattr(rest, name) == getattr(whole, name), name
    assert sorted(map(repr, rest.classes)) == sorted(map(repr, whole.classes))
    assert sorted(rest.strings) == sorted(whole.strings)
    assert sum(map(len, chunks)) == len(whole)
    if not chunks:
        return 0
    content = Content()
    columns, values = content.of(chunks, rest.classes, rest.strings)
    expected, matrices = content.of(list(split_into_chunks(whole)), whole.classes, whole.strings)
    for mine, its in zip(columns, expected, strict=True):
        assert np.array_equal(mine, its)
    assert set(values) == set(matrices)
    for key, parts in values.items():
        assert np.array_equal(np.concatenate(parts), np.concatenate(matrices[key]))
    return len(chunks)


def but_slow(names, sizes, slow):
    """Return every name with every size; the slow one of them is deep."""
    return [
        pytest.param(*of, marks=pytest.mark.deep if of == slow else ())
        for of in itertools.product(names, sizes)
    ]


@pytest.mark.parametrize(
    ("name", "size"),
    but_slow(["full", "lossy", "python", "sample-lock"], [7, 1000, 65536], slow=("full", 7)),
)
def test_guest_recordings(guest, name, size):
    traces = find_traces(guest(name))
    assert assert_same(
        traces, (*KERNEL_EVENTS, EventRequest(Kind.OTHER, ("app:*",), (("*",),))), size
    )


@pytest.mark.parametrize("size", [1000, 65536])
@pytest.mark.parametrize("name", PUBLIC)
def test_public_traces(shared, name, size):
    assert_same(find_traces(shared(f"public/{name}")), KERNEL_EVENTS, size)


@pytest.mark.parametrize(
    ("name", "size"),
    but_slow(["bt-multi-domains", "cb-nodes-pipeline"], [1, 7], slow=("bt-multi-domains", 1)),
)
def test_every_field_of_small_traces(shared, name, size):
    assert assert_same(find_traces(shared(f"public/{name}")), EVERYTHING, size) > 100


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_ties_keep_the_order_of_traces_and_files(tmp_path, size):
    def files(first):
        return {
            "a": packet(10, 40, [tick(10, first), tick(20, 2), tick(20, 3), tick(40, 4)], cpu=0),
            "b": packet(5, 40, [tick(5, 5), tick(20, 6), other(25), tick(40, 7)], cpu=1),
            "c": packet(20, 20, [tick(20, 8)], cpu=2),
        }

    one = trace(tmp_path / "1", files(1), clocked(0, "u"), "1")
    two = trace(tmp_path / "2", files(11), clocked(0, "u"), "2")
    assert_same([one, two], VALUES, size)
    chunks, _ = streamed([one, two], VALUES, size)
    at_20 = [c.values[o] for c in chunks for o in c.offset[c.timestamp == 20].tolist()]
    assert at_20 == [2, 3, 6, 8, 2, 3, 6, 8]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_clocks_that_differ(tmp_path, size):
    one = trace(tmp_path / "k", {"s": packet(0, 9, [tick(5, 1)])}, clocked(1000, "u"), "k")
    two = trace(tmp_path / "u", {"s": packet(0, 9, [tick(6, 2)])}, clocked(400, "v", 10**8), "u")
    three = trace(tmp_path / "w", {"s": packet(0, 9, [tick(6, 2)])}, clocked(990, "w"), "w")
    assert_same([one, two, three], VALUES, size)


def test_the_last_moment_there_is(tmp_path):
    clock = ClockClass("c", frequency=1000, uuid="one")  # far times end at the greatest number
    far = 1 << 62
    files = {
        name: packet(far, far + 9, [tick(far, n), tick(far + 5, n)], cpu=n)
        for n, name in enumerate("abcde")
    }
    assert_same([trace(tmp_path, files, schema(clock))], VALUES, 3)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_times_that_are_centuries_apart(tmp_path, size):
    """Further than the keys of a merge reach: equal times stand in the order of files."""
    far = [0, 1, 1 << 40, 1 << 58, (1 << 58) + 1, 1 << 59, 1 << 61, 1 << 62, (1 << 63) - 9]
    files = {
        f"s{n:02}": b"".join(
            packet(at, at + 8, [tick(at, n), tick(at + n % 3, n)], cpu=n, seq=i)
            for i, at in enumerate(far[n % 4 :: 1 + n % 3])
        )
        for n in range(9)
    }
    assert_same([trace(tmp_path, files)], VALUES, size)
    assert_same([trace(tmp_path, {"s00": files["s00"]})], VALUES, size)


@pytest.mark.parametrize("files", [1, 3, 70])
def test_more_events_than_a_batch(tmp_path, files):
    count = 30_000
    every = [tick(10 * i, i, b"c%d" % (i % 3000)) for i in range(count)]
    data = {
        f"s{n}": b"".join(
            packet(0, 10 * count, every[n::files][at : at + 500], cpu=n, seq=at // 500)
            for at in range(0, len(every[n::files]), 500)
        )
        for n in range(files)
    }
    assert assert_same([trace(tmp_path, data)], VALUES, 4096) == -(-count // 4096)


def test_time_that_runs_backwards_is_refused_with_the_file(tmp_path):
    back = packet(300, 400, [tick(300), tick(400)]) + packet(100, 200, [tick(100), tick(200)])
    files = {"a": packet(0, 1, [tick(0), tick(1)]), "b": back}
    with EventStream([trace(tmp_path, files)], VALUES) as stream:
        with pytest.raises(OutOfOrder, match="within t/b"):
            list(stream)
        assert list(stream) == []


def test_time_that_runs_backwards_from_one_batch_to_the_next(tmp_path):
    many = [tick(10 * i) for i in range(9000)]
    data = packet(0, 90000, many) + packet(89980, 89985, [tick(89985)])
    with (
        EventStream([trace(tmp_path, {"s": data})], VALUES, 100) as stream,
        pytest.raises(OutOfOrder),
    ):
        for _ in stream:
            pass


def test_packets_that_overlap_while_their_events_do_not(tmp_path):
    data = packet(0, 200, [tick(10), tick(20)]) + packet(100, 300, [tick(210)], seq=1)
    assert_same([trace(tmp_path, {"s": data})], VALUES, 10)


def test_losses_and_damage(tmp_path):
    bad = packet(200, 300, [tick(210, 2), b"\x07" + tick(220)[1:]], seq=1)
    files = {
        "a": packet(0, 100, [tick(50, 1)], seq=0) + bad + packet(400, 500, [tick(450, 3)], seq=9),
        "b": packet(0, 100, [tick(n, n) for n in range(50)], discarded=7, padding=0)[:-1],
        "c": b"",
        "d": b"no packet",
    }
    of = trace(tmp_path, files)
    assert_same([of], VALUES, 8)
    assert {x.reason.split(":")[0] for x in streamed([of], VALUES, 8)[1].losses} == {
        "damaged",
        "discarded",
        "packets lost",
        "truncated",
    }


def test_no_event_is_an_error_at_the_end(tmp_path):
    for data in (packet(0, 1, [tick(1)], magic=5), packet(0, 1, []), b""):
        of = trace(tmp_path, {"s": data})
        with pytest.raises(UnreadableError) as whole:
            read_traces([of], VALUES)
        with EventStream([of], VALUES) as stream:
            assert list(stream) == []
            with pytest.raises(UnreadableError) as mine:
                stream.finish()
        assert str(mine.value) == str(whole.value)


def test_no_event_that_was_asked_for(tmp_path):
    of = trace(tmp_path, {"s": packet(0, 1, [other(1)])})
    assert assert_same([of], VALUES, 10) == 0


def test_a_file_that_is_not_there(tmp_path):
    of = trace(tmp_path, {"a": packet(0, 1, [tick(1)]), "b": packet(0, 1, [tick(1)])})
    (tmp_path / "b").unlink()
    with pytest.raises(UnreadableError) as whole:
        read_traces([of], VALUES)
    with pytest.raises(UnreadableError) as mine:
        EventStream([of], VALUES)
    assert str(mine.value) == str(whole.value)


def test_a_file_that_goes_away_is_not_taken_for_its_end(tmp_path):
    of = trace(tmp_path, {"a": packet(0, 1, [tick(1)]), "b": packet(0, 1, [tick(1)])})
    with EventStream([of], VALUES) as stream:
        (tmp_path / "b").unlink()
        with pytest.raises(UnreadableError, match="b: No such file"):
            list(stream)


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("limit", [0, 20])
def test_more_files_than_may_be_open(tmp_path, limit):
    count = 300
    files = {
        f"s{n}": packet(0, 10**6, [tick(n + 300 * i, n) for i in range(400)], cpu=n)
        for n in range(count)
    }
    of = trace(tmp_path, files)
    before = descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    stream = EventStream([of], VALUES, 5000)
    if limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + limit, hard))
    try:
        if limit:
            stream = EventStream([of], VALUES, 5000)
        times = np.concatenate([chunk.timestamp.copy() for chunk in stream])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert np.array_equal(times, np.arange(300 * 400))
    assert stream.finish().total == 300 * 400
    assert descriptors() == before


def test_closing_early_leaves_nothing_open(tmp_path):
    files = {f"s{n}": packet(0, 10**6, [tick(i) for i in range(9000)]) for n in range(5)}
    of = trace(tmp_path, files)
    before = descriptors()
    with EventStream([of], VALUES, 10) as stream:
        next(stream)
        assert descriptors() > before
        with pytest.raises(RuntimeError, match="not read to its end"):
            stream.finish()
    assert descriptors() == before
    assert list(stream) == []
    stream = EventStream([of], VALUES, 10)
    next(stream)
    del stream
    assert descriptors() == before


def test_texts_of_the_caller(tmp_path):
    of = trace(tmp_path, {"s": packet(0, 9, [tick(1, 1, b"comm"), tick(2, 1, b"mine")])})
    stream = EventStream([of], VALUES)
    mine = stream.code("mine")
    assert stream.code("") == 0
    assert stream.code("mine") == mine
    assert stream.text(mine) == "mine"
    (chunk,) = stream
    codes = chunk.values[chunk.offset + 1].tolist()
    assert codes[1] == mine
    assert [stream.text(c) for c in codes] == ["comm", "mine"]
    assert stream.code("comm") == codes[0]
    late = stream.code("später")
    assert stream.finish().strings[late] == "später"
    assert list(stream.strings()) == ["", "mine", "comm", "später"]


def test_what_is_known_before_the_first_chunk(tmp_path):
    one = trace(tmp_path / "1", {"s": packet(0, 9, [tick(5, 1)])}, schema(hostname="a"), "1")
    two = trace(tmp_path / "2", {"s": packet(0, 9, [tick(6, 2)])}, schema(hostname="b"), "2")
    stream = EventStream([one, two], VALUES)
    assert stream.hosts == ("a", "b")
    assert [e.hostname for e in stream.environment] == ["a", "b"]
    assert stream.classes == []
    next(stream)
    assert [c.host for c in stream.classes] == [0, 1]


def test_skimming_counts_all(tmp_path):
    of = trace(tmp_path, {"s": packet(0, 9, [tick(5, 1), other(6)])})
    stream = EventStream([of], VALUES)
    stream.skim()
    assert stream.finish().total == 2


def test_an_event_with_more_fields_than_a_chunk_has_room_for(tmp_path):
    wide = structure(**{f"f{n}": integer(8) for n in range(200)})
    stream = StreamClass(
        0, CONTEXT, EVENT_HEADER, None, {0: EventRecordClass("wide", 0, None, wide)}, "c"
    )
    of = TraceClass(HEADER, {0: stream}, {"c": ClockClass("c", uuid="one")})
    events = [struct.pack("<BI", 0, n) + bytes(range(200)) for n in range(40)]
    for size in (1, 3, 1000):
        assert_same([trace(tmp_path, {"s": packet(0, 40, events)}, of)], EVERYTHING, size)


LAYOUTS = {
    "a number": structure(a=integer(16, signed=True)),
    "numbers": structure(**{f"f{n}": integer(8 << n % 4, signed=n % 3 == 0) for n in range(9)}),
    "too many": structure(**{f"f{n}": integer(8) for n in range(13)}),
    "a name": structure(name=ArrayClass(TEXT, 16), tid=integer(32, signed=True)),
    "names": structure(a=ArrayClass(TEXT, 16), b=integer(64), c=ArrayClass(TEXT, 16)),
    "three names": structure(**{f"n{n}": ArrayClass(TEXT, 16) for n in range(3)}),
    "a text": structure(irq=integer(32, signed=True), name=StringClass()),
    "a text alone": structure(name=StringClass()),
    "two texts": structure(a=StringClass(), b=StringClass()),
    "nothing": structure(),
    "another width": structure(name=ArrayClass(TEXT, 15), a=integer(8)),
}


@pytest.mark.parametrize("kind", ["plain", "compact", "large"])
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_events_of_every_shape_are_what_the_twin_says(tmp_path: Path, kind, data):
    """Fields at the very end of a packet and of a file, names of all bytes."""
    from oracle.ctf_decode import Trace as Twin  # noqa: PLC0415 - only here

    of = shaped(kind)
    text = st.binary(max_size=20).map(lambda b: b.replace(b"\0", b"\1"))
    numbers = st.lists(st.integers(0, len(LAYOUTS) - 1), max_size=12)
    clock, body, written = 1000, b"", data.draw(numbers)
    for number in written:
        clock += data.draw(st.integers(0, 1 << 28))
        body += head_of(kind, number, clock, wide=data.draw(st.booleans()))
        for member in list(LAYOUTS.values())[number].members:
            if isinstance(member.field, StringClass):
                body += data.draw(text) + b"\0"
            elif isinstance(member.field, ArrayClass):
                size = member.field.length
                body += data.draw(st.binary(max_size=size)).ljust(size, b"\0")
            else:
                body += data.draw(st.integers(0, (1 << member.field.bits) - 1)).to_bytes(
                    member.field.bits // 8, "little"
                )
    cut = data.draw(st.integers(0, len(body))) if data.draw(st.booleans()) else len(body)
    size = data.draw(st.sampled_from([1, 2, 1000]))
    file = packet(1000, clock, [body[:cut]], padding=0)
    expected = Twin(of).file(file).events
    traces = [trace(tmp_path, {"s": file}, of)]
    if not expected:
        with pytest.raises(UnreadableError):
            read_traces(traces, EVERYTHING)
        return
    assert_same(traces, EVERYTHING, size)
    events = read_traces(traces, EVERYTHING)
    assert events.timestamp.tolist() == [e.timestamp for e in expected]
    for row, event in enumerate(expected):
        c = events.classes[events.event_class[row]]
        found = dict(zip(c.fields, events.values[events.offset[row] :].tolist(), strict=False))
        for name, kind_of in zip(c.fields, c.types, strict=True):
            value = found[name]
            if kind_of == "str":
                value = events.strings[value]
            elif kind_of == "uint":
                value %= 1 << 64
            assert value == event.fields[name], (c.name, name)


def shaped(kind):
    """A trace whose events have every layout, with one of LTTng's event headers or a plain one."""
    make = Generator(0, big=False)
    events = {n: EventRecordClass(t, n, None, p) for n, (t, p) in enumerate(LAYOUTS.items())}
    bits = {"compact": 5, "large": 16}
    header = make.lttng_header(bits[kind]) if kind in bits else EVENT_HEADER
    stream = StreamClass(0, CONTEXT, header, None, events, "c")
    return TraceClass(HEADER, {0: stream}, {"c": ClockClass("c", uuid="one")})


def head_of(kind, number, clock, *, wide):
    """An event's header as bytes."""
    if kind == "plain":
        return struct.pack("<BI", number, clock % (1 << 32))
    if kind == "compact":
        if wide:
            return struct.pack("<BIQ", 31, number, clock)
        return struct.pack("<I", number | clock % (1 << 27) << 5)
    if wide:
        return struct.pack("<HIQ", 65535, number, clock)
    return struct.pack("<HI", number, clock % (1 << 32))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 1 << 32), st.sampled_from([1, 7, 1000]), st.booleans())
def test_random_traces_whole_or_damaged(tmp_path: Path, seed: int, size: int, damaged: bool):
    make = Generator(seed)
    of = make.schema()
    paths = []
    for number in range(3):
        clock, data = make.rng.randrange(1 << 30), b""
        for _ in range(make.rng.randint(1, 3)):
            written, clock = make.packet(of, clock, make.rng.randint(0, 6))
            data += written
        if damaged and data:
            broken = bytearray(data)
            broken[make.rng.randrange(len(broken))] ^= 1 << make.rng.randrange(8)
            data = bytes(broken)
        paths.append(tmp_path / f"s{number}")
        paths[-1].write_bytes(data)
    traces = [Trace("t", tmp_path, tuple(paths), of)]
    try:
        whole = read_traces(traces, EVERYTHING)
    except UnreadableError:
        with EventStream(traces, EVERYTHING, size) as stream:
            assert list(stream) == []
            with pytest.raises(UnreadableError):
                stream.finish()
        return
    if any("backwards" in w for w in whole.warnings):
        with pytest.raises(OutOfOrder), EventStream(traces, EVERYTHING, size) as stream:
            list(stream)
        return
    assert_same(traces, EVERYTHING, size)
