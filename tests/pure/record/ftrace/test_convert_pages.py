"""The native page decoder against its plain twin: on made pages, whole, damaged and wild."""

from __future__ import annotations

import importlib.util
import struct
from array import array
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from critpath_record.ctf.trace import CtfEventClass
from critpath_record.ftrace._pages import Pages
from critpath_record.ftrace.ctf_events import Step, compile_programs

TWIN = Path(__file__).resolve().parents[4] / "tests" / "oracle" / "ring_pages.py"
DATA = 240
TIMES = (1000, 1 << 62)
BEGIN = 1 << 40
HEADER = bytes(range(32))

# One class with every step; its records need 24 bytes: 8 common, then what is used here.
EVERY = CtfEventClass(
    *("every", 3, (), 7, 24),
    steps=(
        (Step.COPY, 8, 4, 0),
        (Step.ADD32, 12, -100, 0),
        (Step.TEXT_AT, 16, 0, 0),
        (Step.TEXT_AT, 16, 20, 0),
        (Step.CHARS_AT, 16, 0, 16),
        (Step.SEQUENCE_AT, 20, 0, 1),
        (Step.SEQUENCE_AT, 20, 24, 8),
        (Step.TEXT_REST, 24, 1, 0),
        (Step.SEQUENCE_REST, 24, 0, 0),
        (Step.CONSTANT32, -5, 0, 0),
        (Step.BESIDE, 0, 8, 0),
        (Step.BESIDE, 8, 8, 0),
        (Step.NEXT_BESIDE, 16, 0, 0),
        (Step.SWAP, 8, 16, 8),
        (Step.SWAP, 8, 6, 2),
    ),
)
SMALL = CtfEventClass("small", 30, (), 9, 8, steps=())
EXTENDED = CtfEventClass("extended", 65535, (), 11, 8, steps=((Step.COPY, 0, 8, 0),))
GATHERED = CtfEventClass("every", 0, (), 7, 24, steps=((Step.COPY, 4, 8, 0),))


@pytest.fixture(scope="module")
def twin_class():
    place = importlib.util.spec_from_file_location("ring_pages", TWIN)
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module.Twin


def page(data, time=BEGIN, flags=0, commit=None, behind=b""):
    word = (len(data) if commit is None else commit) | flags
    return struct.pack("<QQ", time, word) + (data + behind).ljust(DATA, b"\0")[:DATA]


def entry(record, delta):
    padded = record.ljust(-(-len(record) // 4) * 4, b"\0")
    if len(padded) <= 112 and padded:
        return struct.pack("<I", len(padded) // 4 | delta << 5) + padded
    return struct.pack("<II", delta << 5, len(padded) + 4) + padded


def turned(entries):
    """Return a page of a big-endian machine, with these records and times between them."""
    data = b"".join(
        struct.pack(">I", len(record) // 4 << 27 | delta) + record[1::-1] + record[2:]
        for record, delta in entries
    )
    return struct.pack(">QQ", BEGIN, len(data)) + data.ljust(DATA, b"\0")[:DATA]


def extend(kind, value):
    return struct.pack("<II", kind | value % (1 << 27) << 5, value >> 27)


def records():
    kinds = st.sampled_from([7, 7, 7, 9, 11, 13])
    place = st.builds(lambda at, n: at | n << 16, st.integers(0, 80), st.integers(0, 60))
    long = st.builds(
        lambda kind, flags, number, where, what, rest: (
            struct.pack("<HBBi", kind, flags, 1, number)
            + struct.pack("<iiII", number, number, where, what)
            + rest
        ),
        *(kinds, st.integers(0, 255)),
        st.sampled_from([-1, 0, 5, 6]) | st.integers(-(2**31), 2**31 - 1),
        *(place, place, st.binary(max_size=60) | st.just(b"text\n\0")),
    )
    return long | st.binary(max_size=20)


ENTRY = (
    st.builds(entry, records(), st.integers(0, (1 << 27) - 1))
    | st.builds(extend, st.just(30), st.integers(0, 1 << 40))
    | st.builds(extend, st.just(31), st.integers(0, (1 << 59) - 1))
    | st.builds(
        lambda delta, words: struct.pack("<II", 29 | delta << 5, 4 * words) + bytes(4 * words - 4),
        st.integers(1, 3),
        st.integers(1, 4),
    )
    | st.just(struct.pack("<I", 29))
)
WILD = ENTRY | st.binary(min_size=4, max_size=12)
SOUND = st.builds(entry, records(), st.integers(0, (1 << 27) - 1))
TIME = st.integers(BEGIN, BEGIN + 10**6)
FLAGS = st.sampled_from([0, 0, 1 << 31, 3 << 30, 1 << 30])
BEHIND = st.sampled_from([b"", struct.pack("<Q", 5), b"\xff" * 8])


def pages_of(entries, time, commit):
    data = st.lists(entries, max_size=6).map(lambda e: b"".join(e)[:DATA])
    return st.builds(page, data, time=time, flags=FLAGS, commit=commit, behind=BEHIND)


PAGE = (
    pages_of(SOUND, TIME, st.none())
    | pages_of(ENTRY, TIME, st.none())
    | pages_of(WILD, TIME | st.integers(0, (1 << 64) - 1), st.none())
    | pages_of(WILD, TIME, st.integers(0, (1 << 27) - 1) | st.integers(0, DATA))
)
BIG = st.builds(
    turned,
    st.lists(
        st.tuples(
            records().map(lambda r: r.ljust(-(-max(len(r), 4) // 4) * 4, b"\0")[:112]),
            st.integers(0, (1 << 27) - 1),
        ),
        max_size=3,
    ),
)


LAYOUT = (8, 8, 16, DATA, 16 + DATA, 2, 4)
UNASKED = (-1, -1, -1)
# EVERY as the switch, with next_pid where its third integer is.
CURRENT = (5, 7, 12)
OUTPUT = 81  # of EVERY where nothing is located


def compare(twin_class, data, large, current=UNASKED, *, swap=False):
    starts, words = compile_programs([EVERY, SMALL, EXTENDED])
    ours = Pages(LAYOUT, TIMES, starts, words, large=large, current=current, swap=swap)
    twin = twin_class(LAYOUT, TIMES, starts, words, large=large, current=current, swap=swap)
    also = compile_programs([GATHERED])
    *counts, missed, damaged, gathered = ours.scan(data, *also)
    found = twin.scan(data, *also)
    assert counts == [
        *(found.events, found.unknown, found.short, found.backward, found.first, found.last)
    ]
    assert (missed.tolist(), damaged.tolist()) == (found.missed, found.damaged)
    assert gathered == found.gathered
    return ours, twin, found


@settings(deadline=None)
@given(
    pages=st.lists(PAGE, max_size=5) | st.lists(BIG, max_size=5),
    cut=st.integers(0, 300),
    large=st.booleans(),
    swap=st.booleans(),
    losses=st.dictionaries(st.integers(0, 6), st.integers(1, 1 << 40), max_size=3),
    beside=st.binary(max_size=70),
    current=st.sampled_from([CURRENT, UNASKED]),
)
@example(pages=[], cut=0, large=False, swap=False, losses={}, beside=b"", current=CURRENT)
@example(
    pages=[page(b"")], cut=0, large=False, swap=True, losses={1: 5}, beside=b"", current=CURRENT
)
def test_made_pages_become_the_twins_bytes(
    twin_class, tmp_path_factory, pages, cut, large, swap, losses, beside, current
):
    data = b"".join(pages)
    data = data[: max(0, len(data) - cut)] if cut < 256 else data
    places = array("q", [n for pair in sorted(losses.items()) for n in pair])
    ours, twin, found = compare(twin_class, data, large, current, swap=swap)
    target = tmp_path_factory.mktemp("pages") / "out"
    with target.open("wb") as stream:
        count = ours.write(
            data, stream.fileno(), HEADER, 2, (BEGIN, BEGIN + 5), places, memoryview(beside)
        )
    expected, events = twin.write(data, HEADER, 2, (BEGIN, BEGIN + 5), places, beside)
    assert count == events >= found.events
    assert current == CURRENT or count == found.events
    assert target.read_bytes() == expected


def switch(by, to):
    """Return a record of EVERY, which is the switch here."""
    return struct.pack("<HBBiiiII", 7, 0, 0, by, 0, to, 0, 0)


def small(by, flags=0):
    return struct.pack("<HBBi", 9, flags, 0, by)


FIRST = [small(1), switch(1, 2), small(2), switch(2, 0), small(0)]


@pytest.mark.parametrize(
    ("records", "losses", "expected"),
    [
        # Nothing is missing, whoever the first record is of.
        (FIRST, [], [(30, 1), (3, 1), (30, 2), (3, 2), (30, 0)]),
        # A switch to 5 is missing, and then one back.
        (
            [switch(1, 2), small(5, flags=4), small(5), small(2)],
            [],
            [(3, 1), (5, 5), (30, 5), (30, 5), (5, 2), (30, 2)],
        ),
        # The first record sets who is known, without a switch.
        ([small(1), small(2)], [], [(30, 1), (5, 2), (30, 2)]),
        # A switch names its threads itself; whom it names is known.
        ([switch(1, 2), switch(5, 6), small(6)], [], [(3, 1), (3, 5), (30, 6)]),
        # Idle is a thread like others.
        ([switch(1, 0), small(3), small(0)], [], [(3, 1), (5, 3), (30, 3), (5, 0), (30, 0)]),
        # Nobody is known after a loss, but what comes then is.
        (
            [switch(1, 2), small(5), small(6)],
            [1, 9],
            [(3, 1), (30, 5), (5, 6), (30, 6)],
        ),
        # Who had the cpu is known over the end of a page without loss.
        ([switch(1, 2), small(5)], [], [(3, 1), (5, 5), (30, 5)]),
    ],
)
def test_where_a_switch_is_missing_the_thread_is_named(
    twin_class, tmp_path, records, losses, expected
):
    """Each record is a page of its own; event ids with the thread of their context."""
    data = b"".join(page(entry(record, 0), time=BEGIN + 10 * n) for n, record in enumerate(records))
    ours, twin, found = compare(twin_class, data, large=True, current=CURRENT)
    with (tmp_path / "out").open("wb") as stream:
        count = ours.write(
            *(data, stream.fileno(), HEADER, 0, (BEGIN, BEGIN)),
            *(array("q", losses), memoryview(bytes(16 * len(records)))),
        )
    written = (tmp_path / "out").read_bytes()
    twins, twins_count = twin.write(
        data, HEADER, 0, (BEGIN, BEGIN), losses, bytes(16 * len(records))
    )
    assert (written, count) == (twins, twins_count)
    assert count == len(expected)
    assert found.events == len(records)
    # Event ids of two bytes and times of four, then the thread and the flags.
    events = []
    for packet in written.split(HEADER)[1:]:
        at = 52
        while at < len(packet):
            number, time, thread, flags = struct.unpack_from("<HIiB", packet, at)
            at += 11
            if number == CURRENT[0]:
                assert struct.unpack_from("<i", packet, at) == (thread,)
                following = struct.unpack_from("<HIiB", packet, at + 4)
                assert following[1:] == (time, thread, flags)
                at += 4
            elif number == EVERY.id:
                at += OUTPUT
            events.append((number, thread))
    assert events == expected


def test_long_streams_are_cut_into_packets(twin_class, tmp_path):
    record = struct.pack("<HBBiiiII", 7, 0, 0, 1, 2, 3, 200 << 16, 200 << 16) + b"x" * 100
    data = b"".join(
        page(entry(record, 100) + entry(record[:24], 5), time=BEGIN + 10**6 * n) for n in range(400)
    )
    ours, twin, found = compare(twin_class, data, large=False)
    assert found.events == 800
    with (tmp_path / "out").open("wb") as stream:
        ours.write(data, stream.fileno(), HEADER, 0, (BEGIN, 0), array("q"), memoryview(b""))
    written = (tmp_path / "out").read_bytes()
    assert written == twin.write(data, HEADER, 0, (BEGIN, 0), [], b"")[0]
    assert written.count(HEADER) > 2


def test_a_full_disk_is_an_error(twin_class):
    ours, _, _ = compare(twin_class, page(entry(struct.pack("<HBBi", 9, 0, 0, 1), 1)), large=False)
    with open("/dev/full", "wb") as full, pytest.raises(OSError, match="No space left"):  # noqa: PTH123 - a device
        ours.write(
            *(page(b""), full.fileno(), HEADER, 0, (BEGIN, BEGIN), array("q"), memoryview(b""))
        )
