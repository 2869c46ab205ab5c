"""What verbs read: sources that are there, and the paths of their executions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from critpath.commands.settings import Settings
from critpath.errors import InconclusiveError, UnreadableError, UsageError
from critpath.units import plural

if TYPE_CHECKING:
    import argparse

    from critpath.commands.output import Progress
    from critpath.model import PathSet
    from critpath.schema.notes import Remark
    from critpath.text.notes import Words


_OTHER: Final = re.compile(r"(https?|abfss?|az|hdfs|file|ftp|sftp|gcs|s3a):/")


def extract_sources(
    sources: Sequence[Path], settings: Settings, progress: Progress, **more: Any
) -> PathSet:
    """Extract the paths of sources, read as the settings say; there has to be an execution."""
    from critpath import flow  # noqa: PLC0415 - numpy and the stages

    options = {"jobs": settings["jobs"], **settings.for_reading(), **more}
    paths = flow.extract(sources, progress=progress, **options)
    require_executions(paths, sources)
    return paths


# Verbs that work on what this machine does, or write as it goes on: a line of what to do instead.
_HERE: Final = {
    **dict.fromkeys(("record", "ab", "bisect", "demo"), "record here, then copy it there"),
    **dict.fromkeys(("dump", "metrics", "incidents"), "name a directory of this machine"),
}
# What is taken as it is written: a URL there names no place to be read.
_WORDS: Final = frozenset(
    {"command", "typed", "verb", "engine", "execution", "trace_url"}
    | {"learn", "known", "link", "note", "label", "reason", "config"}
)


def open_places(arguments: argparse.Namespace) -> None:
    """Open what URLs of object stores name, in the place of every argument that is one."""
    for name, value in vars(arguments).items():
        if name not in _WORDS:
            setattr(arguments, name, open_given(arguments.verb, value))


def open_given(verb: str, value: Any) -> Any:
    """Return what a verb was given, with the places of URLs in their place."""
    from critpath import stores  # noqa: PLC0415 - start-up time

    if isinstance(value, list):
        return [open_given(verb, each) for each in value]
    url = stores.find_url(value) if isinstance(value, str | Path) else None
    if url is None:
        return value
    if do := _HERE.get(verb):
        raise UsageError(f"critpath {verb} takes no URL: {url}", do)
    place = stores.open_place(url)
    return str(place) if isinstance(value, str) else place


def check_inputs(paths: Iterable[Path]) -> None:
    """Refuse inputs that are not there, before any work.

    Raises
    ------
    UnreadableError
    """
    for path in paths:
        try:
            found = path.exists()
        except (OSError, ValueError) as error:
            raise UnreadableError(f"cannot look at {path}: {error}", "check the path") from None
        if not found:
            if other := _OTHER.match(str(path)):
                raise UsageError(
                    f"{path}: no URLs of {other[1]} are read",
                    "give s3://BUCKET/NAME or gs://BUCKET/NAME, or copy it to this machine",
                )
            raise UnreadableError(
                f"{path} does not exist",
                "name a recording, a directory of them, a CTF trace, saved paths or a baseline",
            )


def messages_of(paths: PathSet) -> list[Remark]:
    """Return everything a reader must know about extracted paths."""
    from critpath.detect import note_repaired_switches  # noqa: PLC0415 - numpy

    return [*note_repaired_switches(paths).warnings, *paths.executions.notes, *_list_lost(paths)]


def words_of(paths: PathSet) -> Words:
    """Return what executions of paths are called in messages."""
    from critpath.text.notes import Words  # noqa: PLC0415 - start-up time
    from critpath.text.page import noun_of_paths  # noqa: PLC0415 - as above

    return Words(noun_of_paths(paths, 1), noun_of_paths(paths))


def _list_lost(paths: PathSet) -> list[str]:
    from critpath.text.page import noun_of_paths  # noqa: PLC0415 - start-up time

    touched = f"{int(paths.lossy.sum()):,} of {len(paths):,} {noun_of_paths(paths)} overlap a loss"
    return [f"{what}: {touched}" for what in _losses(paths)]


def _losses(paths: PathSet) -> list[str]:
    """Return what was lost, as one text; none where nothing was."""
    events = sum(loss.events for loss in paths.losses)
    packets = sum(loss.packets for loss in paths.losses)
    if not paths.losses:
        return []
    what = f"{plural(events, 'event')} and {plural(packets, 'packet')} lost or damaged"
    return [what + (f" ({paths.losses[0].reason})" if packets else "")]


def require_executions(paths: PathSet, sources: Sequence[object]) -> None:
    """Refuse paths without any execution, with the reason.

    Raises
    ------
    InconclusiveError
    """
    if len(paths):
        return
    raise no_executions(sources, [*_losses(paths), *paths.executions.notes[:3]])


def no_executions(sources: Sequence[object], reasons: Sequence[Remark]) -> InconclusiveError:
    """Return the error of a recording without any execution."""
    from critpath.text.notes import word_all  # noqa: PLC0415 - start-up time

    why = "; ".join(word_all(reasons))
    return InconclusiveError(
        f"no complete run in {', '.join(map(str, sources))}" + (f": {why}" if why else ""),
        "say what else a run is: --execution 'requests:?' lists the servers, "
        "'events:?,?' the events of the trace",
    )
