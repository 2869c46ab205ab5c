"""A recording that is read as a stream, and what it gives as a whole in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from detailing import texts_of

from critpath.engines.limits import Budget
from critpath.executions.find import find_executions
from critpath.executions.specification import parse_specification
from critpath.flow import extract
from critpath.graph.critical_path import subject_workers
from critpath.graph.execution_graph import critical_paths
from critpath.graph.resources import explain_waits
from critpath.model import CriticalPaths
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.manifest import add_manifest, open_manifest
from critpath.read.traces import describe, read_events
from critpath.timeline.missing_switches import repair_switches
from critpath.timeline.replay import replay
from critpath.timeline.resources import ResourceEvents


def as_a_whole(recording: Path, text: str):
    """The paths of a recording from all of its events, one replay, one block."""
    manifest, _ = open_manifest(recording)
    specification = parse_specification(text)
    events = read_events(recording, (*KERNEL_EVENTS, *specification.get_requests()))
    events = add_manifest(repair_switches(events), manifest)
    names = sorted({name for of in describe(recording) for name in of.events})
    executions = find_executions(
        events, specification, names, manifest.runs, interleaved=bool(manifest.interleaved)
    )
    timelines = replay(events)
    subjects = subject_workers(timelines.workers, executions)
    whole = critical_paths(timelines, subjects, executions.begin, executions.end)
    resources = ResourceEvents(())
    resources.feed(events, events.classes)
    disks = resources.finish(events.end)
    explained = explain_waits(_Set(whole), timelines.workers, disks, (), {}, events.strings)
    return executions, explained.paths


@dataclass(frozen=True)
class _Set:
    """What `explain_waits` wants of a set of paths."""

    paths: CriticalPaths


def assert_same(paths, executions, whole):
    assert paths.executions.id == executions.id
    assert paths.executions.comm == executions.comm
    assert paths.executions.notes == executions.notes
    assert paths.executions.incomplete == executions.incomplete
    found = paths.paths
    for column in ("start", "begin", "end", "state", "tid", "host", "cpu", "lossy"):
        np.testing.assert_array_equal(getattr(found, column), getattr(whole, column), column)
    assert texts_of(found) == texts_of(whole)
    ours, theirs = ([of.strings[code] for code in of.comm.tolist()] for of in (found, whole))
    assert ours == theirs


def joined(recording: Path, text: str, monkeypatch, rows: int, segments: int, *, spills: bool):
    """The paths of a recording in blocks and groups of some size."""
    monkeypatch.setattr(Budget, "within", lambda _: Budget(rows, segments, spills=spills))
    return extract([recording], specification=text, max_memory=1 << 40)
