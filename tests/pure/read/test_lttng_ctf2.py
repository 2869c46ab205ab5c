"""Real LTTng traces again, described in CTF 2 as LTTng 2.15 spells it: nothing is read otherwise.

The packets are the same bytes in both formats; `oracle.ctf2_as_lttng` writes the metadata.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from oracle.ctf2_as_lttng import NAMESPACE, as_ctf2

from critpath.flow import extract_file
from critpath.model import EventRequest, ExtractSettings, Kind
from critpath.read.metadata.load import read_metadata
from critpath.read.traces import read_events

EVERYTHING = (EventRequest(Kind.OTHER, ("*",), (("*",),)),)
REQUESTS = "events:app:request_begin,app:request_end,key=id"


@pytest.fixture(scope="module")
def in_ctf2(guest, tmp_path_factory) -> Callable[[str], Path]:
    """Return a function from a guest recording's name to the same in CTF 2."""

    def convert(name: str) -> Path:
        place = tmp_path_factory.mktemp("ctf2") / name
        shutil.copytree(guest(name), place)
        for metadata in place.rglob("metadata"):
            trace = read_metadata(metadata.parent)
            kernel = trace.environment.domain == "kernel"
            metadata.write_bytes(as_ctf2(trace, aliases=kernel))
        return place

    return convert


@pytest.mark.parametrize("name", ["normal", "lossy", "full"])
def test_every_event_field_and_loss_is_the_same(guest, in_ctf2, name):
    converted = in_ctf2(name)
    assert NAMESPACE in next(converted.rglob("kernel/metadata")).read_text()
    theirs, ours = read_events(guest(name), EVERYTHING), read_events(converted, EVERYTHING)
    assert len(ours) == len(theirs) > 1000
    assert ours.losses == theirs.losses
    assert ours.environment == theirs.environment
    for column in ("timestamp", "cpu", "event_class", "offset"):
        assert np.array_equal(getattr(ours, column), getattr(theirs, column)), column
    named = [
        [(c.name, c.domain, c.fields, c.types) for c in events.classes] for events in (ours, theirs)
    ]
    assert named[0] == named[1]
    assert ours.strings == theirs.strings
    assert np.array_equal(ours.values, theirs.values)


def test_the_critical_paths_are_the_same_bytes(guest, in_ctf2, tmp_path, monkeypatch):
    files = []
    for place, recording in (("1.8", guest("sample-lock")), ("2", in_ctf2("sample-lock"))):
        monkeypatch.chdir(recording.parent)  # a file of paths says how its source was called
        files.append(tmp_path / place)
        name = Path(recording.name)
        extract_file([name], files[-1], ExtractSettings(REQUESTS), require=lambda _: None)
    assert files[0].read_bytes() == files[1].read_bytes()
