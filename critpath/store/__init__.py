"""Files that critpath writes, always whole: extracted critical paths, datasets of them, text.

Names come from the modules below it when they are first asked for: writing a text
imports no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from critpath.store.columns import FORMAT
    from critpath.store.dataset import (
        DATASET,
        MANIFEST,
        Part,
        is_dataset,
        load_dataset,
        part_name,
        seal,
        write_part,
    )
    from critpath.store.files import (
        atomic,
        atomic_directory,
        readable,
        scratch_directory,
        write_text,
    )
    from critpath.store.reading import RESIDENT, is_paths_file, load_paths, open_paths
    from critpath.store.writing import PathsWriter, has_stacks, save_paths, settle

_HOMES: Final = {
    **dict.fromkeys(
        ("atomic", "readable", "scratch_directory", "atomic_directory", "write_text"), "files"
    ),
    "FORMAT": "columns",
    **dict.fromkeys(
        (
            *("DATASET", "MANIFEST", "Part", "is_dataset", "load_dataset"),
            *("part_name", "seal", "write_part"),
        ),
        "dataset",
    ),
    **dict.fromkeys(("RESIDENT", "is_paths_file", "load_paths", "open_paths"), "reading"),
    **dict.fromkeys(("PathsWriter", "has_stacks", "save_paths", "settle"), "writing"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'critpath.store' has no attribute {name!r}")
    value = getattr(import_module(f"critpath.store.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


__all__ = [
    "DATASET",
    "FORMAT",
    "MANIFEST",
    "RESIDENT",
    "Part",
    "PathsWriter",
    "atomic",
    "atomic_directory",
    "has_stacks",
    "is_dataset",
    "is_paths_file",
    "load_dataset",
    "load_paths",
    "open_paths",
    "part_name",
    "readable",
    "save_paths",
    "scratch_directory",
    "seal",
    "settle",
    "write_part",
    "write_text",
]
