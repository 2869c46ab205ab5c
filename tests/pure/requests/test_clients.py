"""``side=client``: requests as those saw them who asked."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "hosts"))

from record import write_split

from critpath.errors import UsageError
from critpath.executions.specification import parse_specification
from critpath.flow import extract_recording
from critpath.model import ExtractSettings
from critpath.read.hosts import decide_hosts
from critpath.read.recording import Recording
from critpath.store.reading import load_paths

ARCHIVES = Path(__file__).resolve().parents[3] / "fixtures/hosts"


@pytest.fixture(scope="module")
def place(unpack):
    place = unpack(ARCHIVES / "select1-2-8.tar.xz") / "select1-2-8"
    write_split(place, 5)
    return place


def extract(recording, asked):
    [paths] = extract_recording(Recording(recording), ExtractSettings(asked))
    return paths


def read_segments(paths):
    """The segments of each execution, by its id: they tile it."""
    found = {}
    start = paths.paths.start
    for at, name in enumerate(paths.executions.id):
        rows = range(int(start[at]), int(start[at + 1]))
        spans = [(int(paths.paths.begin[r]), int(paths.paths.end[r])) for r in rows]
        assert spans[0][0] == paths.executions.begin[at]
        assert spans[-1][1] == paths.executions.end[at]
        assert all(a[1] == b[0] for a, b in pairwise(spans))
        found[name] = rows
    return found


@pytest.mark.parametrize("port", [8080, 8000, 6379])
def test_on_one_kernel_a_client_waits_longer_than_its_server(place, port):
    served = extract(place / "recording", f"requests:port={port}").executions
    paths = extract(place / "recording", f"requests:port={port},side=client")
    seen = paths.executions
    read_segments(paths)
    assert len(seen) == len(served) >= 60
    begin = dict(zip(served.id, served.begin.tolist(), strict=True))
    end = dict(zip(served.id, served.end.tolist(), strict=True))
    inside = [
        began <= begin[name] and end[name] <= ended + 100_000
        for name, began, ended in zip(seen.id, seen.begin.tolist(), seen.end.tolist(), strict=True)
    ]
    assert sum(inside) >= 0.99 * len(inside)
    assert {*seen.comm}.isdisjoint({*served.comm})
    assert (seen.begin[1:] >= seen.begin[:-1]).all()


def test_over_hosts_the_way_there_and_back_counts(place):
    with decide_hosts("together"):
        served = extract(place / "hosts", "requests:port=8080")
        seen = extract(place / "hosts", "requests:port=8080,side=client")
    read_segments(seen)
    details = {of.device for of in seen.paths.details}
    assert "from web:8080" in details
    assert seen.executions.host[0] != served.executions.host[0]
    # What is between is known as surely as at the server.
    assert seen.paths.confidence.min() == pytest.approx(served.paths.confidence.min())
    assert len(seen.executions) == len(served.executions)


def test_who_was_not_recorded_is_counted_or_refused(place):
    with pytest.raises(UsageError, match="who asked was not recorded"):
        extract(place / "hosts/app", "requests:port=8000,side=client")
    with pytest.raises(UsageError, match="no request takes its client that long"):
        extract(place / "recording", "requests:port=8000,side=client,min=9s")
    with pytest.raises(UsageError, match="side="):
        parse_specification("requests:side=middle")


def test_what_clients_saw_is_saved_and_read_again(place, critpath, tmp_path):
    """Own time is what the time that a client saw has beside the time of sub-requests."""
    asked = ("--execution", "requests:port=8000,side=client")
    for words in (
        ("export", place / "recording", "--format", "paths", "-o", "saved.parquet"),
        ("baseline", "save", place / "recording", "-o", "saved.json"),
        ("compare", "saved.parquet", "saved.json", "--json", "answer.json"),
        ("report", "answer.json"),
    ):
        done = critpath(*words, *(asked if words[0] != "report" else ()), cwd=tmp_path)
        assert done.returncode in {0, 3}, done.stderr
    assert len(load_paths(tmp_path / "saved.parquet").executions) >= 60
