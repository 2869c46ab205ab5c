"""A campaign of changed files of every format: ``python tests/fuzz/mutate_files.py``.

Every kind of file that critpath reads and others may have written (`file_seeds`) is changed, as
bytes and as what it is, and read by the commands that read it, all in one process.  Every input
must end in an exit code that blames what was given, in two lines, and soon; and where a file's
digest is kept, in another one than the unchanged file's, or in the same answer.

Input N of campaign S is the same on every run: ``--only N`` repeats it and shows all of it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final, NoReturn
from unittest import mock

HERE: Final = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from contract import CODES  # noqa: E402 - found by the path above
from file_changes import change  # noqa: E402 - as above
from file_seeds import Given, make_seeds  # noqa: E402 - as above

from critpath import commands  # noqa: E402 - as above
from critpath.commands import doctor  # noqa: E402 - as above
from critpath.errors import EXIT_ANOMALY, EXIT_INTERNAL, EXIT_OK  # noqa: E402 - as above

SECONDS: Final = 5.0  # of the processor, for one input
MEMORY: Final = 3 << 30  # more than the process has at first
CLEAN: Final = CODES | {EXIT_OK, EXIT_ANOMALY}


class HangError(BaseException):
    """An input takes too long; no handler of exceptions takes it for something else."""


def run(words: tuple[str, ...]) -> tuple[int, str, str]:
    """Run critpath as a command line; return its exit code and what it printed."""
    shown, said = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="replace") for _ in range(2))
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
        code = commands.main(words)
    texts = []
    for stream in (shown, said):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8", "replace"))
    return code, *texts


class Trial:
    """One kind of file, and what its commands say of it unchanged."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.usual = {}
        for words in given.commands:
            self.usual[words] = run(words)
            self.renew()
        for words, (code, _, said) in self.usual.items():
            if code not in {EXIT_OK, EXIT_ANOMALY, *given.codes}:
                print(f"{given.name}: critpath {' '.join(words)}: {code}: {said}")

    def renew(self) -> None:
        """Have what commands make or change as it was."""
        for place in self.given.made:
            shutil.rmtree(place, ignore_errors=True)
        if self.given.copied:
            kept, of = self.given.copied
            shutil.rmtree(of, ignore_errors=True)
            shutil.copytree(kept, of)

    def judge(self, rng: Random) -> tuple[str, str]:
        """Try one change; return what came of it, and of which change in which words."""
        file = rng.choice(self.given.files)
        words = rng.choice(self.given.commands)
        before = file.read_bytes()
        how, after = change(before, self.given.kind, rng)
        about = f"{file.name}: {how}: critpath {' '.join(words)}"
        try:
            if after is None:
                file.unlink()
            else:
                file.write_bytes(after)
            began = time.process_time()
            code, shown, said = run(words)
            taken = time.process_time() - began
        except HangError:
            return "hang", f"{about}\n{traceback.format_exc(limit=-12)}"
        except BaseException:  # noqa: BLE001 - whatever came out is a finding
            return "exception", f"{about}\n{traceback.format_exc()}"
        finally:
            self.renew()
            restore(file, before)
        if taken > SECONDS:
            return "hang", f"{about}: {taken:.1f} s"
        if code not in CLEAN:
            return "exception", f"{about}: exit code {code}: {said}"
        if code in CODES - set(self.given.codes) and not is_clean(said):
            return "unclear", f"{about}: exit code {code}: {said!r}"
        if self.given.digest and after != before and code in {EXIT_OK, EXIT_ANOMALY}:
            _, usual, warned = self.usual[words]
            if shown != usual and said == warned:
                return "silent", f"{about}: another answer: {shown[:2000]}"
        return {EXIT_OK: "read", EXIT_ANOMALY: "read"}.get(code, f"exit code {code}"), about


def is_clean(said: str) -> bool:
    """Tell whether stderr ends in two lines, what went wrong and what to do."""
    lines = said.rstrip("\n").split("\n")
    return len(lines) >= 2 and lines[-2].startswith("critpath: ") and lines[-1].startswith("  ")


def restore(file: Path, content: bytes) -> None:
    """Write a file as it was, whatever stands in its place."""
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    file.write_bytes(content)


def stop(*_: object) -> NoReturn:
    """End an input that takes too long."""
    raise HangError


def keep_traceback(error: Exception) -> int:
    """Stand in for what makes two lines of any exception: ours are clean, others are findings."""
    code = _explain(error)
    if code == EXIT_INTERNAL:
        traceback.print_exception(error, limit=-15)
    return code


_explain = commands._explain


def draw(trials: list[Trial], campaign: int, number: int) -> tuple[Trial, Random]:
    """Return which kind of file input N is of, and its chances."""
    rng = Random(f"{campaign} {number}")  # noqa: S311 - inputs, not secrets
    return trials[number % len(trials)], rng


def try_inputs(trials: list[Trial], campaign: int, numbers: range) -> dict[str, Any]:
    """Try inputs one after the other; return how many came to what, and the findings."""
    outcomes: Counter[str] = Counter()
    by_kind: dict[str, Counter[str]] = {trial.given.name: Counter() for trial in trials}
    findings = []
    shown = time.monotonic()
    for number in numbers:
        trial, rng = draw(trials, campaign, number)
        signal.setitimer(signal.ITIMER_PROF, 2 * SECONDS)
        outcome, about = trial.judge(rng)
        signal.setitimer(signal.ITIMER_PROF, 0)
        outcomes[outcome] += 1
        by_kind[trial.given.name][outcome] += 1
        if outcome in {"exception", "hang", "unclear", "silent"}:
            findings.append((number, trial.given.name, outcome, about))
            print(f"{number}: {trial.given.name}: {outcome}: {about[-1500:]}", flush=True)
        if time.monotonic() - shown > 60:
            shown = time.monotonic()
            print(f"{number - numbers.start:,} inputs, {len(findings)} findings", flush=True)
    return {
        "format": "critpath/mutated-files/1",
        "campaign": campaign,
        "inputs": len(numbers),
        "outcomes": dict(outcomes),
        "kinds": {name: dict(sorted(of.items())) for name, of in by_kind.items()},
        "findings": findings,
    }


def line_of(found: dict[str, Any]) -> str:
    """Return the one line that says it all."""
    of = Counter(found["outcomes"])
    refused = sum(count for name, count in of.items() if name.startswith("exit code"))
    return (
        f"{found['inputs']:,} inputs of {len(found['kinds'])} formats: {of['read']:,} read, "
        f"{refused:,} refused, {of['exception']:,} exceptions, {of['hang']:,} hangs, "
        f"{of['unclear']:,} unclear, {of['silent']:,} silent other answers"
    )


def main() -> int:
    """Run a campaign, or one input of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=0, help="the first input's number")
    parser.add_argument("--campaign", type=int, default=1, help="the seed of all randomness")
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--kinds", nargs="*", help="which kinds of files")
    parser.add_argument("--only", type=int, help="one input, told in full")
    arguments = parser.parse_args()
    memory = "/dev/shm"  # noqa: S108 - a directory of its own is made below it
    inside = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="critpath-files-", dir=inside) as name:
        place = Path(name)
        cache = {"HOME": name, "XDG_CACHE_HOME": f"{name}/cache"}
        with (
            mock.patch.dict(os.environ, cache),
            mock.patch.object(commands, "_explain", keep_traceback),
            mock.patch.object(doctor, "_PATIENCE", 0),  # programs that mark tell no format
        ):
            os.chdir(place)
            given = [
                one
                for one in make_seeds(place)
                if not arguments.kinds or one.name in arguments.kinds
            ]
            trials = [Trial(one) for one in given]
            mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, resource.RLIM_INFINITY))
            signal.signal(signal.SIGPROF, stop)
            if arguments.only is not None:
                trial, rng = draw(trials, arguments.campaign, arguments.only)
                print(trial.given.name, *trial.judge(rng), sep="\n")
                return 0
            numbers = range(arguments.first, arguments.first + arguments.inputs)
            found = try_inputs(trials, arguments.campaign, numbers)
            os.chdir("/")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    print(line_of(found))
    return int(bool(found["findings"]))


if __name__ == "__main__":
    sys.exit(main())
