"""Datasets: a directory with a Parquet file of paths per recording, and a list of them.

Each part is a file as `save_paths` writes it, readable by itself; ``part-*.parquet`` is
the whole for any reader of Parquet.  The list is what makes a directory a dataset: it is
written last, and says how large every part is and what its contents' sum is, so that a
part that is missing, cut short or of another dataset is refused and not passed over.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

from msgspec import Struct, structs

from critpath.errors import UnreadableError
from critpath.files import atomic, discard, readable, write_text
from critpath.model import PathSet
from critpath.processes import side_by_side
from critpath.store.columns import is_count, is_texts
from critpath.store.formats import MANIFEST, RESIDENT
from critpath.store.reading import load_paths
from critpath.stores import is_hole, refresh
from critpath.untrusted import LARGEST, TooLargeError, load_json

DATASET: Final = "critpath/dataset/1"
_DO: Final = "make it again: critpath export --format paths"


class Part(Struct, frozen=True):
    """What is known of a part beside its content.

    Attributes
    ----------
    file : str
        Its name in the dataset's directory.
    recordings : tuple of str
        What it was extracted from, one name mostly.
    executions, segments : int
    bytes : int
    sha256 : str
        Of the file.
    """

    file: str
    recordings: tuple[str, ...]
    executions: int
    segments: int
    bytes: int
    sha256: str


def part_name(number: int) -> str:
    """Return the name of a part: by its place in the order that was asked for."""
    return f"part-{number:05d}.parquet"


class Dataset(Struct, frozen=True):
    """A dataset in a directory: written part by part, then sealed, loaded as a whole."""

    directory: Path

    def write_part(self, number: int, sets: Iterable[PathSet], *, aside: bool = False) -> Part:
        """Write a part of a dataset, whole or not at all; `aside` as `PathsWriter` has it.

        It does not matter how often, or from where, a part is written: the last one that is
        finished has the name, and all are equal.
        """
        file = self.directory / part_name(number)
        executions = segments = 0
        recordings: tuple[str, ...] = ()
        # What a killed worker left is for `seal`, which looks through the directory once.
        with atomic(file, sweep=False) as stream:
            from critpath.store.writing import PathsWriter  # noqa: PLC0415 - start-up time

            with PathsWriter(stream, aside=aside) as writer:
                for index, paths in enumerate(sets):
                    writer.write(paths, more=index > 0)
                    recordings = paths.sources
                    executions += len(paths)
                segments = writer.segments
            size = stream.tell()
            # What is under this file's name now: after its own, another task's may be.
            with readable(stream).open("rb") as written:
                digest = hashlib.file_digest(written, "sha256").hexdigest()
        return Part(file.name, recordings, executions, segments, size, digest)

    @property
    def has_parts_only(self) -> bool:
        """Whether there are parts without a list, and nothing else: copying to a store failed."""
        names = sorted(file.name for file in self.directory.iterdir())
        return names == [part_name(number) for number in range(len(names))]

    def seal(self, parts: Sequence[Part], about: Mapping[str, Any]) -> None:
        """Make the directory of parts a dataset: take out what is no part, and write the list."""
        ours = {part.file for part in parts}
        refresh(self.directory)  # workers elsewhere wrote there
        for part in parts:
            if not (self.directory / part.file).is_file():
                raise UnreadableError(
                    f"{self.directory}: {part.file} was written, and is not there",
                    "workers on other machines need the same directory under the same name",
                )
        for other in self.directory.iterdir():
            if other.name not in ours:
                discard(other)  # what a killed worker began
        document = {
            "format": DATASET,
            **about,
            "executions": sum(part.executions for part in parts),
            "segments": sum(part.segments for part in parts),
            "parts": [structs.asdict(part) for part in parts],
        }
        write_text(self.directory / MANIFEST, json.dumps(document, indent=1) + "\n")

    def load(self, *, resident: int = RESIDENT) -> list[PathSet]:
        """Load the executions; their segments as well, unless there are many."""
        parts, segments = _read_list(self.directory)
        extra = sorted({f.name for f in self.directory.glob("*.parquet")} - {p.file for p in parts})
        if extra:
            raise _wrong(self.directory, f"{extra[0]} is not in {MANIFEST}")
        if segments <= resident:
            return _load_parts(self.directory, parts, segments)
        middle = (len(parts) + 1) // 2
        halves = parts[:middle], parts[middle:]
        works = (partial(_load_parts, self.directory, half, -1) for half in halves)
        return [*chain(*side_by_side(*works))]


def _load_parts(directory: Path, parts: Sequence[Part], resident: int) -> list[PathSet]:
    return [_load_part(directory, part, resident) for part in parts]


def _load_part(directory: Path, part: Part, resident: int) -> PathSet:
    file = directory / part.file
    try:
        status = file.stat()
        # Before it is opened, as opening a pipe without a writer waits for ever.
        if not S_ISREG(status.st_mode) or status.st_size != part.bytes:
            raise _other(directory, part)
        if is_hole(file):  # not read whole for its digest: each page has a checksum
            size, digest = status.st_size, part.sha256
        else:
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
                size = stream.tell()
    except FileNotFoundError:
        raise _wrong(directory, f"{part.file} is missing") from None
    except OSError as error:
        raise _wrong(directory, f"{part.file} cannot be read: {error.strerror or error}") from error
    if (size, digest) != (part.bytes, part.sha256):
        raise _other(directory, part)
    paths = load_paths(file, resident=resident, segments=part.segments)
    if len(paths) != part.executions:
        raise _wrong(directory, f"{part.file} has not as many runs as {MANIFEST} says")
    return paths


def _read_list(directory: Path) -> tuple[list[Part], int]:
    """Return the parts that a dataset's list names, and how many segments they have."""
    try:
        content = load_json(_list_bytes(directory / MANIFEST))
    except OSError as error:
        raise _wrong(directory, f"{MANIFEST} cannot be read: {error.strerror or error}") from error
    except TooLargeError as error:
        raise _wrong(directory, f"{MANIFEST} {error}") from error
    except (ValueError, RecursionError) as error:
        raise _wrong(directory, f"{MANIFEST} is no JSON") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != DATASET:
        raise _wrong(directory, f"format {found!r:.60}, this critpath reads {DATASET}")
    listed = content.get("parts")
    if not isinstance(listed, list):
        raise _wrong(directory, f"{MANIFEST} has no valid 'parts'")
    parts = [_part(directory, number, each) for number, each in enumerate(listed)]
    for name in ("executions", "segments"):
        if content.get(name) != sum(getattr(part, name) for part in parts):
            raise _wrong(directory, f"'{name}' in {MANIFEST} is not the sum of the parts'")
    return parts, int(content["segments"])


def _list_bytes(file: Path) -> bytes:
    """Read the list, no more of it than is looked through."""
    with file.open("rb") as stream:
        return stream.read(LARGEST + 1)


def _part(directory: Path, number: int, found: object) -> Part:
    """Return a part as it is listed; its name is known beforehand, so it leads nowhere else."""
    valid: dict[str, Callable[[object], bool]] = {
        "file": lambda value: value == part_name(number),
        "recordings": is_texts,
        "executions": is_count,
        "segments": is_count,
        "bytes": is_count,
        "sha256": lambda v: isinstance(v, str) and bool(re.fullmatch("[0-9a-f]{64}", v)),
    }
    if not isinstance(found, dict) or found.keys() != {*Part.__struct_fields__}:
        raise _wrong(directory, f"part {number} in {MANIFEST} is not valid")
    for name, is_valid in valid.items():
        if not is_valid(found[name]):
            raise _wrong(directory, f"'{name}' of part {number} in {MANIFEST} is not valid")
    return Part(**{**found, "recordings": tuple(found["recordings"])})


def _other(directory: Path, part: Part) -> UnreadableError:
    return _wrong(directory, f"{part.file} is not the file that {MANIFEST} lists")


def _wrong(directory: Path, problem: str) -> UnreadableError:
    return UnreadableError(f"{directory}: {problem}", _DO)
