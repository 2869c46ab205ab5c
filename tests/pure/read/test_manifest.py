"""Manifests: what is read back, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.errors import UnreadableError
from critpath.model import CpuLoss, Events, Loss, Manifest, Run
from critpath.read.manifest import add_counted_losses, open_manifest, read_manifest
from critpath_record.manifests import write_manifest

WHOLE = Manifest(
    state="complete",
    session="critpath-1-2-3-00000000",
    command=("sh", "-c", "exit 3", "\u00e9"),
    execution="process",
    runs=(Run(1, 12, 100, 200, 0), Run(2, 13, 300, 400, 3), Run(3, 14, 500, 600, 124, True, 2)),
    recorder={"name": "ftrace", "events": ["sched_switch"], "buffer_bytes": 8 << 20},
    profile="minimal",
    clock={"name": "monotonic", "epoch": 5},
    host={"name": "here", "cpus": 2},
    begin=50,
    end=700,
    loss=(CpuLoss(0, 10), CpuLoss(-1, 5, 1)),
    timeout=2.5,
    warnings=("something was odd",),
    critpath="0.1.0",
)


def test_what_is_written_is_read(tmp_path):
    write_manifest(tmp_path, WHOLE)
    assert read_manifest(tmp_path) == WHOLE
    assert (tmp_path / "critpath.json").stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["critpath.json"]


def test_what_was_unusual_is_said(tmp_path):
    write_manifest(tmp_path, WHOLE)
    _, notes = open_manifest(tmp_path)
    assert notes == (
        "something was odd",
        "1 of 3 runs exited with 3",
        "1 of 3 runs were ended by the timeout",
        "2 descendants outlived the command: not followed further",
    )


def test_none_is_an_empty_one(tmp_path):
    assert read_manifest(tmp_path) is None
    manifest, notes = open_manifest(tmp_path)
    assert (manifest.runs, manifest.execution, notes) == ((), "", ())


def test_a_recording_that_nobody_finished(tmp_path):
    write_manifest(tmp_path, replace(WHOLE, state="recording"))
    with pytest.raises(UnreadableError) as caught:
        open_manifest(tmp_path)
    assert "critpath doctor --clean" in caught.value.do


def test_a_later_format_is_refused(tmp_path):
    (tmp_path / "critpath.json").write_text('{"format": "critpath/recording/3"}')
    with pytest.raises(UnreadableError, match="critpath/recording/3"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "[]",
        "{",
        '{"runs": 3}',
        '{"runs": [3]}',
        '{"runs": [{"pid": "x"}]}',
        '{"runs": [{"pid": 1e99}]}',
        '{"runs": [{"timed_out": 1}]}',
        '{"loss": [{"events": -5}]}',
        '{"execution": 5}',
        '{"state": "lost"}',
        '{"begin": true}',
        '{"timeout": NaN}',
        '{"command": [1]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path, wrong):
    (tmp_path / "critpath.json").write_text(wrong)
    with pytest.raises(UnreadableError):
        read_manifest(tmp_path)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_any_value_anywhere_is_read_or_refused(tmp_path_factory, value):
    place = tmp_path_factory.mktemp("manifest")
    for key in ("runs", "loss", "begin", "execution", "recorder", "state", "format"):
        (place / "critpath.json").write_text(json.dumps({key: value}))
        try:
            read_manifest(place)
        except UnreadableError:
            continue


def events_with(*losses: Loss) -> Events:
    empty = np.zeros(0, np.int64)
    none = np.zeros(0, np.int32)
    return Events(empty, none, none, empty, empty, (), ("",), losses=losses, begin=50, end=700)


def test_losses_that_the_trace_does_not_show_cover_all_of_it():
    shown = Loss(100, 110, 0, 0, 4, 0, "discarded")
    manifest = replace(WHOLE, loss=(CpuLoss(0, 10), CpuLoss(1, 3)))
    found = add_counted_losses(events_with(shown), manifest).losses
    assert found[0] == shown
    assert [(x.begin, x.end, x.cpu, x.events) for x in found[1:]] == [
        (50, 700, 0, 6),
        (50, 700, 1, 3),
    ]


def test_losses_that_the_trace_shows_are_not_counted_twice():
    shown = Loss(100, 110, 0, 0, 10, 0, "discarded")
    manifest = replace(WHOLE, loss=(CpuLoss(0, 10),))
    assert add_counted_losses(events_with(shown), manifest).losses == (shown,)
