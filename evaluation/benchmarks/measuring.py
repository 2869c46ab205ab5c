"""One way to measure: interleaved rounds, CPU seconds and elapsed ones, medians of ratios.

Whatever else the machine does strikes all commands of a round alike, so only ratios within
a round are compared, and only they mean anything.  critpath is measured as it is installed:
an editable install would look for changed sources at every import (about 0.1 s).

Imports nothing but Python's own: what a child process takes of memory at its peak begins
with what this one has.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple


class Taken(NamedTuple):
    """What a piece of work took: seconds of CPU, elapsed ones, bytes at the peak."""

    cpu: float
    wall: float
    peak: int = 0


class Row(NamedTuple):
    """A line of the table; `reached` has the ratio of every round.

    `at_least` tells the direction of the target, which is None where there is none.
    """

    key: str
    what: str
    reached: tuple[float, ...]
    target: float | None = None
    at_least: bool = True
    bound: str = ""

    @property
    def middle(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.reached)

    @property
    def missed(self) -> bool:
        """Whether the median is on the wrong side of the target."""
        if self.target is None:
            return False
        return self.middle < self.target if self.at_least else self.middle > self.target


class LeftOut(NamedTuple):
    """A line that could not be measured, and why."""

    what: str
    why: str


def run(
    command: Sequence[str | os.PathLike[str]], *, codes: Collection[int] = (0,), **options: Any
) -> Taken:
    """Run a command, its output thrown away; its errors are raised: exit codes but these."""
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begin
    if process.returncode not in codes:
        raise RuntimeError(f"{' '.join(map(str, command))}: {process.returncode}\n{said}")
    return Taken(usage.ru_utime + usage.ru_stime, wall, 1024 * usage.ru_maxrss)


class Installed:
    """critpath as it is installed where this Python is: not an editable one."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("critpath")
        libraries = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        if not found or not str(found.origin).startswith(tuple(libraries)):
            sys.exit("only an ordinary installation is measured: make bench, or the Python of it")
        self.python: Final = Path(sys.executable)
        self.command: Final = self.python.with_name("critpath")

    def run(self, *arguments: str | os.PathLike[str], **options: Any) -> Taken:
        """Run ``critpath`` with these arguments."""
        return run([self.command, *arguments], **options)


class Worker:
    """A process that stays: work asked of it is warm from its second time on.

    Speaks JSON lines with `program`: a name of a piece of work goes in; ``cpu``, ``wall``
    and whatever else it says come out.
    """

    def __init__(self, python: Path, program: Path, *arguments: str, **options: Any) -> None:
        self._process = subprocess.Popen(
            [python, program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )

    def __call__(self, work: str) -> tuple[Taken, dict[str, Any]]:
        """Do a piece of work."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{work}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{work}: the process ended with {self._process.wait()}")
        said = json.loads(line)
        return Taken(said["cpu"], said["wall"]), said

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def ratios(one: Sequence[Taken], other: Sequence[Taken], of: str = "cpu") -> tuple[float, ...]:
    """Return how many times the other each of one took, round by round."""
    return tuple(getattr(a, of) / getattr(b, of) for a, b in zip(one, other, strict=True))


def seconds_table(title: str, rows: Mapping[str, tuple[Sequence[Taken], int]]) -> str:
    """Return a table of medians, with the range of the rounds and events a second."""
    lines = [
        title,
        f"  {'':<46}{'CPU s':>8}{'range':>16}{'elapsed':>9}{'M ev/s':>9}{'peak MB':>9}",
    ]
    for name, (taken, events) in rows.items():
        cpu = [one.cpu for one in taken]
        middle = statistics.median(cpu)
        wall = statistics.median(one.wall for one in taken)
        peak = max(one.peak for one in taken) / 1e6
        lines.append(
            f"  {name:<46}{middle:>8.3f}{f'{min(cpu):.3f}-{max(cpu):.3f}':>16}{wall:>9.3f}"
            f"{events / middle / 1e6 if events else 0:>9.2f}{peak:>9.0f}"
        )
    return "\n".join(lines)


def figure(value: float) -> str:
    """Return a ratio with three figures that count."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(rows: Sequence[Row | LeftOut], before: Mapping[str, float]) -> str:
    """Return the table of figures: target, what was reached, and the release before."""
    heads = ("what", "target", "reached", "range", "release before", "bound by")
    lines = [heads, ("---", *["---:"] * 4, "---")]
    for row in rows:
        if isinstance(row, LeftOut):
            lines.append((row.what, "", "left out", "", "", row.why))
            continue
        target = "" if row.target is None else f"{'≥' if row.at_least else '≤'} {row.target:g}"
        reached = f"**{figure(row.middle)}**" if row.missed else figure(row.middle)
        spread = f"{figure(min(row.reached))} to {figure(max(row.reached))}"
        known = figure(before[row.key]) if row.key in before else ""
        lines.append((row.what, target, reached, spread, known, row.bound))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def take_rows(parser: argparse.ArgumentParser) -> None:
    """Let a script be asked for the rows that ``scale.py`` takes into its table."""
    parser.add_argument("--rows", type=Path, metavar="FILE", help="add JSON lines for scale.py")


def add_rows(file: Path | None, rows: Iterable[Row | LeftOut]) -> None:
    """Add rows to a file of JSON lines, if one was named."""
    if file:
        with file.open("a", encoding="ascii") as stream:
            stream.writelines(f"{json.dumps(row._asdict())}\n" for row in rows)


def read_rows(file: Path) -> list[Row | LeftOut]:
    """Return the rows of such a file."""
    found = map(json.loads, file.read_text(encoding="ascii").splitlines())
    return [
        LeftOut(**of) if "why" in of else Row(**{**of, "reached": tuple(of["reached"])})
        for of in found
    ]
