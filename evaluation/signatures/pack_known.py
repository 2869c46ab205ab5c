"""Makes the recordings of the tutorial in docs/tutorial-known.md, fixtures/known, anew.

    python evaluation/signatures/fmeter_sessions.py DIR --sessions 4 --seconds 6.2 \\
        --events minimal --only find,gcc,pg,pg-async,pipe-4k,pipe-64k,forks
    python evaluation/signatures/pack_known.py DIR fixtures/known

Of the last session two recordings are kept as they are, for readers to ask about: ``today``
(pg-async) and ``unknown`` (forks, which the store does not have).  The others become the store.
Names of hosts and control groups are left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

LABELS = {
    "find": ("the nightly search for new files", ""),
    "gcc": ("a build", ""),
    "pg": ("PostgreSQL, pgbench with 4 clients", "https://wiki.example/postgres"),
    "pg-async": ("the same with synchronous_commit = off", "https://wiki.example/postgres-async"),
    "pipe-4k": ("dd into a pipe, blocks of 4 KiB", ""),
    "pipe-64k": ("the same, blocks of 64 KiB", ""),
}
ASKED = {"today": "pg-async", "unknown": "forks"}
HOST = {"name": "", "boot_id": "", "cpu_model": ""}


def main() -> None:
    """Write the store and the recordings."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sessions", type=Path)
    parser.add_argument("place", type=Path)
    given = parser.parse_args()
    *kept, last = sorted(path for path in given.sessions.iterdir() if path.is_dir())
    given.place.mkdir(parents=True, exist_ok=True)
    for session in kept:
        for label, (note, link) in LABELS.items():
            add(given.place / "team.known", session / label, label, note, link)
    for name, label in ASKED.items():
        keep(last / label, given.place / name)


def add(store: Path, recording: Path, label: str, note: str, link: str) -> None:
    """Add a session to the store."""
    more = ["--note", note, *(["--link", link] if link else [])]
    subprocess.run(
        [
            *(sys.executable, "-P", "-m", "critpath", "known", "add", store, recording),
            *("--label", label, "--anonymous", *more),
        ],
        check=True,
    )


def keep(recording: Path, place: Path) -> None:
    """Copy a recording of counts without what names its host."""
    shutil.copytree(recording, place)
    for path in (place, *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    about = json.loads((place / "critpath.json").read_text(encoding="utf-8"))
    about["host"] |= HOST
    scope = about["counts"]["scope"]
    about["counts"]["scope"] = "/example"
    (place / "critpath.json").write_text(json.dumps(about) + "\n", encoding="utf-8")
    counts = place / "counts" / "counts.jsonl"
    text = counts.read_text(encoding="utf-8")
    counts.write_text(text.replace(json.dumps(scope), '"/example"'), encoding="utf-8")


if __name__ == "__main__":
    main()
