"""The network of this machine while something is recorded: devices, addresses, peers."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from critpath_record.identity import look_inside
from critpath_record.proc import read_text
from critpath_record.sockets import read_address

_MOST_ADDRESSES: Final = 4096
_NETWORKS: Final = ("fib_trie", "if_inet6", "dev")
_MOST_NAMESPACES: Final = 256
_MOST_DEVICES: Final = 4096
_CLONE_NEWNET: Final = 0x40000000
_GET_LINK, _NEW_LINK = 18, 16
_DUMP: Final = 0x301  # NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
_DONE, _ERROR = 3, 2
_HEADER: Final = struct.Struct("=IHHII")
_ABOUT: Final = struct.Struct("=BxHiII")  # struct ifinfomsg
_LOOPBACK: Final = 772  # ARPHRD_LOOPBACK
_NAME, _MTU, _LINK_INFO = 3, 4, 18  # attributes of a device
_KIND, _MEMBER_KIND = 1, 4  # in _LINK_INFO: what it is, what it is a member of
_WAIT: Final = 2.0  # s


def read_networks(
    proc: Path = Path("/proc"), named: tuple[str, ...] = ("/run/netns", "/run/docker/netns")
) -> list[dict[str, object]]:
    """Return name, namespace, kind and MTU of the devices of all namespaces that can be entered.

    Those that a process is in, and those that have a name: a bridge may be in one alone.  The
    first is the initial one's, where it can be seen.
    """
    doors: dict[int, Path] = {}
    pids = sorted(int(place.name) for place in proc.iterdir() if place.name.isdecimal())
    places = (proc / str(pid) / "ns/net" for pid in pids)
    for place in (*places, *(p for directory in named for p in sorted(Path(directory).glob("*")))):
        with contextlib.suppress(OSError):  # it ended, or is another user's
            doors.setdefault(place.stat().st_ino, place)
        if len(doors) >= _MOST_NAMESPACES:
            break
    found: list[dict[str, object]] = []
    own = Path("/proc/self/ns/net").stat().st_ino
    for namespace, door in doors.items():
        inside = (
            _list_devices() if namespace == own else look_inside(door, _CLONE_NEWNET, _list_devices)
        )
        found += ({"namespace": namespace, **of} for of in inside or ())
        if len(found) >= _MOST_DEVICES:
            break
    return found[:_MOST_DEVICES]


def _list_devices() -> list[dict[str, object]]:
    """Return the devices of the namespace that this thread is in, as far as the kernel tells."""
    found = []
    with contextlib.suppress(OSError, struct.error, IndexError):
        for one in _read_devices():
            found.append(one)  # noqa: PERF402 - what was told before an error counts
    return found


def _read_devices() -> Iterator[dict[str, object]]:
    """Yield the devices of the namespace that this thread is in."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as asked:
        asked.settimeout(_WAIT)
        size = _HEADER.size + _ABOUT.size
        asked.send(_HEADER.pack(size, _GET_LINK, _DUMP, 1, 0) + bytes(_ABOUT.size))
        while True:
            data, at = asked.recv(1 << 17), 0
            while at + _HEADER.size <= len(data):
                length, kind, *_ = _HEADER.unpack_from(data, at)
                if kind == _DONE:
                    return
                if kind == _ERROR or length < _HEADER.size:
                    raise OSError("netlink")
                if kind == _NEW_LINK and length >= size:
                    yield describe_device(data[at + _HEADER.size : at + length])
                at += length + 3 & ~3


def describe_device(message: bytes) -> dict[str, object]:
    """Return name, kind and MTU of a device; a port of a bridge, which sends on, is `bridged_`."""
    of = _attributes(message[_ABOUT.size :])
    about = _attributes(of.get(_LINK_INFO, b""))
    name, kind, member = (
        text.rstrip(b"\0").decode("utf-8", "replace")
        for text in (of.get(_NAME, b""), about.get(_KIND, b""), about.get(_MEMBER_KIND, b""))
    )
    if _ABOUT.unpack_from(message)[1] == _LOOPBACK:
        kind = "loopback"
    kind = re.sub("[^a-z0-9]", "", kind.lower())[:15] or "physical"
    kind = f"bridged_{kind}" if member == "bridge" else kind
    return {"name": name, "kind": kind, "mtu": int.from_bytes(of.get(_MTU, b""), sys.byteorder)}


def _attributes(data: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[at + 4 : at + length]
        at += length + 3 & ~3
    return found


def network_facts(proc: Path = Path("/proc")) -> Mapping[str, list[str]]:
    """Return addresses, network devices, and peers of every network namespace that can be seen.

    A packet from one of these addresses comes from this host, whatever its way was.  Peers are
    the addresses that connections lead to: of recordings of several hosts they tell that these
    belong together.
    """
    seen: set[Path] = set()
    addresses: set[str] = set()
    devices: set[str] = set()
    peers: set[str] = set()
    for process in ("self", *sorted(p.name for p in proc.glob("[0-9]*"))):
        if len(addresses) > _MOST_ADDRESSES:
            break
        with contextlib.suppress(OSError, ValueError):  # it ended, or is another user's
            namespace = (proc / process / "ns/net").readlink()
            if namespace in seen:
                continue
            texts = [(proc / process / "net" / name).read_text("ascii") for name in _NETWORKS]
            addresses.update(re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", texts[0]))
            numbers = [line.split()[0] for line in texts[1].splitlines()]
            addresses.update(str(ipaddress.IPv6Address(int(number, 16))) for number in numbers)
            devices.update(re.findall(r"^\s*([^\s:|]+):", texts[2], re.MULTILINE))
            seen.add(namespace)
            peers.update(_read_peers(proc / process / "net"))
    found = {"addresses": addresses, "net_devices": devices, "peers": peers}
    return {name: sorted(texts)[:_MOST_ADDRESSES] for name, texts in found.items()}


def _read_peers(net: Path) -> Iterator[str]:
    """Yield the addresses at the other end of the TCP connections of a network namespace."""
    for name, digits in (("tcp", 8), ("tcp6", 32)):
        for line in read_text(net / name).splitlines()[1 : _MOST_ADDRESSES + 1]:
            remote, _ = read_address(line.split()[2].encode(), digits)
            address = ipaddress.ip_address(bytes.fromhex(remote))
            mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
            if not address.is_unspecified:
                yield str(mapped or address)


def add_later(host: Mapping[str, object]) -> dict[str, object]:
    """Return what a manifest says of the host, with what the network has had since."""
    found = dict(host)
    for name, addresses in network_facts().items() if "peers" in host else ():
        before = host.get(name)
        known = before if isinstance(before, list) else []
        found[name] = sorted({*known, *addresses})[:_MOST_ADDRESSES]
    if isinstance(devices := host.get("network"), list):
        came = (of for of in read_networks() if of not in devices)
        found["network"] = [*devices, *came][:_MOST_DEVICES]
    return found
