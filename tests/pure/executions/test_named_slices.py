"""Slices that a program names: what is paired, what is left out, what is listed."""

from __future__ import annotations

import pytest

from critpath.errors import UsageError
from critpath.executions import find_executions, parse_specification
from critpath.executions.listed import ListAskedError


@pytest.fixture
def marks(record):
    """Return a function: events of (time, tid, text), each thread on a cpu of its own."""

    def of(*rows, event="print", field="buf"):
        made = record()
        for cpu, tid in enumerate(sorted({tid for _, tid, _ in rows})):
            made.switch(0, cpu, (0, "swapper"), (tid, f"t{tid}"))
        cpus = {tid: cpu for cpu, tid in enumerate(sorted({tid for _, tid, _ in rows}))}
        for time, tid, text in rows:
            made.add(time, cpus[tid], event, **{field: text})
        return made.events()

    return of


def found_in(events, specification):
    found = find_executions(events, specification)
    rows = zip(found.begin.tolist(), found.end.tolist(), found.tid.tolist(), strict=True)
    return list(rows), found


def test_slices_nest_in_their_thread(marks):
    events = marks(
        (10, 1, "B|1|outer"),
        (20, 1, "B|1|inner"),
        (25, 2, "B|1|outer"),
        (30, 1, "E|1"),
        (40, 1, "E|1\n"),
        (50, 2, "E|outer"),
        (60, 1, "I|1|instant"),
    )
    assert found_in(events, "slice:outer")[0] == [(10, 40, 1), (25, 50, 2)]
    rows, found = found_in(events, "slice:inner")
    assert rows == [(20, 30, 1)]
    assert (found.label, found.comm, found.incomplete) == (("inner",), ("t1",), 0)


def test_a_slice_within_one_of_its_name_is_a_part_of_it(marks):
    events = marks(
        (10, 1, "B|1|f"), (20, 1, "B|1|f"), (30, 1, "E|1"), (40, 1, "E|1"), (50, 1, "B|1|f"),
        (60, 1, "E|1"),
    )  # fmt: skip
    rows, found = found_in(events, "slice:f")
    assert rows == [(10, 40, 1), (50, 60, 1)]
    assert any("1 slice within" in note for note in found.notes)


def test_numbers_in_names_are_any(marks):
    events = marks(
        (10, 1, "B|1|frame 17"), (20, 1, "E|1"), (30, 1, "B|1|frame 18|arg=3|cat"), (40, 1, "E|1"),
    )  # fmt: skip
    rows, found = found_in(events, "slice:frame #")
    assert rows == [(10, 20, 1), (30, 40, 1)]
    assert found.label == ("frame #",) * 2
    assert found_in(events, "slice:frame 18")[0] == [(30, 40, 1)]


def test_slices_with_cookies_pass_between_threads(marks):
    events = marks(
        (10, 1, "S|1|job|7"),
        (11, 1, "S|1|job|8"),
        (12, 1, "S|9|job|7"),
        (20, 2, "F|1|job|7"),
        (30, 1, "F|1|job|8"),
        (40, 1, "G|1|track|draw|5"),
        (50, 2, "H|1|track|5"),
    )
    rows, found = found_in(events, "slice:job")
    assert rows == [(10, 20, 2), (11, 30, 1)]
    assert found.incomplete == 1
    assert found_in(events, "slice:draw")[0] == [(40, 50, 2)]


def test_what_has_one_end_only_is_counted(marks):
    events = marks((5, 1, "E|1"), (10, 1, "B|1|f"), (20, 2, "B|1|g"), (30, 2, "E|1"))
    rows, found = found_in(events, "slice:f")
    assert (rows, found.incomplete) == ([], 1)
    assert any("1 begin without an end" in note for note in found.notes)
    assert any("1 end of slices without a begin" in note for note in found.notes)
    assert found_in(events, "slice:g")[1].incomplete == 0


def test_options_choose_among_them(marks):
    events = marks(
        (10, 1, "B|1|f"), (20, 1, "E|1"), (30, 2, "B|1|f"), (5000, 2, "E|1"), (6000, 2, "B|1|a,b"),
        (7000, 2, "E|1"),
    )  # fmt: skip
    assert found_in(events, "slice:f,comm=t1")[0] == [(10, 20, 1)]
    assert found_in(events, "slice:f,min=1us")[0] == [(30, 5000, 2)]
    assert found_in(events, r"slice:a\,b")[0] == [(6000, 7000, 2)]


def test_marks_of_other_tracers(marks):
    for event, field in (("ftrace:print", "buf"), ("trace_marker", "msg")):
        events = marks((10, 1, "B|1|f"), (20, 1, "E|1"), event=event, field=field)
        assert found_in(events, "slice:f")[0] == [(10, 20, 1)]


def test_names_are_listed(marks):
    events = marks(
        (10, 1, "B|1|frame 1"), (20, 1, "E|1"), (30, 1, "B|1|frame 2"), (45, 1, "E|1"),
        (50, 2, "B|1|load"), (60, 2, "E|1"), (70, 2, "B|1|load"),
    )  # fmt: skip
    with pytest.raises(ListAskedError, match=r"frame # \(2\), load \(1\)") as caught:
        find_executions(events, "slice:?")
    first, second = caught.value.rows
    assert (first.name, first.count, first.incomplete, first.slow_ns) == ("frame #", 2, 0, 14)
    assert (second.name, second.incomplete, second.remark) == ("load", 1, "t2 (1)")


@pytest.mark.parametrize(
    "text", ["slice", "slice:", "slice:f,root", "slice:f,min=1", "slice:f,x=1"]
)
def test_what_cannot_be_asked(text):
    with pytest.raises(UsageError):
        parse_specification(text)
