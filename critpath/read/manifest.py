"""Reads a recording's manifest, which may come from anybody, and what it knows of loss."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from critpath.errors import UnreadableError
from critpath.model import (
    COMPLETE,
    INTERRUPTED,
    MANIFEST,
    MANIFEST_FORMAT,
    RECORDING,
    CpuLoss,
    Manifest,
    Run,
)
from critpath.model.recording import MANIFEST_BYTES
from critpath.read.recording import trace_directories
from critpath.units import plural
from critpath.untrusted import load_json

if TYPE_CHECKING:
    from critpath.model import Events

_AGAIN: Final = "record again, or give --execution"
_WHOLE: Final = 2**63 - 1
_NONE: Final = Manifest(COMPLETE, "", (), "", (), {}, "", {}, {}, 0, 0)


class _WrongError(ValueError):
    """What is wrong with a manifest."""


def read_manifest(recording: Path) -> Manifest | None:
    """Read and check the manifest of a recording.

    Parameters
    ----------
    recording : Path
        Its directory.

    Returns
    -------
    Manifest or None
        None where there is no manifest.  What a manifest does not say is empty.

    Raises
    ------
    UnreadableError
        If there is one and it is not a manifest, or one of a later format.
    """
    file = recording / MANIFEST
    if not file.is_file():
        return None
    try:
        with file.open("rb") as stream:
            text = stream.read(MANIFEST_BYTES + 1)
        if len(text) > MANIFEST_BYTES:
            raise _WrongError(f"larger than {MANIFEST_BYTES:,} bytes")
        said = load_json(text)
        if not isinstance(said, dict):
            raise _WrongError("no object")
        version = said.get("format", MANIFEST_FORMAT)
        if version != MANIFEST_FORMAT:
            raise UnreadableError(
                f"{file}: its format is {version!r:.60}, this critpath reads {MANIFEST_FORMAT!r}",
                "read it with the critpath that recorded it, or a later one",
            )
        return _manifest(said)
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableError(f"{file}: not a manifest ({error})", _AGAIN) from error


def _manifest(said: Mapping[str, Any]) -> Manifest:
    state = _text(said, "state") or COMPLETE
    if state not in {RECORDING, COMPLETE, INTERRUPTED}:
        raise _WrongError("'state' is none that there is")
    return Manifest(
        state=state,
        session=_text(said, "session"),
        command=_texts(said, "command"),
        execution=_text(said, "execution"),
        runs=tuple(_run(one) for one in _list(said, "runs")),
        recorder=_mapping(said, "recorder"),
        profile=_text(said, "profile"),
        clock=_mapping(said, "clock"),
        host=_mapping(said, "host"),
        begin=_whole(said, "begin"),
        end=_whole(said, "end"),
        loss=tuple(_loss(one) for one in _list(said, "loss")),
        warmup=_whole(said, "warmup"),
        prepare=_text(said, "prepare"),
        timeout=_number(said, "timeout"),
        interleaved=_text(said, "interleaved"),
        container=_whole(said, "container"),
        trace=_text(said, "trace"),
        warnings=_texts(said, "warnings"),
        critpath=_text(said, "critpath"),
    )


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key, "")
    if not isinstance(value, str):
        raise _WrongError(f"{key!r} is not text")
    return value


def _list(said: Mapping[str, Any], key: str) -> list[Any]:
    value = said.get(key, [])
    if not isinstance(value, list):
        raise _WrongError(f"{key!r} is not a list")
    return value


def _texts(said: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = _list(said, key)
    if not all(isinstance(value, str) for value in values):
        raise _WrongError(f"{key!r} is not a list of texts")
    return tuple(values)


def _mapping(said: Mapping[str, Any], key: str) -> Mapping[str, object]:
    value = said.get(key, {})
    if not isinstance(value, dict):
        raise _WrongError(f"{key!r} is not an object")
    return value


def _whole(said: Mapping[str, Any], key: str) -> int:
    value = said.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= _WHOLE:
        raise _WrongError(f"{key!r} is not a whole number")
    return value


def _number(said: Mapping[str, Any], key: str) -> float:
    value = said.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _WrongError(f"{key!r} is not a number")
    return float(value)


def _run(said: Any) -> Run:
    one = _object(said, "a run")
    number, pid, begin, end, code, outlived = (
        _whole(one, key) for key in ("number", "pid", "begin", "end", "exit_code", "outlived")
    )
    late, cut = (_flag(one, key) for key in ("timed_out", "interrupted"))
    return Run(number, pid, begin, end, code, late, outlived, cut)


def _flag(said: Mapping[str, Any], key: str) -> bool:
    value = said.get(key, False)
    if not isinstance(value, bool):
        raise _WrongError(f"{key!r} is neither true nor false")
    return value


def _loss(said: Any) -> CpuLoss:
    one = _object(said, "a loss")
    return CpuLoss(*(_whole(one, key) for key in ("cpu", "events", "packets")))


def _object(said: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(said, dict):
        raise _WrongError(f"{what} is no object")
    return said


def open_manifest(recording: Path) -> tuple[Manifest, tuple[str, ...]]:
    """Read a recording's manifest, and say what a reader of the recording must know.

    Parameters
    ----------
    recording : Path

    Returns
    -------
    manifest : Manifest
        An empty one where there is none.
    notes : tuple of str
        One line each.

    Raises
    ------
    UnreadableError
        As `read_manifest`; or if the recorder has not made a trace yet.
    """
    manifest = read_manifest(recording)
    if manifest is None:
        return _NONE, ()
    return manifest, (*_unfinished(manifest, recording), *manifest.warnings, *_unusual(manifest))


def _unfinished(manifest: Manifest, recording: Path) -> tuple[str, ...]:
    if manifest.state == COMPLETE:
        return ()
    if manifest.state == INTERRUPTED:
        return (f"{recording}: its recorder was interrupted: the end may be missing",)
    if not trace_directories(recording):
        raise UnreadableError(
            f"{recording}: its recorder has not finished it",
            "wait for it; if it is dead: critpath doctor --clean finishes the recording",
        )
    return (f"{recording}: its recorder has not finished it: the end may be missing",)


def with_manifest(events: Events, manifest: Manifest) -> Events:
    """Add what a manifest knows to the events of its recording: losses, environment.

    Returns
    -------
    Events
        With the losses of `with_counted_losses`, and an ``environment`` of its own with
        what two recordings should have in common (`critpath.detect.comparability`).
    """
    said = {
        "recorded_on": manifest.host.get("name"),
        "recorded_cpu": manifest.host.get("cpu_model"),
        "recorded_cpus": manifest.host.get("cpus"),
        "recorded_profile": manifest.profile,
        "recorded_session": manifest.session,
        "recorded_beside": manifest.interleaved,
        "recorded_command": shlex.join(manifest.command),
        "recorded_program": PurePath(manifest.command[0]).name if manifest.command else "",
    }
    plain = {k: v for k, v in said.items() if v and (isinstance(v, str) or type(v) is int)}
    events = with_counted_losses(events, manifest)
    if not plain:
        return events
    return replace(events, environment=(*events.environment, plain))


def with_counted_losses(events: Events, manifest: Manifest) -> Events:
    """Add the losses that the tracer counted and the trace does not show.

    Their place is unknown, so each covers the whole recording.
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


def _unusual(manifest: Manifest) -> tuple[str, ...]:
    """Say what was unusual about the runs of a recording."""
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
