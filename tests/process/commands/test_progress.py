"""Progress as a terminal gets it: one line, which is gone at the end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios

import pytest

WAITING = """
import sys
from critpath.commands import output
with output.Progress(quiet=False) as say:
    say._start()  # as its timer does, when the work takes long
    for message in sys.argv[1:]:
        say(message)
        say._status._live.refresh()
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


@pytest.mark.parametrize("verb", ["compare", "export", "path"])
def test_a_command_leaves_only_its_answer_on_the_terminal(verb, guest, extracted, tmp_path):
    recording = guest("sample-lock")
    arguments = {
        "compare": [extracted("normal"), extracted("sample-lock")],
        "export": [recording, "--format", "paths", "-o", tmp_path / "paths"],
        "path": [recording],
    }[verb]
    seen = see_on_terminal(COMMAND, verb, *map(str, arguments))
    assert re.search(rb"(reading|walking|comparing|finding|testing) ", seen)
    left = "\n".join(screen_of(re.sub(rb"\x1b\[[0-9;]*m", b"", seen)))
    assert not re.search("(reading|walking|finding kinds|testing differences)", left)
    assert {"compare": "SLOWER", "export": "saved to", "path": "next:"}[verb] in left
