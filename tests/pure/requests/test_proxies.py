"""Whose calls of proxies are: where only one request can have asked, it is certain."""

from __future__ import annotations

import numpy as np
import pytest

from critpath.requests.assign import Process, What
from critpath.requests.exact import follow_proxy

KINDS = {"R": What.RECEIVE, "r": What.RESULT, "s": What.ASK, "S": What.ANSWERED, "o": What.ASK}


def process_of(text: str, ends: dict[int, int] | None = None) -> Process:
    """Return what happens by a drawing: R0 is received, s1 asks, o1 opens, r1 its result, S0.

    Rows of what is asked count openings, too; `ends` says over which endpoint.  Behind a comma the
    thread, 0 else.
    """
    words = [word.partition(",") for word in text.split()]
    what = np.array([KINDS[word[0]] for word, *_ in words], np.uint8)
    row = np.array([int(word[1:]) for word, *_ in words], np.int32)
    thread = np.array([int(of or 0) for *_, of in words], np.int32)
    asked = 1 + max((int(word[1:]) for word, *_ in words if word[0] in "so"), default=-1)
    opens = {int(word[1:]) for word, *_ in words if word[0] == "o"}
    asks = np.zeros((asked, 4), np.int32)
    asks[:, 1] = [(ends or {}).get(of, of) for of in range(asked)]
    asks[:, 2] = -1
    asks[:, 3] = [of in opens for of in range(asked)]
    root = np.zeros(1 + int(row[what == What.RECEIVE].max()), np.int32)
    time = np.arange(len(words)) * 10
    rows = np.arange(len(root)), np.arange(asked)
    return Process(time, what, thread, row, root, asks, *rows)


@pytest.mark.parametrize(
    ("text", "owners"),
    [
        # Each asks as soon as it was received, whoever is answered first.
        ("R0 s0 R1 s1 R2 s2 r1 S1 r0 S0 r2 S2", [0, 1, 2]),
        # Two threads, each with its own.
        ("R0,0 R1,1 s0,1 s1,0 r0,1 S1,1 r1,0 S0,0", [1, 0]),
    ],
)
def test_one_that_has_not_asked_it_is(text, owners):
    assert follow_proxy(process_of(text)).tolist() == owners


def test_what_a_connection_is_opened_for_goes_over_it():
    process = process_of("R0 o0 R1 o1 s2 s3 r2 r3 S0 S1", {0: 5, 1: 6, 2: 6, 3: 5})
    assert follow_proxy(process).tolist() == [0, 1, 1, 0]


def test_two_that_have_not_asked_are_told_by_nothing():
    single = " ".join(f"R{n} s{n} r{n} S{n}" for n in range(40))
    both = "R40 R41 s40 s41 r40 S41 r41 S40"
    found = follow_proxy(process_of(f"{single} {both} {single}".replace("x", "")))
    assert found is None or found[40:].tolist() == [-1, -1]
    found = follow_proxy(process_of(f"{single} {both}"))
    assert found[:40].tolist() == list(range(40))
    assert found[40:].tolist() == [-1, -1]


@pytest.mark.parametrize(
    "text",
    [
        "R0 s0 r0 s1 r1 S0 R1 s2 r2 s3 r3 S1",  # asks twice
        "R0 S0 R1 s0 r0 S1",  # one does not ask
        "R0 s0 S0 r0 R1 s1 S1 r1",  # answers before the result
        "R0 R1 R2 s0 s1 s2 r0 r1 r2 S0 S1 S2",  # mostly nothing is told
    ],
)
def test_what_is_no_proxy(text):
    assert follow_proxy(process_of(text)) is None
