"""Reads and checks the properties of CTF 2's JSON objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Ranges = tuple[tuple[int, int], ...]
Mappings = tuple[tuple[str, Ranges], ...]

_ENCODINGS = {
    "utf-8": "utf-8",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "utf-32be": "utf-32-be",
    "utf-32le": "utf-32-le",
}


class Ctf2Fault(Exception):  # noqa: N818 -- internal; leaves this package as MetadataError
    """What is wrong in a fragment; ``place`` is the path of the field, once known."""

    place = ""

    def __str__(self) -> str:
        message = super().__str__()
        return f"{self.place}: {message}" if self.place else message


def get(of: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """Return a property of the right JSON type, or its default.

    Raises
    ------
    Ctf2Fault
        If it has another type, or is missing and has no default.
    """
    value = of.get(key, default)
    if value is None:
        raise Ctf2Fault(f"the property {key!r} is missing")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Ctf2Fault(f"the property {key!r} is {shorten(value)}")
    return clean(value) if isinstance(value, str) else value


def clean(text: str) -> str:
    """Return a text without the lone surrogates that JSON can escape."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def shorten(value: object) -> str:
    """Return a value for a message."""
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def positive(of: dict[str, Any], key: str, most: int) -> int:
    """Return a number of bits from 1 on."""
    value: int = get(of, key, int)
    if not 1 <= value <= most:
        raise Ctf2Fault(f"the property {key!r} is {shorten(value)}, not from 1 to {most}")
    return value


def alignment(of: dict[str, Any], key: str) -> int:
    """Return an alignment in bits: a power of two, 1 where there is none."""
    align: int = get(of, key, int, 1)
    if align < 1 or align & (align - 1) or align > 1 << 32:
        raise Ctf2Fault(f"an alignment of {shorten(align)} bits is no power of two")
    return align


def big_endian(of: dict[str, Any]) -> bool:
    """Tell whether a fixed-length number is big-endian."""
    order: str = get(of, "byte-order", str)
    if order not in {"little-endian", "big-endian"}:
        raise Ctf2Fault(f"unknown byte order {shorten(order)}")
    return order == "big-endian"


def bit_reversed(of: dict[str, Any], big_end: bool) -> bool:
    """Tell whether a number's bit order is not the natural one of its byte order."""
    natural = "last-to-first" if big_end else "first-to-last"
    order: str = get(of, "bit-order", str, natural)
    if order not in {"first-to-last", "last-to-first"}:
        raise Ctf2Fault(f"unknown bit order {shorten(order)}")
    return order != natural


def display_base(of: dict[str, Any]) -> int:
    """Return the base to show an integer in."""
    base: int = get(of, "preferred-display-base", int, 10)
    if base not in {2, 8, 10, 16}:
        raise Ctf2Fault(f"no integer is shown in base {shorten(base)}")
    return base


def encoding(of: dict[str, Any]) -> str:
    """Return a string's encoding as Python spells it."""
    name: str = get(of, "encoding", str, "utf-8")
    if name not in _ENCODINGS:
        raise Ctf2Fault(f"unknown encoding {shorten(name)}")
    return _ENCODINGS[name]


def roles_of(of: dict[str, Any]) -> frozenset[str]:
    """Return the roles of a field class."""
    roles = get(of, "roles", list, [])
    if not all(isinstance(role, str) for role in roles):
        raise Ctf2Fault(f"the roles are {shorten(roles)}")
    return frozenset(roles)


def mappings_of(of: dict[str, Any], key: str) -> Mappings:
    """Return the mappings of an integer, or the flags of a bit map."""
    mappings = get(of, key, dict, {})
    return tuple(
        (clean(label), ranges_of(ranges if isinstance(ranges, list) else [ranges]))
        for label, ranges in mappings.items()
    )


def ranges_of(ranges: list[Any]) -> Ranges:
    """Return integer ranges, at least one."""
    result = []
    for span in ranges:
        match span:
            case [int() as low, int() as high] if -(1 << 63) <= low <= high < 1 << 64:
                result.append((int(low), int(high)))
            case _:
                raise Ctf2Fault(f"{shorten(span)} is no range")
    if not result:
        raise Ctf2Fault("no range at all")
    return tuple(result)


def objects(of: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return an array of objects, empty where there is none."""
    found = get(of, key, list, [])
    if not all(isinstance(item, dict) for item in found):
        raise Ctf2Fault(f"the property {key!r} is no array of objects")
    return found  # type: ignore[no-any-return]  # just checked, out of mypy's sight


def no_extensions(of: dict[str, Any]) -> None:
    """Refuse what an unknown extension could have changed (CTF2-SPEC-2.0, 5.2)."""
    if of.get("extensions"):
        raise Ctf2Fault(f"unknown extension {shorten(of['extensions'])}")
