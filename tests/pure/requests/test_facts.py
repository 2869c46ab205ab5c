"""What is known of requests goes with them: through joins, files and processes, to page and SQL."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_endpoints import ends
from test_requesting import MANIFEST, replayed

from critpath.errors import UnreadableError
from critpath.executions.specification import parse_specification
from critpath.explore.questions import facts_of
from critpath.flow import compare
from critpath.model import CriticalPaths, Kind, PathSet, State
from critpath.model.containers import Places
from critpath.model.joining import join_sets
from critpath.read.recording import Recording
from critpath.report.document.as_json import load_document, to_json
from critpath.report.document.comparison import comparison_document
from critpath.report.document.redaction import redact
from critpath.report.exports.exported import read_all_executions
from critpath.requests.find import find_requests
from critpath.store import PathsWriter, save_paths
from critpath.store.baseline import Baseline, load_baseline, save_baseline
from critpath.store.reading import load_paths
from critpath.store.sessions import make_sessions

# Ends of a connection from outside, and both of one between two servers of the machine.
FRONT, ASKS, SERVES = 1 << 40, 1 << 41, 1 << 42
FRONT_TID, BACK_TID = 7, 8


def two_tiers(times=60):
    """Return requests of a front that takes 100 us of its own and asks a back for 30 to 59."""
    front = ends("4", "10.0.0.1:80", "10.0.0.9:4000")
    asks, serves = (
        ends("4", "10.0.0.1:5000", "10.0.0.1:90"),
        ends("4", "10.0.0.1:90", "10.0.0.1:5000"),
    )
    events = [
        (1, 0, Kind.SWITCH, [0, 0, 0, 0, FRONT_TID]),
        (1, 1, Kind.SWITCH, [0, 0, 0, 0, BACK_TID]),
        (2, 0, Kind.SOCKET_STATE, [FRONT, *front, 6, 3, 1]),
        (3, 0, Kind.SOCKET_STATE, [ASKS, *asks, 6, 2, 1]),
        (4, 1, Kind.SOCKET_STATE, [SERVES, *serves, 6, 3, 1]),
    ]
    at = 1_000_000
    for turn in range(times):
        back = 30_000 + 1000 * (turn % 30)
        for after, cpu, kind, socket, size in (
            (0, 0, Kind.SOCKET_ARRIVAL, FRONT, None),
            (10_000, 0, Kind.SOCKET_RECEIVE, FRONT, 100),
            (50_000, 0, Kind.SOCKET_ARRIVAL, SERVES, None),
            (50_000, 0, Kind.SOCKET_SEND, ASKS, 50),
            (60_000, 1, Kind.SOCKET_RECEIVE, SERVES, 50),
            (40_000 + back, 1, Kind.SOCKET_ARRIVAL, ASKS, None),
            (40_000 + back, 1, Kind.SOCKET_SEND, SERVES, 70),
            (50_000 + back, 0, Kind.SOCKET_RECEIVE, ASKS, 70),
            (100_000 + back, 0, Kind.SOCKET_SEND, FRONT, 200),
        ):
            fields = [socket, 2, 6] if size is None else [socket, 2, 6, size, 0]
            events.append((at + after, cpu, kind, fields))
        at += 1_000_000
    return events


def found(events, places=()):
    made = replace(replayed(events), places=Places(places))
    recording = Recording(Path("made"), manifest=MANIFEST)
    return find_requests(made, parse_specification("requests"), recording)[0]


def running(executions, source="made", specification="requests"):
    """Return executions with paths of one segment each."""
    n = len(executions)
    paths = CriticalPaths(
        start=np.arange(n + 1),
        begin=executions.begin,
        end=executions.end,
        state=np.full(n, int(State.RUN), np.uint8),
        detail=np.zeros(n, np.int32),
        comm=np.zeros(n, np.int32),
        tid=executions.tid,
        host=executions.host,
        cpu=np.zeros(n, np.int32),
        lossy=np.zeros(n, np.bool_),
        strings=("",),
    )
    nothing = np.zeros(n, np.int64)
    sources = (source,)
    return PathSet(executions, paths, nothing, sources, specification, (), nothing != 0)


@pytest.fixture(scope="module")
def tiers():
    return running(found(two_tiers()))


@pytest.fixture(scope="module")
def file(tiers, tmp_path_factory):
    place = tmp_path_factory.mktemp("facts") / "tiers.paths"
    save_paths(tiers, place)
    return place


def same(one, other):
    columns = other.table_columns()
    return all(list(a.values) == list(columns[k].values) for k, a in one.table_columns().items())


def test_own_time_and_that_of_sub_requests_are_the_latency(tiers):
    known = tiers.executions.requests
    latency = tiers.executions.end - tiers.executions.begin
    assert (known.true_ns + known.asked_ns).tolist() == latency.tolist()
    fronts = np.array([service == ":80" for service in known.service])
    assert fronts.sum() == 60
    assert set(known.true_ns[fronts].tolist()) == {100_000}
    assert set(known.queued_ns.tolist()) == {10_000}
    assert (known.true_ns[~fronts] == latency[~fronts]).all()
    assert {json.loads(text).get(":90") for text in known.asks} == {1, None}
    # Threads of this recording have no names.
    assert set(zip(known.service, known.client, strict=True)) == {
        (":80", "10.0.0.9"),
        (":90", "10.0.0.1"),
    }
    assert set(known.parent) == {"", *np.array(tiers.executions.id)[fronts].tolist()}


def test_some_of_them_know_the_same(tiers):
    rows = np.array([5, 3, 8])
    some = tiers.take(rows).executions.requests
    assert some.true_ns.tolist() == tiers.executions.requests.true_ns[rows].tolist()
    assert some.parent == tuple(tiers.executions.requests.parent[row] for row in rows)


def test_parents_are_of_the_same_recording(tiers):
    both = facts_of(join_sets([tiers, replace(tiers, sources=("again",))]))
    children = np.flatnonzero(both.parent >= 0)
    assert len(children) == 120
    assert (both.recording[both.parent[children]] == both.recording[children]).all()
    assert (both.begin[both.parent[children]] < both.begin[children]).all()
    assert (both.end[both.parent[children]] > both.end[children]).all()


def test_what_is_not_known_of_all_is_not_told(tiers, tmp_path):
    unknown = running(replace(tiers.executions, requests=None), "marked", "events:made")
    for order in ([tiers, unknown], [unknown, tiers]):
        assert join_sets(order).executions.requests is None
        with (tmp_path / "both").open("wb") as stream, PathsWriter(stream) as writer:
            for each in order:
                writer.write(each)
        assert load_paths(tmp_path / "both").executions.requests is None
    facts = facts_of(unknown).facts
    assert not {"true", "queued", "asked", "parent.latency"} & facts.keys()


def test_extracts_keep_it(tiers, file):
    assert same(load_paths(file).executions.requests, tiers.executions.requests)


def test_files_without_it_load(tiers, tmp_path):
    save_paths(running(replace(tiers.executions, requests=None)), tmp_path / "old")
    assert load_paths(tmp_path / "old").executions.requests is None


def test_files_from_before_clients_had_names_load():
    shop = Path(__file__).parents[3] / "fixtures" / "requests" / "shop.paths"
    paths = load_paths(shop / "part-00000.parquet")
    known = paths.executions.requests
    assert known.client == ("",) * len(paths)
    assert all(known.service)


def test_a_file_whose_times_do_not_add_up_is_refused(critpath, tiers, tmp_path):
    known = tiers.executions.requests
    false = replace(tiers.executions, requests=replace(known, true_ns=known.true_ns + 1))
    save_paths(running(false), tmp_path / "false")
    run = critpath("explore", tmp_path / "false")
    assert run.returncode == 4
    assert "own time" in run.stderr


def test_the_page_shows_own_time(critpath, file, tmp_path):
    page = tmp_path / "page.html"
    run = critpath("explore", file, "-o", page, "--json", "-", "--what", "queued >= 10us")
    assert run.returncode == 0, run.stderr
    text = page.read_text(encoding="utf-8")
    assert "true latency: its own time" in text
    assert '"name":"true"' in text  # drawn by the script


def test_requests_are_a_table_where_they_are_known(critpath, tiers, file, tmp_path):
    sql = "select sum(abs(true_ns + asked_ns - duration_ns)) off, count(*) n from requests"
    run = critpath("query", file, sql, "--format", "csv")
    assert run.stdout.splitlines() == ["off,n", "0,120"]
    save_paths(running(replace(tiers.executions, requests=None)), tmp_path / "old")
    assert critpath("query", tmp_path / "old", "select * from requests").returncode == 2
    assert "requests" not in critpath("query", tmp_path / "old", "--tables").stdout


def test_conditions_see_sub_requests(critpath, file):
    what = "any(service == ':90' and latency >= 45us)"
    run = critpath("explore", file, "--json", "-", "--given", "service == ':80'", "--what", what)
    assert run.returncode == 0, run.stderr
    [question] = json.loads(run.stdout)["questions"]
    assert (question["executions"], question["selected"]) == (60, 10)


def test_sql_sees_the_tree(critpath, file):
    sql = (
        'select label, depth, count(*) n, max(abs("true" + asked - latency)) off, '
        'min(latency - "true") least from tree group by all order by 1'
    )
    run = critpath("query", file, sql, "--format", "json")
    assert run.returncode == 0, run.stderr
    assert [json.loads(line) for line in run.stdout.splitlines()] == [
        {"label": ":80 → :90", "depth": 0, "n": 60, "off": 0.0, "least": 30_000.0},
        {"label": ":90", "depth": 1, "n": 60, "off": 0.0, "least": 0.0},
    ]


def test_a_baseline_keeps_them(tiers, tmp_path):
    file = tmp_path / "b.json"
    sessions = make_sessions([tiers], 0)
    save_baseline(Baseline(sessions, interrupts=True, version="0"), file)
    [back] = load_baseline(file).sessions
    assert same(back.paths.executions.requests, tiers.executions.requests)
    text = re.sub(r',\n"digest": "\w+"', "", file.read_text("utf-8"))  # as older ones are
    # What an older version left out is not known, and what contradicts itself is refused.
    assert '"boundary"' not in text
    older = re.sub(r'"request":\{.*?\},("path")', r"\1", text)
    file.write_text(older, "utf-8")
    assert load_baseline(file).sessions[0].paths.executions.requests is None
    file.write_text(text.replace('"true_ns":100000', '"true_ns":100001', 1), "utf-8")
    with pytest.raises(UnreadableError, match="own time"):
        load_baseline(file)


@pytest.fixture(scope="module")
def saved(tiers):
    document = comparison_document(compare(tiers, running(found(two_tiers()), "other")))
    return load_document(to_json(document))


def test_a_comparison_keeps_them(tiers, saved):
    known = tiers.executions.requests
    mine = [one for one in saved.executions if one.set == "normal"]
    assert [one.request.true for one in mine] == known.true_ns.tolist()
    assert [one.request.parent for one in mine] == list(known.parent)
    assert [(one.service, one.times) for one in mine[0].request.asks] == [(":90", 1)]
    assert saved.sets.sample.requests is None  # these have no account


def test_a_saved_comparison_can_be_explored(critpath, saved, tiers, tmp_path):
    paths, normal, clusters = read_all_executions(saved, "saved")
    assert len(paths) == 2 * len(tiers) == len(clusters)
    assert normal == 1
    assert same(paths.executions.requests.take(np.arange(120)), tiers.executions.requests)
    place = tmp_path / "c.json"
    place.write_text(to_json(saved), "utf-8")
    run = critpath("explore", place, "-o", tmp_path / "page.html", "--json", tmp_path / "x.json")
    assert run.returncode == 0, run.stderr
    assert "has no paths but those that it explains" in run.stderr
    questions = json.loads((tmp_path / "x.json").read_text("utf-8"))["questions"]
    assert {one["given"][0]["condition"] for one in questions} == {"set == 'sample'"}
    assert "true" in (tmp_path / "page.html").read_text("utf-8")
    for more in ([place, place], [place, "--execution", "process"]):
        run = critpath("explore", *more)
        assert run.returncode == 2
        assert len(run.stderr.strip().splitlines()) == 2


IN_PODS = ((0, FRONT_TID, 0, "pod shop/web-*"), (0, BACK_TID, 0, "container orders"))
FRONTS = ":80 (pod shop/web-*)"


def test_services_are_called_by_their_pods():
    executions = found(two_tiers(), IN_PODS)
    assert {*executions.requests.service} == {FRONTS, ":90 (container orders)"}
    assert {*executions.label} == {
        *(f"{FRONTS} → :90 (container orders)", ":90 (container orders)")
    }
    # That of a unit is called as it always was.
    assert {*found(two_tiers(), [(0, 7, 0, "unit web.service")]).requests.service} == {":80", ":90"}


def test_a_shared_comparison_does_not_tell_names_of_containers():
    sets = [running(found(two_tiers(), IN_PODS), name) for name in ("made", "other")]
    shared = to_json(redact(comparison_document(compare(*sets))))
    assert not {word for word in ("shop", "web", "orders") if word in shared}
    assert ":80 (pod-1)" in shared
    assert ":90 (container-1)" in shared


def test_what_a_shared_comparison_tells_of_requests_has_no_addresses(saved):
    text = to_json(redact(saved))
    assert "10.0.0" not in text


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--explore", "inline"], "--explore inline is a part of the report"),
        (["--explore", "-"], "--explore - would stand among other text"),
    ],
)
def test_where_the_page_cannot_be(critpath, file, options, what):
    run = critpath("compare", file, file, *options)
    assert run.returncode == 2
    assert what in run.stderr
