"""Works that are done side by side: as one after the other, but at the same time."""

from __future__ import annotations

import threading
from contextvars import ContextVar

import pytest

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
