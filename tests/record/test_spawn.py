"""What a command gets from its recorder: what the caller had, and nothing of ours."""

from __future__ import annotations

import errno
import json
import os
import pwd
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from critpath.record._spawn import SpawnError, become_subreaper, collect, spawn
from critpath.record.runner import shell_code

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
    "fds": own, "nice": os.getpriority(os.PRIO_PROCESS, 0), "policy": os.sched_getscheduler(0),
    "affinity": sorted(os.sched_getaffinity(0)), "cwd": os.getcwd(), "umask": os.umask(0),
    "environment": dict(os.environ), "pgrp": os.getpgrp(),
}, sys.stdout)
"""
# By grep, as Python changes dispositions at its start.
MASKS = "grep -E '^(SigBlk|SigIgn|SigCgt)' /proc/self/status"


def wait(pid, seconds=20):
    deadline = time.monotonic() + seconds
    while (done := collect(pid)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return done


@pytest.fixture
def start():
    def call(line, **options):
        argv = [b"sh", b"-c", os.fsencode(line)]
        pid, begin, executed = spawn(b"/bin/sh", argv, [b"A=b"], **options)
        status, end = wait(pid)
        assert begin <= executed < end
        return shell_code(status)

    return call


def test_codes(start):
    assert start("exit 7") == 7
    assert start("kill -TERM $$") == 143
    assert start('test "$A" = b') == 0
    assert start('test "$PWD" = /', cwd=b"/") == 0


@pytest.mark.parametrize(
    ("arguments", "options", "number", "step"),
    [
        ((b"/nosuch", [b"x"], []), {}, errno.ENOENT, "exec"),
        ((b"/", [b"x"], []), {}, errno.EACCES, "exec"),
        ((b"/bin/true", [b"x"], []), {"cwd": b"/nosuch"}, errno.ENOENT, "chdir"),
    ],
)
def test_a_child_that_fails_says_at_what(arguments, options, number, step):
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(SpawnError) as caught:
        spawn(*arguments, **options)
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
    wait(spawn(b"/bin/true", [b"true"], [])[0])
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
def test_the_user_is_changed(start):
    nobody = pwd.getpwnam("nobody")
    user = (nobody.pw_uid, nobody.pw_gid, (nobody.pw_gid, 12345))
    line = f'test "$(id -u) $(id -ru) $(id -g) $(id -G)" = "{nobody.pw_uid} {nobody.pw_uid} '
    line += f'{nobody.pw_gid} {nobody.pw_gid} 12345"'
    assert start(line, user=user) == 0
    assert start("grep -q 'CapEff:.0000000000000000' /proc/self/status", user=user) == 0


@root
def test_nobody_goes_on_as_root_by_a_number_that_changes_nothing(start):
    with pytest.raises(OSError, match=r"not permitted|Invalid"):
        start("true", user=(2**32 - 1, 65534, (65534,)))


@pytest.mark.long
def test_many_threads_and_many_starts():
    """Locks of the C library that other threads hold must not matter in the child."""
    over = threading.Event()

    def busy():
        while not over.is_set():
            bytearray(100_000)
            time.localtime()

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            assert wait(spawn(b"/bin/true", [b"true"], [])[0])[0] == 0
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_it_dies_with_its_parent(wait_for, is_alive):
    code = (
        "import os, sys, time; from critpath.record._spawn import spawn\n"
        "print(spawn(b'/bin/sleep', [b'sleep', b'600'], [], death_signal=9)[0], flush=True)\n"
        "time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    pid = int(process.stdout.readline())
    assert is_alive(pid)
    process.kill()
    process.communicate()
    wait_for(lambda: not is_alive(pid))


def test_subreaper_and_back():
    assert become_subreaper(True) is False
    assert become_subreaper(False) is True


# --------------------------------------------------------------- through the command


def reported(box, *arguments, env=None, **options):
    """Return what the command sees of itself, started by us."""
    done = box.record(*arguments, "--", sys.executable, "-c", REPORT, env=env, **options)
    assert done.code == 0, done.err
    return json.loads(done.out)


def plain(box, **options):
    """Return the same, started by the caller itself."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT],
        cwd=box.place,
        env=box.environment(),
        capture_output=True,
        check=True,
        stdin=subprocess.DEVNULL,
        **options,
    )
    return json.loads(done.stdout)


def test_the_command_is_as_if_the_caller_had_started_it(box):
    seen, own = reported(box, "--execution", "thread"), plain(box)
    marker = [fd for fd, name in seen["fds"].items() if name == "/dev/null" and int(fd) > 2]
    # What the recorder offers for markers, and the directory that the report reads.
    assert len(marker) == 1
    assert seen["environment"].pop("CRITPATH_MARKER") == f"/dev/fd/{marker[0]}"
    assert seen["environment"].pop("CRITPATH_SESSION").startswith("critpath-")
    del seen["fds"][marker[0]]
    assert sorted(seen["fds"]) == sorted(own["fds"])
    for value in (seen, own):
        del value["fds"], value["pgrp"]
    assert seen == own


def masks(box, command, **options):
    run = subprocess.run(
        [*command, "sh", "-c", MASKS],
        cwd=box.place,
        env=box.environment(),
        capture_output=True,
        text=True,
        check=True,
        **options,
    )
    return run.stdout


def test_mask_and_dispositions_are_the_callers(box):
    def odd():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
        for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD, signal.SIGRTMIN):
            signal.signal(number, signal.SIG_IGN)

    ours = [sys.executable, str(Path(__file__).with_name("with_fake_recorder.py")), "record"]
    quiet = [*ours, "--quiet", "-o"]
    for index, prepare in enumerate((None, odd)):
        direct = masks(box, ["env"], preexec_fn=prepare)
        through = masks(box, [*quiet, f"rec{index}", "--"], preexec_fn=prepare)
        assert through == direct


def test_descriptors_of_the_caller_come_through(box):
    reader, writer = os.pipe()
    try:
        done = box.record("sh", "-c", f"echo hello >/proc/self/fd/{writer}", pass_fds=(writer,))
        assert done.code == 0, done.err
        assert os.read(reader, 100) == b"hello\n"
    finally:
        os.close(reader)
        os.close(writer)


def test_input_is_the_commands(box):
    process = box.popen("-o", "rec", "cat", stdin=subprocess.PIPE)
    out, _ = process.communicate(b"some input")
    assert (process.returncode, out) == (0, b"some input")


def test_no_more_processes(box):
    if os.geteuid() == 0:
        pytest.skip("root has no limit of processes")
    limit = (1, resource.getrlimit(resource.RLIMIT_NPROC)[1])
    done = box.record("true", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, limit))
    assert done.code == 125
