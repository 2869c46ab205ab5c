"""Ctrl-C, kill and their like, sent to a critpath that records real commands."""

from __future__ import annotations

import os
import pty
import signal

import pytest

INT, TERM = signal.SIGINT, signal.SIGTERM
SAID = "ending: the recording is being finished"


def test_the_first_reaches_the_command_and_its_children_and_the_recording_is_finished(box, watched):
    started = box.start("-n", "9", "sh", "-c", "sleep 600 & echo $! $$; wait")
    watched.add(*started.read_out().split())
    started.send(TERM)
    assert started.end() == 143
    assert watched.all_end()
    manifest = box.manifest()
    assert (manifest["state"], [r["exit_code"] for r in manifest["runs"]]) == ("complete", [143])
    assert box.calls() == ["open", "close", "drain"]
    assert not box.instance


def test_the_second_ends_at_once(box, watched):
    line = (
        "trap '' INT TERM; setsid sh -c 'echo $$; exec sleep 600' & "
        "sh -c 'echo $$; exec sleep 600' & echo $$; wait"
    )
    started = box.start("sh", "-c", line)
    watched.add(*(started.read_out() for _ in range(3)))
    started.send(INT)
    started.wait_until_said(SAID)
    assert watched.all_live()
    started.send(TERM)
    assert started.end() == 143
    assert watched.all_end()
    assert box.is_clean()
    assert box.calls() == ["open", "abort"]


@pytest.mark.parametrize("step", ["open", "drain"])
def test_the_second_ends_a_recorder_that_is_at_work(box, wait_for, step):
    started = box.start("true", env={"FAKE_STOPS": step})
    wait_for(lambda: step in box.calls())
    started.send(INT)
    started.wait_until_said(SAID)
    started.send(TERM)
    assert started.end() == 143
    assert box.is_clean()
    assert box.calls()[-1] == "abort"


def test_ignored_signals_stay_ignored(box):
    started = box.start(
        *("sh", "-c", "echo; read x; kill -HUP $$; exit 4"),
        stdin=-1,
        through=("sh", "-c", "trap '' HUP; exec \"$@\"", "sh"),
    )
    started.read_out()
    started.send(signal.SIGHUP)
    assert started.end(b"\n") == 4


def test_a_reader_of_stderr_that_is_gone_costs_no_recording(box):
    reader, writer = os.pipe()
    started = box.start("sh", "-c", "echo; exec sleep 600", stderr=writer)
    os.close(writer)
    started.read_out()
    os.close(reader)
    started.send(INT)
    started.end()
    assert box.manifest()["state"] == "complete"


def test_the_command_dies_with_its_recorder(box, watched):
    started = box.start("sh", "-c", "echo $$; exec sleep 600")
    watched.add(started.read_out())
    started.send(signal.SIGKILL)
    started.end()
    assert watched.all_end()
    assert box.manifest()["state"] == "recording"


def test_of_a_recorder_that_was_killed_before_tracing_was_on_nothing_stays(box, wait_for):
    started = box.start("--interleave", "true", "true", env={"FAKE_STOPS": "open"})
    wait_for(lambda: "open" in box.calls())
    started.send(signal.SIGKILL)
    started.end()
    assert box.manifest("rec/normal")["begin"] == 0
    assert box.start("-o", "next", "true").end() == 0
    assert not box.output.exists()


@pytest.fixture
def terminal(box):
    """Return a function that starts critpath in the foreground of a terminal of its own."""
    opened = []

    def start(*arguments):
        ours, theirs = pty.openpty()
        opened.append(ours)
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        started = box.start(*arguments, through=("setsid", "--ctty"), **streams)
        os.close(theirs)
        return started, Terminal(ours)

    yield start
    for each in opened:
        os.close(each)


class Terminal:
    """What is typed into a terminal, and all that it shows."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.shown = ""

    def type(self, keys: bytes) -> None:
        os.write(self.descriptor, keys)

    def wait_until_shown(self, text: str) -> None:
        while text not in self.shown:
            assert self._read(), f"it ended, and had shown: {self.shown}"

    def read_to_end(self) -> str:
        while self._read():
            pass
        return self.shown

    def _read(self) -> bool:
        try:
            data = os.read(self.descriptor, 4096)
        except OSError:  # nobody has it open any more
            return False
        self.shown += data.decode()
        return bool(data)


COUNTS = """
import os, signal
got = []
signal.signal(2, lambda *_: got.append(1))
print("ready", flush=True)
input()
os._exit(10 + len(got))
"""


def test_ctrl_c_at_a_terminal_reaches_the_command_once(box, terminal):
    started, typed = terminal("python3", "-c", COUNTS)
    typed.wait_until_shown("ready")
    typed.type(b"\x03")
    typed.wait_until_shown(SAID)
    typed.type(b"\n")
    text = typed.read_to_end()
    assert started.end() == 11, text
    assert box.manifest()["state"] == "complete"


def test_ctrl_c_twice_at_a_terminal(box, terminal, watched):
    started, typed = terminal("sh", "-c", "trap '' INT QUIT; echo pid=$$@; exec sleep 600")
    typed.wait_until_shown("@")
    watched.add(typed.shown.partition("pid=")[2].partition("@")[0])
    typed.type(b"\x03")
    typed.wait_until_shown(SAID)
    typed.type(b"\x1c")  # Ctrl-\, as Ctrl-C at once would be the same request
    text = typed.read_to_end()
    assert started.end() == 131, text
    assert watched.all_end()
    assert box.is_clean()
