"""Dumps of a flight recorder, as whoever looks at them finds them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from critpath.documents.incidents import TriggerEntry
from critpath.errors import UnreadableError
from critpath.incidents.times import format_time
from critpath.model.containers import ControlGroup
from critpath.model.gaps import Gaps
from critpath.model.recording import COMPLETE, MANIFEST
from critpath.read import Recording
from critpath.units import NS_PER_S

# In UTC; those of earlier versions, in local time, are without Z.
NAME: Final = re.compile(r"(\d{8}T\d{6})(Z?)(?:\.(\d{1,9}))?-[a-z0-9-]{1,40}", re.ASCII)
USUAL: Final = "usual"
_COMMAND, _HEALTHY = "command", "healthy"
# What a condition looks over, as `latency p99 > 250ms over 30s` and `some 150ms/1s` say.
_OVER: Final = re.compile(r"(?: over |/)(\d{1,6}(?:\.\d{1,6})?) ?(ms|s|min)$", re.ASCII)
_UNITS: Final = {"ms": NS_PER_S // 1000, "s": NS_PER_S, "min": 60 * NS_PER_S}
_PROGRAM: Final = re.compile(r"[0-9a-f-]{5,60}( [0-9]{1,20}){1,2}", re.ASCII)
_MOST_FILES: Final = 100_000


@dataclass(frozen=True)
class Dump:
    """A dump, by its manifest.

    Attributes
    ----------
    path : Path
    trigger : TriggerEntry
    at : int
        When it was noticed (ns since 1970); 0 if not known.
    moment : int
        The same by the recording's clock.
    host : str
    programs : mapping of str to str
        By names of threads which file they execute, and when the first and the last of their
        processes began; those that are known.  By pods and containers, which image.
    begin, end : int
        Of what it holds, by the recording's clock.
    gaps : Gaps
        When not all of it was recorded.
    """

    path: Path
    trigger: TriggerEntry
    at: int
    moment: int
    host: str
    programs: Mapping[str, str]
    begin: int = 0
    end: int = 0
    gaps: Gaps = field(default_factory=Gaps)

    @property
    def name(self) -> str:
        """The directory's."""
        return self.path.name

    @property
    def is_usual(self) -> bool:
        """Whether it was made to know what is usual."""
        asked = self.trigger.when == _COMMAND and self.trigger.value in {_HEALTHY, USUAL}
        return asked or self.trigger.when == USUAL

    @property
    def is_healthy(self) -> bool:
        """Whether somebody says that all was well."""
        return self.trigger.when == _COMMAND and self.trigger.value == _HEALTHY

    @property
    def was_asked(self) -> bool:
        """Whether somebody asked for it, who will look at it."""
        return not self.is_usual and self.trigger.when in {_COMMAND, "signal USR1"}

    @property
    def window(self) -> int:
        """The time over which its condition looks (ns); 0 for no such time."""
        found = _OVER.search(self.trigger.when)
        return round(float(found[1]) * _UNITS[found[2]]) if found else 0

    @property
    def is_of_marks(self) -> bool:
        """Whether a marked execution took too long: requests have a time to look over."""
        return self.trigger.when.startswith("latency ") and not self.window

    @property
    def when(self) -> str:
        """When it was noticed, in words."""
        return format_time(self.at // NS_PER_S) if self.at else ""

    @property
    def begin_second(self) -> float:
        """When what it holds begins (s since 1970); 0 if not known."""
        return (self.at - self.moment + self.begin) / NS_PER_S if self.at else 0.0

    def measure(self) -> int:
        """Return the bytes of its files."""
        total = 0
        for place, _, files in os.walk(self.path):
            for name in files[:_MOST_FILES]:
                total += os.lstat(Path(place) / name).st_size
        return total


def list_dumps(flight: Path) -> list[str]:
    """Return the names of the dumps in a flight recorder's directory, oldest first."""
    found: list[tuple[tuple[str, str, int], str]] = []
    if not flight.is_dir():  # not yet
        return []
    with os.scandir(flight) as entries:
        for entry in entries:
            name = NAME.fullmatch(entry.name)
            if name is None or not entry.is_dir(follow_symlinks=False):
                continue
            if os.path.lexists(Path(entry.path) / MANIFEST):
                found.append(((name[2], name[1], int(name[3] or 0)), entry.name))
    return [name for _, name in sorted(found)]


def find_images(groups: Iterable[ControlGroup]) -> dict[str, str]:
    """Return by pods and containers of which image they are, as `Dump.programs` has files.

    Their names tell which of its processes began when.
    """
    found: dict[str, set[str]] = {}
    for of in groups:
        if of.image and not of.is_sandbox:
            found.setdefault(of.place, set()).add(of.image)
    return {
        place: f"{hashlib.sha256(repr(sorted(images)).encode()).hexdigest()[:16]} 0 0"
        for place, images in found.items()
    }


def open_dump(path: Path) -> Dump:
    """Read what a dump says of itself.

    Raises
    ------
    UnreadableError
        If it says nothing, or is no dump.
    """
    recording = Recording(path)
    manifest = recording.manifest
    trigger = manifest.trigger
    if not trigger or manifest.state != COMPLETE:
        raise UnreadableError(
            f"{path}: no dump of a flight recorder", "name the flight's directory"
        )

    def text(of: object) -> str:
        return of[:1000] if isinstance(of, str) else ""

    programs = manifest.host.get("programs")
    epoch, at = manifest.clock.get("epoch"), trigger.get("at")
    moment = at if isinstance(at, int) and at > 0 else manifest.end
    known = isinstance(epoch, int) and 0 < epoch + moment < 2**62
    return Dump(
        path,
        TriggerEntry(*(text(trigger.get(key)) for key in ("when", "value", "kind"))),
        int(epoch) + moment if known and isinstance(epoch, int) else 0,
        moment,
        text(manifest.host.get("name")),
        find_images(manifest.groups)
        | {
            key: of
            for key, of in (programs.items() if isinstance(programs, dict) else ())
            if isinstance(of, str) and _PROGRAM.fullmatch(of)
        },
        manifest.begin,
        manifest.end,
        recording.find_gaps(("",), ()) if manifest.gaps_file or manifest.gaps else Gaps(),
    )
