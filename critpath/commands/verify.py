"""``critpath verify``: whether recordings are whole, by everything that can tell."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.commands.declared import option
from critpath.commands.output import Progress, hint
from critpath.commands.settings import Settings
from critpath.commands.sources import check_inputs
from critpath.errors import EXIT_INCONCLUSIVE, EXIT_OK
from critpath.units import format_ns, plural, safe_text

if TYPE_CHECKING:
    from critpath.model import Events, Loss, Manifest

SETTINGS = ("reader", "hosts")

_SHOWN: Final = 20  # places of losses


OPTIONS: Final = (
    option("directories", "DIR", "recordings, directories of them, CTF traces", Path, nargs="+"),
)  # fmt: skip


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Read everything once; return 0 if nothing is missing, 3 otherwise."""
    from critpath.flow import inspect_recording  # noqa: PLC0415 - start-up time
    from critpath.read import find_recordings  # noqa: PLC0415 - start-up time

    check_inputs(arguments.directories)
    quiet = settings["quiet"]
    code = EXIT_OK
    for source in arguments.directories:
        for recording in _take_apart(find_recordings(source)):
            with Progress(quiet=quiet) as tell:
                tell(f"reading {recording}")
                events, manifest, odd = inspect_recording(recording, settings["reader"])
            wrong = [*_missing_runs(events), *_describe_losses(events), *odd]
            print(safe_text(f"{recording}: {_contents(events, manifest)}"))
            for line in (*_describe_gaps(events, manifest), *(wrong or _why_whole(manifest))):
                print(safe_text(f"  {line}"))
            code = EXIT_INCONCLUSIVE if wrong else code
    if code:
        hint("no verdict should rest on what is missing: record again", quiet=quiet)
    return code


def _take_apart(recordings: Iterable[Path]) -> Iterator[Path]:
    """Yield recordings, of a set of hosts each by itself: what is missing its manifest says."""
    from critpath.read import Recording  # noqa: PLC0415 - start-up time

    for recording in recordings:
        hosts = Recording(recording).hosts if recording.is_dir() else ()
        yield from [host.directory for host in hosts] or [recording]


def _contents(events: Events, manifest: Manifest) -> str:
    there = [f"{plural(events.total, 'event')} in {format_ns(events.end - events.begin)}"]
    there += [plural(len(events.streams), "stream")]
    there += [plural(len(manifest.runs), "run")] if manifest.runs else []
    return ", ".join(there)


def _why_whole(manifest: Manifest) -> Iterator[str]:
    """Say what the word rests on."""
    if manifest.streams:
        yield "whole: every stream is as it was recorded, and nothing was lost"
    else:
        yield (
            "nothing is missing as far as the trace itself can tell: no manifest says what "
            "was recorded (a stream's end, or a stream of an idle cpu, may be gone)"
        )


def _describe_gaps(events: Events, manifest: Manifest) -> Iterator[str]:
    """Say what was not recorded, which is no loss."""
    from critpath.model.gaps import BASE  # noqa: PLC0415 - start-up time

    base = events.gaps.of(BASE)
    if len(base):
        time = format_ns(int((base.end - base.begin).sum()))
        yield f"{plural(len(base), 'gap')}, {time} in all: not recorded, and no loss"
    for gap in manifest.gaps[:_SHOWN]:
        yield f"not recorded for {format_ns(max(gap.end - gap.begin, 0))}: {gap.what}"


def _missing_runs(events: Events) -> Iterator[str]:
    for counted in events.environment:
        missing = counted.runs_missing or 0
        if missing > 0:
            total = counted.runs_recorded or 0
            yield f"{missing:,} of {total:,} runs of the command are not in the trace"


def _describe_losses(events: Events) -> Iterator[str]:
    for loss in events.losses[:_SHOWN]:
        yield _describe(loss, events)
    if len(events.losses) > _SHOWN:
        yield plural(len(events.losses) - _SHOWN, "more loss")


def _describe(loss: Loss, events: Events) -> str:
    amount = [plural(loss.events, "event")] if loss.events else []
    amount += [plural(loss.packets, "packet")] if loss.packets else []
    cpu = f"cpu {loss.cpu}, " if loss.cpu >= 0 else ""
    when = f"{format_ns(loss.begin - events.begin)} to {format_ns(loss.end - events.begin)}"
    counted = f"{' and '.join(amount)}, " if amount else ""
    return f"{loss.reason} ({counted}{cpu}from {when})"
