"""What lives of sockets come to: ends, peers and roles of drawn tables, in whole.

Few addresses, ports and hosts, so that everything meets everything; and what holds of any.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critpath.model.requests import Activity, Collected
from critpath.requests.endpoints import (
    FIRST,
    HOWS,
    LISTEN,
    UDP,
    UNIX,
    EndpointColumn,
    resolve_endpoints,
)

HERE = Path(__file__).resolve().parent
COLUMN = EndpointColumn
END = 100
LOOPBACK = 0x7F000001
NO_ACTIVITY = Activity(
    np.zeros(0, np.int64), np.zeros(0, np.uint8), np.zeros(0, np.int32), np.zeros(0, np.int32),
    np.zeros(0, np.int32), np.zeros(0, np.int64),
)  # fmt: skip


def draw_lives(seed: int) -> tuple[Collected, list[frozenset[int]], Any]:
    """Return lives of sockets, who used them, and rng for more."""
    rng = np.random.default_rng(seed)
    many = int(rng.integers(0, 9))
    table = np.zeros((many, len(COLUMN)), np.int64)

    def fill(column: COLUMN, *values: int) -> None:
        table[:, column] = rng.choice(values, many)

    fill(COLUMN.SOCKET, 1, 2, 3, 4)
    fill(COLUMN.HOST, 0, seed % 2)
    fill(COLUMN.FAMILY, 2, 2, 2, 10, UNIX, 0, 16)
    fill(COLUMN.PROTOCOL, 6, 6, 6, UDP, 0)
    for row, one, other in zip(table, rng.random(many), rng.random(many), strict=True):
        ends = [(0, 0x0A000001 if seed % 3 else LOOPBACK, 80), (0, 0x0A000002, 4000)]
        ends = ends[:: -1 if one < 0.5 else 1]
        if other < 0.2:
            ends[1] = (1 << 40, 7, 80)
        row[COLUMN.LOCAL_HIGH : COLUMN.REMOTE_PORT + 1] = [*ends[0], *ends[1]]
    fill(COLUMN.KNOWN, 1, 1, 0)
    table[table[:, COLUMN.KNOWN] == 0, COLUMN.LOCAL_HIGH : COLUMN.REMOTE_PORT + 1] = 0
    opened = rng.integers(0, 60, many)
    table[:, COLUMN.OPENED] = np.sort(opened)
    closed = table[:, COLUMN.OPENED] + rng.integers(0, 30, many)
    table[:, COLUMN.CLOSED] = np.where(rng.random(many) < 0.5, closed, -1)
    fill(COLUMN.OPENING, 0, 0, 0, 1, 2)
    fill(COLUMN.FIRST, 0, 1, 2)
    if many:
        table[:, COLUMN.PARTNER] = np.where(rng.random(many) < 0.5, rng.integers(0, many, many), -1)
        same = table[:, COLUMN.PARTNER] == np.arange(many)
        table[same, COLUMN.PARTNER] = -1
    fill(COLUMN.VOTES, 0, 1, 2)
    fill(COLUMN.LISTENS, 0, 0, 0, 0, 1)
    dumped = []
    for _ in range(int(rng.integers(0, 4))):
        port, other = rng.choice([[80, 4000], [4000, 80], [80, 0]])
        family, protocol = rng.choice([[2, 6], [2, 6], [UNIX, 0], [2, UDP]])
        path = "/run/a" if family == UNIX else ""
        dumped.append(
            (int(rng.integers(0, 2)), int(rng.integers(0, 5)), int(port), int(other), int(family),
             0x0A000001, 0x0A000002, 0, 0, 0, 0, int(protocol), int(rng.integers(0, 2)),
             int(rng.choice([1, LISTEN])), 70, 0, path)
        )  # fmt: skip
    unix = np.flatnonzero((table[:, COLUMN.FAMILY] == UNIX) & (rng.random(many) < 0.3))
    paths = {int(at): f"/run/{at}" for at in unix}
    users = [frozenset(rng.integers(1, 3, 1 + seed % 2).tolist()) for _ in range(many)]
    return Collected(NO_ACTIVITY, table, dumped, paths=paths), users, rng


def resolve(seed: int) -> Any:
    collected, users, rng = draw_lives(seed)
    many = len(users)
    far = rng.permutation(many)[: many // 2 * 2].reshape(-1, 2)[: seed % 2].astype(np.int64)
    return collected, resolve_endpoints(collected, users, END, far, {0, 1} if seed % 3 else {0})


def test_what_drawn_lives_come_to(golden: Any) -> None:
    lines = []
    for seed in range(80):
        _, of = resolve(seed)
        for at in range(len(of)):
            ends = [
                f"{of.strings[address[at]] or '?'}:{port[at]}"
                for address, port in (
                    (of.local_address, of.local_port),
                    (of.remote_address, of.remote_port),
                )
            ]
            lines.append(
                f"{seed}.{at} host {of.host[at]} family {of.family[at]} {' '.join(ends)} "
                f"serves {of.serves[at]} {HOWS[of.role_how[at]]} peer {of.peer[at]} "
                f"{of.opened_ns[at]}-{of.closed_ns[at]} {of.strings[of.path[at]]}".rstrip()
            )
    golden(HERE / "snapshots" / "wild_endpoints.txt", "\n".join(lines) + "\n")


def test_what_holds_of_any_lives() -> None:
    seen: Counter[str] = Counter()
    for seed in range(80):
        collected, of = resolve(seed)
        table = collected.endpoints
        for at, peer in enumerate(of.peer.tolist()):
            seen[HOWS[of.role_how[at]]] += 1
            assert of.closed_ns[at] == (c if (c := table[at, COLUMN.CLOSED]) >= 0 else END)
            if peer < 0:
                continue
            seen["peer"] += 1
            assert peer != at
            assert of.peer[peer] == at
            assert {of.serves[at], of.serves[peer]} in ({0, 1}, {-1}, {-1, 0}, {-1, 1}, {0}, {1})
        assert (of.serves[table[:, COLUMN.LISTENS] == 1] == -1).all()
        assert (of.serves[table[:, COLUMN.FAMILY] == 0] == -1).all()
        # Who was first says nothing where anything else does.
        first = of.role_how == FIRST
        assert not (first & (table[:, COLUMN.OPENING] > 0)).any()
    assert min(seen[how] for how in (*HOWS, "peer")) > 2


def life(host: int, near: int, far: int, **more: int) -> list[int]:
    """Return a TCP connection between ports of two addresses, as one end has it."""
    row = [0] * len(COLUMN)
    ends = {80: (0, 0x0A000001, 80), 4000: (0, 0x0A000002, 4000)}
    row[COLUMN.LOCAL_HIGH : COLUMN.REMOTE_PORT + 1] = [*ends[near], *ends[far]]
    row[COLUMN.HOST], row[COLUMN.FAMILY], row[COLUMN.PROTOCOL] = host, 2, 6
    row[COLUMN.CLOSED], row[COLUMN.PARTNER], row[COLUMN.KNOWN] = -1, -1, 1
    for name, value in more.items():
        row[COLUMN[name]] = value
    return row


def peers(*rows: list[int], far: Any = None, aligned: tuple[int, ...] = ()) -> list[int]:
    collected = Collected(NO_ACTIVITY, np.array(rows, np.int64), [])
    users = [frozenset({at}) for at in range(len(rows))]
    return resolve_endpoints(collected, users, END, far, aligned).peer.tolist()


@pytest.mark.parametrize("aligned", [(), (0,), (0, 1)])
def test_ends_on_two_hosts_are_one_connection_where_one_clock_tells(
    aligned: tuple[int, ...],
) -> None:
    one, other = life(0, 80, 4000), life(1, 4000, 80)
    joined = [1, 0] if aligned == (0, 1) else [-1, -1]
    assert peers(one, other, aligned=aligned) == joined
    # The same addresses and ports twice: only bytes tell.
    twice = [one, other, life(0, 80, 4000, OPENED=50)]
    assert peers(*twice, aligned=aligned) == [-1, -1, -1]
    assert peers(*twice, far=np.array([[2, 1]]), aligned=aligned) == [-1, 2, 1]
    both = [*twice, life(1, 4000, 80, OPENED=50)]
    assert peers(*both, aligned=aligned) == [-1, -1, -1, -1]
    assert peers(one, life(1, 80, 4000), aligned=aligned) == [-1, -1]  # the same end
    assert peers(one, other, far=np.array([[0, 1]]), aligned=aligned) == [1, 0]


def test_ends_on_one_host_are_one_connection_while_both_live() -> None:
    first = life(0, 80, 4000, OPENED=10, CLOSED=20)
    for opened, met in ((19, True), (20, True), (21, False)):
        other = life(0, 4000, 80, OPENED=opened, CLOSED=40)
        assert peers(first, other) == ([1, 0] if met else [-1, -1])
        assert peers(other, first) == ([1, 0] if met else [-1, -1])
    # Of two that could be, the one that it sends to.
    twins = [life(0, 4000, 80), life(0, 4000, 80)]
    assert peers(life(0, 80, 4000), *twins) == [1, 0, -1]
    assert peers(life(0, 80, 4000, PARTNER=2, VOTES=1), *twins) == [2, -1, 0]
    told = life(0, 4000, 80, PARTNER=0, VOTES=1)
    assert peers(life(0, 80, 4000), twins[0], told) == [2, -1, 0]
