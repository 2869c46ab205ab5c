"""Stacks of a recording are read as they were written, or refused."""

from __future__ import annotations

import json
import struct

import pytest

from critpath.errors import UnreadableError
from critpath.model.stacks import location_of
from critpath.read.stacks import OBJECTS, STACKS, open_stacks

FRAMES = [["wait", "", 0, "/lib/libc.so.6", False], ["flush", "/a/log.c", 3, "/a/app", True]]
WHOLE = {
    "format": "critpath/stacks/1",
    "frames": FRAMES,
    "stacks": [[0, 1], [1]],
    "cut": [1],
    "lost": 0,
}


def write(place, rows=((5, 7, 0, 1, 0), (3, 7, 8, 0, 1)), **changes):
    stacks = place / "stacks"
    stacks.mkdir()
    (stacks / "frames.json").write_text(json.dumps(WHOLE | changes))
    (stacks / "samples.bin").write_bytes(b"".join(struct.pack("<qiiiB", *row) for row in rows))
    return place


def test_they_are_read_in_order_of_time(tmp_path):
    found = open_stacks(write(tmp_path))
    assert (found.time.tolist(), found.woken.tolist(), found.stack.tolist()) == (
        [3, 5],
        [8, 0],
        [0, 1],
    )
    assert [f.function for f in found.distinct[0]] == ["wait", "flush"]
    assert found.frames.inlined.tolist() == [False, True]


def test_what_threads_slept_for_is_read_alike(tmp_path):
    place = write(tmp_path, frames=[["fsync(a\x1b[2J)", "", 0, "", False]], stacks=[[0]] * 2)
    for old, new in zip(STACKS, OBJECTS, strict=True):
        (place / "stacks" / old).rename(place / "stacks" / new)
    assert open_stacks(place) is None
    found = open_stacks(place, OBJECTS)
    assert "\x1b" not in location_of(found.distinct[0])
    assert location_of(found.distinct[0]).startswith("fsync(a")


def test_most_recordings_have_none(tmp_path):
    assert open_stacks(tmp_path) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "critpath/stacks/2"},
        {"frames": [["f", "", 0, "m"]]},
        {"frames": [["f", "", -1, "m", False]] * 2},
        {"frames": [["f" * 401, "", 0, "m", False]] * 2},
        {"frames": [[["f"], "", 0, "m", False]] * 2},
        {"frames": 7},
        {"stacks": [[0, 2]]},
        {"stacks": [[-1]]},
        {"stacks": [[True]]},
        {"stacks": [[0] * 1025]},
        {"rows": [(5, 7, 0, 2, 0)]},
        {"rows": [(5, 7, 0, -2, 0)]},
        {"lost": None},
        {"rows": [(5, 7, 0, 0, 4)]},
        {"period": -1},
        {"period": True},
        {"rows": [(-(2**63), 7, 0, 0, 0)]},
    ],
)
def test_what_no_recorder_writes_is_refused(tmp_path, changes):
    with pytest.raises(UnreadableError, match="not stacks of a recording"):
        open_stacks(write(tmp_path, **changes))


def test_names_cannot_reach_a_terminal_or_make_frames(tmp_path):
    frames = [["a\tb\nc\x1b[2J", "f\n", 1, "m", False], FRAMES[1]]
    [first, _] = open_stacks(write(tmp_path, frames=frames)).distinct[0]
    assert not {"\t", "\n", "\x1b"} & set(first.function + first.file)


@pytest.mark.parametrize("size", [1, 20, 43])
def test_half_a_row_is_refused(tmp_path, size):
    write(tmp_path)
    (tmp_path / "stacks" / "samples.bin").write_bytes(bytes(size))
    with pytest.raises(UnreadableError, match="bytes"):
        open_stacks(tmp_path)
