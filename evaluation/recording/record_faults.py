"""Every system call of a recording fails once, in turn: those on its files and on its instance.

Each fails with each error that it can have.  After each the recording is there, whole or named
unfinished, or it is not, and nothing is left over.

    python evaluation/recording/record_faults.py [PART] [PATTERN]

As root; so many as PART, or all of them (0), of calls as PATTERN is found in: ``^close .*/raw``.
Those of every kind of file come first that are its first, then its second.  One recording or two a
second: each is made in a child of a process that has imported everything, and two such processes
work side by side.  ``test_record_faults.py`` tries a few of them.
"""

from __future__ import annotations

import gc
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "process" / "store"))
from failing import Pair, Switch, build, choose_pairs, list_pairs

from critpath.commands import main as run_critpath
from critpath.errors import CritpathError
from critpath.read.traces import describe
from critpath_record.ftrace import recorder
from critpath_record.ftrace.events import find_timer_functions
from critpath_record.registry import registry_directory

INSTANCES = Path("/sys/kernel/tracing/instances")
WORKERS = 2
_PATIENCE = 120  # seconds for a recording of less than one


class Child:
    """A command line of critpath in a child that stays, as what it holds, until it is ended."""

    def __init__(self, place: Path, *arguments: str, modules: Path | None = None) -> None:
        reading, writing = os.pipe()
        self._said = place.with_name("said")
        self.pid = os.fork()
        if not self.pid:
            try:
                self._run(place, arguments, modules, writing)
            finally:  # it must not go on as the worker
                os._exit(99)
        os.close(writing)
        handle = os.pidfd_open(self.pid)
        ready = select.select([reading, handle], [], [], _PATIENCE)[0]
        told = os.read(reading, 16) if reading in ready else b""
        for descriptor in (reading, handle):
            os.close(descriptor)
        self.hangs = not ready
        self._ended = bool(ready) and not told
        self.status = int(told or b"-1")
        if self._ended:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.said = self._said.read_text(encoding="utf-8", errors="replace")

    def _run(
        self, place: Path, arguments: tuple[str, ...], modules: Path | None, writing: int
    ) -> NoReturn:
        os.chdir(place)
        for stream, name in enumerate((os.devnull, os.devnull, str(self._said))):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), stream)
        status = 99
        try:
            status = run_critpath(list(arguments))
        except BaseException:  # noqa: BLE001 - whatever it is, it is found
            traceback.print_exc()
        with suppress(OSError):
            sys.stderr.flush()
        if modules:
            modules.write_text(json.dumps(sorted(sys.modules)), encoding="utf-8")
        os.write(writing, str(status).encode())
        while True:
            signal.pause()

    def end(self) -> None:
        """End it: what its session left is that of a dead one from then on."""
        if not self._ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._ended = True


class Worker:
    """Recordings of one command, each with one call that fails; in a process of its own.

    It is preloaded with ``faults.c``, and its children are.
    """

    def __init__(self, place: Path) -> None:
        self.place = place / "work"
        self._switch = Switch(place)
        self.arm()
        self._prepare()
        modules = place / "modules"
        first = self._record(modules)
        first.end()
        if first.status or first.hangs:
            raise SystemExit(f"nothing can be recorded here: {first.said}")
        for name in json.loads(modules.read_text(encoding="utf-8")):
            if name.partition(".")[0] in {"critpath", "critpath_marks", "numpy"}:
                with suppress(ImportError):
                    import_module(name)
        # Megabytes that the kernel writes anew for each reader, and none of the recording's files.
        found = find_timer_functions()
        vars(recorder)["find_timer_functions"] = lambda: found
        gc.set_threshold(100_000, 50, 50)  # as the command has it
        gc.freeze()

    def arm(self, pair: Pair | None = None, *, log: Path | None = None) -> None:
        """Let a call fail, or have all noted, or none of both."""
        self._switch.arm(self.place, str(INSTANCES / "critpath-"), pair=pair, log=log)

    def run(self, pair: Pair | None, log: Path | None = None) -> tuple[int, bool, list[str]]:
        """Record; return the exit code, whether the call was made, and what is wrong."""
        self._prepare()
        self.arm(pair, log=log)
        child = self._record()
        called = self._switch.called
        self.arm()
        if (child.status and "critpath doctor --clean" in child.said) or child.hangs:
            child.end()
        # Until it is ended no other recorder takes away what it left.
        wrong = [f"not through after {_PATIENCE} s"] if child.hangs else [*self._wrong(child)]
        wrong += self._left(child)
        child.end()
        for instance in INSTANCES.glob(f"critpath-*-{child.pid}-*"):
            with suppress(OSError):
                instance.rmdir()
        return child.status, bool(called), wrong

    def _prepare(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()

    def _record(self, modules: Path | None = None) -> Child:
        arguments = ("record", "--recorder", "ftrace", "--quiet", "--no-probe")
        output = ("-o", str(self.place / "rec"), "--", "true")
        return Child(self.place, *arguments, *output, modules=modules)

    def _wrong(self, child: Child) -> Iterator[str]:
        """Yield what is wrong with what it said and with the recording."""
        status, said = child.status, child.said
        if "Traceback" in said or "internal error" in said:
            yield f"a failure of its own: {said[-1500:]!r}"
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
                    Child(self.place, "doctor", "--clean", str(found)).end()
        try:
            state = json.loads((found / "critpath.json").read_text(encoding="utf-8"))["state"]
            describe(found)
        except (OSError, ValueError, KeyError, CritpathError) as error:
            yield f"a third state: {error}; it said {said[-600:]!r}"
            return
        if not status and state != "complete":
            yield f"done, it says, and is {state}"

    def _left(self, child: Child) -> Iterator[str]:
        others = [path.name for path in self.place.iterdir() if path.name != "rec"]
        if others:
            yield f"left beside it: {others}; it said {child.said[-600:]!r}"
        hidden = [path.name for path in (self.place / "rec").glob("**/.*")]
        if hidden:
            yield f"left in it: {hidden}; it said {child.said[-600:]!r}"
        for place in (INSTANCES, registry_directory()):
            for left in place.glob(f"*critpath-*-{child.pid}-*") if place else ():
                yield f"left: {left}; it said {child.said[-600:]!r}"


def work(place: Path) -> None:
    """Try what stdin names, a line each, and answer a line each."""
    worker = Worker(place)
    for line in sys.stdin:
        asked = json.loads(line)
        log = place / "log" if asked is None else None
        status, called, wrong = worker.run(Pair(**asked) if asked else None, log)
        sites = log.read_text(encoding="utf-8").splitlines() if log else []
        answer = {"status": status, "called": called, "wrong": wrong, "sites": sites}
        print(json.dumps(answer), flush=True)


class Loop:
    """A worker, seen from the process that says what is tried."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
        preloaded = Switch(place).environment(build(place))
        self._worker = subprocess.Popen(
            [sys.executable, __file__, "--work", str(place)],
            env=clean | preloaded,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, pair: Pair | None) -> tuple[int, bool, list[str], list[str]]:
        """Record; return the exit code, whether the call was made, what is wrong, and all calls.

        Calls are listed where none fails.
        """
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        self._worker.stdin.write(json.dumps(asdict(pair) if pair else None) + "\n")
        self._worker.stdin.flush()
        answer = json.loads(self._worker.stdout.readline())
        return answer["status"], answer["called"], answer["wrong"], answer["sites"]

    def end(self) -> None:
        """End the worker."""
        self._worker.communicate()


def try_calls(place: Path, part: int, pattern: str = "") -> tuple[list[Pair], int, int, list[str]]:
    """Let calls fail, all of them (0) or a part, if a pattern is found in their site.

    Returns
    -------
    list of Pair
        All that there are.
    int
        How many were tried.
    int
        How many of these were met by the recorder.
    list of str
        What went wrong.
    """
    loops = [Loop(place / str(number)) for number in range(WORKERS)]
    status, _, wrong, sites = loops[0].ask(None)
    if status or wrong:
        raise SystemExit("\n".join(["nothing can be recorded here", *wrong]))
    pairs = [pair for pair in list_pairs(sites) if re.search(pattern, pair.site)]
    left, found, met = deque(choose_pairs(pairs, part)), list[str](), list[bool]()
    many = len(left)

    def go_on(loop: Loop) -> None:
        with suppress(IndexError):
            while True:
                pair = left.popleft()
                status, called, bad, _ = loop.ask(pair)
                met.append(called)
                bad = [f"{pair}, {status}: {b}" for b in bad]
                found.extend(bad)
                sys.stdout.write("".join(f"{one}\n" for one in bad))
                if not len(met) % 25:
                    sys.stdout.write(f"{len(met):,} of {many:,}, {sum(met):,} met: {pair}\n")
                sys.stdout.flush()

    threads = [threading.Thread(target=go_on, args=(loop,)) for loop in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for loop in loops:
        loop.end()
    return pairs, len(met), sum(met), found


def main() -> None:
    """Try all, and print what was found."""
    if sys.argv[1:2] == ["--work"]:
        work(Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory(prefix="critpath-faults-") as directory:
        part, pattern = (*sys.argv[1:], *("0", "")[len(sys.argv) - 1 :])
        pairs, _, met, wrong = try_calls(Path(directory), int(part), pattern)
    said = f"{met:,} of {len(pairs):,} pairs of a call and an error"
    sys.stdout.write(f"{said}; {len(wrong)} left in a third state\n")


if __name__ == "__main__":
    main()
