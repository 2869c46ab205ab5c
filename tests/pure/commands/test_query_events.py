"""``critpath query ... from events``: the events themselves, and what the reader is told of it."""

from __future__ import annotations

import duckdb
import pytest

from critpath import flow
from critpath.commands.queried import parse_query, question_of, tables_of
from critpath.commands.query import Database
from critpath.model import ExtractSettings
from critpath.read import EventQuestion

READING = ExtractSettings(None, "auto")


def question(sql):
    return question_of(parse_query(duckdb.connect(":memory:"), sql))


def ask(recording, sql, about=None):
    table = flow.read_event_table([recording], about or question(sql), READING)
    return Database(None, None, {"events": table.to_arrow()}).ask(sql).to_pylist()


@pytest.mark.parametrize(
    ("where", "asked"),
    [
        ("name = 'sched_switch'", {"names": ("sched_switch",)}),
        ("name in ('a', 'b') and cpu = 1", {"names": ("a", "b"), "cpus": {1}}),
        ("name like 'sched_%' and current_tid in (5, 7)", {"names": ("sched?*",), "tids": {5, 7}}),
        ("time_ns between 5 and 9", {"begin": 5, "end": 9}),
        ("5 <= time_ns and time_ns < 9 and time_ns > 3", {"begin": 5, "end": 9}),
        ("time_ns = 7", {"begin": 7, "end": 7}),
        # What is not plain is left to DuckDB.
        ("name = 'a' or cpu = 1", {}),
        ("not (name = 'a')", {}),
        ("name = prev_comm and cpu + 1 = 2", {}),
        ("name like 'a*%'", {}),
        ("cpu = 'x' and time_ns > 1e30", {}),
    ],
)
def test_conditions_reach_the_reader(where, asked):
    found = question("select time_ns, name from events where " + where + " order by cpu")  # noqa: S608 - ours
    for name, default in (("names", ()), ("cpus", None), ("tids", None)):
        assert getattr(found, name) == asked.get(name, default), name
    for name in ("begin", "end"):
        assert getattr(found, name) == asked.get(name, getattr(EventQuestion(), name))
    assert found.columns >= {"time_ns", "name", "cpu"}


def test_only_a_table_that_is_named_once_has_its_conditions():
    twice = "select count(*) from events a join events b using (cpu) where a.name = 'x'"
    assert question(twice).names == ()
    within = "with s as (select * from events where name = 'x') select count(*) from s"
    assert question(within).names == ("x",)
    assert question(within).columns is None
    assert tables_of(parse_query(duckdb.connect(":memory:"), within)) == {"events"}
    assert Database.is_of_events(within)
    assert not Database.is_of_events("select * from events, segments")
    assert not Database.is_of_events("no sql at all")


QUERIES = (
    "select count(*) from events",
    "select name, count(*) from events group by all order by all",
    "select time_ns, cpu, next_comm, prev_state from events where name = 'sched_switch' order by 1",
    "select time_ns, tid, comm from events where name = 'sched_waking' and cpu = 0 order by 1",
    "select time_ns from events where name like 'irq_%' and current_tid = 332 order by time_ns",
    "select max(time_ns) - min(time_ns) from events where time_ns < 41900000000",
    "select * from events where time_ns between 41867837570 and 41867937570 order by time_ns",
)


@pytest.mark.parametrize("sql", QUERIES)
def test_the_answer_is_that_of_all_events(guest, sql):
    """Whatever the reader left out, the answer is the same as of every event and every column."""
    found = ask(guest("sample-lock"), sql)
    assert found
    whole = ask(guest("sample-lock"), sql, EventQuestion())
    shared = [{k: row[k] for k in found[0]} for row in whole]
    assert found == shared


def test_events_are_those_of_the_trace(guest, rows):
    """Each with its fields; one that is called as a column is has _ behind it."""
    events, _ = rows(guest("sample-lock"))
    found = ask(guest("sample-lock"), "select * from events order by time_ns")
    assert len(found) == len(events)
    for (time, cpu, name, fields), row in zip(events, found, strict=True):
        if row["name"] != name:  # of one moment
            continue
        assert (row["time_ns"], row["cpu"]) == (time, cpu)
        for title, value in fields.items():
            shown = row[title + "_" * (title in {"name", "cpu", "host"})]
            assert shown in {value, str(value), value - 2**64 if value == 2**64 - 1 else value}


def test_who_is_current_follows_the_switches(guest):
    found = ask(
        guest("sample-lock"),
        "select current_tid, prev_tid from events where name = 'sched_switch' order by time_ns",
    )
    known = [row for row in found if row["current_tid"] is not None]
    assert len(known) == len(found) - 2  # of each cpu's first
    wrong = [row for row in known if row["current_tid"] != row["prev_tid"]]
    assert len(wrong) <= len(known) // 50  # where the kernel left out a switch


def test_no_executions_are_needed(critpath, guest):
    done = critpath(
        *("query", guest("sample-lock"), "select count(*) n from events", "--format", "csv")
    )
    assert done.returncode == 0
    assert int(done.stdout.split()[1]) > 3000
    tight = critpath(
        *("query", guest("sample-lock"), "select * from events", "--max-memory", "64KiB")
    )
    assert tight.returncode == 2
    assert "ask for fewer" in tight.stderr
