"""Builds the application, records versions of it in alternation, and compares them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from limits import Group, Limits, NoLimitError, ended_properly
from short_slice import shorten

from critpath import flow
from critpath.model import Analysis, PathSet
from critpath.report.document.comparison import comparison_document
from critpath_record.ftrace.recorder import find_needs

HERE: Final = Path(__file__).resolve().parent
# The application and what competes with it has this many times the turns of another group
# of processes: what others do meanwhile is none of the faults. A priority would not do where
# the kernel groups processes by session (autogroup).
WEIGHT: Final = 90
NICE: Final = -10
RUN_S: Final = 30  # a run that takes longer hangs
RECORD_S: Final = 120

Options = Mapping[str, object]


class RecordingError(Exception):
    """A recording failed; the text says why."""


def why_not() -> str:
    """Return why nothing can be measured here, "" if it can."""
    if os.geteuid():
        return "recording needs root"
    if shutil.which("cc") is None:
        return "no C compiler"
    return next((o.what for o in find_needs(None) if o.fatal), "")


def disk() -> str:
    """Return where temporary files are on a disk; /tmp may be in memory."""
    return "/var/tmp" if Path("/var/tmp").is_dir() else tempfile.gettempdir()  # noqa: S108


@contextlib.contextmanager
def bench() -> Iterator[Bench]:
    """Build the application in a directory and a control group of its own, gone afterwards."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_properly())
        prefix = "critpath-evaluation-"
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, dir=disk()))
        home = None
        with contextlib.suppress(NoLimitError):  # measured among all others, then
            home = stack.enter_context(Group(Limits(), "home"))
            weigh(home)
        yield Bench(Path(place), home)


def weigh(group: Group) -> None:
    """Give a control group `WEIGHT`, where it has a weight at all."""
    for place in group.places:
        for file, usual in (("cpu.shares", 1024), ("cpu.weight", 100)):
            if (place / file).exists():
                (place / file).write_text(str(usual * WEIGHT))


class Bench:
    """A directory with the application in it, built and calibrated.

    Parameters
    ----------
    directory : Path
        On a disk; what is recorded goes below it.
    home : Group
        Control group that what is recorded runs in; without one, it runs as it is.
    """

    def __init__(self, directory: Path, home: Group | None = None) -> None:
        self.directory = directory
        self.home = home or Group(Limits(), "none", {})
        self.app = directory / "app"
        self.data = directory / "data"
        self.data.mkdir()
        build = ["cc", "-std=c11", "-O1", "-o", self.app, HERE / "app.c", "-lpthread"]
        subprocess.run(build, check=True)
        done = subprocess.run([self.app, "--calibrate"], check=True, capture_output=True, text=True)
        self.steps = done.stdout.strip()

    def truth(self, version: int) -> Path:
        """Return where the ground truth of one of two versions is written."""
        return self.directory / f"truth-{version}.csv"

    def record(self, versions: tuple[Options, Options], runs: int) -> tuple[Path, Path]:
        """Record two versions in alternation.

        Parameters
        ----------
        versions : two mappings
            Options of the application, True for one without a value.
        runs : int
            Of each version.

        Returns
        -------
        two paths
            The recordings; the ones before are gone.

        Raises
        ------
        RecordingError
        """
        output = self.directory / "recording"
        shutil.rmtree(output, ignore_errors=True)
        commands = []
        for number, options in enumerate(versions):
            self.truth(number).unlink(missing_ok=True)
            fixed = {"directory": self.data, "steps": self.steps, "truth": self.truth(number)}
            commands.append(" ".join([str(self.app), *_words({**fixed, **options})]))
        command = self.home.command(
            [
                *(sys.executable, "-P", "-m", "critpath", "record", "--quiet", "-o", str(output)),
                *("--execution", "marker", "--timeout", str(RUN_S), "-n", str(runs)),
                *("--interleave", *commands),
            ]
        )
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=RECORD_S,
                check=False,
                preexec_fn=_before_others,
            )
        except subprocess.TimeoutExpired:
            raise RecordingError(f"took longer than {RECORD_S} s") from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
            raise RecordingError(f"exit code {done.returncode}: {said[-1]}")
        return output / "normal", output / "sample"


def _words(options: Options) -> list[str]:
    words = []
    for name, value in options.items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return words


def _before_others() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, NICE)
    shorten()


def extract(recording: Path) -> PathSet:
    """Extract the critical paths of the application as ``critpath compare`` does.

    Another program of this machine may mark what it does, too.
    """
    paths = flow.extract([recording], specification=None)
    return paths.take(np.flatnonzero([comm == "app" for comm in paths.executions.comm]))


def without_labels(paths: PathSet) -> PathSet:
    """Forget what the program said of the types of its executions."""
    executions = replace(paths.executions, label=("",) * len(paths))
    return replace(paths, executions=executions)


@dataclass(frozen=True)
class FirstCause:
    """The first cause of a comparison, by what most of it is.

    Attributes
    ----------
    state, thread, detail : str
        Of the state and thread that most of its time is in: ``WAIT_CPU``; the thread's
        role, "" for the execution's own; ``intruder (4711)``.
    contribution : float
        Milliseconds an execution.
    share : float
        Of the excess of all executions that stand out.
    executions : tuple of int
    sentence : str
        As every output has it.
    """

    state: str = ""
    thread: str = ""
    detail: str = ""
    contribution: float = 0.0
    share: float = 0.0
    executions: tuple[int, ...] = ()
    sentence: str = ""


def first_cause(comparison: Analysis) -> FirstCause:
    """Return the first cause of a comparison, all empty where there is none."""
    if not comparison.causes:
        return FirstCause()
    cause = comparison.causes[0]
    findings = [comparison.findings[place] for place in cause.findings]
    main = comparison.findings[cause.main].symbol
    detail = _heaviest([(f.detail, f.contribution) for f in findings if f.symbol == main])
    return FirstCause(
        state=main.state.name,
        thread=main.role,
        detail=detail,
        contribution=cause.contribution / 1e6,
        share=cause.share,
        executions=tuple(cause.positions),
        sentence=comparison_document(comparison).causes[0].sentence,
    )


def _heaviest(pairs: Sequence[tuple]) -> object:
    tally = defaultdict(float)
    for what, weight in pairs:
        tally[what] += abs(weight)
    return max(sorted(tally), key=tally.__getitem__)
