"""What processes that read at the same time share: processors and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from critpath.pipeline.budget import least_room, require_room
from critpath.pipeline.engines import jobs_for
from critpath.pipeline.extraction import ExtractSettings
from critpath.pipeline.machine import usable_cores


def jobs_within(jobs: int | None, recordings: Sequence[Path], settings: ExtractSettings) -> int:
    """Return how many processes read some recordings.

    Parameters
    ----------
    jobs : int or None
        As many as asked for; None for as many as pay and there is memory for.
    recordings : sequence of Path
    settings : ExtractSettings

    Raises
    ------
    UsageError
        If there is not enough memory for them.
    """
    limit = settings.max_memory
    count = jobs_for(jobs, recordings, limit)
    if not recordings or not limit:
        return count
    # Once: a second look may find more, and refuse what was chosen by the first.
    least = least_room()
    if jobs is None:
        count = max(1, min(count, limit // least))
    require_room(limit, count, least)
    return count


def share(
    settings: ExtractSettings, count: int, jobs: int | None, *, elsewhere: bool = False
) -> ExtractSettings:
    """Divide what there is among as many as read at the same time.

    Parameters
    ----------
    settings : ExtractSettings
    count : int
        Processes that read, as `jobs_within` has it.
    jobs : int or None
        Processors that they may use, None for all: where there are two for each, one decodes
        what the other will replay.
    elsewhere : bool
        In processes of which it is not known what else they do: no thread is begun there.
    """
    cores = usable_cores() if jobs is None else min(jobs, usable_cores())
    return replace(
        settings,
        max_memory=settings.max_memory // count,
        ahead=cores >= 2 * count and not elsewhere,
    )
