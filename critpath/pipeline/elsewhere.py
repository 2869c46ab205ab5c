"""A recording whose name is of another current directory: a worker's is not the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.errors import EXIT_UNREADABLE, CritpathError
from critpath.pipeline.engines import Failure
from critpath.pipeline.extraction import ExtractSettings, extract_recording

if TYPE_CHECKING:
    from critpath.model import PathSet

_WINDOWS: Final = "windows:"


def elsewhere(recording: Path, settings: ExtractSettings, here: str) -> Iterator[PathSet]:
    """Extract a recording where the user's current directory is another; say its given name."""
    near = str(recording)
    far = str(Path(here) / near)
    names = {far: near}
    given = settings.specification or ""
    if given.startswith(_WINDOWS):
        file = str(Path(here) / given.removeprefix(_WINDOWS))
        names[file] = given.removeprefix(_WINDOWS)
        settings = replace(settings, specification=_WINDOWS + file)

    def named(text: str) -> str:
        for there, given_name in names.items():
            text = text.replace(there, given_name)
        return text

    try:
        for paths in extract_recording(Path(far), settings):
            yield _named(paths, named)
    except CritpathError as error:
        do = named(error.do)
        if error.exit_code == EXIT_UNREADABLE:
            do += "; workers need it under the same name"
        raise Failure(error.exit_code, named(error.what), do).error() from error


def _named(paths: PathSet, named: Callable[[str], str]) -> PathSet:
    executions = paths.executions
    return replace(
        paths,
        executions=replace(executions, notes=tuple(map(named, executions.notes))),
        sources=tuple(map(named, paths.sources)),
        specification=named(paths.specification),
        losses=tuple(replace(loss, reason=named(loss.reason)) for loss in paths.losses),
        environment=tuple(
            {key: named(value) if isinstance(value, str) else value for key, value in e.items()}
            for e in paths.environment
        ),
        warnings=tuple(map(named, paths.warnings)),
    )
