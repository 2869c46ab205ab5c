"""What the stream files of a recording hold, and whether it is what its recorder wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from critpath.errors import UnreadableError
from critpath.model import Loss, StreamFacts
from critpath.read.compiled_trace import stream_size
from critpath.read.packets import PacketColumn, StreamFile, has_end
from critpath.read.program import Role
from critpath.stores import open_file
from critpath.units import plural
from critpath.untrusted import digest_regular

if TYPE_CHECKING:
    from critpath.model import Events, Manifest
    from critpath.read.clocks import Trace


def survey_streams(recording: Path) -> tuple[StreamFacts, ...]:
    """Read a recording to its end, and tell what each of its stream files holds.

    Parameters
    ----------
    recording : Path
        The directory that has, or will have, the manifest.

    Returns
    -------
    tuple of StreamFacts
        With digests.

    Raises
    ------
    UnreadableError
        If there is no trace, or no event in it.
    """
    # Imported here, as streaming imports this module.
    from critpath.read.streaming import EventStream  # noqa: PLC0415
    from critpath.read.traces import find_traces  # noqa: PLC0415

    traces = find_traces(recording)
    with EventStream(traces, ()) as stream:
        stream.skim()
        found = {one.name: one for one in stream.finish().streams}
    return tuple(
        replace(found[f"{trace.name}/{path.name}"], digest=digest_file(path))
        for trace in traces
        for path in trace.files
    )


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file; raises UnreadableError."""
    import hashlib  # noqa: PLC0415 - start-up time

    try:
        with open_file(path) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UnreadableError(
            f"{path}: cannot be read: {error.strerror}", "make it readable for this user"
        ) from error


def describe_streams(
    traces: Sequence[Trace], files: Sequence[Sequence[StreamFile]]
) -> tuple[StreamFacts, ...]:
    """Return what was read of every stream file, in the order of the files."""
    return tuple(
        _describe(path, file)
        for trace, of in zip(traces, files, strict=True)
        for path, file in zip(trace.files, of, strict=True)
    )


def _describe(path: Path, file: StreamFile) -> StreamFacts:
    table = file.packets
    whole = table[
        (table[:, PacketColumn.STREAM] >= 0)
        & (table[:, PacketColumn.DAMAGE] == 0)
        & (table[:, PacketColumn.WHERE] >= 0)
        & (table[:, PacketColumn.PRESENT] >> Role.BEGIN & 1 != 0)
    ]
    ends = [0]
    for stream in sorted(set(whole[:, PacketColumn.STREAM].tolist())):
        rows = whole[whole[:, PacketColumn.STREAM] == stream]
        ended = has_end(rows)
        last = rows[~ended & (rows[:, PacketColumn.EVENTS] > 0), PacketColumn.LAST]
        ends += [int(last.max(initial=0))]
        ends += [int(file.times(stream, rows[ended, PacketColumn.END]).max(initial=0))]
    cpus = sorted(set(whole[:, PacketColumn.CPU].tolist()))
    return StreamFacts(
        name=file.name,
        bytes=stream_size(path),
        packets=len(whole),
        events=int(table[:, PacketColumn.EVENTS].sum()),
        end=max(ends),
        cpu=cpus[0] if len(cpus) == 1 else -1,
    )


def measure_streams(traces: Sequence[Trace]) -> tuple[StreamFacts, ...]:
    """Return the sizes of all stream files, where another program reads them."""
    return tuple(
        StreamFacts(f"{trace.name}/{path.name}", stream_size(path))
        for trace in traces
        for path in trace.files
    )


def find_changed_streams(events: Events, manifest: Manifest) -> Iterator[Loss]:
    """Yield a loss for every stream that is no longer as its recorder left it.

    From where it ends now; all the time that was recorded, where that does not tell.
    """
    read = {one.name: one for one in events.streams}
    begin = min(manifest.begin or events.begin, events.begin)
    for was in manifest.streams:
        now = read.get(was.name)
        if now is not None and _is_as_recorded(was, now):
            continue
        end = max(manifest.end, was.end, events.end)
        if now is None or not now.bytes:
            how = "is empty" if now is not None else "is not there"
            reason = f"stream missing: {was.name} {how}, it had {plural(was.bytes, 'byte')}"
        else:
            reason = (
                f"truncated: {was.name} has {plural(now.bytes, 'byte')}"
                f", and had {was.bytes:,} when it was recorded"
            )
        since = now.end if now is not None and 0 < now.end < was.end else begin
        packets = events_lost = 0
        if now is None or now.packets >= 0:
            packets = was.packets - (now.packets if now is not None else 0)
            events_lost = was.events - (now.events if now is not None else 0)
        yield Loss(since, end, 0, was.cpu, max(0, events_lost), max(1, packets), reason)


def _is_as_recorded(was: StreamFacts, now: StreamFacts) -> bool:
    """Tell whether as much is there; what another program counted cannot be compared."""
    counts = ((was.packets, now.packets), (was.events, now.events))
    return was.bytes == now.bytes and all(a == b or min(a, b) < 0 for a, b in counts)


def find_other_contents(
    recording: Path, manifest: Manifest, present: Sequence[StreamFacts]
) -> Iterator[str]:
    """Yield a line for every file that is new, or not as it was: of streams, as long as it was."""
    known = {one.name: one for one in manifest.streams}
    for now in present:
        was = known.get(now.name)
        if was is None:
            yield f"{now.name} was not there when the recording ended"
        elif (
            was.digest
            and was.bytes == now.bytes
            and digest_file(recording / now.name) != was.digest
        ):
            yield f"{now.name} has other contents than were recorded (SHA-256)"
    for name, digest in manifest.files.items():
        try:
            if digest_regular(recording / name) != digest:
                yield f"{name} has other contents than were recorded (SHA-256)"
        except OSError as error:
            yield f"{name} cannot be read any more: {error.strerror}"
