"""The native reader reads what babeltrace2 reads, which runs in a process of its own."""

from __future__ import annotations

import importlib.util
import subprocess

import numpy as np
import pytest

from critpath.model import EventRequest, Kind
from critpath.read.event_names import KERNEL_EVENTS
from critpath.read.traces import read_events

EVERYTHING = (EventRequest(Kind.OTHER, ("*",), (("*",),)),)
# What the replay needs, for traces too large to read every field of in Python.
SCHEDULER = tuple(
    w for w in KERNEL_EVENTS if w.fields and w.kind.name in {"SWITCH", "WAKEUP", "FORK"}
)


GUEST = [
    "full",
    "lossy",
    "normal",
    "normal-2",
    "plain",
    "python",
    "sample-delay",
    "sample-fsync",
    "sample-lock",
    "sample-quota",
    "steady-normal",
    "steady-plain",
    "steady-sample-delay",
    "steady-sample-fsync",
    "steady-sample-lock",
    "steady-sample-quota",
]
# Events in each, as babeltrace2 counts them (scp_dest: as its tracer wrote them).
PUBLIC = {
    "bt-multi-domains": 4272,
    "bt-tracefile-rotation": 12305,
    "cb-nodes-pipeline": 3595,
    "selora-namespace_live": 728_578,
    "selora-old_trace": 86_521,
    "tc-bug446190": 31_556,
    "tc-many-threads": 240_644,
    "tc-scp_dest": 85_729,
    "tc-uneven-streams-PARTIAL": 50_618,
}
LARGE = {"selora-namespace_live", "tc-many-threads"}
# Much as another, or large.
LASTING = {
    *LARGE,
    "selora-old_trace",
    "tc-uneven-streams-PARTIAL",
    "tc-bug446190",
    "full",
    "normal",
    "normal-2",
    "sample-delay",
    "sample-fsync",
    "sample-quota",
} | {name for name in GUEST if name.startswith("steady-")}


def lasting(names):
    """Mark those that babeltrace2 takes long for."""
    return [pytest.param(n, marks=pytest.mark.deep if n in LASTING else ()) for n in names]


def bt2_is_here() -> bool:
    if importlib.util.find_spec("bt2"):
        return True
    try:
        return not subprocess.run(
            ["/usr/bin/python3", "-c", "import bt2"], capture_output=True, check=False
        ).returncode
    except FileNotFoundError:
        return False


needs_bt2 = pytest.mark.skipif(not bt2_is_here(), reason="needs babeltrace2's Python module")


def tables(events, codes):
    """For each event name its fields with types, and a matrix: ts, cpu, one column a field."""
    found = {}
    texts = np.array([codes.setdefault(s, len(codes)) for s in events.strings], np.int64)
    for index, of in enumerate(events.classes):
        rows = np.flatnonzero(events.event_class == index)
        if not len(rows):
            continue
        columns = {
            "": events.timestamp[rows],
            " cpu": events.cpu[rows].astype(np.int64),
        }
        types = {}
        for place, (name, kind) in enumerate(zip(of.fields, of.types, strict=True)):
            column = events.values[events.offset[rows] + place]
            columns[name] = texts[column] if kind == "str" else column
            types[name] = kind
        found.setdefault((of.domain, of.name), []).append((types, columns))
    result = {}
    for key, parts in found.items():
        names = sorted({n for _, columns in parts for n in columns})
        types = {n: t for part, _ in parts for n, t in part.items()}
        # Texts last: where they differ, rows still sort alike.
        names.sort(key=lambda n: types.get(n) == "str")
        matrix = np.concatenate(
            [np.stack([c.get(n, np.zeros_like(c[""])) for n in names], axis=1) for _, c in parts]
        )
        result[key] = types, names, matrix[np.lexsort(matrix.T[::-1])]
    return result


def assert_same_events(ours, theirs):
    """Every event, its time, cpu and fields are the same.

    babeltrace2 2.0.4 shows an empty string field as the string that the field held in an
    earlier event (efficios/babeltrace, pull request 116): there ours must be empty.
    """
    codes = {"": 0}
    mine, its = tables(ours, codes), tables(theirs, codes)
    assert set(mine) == set(its)
    stale = 0
    for key, (types, names, matrix) in mine.items():
        its_types, its_names, its_matrix = its[key]
        assert types == its_types, key
        assert names == its_names, key
        assert matrix.shape == its_matrix.shape, key
        different = matrix != its_matrix
        for place in np.flatnonzero(different.any(axis=0)):
            assert types.get(names[place]) == "str", (key, names[place])
            assert not matrix[different[:, place], place].any(), (key, names[place])
            stale += int(different[:, place].sum())
    assert stale <= max(3, len(ours) // 1000)


def assert_same_losses(ours, theirs):
    kinds = {"discarded", "packets lost"}

    def counted(events):
        return sorted(
            (x.begin, x.end, x.events, x.packets, x.reason)
            for x in events.losses
            if x.reason in kinds
        )

    assert counted(ours) == counted(theirs)


@needs_bt2
@pytest.mark.parametrize("name", lasting(GUEST))
def test_guest_recordings_read_as_babeltrace2_reads_them(guest, name):
    path = guest(name)
    ours = read_events(path, EVERYTHING)
    theirs = read_events(path, EVERYTHING, reader="babeltrace2")
    assert ours.total == len(ours) == len(theirs)
    assert_same_events(ours, theirs)
    assert_same_losses(ours, theirs)
    assert ours.clock.uuid == theirs.clock.uuid


@needs_bt2
@pytest.mark.parametrize("name", lasting(n for n in PUBLIC if n != "tc-scp_dest"))
def test_public_traces_read_as_babeltrace2_reads_them(shared, name):
    path = shared(f"public/{name}")
    wanted = SCHEDULER if name in LARGE else EVERYTHING
    ours = read_events(path, wanted)
    assert ours.total == PUBLIC[name]
    theirs = read_events(path, wanted, reader="babeltrace2")
    assert_same_events(ours, theirs)
    assert_same_losses(ours, theirs)
