"""A recording of real commands: their pids, codes and words, and what they leave."""

from __future__ import annotations

import os
import pwd
import signal
import sys

import pytest

PRINTS = """
import os, sys
print(os.getpid(), [os.fsencode(a) for a in sys.argv[1:]], flush=True)
os.kill(os.getpid(), 15)
"""


def test_pids_words_and_signals_are_the_commands_own(box):
    odd = [b"a b", b"", b"\xff\xfe", "ä".encode(), b"--debug", b"--", b"$HOME\n", b"--show-config"]
    started = box.start("-n", "2", "--", sys.executable, "-c", PRINTS, *odd)
    assert started.end() == 128 + signal.SIGTERM, started.said
    runs = box.manifest()["runs"]
    assert [run["exit_code"] for run in runs] == [143, 143]
    assert started.out == "".join(f"{run['pid']} {odd!r}\n" for run in runs)
    assert [os.fsencode(word) for word in box.manifest()["command"][3:]] == odd
    assert box.calls() == ["open", "close", "drain"]


def test_what_outlives_a_run_is_counted_and_let_be_and_no_zombie_stays(box, watched):
    """What the first run left ends in the second, before its own: each is collected."""
    os.mkfifo(box.place / "go")
    stays = "setsid sleep 600 >&- 2>&- & echo $!; "
    first = "if mkdir first 2>/dev/null; then (read x <go) >&- 2>&- & exit; fi; "
    second = (
        "echo >go; for i in 1 2 3 4 5; do (true &); done; "
        # of critpath's children there are this one and what the first run left to stay
        "count() { cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') [A-Z] '$PPID' '; }; "
        "while [ $(count) != 2 ]; do :; done"
    )
    started = box.start("-n", "2", "--timeout", "60", "sh", "-c", stays + first + second)
    assert started.end() == 0, started.said
    watched.add(*started.out.split())
    assert [run["outlived"] for run in box.manifest()["runs"]] == [2, 1]
    assert "2 of 2 runs left processes running (3 in all)" in started.said
    assert watched.all_live()


def test_descriptors_and_input_of_the_caller_are_the_commands(box):
    reader, writer = os.pipe()
    try:
        started = box.start(
            *("sh", "-c", f"cat; echo hello >/proc/self/fd/{writer}"), pass_fds=(writer,), stdin=-1
        )
        assert started.end(b"some input") == 0, started.said
        assert started.out == "some input"
        assert os.read(reader, 100) == b"hello\n"
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.skipif(os.geteuid() != 0, reason="changes users, which needs root")
def test_under_sudo_the_command_is_the_users(box):
    nobody = pwd.getpwnam("nobody")
    env = {"SUDO_UID": str(nobody.pw_uid), "SUDO_GID": str(nobody.pw_gid), "SUDO_USER": "nobody"}
    line = 'echo "$(id -u) $HOME $USER $LOGNAME"'
    started = box.start("--prepare", "id -u", "sh", "-c", line, env=env)
    assert started.end() == 0, started.said
    said = f"{nobody.pw_uid} {nobody.pw_dir} nobody nobody"
    assert started.out.splitlines() == [str(nobody.pw_uid), said]
    assert {p.lstat().st_uid for p in (box.output, *box.output.rglob("*"))} == {nobody.pw_uid}
