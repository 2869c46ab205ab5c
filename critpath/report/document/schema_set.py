"""The shape of one of a comparison's two sets, with what every key means."""

from __future__ import annotations

from typing import Any, Final

from critpath.report.document.shapes import NONE, TEXTS, Field, Named, fields

_PLACE = {
    **fields(
        int,
        ("begin", "begin of the time that the loss may lie in, in ns of the trace's clock"),
        ("end", "end of that time"),
        ("host", "which of the traced hosts, counted from 0"),
        ("cpu", "on which processor, -1 if that is not known"),
        ("events", "events lost there"),
        ("packets", "packets lost there"),
    ),
    "reason": Field(str, "how it is known"),
}

_LOSS = {
    **fields(
        int,
        ("events", "events that the tracer lost"),
        ("packets", "packets that the tracer lost"),
    ),
    "places": Field([Named("loss_place", _PLACE)], "where, the first of them"),
    "places_left_out": Field(int, "how many places are not listed"),
}

_WINDOW = fields(
    int,
    ("begin", "begin of the first execution, in ns of the trace's clock"),
    ("end", "end of the last execution"),
)

SET: Final[dict[str, Any]] = {
    "sources": Field(TEXTS, "recordings, as they were named"),
    "specification": Field(str, "what an execution is, as --execution says it"),
    "executions": Field(int, "complete executions"),
    "events": Field(int, "events that were read"),
    "window": Field((_WINDOW, NONE), "the time they span, null without executions"),
    **fields(
        TEXTS,
        ("hosts", "names of the hosts"),
        ("kernels", "kernel releases"),
        ("tracers", "tracers and their versions"),
    ),
    **fields(
        TEXTS,
        ("machines", "what was recorded on, where a recorder says it"),
        ("processors", "models of the processors"),
        ("cpus", "how many processors"),
        ("profiles", "which set of events was recorded"),
        ("commands", "what was run; of a baseline the program's name alone"),
        optional=True,
    ),
    "epochs": Field(
        [int], "per source, what to add to a time for ns since 1970; 0 if not known", optional=True
    ),
    "recorded": Field(
        TEXTS, "per source, when its first execution began (UTC); '' if not known", optional=True
    ),
    "loss": Field(Named("loss", _LOSS), "what the tracer lost"),
    "lossy": Field(int, "executions that overlap a loss"),
    "incomplete": Field(int, "executions without a begin or an end, not counted"),
    **fields(
        TEXTS,
        ("notes", "how the executions were found"),
        ("warnings", "what a reader of this set must know"),
    ),
}
