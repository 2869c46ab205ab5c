"""The command critpath query: tables, formats, and everything that a query must not reach."""

from __future__ import annotations

import json

import pytest

from critpath.store import save_paths


@pytest.fixture(scope="module")
def extract(load, tmp_path_factory):
    place = tmp_path_factory.mktemp("query") / "made.paths"
    save_paths(load("pure/explore/made.py").paths(120), place)
    return place


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select count(*) n from facts", [{"n": 120}]),
        ("select label, count(*) n from slow group by label order by 1",
         [{"label": "get", "n": 6}, {"label": "put", "n": 6}]),
        ("select max(depth) d, count(*) n from tree", [{"d": 0, "n": 120}]),
        ("select count(distinct execution) n from segments", [{"n": 120}]),
        ('select round(p(latency >= 3e6, "cpu@server" = 0) * 0 + 1) a from facts', [{"a": 1.0}]),
        ("""select count(*) n from facts where list_contains(waited_for_cpu_of, 'kworker/#:#')
         and "count.WAIT_CPU" = 0""", [{"n": 0}]),
    ],
)  # fmt: skip
def test_what_there_is_can_be_asked_for(critpath, extract, sql, rows):
    run = critpath("query", extract, sql, "--format", "json")
    assert run.returncode == 0, run.stderr
    assert [json.loads(line) for line in run.stdout.splitlines()] == rows


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from '/etc/passwd'",
        "copy (select 1) to '{}/x.csv'",
        "attach '{}/x.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access=true",
        "set lock_configuration=false",
        "set memory_limit='100GB'",
        "export database '{}/all'",
        "select * from extract",
        "select getenv('HOME')",
        "select * from",
    ],
)
def test_nothing_else_can_be_reached(critpath, extract, tmp_path, sql):
    run = critpath("query", extract, sql.format(tmp_path))
    assert run.returncode == 2
    assert run.stdout == ""
    assert len(run.stderr.strip().splitlines()) == 2
    assert list(tmp_path.iterdir()) == []


def test_every_format_has_the_same_rows(critpath, extract, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    sql = "select execution, latency from facts order by position limit 3"
    csv = critpath("query", extract, sql, "--format", "csv").stdout.splitlines()
    assert csv[0] == "execution,latency"
    table = critpath("query", extract, sql).stdout
    assert (
        critpath("query", extract, sql, "--format", "parquet", "-o", tmp_path / "x").returncode == 0
    )
    rows = parquet.read_table(tmp_path / "x").to_pylist()
    assert [f"{row['execution']},{row['latency']:.0f}" for row in rows] == csv[1:]
    assert all(row["execution"] in table for row in rows)


def test_tables_are_listed_with_their_columns(critpath, extract):
    run = critpath("query", extract, "--tables")
    assert run.returncode == 0, run.stderr
    for word in ("facts", "segments", "slow", "tree", "waited_for_cpu_of", "when it begins"):
        assert word in run.stdout


def test_without_duckdb_it_says_what_to_install(critpath, extract, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    run = critpath("query", extract, "select 1")
    assert run.returncode == 2
    assert "pip install 'critpath-core[query]'" in run.stderr


def test_a_query_without_a_recording_says_how_it_goes(critpath):
    run = critpath("query", "select 1")
    assert run.returncode == 2
    assert "--tables" in run.stderr


HOSTILE = {
    "\x1b]0;title\x07": "\ufffd]0;title\ufffd",
    "\u202egpj.exe": "\ufffdgpj.exe",
    "a\r\n::error::x": "a\ufffd\ufffd::error::x",
    "::set-output name=a::b": ": :set-output name=a::b",
    "=HYPERLINK(1)": "'=HYPERLINK(1)",
    "@SUM(1)": "'@SUM(1)",
    "-2+3+cmd|' /C calc'!A0": "'-2+3+cmd|' /C calc'!A0",
    "+1-555": "+1-555",
    "-5.5": "-5.5",
    "-m web": "'-m web",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_does_anything_in_csv_or_text(critpath, extract, name):
    letters = " || ".join(f"chr({ord(letter)})" for letter in name)
    run = critpath("query", extract, f"select {letters} as a, -1.5 as b", "--format", "csv")
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"a,b\n{HOSTILE[name]},-1.5\n"
    table = critpath("query", extract, f"select {letters} as a").stdout
    assert not set(table) & {"\x1b", "\u202e", "\r"}
    assert "\n::" not in table


def test_a_query_takes_no_more_memory_than_it_may(critpath, extract):
    asked = ("query", extract, "select current_setting('memory_limit') a", "--format", "csv")
    assert critpath(*asked).stdout == "a\n2.0 GiB\n"
    assert critpath(*asked, "--max-memory", "512M").stdout == "a\n512.0 MiB\n"
    sql = "select count(*) from (select distinct hash(i) from range(10000000) t(i))"
    run = critpath("query", extract, sql, "--max-memory", "16M")
    assert run.returncode == 2
    assert "Out of Memory" in run.stderr
    assert "--max-memory" in run.stderr
