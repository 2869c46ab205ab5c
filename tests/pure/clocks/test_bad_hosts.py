"""What hosts' recordings should not be, row by row: each is said, or bounded, and ends nothing."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "hosts"))

from record import write_split
from wires import MS, US, Host, ask, connect

from critpath.clocks.hosts import align_clocks
from critpath.clocks.messages import find_crossings, find_messages
from critpath.commands import main
from critpath.model.clocks import ClockFacts, Crossings
from critpath.model.recording import HOSTS_FORMAT
from critpath.model.requests import Act

ARCHIVES = Path(__file__).parents[3] / "fixtures/hosts"
YEAR = 365 * 86_400 * 10**9


@pytest.fixture(scope="module")
def split(unpack):
    place = unpack(ARCHIVES / "select1-2-8.tar.xz") / "select1-2-8"
    write_split(place, 7)
    return place / "hosts"


def make_set(split, place, names):
    place.mkdir()
    for name in names:
        shutil.copytree(split / name, place / name)
    hosts = [{"name": name, "recording": name} for name in names]
    (place / "hosts.json").write_text(json.dumps({"format": HOSTS_FORMAT, "hosts": hosts}))
    return place


def test_a_host_that_is_missing(split, tmp_path, capsys):
    """Its part of a path is the network's: there and back, and what it did."""
    place = make_set(split, tmp_path / "set", ["client", "web"])
    assert main(["path", str(place), "--execution", "requests:port=8080"]) == 0
    shown = capsys.readouterr().out
    assert "a packet in" in shown


def test_recordings_of_which_one_is_listed_and_gone(split, tmp_path, capsys):
    place = make_set(split, tmp_path / "set", ["web", "app"])
    shutil.rmtree(place / "app")
    assert main(["clocks", str(place)]) == 4
    assert "app is no directory beside it" in capsys.readouterr().err


def test_recordings_that_do_not_overlap():
    """Messages of one are in no way those of the other: that the clocks are not known is said."""
    a, b = Host(0), Host(1)
    ends = connect(a, b, -(10**9), known=False)
    for number in range(40):
        ask(a, b, ends, number * (3 + number % 7) * MS, 100 + 3 * number, 50)
    a.rows = [row for row in a.rows if row[0] < 400 * MS]
    b.rows = [row for row in b.rows if row[0] > 500 * MS]
    assert len(find_messages([a.sockets(), b.sockets()])[0]) == 0


def test_recordings_of_different_times(split, unpack, capsys):
    """The same machines, addresses and ports, recorded one after the other."""
    later = unpack(ARCHIVES / "cpu-1-8.tar.xz") / "cpu-1-8"
    write_split(later, 7)
    assert main(["clocks", str(split / "web"), str(later / "hosts" / "app")]) == 3
    shown = capsys.readouterr()
    assert "not known" in shown.out
    assert "record all at the same time, with --profile requests" in shown.err


def test_hosts_that_never_talked(split, capsys):
    assert main(["clocks", str(split / "outer"), str(split / "client")]) == 3
    assert "not known" in capsys.readouterr().out


def test_the_same_recording_twice(split, capsys):
    assert main(["clocks", str(split / "web"), str(split / "web")]) == 2
    assert "named twice" in capsys.readouterr().err


def test_a_copy_of_a_recording_beside_it(split, tmp_path, capsys):
    """Two hosts of one name: told apart by a number, and no message is its own answer."""
    shutil.copytree(split / "web", tmp_path / "web")
    assert main(["clocks", str(split / "web"), str(tmp_path / "web")]) in {0, 3}
    assert "web (2)" in capsys.readouterr().out


def test_hosts_of_one_name_go_by_their_directories(split, tmp_path, capsys):
    """They are one kernel's as well, so all that happened is in both: this is said."""
    shutil.copytree(split / "web", tmp_path / "second")
    assert main(["clocks", str(split / "web"), str(tmp_path / "second")]) in {0, 3}
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()[1:3]] == ["second", "web"]
    assert "second and web are one kernel: " in shown.err
    assert "every request is in all 2 and counts 2 times; record it once" in shown.err


def talk(many, *, clock=0, back=True):
    a, b = Host(0), Host(1, clock=clock)
    ends = connect(a, b, 0)
    for number in range(many):
        at = MS * (1 + 7 * number)
        a.put(at, Act.SEND, ends[0], 10 + number)
        b.put(at + 30 * US, Act.RECEIVE, ends[1], 10 + number)
        if back:
            b.put(at + 90 * US, Act.SEND, ends[1], 20)
            a.put(at + 120 * US, Act.RECEIVE, ends[0], 20)
    return a, b


def align(a, b):
    found = find_messages([a.sockets(), b.sockets()])
    times = [[row[0] for row in host.rows] or [0] for host in (a, b)]
    facts = [ClockFacts(name, min(t), max(t)) for name, t in zip("ab", times, strict=True)]
    return align_clocks(facts, find_crossings(found[0])), found


def test_clocks_a_year_apart():
    alignment, _ = align(*talk(20, clock=YEAR))
    clock = alignment.hosts[1]
    assert clock.aligned
    times = np.array([YEAR + MS, YEAR + 100 * MS])
    low, high = clock.bounds(times)
    wrong = -YEAR - clock.offsets(times)
    assert ((low - 1 <= wrong) & (wrong <= high + 1)).all()


@pytest.mark.parametrize(("many", "known"), [(2, True), (1, False), (0, False)])
def test_few_messages(many, known):
    clock = align(*talk(many, clock=12 * MS))[0].hosts[1]
    assert clock.aligned == known
    if known:
        low, high = clock.bounds(np.array([13 * MS]))
        assert (low <= -12 * MS - clock.offsets(np.array([13 * MS])) + 1).all()
        assert (high - low >= 60 * US).all()


def test_one_direction_only():
    assert not align(*talk(20, back=False))[0].hosts[1].aligned


def test_a_socket_address_that_is_used_again():
    """Two connections of one pair of ports, one after the other."""
    a, b = Host(0), Host(1)
    for begin in (0, 700 * MS):
        ends = connect(a, b, begin)
        for number in range(4):
            ask(a, b, ends, begin + (1 + number) * 5 * MS, 30 + number, 60)
        a.close(begin + 40 * MS, ends[0])
        b.close(begin + 40 * MS, ends[1])
    messages, account = find_messages([a.sockets(), b.sockets()])
    assert account.joined == 2
    assert ((messages.received_ns - messages.sent_ns) == 30 * US).all()


def test_servers_that_share_a_port():
    """``SO_REUSEPORT``: two sockets listen at one port; clients' ports tell them apart."""
    a, b = Host(0), Host(1)
    for number in range(6):
        ends = connect(a, b, number * MS, port=41_000 + number)
        for turn in range(3):
            ask(a, b, ends, (10 + 5 * turn + number) * MS, 40, 50)
    messages, account = find_messages([a.sockets(), b.sockets()])
    assert (account.joined, account.doubtful) == (6, 0)
    assert (messages.sender_endpoint == messages.receiver_endpoint).all()


def test_names_that_are_hostile(split, tmp_path, capsys):
    name = "web\x1b[31m"
    place = make_set(split, tmp_path / "set", ["app", "web"])
    hosts = [{"name": "app", "recording": "app"}, {"name": name, "recording": "web"}]
    (place / "hosts.json").write_text(json.dumps({"format": HOSTS_FORMAT, "hosts": hosts}))
    assert main(["clocks", str(place)]) == 0
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err


def test_messages_that_contradict_each_other_end_nothing():
    rng = np.random.default_rng(1)
    rows = rng.integers(-(2**60), 2**60, (2, 2, 50))
    exchanged = {(0, 1): Crossings(*rows[0]), (1, 0): Crossings(*rows[1])}
    facts = [ClockFacts("a", 0, 10**9), ClockFacts("b", 0, 10**9)]
    align_clocks(facts, exchanged)


def test_a_thousand_connections_and_a_port_scan():
    a, b = Host(0), Host(1)
    for number in range(10_000):
        at = a.open(
            number, ("10.0.0.1", 1 + number % 60_000), ("10.0.0.2", 1 + number // 60_000), 2
        )
        a.close(number + 1, at)
    for number in range(1_000):
        ends = connect(a, b, number * MS, port=1024 + number, server=9000)
        ask(a, b, ends, number * MS + US, 50, 60)
    messages, account = find_messages([a.sockets(end=10**14), b.sockets(end=10**14)])
    assert (account.joined, len(messages)) == (1_000, 2_000)
