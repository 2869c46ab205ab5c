"""Requests by another way against those by all events of sockets: ``python calls.py DIR``.

DIR is one of ``evaluation/servers/run.py``, recorded with both: ``--critpath`` names a command that
adds system calls and packets to the profile.  Every recording below it is read both ways; ``--way``
is ``calls`` (system calls) or ``lengths`` (what sockets sent and received, without
``sk_data_ready``), with ``--no-packets`` without packets.  Two are the same request if service and
port are, and ends near.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from critpath.engines.limits import Budget
from critpath.executions.specification import parse_specification
from critpath.model.requests import RequestTable
from critpath.read.event_names import CALL_EVENTS, KERNEL_EVENTS, PACKET_EVENTS, SOCKET_EVENTS
from critpath.read.recording import Recording
from critpath.requests.links import attribute
from critpath.requests.turns import find_turns
from critpath.timeline.opening import RecordingOpener
from critpath.timeline.streaming import assume_declared, replay_stream

_NEAR: Final = 200_000  # ns between two ends
_Request = tuple[int, int, int, int]  # asking port, begin, end, thread


def main() -> None:
    """Print a line for every service of every recording, and all together."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("place", type=Path)
    parser.add_argument("--no-packets", action="store_true")
    parser.add_argument("--way", choices=("calls", "lengths"), default="calls")
    given = parser.parse_args()
    way = given.way if given.no_packets else f"{given.way}+packets"
    total: Counter[str] = Counter()
    for recording in sorted(given.place.rglob("recording")):
        by_sockets, by_calls = (find(recording, each) for each in ("sockets", way))
        for service, those in by_sockets.items():
            found = compare(those, by_calls.get(service, []))
            total.update(requests=len(those), found=len(found), thread=sum(s for _, _, s in found))
            print(f"{'/'.join(recording.parts[-3:-1])} {service}: {describe(len(those), found)}")
    print(", ".join(f"{count:,} {what}" for what, count in total.items()))


def find(recording: Path, way: str) -> dict[str, list[_Request]]:
    """Return a recording's requests by service, found by one way."""
    opened = Recording(recording)
    of_way = CALL_EVENTS if way.startswith("calls") else PACKET_EVENTS
    more = (c for c in of_way if "+" in way or c.kind.name != "SOCKET_SEGMENT")
    wanted = (*KERNEL_EVENTS, *SOCKET_EVENTS, *more)
    opener = RecordingOpener(opened, wanted, "auto")
    replayed = replay_stream(
        opener,
        replace(assume_declared(opened), way=way),
        [parse_specification("requests")],
        Budget.within(0),
        complete=opened.add_manifest,
    )
    events = replayed.events
    turns = find_turns(
        replayed.sockets,
        replayed.workers,
        events.strings.__getitem__,
        begin=events.begin,
        end=events.end,
        losses=events.losses,
    )
    made = attribute(turns.activity, replayed.workers, turns.endpoints, turns.requests)
    found: dict[str, list[_Request]] = defaultdict(list)
    for service, request in list_requests(made.requests, turns.endpoints.remote_port):
        found[service].append(request)
    return found


def list_requests(table: RequestTable, ports: np.ndarray) -> Iterator[tuple[str, _Request]]:
    """Yield the service of each request, and what is compared of it."""
    columns = (ports[table.endpoint], table.begin_ns, table.end_ns, table.tid)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for service, row in zip(table.service.tolist(), rows, strict=True):
        yield table.strings[service], row


def compare(those: list[_Request], others: list[_Request]) -> list[tuple[int, int, bool]]:
    """Return how far begin and end of the same requests are apart, and whether threads agree."""
    left, found = set(range(len(others))), []
    for port, begin, end, tid in those:
        near = [
            (abs(others[at][2] - end), at)
            for at in left
            if abs(others[at][2] - end) < _NEAR and others[at][0] in {port, 0}
        ]
        if near:
            off, at = min(near)
            left.remove(at)
            found.append((abs(others[at][1] - begin), off, others[at][3] == tid))
    return found


def describe(many: int, found: list[tuple[int, int, bool]]) -> str:
    """Say what was found, and how near."""
    if not found:
        return f"{many}, none found"
    begin, end = (np.percentile([row[at] for row in found], (50, 95)) / 1000 for at in (0, 1))
    return (
        f"{many}, {len(found)} found, begins {begin[0]:.1f} us apart (95 %: {begin[1]:.1f}), "
        f"ends {end[0]:.1f} ({end[1]:.1f}), {sum(same for _, _, same in found)} by the same thread"
    )


if __name__ == "__main__":
    main()
