"""In the guest: recorders that are ended at moments spread over their lives.

One line of JSON a moment in /out/moments: what the signal was, when, and what was left
before and after ``critpath doctor --clean``.  Recordings stay in /out/N.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

OUT = Path("/out")
MARK = "critpath-kill-test"
RUNS = 8
COMMAND = ("sh", "-c", f"sleep 0.05; : {MARK}")


def start(output: Path) -> subprocess.Popen[str]:
    options = ("--recorder", "lttng", "-n", str(RUNS), "-o", str(output))
    return subprocess.Popen(
        ["critpath", "record", *options, "--", *COMMAND],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )


def left(*, daemon: bool) -> list[str]:
    """Return LTTng's daemons (unless one was there), sessions, our processes and notes."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
        if (not daemon and line.startswith("lttng-")) or MARK in line:
            found.append(f"process {line}")
    listed = subprocess.run(
        ["lttng", "--no-sessiond", "list"], capture_output=True, text=True, check=False
    )
    found += [f"session {x}" for x in listed.stdout.splitlines() if "critpath-" in x]
    for place in (Path("/run/critpath"), Path("/tmp")):  # noqa: S108 - the guest's own
        found += [str(p) for p in place.glob("*")]
    return found


def moment(number: int, signal_number: signal.Signals, delay: float, *, daemon: bool) -> dict:
    output = OUT / str(number)
    recorder = start(output)
    time.sleep(delay)
    # Ctrl-C goes to the whole group, anything else to the process only.
    if signal_number == signal.SIGINT:
        os.killpg(recorder.pid, signal_number)
    else:
        recorder.send_signal(signal_number)
    text, _ = recorder.communicate(timeout=120)
    before = left(daemon=daemon)
    cleaned = subprocess.run(
        ["critpath", "doctor", "--clean"], capture_output=True, text=True, check=False
    )
    return {
        "number": number,
        "signal": signal_number.name,
        "delay": delay,
        "daemon": daemon,
        "code": recorder.returncode,
        "text": text,
        "before": before,
        "cleaned": cleaned.returncode,
        "doctor": cleaned.stdout + cleaned.stderr,
        "after": left(daemon=daemon),
        "state": state(output),
    }


def state(output: Path) -> str:
    if not output.exists():
        return "absent"
    return json.loads((output / "critpath.json").read_text())["state"]


def undisturbed(number: int) -> float:
    begin = time.monotonic()
    recorder = start(OUT / str(number))
    text, _ = recorder.communicate(timeout=120)
    assert recorder.returncode == 0, text
    return time.monotonic() - begin


def main() -> None:
    count = int(sys.argv[1])
    chance = random.Random(3)  # noqa: S311 - the same moments every time
    signals = (signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
    with (OUT / "moments").open("w") as stream:
        for part, daemon in enumerate((False, True)):
            if daemon:
                subprocess.run(["lttng-sessiond", "--daemonize"], check=True)
            half = count // 2
            # The first one also reads everything from the disk.
            lifetime = min(undisturbed(1000 + 2 * part), undisturbed(1001 + 2 * part))
            for i in range(half):
                delay = (i + chance.random()) / half * lifetime
                number = part * half + i
                found = moment(number, signals[number % len(signals)], delay, daemon=daemon)
                print(json.dumps(found), file=stream, flush=True)


if __name__ == "__main__":
    main()
