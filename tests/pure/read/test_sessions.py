"""Recordings below a directory: none is passed over, and each keeps its manifest."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

from critpath.errors import UnreadableError
from critpath.model import CpuLoss, Events, Manifest, Run
from critpath.read.manifest import add_manifest, open_manifest
from critpath.read.traces import find_recordings
from critpath.schema.environment import Environment

METADATA = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };"


def recording(place, *, trace=True, **manifest):
    place.mkdir(parents=True)
    (place / "critpath.json").write_text(json.dumps(manifest))
    if trace:
        (place / "trace" / "kernel").mkdir(parents=True)
        (place / "trace" / "kernel" / "metadata").write_text(METADATA)
    return place


def test_a_recording_below_keeps_its_manifest(tmp_path):
    only = recording(tmp_path / "set" / "one", execution="process")
    assert find_recordings(tmp_path / "set") == (only,)
    assert find_recordings(only) == (only,)


def test_a_trace_without_a_manifest_is_called_what_the_user_calls_it(tmp_path):
    (tmp_path / "set" / "kernel").mkdir(parents=True)
    (tmp_path / "set" / "kernel" / "metadata").write_text(METADATA)
    assert find_recordings(tmp_path / "set") == (tmp_path / "set",)


def test_an_unfinished_recording_among_others_is_not_passed_over(tmp_path):
    done = recording(tmp_path / "done")
    dead = recording(tmp_path / "dead", trace=False, state="recording")
    found = find_recordings(tmp_path)
    assert sorted(found) == sorted([done, dead])
    with pytest.raises(UnreadableError) as caught:
        open_manifest(dead)
    assert "critpath doctor --clean" in caught.value.do


def test_what_is_below_a_recording_is_part_of_it(tmp_path):
    outer = recording(tmp_path / "outer")
    recording(outer / "kept" / "inner")
    assert find_recordings(tmp_path) == (outer,)


def test_a_manifest_adds_its_losses_and_circumstances():
    empty, none = np.zeros(0, np.int64), np.zeros(0, np.int32)
    events = Events(empty, none, none, empty, empty, (), ("",), begin=5, end=9)
    manifest = Manifest(
        *("complete", "critpath-1", (), "", (), {}, "minimal", {}),
        host={"name": "here", "cpus": 2, "cpu_model": ["odd"]},
        begin=0,
        end=0,
        loss=(CpuLoss(1, 3),),
        interleaved="sample",
    )
    found = add_manifest(events, manifest)
    assert [(x.begin, x.end, x.cpu, x.events) for x in found.losses] == [(5, 9, 1, 3)]
    assert found.environment == (
        Environment(
            recorded_on="here",
            recorded_cpus=2,
            recorded_profile="minimal",
            recorded_session="critpath-1",
            recorded_beside="sample",
        ),
    )
    nothing = Manifest("complete", "", (), "", (), {}, "", {}, {}, 0, 0)
    assert add_manifest(events, nothing).environment == ()


@pytest.mark.parametrize(
    ("beside", "order", "runs_of_block", "numbers", "expected"),
    [
        ("sample", "ABBABAAB", 2, (1, 2, 3, 4), "10 10 10 10"),
        ("normal", "ABBABAAB", 2, (1, 2), "10 10"),  # ended early
        ("sample", "ABBABAABBA", 4, (1, 2, 3, 4, 5), "10 20 20"),
        ("normal", "ABBABAABBA", 4, (1, 2, 3, 4, 5), "10 20 20"),
        ("sample", "ABBABAABBA", 4, (1, 2, 3), "10 20"),  # ended early
        ("sample", "ABBABAAB", 4, (1, 2, 3, 4, 5), ""),  # more runs than were drawn
        ("sample", "", 4, (1, 2), ""),
        ("", "AAAA", 4, (1, 2), ""),
        ("sample", "ABBABAAB", 4, (3, 4), ""),  # a block without runs: not ours
        ("sample", "ABBABAAB", 4, (0, 1), ""),
    ],
)
def test_a_manifest_tells_when_blocks_began(beside, order, runs_of_block, numbers, expected):
    empty, none = np.zeros(0, np.int64), np.zeros(0, np.int32)
    events = Events(empty, none, none, empty, empty, (), ("",), begin=5, end=9)
    runs = tuple(Run(n, 7, 10 * n, 10 * n + 5, 0) for n in numbers)
    manifest = Manifest(
        *("complete", "s", (), "", runs, {}, "", {}, {}, 0, 0),
        interleaved=beside,
        order=order,
        block_runs=runs_of_block,
    )
    (found,) = add_manifest(events, manifest).environment
    assert found.saved().get("recorded_blocks", "") == expected
    # Begins of all runs, whatever was drawn.
    turns = [10 * numbers[0], *(10 * (b - a) for a, b in pairwise(numbers))]
    assert found.saved().get("recorded_turns", "") == (" ".join(map(str, turns)) if beside else "")
