"""Dumps: from the pages that were moved to a recording, beside the work and at the lowest priority.

``python -m critpath_record.flight.dumps`` is the process that makes the recording.  It ends with
the recorder; what both leave is finished, or removed, by ``critpath doctor --clean``.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from critpath.errors import CritpathError
from critpath.model import Manifest
from critpath.model.recording import COMPLETE, MANIFEST
from critpath.schema.ways import way_of_requests
from critpath.units import NS_PER_S
from critpath_marks.sessions import new_session_name, start_time
from critpath_record.budget.gaps import JOURNAL, SUMMARY
from critpath_record.builds import read_build_id
from critpath_record.dirfd import list_matching
from critpath_record.flight.conditions import COMMAND, USUAL
from critpath_record.flight.memory import Before
from critpath_record.flight.pages import cut, is_empty
from critpath_record.ftrace import raw as raws
from critpath_record.ftrace import tracefs
from critpath_record.ftrace.events import lttng_name
from critpath_record.ftrace.raw import LAYERS
from critpath_record.group_names import GroupNames
from critpath_record.limits import name_disks
from critpath_record.manifests import (
    complete_manifests,
    initial_manifest,
    read_manifest,
    write_manifest,
)
from critpath_record.recorder import RecordRequest
from critpath_record.registry import register, unregister
from critpath_record.sockets import scan_descriptors, scan_sockets

_NICE: Final = 19
_GONE: Final = ".gone-"
HELD: Final = ".held-"  # directories of pages that the next dump may hold, too
_PDEATHSIG: Final = 1
# In UTC; those of earlier versions, in local time, are without Z.
_NAME: Final = re.compile(r"(\d{8}T\d{6})(Z?)(?:\.(\d{1,9}))?-[a-z0-9-]{1,40}", re.ASCII)
_MOST_PROGRAMS: Final = 1000  # names of threads
_KEPT: Final = "keep"  # a file of that name in a dump: it is not removed
_USUAL_KEPT: Final = 4  # `critpath incidents` takes what it needs of them
_NOT_FROM_HERE: Final = ("-P",) if sys.version_info >= (3, 11) else ()


@dataclass(frozen=True)
class Trigger:
    """Why a dump is made: goes into its manifest."""

    when: str  # the condition, or ``command``
    value: str = ""  # what was seen
    kind: str = ""  # of the execution, the signal, or the resource
    id: str = ""
    at: int = 0  # when (ns, CLOCK_MONOTONIC)
    asked: bool = False  # somebody asks for it: how many there are an hour is theirs
    # Of requests, what they are and were: see `noticing.Noticed`.
    noticed: Mapping[str, object] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """What a dump's name ends with."""
        text = self.value if self.when == COMMAND and self.value else self.when.partition(" ")[0]
        text = re.sub(r"[^a-z0-9]+", "-", f"{text}-{self.kind}".lower())
        return text.strip("-")[:40].strip("-") or "dump"


class Dump:
    """One dump under way: a directory that becomes a recording."""

    def __init__(self, top: Path, trigger: Trigger, request: RecordRequest) -> None:
        self.session = new_session_name()
        self.trigger = trigger
        # Names are in the order in which dumps were made, also where the clock was set back.
        newest = max((_order(place.name) for place in top.iterdir()), default=_NO_DUMP)
        order = max((True, time.strftime("%Y%m%dT%H%M%S", time.gmtime()), 0), _after(newest))
        stem = f"{order[1]}Z{f'.{order[2]}' if order[2] else ''}-{trigger.word}"
        self.target = top / stem
        self.building = top / f".{stem}.{self.session}"
        self.raw = self.building / raws.RAW
        self.place_left = top / f"{HELD}{self.session}"
        self._request = replace(request, output=self.target)
        self._process: subprocess.Popen[bytes] | None = None
        self._begin = 0
        self.removed = 0  # older ones, in its place

    @property
    def left(self) -> Before | None:
        """What another dump may hold, too, if this one has left it."""
        return Before(self.place_left, self._begin) if self.place_left.is_dir() else None

    def make(self) -> None:
        """Make the directory, known to who finishes what killed recorders leave."""
        register(self.session, self.building, "ftrace")
        try:
            self.building.mkdir(mode=0o700)
            self.raw.mkdir(mode=0o700)
            manifest = initial_manifest(
                *(self._request, 0),
                session=self.session,
                recorder="ftrace",
                container=0,
                notes=(),
            )
            write_manifest(self.building, manifest)
        except BaseException:
            self.discard()
            raise

    def start(self, prepared: Mapping[str, object]) -> None:
        """Begin to make the recording, in a process of its own; see `main`."""
        document = {**prepared, "target": str(self.target), "session": self.session}
        raws.write_json(self.raw / raws.PREPARED, document)
        self._process = subprocess.Popen(  # noqa: S603 - our own words
            [
                *(sys.executable, *_NOT_FROM_HERE, "-m", __spec__.name if __spec__ else __name__),
                *(str(self.building), str(os.getpid())),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._begin = int(str(prepared["begin"]))
        self._set_priority(os.SCHED_IDLE, _NICE)

    def hurry(self) -> None:
        """Go on as others do: they leave it no time."""
        self._set_priority(os.SCHED_OTHER, 0)

    def _set_priority(self, policy: int, nice: int) -> None:
        """Let the process have what others leave of cpus and disks, or its part."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(self._process.pid, policy, os.sched_param(0))
                os.setpriority(os.PRIO_PROCESS, self._process.pid, nice)

    def poll(self) -> str | None:
        """Return None while it is being made, "" when it is there, else why it is not."""
        process = self._process
        if process is None or process.poll() is None:
            return None
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(of) for of in (process.stdout, process.stderr) if of]
            told, said = (file.read().decode("utf-8", "replace").strip() for file in files)
        if process.returncode == 0 and (self.target / MANIFEST).exists():
            unregister(self.session)
            self.removed = int(told or 0)
            return ""
        self.discard()
        return said.rpartition("\n")[2] or f"its process ended with {process.returncode}"

    def discard(self) -> None:
        """Remove it whole."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for place in (self.building, self.place_left):
            shutil.rmtree(place, ignore_errors=True)
        unregister(self.session)


_Order = tuple[bool, str, int]  # whether in UTC, the second, which of those of one second
_NO_DUMP: Final[_Order] = (False, "", 0)


def _order(name: str) -> _Order:
    """Return where a dump stands among others, by its name."""
    found = _NAME.fullmatch(name)
    return (found[2] == "Z", found[1], int(found[3] or 0)) if found else _NO_DUMP


def _after(newest: _Order) -> _Order:
    in_utc, second, number = newest
    return (True, second, number + 1) if in_utc else _NO_DUMP


def find_dumps(top: Path) -> list[Path]:
    """Return the dumps of a directory, oldest first."""
    with contextlib.suppress(OSError):
        found = [
            place
            for place in top.iterdir()
            if _NAME.fullmatch(place.name)
            and not place.is_symlink()
            and (place / MANIFEST).exists()
        ]
        return sorted(found, key=lambda place: (_order(place.name), place.name))
    return []


def _find_class(place: Path) -> str:
    """Return for whom a dump was made: who asked, what is usual, or a condition."""
    try:
        when = json.loads((place / MANIFEST).read_bytes())["trigger"]["when"]
    except (OSError, ValueError, TypeError, KeyError):
        return ""
    return {COMMAND: COMMAND, "signal USR1": COMMAND, USUAL: USUAL}.get(when, "")


def remove_oldest(top: Path, most: int, made: Path | None = None) -> int:
    """Remove the oldest dumps beyond a number, of those asked for, usual and conditions' apart.

    None that is being read, none that has a file ``keep``, and not the one just made.
    Returns how many.
    """
    remove_gone(top)
    of_class: dict[str, list[Path]] = {"": [], COMMAND: [], USUAL: []}
    for place in find_dumps(top):
        if not _is_kept(place):
            of_class[_find_class(place)].append(place)
    room = {"": most, COMMAND: most, USUAL: min(most, _USUAL_KEPT)}
    old = [p for of, found in of_class.items() for p in found[: max(0, len(found) - room[of])]]
    removed = 0
    for place in old:
        if place == made:
            continue
        try:
            descriptor = os.open(place / MANIFEST, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Half of a dump must not look like one.
            shutil.rmtree(place.rename(place.with_name(_GONE + place.name)), ignore_errors=True)
            removed += 1
        except OSError:  # somebody reads it
            continue
        finally:
            os.close(descriptor)
    return removed


def _is_kept(place: Path) -> bool:
    try:
        (place / _KEPT).lstat()
    except FileNotFoundError:
        return False
    except OSError:  # it may be
        return True
    return True


def remove_gone(top: Path, prefix: str = _GONE) -> None:
    """Remove the rest of dumps whose removal was interrupted."""
    for place in top.glob(f"{prefix}*"):
        if not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)


# The process that makes the recording


def main(arguments: Sequence[str]) -> int:
    """Make a recording of what was moved; what goes wrong is said in the last line."""
    building, parent = Path(arguments[0]), int(arguments[1])
    ctypes.CDLL(None).prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        return 1
    try:
        sys.stdout.write(f"{_finish(building)}\n")
    except CritpathError as error:
        sys.stderr.write(f"{error.what}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"{error.strerror or error}\n")
        return 1
    return 0


def describe(building: Path, prepared: Mapping[str, Any]) -> Manifest:
    """Make pages that were moved the pages of a recording; return its manifest.

    ``raw.json`` comes last: without it there is no recording, and nothing that misleads.
    """
    raw = building / raws.RAW
    page, begin = int(prepared["description"]["page_bytes"]), int(prepared["begin"])
    layers = [raw / LAYERS / str(name) for name in prepared["layers"]]
    every = (raw, *(raw / LAYERS).iterdir())
    files = {place: list_matching(place, "cpu[0-9]*") for place in every}
    for file in (file for of in files.values() for file in of):
        cut(file, page, begin)
    if all(is_empty(file, page) for file in files[layers[0]]):
        raise CritpathError("nothing was recorded: the budget is used up", "allow more, or wait")
    rows = "".join(json.dumps(row) + "\n" for row in prepared["journal"])
    (raw / JOURNAL).write_text(rows, encoding="ascii")
    raws.write_json(raw / SUMMARY, prepared["overhead"])
    manifest = read_manifest(building)
    host = {**manifest.host, "programs": note_machine(raw, begin, prepared)}
    manifest = replace(manifest, begin=begin, host=host)
    write_manifest(building, manifest)
    raws.write_description(raw, {**prepared["description"], "begin": begin, "end": prepared["end"]})
    return manifest


def note_machine(raw: Path, begin: int, prepared: Mapping[str, Any]) -> dict[str, str]:
    """Note what threads, groups and sockets there are, and which threads there were at the begin.

    Returns what programs are, see `find_programs`.
    """
    from critpath_record.ftrace.recorder import scan_cgroups  # noqa: PLC0415 - for this process

    threads = tracefs.scan_threads()
    raws.write_json(raw / f"statedump{raws.AT_END}.json", threads)
    # Seen before what is held, or as old as that: they were there when it begins.
    known = {row[1]: (begin, *row[1:5], "?", *row[6:]) for row in prepared["threads"]}
    born = _births({row[1] for row in threads} - {*known}, int(prepared["slept"]))
    known |= {r[1]: (begin, *r[1:]) for r in threads if r[1] not in known and born[r[1]] < begin}
    raws.write_json(raw / "statedump.json", [*known.values()])
    groups = scan_cgroups()
    there = [(begin, *row[1:]) for row in groups if row[1] in known]
    raws.write_json(raw / "cgroups.json", there)
    later = [row for row in groups if row[1] not in known]
    raws.write_json(raw / f"cgroups{raws.AT_END}.json", later)
    names = {lttng_name(*event.split("/")) for event in prepared["description"]["events"]}
    if way_of_requests(names):
        raws.write_json(raw / f"sockets{raws.AT_END}.json", scan_sockets()[0])
    if way_of_requests(names, sockets=False):
        raws.write_json(raw / f"descriptors{raws.AT_END}.json", scan_descriptors()[0])
    return find_programs(threads)


def _births(threads: set[int], slept: int) -> dict[int, int]:
    """Return when threads began (ns, CLOCK_MONOTONIC), as well as the kernel says it.

    The machine had slept for so long: of other threads it says whether that was before or after.
    """
    tick = NS_PER_S // os.sysconf("SC_CLK_TCK")
    began = {thread: start_time(thread) for thread in threads}
    return {thread: at * tick - slept if at else sys.maxsize for thread, at in began.items()}


def find_programs(threads: Sequence[tracefs.ThreadRow]) -> dict[str, str]:
    """Return by names of threads which build their processes execute, and when they began.

    That is when the first and when the last began: a deployment shows in either.  Names of
    processes that differ in the build are left out.  A file without a build id is one by itself.
    """
    files: dict[int, str] = {}
    builds: dict[str, str] = {}
    found: dict[str, set[int]] = {}
    for row in threads:
        pid, name, kernel = row[2], row[4], row[7]
        if kernel:
            continue
        if pid not in files:
            files[pid] = ""
            with contextlib.suppress(OSError), open(f"/proc/{pid}/exe", "rb") as program:  # noqa: PTH123
                of = os.fstat(program.fileno())
                file = f"{of.st_dev:x}-{of.st_ino:x}-{of.st_mtime_ns:x}"
                if file not in builds:
                    builds[file] = read_build_id(program.fileno()) or file
                files[pid] = builds[file]
        if files[pid]:
            found.setdefault(name, set()).add(pid)
    sure = {n: pids for n, pids in found.items() if len({files[pid] for pid in pids}) == 1}
    return {
        name: " ".join((files[min(pids)], *(str(of(map(start_time, pids))) for of in (min, max))))
        for name, pids in itertools.islice(sorted(sure.items()), _MOST_PROGRAMS)
    }


def _finish(building: Path) -> int:
    """Make the recording, and remove the oldest ones beyond what is kept; return how many."""
    from critpath_record.ftrace.recorder import finish_killed  # noqa: PLC0415 - for this process

    raw = building / raws.RAW
    prepared: dict[str, Any] = json.loads((raw / raws.PREPARED).read_bytes())
    manifest = describe(building, prepared)
    if prepared["leave"]:
        _leave(raw / LAYERS, prepared["layers"], Path(prepared["leave"]))
    names = GroupNames()  # at idle priority: what it costs is not the recorder's
    names.look()
    limits = {"limits": prepared["limits"], "disks": name_disks()}
    manifest = replace(manifest, groups=names.found, machine={**manifest.machine, **limits})
    recorded = finish_killed(building, _silent)
    if recorded is None:
        raise CritpathError("nothing was held", "wait until something was recorded")
    from critpath_record.functions import convert_functions  # noqa: PLC0415 - rare
    from critpath_record.recovery import measure_streams  # noqa: PLC0415 - as above
    from critpath_record.stacks.held import finish as finish_stacks  # noqa: PLC0415 - rare

    stacks, said = finish_stacks(building)
    span = manifest.begin, recorded.end
    said = (*said, *convert_functions(building, span, held=True), *map(str, prepared["said"]))
    recorded = replace(recorded, facts={**recorded.facts, **stacks})
    complete_manifests(
        {building: manifest},
        *(COMPLETE, recorded.end, recorded, (*recorded.warnings, *said)),
        measure_streams(building, recorded.streams),
    )
    recorded.release()
    target = Path(prepared["target"])
    building.rename(target)
    with contextlib.suppress(OSError):  # it is there: the next one makes room
        return remove_oldest(target.parent, int(prepared["keep"]), target)
    return 0


def _leave(layers: Path, names: Sequence[str], place: Path) -> None:
    """Keep pages where the next dump finds them: the same files, once more."""
    for name in names:
        (place / name).mkdir(mode=0o700, parents=True)
        for file in list_matching(layers / name, "cpu[0-9]*"):
            (place / name / file.name).hardlink_to(file)


def _silent(_: str) -> None:
    """Show nothing."""


def dump_request(version: str, profile: str, execution: str) -> RecordRequest:
    """Return what a dump's manifest says was asked for."""
    return RecordRequest(
        output=Path(), commands=(), version=version, profile=profile, execution=execution
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
