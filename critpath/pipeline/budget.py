"""How much of a recording may be in memory at a time (``--max-memory``)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from critpath.errors import UsageError
from critpath.store import settle

_MIB: Final = 1 << 20
# Below this there is no room for the buffers of the decoders and one small block.
_LEAST: Final = 32 * _MIB
# What writing a row group takes, and reading it back to see that it is whole.
_WRITING: Final = 64 * _MIB
# What a row takes while its block is made, sorted, written and fetched again, and a
# segment while it is walked, accounted for and written: measured, rounded up.
_ROW: Final = 200
_SEGMENT: Final = 400
_FEWEST_ROWS: Final = 1 << 12
# What a process takes by itself varies from one start to the next, with what of its libraries
# the kernel maps at once: what is advised is somewhat more than what is refused.
_SPARE: Final = 8 * _MIB
_ROUND: Final = 16 * _MIB
# Rows of a block where memory does not matter: what sorting them reads and writes, and chunks
# of events beside it, stay in the caches of a core.
ROWS: Final = 1 << 16


@dataclass(frozen=True)
class Budget:
    """How large the pieces are that a recording is read in.

    Attributes
    ----------
    rows : int
        Of a block of timelines.
    segments : int
        Of the paths that are walked together; 0 for no limit.
    alone : int
        Of a path that fits if nothing else does; 0 for no limit.
    carried : int
        Bytes of rows that are kept for executions that are asked for later; 0 for as many
        as is usual.
    spills : bool
        Blocks are kept in a temporary file.
    """

    rows: int = ROWS
    segments: int = 0
    alone: int = 0
    carried: int = 0
    spills: bool = False

    @classmethod
    def within(cls, limit: int) -> Self:
        """Return what fits beside what this process takes now.

        Parameters
        ----------
        limit : int
            Bytes of resident memory for the whole process; 0 for no limit.  One that leaves
            no room to work is exceeded: `require_room` refuses it before.
        """
        if not limit:
            return cls()
        free = max(limit - _itself() - _WRITING, _LEAST)
        rows = max(_FEWEST_ROWS, min(ROWS, free // 3 // _ROW))
        return cls(
            rows,
            max(1, free // 3 // _SEGMENT),
            (free + _WRITING) // _SEGMENT,
            free // 4,
            spills=True,
        )


def least_room() -> int:
    """Return what a process like this one needs at least, in bytes.

    That is what it takes by itself, which differs by 40 MB between two machines and is
    measured therefore, and room to work.
    """
    return _itself() + _WRITING + _LEAST


def require_room(limit: int, jobs: int, least: int | None = None) -> None:
    """Refuse a limit that leaves no room to work, before any work.

    Parameters
    ----------
    limit : int
        Bytes for all jobs together; 0 for no limit.
    jobs : int
    least : int or None
        What `least_room` said, of whom has asked already.

    Raises
    ------
    UsageError
    """
    if not limit:
        return
    if least is None:
        least = least_room()
    if limit < jobs * least:
        more = f" for {jobs} jobs" if jobs > 1 else ""
        enough = f"give at least {_advised(least, jobs) // _MIB}M"
        raise UsageError(
            f"--max-memory {limit / _MIB:g}M is too little{more}",
            enough + (", or --jobs 1" if jobs > 1 else ""),
        )


def too_long(segments: int, budget: Budget) -> tuple[str, ...]:
    """Return what to say where the longest of some paths does not fit by itself."""
    if not 0 < budget.alone < segments:
        return ()
    text = f"an execution of {segments:,} segments was in memory as a whole, whatever --max-memory"
    return (f"{text}: some {segments * _SEGMENT / 1e6:,.0f} MB",)


def _advised(least: int, jobs: int) -> int:
    """Return what will do on the next start as well, as a round number of bytes."""
    return -(-jobs * (least + _SPARE) // _ROUND) * _ROUND


def _itself() -> int:
    """Return what this process takes now, with what writes the paths that it finds."""
    settle()
    return _resident()


def _resident() -> int:
    """Return the bytes of memory that this process has now."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")
