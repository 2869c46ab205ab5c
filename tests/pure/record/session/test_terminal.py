"""What a terminal shows while it is recorded, by a played clock."""

from __future__ import annotations

import re

import pytest

from critpath.commands import record as verb
from tests.played.session import STAYS


@pytest.fixture
def at_terminal(session, monkeypatch):
    """Have critpath take its stderr for a terminal."""

    class AtTerminal(verb.ProgressReporter):
        def __init__(self, *, quiet):
            super().__init__(quiet=quiet)
            self._terminal = not quiet

    monkeypatch.setattr(verb, "ProgressReporter", AtTerminal)
    monkeypatch.setattr(verb, "time", session.clock)
    return session


def test_which_run_it_is_is_shown_after_a_second_and_not_too_often(at_terminal):
    def work(process):
        at_terminal.clock.call_at(at_terminal.clock.now + 0.2, process.exit)
        return STAYS

    at_terminal.commands(work=work)
    done = at_terminal.record("-n", "9", "work")
    assert done.code == 0
    assert re.findall(r"\[run (\d) of 9\] ", done.err) == ["6", "8"]
    assert done.err.endswith("other\n")


def test_a_machine_counts_down(at_terminal):
    done = at_terminal.record("-a", "--duration", "2.4")
    assert done.code == 0
    shown = re.findall(r"\r\x1b\[K(\d s left)(, [\d,]+ events/s)?", done.err)
    # A rate takes two looks.
    rate = ", 1,000 events/s"
    assert shown[:3] == [("2 s left", ""), ("1 s left", rate), ("1 s left", rate)]
    # The line is cleared before anything else is printed.
    assert re.search(r" events/s\r\x1b\[K(?!\d)", done.err)
