"""Makes a trace of the raw data that a recorder left when it was killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from critpath.errors import CritpathError
from critpath.record.ftrace import raw as raws
from critpath.record.ftrace.convert import Converted, convert
from critpath.record.ftrace.leftovers import holds_more
from critpath.record.recorder import Recorded

TRACE: Final = "trace"
FORMAT: Final = "ctf-1.8"

_CONTEXTS: Final = ("tid", "common_flags")


def finish_raw(directory: Path, tell: Callable[[str], None]) -> Recorded | None:
    """Convert what a dead recorder left in ``raw/`` into ``trace/``.

    Parameters
    ----------
    directory : Path
        The recording.
    tell : callable

    Returns
    -------
    Recorded or None
        None where recording had not begun.

    Raises
    ------
    CritpathError
        If nothing can be made of it; it is then as it was.
    """
    raw, trace = directory / raws.RAW, directory / TRACE
    if not raw.is_dir():
        raws.discard(directory)
        # The trace was put there by somebody, or there was nothing yet.
        made = any(trace.glob("*/metadata"))
        return Recorded(facts={"name": "ftrace", "format": FORMAT}) if made else None
    if not raws.is_described(raw):
        raws.discard(directory)
        return None
    description = raws.read_description(raw)
    if holds_more(str(description.get("session"))):
        raise CritpathError(
            f"the kernel still holds a part of what belongs to {raw}",
            "make room there, then: critpath doctor --clean",
        )
    # Cpus that came while it was recorded have a file only.
    with_files = {int(p.name[3:]) for p in raw.glob("cpu*") if p.name[3:].isdecimal()}
    if not with_files <= {*description.get("cpus", [])}:
        description["cpus"] = sorted(with_files | {*description.get("cpus", [])})
        raws.write_description(raw, description)
    if trace.is_dir() and not trace.is_symlink():
        # Killed between the trace and its end: the same trace is made again.
        shutil.rmtree(trace)
    raws.give_room(raw)
    converted = convert(raw, trace, tell)
    return Recorded(
        loss=converted.loss,
        facts=recorder_facts(description, converted),
        warnings=converted.warnings,
        release=partial(raws.discard, directory),
        end=converted.end,
    )


def recorder_facts(description: Mapping[str, object], converted: Converted) -> dict[str, object]:
    """Return what a manifest says of its recorder.

    ``event_count`` is what the kernel recorded, without what conversion adds to the trace:
    the loss is a share of it.
    """
    recorder = description.get("recorder")
    return {
        "name": "ftrace",
        "version": recorder.get("version", "") if isinstance(recorder, dict) else "",
        "events": list(converted.names),
        "event_count": converted.recorded,
        "missing": description.get("missing", []),
        "contexts": list(_CONTEXTS),
        "buffer_bytes": description.get("buffer_bytes", 0),
        "format": FORMAT,
        "clock": {"name": "monotonic", "epoch": description.get("epoch", 0)},
        "tracefs": description.get("tracefs", ""),
    }
