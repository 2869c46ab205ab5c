"""``critpath calibrate``: what a gate on these recordings would do."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands.declared import option
from critpath.commands.output import (
    STDOUT,
    Progress,
    check_outputs,
    hint,
    make_console,
    warn,
    write_output,
)
from critpath.commands.settings import (
    COMPARING,
    READING,
    RUNNING,
    Settings,
    as_duration,
    whole,
)
from critpath.commands.sources import check_inputs, extract_sources
from critpath.errors import EXIT_ANOMALY, EXIT_OK

if TYPE_CHECKING:
    from critpath.documents import CalibrationDocument

SETTINGS = (*READING, *RUNNING, *COMPARING)

EXIT_CODES: Final[dict[str, int]] = {"calibrated": EXIT_OK, "alarming": EXIT_ANOMALY}
_SPLITS = 200
_TIME = 300.0  # s


OPTIONS: Final = (
    option("normal", "NORMAL", "known to be good, three or more made at different times are best: "
        "recordings, directories of them, CTF traces, saved paths, baselines", Path, nargs="+"),
    option("--splits", "N", "random divisions into a set before and a set after, for each size "
        f"({_SPLITS})", whole(20, 100_000), _SPLITS),
    option("--time", "TIME", "at most so long is spent: then fewer divisions are judged, and the "
        "answer says how many (default: 5min)", as_duration, _TIME),
    option("--json", "FILE", "write the calibration (- for stdout)"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Calibrate, write what was asked for and return the exit code."""
    check_inputs(arguments.normal)
    check_outputs([arguments.json], arguments.normal)
    calibration = _calibrate(arguments, settings)
    if arguments.json is not None:
        from critpath.report.document import to_json  # noqa: PLC0415 - start-up time

        write_output(arguments.json, to_json(calibration))
    if arguments.json == STDOUT:
        from critpath.schema.notes import Saved  # noqa: PLC0415 - as above

        said = map(Saved, calibration.warning_ids, calibration.warnings)
        warn(said, quiet=settings["quiet"])
    else:
        from critpath.report.text import render_calibration  # noqa: PLC0415 - start-up time

        render_calibration(calibration, make_console())
        if len(calibration.floor.recordings) == 1:
            hint(
                "next: record twice more, at other times, and name all three",
                quiet=settings["quiet"],
            )
    return EXIT_CODES[calibration.verdict]


def _calibrate(arguments: argparse.Namespace, settings: Settings) -> CalibrationDocument:
    from critpath import detect  # noqa: PLC0415 - numpy and the stages
    from critpath.engines import usable_cores  # noqa: PLC0415 - as above

    with Progress(quiet=settings["quiet"]) as progress:
        paths = extract_sources(arguments.normal, settings, progress)
        until = time.monotonic() + arguments.time
        return detect.calibrate(
            paths,
            settings.for_comparing(),
            splits=arguments.splits,
            progress=progress,
            left=lambda: until - time.monotonic(),
            jobs=usable_cores() if settings["jobs"] is None else settings["jobs"],
        )
