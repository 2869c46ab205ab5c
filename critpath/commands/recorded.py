"""What is said of a recording when it is there: what it has, what it is worth, what next."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from critpath.units import NS_PER_S, format_ns, format_share, plural

if TYPE_CHECKING:
    from critpath.model import Manifest, Run
    from critpath.record.request import Outcome, Request

_FEW = 10  # runs below which the gate can hardly say anything
_SHOWN = 5


def said_of(outcome: Outcome, request: Request) -> Iterator[str]:
    """Yield the lines of the summary; those that must be read begin with ``warning: ``."""
    if not outcome.recordings:
        yield "critpath: ended before there was anything to keep: no recording"
        return
    for recording in outcome.recordings:
        manifest = recording.manifest
        yield f"{recording.directory}: {_contents(manifest)}"
        yield from _odd_runs(manifest)
    manifest = outcome.recordings[0].manifest
    yield f"{_trace(manifest)}, {_bytes(outcome.size)}, recorder {_recorder(manifest)}"
    if manifest.state != "complete":
        yield "warning: the recording was interrupted; only what its manifest lists is in it"
    yield from _loss(manifest)
    for text in manifest.warnings[:_SHOWN]:
        yield f"warning: {text}"
    if len(manifest.warnings) > _SHOWN:
        more = len(manifest.warnings) - _SHOWN
        place = outcome.recordings[0].directory
        yield f"warning: {plural(more, 'more warning')} in {place}/critpath.json"
    yield from _worth(manifest)
    yield _next(outcome, request)


def _contents(manifest: Manifest) -> str:
    span = format_ns(manifest.end - manifest.begin)
    if not manifest.command:
        return f"{span} of the whole machine"
    runs = manifest.runs
    if not runs:
        return "no run"
    times = [run.end - run.begin for run in runs]
    median = format_ns(statistics.median(times))
    if len(runs) == 1:
        return f"1 run, {median}"
    low, high = format_ns(min(times)), format_ns(max(times))
    return f"{plural(len(runs), 'run')}, median {median} ({low} to {high})"


def _odd_runs(manifest: Manifest) -> Iterator[str]:
    runs = manifest.runs
    of = f"of {plural(len(runs), 'run')}"
    failed = [run for run in runs if run.exit_code and run.whole]
    if failed:
        codes = ", ".join(str(code) for code in sorted({run.exit_code for run in failed}))
        yield f"warning: {len(failed)} {of} failed (exit code {codes})"
    late = sum(run.timed_out for run in runs)
    if late:
        yield f"warning: {late} {of} reached the timeout of {manifest.timeout:g} s: no executions"
    if any(run.interrupted for run in runs):
        yield "warning: the run that was interrupted is no execution: compare leaves it out"
    left = [run for run in runs if run.outlived]
    if left:
        yield _outlived(left, of)


def _outlived(left: list[Run], of: str) -> str:
    return (
        f"warning: {len(left)} {of} left processes running "
        f"({sum(run.outlived for run in left)} in all); they may disturb the runs after them"
    )


def _trace(manifest: Manifest) -> str:
    count = manifest.recorder.get("event_count")
    return plural(count, "event") if isinstance(count, int) else "the trace"


def _recorder(manifest: Manifest) -> str:
    version = manifest.recorder.get("version")
    name = str(manifest.recorder.get("name"))
    return f"{name} {version}" if version else name


def _bytes(size: int) -> str:
    amount: float = size
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def _loss(manifest: Manifest) -> Iterator[str]:
    lost = manifest.lost
    packets = sum(loss.packets for loss in manifest.loss)
    if not lost and not packets:
        return
    recorded: Any = manifest.recorder.get("event_count")
    share = (
        f" ({format_share(lost / (lost + recorded))})"
        if isinstance(recorded, int) and lost + recorded
        else ""
    )
    what = f"{plural(lost, 'event')} were lost{share}" if lost else f"{packets} packets were lost"
    used = manifest.recorder.get("buffer_bytes")
    now = f" (it was {_bytes(used)} per cpu)" if isinstance(used, int) and used else ""
    yield f"warning: {what}: record again with a larger --buffer-size{now}"
    yield "warning: executions during a loss cannot be judged; compare will not"


def _worth(manifest: Manifest) -> Iterator[str]:
    """Say what a number of runs can show."""
    runs = len(manifest.runs)
    if manifest.command and runs < _FEW:
        yield (
            f"{plural(runs, 'run')} can hardly tell a change from chance: "
            "record 30 or more with -n 30"
        )
    elif manifest.command and manifest.end - manifest.begin > 3600 * NS_PER_S:
        yield "over an hour: --interleave keeps a slow drift of the machine out of the comparison"


def _next(outcome: Outcome, request: Request) -> str:
    places = [shlex.quote(str(recording.directory)) for recording in outcome.recordings]
    if len(places) > 1:
        return f"next: critpath compare {' '.join(places)}"
    other = "other" if request.output.name != "other" else "sample"
    said = bool(request.commands or request.execution or request.container)
    return (
        f"next: record the other state with -o {other}, then: critpath compare {places[0]} {other}"
        + " (--execution SPEC where nothing there is marked by critpath)" * (not said)
    )
