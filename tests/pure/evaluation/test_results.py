"""What an experiment prints becomes rows; every experiment has a tiny run."""

from __future__ import annotations

import json

import pytest


@pytest.fixture(scope="module")
def results(load):
    return load("evaluation/results.py")


@pytest.fixture(scope="module")
def check_starts(load):
    return load("evaluation/check_starts.py")


def test_rows_of_tables_have_the_heads_of_their_table_and_lines_are_text(results):
    printed = """
2 rounds
| load | cost |
|---|---:|
| hot | 1.0 % |
| quiet | 0.1 % |

| load | felt |
|:--|---|
| hot | no |
done in 3 s
"""
    assert results.parse_rows([]) == []
    assert results.parse_rows(printed.splitlines()) == [
        {"text": "2 rounds"},
        {"load": "hot", "cost": "1.0 %"},
        {"load": "quiet", "cost": "0.1 %"},
        {"load": "hot", "felt": "no"},
        {"text": "done in 3 s"},
    ]


def test_results_say_what_they_were_measured_on(results, tmp_path, monkeypatch):
    machine = {"commit": "1a2b", "kernel": "6.1", "cpus": 2, "date": "2026-01-01T00:00:00+00:00"}
    monkeypatch.setattr(results, "describe_machine", lambda: machine)
    monkeypatch.setattr(results.sys, "argv", ["faults.py", "--strengths", "3"])
    results.write_results(tmp_path / "new" / "faults.json", [{"kind": "sleep"}], code=0)
    assert json.loads((tmp_path / "new" / "faults.json").read_text()) == {
        "command": ["faults.py", "--strengths", "3"],
        "code": 0,
        **machine,
        "rows": [{"kind": "sleep"}],
    }


def test_rows_are_published_into_the_table_of_a_page_and_nothing_else_changes(
    results, tmp_path, monkeypatch
):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    old = {"title": "Cost", "date": "2026-01-01", "commit": "a", "heads": ["load", "cost"]}
    other = {**old, "rows": [["hot", "2 %"]]}
    document = {"source": "by hand", "tables": {"cost": {**old, "rows": []}, "other": other}}
    (tmp_path / "page.json").write_text(results.format_tables(document))
    found = [{"text": "2 rounds"}, {"load": "hot", "cost": "1 % |", "felt": "no"}]
    (tmp_path / "new.json").write_text(
        json.dumps({"rows": found, "date": "2026-02-03T00:00:00+00:00", "commit": "b"})
    )
    assert results.main(["--publish", "page/cost", str(tmp_path / "new.json")]) == 0
    text = (tmp_path / "page.json").read_text()
    cost = {**old, "date": "2026-02-03", "commit": "b", "rows": [["hot", "1 % |"]]}
    assert json.loads(text) == {"source": "by hand", "tables": {"cost": cost, "other": other}}
    assert '    ["hot", "1 % |"]\n' in text
    with pytest.raises(SystemExit, match="no row has load, cost"):
        results.publish_rows("page/cost", [{"text": "2 rounds"}], "2026-02-03", "b")


def test_every_experiment_has_a_tiny_run(check_starts):
    scripts, _ = check_starts.find_scripts()
    listed = [start.script for start in check_starts.STARTS]
    assert len(listed) == len({*listed})
    assert scripts == {*listed, *check_starts.STARTED_BY_OTHERS}


def test_what_is_left_out_is_said_with_its_reason(check_starts, monkeypatch):
    monkeypatch.setattr(check_starts.shutil, "which", lambda _: None)
    assert check_starts.find_missing("nginx") == "nginx"
    monkeypatch.setattr(check_starts.os, "geteuid", lambda: 1000)
    assert check_starts.find_missing("kernel") == "root and tracefs"
    assert check_starts.find_missing("corpus") == "recordings of an hour, none of which are shipped"
    assert check_starts.find_missing("import:no_such_module") == "no_such_module"
