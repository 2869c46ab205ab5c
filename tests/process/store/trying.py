"""Every writer, again and again, each time with another system call of it that fails.

``python trying.py DIRECTORY PART [PATTERN]`` is preloaded with ``faults.c``: every writer of
``writers.py`` is tried with each of its calls, and each error that the call can have.  It writes
a row for each.  What is right:

- it ends in an exit code of its own, and one that says that it was not done comes with two lines:
  what, and what to do;
- where it says that it was done, the new state is there: all of it and nothing else;
- else the old state is there, or the new one, and nothing of the attempt is left over, here or
  among temporary files;
- what is kept to be faster (a cache) may be missing, and is never another one.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import itertools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent))

from failing import ALL_ERRORS, Pair, Switch, build, choose_pairs, list_pairs
from writers import PATIENCE, Writer, make_writers, restore, state_of

_CODES: Final = frozenset({2, 4, 125})  # 125: the system refused, in two lines
# What fails there is not ours to mend: directories of multiprocessing's, and the file by which
# tempfile tries whether a directory takes any: eight letters and digits, of which a site has "#"
# for each row of digits. Names that tempfile gives to us begin with "tmp" or a prefix of ours.
_NOT_OURS: Final = re.compile(r"/pymp-|/tmp/(?!tmp)[a-z#_]{1,8}$")
_LEAVES: Final = 97  # a child of a child that went on as its parent


class Trials:
    """One writer, again and again, each time with another call of it that fails."""

    def __init__(self, top: Path, switch: Switch, writer: Writer) -> None:
        self.top, self.switch, self.writer = top, switch, writer
        self.place, self.out, self.temporary = (
            top / n for n in ("place", "place/out", "place/tmp")
        )
        self._said = top / "said"
        self._known = {*sys.modules}
        self._restore({})
        self._do(writer.before)
        self.old = state_of(self.out)
        log = top / "log"
        log.unlink(missing_ok=True)
        status, said = self._try(None, log)
        self.new = state_of(self.out)
        for module in json.loads((top / "modules").read_text()):  # that children find them
            with contextlib.suppress(ImportError):
                import_module(module)
        gc.freeze()
        if status not in writer.done or self.old == self.new:
            raise RuntimeError(f"it cannot be tried: {status}: {said}")
        self.sites = log.read_text().splitlines()
        self._here = re.sub(r"[0-9]+", "#", str(self.place))
        named = [site.partition(" /")[0] for site in self.sites]
        count: Counter[str] = Counter()
        self._places = {}
        for at, name in enumerate(named):
            count[name] += 1
            self._places[name, count[name]] = at
        ours = [not _NOT_OURS.search(site) for site in self.sites]
        self.pairs = [p for p in list_pairs(named, ALL_ERRORS) if ours[self._find(p)]]

    def _find(self, pair: Pair) -> int:
        """Return the place of a pair's call among all."""
        return self._places[pair.site, pair.number]

    def name(self, pair: Pair) -> str:
        """Return a pair with its path."""
        return f"{self.sites[self._find(pair)].replace(self._here, '')}, {pair}"

    def _restore(self, state: dict[str, bytes | None]) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        for name in ("tmp", "cache"):
            (self.place / name).mkdir()
        restore(self.out, state)

    def _try(self, pair: Pair | None, log: Path | None = None) -> tuple[int, str]:
        self._restore(self.old)
        return self._do(self.writer.work, pair, log)

    def _do(
        self, work: Callable[[Path], object], pair: Pair | None = None, log: Path | None = None
    ) -> tuple[int, str]:
        """Do something in a child; return its exit code, and what it said."""
        child = os.fork()
        if not child:
            self._run(work, pair, log)
        handle = os.pidfd_open(child)
        ready = select.select([handle], [], [], PATIENCE)[0]
        os.close(handle)
        if not ready:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self._called = self.switch.called
        self.switch.arm(None)
        return status, self._said.read_text(encoding="utf-8", errors="replace")

    def _run(self, work: Callable[[Path], object], pair: Pair | None, log: Path | None) -> NoReturn:
        status, own = 99, os.getpid()
        with contextlib.suppress(BaseException):
            os.setsid()
            for stream, name in enumerate((os.devnull, os.devnull, str(self._said))):
                os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), stream)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            os.environ |= {"TMPDIR": str(self.temporary), "HOME": str(self.place / "cache")}
            os.environ["XDG_CACHE_HOME"] = os.environ["HOME"]
            tempfile.tempdir = None
            # Both are opened before what is confined opens nothing more.
            notes = log.open("a") if log else None
            modules = (self.top / "modules").open("w") if log else None
            at = Path(f"/dev/fd/{notes.fileno()}") if notes else None
            self.switch.arm(self.place, pair=pair, log=at)
            try:
                status = int(work(self.out) or 0)
            except BaseException:  # noqa: BLE001 - whatever it is, it is found
                traceback.print_exc()
            atexit._run_exitfuncs()
            if modules:
                modules.write(json.dumps(sorted({*sys.modules} - self._known)))
                modules.flush()
            sys.stderr.flush()
        os._exit(status if os.getpid() == own else _LEAVES)

    def judge(self, pair: Pair) -> tuple[bool, list[str]]:
        """Let a call fail; return whether it was made, and what is wrong."""
        status, said = self._try(pair)
        called = bool(self._called)
        return called, [*self._find_wrong(status, said)]

    def _find_wrong(self, status: int, said: str) -> Iterator[str]:
        writer = self.writer
        if "Traceback" in said or "internal error" in said or status not in _CODES | writer.done:
            yield f"exit code {status}: {said[-1500:]!r}"
        elif status not in writer.done and not is_clean(said):
            yield f"exit code {status} with no two lines: {said[-600:]!r}"
        found = state_of(self.out)
        if writer.own:
            pass
        elif writer.group is not None:
            yield from self._compare_groups(found, status, said)
        elif found not in (self.old, self.new):
            yield f"a third state: {describe(found, self.old, self.new)}; {said[-600:]!r}"
        elif status in writer.done and found != self.new and not writer.silent:
            yield f"done, it says, and is not; {said[-600:]!r}"
        if left := sorted(path.name for path in self.temporary.rglob("*")):
            yield f"temporary files are left: {left}; {said[-600:]!r}"

    def _compare_groups(
        self, found: dict[str, bytes | None], status: int, said: str
    ) -> Iterator[str]:
        """Yield what is wrong with several things, each of which is the old one or the new one."""
        states = [divide(state, self.writer.group) for state in (found, self.old, self.new)]
        for name in sorted({name for state in states for name in state} - {""}):
            one, old, new = (state.get(name, {}) for state in states)
            if one not in (old, new):
                yield f"a third state of {name}: {describe(one, old, new)}; {said[-600:]!r}"
        if status in self.writer.done and found != self.new:
            yield f"done, it says, and is not: {describe(found, self.old, self.new)}; {said!r}"
        if not self.writer.again:
            return
        status, said = self._do(self.writer.work)
        if status not in self.writer.done or state_of(self.out) != self.new:
            after = describe(state_of(self.out), self.old, self.new)
            yield f"tried again it is another one: {status}, {after}; {said[-600:]!r}"


_State = dict[str, bytes | None]


def divide(state: _State, group: Callable[[str], str] | None) -> dict[str, _State]:
    """Return the parts of a state, each of which is written as a whole."""
    found: dict[str, _State] = {}
    for name, content in state.items():
        found.setdefault(group(name) if group else "", {})[name] = content
    return found


def describe(found: _State, old: _State, new: _State) -> str:
    """Return how a state differs from the old one and from the new one."""
    left = sorted({*found} - {*old, *new})
    gone = sorted(({*old} & {*new}) - {*found})
    either = [n for n in found if n in {*old, *new}]
    other = [n for n in either if found[n] not in (old.get(n, 0), new.get(n, 0))]
    return f"left {left}, gone {gone}, other {other}" if left or gone or other else "a mixture"


def is_clean(said: str) -> bool:
    """Tell whether stderr ends in two lines, what went wrong and what to do."""
    lines = said.rstrip("\n").split("\n")
    return len(lines) >= 2 and lines[-2].startswith("critpath: ") and lines[-1].startswith("  ")


@dataclass(frozen=True)
class Row:
    """What came of a writer."""

    writer: str
    calls: int = 0
    pairs: int = 0
    tried: int = 0
    met: int = 0  # calls that were made, and failed
    wrong: tuple[str, ...] = ()


def try_writers(place: Path, part: int, pattern: str = "") -> Iterator[Row]:
    """Try writers in another process; yield what came of each."""
    words = [sys.executable, "-P", __file__, str(place), str(part), pattern]
    environment = {
        **{name: of for name, of in os.environ.items() if not name.startswith("GITHUB_")},
        **Switch(place).environment(build(place)),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            row = json.loads(line)
            yield Row(**{**row, "wrong": tuple(row["wrong"])})
    if process.returncode:
        raise RuntimeError(f"{__file__} ended with {process.returncode}")


# What runs in a process of its own.


def main(directory: str, part: str, pattern: str = "") -> None:
    """Try all, or a part evenly over all, of the writers that a pattern is found in."""
    top = Path(directory).resolve()
    switch = Switch(top)
    os.environ["XDG_CACHE_HOME"] = str(top / "given-cache")
    numbers = itertools.count(1)
    os.urandom = lambda size: next(numbers).to_bytes(size, "big")  # as many are never drawn
    given = top / "given"
    given.mkdir()
    os.chdir(given)
    for writer in make_writers(given):
        if re.search(pattern, writer.name):
            row = try_one(top, switch, writer, int(part))
            sys.stdout.write(json.dumps(asdict(row)) + "\n")
            sys.stdout.flush()


def try_one(top: Path, switch: Switch, writer: Writer, part: int) -> Row:
    """Try a writer."""
    try:
        trials = Trials(top, switch, writer)
    except RuntimeError as error:
        return Row(writer.name, wrong=(str(error),))
    pairs = choose_pairs(trials.pairs, part)
    met, wrong = 0, list[str]()
    for pair in pairs:
        called, bad = trials.judge(pair)
        met += called
        wrong += [f"{trials.name(pair)}: {one}" for one in bad]
    return Row(writer.name, len(trials.sites), len(trials.pairs), len(pairs), met, tuple(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
