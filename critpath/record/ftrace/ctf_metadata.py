"""Writes the metadata of a CTF 1.8 trace as LTTng's kernel tracer would."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from critpath.record.ftrace.ctf_events import EventClass, integer

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
	name = "monotonic";
	uuid = "{clock_uuid}";
	description = "Monotonic Clock";
	freq = 1000000000; /* Frequency, in Hz */
	/* clock value offset from Epoch is: offset * (1/freq) */
	offset = {epoch};
}};

"""

_CLOCKS: Final = """\
typealias integer {{
	size = {0}; align = {1}; signed = false;
	map = clock.monotonic.value;
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


def _value(value: object) -> str:
    """Return an env value as TSDL has it: text can neither end its string nor its line."""
    if isinstance(value, int):
        return str(value)
    text = "".join(c if " " <= c <= "~" else "?" for c in str(value))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def metadata(
    classes: Sequence[EventClass],
    *,
    identity: uuid.UUID,
    clock: uuid.UUID,
    epoch: int,
    environment: Mapping[str, object],
) -> str:
    """Return the text of ``metadata``.

    Parameters
    ----------
    classes : sequence of EventClass
        Of the one stream class.
    identity, clock : UUID
        Of the trace, and of its clock: the same for traces whose times may be compared.
    epoch : int
        Of the clock (ns).
    environment : mapping
        The ``env`` block; numbers and text.
    """
    kind = "large" if len(classes) > COMPACT_IDS else "compact"
    parts = [
        _HEAD.format(
            uuid=identity,
            clock_uuid=clock,
            epoch=epoch,
            env="\n".join(f"\t{name} = {_value(value)};" for name, value in environment.items()),
        ),
        *(_CLOCKS.format(bits, align) for bits, align in ((27, 1), (32, 8), (64, 8))),
        _CONTEXT,
        _HEADER.format(name="compact", id_bits=5, most=30, extended=31, time_bits=27),
        _HEADER.format(name="large", id_bits=16, most=65534, extended=65535, time_bits=32),
        "stream {\n\tid = 0;\n",
        f"\tevent.header := struct event_header_{kind};\n",
        "\tpacket.context := struct packet_context;\n\tevent.context := struct {\n",
        f"\t\t{integer('tid', 4, signed=True)}\n",
        f"\t\t{integer('common_flags', 1, signed=False, base=16)}\n",
        "\t};\n};\n\n",
    ]
    for one in classes:
        fields = "".join(f"\t\t{field}\n" for field in one.fields)
        parts.append(
            f'event {{\n\tname = "{one.name}";\n\tid = {one.id};\n\tstream_id = 0;\n'
            f"\tfields := struct {{\n{fields}\t}};\n}};\n\n"
        )
    return "".join(parts)


def packet_header(identity: uuid.UUID, instance: int) -> bytes:
    """Return the header of every packet of a stream.

    Parameters
    ----------
    identity : UUID
        Of the trace.
    instance : int
        Which stream of the class it is.
    """
    return struct.pack("<I16sIQ", MAGIC, identity.bytes, 0, instance)
