"""Who is cleaned away is told by more than its pid: nobody else is signalled, whatever comes.

In a pid namespace of its own, where the kernel gives a pid again when it is asked to.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from critpath_marks.sessions import new_session_name, owner_of
from critpath_record.identity import SESSION_VARIABLE

ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
SCRIPT = """
import os, subprocess, sys, time
from pathlib import Path
from critpath_record import cleanup
from critpath_record.identity import SESSION_VARIABLE
from critpath_marks.sessions import owner_of, pid_namespace, start_time

def process(session="", pid=0):
    if pid:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
    made = subprocess.Popen(["sleep", "60"], env={**os.environ, SESSION_VARIABLE: session})
    assert pid in {0, made.pid}
    while session not in Path(f"/proc/{made.pid}/environ").read_text():
        time.sleep(0.001)  # a program that has just started has no environment yet
    return made

def end(it):
    it.kill(); it.wait()
    time.sleep(0.03)  # the next one does not start in the same hundredth of a second

def session_of_a_recorder():
    recorder = process()
    start = start_time(recorder.pid)
    name = f"critpath-{pid_namespace()}-{recorder.pid}-{start}-00c0ffee"
    assert owner_of(name).is_gone() is False
    end(recorder)
    # Its pid is somebody's again; that one lives, the recorder does not.
    return name, process(pid=recorder.pid)

session, again = session_of_a_recorder()
assert owner_of(session).is_gone() is True

# Found, ended, and its pid taken by a stranger before it is removed.
member = process(session)
[found] = cleanup._find_processes({session})
assert found.name == str(member.pid)
end(member)
stranger = process(pid=member.pid)
found.remove()
assert stranger.poll() is None

# The same between the handle and the look at who it is of.
for swap_first in (True, False):
    end(stranger)
    member = process(session, pid=stranger.pid)
    [found] = cleanup._find_processes({session})
    opened = os.pidfd_open
    def swapped(pid):
        global stranger
        handle = None if swap_first else opened(pid)
        end(member)
        stranger = process(pid=pid)
        return handle or opened(pid)
    os.pidfd_open = swapped
    found.remove()
    os.pidfd_open = opened
    assert stranger.poll() is None

# And while it is looked for: the start is of one, the environment of another.
end(stranger)
member = process(session, pid=stranger.pid)
looked = cleanup.session_of
def late(pid):
    global stranger
    said = looked(pid)
    if pid == member.pid and member.poll() is None:
        end(member)
        stranger = process(pid=pid)
    return said
cleanup.session_of = late
for found in cleanup._find_processes({session}):
    found.remove()
assert stranger.poll() is None
# It does end who is meant.
cleanup.session_of = looked
member = process(session)
[found] = cleanup._find_processes({session})
found.remove()
assert member.wait(10) == -15
assert again.poll() is None
again.kill(); stranger.kill()
print("all is well")
"""


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_no_stranger_is_ended_whose_pid_was_a_recordings():
    if run(*ALONE, "true").returncode:
        pytest.skip("no pid namespace can be made here")
    done = run(*ALONE, sys.executable, "-P", "-c", SCRIPT, timeout=60)
    assert done.stdout == "all is well\n", done.stderr


def test_a_recorder_in_another_time_namespace_is_not_taken_for_dead(wait_for):
    inside = ("unshare", "--time", "--boottime", "100000", "--fork", "--kill-child")
    if run(*inside, "true").returncode:
        pytest.skip("no time namespace can be made here")
    code = "from critpath_marks.sessions import *; print(new_session_name(), flush=True); input()"
    recorder = subprocess.Popen(
        [*inside, sys.executable, "-P", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    owner = owner_of(recorder.stdout.readline().strip())
    assert owner.is_gone() is None
    assert owner_of(new_session_name()).is_gone() is False
    recorder.communicate("\n")
    wait_for(lambda: owner.is_gone() is True)


def test_a_clock_of_its_own_is_refused(tmp_path):
    inside = ("unshare", "--time", "--monotonic", "100000", "--fork")
    if run(*inside, "true").returncode:
        pytest.skip("no time namespace can be made here")
    clean = {k: v for k, v in os.environ.items() if k != SESSION_VARIABLE}
    critpath = (*inside, sys.executable, "-P", "-m", "critpath")
    done = run(*critpath, "record", "-o", tmp_path / "out", "true", env=clean)
    assert done.returncode == 125
    assert "a time namespace" in done.stderr
    assert not (tmp_path / "out").exists()
    assert "a time namespace" in run(*critpath, "doctor", env=clean).stdout
