"""Chunks fed and blocks cut: whatever their sizes, the whole is what one feed gives."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "oracle"))
from packet_links import link_packets
from wild import on_two_hosts, packet_events, wild_events

from critpath.errors import InconclusiveError, UnreadableError
from critpath.model import EventChunk, Kind
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath.timeline.network import linked_packets, network_events
from critpath.timeline.replay import Replayer, replay, require_switches

OF_WORKERS = ("begin", "end", "state", "detail", "cpu", "waker", "woken")
OF_PROCESSORS = {
    "stolen_start": ("stolen_begin", "stolen_end", "stolen_state", "stolen_detail"),
    "ran_start": ("ran_begin", "ran_end", "ran_worker"),
}
SCHEDULES = wild_events() | packet_events() | on_two_hosts(wild_events() | packet_events())
TABLES = {"start": OF_WORKERS, **OF_PROCESSORS}


def chunks_of(events, sizes):
    """The events in pieces whose columns are scratch: overwritten after they were fed."""
    at = 0
    for size in sizes:
        rows = slice(at, at + size)
        at += size
        offset = events.offset[rows]
        # As a stream delivers them: only the fields of its own events.
        low = int(offset.min(initial=len(events.values)))
        high = int(offset.max(initial=low)) + 9
        columns = [
            np.array(c)
            for c in (
                events.timestamp[rows],
                events.cpu[rows],
                events.event_class[rows],
                offset - low,
                events.values[low:high],
            )
        ]
        yield EventChunk(*columns)
        for column in columns:
            column.fill(-77)
        if at >= len(events):
            return


def streamed(events, sizes, is_cut):
    """Feed in chunks; after each, cut where ``is_cut`` says so."""
    strings = list(events.strings)
    codes = {text: code for code, text in enumerate(strings)}

    def code(text):
        if text not in codes:
            codes[text] = len(strings)
            strings.append(text)
        return codes[text]

    kinds = {events.classes[i].kind for i in set(events.event_class.tolist())}
    replayer = Replayer(
        hosts=events.hosts,
        environment=events.environment,
        losses=events.losses,
        code=code,
        text=strings.__getitem__,
        has_waking=Kind.WAKING in kinds,
        has_syscalls=Kind.SYSCALL_ENTRY in kinds,
    )
    blocks, fed, known = [], 0, 0
    for chunk in chunks_of(events, sizes):
        fed += len(chunk)
        # Classes are met as the stream goes on.
        known = max(known, int(chunk.event_class.max(initial=-1)) + 1)
        replayer.feed(chunk, events.classes[:known])
        if is_cut():
            waiting = replayer.waiting
            packed = replayer.cut()
            assert waiting == len(packed)
            block = packed.unpacked()
            assert replayer.waiting == 0
            assert not fed or block.cut == events.timestamp[fed - 1]
            blocks.append(block)
    blocks.append(replayer.finish(events.end).unpacked())
    assert replayer.present == frozenset(kinds) - {Kind.OTHER}
    return replayer, blocks, strings


def joined(blocks, starts, names):
    """The rows of all blocks, owner by owner."""
    owners = len(getattr(blocks[-1], starts)) - 1
    result = {name: [] for name in names}
    counts = []
    for owner in range(owners):
        counts.append(0)
        for block in blocks:
            start = getattr(block, starts)
            if owner + 1 < len(start):
                counts[-1] += int(start[owner + 1] - start[owner])
                for name in names:
                    result[name] += getattr(block, name)[start[owner] : start[owner + 1]].tolist()
    return counts, result


def texts(strings, codes):
    return [strings[code] for code in codes]


def assert_whole(events, replayer, blocks, strings):
    whole = replay(events)
    for starts, names in TABLES.items():
        counts, rows = joined(blocks, starts, names)
        assert counts == np.diff(getattr(whole, starts)).tolist()
        for name in names:
            expected = getattr(whole, name).tolist()
            if name.endswith("detail"):
                assert texts(strings, rows[name]) == texts(whole.strings, expected)
            else:
                assert rows[name] == expected
    workers = replayer.workers()
    for name in ("host", "tid", "pid", "first", "last", "parent", "born", "idle_cpu"):
        assert getattr(workers, name).tolist() == getattr(whole.workers, name).tolist()
    assert texts(strings, workers.name) == texts(whole.strings, whole.workers.name)
    assert replayer.processors == whole.processors
    assert replayer.warnings == whole.warnings
    packets = linked_packets(network_events(events), replayer.network())
    assert packets == whole.packets
    assert list(packets) == link_packets(events, whole)


def assert_facts(blocks):
    """What walks rest on: see `critpath.model.Block`."""
    cuts = [block.cut for block in blocks]
    assert cuts == sorted(cuts)
    for starts, names in TABLES.items():
        begin, end = names[:2]
        for k, block in enumerate(blocks):
            assert len(getattr(block, starts)) >= len(getattr(blocks[k - 1], starts)) or not k
            assert (getattr(block, end) <= block.cut).all()
        counts, rows = joined(blocks, starts, names)
        at = 0
        for count in counts:
            begins, ends = rows[begin][at : at + count], rows[end][at : at + count]
            assert begins == sorted(begins)
            assert all(b >= e for e, b in zip(ends, begins[1:], strict=False))
            at += count


@given(
    SCHEDULES,
    st.lists(st.integers(0, 9), max_size=30),
    st.randoms(use_true_random=False),
)
def test_any_chunks_and_cuts_give_the_same(events, sizes, chance):
    sizes = [*sizes, len(events)]
    replayer, blocks, strings = streamed(events, sizes, lambda: chance.random() < 0.4)
    assert_whole(events, replayer, blocks, strings)
    assert_facts(blocks)


@pytest.mark.parametrize(
    ("name", "size"),
    [("lossy", 1), ("lossy", 7), ("plain", 7), ("normal", 1000), ("python", 1000)],
)
def test_chunks_of_recordings(guest, name, size):
    events = read_events(guest(name), KERNEL_EVENTS)
    sizes = [size] * (len(events) // size + 1)
    chance = random.Random(size)  # noqa: S311 - where to cut
    cuts = min(1.0, 20 * size / len(events))
    replayer, blocks, strings = streamed(events, sizes, lambda: chance.random() < cuts)
    assert_whole(events, replayer, blocks, strings)
    assert_facts(blocks)
    assert len(blocks) > 3


def test_a_cut_of_nothing_is_an_empty_block(guest):
    events = read_events(guest("plain"), KERNEL_EVENTS)
    replayer, _, _ = streamed(events, [100, 10**9], lambda: True)
    again = replayer.cut().unpacked()
    assert (len(again), len(again.ran_begin), again.cut) == (0, 0, int(events.timestamp[-1]))
    assert len(again.start) == len(replayer.workers()) + 1


def test_a_recording_without_switches_is_refused_at_its_end(guest):
    events = read_events(guest("plain"), KERNEL_EVENTS)
    switches = [c.kind == Kind.SWITCH for c in events.classes]
    rows = np.flatnonzero(~np.array(switches)[events.event_class])
    some = EventChunk(
        events.timestamp[rows],
        events.cpu[rows],
        events.event_class[rows],
        events.offset[rows],
        events.values,
    )
    strings = list(events.strings)
    replayer = Replayer(
        hosts=events.hosts,
        environment=(),
        losses=(),
        code=lambda text: strings.append(text) or len(strings) - 1,
        text=strings.__getitem__,
        has_waking=True,
        has_syscalls=False,
    )
    replayer.feed(some, events.classes)
    # It was asked for: a recorder that was killed as it began.
    with pytest.raises(InconclusiveError, match="before there was any"):
        replayer.finish(0)
    with pytest.raises(UnreadableError, match="no sched_switch"):
        require_switches({Kind.WAKING}, {Kind.WAKING})


def test_a_cpu_that_no_machine_has(guest):
    events = read_events(guest("plain"), KERNEL_EVENTS)
    cpu = np.array(events.cpu)
    cpu[17] = 40_000
    wrong = EventChunk(events.timestamp, cpu, events.event_class, events.offset, events.values)
    replayer = Replayer(
        hosts=events.hosts,
        environment=(),
        losses=(),
        code=lambda _: 0,
        text=str,
        has_waking=True,
        has_syscalls=False,
    )
    with pytest.raises(UnreadableError, match="cpu 40000"):
        replayer.feed(wrong, events.classes)
