"""Memory of blocks: apart while anybody holds it, used again when nobody does."""

from __future__ import annotations

import numpy as np

from critpath.model.packing import BlockArena, BufferPool


def test_what_is_held_is_never_handed_out_again():
    arena = BlockArena()
    held = []
    for number in range(2000):
        taken = arena.take(37 * (number % 700) + number)
        taken.fill(number % 251)
        if number % 3:
            held.append((number, taken))
    assert all((taken == number % 251).all() for number, taken in held)
    assert all(taken.ctypes.data % 8 == 0 for _, taken in held)


def test_a_piece_that_nobody_holds_is_used_again():
    arena = BlockArena()
    first = arena.take(1000)
    place = first.ctypes.data
    view = first[:800].view(np.int64)
    del first
    assert arena.take(1000).ctypes.data != place
    del view
    assert arena.take(1000).ctypes.data == place


def test_what_is_larger_than_a_piece():
    assert len(BlockArena().take(100 << 20)) == 100 << 20


def test_pieces_are_used_again_by_another_recording():
    arena = BlockArena()
    taken = [arena.take(7 << 20) for _ in range(9)]
    places = {part.ctypes.data & -(1 << 20) for part in taken}
    taken.clear()
    del arena
    again = BlockArena()
    assert (again.take(7 << 20).ctypes.data & -(1 << 20)) in places


def test_two_arenas_never_share_a_piece():
    first, second = BlockArena(), BlockArena()
    parts = [(k, arena.take(1 << 20)) for k in range(80) for arena in (first, second)]
    for place, (_, part) in enumerate(parts):
        part.fill(place)
    assert all((part == place).all() for place, (_, part) in enumerate(parts))


def test_a_desk_keeps_what_is_held():
    desk = BufferPool()
    held = []
    for number in range(300):
        taken = desk.take(1000 + 50 * (number % 90))
        taken.fill(number % 251)
        if number % 5 == 0:
            held.append((number, taken[100:].view()))
        del taken
    assert all((taken == number % 251).all() for number, taken in held)


def test_a_desk_gives_what_is_free_again():
    desk = BufferPool()
    taken = desk.take(1000)
    place = taken.ctypes.data
    assert desk.take(1000).ctypes.data != place
    del taken
    assert place in {desk.take(900).ctypes.data, desk.take(1000).ctypes.data}
