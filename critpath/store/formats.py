"""What is saved in a file or a directory, and the sets that it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from critpath.stores import open_file

if TYPE_CHECKING:
    from critpath.model import PathSet

# Sets of no more segments than this are in memory as a whole: 64 MB, and no second reading.
RESIDENT: Final = 1 << 20
# Readers that are given the directory itself pass over what begins with an underscore.
MANIFEST: Final = "_critpath.json"
_PARQUET: Final = b"PAR1"
# Of any version, and even where an unfinished merge stands above it.
_BASELINE: Final = b'"critpath/baseline/'


def find_format(path: Path) -> str:
    """Return which of our formats holds paths there, "" for none; never raises.

    That is ``baseline``, ``paths`` or ``dataset``, whatever else is in it.
    """
    if is_paths_file(path):
        return "paths"
    if is_dataset(path):
        return "dataset"
    return "baseline" if is_baseline_file(path) else ""


def is_paths_file(path: Path) -> bool:
    """Tell whether something is a Parquet file, whatever is in it; never raises."""
    return _read_begin(path, len(_PARQUET)) == _PARQUET


def is_dataset(path: Path) -> bool:
    """Tell whether something is a dataset's directory, whatever is in it; never raises."""
    try:
        return (path / MANIFEST).is_file()
    except (OSError, ValueError):
        return False


def is_baseline_file(path: Path) -> bool:
    """Tell whether something says that it is a baseline; never raises."""
    return _BASELINE in _read_begin(path, 512)


def _read_begin(path: Path, size: int) -> bytes:
    """Return the first bytes of a file, none of what is no file or cannot be read."""
    try:
        if not path.is_file():
            return b""
        with open_file(path) as stream:
            return stream.read(size)
    except (OSError, ValueError):
        return b""


def load_sets(
    path: Path,
    *,
    interrupts: bool | None = None,
    resident: int = RESIDENT,
    later: Path | None = None,
) -> list[PathSet]:
    """Load the sets of one of these; their segments as well, unless there are more of them.

    A baseline that tells interrupt work apart, or does not, as others do not, is refused;
    None takes it as it is.  A file that is still to get its name is found by that, `later`.
    """
    kind = find_format(path)
    if kind == "paths":
        from critpath.store.reading import load_paths  # noqa: PLC0415 - start-up time

        return [load_paths(path, resident=resident, later=later)]
    if kind == "dataset":
        from critpath.store.dataset import Dataset  # noqa: PLC0415 - start-up time

        return Dataset(path).load()
    from critpath.store.baseline import load_baseline  # noqa: PLC0415 - start-up time

    baseline = load_baseline(path)
    wanted = baseline.interrupts if interrupts is None else interrupts
    return baseline.list_sets(path, interrupts=wanted)
