"""Writes CTF 1.8 as LTTng's kernel tracer does: metadata, and streams of packets."""

from __future__ import annotations

import hashlib
import os
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from critpath.model import StreamFacts

SOCKADDR: Final = 28  # bytes of a sockaddr_in6
TEXT: Final = "string {{ encoding = UTF8; }} _{};"


@dataclass(frozen=True)
class CtfEventClass:
    """An event as the trace has it, by LTTng's name; `fields` are TSDL declarations."""

    name: str
    id: int
    fields: tuple[str, ...]
    number: int = -1  # ftrace's id
    need: int = 0  # bytes that a record of it must have
    steps: tuple[tuple[int, int, int, int], ...] = ()  # see `ftrace.ctf_events.Step`


def declare_integer(
    name: str, size: int, *, signed: bool, base: int = 10, suffix: str = "", order: str = ""
) -> str:
    """Return the TSDL declaration of an integer of `size` bytes, or of an array of them.

    LTTng's leading underscore is added to `name`; `suffix` follows it, e.g. ``[ 4 ]``; `order`
    is ``be`` for what has its most significant byte first.
    """
    order = f" byte_order = {order};" if order else ""
    return (
        f"integer {{ size = {8 * size}; align = 8; signed = {int(signed)}; encoding = none;"
        f" base = {base};{order} }} _{name}{suffix};"
    )


def declare_address(name: str, size: int) -> list[str]:
    """Return declarations of an internet address: one number, of 16 bytes two halves, or both."""
    if size == SOCKADDR:
        before = [declare_integer(f"{name}_{of}", 2, signed=False) for of in ("family", "port")]
        after = declare_integer(f"{name}_scope", 4, signed=False)
        return [*before, *declare_address(name, 4), *declare_address(f"{name}_v6", 16), after]
    names = [name] if size == 4 else [f"{name}_high", f"{name}_low"]
    each = size // len(names)
    return [declare_integer(n, each, signed=False, base=16, order="be") for n in names]


def declare_characters(name: str, count: int) -> str:
    """Return the TSDL declaration of text of a fixed length, as LTTng writes it."""
    return (
        "integer { size = 8; align = 8; signed = 1; encoding = UTF8; base = 10; }"
        f" _{name}[{count}];"
    )


def declare_fields(text: str) -> tuple[str, ...]:
    """Return the declarations of fields in a short form, such as ``i4 tid, x8 sk, text path``.

    i, u, x and so many bytes: signed, unsigned, an address in memory; c: text; a: of internet.
    """
    found: list[str] = []
    for kind, name in map(str.split, text.split(",")):
        size = int(kind[1:]) if kind != "text" else 0
        if not size:
            found.append(TEXT.format(name))
        elif kind[0] == "c":
            found.append(declare_characters(name, size))
        elif kind[0] == "a":
            found += declare_address(name, size)
        else:
            base = 16 if kind[0] == "x" else 10
            found.append(declare_integer(name, size, signed=kind[0] == "i", base=base))
    return tuple(found)


# Metadata


MAGIC: Final = 0xC1FC1FC1
# More classes than the compact header has ids for need the large one.
COMPACT_IDS: Final = 31

_HEAD: Final = """\
/* CTF 1.8 */

typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 16; align = 8; signed = false; }} := uint16_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := unsigned long;
typealias integer {{ size = 5; align = 1; signed = false; }} := uint5_t;
typealias integer {{ size = 27; align = 1; signed = false; }} := uint27_t;

trace {{
	major = 1;
	minor = 8;
	uuid = "{uuid}";
	byte_order = le;
	packet.header := struct {{
		uint32_t magic;
		uint8_t  uuid[16];
		uint32_t stream_id;
		uint64_t stream_instance_id;
	}};
}};

env {{
{env}
}};

clock {{
	name = "{clock_name}";
	uuid = "{clock_uuid}";
	description = "{clock_title} Clock";
	freq = 1000000000; /* Frequency, in Hz */
	/* clock value offset from Epoch is: offset * (1/freq) */
	offset = {epoch};
}};

"""

_CLOCKS: Final = """\
typealias integer {{
	size = {0}; align = {1}; signed = false;
	map = clock.{2}.value;
}} := uint{0}_clock_monotonic_t;

"""

_CONTEXT: Final = """\
struct packet_context {
	uint64_clock_monotonic_t timestamp_begin;
	uint64_clock_monotonic_t timestamp_end;
	uint64_t content_size;
	uint64_t packet_size;
	uint64_t packet_seq_num;
	unsigned long events_discarded;
	uint32_t cpu_id;
};

"""

_HEADER: Final = """\
struct event_header_{name} {{
	enum : uint{id_bits}_t {{ compact = 0 ... {most}, extended = {extended} }} id;
	variant <id> {{
		struct {{
			uint{time_bits}_clock_monotonic_t timestamp;
		}} compact;
		struct {{
			uint32_t id;
			uint64_clock_monotonic_t timestamp;
		}} extended;
	}} v;
}} align(8);

"""


def _format_value(value: object) -> str:
    """Format an env value as TSDL; text can end neither its string nor its line."""
    if isinstance(value, int):
        return str(value)
    text = "".join(c if " " <= c <= "~" else "?" for c in str(value))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def format_metadata(
    classes: Sequence[CtfEventClass],
    *,
    identity: uuid.UUID,
    clock: uuid.UUID,
    clock_name: str,
    epoch: int,
    environment: Mapping[str, object],
) -> str:
    """Return the text of ``metadata``."""
    kind = "large" if len(classes) > COMPACT_IDS else "compact"
    parts = [
        _HEAD.format(
            uuid=identity,
            clock_uuid=clock,
            clock_name=clock_name,
            clock_title=clock_name.title(),
            epoch=epoch,
            env="\n".join(
                f"\t{name} = {_format_value(value)};" for name, value in environment.items()
            ),
        ),
        *(_CLOCKS.format(bits, align, clock_name) for bits, align in ((27, 1), (32, 8), (64, 8))),
        _CONTEXT,
        _HEADER.format(name="compact", id_bits=5, most=30, extended=31, time_bits=27),
        _HEADER.format(name="large", id_bits=16, most=65534, extended=65535, time_bits=32),
        "stream {\n\tid = 0;\n",
        f"\tevent.header := struct event_header_{kind};\n",
        "\tpacket.context := struct packet_context;\n\tevent.context := struct {\n",
        f"\t\t{declare_integer('tid', 4, signed=True)}\n",
        f"\t\t{declare_integer('common_flags', 1, signed=False, base=16)}\n",
        "\t};\n};\n\n",
    ]
    for one in classes:
        fields = "".join(f"\t\t{field}\n" for field in one.fields)
        parts.append(
            f'event {{\n\tname = "{one.name}";\n\tid = {one.id};\n\tstream_id = 0;\n'
            f"\tfields := struct {{\n{fields}\t}};\n}};\n\n"
        )
    return "".join(parts)


_PACKET: Final = struct.Struct("<6QI")  # what `_CONTEXT` declares
_HEADER_BYTES: Final = 32  # before it


class TraceWriter:
    """A trace in a directory, metadata at once; its clock is shared, at an offset `epoch` (ns)."""

    def __init__(
        self,
        place: Path,
        classes: Sequence[CtfEventClass],
        *,
        clock: uuid.UUID,
        epoch: int,
        environment: Mapping[str, object],
        identity: uuid.UUID | None = None,
        clock_name: str = "monotonic",
    ) -> None:
        self.place, self._large = place, len(classes) > COMPACT_IDS
        self.identity = identity or uuid.uuid4()
        self.events: dict[str, int] = {}  # of each stream
        text = format_metadata(
            classes,
            identity=self.identity,
            clock=clock,
            clock_name=clock_name,
            epoch=epoch,
            environment=environment,
        )
        (place / "metadata").write_text(text, encoding="utf-8")

    def pack_header(self, instance: int) -> bytes:
        """Return the header of every packet of the stream number `instance`."""
        return struct.pack("<I16sIQ", MAGIC, self.identity.bytes, 0, instance)

    def pack_event(self, number: int, time: int, tid: int = 0) -> bytes:
        """Return an event's header with its full time, and a context of a thread alone."""
        mark = b"\xff\xff" if self._large else b"\x1f"
        return mark + struct.pack("<IQiB", number, time, tid, 0)

    def write_stream(
        self, name: str, instance: int, packets: Iterable[tuple[int, int, Sequence[bytes]]]
    ) -> int:
        """Write a stream: each packet's first and last time, and its events; return how many."""
        header, events = self.pack_header(instance), 0
        for sequence, (first, last, packed) in enumerate(packets):
            bits = 8 * (len(header) + _PACKET.size + sum(map(len, packed)))
            context = _PACKET.pack(first, last, bits, bits, sequence, 0, 0)
            with (self.place / name).open("ab") as stream:
                stream.writelines((header, context, *packed))
            events += len(packed)
        self.events[name] = events
        return events

    def survey(self, below: str) -> tuple[StreamFacts, ...]:
        """Return what every stream holds, by names below a directory: as it is written, unread."""
        return tuple(
            _survey(self.place / name, f"{below}/{name}", events)
            for name, events in sorted(self.events.items())
            if (self.place / name).exists()
        )


def _survey(file: Path, name: str, events: int) -> StreamFacts:
    packets = end = at = 0
    cpus = set()
    with file.open("rb", buffering=0) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = stream.tell()
        while at < size:
            context = os.pread(stream.fileno(), _PACKET.size, at + _HEADER_BYTES)
            _, last, _, bits, _, _, cpu = _PACKET.unpack(context)
            packets, end, at = packets + 1, max(end, last), at + bits // 8
            cpus.add(cpu)
    (cpu,) = cpus if len(cpus) == 1 else (-1,)
    return StreamFacts(name, size, packets, events, end, cpu, digest)


def pack_text(text: str) -> bytes:
    """Return text as a string of the trace, which a zero ends."""
    return text.encode("utf-8", "replace").partition(b"\0")[0] + b"\0"
