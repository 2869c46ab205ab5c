"""The plain twin of the native decoder: slow, obvious, straight from the schema.

It shares nothing with `critpath.read.program`: bits are read one by one, and every
field of every event is decoded into a dictionary.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from critpath.read.metadata.schema import (
    ArrayClass,
    FloatClass,
    IntegerClass,
    StringClass,
    StructureClass,
    TextClass,
    TraceClass,
    VariantClass,
    VarintClass,
)


class DamagedError(Exception):
    """The packet cannot be decoded further."""


@dataclass
class DecodedEvent:
    name: str
    timestamp: int
    cpu: int
    fields: dict


@dataclass
class DecodedFile:
    events: list = field(default_factory=list)
    total: int = 0
    packets: list = field(default_factory=list)  # (byte offset, damaged or cut)


class Bits:
    def __init__(self, data, begin):
        self.data, self.begin, self.pos, self.limit = data, 8 * begin, 0, 8 * (len(data) - begin)

    def align(self, to):
        self.pos = -(-self.pos // to) * to
        if self.pos > self.limit:
            raise DamagedError("outside")

    def take(self, count):
        if count < 0 or count > self.limit - self.pos:
            raise DamagedError("outside")
        at = self.begin + self.pos
        self.pos += count
        return at

    def number(self, bits, *, big, reverse, signed):
        at = self.take(bits)
        value = 0
        if not big and not reverse:
            # Least significant first, as the loop below has it; most fields are such.
            value = int.from_bytes(self.data[at // 8 : (at + bits + 7) // 8], "little")
            value = value >> at % 8 & (1 << bits) - 1
            return value - (1 << bits) if signed and bits and value >> (bits - 1) else value
        for i in range(at, at + bits):
            byte = self.data[i // 8]
            if big:
                value = value * 2 + ((byte >> (7 - i % 8)) & 1)
            else:
                value += ((byte >> (i % 8)) & 1) << (i - at)
        if reverse:
            value = int(format(value, f"0{bits}b")[::-1], 2)
        if signed and value >= 1 << (bits - 1):
            value -= 1 << bits
        return value


def alignment(of):
    if isinstance(of, (IntegerClass, FloatClass)):
        return of.align
    if isinstance(of, ArrayClass):
        return max(of.align, alignment(of.element))
    if isinstance(of, StructureClass):
        return max([of.align] + [alignment(m.field) for m in of.members])
    return 1 if isinstance(of, VariantClass) else 8


class Trace:
    def __init__(self, schema: TraceClass):
        self.schema = schema
        self.strip = schema.version < (2, 0)
        self.clock = 0

    # One field: appends (dotted name, value) to `out`; `env` has every value by path.
    def read(self, bits, of, path, shown, env, out, clock):
        bits.align(alignment(of))
        if isinstance(of, IntegerClass):
            value = bits.number(
                of.bits, big=of.big_endian, reverse=of.bit_reversed, signed=of.signed
            )
            self.keep(of, of.bits, value, path, shown, env, out, clock)
        elif isinstance(of, VarintClass):
            value, shift = 0, 0
            while True:
                byte = bits.number(8, big=False, reverse=False, signed=False)
                value |= (byte & 0x7F) << shift
                shift += 7
                if shift > 70 or (shift == 70 and not self.fits(of, value)):
                    raise DamagedError("varint")
                if byte < 0x80:
                    break
            if of.signed and byte & 0x40:
                value -= 1 << shift
            self.keep(of, 64, value, path, shown, env, out, clock)
        elif isinstance(of, FloatClass):
            if of.bits in {32, 64}:
                raw = bits.number(of.bits, big=of.big_endian, reverse=of.bit_reversed, signed=False)
                code = "<If" if of.bits == 32 else "<Qd"
                out.append((shown, struct.unpack("<" + code[2], struct.pack(code[:2], raw))[0], ""))
            else:
                bits.take(of.bits)
        elif isinstance(of, StringClass):
            text = bytearray()
            while byte := bits.number(8, big=False, reverse=False, signed=False):
                text.append(byte)
            out.append((shown, text.decode("utf-8", "replace"), ""))
        elif isinstance(of, TextClass):
            size = of.length if isinstance(of.length, int) else self.look(of.length, env)
            self.text(bits, size, shown, [] if of.blob else out)
        elif isinstance(of, ArrayClass):
            count = of.length if isinstance(of.length, int) else self.look(of.length, env)
            of_text = of.element
            if (
                isinstance(of_text, IntegerClass)
                and of_text.text
                and of_text.bits == 8 == of_text.align
            ):
                self.text(bits, count, shown, out)
            else:
                for _ in range(count):
                    before = bits.pos
                    self.read(bits, of.element, path, (), env, [], clock)
                    if bits.pos == before:
                        break
        elif isinstance(of, StructureClass):
            for member in of.members:
                name = member.name
                if self.strip and name.startswith("_"):
                    name = name[1:]
                self.read(bits, member.field, (*path, member.name), (*shown, name), env, out, clock)
        else:
            for key in [k for k in env if k[: len(path)] == path and k != path]:
                env[key] = 0
            value = self.look(of.selector, env)
            for option in of.options:
                if of.optional and not option.ranges:
                    chosen = value != 0
                else:
                    chosen = any(low <= value <= high for low, high in option.ranges)
                if chosen:
                    name = () if of.optional else (option.name,)
                    self.read(bits, option.field, path + name, shown, env, out, clock)
                    return
            if not of.optional:
                raise DamagedError("no option")

    @staticmethod
    def fits(of, value):
        top = value >> 63
        return top in ({0, 0x7F} if of.signed else {0, 1})

    def text(self, bits, size, shown, out):
        if size > (bits.limit - bits.pos) // 8:
            raise DamagedError("outside")
        at = bits.take(8 * size) // 8
        out.append(
            (shown, bits.data[at : at + size].split(b"\0")[0].decode("utf-8", "replace"), "")
        )

    def look(self, path, env):
        if path not in env:
            raise DamagedError("unknown selector")
        return env[path]

    def keep(self, of, width, value, path, shown, env, out, clock):
        env[path] = value
        out.append((shown, value, "role" if of.roles else ""))
        roles = of.roles
        for role in roles if path[0] in {"packet-header", "packet-context", "event-header"} else ():
            env[role] = value
        ticks = "default-clock-timestamp" in roles or (clock and of.clock == clock)
        if ticks and not of.signed and "packet-end-default-clock-timestamp" not in roles:
            mask = (1 << width) - 1
            if width < 64 and value < self.clock & mask:
                # A clock has 64 bits: it begins anew behind the last of them.
                self.clock = (self.clock + (1 << width)) % (1 << 64)
            self.clock = value if width == 64 else (self.clock & ~mask) | value

    def file(self, data: bytes) -> DecodedFile:
        result = DecodedFile()
        self.clock = 0
        at = 0
        while at < len(data):
            bits = Bits(data, at)
            size, damaged = len(data) - at, False
            try:
                size = self.packet(bits, data, at, result)
            except DamagedError as error:
                damaged = True
                size = error.args[1] if len(error.args) > 1 else size
            whole = len(data) - at
            result.packets.append((at, damaged or size > whole))
            at += min(size, whole)
        return result

    def packet(self, bits, data, at, result):
        env = {}
        schema = self.schema
        bits.limit = min(bits.limit, 65536 * 8 if len(data) - at > 1 << 20 else bits.limit)
        if schema.packet_header:
            try:
                self.read(bits, schema.packet_header, ("packet-header",), (), env, [], "")
            finally:
                if env.get("packet-magic-number", 0xC1FC1FC1) != 0xC1FC1FC1:
                    raise DamagedError("magic")
        if len(schema.streams) == 1 and "data-stream-class-id" not in env:
            stream = next(iter(schema.streams.values()))
        else:
            stream = schema.streams.get(env.get("data-stream-class-id", 0))
        if stream is None:
            raise DamagedError("stream")
        context = []
        if stream.packet_context:
            self.read(
                bits, stream.packet_context, ("packet-context",), (), env, context, stream.clock
            )
        cpu = env.get(("packet-context", "cpu_id"), -1)
        whole = 8 * (len(data) - at)
        content = size = env.get("packet-total-length", env.get("packet-content-length", whole))
        content = env.get("packet-content-length", content)
        if size >= 1 << 63:  # no file is that large
            raise DamagedError("size")
        if size <= 0 or size % 8 or content > size or content < bits.pos:
            if size > 0 and size % 8 == 0 and bits.pos <= size <= whole:
                raise DamagedError("size", size // 8)
            raise DamagedError("size")
        bits.limit = min(content, whole)
        try:
            while bits.pos < bits.limit:
                self.event(bits, stream, dict(env), context, cpu, result)
        except DamagedError as error:
            raise DamagedError(error.args[0], size // 8) from error
        return size // 8

    def event(self, bits, stream, env, context, cpu, result):
        before = bits.pos
        if stream.event_header:
            self.read(bits, stream.event_header, ("event-header",), (), env, [], stream.clock)
        if len(stream.events) == 1 and "event-record-class-id" not in env:
            event = next(iter(stream.events.values()))
        else:
            event = stream.events.get(env.get("event-record-class-id", 0))
        if event is None:
            raise DamagedError("event")
        timestamp = self.clock
        found = {}
        scopes = []
        for scope, of in (
            ("event-common-context", stream.event_context),
            ("event-specific-context", event.context),
            ("event-payload", event.payload),
        ):
            out = []
            if of:
                self.read(bits, of, (scope,), (), env, out, stream.clock)
            scopes.append(out)
        if bits.pos == before:
            raise DamagedError("empty")
        common, specific, payload = scopes
        for number, scope in enumerate((payload, specific, common, context)):
            for name, value, role in scope:
                if name and not role:
                    found.setdefault(".".join(name), (number, value))
                    if found[".".join(name)][0] == number:
                        found[".".join(name)] = (number, value)
        fields = {name: value for name, (_, value) in found.items()}
        if cpu == -1:
            within = {name[0]: value for name, value, _ in payload if len(name) == 1}
            cpu = within.get("perf_cpu", -1)
            cpu = cpu if isinstance(cpu, int) and 0 <= cpu < 1 << 31 else -1
        result.events.append(DecodedEvent(event.name, timestamp, cpu, fields))
        result.total += 1
