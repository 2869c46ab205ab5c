"""``--execution slices:MARKER``: what is understood, and what is said of what is not."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from critpath.errors import UnreadableError, UsageError
from critpath.executions.specification import parse_specification
from critpath.model import Manifest
from critpath.model.requests import MARKERS
from critpath.read.recording import Recording
from critpath.requests.slices import require_markers

MANIFEST = Manifest("complete", "", (), "", (), {}, "minimal", {}, {}, 0, 0)


def known(names):
    """A recording of which the names of its events are known."""
    return Recording(Path("normal"), manifest=MANIFEST, event_names=names)


@pytest.mark.parametrize("marker", MARKERS)
def test_every_marker(marker):
    found = parse_specification(f"slices:{marker},comm=worker,min=100us,root")
    asked = found.slices
    assert (found.kind, asked.marker) == ("slices", marker)
    assert (asked.comm, asked.least, asked.root) == ("worker", 100_000, True)
    # What the scheduler tells needs nothing else.
    more = found.get_requests()
    assert bool(more) == (marker not in {"wake", "fork", "unix"})


@pytest.mark.parametrize(
    ("text", "message", "do"),
    [
        ("slices", "not a marker of slices: (nothing)", "write slices: and one of wake, fork"),
        ("slices:", "not a marker of slices: (nothing)", "write slices: and one of wake, fork"),
        ("slices:futexes", "not a marker of slices: futexes", "did you mean slices:futex?"),
        ("slices:wake,com=x", "not an option of slices: com=x", "did you mean comm=?"),
        ("slices:wake,min=5", "min= is not a duration: 5", "write min="),
        ("slices:wake,root=1", "not an option of slices: root=1", "write slices:MARKER"),
        ("slices:wake,min=1s,min=2s", "min is given twice", "write slices:MARKER"),
    ],
)
def test_what_is_not_understood(text, message, do):
    with pytest.raises(UsageError) as caught:
        parse_specification(text)
    assert caught.value.what.startswith(message)
    assert caught.value.do.startswith(do)


@pytest.mark.parametrize(
    ("marker", "lacks", "profile"),
    [
        ("futex", "system calls", "locks"),
        ("pipe", "system calls", "syscalls"),
        ("unix", "sockets", "requests"),
        ("signal", "signals", "full"),
    ],
)
def test_a_recording_that_lacks_the_events(marker, lacks, profile):
    with pytest.raises(UnreadableError) as caught:
        require_markers(known(["sched_switch", "sched_waking"]), marker)
    assert caught.value.exit_code == 4
    said = f"normal: recorded with minimal, which has no {lacks} for slices:{marker}"
    assert caught.value.what == said
    assert caught.value.do.startswith(f"record again with --profile {profile};")


@pytest.mark.parametrize("name", ["syscall_entry_futex", "syscalls:sys_enter_futex"])
def test_a_recording_that_has_them(name):
    require_markers(known([name]), "futex")
    require_markers(known([]), "wake")


def test_sketches_of_slices_are_tables(critpath, guest, tmp_path):
    asked = ("--execution", "slices:wake")
    run = critpath(
        "export", guest("normal"), *asked, "--format", "sketches", "-o", tmp_path / "out"
    )
    assert run.returncode == 0, run.stderr
    slices = pq.read_table(tmp_path / "out" / "slices.parquet").to_pydict()
    links = pq.read_table(tmp_path / "out" / "links.parquet").to_pydict()
    caused = {s: p for s, p in zip(slices["slice"], slices["parent"], strict=True) if p is not None}
    assert caused
    assert caused == dict(zip(links["to_slice"], links["from_slice"], strict=True))
    for child, parent in caused.items():
        assert slices["root"][child] == slices["root"][parent]
        assert slices["begin_ns"][parent] <= slices["begin_ns"][child]
    assert all(e > b for b, e in zip(slices["begin_ns"], slices["end_ns"], strict=True))
    assert any(slices["chosen"])
