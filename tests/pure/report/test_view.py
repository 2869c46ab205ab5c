"""A window's page: its columns are the timeline's, whatever names are in it, and it has a bound."""

from __future__ import annotations

import base64
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "timeline"))
from building import build
from hostile import NAMES

from critpath.errors import UsageError
from critpath.graph.critical_path import find_lifetimes, subject_workers
from critpath.graph.execution_graph import critical_paths
from critpath.model import Kind, Loss, PathSet, State
from critpath.report.view import drawn, render_window
from critpath.timeline.replay import replay

MS = 1_000_000
# Thread 7 runs, is woken by 8 after a sleep, and waits for cpu 0, which 9 has.
ROWS = (
    (0, 0, Kind.SWITCH, (0, 0, 7)),
    (0, 1, Kind.SWITCH, (0, 0, 8)),
    (2 * MS, 0, Kind.SWITCH, (7, 1, 9)),
    (3 * MS, 1, Kind.WAKING, (7, 0)),
    (4 * MS, 1, Kind.SWITCH, (8, 1, 0)),
    (9 * MS, 0, Kind.SWITCH, (9, 0, 7)),
    (10 * MS, 0, Kind.IRQ_ENTRY, (5, "eth0")),
    (int(10.5 * MS), 0, Kind.IRQ_EXIT, (5,)),
    (12 * MS, 0, Kind.SWITCH, (7, 1, 0)),
)
BEGIN, END = 1 * MS, 13 * MS


def made(*, tid=7, rows=ROWS, losses=(), change=lambda text: text):
    """Return timelines, and the path of a thread through the window."""
    events = build(rows, losses=losses, end=13 * MS)
    lines = replay(events)
    lines = replace(lines, strings=tuple(change(text) if text else "" for text in lines.strings))
    executions = find_lifetimes(
        lines.workers, lines.strings, tid, None, (BEGIN, END), (events.begin, events.end)
    )
    subjects = subject_workers(lines.workers, executions)
    paths = critical_paths(lines, subjects, executions.begin, executions.end)
    return lines, PathSet(
        executions, paths, np.zeros(1, np.int64), ("made",), "thread", (), np.zeros(1, np.bool_)
    )


def page_of(lines, path=None, span=(BEGIN, END), hosts=("",), command="critpath view made"):
    return render_window(
        lines, span=span, hosts=hosts, path=path, recording="made", command=command
    )[0]


def data_of(page):
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


def column(packed):
    kind, text = packed
    return np.frombuffer(base64.b64decode(text), f"<{kind}").astype(np.int64)


def intervals(packed, start=None):
    """Return (owner, begin, end) of a page's rows, as they were before the window cut them."""
    gap, length = column(packed["gap"]), column(packed["length"])
    start = column(packed["start"]) if start is None else start
    found = []
    for owner in range(len(start) - 1):
        before = 0
        for row in range(start[owner], start[owner + 1]):
            before += gap[row]
            found.append((owner, before, before + length[row]))
            before += length[row]
    for row, begin, end in zip(
        *(column(packed[name]) for name in ("cut", "cutBegin", "cutEnd")), strict=True
    ):
        found[row] = found[row][0], begin, end
    return found


def test_every_interval_is_the_timeline_s():
    lines, path = made()
    data = data_of(page_of(lines, path))
    names = data["names"]
    assert [names[at] for at in range(data["onPath"])] == ["t7 7", "t8 8"]
    states = [State(code).name for code in column(data["rows"]["state"])]
    cpus = column(data["rows"]["cpu"]) - 1
    wakers = [names[at - 1] if at else "" for at in column(data["rows"]["waker"])]
    found = {
        (names[owner], begin + BEGIN, end + BEGIN, state, cpu, waker)
        for (owner, begin, end), state, cpu, waker in zip(
            intervals(data["rows"]), states, cpus.tolist(), wakers, strict=True
        )
    }
    owner = np.repeat(np.arange(len(lines.workers)), np.diff(lines.start))
    expected = {
        (
            drawn.draw_window(lines, BEGIN, END, None).name_of(worker),
            begin,
            end,
            State(state).name,
            cpu,
            drawn.draw_window(lines, BEGIN, END, None).name_of(waker),
        )
        for worker, begin, end, state, cpu, waker in zip(
            *(owner.tolist(), lines.begin.tolist(), lines.end.tolist(), lines.state.tolist()),
            *(lines.cpu.tolist(), lines.waker.tolist()),
            strict=True,
        )
        if end > BEGIN and begin < END and lines.workers.idle_cpu[worker] < 0
    }
    assert found == expected
    assert ("t7 7", 3 * MS, 9 * MS, "WAIT_CPU", 0) in {row[:5] for row in found}


def test_rows_of_cpus_are_the_window():
    lines, path = made()
    cpus = data_of(page_of(lines, path))["cpus"]
    spent = {0: 0, 1: 0}
    for owner, begin, end in intervals(cpus["ran"]):
        spent[owner] += min(end, END - BEGIN) - max(begin, 0)
    assert set(spent.values()) == {END - BEGIN}
    [interrupt] = intervals(cpus["stolen"])
    assert interrupt[1:] == (10 * MS - BEGIN, int(10.5 * MS) - BEGIN)
    listed = page_of(lines, path)
    table = listed[listed.index("Who had each CPU") :]
    assert re.search(r"cpu 0</td><td><code>t9 9</code></td><td[^>]*>7.00\xa0ms", table)


def test_the_path_is_the_execution_s():
    lines, path = made()
    page = page_of(lines, path)
    data = data_of(page)
    rows = intervals(data["path"], np.array([0, len(path.paths.begin)]))
    assert [row[1:] for row in rows] == [
        (begin - BEGIN, end - BEGIN)
        for begin, end in zip(path.paths.begin.tolist(), path.paths.end.tolist(), strict=True)
    ]
    assert rows[0][1] == 0
    assert rows[-1][2] == END - BEGIN
    assert "waiting for a CPU that <code>t9 (9)</code> had" in page


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, *(name for name, _ in attrs)))


@pytest.mark.parametrize("name", [*NAMES, "w" * 300])
def test_names_of_a_trace_are_only_text(name):
    usual = Tags(page_of(*made(change=lambda _: "w"), hosts=("w",), command="w")).found
    page = page_of(*made(change=lambda _: name), hosts=(name,), command=name)
    backticks = {("code",)}  # of a name that quotes
    found = Tags(page).found
    assert [tag for tag in found if tag not in backticks] == [
        tag for tag in usual if tag not in backticks
    ]
    assert not re.search(r"[\x00\x1b\x9b\u202e\u2028]", page)


def test_the_policy_lets_nothing_in():
    page = page_of(*made())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert not re.search(r'\sstyle="|\son\w+="|(src|href)="(?!#)', page)
    assert page == page_of(*made())


def test_a_loss_within_the_window_is_said():
    lines, path = made(losses=(Loss(5 * MS, 6 * MS, 0, 1, 12, 0, "discarded"),))
    page = page_of(lines, path)
    assert "12 events were lost within the window" in page
    assert data_of(page)["losses"] == [[4.0 * MS, 5.0 * MS, 0, 1, 12]]
    assert "were lost" not in page_of(lines, path, span=(8 * MS, END))


def test_what_has_no_room_is_left_out_and_said(monkeypatch):
    lines, path = made()
    data = data_of(page_of(lines, path))
    packed = (data["rows"], data["path"], data["cpus"]["ran"], data["cpus"]["stolen"])
    monkeypatch.setattr(drawn, "MOST", sum(len(column(each["gap"])) for each in packed) - 1)
    page, left = render_window(
        lines, span=(BEGIN, END), hosts=("",), path=path, recording="made", command="made"
    )
    assert left.startswith("1 thread with ")
    assert left.partition(":")[0] in page
    # It has no row any more; that it had the CPU is still said.
    assert data_of(page)["names"] == ["t7 7", "t8 8", "t9 9"]
    assert len(column(data_of(page)["host"])) == 2
    monkeypatch.setattr(drawn, "MOST", 5)
    with pytest.raises(UsageError, match="a page has room for 5") as error:
        page_of(lines, path)
    assert "--from" in error.value.do


def test_a_window_without_a_path_says_how_to_have_one():
    page = page_of(made()[0])
    assert "<code>--around ID</code>" in page
    assert 'id="path"' not in page
    assert data_of(page)["onPath"] == 0
