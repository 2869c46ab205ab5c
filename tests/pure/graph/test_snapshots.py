"""All that walks come to, in whole: the cases of the other tests, which look at one thing.

Of each case it is what every function of `critpath.graph` returned.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import critpath.graph
from critpath.graph import critical_path, execution_graph
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events
from critpath.timeline.replay import replay

HERE = Path(__file__).resolve().parent
MODULES = [
    importlib.import_module(f"critpath.graph.{of.name}")
    for of in pkgutil.iter_modules(critpath.graph.__path__)
    if not of.name.startswith("_")
]
DRAWN = "beneath", "drawn", "resources", "stacks", "who_ran"


@pytest.fixture(scope="module")
def snapshots(load):
    return load("pure/snapshots.py")


@pytest.mark.parametrize("name", DRAWN)
def test_what_the_cases_of_other_tests_come_to(load, snapshots, golden, name):
    module = load(f"pure/graph/test_{name}.py")
    lines = []
    for case, run in snapshots.cases_of(module):
        lines += snapshots.run_watched(MODULES, case, run)
    golden(HERE / "snapshots" / f"{name}.json", snapshots.written(lines))


def test_what_hosts_that_ask_each_other_come_to(load, snapshots, golden):
    module = load("pure/graph/test_hosts.py")
    lines = []
    for seed in range(6):
        lines += snapshots.run_watched(
            MODULES, f"seed {seed}", lambda seed=seed: module.try_world(seed), 3
        )
    golden(HERE / "snapshots" / "hosts.json", snapshots.written(lines))


@pytest.mark.parametrize("name", ["sample-lock", "lossy"])
def test_what_recordings_come_to(guest, snapshots, golden, name):
    lines = snapshots.run_watched(MODULES, name, lambda: walk_all(guest(name)), 4)
    golden(HERE / "snapshots" / f"{name}.json", snapshots.written([*lines]))


def walk_all(recording):
    """Find the paths of every thread's life, and graphs of a few windows."""
    timelines = replay(read_events(recording, KERNEL_EVENTS))
    begin, end = int(timelines.begin.min()), int(timelines.end.max())
    for window in ((None, None), (begin + (end - begin) // 3, end)):
        asked = critical_path.find_lifetimes(
            timelines.workers, timelines.strings, None, None, window, (begin, end)
        )
        subjects = critical_path.subject_workers(timelines.workers, asked)
        subjects[::17] = -1
        critical_path.left_out(int((subjects < 0).sum()), asked)
        execution_graph.critical_paths(timelines, subjects, asked.begin, asked.end)
    graph = execution_graph.build_graph(timelines)
    middle, some = (begin + end) // 2, (end - begin) // 200
    execution_graph.count_edges(graph, begin, end)
    execution_graph.count_edges(graph, middle, middle + some)
    execution_graph.window_graph(graph, middle, middle + some)
    for subject in np.unique(subjects[subjects >= 0])[::9].tolist():
        for all_threads in (True, False):
            window = middle - some, middle + some
            execution_graph.window_graph(graph, *window, subject, all_threads=all_threads)
