"""Asks the runtimes of programs which task runs: `critpath_marks.tasks` answers, by marks.

The recorded command, and what it starts, gets what answers from the environment; programs that run
already were started with it, and find a file that says which recording asks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

import critpath_marks
from critpath_marks.channels import TASKS
from critpath_record import rooted, shown
from critpath_record.ftrace.marks import make_place
from critpath_record.source import Source

AGENTS: Final = Path(critpath_marks.__file__).parent
_SEEN_S: Final = 0.3  # agents look four times a second
_TOLD_S: Final = 0.15  # and tell ten times a second what idle threads have noted
NOBODY: Final = (
    "no runtime said which task runs: --tasks is answered by Python 3.8 and later (asyncio) and "
    "Node.js, if they were started by this recording or as docs/tasks.md says"
)


class TaskAgents(Source):
    """What lets runtimes answer, and the file that asks them."""

    name: ClassVar[str] = "tasks"

    def __init__(self, session: str) -> None:
        self._session = session

    def prepare(self) -> None:
        """Ask programs that run already."""
        make_place()
        if rooted.channel is None:
            shown.tell_tasks(self._session)
        else:
            rooted.ask("tell", self._session)

    def open(self) -> int:
        """Wait until programs that run already have seen it."""
        time.sleep(_SEEN_S)
        return 0

    def environment(self) -> Mapping[str, str]:
        """Return what Python and Node.js begin with."""
        given = {TASKS: "1"}
        for name, text, between in (
            ("PYTHONPATH", str(AGENTS / "started"), ":"),
            ("NODE_OPTIONS", f'--require "{AGENTS}/tasks.js"', " "),
        ):
            before = os.environ.get(name, "")
            given[name] = text + (between + before if before else "")
        return given

    def close(self) -> int:
        """Ask no more, once what was noted is told."""
        time.sleep(_TOLD_S)
        self.abort()
        return 0

    def abort(self) -> None:
        """Take the file away."""
        if rooted.channel is None:
            shown.hush_tasks(self._session)
        else:
            with contextlib.suppress(OSError):
                rooted.ask("hush", self._session)
