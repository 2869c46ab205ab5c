"""A real recording of both ends of connections, each end given a clock of its own."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from critpath.clocks.align import MessageEvents
from critpath.clocks.connections import HostSockets
from critpath.clocks.hosts import align_clocks
from critpath.clocks.messages import find_crossings, find_messages
from critpath.commands import main
from critpath.model import Kind
from critpath.model.clocks import ClockFacts, HostClock
from critpath.read.event_names import KERNEL_EVENTS, SOCKET_EVENTS
from critpath.read.traces import read_events

ARCHIVE = Path(__file__).parents[3] / "fixtures/requests/memcached.tar.xz"
SHIFT, DRIFT = 1_702_413_822, 48.31e-6


@pytest.fixture(scope="module")
def recording(unpack):
    return unpack(ARCHIVE) / "memcached"


@pytest.fixture(scope="module")
def ends(recording):
    """What happened at sockets, and the recording's begin and end."""
    events = read_events(recording, (*KERNEL_EVENTS, *SOCKET_EVENTS))
    collector = MessageEvents(
        events.hosts, events.environment, waking=any(c.kind == Kind.WAKING for c in events.classes)
    )
    collector.feed(events, events.classes)
    [found] = collector.finish(events.strings, events.end, ())
    return found.sockets, events.begin, events.end


def split(ends, skew, *, lossy=()):
    """Return the clients' ends and the servers', as if they were on two hosts."""
    of, *_ = ends
    table = of.endpoints
    codes = (*table.strings, "10.0.0.1", "10.0.0.2")
    ours = np.where(table.serves == 1, len(codes) - 1, len(codes) - 2).astype(np.int32)
    theirs = np.where(table.serves == 1, len(codes) - 2, len(codes) - 1).astype(np.int32)
    hosts = []
    for side, clock in ((0, lambda t: t), (1, skew)):
        endpoints = replace(
            table,
            peer=np.full(len(table), -1, np.int32),
            local_address=ours,
            remote_address=theirs,
            opened_ns=clock(table.opened_ns),
            closed_ns=clock(table.closed_ns),
            strings=codes,
        )
        activity = replace(of.activity, time_ns=clock(of.activity.time_ns))
        mine = of.mine & (table.peer >= 0) & (table.serves == side)
        hosts.append(HostSockets(activity, endpoints, mine, lossy))
    return hosts


@pytest.mark.parametrize("drift", [0.0, DRIFT, -3e-4])
def test_the_truth_of_a_shifted_clock_is_within_the_bound(ends, drift):
    _, begin, end = ends

    def skew(time):
        return time - SHIFT - np.rint(drift * (time - begin)).astype(np.int64)

    messages, account = find_messages(split(ends, skew))
    crossings = find_crossings(messages)
    assert account.joined == 1
    assert {pair: len(found) for pair, found in crossings.items()} == {(0, 1): 319, (1, 0): 320}
    edges = skew(np.array([begin, end]))
    facts = [ClockFacts("a", begin, end), ClockFacts("b", int(edges[0]), int(edges[1]))]
    clock: HostClock = align_clocks(facts, crossings).hosts[1]
    time = np.linspace(begin, end, 999).astype(np.int64)
    wrong = time - skew(time) - clock.offsets(skew(time))
    low, high = clock.bounds(skew(time))
    assert ((low <= wrong) & (wrong <= high)).all()
    assert clock.steps == ()
    assert np.abs(wrong).max() < 100_000
    assert clock.middle_bound < 100_000


def test_connections_that_lost_events_tell_nothing(ends):
    _, begin, end = ends
    messages, account = find_messages(split(ends, lambda t: t, lossy=((begin, end),)))
    assert len(messages) == 0
    assert (account.joined, account.lost) == (1, 1)


def copy(recording, place, change):
    shutil.copytree(recording, place)
    manifest = json.loads((place / "critpath.json").read_text())
    change(manifest)
    (place / "critpath.json").write_text(json.dumps(manifest))
    return place


def named(host, **more):
    def change(manifest):
        manifest["host"].update({"name": host, **more.get("of_host", {})})
        manifest["clock"].update(more.get("of_clock", {}))

    return change


def test_recordings_of_one_boot_have_one_clock(recording, tmp_path, capsys):
    for host in ("web", "app"):
        copy(recording, tmp_path / host, named(host, of_host={"boot_id": "one"}))
    assert main(["clocks", str(tmp_path), "--json", str(tmp_path / "c.json")]) == 0
    assert "the same kernel" in capsys.readouterr().out
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["format"] == "critpath/clocks/1"
    assert [of["source"] for of in document["hosts"]] == ["reference", "same kernel"]


def test_hosts_without_messages_are_not_aligned(recording, tmp_path, capsys):
    for host in ("web", "app\x1b[31m"):
        copy(recording, tmp_path / host[:3], named(host))
    assert main(["clocks", str(tmp_path), "--reference-host", "web"]) == 3
    shown = capsys.readouterr()
    assert "not known" in shown.out
    assert "its times are taken as they are" in shown.err
    assert "\x1b[31m" not in shown.out + shown.err


def test_systems_that_know_their_clocks_are_believed(recording, ends, tmp_path, capsys):
    _, begin, _ = ends
    for host, ahead in (("app", 0), ("web", 5000)):
        samples = [[begin + 10**8 * k + ahead, 10**18 + 10**8 * k] for k in range(8)]
        clock = {"synchronised": "ptp", "error_ns": 700, "samples": samples}
        copy(recording, tmp_path / host, named(host, of_clock=clock))
    assert main(["clocks", str(tmp_path), "--json", "-"]) == 0
    web = json.loads(capsys.readouterr().out)["hosts"][1]
    assert web["source"] == "samples"
    assert web["claim_ns"] == 1400
    assert abs(web["pieces"][0]["offset_ns"] + 5000) <= 1400


@pytest.mark.parametrize("case", ["one", "twice", "reference", "missing"])
def test_bad_input_is_refused_in_two_lines(case, recording, tmp_path, capsys):
    copy(recording, tmp_path / "web", named("web"))
    copy(recording, tmp_path / "app", named("app"))
    web, app = str(tmp_path / "web"), str(tmp_path / "app")
    code, arguments, said = {
        "one": (2, [web], "one host only"),
        "twice": (2, [web, app, web], "named twice"),
        "reference": (2, [web, app, "--reference-host", "db"], "no host is called db"),
        "missing": (4, [web, str(tmp_path / "db")], "does not exist"),
    }[case]
    assert main(["clocks", *arguments]) == code
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""
