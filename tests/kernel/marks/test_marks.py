"""Marks that arrive in the kernel: of threads and children, and when a recording ends."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import critpath
from critpath_marks import channels, sessions


@pytest.fixture
def instance(tracefs_instance: Path) -> Iterator[Path]:
    (tracefs_instance / "trace_clock").write_text("mono")
    yield tracefs_instance
    channels.forget_channel()


def recorded(instance: Path) -> list[tuple[int, str]]:
    """Return (tid, message) of every mark in the instance."""
    found = re.findall(
        r"^.*?-(\d+) +\[\d+\].*?: tracing_mark_write: critpath:(.*)$",
        (instance / "trace").read_text(),
        re.MULTILINE,
    )
    return [(int(tid), text) for tid, text in found]


PROGRAM = """
    import os, threading, critpath
    print(threading.get_native_id(), flush=True)
    def work():
        print(threading.get_native_id(), flush=True)
        with critpath.execution("thread"):
            pass
    with critpath.execution("main", key=5):
        thread = threading.Thread(target=work); thread.start(); thread.join()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        with critpath.execution("child"):
            os._exit(0 if critpath.mark("begin", "x") else 1)
    raise SystemExit(os.wait()[1])
"""


@pytest.mark.parametrize("way", ["path", "descriptor", "none"])
def test_threads_and_children_mark_in_the_kernel(instance, way):
    marker = instance / "trace_marker"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CRITPATH")}
    with contextlib.ExitStack() as stack:
        keep = ()
        if way == "path":
            environment[channels.MARKER] = str(marker)
        if way == "descriptor":
            file = stack.enter_context(marker.open("wb"))
            keep = (file.fileno(),)
            environment[channels.DESCRIPTOR] = str(file.fileno())
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM)], pass_fds=keep, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    main, thread, child = map(int, done.stdout.splitlines())
    assert [mark for mark in recorded(instance) if mark[0] in {main, thread, child}] == [
        (main, "begin main 5"), (thread, "begin thread"), (thread, "end thread"),
        (main, "end main 5"), (child, "begin child"), (child, "begin x"),
    ]  # fmt: skip


def test_a_recording_that_ends_is_let_go_and_the_next_is_found(instance, monkeypatch):
    monkeypatch.setenv(channels.MARKER, str(instance / "trace_marker"))
    monkeypatch.delenv(channels.DESCRIPTOR, raising=False)
    channels.forget_channel()
    assert critpath.mark("begin", "one")
    (instance / "tracing_on").write_text("0")
    critpath.mark("end", "one")  # says that it is over
    other = instance.with_name(sessions.new_session_name())
    other.mkdir()
    try:
        instance.rmdir()  # nobody holds it
        channels.forget_channel()
        assert critpath.mark("begin", "two")
        assert "begin two" in [text for _, text in recorded(other)]
    finally:
        other.rmdir()  # a program that lives on does not hold it either
        instance.mkdir()


def test_a_closed_descriptor_does_no_harm(instance, monkeypatch, tmp_path):
    monkeypatch.setenv(channels.MARKER, str(instance / "trace_marker"))
    monkeypatch.delenv(channels.DESCRIPTOR, raising=False)
    channels.forget_channel()
    assert critpath.mark("begin", "one")
    os.closerange(channels._HIGH, channels._HIGH + 20)  # as daemons do
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((tmp_path / str(i)).open("wb")) for i in range(20)]
        assert critpath.mark("begin", "two")
        assert files
    assert sum((tmp_path / str(i)).stat().st_size for i in range(20)) == 0
    assert [t for _, t in recorded(instance)] == ["begin one", "begin two"]
