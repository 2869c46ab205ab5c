"""Hosts of one kernel: what each would have recorded has the truth about its clock."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "evaluation/servers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "hosts"))

import services
from record import draw_clocks, write_split
from split import EVERYWHERE, NEIGHBOUR, Clock, Owners, Recording, split
from truth import Exchange, judge, read_truth, split_at_end

ROOT = Path(__file__).resolve().parents[3]
JUDGE = ROOT / "evaluation/servers/judge.py"
ARCHIVES = ROOT / "fixtures/hosts"


@pytest.fixture(scope="module")
def recorded(unpack):
    return unpack(ARCHIVES / "select1-2-8.tar.xz") / "select1-2-8"


@pytest.fixture(scope="module")
def whole(recorded):
    return Recording(recorded / "recording")


def moments(recording):
    return sorted(
        (e.time, recording.names[e.number], e.tid, e.payload)
        for events in recording.streams.values()
        for e in events
    )


def test_the_kernels_own_clock_moves_nothing(recorded, whole, tmp_path):
    [made] = split(recorded, tmp_path, {}, together="all").values()
    assert moments(Recording(made)) == moments(whole)


def test_every_event_of_a_host_is_at_its_clocks_time(recorded, whole, tmp_path):
    step = int(whole.manifest["begin"]) + 10**8
    clocks = {
        "app": Clock(-(10**9), 4e-5, 2e-7, steps=((step, 3_000_000),)),
        "redis": Clock(17, -3e-5),
    }
    made = split(recorded, tmp_path, clocks)
    owners = Owners(whole, json.loads((recorded / "hosts.json").read_text()))
    begin = int(whole.manifest["begin"])
    for name, place in made.items():
        found = Recording(place)
        sends = [m for m in moments(found) if m[1] == "sock_send_length"]
        true = [
            e
            for events in whole.streams.values()
            for e in events
            if whole.names[e.number] == "sock_send_length" and owners.find(e) == {name}
        ]
        shown = clocks.get(name, Clock()).show([e.time for e in true], begin)
        assert sorted(shown.tolist()) == [time for time, *_ in sends]
        assert len(sends) >= 60 or name == "outer"
        others = {tid for *_, tid, _ in moments(found) if tid and owners.thread(tid) == ""}
        assert others <= {NEIGHBOUR, NEIGHBOUR + 1}


def test_a_clock_shows_offset_drift_wander_and_steps():
    clock = Clock(5, 1e-4, 1e-6, 1e9, ((10**9, 1000),))
    time = np.arange(0, 2 * 10**9, 10**6)
    shown = clock.show(time, 0)
    assert (np.diff(shown) > 0).all()
    assert shown[0] == 5
    assert abs(shown[-1] - (time[-1] + 5 + 1e-4 * time[-1] + 1000)) < 1000


def test_threads_and_sockets_have_one_host(recorded, whole):
    about = json.loads((recorded / "hosts.json").read_text())
    owners = Owners(whole, about)
    assert {owners.thread(int(t)) for t in about["threads"]} == set(about["threads"].values())
    for events in whole.streams.values():
        for event in events:
            if owners.socket(event):
                [host] = owners.find(event)
                thread = owners.thread(event.tid)
                in_thread = whole.names[event.number] in {"sock_send_length", "sock_recv_length"}
                assert not in_thread or thread in {host, EVERYWHERE}


def test_each_host_of_a_seed_has_the_same_clock(recorded, tmp_path):
    place = tmp_path / "copy"
    shutil.copytree(recorded, place)
    assert write_split(place, 3) == draw_clocks(3)
    assert {p.name for p in (place / "hosts").iterdir()} == set(services.HOSTS)


def test_calls_are_counted_apart_by_where_the_recordings_end_is():
    """Only what lies within, to the ns, is the truth; nothing is dropped without a count."""
    spans = [(0, 10), (5, 50), (49, 50), (50, 51), (7, 90), (51, 52), (60, 70)]
    calls = [Exchange(i, 4000 + i, 6379, *span) for i, span in enumerate(spans)]
    parts = split_at_end(calls, 50)
    assert [[one.request for one in part] for part in parts] == [[0, 1, 2], [3, 4], [5, 6]]


def test_a_call_that_the_end_cuts_is_neither_missing_nor_later(recorded, tmp_path):
    """A recording that ended in the middle of calls: its score counts each of them once."""
    find_requests = runpy.run_path(str(JUDGE))["find_requests"]
    _, calls = read_truth(recorded)
    spans = [(one.begin, one.end) for one in calls]
    ended = int(np.median([end for _, end in spans]))
    shutil.copytree(recorded, tmp_path / "cut", dirs_exist_ok=True)
    manifest = tmp_path / "cut/recording/critpath.json"
    whole = judge(recorded, find_requests(recorded / "recording"))
    told = json.loads(manifest.read_text()) | {"end": ended}
    manifest.write_text(json.dumps(told))
    cut = judge(tmp_path / "cut", find_requests(recorded / "recording"))
    assert (whole.cut, whole.later, whole.missing, cut.missing) == (0, 0, 0, 0)
    assert cut.cut == sum(begin <= ended < end for begin, end in spans) > 0
    assert cut.later == sum(begin > ended for begin, _ in spans) > 0
