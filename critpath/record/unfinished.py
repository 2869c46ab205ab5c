"""Finishes the recordings of recorders that were killed.

A recording whose manifest says ``recording`` while its owner is gone was not finished.
What its recorder had written by then becomes a trace, and the manifest says
``interrupted``: every run that ended is as good as in a complete recording.
"""

from __future__ import annotations

import importlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from critpath.errors import CritpathError, UnreadableError
from critpath.model import MANIFEST, MANIFEST_FORMAT, CpuLoss, Manifest, Run
from critpath.model.recording import INTERRUPTED, RECORDING
from critpath.record.identity import owner_of
from critpath.record.manifest import write_manifest
from critpath.record.recorder import RECORDERS, Leftover, Recorded
from critpath.record.registry import entries, unregister

# Runs that ended, one JSON object a line, written while the recording goes on.
RUNS: Final = "runs.jsonl"
# What turns the raw data of a dead recorder into a trace, per recorder's module:
# (directory, tell) -> Recorded, or None where there was nothing to make one of.
_FINISHERS: Final = {"ftrace": "finish_raw", "lttng": "finish_dead"}
_LARGEST: Final = 1 << 26  # bytes of a manifest or of `RUNS`
_ENTRIES: Final = 100_000  # files of a recording that are looked at


@dataclass(frozen=True)
class Finished:
    """What became of an unfinished recording.

    Attributes
    ----------
    runs : int
        That had ended before the recorder was killed.
    lost : int
        Events that the tracer is known to have lost.
    """

    runs: int
    lost: int


def unfinished_leftovers() -> Iterator[Leftover]:
    """Yield the registered recordings whose recorders are gone."""
    for entry in entries():
        owner = owner_of(entry.session)
        if owner is None or owner.gone() is not True:
            continue
        yield Leftover(
            "recording",
            str(entry.directory),
            entry.session,
            partial(_finish_registered, entry.directory, entry.session),
        )


def _finish_registered(directory: Path, session: str) -> None:
    # Moved, removed, replaced by a later recording or finished after all: nothing of
    # this session is left to finish, only the note.
    try:
        mine = read_manifest(directory).session == session
    except CritpathError:
        mine = False
    if mine:
        finish(directory, lambda _: None)
    unregister(session)


def read_manifest(directory: Path) -> Manifest:
    """Read a recording's manifest.

    Raises
    ------
    UnreadableError
        If there is none, or it is not one.
    """
    place = directory / MANIFEST
    try:
        document = json.loads(_read(place))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableError(
            f"{place}: not a manifest ({error})", "name a recording's directory"
        ) from None
    if not isinstance(document, dict) or document.get("format") != MANIFEST_FORMAT:
        raise UnreadableError(
            f"{place}: not a manifest of the format {MANIFEST_FORMAT}",
            "use the version of critpath that recorded it",
        )
    known = {f.name for f in fields(Manifest)}
    values: dict[str, Any] = {name: v for name, v in document.items() if name in known}
    try:
        values["runs"] = tuple(_run(r) for r in values.get("runs", ()))
        values["loss"] = tuple(CpuLoss(**x) for x in values.get("loss", ()))
        values["command"] = tuple(map(str, values.get("command", ())))
        values["warnings"] = tuple(map(str, values.get("warnings", ())))
        return Manifest(**values)
    except (TypeError, ValueError) as error:
        raise UnreadableError(
            f"{place}: not a manifest ({error})", "name a recording's directory"
        ) from None


def finish(directory: Path, tell: Callable[[str], None]) -> Finished | None:
    """Finish a recording that a dead recorder left.

    Parameters
    ----------
    directory : Path
        The recording, wherever it is now.
    tell : callable
        Told what is being done.

    Returns
    -------
    Finished or None
        None if it is finished already.

    Raises
    ------
    CritpathError
        If it is still being recorded, or cannot be finished; it is then as it was.
    """
    manifest = read_manifest(directory)
    if manifest.state != RECORDING:
        return None
    owner = owner_of(manifest.session)
    if owner is not None and owner.gone() is False:
        raise CritpathError(
            f"{directory} is being recorded by process {owner.pid}", "wait until it has ended"
        )
    _check_plain(directory)
    recorded = _make_trace(directory, manifest, tell)
    runs = {run.number: run for run in (*manifest.runs, *_noted_runs(directory))}
    loss = recorded.loss or manifest.loss
    said = "the recorder was killed; the recording was finished later"
    manifest = replace(
        manifest,
        state=INTERRUPTED,
        runs=tuple(runs[number] for number in sorted(runs)),
        end=manifest.end or max((run.end for run in runs.values()), default=manifest.begin),
        loss=loss,
        recorder={**manifest.recorder, **recorded.facts},
        warnings=tuple(dict.fromkeys((*manifest.warnings, said, *recorded.warnings))),
    )
    write_manifest(directory, manifest)
    (directory / RUNS).unlink(missing_ok=True)
    _hand_over(directory)
    if owner is not None and owner.gone():
        unregister(manifest.session)
    return Finished(len(runs), sum(x.events for x in loss))


def _make_trace(directory: Path, manifest: Manifest, tell: Callable[[str], None]) -> Recorded:
    name = manifest.recorder.get("name")
    if name not in _FINISHERS or not isinstance(name, str):
        raise CritpathError(
            f"{directory} was made by a recorder that this critpath does not know",
            "use the version of critpath that recorded it",
        )
    module = importlib.import_module(RECORDERS[name])
    recorded: Recorded | None = getattr(module, _FINISHERS[name])(directory, tell)
    return recorded or Recorded()


def _noted_runs(directory: Path) -> Iterator[Run]:
    """Yield the runs that were noted; the last line may be cut off."""
    try:
        text = _read(directory / RUNS)
    except OSError:
        return
    for line in text.splitlines():
        try:
            yield _run(json.loads(line))
        except (TypeError, ValueError, RecursionError):
            continue


def _run(values: Any) -> Run:
    """Make a run of a JSON object; raises TypeError or ValueError if it is none."""
    if not isinstance(values, Mapping):
        raise TypeError("a run is an object")
    known = {f.name for f in fields(Run)}
    run = Run(**{name: value for name, value in values.items() if name in known})
    for name in ("number", "pid", "begin", "end", "exit_code", "outlived"):
        if type(getattr(run, name)) is not int:
            raise ValueError(f"{name} of a run is not a whole number")
    return run


def _read(place: Path) -> str:
    """Read a small regular file that is not a link."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a file")
        return stream.read(_LARGEST).decode("utf-8", "replace")


def _check_plain(directory: Path) -> None:
    """Refuse links in a recording: root must not be led to write elsewhere by its owner."""
    pending, seen = [directory], 0
    while pending:
        place = pending.pop()
        if place.is_symlink():
            raise _refused(place)
        with os.scandir(place) as inside:
            for item in inside:
                seen += 1
                status = item.stat(follow_symlinks=False)
                several = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
                if stat.S_ISLNK(status.st_mode) or several or seen > _ENTRIES:
                    raise _refused(Path(item.path))
                if stat.S_ISDIR(status.st_mode):
                    pending.append(Path(item.path))


def _refused(place: Path) -> CritpathError:
    return CritpathError(
        f"{place} is not what a recorder writes (a link, or too many files)",
        "copy the recording without links and name the copy: critpath doctor --clean DIR",
    )


def _hand_over(directory: Path) -> None:
    """Give what was written to whom the recording belongs: the user who called sudo."""
    if os.geteuid() != 0:
        return
    status = directory.lstat()
    for parent, directories, files in os.walk(directory):
        for name in (*directories, *files):
            os.chown(Path(parent) / name, status.st_uid, status.st_gid, follow_symlinks=False)
