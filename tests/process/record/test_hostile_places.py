"""What lies in the current directory, or is exchanged by the command, leads a process nowhere."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys

import pytest


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which needs root")
def test_a_command_that_exchanges_the_output_all_the_time(box):
    """As the user, in a directory of the user's, under sudo."""
    nobody = pwd.getpwnam("nobody")
    victim = box.place / "victim"
    victim.mkdir()
    os.chown(box.place, nobody.pw_uid, nobody.pw_gid)
    # It is so often exchanged while it is recorded, and still is when the command ends.
    race = (
        "for n in $(seq 100); do mv rec aside; ln -s victim rec; rm rec; mv aside rec; done;"
        "while :; do mv rec aside; ln -s victim rec; rm rec; mv aside rec; done 2>/dev/null &"
        "sleep 0.05; kill $!"
    )
    env = {"SUDO_UID": str(nobody.pw_uid), "SUDO_GID": str(nobody.pw_gid)}
    recording = box.start("-n", "2", "sh", "-c", f"{race} 2>/dev/null", env=env)
    assert recording.end() in {0, 125}, recording.said
    assert list(victim.iterdir()) == []
    assert victim.stat().st_uid == 0


def test_nothing_of_the_current_directory_is_run_or_imported(tmp_path):
    """Not with PATH="." either, which `sudo env "PATH=$PATH"` would bring along."""
    for name in ("lttng", "lttng-sessiond", "babeltrace2", "python3", "sh"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n/bin/touch '{tmp_path}/ran'\n")
        program.chmod(0o755)
    for name in ("argparse", "fcntl", "numpy", "lttngust", "rich", "sitecustomize", "pwd"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for arguments in (
        ("doctor", "--json"),
        ("record", "/nowhere"),
        ("record", "--recorder", "lttng", "/bin/true"),
        ("compare", ".", "."),
    ):
        subprocess.run(
            [sys.executable, "-m", "critpath", *arguments],
            cwd=tmp_path,
            env={"PATH": ".::", "LANG": "C"},
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert not (tmp_path / "ran").exists(), arguments
