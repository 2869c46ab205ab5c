"""Losses, order, clocks and damage, on small traces written here."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from critpath.errors import UnreadableError
from critpath.model import EventRequest, Kind
from critpath.read.clocks import Trace
from critpath.read.metadata.schema import (
    ArrayClass,
    ClockClass,
    EventRecordClass,
    IntegerClass,
    Member,
    StreamClass,
    StringClass,
    StructureClass,
    TraceClass,
)
from critpath.read.streaming import read_traces
from critpath.schema.environment import read_environment

VALUES = (EventRequest(Kind.OTHER, ("tick",), (("value",), ("comm",), ("nothing",), ("cpu_id",))),)


def integer(bits, role="", **more):
    return IntegerClass(bits, align=8, roles=frozenset({role} if role else ()), **more)


def structure(**members):
    return StructureClass(tuple(Member(n, f) for n, f in members.items()))


HEADER = structure(magic=integer(32, "packet-magic-number"))
CONTEXT = structure(
    timestamp_begin=integer(64, "default-clock-timestamp", clock="c"),
    timestamp_end=integer(64, "packet-end-default-clock-timestamp", clock="c"),
    content_size=integer(64, "packet-content-length"),
    packet_size=integer(64, "packet-total-length"),
    packet_seq_num=integer(64, "packet-sequence-number"),
    events_discarded=integer(32, "discarded-event-record-counter-snapshot"),
    cpu_id=integer(32),
)
EVENT_HEADER = structure(
    id=integer(8, "event-record-class-id"),
    timestamp=integer(32, "default-clock-timestamp", clock="c"),
)
TEXT = IntegerClass(8, align=8, text=True)
PAYLOAD = structure(value=integer(32), comm=ArrayClass(TEXT, 16))
EVENTS = {
    0: EventRecordClass("tick", 0, None, PAYLOAD),
    1: EventRecordClass("other", 1, None, structure(name=StringClass())),
}


def schema(clock=None, **environment):
    clock = clock or ClockClass("c", uuid="one")
    stream = StreamClass(0, CONTEXT, EVENT_HEADER, None, EVENTS, "c")
    return TraceClass(HEADER, {0: stream}, {"c": clock}, read_environment(environment))


def tick(time, value=0, comm=b"comm"):
    return struct.pack("<BII16s", 0, time % (1 << 32), value, comm)


def other(time, name=b"x"):
    return struct.pack("<BI", 1, time % (1 << 32)) + name + b"\0"


def packet(begin, end, events, *, seq=0, discarded=0, cpu=0, padding=8, magic=0xC1FC1FC1):
    content = 4 + 40 + 8 + sum(map(len, events))
    head = struct.pack(
        "<IQQQQQII", magic, begin, end, 8 * content, 8 * (content + padding), seq, discarded, cpu
    )
    assert len(head) == 52
    return head + b"".join(events) + b"\xaa" * padding


def trace(directory: Path, files, of=None, name="t"):
    paths = []
    directory.mkdir(exist_ok=True)
    for title, data in files.items():
        (directory / title).write_bytes(data)
        paths.append(directory / title)
    return Trace(name, directory, tuple(paths), of or schema())


def rows(events):
    return [
        (t, c, *events.values[o : o + 4].tolist())
        for t, c, o in zip(
            events.timestamp.tolist(), events.cpu.tolist(), events.offset.tolist(), strict=True
        )
    ]


def test_values_types_and_texts(tmp_path):
    data = packet(1000, 2000, [tick(1000, 7), other(1100), tick(1200, 8, b"other\0junk")], cpu=3)
    events = read_traces([trace(tmp_path, {"s": data})], VALUES)
    assert events.classes[0].fields == ("value", "comm", "nothing", "cpu_id")
    assert events.classes[0].types == ("uint", "str", "absent", "uint")
    assert events.strings == ("", "comm", "other")
    assert rows(events) == [(1000, 3, 7, 1, 0, 3), (1200, 3, 8, 2, 0, 3)]
    assert (events.begin, events.end, events.total) == (1000, 1200, 3)
    assert events.hosts == ("",)


def test_compact_timestamps_wrap(tmp_path):
    base = (5 << 32) + (1 << 32) - 10
    times = [base, base + 5, base + 20, base + 20 + (1 << 31), base + (1 << 32) + 19]
    data = packet(base, times[-1], [tick(t) for t in times])
    events = read_traces([trace(tmp_path, {"s": data})], VALUES)
    assert events.timestamp.tolist() == times


def test_frequency_is_exact(tmp_path):
    clock = ClockClass("c", frequency=2_593_991_000, uuid="one")
    cycles = [123_456_789_012_345_678, 123_456_789_012_345_679]
    data = packet(cycles[0], cycles[1], [tick(c) for c in cycles])
    events = read_traces([trace(tmp_path, {"s": data}, schema(clock))], VALUES)
    assert events.timestamp.tolist() == [c * 10**9 // 2_593_991_000 for c in cycles]


def test_streams_merge_by_time_and_ties_keep_the_order_of_files(tmp_path):
    files = {
        "a": packet(10, 40, [tick(10, 1), tick(20, 2), tick(40, 3)], cpu=0),
        "b": packet(5, 40, [tick(5, 4), tick(20, 5), tick(30, 6)], cpu=1),
        "c": packet(20, 20, [tick(20, 7)], cpu=2),
    }
    events = read_traces([trace(tmp_path, files)], VALUES)
    assert [(t, v) for t, _, v, *_ in rows(events)] == [
        (5, 4), (10, 1), (20, 2), (20, 5), (20, 7), (30, 6), (40, 3),
    ]  # fmt: skip
    assert not events.warnings


def test_rotated_files_may_come_in_any_order(tmp_path):
    files = {
        "chan_0_0": packet(300, 400, [tick(300, 3), tick(400, 4)], seq=2),
        "chan_0_1": packet(100, 200, [tick(100, 1), tick(200, 2)], seq=1),
    }
    events = read_traces([trace(tmp_path, files)], VALUES)
    assert events.timestamp.tolist() == [100, 200, 300, 400]
    assert not events.warnings
    assert not events.losses


def test_packets_out_of_order_are_sorted_with_a_warning(tmp_path):
    data = packet(300, 400, [tick(300), tick(400)]) + packet(100, 200, [tick(100), tick(200)])
    events = read_traces([trace(tmp_path, {"s": data})], VALUES)
    assert events.timestamp.tolist() == [100, 200, 300, 400]
    assert ["backwards" in w for w in events.warnings] == [True]


def test_discarded_events_are_counted_between_packets(tmp_path):
    top = (1 << 32) - 3
    data = b"".join(
        [
            packet(0, 100, [tick(50)], seq=5, discarded=top),
            packet(110, 200, [tick(150)], seq=6, discarded=top),
            packet(210, 300, [tick(250)], seq=7, discarded=4),  # the counter wrapped
        ]
    )
    events = read_traces([trace(tmp_path, {"s": data})], VALUES)
    # Before the first packet we have: of unknown size.
    assert [(x.begin, x.end, x.events, x.reason) for x in events.losses] == [
        (0, 100, 0, "discarded"),
        (200, 300, 7, "discarded"),
    ]


def test_missing_packets_are_counted(tmp_path):
    data = packet(0, 100, [tick(50)], seq=0) + packet(500, 600, [tick(550)], seq=4)
    events = read_traces([trace(tmp_path, {"s": data})], VALUES)
    (loss,) = events.losses
    assert (loss.begin, loss.end, loss.packets, loss.reason) == (100, 500, 3, "packets lost")


def test_missing_packets_that_no_time_is_left_for_put_the_one_behind_in_doubt(tmp_path):
    data = packet(0, 100, [tick(50)], seq=0) + packet(100, 600, [tick(550)], seq=4)
    events = read_traces([trace(tmp_path, {"s": data})], VALUES)
    (loss,) = events.losses
    assert (loss.begin, loss.end, loss.packets, loss.reason) == (100, 600, 3, "packets lost")


def test_a_damaged_packet_is_skipped_and_counted(tmp_path):
    bad = packet(200, 300, [tick(210, 2), b"\x07" + tick(220)[1:]], seq=1)
    data = packet(0, 100, [tick(50, 1)], seq=0) + bad + packet(400, 500, [tick(450, 3)], seq=2)
    events = read_traces([trace(tmp_path, {"s": data})], VALUES)
    assert [v for _, _, v, *_ in rows(events)] == [1, 2, 3]
    (loss,) = events.losses
    assert loss.reason.startswith("damaged: t/s at byte ")
    # Where the damage began nobody knows: the packet is in doubt from its begin on.
    assert (loss.begin, loss.end, loss.packets) == (200, 300, 1)


def test_a_truncated_file_keeps_its_whole_events(tmp_path):
    data = packet(0, 100, [tick(10, 1), tick(20, 2), tick(30, 3)], padding=0)
    events = read_traces([trace(tmp_path, {"s": data[:-1]})], VALUES)
    assert [v for _, _, v, *_ in rows(events)] == [1, 2]
    (loss,) = events.losses
    assert loss.reason.startswith("truncated: t/s")
    assert (loss.begin, loss.end, loss.packets) == (20, 100, 1)


@pytest.mark.parametrize("cut", range(0, 135, 3))
def test_a_file_cut_anywhere_is_read_or_refused(tmp_path, cut):
    data = packet(0, 100, [tick(10, 1), tick(20, 2), tick(30, 3)])
    try:
        events = read_traces([trace(tmp_path, {"s": data[:cut]})], VALUES)
    except UnreadableError:
        assert cut < 52 + 25
        return
    assert len(events) == (cut - 52) // 25
    assert len(events.losses) == 1


def test_nothing_readable_is_an_error(tmp_path):
    with pytest.raises(UnreadableError, match="holds no event that can be read"):
        read_traces([trace(tmp_path, {"s": packet(0, 1, [tick(1)], magic=5)})], VALUES)
    with pytest.raises(UnreadableError, match="holds no event"):
        read_traces([trace(tmp_path, {"s": packet(0, 1, [])})], VALUES)


def test_a_size_of_the_attackers_choice_allocates_nothing(tmp_path):
    data = bytearray(packet(0, 100, [tick(10, 1)]))
    struct.pack_into("<QQ", data, 20, 1 << 62, 1 << 62)
    events = read_traces([trace(tmp_path, {"s": bytes(data)})], VALUES)
    assert len(events) == 1
    assert events.losses[0].packets == 1


def clocked(offset, uuid, frequency=10**9, **environment):
    return schema(ClockClass("c", frequency, 0, offset, uuid), **environment)


def test_one_clock_merges_by_raw_values(tmp_path):
    one = trace(tmp_path / "k", {"s": packet(0, 9, [tick(5, 1)])}, clocked(1000, "u"), "k")
    two = trace(tmp_path / "u", {"s": packet(0, 9, [tick(6, 2)])}, clocked(7000, "u"), "u")
    events = read_traces([one, two], VALUES)
    assert events.timestamp.tolist() == [5, 6]
    assert events.clock.epoch == 1000
    assert not events.warnings


def test_other_clocks_are_aligned_by_their_offsets_and_said_so(tmp_path):
    one = trace(tmp_path / "k", {"s": packet(0, 9, [tick(5, 1)])}, clocked(1000, "u"), "k")
    two = trace(tmp_path / "u", {"s": packet(0, 9, [tick(6, 2)])}, clocked(400, "v", 10**8), "u")
    events = read_traces([one, two], VALUES)
    assert events.timestamp.tolist() == [5, 60 + 4000 - 1000]
    assert ["another clock" in w for w in events.warnings] == [True]


def test_hosts_come_from_the_environment(tmp_path):
    one = trace(tmp_path / "1", {"s": packet(0, 9, [tick(5, 1)])}, schema(hostname="a"), "1")
    two = trace(tmp_path / "2", {"s": packet(0, 9, [tick(6, 2)])}, schema(hostname="b"), "2")
    events = read_traces([one, two, replace(one, name="3")], VALUES)
    assert events.hosts == ("a", "b")
    assert [events.classes[c].host for c in events.event_class] == [0, 0, 1]


def test_a_field_asked_for_twice_stands_twice_behind_the_canonical_ones(tmp_path):
    wanted = (
        EventRequest(Kind.OTHER, ("tick",), (("comm",), ("cpu_id",))),
        EventRequest(Kind.EXIT, ("tick",), (("value", "x"), ("comm",))),
    )
    events = read_traces([trace(tmp_path, {"s": packet(0, 9, [tick(5, 1)])})], wanted)
    (of,) = events.classes
    assert of.kind is Kind.EXIT
    assert of.fields == ("value", "comm", "cpu_id")


def test_large_traces_grow_every_buffer(tmp_path):
    count = 200_000
    every = [tick(10 * i, i, b"c%d" % (i % 3000)) for i in range(count)]
    files = {f"s{n}": packet(0, 10 * count, every[n::3], cpu=n, seq=0) for n in range(3)}
    events = read_traces([trace(tmp_path, files)], VALUES)
    assert events.timestamp.tolist() == list(range(0, 10 * count, 10))
    assert (events.column(np.arange(count), "value") == np.arange(count)).all()
    names = [events.strings[c] for c in events.column(np.arange(count), "comm").tolist()]
    assert names == [f"c{i % 3000}" for i in range(count)]
    assert events.cpu.tolist() == [i % 3 for i in range(count)]


def test_very_many_damages_are_counted_together(tmp_path):
    data = b"".join(packet(n, n, [tick(n), b"\x07"], seq=n) for n in range(500))
    events = read_traces([trace(tmp_path, {"s": data})], VALUES)
    assert len(events) == 500
    assert sum(x.packets for x in events.losses) == 500
    assert len(events.losses) < 200


def test_of_fields_that_share_a_name_the_last_one_counts(tmp_path):
    """LTTng's leading underscore goes, so that two fields may have one name."""
    payload = structure(
        comm=ArrayClass(TEXT, 16), _value=integer(64), value=integer(32, signed=True)
    )
    events = {0: EventRecordClass("tick", 0, None, payload), 1: EVENTS[1]}
    stream = StreamClass(0, CONTEXT, EVENT_HEADER, None, events, "c")
    of = TraceClass(HEADER, {0: stream}, {"c": ClockClass("c", uuid="one")})
    written = [
        struct.pack("<BI16sQi", 0, 1000 + number, b"comm", number, -number) for number in range(900)
    ]
    data = packet(1000, 2000, written)
    read = read_traces([trace(tmp_path, {"s": data}, of)], VALUES)
    assert [row[2] for row in rows(read)] == [-number for number in range(900)]
