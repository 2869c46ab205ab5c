"""Instances of killed recorders: saved into their recordings, and removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath_record import rooted
from critpath_record.ftrace import raw as raws
from critpath_record.ftrace import tracefs
from critpath_record.ftrace.drain import Drain
from critpath_record.ftrace.marks import PREFIX, remove_place, session_of, sessions_with_places
from critpath_record.ftrace.raw import LAYERS
from critpath_record.ftrace.tracefs import (
    NAMES_OPTION,
    Instance,
    restore_names,
    scan_threads,
    split_name,
)
from critpath_record.identity import is_dead_session
from critpath_record.recorder import Leftover
from critpath_record.registry import find_changes, forget_change, read_entries

_LAST: Final = 1 << 17  # bytes: two pages, of any size that there is
_BESIDE: Final = 1 << 20  # bytes of what is written beside the pages


def find_leftovers() -> list[Leftover]:
    """Return the instances whose recorders are dead."""
    root = tracefs.find()
    found = [
        Leftover("marker", session, session, partial(remove_place, session))
        for session in sessions_with_places()
        if is_dead_session(session)
    ]
    if root is None:
        return found
    found += _find_option(root)
    try:
        names = sorted(place.name for place in (root / "instances").iterdir())
    except OSError:
        return found
    for name in names:
        layer, session = split_name(session_of(name))
        if is_dead_session(session):
            instance = Instance.at(root, name)
            remove = (
                instance.remove
                if name.startswith(PREFIX) or layer == "files"
                else partial(_remove, instance, session, layer)
            )
            found.append(Leftover("instance", name, session, remove))
    return found


def describe_left() -> str:
    """Say which instances dead recorders left, of whom only root's helper may tell; or ""."""
    with contextlib.suppress(OSError):
        names, _ = rooted.ask("left")
        left = [x for x in map(str, names) if is_dead_session(split_name(session_of(x))[1])]
        shown = ", ".join(left[:3]) + (", ..." if len(left) > 3 else "")
        if left:
            return f"killed recorders left {shown}: sudo critpath doctor --clean finishes it"
    return ""


def _find_option(root: Path) -> list[Leftover]:
    """Return the kernel's option that a recorder killed as it made its instance left at 0."""
    dead = [session for session in find_changes() if is_dead_session(session)]
    return [Leftover("option", NAMES_OPTION, x, partial(_restore_names, root, x)) for x in dead]


def _restore_names(root: Path, session: str) -> None:
    restore_names(str(root))
    forget_change(session)


def _remove(instance: Instance, session: str, layer: str = "") -> None:
    """Save the buffers, if their recording is known, and remove the instance.

    Those of a layer are saved beside those of its recording.
    On a full disk the instance stays, turned off, until there is space.
    """
    keep = False
    try:
        with contextlib.suppress(CritpathError):
            instance.write("tracing_on", "0")
        raw = _find_raw(session)
        if raw is not None and (owner := raw.lstat()).st_uid != os.geteuid():
            _save_as_owner(instance, raw, layer, owner)
        elif raw is not None:
            needed = _buffered_bytes(instance)
            raws.free_reserved_space(raw)
            keep = needed > 0 and not raws.has_space(raw, needed + _BESIDE)
            if keep:
                raise CritpathError(
                    f"what {instance.path} holds needs {needed / 2**20:.1f} MiB at {raw}",
                    "make room there, then: critpath doctor --clean; it is kept until then",
                )
            _save(instance, raw, layer)
    finally:
        if not keep:
            instance.remove()


def _save(instance: Instance, raw: Path, layer: str) -> None:
    if layer:
        save_layer(instance, raw / LAYERS / layer)
    else:
        save_buffers(instance, raw)


def _save_as_owner(instance: Instance, raw: Path, layer: str, owner: os.stat_result) -> None:
    """Save the buffers as the user whose the recording is: root does not write where they lead."""

    def save() -> str:
        tracefs.files = tracefs.Handed({instance.path.name: handed})
        try:
            _save(Instance(instance.path), raw, layer)
        except CritpathError as error:
            return error.what
        return ""

    wrong = ""
    try:
        handed = rooted.hand_instance(str(instance.path), owner.st_uid)
        try:
            wrong = rooted.run_as(owner.st_uid, owner.st_gid, save)
        finally:
            os.close(handed)
    except OSError as error:
        wrong = f"{raw}: {error.strerror}"
    if wrong:
        raise CritpathError(wrong, f"what {instance.path} held is lost")


def _buffered_bytes(instance: Instance) -> int:
    """Return an upper bound of the bytes that the buffers take on disk, 0 if they are empty."""
    counts = [instance.stats(cpu) for cpu in instance.cpus()]
    # A page may be left by an event that is a fourth of it, and the last is not full.
    used = [c.get("bytes", 0) * 4 // 3 + _LAST for c in counts if c.get("entries")]
    return sum(used)


def has_unsaved_pages(session: str) -> bool:
    """Return whether the kernel still holds a part of what a dead recorder recorded."""
    root = tracefs.find()
    if root is None or not is_dead_session(session):
        return False
    try:
        return _buffered_bytes(Instance.at(root, session)) > 0
    except (CritpathError, OSError):
        return False  # there is no such instance


def save_buffers(instance: Instance, raw: Path) -> None:
    """Append what the buffers hold to a dead recorder's ``raw/``, with tracing off."""
    with _saving(instance, raw) as drain:
        raws.free_reserved_space(raw)
        description = raws.read_description(raw)
        _drain(instance, drain, raw)
        known = [cpu for cpu in description.get("cpus", []) if isinstance(cpu, int)]
        description["cpus"] = sorted({*known, *drain.cpus})
        if not (raw / f"statedump{raws.AT_END}.json").exists():
            raws.write_json(raw / f"statedump{raws.AT_END}.json", scan_threads())
        raws.write_description(raw, description)


def save_layer(instance: Instance, place: Path) -> None:
    """Append what the buffers of a layer hold to its pages, with tracing off."""
    with _saving(instance, place) as drain:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _drain(instance, drain, place)


@contextlib.contextmanager
def _saving(instance: Instance, place: Path) -> Iterator[Drain]:
    """Yield what moves an instance's pages; raises CritpathError where they cannot be written."""
    drain = Drain(instance, place, raws.page_bytes(instance.read("events/header_page")), 0, None)
    try:
        yield drain
    except OSError as error:
        raise CritpathError(
            f"what {instance.path} held is lost, {place} cannot be written: {error.strerror}",
            "free space there before the next critpath doctor --clean",
        ) from None
    if drain.failure is not None:
        raise drain.failure


def _drain(instance: Instance, drain: Drain, place: Path) -> None:
    """Move the pages of the buffers that hold any, and note what the kernel counted."""
    stats = {cpu: instance.stats(cpu) for cpu in instance.cpus()}
    try:
        drain.start([cpu for cpu, counts in stats.items() if counts.get("entries")])
        drain.stop()
    except BaseException:
        drain.abandon()
        raise
    after = {cpu: instance.stats(cpu) for cpu in stats}
    raws.write_stats(place, {cpu: of for cpu, of in after.items() if any(of.values())})


def _find_raw(session: str) -> Path | None:
    """Return the raw directory of an unfinished recording, None if unknown."""
    with contextlib.suppress(CritpathError, OSError):
        for entry in read_entries():
            if entry.session == session:
                raw = Path(entry.directory) / raws.RAW
                mine = raw.is_dir() and not raw.is_symlink()
                return (
                    raw if mine and raws.read_description(raw).get("session") == session else None
                )
    return None
