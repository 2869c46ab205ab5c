"""Sets of hosts: a directory with a recording of each machine, read as one."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from critpath.errors import UnreadableError
from critpath.model import MANIFEST
from critpath.model.recording import HOSTS, HOSTS_FORMAT
from critpath.read.clocks import Trace
from critpath.read.manifest import read_manifest
from critpath.records import dataclass
from critpath.units import safe_text, shorten
from critpath.untrusted import load_json

_LARGEST: Final = 8 << 20
_MOST: Final = 1000
_LONGEST_NAME: Final = 255  # bytes that a name has at most
_LATEST: Final = 1 << 61  # ns: sums of times must not overflow
_AGAIN: Final = "name the hosts' recordings one by one, or record again"


# What the user decided: a property of the whole command, which its workers are told.
_decided: Final = ContextVar("hosts", default="auto")


@contextmanager
def decide_hosts(how: str) -> Iterator[None]:
    """Decide which directories of recordings are sets of hosts.

    ``together`` all of them, ``apart`` none, ``auto`` those of which the recordings say so.
    """
    before = _decided.set(how)
    try:
        yield
    finally:
        _decided.reset(before)


def decided_hosts() -> str:
    """Return what `decide_hosts` was told."""
    return _decided.get()


@dataclass(frozen=True)
class HostRecording:
    """One host of a set.

    Attributes
    ----------
    name : str
        Unlike that of any other.
    directory : Path
    probes : tuple of (int, int, int)
        When it was asked the time, what it said, and when that was heard: the first and last by
        the clock of who recorded all hosts (ns).
    asker : str
        The boot of that clock; "" unknown.
    """

    name: str
    directory: Path
    probes: tuple[tuple[int, int, int], ...] = ()
    asker: str = ""


def find_hosts(directory: Path) -> tuple[HostRecording, ...]:
    """Return the hosts of a set of hosts, by their names; none where it is none.

    A directory is one that has a ``hosts.json``, or in which recordings of different machines
    overlap in time and were connected to each other; or as `decide_hosts` was told.

    Raises
    ------
    UnreadableError
        If its ``hosts.json`` is malformed, or names what is not there.
    """
    how = decided_hosts()
    if how == "apart" or (directory / MANIFEST).is_file():
        return ()
    file = directory / HOSTS
    read = _read_list(file) if file.is_file() and not file.is_symlink() else None
    if read is None:
        together = how == "together"
        return _name_beneath(directory) if together else _find_connected(directory)
    listed, asker = read
    found: dict[str, HostRecording] = {}
    places: set[Path] = set()
    for entry in listed:
        name, below = _entry(file, entry)
        place = directory / below
        if place.is_symlink() or not place.is_dir():
            raise UnreadableError(f"{file}: {safe_text(below)} is no directory beside it", _AGAIN)
        if name in found or place in places:
            twice = name if name in found else below
            raise UnreadableError(f"{file}: names {safe_text(twice)} twice", _AGAIN)
        places.add(place)
        found[name] = HostRecording(name, place, _read_probes(entry.get("probes")), asker)
    return tuple(found[name] for name in sorted(found))


def _read_list(file: Path) -> tuple[list[Any], str] | None:
    """Return the hosts that a file lists, and whose clock it has; None of another program's."""
    try:
        with file.open("rb") as stream:
            text = stream.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise UnreadableError(
                f"{file}: larger than {_LARGEST >> 20} MiB, which no list of hosts is",
                f"{_AGAIN}; rename it if it is another program's",
            )
        data = load_json(text)
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("format") != HOSTS_FORMAT:
        return None
    listed = data.get("hosts")
    if not isinstance(listed, list) or not 0 < len(listed) <= _MOST:
        raise UnreadableError(f"{file}: 'hosts' is no list of hosts", _AGAIN)
    asker = data.get("boot_id")
    return listed, asker if isinstance(asker, str) else ""


def _read_probes(found: Any) -> tuple[tuple[int, int, int], ...]:
    """Return what a host said of the time; nothing where any of it is malformed."""
    rows = found[:_MOST] if isinstance(found, list) else []
    sound = all(
        isinstance(row, list)
        and len(row) == 3
        and all(type(time) is int and 0 <= time < _LATEST for time in row)
        and row[0] <= row[2]
        for row in rows
    )
    return tuple((row[0], row[1], row[2]) for row in rows) if sound else ()


def _entry(file: Path, entry: Any) -> tuple[str, str]:
    name = entry.get("name") if isinstance(entry, dict) else None
    below = entry.get("recording") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name or not isinstance(below, str) or not below:
        raise UnreadableError(f"{file}: a host has no name or no recording", _AGAIN)
    too_long = len(below.encode("utf-8", "replace")) > _LONGEST_NAME
    if below in {".", ".."} or "/" in below or "\0" in below or too_long:
        which = shorten(safe_text(below))
        raise UnreadableError(f"{file}: the recording {which} is not beside it", _AGAIN)
    return name, below


def note_hosts(directory: Path) -> str:
    """Return in a line which hosts a directory was taken for where no list says it; "" if so."""
    hosts = find_hosts(directory)
    if not hosts or (directory / HOSTS).is_file():
        return ""
    names = safe_text(", ".join(host.name for host in hosts))
    why = (
        "as --hosts-together says"
        if decided_hosts() == "together"
        else "as their machines talked at one time (--hosts-apart takes them for repetitions)"
    )
    return f"recordings of the hosts {names} are taken as one, {why}"


def note_apart(recording: Path) -> str:
    """Return in a line that a recording was not taken for a host's, though it is; "" if not."""
    if decided_hosts() != "apart":
        return ""
    above = recording.parent
    with decide_hosts("auto"):
        hosts = find_hosts(above)
    if recording not in {host.directory for host in hosts}:
        return ""
    names = safe_text(", ".join(host.name for host in hosts))
    return f"recordings of {names} are taken for repetitions, not for hosts, as --hosts-apart says"


def _name_beneath(directory: Path) -> tuple[HostRecording, ...]:
    """Return the recordings directly in a directory, as hosts; none where there is one only."""
    from critpath.read.traces import find_sessions  # noqa: PLC0415 - it imports this

    places = [place for place in find_sessions(directory) if place.parent == directory]
    if not 1 < len(places) <= _MOST:
        return ()
    names = [place.name for place in places]
    said = [_read_name(place) for place in places]
    if all(said) and len({*said}) == len(said):
        names = said
    hosts = zip(names, places, strict=True)
    return tuple(HostRecording(name, place) for name, place in sorted(hosts))


def _read_name(place: Path) -> str:
    try:
        manifest = read_manifest(place)
    except UnreadableError:
        return ""
    name = manifest.host.get("name") if manifest is not None else None
    return name if isinstance(name, str) else ""


def _find_connected(directory: Path) -> tuple[HostRecording, ...]:
    """Return recordings of different machines, made at one time, that were connected."""
    places = sorted(p.parent for p in directory.glob(f"*/{MANIFEST}") if not p.is_symlink())
    hosts: dict[str, _Facts] = {}
    machines: set[str] = set()
    for place in places if 1 < len(places) <= _MOST else ():
        facts = _read_facts(place)
        # Several of one machine are repetitions.
        if facts is None or facts.machine in machines or facts.host.name in hosts:
            return ()
        machines.add(facts.machine)
        hosts[facts.host.name] = facts
    if not hosts:
        return ()
    begin, end = max(of.begin for of in hosts.values()), min(of.end for of in hosts.values())
    if begin >= end or not _are_connected(hosts.values()):
        return ()
    return tuple(hosts[name].host for name in sorted(hosts))


@dataclass(frozen=True)
class _Facts:
    """What a recording says of its machine: the time is since the epoch."""

    host: HostRecording
    machine: str
    begin: int
    end: int
    addresses: frozenset[str]
    peers: frozenset[str]


def _read_facts(place: Path) -> _Facts | None:
    try:
        manifest = read_manifest(place)
    except UnreadableError:
        return None
    if manifest is None:
        return None
    name, machine = (manifest.host.get(key) for key in ("name", "machine_id"))
    epoch = manifest.clock.get("epoch")
    if not (isinstance(name, str) and isinstance(machine, str) and type(epoch) is int):
        return None
    return (
        _Facts(
            *(HostRecording(name, place), machine, manifest.begin + epoch, manifest.end + epoch),
            *(_texts(manifest.host.get("addresses")), _texts(manifest.host.get("peers"))),
        )
        if name and machine
        else None
    )


def _are_connected(hosts: Collection[_Facts]) -> bool:
    """Return whether every host was connected to another of them."""
    return all(any(other is not one and _talked(one, other) for other in hosts) for one in hosts)


def _talked(one: _Facts, other: _Facts) -> bool:
    """Return whether one of two hosts has the other as a peer.

    Bridges of containers and virtual machines have one address everywhere: what both have tells
    of neither.
    """
    there = one.addresses & other.peers | other.addresses & one.peers
    return not there <= one.addresses & other.addresses


def _texts(found: object) -> frozenset[str]:
    texts = {text for text in (found if isinstance(found, list) else []) if isinstance(text, str)}
    return frozenset(filter(_is_of_one_machine, texts))


def _is_of_one_machine(text: str) -> bool:
    """Return whether an address is no loopback's and no link's: every machine has those."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return not (address.is_loopback or address.is_link_local or address.is_unspecified)


def name_traces(host: HostRecording, traces: Sequence[Trace]) -> list[Trace]:
    """Return the traces of a host under its name in the set, whatever they call it."""
    named = []
    for trace in traces:
        environment = trace.schema.environment.with_texts(hostname=host.name)
        schema = replace(trace.schema, environment=environment)
        named.append(replace(trace, name=f"{host.directory.name}/{trace.name}", schema=schema))
    return named
