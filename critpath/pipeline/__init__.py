"""The whole analysis, read top to bottom.

`extract` goes from recordings to critical paths, `compare` from the paths of two
sets to the answer, `calibrate` from those of one set to what a gate on it would do.
Every stage is called here and nowhere else, and imported where it is called: what a
command does not reach costs it nothing at start-up.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from critpath.executions.specification import parse_specification
    from critpath.graph.stacks import mark_own
    from critpath.model import CompareSettings, ExtractSettings
    from critpath.pipeline.baselines import (
        describe_baseline,
        load_saved_paths,
        make_sessions,
        update,
    )
    from critpath.pipeline.calibration import calibrate
    from critpath.pipeline.comparison import compare, note_repaired_switches
    from critpath.pipeline.engines import dask_address, dask_engine
    from critpath.pipeline.exploring import SAMPLE, explore, facts_of
    from critpath.pipeline.extraction import (
        choose_executions,
        thread_paths,
        vectors,
        window,
    )
    from critpath.pipeline.partial import count_chosen
    from critpath.pipeline.recordings import (
        extract,
        extract_dataset,
        extract_each,
        extract_file,
        extract_groups,
        join_sets,
        read_sketches,
        read_slices,
    )
    from critpath.read.hosts import decide_hosts
    from critpath.requests.tiers import sum_tiers
    from critpath.vectors.chains import chain_times

_HOMES: Final = {
    **dict.fromkeys(("parse_specification",), "critpath.executions.specification"),
    **dict.fromkeys(("CompareSettings", "ExtractSettings"), "critpath.model"),
    **dict.fromkeys(
        (
            "describe_baseline",
            "load_saved_paths",
            "make_sessions",
            "update",
        ),
        "critpath.pipeline.baselines",
    ),
    **dict.fromkeys(("calibrate",), "critpath.pipeline.calibration"),
    **dict.fromkeys(
        (
            "compare",
            "note_repaired_switches",
        ),
        "critpath.pipeline.comparison",
    ),
    **dict.fromkeys(
        (
            "dask_address",
            "dask_engine",
        ),
        "critpath.pipeline.engines",
    ),
    **dict.fromkeys(("SAMPLE", "explore", "facts_of"), "critpath.pipeline.exploring"),
    **dict.fromkeys(
        (
            "choose_executions",
            "resolve_ids",
            "thread_paths",
            "traces_of",
            "vectors",
            "window",
        ),
        "critpath.pipeline.extraction",
    ),
    **dict.fromkeys(
        (
            "extract",
            "extract_dataset",
            "extract_each",
            "extract_file",
            "extract_groups",
            "join_sets",
            "read_sketches",
            "read_slices",
        ),
        "critpath.pipeline.recordings",
    ),
    **dict.fromkeys(("mark_own",), "critpath.graph.stacks"),
    **dict.fromkeys(("count_chosen",), "critpath.pipeline.partial"),
    **dict.fromkeys(("decide_hosts",), "critpath.read.hosts"),
    **dict.fromkeys(("sum_services",), "critpath.requests.services"),
    **dict.fromkeys(("sum_tiers",), "critpath.requests.tiers"),
    **dict.fromkeys(("chain_times",), "critpath.vectors.chains"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'critpath.pipeline' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


__all__ = [
    "SAMPLE",
    "CompareSettings",
    "ExtractSettings",
    "calibrate",
    "chain_times",
    "choose_executions",
    "compare",
    "count_chosen",
    "dask_address",
    "dask_engine",
    "decide_hosts",
    "describe_baseline",
    "explore",
    "extract",
    "extract_dataset",
    "extract_each",
    "extract_file",
    "extract_groups",
    "facts_of",
    "join_sets",
    "load_saved_paths",
    "make_sessions",
    "mark_own",
    "note_repaired_switches",
    "parse_specification",
    "read_sketches",
    "read_slices",
    "resolve_ids",
    "sum_services",
    "sum_tiers",
    "thread_paths",
    "traces_of",
    "update",
    "vectors",
    "window",
]
