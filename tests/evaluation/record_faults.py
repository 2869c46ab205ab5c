"""Every system call of a recording fails once, in turn: those on its files and on its instance.

After each the recording is there, whole or named unfinished, or it is not, and nothing is left
over.

    python tests/evaluation/record_faults.py [PART]

As root; all of them take hours, so many as PART of them, spread over calls and errors, some two
seconds each.  ``test_record_faults.py`` tries a few of them.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from critpath.errors import CritpathError
from critpath.read.recording import describe

FAULTS = Path(__file__).parents[1] / "store" / "faults.c"
INSTANCES = Path("/sys/kernel/tracing/instances")
_PATIENCE = 120  # seconds for a recording of some two
ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EMFILE)
# The struct of faults.c.
ARMED = struct.Struct(f"lll64s{2 * 4096}s")


def build(place: Path) -> Path:
    """Return the library that lets calls fail."""
    library = place / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, FAULTS, "-ldl"], check=True)
    return library


class Loop:
    """Recordings of one command, each with one call that fails."""

    def __init__(self, place: Path) -> None:
        self.library, self.file = build(place), place / "armed"
        self.place = place / "work"
        self.file.write_bytes(bytes(ARMED.size))
        with self.file.open("r+b") as stream:
            self.armed = mmap.mmap(stream.fileno(), ARMED.size)

    def run(self, call: int, code: int) -> tuple[int, int, str, list[str]]:
        """Record; return the exit code, how many calls there were, which failed, what is wrong."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        below = os.fsencode(self.place).ljust(4096, b"\0")
        ARMED.pack_into(self.armed, 0, 0, call, code, b"", below + bytes(INSTANCES / "critpath-"))
        clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", "critpath", "record", "--recorder", "ftrace", "--quiet"),
                *("-o", str(self.place / "rec"), "--", "true"),
            ],
            cwd=self.place,
            env=clean | {"LD_PRELOAD": str(self.library), "CRITPATH_FAULTS": str(self.file)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said, hangs = child.communicate(timeout=_PATIENCE)[1], []
        except subprocess.TimeoutExpired:
            child.kill()
            said, hangs = child.communicate()[1], [f"not through after {_PATIENCE} s"]
        seen, _, _, called, _ = ARMED.unpack_from(self.armed)
        ARMED.pack_into(self.armed, 0, 0, 0, 0, b"", b"")
        wrong = hangs or [*self._wrong(child.returncode, said), *self._left(child.pid)]
        return child.returncode, seen, called.rstrip(b"\0").decode(), wrong

    def _wrong(self, status: int, said: str) -> Iterator[str]:
        """Yield what is wrong with what it said and with the recording."""
        if "Traceback" in said or "internal error" in said:
            yield f"a failure of its own: {said[-300:]!r}"
        if status not in {0, 2, 4, 125}:
            yield f"exit code {status}"
        if status and not said.strip():
            yield "no word of why"
        found = self.place / "rec"
        if not found.exists():
            if not status:
                yield "done, it says, and there is none"
            return
        if status and "critpath doctor --clean" in said:
            # It is kept as it came from the kernel, and names what finishes it.
            with suppress(CritpathError, OSError, ValueError):
                if json.loads((found / "critpath.json").read_text(encoding="utf-8")):
                    self._clean(found)
        try:
            state = json.loads((found / "critpath.json").read_text(encoding="utf-8"))["state"]
            describe(found)
        except (OSError, ValueError, KeyError, CritpathError) as error:
            yield f"a third state: {error}"
            return
        if not status and state != "complete":
            yield f"done, it says, and is {state}"

    def _clean(self, found: Path) -> None:
        subprocess.run(
            [sys.executable, "-m", "critpath", "doctor", "--clean", str(found)],
            cwd=self.place,
            capture_output=True,
            check=False,
            timeout=120,
        )

    def _left(self, pid: int) -> Iterator[str]:
        others = [path.name for path in self.place.iterdir() if path.name != "rec"]
        if others:
            yield f"left beside it: {others}"
        hidden = [path.name for path in (self.place / "rec").glob("**/.*")]
        if hidden:
            yield f"left in it: {hidden}"
        for instance in INSTANCES.glob(f"critpath-*-{pid}-*"):
            yield f"left: {instance.name}"
            instance.rmdir()


def choose_pairs(many: int, part: int | None) -> list[tuple[int, int]]:
    """Return calls, numbered from 1, and the error of each: all, or a part evenly over both."""
    if part is None or part >= many * len(ERRORS):
        return [(call, code) for call in range(1, many + 1) for code in ERRORS]
    rounds = [(i * many // part + 1, i) for i in range(part)]
    # A call that is tried again, where there are more pairs than calls, has the next error.
    return [(call, ERRORS[i % len(ERRORS)]) for call, i in rounds]


def try_calls(loop: Loop, part: int | None) -> tuple[int, int, list[str]]:
    """Let calls fail, all of them or a part.

    Returns
    -------
    int
        How many calls there are.
    int
        How many pairs of a call and an error were tried, and met by the recorder.
    list of str
        What went wrong.
    """
    status, many, _, wrong = loop.run(0, 0)
    if status or wrong:
        raise SystemExit("\n".join(["nothing can be recorded here", *wrong]))
    found, met = [], 0
    for call, code in choose_pairs(many, part):
        status, _, called, bad = loop.run(call, code)
        met += bool(called)
        bad = [f"call {call}, {called}: {errno.errorcode[code]}, {status}: {b}" for b in bad]
        sys.stdout.write("".join(f"{one}\n" for one in bad))
        sys.stdout.flush()
        found += bad
    return many, met, found


def main() -> None:
    """Try all, and print what was found."""
    with tempfile.TemporaryDirectory(prefix="critpath-faults-") as directory:
        many, met, wrong = try_calls(
            Loop(Path(directory)), int(sys.argv[1]) if sys.argv[1:] else None
        )
    pairs = f"{met:,} of {many * len(ERRORS):,} pairs of a call and an error"
    said = f"{pairs}; {len(wrong)} left in a third state"
    sys.stdout.write(said + "\n")


if __name__ == "__main__":
    main()
