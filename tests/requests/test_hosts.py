"""A real request over five hosts, each by a clock of its own: what is found, shown and exported."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from critpath.commands import main

HOSTS = Path(__file__).parents[1] / "hosts"
ARCHIVE = Path(__file__).parents[2] / "fixtures/hosts/outer-3-8.tar.xz"


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
