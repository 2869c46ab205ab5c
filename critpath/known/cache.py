"""What was derived from a store, kept in the user's cache directory: never in the store itself.

It is named by the hash of all that it was made of, so it is never stale; whatever is not as it was
written, or not the user's own, is not there.  Without it everything works, slower.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np

from critpath.errors import CritpathError
from critpath.files import atomic
from critpath.model import F64

_MOST: Final = 16  # technical: files: a few stores, each for what few sets of events have in common
_LARGEST: Final = 256 << 20  # technical
_HASH: Final = 32  # technical: bytes of a file's hash, at its begin


def _directory() -> Path | None:
    """Return where the user's programs keep what they can make again; None where nowhere is."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    with suppress(RuntimeError):
        place = Path(given) if given.startswith("/") else Path.home() / ".cache"
        return place / "critpath" / "known"
    return None


def load_derived(key: str) -> F64 | None:
    """Return the figures that were kept under a key; None where there are none, or not as kept."""
    place = _directory()
    if place is None:
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(place / key, flags)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        about = os.fstat(descriptor)
        own = about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not own or not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST:
            return None
        content = stream.read(_LARGEST)
    if len(content) % 8 or content[:_HASH] != _hash(key, content[_HASH:]):
        return None
    return np.frombuffer(content, np.float64, offset=_HASH)


def keep_derived(key: str, figures: F64) -> None:
    """Keep figures under a key, and few others; nothing where that is not possible."""
    place = _directory()
    content = np.ascontiguousarray(figures, np.float64).tobytes()
    if place is None or len(content) > _LARGEST - _HASH:
        return
    with suppress(OSError, CritpathError):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.stat().st_uid != os.geteuid():
            return
        with atomic(place / key) as stream:
            stream.write(_hash(key, content) + content)
        kept = sorted(place.iterdir(), key=lambda file: -file.lstat().st_mtime)
        for file in kept[_MOST:]:
            file.unlink()


def _hash(key: str, content: bytes) -> bytes:
    return blake2b(key.encode() + content, digest_size=_HASH).digest()
