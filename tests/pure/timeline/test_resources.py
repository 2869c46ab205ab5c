"""Requests of disks and times of freeing memory, paired."""

from __future__ import annotations

import numpy as np

from critpath.timeline.resources import _pair_reclaims, _pair_requests

VDA, SDA, END = 254 << 20, 8 << 20, 1000


def rows(*of, width):
    return np.array(of, np.int64).reshape(-1, width)


def test_a_request_is_of_who_made_it_and_begins_in_the_queue():
    inserted = rows((5, VDA, 64, 8, 10, 1), width=6)
    issued = rows((9, VDA, 64, 8, 77, 2), (9, SDA, 64, 8, 11, 3), width=6)
    completed = rows((30, VDA, 64, 8), (20, SDA, 64, 8), width=4)
    assert _pair_requests(inserted, issued, completed, END).tolist() == [
        [5, 30, VDA, 10, 1],
        [9, 20, SDA, 11, 3],
    ]


def test_requests_of_one_place_are_done_in_order_and_those_that_are_not_last_to_the_end():
    issued = rows((1, VDA, 0, 0, 10, 1), (2, VDA, 0, 0, 11, 1), (3, VDA, 0, 0, 12, 1), width=6)
    completed = rows((0, VDA, 0, 0), (8, VDA, 0, 0), (9, VDA, 0, 0), width=4)
    none = rows(width=6)
    assert _pair_requests(none, issued, completed, END)[:, 1].tolist() == [8, 9, END]


def test_freeing_memory_ends_in_the_thread_that_began_and_counts_once_where_nested():
    begun = rows((1, 10, 0), (2, 10, 1), (3, 11, 1), (50, 12, 0), width=3)
    ended = rows((0, 10, 0), (6, 10, 1), (8, 11, 1), (9, 10, 0), width=3)
    assert _pair_reclaims(begun, ended, END).tolist() == [
        [1, 6, 10, 0],
        [3, 8, 11, 1],
        [50, END, 12, 0],
    ]
