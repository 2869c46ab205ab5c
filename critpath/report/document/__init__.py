"""The answer as plain data, its shape, and both as JSON."""

from critpath.doors import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from critpath.report.document.as_json import load_document, to_json, to_plain
    from critpath.report.document.comparison import comparison_document
    from critpath.report.document.exploration import exploration_document
    from critpath.report.document.path import (
        path_document,
        summarize_code,
        summarize_paths,
        write_paths,
    )
    from critpath.report.document.redaction import redact
else:
    __getattr__ = hand_on(__name__)
