"""Slices without a network: drawings, the stage against its plain twin, and what always holds."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.model import Loss
from critpath.model.requests import MARKERS, Act, Activity
from critpath.requests import implicit

HERE = Path(__file__).resolve().parent
CALL = {"futex": "futex", "semaphore": "semop", "queue": "msgrcv", "pipe": "read"}
ACTS = {"z": Act.SLEEP, "x": Act.EXIT, "g": Act.RUN}


@pytest.fixture(scope="module")
def drawing(load: Any) -> ModuleType:
    return load("pure/requests/drawing.py")


@pytest.fixture(scope="module")
def plain(load: Any) -> ModuleType:
    return load("oracle/implicit.py")


def make_activity(rows: list[tuple[int, Act, int, int, int]]) -> Activity:
    """Return rows of time, act, thread, endpoint, value as the table."""
    time, act, tid, endpoint, value = np.array(rows, np.int64).reshape(-1, 5).T
    return Activity(
        time,
        act.astype(np.uint8),
        tid.astype(np.int32),
        np.zeros(len(rows), np.int32),
        endpoint.astype(np.int32),
        value,
    )


def make_calls(rows: list[tuple[int, int, str, bool, int]]) -> implicit.Calls:
    """Return rows of time, thread, name, begins, about as the table."""
    names = tuple(dict.fromkeys(name for _, _, name, _, _ in rows))

    def column(at: int) -> Any:
        return np.array([row[at] for row in rows], np.int64)

    return implicit.Calls(
        *(column(0), np.zeros(len(rows), np.int64), column(1)),
        np.array([names.index(row[2]) for row in rows], np.int64),
        column(3).astype(np.bool_),
        column(4),
        names,
    )


def draw(each: Any, marker: str) -> tuple[list[Any], list[Any], dict[str, int]]:
    """Return a drawing's rows of activity, its calls, and the ids of its threads."""
    tids = {name: 10 + i for i, name in enumerate(n for n in each.lines if n != "irq")}
    rows, calls = [], []
    inside: dict[str, str] = {}
    events = sorted((t, name, word) for name, line in each.lines.items() for word, t in line)
    for time, name, word in events:
        tid = tids.get(name, -1)
        letter, of = word[0], word[1:]
        about = ord(of[0]) * 8 + 4 * of.endswith("'") if of and letter in "[wu" else -1
        if word in ACTS:
            rows.append((time, ACTS[word], tid, -1, 0))
        elif letter in "!+":
            rows.append((time, Act.WAKE if letter == "!" else Act.CREATE, tid, -1, tids[of]))
        elif letter == "u":
            rows.append((time, Act.RECEIVE, tid, about, 1))
        elif letter == "^":
            calls.append((time, tid, "signal_deliver", True, 10))
        else:
            if letter in "[w":
                inside[name] = "write" if letter == "w" else CALL[marker]
            calls.append((time, tid, inside[name], letter != "]", about))
    return rows, calls, tids


def find_time(each: Any, name: str, token: str) -> int:
    """Return when a token stands on a line; ``+`` behind it for the next of several."""
    line, colon, word = token.rpartition(":")
    again = len(word) - len(word.rstrip("+"))
    times = [t for w, t in each.lines[line if colon else name] if w == word.rstrip("+")]
    return int(times[again])


def test_drawings(drawing: ModuleType) -> None:
    text = (HERE / "drawings" / "implicit.txt").read_text(encoding="utf-8")
    markers = [block.split("\n")[1].strip() for block in text.split("\n# ")[1:]]
    drawings = list(drawing.read_drawings(HERE / "drawings" / "implicit.txt"))
    assert {*markers} == {*MARKERS} - {"eventfd"}
    assert len(drawings) >= 28
    for each, marker in zip(drawings, markers, strict=True):
        each.lines.pop(marker, None)
        rows, calls, tids = draw(each, marker)
        groups = {n: n.partition(".")[0] if "." in n else "" for n in tids}
        processes = {tids[n]: 1000 + sorted({*groups.values()}).index(g) for n, g in groups.items()}
        found = implicit.find_slices(
            make_activity(rows),
            drawing.workers_of(processes),
            marker,
            make_calls(calls),
            np.full(1000, implicit.UNIX) if marker == "unix" else None,
        )
        times = list(zip(found.tid.tolist(), found.begin_ns.tolist(), strict=True))
        got = {
            (tid, begin, end, times[parent] if parent >= 0 else None)
            for (tid, begin), end, parent in zip(
                times, found.end_ns.tolist(), found.parent.tolist(), strict=True
            )
        }
        want = set()
        for line in each.slices:
            name, begin, end, parent = line.split()
            of, _, at = parent.partition("@")
            cause = None if parent == "-" else (tids[of], find_time(each, of, at))
            of_name = (find_time(each, name, token) for token in (begin, end))
            want.add((tids[name], *of_name, cause))
        assert (each.title, got) == (each.title, want)


THREADS = range(1, 6)
PROCESSES = {1: 1, 2: 1, 3: 1, 4: 4, 5: 4}


@st.composite
def lives(draw_one: Any) -> list[tuple[int, Act, int, int, int]]:
    """Draw what threads do, mostly in a possible order."""
    rows = []
    time = 0
    for _ in range(draw_one(st.integers(0, 60))):
        time += draw_one(st.integers(0, 3))
        act = draw_one(st.sampled_from((*[Act.SLEEP, Act.WAKE, Act.RUN] * 4, Act.CREATE, Act.EXIT)))
        thread = draw_one(st.sampled_from((-1, *THREADS) if act == Act.WAKE else THREADS))
        about = act in {Act.WAKE, Act.CREATE}
        value = draw_one(st.sampled_from(THREADS)) if about else 0
        rows.append((time, act, thread, -1, value))
    return rows


@pytest.mark.parametrize("marker", ["wake", "fork"])
@given(rows=lives())
def test_as_the_plain_twin(
    drawing: ModuleType, plain: ModuleType, marker: str, rows: list[Any]
) -> None:
    found = implicit.find_slices(make_activity(rows), drawing.workers_of(PROCESSES), marker)
    twin = plain.order(
        plain.find_slices([(t, a, tid, v) for t, a, tid, _, v in rows], PROCESSES, marker)
    )
    want = [(s.thread, s.begin, s.end, s.parent) for s in twin]
    columns = (found.tid, found.begin_ns, found.end_ns, found.parent)
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == want


@given(data=st.data(), rows=lives())
def test_as_the_plain_twin_by_calls(
    drawing: ModuleType, plain: ModuleType, data: st.DataObject, rows: list[Any]
) -> None:
    # No two things at one time, so that it is clear which came first.
    rows = [(3 * i, *row[1:]) for i, row in enumerate(rows)]
    chosen = st.tuples(st.sampled_from(THREADS), st.booleans(), st.sampled_from([8, 16]))
    drawn = data.draw(st.lists(chosen, max_size=len(rows)))
    calls = [
        (3 * i + 1, tid, "futex", begins, about) for i, (tid, begins, about) in enumerate(drawn)
    ]
    about = {}
    for time, act, tid, _, _ in rows:
        mine = [(begins, what) for at, of, _, begins, what in calls if of == tid and at < time]
        if act == Act.SLEEP and mine and mine[-1][0]:
            about[tid, time] = mine[-1][1]
    made = plain.find_slices([(t, a, tid, v) for t, a, tid, _, v in rows], PROCESSES, "", about)
    workers = drawing.workers_of(PROCESSES)
    found = implicit.find_slices(make_activity(rows), workers, "futex", make_calls(calls))
    columns = (found.tid, found.begin_ns, found.end_ns)
    want = sorted((s.thread, s.begin, s.end) for s in plain.order(made))
    assert sorted(zip(*(c.tolist() for c in columns), strict=True)) == want


@pytest.mark.parametrize("marker", ["wake", "fork"])
@given(rows=lives())
def test_what_always_holds(drawing: ModuleType, marker: str, rows: list[Any]) -> None:
    found = implicit.find_slices(make_activity(rows), drawing.workers_of(PROCESSES), marker)
    assert (found.end_ns > found.begin_ns).all()
    assert (np.diff(found.begin_ns) >= 0).all()
    # A cause comes before what it causes, and a root causes itself.
    assert (found.parent < np.arange(len(found))).all()
    roots = found.root
    assert (found.parent[roots] < 0).all()
    for tid in np.unique(found.tid):
        mine = found.tid == tid
        assert (found.begin_ns[mine][1:] >= found.end_ns[mine][:-1]).all()


def test_slices_that_losses_touch_are_left_out(drawing: ModuleType) -> None:
    rows = [(0, Act.CREATE, 1, -1, 2), (50, Act.EXIT, 2, -1, 0), (60, Act.CREATE, 1, -1, 3)]
    rows += [(90, Act.EXIT, 3, -1, 0)]
    lost = [Loss(10, 20, 0, 0, 1, 0, "discarded")]
    found = implicit.find_slices(
        make_activity(rows), drawing.workers_of(PROCESSES), "fork", losses=lost
    )
    assert found.tid.tolist() == [3]
    assert found.lost == 1
