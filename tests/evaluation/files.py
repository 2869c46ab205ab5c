"""Whether the first cause names the file or the peer: three faults in one program.

``python tests/evaluation/files.py [--repetitions N] [--keep DIR]``: a program
(``locations/files.py``) writes forty times to two files and two databases (SQLite) and asks two
peers.  It is recorded with ``--files`` without a fault, once more without (a healthy pair), and
with each fault, and compared as ``critpath compare`` does.  What counts as right (`FAULTS`) was
written before the first run: the first cause names, as where the thread was or waits, a call on a
file or a peer of the fault; none names one of the other of the two.  The healthy pair has no
anomaly.

Needs root, tracefs and bpf, as ``record --files`` does.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

MARKS: Final = Path(__file__).resolve().parents[2] / "marks"
PROGRAM: Final = Path(__file__).resolve().parent / "locations" / "files.py"
# Fault: what the first cause names, and what it must not name.
FAULTS: Final = {
    "audit": ("audit.log", "data.log"),
    "archive": ("archive.db", "orders.db"),
    "peer": ("127.0.0.1:{second}", "127.0.0.1:{first}"),
}


def main() -> int:
    """Run them; return 1 if less is right than should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    chosen = parser.parse_args()
    ports = [serve(), serve()]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(chosen.repetitions):
            place = (chosen.keep or Path(scratch)) / str(number)
            place.mkdir(parents=True)
            for name in ("normal", "healthy", *FAULTS):
                record(place, name, ports)
                if name != "normal":
                    rows.append(judge(place, name, ports))
                    print(json.dumps(rows[-1]), flush=True)
    right = sum(row["right"] for row in rows)
    print(f"{right} of {len(rows)} are right")
    print(f"{sum(row['wrong'] for row in rows)} name the other file or peer")
    return right < 0.95 * len(rows)


def serve() -> int:
    """Answer on a port of this machine, late if asked to; return the port."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            peer, _ = server.accept()
            with peer:
                time.sleep(0.03 if peer.recv(16).startswith(b"slow") else 0)
                peer.sendall(b"ok\n")

    threading.Thread(target=answer, daemon=True).start()
    return int(server.getsockname()[1])


def record(place: Path, name: str, ports: list[int]) -> None:
    """Record one run, whose forty requests are marked."""
    command = [sys.executable, "-m", "critpath", "record", "--recorder", "ftrace", "--files"]
    command += ["--execution", "marker", "-o", name, "--"]
    command += [sys.executable, str(PROGRAM), name, *map(str, ports)]
    environment = {**os.environ, "PYTHONPATH": str(MARKS)}
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        sys.exit(done.stderr)


def judge(place: Path, fault: str, ports: list[int]) -> dict[str, Any]:
    """Compare, and say whether the first cause names what it should."""
    command = [sys.executable, "-m", "critpath", "compare", "normal", fault, "--json", "out.json"]
    subprocess.run(command, cwd=place, capture_output=True, check=False)
    document = json.loads((place / "out.json").read_text())
    (place / "out.json").unlink()
    facts = document["causes"][0]["facts"] if document["causes"] else {}
    named = [one["location"] for one in facts.get("locations", ())]
    named.append(facts.get("waits_at", ""))
    of = dict(zip(("first", "second"), ports, strict=True))
    row = {"fault": fault, "verdict": document["verdict"], "named": named, "load": os.getloadavg()}
    if fault not in FAULTS:
        return {**row, "right": document["verdict"] != "anomaly", "wrong": False}
    right, wrong = (text.format(**of) for text in FAULTS[fault])
    first = [name for name in named if name][:1]
    return {
        **row,
        "right": document["verdict"] == "anomaly" and any(right in name for name in first),
        "wrong": any(wrong in name for name in first),
    }


if __name__ == "__main__":
    sys.exit(main())
