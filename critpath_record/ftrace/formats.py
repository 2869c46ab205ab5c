"""Parses the files in which the kernel describes its buffer's pages and events."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.errors import UnreadableError

# `field:` C declaration, then where it lies; kernels before 2.6.36 have no `signed`.
_FIELD: Final = re.compile(
    r"\s*field:(?P<declaration>[^;]+);\s*offset:(?P<offset>\d{1,9});\s*size:(?P<size>\d{1,9});"
    r"(?:\s*signed:(?P<signed>[01]);)?"
)
_DECLARED: Final = re.compile(
    r"(?P<type>.*?[\s*])(?P<name>[A-Za-z_]\w*)\s*(?P<array>\[[^\]]*\])?\s*$", re.DOTALL
)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_LARGEST: Final = 1 << 16  # no record is larger than a page, and offsets have 16 bits


@dataclass(frozen=True)
class FormatField:
    """One field of a record."""

    name: str
    type: str  # as C declares it, less the name and the array's brackets
    # Bytes from the begin of the record; size 0 for what reaches to its end.
    offset: int
    size: int
    signed: bool
    array: str | None = None  # what stands between the brackets, None without any
    # ``data`` or ``rel``: the field is the place of the content, counted from the begin of the
    # record or the end of the field; "" otherwise.
    located: str = ""

    @property
    def pointer(self) -> bool:
        """Whether the field is an address."""
        return self.type.endswith("*")


@dataclass(frozen=True)
class EventFormat:
    """One event, from its ``format`` file."""

    name: str
    number: int  # what the first field of its records says
    common: dict[str, FormatField]  # fields that every event has, ``common_pid`` and so on
    fields: tuple[FormatField, ...]


@dataclass(frozen=True)
class PageLayout:
    """What a page of the buffer looks like (``header_page``)."""

    # Bytes; the word that says how much of the page is used.
    commit_offset: int
    commit_size: int
    # Bytes; where the records are.
    data_offset: int
    data_size: int

    @property
    def bytes(self) -> int:
        """Size of a whole page."""
        return self.data_offset + self.data_size

    @classmethod
    def parse(cls, file: Path, text: str) -> PageLayout:
        """Return what ``header_page`` says; raises CritpathError if it is of an unknown kind."""
        lines = (x for x in text.splitlines() if x.lstrip().startswith("field:"))
        fields = {f.name: f for f in (_field(file, x) for x in lines)}
        if not {"timestamp", "commit", "data"} <= fields.keys():
            raise _broken(file, "does not describe a page (timestamp, commit, data)")
        time, commit, data = fields["timestamp"], fields["commit"], fields["data"]
        if (
            (time.offset, time.size) != (0, 8)
            or commit.size not in {4, 8}
            or commit.offset < 8
            or data.offset < commit.offset + commit.size
            or data.size < 16
        ):
            raise _broken(file, "describes pages of a kind that is not known")
        return cls(commit.offset, commit.size, data.offset, data.size)

    @classmethod
    def read(cls, file: Path) -> PageLayout:
        """Read ``header_page``; raises CritpathError if it is malformed or of an unknown kind."""
        return cls.parse(file, _text(file))


def _broken(file: Path, what: str) -> UnreadableError:
    return UnreadableError(
        f"{file}: {what}", "record again; if that does not help, report it with this file"
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UnreadableError(
            f"{file}: {error.strerror}", "convert a raw directory that is whole"
        ) from error


def _field(file: Path, line: str) -> FormatField:
    match = _FIELD.match(line)
    declared = _DECLARED.match(match["declaration"]) if match else None
    if match is None or declared is None:
        raise _broken(file, f"not a field: {line.strip()[:80]!r}")
    kind, array = declared["type"].strip(), declared["array"]
    offset, size = int(match["offset"]), int(match["size"])
    if not _PLAIN_NAME.fullmatch(declared["name"]) or offset + size > _LARGEST:
        raise _broken(file, f"not a field of a record: {line.strip()[:80]!r}")
    located = ""
    for prefix in ("data", "rel"):
        if kind.startswith(f"__{prefix}_loc "):
            located, kind = prefix, kind.removeprefix(f"__{prefix}_loc ").strip()
            if size != 4:
                raise _broken(file, f"a place of {size} bytes: {line.strip()[:80]!r}")
    # `__data_loc char[] name` has its brackets in the type.
    if located and kind.endswith("]"):
        kind, _, inside = kind.rpartition("[")
        array = f"[{inside}"
    return FormatField(
        name=declared["name"],
        type=" ".join(kind.split()),
        offset=offset,
        size=size,
        signed=match["signed"] == "1",
        array=array[1:-1].strip() if array is not None else None,
        located=located,
    )


def read_format(file: Path) -> EventFormat:
    """Read an event's ``format`` file; raises CritpathError if it is malformed."""
    return parse_format(file, _text(file))


def parse_format(file: Path, text: str) -> EventFormat:
    """Return what an event's ``format`` file says; raises CritpathError if it is malformed."""
    lines = text.splitlines()
    name = next((x[5:].strip() for x in lines if x.startswith("name:")), "")
    number = next((x[3:].strip() for x in lines if x.startswith("ID:")), "")
    if not _PLAIN_NAME.fullmatch(name):
        raise _broken(file, "has no line that names the event")
    if not number.isdecimal() or int(number) >= _LARGEST:
        raise _broken(file, "has no line with the event's ID")
    fields = [_field(file, x) for x in lines if x.lstrip().startswith("field:")]
    common = {f.name: f for f in fields if f.name.startswith("common_")}
    for needed, size in (("common_type", 2), ("common_flags", 1), ("common_pid", 4)):
        if needed not in common or common[needed].size != size:
            raise _broken(file, f"has no {needed} of {size} bytes")
    own = tuple(f for f in fields if f.name not in common)
    return EventFormat(name, int(number), common, own)


def check_entry_header(file: Path) -> None:
    """Check that ``header_event`` describes record headers as the decoder expects them."""
    text = " ".join(_text(file).split())
    for wanted in (
        *("type_len : 5 bits", "time_delta : 27 bits", "array : 32 bits"),
        *("padding : type == 29", "time_extend : type == 30"),
    ):
        if wanted not in text:
            raise _broken(file, f"describes records of a kind that is not known (no {wanted!r})")
