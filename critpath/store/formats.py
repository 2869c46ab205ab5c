"""What is saved in a file or a directory, and the sets that it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from critpath.store.dataset import Dataset, is_dataset
from critpath.store.reading import RESIDENT, is_paths_file, load_paths

if TYPE_CHECKING:
    from critpath.model import PathSet


def find_format(path: Path) -> str:
    """Return which of our formats holds paths there, "" for none; never raises.

    That is ``baseline``, ``paths`` or ``dataset``, whatever else is in it.
    """
    if is_paths_file(path):
        return "paths"
    if is_dataset(path):
        return "dataset"
    from critpath.store.baseline import is_baseline_file  # noqa: PLC0415 - start-up time

    return "baseline" if is_baseline_file(path) else ""


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
        return [load_paths(path, resident=resident, later=later)]
    if kind == "dataset":
        return Dataset(path).load()
    from critpath.store.baseline import load_baseline  # noqa: PLC0415 - start-up time

    baseline = load_baseline(path)
    wanted = baseline.interrupts if interrupts is None else interrupts
    return baseline.list_sets(path, interrupts=wanted)
