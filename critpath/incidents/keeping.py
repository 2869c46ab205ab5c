"""The directory of incidents: one directory each, what is usual, and what is kept in mind.

Everything in it is read as if others had written it: never through a link, never without limit.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from critpath.documents import ComparisonDocument, Document, IncidentDocument
from critpath.documents.incidents import LookingState
from critpath.errors import CritpathError, UnreadableError, UsageError
from critpath.files import atomic_directory, write_text
from critpath.incidents.dumps import NAME
from critpath.incidents.usual import DIRECTORY
from critpath.report.document import load_document, to_json, to_plain
from critpath.units import safe_text
from critpath.untrusted import (
    LARGEST,
    find_trouble,
    is_there,
    load_json,
    read_regular,
    refuse_damaged,
)

INCIDENT, COMPARISON, PAGE = "incident.json", "comparison.json", "page.html"
STATE: Final = "state.json"
_KEPT: Final = "keep"  # a file of that name in an incident: it is not removed
_LARGEST_INCIDENT: Final = 1 << 20
_LARGEST_STATE: Final = 1 << 24
_ENDS: Final = re.compile(r"\..*\.[0-9a-f]{12}\.(partial|old)|.*\.[0-9a-f]{12}\.(partial|old)")


def prepare_directory(directory: Path) -> None:
    """Make the directory, or take one that is ours alone and has nothing of others."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.lstat()
        names = os.listdir(directory)  # noqa: PTH208 - names
    except OSError as error:
        raise UsageError(
            f"cannot use {directory}: {error.strerror or error}", "name a directory with -o"
        ) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise UsageError(f"{directory} is another user's, or a link", "name another with -o")
    if status.st_mode & 0o077:
        raise UsageError(
            f"others may enter {directory}, and incidents have names of programs and hosts",
            f"chmod 700 {directory}",
        )
    others = [n for n in names if n not in {STATE, DIRECTORY} and not NAME.fullmatch(n)]
    others = [n for n in others if not _ENDS.fullmatch(n)]
    if others:
        raise UsageError(
            f"{directory} has what is no incident: {safe_text(min(others))}",
            "name another directory with -o",
        )


def list_incidents(directory: Path) -> list[str]:
    """Return the names of incidents, oldest first."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names
    except OSError as error:
        raise UnreadableError(
            f"cannot read {directory}: {error.strerror}", "name the directory of incidents"
        ) from error
    return sorted(n for n in names if NAME.fullmatch(n) and not (directory / n).is_symlink())


def load_incident(place: Path) -> IncidentDocument:
    """Read one; raises UnreadableError."""
    found = _load(place / INCIDENT, _LARGEST_INCIDENT)
    if not isinstance(found, IncidentDocument) or found.id != place.name:
        raise UnreadableError(f"{place / INCIDENT}: no incident", "remove its directory")
    return found


def load_comparison(place: Path) -> ComparisonDocument | None:
    """Return the comparison that an incident rests on, None if there is none."""
    file = place / COMPARISON
    found = _load(file, LARGEST) if is_there(file) else None
    return found if isinstance(found, ComparisonDocument) else None


def read_incidents(
    directory: Path, note: Callable[[str, UnreadableError], None] = lambda _name, _error: None
) -> Iterator[IncidentDocument]:
    """Yield those that can be read, oldest first; note the names of others, and why."""
    for name in list_incidents(directory):
        try:
            yield load_incident(directory / name)
        except UnreadableError as error:
            note(name, error)


def _load(file: Path, most: int) -> Document:
    with refuse_damaged(file, "remove it"):
        return load_document(_read(file, most))


def _read(file: Path, most: int) -> bytes:
    try:
        return read_regular(file, most)
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror or error}", "remove it") from error


def load_state(directory: Path) -> LookingState | None:
    """Return what was kept in mind; None where that is damaged, an error where it is not read."""
    if not is_there(directory / STATE):
        return LookingState()
    try:
        return LookingState.read(load_json(_read(directory / STATE, _LARGEST_STATE)))
    except (CritpathError, ValueError, RecursionError) as error:
        if find_trouble(error):
            raise
        return None


def save_state(directory: Path, state: LookingState) -> None:
    """Keep in mind, whole or not at all."""
    _replace_text(directory / STATE, to_json(to_plain(state)))


def save_incident(
    directory: Path, one: IncidentDocument, document: ComparisonDocument | None, page: str
) -> None:
    """Make an incident's directory, whole or not at all."""
    with atomic_directory(directory / one.id) as place:
        place.chmod(0o700)
        if document is not None:
            (place / COMPARISON).write_text(to_json(document), encoding="utf-8")
            (place / PAGE).write_text(page, encoding="utf-8", errors="replace")
        (place / INCIDENT).write_text(to_json(one), encoding="utf-8")


def change_incident(directory: Path, one: IncidentDocument) -> None:
    """Write an incident anew: it went on."""
    _replace_text(directory / one.id / INCIDENT, to_json(one))


def _replace_text(file: Path, text: str) -> None:
    if file.is_symlink():  # `write_text` would write where it leads
        file.unlink()
    write_text(file, text)


def remove_oldest(directory: Path, most: int, made: str) -> None:
    """Remove the oldest incidents until there is room; none with a file ``keep``, nor the newest.

    Parameters
    ----------
    most : int
        Bytes of all incidents together.
    made : str
        The one just made.
    """
    names = list_incidents(directory)
    sizes = {name: _measure(directory / name) for name in names}
    room = sum(sizes.values())
    for name in names:
        if room <= most:
            return
        if name == made or _is_kept(directory / name):
            continue
        shutil.rmtree(directory / name, ignore_errors=True)
        room -= sizes[name]


def _is_kept(place: Path) -> bool:
    try:
        return is_there(place / _KEPT)
    except OSError:  # it may be
        return True


def _measure(place: Path) -> int:
    with os.scandir(place) as entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
