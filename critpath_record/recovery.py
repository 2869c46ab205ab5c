"""Finishes the recordings of recorders that were killed.

A recording whose manifest says ``recording`` while its owner is gone was not finished.
What its recorder had written by then becomes a trace, and the manifest says
``interrupted``: every run that ended is as good as in a complete recording.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError, UnreadableError
from critpath.model import MANIFEST, Manifest, StreamFacts
from critpath.model.recording import COUNTS, INTERRUPTED, NORMAL, RECORDING, SAMPLE, SAMPLED
from critpath.untrusted import refuse_damaged
from critpath_marks.sessions import owner_of
from critpath_record import rooted
from critpath_record.dirfd import (
    is_proc_fd_path,
    is_roots,
    list_matching,
    list_metadata,
    open_dir,
    proc_fd_path,
    restore_name_in_error,
)
from critpath_record.identity import is_dead_session
from critpath_record.manifests import (
    RUNS,
    find_execution,
    link_beside,
    read_manifest,
    read_runs,
    write_manifest,
)
from critpath_record.output import is_recording
from critpath_record.recorder import BESIDE, RECORDERS, TRACE, Leftover
from critpath_record.registry import Entry, read_entries, unregister
from critpath_record.source import Taken
from critpath_record.stacks.sources import (
    FRAMES,
    OBJECT_FRAMES,
    PYTHON_FRAMES,
    RAW_OBJECTS,
    RAW_STACKS,
    STACKS,
)
from critpath_record.user import User, hand_over_fd

_ENTRIES: Final = 100_000  # files of a recording that are looked at
_LATEST: Final = 1 << 62  # where the recording's end is not known
_COUNTS: Final = Path(COUNTS).parts[0]
FUNCTIONS: Final = "functions.raw"  # what the command's agents wrote
_SOURCES: Final = ("raw", ".raw-converted")  # what a trace is made of, also while that is removed
_FILES: Final = (
    *(MANIFEST, *_SOURCES, FUNCTIONS, TRACE, RUNS, NORMAL, SAMPLE, _COUNTS, SAMPLED, STACKS),
    *BESIDE,
)


@dataclass(frozen=True)
class FinishedRecording:
    """A recording that was finished after its recorder had died."""

    runs: int  # runs that had ended before the recorder was killed
    lost: int  # events that the tracer is known to have lost


def find_unfinished() -> Iterator[Leftover]:
    """Yield the registered recordings whose recorders are gone."""
    for entry in read_entries():
        if is_dead_session(entry.session):
            name, remove = str(entry.directory), partial(_finish_registered, entry)
            yield Leftover("recording", name, entry.session, remove)


def finish_recording(directory: Path, report: Callable[[str], None]) -> FinishedRecording | None:
    """Finish a recording that a dead recorder left; None if it is finished already.

    `directory`: the recording, wherever it is now; of an interleaved pair either half.  `report`:
    called with each step.
    """
    if directory.name == SAMPLE and read_manifest(directory).interleaved == NORMAL:
        directory = directory.parent / NORMAL  # which has the trace until the end
    paired = read_manifest(directory).interleaved == SAMPLE
    if paired and not directory.name:  # "." is one of two
        directory = directory.absolute()
    top = directory.parent if paired else directory
    with _open_own(top) as (_, place):
        return _finish(place / NORMAL if paired else place, report)


@contextlib.contextmanager
def _open_own(top: Path) -> Iterator[tuple[int, Path]]:
    """Open a recording that is ours, so that nothing in it can be exchanged meanwhile."""
    try:
        descriptor = open_dir(top)
    except OSError as error:
        raise CritpathError(
            f"{top} cannot be opened: {error.strerror}", "name the recording's own directory"
        ) from None
    place = proc_fd_path(descriptor)
    try:
        _check_mine(top, os.fstat(descriptor))
        yield descriptor, place
    except CritpathError as error:
        restore_name_in_error(error, place, top)
        raise
    finally:
        os.close(descriptor)


def _check_mine(top: Path, status: os.stat_result) -> None:
    if not _is_mine(status):
        raise CritpathError(
            f"{top} is another user's, or others may write to it",
            "run critpath doctor --clean DIR as its user, or on a copy of your own",
        )


def _is_mine(status: os.stat_result) -> bool:
    """Return whether no other user can change what a status describes."""
    others = stat.S_IWOTH
    # LTTng's daemons let their group write, which is root's.
    if not os.geteuid() and status.st_gid:
        others |= stat.S_IWGRP
    return status.st_uid == os.geteuid() and not status.st_mode & others


def _finish(directory: Path, report: Callable[[str], None]) -> FinishedRecording | None:
    """Finish a recording in a directory that is open."""
    manifests = {directory: read_manifest(directory)}
    session = manifests[directory].session
    if manifests[directory].interleaved == SAMPLE:
        other = directory.parent / SAMPLE
        with contextlib.suppress(UnreadableError):  # its manifest may never have come
            if read_manifest(other).session == session:
                manifests[other] = read_manifest(other)
    if all(manifest.state != RECORDING for manifest in manifests.values()):
        return None
    owner = owner_of(session)
    if owner is not None and owner.is_gone() is False:
        raise CritpathError(
            f"{directory} is being recorded by process {owner.pid}", "wait until it has ended"
        )
    _check_layout(manifests)
    recorded = _make_trace(directory, manifests[directory], report)
    if (directory / FUNCTIONS).is_dir():
        span = manifests[directory].begin or recorded.begin, recorded.end or _LATEST
        from critpath_record.functions import FILE, convert_functions  # noqa: PLC0415 - rare

        said = convert_functions(directory, span)
        beside = (*recorded.beside, FILE)
        recorded = replace(recorded, beside=beside, warnings=(*recorded.warnings, *said))
    streams = measure_streams(directory, recorded.streams)
    done = []
    for place, manifest in manifests.items():
        if place != directory:
            link_beside(directory, place)
            for name in recorded.beside:
                shutil.copyfile(directory / name, place / name)
        done.append(_complete_manifest(place, _drop_raw_stacks(place, manifest), recorded, streams))
    recorded.release()
    if owner is not None and owner.is_gone():
        unregister(session)
    return FinishedRecording(sum(len(m.runs) for m in done), done[0].lost)


def _drop_raw_stacks(directory: Path, manifest: Manifest) -> Manifest:
    """Delete stacks that were not unwound: memory of what was recorded is never kept."""
    place = directory / STACKS
    raw = any((place / name).exists() for name in (RAW_STACKS, RAW_OBJECTS))
    made = any((place / name).exists() for name in (FRAMES, PYTHON_FRAMES, OBJECT_FRAMES))
    if not raw and (made or not place.is_dir()):
        return manifest
    shutil.rmtree(directory / STACKS, ignore_errors=True)
    note = "stacks and names of files were not made before the recorder was killed: left out"
    return replace(manifest, warnings=(*manifest.warnings, note))


def _check_layout(manifests: Mapping[Path, Manifest]) -> None:
    """Refuse a recording that no recorder of ours can have left."""
    from critpath_record.ftrace import raw as raws  # noqa: PLC0415 - rare

    for place, manifest in manifests.items():
        if manifest.trace != TRACE:  # never a place that a manifest names: it may be anywhere
            raise _unknown_recorder(place)
        # Pages of a dump may be kept for the next one, too.
        dump = (place / raws.RAW / raws.PREPARED).is_file()
        _check_plain(place, links=2 if dump or len(manifests) > 1 else 1)


def _make_trace(directory: Path, manifest: Manifest, report: Callable[[str], None]) -> Taken:
    name = manifest.recorder.get("name")
    if not isinstance(name, str) or name not in RECORDERS:
        raise _unknown_recorder(directory)
    module = importlib.import_module(RECORDERS[name])
    with refuse_damaged(directory, "record again: no trace can be made of what was changed"):
        recorded: Taken | None = module.finish_killed(directory, report)
    if recorded is None:
        raise UnreadableError(
            f"{directory}: its recorder was killed before it had recorded anything",
            "remove it, and record again",
        )
    return recorded


def _unknown_recorder(directory: Path) -> CritpathError:
    return CritpathError(
        f"{directory} was made by a recorder that this critpath does not know",
        "use the version of critpath that recorded it",
    )


def measure_streams(directory: Path, known: Sequence[StreamFacts] = ()) -> tuple[StreamFacts, ...]:
    """Add size and digest of every further stream file, without its events: that needs numpy."""
    names = {one.name for one in known}
    files = sorted(
        file
        for metadata in list_metadata(directory / TRACE)
        for file in metadata.parent.iterdir()
        if file.is_file() and file.name != "metadata" and not file.name.startswith(".")
    )
    found = [*known]
    for file in files:
        name = file.relative_to(directory).as_posix()
        if name in names:
            continue
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        found.append(StreamFacts(name, file.stat().st_size, digest=digest))
    return tuple(found)


def _complete_manifest(
    directory: Path, manifest: Manifest, recorded: Taken, streams: tuple[StreamFacts, ...]
) -> Manifest:
    """Complete a manifest from the runs on disk and the recorder's result, and write it."""
    runs = {run.number: run for run in (*manifest.runs, *read_runs(directory))}
    note = "the recorder was killed; the recording was finished later"
    if manifest.end:  # it ended its session itself, but could not make the trace
        note = "the recording was finished later"
    begin = manifest.begin or recorded.begin  # killed before it had noted that it records
    manifest = replace(
        manifest,
        state=INTERRUPTED,
        begin=begin,
        runs=tuple(runs[number] for number in sorted(runs)),
        end=manifest.end or recorded.end or max((r.end for r in runs.values()), default=begin),
        loss=tuple(x for x in recorded.loss if x.events or x.packets) or manifest.loss,
        gaps=() if recorded.gaps_file else recorded.gaps or manifest.gaps,
        gaps_file=recorded.gaps_file,
        overhead=recorded.overhead,
        streams=streams,
        recorder={**manifest.recorder, **recorded.facts},
        warnings=tuple(dict.fromkeys((*manifest.warnings, note, *recorded.warnings))),
    )
    manifest = replace(manifest, execution=find_execution(manifest))
    write_manifest(directory, manifest)
    (directory / RUNS).unlink(missing_ok=True)
    return manifest


# Recordings that the registry knows


def _finish_registered(entry: Entry) -> None:
    """Finish what a session left, give it its name and owner, and unregister the session."""
    top = _find_top(entry)
    if not entry.parted or entry.owner is None or not os.path.lexists(top):
        _finish_here(entry)
        return
    # It is its user's already: root does nothing there that they might not.
    importlib.import_module(RECORDERS.get(entry.recorder, RECORDERS["ftrace"]))
    try:
        wrong = rooted.run_as(*entry.owner, partial(_say_finished, entry))
    except OSError:
        wrong = f"{top} could not be finished"
    unregister(entry.session)
    if wrong:
        raise CritpathError(wrong, f"as user {entry.owner[0]}: critpath doctor --clean {top}")


def _say_finished(entry: Entry) -> str:
    """Finish a recording of one's own; return what was wrong."""
    try:
        _finish_here(replace(entry, owner=None, parted=False))
    except CritpathError as error:
        return error.what
    return ""


def _find_top(entry: Entry) -> Path:
    top = entry.directory.parent if entry.directory.name == NORMAL else entry.directory
    return top if _belongs_to(top, entry.session) else entry.directory


def _finish_here(entry: Entry) -> None:
    wrong = ""
    top = _find_top(entry)
    if _belongs_to(top, entry.session):
        if _is_handed_over(top, entry):
            wrong = _name_as_owner(top, entry)  # killed just before that
        elif _is_mine(top.lstat()):
            wrong = _finish_own(top, entry)
        # Else somebody has put it there.
    elif top.name.endswith("." + entry.session):
        # Killed when everything had its place, but for the recording that was replaced.
        _remove_recording(_replaced_path(top))
    unregister(entry.session)
    if wrong:
        raise CritpathError(wrong, "it is finished; give it to its user with sudo chown -R")


def _finish_own(top: Path, entry: Entry) -> str:
    """Finish a recording of ours; return a warning if its user cannot get it."""
    with _open_own(top) as (descriptor, place):
        directory = place if top == entry.directory else place / entry.directory.name
        if (directory / MANIFEST).exists() and _has_data(directory):
            if _finish(directory, lambda _: None) is None:
                _remove_remains(place, keep_raw=entry.keep_raw)
            user = None if entry.owner is None else User(*entry.owner, groups=(), environment={})
            wrong = hand_over_fd(descriptor, user)
        else:
            # Killed before tracing was on, or while it removed everything itself.
            _check_plain(place, links=2)
            _discard(place, entry.session)
            with contextlib.suppress(OSError):
                top.rmdir()
            return ""
    named = _name_as_owner(top, entry)
    return wrong or named


def _remove_remains(place: Path, *, keep_raw: bool) -> None:
    """Remove what a finished recording was made of: its recorder was killed while it did so."""
    for directory in (place, place / NORMAL, place / SAMPLE):
        (directory / RUNS).unlink(missing_ok=True)
        for name in _SOURCES[keep_raw:]:
            shutil.rmtree(directory / name, ignore_errors=True)


def _is_handed_over(top: Path, entry: Entry) -> bool:
    """Return whether a recording was given to its user before its recorder was killed."""
    return entry.owner is not None and top.lstat().st_uid == entry.owner[0] != os.geteuid()


def _remove_recording(directory: Path) -> None:
    """Remove a directory if it is a recording."""
    with contextlib.suppress(OSError):
        parent = os.open(directory.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if is_recording(directory.name, parent):
                shutil.rmtree(directory.name, ignore_errors=True, dir_fd=parent)
        finally:
            os.close(parent)


def _replaced_path(building: Path) -> Path:
    """Return where the old recording is moved to while it is replaced."""
    return building.with_name(building.name + ".old")


def _has_data(directory: Path) -> bool:
    """Return whether a trace can be made of what is there."""
    described = (directory / "raw" / "raw.json").is_file()
    counted = (directory / COUNTS).is_file()
    return described or counted or bool(list_matching(directory / "trace", "*", "metadata"))


def _belongs_to(top: Path, session: str) -> bool:
    """Return whether a session was writing to this directory, and nothing else took its place."""
    if top.is_symlink() or not top.is_dir():
        return False
    halves = [top / name for name in (NORMAL, SAMPLE) if (top / name).is_dir()]
    manifests = [place for place in (top, *halves) if (place / MANIFEST).exists()]
    try:
        if manifests:
            return any(read_manifest(place).session == session for place in manifests)
    except UnreadableError:
        return False
    return all(_is_recorder_file(place.name, session) for place in top.iterdir())


def _is_recorder_file(name: str, session: str) -> bool:
    """Return whether a file of a recording without a manifest may come from a recorder."""
    unfinished = name.startswith(tuple(f".{known}." for known in _FILES))
    return name in _FILES or unfinished or session in name


def _discard(directory: Path, session: str) -> None:
    for place in directory.iterdir():
        if not _is_recorder_file(place.name, session):
            continue  # put there by somebody else
        if place.is_symlink() or not place.is_dir():
            place.unlink()
        elif place.name in {NORMAL, SAMPLE}:
            _discard(place, session)
        else:
            shutil.rmtree(place)
    with contextlib.suppress(OSError):
        directory.rmdir()  # fails for the top, whose path is a link in /proc


def _name_as_owner(top: Path, entry: Entry) -> str:
    """Give a finished recording its name: as its user, wherever others than root can lead.

    Returns what was wrong.
    """
    if os.geteuid() or entry.owner is None or is_roots(top):
        return _give_name(top, entry)
    try:
        return rooted.run_as(*entry.owner, partial(_give_name, top, entry))
    except OSError:
        return f"{top} cannot have its name: its user may not rename it there"


def _give_name(top: Path, entry: Entry) -> str:
    """Give a finished recording its intended name; return ""."""
    suffix = "." + entry.session
    if not (top.name.startswith(".") and top.name.endswith(suffix)):
        return ""
    # With --force it was to replace an earlier recording; a long name was cut.
    stem = top.name[1:].removesuffix(suffix)
    target, old = top.with_name(stem), _replaced_path(top)
    if len(stem) < 100 and _is_older(target, top) and _replace(target, old, top):
        _remove_recording(old)
    else:
        top.rename(top.with_name(stem + suffix))
    return ""


def _is_older(target: Path, top: Path) -> bool:
    """Return whether `target` is free, or an older recording.

    A recording may wait long for being finished, and a later one may have taken its place.
    """
    if not os.path.lexists(target):
        return True
    made = _begin_time(target)
    return not target.is_symlink() and made is not None and made < (_begin_time(top) or 0)


def _begin_time(top: Path) -> int | None:
    """Return when a recording was begun (ns since 1970), None if unknown."""
    for place in (top, top / NORMAL):
        with contextlib.suppress(UnreadableError):
            manifest = read_manifest(place)
            epoch = manifest.clock.get("epoch")
            if manifest.begin > 0 and isinstance(epoch, int):
                return manifest.begin + epoch
    return None


def _replace(target: Path, old: Path, top: Path) -> bool:
    """Move a recording into its place; if that fails, put the old one back and return False."""
    moved = False
    try:
        if os.path.lexists(target):
            target.rename(old)
            moved = True
        top.rename(target)
    except OSError:
        if moved:
            old.rename(target)
        return False
    return True


def _check_plain(directory: Path, *, links: int) -> None:
    """Refuse links, which could lead root elsewhere, and pipes, which could block it for ever."""
    pending, seen = [directory], 0
    while pending:
        place = pending.pop()
        if place.is_symlink() and not is_proc_fd_path(place):
            raise _refusal(place)
        with os.scandir(place) as inside:
            for item in inside:
                seen += 1
                status = item.stat(follow_symlinks=False)
                several = stat.S_ISREG(status.st_mode) and status.st_nlink > links
                plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
                mine = _is_mine(status)
                if not (plain and mine) or several or seen > _ENTRIES:
                    raise _refusal(Path(item.path))
                if stat.S_ISDIR(status.st_mode):
                    pending.append(Path(item.path))


def _refusal(place: Path) -> CritpathError:
    return CritpathError(
        f"{place} is not what a recorder writes: a link, a pipe, another's file, or too many files",
        "copy the recording without links and name the copy: critpath doctor --clean DIR",
    )
