"""Formats of other programs."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.report.exports.alignments import write_alignments, write_trees
    from critpath.report.exports.as_collapsed import collapsed_stacks
    from critpath.report.exports.as_graphml import graphml
    from critpath.report.exports.as_otlp import otlp_spans
    from critpath.report.exports.as_parquet import (
        SKETCH_TABLES,
        SKETCHES,
        segments_parquet,
        sketch_tables,
        slice_tables,
        table_parquet,
        vectors_parquet,
    )
    from critpath.report.exports.as_perfetto import perfetto_trace
    from critpath.report.exports.as_speedscope import speedscope_profiles
    from critpath.report.exports.exported import (
        Exported,
        read_aligned_executions,
        read_all_executions,
    )
else:
    __getattr__ = hand_on(__name__)
