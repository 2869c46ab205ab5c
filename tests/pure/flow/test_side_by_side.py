"""Works that are done side by side: as one after the other, but at the same time."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from functools import partial

import pytest

from critpath import processes
from critpath.errors import UsageError
from critpath.processes import side_by_side

ASKED: ContextVar[str] = ContextVar("asked", default="")


def test_what_they_give_is_in_their_order():
    assert side_by_side(*(lambda i=i: i for i in range(5))) == [0, 1, 2, 3, 4]
    assert side_by_side() == []


def test_they_are_at_work_at_the_same_time(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    both = threading.Barrier(2)
    assert sorted(side_by_side(both.wait, both.wait)) == [0, 1]


def test_with_one_processor_each_waits_for_the_one_before(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    threads = side_by_side(threading.get_ident, threading.get_ident)
    assert threads == [threading.get_ident()] * 2


def test_the_error_is_the_first_ones():
    def fail(what):
        raise UsageError(what, "")

    with pytest.raises(UsageError, match="first"):
        side_by_side(lambda: fail("first"), lambda: fail("second"))
    with pytest.raises(UsageError, match="second"):
        side_by_side(lambda: 1, lambda: fail("second"))


def test_what_was_decided_for_a_command_holds_in_each():
    token = ASKED.set("together")
    try:
        assert side_by_side(ASKED.get, ASKED.get) == ["together"] * 2
    finally:
        ASKED.reset(token)


def test_of_very_many_rows_two_are_at_work(monkeypatch):
    """The caller's work and one other at a time; what either is made of is done in order."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(processes, "_ROWS_AT_ONCE", 1)
    at_work: set[str] = set()
    seen: list[set[str]] = []
    second = threading.Event()

    def work(name: str) -> str:
        at_work.add(name)
        seen.append({*at_work})
        if name == "b":
            second.set()
        elif name == "a1":
            second.wait()  # for ever, if they were not two at a time
        at_work.discard(name)
        return name

    def both() -> list[str]:
        return side_by_side(partial(work, "a1"), partial(work, "a2"), rows=2)

    found = side_by_side(both, partial(work, "b"), partial(work, "c"), rows=2)
    assert found == [["a1", "a2"], "b", "c"]
    assert max(map(len, seen)) <= 2
    assert not any({"a1", "a2"} <= some or {"b", "c"} <= some for some in seen)
