"""Requests tier by tier: what each service takes by itself, and what is doubtful."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent))
from test_facts import found, running, two_tiers
from test_requesting import MANIFEST, replayed

from critpath.commands.query import Database
from critpath.commands.settings import effective
from critpath.errors import UsageError
from critpath.executions.specification import parse_specification
from critpath.explore.questions import facts_of
from critpath.model.requests import Certainty, Rule, Sketches, Subrequests, Untold
from critpath.read.recording import Recording
from critpath.report.exports.as_parquet import sketch_tables
from critpath.report.text.path import render_tiers
from critpath.requests import links
from critpath.requests.find import find_sketches
from critpath.requests.links import (
    attribute,
    find_confidence,
    find_links,
    find_missing,
    judge_attribution,
)
from critpath.requests.paths import Composition
from critpath.requests.services import sum_services
from critpath.requests.tiers import _compare, sum_tiers
from critpath.store import save_paths
from critpath.text.notes import word
from critpath.text.requests import untold_text

NONE = Untold(0, 0.0, 0.0, False)
GOLDEN = """\
        latency       own      asks    n
───────────────────────────────────────────────────────────────────────────────────────────
:80      144 µs    100 µs   44.5 µs   60   10.0 µs of its own passed before it was received
└ :90   34.5 µs   34.5 µs         –   60   10.0 µs of its own passed before it was received
most: `:80` itself took 90.0 µs of 144 µs (62 %)
"""


def sketch(events, text="requests"):
    return find_sketches(
        replayed(events), parse_specification(text), Recording(Path("made"), manifest=MANIFEST)
    )


def drawn(tiers, left=NONE):
    stream = io.StringIO()
    render_tiers(tiers, left, Console(file=stream, width=100, color_system=None))
    return "".join(line.rstrip() + "\n" for line in stream.getvalue().splitlines())


def simulated(load, name, connections, requests=120, seed=3):
    """Return the sketches of a simulated server, all of whose requests are asked for."""
    simulate = load("pure/requests/simulate.py")
    world = simulate.simulate(name, connections, requests, seed)
    arguments = simulate.arguments(world, load("pure/requests/drawing.py"))[:4]
    activity, workers, endpoints, table = arguments
    table = replace(table, boundary=np.zeros(len(table), np.uint8))
    made = attribute(activity, workers, endpoints, table)
    links = find_links(activity, endpoints, made.requests, made.subrequests, made.slices)
    everything = (made.requests, made.subrequests, made.slices, links)
    missing = find_missing(workers, endpoints, made.requests, made.subrequests)
    sure = judge_attribution(len(made.requests), made.subrequests, missing)
    ids = tuple(map(str, range(len(made.requests))))
    top = made.requests.parent < 0
    return activity, Sketches("made", endpoints, *everything, sure, ids, top)


def test_what_is_shown():
    tiers, left = sum_tiers([sketch(two_tiers())])
    assert left.requests == 0
    assert drawn(tiers) == GOLDEN


def test_who_is_asked_is_there_though_only_the_front_is_asked_for():
    tiers, _ = sum_tiers([sketch(two_tiers(), "requests:port=80")])
    assert [(one.service, one.depth, one.requests) for one in tiers] == [
        (":80", 0, 60),
        (":90", 1, 60),
    ]
    tiers, _ = sum_tiers([sketch(two_tiers(), "requests:port=90")])
    assert [(one.service, one.depth) for one in tiers] == [(":90", 0)]


def test_one_execution():
    found = sketch(two_tiers())
    name = found.id[int(np.flatnonzero(found.requests.parent < 0)[3])]
    tiers, _ = sum_tiers([found], ids=[name])
    assert [one.requests for one in tiers] == [1, 1]
    assert tiers[0].asked_ns == tiers[1].latency_ns + 10_000


def test_two_recordings_are_one_table():
    one, _ = sum_tiers([sketch(two_tiers())])
    both, _ = sum_tiers([sketch(two_tiers()), sketch(two_tiers())])
    assert [two.requests for two in both] == [2 * each.requests for each in one]
    assert [two.latency_ns for two in both] == [each.latency_ns for each in one]


def test_who_is_elsewhere_is_there_with_its_time():
    events = [one for one in two_tiers() if one[3][0] != 1 << 42]
    tiers, _ = sum_tiers([sketch(events)])
    assert [(one.service, one.own_ns is None) for one in tiers] == [
        (":80", False),
        ("unknown", True),
    ]
    assert drawn(tiers).splitlines()[3].split()[:4] == ["└", "unknown", "44.5", "µs"]


@pytest.mark.parametrize("name", ["two tiers and a database", "direct loop, pooled, 3 calls"])
def test_own_and_asked_are_the_latency_in_every_tier(load, name):
    _, found = simulated(load, name, 4)
    tiers, _ = sum_tiers([found], doubtful=True)
    for tier in tiers:
        if tier.own_ns is not None:
            assert tier.own_ns + tier.asked_ns == pytest.approx(tier.latency_ns)
    assert sum(one.requests for one in tiers if not one.depth) == int(found.chosen.sum())


def doubtful_world(load):
    """Return a server of which it is doubtful who asked."""
    activity, found = simulated(load, "loop, unequal sleeps", 16, 100, 1)
    assert (found.attribution == Certainty.DOUBTFUL).mean() > 0.5
    return activity, found


def test_what_is_doubtful_is_a_part_of_its_own_and_said(load):
    _, found = doubtful_world(load)
    tiers, left = sum_tiers([found])
    roots = [one for one in tiers if not one.depth]
    many = sum(one.requests for one in roots)
    assert left.requests > 0
    assert many == int(found.chosen.sum())
    for tier in roots:
        parts = tier.own_ns + tier.asked_ns + tier.unknown_ns
        assert parts == pytest.approx(tier.latency_ns)
    assert sum(tier.unknown_ns for tier in roots) > 0
    assert f"unknown: of {left.requests} of {many} requests" in drawn(tiers, left)
    everything, none = sum_tiers([found], doubtful=True)
    assert none.requests == 0
    assert sum(one.requests for one in everything if not one.depth) == many


@pytest.mark.parametrize(
    ("told", "untold", "unlike"),
    [
        (range(100), range(100), False),
        (range(100), range(90, 190), True),
        ([5] * 3, [5] * 600, True),
    ],
)
def test_whether_those_that_can_be_told_are_like_the_rest(told, untold, unlike):
    found = _compare(np.array([*told]), np.array([*untold]))
    assert found.unlike == unlike
    assert ("not like them" in drawn((), found)) == unlike
    assert not _compare(np.array([*told]), np.zeros(0, np.int64)).unlike


def test_a_call_of_one_of_several_requests_is_said_so(load):
    """Whose it is is more likely wrong than right: of how many it is one's is known."""
    _, found = doubtful_world(load)
    subs, requests = found.subrequests, found.requests
    untold = subs.find_untold()
    assert len(untold) > 50
    for row in untold.tolist():
        begin = subs.begin_ns[row]
        some = (requests.received_ns <= begin) & (requests.answered_ns >= begin)
        assert subs.candidates[row] == some.sum() > 1
        assert subs.probability[row] == 0
    told = subs.attribution != Certainty.DOUBTFUL
    assert (subs.candidates[told & (subs.request >= 0)] == 1).all()
    (service,) = sum_services([found], "1").services
    # What it asks is known, though not for which request.
    assert sum(service.calls.values()) == pytest.approx((subs.connects == 0).sum() / len(requests))
    assert service.untold.calls == len(untold)
    assert untold_text(service) == (
        f"{service.service}: {len(untold)} calls of one of {subs.candidates[untold].min()} to "
        f"{subs.candidates[untold].max()} requests each, it is not known of which"
    )


def test_a_request_without_calls_may_have_asked_what_nobody_is_said_to(monkeypatch):
    """Of two calls one of two open requests is said to have asked each, or none: both doubtful."""
    subs = Subrequests(
        endpoint=np.zeros(2, np.int32), begin_ns=np.array([20, 30]), end_ns=np.array([28, 38]),
        tid=np.full(2, 5, np.int32), request=np.array([0, -1], np.int32),
        child=np.full(2, -1, np.int32), how=np.full(2, Rule.ASSIGNED, np.uint8),
        attribution=np.full(2, Certainty.DOUBTFUL, np.uint8), connects=np.zeros(2, np.uint8),
        probability=np.array([0.6, 0.0]), candidates=np.array([2, 3], np.int32),
    )  # fmt: skip
    requests = MagicMock(
        endpoint=np.zeros(4, np.int32), reader_tid=np.array([5, 5, 5, 6]),
        received_ns=np.array([10, 12, 25, 10]), answered_ns=np.array([40, 29, 50, 50]),
    )  # fmt: skip
    requests.__len__.return_value = 4
    monkeypatch.setattr(links, "process_keys", lambda _, keys: keys)
    ends = SimpleNamespace(host=np.zeros(1, np.int64))
    missing = find_missing(None, ends, requests, subs)
    # The first's own call counts as its own; the other may be of the first and the third.
    assert missing == pytest.approx([1 / 3, 0.4, 1 / 3, 0.0])
    sure = judge_attribution(4, subs, missing)
    assert [Certainty(one).name for one in sure] == ["DOUBTFUL"] * 3 + ["CERTAIN"]
    assert find_confidence(4, subs, missing)[1] == pytest.approx(np.exp(-0.4))


def test_paths_follow_what_is_doubtful_where_that_is_asked_for(load):
    activity, found = doubtful_world(load)
    tables = found.requests, found.subrequests, found.slices
    rows = np.flatnonzero(found.chosen)
    doubted = found.attribution == Certainty.DOUBTFUL
    of = activity, found.endpoints, *tables, rows
    followed = Composition(*of, doubtful=True, doubted=doubted)
    assert followed.left < Composition(*of, doubted=doubted).left
    pieces = followed.cut(slice(None))
    first, last = pieces.start[:-1], pieces.start[1:] - 1
    np.testing.assert_array_equal(pieces.begin[first], found.requests.begin_ns[rows])
    np.testing.assert_array_equal(pieces.end[last], found.requests.end_ns[rows])
    assert (pieces.end > pieces.begin).all()


@pytest.mark.parametrize(
    ("given", "specification"),
    [
        ({"execution": "requests"}, "requests"),
        ({"execution": "requests", "doubtful": "include"}, "requests:doubtful=include"),
        ({"execution": "requests:port=80", "doubtful": "include"},
         "requests:port=80,doubtful=include"),
        ({"execution": "requests:doubtful=leave", "doubtful": "include"},
         "requests:doubtful=leave"),
    ],
)  # fmt: skip
def test_the_specification_keeps_what_becomes_of_the_doubtful(tmp_path, given, specification):
    text = effective(given, None, tmp_path)["execution"]
    assert text == specification
    assert parse_specification(text).requests.doubtful == text.endswith("include")


@pytest.mark.parametrize("execution", [None, "process"])
def test_doubtful_is_about_requests(tmp_path, execution):
    with pytest.raises(UsageError) as caught:
        effective({"execution": execution, "doubtful": "include"}, None, tmp_path)
    assert caught.value.exit_code == 2
    assert caught.value.do == "add --execution requests"


def test_the_account_says_how_sure_it_is_who_worked():
    said = word(sketch(two_tiers()).notes[0])
    assert said.startswith("requests: 120 of 2 services; when they began is certain for 100 %")
    assert "; what they asked is certain for 100 %" in said


@pytest.fixture(scope="module")
def tables():
    pytest.importorskip("pyarrow")
    one = sketch(two_tiers())
    return sketch_tables([one, replace(one, recording="again")])


def test_tables_of_several_recordings_never_meet(tables):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)

        def ask(sql):
            return connection.sql(sql).fetchall()

        assert ask("select count(*), count(distinct request) from requests") == [(240, 240)]
        assert ask(
            "select c.service, c.recording = p.recording, count(*) from requests c "
            "join requests p on c.parent = p.request group by all"
        ) == [(":90", True, 120)]
        assert ask(
            "select p.service, c.service, count(*), sum(p.recording != c.recording) "
            "from subrequests s join requests p on s.request = p.request "
            "join requests c on s.child = c.request group by all"
        ) == [(":80", ":90", 120, 0)]
        # What a request asked is the union of its sub-requests: here there is one each.
        assert ask(
            "select sum(abs(asked_ns - (s.end_ns - s.begin_ns))) "
            "from requests r join subrequests s using (request)"
        ) == [(0,)]
        assert ask(
            "select count(*) from slices s join requests r using (request) "
            "where s.begin_ns < r.begin_ns or s.end_ns > r.end_ns"
        ) == [(0,)]
        assert ask(
            "select count(*) from links l join slices a on l.from_slice = a.slice "
            "join slices b on l.to_slice = b.slice where a.recording != b.recording"
        ) == [(0,)]
        assert ask("select count(*) from endpoints e join endpoints p on e.peer = p.endpoint") == [
            (4,)
        ]


def test_a_query_has_the_tables_of_requests(tables):
    pytest.importorskip("duckdb")
    known = running(found(two_tiers()))
    database = Database(known, facts_of(known), tables)
    assert set(tables) | {"facts", "slow", "tree"} <= set(database.columns())
    [row] = database.ask(
        "select count(*) n from requests r join facts f using (execution) where r.parent is null"
    ).to_pylist()
    assert row["n"] == 120
    with pytest.raises(UsageError):
        database.ask("select * from read_csv('/etc/passwd')")


def test_a_file_of_paths_has_no_slices(critpath, tmp_path):
    place = tmp_path / "tiers.paths"
    save_paths(running(found(two_tiers())), place)
    run = critpath("query", place, "select parent_execution from requests limit 1")
    assert run.returncode == 0, run.stderr
    for sql in ("select * from slices", "SELECT 1 FROM Links l"):
        run = critpath("query", place, sql)
        assert run.returncode == 2
        assert "has paths alone" in run.stderr
    run = critpath("export", place, "--format", "sketches", "-o", tmp_path / "out")
    assert run.returncode == 2
    assert "paths alone" in run.stderr
    assert not (tmp_path / "out").exists()


def test_words_may_stand_behind_an_option(critpath, tmp_path):
    place = tmp_path / "tiers.paths"
    save_paths(running(found(two_tiers())), place)
    run = critpath("query", place, "--format", "csv", "select count(*) n from requests")
    assert run.stdout.splitlines() == ["n", "120"], run.stderr
    run = critpath("query", place, "--quiet", "select 1", "--nonsense")
    assert run.returncode == 2
    assert "--nonsense" in run.stderr
