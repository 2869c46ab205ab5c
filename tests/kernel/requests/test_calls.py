"""Requests by system calls are those that the kernel's own events of sockets tell of."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pure.requests.test_endpoints import no_workers

from critpath import flow
from critpath.model import Kind
from critpath.read.event_names import CALL_EVENTS, KERNEL_EVENTS, SOCKET_EVENTS
from critpath.read.recording import Recording
from critpath.requests import activity
from critpath.requests._activity import Activities
from critpath.requests.activity import SOCKETS, ActivityEvents
from critpath.requests.turns import find_turns
from critpath.text.notes import word_all
from critpath.timeline.opening import RecordingOpener
from critpath.timeline.streaming import assume_declared
from critpath_record.ftrace.preflight import find_needs, offered_way
from critpath_record.profiles import profile_path
from critpath_record.recorder import RecorderSettings

HINDERED = [o.what for o in find_needs(RecorderSettings("", Path())) if o.fatal]
SERVED = Path(__file__).parents[2] / "guest" / "jobs" / "served.py"


def listens(port):
    with socket.socket() as client:
        return not client.connect_ex(("127.0.0.1", port))


@contextlib.contextmanager
def served(tmp_path, wait_for, front, back):
    """Run a server, the one it asks, and a client that has opened one connection."""
    log = tmp_path / "truth.json"
    programs = (["back", back], ["serve", front, back], ["ask", front, 4, 60, log])
    running = []
    try:
        for words in programs:
            running.append(
                subprocess.Popen(
                    [sys.executable, SERVED, *map(str, words)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            if words[0] != "ask":
                wait_for(partial(listens, words[1]))
        yield running[-1], front
    finally:
        for one in running:
            one.kill()
            one.communicate()


def find_both(recording, way):
    """Return the requests of one recording, by one way."""
    wanted = (*KERNEL_EVENTS, *SOCKET_EVENTS, *CALL_EVENTS)
    if "packets" not in way:
        wanted = tuple(w for w in wanted if w.kind is not Kind.SOCKET_SEGMENT)
    opener = RecordingOpener(Recording(recording), wanted, "auto")
    waking = assume_declared(Recording(recording)).waking
    found = ActivityEvents(np.array([[0, 256]], np.int64), waking=waking, way=way)
    with closing(opener()) as source:
        for chunk in source:
            found.feed(chunk, source.classes)
        events = source.finish()
        collected = found.finish(no_workers(), source.strings())
    return find_turns(collected, no_workers(), lambda _: "", begin=events.begin, end=events.end)


@pytest.mark.skipif(bool(HINDERED), reason="; ".join(HINDERED))
@pytest.mark.skipif(offered_way() != "sockets", reason="this kernel has no events of sockets")
@pytest.mark.parametrize("shown", ["hidden", "alike"])
def test_both_ways_find_the_same_requests(tmp_path, monkeypatch, wait_for, hold_port, shown):
    text = profile_path("requests").read_text()
    without = next(line for line in text.splitlines() if "critpath-without" in line)
    profile = tmp_path / "both.lttng"
    profile.write_text(text.replace(without, ""))
    with served(tmp_path, wait_for, hold_port(), hold_port()) as (client, port):
        assert client.stdout.readline() == "ready\n"
        fifo = tmp_path / "asked"
        go = "; ".join((f"touch {tmp_path}/go", f"until test -e {fifo}; do sleep 0.02; done"))
        recording = subprocess.Popen(
            [
                *(sys.executable, "-m", "critpath", "record", "--quiet", "--recorder", "ftrace"),
                *("--profile", str(profile), "-o", str(tmp_path / "both"), "--", "sh", "-c", go),
            ]
        )
        wait_for(lambda: (tmp_path / "go").exists() or recording.poll() is not None)
        client.stdin.write("\n")
        client.stdin.flush()
        assert client.stdout.readline() == "asked\n"
        fifo.touch()
        assert recording.wait(60) == 0

    def ends(found):
        of, table = found.endpoints, found.requests
        mine = of.local_port[table.endpoint] == port
        columns = (of.remote_port[table.endpoint], table.end_ns, table.begin_ns, table.tid)
        return sorted(zip(*(c[mine].tolist() for c in columns), strict=True))

    expected = ends(find_both(tmp_path / "both", "sockets"))
    assert len(expected) == 240
    packets = ends(find_both(tmp_path / "both", "calls+packets"))
    assert len(packets) == 240
    for (client, end, begin, tid), (of, ended, begun, by) in zip(expected, packets, strict=True):
        assert (client, tid) == (of, by)
        assert abs(end - ended) < 1_000_000 > abs(begin - begun)
    # Without `sk_data_ready`: by packets, and by what both ends send and receive alone.
    for way in ("lengths+packets", "lengths"):
        lengths = ends(find_both(tmp_path / "both", way))
        assert len(lengths) == 240
        for one, other in zip(expected, lengths, strict=True):
            assert (one[0], one[3]) == (other[0], other[3])
            assert abs(one[1] - other[1]) < 1_000_000 > abs(one[2] - other[2])
    alone = ends(find_both(tmp_path / "both", "calls"))
    assert len(alone) >= 0.99 * 240
    check_without_addresses(tmp_path / "both", monkeypatch, shown, port)


def check_without_addresses(recording, monkeypatch, shown, port):
    """Where the kernel hides which socket is which, requests are found by system calls."""

    class Hiding(Activities):
        def feed(self, time, cpu, event_class, offset, values, kinds, hosts):
            rows = np.flatnonzero(np.isin(kinds[event_class], [*map(int, SOCKETS)]))
            values = values.copy()
            values[offset[rows]] = 0 if shown == "hidden" else 77
            super().feed(time, cpu, event_class, offset, values, kinds, hosts)

    monkeypatch.setattr(activity, "Activities", Hiding)
    paths = flow.extract([recording], specification=f"requests:port={port}")
    assert len(paths) == 240
    assert any(
        "requests are found by system calls alone" in said for said in word_all(paths.warnings)
    )
