"""Whether the advice to record again leads on: ``hints.py [NAME ...]``, as root.

Each program is recorded in turns, slower and not; what the answer advises is done, and the second
answer must name what the first could not: a function, a system call, a file or a peer.
A row for each: the first sentence, the advice, the second sentence, and whether it names that.
Exit code 1: an advice did not lead on, or there was none.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

CRITPATH: Final = Path(sys.executable).with_name("critpath")
_ADVICE: Final = re.compile(r"Record again with ((?:--[a-z]+(?: [a-z]+)? ?)+):")
# A program is called with 1, or with a number for the slower one.
_BEGIN: Final = "import os, socket, select, sys, time\nn = int(sys.argv[1])\n"


class Case(NamedTuple):
    """A program, what is advised, and what the second answer then names."""

    code: str
    advised: str
    named: str


CASES: Final = {
    "own-function": Case(
        "def mix(k):\n    return sum(i * i for i in range(k))\nfor _ in range(20): mix(4000 * n)\n",
        "--stacks",
        r"mix|genexpr",
    ),
    "system-call": Case(
        "f = open('/dev/zero', 'rb', buffering=0)\nof = bytearray(1 << 20)\n"
        "for _ in range(40 * n): f.readinto(of)\n",
        "--profile syscalls",
        r"system call read",
    ),
    "silent-peer": Case(
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('127.0.0.1', 9))\n"
        "if n > 1: select.select([s], [], [], 0.3)\n",
        "--profile syscalls --files",
        r"select",
    ),
    "nap": Case("time.sleep(0.02 * n)\n", "--profile syscalls --files", r"nanosleep|select"),
    "disk": Case(
        "f = open('hints.log', 'wb')\n"
        "for _ in range(4 * n): f.write(b'x' * 4096); f.flush(); os.fsync(f.fileno())\n",
        "--stacks",
        r"hints\.log|fsync",
    ),
}


def record_and_compare(case: Case, place: Path, options: list[str]) -> str:
    """Record a program in turns with options, and return what is answered."""
    program = place / "program.py"
    program.write_text(_BEGIN + case.code)
    commands = [f"{sys.executable} -S {program} {n}" for n in (1, 6)]
    recording = place / "recording"
    record = [CRITPATH, "record", "-n", "10", "--force", *options, "--interleave", *commands]
    subprocess.run([*record, "-o", recording], check=True, capture_output=True, cwd=place)
    sets = [recording / "normal", recording / "sample"]
    done = subprocess.run(
        [CRITPATH, "compare", *sets], check=False, capture_output=True, text=True, cwd=place
    )
    return " ".join(done.stdout.split())


def main() -> int:
    """Follow the advice of every case that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    wanted = parser.parse_args().names or [*CASES]
    wrong = 0
    for name in wanted:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as place:
            first = record_and_compare(case, Path(place), [])
            advice = _ADVICE.search(first)
            said = advice[1].strip() if advice else ""
            second = record_and_compare(case, Path(place), said.split()) if said else ""
        good = case.advised in said and re.search(case.named, second) is not None
        wrong += not good
        print(f"{name}: {'leads on' if good else 'DOES NOT LEAD ON'}")
        print(f"  first:  {first[:230]}\n  advice: {said or 'none'}\n  second: {second[:260]}")
    print(f"{len(wanted) - wrong} of {len(wanted)} lead on")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
