"""Files of other tools that are read: each is converted once, for as long as the command takes."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final

from critpath.convert.foreign import Converted, convert_foreign, identify_foreign
from critpath.errors import CritpathError
from critpath.files import claimed_directory, discard, remove_abandoned

_NAME: Final = "critpath-converted"


@dataclass
class OpenedFiles:
    """What was converted to be read, until `close`.

    Attributes
    ----------
    converted : list of (Path, Converted)
        By this process, in order.
    """

    converted: list[tuple[Path, Converted]] = field(default_factory=list)
    _places: dict[str, Path] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _lock: Lock = field(default_factory=Lock)

    def find(self, path: Path) -> Path:
        """Return the directory of a recording: the path itself, or what its file became."""
        if path.is_dir() and identify_foreign(path) is None:
            return path
        name = os.path.realpath(path)
        with self._lock:
            known = self._places.get(name)
            if known is not None and known.is_dir():
                return known
            if identify_foreign(path) is None:
                return path
            place = self._make_place(path)
            self.converted.append((path, convert_foreign(path, place)))
            self._places[name] = place
        return place

    def _make_place(self, path: Path) -> Path:
        import tempfile  # noqa: PLC0415 - start-up time

        beside = Path(tempfile.gettempdir()) / _NAME
        remove_abandoned(beside)
        try:
            claimed = self._stack.enter_context(claimed_directory(beside))
            self._stack.callback(_discard_own, claimed, os.getpid())
            place = claimed / "recording"  # others may look into the one above
            place.mkdir(mode=0o700)
        except OSError as error:
            raise CritpathError(
                f"{path} cannot be converted: no directory can be made in {beside.parent}:"
                f" {error.strerror}",
                "set TMPDIR to a directory that you may write to",
            ) from error
        return place

    def share(self) -> Mapping[str, Path]:
        """Return what was converted, for processes that read the same files."""
        return dict(self._places)

    def adopt(self, shared: Mapping[str, Path]) -> None:
        """Take what another process converted, which keeps it for longer than this one reads."""
        self._places.update({name: of for name, of in shared.items() if of.is_dir()})

    def close(self) -> None:
        """Remove what was converted here."""
        self._places.clear()
        self.converted.clear()
        self._stack.close()


def _discard_own(place: Path, process: int) -> None:
    """Remove a directory; not in a child that leaves as its parent would."""
    if os.getpid() == process:
        discard(place)


OPENED: Final[OpenedFiles] = OpenedFiles()
atexit.register(OPENED.close)


def directory_of(path: Path) -> Path:
    """Return where a recording is: the path itself, or what its file was converted into."""
    return OPENED.find(path)
