"""Every type that passes between stages, in the order of the pipeline.

Tables are frozen dataclasses of equal-length numpy columns, checked and made
read-only on construction.  Times are int64 nanoseconds since the origin of the
trace's clock (for LTTng: CLOCK_MONOTONIC), named ``begin``, ``end``,
``duration``.  Text from a trace is interned: a column holds int32 or int64
codes into a tuple of strings beside it; code 0 is always ``""``.

A name is imported when it is first asked for: a command that reads one path does not
pay for the types of a comparison.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from critpath.model.alignment import LETTERS, Alignment, Loop, in_doublings
    from critpath.model.blocks import Block, BlockList, Blocks, Opened, filled_in, whole_block
    from critpath.model.calibration import (
        Calibration,
        Detectable,
        FalseAlarms,
        FloorAdvice,
        Missing,
        Rate,
    )
    from critpath.model.clusters import Clustering, ClusterPairs, Outliers
    from critpath.model.columns import F64, I32, I64, U8, Bool, freeze_columns
    from critpath.model.comparison import CompareSettings, Comparison
    from critpath.model.detection import Change, Detection, StateTest
    from critpath.model.events import Clock, EventChunk, EventClass, Events, Loss, Wanted
    from critpath.model.executions import MOST_TIME, Executions
    from critpath.model.findings import Aligned, Cause, ColumnStatistics, Finding
    from critpath.model.kinds import INTERFERENCE, RUNNING, STATES, Kind, State
    from critpath.model.packing import PackedBlock, PackedBlocks
    from critpath.model.paths import CriticalPaths, PathSet, join_paths
    from critpath.model.ranks import mid_ranks
    from critpath.model.recording import (
        COMPLETE,
        INTERRUPTED,
        MANIFEST,
        MANIFEST_FORMAT,
        RECORDING,
        CpuLoss,
        Manifest,
        Run,
    )
    from critpath.model.stored import Piece, StoredPaths, join_stored
    from critpath.model.table import Column, Rows, Table
    from critpath.model.timelines import Timelines, Workers
    from critpath.model.vectors import Symbol, VectorTable, identifiers

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "alignment": ("Alignment", "LETTERS", "Loop", "in_doublings"),
    "blocks": ("Block", "BlockList", "Blocks", "Opened", "filled_in", "whole_block"),
    "calibration": (
        *("Calibration", "Detectable", "FalseAlarms", "FloorAdvice", "Missing", "Rate"),
    ),
    "clusters": ("ClusterPairs", "Clustering", "Outliers"),
    "columns": ("Bool", "F64", "I32", "I64", "U8", "freeze_columns"),
    "comparison": ("CompareSettings", "Comparison"),
    "detection": ("Change", "Detection", "StateTest"),
    "events": ("Clock", "EventChunk", "EventClass", "Wanted", "Events", "Loss"),
    "executions": ("MOST_TIME", "Executions"),
    "findings": ("Aligned", "Cause", "ColumnStatistics", "Finding"),
    "kinds": ("INTERFERENCE", "Kind", "RUNNING", "STATES", "State"),
    "packing": ("PackedBlock", "PackedBlocks"),
    "paths": ("CriticalPaths", "PathSet", "join_paths"),
    "ranks": ("mid_ranks",),
    "recording": (
        *("COMPLETE", "INTERRUPTED", "MANIFEST", "MANIFEST_FORMAT", "RECORDING"),
        *("CpuLoss", "Manifest", "Run"),
    ),
    "stored": ("Piece", "StoredPaths", "join_stored"),
    "table": ("Column", "Rows", "Table"),
    "timelines": ("Timelines", "Workers"),
    "vectors": ("Symbol", "VectorTable", "identifiers"),
}
_HOMES: Final = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'critpath.model' has no attribute {name!r}")
    value = getattr(import_module(f"critpath.model.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


__all__ = [
    "COMPLETE",
    "F64",
    "I32",
    "I64",
    "INTERFERENCE",
    "INTERRUPTED",
    "LETTERS",
    "MANIFEST",
    "MANIFEST_FORMAT",
    "MOST_TIME",
    "RECORDING",
    "RUNNING",
    "STATES",
    "U8",
    "Aligned",
    "Alignment",
    "Block",
    "BlockList",
    "Blocks",
    "Bool",
    "Calibration",
    "Cause",
    "Change",
    "Clock",
    "ClusterPairs",
    "Clustering",
    "Column",
    "ColumnStatistics",
    "CompareSettings",
    "Comparison",
    "CpuLoss",
    "CriticalPaths",
    "Detectable",
    "Detection",
    "EventChunk",
    "EventClass",
    "Events",
    "Executions",
    "FalseAlarms",
    "Finding",
    "FloorAdvice",
    "Kind",
    "Loop",
    "Loss",
    "Manifest",
    "Missing",
    "Opened",
    "Outliers",
    "PackedBlock",
    "PackedBlocks",
    "PathSet",
    "Piece",
    "Rate",
    "Rows",
    "Run",
    "State",
    "StateTest",
    "StoredPaths",
    "Symbol",
    "Table",
    "Timelines",
    "VectorTable",
    "Wanted",
    "Workers",
    "filled_in",
    "freeze_columns",
    "identifiers",
    "in_doublings",
    "join_paths",
    "join_stored",
    "mid_ranks",
    "whole_block",
]
