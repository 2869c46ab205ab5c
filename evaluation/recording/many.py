"""Traces of very many files and of very many event classes: time, memory, and what is answered.

    python evaluation/recording/many.py [--files 100000] [--classes 150000 1000000]

A recording of ``true`` gets as many empty streams, copies of its description of the machine, or
event classes that no event is of.  Right is the path that it has without them, or one line that
refuses it.  Needs root.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CRITPATH = (sys.executable, "-P", "-m", "critpath")


def read(recording: Path) -> tuple[str, str, float, float]:
    """Return what is printed of its path, errors, seconds of cpu time and MiB."""
    out, err = recording.with_suffix(".out"), recording.with_suffix(".err")
    with out.open("w") as stdout, err.open("w") as stderr:
        child = subprocess.Popen(
            [*CRITPATH, "path", str(recording), "--execution", "process"],
            stdout=stdout,
            stderr=stderr,
        )
        _, _, used = os.wait4(child.pid, 0)
    seconds = used.ru_utime + used.ru_stime
    return out.read_text(), err.read_text(), seconds, used.ru_maxrss / 1024


def add_files(trace: Path, name: str, data: bytes, many: int) -> None:
    """Add streams beside those of a trace."""
    for number in range(many):
        (trace / f"{name}_{1000 + number}").write_bytes(data)


def add_classes(trace: Path, many: int) -> None:
    """Add copies of the last event class under other names."""
    text = (trace / "metadata").read_text()
    last = text[text.rindex("\nevent {") :]
    with (trace / "metadata").open("a") as stream:
        for number in range(many):
            other = re.sub(r"\bid = \d+", f"id = {1000 + number}", last, count=1)
            stream.write(re.sub(r'name = "[^"]*"', f'name = "extra_{number}"', other, count=1))


def main() -> None:
    """Make them, read them, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--classes", type=int, nargs="*", default=[150_000, 1_000_000])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="critpath-many-") as top:
        plain = Path(top) / "plain"
        subprocess.run([*CRITPATH, "record", "--quiet", "-o", str(plain), "--", "true"], check=True)
        right = read(plain)[0]
        dump = (plain / "trace" / "kernel" / "statedump_0").read_bytes()
        cases = {
            f"{asked.files:,} empty streams": lambda t: add_files(t, "kernel", b"", asked.files),
            f"{asked.files // 5:,} copies of one": lambda t: add_files(
                t, "statedump", dump, asked.files // 5
            ),
        }
        for many in asked.classes:
            cases[f"{many:,} event classes"] = lambda t, many=many: add_classes(t, many)
        for name, change in cases.items():
            other = Path(top) / "other"
            shutil.copytree(plain, other)
            change(other / "trace" / "kernel")
            printed, errors, seconds, memory = read(other)
            answer = "the same path" if printed == right else " ".join(errors.split())[-150:]
            print(f"{name}: {seconds:.1f} s of cpu time, {memory:.0f} MiB: {answer}")
            shutil.rmtree(other)


if __name__ == "__main__":
    main()
