"""Reads a recording's manifest, which may be hostile, and merges it into the events."""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from critpath.errors import UnreadableError
from critpath.model import (
    COMPLETE,
    INTERRUPTED,
    MANIFEST,
    MANIFEST_FORMAT,
    Manifest,
)
from critpath.model.manifest import (
    ManifestError,
    build_manifest,
    take_flag,
    take_list,
    take_object,
    take_text,
    take_whole,
)
from critpath.model.recording import (
    GAPS_FORMAT,
    MANIFEST_BYTES,
    MOUNTED,
    SAMPLE,
    DiskRate,
    ReachedLimit,
)
from critpath.read.traces import find_trace_directories
from critpath.schema.environment import Environment, fit_moments, read_machine
from critpath.units import format_ns, plural, safe_text
from critpath.untrusted import load_json, refuse_damaged

if TYPE_CHECKING:
    from critpath.model import Events
    from critpath.model.clocks import HostClock
    from critpath.read.hosts import HostRecording

_AGAIN: Final = "record again, or give --execution"
_WHOLE: Final = 2**63 - 1
_DUMPED: Final = "lttng_statedump_end"  # in the stream of what there was at the begin
_SHOWN: Final = 5  # gaps that somebody made
_EMPTY: Final = Manifest(COMPLETE, "", (), "", (), {}, "", {}, {}, 0, 0)


def read_manifest(recording: Path) -> Manifest | None:
    """Read and check the manifest of a recording."""
    file = recording / MANIFEST
    if not file.is_file():
        return None
    with refuse_damaged(file, _AGAIN, "not a manifest"):
        with file.open("rb") as stream:
            text = stream.read(MANIFEST_BYTES + 1)
        if len(text) > MANIFEST_BYTES:
            raise ManifestError(f"larger than {MANIFEST_BYTES:,} bytes")
        data = load_json(text)
        if not isinstance(data, dict):
            raise ManifestError("no object")
        version = data.get("format", MANIFEST_FORMAT)
        if version not in (MANIFEST_FORMAT, GAPS_FORMAT):
            raise UnreadableError(
                f"{file}: its format is {version!r:.60}, this critpath reads {GAPS_FORMAT!r}",
                "read it with the critpath that recorded it, or a later one",
            )
        return build_manifest(data)


def open_manifest(
    recording: Path, hosts: Sequence[HostRecording] | None = None
) -> tuple[Manifest, tuple[str, ...]]:
    """Read a recording's manifest, with notes for the user.

    Parameters
    ----------
    recording : Path
    hosts : sequence of HostRecording, optional
        Those of a set, where they are known.

    Returns
    -------
    manifest : Manifest
        An empty one if there is none.
    notes : tuple of str
        One line each.

    Raises
    ------
    UnreadableError
        As `read_manifest`; or if the recorder has not written a trace yet.
    """
    from critpath.read.hosts import note_apart  # noqa: PLC0415 - it imports this

    manifest = read_manifest(recording)
    apart = note_apart(recording)
    if manifest is None:
        common, notes = _open_hosts(recording, hosts)
        return common, (*notes, *([apart] if apart else []))
    return manifest, (
        *([apart] if apart else []),
        *_check_finished(manifest, recording),
        # What the recorder changed then was said then.
        *(text for text in manifest.warnings if not text.startswith(MOUNTED)),
        *_note_unusual_runs(manifest),
        *(
            f"not recorded for {format_ns(max(gap.end - gap.begin, 0))}: {gap.what}"
            for gap in manifest.gaps[:_SHOWN]
        ),
    )


def _open_hosts(
    directory: Path, hosts: Sequence[HostRecording] | None
) -> tuple[Manifest, tuple[str, ...]]:
    """Return what the recordings of a set of hosts have in common; an empty manifest otherwise."""
    from critpath.read.hosts import find_hosts, note_hosts  # noqa: PLC0415 - it imports this

    known = find_hosts(directory) if hosts is None else hosts
    opened = [(host.name, *open_manifest(host.directory)) for host in known]
    said = note_hosts(directory) if opened else ""
    notes = [said] if said else []
    notes += [f"{safe_text(name)}: {note}" for name, _, found in opened for note in found]
    profiles = {manifest.profile for _, manifest, _ in opened}
    executions = {manifest.execution for _, manifest, _ in opened}
    common = replace(
        _EMPTY,
        profile=profiles.pop() if len(profiles) == 1 else "",
        execution=executions.pop() if len(executions) == 1 else "",
    )
    return common, tuple(notes)


def add_host_losses(
    events: Events, manifests: Mapping[str, Manifest], clocks: Sequence[HostClock]
) -> Events:
    """Add what the manifests of several hosts say was lost, in the reference's time."""
    for number, name in enumerate(events.hosts):
        manifest = manifests.get(name)
        clock = next((of for of in clocks if of.host == name), None)
        if manifest is None or clock is None:
            continue
        mine = replace(events, losses=tuple(x for x in events.losses if x.host == number))
        had = len(mine.losses)
        new = (replace(x, host=number) for x in add_counted_losses(mine, manifest).losses[had:])
        events = replace(events, losses=(*events.losses, *new))
    return events


def _check_finished(manifest: Manifest, recording: Path) -> tuple[str, ...]:
    if manifest.state == COMPLETE:
        return ()
    if manifest.state == INTERRUPTED:
        return (f"{recording}: its recorder was interrupted: the end may be missing",)
    if not find_trace_directories(recording):
        raise UnreadableError(
            f"{recording}: its recorder has not finished it",
            "wait for it; if it is dead: critpath doctor --clean finishes the recording",
        )
    return (f"{recording}: its recorder has not finished it: the end may be missing",)


_FUNCTIONS: Final = "functions.json"
_FUNCTIONS_FORMAT: Final = "critpath/functions/1"
_SHORTER: Final = 120  # letters of a function's name and of its file's that are shown


def find_functions(recording: Path) -> tuple[dict[int, str], list[int]]:
    """Return the functions of a recording by number, ``handle (app/views.py:17)``.

    Parameters
    ----------
    recording : Path

    Returns
    -------
    names : dict of int to str
        Empty where none are listed.
    project : list of int
        Those that are of the recorded project itself.

    Raises
    ------
    UnreadableError
        If the list is malformed.
    """
    file = recording / _FUNCTIONS
    if not file.is_file():
        return {}, []
    names: dict[int, str] = {}
    project = []
    with refuse_damaged(file, _AGAIN, "not a list of functions"):
        data = load_json(file.read_bytes())
        if not isinstance(data, dict) or data.get("format") != _FUNCTIONS_FORMAT:
            raise ManifestError(f"its format is not {_FUNCTIONS_FORMAT!r}")
        for one in take_list(data, "functions"):
            of = take_object(one, "a function")
            name, where = (take_text(of, key)[-_SHORTER:] for key in ("name", "file"))
            number = take_whole(of, "number")
            names[number] = f"{name} ({where}:{take_whole(of, 'line')})"
            if take_flag(of, "project"):
                project.append(number)
    return names, project


def add_manifest(events: Events, manifest: Manifest) -> Events:
    """Add a manifest's losses and circumstances to the events of its recording.

    Returns
    -------
    Events
        With the losses of `add_counted_losses`, those of streams that are no longer as they
        were recorded, and one more ``environment``: what two
        recordings should have in common (`critpath.detect.comparability`).
    """
    cpus = manifest.host.get("cpus")
    told = Environment(
        recorded_on=_known_text(manifest.host.get("name")),
        recorded_cpu=_known_text(manifest.host.get("cpu_model")),
        recorded_cpus=cpus or None if type(cpus) is int else None,
        recorded_profile=manifest.profile or None,
        recorded_session=manifest.session or None,
        recorded_beside=manifest.interleaved or None,
        recorded_command=shlex.join(manifest.command) or None,
        recorded_program=PurePath(manifest.command[0]).name or None if manifest.command else None,
        recorded_blocks=_block_starts(manifest),
        recorded_turns=_turn_starts(manifest),
        recorded_kernel=_mean_of_runs(manifest, "kernel"),
        recorded_faults=_mean_of_runs(manifest, "faults"),
    )
    events = add_counted_losses(events, manifest)
    events = _add_uncounted_events(events, manifest)
    events = _add_machine(events, manifest)
    if manifest.streams:
        from critpath.read.streams import find_changed_streams  # noqa: PLC0415 - numpy

        lost = tuple(find_changed_streams(events, manifest))
        events = replace(events, losses=(*events.losses, *lost)) if lost else events
    if not told.recorded:
        return events
    return replace(events, environment=(*events.environment, told))


def _known_text(value: object) -> str | None:
    return value or None if isinstance(value, str) else None


def _block_starts(manifest: Manifest) -> tuple[int, ...] | None:
    """Return when each block of an interleaved recording begins (ns).

    Begins are those of this recording's own first run in the block, which its executions do
    not precede.
    """
    side = "A" if manifest.interleaved == SAMPLE else "B"
    places = [place for place, which in enumerate(manifest.order) if which == side]
    if not manifest.interleaved or any(not 0 < r.number <= len(places) for r in manifest.runs):
        return None
    starts: dict[int, int] = {}
    for run in sorted(manifest.runs, key=lambda run: run.number):
        starts.setdefault(places[run.number - 1] // manifest.block_runs, run.begin)
    if list(starts) != list(range(len(starts))):  # no recorder writes that
        return None
    return _few_moments(list(starts.values()))


def _turn_starts(manifest: Manifest) -> tuple[int, ...] | None:
    """Return when each run of an interleaved recording begins (ns)."""
    return _few_moments(sorted(r.begin for r in manifest.runs)) if manifest.interleaved else None


def _mean_of_runs(manifest: Manifest, name: str) -> int | None:
    """Return the mean of what was counted of every whole run."""
    counted = [int(getattr(run, name)) for run in manifest.runs if run.whole]
    return round(sum(counted) / len(counted)) if counted and min(counted) >= 0 else None


def _few_moments(begins: list[int]) -> tuple[int, ...] | None:
    """Return moments, if a saved set has room for them."""
    return tuple(begins) if begins and fit_moments(begins) else None


def add_counted_losses(events: Events, manifest: Manifest) -> Events:
    """Add the losses that the tracer counted and the trace does not show.

    Their time is unknown, so each covers the whole recording.
    """
    from critpath.model import Loss  # noqa: PLC0415 - numpy

    found = []
    for counted in manifest.loss:
        seen = [x for x in events.losses if counted.cpu in {-1, x.cpu}]
        missing = max(0, counted.events - sum(x.events for x in seen))
        packets = max(0, counted.packets - sum(x.packets for x in seen))
        if missing or packets:
            reason = "lost at an unknown time"
            found.append(Loss(events.begin, events.end, 0, counted.cpu, missing, packets, reason))
    return replace(events, losses=(*events.losses, *found)) if found else events


def _add_uncounted_events(events: Events, manifest: Manifest) -> Events:
    """Add a loss where streams are gone that the manifest does not list, or not any more.

    Where they are listed, `find_changed_streams` says which of these are gone.
    """
    from critpath.model import Loss  # noqa: PLC0415 - numpy

    recorder, listed = manifest.recorder, [of.events for of in manifest.streams]
    there = sum(listed) if listed else events.total
    count = recorder.get("event_count")
    missing = count - there if type(count) is int and 0 <= count <= _WHOLE else 0
    names = recorder.get("events")
    dumped = recorder.get("name") == "ftrace" and isinstance(names, list) and _DUMPED in names
    reason = ""
    if missing > 0 and min(listed, default=0) >= 0:
        where = "listed" if listed else "in the trace"
        reason = f"{plural(missing, 'event')} of {count:,} that were recorded are not {where}"
    elif dumped and not any(
        "/statedump_" in of.name for of in (*events.streams, *manifest.streams)
    ):
        reason = "stream missing: what threads there were when the recording began"
    if not reason:
        return events
    lost = Loss(events.begin, events.end, 0, -1, max(missing, 0), 0, reason)
    return replace(events, losses=(*events.losses, lost))


def _add_machine(events: Events, manifest: Manifest) -> Events:
    """Add what the machine was like meanwhile."""
    summary = manifest.machine.get("summary")
    measured = {
        key: value
        for key, value in (summary if isinstance(summary, dict) else {}).items()
        if type(value) is int and 0 <= value <= _WHOLE
    }
    if not measured:
        return events
    return replace(events, environment=(*events.environment, read_machine(measured)))


def find_reached_limits(manifest: Manifest) -> tuple[ReachedLimit, ...]:
    """Return which control groups reached a limit, and when; what is malformed is left out."""
    found = manifest.machine.get("limits")
    return tuple(filter(None, map(_reached_limit, found if isinstance(found, list) else [])))


def find_disks(manifest: Manifest) -> dict[int, str]:
    """Return the names of disks by the kernel's number of the device."""
    found = manifest.machine.get("disks")
    result = {}
    for place, name in found.items() if isinstance(found, dict) else ():
        device = re.fullmatch(r"(\d{1,4}):(\d{1,7})", place)
        if device and isinstance(name, str):
            result[int(device[1]) << 20 | int(device[2])] = safe_text(name)
    return result


def find_addresses(manifest: Manifest) -> frozenset[int]:
    """Return the host's own IPv4 addresses as numbers; what is malformed is left out."""
    found = manifest.host.get("addresses")
    result = set()
    for text in found if isinstance(found, list) else []:
        with suppress(ValueError):
            result.add(int(ipaddress.IPv4Address(text)) if isinstance(text, str) else 0)
    return frozenset(result - {0})


def find_bridges(manifests: Iterable[Manifest]) -> dict[str, str]:
    """Return the bridges that devices are ports of, where their namespace has a single one."""
    found: dict[str, set[str]] = {}
    for manifest in manifests:
        bridges: dict[object, set[str]] = {}
        ports = []
        for of in devices if isinstance(devices := manifest.host.get("network"), list) else []:
            name, kind, space = (
                of.get(k) if isinstance(of, dict) else None for k in ("name", "kind", "namespace")
            )
            if not (isinstance(name, str) and isinstance(kind, str) and isinstance(space, int)):
                continue
            if kind == "bridge":
                bridges.setdefault(space, set()).add(name)
            elif kind.startswith("bridged_"):
                ports.append((name, space))
        for name, space in ports:
            found.setdefault(name, set()).update(bridges.get(space, ()))
    return {name: min(of) for name, of in found.items() if len(of) == 1}


def find_device_kinds(manifests: Iterable[Manifest]) -> dict[str, str]:
    """Return the kinds of network devices by name, but of names that several kinds have."""
    kinds: dict[str, set[str]] = {}
    for manifest in manifests:
        found = manifest.host.get("network")
        for of in found if isinstance(found, list) else []:
            name, kind = (of.get(k) if isinstance(of, dict) else None for k in ("name", "kind"))
            if isinstance(name, str) and isinstance(kind, str):
                kinds.setdefault(name, set()).add(kind)
    one = {name: min(of) for name, of in kinds.items() if len(of) == 1}
    return {name: kind for name, kind in one.items() if re.fullmatch("[a-z0-9_]{1,30}", kind)}


def _limited(what: str) -> str | DiskRate:
    """Return what has a limit; of a disk, which is ``MAJOR:MINOR RATE``, by its number."""
    found = re.fullmatch(r"(\d{1,9}):(\d{1,9}) (\w{1,30})", what, re.ASCII)
    return DiskRate(int(found[1]) << 20 | int(found[2]), found[3]) if found else what


def _reached_limit(data: Any) -> ReachedLimit | None:
    def whole(value: object) -> bool:
        return type(value) is int and 0 <= value <= _WHOLE

    try:
        rows = {
            _limited(what): tuple(
                (begin, end, times, time)
                for begin, end, times, time in of
                if all(map(whole, (begin, end, times, time))) and begin < end
            )
            for what, of in data["rows"].items()
        }
        limits = {_limited(of): limit for of, limit in data["limits"].items() if whole(limit)}
        pids = frozenset(pid for pid in data["pids"] if whole(pid))
        return ReachedLimit(take_text(data, "group"), limits, pids, rows)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _note_unusual_runs(manifest: Manifest) -> tuple[str, ...]:
    """Return notes on runs that failed, timed out or left processes behind."""
    runs = manifest.runs
    failed = [run for run in runs if run.exit_code and run.whole]
    codes = ", ".join(map(str, sorted({run.exit_code for run in failed})))
    late = sum(run.timed_out for run in runs)
    outlived = sum(run.outlived for run in runs)
    of_all = f"of {plural(len(runs), 'run')}"
    notes = (
        (len(failed), f"{len(failed)} {of_all} exited with {codes}"),
        (late, f"{late} {of_all} were ended by the timeout"),
        (outlived, f"{plural(outlived, 'descendant')} outlived the command: not followed further"),
    )
    return tuple(text for count, text in notes if count)
