"""Instances of recorders that were killed: saved into their recordings, and removed."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath.record.ftrace import raw as raws
from critpath.record.ftrace import tracefs
from critpath.record.ftrace.drain import Drain
from critpath.record.ftrace.tracefs import Instance, scan
from critpath.record.recorder import Leftover
from critpath.record.registry import entries
from critpath_marks.sessions import owner_of

_LAST: Final = 1 << 17  # bytes: two pages, of any size that there is
_BESIDE: Final = 1 << 20  # bytes of what is written beside the pages


def leftovers() -> list[Leftover]:
    """Return the instances whose recorders are gone; a living one's is never among them."""
    root = tracefs.find()
    if root is None:
        return []
    try:
        names = sorted(place.name for place in (root / "instances").iterdir())
    except OSError:
        return []
    found = []
    for name in names:
        owner = owner_of(name)
        if owner is not None and owner.gone() is True:
            instance = Instance.named(root, name)
            found.append(Leftover("instance", name, name, partial(_remove, instance, name)))
    return found


def _remove(instance: Instance, session: str) -> None:
    """Save what the buffers hold, if it is known where it belongs, and remove them.

    On a full disk they stay, turned off, for when there is room.
    """
    keep = False
    try:
        with contextlib.suppress(CritpathError):
            instance.write("tracing_on", "0")
        raw = _raw_of(session)
        if raw is not None:
            needed = _held(instance)
            raws.give_room(raw)
            keep = needed > 0 and not raws.has_room(raw, needed + _BESIDE)
            if keep:
                raise CritpathError(
                    f"what {instance.path} holds needs {needed / 2**20:.1f} MiB at {raw}",
                    "make room there, then: critpath doctor --clean; it is kept until then",
                )
            save(instance, raw)
    finally:
        if not keep:
            instance.remove()


def _held(instance: Instance) -> int:
    """Return at most how many bytes an instance's pages take on disk; 0 if it holds no event."""
    counts = [instance.stats(cpu) for cpu in instance.cpus()]
    # A page may be left by an event that is a fourth of it, and the last is not full.
    used = [c.get("bytes", 0) * 4 // 3 + _LAST for c in counts if c.get("entries")]
    return sum(used)


def holds_more(session: str) -> bool:
    """Tell whether the kernel still holds a part of what a dead recorder recorded."""
    root, owner = tracefs.find(), owner_of(session)
    if root is None or owner is None or owner.gone() is not True:
        return False
    try:
        return _held(Instance.named(root, session)) > 0
    except (CritpathError, OSError):
        return False  # there is no such instance


def save(instance: Instance, raw: Path) -> None:
    """Append what an instance's buffers hold to the pages of a dead recorder.

    Parameters
    ----------
    instance : Instance
        Tracing is off.
    raw : Path
        ``raw/`` of its recording.

    Raises
    ------
    CritpathError
        If it cannot be written.
    """
    try:
        raws.give_room(raw)
        description = raws.read_description(raw)
        size = raws.page_bytes(instance.read("events/header_page"))
        drain = Drain(instance, raw, size, 0, None)
        stats = {cpu: instance.stats(cpu) for cpu in instance.cpus()}
        try:
            drain.start([cpu for cpu, counts in stats.items() if counts.get("entries")])
            drain.stop()
        except BaseException:
            drain.abandon()
            raise
        raws.write_stats(
            raw,
            {cpu: instance.stats(cpu) for cpu, counts in stats.items() if any(counts.values())},
        )
        known = [cpu for cpu in description.get("cpus", []) if isinstance(cpu, int)]
        description["cpus"] = sorted({*known, *drain.cpus})
        if not (raw / "statedump-end.json").exists():
            raws.write_json(raw / "statedump-end.json", scan())
        raws.write_description(raw, description)
    except OSError as error:
        raise CritpathError(
            f"what {instance.path} held is lost, {raw} cannot be written: {error.strerror}",
            "free space there before the next critpath doctor --clean",
        ) from None
    if drain.failure is not None:
        raise drain.failure


def _raw_of(session: str) -> Path | None:
    """Return the raw directory of an unfinished recording, None if it is not known."""
    with contextlib.suppress(CritpathError, OSError):
        for entry in entries():
            if entry.session == session:
                raw = Path(entry.directory) / raws.RAW
                mine = raw.is_dir() and not raw.is_symlink()
                return (
                    raw if mine and raws.read_description(raw).get("session") == session else None
                )
    return None
