"""All that is found of requests, in whole: the cases of the other tests, which look at one thing.

Of each case it is what every function of `critpath.requests` returned.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import critpath.requests
from critpath import flow
from critpath.requests import links, owners, paths

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parents[2] / "fixtures"
MODULES = [
    importlib.import_module(f"critpath.requests.{of.name}")
    for of in pkgutil.iter_modules(critpath.requests.__path__)
    if of.name not in {"find", "slices"}  # which choose of what the others find
    if not of.name.startswith("_")
]
DRAWN = (
    *("activity_gaps", "calls", "confidence", "datagrams", "endpoints", "implicit"),
    *("links", "matching", "message_names", "requesting", "rounds"),
    *("tiers", "turns"),
)


@pytest.fixture(scope="module")
def snapshots(load):
    return load("pure/snapshots.py")


@pytest.mark.parametrize("name", DRAWN)
def test_what_the_cases_of_other_tests_come_to(load, snapshots, golden, name):
    module = load(f"pure/requests/test_{name}.py")
    lines = []
    fixtures = {"load": load, "drawing": load("pure/requests/drawing.py")}
    for case, run in snapshots.cases_of(module, fixtures):
        lines += snapshots.run_watched(MODULES, case, run)
    golden(HERE / "snapshots" / f"{name}.json", snapshots.written(lines))


def test_what_drawings_of_threads_come_to(load, snapshots, golden):
    drawing = load("pure/requests/drawing.py")
    lines = []
    for each in drawing.read_drawings(HERE / "drawings" / "owners.txt"):
        tables = drawing.draw(each)
        lines += snapshots.run_watched(
            MODULES, each.title, lambda of=tables: attribute_all(*of.arguments), 0
        )
    golden(HERE / "snapshots" / "drawings.json", snapshots.written(lines))


def attribute_all(activity, workers, endpoints, requests, subrequests):
    """Say who worked for whom, by all ways that there are."""
    owners.find_owners(activity, workers, endpoints, requests, subrequests)
    found = links.attribute(activity, workers, endpoints, requests, "queues", None)
    links.judge_attribution(len(requests), found.subrequests)
    links.find_confidence(len(requests), found.subrequests)
    tables = found.requests, found.subrequests, found.slices
    links.find_links(activity, endpoints, *tables)
    paths.find_calls(activity, *tables[:2])
    certain = replace(found.requests, boundary=np.zeros(len(requests), np.uint8))
    for doubtful in (True, False):
        paths.Composition(
            *(activity, endpoints, certain, *tables[1:], np.arange(len(requests))),
            doubtful=doubtful,
        ).cut(slice(None))


def test_what_simulated_servers_come_to(load, snapshots, golden):
    simulate, drawing = load("pure/requests/simulate.py"), load("pure/requests/drawing.py")
    lines = []
    for seed, name in enumerate(simulate.CLASSES):
        for c, n in ((2, 8), (6, 30)):
            world = simulate.simulate(name, c, n, seed)
            of = simulate.arguments(world, drawing)
            lines += snapshots.run_watched(
                MODULES, f"{name} {c}", lambda of=of: attribute_all(*of), 1
            )
    golden(HERE / "snapshots" / "simulated.json", snapshots.written(lines))


def test_what_a_recorded_server_comes_to(unpack, snapshots, golden):
    recording = next(unpack(FIXTURES / "requests/memcached.tar.xz").rglob("critpath.json")).parent
    lines = snapshots.run_watched(
        MODULES, "memcached", lambda: flow.extract([recording], specification="requests")
    )
    golden(HERE / "snapshots" / "memcached.json", snapshots.written([*lines]))
