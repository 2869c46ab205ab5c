"""Tiers, what of a request's time is its own, labels and links: on simulated servers with truth."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from critpath.model.requests import LINK_KINDS, Act
from critpath.requests.links import attribute, find_fed, find_links, name_labels
from critpath.requests.owners import cut_subrequests


@pytest.fixture(scope="module")
def tiers(load: Any) -> Any:
    simulate: ModuleType = load("pure/requests/simulate.py")
    world = simulate.simulate("two tiers and a database", 16, 200, 3)
    return world, attribute(*simulate.arguments(world, load("pure/requests/drawing.py"))[:4])


def test_every_request_is_under_the_one_that_asked_for_it(tiers: Any) -> None:
    world, found = tiers
    np.testing.assert_array_equal(found.requests.parent, world.parent)
    assert (world.parent >= 0).sum() == 400


def test_one_that_was_not_seen_to_arrive_is_of_the_connection_that_it_was_on(tiers: Any) -> None:
    world, found = tiers
    child = found.subrequests.child.copy()
    child[::7] = -1
    unseen = dataclasses.replace(found.subrequests, child=child)
    label, strings = name_labels(world.endpoints, found.requests, unseen)
    before = [found.requests.strings[each] for each in found.requests.label]
    assert [strings[each] for each in label] == before


def test_parents_contain_their_children(tiers: Any) -> None:
    _, found = tiers
    requests = found.requests
    of = requests.parent >= 0
    parent = requests.parent[of]
    assert (requests.begin_ns[parent] <= requests.begin_ns[of]).all()
    assert (requests.end_ns[parent] >= requests.end_ns[of]).all()


def test_own_and_asked_are_the_latency(tiers: Any) -> None:
    _, found = tiers
    requests, subs = found.requests, found.subrequests
    latency = requests.end_ns - requests.begin_ns
    np.testing.assert_array_equal(requests.true_ns + requests.asked_ns, latency)
    assert (requests.true_ns > 0).all()
    # Here every request makes its calls one after another: the sum is the union.
    sums = np.zeros(len(requests), np.int64)
    calls = (subs.request >= 0) & (subs.connects == 0)
    arrived = np.where(subs.child >= 0, requests.begin_ns[subs.child], subs.begin_ns)
    since = np.minimum(subs.begin_ns, arrived)
    np.add.at(sums, subs.request[calls], (subs.end_ns - since)[calls])
    np.testing.assert_array_equal(requests.asked_ns, sums)
    np.testing.assert_array_equal(requests.queued_ns, requests.received_ns - requests.begin_ns)


def test_parallel_calls_count_once(load: Any) -> None:
    drawing = load("pure/requests/drawing.py")
    each = drawing.Drawing("", {"w1": [("R1", 0), ("sa", 10_000), ("sb", 20_000), ("ra", 30_000),
                                       ("rb", 50_000), ("sc", 60_000), ("rc", 70_000),
                                       ("S1", 90_000)]})  # fmt: skip
    found = attribute(*drawing.draw(each).arguments[:4])
    assert found.requests.asked_ns.tolist() == [50_000]
    assert found.requests.true_ns.tolist() == [90_010 - 50_000]


@pytest.mark.parametrize(
    ("arrival", "asked"),
    [(17_000, 23_000), (9_000, 20_000)],  # the second belonged to what was asked before
)
def test_what_arrived_before_its_send_was_recorded_is_asked_since_then(
    load: Any, arrival: int, asked: int
) -> None:
    drawing = load("pure/requests/drawing.py")
    each = drawing.Drawing("", {
        "p.w": [("R1", 0), ("sx", 5_000), ("rx", 10_000), ("sx2", 20_000), ("rx2", 40_000),
                ("S1", 50_000)],
        "q.w": [("A2", arrival), ("R2", 25_000), ("S2", 30_000)],
    })  # fmt: skip
    drawn = drawing.draw(each)
    here, there = (int(of.endpoint[-1]) for of in (drawn.subrequests, drawn.requests))
    peer = np.full(len(drawn.endpoints), -1, np.int32)
    peer[[here, there]] = there, here
    ends = dataclasses.replace(drawn.endpoints, peer=peer)
    found = attribute(drawn.activity, drawn.workers, ends, drawn.requests)
    assert found.requests.asked_ns.tolist() == [5_000 + asked, 0]
    assert found.requests.true_ns.sum() == 50_010 - 5_000 - asked + 30_000 - arrival
    # When it was sent stays as it was recorded.
    assert found.subrequests.begin_ns.tolist() == [5_000, 20_000]


def test_subrequests_are_the_turns_of_endpoints_that_ask(load: Any) -> None:
    simulate = load("pure/requests/simulate.py")
    for number, name in enumerate(simulate.CLASSES):
        world = simulate.simulate(name, 8, 60, number)
        found, known = cut_subrequests(world.activity, world.endpoints), world.subrequests
        for column in ("endpoint", "begin_ns", "end_ns", "tid", "connects"):
            np.testing.assert_array_equal(getattr(found, column), getattr(known, column), name)


def test_labels_in_doubt_name_all_that_the_service_asks(load: Any) -> None:
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    world = simulate.simulate("loop, unequal sleeps", 16, 100, 1)
    found = attribute(*simulate.arguments(world, drawing)[:4])
    assert {found.requests.strings[c] for c in found.requests.label} == {"server:8000 → :6379"}


@pytest.mark.parametrize(("family", "name"), [(1, "unix"), (16, "netlink"), (2, "?")])
def test_who_has_neither_port_nor_path_is_called_by_its_family(
    load: Any, family: int, name: str
) -> None:
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    world = simulate.simulate("loop, unequal sleeps", 1, 20, 1)
    found = attribute(*simulate.arguments(world, drawing)[:4])
    at = np.isin(np.arange(len(world.endpoints)), found.subrequests.endpoint)
    nameless = dataclasses.replace(
        world.endpoints,
        family=np.where(at, family, world.endpoints.family).astype(np.int32),
        **{
            key: np.where(at, 0, getattr(world.endpoints, key)).astype(np.int32)
            for key in ("remote_port", "path")
        },
    )
    label, strings = name_labels(nameless, found.requests, found.subrequests)
    assert {strings[each] for each in label} == {f"server:8000 → {name}"}


def test_labels_name_what_is_asked(tiers: Any) -> None:
    _, found = tiers
    labels = {found.requests.strings[code] for code in found.requests.label.tolist()}
    assert labels == {
        "server:80 → server:9082",
        "server:9082 → server:5432",
        "server:5432",
    }


def test_links_lead_from_slice_to_slice(load: Any, tiers: Any) -> None:
    world, found = tiers
    arguments = load("pure/requests/simulate.py").arguments(world, load("pure/requests/drawing.py"))
    activity, endpoints = arguments[0], arguments[2]
    slices = found.slices
    links = find_links(activity, endpoints, found.requests, found.subrequests, slices)
    assert set(links.kind.tolist()) == {LINK_KINDS.index("message")}
    assert (links.sent_ns <= links.received_ns).all()
    assert (slices.begin_ns[links.from_slice] <= links.sent_ns).all()
    assert (slices.end_ns[links.to_slice] > links.received_ns).all()
    pairs = np.column_stack([slices.request[links.from_slice], slices.request[links.to_slice]])
    pairs = pairs[(pairs >= 0).all(axis=1)]
    assert len(pairs) > 400
    parent = found.requests.parent
    related = (parent[pairs[:, 1]] == pairs[:, 0]) | (parent[pairs[:, 0]] == pairs[:, 1])
    assert related.all()


def test_helpers_are_linked_by_wakes(load: Any) -> None:
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    world = simulate.simulate("executor pool", 4, 50, 1)
    activity, *others = simulate.arguments(world, drawing)[:4]
    found = attribute(activity, *others)
    links = find_links(activity, others[1], found.requests, found.subrequests, found.slices)
    wakes = links.kind == LINK_KINDS.index("wake")
    assert wakes.sum() >= 50  # at least who gives back
    # Now and then a third is woken for it, and overtaken by one that was busy.
    assert (found.requests.threads >= 2).all()
    assert found.requests.threads.mean() < 2.2


@pytest.mark.parametrize("name", ["loop, pooled (asyncio)", "loop, pooled, mixed kinds"])
def test_a_loop_that_others_read_for_is_found_as_one_that_reads_itself(
    load: Any, name: str
) -> None:
    """As grpcio's: a poller receives, the loop asks and answers."""
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    world = simulate.simulate(name, 8, 300, 5)
    poller = 1 + max(world.processes)
    [loop] = {*world.requests.tid.tolist()}
    served = np.isin(world.activity.endpoint, world.requests.endpoint)
    reads = served & (world.activity.act == Act.RECEIVE)
    read = dataclasses.replace(
        world,
        activity=dataclasses.replace(
            world.activity, tid=np.where(reads, poller, world.activity.tid).astype(np.int32)
        ),
        requests=dataclasses.replace(
            world.requests, reader_tid=np.full(len(world.requests), poller, np.int32)
        ),
        processes={**world.processes, poller: world.processes[loop]},
    )
    itself, fed = (attribute(*simulate.arguments(w, drawing)[:4]) for w in (world, read))
    for column in ("request", "attribution", "probability"):
        one, other = (getattr(of.subrequests, column).tolist() for of in (itself, fed))
        assert one == other


@pytest.mark.parametrize("name", ["reader and workers", "thread pool that reads itself"])
def test_threads_that_work_for_one_at_a_time_are_fed_by_nobody(load: Any, name: str) -> None:
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    world = simulate.simulate(name, 8, 300, 5)
    activity, workers, ends, requests, _ = simulate.arguments(world, drawing)
    found = find_fed(workers, ends, requests, cut_subrequests(activity, ends))
    assert {*found.tolist()} == {-1}
