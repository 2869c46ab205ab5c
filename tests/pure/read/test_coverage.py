"""Where streams begin late, end early or are missing: true losses, and healthy recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from critpath.model import Loss
from critpath.read.losses import TraceFiles, find_losses, find_missing_streams
from critpath.read.packets import PacketColumn, StreamFile, Tracer, identify_tracer
from critpath.read.program import Role
from critpath.schema.environment import Environment, read_environment

MS = 1_000_000
LTTNG = {"tracer_name": "lttng-modules", "tracer_major": 2, "tracer_minor": 13}
ENV = read_environment(LTTNG)
ALL = sum(
    1 << role
    for role in (Role.BEGIN, Role.END, Role.SEQUENCE, Role.DISCARDED, Role.INSTANCE, Role.CPU)
)


def stream(cpu: int, begin: int, end: int, first: int = 0, packets: int = 10) -> StreamFile:
    """Packets in a row with numbers from some one on, full of events."""
    table = np.zeros((packets, len(PacketColumn)), np.int64)
    times = np.linspace(begin, end, packets + 1).astype(np.int64)
    table[:, PacketColumn.BEGIN], table[:, PacketColumn.END] = times[:-1], times[1:]
    table[:, PacketColumn.FIRST], table[:, PacketColumn.LAST] = times[:-1], times[1:]
    table[:, PacketColumn.EVENTS], table[:, PacketColumn.SEQUENCE] = 9, first + np.arange(packets)
    table[:, PacketColumn.CPU] = table[:, PacketColumn.INSTANCE] = cpu
    table[:, PacketColumn.OFFSET], table[:, PacketColumn.SIZE] = np.arange(packets) * 4096, 4096
    table[:, PacketColumn.CONTENT], table[:, PacketColumn.PRESENT] = 8 * 4000, ALL
    same = lambda _, raw: raw  # noqa: E731 - a clock of ns
    return StreamFile(f"kernel/chan_{cpu}", table, same, same, ((64, 64),), 0)


def lost(files: list[StreamFile], directory: str = "/r/kernel") -> list[Loss]:
    """What is said to be lost of a recording of the kernel with these streams."""
    tracer = identify_tracer(ENV, Path(directory))
    last = max(int(f.packets[:, PacketColumn.LAST].max()) for f in files)
    found, _ = find_losses(files, 0, last, tracer)
    return found + find_missing_streams(
        [TraceFiles("kernel", tracer, 0, True, files)], 0, last, lambda _: set()
    )


@pytest.mark.parametrize("cpus", [2, 3, 8])
def test_a_stream_that_ends_before_the_others_is_a_loss_of_the_rest_of_its_time(cpus):
    files = [stream(cpu, 0, (600 if cpu == 1 else 1000) * MS) for cpu in range(cpus)]
    (loss,) = lost(files)
    assert (loss.begin, loss.end, loss.cpu) == (600 * MS, 1000 * MS, 1)
    assert "ends earlier" in loss.reason


@pytest.mark.parametrize("apart", [2, 40, 200])
@pytest.mark.parametrize("cpus", [3, 8])
def test_buffers_that_were_written_one_after_the_other_are_no_loss(cpus, apart):
    files = [stream(cpu, 0, (1000 + apart * cpu) * MS) for cpu in range(cpus)]
    assert lost(files) == []


@pytest.mark.parametrize(
    "directory",
    [
        "/r/snapshot-1-20261121-043527-0/kernel",
        "/r/mine-20261121-043527-3/kernel",
        "/r/snapshot-1-20261121-043527-0/ust/uid/0/64-bit",
        "/r/archives/20261121T043527+0000-20261121T043627+0000-1/kernel",
        "/r/20261121T043527+0000-2/kernel",
    ],
)
def test_the_ends_of_a_snapshot_and_of_a_chunk_tell_of_no_loss(directory):
    files = [stream(0, 0, 900 * MS), stream(1, 0, 1000 * MS)]
    assert len(lost(files)) == 1
    assert len(lost(files, "/r/mine-20261121-043527/kernel")) == 1  # of a whole session
    assert lost(files, directory) == []


def test_numbers_that_do_not_begin_at_zero_are_of_a_part_of_a_session():
    files = [stream(0, 0, 900 * MS, first=17), stream(1, 0, 1000 * MS, first=30)]
    assert lost(files) == []


def test_what_was_overwritten_is_a_loss_up_to_the_first_packet_that_is_there():
    files = [stream(0, 300 * MS, 1000 * MS, first=17), stream(1, 0, 1000 * MS)]
    (loss,) = lost(files)
    assert (loss.begin, loss.end, loss.cpu) == (0, 300 * MS, 0)


def test_a_cpu_that_comes_later_and_one_without_events_are_no_loss():
    idle = stream(2, 0, 1000 * MS)
    idle.packets[:, PacketColumn.EVENTS] = 0
    idle.packets[:, PacketColumn.FIRST] = (1 << 63) - 1
    idle.packets[:, PacketColumn.LAST] = -(1 << 63)
    assert lost([stream(0, 0, 1000 * MS), stream(1, 400 * MS, 1000 * MS), idle]) == []


def test_a_trace_of_one_cpu_and_one_of_user_space_alone_are_whole():
    assert lost([stream(0, 0, 1000 * MS)]) == []
    tracer = Tracer(lttng=True, stops_together=True)
    one = TraceFiles("ust", tracer, 0, False, [stream(1, 0, 1000 * MS)])
    assert find_missing_streams([one], 0, 1000 * MS, lambda _: set()) == []


def test_what_another_tracer_wrote_is_not_held_to_what_lttng_keeps():
    files = [stream(0, 0, 600 * MS, first=3), stream(1, 100 * MS, 1000 * MS, first=4)]
    tracer = identify_tracer(Environment(tracer_name="critpath-ftrace"), Path("/r/kernel"))
    assert find_losses(files, 0, 1000 * MS, tracer) == ([], [])


def test_a_packet_that_is_there_twice_is_told():
    one = stream(0, 0, 1000 * MS)
    one.packets[4] = one.packets[3]
    one.packets[3:5, PacketColumn.LAST] = one.packets[3, PacketColumn.FIRST]
    (loss, *_) = lost([one])
    assert "number of the packet before" in loss.reason
    assert loss.begin <= 300 * MS
    assert loss.end >= 500 * MS


def test_a_packet_that_jumped_leaves_a_loss_where_it_was():
    one = stream(0, 0, 1000 * MS)
    one.packets[:, PacketColumn.PRESENT] &= ~(1 << Role.SEQUENCE)  # as before LTTng 2.8
    for column in (PacketColumn.BEGIN, PacketColumn.END, PacketColumn.FIRST, PacketColumn.LAST):
        one.packets[3, column] += 1 << 38
    spans = [(x.begin, x.end) for x in lost([one])]
    assert any(begin <= 300 * MS and end >= 400 * MS for begin, end in spans)


def test_many_missing_streams_are_all_counted():
    files = [stream(cpu, 0, 1000 * MS) for cpu in range(3)]
    tracer = identify_tracer(ENV, Path("/r/kernel"))
    named = lambda _: set(range(300))  # noqa: E731 - woken everywhere
    found = find_missing_streams(
        [TraceFiles("kernel", tracer, 0, True, files)], 0, 1000 * MS, named
    )
    assert sum(loss.packets for loss in found) == 297
    assert len(found) == 101
    assert (found[-1].cpu, found[-1].packets) == (-1, 197)
    assert "and 197 more" in found[-1].reason


def test_a_stream_that_names_no_cpu_is_no_missing_cpu():
    kernel = [stream(cpu, 0, 1000 * MS) for cpu in range(3)]
    user = stream(0, 0, 1000 * MS)
    user.packets[:, PacketColumn.CPU] = -1
    tracer = identify_tracer(ENV, Path("/r/kernel"))
    traces = [
        TraceFiles("kernel", tracer, 0, True, kernel),
        TraceFiles("ust", tracer, 0, False, [user]),
    ]
    assert find_missing_streams(traces, 0, 1000 * MS, lambda _: set()) == []


def test_many_damaged_packets_and_streams_are_gathered():
    # As many as would take minutes if every one looked at all others.
    damaged = stream(0, 0, 1000 * MS, packets=8_000)
    damaged.packets[:, PacketColumn.DAMAGE] = 1
    found = lost([damaged])
    assert sum("damaged" in loss.reason for loss in found) == 101
    many = stream(0, 0, 1000 * MS, packets=1_500)
    many.packets[:, PacketColumn.INSTANCE] = np.arange(1_500)
    assert lost([many])


def test_what_lies_behind_the_content_is_looked_at_where_buffers_are_cleared():
    file = stream(0, 0, 1000 * MS)
    file.packets[4, PacketColumn.DAMAGE] = 14
    assert len(lost([file])) == 1
    assert lost([file], "/r/snapshot-1-20261121-043527-0/kernel") == []
    user = ENV.with_texts(tracer_name="lttng-ust")
    assert find_losses(
        [file], 0, 1000 * MS, identify_tracer(user, Path("/r/ust/uid/0/64-bit"))
    ) == ([], [])
