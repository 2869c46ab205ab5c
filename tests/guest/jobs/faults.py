"""In the guest: recordings to which something happens: a full disk, killed daemons, removed output.

One line of JSON a case in /out/cases: what critpath printed and with which code, what the command
had done, and what is left after ``critpath doctor --clean``.  Recordings stay in /out/CASE.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kill import left

OUT = Path("/out")
SMALL = Path("/mnt/small")
# Switches for some seconds, then a file and an exit code that tell that it ran to its end.
WORK = """
import os, sys, time
until, there, back = time.monotonic() + float(sys.argv[1]), os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(there[1])
    while os.read(there[0], 1):
        os.write(back[1], b".")
    os._exit(0)
while time.monotonic() < until:
    os.write(there[1], b".")
    os.read(back[0], 1)
os.close(there[1])
open(sys.argv[2], "w").close()
sys.exit(7)
"""


def wait_for_trace(output: Path) -> None:
    """Return when the tracer has written something."""
    until = time.monotonic() + 60
    while time.monotonic() < until and not any(output.glob("trace/**/metadata")):
        time.sleep(0.2)
    time.sleep(2)


def kill_daemon(name: str) -> Callable[[Path], object]:
    """Return what kills a daemon of LTTng's."""
    return lambda _: subprocess.run(["pkill", "-KILL", name], check=False)


def fill(_: Path) -> None:
    """Take what room there is on its disk."""
    with suppress(OSError), (SMALL / "others").open("wb") as stream:
        while True:
            stream.write(bytes(1 << 16))


CASES: dict[str, tuple[Path, Callable[[Path], object]]] = {
    "disk": (SMALL / "disk", lambda _: None),
    "filled": (SMALL / "filled", fill),
    "removed": (OUT / "removed", shutil.rmtree),
    "consumer": (OUT / "consumer", kill_daemon("lttng-consumerd")),
    "daemon": (OUT / "daemon", kill_daemon("lttng-sessiond")),
}


def try_case(name: str, output: Path, happen: Callable[[Path], object]) -> dict[str, object]:
    """Record; let it happen; say what became of it."""
    done = Path("/var/tmp") / name  # noqa: S108 - the guest's own
    words = ["critpath", "record", "--recorder", "lttng", "-o", str(output), "--"]
    begun = time.monotonic()
    seconds = "20" if name == "disk" else "8"
    recorder = subprocess.Popen(
        [*words, sys.executable, "-c", WORK, seconds, str(done)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for_trace(output)
    happen(output)
    try:
        text, _ = recorder.communicate(timeout=180)
    except subprocess.TimeoutExpired:
        recorder.send_signal(signal.SIGKILL)
        text = "it never ended"
    before = left(daemon=False)
    cleaned = subprocess.run(
        ["critpath", "doctor", "--clean", str(output)], capture_output=True, text=True, check=False
    )
    verified = subprocess.run(
        ["critpath", "doctor", str(output)], capture_output=True, text=True, check=False
    )
    manifest = output / "critpath.json"
    return {
        "case": name,
        "code": recorder.returncode,
        "seconds": time.monotonic() - begun,
        "text": text,
        "ran": done.exists(),
        "before": before,
        "cleaned": [cleaned.returncode, cleaned.stdout + cleaned.stderr],
        "verified": [verified.returncode, verified.stdout + verified.stderr],
        "state": json.loads(manifest.read_text())["state"] if manifest.exists() else "absent",
        "after": left(daemon=False),
    }


def main() -> None:
    """Try all; one that fails here says so, too."""
    SMALL.mkdir(exist_ok=True)
    with (OUT / "cases").open("w") as stream:
        for name, (output, happen) in CASES.items():
            if output.parent == SMALL:
                small = ["mount", "-t", "tmpfs", "-o", "size=5M", "small", str(SMALL)]
                subprocess.run(small, check=True)
            found = try_case(name, output, happen)
            if output.parent == SMALL:
                (SMALL / "others").unlink(missing_ok=True)
                if output.exists():
                    shutil.copytree(output, OUT / name)
                subprocess.run(["umount", "--lazy", str(SMALL)], check=True)
            print(json.dumps(found), file=stream, flush=True)


main()
