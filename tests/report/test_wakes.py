"""Which changes of thread along a path are wakes, by the rules in docs/critical-path.md."""

from __future__ import annotations

import pytest

from critpath.report.wakes import changes


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
    ],
)
def test_changes_of_thread(path, expected):
    assert changes([{"tid": ord(thread)} for thread in path]) == expected
