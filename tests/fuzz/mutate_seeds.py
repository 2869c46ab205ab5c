"""Small traces made of real ones: some milliseconds of each, in packets of a few kB.

The packets are those of the recording, cut where an event ends; their headers say what a
tracer would have said of so few events.  So a campaign tries a whole recording, from stream
files to critical paths, some hundred times a second.
"""

from __future__ import annotations

import re
import struct
import tarfile
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from oracle import ctf_decode

from critpath.read.metadata.schema import IntegerClass
from critpath.read.traces import find_traces

ROOT = Path(__file__).resolve().parent.parent.parent
TRACES = ROOT.parent / "shared" / "traces"
REQUESTS = "events:app:request_begin,app:request_end,key=id"
PAGE = 4096
WINDOW = 60_000_000  # of the clock
ROTATED = re.compile(r"_\d+_\d+$")  # a file of a stream that has several
# Archive, what an execution is, and how many bytes of events a stream may have, about.
SEEDS = {
    "normal": (REQUESTS, 10_000),
    "sample-lock": (REQUESTS, 7_000),
    "plain": (REQUESTS, 9_000),
    "lossy": (REQUESTS, 12_000),
    "steady-normal": (REQUESTS, 12_000),
    "bt-tracefile-rotation": ("thread", 6_000),
    "selora-old_trace": ("thread", 2_000),
    "tc-many-threads": ("thread", 2_000),
    "tc-uneven-streams-PARTIAL": ("thread", 12_000),
    "tc-scp_dest": ("thread", 12_000),
}


@dataclass
class Place:
    """One packet of a stream file: where its parts lie, in bits of the file."""

    begin: int
    content: int  # where the content ends
    end: int
    fields: dict[str, tuple[int, int]]  # of header and context: bit and width
    events: list[tuple[int, int, int]]  # begin, where the payload begins, end
    times: list[int]


@dataclass
class Seed:
    """A small recording, in memory and in a directory.

    Attributes
    ----------
    name, specification : str
    directory : Path
    files : dict of str to bytes
        Stream files, by their name below the directory.
    metadata : dict of str to bytes
    places : dict of str to list of Place
    """

    name: str
    specification: str
    directory: Path
    files: dict[str, bytes]
    metadata: dict[str, bytes]
    places: dict[str, list[Place]] = field(default_factory=dict)


class Walker(ctf_decode.Trace):
    """The plain twin of the decoder, which notes where everything lies."""

    def __init__(self, schema, until=None, most=0):
        super().__init__(schema)
        self.until, self.most = until, most
        self.places: list[Place] = []

    def packet(self, bits, data, at, result):
        self.here = Place(8 * at, 0, 0, {}, [], [])
        self.places.append(self.here)
        size = super().packet(bits, data, at, result)
        self.here.content = bits.begin + bits.limit
        self.here.end = 8 * (at + size)
        return size

    def read(self, bits, of, path, shown, env, out, clock):
        if isinstance(of, IntegerClass) and path[0] in {"packet-header", "packet-context"}:
            at = bits.begin + -(-bits.pos // of.align) * of.align
            self.here.fields[path[-1].removeprefix("_")] = at, of.bits
        super().read(bits, of, path, shown, env, out, clock)
        if path == ("event-header",):
            self.payload = bits.begin + bits.pos

    def event(self, bits, stream, env, context, cpu, result):
        begin = bits.begin + bits.pos
        super().event(bits, stream, env, context, cpu, result)
        self.here.events.append((begin, self.payload, bits.begin + bits.pos))
        self.here.times.append(self.clock)
        if self.until is not None and self.clock > self.until:
            bits.limit = bits.pos


def archive(name: str) -> Path | None:
    """Return the archive of a trace, None where it is not there."""
    homes = (ROOT / "fixtures" / "lttng-guest", TRACES / "lttng-guest", TRACES / "public")
    return next((h / f"{name}.tar.xz" for h in homes if (h / f"{name}.tar.xz").exists()), None)


def walk(schema, data: bytes, until: int | None = None) -> list[Place]:
    """Return where everything lies in a stream file, up to some time of its clock."""
    walker = Walker(schema, until)
    walker.file(data)
    return walker.places


def put(data: bytearray, place: tuple[int, int], value: int) -> None:
    """Write an integer of whole bytes, least significant first."""
    at, width = place
    data[at // 8 : (at + width) // 8] = (value % (1 << width)).to_bytes(width // 8, "little")


def get(data: bytes, place: tuple[int, int]) -> int:
    """Read an integer of whole bytes, least significant first."""
    at, width = place
    return int.from_bytes(data[at // 8 : (at + width) // 8], "little")


def first_packets(data: bytes, schema, most: int) -> bytes:
    """Return packets from a file's begin on, at least so many bytes and the first one."""
    stream = next(iter(schema.streams.values()))
    names = [m.name.removeprefix("_") for m in stream.packet_context.members]
    at = 0
    header = (
        24 if "stream_instance_id" not in [m.name for m in schema.packet_header.members] else 32
    )
    while at < len(data) and at < most:
        size = struct.unpack_from("<Q", data, at + header + 8 * names.index("packet_size"))[0]
        at += size // 8
    return data[:at]


def shorten(data: bytes, places: list[Place], since: int, until: int, most: int, spans: int):
    """Return a stream file with the events of some time, in several packets.

    ``most`` bounds the bytes of events.  ``until`` is the end of the last packet.
    """
    taken = []
    size = 0
    for place in places:
        for (begin, _, end), time in zip(place.events, place.times, strict=True):
            if since <= time <= until and size < most:
                taken.append((begin // 8, end // 8, time))
                size += (end - begin) // 8
    each = max(1, -(-len(taken) // spans))
    groups = [taken[i : i + each] for i in range(0, len(taken), each)] or [[]]
    return packets(data, places[0], groups, (since, until))


def packets(data: bytes, first: Place, groups: list[list], span: tuple[int, int]) -> bytes:
    """Return a stream file with a packet for each group of events (begin, end, time)."""
    head = data[first.begin // 8 : (first.events[0][0] if first.events else first.content) // 8]
    out = bytearray()
    for number, group in enumerate(groups):
        packet = bytearray(head)
        for begin, end, _ in group:
            packet += data[begin:end]
        content = len(packet)
        packet += bytes(-len(packet) % PAGE)
        values = {
            "timestamp_begin": group[0][2] if group and number else span[0],
            "timestamp_end": groups[number + 1][0][2] if number + 1 < len(groups) else span[1],
            "content_size": 8 * content,
            "packet_size": 8 * len(packet),
            "packet_seq_num": number,
            "events_discarded": 0,
        }
        for name, value in values.items():
            if name in first.fields:
                bit, width = first.fields[name]
                put(packet, (bit - first.begin, width), value)
        out += packet
    return bytes(out)


def split(data: bytes, places: list[Place], times: list[int]) -> bytes:
    """Return a stream file with the same events, whose packets end at some times."""
    begin = get(data, places[0].fields["timestamp_begin"])
    end = get(data, places[-1].fields["timestamp_end"])
    groups: list[list] = [[] for _ in range(len(times) + 1)]
    for place in places:
        for (low, _, high), time in zip(place.events, place.times, strict=True):
            groups[bisect_right(times, time)].append((low // 8, high // 8, time))
    return packets(data, places[0], [g for g in groups if g], (begin, end))


def make(name: str, into: Path) -> Seed | None:
    """Make the small recording of a name in a directory; None where its archive is not here."""
    specification, most = SEEDS[name]
    source = archive(name)
    if source is None:
        return None
    with tarfile.open(source) as tar:
        members = {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}
    whole = into / f"{name}.whole"
    for member, data in members.items():
        path = whole / member
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    target = into / name
    seed = Seed(name, specification, target, {}, {})
    traces = find_traces(whole)
    since = begin_of(traces, specification)
    window = WINDOW if len(traces[0].files) < 8 else WINDOW // 20
    walked = {}
    for trace in traces:
        for path in trace.files:
            data = first_packets(path.read_bytes(), trace.schema, 3 << 20)
            walked[path] = data, walk(trace.schema, data, since + window)
    until = 0
    for (_, places), path in zip(walked.values(), walked, strict=True):
        size = 0
        last = since
        for place in places:
            for (a, _, b), time in zip(place.events, place.times, strict=True):
                if since <= time <= since + window and size < most:
                    size += (b - a) // 8
                    last = time
        if "ust" not in str(path) and "lttng_python" not in str(path):
            until = max(until, last)
    until += 1_000
    for trace in traces:
        below = trace.directory.relative_to(whole)
        for path in trace.files:
            data, places = walked[path]
            kernel = trace.domain == "kernel"
            if ROTATED.search(path.name) and places[0].times[0] > until:
                continue
            seed.files[str(below / path.name)] = shorten(
                data, places, since, until, 3 * most, 3 if kernel else 2
            )
        seed.metadata[str(below / "metadata")] = (trace.directory / "metadata").read_bytes()
    for member, data in {**seed.files, **seed.metadata}.items():
        path = target / member
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for trace in find_traces(target):
        for path in trace.files:
            member = str(path.relative_to(target))
            seed.places[member] = walk(trace.schema, seed.files[member])
    return seed


def begin_of(traces, specification: str) -> int:
    """Return when the small recording begins: a little before the first request."""
    every = []
    for trace in traces:
        if specification == REQUESTS and trace.domain != "ust":
            continue
        for path in trace.files:
            data = path.read_bytes()
            places = walk(trace.schema, first_packets(data, trace.schema, 1), 0)[:1]
            every += [place.times[0] for place in places if place.times]
    return min(every) - (2_000_000 if specification == REQUESTS else 0)
