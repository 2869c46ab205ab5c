"""Reads back what a recorder wrote of its recording while it went on."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from critpath.errors import UnreadableError
from critpath.model import MANIFEST, MANIFEST_FORMAT, CpuLoss, Manifest, Run
from critpath.model.recording import MANIFEST_BYTES
from critpath.untrusted import load_json

# Runs that ended, one JSON object a line, written while the recording goes on.
RUNS: Final = "runs.jsonl"
_KINDS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("state", "session", "interleaved", "trace"), str),
    **dict.fromkeys(("begin", "end"), int),
    **dict.fromkeys(("clock", "recorder"), dict),
}


def read_manifest(directory: Path) -> Manifest:
    """Read a recording's manifest.

    Raises
    ------
    UnreadableError
        If there is none, or it is malformed.
    """
    place = directory / MANIFEST
    try:
        document = load_json(_read(place).encode())
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableError(
            f"{place}: not a manifest ({error})", "name a recording's directory"
        ) from None
    if not isinstance(document, dict) or document.get("format") != MANIFEST_FORMAT:
        raise UnreadableError(
            f"{place}: not a manifest of the format {MANIFEST_FORMAT}",
            "use the version of critpath that recorded it",
        )
    known = {f.name for f in fields(Manifest)}
    values: dict[str, Any] = {name: v for name, v in document.items() if name in known}
    try:
        values["runs"] = tuple(_run(r) for r in values.get("runs", ()))
        values["loss"] = tuple(CpuLoss(**x) for x in values.get("loss", ()))
        values["command"] = tuple(map(str, values.get("command", ())))
        values["warnings"] = tuple(map(str, values.get("warnings", ())))
        _check_kinds(values)
        return Manifest(**values)
    except (TypeError, ValueError) as error:
        raise UnreadableError(
            f"{place}: not a manifest ({error})", "name a recording's directory"
        ) from None


def _check_kinds(values: Mapping[str, object]) -> None:
    """Check the types of the fields that callers rely on; raises TypeError."""
    for name, kind in _KINDS.items():
        if not isinstance(values.get(name, kind()), kind):
            raise TypeError(f"{name} is not as it should be")


def read_runs(directory: Path) -> Iterator[Run]:
    """Yield the runs that were appended while recording; the last line may be cut off."""
    try:
        text = _read(directory / RUNS)
    except OSError:
        return
    for line in text.splitlines():
        try:
            yield _run(json.loads(line))
        except (TypeError, ValueError, RecursionError):
            continue


def _run(values: Any) -> Run:
    """Make a run from a JSON object; raises TypeError or ValueError if it is malformed."""
    if not isinstance(values, Mapping):
        raise TypeError("a run is an object")
    known = {f.name for f in fields(Run)}
    run = Run(**{name: value for name, value in values.items() if name in known})
    for name in ("number", "pid", "begin", "end", "exit_code", "outlived"):
        if type(getattr(run, name)) is not int:
            raise ValueError(f"{name} of a run is not a whole number")
    return run


def _read(place: Path) -> str:
    """Read a small regular file, not through a link."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a file")
        return stream.read(MANIFEST_BYTES).decode("utf-8", "replace")
