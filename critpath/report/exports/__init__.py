"""Formats of other programs."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.report.exports.as_otlp import otlp_spans
    from critpath.report.exports.as_parquet import (
        SKETCH_TABLES,
        SKETCHES,
        sketch_tables,
        slice_tables,
        table_parquet,
    )
    from critpath.report.exports.exported import (
        Exported,
        read_aligned_executions,
        read_all_executions,
    )
    from critpath.report.exports.formats import ALIGNMENTS, FORMATS, PATHS, WINDOW
else:
    __getattr__ = hand_on(__name__)
