"""What recordings of a healthy program say of a gate: what ``critpath calibrate --json`` writes."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from critpath.documents.base import Maybe, Number, Part, Settings, doc
from critpath.units import plural, safe_text

CALIBRATION_FORMAT: Final = "critpath/calibration/1"

SplitKind = Literal["shuffled", "sessions"]
Calibrated = Literal["calibrated", "alarming"]
ShiftKind = Literal["total", "rare", "state", "new"]


class RateEntry(Part):
    """How often something happened in repeated comparisons."""

    count: Annotated[int, doc("comparisons in which it happened")]
    of: Annotated[int, doc("comparisons made")]
    share: Annotated[Number, doc("the one over the other")]
    low: Annotated[Number, doc("lower end of the share's 95 % interval")]
    high: Annotated[Number, doc("upper end of it")]


class FalseAlarmsEntry(Part):
    """Healthy runs compared with healthy ones, at one size."""

    kind: Annotated[
        SplitKind,
        doc("runs of all recordings mixed, or one recording against the others"),
    ]
    sample: Annotated[int, doc("runs of the sample")]
    normal: Annotated[int, doc("runs of the normal set")]
    units: Annotated[int, doc("what is independent of each other: splits, or recordings")]
    alarms: Annotated[RateEntry, doc("the verdict is an anomaly")]
    without_floor: Annotated[RateEntry | None, doc("a p-value reaches the level")]
    recommended: Annotated[RateEntry | None, doc("alarms with the recommended floor")]
    marked: Annotated[RateEntry, doc("a run is marked as an outlier")]


class LackEntry(Part):
    """A size that the recordings are too small for."""

    kind: Annotated[SplitKind, doc("as of the false alarms")]
    sample: Annotated[int, doc("size that the recordings are too small for")]
    executions: Annotated[int, doc("how many more it needs")]
    recordings: Annotated[int, doc("how many more recordings it needs")]


class RecordingEntry(Part):
    """A recording, and how long its runs take."""

    source: Annotated[str, doc("as it was named")]
    executions: Annotated[int, doc("complete runs")]
    mean: Annotated[Number, doc("their mean duration, another mix of types taken out (ns)")]


class FloorEntry(Part):
    """What recordings of one program differ by."""

    recordings: Annotated[list[RecordingEntry], doc("what was compared")]
    spread: Annotated[
        Maybe, doc("standard deviation of their means, as a share of the mean duration")
    ]
    spread_high: Annotated[Maybe, doc("upper 95 % confidence bound of it")]
    expected: Annotated[Maybe, doc("what it would be if they differed by nothing but their runs")]
    recommended: Annotated[Maybe, doc("floor that follows, null with fewer than three recordings")]
    in_force: Annotated[Number, doc("floor that compare uses with these recordings")]


class DetectableEntry(Part):
    """The smallest slowdown that shows, at one size and of one kind."""

    sample: Annotated[int, doc("runs of the sample")]
    normal: Annotated[int, doc("runs of the normal set")]
    kind: Annotated[
        ShiftKind,
        doc("what becomes longer: everything, a fifth of the runs, a state, a new state"),
    ]
    state: Annotated[str, doc("name of the state, '' for the other kinds")]
    mean: Annotated[Number, doc("normal mean of what becomes longer (ns)")]
    shift: Annotated[
        Maybe, doc("smallest slowdown that shows four times in five (ns), null for none")
    ]
    of_total: Annotated[Maybe, doc("that as a share of the mean duration")]
    of_own: Annotated[Maybe, doc("that as a share of its own mean")]
    by_floor: Annotated[bool, doc("the floor decides: more runs would not show less")]
    trials: Annotated[int, doc("comparisons it was tried on")]


class CalibrationDocument(Part):
    """What critpath calibrate --json writes."""

    format: Annotated[Literal["critpath/calibration/1"], doc("name and version of this format")]
    version: Annotated[str, doc("version of critpath that wrote it")]
    verdict: Annotated[Calibrated, doc("whether the level holds for these recordings")]
    reasons: Annotated[
        list[str],
        Meta(min_length=1, description="why, in sentences; the first is the answer"),
    ]
    warnings: Annotated[list[str], doc("what a reader must know, in sentences")]
    settings: Annotated[Settings, doc("the settings in force")]
    executions: Annotated[int, doc("of all recordings")]
    mean: Annotated[Number, doc("their mean duration (ns)")]
    alpha: Annotated[Number, doc("level of the tests")]
    splits: Annotated[int, doc("comparisons asked for, per size and kind")]
    permutations: Annotated[int, doc("of each test")]
    false_alarms: Annotated[list[FalseAlarmsEntry], doc("healthy against healthy runs")]
    missing: Annotated[list[LackEntry], doc("sizes that the recordings are too small for")]
    floor: Annotated[FloorEntry, doc("what recordings differ by")]
    detectable: Annotated[list[DetectableEntry], doc("smallest slowdowns that show")]
    warning_ids: Annotated[list[str], doc("the id of each of `warnings`")] = []

    def __repr__(self) -> str:
        lines = [f"{self.verdict.upper()}: {self.reasons[0] if self.reasons else ''}"]
        lines += self.reasons[1:]
        lines += [f"({plural(self.executions, 'run')}, {plural(self.splits, 'split')} a size)"]
        return "\n".join(map(safe_text, lines))
