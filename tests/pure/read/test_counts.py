"""counts.jsonl as a recorder writes it, as a kill leaves it, and as somebody forges it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.errors import UnreadableError
from critpath.read.counts import read_counts

HEADER = {
    "format": "critpath/counts/1",
    "terms": ["sys:write", "sched_switch", "sys:read"],
    "scopes": ["machine", "/shop/db"],
    "clock": "monotonic",
    "interval": 1000,
    "how": "bpf",
}


def line(begin, end, machine=(), group=(), loss=0):
    counts = [[list(pair) for pair in part] for part in (machine, group)]
    return {"begin": begin, "end": end, "counts": counts, "loss": loss}


def read(tmp_path, *lines, header=HEADER, cut=b""):
    file = tmp_path / "counts.jsonl"
    texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines]
    file.write_bytes(b"".join(t + b"\n" for t in (json.dumps(header).encode(), *texts)) + cut)
    return read_counts(file)


def test_intervals_of_every_scope(tmp_path):
    counts, notes = read(
        tmp_path,
        line(0, 1000, [(0, 5), (1, 6)], [(0, 2)]),
        line(1000, 2000, [(2, 7)], loss=3),
    )
    assert notes == ()
    assert counts.vocabulary == ("sched_switch", "sys:read", "sys:write")
    assert counts.begin.tolist() == [0, 0, 1000, 1000]
    assert counts.hits.tolist() == [11, 2, 7, 0]
    assert counts.lossy.tolist() == [False, False, True, True]
    machine = counts.of_scope("machine")
    assert machine.scopes == ("machine",)
    assert list(zip(machine.document, machine.term, machine.count, strict=True)) == [
        *((0, 0, 6), (0, 2, 5), (1, 1, 7)),
    ]


def test_what_a_kill_cut_off_is_the_end(tmp_path):
    counts, _ = read(tmp_path, line(0, 1000, [(0, 1)]), cut=b'{"begin": 1000, "en')
    assert counts.end.tolist() == [1000, 1000]


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ((line(0, 10), line(5, 20)), "overlaps"),
        ((line(100, 110), line(5, 20)), "lies before"),
        ((line(10, 10),), "ends before it begins"),
        ((line(0, 10, [(1, 2), (1, 3)]),), "twice"),
    ],
)
def test_contradictions_are_said_and_lossy(tmp_path, lines, what):
    counts, notes = read(tmp_path, *lines)
    assert what in notes[0]
    assert f"line {len(lines) + 1}" in notes[0]
    assert counts.lossy[-2:].all()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"format": "critpath/counts/9"}, "its format"),
        ({"terms": ["a", "a"]}, "twice"),
        ({"terms": ["a" * 300]}, "no name"),
        ({"terms": [f"t{n}" for n in range(70_000)]}, "list of at most"),
        ({"terms": [1]}, "no name"),
        ({"scopes": []}, "empty"),
        ({"scopes": [f"s{n}" for n in range(100)]}, "list of at most"),
        ({"interval": -1}, "no time"),
        ({"how": "guessed"}, "none that this critpath knows"),
    ],
)
def test_a_forged_header_is_refused(tmp_path, change, what):
    with pytest.raises(UnreadableError, match=what) as caught:
        read(tmp_path, header={**HEADER, **change})
    assert "line 1" in caught.value.what


@pytest.mark.parametrize(
    "forged",
    [
        line(0, 10, [(3, 1)]),
        line(0, 10, [(-1, 1)]),
        line(0, 10, [(0, -1)]),
        line(0, 10, [(0, 2**63)]),
        line(0, 10, [(0, True)]),
        line(0, 10, [(0, 1.5)]),
        line(0, 2**80),
        line(0, 10, loss=-1),
        {**line(0, 10), "counts": [[]]},
        {**line(0, 10), "counts": 7},
        {**line(0, 10), "begin": "0"},
        [],
        b"null",
        b'{"begin": NaN}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_forged_line_is_refused(tmp_path, forged):
    with pytest.raises(UnreadableError, match="line 2"):
        read(tmp_path, forged)


def test_endless_lines_links_and_nothing_are_refused(tmp_path):
    with pytest.raises(UnreadableError, match="more than"):
        read(tmp_path, b" " * (5 << 20))
    (tmp_path / "link").symlink_to(tmp_path / "counts.jsonl")
    with pytest.raises(UnreadableError, match="no link"):
        read_counts(tmp_path / "link")
    (tmp_path / "counts.jsonl").write_bytes(b"")
    with pytest.raises(UnreadableError, match="no first line"):
        read_counts(tmp_path / "counts.jsonl")
    with pytest.raises(UnreadableError):
        read_counts(tmp_path / "nothing")


@given(st.binary(max_size=300))
def test_whatever_a_line_holds_there_is_an_answer_or_an_error(tmp_path_factory, content):
    place = tmp_path_factory.mktemp("any")
    try:
        counts, _ = read(place, content.replace(b"\n", b""))
    except UnreadableError:
        return
    assert np.diff(counts.start).sum() == len(counts.count)
