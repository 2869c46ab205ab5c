"""Progress: on a terminal, for long work, on one line that is gone at the end."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
import threading
import time

import pytest

from critpath.commands import output
from critpath.commands.output import Progress
from critpath.commands.record import recording_so_far
from critpath.pipeline.progress import Stage
from critpath.units import format_span


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


# How long work tells what is done of it.


class Clock:
    def __init__(self, monkeypatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("critpath.pipeline.progress.time.monotonic", lambda: self.now)


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


WAITING = """
import sys, time
from critpath.commands import output
output.DELAY = 0.0
with output.Progress(quiet=False) as say:
    while say._status is None:  # it begins in a thread, which imports rich
        time.sleep(0.01)
    for message in sys.argv[1:]:
        say(message)
        time.sleep(0.5)
"""
COMMAND = """
import sys
from critpath.commands import main, output
output.DELAY = 0.0
sys.exit(main(sys.argv[1:]))
"""


def see_on_terminal(script: str, *arguments: str, columns: int = 80) -> bytes:
    """Return the bytes that a terminal of so many columns got of a program."""
    pid, terminal = pty.fork()
    if pid == 0:
        # As wide as the terminal before anything is written.
        os.environ.update(TERM="xterm", COLUMNS=str(columns))
        os.execv(sys.executable, [sys.executable, "-c", script, *arguments])  # noqa: S606
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    seen = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux: who wrote is gone
            break
        if not piece:
            break
        seen += piece
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in {0, 1}
    return seen


def screen_of(seen: bytes) -> list[str]:
    """Return the lines that are left on a screen, by the few codes that progress uses."""
    lines, row, column = [""], 0, 0
    for code, text in re.findall(r"(\x1b\[[0-9?;]*[A-Za-z]|[\r\n])|([^\x1b\r\n]+)", seen.decode()):
        if text:
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
            column += len(text)
        elif code == "\r":
            column = 0
        elif code == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif code.endswith("A"):
            row -= int(code[2:-1] or 1)
        elif code.endswith("K"):
            lines[row] = "" if code[2:-1] == "2" else lines[row][:column]
        else:
            assert code[-1] in "mhl", code
        assert row >= 0
    return lines


def test_progress_is_one_line_and_gone_at_the_end():
    messages = "reading a: 10 %", "reading " + "long/" * 40 + ": 20 %", "adding up"
    seen = see_on_terminal(WAITING, *messages, columns=40)
    assert b"reading a: 10 %" in seen
    assert "…".encode() in seen  # what is longer than the line
    shown = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", seen.decode())
    assert max(len(line) for line in re.split("[\r\n]", shown)) <= 40
    # One line: nothing went down a line before the end, where the cursor comes back up.
    assert seen.count(b"\n") == 1
    assert not any(line.strip() for line in screen_of(seen))
    assert seen.count(b"\x1b[?25l") == seen.count(b"\x1b[?25h") == 1  # the cursor is back


@pytest.mark.parametrize("verb", ["compare", "extract", "path"])
def test_a_command_leaves_only_its_answer_on_the_terminal(verb, guest, tmp_path):
    one, other = (str(guest(name)) for name in ("normal", "sample-lock"))
    arguments = {
        "compare": [one, other],
        "extract": [one, "-o", str(tmp_path / "paths")],
        "path": [one],
    }[verb]
    seen = see_on_terminal(COMMAND, verb, *arguments)
    assert re.search(rb"(reading|walking|comparing|finding|testing) ", seen)
    left = "\n".join(screen_of(re.sub(rb"\x1b\[[0-9;]*m", b"", seen)))
    assert not re.search("(reading|walking|finding kinds|testing differences)", left)
    assert {"compare": "SLOWER", "extract": "saved to", "path": "next:"}[verb] in left
