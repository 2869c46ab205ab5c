"""The summary of a finished recording: what it has, what it is worth, what to do next."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from critpath.errors import with_sudo
from critpath.model.recording import MOUNTED
from critpath.schema.parameters.budget import ACCOUNT
from critpath.schema.ways import REQUESTS
from critpath.units import NS_PER_S, format_ns, format_share, plural, safe_text

if TYPE_CHECKING:
    from critpath.model import Gap, Manifest, Run
    from critpath_record import Outcome, Recording, RecordRequest

_FEW = 10  # runs below which the gate can hardly say anything
_SHOWN = 5
# Layers without which paths are as good as ever.
_BESIDE = frozenset({"stacks", "samples", "files"})
_RECORD = "record"  # the verb


def describe_outcome(
    outcome: Outcome,
    request: RecordRequest,
    words: Sequence[str] = ("record",),
) -> Iterator[str]:
    """Yield the lines of the summary; those that must be read begin with ``warning: ``.

    `words`: what stood behind ``critpath``.
    """
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
    yield from _cost(manifest)
    yield from _describe_budget(manifest, outcome.recordings)
    yield from _functions(outcome.recordings[0].directory)
    yield from describe_flaws(manifest, outcome.recordings[0].directory)
    yield from _describe_worth(manifest)
    yield from _describe_next(outcome, request, words)


def _describe_budget(manifest: Manifest, recordings: Sequence[Recording]) -> Iterator[str]:
    """Say what recording under a budget cost, and what was not recorded for it."""
    budget: Any = manifest.overhead
    if not budget:
        return
    if budget.get("counted") is None:
        yield "what recording cost is not known: the recorder did not get to say"
        return
    costs = ", ".join(f"{name} {ns:.0f} ns" for name, ns in budget["events_ns"].items())
    known = f"+-{100 * budget['interval']:.0f} %" if budget["measured"] else "not measured here"
    yield (
        f"recorded under {100 * budget['target']:g} % ({budget['controller']}, of "
        f"{budget['of']}, over {budget['horizon']:g} s); an event costs {costs} ({known})"
    )
    yield (
        f"overhead {100 * budget['counted']:.2f} % counted of {100 * budget['target']:g} %: "
        f"{_judge_budget(budget)}; {_compare_costs(budget['compared'])}; "
        f"worst "
        f"{budget['horizon']:g} s {100 * budget['worst_horizon']:.1f} %, worst cpu "
        f"{100 * budget['worst_cpu']['overhead']:.1f} %; while open "
        f"{100 * budget['while_open']:.1f} %"
    )
    span = max(manifest.end - manifest.begin, 1) / NS_PER_S
    for name, of in (budget.get("layers") or {}).items():
        if name in _BESIDE:
            yield f"{name} were taken in {format_share(of['open'] / span)} of the time"
    for kind, of in budget["executions"].items():
        yield (
            f"runs: {of['selected']:,} of {of['seen']:,} recorded whole: {safe_text(kind)}"
            + (f" ({of['cut']:,} given up)" if of.get("cut") else "")
            + (f"; {of['bystanders']:,} more by the way" if of.get("bystanders") else "")
            + _describe_pressure((budget.get("felt") or {}).get(kind))
        )
    first = recordings[0].directory / manifest.gaps_file
    with contextlib.suppress(OSError, ValueError, KeyError):
        gaps = [json.loads(line) for line in first.read_text(encoding="ascii").splitlines()]
        base = [gap["end"] - gap["begin"] for gap in gaps if gap["layer"] == "base"]
        yield (
            f"{plural(len(base), 'gap')}, {format_ns(sum(base))} in all: not recorded, never "
            "crossed by a path"
        )


def _judge_budget(budget: Any) -> str:
    """Say whether a budget held: by one figure, what was counted over what was allowed."""
    used = budget.get("used", budget["counted"] / budget["target"])
    return "the budget held" if used <= ACCOUNT.held else f"{used:.1f} times the budget"


def _functions(directory: Path) -> Iterator[str]:
    """Say what of the command's functions was recorded, and which were left out for a time."""
    try:
        found = json.loads((directory / "functions.json").read_bytes())
    except (OSError, ValueError):
        return
    functions, each = found["functions"], found["event_ns"]
    cost = f", {each:.0f} ns each" if each else ""
    off = [f"{f['name']} ({f['file']}:{f['line']})" for f in functions if "switched_off" in f]
    said = f"{plural(len(functions), 'function')}, {plural(found['events'], 'event')} of them{cost}"
    if off:
        named = ", ".join(map(safe_text, off[:_SHOWN])) + ", ..." * (len(off) > _SHOWN)
        said += f"; too hot to be recorded all the time: {named}"
    yield said


def _compare_costs(compared: Any) -> str:
    if not compared:
        return "not compared (fewer than 30 pairs, or of either side, or the gate never closed)"
    low, high = (100 * compared[key] for key in ("low", "high"))
    said = f"{100 * compared['overhead']:.1f} % ({low:.1f} to {high:.1f}) "
    pairs = plural(compared["pairs"], "pair")
    if compared["by"] == "time slices":
        return f"{said}compared with the time in between, by time slices of {pairs}"
    return f"{said}a recorded run, by the cpu time of {plural(compared['pairs'], 'run')} and others"


def _describe_pressure(felt: Any) -> str:
    if not felt:
        return ""
    from critpath.text import notes  # noqa: PLC0415 - start-up time

    return f"; {notes.recorded_took(felt['slowdown'], felt['low'], felt['high'])}"


def describe_flaws(manifest: Manifest, place: Path) -> Iterator[str]:
    """Say what was lost, and what else the recorder noted."""
    yield from _loss(manifest)
    for gap in manifest.gaps[:_SHOWN]:
        yield f"warning: {_gap(gap, manifest)}"
    if len(manifest.gaps) > _SHOWN:
        yield f"warning: and {plural(len(manifest.gaps) - _SHOWN, 'more gap')} like these"
    for text in manifest.warnings[:_SHOWN]:
        yield text if text.startswith(MOUNTED) else f"warning: {text}"
    if len(manifest.warnings) > _SHOWN:
        more = len(manifest.warnings) - _SHOWN
        yield f"warning: {plural(more, 'more warning')} in {place}/critpath.json"


def _contents(manifest: Manifest) -> str:
    span = format_ns(manifest.end - manifest.begin)
    if not manifest.command:
        marks = _count_marks(manifest)
        # None is worth a word only where executions are to be what is marked.
        seen = marks > 0 or (marks == 0 and manifest.execution.partition(",")[0] == "marker")
        return f"{span} of the whole machine" + (f", {plural(marks, 'mark')} seen" if seen else "")
    runs = manifest.runs
    if not runs:
        return "no run"
    # How long each took is in the trace: the recorder sees a run end when it is woken for that.
    return f"{plural(len(runs), 'run')} in {span}"


def _odd_runs(manifest: Manifest) -> Iterator[str]:
    runs = manifest.runs
    of = f"of {plural(len(runs), 'run')}"
    failed = [run for run in runs if run.exit_code and run.whole]
    if failed:
        codes = ", ".join(str(code) for code in sorted({run.exit_code for run in failed}))
        yield f"warning: {len(failed)} {of} failed (exit code {codes})"
    late = sum(run.timed_out for run in runs)
    if late:
        what = f"{late} {of} reached the timeout of {manifest.timeout:g} s"
        yield f"warning: {what}: compare leaves them out"
    if any(run.interrupted for run in runs):
        yield "warning: the run that was interrupted does not count: compare leaves it out"
    left = [run for run in runs if run.outlived]
    if left:
        yield _describe_outlived(left, of)


def _describe_outlived(left: list[Run], of: str) -> str:
    return (
        f"warning: {len(left)} {of} left processes running "
        f"({sum(run.outlived for run in left)} in all); they may disturb the runs after them"
    )


def _trace(manifest: Manifest) -> str:
    if manifest.counts and manifest.recorder.get("name") == "counts":
        return f"{plural(_lines(manifest), 'interval')} counted"
    count = manifest.recorder.get("event_count")
    return plural(count, "event") if isinstance(count, int) else "the trace"


def _lines(manifest: Manifest) -> int:
    lines = manifest.counts.get("lines")
    return lines if isinstance(lines, int) else 0


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
    yield "warning: runs during a loss cannot be judged; compare will not"


def _cost(manifest: Manifest) -> Iterator[str]:
    """Say what share of the machine recording it took."""
    summary = manifest.machine.get("summary")
    own = summary.get("recorder_cpu") if isinstance(summary, dict) else None
    if isinstance(own, int):
        yield f"recording cost {own / 10_000:.1f} % of the machine's cpu time"


def _gap(gap: Gap, manifest: Manifest) -> str:
    cpu = f" on cpu {gap.cpu}" if gap.cpu >= 0 else ""
    since, span = format_ns(gap.begin - manifest.begin), format_ns(gap.end - gap.begin)
    return f"not everything was recorded{cpu} for {span}, {since} after the begin: {gap.what}"


def _describe_worth(manifest: Manifest) -> Iterator[str]:
    """Say what a number of runs can show."""
    if manifest.recorder.get("name") == "counts":
        return
    runs = len(manifest.runs)
    if manifest.command and runs < _FEW:
        yield (
            f"{plural(runs, 'run')} can hardly tell a change from chance: "
            "record 30 or more with -n 30"
        )
    elif manifest.command and manifest.end - manifest.begin > 3600 * NS_PER_S:
        yield "over an hour: --interleave keeps a slow drift of the machine out of the comparison"


def _describe_next(outcome: Outcome, request: RecordRequest, words: Sequence[str]) -> Iterator[str]:
    """Say the very next command, to be copied; `words` asked for this recording."""
    places = [shlex.quote(str(recording.directory)) for recording in outcome.recordings]
    manifest = outcome.recordings[0].manifest
    if manifest.recorder.get("name") == "counts":
        yield f"next: critpath signature {' '.join(places)}"
        return
    if len(places) > 1:
        yield f"next: critpath compare {' '.join(places)}"
        return
    other = str(request.output.with_name("other" if request.output.name != "other" else "sample"))
    compare = f"critpath compare {places[0]} {shlex.quote(other)}"
    if not manifest.execution and _count_marks(manifest) <= 0:
        yield (
            "nothing there says what a run is: the next command takes each process, from "
            f"start to end; --profile {REQUESTS} records what servers are asked"
        )
        compare += " --execution process"
    elif not manifest.command:
        yield f"what its slow ones have in common: critpath explore {places[0]}"
    yield f"next, in the other state: {_repeat(request, words, other)} && {compare}"


def _count_marks(manifest: Manifest) -> int:
    """Return how many marks of programs were seen, -1 where that is not known."""
    marks = manifest.recorder.get("marks")
    return marks if isinstance(marks, int) else -1


def _repeat(request: RecordRequest, words: Sequence[str], other: str) -> str:
    """Return the line that records once more as these words did, into another directory."""
    command = list(request.commands[0]) if request.commands else []
    has_it = bool(command) and list(words[-len(command) :]) == command
    options = iter(words[: len(words) - len(command)] if has_it else words)
    kept = []
    for word in options:
        if word in {"-o", "--output"}:
            next(options, None)
        elif word != "--force" and not re.match("-o.|--output=", word):
            kept.append(word)
    at = kept.index(_RECORD) + 1 if _RECORD in kept else 0
    line = shlex.join(["critpath", *kept[:at], "-o", other, *kept[at:], *command])
    if "SUDO_UID" not in os.environ:
        return line
    return with_sudo(line.removeprefix("critpath "))
