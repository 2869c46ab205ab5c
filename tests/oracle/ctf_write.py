"""Random CTF schemas, and packets written to them bit by bit."""

from __future__ import annotations

import random
import struct

from oracle.ctf_decode import alignment

from critpath.read.metadata.schema import (
    ArrayClass,
    ClockClass,
    EventRecordClass,
    FloatClass,
    IntegerClass,
    Member,
    Option,
    StreamClass,
    StringClass,
    StructureClass,
    TextClass,
    TraceClass,
    VariantClass,
    VarintClass,
)
from critpath.schema.environment import Environment


class Writer:
    """Bits of one packet; the byte order of a field decides where they go."""

    def __init__(self):
        self.bits = []  # bit i is bit i % 8 of byte i // 8, counted as the field counts

    def align(self, to):
        while len(self.bits) % to:
            self.bits.append((0, False))

    def number(self, value, bits, *, big=False, reverse=False):
        value %= 1 << bits
        if reverse:
            value = int(format(value, f"0{bits}b")[::-1], 2)
        order = range(bits - 1, -1, -1) if big else range(bits)
        self.bits += [((value >> i) & 1, big) for i in order]

    def data(self):
        out = bytearray(-(-len(self.bits) // 8))
        for i, (bit, big) in enumerate(self.bits):
            out[i // 8] |= bit << (7 - i % 8 if big else i % 8)
        return bytes(out)


class Generator:
    """Draws a schema and packets that fit it from one source of randomness."""

    def __init__(self, seed, *, big=None):
        self.rng = random.Random(seed)  # noqa: S311 - test data
        self.big = self.rng.random() < 0.4 if big is None else big
        self.names = 0

    def name(self):
        self.names += 1
        return f"{self.rng.choice(['', '_', '__'])}f{self.names}"

    def integer(self, **settings):
        rng = self.rng
        bits = settings.pop("bits", None) or rng.choice([8, 16, 32, 64, rng.randint(1, 64)])
        align = settings.pop("align", None) or rng.choice([1, 1, 8, 8, 4, 16, 32])
        return IntegerClass(
            bits,
            settings.pop("signed", rng.random() < 0.4),
            self.big,
            align,
            bit_reversed=settings.pop("reverse", rng.random() < 0.1),
            **settings,
        )

    def limited(self, ranges):
        """An integer that only takes some values."""
        high = max(h for _, h in ranges)
        low = min(low for low, _ in ranges)
        bits = self.rng.randint(max(high.bit_length(), (-low).bit_length(), 1) + 1, 33)
        if low >= 0 and self.rng.random() < 0.15:
            return VarintClass(mappings=(("x", tuple(ranges)),))
        return self.integer(bits=bits, signed=low < 0, mappings=(("x", tuple(ranges)),))

    def members(self, path, depth, known):
        """Members of a structure, those that others depend on before them."""
        members = []
        for _ in range(self.rng.randint(0, 4)):
            members += self.member(path, depth, known)
        return StructureClass(tuple(members), self.rng.choice([1, 1, 8, 32]))

    def length(self, path, members, known):
        """The path of a length: an old one, or that of a new member."""
        if known and self.rng.random() < 0.3:
            return self.rng.choice(known)
        name = self.name()
        members.append(Member(name, self.limited([(0, 5)])))
        known.append((*path, name))
        return (*path, name)

    def member(self, path, depth, known):
        rng = self.rng
        members = []
        name = self.name()
        pick = rng.random()
        if depth <= 0 or pick < 0.35:
            of = self.integer()
        elif pick < 0.42:
            of = FloatClass(rng.choice([32, 64, 16]), self.big, rng.choice([1, 8, 32]))
        elif pick < 0.52:
            of = StringClass()
        elif pick < 0.58:
            of = VarintClass(rng.random() < 0.5)
        elif pick < 0.66:
            length = rng.randint(0, 9) if rng.random() < 0.5 else self.length(path, members, known)
            of = TextClass(length, blob=rng.random() < 0.3)
        elif pick < 0.72:
            text = IntegerClass(8, rng.random() < 0.5, self.big, 8, text=True)
            length = rng.randint(0, 17) if rng.random() < 0.5 else self.length(path, members, known)
            of = ArrayClass(text, length)
        elif pick < 0.82:
            length = rng.randint(0, 4) if rng.random() < 0.5 else self.length(path, members, known)
            # Elements may depend on what comes before, and on their own siblings.
            element = rng.choice(
                [
                    self.integer,
                    lambda: self.members((*path, name), depth - 1, list(known)),
                ]
            )()
            of = ArrayClass(element, length, rng.choice([1, 1, 8]))
        elif pick < 0.9:
            of = self.members((*path, name), depth - 1, known)
        else:
            of = self.variant((*path, name), path, members, depth, known)
        return [*members, Member(name, of)]

    def variant(self, path, outer, members, depth, known):
        rng = self.rng
        optional = rng.random() < 0.3
        signed = rng.random() < 0.3
        ranges, low = [], -6 if signed else 0
        for _ in range(1 if optional else rng.randint(1, 3)):
            low += rng.randint(1, 2)
            ranges.append((low, low + rng.randint(0, 2)))
            low = ranges[-1][1]
        name = self.name()
        spare = [(low + 1, low + 2)] if optional else []
        members.append(Member(name, self.limited(ranges + spare)))
        options = []
        for number, taken in enumerate(ranges):
            title = f"o{number}"
            inner = path if optional else (*path, title)
            field = (
                self.members(inner, depth - 1, list(known))
                if rng.random() < 0.7
                else self.integer()
            )
            options.append(Option(title, (taken,), field))
        return VariantClass((*outer, name), tuple(options), optional)

    def schema(self):
        rng = self.rng
        clock = ClockClass("c", rng.choice([1_000_000_000, 1_000_000, 2_593_991_000]))
        magic = IntegerClass(32, False, self.big, 8, roles=frozenset({"packet-magic-number"}))
        header = StructureClass((Member("magic", magic),)) if rng.random() < 0.8 else None
        known = []

        def role(name, bits=64, signed=False, **more):
            return IntegerClass(bits, signed, self.big, 8, roles=frozenset({name}), **more)

        context = [
            Member("begin", role("default-clock-timestamp", clock="c")),
            Member("end", role("packet-end-default-clock-timestamp", clock="c")),
            Member("content", role("packet-content-length", rng.choice([32, 64]))),
            Member("size", role("packet-total-length", rng.choice([32, 64]))),
            Member("cpu_id", IntegerClass(32, False, self.big, 8)),
        ]
        rng.shuffle(context)
        context += self.members(("packet-context",), 1, known).members
        event_header = self.event_header(role)
        event_context = (
            self.members(("event-common-context",), 1, known) if rng.random() < 0.5 else None
        )
        events = {}
        for n in range(3):
            seen = list(known)
            specific = (
                self.members(("event-specific-context",), 1, seen) if rng.random() < 0.3 else None
            )
            payload = self.members(("event-payload",), 3, seen) if rng.random() < 0.9 else None
            events[n] = EventRecordClass(f"event{n}", n, specific, payload)
        stream = StreamClass(
            0, StructureClass(tuple(context)), event_header, event_context, events, "c"
        )
        version = (1, 8) if rng.random() < 0.7 else (2, 0)
        return TraceClass(header, {0: stream}, {"c": clock}, Environment(), "", self.big, version)

    def event_header(self, role):
        """A plain header, or one as LTTng's: compact ids, and an escape to wide ones."""
        rng = self.rng
        stamp = {"roles": frozenset({"default-clock-timestamp"}), "clock": "c"}
        if rng.random() < 0.5:
            number = role(
                "event-record-class-id", rng.choice([5, 8, 16]), mappings=(("x", ((0, 2),)),)
            )
            time = self.integer(
                bits=rng.choice([27, 32, 20, 64]), signed=False, reverse=False, **stamp
            )
            return StructureClass((Member("id", number), Member("timestamp", time)), 8)
        bits = rng.choice([5, 8, 16])
        escape = (1 << bits) - 1
        tight = rng.choice([1, 8])
        number = IntegerClass(
            bits, False, self.big, 1, mappings=(("x", ((0, 2), (escape, escape))),),
            roles=frozenset({"event-record-class-id"}),
        )  # fmt: skip
        wide = role("event-record-class-id", 32, mappings=(("x", ((0, 2),)),))
        compact = IntegerClass(32 - bits, False, self.big, tight, **stamp)
        extended = IntegerClass(64, False, self.big, rng.choice([1, 8, 64]), **stamp)
        variant = VariantClass(
            ("event-header", "id"),
            (
                Option("compact", ((0, escape - 1),), StructureClass((Member("time", compact),))),
                Option(
                    "extended",
                    ((escape, escape),),
                    StructureClass((Member("id", wide), Member("time", extended)), 8),
                ),
            ),
        )
        return StructureClass((Member("id", number), Member("v", variant)), 8)

    def lttng_header(self, bits):
        """An event header as LTTng writes it: compact (5 bits of id) or large (16)."""
        stamp = {"roles": frozenset({"default-clock-timestamp"}), "clock": "c"}
        named = {"roles": frozenset({"event-record-class-id"})}
        last = (1 << bits) - 1
        tight = 1 if bits == 5 else 8
        near = IntegerClass(32 - bits if bits == 5 else 32, False, False, tight, **stamp)
        options = (
            Option("compact", ((0, last - 1),), StructureClass((Member("timestamp", near),))),
            Option(
                "extended",
                ((last, last),),
                StructureClass(
                    (
                        Member("id", IntegerClass(32, False, False, 8, **named)),
                        Member("timestamp", IntegerClass(64, False, False, 8, **stamp)),
                    )
                ),
            ),
        )
        number = IntegerClass(bits, False, False, tight, **named)
        variant = VariantClass(("event-header", "id"), options)
        return StructureClass((Member("id", number), Member("v", variant)), 8)

    # ---------------------------------------------------------------- packets

    def write(self, out, of, path, env, fixed):
        out.align(alignment(of))
        rng = self.rng
        if isinstance(of, (IntegerClass, VarintClass)):
            value = fixed.get(next(iter(of.roles), ""), None)
            if value is None and of.mappings:
                value = rng.randint(*rng.choice(of.mappings[0][1]))
            width = 64 if isinstance(of, VarintClass) else of.bits
            if value is None:
                value = rng.getrandbits(rng.randint(1, width)) % (1 << width)
                if of.signed and value >= 1 << (width - 1):
                    value -= 1 << width
            env[path] = value
            if isinstance(of, VarintClass):
                self.varint(out, of, value)
            else:
                out.number(value, of.bits, big=of.big_endian, reverse=of.bit_reversed)
        elif isinstance(of, FloatClass):
            if of.bits == 64:
                raw = struct.unpack("<Q", struct.pack("<d", rng.uniform(-1e9, 1e9)))[0]
            elif of.bits == 32:
                raw = struct.unpack("<I", struct.pack("<f", rng.uniform(-1e9, 1e9)))[0]
            else:
                raw = rng.getrandbits(of.bits)
            out.number(raw, of.bits, big=of.big_endian, reverse=of.bit_reversed)
        elif isinstance(of, StringClass):
            for byte in rng.choice(
                [b"", b"cat", b"\xff\xfe", "\u00e4".encode(), b"0123456789abcdef"]
            ):
                out.number(byte, 8)
            out.number(0, 8)
        elif isinstance(of, (TextClass, ArrayClass)):
            count = of.length if isinstance(of.length, int) else env[of.length]
            element = of.element if isinstance(of, ArrayClass) else None
            if element is None or (isinstance(element, IntegerClass) and element.text):
                text = rng.choice([b"swapper/0", b"a", b"", b"\xc3\xa4\0b"]).ljust(count, b"\0")
                for byte in text[:count]:
                    out.number(byte, 8)
            else:
                for _ in range(count):
                    self.write(out, element, path, env, {})
        elif isinstance(of, StructureClass):
            for member in of.members:
                self.write(out, member.field, (*path, member.name), env, fixed)
        else:
            value = env[of.selector]
            for option in of.options:
                if any(low <= value <= high for low, high in option.ranges):
                    name = () if of.optional else (option.name,)
                    self.write(out, option.field, path + name, env, fixed)
                    return

    def varint(self, out, of, value):
        while True:
            low = value & 0x7F
            value >>= 7
            done = (value == 0 and not (of.signed and low & 0x40)) or (
                of.signed and value == -1 and low & 0x40
            )
            out.number(low | (0 if done else 0x80), 8)
            if done:
                return

    def packet(self, schema, clock, count):
        """Bytes of one packet of some events, and the clock behind it."""
        for sizes in (None, "known"):
            if sizes is None:
                state = self.rng.getstate()
                content, size = 0, 0
            else:
                self.rng.setstate(state)
            out, now = Writer(), clock
            stream = schema.streams[0]
            env = {}
            fixed = {
                "packet-magic-number": 0xC1FC1FC1,
                "packet-content-length": content,
                "packet-total-length": size,
                "default-clock-timestamp": clock,
                "packet-end-default-clock-timestamp": clock + 1000 * count,
            }
            if schema.packet_header:
                self.write(out, schema.packet_header, ("packet-header",), env, fixed)
            self.write(out, stream.packet_context, ("packet-context",), env, fixed)
            for _ in range(count):
                now += self.rng.randint(0, 1000)
                inner = dict(env)
                self.write(
                    out,
                    stream.event_header,
                    ("event-header",),
                    inner,
                    {"default-clock-timestamp": now},
                )
                wide = inner.get(("event-header", "v", "extended", "id"))
                number = inner["event-header", "id"] if wide is None else wide
                event = stream.events[number]
                for scope, of in (
                    ("event-common-context", stream.event_context),
                    ("event-specific-context", event.context),
                    ("event-payload", event.payload),
                ):
                    if of is not None:
                        self.write(out, of, (scope,), inner, {})
            content = len(out.bits)
            size = -(-content // 64) * 64
        return out.data().ljust(size // 8, b"\0"), now
