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
    from critpath.model.comparison import Analysis, CompareSettings, ExtractSettings
    from critpath.model.events import Clock, EventChunk, EventClass, EventRequest, Events, Loss
    from critpath.model.findings import (
        LETTERS,
        Aligned,
        Alignment,
        Cause,
        Charge,
        ColumnStatistics,
        Context,
        Finding,
        Loop,
        Member,
        Reason,
        Step,
        label_duration,
    )
    from critpath.model.grounds import Ground, Weight
    from critpath.model.judgement import (
        Affected,
        Change,
        Clustering,
        ClusterPairs,
        Detection,
        Outliers,
        Rival,
    )
    from critpath.model.packing import PackedBlock
    from critpath.model.paths import (
        MOST_TIME,
        CriticalPaths,
        Executions,
        PackedPaths,
        PathSet,
        Piece,
        StoredPaths,
        join_paths,
        join_stored,
    )
    from critpath.model.recording import (
        COMPLETE,
        INTERRUPTED,
        MANIFEST,
        MANIFEST_FORMAT,
        RECORDING,
        CpuLoss,
        Gap,
        Manifest,
        ReachedLimit,
        Run,
        Script,
        StreamFacts,
        summarize_machine,
    )
    from critpath.model.requests import (
        LINK_KINDS,
        Act,
        Activity,
        Certainty,
        Collected,
        Endpoints,
        Links,
        Passed,
        RequestAccount,
        RequestFacts,
        RequestTable,
        Rule,
        Slices,
        Subrequests,
        join_facts,
    )
    from critpath.model.signatures import Counts, Signatures
    from critpath.model.table import (
        F64,
        I32,
        I64,
        U8,
        Bool,
        Column,
        Rows,
        Table,
        Whole,
        freeze_columns,
    )
    from critpath.model.timelines import (
        Block,
        BlockList,
        Blocks,
        BlockStore,
        FunctionSpans,
        OpenColumns,
        ReplayedRecording,
        Resources,
        Timelines,
        Workers,
        make_single_block,
        open_filled,
    )
    from critpath.model.vectors import (
        ChainTimes,
        Symbol,
        VectorTable,
        excess_over_types,
        identifiers,
        number_codes,
        role_name,
    )
    from critpath.schema.kinds import (
        INTERFERENCE,
        LOCAL_PACKET,
        REMOTE_PACKET,
        RUNNING,
        STATES,
        Kind,
        State,
        is_recorder,
    )

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "comparison": ("CompareSettings", "Analysis", "ExtractSettings"),
    "grounds": ("Ground", "Weight"),
    "judgement": (
        *("Affected", "Change", "ClusterPairs", "Clustering", "Detection", "Outliers", "Rival"),
    ),
    "events": ("Clock", "EventChunk", "EventClass", "EventRequest", "Events", "Loss"),
    "findings": (
        *("Aligned", "Alignment", "Cause", "Charge", "ColumnStatistics", "Context"),
        *("Finding", "LETTERS", "Loop", "Member", "Reason", "Step", "label_duration"),
    ),
    "kinds": (
        *("INTERFERENCE", "Kind", "LOCAL_PACKET", "REMOTE_PACKET", "RUNNING", "STATES", "State"),
        "is_recorder",
    ),
    "packing": ("PackedBlock",),
    "paths": (
        *(
            "CriticalPaths",
            "Executions",
            "MOST_TIME",
            "PackedPaths",
            "PathSet",
            "Piece",
            "StoredPaths",
        ),
        *("join_paths", "join_stored"),
    ),
    "recording": (
        *("COMPLETE", "INTERRUPTED", "MANIFEST", "MANIFEST_FORMAT", "RECORDING"),
        *("CpuLoss", "Gap", "Manifest", "ReachedLimit", "Run", "Script"),
        "StreamFacts",
        "summarize_machine",
    ),
    "requests": (
        *(
            "Act",
            "Activity",
            "Certainty",
            "Collected",
            "Endpoints",
            "LINK_KINDS",
            "Links",
            "Passed",
            "RequestAccount",
            "RequestFacts",
        ),
        *("RequestTable", "Rule", "Slices", "Subrequests", "join_facts"),
    ),
    "signatures": ("Counts", "Signatures"),
    "table": (
        *("Bool", "Column", "F64", "I32", "I64", "Rows", "Table", "U8", "Whole"),
        "freeze_columns",
    ),
    "timelines": (
        *("Block", "BlockList", "BlockStore", "Blocks", "OpenColumns", "ReplayedRecording"),
        *("FunctionSpans", "Resources", "Timelines", "Workers", "make_single_block", "open_filled"),
    ),
    "vectors": (
        *("ChainTimes", "Symbol", "VectorTable"),
        *("excess_over_types", "identifiers", "number_codes", "role_name"),
    ),
}
_HOMES: Final = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'critpath.model' has no attribute {name!r}")
    home = "schema.kinds" if _HOMES[name] == "kinds" else f"model.{_HOMES[name]}"
    value = getattr(import_module(f"critpath.{home}"), name)
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
    "LINK_KINDS",
    "LOCAL_PACKET",
    "MANIFEST",
    "MANIFEST_FORMAT",
    "MOST_TIME",
    "RECORDING",
    "REMOTE_PACKET",
    "RUNNING",
    "STATES",
    "U8",
    "Act",
    "Activity",
    "Affected",
    "Aligned",
    "Alignment",
    "Analysis",
    "Block",
    "BlockList",
    "BlockStore",
    "Blocks",
    "Bool",
    "Cause",
    "Certainty",
    "ChainTimes",
    "Change",
    "Charge",
    "Clock",
    "ClusterPairs",
    "Clustering",
    "Collected",
    "Column",
    "ColumnStatistics",
    "CompareSettings",
    "Context",
    "Counts",
    "CpuLoss",
    "CriticalPaths",
    "Detection",
    "Endpoints",
    "EventChunk",
    "EventClass",
    "EventRequest",
    "Events",
    "Executions",
    "ExtractSettings",
    "Finding",
    "FunctionSpans",
    "Gap",
    "Ground",
    "Kind",
    "Links",
    "Loop",
    "Loss",
    "Manifest",
    "Member",
    "OpenColumns",
    "Outliers",
    "PackedBlock",
    "PackedPaths",
    "Passed",
    "PathSet",
    "Piece",
    "ReachedLimit",
    "Reason",
    "ReplayedRecording",
    "RequestAccount",
    "RequestFacts",
    "RequestTable",
    "Resources",
    "Rival",
    "Rows",
    "Rule",
    "Run",
    "Script",
    "Signatures",
    "Slices",
    "State",
    "Step",
    "StoredPaths",
    "StreamFacts",
    "Subrequests",
    "Symbol",
    "Table",
    "Timelines",
    "VectorTable",
    "Weight",
    "Whole",
    "Workers",
    "excess_over_types",
    "freeze_columns",
    "identifiers",
    "is_recorder",
    "join_facts",
    "join_paths",
    "join_stored",
    "label_duration",
    "make_single_block",
    "number_codes",
    "open_filled",
    "role_name",
    "summarize_machine",
]
