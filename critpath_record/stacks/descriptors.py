"""What a record of the kernel's program names: files by their paths, peers by addresses."""

from __future__ import annotations

import ipaddress
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from critpath_record.stacks.lookup import (
    ADDRESS,
    FILE,
    HEAD,
    INET,
    INET6,
    INET_FACTS,
    NOTHING,
    PATH,
    UNIX,
    UNIX_FACTS,
    USES,
)

_LETTERS: Final = 200  # of a name
_MOST_PARTS: Final = 6  # of a short one
_LISTEN: Final = 10
ABOUT: Final = 16  # where a record begins to say what a sleep is about


@dataclass
class Names:
    """Names what is slept for; `listening`: ports, which those seen to listen are added to."""

    calls: Mapping[int, str]
    listening: set[int] = field(default_factory=set)

    def find(self, record: bytes) -> tuple[str, str] | None:
        """Return the call that a thread sleeps in and what that is about; None if of nothing.

        What nobody could name is its number.
        """
        _, _, _, descriptor, number, kind, whole, given, length = HEAD.unpack_from(record)
        call, data = self.calls.get(number, ""), record[HEAD.size : HEAD.size + length]
        if kind == NOTHING:
            return (call, f"descriptor {descriptor}") if call in USES else None
        if kind == ADDRESS:
            name = address_name(data)
        elif kind in {FILE, PATH}:
            name = _path(data[:given], data[given:], whole=bool(whole))
        else:
            name = self._name_socket(data)
        return call, clean(name or f"descriptor {descriptor}")

    def _name_socket(self, data: bytes) -> str:
        family, state = int.from_bytes(data[:2], "little"), int.from_bytes(data[2:3], "little")
        if family == UNIX and len(data) == UNIX_FACTS.size:
            _, _, *of = UNIX_FACTS.unpack(data)
            own, peer = (address_name(of[at + 1][: of[at]]) if of[at] else "" for at in (0, 2))
            if own and state != _LISTEN:
                return of_listener(own)
            return own or peer or "socket"
        if family in {INET, INET6} and len(data) == INET_FACTS.size:
            _, _, port, local_port, remote, local = INET_FACTS.unpack(data)
            size, peer_port = 4 if family == INET else 16, int.from_bytes(port, "big")
            own = host_port(local[:size], local_port)
            if state == _LISTEN:
                self.listening.add(local_port)
            if state == _LISTEN or not peer_port:
                return own
            if local_port in self.listening:
                return of_listener(own)
            return host_port(remote[:size], peer_port)
        return "socket"


def _path(given: bytes, names: bytes, *, whole: bool) -> str:
    """Return a path as it was given, below the directory whose names are told from inside out."""
    text = given.split(b"\0")[0].decode("utf-8", "replace")
    if text.startswith("/"):
        return text
    parts = [part.decode("utf-8", "replace") for part in names.split(b"\0")[:-1]][::-1]
    if not text and parts and (parts[0].startswith("[") or not any(parts)):
        return parts[0].strip("[]") or "pipe"  # of no directory, as eventfd is
    base = ("/" if whole else "") + "/".join(part for part in parts if part != "/")
    return f"{base.rstrip('/')}/{text}" if text and base else text or base


def clean(text: str) -> str:
    """Return the end of a name without what cannot be printed."""
    return "".join(c if c.isprintable() else "?" for c in text[-_LETTERS:])


def of_listener(name: str) -> str:
    """Return the name of a connection that was accepted: its peer's port says nothing."""
    return f"client of {name}"


def address_name(data: bytes) -> str:
    """Return an address as the caller gave it (``sockaddr``): ``127.0.0.1:5432``."""
    family = int.from_bytes(data[:2], "little")
    if family == UNIX:
        path, abstract = data[2:], data[2:3] == b"\0"
        text = path.lstrip(b"\0").split(b"\0")[0].decode("utf-8", "replace")
        return clean(f"@{text}" if abstract else text)
    port = int.from_bytes(data[2:4], "big")
    if family == INET and len(data) >= 8:
        return host_port(data[4:8], port)
    if family == INET6 and len(data) >= 24:
        return host_port(data[8:24], port)
    return ""


def host_port(address: bytes, port: int) -> str:
    """Return an address of the internet with its port."""
    found = ipaddress.ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    found = mapped or found
    return f"[{found}]:{port}" if found.version == 6 else f"{found}:{port}"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return a short form of every path: its last part, or as many as tell it from others."""
    left, found = sorted({*names}), dict[str, str]()
    for parts in range(1, _MOST_PARTS + 1):
        found |= {name: _ending(name, parts) for name in left}
        count = Counter(found[name] for name in left)
        left = [name for name in left if count[found[name]] > 1]
    return found


def _ending(name: str, parts: int) -> str:
    return "/".join([part for part in name.split("/") if part not in {"", "."}][-parts:]) or name


def real_names(names: Collection[str]) -> dict[str, str]:
    """Return the path without links of every file that others are named like.

    One that a program opened through a link and one that was open before may be the same.
    """
    last = Counter(name.rpartition("/")[2] for name in names)
    places: dict[str, str] = {}
    found = {name: name for name in names}
    for name in names:
        place, _, own = name.rpartition("/")
        if name.startswith("/") and last[own] > 1:
            if place not in places:
                places[place] = os.path.realpath(place or "/")
            found[name] = clean(f"{places[place].rstrip('/')}/{own}")
    return found
