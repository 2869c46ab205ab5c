"""What every trace of a tracer's obeys: whether changed bytes could be a trace as they are.

Written a second time, plainly and from the twin's decoding, so that the product's own rules
(`critpath.read.losses`) are not what they are judged by.  A change after which none
of these is broken cannot be noticed by anybody who has only the bytes.
"""

from __future__ import annotations

from itertools import pairwise

from mutate_seeds import Place, Walker, get

PAGES = (4096, 16384, 65536)
MS = 1_000_000


def decode(schema, data: bytes) -> tuple[list[Place], list, list[bool]]:
    """Return a stream file's packets, its events, and which packets are damaged or cut."""
    walker = Walker(schema)
    found = walker.file(data)
    return walker.places, found.events, [odd for _, odd in found.packets]


def value(data: bytes, place: Place, name: str, default: int = 0) -> int:
    return get(data, place.fields[name]) if name in place.fields else default


def of_packet(data: bytes, place: Place, contents: list[int], *, cleared: bool) -> str:
    """Return what is wrong with a packet by itself, "" for nothing.

    Whether its padding was changed does not matter where its content ends as it did, nor
    where tracers leave older events in it: LTTng's in user space does.
    """
    begin, end = (value(data, place, f"timestamp_{x}") for x in ("begin", "end"))
    if end < begin or end == 0:
        return "ends before it begins"
    if any(a > b for a, b in pairwise(place.times)):
        return "time runs backwards"
    if place.times and not (begin <= place.times[0] and place.times[-1] <= end):
        return "events outside"
    if "stream_instance_id" in place.fields and value(data, place, "stream_instance_id") != value(
        data, place, "cpu_id"
    ):
        return "of another cpu"
    content = -(-value(data, place, "content_size") // 8)
    size = value(data, place, "packet_size") // 8
    if all(size != -(-content // page) * page for page in PAGES):
        return "sizes"
    if (
        cleared
        and place.content not in contents
        and any(data[-(-place.content // 8) : place.end // 8])
    ):
        return "padding"
    return ""


def of_file(
    data: bytes,
    places: list[Place],
    contents: list[int],
    near: set[int] | None = None,
    *,
    cleared: bool = True,
) -> str:
    """Return what is wrong with a stream file, or only with some of its packets."""
    for number, place in enumerate(places):
        if near is not None and number not in near:
            continue
        if wrong := of_packet(data, place, contents, cleared=cleared):
            return wrong
    for number, (one, other) in enumerate(pairwise(places)):
        if near is not None and not near & {number, number + 1}:
            continue
        if value(data, one, "timestamp_end") > value(data, other, "timestamp_begin") + MS:
            return "packets overlap"
        if one.times and other.times and one.times[-1] > other.times[0]:
            return "packets mix"
        if "packet_seq_num" in one.fields and (
            value(data, other, "packet_seq_num") != value(data, one, "packet_seq_num") + 1
        ):
            return "numbers"
        if value(data, one, "events_discarded") != value(data, other, "events_discarded"):
            return "discarded"
        if value(data, one, "cpu_id") != value(data, other, "cpu_id"):
            return "two cpus"
    if places and value(data, places[0], "events_discarded"):
        return "discarded"
    return ""


def of_trace(files: dict[str, tuple[bytes, list[Place]]], version: tuple[int, int], wanted) -> str:
    """Return what is wrong with the streams of one trace together.

    ``wanted`` are the cpus that the trace must have; None if nobody knows.
    """
    having = {name: (data, places) for name, (data, places) in files.items() if places}
    last = max((p.times[-1] for _, of in having.values() for p in of if p.times), default=0)
    begins = [value(data, of[0], "timestamp_begin") for data, of in having.values()]
    streams = [value(data, of[0], "stream_instance_id", -1) for data, of in having.values()]
    if "stream_instance_id" in next(iter(having.values()))[1][0].fields and len(set(streams)) < len(
        streams
    ):
        return "two files of one stream"
    # Snapshots and chunks, whose buffers are written one after the other.
    part = any(value(data, of[0], "packet_seq_num") for data, of in having.values())
    for data, places in having.values():
        first = value(data, places[0], "packet_seq_num")
        if first and value(data, places[0], "timestamp_begin") > min(begins):
            return "begins late"
        if version >= (2, 9) and not part and value(data, places[-1], "timestamp_end") + MS < last:
            return "ends early"
    cpus = {value(data, of[0], "cpu_id") for data, of in having.values()}
    if wanted is not None and version >= (2, 9) and not wanted <= cpus:
        return "cpus missing"
    return ""
