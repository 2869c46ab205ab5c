"""The grammar of conditions: what it reads, what it refuses, and DuckDB as its oracle."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from critpath.errors import UsageError
from critpath.explore.columns import _pool_facts, _queue_facts
from critpath.explore.conditions import (
    LONGEST,
    check_condition,
    evaluate,
    parse_condition,
    settle,
)
from critpath.model import State
from critpath.model.details import Detail
from critpath.model.exploration import Fact, Junction

_PLACE = importlib.util.spec_from_file_location("made", Path(__file__).with_name("made.py"))
made = importlib.util.module_from_spec(_PLACE)
_PLACE.loader.exec_module(made)

N = 60


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    words = ("", "worker 1", "worker 2", "o'hara", 'x"y')
    rows = np.repeat(np.arange(N), 2)
    return made.table(
        rng.integers(1, 10, N) * 1_000_000,
        [
            Fact("thread", "text", rng.integers(0, len(words), N), words),
            Fact("count.WAIT_CPU", "number", rng.integers(0, 5, N)),
            Fact("idle_before", "time", rng.integers(0, 9, N) * 1000, valid=rng.random(N) < 0.7),
            Fact("cpu@a b", "number", rng.integers(0, 2, N), each=True),
            Fact("cpu", "number", rng.integers(0, 4, 2 * N), rows=rows, each=True),
            Fact("rival", "text", rng.integers(0, 3, N), ("a", "b", "c"), rows=np.arange(N) // 2),
        ],
        labels=["get" if i % 3 else "put" for i in range(N)],
        parent=[i - 1 if i % 5 else -1 for i in range(N)],
    )


def holds(text, table, within=None):
    condition = parse_condition(text)
    check_condition(condition, table)
    within = np.ones(len(table), np.bool_) if within is None else within
    found = evaluate(condition, table, within)
    assert (evaluate(settle(condition, table), table, within) == found).all()
    return found


# SQL's own words for what a condition says: written apart from what evaluates it.
def to_sql(condition):
    if isinstance(condition, Junction):
        parts = [f"({to_sql(part)})" for part in condition.parts]
        if condition.kind == "not":
            return f"not {parts[0]}"
        return f" {condition.kind} ".join(parts)
    name = '"' + condition.field.replace('"', '""') + '"'

    def literal(value):
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return repr(float(value[0]))

    several = condition.field in {"cpu", "rival"}
    operator = {"==": "=", "!=": "="}.get(condition.operator, condition.operator)
    if operator == "in":
        said = f"x in ({', '.join(map(literal, condition.value))})"
    elif operator == "~":
        said = f"regexp_matches(x, {literal(condition.value)})"
    else:
        said = f"x {operator} {literal(condition.value)}"
    said = (
        f"len(list_filter({name}, lambda x: {said})) > 0"
        if several
        else said.replace("x ", f"{name} ", 1).replace("(x,", f"({name},")
    )
    said = f"coalesce({said}, false)"
    return f"not {said}" if condition.operator == "!=" else said


@pytest.fixture(scope="module")
def database(table):
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    columns = {"place": list(range(N))}
    for name, fact in table.facts.items():
        values = (
            [fact.words[v] for v in fact.values] if fact.kind == "text" else fact.values.tolist()
        )
        if fact.rows is not None:
            columns[name] = [
                [v for v, row in zip(values, fact.rows, strict=True) if row == i] for i in range(N)
            ]
        else:
            known = [True] * N if fact.valid is None else fact.valid
            columns[name] = [v if k else None for v, k in zip(values, known, strict=True)]
    connection = duckdb.connect()
    connection.register("facts", pa.table(columns))
    return connection


_TESTS = st.sampled_from(
    [
        "latency >= 5ms", "latency < 3000us", "thread == 'worker 1'", "thread != 'worker 2'",
        "thread ~ 'work.*[12]$'", "thread ~ '^$'", "thread == 'o''hara'",
        "thread in ['worker 1', 'x\"y']",
        "count.WAIT_CPU > 2", "count.WAIT_CPU in [0, 3]", "idle_before >= 4us", "idle_before != 0",
        "not idle_before >= 0", "`cpu@a b` == 1", "cpu == 2", "cpu != 2", "cpu > 2",
        "cpu in [0, 1]",
        "rival == 'b'", "rival ~ '[ac]'", "rival != 'a'", 'label == "put"', "begin <= 40us",
    ]
)  # fmt: skip
_CONDITIONS = st.recursive(
    _TESTS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda p: f"({p[0]}) {p[1]} ({p[2]})"
        ),
        inner.map(lambda p: f"not ({p})"),
    ),
    max_leaves=8,
)


@given(text=_CONDITIONS)
def test_a_condition_is_what_duckdb_makes_of_it(table, database, text):
    found = holds(text, table)
    sql = f"select {to_sql(parse_condition(text))} from facts order by place"  # noqa: S608 - of ours
    assert found.tolist() == [row[0] for row in database.execute(sql).fetchall()]


def test_a_quantile_is_of_those_that_are_looked_at(table):
    within = np.arange(N) < 30
    latency = np.sort(table.facts["latency"].values[:30])
    assert (
        holds("latency >= p90", table, within) == (table.facts["latency"].values >= latency[27])
    ).all()
    assert holds("latency >= p0", table).all()


def test_any_looks_at_sub_requests_at_every_depth(table):
    found = holds("any(latency >= 9ms)", table)
    slow = table.facts["latency"].values >= 9e6
    for row in range(N):
        family = range(row, row // 5 * 5 + 5)  # each is the parent of the next, five by five
        assert found[row] == any(slow[at] for at in family)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "a field"),
        ("latency", "=="),
        ("latency >=", "a number"),
        ("latency >= 5ms and", "a field"),
        ("latency >= 5ms latency", "and, or"),
        ("(latency >= 5ms", ")"),
        ("thread in []", "a number"),
        ("thread in ['a'", "] or ,"),
        ("latency >= 5 parsecs", "and, or"),
        ("latency >= 1e999", "a smaller number"),
        ("thread == 'worker 1", "nothing begins with"),
        ("latency ; drop", "nothing begins with"),
        ("latncy >= 5ms", "no field latncy"),
        ("latency >= 5", "without a unit"),
        ("latency == p90", "a quantile"),
        ("latency >= '5'", "is a number"),
        ("thread >= 'a'", "is a text"),
        ("thread == 5", "is a text"),
        ("count.WAIT_CPU >= 5ms", "is a number and no time"),
        ("count.WAIT_CPU ~ '5'", "is a number"),
        ("thread ~ '('", "no regular expression"),
        (r"thread ~ '(a)\1'", "no regular expression"),
        ("thread ~ '" + "a" * 201 + "'", "201 characters"),
        ("(" * 40 + "cpu == 1" + ")" * 40, "brackets"),
        (" or ".join(["cpu == 1"] * 65), "more than 64 terms"),
        ("cpu == 1" + " " * LONGEST, "characters"),
    ],
)
def test_what_is_no_condition_is_refused_in_two_lines(table, text, what):
    with pytest.raises(UsageError) as caught:
        holds(text, table)
    assert what in caught.value.what
    assert caught.value.do
    assert "\n" not in caught.value.what + caught.value.do
    assert len(caught.value.what) < 300


def test_the_nearest_names_are_offered(table):
    with pytest.raises(UsageError) as caught:
        holds("treads == 'a'", table)
    assert "thread" in caught.value.do
    assert caught.value.do.count(",") == 2


@given(text=st.text(max_size=80) | st.lists(st.sampled_from(
    ["latency", ">=", "5", "ms", "p90", "'a'", "(", ")",
     "[", "]", ",", "and", "or", "not", "any", "in", "~", "thread",
     "`", "'", "\x1b", "1e9"]
), max_size=20).map(" ".join))  # fmt: skip
def test_nothing_else_comes_out_of_a_parser_than_a_condition_or_a_refusal(table, text):
    said = ""
    try:
        assert len(holds(text, table)) == N
    except UsageError as error:
        said = error.what + error.do
    assert "\x1b" not in said


def test_a_regular_expression_takes_linear_time():
    words = ("a" * 5000 + "!",) * 50
    slow = made.table([1] * N, [Fact("thread", "text", np.arange(N) % 50, words)])
    assert not holds("thread ~ '^(a+)+$'", slow).any()


def test_how_many_wait_for_a_connection_as_one_begins_is_what_a_plain_look_says():
    paths = made.paths(120)
    assert _pool_facts(paths) == []
    state = np.where(paths.paths.state == State.WAIT_CPU, State.WAIT_POOL, paths.paths.state)
    begin = paths.executions.begin // 3  # several at a time
    earlier = np.repeat(paths.executions.begin - begin, np.diff(paths.paths.start))
    moved = replace(
        paths.paths,
        state=state.astype(np.uint8),
        begin=paths.paths.begin - earlier,
        end=paths.paths.end - earlier,
    )
    of, session = paths.executions, np.arange(120) % 2
    executions = replace(of, begin=begin, end=of.end - of.begin + begin)
    two = {"session": session, "sources": ("one", "other")}
    [fact] = _pool_facts(replace(paths, executions=executions, paths=moved, **two))
    row = np.repeat(np.arange(120), np.diff(moved.start))
    waits = np.flatnonzero(moved.state == State.WAIT_POOL).tolist()
    wanted = [
        sum(
            moved.begin[at] < begin[of] < moved.end[at] and session[row[at]] == session[of]
            for at in waits
        )
        for of in range(120)
    ]
    assert max(wanted) > 1
    assert fact.values.tolist() == wanted


def test_behind_how_many_messages_one_lay_in_a_queue_and_how_long():
    paths = made.paths(40)
    assert _queue_facts(paths) == []
    of = paths.paths
    queue = of.state == State.WAIT_CPU
    detail = np.where(queue, np.arange(len(of.state)) % 3, 0).astype(np.int32)
    details = tuple(Detail(device="redis:6379", before=before) for before in range(3))
    state = np.where(queue, State.WAIT_QUEUE, of.state).astype(np.uint8)
    laid = replace(paths, paths=replace(of, state=state, detail=detail, details=details))
    before, waited = _queue_facts(laid)
    row = np.repeat(np.arange(40), np.diff(of.start))
    for one in range(40):
        mine = queue & (row == one)
        assert before.valid[one] == waited.valid[one] == mine.any()
        assert before.values[one] == detail[mine].max(initial=0)
        assert waited.values[one] == of.duration[mine].sum()
