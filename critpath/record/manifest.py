"""Writes a recording's manifest, whole or not at all."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from critpath.model import MANIFEST, MANIFEST_FORMAT, Manifest


def to_json(manifest: Manifest) -> str:
    """Return the text of ``critpath.json``."""
    document = {"format": MANIFEST_FORMAT, **asdict(manifest)}
    # In ASCII, which is read in a fourth of the memory; an argument that is no UTF-8 has
    # surrogates, for which JSON has escapes.
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write ``critpath.json`` into a recording's directory.

    Raises
    ------
    OSError
        If it cannot be written; an earlier one is then still there.
    """
    place = directory / MANIFEST
    unfinished = directory / f".{MANIFEST}.{os.getpid()}"
    try:
        # O_EXCL: never through a link that someone else put there.
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(to_json(manifest))
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(place)
        for stale in directory.glob(f".{MANIFEST}.*"):  # of a recorder killed just there
            stale.unlink(missing_ok=True)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
