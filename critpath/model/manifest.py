"""A recording's manifest as its document has it, which may be hostile: each value is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import PurePosixPath
from typing import Any, Final

from critpath.model.containers import MOST_GROUPS, ControlGroup
from critpath.model.recording import (
    COMPLETE,
    FORMER_BLOCK_RUNS,
    INTERRUPTED,
    RECORDING,
    CpuLoss,
    Gap,
    Manifest,
    Run,
    Script,
    StreamFacts,
)

_HEXADECIMAL: Final = frozenset("0123456789abcdef")
_DEEPEST: Final = 4  # technical: directories of a file's name below a recording
_WHOLE: Final = 2**63 - 1  # technical: of a signed word


class ManifestError(ValueError):
    """A malformed manifest."""


def build_manifest(data: Mapping[str, Any]) -> Manifest:
    """Return the manifest that a document is; raises ManifestError."""
    state = take_text(data, "state") or COMPLETE
    # By the recorder that made them in a file of their own, or by one that noticed them.
    made = isinstance(data.get("gaps"), str)
    if state not in {RECORDING, COMPLETE, INTERRUPTED}:
        raise ManifestError("'state' is none that there is")
    return Manifest(
        state=state,
        session=take_text(data, "session"),
        command=_texts(data, "command"),
        execution=take_text(data, "execution"),
        runs=tuple(parse_run(one) for one in take_list(data, "runs")),
        recorder=_mapping(data, "recorder"),
        profile=take_text(data, "profile"),
        clock=_mapping(data, "clock"),
        host=_mapping(data, "host"),
        begin=take_whole(data, "begin"),
        end=take_whole(data, "end"),
        loss=tuple(_loss(one) for one in take_list(data, "loss")),
        streams=tuple(_stream(one) for one in take_list(data, "streams")),
        gaps=() if made else tuple(_gap(one) for one in take_list(data, "gaps")),
        gaps_file=take_text(data, "gaps") if made else "",
        overhead=_overhead(data),
        machine=_mapping(data, "machine"),
        warmup=take_whole(data, "warmup"),
        prepare=take_text(data, "prepare"),
        timeout=_number(data, "timeout"),
        interleaved=take_text(data, "interleaved"),
        order=take_text(data, "order"),
        block_runs=max(take_whole(data, "block_runs"), 0) or FORMER_BLOCK_RUNS,
        scripts=tuple(_script(one) for one in take_list(data, "scripts")),
        container=take_whole(data, "container"),
        groups=tuple(map(_group, take_list(data, "groups")[:MOST_GROUPS])),
        trace=take_text(data, "trace"),
        warnings=_texts(data, "warnings"),
        critpath=take_text(data, "critpath"),
        counts=_mapping(data, "counts"),
        trigger=_mapping({"trigger": data.get("trigger") or {}}, "trigger"),
        files=_digests(data),
    )


def take_text(data: Mapping[str, Any], key: str) -> str:
    """Return a text by its name; raises ManifestError."""
    value = data.get(key, "")
    if not isinstance(value, str):
        raise ManifestError(f"{key!r} is not text")
    return value


def take_list(data: Mapping[str, Any], key: str) -> list[Any]:
    """Return a list by its name; raises ManifestError."""
    value = data.get(key, [])
    if not isinstance(value, list):
        raise ManifestError(f"{key!r} is not a list")
    return value


def _texts(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = take_list(data, key)
    if not all(isinstance(value, str) for value in values):
        raise ManifestError(f"{key!r} is not a list of texts")
    return tuple(values)


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, object]:
    value = data.get(key, {})
    if not isinstance(value, dict):
        raise ManifestError(f"{key!r} is not an object")
    return value


def _overhead(data: Mapping[str, Any]) -> Mapping[str, object]:
    """Return what a budget did, with what it chose, which stands beside it."""
    found, chosen = (
        _mapping({key: data.get(key) or {}}, key) for key in ("overhead", "executions")
    )
    return {**found, "executions": chosen} if found and chosen else found


def _digests(data: Mapping[str, Any]) -> Mapping[str, str]:
    """Return digests by names of files, which lead nowhere but below the recording."""
    found = _mapping(data, "files")
    for name, digest in found.items():
        parts = PurePosixPath(name).parts
        below = 0 < len(parts) <= _DEEPEST and name.isprintable() and parts[0] != "/"
        hidden = any(part[0] == "." for part in parts)
        if not below or hidden or not isinstance(digest, str) or not {*digest} <= _HEXADECIMAL:
            raise ManifestError("'files' is no list of files beside the manifest")
    return {name: str(digest) for name, digest in found.items()}


def take_whole(data: Mapping[str, Any], key: str) -> int:
    """Return a whole number, -1 and more by its name; raises ManifestError."""
    value = data.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= _WHOLE:
        raise ManifestError(f"{key!r} is not a whole number")
    return value


def _number(data: Mapping[str, Any], key: str) -> float:
    value = data.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ManifestError(f"{key!r} is not a number")
    return float(value)


def parse_run(data: Any) -> Run:
    """Return the run that a document is; raises ManifestError."""
    one = take_object(data, "a run")
    number, pid, begin, end, code, outlived = (
        take_whole(one, key) for key in ("number", "pid", "begin", "end", "exit_code", "outlived")
    )
    late, cut = (take_flag(one, key) for key in ("timed_out", "interrupted"))
    executed = take_whole(one, "executed")
    kernel, faults = (take_whole(one, key) if key in one else -1 for key in ("kernel", "faults"))
    return Run(number, pid, begin, end, code, late, outlived, cut, executed, kernel, faults)


def take_flag(data: Mapping[str, Any], key: str) -> bool:
    """Return what is true or false by its name; raises ManifestError."""
    value = data.get(key, False)
    if not isinstance(value, bool):
        raise ManifestError(f"{key!r} is neither true nor false")
    return value


def _loss(data: Any) -> CpuLoss:
    one = take_object(data, "a loss")
    return CpuLoss(*(take_whole(one, key) for key in ("cpu", "events", "packets")))


def _stream(data: Any) -> StreamFacts:
    one = take_object(data, "a stream")
    counts = {key: take_whole(one, key) for key in ("bytes", "packets", "events", "end", "cpu")}
    return StreamFacts(name=take_text(one, "name"), digest=take_text(one, "digest"), **counts)


def _gap(data: Any) -> Gap:
    one = take_object(data, "a gap")
    begin, end, cpu = (take_whole(one, key) for key in ("begin", "end", "cpu"))
    return Gap(begin, end, cpu, take_text(one, "what"))


def _script(data: Any) -> Script:
    of = take_object(data, "a script")
    pid, begin, read = (take_whole(of, key) for key in ("pid", "begin", "read"))
    return Script(pid, begin, read, take_text(of, "name"))


def _group(data: Any) -> ControlGroup:
    of = take_object(data, "a control group")
    return ControlGroup(**{each.name: take_text(of, each.name) for each in fields(ControlGroup)})


def take_object(data: Any, what: str) -> Mapping[str, Any]:
    """Return an object; raises ManifestError."""
    if not isinstance(data, dict):
        raise ManifestError(f"{what} is no object")
    return data
