"""The shapes of a path's and of a calibration's document, with what every key means."""

from __future__ import annotations

from typing import Any, Final

from critpath.report.document.schema_comparison import STATE_NAME
from critpath.report.document.shapes import (
    MAYBE,
    NONE,
    NUMBER,
    TEXTS,
    Choice,
    Each,
    Field,
    Items,
    Named,
)
from critpath.report.document.shapes import fields as fields_of

_SEGMENT = {
    **fields_of(
        int,
        ("begin", "when it began, in ns of the trace's clock"),
        ("end", "when it ended: where the next begins"),
        ("tid", "the thread the time was spent on, which need not be the subject"),
    ),
    "comm": Field(str, "name of the thread"),
    "state": Field(STATE_NAME, "what it did"),
    "detail": Field(str, "qualifier of the state"),
}

PATH: Final[dict[str, Any]] = {
    "format": Field(Choice(("critpath/path/1",)), "name and version of this format"),
    "subject": Field(
        {"tid": Field(int, "the thread"), "comm": Field(str, "its name")},
        "whose time the path explains",
    ),
    "execution": Field(str, "id of the execution", optional=True),
    "label": Field(str, "what kind it is, as the trace says; '' if not", optional=True),
    "begin": Field(int, "begin of the window, in ns of the trace's clock"),
    "end": Field(int, "its end"),
    "segments": Field([Named("segment", _SEGMENT)], "in order of time, tiling the window"),
    "totals": Field(Each(int), "ns per state, of those that occur"),
    "unexplained": Field(int, "ns in WAIT_UNEXPLAINED and UNKNOWN"),
    "loss": Field(
        {
            "events": Field(int, "events that the tracer lost within the window"),
            "packets": Field(int, "packets that it lost"),
        },
        "what is missing",
    ),
}

_RATE = {
    "count": Field(int, "comparisons in which it happened"),
    "of": Field(int, "comparisons made"),
    "share": Field(NUMBER, "the one over the other"),
    "low": Field(NUMBER, "lower end of the share's 95 % interval"),
    "high": Field(NUMBER, "upper end of it"),
}

_KIND = Choice(("shuffled", "sessions"))

_ALARMS = {
    "kind": Field(_KIND, "executions of all recordings mixed, or one recording against the others"),
    **fields_of(
        int,
        ("sample", "executions of the sample"),
        ("normal", "executions of the normal set"),
        ("units", "what is independent of each other: splits, or recordings"),
    ),
    "alarms": Field(Named("rate", _RATE), "the verdict is an anomaly"),
    "without_floor": Field((Named("rate", _RATE), NONE), "a p-value reaches the level"),
    "recommended": Field((Named("rate", _RATE), NONE), "alarms with the recommended floor"),
    "marked": Field(Named("rate", _RATE), "an execution is marked as an outlier"),
}

_LACK = {
    "kind": Field(_KIND, "as of the false alarms"),
    **fields_of(
        int,
        ("sample", "size that the recordings are too small for"),
        ("executions", "how many more it needs"),
        ("recordings", "how many more recordings it needs"),
    ),
}

_RECORDING = {
    "source": Field(str, "as it was named"),
    "executions": Field(int, "complete executions"),
    "mean": Field(NUMBER, "their mean duration, another mix of types taken out (ns)"),
}

_FLOOR = {
    "recordings": Field([Named("recording", _RECORDING)], "what was compared"),
    **fields_of(
        MAYBE,
        ("spread", "standard deviation of their means, as a share of the mean duration"),
        ("spread_high", "upper 95 % confidence bound of it"),
        ("expected", "what it would be if they differed by nothing but their executions"),
        ("recommended", "floor that follows, null with fewer than three recordings"),
    ),
    "in_force": Field(NUMBER, "floor that compare uses with these recordings"),
}

_DETECTABLE = {
    "sample": Field(int, "executions of the sample"),
    "normal": Field(int, "executions of the normal set"),
    "kind": Field(
        Choice(("total", "rare", "state", "new")),
        "what becomes longer: everything, a fifth of the executions, a state, a new state",
    ),
    "state": Field(str, "name of the state, '' for the other kinds"),
    "mean": Field(NUMBER, "normal mean of what becomes longer (ns)"),
    "shift": Field(MAYBE, "smallest slow-down that shows four times in five (ns), null for none"),
    "of_total": Field(MAYBE, "that as a share of the mean duration"),
    "of_own": Field(MAYBE, "that as a share of its own mean"),
    "by_floor": Field(bool, "the floor decides: more executions would not show less"),
    "trials": Field(int, "comparisons it was tried on"),
}

CALIBRATION: Final[dict[str, Any]] = {
    "format": Field(Choice(("critpath/calibration/1",)), "name and version of this format"),
    "version": Field(str, "version of critpath that wrote it"),
    "verdict": Field(
        Choice(("calibrated", "alarming")), "whether the level holds for these recordings"
    ),
    "reasons": Field(Items(str, 1), "why, in sentences; the first is the answer"),
    "warnings": Field(TEXTS, "what a reader must know, in sentences"),
    "settings": Field(dict, "the settings in force"),
    "executions": Field(int, "of all recordings"),
    "mean": Field(NUMBER, "their mean duration (ns)"),
    "alpha": Field(NUMBER, "level of the tests"),
    "splits": Field(int, "comparisons asked for, per size and kind"),
    "permutations": Field(int, "of each test"),
    "false_alarms": Field([Named("false_alarms", _ALARMS)], "healthy against healthy executions"),
    "missing": Field([Named("lack", _LACK)], "sizes that the recordings are too small for"),
    "floor": Field(_FLOOR, "what recordings differ by"),
    "detectable": Field([Named("detectable", _DETECTABLE)], "smallest slow-downs that show"),
}
