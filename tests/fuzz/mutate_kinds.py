"""How a small trace is changed: one input of a campaign per number, the same every time."""

from __future__ import annotations

import random
from dataclasses import dataclass

from mutate_seeds import Seed, get, put

# What sizes, times and counters are set to, besides what stands elsewhere in the trace.
ODD = (0, 1, 7, 8, 64, 1 << 15, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 48, 1 << 62, 1 << 63,
       (1 << 64) - 8, (1 << 64) - 1)  # fmt: skip
TIMES = ("timestamp_begin", "timestamp_end")


@dataclass
class Mutation:
    """What was done to a seed.

    Attributes
    ----------
    kind : str
    file : str
        Which file was changed.
    data : bytes or None
        What stands in it now; None if it is gone.
    place : str
        What the change is about: ``payload``, ``event-header``, ``packet``, ``padding``,
        ``file``, ``metadata``.
    event : tuple of int
        Packet and event, where a single event was changed.
    said : str
        In words, for a finding.
    bits : tuple of int
        Which ones were flipped, if that is all.
    """

    kind: str
    file: str
    data: bytes | None
    place: str
    event: tuple[int, ...] = ()
    said: str = ""
    bits: tuple[int, ...] = ()


def region(seed: Seed, file: str, bit: int) -> tuple[str, tuple[int, ...]]:
    """Return what a bit of a stream file belongs to."""
    for number, packet in enumerate(seed.places[file]):
        if not packet.begin <= bit < packet.end:
            continue
        if bit >= packet.content:
            return "padding", (number,)
        for index, (begin, payload, end) in enumerate(packet.events):
            if begin <= bit < end:
                return ("event-header" if bit < payload else "payload"), (number, index)
        return "packet", (number,)
    return "file", ()


def _flip(seed: Seed, file: str, bits: list[int], kind: str) -> Mutation:
    data = bytearray(seed.files[file])
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    about = {region(seed, file, bit) for bit in bits}
    place, event = next(iter(about)) if len(about) == 1 else ("several", ())
    said = f"bits {bits} of {file}"
    return Mutation(kind, file, bytes(data), place, event, said, tuple(bits))


def one_by_one(seed: Seed, of: Mutation) -> list[Mutation]:
    """Return the flips of an input as inputs of their own."""
    return [_flip(seed, of.file, [bit], "flip") for bit in of.bits]


def flip_anywhere(rng, seed, file):
    return _flip(seed, file, [rng.randrange(8 * len(seed.files[file]))], "flip")


def flip_several(rng, seed, file):
    size = 8 * len(seed.files[file])
    return _flip(seed, file, [rng.randrange(size) for _ in range(rng.randint(2, 8))], "flips")


def flip_near(rng, seed, file):
    at = rng.randrange(8 * len(seed.files[file]) - 64)
    return _flip(seed, file, [at + rng.randrange(64) for _ in range(3)], "burst")


def flip_packet(rng, seed, file):
    place = rng.choice(seed.places[file])
    at, width = place.fields[rng.choice(list(place.fields))]
    return _flip(seed, file, [at + rng.randrange(width)], "flip")


def flip_event(rng, seed, file):
    place = rng.choice(seed.places[file])
    if not place.events:
        return flip_packet(rng, seed, file)
    begin, payload, _ = rng.choice(place.events)
    return _flip(seed, file, [rng.randrange(begin, payload)], "flip")


def flip_payload(rng, seed, file):
    place = rng.choice(seed.places[file])
    if not place.events:
        return flip_packet(rng, seed, file)
    _, payload, end = rng.choice(place.events)
    if payload == end:
        return flip_event(rng, seed, file)
    return _flip(seed, file, [rng.randrange(payload, end)], "flip")


def set_field(rng, seed, file):
    """A field of a packet's header takes an odd value, or that of the packet before."""
    data = bytearray(seed.files[file])
    number = rng.randrange(len(seed.places[file]))
    place = seed.places[file][number]
    name = rng.choice(list(place.fields))
    other = seed.places[file][number - 1].fields.get(name)
    values = [*ODD, get(data, place.fields[name]) + rng.choice((-8, -1, 1, 8, 4096, -4096))]
    values += [get(data, other)] * 4 if other else []
    value = rng.choice(values)
    put(data, place.fields[name], value)
    return Mutation(
        "field",
        file,
        bytes(data),
        "packet",
        (number,),
        f"{name} = {value} in packet {number} of {file}",
    )


def crashed(rng, seed, file):
    """The last packet as a tracer that was killed leaves it."""
    data = bytearray(seed.files[file])
    place = seed.places[file][-1]
    names = [("timestamp_end",), ("timestamp_end", "content_size", "packet_size"),
             ("content_size", "packet_size")][rng.randrange(3)]  # fmt: skip
    value = rng.choice((0, 0, (1 << 64) - 1))
    for name in names:
        put(data, place.fields[name], value)
    if rng.random() < 0.5:
        keep = rng.randrange(place.begin // 8 + 1, place.end // 8)
        data[keep:] = b"" if rng.random() < 0.5 else bytes(len(data) - keep)
    return Mutation("crashed", file, bytes(data), "packet", (), f"{names} = {value} in {file}")


def clock_jump(rng, seed, file):
    """From some packet on, packets say another time; their events follow it or not."""
    data = bytearray(seed.files[file])
    places = seed.places[file]
    first = rng.randrange(len(places))
    jump = rng.choice((1, -1)) * (1 << rng.randrange(4, 44))
    for place in places[first : first + rng.choice((1, len(places)))]:
        for name in TIMES:
            put(data, place.fields[name], get(data, place.fields[name]) + jump)
    return Mutation(
        "clock",
        file,
        bytes(data),
        "packet",
        (first,),
        f"clock of {file} + {jump} from packet {first}",
    )


def truncate(rng, seed, file):
    size = rng.randrange(len(seed.files[file]))
    return Mutation("truncate", file, seed.files[file][:size], "file", (), f"{file} cut at {size}")


def truncate_between(rng, seed, file):
    size = rng.choice(seed.places[file]).begin // 8
    return Mutation("truncate", file, seed.files[file][:size], "file", (), f"{file} cut at {size}")


def remove_packet(rng, seed, file):
    data = seed.files[file]
    place = rng.choice(seed.places[file])
    rest = data[: place.begin // 8] + data[place.end // 8 :]
    return Mutation(
        "no packet", file, rest, "file", (), f"{file} without packet at {place.begin // 8}"
    )


def remove_file(rng, seed, file):  # noqa: ARG001 - called as the others are
    return Mutation("no file", file, None, "file", (), f"no {file}")


def repeat_packet(rng, seed, file):
    data = seed.files[file]
    one, other = rng.choice(seed.places[file]), rng.choice(seed.places[file])
    part = data[one.begin // 8 : one.end // 8]
    at = other.begin // 8
    until = other.end // 8 if rng.random() < 0.5 else at
    return Mutation(
        "repeat",
        file,
        data[:at] + part + data[until:],
        "file",
        (),
        f"{one.begin // 8} at {at} of {file}",
    )


def blank(rng, seed, file):
    data = bytearray(seed.files[file])
    at = rng.randrange(len(data))
    size = min(1 << rng.randrange(13), len(data) - at)
    data[at : at + size] = bytes([rng.choice((0, 0, 255))]) * size
    return Mutation("blank", file, bytes(data), "several", (), f"{size} at {at} of {file}")


def shift(rng, seed, file):
    data = seed.files[file]
    at = rng.randrange(len(data))
    size = rng.choice((1, 2, 4, 8, 512, 4096))
    if rng.random() < 0.5:
        rest, said = data[:at] + data[at + size :], f"{size} less at {at} of {file}"
    else:
        rest, said = data[:at] + rng.randbytes(size) + data[at:], f"{size} more at {at} of {file}"
    return Mutation("shift", file, rest, "several", (), said)


def noise(rng, seed, file):
    data = bytearray(seed.files[file])
    at = rng.randrange(len(data))
    size = min(rng.choice((1, 2, 4, 8, 64)), len(data) - at)
    data[at : at + size] = rng.randbytes(size)
    return Mutation("noise", file, bytes(data), "several", (), f"{size} at {at} of {file}")


def metadata(rng, seed, file):  # noqa: ARG001 - called as the others are
    name = rng.choice(sorted(seed.metadata))
    data = bytearray(seed.metadata[name])
    how = rng.random()
    at = rng.randrange(len(data))
    if how < 0.6:
        data[at] ^= 1 << rng.randrange(8)
    elif how < 0.8:
        del data[at:]
    else:
        del data[at : at + rng.randrange(1, 64)]
    return Mutation("metadata", name, bytes(data), "metadata", (), f"byte {at} of {name}")


KINDS = (
    (flip_anywhere, 22), (flip_payload, 8), (flip_packet, 18), (flip_event, 14), (flip_several, 5),
    (flip_near, 4), (set_field, 8), (crashed, 3), (clock_jump, 3), (truncate, 5),
    (truncate_between, 1), (remove_packet, 1), (remove_file, 0.4), (repeat_packet, 1), (blank, 2),
    (shift, 2), (noise, 3), (metadata, 0.6),
)  # fmt: skip


def _begun(seeds: list[Seed], campaign: int, number: int) -> tuple[random.Random, Seed]:
    rng = random.Random(f"{campaign}:{number}")  # noqa: S311 - repeatable, which secrets are not
    return rng, seeds[rng.randrange(len(seeds))]


def seed_of(seeds: list[Seed], campaign: int, number: int) -> Seed:
    """Return what one input of a campaign is made of."""
    return _begun(seeds, campaign, number)[1]


def mutation(seeds: list[Seed], campaign: int, number: int) -> tuple[Seed, Mutation]:
    """Return one input of a campaign."""
    rng, seed = _begun(seeds, campaign, number)
    (how,) = rng.choices([k for k, _ in KINDS], [w for _, w in KINDS])
    file = rng.choice(sorted(seed.files))
    return seed, how(rng, seed, file)


__all__ = ["Mutation", "mutation", "one_by_one", "region", "seed_of"]
