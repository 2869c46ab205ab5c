"""The process that turns tracing off when its recorder is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

from critpath_record.ftrace import tracefs
from critpath_record.ftrace.tracefs import TracingWatchdog

# A recorder that is killed, or dismisses who watches; it says when that one is there.
RECORDER = textwrap.dedent("""
    import os, signal, sys
    from pathlib import Path
    from critpath_record.ftrace import tracefs
    watch = tracefs.TracingWatchdog(tracefs.Instance(Path(sys.argv[1])))
    if sys.argv[2] == "killed":
        # What a service manager sends to all processes of a unit is meant for the recorder.
        pid, ignored = watch._process.pid, 0
        while not ignored >> signal.SIGTERM - 1 & 1:  # until it has begun
            status = Path(f"/proc/{pid}/status").read_text()
            ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
            os.kill(pid, number)
        os.kill(os.getpid(), 9)
    watch.dismiss()
""")


@pytest.mark.parametrize("end", ["killed", "dismissed"])
def test_who_watches_turns_tracing_off_unless_dismissed(tmp_path, end, wait_for):
    (tmp_path / "tracing_on").write_text("1", encoding="ascii")
    (tmp_path / "set_event").write_text("sched:sched_switch", encoding="ascii")
    command = [sys.executable, "-P", "-c", RECORDER, str(tmp_path), end]
    done = subprocess.run(command, check=False)
    assert done.returncode == (-signal.SIGKILL if end == "killed" else 0)
    if end == "killed":
        wait_for(lambda: not (tmp_path / "set_event").read_text("ascii"))
    on, events = ((tmp_path / n).read_text("ascii") for n in ("tracing_on", "set_event"))
    assert (on.strip(), bool(events)) == (("0", False) if end == "killed" else ("1", True))


def test_nobody_watches_what_is_not_there_and_that_is_no_error(tmp_path):
    watch = TracingWatchdog(tracefs.Instance(tmp_path / "nothing"))
    watch.dismiss()
    watch.dismiss()
