"""Vectors: nothing of an execution is lost, whatever the alphabet."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from detailing import detailed
from hypothesis import given
from hypothesis import strategies as st

from critpath.flow import compare
from critpath.model import (
    INTERFERENCE,
    RUNNING,
    CompareSettings,
    CriticalPaths,
    Executions,
    PathSet,
    State,
    Symbol,
)
from critpath.model.stacks import read_stack
from critpath.schema.environment import read_environment
from critpath.schema.notes import InOneSet
from critpath.vectors.table import (
    ALPHABETS,
    LIMIT,
    OTHER_ROLE,
    fold_interrupts,
    like_alphabet,
    role_name,
    vector_table,
)

SUBJECT = 1


def path_set(executions):
    """A set of executions, each a list of (duration, state, tid, comm), and maybe a detail."""
    rows = [(*segment, "")[:5] for path in executions for segment in path]
    strings = ["", *sorted({text for row in rows for text in row[3:]} - {""})]
    counts = [len(path) for path in executions]
    ends = np.cumsum([s[0] for s in rows], dtype=np.int64)
    begins = ends - np.array([s[0] for s in rows], np.int64)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    first = [int(begins[a]) if a < b else 0 for a, b in itertools.pairwise(start)]
    last = [int(ends[b - 1]) if a < b else 0 for a, b in itertools.pairwise(start)]
    n, size = len(executions), len(rows)
    return PathSet(
        executions=Executions(
            id=tuple(map(str, range(n))),
            begin=np.array(first, np.int64),
            end=np.array(last, np.int64),
            tid=np.full(n, SUBJECT),
            host=np.zeros(n, np.int64),
            comm=("subject",) * n,
            label=("",) * n,
        ),
        paths=detailed(
            CriticalPaths(
                start=start,
                begin=begins,
                end=ends,
                state=np.array([s[1] for s in rows], np.uint8),
                detail=np.array([strings.index(s[4]) for s in rows], np.int32),
                comm=np.array([strings.index(s[3]) for s in rows], np.int32),
                tid=np.array([s[2] for s in rows], np.int64),
                host=np.zeros(size, np.int64),
                cpu=np.zeros(size, np.int32),
                lossy=np.zeros(size, np.bool_),
                strings=tuple(strings),
            )
        ),
        session=np.zeros(n, np.int64),
        sources=("trace",),
        specification="thread",
        losses=(),
        lossy=np.zeros(n, np.bool_),
    )


SEGMENTS = st.tuples(
    st.integers(1, 10**12),
    st.sampled_from(list(State)),
    st.sampled_from([SUBJECT, 2, 3, -1]),
    st.sampled_from(["subject", "kworker/0:1", "kworker/1:0", "holder", "", "jbd2/vda-8"]),
)
SETS = st.lists(st.lists(SEGMENTS, max_size=12), max_size=6)


def tables(*sets, alphabet="thread"):
    chosen = ALPHABETS[alphabet](sets)
    return chosen, [
        vector_table(s, chosen.symbols, codes) for s, codes in zip(sets, chosen.codes, strict=True)
    ]


@given(SETS, SETS, st.sampled_from(sorted(ALPHABETS)))
def test_durations_add_up_to_the_windows(normal, sample, alphabet):
    sets = path_set(normal), path_set(sample)
    chosen, both = tables(*sets, alphabet=alphabet)
    assert list(chosen.symbols) == sorted(set(chosen.symbols))
    for of, table in zip(sets, both, strict=True):
        window = of.executions.end - of.executions.begin
        assert table.total.tolist() == window.tolist()
        assert fold_interrupts(table).total.tolist() == window.tolist()
        assert table.counts.sum(axis=1).tolist() == np.diff(of.paths.start).tolist()
        assert ((table.durations > 0) == (table.counts > 0)).all()
        assert (table.structure <= table.counts).all()
        interference = [s.state in INTERFERENCE for s in chosen.symbols]
        assert not table.structure[:, interference].any()


@given(SETS)
def test_every_segment_has_the_symbol_of_its_state(executions):
    one = path_set(executions)
    for name in ALPHABETS:
        chosen, _ = tables(one, alphabet=name)
        states = [chosen.symbols[code].state for code in chosen.codes[0].tolist()]
        assert states == [State(s) for s in one.paths.state.tolist()]


@given(SETS, st.booleans())
def test_vectors_are_what_segments_one_by_one_add_up_to(executions, with_roles):
    one = path_set(executions)
    chosen, (table,) = tables(one, alphabet="thread" if with_roles else "state")
    expected = np.zeros((3, len(executions), len(chosen.symbols)), np.int64)
    for row, path in enumerate(executions):
        before = None
        for duration, state, tid, comm in path:
            role = role_name(comm) if with_roles and tid not in {SUBJECT, -1} else ""
            column = chosen.symbols.index(Symbol(state, role))
            expected[:2, row, column] += 1, duration
            if state not in INTERFERENCE:
                expected[2, row, column] += column != before
                before = column
    assert np.array_equal(expected, [table.counts, table.durations, table.structure])


# Functions of Python.

FUNCTIONS = (
    "render (shop.py:7)",
    "render (shop.py:9)",
    "encode (json.py:3), under render (shop.py:7)",
)
IN_FUNCTIONS = st.builds(
    lambda segment, detail: (*segment, detail if segment[1] in RUNNING else ""),
    SEGMENTS,
    st.sampled_from(["", *FUNCTIONS]),
)


@given(st.lists(st.lists(IN_FUNCTIONS, max_size=12), max_size=6))
def test_functions_divide_what_threads_do(executions):
    """Their sum is the vector without them; lines and callers tell nothing apart."""
    one = path_set(executions)
    fine, (divided,) = tables(one, alphabet="functions")
    plain, (whole,) = tables(one, alphabet="thread")
    places = {symbol.place for symbol in fine.symbols}
    assert places <= {"", "render (shop.py)", "encode (json.py)"}
    assert all(s.state in {State.RUN, State.RUN_USER} for s in fine.symbols if s.place)
    for i, symbol in enumerate(plain.symbols):
        parts = [
            k
            for k, s in enumerate(fine.symbols)
            if (s.state, s.role) == (symbol.state, symbol.role)
        ]
        for name in ("counts", "durations"):
            sums = getattr(divided, name)[:, parts].sum(axis=1)
            assert sums.tolist() == getattr(whole, name)[:, i].tolist()


def test_functions_with_little_time_are_what_they_are_without():
    many = [(10 + i, State.RUN, SUBJECT, "", f"f{i} (a.py:{i})") for i in range(100)]
    one = path_set([[*many, (5, State.WAIT_DISK, SUBJECT, "")]])
    chosen, (table,) = tables(one, alphabet="functions")
    assert len(chosen.symbols) == LIMIT
    assert chosen.folded == 100 - (LIMIT - 2)
    kept = [s.place for s in chosen.symbols if s.place]
    assert sorted(kept) == sorted(f"f{i} (a.py)" for i in range(100 - len(kept), 100))
    rest = chosen.symbols.index(Symbol(State.RUN))
    assert table.durations[0, rest] == sum(10 + i for i in range(100 - len(kept)))


def test_functions_that_one_set_knows_are_left_out():
    run = [(10, State.RUN, SUBJECT, "", FUNCTIONS[0])]
    known, unknown = path_set([run]), path_set([[(10, State.RUN, SUBJECT, "")]])
    assert like_alphabet("functions", (known, known)) == ("functions", ())
    kind, warnings = like_alphabet("functions", (known, unknown))
    assert kind == "thread"
    assert warnings == (InOneSet("normal", "functions"),)
    assert like_alphabet("functions", (unknown, unknown))[1] == (InOneSet("", "functions"),)
    assert like_alphabet("thread", (known, unknown)) == ("thread", ())


def test_a_function_that_takes_longer_is_a_finding_of_its_own():
    """Of two functions one takes twice as long, the other half: in states nothing is different."""

    def draw(first, second):
        return path_set([
            [
                (10**7 * first + 1000 * i, State.RUN, SUBJECT, "", FUNCTIONS[0]),
                (1000, State.WAIT_DISK, SUBJECT, "", "sda"),
                (10**7 * second + 900 * i, State.RUN, SUBJECT, "", FUNCTIONS[2]),
            ]
            for i in range(20)
        ])  # fmt: skip

    normal, sample = draw(3, 1), draw(2, 4)
    found = compare(normal, sample, CompareSettings(alphabet="functions", permutations=999))
    assert found.verdict == "anomaly"
    growth = {test.state: test.sample_mean - test.normal_mean for test in found.detection.states}
    assert growth["RUN:encode (json.py)"] > 2.9e7
    assert growth["RUN:render (shop.py)"] < -0.9e7
    assert found.findings
    assert {f.symbol.place for f in found.findings if f.contribution > 0} == {"encode (json.py)"}
    (cause,) = [cause for cause in found.causes if cause.contribution > 0]
    assert cause.facts.location == "encode (json.py:3)"
    assert cause.facts.time_after - cause.facts.time_before > 2.9e7
    assert "RUN" not in {test.state for test in found.detection.states}


def test_code_divides_what_threads_do_by_the_location_of_their_stacks():
    """Lines tell nothing apart, nor what is not the program's own; without a stack: the state."""
    texts = (
        "fsync\t\t0\t/lib/libc.so.6\nflush\tsrc/log.c\t7\t/srv/app",
        "flush\tsrc/log.c\t9\t/srv/app",
        "send\tsrc/net.c\t3\t/srv/app",
        "read\t\t0\t/lib/libc.so.6",
    )
    drawn = [(10**i, State.WAIT_DISK, SUBJECT, "", "sda") for i in range(5)]
    one = path_set([drawn])
    paths = one.paths
    codes = np.array([0, 1, 2, 3, -1], np.int32)
    stacks = tuple(map(read_stack, texts))
    stacked = replace(one, paths=replace(paths, stacks=stacks, stack=codes))
    chosen, (table,) = tables(stacked, alphabet="code")
    found = dict(zip((s.name for s in chosen.symbols), table.durations[0].tolist(), strict=True))
    assert found == {
        "WAIT_DISK": 1000 + 10000,
        "WAIT_DISK:flush (src/log.c)": 1 + 10,
        "WAIT_DISK:send (src/net.c)": 100,
    }
    assert like_alphabet("code", (stacked, stacked)) == ("code", ())
    kind, (warning,) = like_alphabet("code", (one, stacked))
    assert kind == "thread"
    assert warning == InOneSet("sample", "stacks")


@pytest.mark.parametrize(
    ("comm", "role"),
    [
        ("kworker/u4:1", "kworker/u#:#"),
        ("kworker/0:1H", "kworker/#:#H"),
        ("worker-12", "worker-#"),
        ("pool3", "pool#"),
        ("jbd2/vda-8", "jbd2/vda-#"),
        ("x264", "x#"),
        ("holder", "holder"),
        ("", ""),
    ],
)
def test_roles_leave_the_instances_numbers_out(comm, role):
    assert role_name(comm) == role


def test_instances_of_a_helper_are_one_symbol_in_every_execution():
    one = path_set(
        [
            [(5, State.RUN, SUBJECT, "subject"), (7, State.RUN, 2, "kworker/0:1")],
            [(5, State.RUN, SUBJECT, "renamed"), (9, State.RUN, 3, "kworker/1:7")],
        ]
    )
    chosen, (table,) = tables(one)
    assert [s.name for s in chosen.symbols] == ["RUN", "RUN@kworker/#:#"]
    assert table.durations.tolist() == [[5, 7], [5, 9]]


def test_a_subjects_own_segments_have_no_role_whatever_its_name():
    one = path_set([[(5, State.RUN, SUBJECT, "a"), (5, State.RUN, 2, "a")]])
    chosen, _ = tables(one)
    assert chosen.symbols == (Symbol(State.RUN), Symbol(State.RUN, "a"))


def test_states_alone_are_the_papers_vectors():
    one = path_set([[(5, State.RUN, SUBJECT, "a"), (6, State.RUN, 2, "b")]])
    chosen, (table,) = tables(one, alphabet="state")
    assert chosen.symbols == (Symbol(State.RUN),)
    assert table.durations.tolist() == [[11]]


def names(count):
    """Names that stay distinct as roles."""
    return ["r" + chr(97 + i // 26) + chr(97 + i % 26) + "x" for i in range(count)]


@pytest.mark.parametrize("roles", [LIMIT - 2, LIMIT - 1, LIMIT, 200])
def test_at_most_64_symbols_and_the_smallest_share_one(roles):
    path = [(1000, State.WAIT_DISK, SUBJECT, "subject")]
    path += [(100 + i, State.RUN, 2 + i, name) for i, name in enumerate(names(roles))]
    one = path_set([path])
    chosen, (table,) = tables(one)
    assert len(chosen.symbols) <= LIMIT
    assert table.total.tolist() == [sum(s[0] for s in path)]
    if roles + 1 <= LIMIT:
        assert chosen.folded == 0
        assert len(chosen.symbols) == roles + 1
        return
    # Bare states are always kept, and the roles with most time.
    assert Symbol(State.WAIT_DISK) in chosen.symbols
    shared = Symbol(State.RUN, OTHER_ROLE)
    kept = [s for s in chosen.symbols if s.role and s != shared]
    assert chosen.folded == roles - len(kept)
    assert len(kept) >= LIMIT - 4
    assert {s.role for s in kept} == set(names(roles)[-len(kept) :])
    column = chosen.symbols.index(shared)
    assert table.durations[0, column] == sum(100 + i for i in range(roles - len(kept)))
    assert table.counts[0, column] == chosen.folded


def test_the_limit_holds_with_every_state_in_many_roles():
    path = [
        (1 + i + 50 * s, State(s), 2 + i, name)
        for i, name in enumerate(names(30))
        for s in range(len(State))
    ]
    one = path_set([path])
    chosen, (table,) = tables(one)
    assert len(chosen.symbols) <= LIMIT
    assert table.total.tolist() == [sum(s[0] for s in path)]
    states = [chosen.symbols[c].state for c in chosen.codes[0].tolist()]
    assert states == [s[1] for s in path]


def test_interrupts_fold_into_the_running_time_they_struck():
    one = path_set(
        [
            [
                (10, State.RUN, SUBJECT, "s"),
                (3, State.IRQ, SUBJECT, "s"),
                (4, State.SOFTIRQ, 2, "helper"),
                (5, State.RUN, 2, "helper"),
            ]
        ]
    )
    chosen, (table,) = tables(one)
    folded = dict(
        zip((s.name for s in chosen.symbols), fold_interrupts(table).durations[0], strict=True)
    )
    assert folded == {"RUN": 13, "IRQ": 0, "SOFTIRQ@helper": 0, "RUN@helper": 9}


def test_interference_does_not_change_the_structure():
    calm = [(9, State.RUN, SUBJECT, "s"), (5, State.WAIT_DISK, SUBJECT, "s")]
    busy = [
        (3, State.RUN, SUBJECT, "s"),
        (1, State.IRQ, SUBJECT, "s"),
        (3, State.RUN, SUBJECT, "s"),
        (2, State.WAIT_CPU, SUBJECT, "s"),
        (3, State.RUN, SUBJECT, "s"),
        (5, State.WAIT_DISK, SUBJECT, "s"),
    ]
    _, (table,) = tables(path_set([calm, busy]))
    assert table.structure[0].tolist() == table.structure[1].tolist()
    assert table.counts[0].tolist() != table.counts[1].tolist()


def test_threads_with_an_at_in_their_names_are_one_role_unless_it_is_a_host():
    """Connections of a pool on one host, of which each execution meets another."""
    sets = [
        path_set([[(9_000_000 + i, State.RUN, SUBJECT, "subject"), (1_000_000, State.RUN, 2, name)]
                  for i in range(30)])
        for name in ("conn@pool1", "conn@pool3")
    ]  # fmt: skip
    found = compare(*sets)
    assert {symbol.role for symbol in found.normal_vectors.symbols if symbol.role} == {"conn@pool#"}
    assert found.verdict == "ok"
    clocks = json.dumps([{"host": "pool1"}, {"host": "pool3"}])
    known = [replace(one, environment=(read_environment({"clocks": clocks}),)) for one in sets]
    assert {symbol.role for symbol in compare(*known).normal_vectors.symbols if symbol.role} == {
        "conn@pool1",
        "conn@pool3",
    }
    # What a trace has of that name, which is no list of hosts, names none.
    hostile = (
        replace(sets[0], environment=(read_environment({"clocks": text}),))
        for text in ("{", "3", "[4]", "[{}]")
    )
    assert all(one.hosts == frozenset() for one in hostile)
