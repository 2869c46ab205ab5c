"""What a source of stacks offers, and which ones a recording is made with."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, cast

from critpath.errors import UsageError
from critpath_marks.sessions import pid_namespace
from critpath_record.recorder import Requirement

if TYPE_CHECKING:
    from critpath_record.source import Source
    from critpath_record.user import User

# Where a recording has its stacks.
STACKS: Final = "stacks"
FRAMES: Final = "frames.json"
SAMPLES: Final = "samples.bin"
# The same, of Pythons that are sampled, and of files and peers.
PYTHON_FRAMES: Final = "python.json"
PYTHON_SAMPLES: Final = "python.bin"
OBJECT_FRAMES: Final = "files.json"
OBJECTS: Final = "files.bin"
RAW_OBJECTS: Final = "files"  # directory of pages, while it is recorded
RAW_STACKS: Final = "perf.data"  # while it is recorded
AUTO: Final = "auto"


@dataclass(frozen=True)
class StackRequest:
    """Whose stacks are wanted."""

    directory: Path  # ``stacks/`` of the recording, which exists and is this process' own
    # Who called sudo: stacks are unwound, and programs' files read, as this user.
    user: User | None = None
    # All threads of the machine, less the recorder's own; else those that the calling thread starts
    # from now on.
    machine: bool = False
    processes: tuple[int, ...] = ()  # of the machine these alone, and what they start
    # The control group, of version 2, that they are in: who enters it later belongs to them.
    group: str = ""
    python: bool = False  # the command's Pythons (3.12 and later) name their functions
    session: str = ""
    # A budget says when: a source begins closed, and `Source.gate` is opened.
    budgeted: bool = False
    held: bool = False  # the newest are held in memory

    @property
    def scope(self) -> str:
        """Whose stacks, in a word for the manifest."""
        whole = "machine" if self.machine else "command"
        return self.group or ("processes" if self.processes else whole)


class Scope(TypedDict, total=False):
    """Whose stacks are wanted: as in a request."""

    machine: bool
    processes: tuple[int, ...]
    group: str


def find_scope(name: str, container: int, *, command: bool) -> Scope:
    """Return whose stacks are wanted: by default the command's, else the container's, else all.

    `name`: ``command``, ``machine``, or a control group's path or name; "" for the default.
    `container`: its pid namespace, 0 for none.  `command`: whether there is one.
    """
    if name in {"", "command"} and command:
        return {}
    if name == "command":
        raise UsageError("--scope command without a command", "--scope machine, or a control group")
    if name == "machine" or not (name or container):
        return {"machine": True}
    from critpath_record.counts.groups import every_process, find_group  # noqa: PLC0415 - rare

    every = [*every_process()]
    if name:
        group = find_group(name).name
        inside = {pid: of for pid, of in every if _is_within(of, group)}
    else:
        inside = {pid: of for pid, of in every if pid_namespace(pid) == container}
        group = os.path.commonpath([of or "/" for of in inside.values()]) if inside else ""
        if group == "/" or any(_is_within(of, group) for pid, of in every if pid not in inside):
            group = ""  # others are in it as well
    if ":perf_event:" in Path("/proc/self/cgroup").read_text("utf-8", "replace"):
        group = ""  # of version 1, whose groups may be others
    if not (inside or group):
        raise UsageError("no process is there whose stacks could be taken", "start it, then record")
    return {"machine": True, "processes": (*inside,), "group": group}


def _is_within(path: str, group: str) -> bool:
    """Return whether a control group is another, or below it."""
    return f"{path}/".startswith(f"{group.rstrip('/')}/")


# What can be asked for.  Each module offers:
#   find_needs() -> list[Requirement]
#   open_source(request: StackRequest) -> Source
# Functions of Python are seen by what reads native stacks, through the maps that Python writes,
# and by samples, where perf cannot follow a stack as far.
SOURCES: Final[Mapping[str, str]] = {
    "native": "critpath_record.stacks.perf",
    "python": "critpath_record.stacks.perf",
    "files": "critpath_record.stacks.files",
    "samples": "critpath_record.stacks.samples",
}
_SAMPLES: Final = "samples"


def find_obstacles(name: str) -> list[Requirement]:
    """Return what a source lacks here."""
    found: list[Requirement] = importlib.import_module(SOURCES[name]).find_needs()
    return found


def check_stacks(text: str, *, machine: bool, held: bool = False) -> tuple[str, ...]:
    """Return the sources that ``--stacks`` names.

    `text`: names separated by commas, or ``auto`` for those that can be had here; "" for none.
    `machine`: no command is started, whose Python could be asked to name its functions.  `held`: a
    flight recorder takes them: also of Pythons that come later.

    Raises UsageError if there is no such source, or a named one cannot take stacks here.
    """
    names = tuple(dict.fromkeys(filter(None, text.split(","))))
    if AUTO in names:
        wanted = ["native", _SAMPLES if held else "native"] if machine else ["native", "python"]
        there = [name for name in wanted if not find_obstacles(name)]
        names = (*there, *(name for name in names if name != AUTO))
    for name in names:
        if name not in SOURCES:
            raise UsageError(
                f"--stacks: there is no source {name!r}", f"name {', '.join(SOURCES)}, or auto"
            )
        if machine and name == "python":
            raise UsageError(
                "--stacks python without a command: a Python that runs already cannot be asked",
                "--stacks samples; or start it with PYTHONPERFSUPPORT=1 (3.12 and later), and "
                "record with --stacks native",
            )
        if found := find_obstacles(name):
            raise UsageError(f"--stacks {name}: {found[0].what}", found[0].do)
    if "python" in names and not find_obstacles(_SAMPLES):
        names = tuple(dict.fromkeys((*names, _SAMPLES)))
    return tuple(sorted(names, key=lambda name: name != _SAMPLES))  # perf follows what begins later


def open_stacks(names: tuple[str, ...], request: StackRequest) -> list[Source]:
    """Make the sources for what was asked for; nothing is taken yet."""
    modules = dict.fromkeys(SOURCES[name] for name in names)
    opened = (importlib.import_module(module).open_source(request) for module in modules)
    return [cast("Source", source) for source in opened]
