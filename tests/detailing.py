"""Details of drawn paths, by the texts that people read."""

from __future__ import annotations

from dataclasses import replace

from critpath.model import CriticalPaths
from critpath.model.details import read_details, word_detail


def detailed(paths: CriticalPaths) -> CriticalPaths:
    """Return paths whose details are codes of strings with those that the texts mean."""
    detail, details = read_details(paths.state, paths.detail, paths.strings)
    return replace(paths, detail=detail, details=details)


def texts_of(paths: CriticalPaths) -> list[str]:
    """Return the text of every segment's detail."""
    return [word_detail(paths.details[code]) for code in paths.detail.tolist()]
