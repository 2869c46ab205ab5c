"""Which changes of thread along a path are wakes, by the rules in docs/critical-path.md."""

from __future__ import annotations

import pytest

from critpath.documents import AlignedSegment
from critpath.report.html.page_data import find_thread_changes


def segment(tid, host=0):
    return AlignedSegment(
        column=0, begin=0, end=1, tid=tid, comm="", state="RUN", detail="", host=host
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", {}),
        ("AAA", {}),
        # A sleeps, B runs and wakes it.
        ("ABBA", {1: False, 3: True}),
        # While A slept, C woke B, which had slept since before, and B woke A.
        ("ACBA", {1: False, 2: True, 3: True}),
        # B itself waited for C.
        ("ABCBA", {1: False, 2: False, 3: True, 4: True}),
        # Twice the same.
        ("ABABA", {1: False, 2: True, 3: False, 4: True}),
        # The window begins with the creator of A.
        ("CA", {1: True}),
        ("CABA", {1: True, 2: False, 3: True}),
        # The last is the subject: A woke B, B slept again, and A woke it again.
        ("ABAB", {1: True, 2: False, 3: True}),
    ],
)
def test_changes_of_thread(path, expected):
    assert find_thread_changes([segment(ord(thread)) for thread in path]) == expected


def test_threads_of_two_machines_may_have_one_id():
    """A sleeps on host 0; the thread of the same id on host 1 answers, and wakes it."""
    path = [segment(7, host) for host in (0, 1, 0)]
    assert find_thread_changes(path) == {1: False, 2: True}
    assert find_thread_changes([segment(7)] * 3) == {}


def test_they_are_those_of_the_paths_themselves(factory):
    comparison = factory.comparison(samples=3, anomalous=1, columns=60)
    paths = comparison.sample.paths
    for i in range(3):
        first, last = int(paths.start[i]), int(paths.start[i + 1])
        found = find_thread_changes([segment(int(tid)) for tid in paths.tid[first:last]])
        wakes = {at - 1 for at, wake in found.items() if wake}
        assert wakes == {j - first for j in range(first, last) if paths.wakes[j]}
        assert wakes
