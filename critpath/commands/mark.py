"""``critpath mark``: marks of a shell script."""

from __future__ import annotations

import argparse
import os
from typing import Final

from critpath.commands.declared import flag, option
from critpath.commands.overview import VERBS
from critpath.commands.parser import sentence
from critpath.errors import CritpathError, UsageError
from critpath_marks.channels import find_channel
from critpath_marks.marks import format_mark
from critpath_marks.sessions import pid_namespace

# The first pid namespace has this number on every kernel (PROC_PID_INIT_INO).
_FIRST_NAMESPACE: Final = 0xEFFFFFFC


DESCRIPTION: Final = (
    f"{sentence(VERBS['mark'])[:-1]}, for --execution marker. Begin and end "
    "have the name in common, and the key; without a key, both must be called by the same "
    "shell. This command needs some 50 ms before it marks: for short runs the "
    'shell\'s own line is better, echo "critpath:begin NAME" >&$CRITPATH_MARKER_FD. '
    "Exit code 0 also while nothing records."
)
OPTIONS: Final = (
    option("what", None, "what to mark", choices=("begin", "end")),
    option("name", "NAME", "the kind of run, such as backup"),
    option("key", "KEY", "what tells it from others at the same time", nargs="?"),
    flag("--strict", "fail (exit 125) if nothing records the mark"),
)  # fmt: skip


def run(arguments: argparse.Namespace, _: object) -> int:
    """Mark and return the exit code."""
    if not arguments.name:
        raise UsageError("a run without a name", "critpath mark begin NAME")
    # The agent's start takes longer than its message would be worth.
    to = find_channel(agent=False)
    taken = to is not None and to.write(
        format_mark(arguments.what, arguments.name, arguments.key, _subject())
    )
    if arguments.strict and not taken:
        raise CritpathError(
            "nothing records this mark",
            "run the script under critpath record, or start critpath record -a first",
        )
    return 0


def _subject() -> str:
    """Return the calling shell: this process is another one at every mark."""
    namespace = pid_namespace()
    parent = os.getppid()
    if namespace == _FIRST_NAMESPACE:
        return str(parent)
    # What the kernel calls it cannot be seen from inside a container.
    return f"{namespace}:{parent}"
