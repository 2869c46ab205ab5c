"""Run the examples of docs/exports.md and put in what they print: part of ``make docs``.

Blocks of ``sh`` are run first, then blocks of ``python``, all in one directory with the
shipped recordings; a block of ``text`` after one of ``python`` is what it printed.
"""  # noqa: INP001 - a script beside the documents, no package

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

# Python has the filter from 3.11.4 on; Debian 12 ships 3.11.2.
DATA_ONLY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "exports.md"
RECORDINGS: Final = ("normal", "sample-lock")
_BLOCK: Final = re.compile(r"```(sh|python)\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
# The first line of an error, which no warning looks like.
# What is wrong has a second line, which says what to do.
_FAILED: Final = re.compile(r"^critpath: (?!warning: ).*\n  ", re.MULTILINE)
_BETWEEN: Final = "-- end of an example --"


def page() -> str:
    """Return docs/exports.md with what its examples print now."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    printed = iter(outputs(blocks))

    def shown(block: re.Match[str]) -> str:
        if block[1] == "sh":
            return block[0]
        output = next(printed)
        answer = f"\n```text\n{output}\n```\n" if output else ""
        return f"```python\n{block[2]}```\n{answer}"

    return _BLOCK.sub(shown, text)


def outputs(blocks: list[re.Match[str]]) -> list[str]:
    """Run every block and return what those of Python printed."""
    with tempfile.TemporaryDirectory() as place:
        for name in RECORDINGS:
            with tarfile.open(ROOT / "fixtures" / "lttng-guest" / f"{name}.tar.xz") as tar:
                tar.extractall(place, **DATA_ONLY)  # noqa: S202 - archives of our own
        commands = "".join(block[2] for block in blocks if block[1] == "sh")
        # Not -e: a comparison that finds an anomaly ends with 1.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(  # noqa: S603 - examples of our own
            ["/bin/sh", "-c", commands],
            cwd=place,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        if _FAILED.search(done.stderr):
            raise RuntimeError(done.stderr)
        code = [block[2] for block in blocks if block[1] == "python"]
        script = "".join(f"{one}\nprint({_BETWEEN!r})\n" for one in code)
        done = subprocess.run(  # noqa: S603 - examples of our own
            [sys.executable, "-c", script],
            cwd=place,
            env={**os.environ, "COLUMNS": "100", "POLARS_FMT_MAX_COLS": "12"},
            capture_output=True,
            text=True,
            check=True,
        )
    parts = done.stdout.split(f"{_BETWEEN}\n")[: len(code)]
    return ["\n".join(line.rstrip() for line in part.rstrip().split("\n")) for part in parts]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
