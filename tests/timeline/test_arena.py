"""Memory of blocks: apart while anybody holds it, used again when nobody does."""

from __future__ import annotations

import numpy as np

from critpath.timeline.arena import Arena


def test_what_is_held_is_never_handed_out_again():
    arena = Arena()
    held = []
    for number in range(2000):
        taken = arena.take(37 * (number % 700) + number)
        taken.fill(number % 251)
        if number % 3:
            held.append((number, taken))
    assert all((taken == number % 251).all() for number, taken in held)
    assert all(taken.ctypes.data % 8 == 0 for _, taken in held)


def test_a_piece_that_nobody_holds_is_used_again():
    arena = Arena()
    first = arena.take(1000)
    place = first.ctypes.data
    view = first[:800].view(np.int64)
    del first
    assert arena.take(1000).ctypes.data != place
    del view
    assert arena.take(1000).ctypes.data == place


def test_what_is_larger_than_a_piece():
    assert len(Arena().take(100 << 20)) == 100 << 20
