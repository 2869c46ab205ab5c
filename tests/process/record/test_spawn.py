"""What a command gets from its recorder: what the caller had, and nothing of ours."""

from __future__ import annotations

import errno
import json
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from critpath_record._spawn import SpawnError, become_subreaper, collect, spawn
from critpath_record.runner import shell_code

root = pytest.mark.skipif(os.geteuid() != 0, reason="changes users, which needs root")

REPORT = """
import json, os, re, sys
status = dict(re.findall(r"^(\\w+):[ \\t]*(.*)$", open("/proc/self/status").read(), re.M))
keys = ("SigBlk", "SigIgn", "SigPnd", "ShdPnd", "Uid", "Gid", "Groups")
fds = sorted(int(x) for x in os.listdir("/proc/self/fd"))
own = {}
for fd in fds:
    try: own[fd] = os.readlink(f"/proc/self/fd/{fd}")
    except OSError: pass
json.dump({
    **{k: status[k].split() for k in keys},
    "fds": own, "nice": os.getpriority(os.PRIO_PROCESS, 0),
    "policy": os.sched_getscheduler(0), "affinity": sorted(os.sched_getaffinity(0)),
    "cwd": os.getcwd(), "umask": os.umask(0), "environment": dict(os.environ),
}, sys.stdout)
"""
# Not of Python, nor of a shell, which change them at their start.
MASKS = ("grep", "-E", "^(SigBlk|SigIgn|SigCgt)", "/proc/self/status")
ODD = ("env", "--block-signal=USR1,TERM", "--ignore-signal=HUP,USR2,CHLD,RTMIN")


def end_of(pid):
    """Wait for the end of a child, and return what the recorder is told of it."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return collect(pid)


@pytest.fixture
def start():
    def call(line, **options):
        argv = [b"sh", b"-c", os.fsencode(line)]
        pid, begin, executed = spawn(b"/bin/sh", argv, [b"A=b"], **options)
        status, end = end_of(pid)
        assert begin <= executed < end
        return shell_code(status)

    return call


def test_codes(start):
    assert start("exit 7") == 7
    assert start("kill -TERM $$") == 143
    assert start("kill -KILL $$") == 137
    assert start('test "$A" = b') == 0
    assert start('test "$PWD" = /', cwd=b"/") == 0


def test_a_script_without_a_first_line_is_run_by_sh(tmp_path):
    script = tmp_path / "script"
    script.write_text('echo "<$1>" >"$2"; exit 3\n')
    script.chmod(0o755)
    out = tmp_path / "out"
    pid, _, _ = spawn(os.fsencode(script), [b"script", b"a b", os.fsencode(out)], [])
    assert shell_code(end_of(pid)[0]) == 3
    assert out.read_text() == "<a b>\n"


@pytest.fixture
def broken(tmp_path):
    """A script whose interpreter there is not."""
    script = tmp_path / "broken"
    script.write_text("#!/nosuch/interpreter\n")
    script.chmod(0o755)
    return os.fsencode(script)


@pytest.mark.parametrize(
    ("program", "options", "number", "step"),
    [
        (b"/nosuch", {}, errno.ENOENT, "exec"),
        (b"/", {}, errno.EACCES, "exec"),
        (b"", {}, errno.ENOENT, "exec"),  # broken
        (b"/bin/true", {"cwd": b"/nosuch"}, errno.ENOENT, "chdir"),
    ],
)
def test_a_child_that_fails_says_at_what(broken, program, options, number, step):
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(SpawnError) as caught:
        spawn(program or broken, [b"x"], [], **options)
    assert (caught.value.errno, caught.value.step) == (number, step)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="null"):
        spawn(b"/bin/true", [b"a\0b"], [])
    with pytest.raises(ValueError, match="no arguments"):
        spawn(b"/bin/true", [], [])
    with pytest.raises(TypeError):
        spawn(b"/bin/true", ["text"], [])


def test_the_parents_mask_is_as_before():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    end_of(spawn(b"/bin/true", [b"true"], [])[0])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_collect_of_a_stranger():
    with pytest.raises(ChildProcessError):
        collect(1)


def test_only_kept_descriptors_are_inherited(start):
    kept, other = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
    try:
        os.set_inheritable(other, True)
        line = f"test -e /proc/self/fd/{kept} && ! test -e /proc/self/fd/{other}"
        assert start(line, keep=(kept,)) == 0
        # One that was closed meanwhile is no failure.
        assert start("true", keep=(kept, 1000)) == 0
    finally:
        os.close(kept)
        os.close(other)


@root
def test_priority_is_set_back(start):
    line = "test $(cut -d' ' -f19 /proc/self/stat) = 3"
    assert start(line, nice=3) == 0
    result = []

    def raised():
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -7)
        result.append(start("test $(cut -d' ' -f19 /proc/self/stat) = 0", nice=0))

    thread = threading.Thread(target=raised)
    thread.start()
    thread.join()
    assert result == [0]


@root
def test_the_user_is_changed(start, broken):
    nobody = pwd.getpwnam("nobody")
    user = (nobody.pw_uid, nobody.pw_gid, (nobody.pw_gid, 12345))
    line = f'test "$(id -u) $(id -ru) $(id -g) $(id -G)" = "{nobody.pw_uid} {nobody.pw_uid} '
    line += f'{nobody.pw_gid} {nobody.pw_gid} 12345"'
    assert start(line, user=user) == 0
    assert start("grep -q 'CapEff:.0000000000000000' /proc/self/status", user=user) == 0
    Path(os.fsdecode(broken)).chmod(0o700)  # root's only
    with pytest.raises(SpawnError) as caught:
        spawn(broken, [b"x"], [], user=user)
    assert (caught.value.errno, caught.value.step) == (errno.EACCES, "exec")


@root
def test_nobody_goes_on_as_root_by_a_number_that_changes_nothing(start):
    with pytest.raises(OSError, match=r"not permitted|Invalid"):
        start("true", user=(2**32 - 1, 65534, (65534,)))


def test_many_threads_and_many_starts():
    """Locks of the C library that other threads hold must not matter in the child."""
    over = threading.Event()

    def busy():
        while not over.is_set():
            bytearray(100_000)
            time.localtime()

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            assert end_of(spawn(b"/bin/true", [b"true"], [])[0])[0] == 0
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_subreaper_and_back():
    assert become_subreaper(True) is False
    assert become_subreaper(False) is True


def started_by_the_caller(box, *words):
    done = subprocess.run(
        words,
        cwd=box.place,
        env=box.environment(),
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def test_the_command_is_as_if_the_caller_had_started_it(box):
    words = (sys.executable, "-c", REPORT)
    started = box.start("--execution", "thread", "--", *words)
    assert started.end() == 0, started.said
    seen, own = json.loads(started.out), json.loads(started_by_the_caller(box, *words))
    marker = [fd for fd, name in seen["fds"].items() if name == "/dev/null" and int(fd) > 2]
    # What the recorder offers for markers, and the directory that the report reads.
    assert len(marker) == 1
    assert seen["environment"].pop("CRITPATH_MARKER") == f"/dev/fd/{marker[0]}"
    assert seen["environment"].pop("CRITPATH_SESSION").startswith("critpath-")
    del seen["fds"][marker[0]]
    assert sorted(seen.pop("fds")) == sorted(own.pop("fds"))
    assert seen == own


def test_mask_and_dispositions_are_the_callers(box):
    started = box.start("--", *MASKS, through=ODD)
    assert started.end() == 0, started.said
    assert started.out == started_by_the_caller(box, *ODD, *MASKS)
    blocked = int(started.out.split()[1], 16)
    assert blocked == 1 << signal.SIGUSR1 - 1 | 1 << signal.SIGTERM - 1
