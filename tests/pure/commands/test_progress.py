"""Progress: on a terminal, for long work, on one line that is gone at the end."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from critpath.commands import output
from critpath.commands.output import Progress
from critpath.commands.record import recording_so_far
from critpath.progress import Stage
from critpath.units import format_span


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def become_terminal(monkeypatch) -> Terminal:
    # In the test itself: pytest puts its own stderr back after the fixtures.
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    return sys.stderr


# How long work tells what is done of it.


class Clock:
    def __init__(self, monkeypatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("critpath.progress.time.monotonic", lambda: self.now)


def test_a_stage_tells_its_name_then_the_share_and_the_rest(monkeypatch):
    clock, told = Clock(monkeypatch), []
    stage = Stage(told.append, "reading a (1 of 2)")
    for clock.now, share in ((1.0, 0.1), (1.05, 0.11), (3.0, 0.25), (90.0, 0.5), (180.0, 1.0)):
        stage.reach(share)
    assert told == [
        "reading a (1 of 2)",
        "reading a (1 of 2): 10 %",
        "reading a (1 of 2): 25 %, about 9 s left",
        "reading a (1 of 2): 50 %, about 1 min 30 s left",
        "reading a (1 of 2): 100 %",
    ]


def test_nobody_who_listens_is_told_nothing(monkeypatch):
    Clock(monkeypatch).now = 5.0
    Stage(None, "reading").reach(0.5)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (41.4, "41 s"), (60, "1 min"), (75, "1 min 15 s"), (3725, "62 min")],
)
def test_a_rest_is_said_as_people_do(seconds, said):
    assert format_span(seconds) == said


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ((30.0, 0.0, None), "30 s left"),
        ((29.0, 1.0, 41_234.4), "29 s left, 41,234 events/s"),
        ((29.0, 1.0, 41_234.4, 7), "29 s left, 41,234 events/s, 7 events lost"),
        ((None, 61.0, 12.0, 1), "1 min 1 s so far, 12 events/s, 1 event lost"),
    ],
)
def test_a_recording_counts_down(facts, said):
    assert recording_so_far(*facts) == said


# What a terminal gets.


def test_long_work_on_a_terminal_shows_the_latest_message(monkeypatch):
    terminal = become_terminal(monkeypatch)
    with Progress(quiet=False) as say:
        say("reading [bold]\x1b[31mthis")
        say._start()  # as its timer does, when the work takes long
    with Progress(quiet=False) as say:
        say._start()
        say("comparing")
    shown = terminal.getvalue()
    assert "reading" in shown
    assert "comparing" in shown
    assert "[bold]" in shown
    assert "\x1b[31mthis" not in shown


def test_short_work_shows_nothing(monkeypatch):
    terminal = become_terminal(monkeypatch)
    with Progress(quiet=False) as say:
        say("reading")
    assert terminal.getvalue() == ""


def test_nothing_without_a_terminal_or_when_quiet(monkeypatch):
    terminal = become_terminal(monkeypatch)
    monkeypatch.setattr(output, "DELAY", 0.0)
    before = threading.active_count()
    with Progress(quiet=True) as say:
        say("reading")
        assert threading.active_count() == before
    assert terminal.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Progress(quiet=False) as say:
        say("reading")
        assert threading.active_count() == before
    assert sys.stderr.getvalue() == ""
