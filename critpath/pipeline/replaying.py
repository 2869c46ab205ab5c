"""One recording, read as a stream: the few events finders need, and blocks of timelines.

What the replay must know before the first event (losses, whether sched_waking is written
at all, switches that the kernel left out) is known only behind the last one.  So a pass
assumes what is nearly always true, and is repeated with what it has found out where that
was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Protocol

from critpath.executions.digest import Digest
from critpath.model import Events, Kind
from critpath.pipeline.spilling import BlockList, SpilledBlocks

if TYPE_CHECKING:
    from critpath.executions.specification import Specification
    from critpath.model import Blocks, EventChunk, EventClass, Loss, Manifest, Wanted, Workers
    from critpath.read.clocks import Trace

# Rows of a block: some tens of MB, little enough to be sorted within the caches' reach.
ROWS: Final = 1 << 19
# What a row of a block takes while it is made, sorted and written.
_ROW_BYTES: Final = 160
_LEAST_ROWS: Final = 1 << 12
# Losses, waking, system calls and missing switches can each fall once.
_MOST_PASSES: Final = 6
