"""A real request over five hosts, each by a clock of its own: what is found, shown and exported."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import critpath
from critpath.commands import main
from critpath.model import RUNNING
from critpath.model.paths import find_crossings
from critpath.store import save_paths
from critpath.store.reading import load_paths

HOSTS = Path(__file__).parents[2] / "hosts"
ARCHIVE = Path(__file__).parents[3] / "fixtures/hosts/outer-3-8.tar.xz"


@pytest.fixture(scope="module")
def together(unpack, tmp_path_factory):
    """Return a recording with a trace of each host, whose clocks are seconds apart."""
    sys.path.insert(0, str(HOSTS))
    from record import draw_clocks  # noqa: PLC0415 - beside the servers
    from split import split  # noqa: PLC0415 - as above

    place = tmp_path_factory.mktemp("hosts")
    made = split(unpack(ARCHIVE) / "outer-3-8", place / "apart", draw_clocks(3))
    target = place / "together"
    (target / "trace").mkdir(parents=True)
    shutil.copy(made["web"] / "critpath.json", target)
    for name, recording in made.items():
        shutil.copytree(recording / "trace", target / "trace" / name)
    return target


def test_who_asks_whom(together, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    file = tmp_path / "requests.json"
    assert main(["requests", str(together), "--json", str(file)]) == 0
    assert "1 x nginx@outer:8090" in capsys.readouterr().out
    document = json.loads(file.read_text())
    found = {of["service"]: of for of in document["services"]}
    assert list(found)[:2] == ["nginx@web:8080", "uvicorn@app:8000"]
    assert found["nginx@web:8080"]["calls"] == {"uvicorn@app:8000": 1.0}
    assert found["nginx@web:8080"]["callers"][""] == found["nginx@web:8080"]["requests"] == 60
    asked = found["uvicorn@app:8000"]["calls"]
    assert asked == pytest.approx({"redis-server@redis:6379": 2, "nginx@outer:8090": 1}, abs=0.05)
    assert document["not_recorded"] == 0
    assert {of["host"] for of in document["hosts"]} >= {"web", "app", "redis"}


def test_a_host_that_is_missing_is_named_and_counted(together, tmp_path):
    place = tmp_path / "without"
    shutil.copytree(together, place)
    shutil.rmtree(place / "trace/app")
    file = tmp_path / "requests.json"
    assert main(["requests", str(place), "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    found = {of["service"]: of for of in document["services"]}
    (asked,) = found["nginx@web:8080"]["calls"]
    assert asked.endswith(":8000")
    assert "web" not in asked
    assert document["not_recorded"] == found["nginx@web:8080"]["requests"] == 60


def test_a_host_that_used_no_socket_has_no_services(together, tmp_path, capsys):
    shutil.copytree(together / "trace/postgres", tmp_path / "idle/trace")
    shutil.copy(together / "critpath.json", tmp_path / "idle")
    assert main(["requests", str(tmp_path / "idle")]) == 0
    assert "0 calls to hosts that were not recorded" in capsys.readouterr().out.replace("\n", " ")


def test_paths_cross_hosts_and_say_how_surely(together, capsys):
    words = ["path", str(together), "--execution", "requests:web:8080", "--format", "json"]
    assert main(words) == 0
    paths = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(paths) == 60
    details = {
        s["detail"] for path in paths for s in path["segments"] if s["state"] == "NET_TRANSIT"
    }
    assert details & {"from app:8000", "to app:8000"}
    assert "from redis:6379" in details
    assert all(path["uncertainty_ns"] > 0 for path in paths)
    for path in paths:
        ends = [path["begin"], *(s["end"] for s in path["segments"])]
        assert [s["begin"] for s in path["segments"]] == ends[:-1]
        assert ends[-1] == path["end"]


def test_spans_for_other_programs(together, tmp_path):
    file = tmp_path / "spans.json"
    words = ["export", str(together), "--execution", "requests:web:8080"]
    assert main([*words, "--format", "otlp-json", "-o", str(file)]) == 0
    resources = json.loads(file.read_text())["resourceSpans"]
    spans = [s for r in resources for scope in r["scopeSpans"] for s in scope["spans"]]
    by_id = {span["spanId"]: span for span in spans}
    roots = [span for span in spans if not span["parentSpanId"]]
    assert len(by_id) == len(spans)
    assert len(roots) == 60
    assert all(s["parentSpanId"] in by_id for s in spans if s["parentSpanId"])
    assert len({span["traceId"] for span in spans}) == 60
    told = {a["key"] for span in spans for a in span["attributes"]}
    assert {"critpath.confidence", "critpath.clock_uncertainty_ns"} <= told


def test_a_host_that_is_none(together, capsys):
    assert main(["path", str(together), "--execution", "requests:db:8080"]) == 2
    assert "no host is called db" in capsys.readouterr().err


@pytest.fixture(scope="module")
def paths(together):
    return critpath.extract(together, execution="requests:web:8080")


def slow_down(paths, name, ns):
    """Return paths as if each ran so much longer in some threads where it first runs there."""
    table = paths.paths
    begin, end = table.begin.copy(), table.end.copy()
    ends = paths.executions.end.copy()
    theirs = np.array([text == name for text in table.strings])[table.comm]
    theirs &= np.isin(table.state, [*RUNNING])
    for path in range(len(paths)):
        rows = np.arange(table.start[path], table.start[path + 1])
        first = rows[theirs[rows]][0]
        begin[first + 1 : rows[-1] + 1] += ns
        end[first : rows[-1] + 1] += ns
        ends[path] += ns
    executions = replace(paths.executions, end=ends, requests=None)
    return replace(paths, executions=executions, paths=replace(table, begin=begin, end=end))


@pytest.fixture(scope="module")
def answer(paths, tmp_path_factory):
    """Return the files of a comparison with the application's host slower by 5 ms."""
    place = tmp_path_factory.mktemp("answer")
    paths = paths.take(np.arange(30))
    save_paths(replace(paths, executions=replace(paths.executions, requests=None)), place / "a")
    save_paths(slow_down(paths, "uvicorn@app", 5_000_000), place / "b")
    words = ["compare", str(place / "a"), str(place / "b"), "--quiet"]
    words += ["--json", str(place / "c.json"), "--html", str(place / "c.html")]
    assert main(words) == 1
    return place


def test_the_answer_names_the_host(answer):
    document = json.loads((answer / "c.json").read_text())
    assert "`uvicorn@app`" in document["causes"][0]["sentence"]
    assert document["causes"][0]["facts"]["role"] == "uvicorn@app"
    assert document["verdict"] == "anomaly"


def test_who_waited_for_whom_and_the_clocks_are_told(answer, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    document = json.loads((answer / "c.json").read_text())
    waits = {(one["who"], one["whom"]): one for one in document["waits"]}
    first = waits["nginx@web", "uvicorn@app"]
    assert first["requests"] == [30, 30]
    assert first["mean"][1] - first["mean"][0] == pytest.approx(5_000_000)
    assert {"redis-server@redis", "nginx@outer"} <= {whom for _, whom in waits}
    # What is waited for has less time than who waits for it.
    assert waits["uvicorn@app", "redis-server@redis"]["mean"][0] < first["mean"][0]
    assert all(sum(one["transit"]) <= sum(one["mean"]) for one in document["waits"])
    clocks = {one["host"]: one for one in document["sets"]["sample"]["clocks"]}
    assert clocks["app"]["source"] == "reference"
    assert clocks["web"]["uncertainty_ns"] >= clocks["web"]["middle_ns"] > 0
    page = (answer / "c.html").read_text()
    assert 'id="waits"' in page
    assert 'id="clocks"' in page
    for host in ("web", "app", "redis"):
        assert f' host">{host}<' in page
    assert " down" in page
    assert " up" in page
    assert "inferred, 99 % sure" in page
    assert main(["report", str(answer / "c.json"), "-v"]) == 0
    said = capsys.readouterr().out
    assert "Who waited for whom, before → after" in said
    assert re.search(r"Clocks against app: client within ±\d", said)


def test_how_surely_each_segment_is_known_is_stored_and_asked_for(paths, tmp_path, capsys):
    save_paths(paths, tmp_path / "p.parquet")
    loaded = load_paths(tmp_path / "p.parquet").paths
    crosses, _ = find_crossings(loaded.start, loaded.host, loaded.state)
    assert crosses.any()
    np.testing.assert_array_equal(loaded.uncertainty > 0, crosses)
    np.testing.assert_array_equal(loaded.confidence, paths.paths.confidence)
    assert loaded.confidence.min() < 1
    asked = "select count(*) as n from segments where uncertainty_ns > 0 and confidence <= 1"
    assert main(["query", str(tmp_path / "p.parquet"), asked, "--format", "csv"]) == 0
    assert capsys.readouterr().out.split() == ["n", str(int(crosses.sum()))]


def test_a_clock_that_is_not_known_is_never_sure(paths, tmp_path, capsys):
    app = next(
        at for at, name in enumerate(paths.environment[-1].clocks)
        if name["host"] == "app"
    )  # fmt: skip
    table = paths.paths
    crosses, other = find_crossings(table.start, table.host, table.state)
    lost = crosses & ((table.host == app) | (other == app))
    unsure = replace(table, uncertainty=np.where(lost, -1, table.uncertainty))
    # Of a few, as each is printed segment by segment.
    save_paths(replace(paths, paths=unsure).take(np.arange(3)), tmp_path / "p.parquet")
    assert main(["path", str(tmp_path / "p.parquet"), "--format", "json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(path["uncertainty_ns"] is None for path in told)
    assert {s["uncertainty_ns"] for path in told for s in path["segments"]} >= {None, 0}
    assert main(["path", str(tmp_path / "p.parquet"), "--segments"]) == 0
    assert "times between hosts are not known" in capsys.readouterr().out
    asked = "select count(*) as n from segments where uncertainty_ns is null"
    assert main(["query", str(tmp_path / "p.parquet"), asked, "--format", "csv"]) == 0
    assert capsys.readouterr().out.split() == ["n", str(int(lost[: table.start[3]].sum()))]


def test_perfetto_has_a_group_for_each_host(paths, tmp_path):
    save_paths(paths, tmp_path / "p.parquet")
    words = ["export", str(tmp_path / "p.parquet"), "--format", "perfetto"]
    assert main([*words, "-o", str(tmp_path / "p.pftrace")]) == 0
    written = (tmp_path / "p.pftrace").read_bytes()
    for text in (b"web", b"app", b"redis", b"between hosts, wrong by at most (ns)"):
        assert text in written


def test_a_baseline_of_several_hosts_answers_as_their_recordings(answer, tmp_path):
    kept = tmp_path / "b.json"
    assert main(["baseline", "save", str(answer / "a"), "-o", str(kept), "--quiet"]) == 0
    words = [str(kept), str(answer / "b"), "--quiet", "--json", str(tmp_path / "c.json")]
    assert main(["compare", *words]) == 1
    found, expected = (json.loads((place / "c.json").read_text()) for place in (tmp_path, answer))
    for document in (found, expected):
        document["sets"]["normal"]["sources"] = document["sets"]["sample"]["sources"] = []
    assert found == expected


def test_several_hosts_pass_the_gate_of_their_own_baseline(together, tmp_path, capsys):
    asked = ["--execution", "requests:web:8080"]
    kept = tmp_path / "b.json"
    assert main(["baseline", "save", str(together), *asked, "-o", str(kept)]) == 0
    assert f"SAMPLE {' '.join(asked)}\n" in capsys.readouterr().err
    [session] = json.loads(kept.read_text())["sessions"]
    assert any("beneath" in row for row in session["executions"])
    # So few would not show a quarter, which is no matter of the baseline.
    more = ["--gate", "p50", "--least", "100%"]
    assert main(["compare", str(kept), str(together), *asked, *more]) == 0
