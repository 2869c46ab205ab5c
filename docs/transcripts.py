"""Run the commands that a document shows, in their order, and put what they print below them.

A document says with a comment what the block below it is:

``<!-- run -->``
    a console block: lines after ``$`` are commands (``>`` goes on with one), the rest is what
    they printed.  ``until=WORD`` cuts their output before the first line that begins so,
    ``...`` in its place.
``<!-- file NAME -->``
    a file that the reader writes, as it stands in the block
``<!-- source NAME -->``
    a file that the reader has: the block is made from it
``<!-- python -->``
    a Python session, which goes on in the next such block
"""  # noqa: INP001 - a script beside the documents, no package

from __future__ import annotations

import code
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

BLOCK: Final = re.compile(
    r"<!-- (?P<kind>run|file|source|python)(?: (?P<argument>[^>]+?))? -->\n"
    r"```(?P<language>\w+)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
CUT: Final = "..."
WIDTH: Final = 100


class Step(NamedTuple):
    """A command that was run: its text, exit code and output, cut as the document shows it."""

    command: str
    code: int
    output: str


def commands(body: str) -> list[str]:
    """Return the commands of a console block, continued ones as several lines."""
    found: list[str] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        elif line.startswith("> ") and found:
            found[-1] += "\n" + line[2:]
    return found


def renew(text: str, sources: Path, directory: Path) -> tuple[str, list[Step]]:
    """Run a document's commands.

    Parameters
    ----------
    text : str
        The document.
    sources : Path
        Where the files of ``source`` blocks are; all of them are copied first.
    directory : Path
        Where to run, empty.

    Returns
    -------
    tuple of str and list of Step
        The document with what the commands print now; the commands.
    """
    if sources != directory:
        for path in filter(Path.is_file, sources.iterdir()):
            shutil.copy(path, directory)
    steps: list[Step] = []
    session = code.InteractiveInterpreter({"__name__": "__console__"})

    def anew(match: re.Match[str]) -> str:
        argument = match["argument"] or ""
        body = match["body"]
        if match["kind"] == "file":
            (directory / argument).write_text(body, encoding="utf-8")
        elif match["kind"] == "source":
            body = (sources / argument).read_text(encoding="utf-8")
        elif match["kind"] == "python":
            with contextlib.chdir(directory):
                body = "".join(_talk(body, session))
        else:
            body = "".join(_run(body, argument, directory, steps))
        whole = match.group(0)
        begin = match.start("body") - match.start(0)
        return whole[:begin] + body + "```"

    return BLOCK.sub(anew, text), steps


def _run(body: str, argument: str, directory: Path, steps: list[Step]) -> Iterator[str]:
    until = argument.removeprefix("until=")
    for command in commands(body):
        done = _shell(command, steps[-1].code if steps else 0, directory)
        lines = [line.rstrip() for line in done.stdout.splitlines()]
        if until:
            place = next((i for i, line in enumerate(lines) if line.startswith(until)), None)
            lines = lines if place is None else [*lines[:place], CUT]
        steps.append(Step(command, done.returncode, "\n".join(lines)))
        yield "$ " + command.replace("\n", "\n> ") + "\n"
        yield "".join(f"{line}\n" for line in lines)


def _talk(body: str, session: code.InteractiveInterpreter) -> Iterator[str]:
    """Say what Python answers to every statement; ``...`` goes on with one."""
    said: list[str] = []
    for line in body.splitlines():
        if line.startswith(">>> "):
            said.append(line)
        elif line.startswith("...") and said:
            said[-1] += "\n" + line
    for statement in said:
        lines = [line[4:] for line in statement.splitlines()]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            session.runsource("\n".join(lines) + "\n" * (len(lines) > 1), symbol="single")
        yield f"{statement}\n{printed.getvalue()}"


def _shell(command: str, before: int, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run one command as an interactive shell would, where ``$?`` is of the one before."""
    sudo = "" if shutil.which("sudo") else 'sudo() { "$@"; }; '
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": str(WIDTH),
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
    }
    # A reader's machine has neither; what depends on them must not reach the document.
    for name in ("CI", "GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"):
        environment.pop(name, None)
    return subprocess.run(  # noqa: S603 - commands of our own documents
        ["bash", "-c", f"{sudo}(exit {before})\n{command}"],  # noqa: S607 - found on PATH on purpose
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=600,
    )
