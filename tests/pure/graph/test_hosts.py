"""Paths over hosts of any clocks tile exactly, and never go back in time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from hosts_world import World

from critpath.clocks.align import align_events
from critpath.engines.limits import Budget
from critpath.errors import UsageError
from critpath.executions.specification import parse_specification
from critpath.graph.critical_path import extract_paths
from critpath.model import Executions, Manifest, State
from critpath.read.recording import Recording
from critpath.read.streaming import WholeRecording
from critpath.requests.find import find_requests
from critpath.timeline.streaming import Assumptions, replay_stream

MANIFEST = Manifest("complete", "", (), "", (), {}, "requests", {}, {}, 0, 0)


class Opener:
    """Reads events that are in memory."""

    def __init__(self, events):
        self._events = events

    def __call__(self):
        return WholeRecording(self._events)

    def sort_whole(self, reason):
        raise AssertionError(reason)


def replayed(aligned, specification, rows):
    """Return what is known of events of one clock, in blocks of as many rows."""
    return replay_stream(
        Opener(aligned), Assumptions(waking=True, syscalls=False), [specification], Budget(rows)
    )


def of_clients(world):
    """Return every request as its client's thread has it, by the first host's clock."""
    rows = world.requests
    begin, end = (np.array([world.shown(0, row[at]) for row in rows]) for at in (1, 2))
    count = len(rows)
    return Executions(
        id=tuple(map(str, range(count))),
        begin=begin,
        end=end,
        tid=np.array([world._tid(0, row[0]) for row in rows]),
        host=np.zeros(count, np.int64),
        comm=("t",) * count,
        label=("",) * count,
    )


def check(paths, executions):
    """Every nanosecond of every window has one state."""
    for at in range(len(executions)):
        rows = slice(int(paths.start[at]), int(paths.start[at + 1]))
        begin, end = paths.begin[rows], paths.end[rows]
        assert begin[0] == executions.begin[at]
        assert end[-1] == executions.end[at]
        assert (begin[1:] == end[:-1]).all()
        assert (end > begin).all()


def check_clocks(world, clocks):
    """Every clock that is known is as wrong as it says, or less."""
    times = [time for _, time, *_ in world.rows]
    truth = np.linspace(min(times), max(times), 33).astype(np.int64)
    for host, clock in enumerate(clocks):
        if not clock.aligned:
            continue
        own = np.array([world.shown(host, time) for time in truth.tolist()], np.int64)
        wrong = truth - own - clock.offsets(own)
        low, high = clock.bounds(own)
        assert ((low - 1 <= wrong) & (wrong <= high + 1)).all()


def try_world(seed):
    """Walk a world both ways; return it with the paths of its clients, and what was replayed."""
    world = World(seed)
    rows = (7, 100, 10**6)[seed % 3]
    aligned = align_events(world.events())
    check_clocks(world, aligned.clocks)
    known = replayed(aligned, parse_specification("thread"), rows)
    assert all(left < there for _, left, _, there in known.receipts)
    executions = of_clients(world)
    [found] = extract_paths(known, executions, "world", "thread", interrupts=True)
    check(found.paths, executions)
    asked = parse_specification("requests:role=first")
    known = replayed(aligned, asked, rows)
    try:
        requests, events, pieces = find_requests(
            known, asked, Recording(Path("world"), manifest=MANIFEST)
        )
    except UsageError:  # what was lost had all of them
        assert world.losses
        return world, found, known.events
    if len(requests):
        for part in extract_paths(
            known, requests, "world", "requests", interrupts=True, pieces=pieces
        ):
            check(part.paths, part.executions)
    return world, found, events


def crossings(found, at):
    """Return the time that a path was on its way between hosts."""
    paths = found.paths
    rows = slice(int(paths.start[at]), int(paths.start[at + 1]))
    mine = paths.state[rows] == State.NET_TRANSIT
    return int(paths.duration[rows][mine].sum()), set(paths.host[rows].tolist())


@pytest.mark.parametrize("seed", range(12))
def test_paths_over_hosts_tile(seed):
    try_world(seed)


def test_a_path_goes_to_every_host_that_worked_for_it_and_its_bound_holds():
    right = total = 0
    for seed in range(100, 110):
        world, found, events = try_world(seed)
        if world.losses or not all(clock.aligned for clock in events.clocks):
            continue
        for at, (_, _, _, transit) in enumerate(world.requests):
            told, hosts = crossings(found, at)
            total += 1
            right += 1 in hosts and abs(told - transit) <= 4 * found.uncertainty(at) + 10
    assert total > 20
    assert right >= 0.95 * total


@pytest.mark.deep
def test_paths_over_hosts_tile_in_many_worlds():
    """``CRITPATH_WORLDS=10000`` tries as many as that (a quarter of an hour of one cpu)."""
    for seed in range(1000, 1000 + int(os.environ.get("CRITPATH_WORLDS", "100"))):
        try_world(seed)
