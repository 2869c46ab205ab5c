"""``critpath bisect``: since which git revision is a command slower, by ``ab`` of builds.

All happens in two worktrees of their own, in a directory that goes at the end: one has the good
revision, git bisects in the other. The user's checkout, index and refs stay as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands.ab import MEASURING, THREADS, judge, request_of
from critpath.commands.declared import VERBOSE, command, option
from critpath.commands.output import hint
from critpath.commands.settings import Settings
from critpath.errors import (
    EXIT_ANOMALY,
    EXIT_INCONCLUSIVE,
    EXIT_OK,
    EXIT_UNREADABLE,
    CritpathError,
    UsageError,
)
from critpath.units import safe_text

if TYPE_CHECKING:
    from critpath.ab import AbRequest
    from critpath.documents import AbDocument


PLACE: Final = "{}"
_WORDS: Final = {EXIT_ANOMALY: "bad", EXIT_OK: "good"}  # anything else is skipped
_FOUND: Final = "is the first bad commit"
_SKIPPED: Final = 2  # git's exit code where only skipped revisions are left
_LINES: Final = 3  # of what a failed build said


class BuildError(CritpathError):
    """A revision cannot be built (exit 4)."""

    exit_code = EXIT_UNREADABLE


# What --help shows together; the last group has the rest.
GROUPS: Final = {
    "everyday": (
        *(
            "good",
            "bad",
            "build",
            "until",
            "of",
            "tail",
            "time",
            "warmup",
            "prepare",
            "timeout",
            "label",
        ),
        *("json", "verbose"),
    ),
    "method": (),
}


OPTIONS: Final = (
    option("--good", "REV", "a revision that is not slow", required=True),
    option("--bad", "REV", "one that is (HEAD)", default="HEAD"),
    option("--build", "LINE", "a line for sh in the directory of a revision, before it is run",
        default=""),
    *MEASURING,
    VERBOSE,
    command("-- COMMAND ARG...", "what is run of every revision: {} stands for the directory that "
        "it is checked out in"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Find the first slower revision, say it and return the exit code."""
    # Before anything changes: the commands get what critpath was started with.
    from critpath_record import InheritedState  # noqa: PLC0415 - start-up time

    inherited = InheritedState.capture()
    environment = dict(os.environ)
    os.environ.setdefault(THREADS, "1")
    command: tuple[str, ...] = tuple(arguments.command)
    if not any(PLACE in word for word in command):
        raise UsageError(
            f"no {PLACE} in the command: nothing of it would be of the revision",
            "critpath bisect --good v1.4 --build make -- {}/checkout --once",
        )
    request = request_of(arguments, (command, command))
    quiet = settings["quiet"]
    with _worktrees(arguments.good, arguments.bad) as (good, tried):
        bisection = _Bisection(
            good=good,
            tried=tried,
            build=arguments.build,
            environment=environment,
            request=request,
            compare=lambda one: judge(one, inherited, None, arguments, quiet=quiet),
            say=lambda line: hint(line, quiet=quiet),
        )
        code, sentences = bisection.run(arguments.good, arguments.bad)
    for sentence in sentences:
        print(safe_text(sentence))
    return code


@dataclass
class _Bisection:
    """Builds and compares revisions until the first slower one is known."""

    good: Path
    tried: Path
    build: str
    environment: dict[str, str]  # of builds: what critpath was started with
    request: AbRequest
    compare: Callable[[AbRequest], AbDocument]
    say: Callable[[str], None]
    steps: int = 0

    def run(self, good: str, bad: str) -> tuple[int, list[str]]:
        """Return the exit code and the lines to print."""
        from critpath.documents.base import change  # noqa: PLC0415 - start-up time
        from critpath.text import ab as text  # noqa: PLC0415 - start-up time

        for place in (self.good, self.tried):
            self._build(place)
        first = self._compare()
        documents = {_revision(self.tried): first}
        if first.exit != EXIT_ANOMALY or first.stopped_by in {"user", "signal"}:
            return first.exit, [first.sentences[0], text.nothing_to_bisect(good, bad)]
        self.say(text.bisect_step(_title(self.tried), first))
        # What tells the two ends apart tells on which side a revision between them is.
        known = (first.interval[0] or 1.0) - 1
        if known > self.request.floor:
            self.request = change(self.request, floor=round(known, 3))
            self.say(text.bisect_floor(self.request.floor))
        done = _git(self.tried, "bisect", "start", bad, good, check=False)
        while _FOUND not in done.stdout and done.returncode == 0:
            word = "skip"
            title = _title(self.tried)
            try:
                self._build(self.tried)
                document = self._compare()
            except CritpathError as error:  # neither good nor bad: git goes round it
                self.say(text.bisect_skipped(title, error.what))
            else:
                if document.stopped_by in {"user", "signal"}:
                    return EXIT_INCONCLUSIVE, [text.stopped_bisection(self._candidates())]
                documents[_revision(self.tried)] = document
                word = _WORDS.get(document.exit, "skip")
                self.say(text.bisect_step(title, document))
            _git(self.tried, "reset", "--hard", "--quiet")  # a build may have changed files
            done = _git(self.tried, "bisect", word, check=False)
        if done.returncode == _SKIPPED:
            return EXIT_INCONCLUSIVE, [text.only_skipped(self._candidates())]
        if done.returncode:
            raise UsageError(f"git cannot bisect: {_last_line(done)}", "see git help bisect")
        found = _git(self.tried, "rev-parse", "refs/bisect/bad").stdout.strip()
        title = _title(self.tried, found)
        answer = text.slower_since(title, documents[found], self.steps, self.request.alpha)
        return EXIT_ANOMALY, [answer]

    def _candidates(self) -> list[str]:
        """Return the revisions of which one is the first slower one."""
        good = _git(self.tried, "for-each-ref", "--format=^%(objectname)", "refs/bisect/good-*")
        revisions = ("rev-list", "refs/bisect/bad", *good.stdout.split())
        return [_title(self.tried, one) for one in _git(self.tried, *revisions).stdout.split()]

    def _build(self, place: Path) -> None:
        if not self.build:
            return
        done = subprocess.run(  # noqa: S603 - the user's own line
            ["/bin/sh", "-c", self.build],
            cwd=place,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            said = "; ".join(done.stdout.strip().splitlines()[-_LINES:])
            raise BuildError(
                f"the build of {_title(place)} failed with {done.returncode}: {said}",
                f"try it by hand in a worktree of that revision: {self.build}",
            )

    def _compare(self) -> AbDocument:
        from critpath.documents.base import change  # noqa: PLC0415 - start-up time

        a, b = (
            [word.replace(PLACE, str(place)) for word in self.request.commands[0]]
            for place in (self.good, self.tried)
        )
        self.steps += 1
        seed = self.request.seed + self.steps - 1
        return self.compare(change(self.request, commands=[a, b], seed=seed))


@contextlib.contextmanager
def _worktrees(good: str, bad: str) -> Iterator[tuple[Path, Path]]:
    """Check both revisions out, in directories whose names are equally long."""
    here = Path.cwd()
    for name in (good, bad):
        done = _git(here, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", check=False)
        if done.returncode:
            raise UsageError(
                f"{name!r} is no revision of a git repository here", "git log --oneline"
            )
    with tempfile.TemporaryDirectory(prefix="critpath-bisect-") as place:
        directories = Path(place) / "a", Path(place) / "b"
        try:
            for directory, name in zip(directories, (good, bad), strict=True):
                _git(here, "worktree", "add", "--quiet", "--detach", str(directory), name)
            yield directories
        finally:
            for directory in directories:
                _git(here, "worktree", "remove", "--force", str(directory), check=False)


def _git(place: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run git there, in English and without hooks."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603 - an argument list
            ["git", "-c", "core.hooksPath=/dev/null", "-C", str(place), *arguments],  # noqa: S607
            env={**kept, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise UsageError("git is not there", "install it; bisect uses its worktrees") from None
    if check and done.returncode:
        raise UsageError(f"git {arguments[0]}: {_last_line(done)}", "do what git says")
    return done


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines: Sequence[str] = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _revision(place: Path) -> str:
    return _git(place, "rev-parse", "HEAD").stdout.strip()


def _title(place: Path, revision: str = "HEAD") -> str:
    """Return a revision's short name and subject."""
    return _git(place, "log", "-1", "--format=%h %s", revision).stdout.strip()
