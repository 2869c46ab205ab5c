"""Switches that critpath put in: also `path` and `extract` tell of them, which judge nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from critpath.schema.environment import add_counts
from critpath.schema.notes import RepairedSwitches
from critpath.schema.parameters.detect import COMPARABILITY

if TYPE_CHECKING:
    from critpath.model import PathSet


def note_repaired_switches(paths: PathSet) -> PathSet:
    """Return a set that says how many of its switches critpath put in.

    Parameters
    ----------
    paths : PathSet
        Of one or several recordings.

    Returns
    -------
    PathSet
        With a warning, or with a note where these are at most 5 % of all switches; the
        same object if there were none.
    """
    # A trace of anybody's may have such a key with anything as its value.
    put = add_counts(paths.environment, lambda entry: entry.switches_put_in)
    written = add_counts(paths.environment, lambda entry: entry.switches_written)
    if not put:
        return paths
    note = RepairedSwitches(put, put + written)
    if put / (put + written) > COMPARABILITY.lossy:
        return replace(paths, warnings=(*paths.warnings, note))
    executions = replace(paths.executions, notes=(*paths.executions.notes, note))
    return replace(paths, executions=executions)
