"""Progress: on a terminal, for long work, and never as markup."""

from __future__ import annotations

import io
import sys
import threading
import time

from critpath.commands import output
from critpath.commands.output import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def become_terminal(monkeypatch) -> Terminal:
    # In the test itself: pytest puts its own stderr back after the fixtures.
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    return sys.stderr


def wait_for(condition, seconds=5.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_long_work_on_a_terminal_shows_the_latest_message(monkeypatch):
    terminal = become_terminal(monkeypatch)
    monkeypatch.setattr(output, "DELAY", 0.01)
    with Progress(quiet=False) as say:
        say("reading [bold]\x1b[31mthis")
        assert wait_for(lambda: "reading" in terminal.getvalue())
        say("comparing")
        assert wait_for(lambda: "comparing" in terminal.getvalue())
    shown = terminal.getvalue()
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
