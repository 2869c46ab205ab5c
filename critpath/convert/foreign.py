"""Tells which tool wrote a file, and converts it into a recording."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from critpath import __version__
from critpath.errors import CritpathError, UnreadableError
from critpath.units import safe_text

if TYPE_CHECKING:
    from critpath.convert.raw_writer import RawWriter
    from critpath.model import Manifest
    from critpath_record.ftrace import ConversionResult

# Which module reads a kind; it has `write_raw(stream, writer)`.
KINDS: Final[Mapping[str, str]] = {
    "trace.dat": "trace_dat",
    "perf.data": "perf_data",
    "Perfetto": "perfetto",
    "ftrace's text": "ftrace_text",
}
# Those that are looked for in directories: a text may be what was printed of the file beside it.
COLLECTED: Final = frozenset({"trace.dat", "perf.data", "Perfetto"})
_HEAD: Final = 1 << 16  # bytes of a file that tell what it is
_MANY: Final = 64 << 20  # bytes of a directory that are removed at once: no more is left behind
_PACKETS: Final = 8  # that are looked at
_PACKET: Final = 0x0A  # TracePacket: field 1 of Trace, with a length
_PERF: Final = {b"PERFILE2", b"2ELIFREP", b"PERFFILE"}
_GZIP: Final = b"\x1f\x8b"
_TRACE: Final = "trace"


class Converted(NamedTuple):
    """What became of a file."""

    kind: str
    events: int
    seconds: float
    manifest: Manifest


class Reader(Protocol):
    """A module that reads a kind of file."""

    def write_raw(self, stream: IO[bytes], writer: RawWriter) -> None:
        """Write what a file holds as a raw directory, all but `RawWriter.finish`.

        `stream` is seekable and was opened once: it is not opened again by its name.

        Raises
        ------
        UnreadableError
            If the file is damaged such that nothing can be made of it; what is readable of a
            file that is cut off is kept, with `RawWriter.warn`.
        """


def identify_foreign(path: Path) -> str | None:
    """Return the kind of another tool's file, a key of `KINDS`; None of anything else."""
    try:
        with open_foreign(path) as stream:
            return _identify(stream)
    except (OSError, ValueError, UnreadableError):
        return None


def _identify(stream: IO[bytes]) -> str | None:
    head = stream.read(_HEAD)
    stream.seek(0)
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
        except zlib.error:
            return None
        return "Perfetto" if _is_perfetto(head) else None
    if head.startswith(b"\x17\x08\x44tracing"):
        return "trace.dat"
    if head[:8] in _PERF:
        return "perf.data"
    if _is_perfetto(head):
        return "Perfetto"
    from critpath.convert.ftrace_text import is_ftrace_text  # noqa: PLC0415 - start-up time

    return "ftrace's text" if is_ftrace_text(head) else None


def _is_perfetto(head: bytes) -> bool:
    """Return whether bytes begin as packets do: each a field 1 with a length, of fields."""
    at = packets = 0
    while at < len(head) and packets < _PACKETS:
        if head[at] != _PACKET:
            return False
        size, begin = _varint(head, at + 1)
        if begin >= len(head):
            break
        if not _holds_fields(head, begin, begin + size):
            return False
        at, packets = begin + size, packets + 1
    return packets > 0


def _holds_fields(head: bytes, at: int, end: int) -> bool:
    """Return whether a message, as far as it is in `head`, has a field after the other."""
    while at < min(end, len(head)):
        tag, at = _varint(head, at)
        if tag < 8 and at < len(head):
            return False
        if tag & 7 == 0:
            at = _varint(head, at)[1]
        elif tag & 7 == 2:
            size, at = _varint(head, at)
            at += size
        elif tag & 7 in {1, 5}:
            at += 8 if tag & 7 == 1 else 4
        else:
            return False
        if at > end:
            return False
    return True


def _varint(head: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; where the bytes do, as much as is there."""
    value = shift = 0
    while at < len(head) and shift < 64:
        value |= (head[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if head[at - 1] < 0x80:
            break
    return value, at


@contextmanager
def open_foreign(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file without blocking; anything else is refused.

    Of a directory that ``perf record --threads`` made it is the file with the header.

    Raises
    ------
    UnreadableError
    """
    divided = path.is_dir()
    if divided:
        path /= "data"
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(path, flags)
    except OSError as error:
        raise UnreadableError(
            f"{path}: cannot be read: {error.strerror}", "make it readable for this user"
        ) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableError(f"{path}: no regular file", "name the file that the other tool wrote")
    with open(descriptor, "rb") as stream:  # noqa: PTH123 - a descriptor
        if divided and stream.read(8) not in _PERF:
            raise UnreadableError(f"{path}: no header of perf's", "name a file or a recording")
        stream.seek(0)
        yield stream


def convert_foreign(
    path: Path, directory: Path, progress: Callable[[str], None] = lambda _: None
) -> Converted:
    """Convert another tool's file into a recording in a directory, which is there and empty.

    Raises
    ------
    UnreadableError
        If it is none, or damaged such that nothing can be made of it.
    CritpathError
        If there is no room.
    """
    # Most that is read is no such file: what converts is imported where one is.
    import tempfile  # noqa: PLC0415 - start-up time

    from critpath.convert.raw_writer import DAMAGED, RawWriter  # noqa: PLC0415 - as above
    from critpath_record.ftrace import convert_pages, write_manifest  # noqa: PLC0415 - as above

    began = monotonic()
    with open_foreign(path) as stream:
        kind = _identify(stream)
        if kind is None:
            raise UnreadableError(
                f"{path}: no trace of another tool's that critpath reads",
                f"it reads those of {', '.join(KINDS)}",
            )
        progress(f"converting {path} ({kind})")
        reader = cast("Reader", import_module(f"critpath.convert.{KINDS[kind]}"))

        def read_all() -> tuple[RawWriter, ConversionResult]:
            with tempfile.TemporaryDirectory(prefix=".converting-", dir=directory) as place:
                raw, trace = Path(place) / "raw", Path(place) / _TRACE
                raw.mkdir(mode=0o700)
                writer = RawWriter(path, raw)
                try:
                    reader.write_raw(stream, writer)
                    writer.finish()
                    made = convert_pages(raw, trace, lambda _: None)
                except CritpathError as error:
                    if isinstance(error.__cause__, OSError):
                        raise error.__cause__ from None
                    if type(error) is not CritpathError:
                        raise
                    # Of a raw directory of ours it would be a fault; here it is what the file says.
                    what = error.what.replace(f"{raw}/", "").removeprefix(f"{path}: ")
                    raise UnreadableError(f"{path}: {what}", DAMAGED) from None
                trace.rename(directory / _TRACE)
            return writer, made

        try:
            # What else lies in a directory of perf's is read, too.
            beside = [path] if path.is_dir() else []
            from critpath.confined import run_confined  # noqa: PLC0415 - start-up time

            writer, made = run_confined(read_all, beside, [directory])
            manifest = _describe(kind, writer, made)
            write_manifest(directory, manifest)
        except OSError as error:
            raise CritpathError(
                f"{path} cannot be converted: {error.strerror or error}",
                "make room, or set TMPDIR to a directory with three times the file's size free",
            ) from error
    return Converted(kind, made.recorded, monotonic() - began, manifest)


def _describe(kind: str, writer: RawWriter, made: ConversionResult) -> Manifest:
    from critpath.model import Manifest  # noqa: PLC0415 - start-up time
    from critpath.model.recording import COMPLETE  # noqa: PLC0415 - as above
    from critpath.schema.ways import way_of_requests  # noqa: PLC0415 - as above

    warnings = dict.fromkeys(map(safe_text, (*writer.warnings, *made.warnings)))
    return Manifest(
        state=COMPLETE,
        session="",
        command=(),
        execution="",
        runs=(),
        recorder={
            "name": kind,
            **{f"tool_{key}": safe_text(value) for key, value in writer.tool.items()},
            "events": list(made.names),
            "event_count": made.recorded,
            "marks": made.marks,
            "tasks": made.tasks,
            "requests": way_of_requests(made.names),
            "format": "ctf-1.8",
        },
        profile="",
        clock={"name": writer.clock, **({"epoch": writer.epoch} if writer.epoch else {})},
        host=writer.host,
        begin=writer.begin,
        end=made.end,
        loss=made.loss,
        trace=_TRACE,
        warnings=tuple(warnings),
        critpath=__version__,
    )
