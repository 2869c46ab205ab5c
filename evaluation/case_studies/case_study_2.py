"""Case study 2: the same application, held back from outside.

``python evaluation/case_studies/case_study_2.py [--repeats N] [--limits a,b] [--json F]`` records
the application (`app.c`) without a limit and under each of `LIMITS` on this machine's
kernel, compares as ``critpath compare`` does by default, and prints what the first cause
says beside what is known to be wrong.  ``none`` is the control: no limit, again.

Needs root, tracefs, a C compiler and control groups of either version; a limit that the
machine does not offer is left out, and said to be.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[1]))

from bench import Bench, _before_others, disk, why_not
from limits import PREFIX, Group, Limits, NoLimitError, disk_of, ended_properly
from results import write_results

from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath.timeline.missing_switches import repair_switches
from critpath.timeline.replay import replay

CALM: Final = 0.2  # share of the cpu that others may have before something is recorded
TIMEOUT_S: Final = 300
PATIENCE: Final = 5.0  # seconds to wait for that
EXECUTIONS: Final = 90
SEED: Final = 11
MEGABYTE: Final = 1 << 20


@dataclass(frozen=True)
class Case:
    """A limit, and what an answer must say to be right.

    Attributes
    ----------
    what : str
        For people.
    state : str
        State that most of the first cause is in; "" where there must be no anomaly.
    says : str
        What the first cause must say of who held the resource.
    quota, memory, disk : (us, us of period), bytes, bytes a second
        As in `Limits`.
    intruder : bool
        A process called ``intruder`` computes on the same cpu.
    cached : bool
        The application reads through the page cache; compared with the same without limit.
    """

    what: str
    state: str
    says: str
    quota: tuple[int, int] | None = None
    memory: int | None = None
    disk: int | None = None
    intruder: bool = False
    cached: bool = False


# What counts as right (state, says) was written before anything was measured; how tight the
# limits of memory and disk are was set after first trials, until they showed. What a quota held
# back was `WAIT_CPU` and "throttled" then: it has a state of its own now.
LIMITS: Final = {
    "none": Case("no limit, recorded again", "", ""),
    "quota-10": Case("CPU quota of 10 %: 1 of 10 ms", "WAIT_QUOTA", "quota", (1_000, 10_000)),
    "quota-10-long": Case(
        "CPU quota of 10 %: 10 of 100 ms", "WAIT_QUOTA", "quota", (10_000, 100_000)
    ),
    "quota-50": Case("CPU quota of 50 %: 5 of 10 ms", "WAIT_QUOTA", "quota", (5_000, 10_000)),
    "memory": Case(
        "memory limit of 8 MB; the file read has 16",
        "WAIT_DISK",
        "disk",
        memory=8 * MEGABYTE,
        cached=True,
    ),
    "competitor": Case("a busy process on the same cpu", "WAIT_CPU", "`intruder", intruder=True),
    "disk": Case("I/O limit of 512 KB/s each way", "WAIT_DISK", "disk", disk=MEGABYTE // 2),
}


@dataclass(frozen=True)
class Answer:
    """What one comparison said.

    Attributes
    ----------
    verdict, cause : str
        As critpath prints them; cause is "" where there is none.
    state : str
        State that most of the first cause is in.
    right : bool
        The first cause says what `Case` demands.
    noted : str
        What the report says beside it of a quota in the sample, "" for nothing.
    normal, sample : float
        Mean duration of an execution, ms.
    others : float
        Share of its cpu that other programs had while the sample was recorded.
    """

    limit: str
    repeat: int
    verdict: str
    cause: str
    state: str
    right: bool
    noted: str
    normal: float
    sample: float
    others: float


class Study:
    """Recordings of one application in one directory.

    Parameters
    ----------
    directory : Path
        On a disk.
    executions : int
        In every recording.
    cpu : int or None
        What the application runs on, None for the last there is.
    """

    def __init__(self, directory: Path, executions: int, cpu: int | None = None) -> None:
        self.directory, self.executions = directory, executions
        self.cpu = max(os.sched_getaffinity(0)) if cpu is None else cpu
        bench = Bench(directory)
        self.app, self.data, self.steps = bench.app, bench.data, bench.steps

    def record(self, name: str, case: Case, seed: int) -> Path:
        """Record the application under a limit.

        Raises
        ------
        NoLimitError
            If this machine does not offer it.
        """
        output = self.directory / name
        disk = (disk_of(self.data), case.disk) if case.disk else None
        options = ("--steps", self.steps, "--directory", str(self.data))
        # Without a limit: the file that is read is written, where it is not there.
        subprocess.run([self.app, "--executions", "1", *options], check=True)
        application = (
            *(str(self.app), "--executions", str(self.executions), "--seed", str(seed)),
            *(*options, *(("--cached",) if case.cached else ())),
        )
        wait_for_calm(self.cpu)
        with (
            Group(Limits(case.quota, case.memory, disk), name) as group,
            competitor(self.cpu, group) if case.intruder else contextlib.nullcontext(),
        ):
            command = group.command(("taskset", "-c", str(self.cpu), *application))
            critpath(
                *("record", "--as-root", "--recorder", "ftrace", "--execution", "marker"),
                *("--force", "-o", str(output), "--", *command),
            )
        return output

    def compare(self, normal: Path, sample: Path) -> tuple[dict, float]:
        """Return a comparison's document, and the share of the cpu that others had."""
        file = self.directory / "comparison.json"
        critpath("compare", str(normal), str(sample), "--json", str(file), codes=(0, 1, 3))
        return json.loads(file.read_text()), others_share(sample, self.cpu)


def judge(case: Case, document: dict) -> tuple[str, str, bool]:
    """Return the first cause, the state that most of it is in, and if that is right."""
    if not document["causes"]:
        return "", "", document["verdict"] == "ok" and not case.state
    cause = document["causes"][0]
    weight: dict[str, float] = {}
    for place in cause["findings"]:
        finding = document["findings"][place]
        weight[finding["state"]] = weight.get(finding["state"], 0.0) + finding["contribution"]
    state = max(sorted(weight), key=weight.__getitem__)
    if not case.state:
        return cause["sentence"], state, document["verdict"] == "ok"
    right = state == case.state and case.says in cause["sentence"]
    return cause["sentence"], state, right and document["verdict"] == "anomaly"


def critpath(*arguments: str, codes: Sequence[int] = (0,)) -> str:
    """Run the command line and return what it said to stderr."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "critpath", *arguments],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        preexec_fn=_before_others,
    )
    if done.returncode not in codes:
        raise RuntimeError(f"critpath {arguments[0]} ended with {done.returncode}: {done.stderr}")
    return done.stderr


def idle_seconds() -> dict[int, float]:
    """Return how long each cpu has been idle since the machine started."""
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *times = line.split()
        if name.startswith("cpu") and name != "cpu":
            idle = int(times[3]) + int(times[4])
            found[int(name.removeprefix("cpu"))] = idle / os.sysconf("SC_CLK_TCK")
    return found


def wait_for_calm(cpu: int) -> None:
    """Wait until a cpu is mostly idle, but not for ever."""
    enough = time.monotonic() + PATIENCE
    share = 0.0
    while share < 1 - CALM and time.monotonic() < enough:
        before, begin = idle_seconds()[cpu], time.monotonic()
        time.sleep(0.5)
        share = (idle_seconds()[cpu] - before) / (time.monotonic() - begin)


def others_share(recording: Path, cpu: int) -> float:
    """Return the share of a cpu that neither the application nor idle had."""
    timelines = replay(repair_switches(read_events(recording, KERNEL_EVENTS)))
    place = timelines.processors.index((0, cpu))
    rows = slice(int(timelines.ran_start[place]), int(timelines.ran_start[place + 1]))
    worker = timelines.ran_worker[rows]
    took = timelines.ran_end[rows] - timelines.ran_begin[rows]
    ours = {"app", "helper", "peer", "holder", "intruder"}
    names = [timelines.strings[code] for code in timelines.workers.name.tolist()]
    idle = timelines.workers.idle_cpu >= 0
    mine = [bool(idle[w]) or names[w] in ours for w in worker.tolist()]
    return float(sum(t for t, m in zip(took.tolist(), mine, strict=True) if not m) / took.sum())


@contextlib.contextmanager
def competitor(cpu: int, group: Group) -> Iterator[None]:
    """Have a process called ``intruder`` compute on a cpu, with the application's weight."""
    program = (
        "import os; os.sched_setaffinity(0, {int(os.sys.argv[1])});"
        "open('/proc/self/comm', 'w').write('intruder'); print(flush=True)\n"
        "parent = os.getppid()\n"
        "while os.getppid() == parent: pass"
    )
    command = [sys.executable, "-c", program, str(cpu)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        preexec_fn=_before_others,  # noqa: PLW1509 - as the application
    ) as busy:
        try:
            assert busy.stdout is not None
            busy.stdout.readline()
            group.add(busy.pid)
            yield
        finally:
            busy.kill()


def run(
    directory: Path,
    limits: Sequence[str],
    repeats: int,
    executions: int = EXECUTIONS,
    cpu: int | None = None,
) -> Iterator[Answer]:
    """Record, compare and judge; a new healthy recording for every repeat."""
    study = Study(directory, executions, cpu)
    missing: set[str] = set()
    for repeat in range(repeats):
        normals: dict[bool, Path] = {}
        for name in limits:
            if name in missing:
                continue
            case = LIMITS[name]
            if case.cached not in normals:
                healthy = replace(LIMITS["none"], cached=case.cached)
                where = "normal-cached" if case.cached else "normal"
                normals[case.cached] = study.record(where, healthy, SEED + 2 * repeat)
            try:
                sample = study.record(name, case, SEED + 2 * repeat + 1)
                document, others = study.compare(normals[case.cached], sample)
            except NoLimitError as error:
                missing.add(name)
                print(f"{name}: left out: {error}", file=sys.stderr)
                continue
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name}, repeat {repeat}: failed: {error}", file=sys.stderr)
                yield Answer(name, repeat, "failed", str(error), "", False, "", 0.0, 0.0, 0.0)
                continue
            cause, state, right = judge(case, document)
            means = mean_total(document)
            yield Answer(
                name,
                repeat,
                document["verdict"],
                cause,
                state,
                right,
                quota_note(document),
                *means,
                others,
            )


def quota_note(document: dict) -> str:
    """Return what the report says of a quota that held the sample back, "" for nothing."""
    told = (w for w in document["warnings"] if w.startswith("after:") and PREFIX in w)
    return next((w.removeprefix("after: ") for w in told if "quota" in w), "")


def mean_total(document: dict) -> tuple[float, float]:
    """Return the mean duration of a normal and of a sample execution, ms."""
    total = next(s for s in document["states"] if s["state"] == "total")
    return total["normal_mean"] / 1e6, total["sample_mean"] / 1e6


def tables(answers: Sequence[Answer]) -> str:
    """Return the answers as Markdown: a summary, and the first causes one by one."""
    told = "anomaly | first cause right | quota said beside it"
    lines = [
        f"| limit | what | expected state and holder | normal ms | limited ms | {told} |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for name in dict.fromkeys(a.limit for a in answers):
        case, mine = LIMITS[name], [a for a in answers if a.limit == name]
        expected = f"`{case.state}`, {case.says.strip('`')}" if case.state else "no anomaly"
        normal, sample = (sum(getattr(a, k) for a in mine) / len(mine) for k in _MEANS)
        anomalies = sum(a.verdict == "anomaly" for a in mine)
        right, noted = sum(a.right for a in mine), sum(a.noted != "" for a in mine)
        lines.append(
            f"| {name} | {case.what} | {expected} | {normal:.1f} | {sample:.1f} "
            f"| {anomalies} of {len(mine)} | {right} of {len(mine)} | {noted} of {len(mine)} |"
        )
    lines += [
        "",
        "| limit | | others had | state | right | first cause |",
        "|---|---:|---:|---|---|---|",
    ]
    lines += [
        f"| {a.limit} | {a.repeat + 1} | {100 * a.others:.0f} % | {a.state} "
        f"| {'yes' if a.right else 'no'} | {a.cause or a.verdict} |"
        for a in answers
    ]
    return "\n".join(lines)


_MEANS: Final = ("normal", "sample")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description="case study 2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limits", default=",".join(LIMITS))
    parser.add_argument("--executions", type=int, default=EXECUTIONS)
    parser.add_argument("--cpu", type=int, default=None, help="what it runs on")
    parser.add_argument("--directory", type=Path, default=None, help="empty, on a disk; kept")
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args(arguments)
    chosen = given.limits.split(",")
    if unknown := sorted(set(chosen) - set(LIMITS)):
        parser.error(f"no such limit: {', '.join(unknown)}")
    if reason := why_not():
        parser.error(reason)
    answers: list[Answer] = []
    with ended_properly(), contextlib.ExitStack() as stack:
        directory = given.directory
        if directory is None:
            directory = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="critpath-", dir=disk()))
            )
        directory.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        for answer in run(directory, chosen, given.repeats, given.executions, given.cpu):
            answers.append(answer)
            print(
                f"{time.monotonic() - begin:4.0f} s  {answer.limit} {answer.repeat + 1}:"
                f" {'right' if answer.right else 'WRONG'}: {answer.cause or answer.verdict}",
                file=sys.stderr,
            )
    print(tables(answers))
    if given.json:
        write_results(given.json, [asdict(a) for a in answers])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
