"""How many switches of a set the kernel did not write: one sentence for all its recordings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from critpath.units import format_share

if TYPE_CHECKING:
    from critpath.model import PathSet

# As for executions that overlap a loss (`critpath.detect.verdict.LOSSY_SHARE`): up to here
# what is put in speaks for a few places, beyond it for the set.
_SMALL: Final = 0.05


def with_switches(paths: PathSet) -> PathSet:
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
    put, written = (
        sum(n for e in paths.environment if isinstance(n := e.get(key), int) and n > 0)
        for key in ("switches_put_in", "switches_written")
    )
    if not put:
        return paths
    share = put / (put + written)
    said = (
        f"the kernel did not write {put:,} of {put + written:,} switches "
        f"({format_share(share)}): they were put in, and times just after a wake are estimates"
    )
    if share > _SMALL:
        return replace(paths, warnings=(*paths.warnings, said))
    notes = (*paths.executions.notes, said)
    return replace(paths, executions=replace(paths.executions, notes=notes))
