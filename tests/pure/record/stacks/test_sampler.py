"""What the sampler makes of hostile memory, and of tables of lines that are none."""

from __future__ import annotations

import ctypes
import os
import random
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath_record.stacks._sampler import Sampler, find_line
from critpath_record.stacks.interpreters import LAYOUTS, published_layout
from critpath_record.stacks.unwind import SAMPLE

PERIOD = 5_000_000


@given(st.integers(0, 2), st.binary(max_size=64), st.integers(0, 2**31), st.integers(-2, 2**31))
def test_no_table_of_lines_is_read_beyond_its_end(table, lines, first, offset):
    assert isinstance(find_line(table, lines, first, offset), int)


@pytest.mark.parametrize("version", [(3, 9), (3, 11), (3, 12)])
def test_memory_of_anything_is_survived(version):
    """Words that lead into the same memory, and are changed meanwhile: chains of all kinds."""
    rng = random.Random(20)  # noqa: S311 - a test's
    size = 1 << 16
    memory = ctypes.create_string_buffer(size + 8192)
    base = (ctypes.addressof(memory) + 4095) & ~4095
    ending = threading.Event()

    def scribble():
        while not ending.is_set():
            at = rng.randrange(size // 8)
            ctypes.memmove(base + 8 * at, word(rng, base, size), 8)

    layout = LAYOUTS[version]
    scribbler = threading.Thread(target=scribble)
    scribbler.start()
    for _ in range(30):
        words = b"".join(word(rng, base, size) for _ in range(size // 8))
        ctypes.memmove(base, words, size)
        sampler = Sampler(PERIOD)
        runtime = base + 8 * rng.randrange(size // 8 - 300)
        code_type = rng.choice([base, struct.unpack("<Q", words[80:88])[0]])
        sampler.add(1, os.getpid(), layout, runtime, code_type, True)
        for _ in range(5):
            sampler.sample()
        sampler.end()
        sampler.packed({}, SAMPLE)
    ending.set()
    scribbler.join()


def word(rng, base, size):
    kind = rng.random()
    if kind < 0.8:
        return struct.pack("<Q", base + 8 * rng.randrange(size // 8))
    return struct.pack("<Q", rng.choice([0, 1, 4, 0x64, 2**31, 2**64 - 1, rng.getrandbits(64)]))


def test_a_chain_without_an_end_is_bounded():
    """A thread's frames lead to themselves, and so does the list of threads."""
    memory = ctypes.create_string_buffer(8192)
    base = (ctypes.addressof(memory) + 15) & ~15
    layout = LAYOUTS[3, 11]
    words = {40: base, 0: 0, 16: base}  # interpreters, the next one, threads
    words |= {8: base, 56: base + 1024, 152: 1, 160: os.getpid()}
    words |= {1024 + 8: base + 2048, 2048 + 48: base + 2048, 2048 + 32: base + 4096}
    for at, value in words.items():
        ctypes.memmove(base + at, struct.pack("<Q", value), 8)
    sampler = Sampler(PERIOD)
    sampler.add(1, os.getpid(), layout, base, 1, False)
    for _ in range(3):
        sampler.sample()
    assert sampler.torn
    assert sampler.stacks() == []


def test_a_layout_that_leads_far_away_is_refused():
    far = published_layout((3, 13), b"\xff" * 1024)
    with pytest.raises((ValueError, OverflowError)):
        Sampler(PERIOD).add(1, os.getpid(), far, 0, 0, False)
    with pytest.raises(ValueError, match="layout"):
        Sampler(PERIOD).add(1, os.getpid(), LAYOUTS[3, 12]._replace(code=-8), 0, 0, False)
