"""Tables between stages: checked and read-only from construction on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from critpath.model import (
    I64,
    RUNNING,
    Alignment,
    CriticalPaths,
    EventClass,
    Events,
    Executions,
    Kind,
    PathSet,
    State,
    Symbol,
    VectorTable,
    freeze_columns,
)


def events(**changes):
    columns = {
        "timestamp": [1, 2, 3],
        "cpu": [0, 1, 0],
        "event_class": [0, 1, 0],
        "offset": [0, 2, 3],
        "values": [10, 11, 20, 30, 31],
    }
    return Events(
        **{name: np.array(column) for name, column in {**columns, **changes}.items()},
        classes=(
            EventClass("a", Kind.OTHER, ("x", "y"), ("int", "int")),
            EventClass("b", Kind.OTHER, ("y",), ("int",)),
        ),
        strings=("",),
    )


def executions(n):
    column = np.zeros(n, np.int64)
    return Executions(("e",) * n, column, column, column, column, ("",) * n, ("",) * n)


def paths(n):
    column = np.zeros(n, np.int64)
    narrow = column.astype(np.int32)
    return CriticalPaths(
        np.arange(n + 1), column, column + 1, column.astype(np.uint8), narrow, narrow, column,
        column, narrow, column.astype(bool), ("",),
    )  # fmt: skip


def test_columns_have_one_length():
    with pytest.raises(ValueError, match=r"Events\.cpu: 2 rows, not 3"):
        events(cpu=[0, 1])
    with pytest.raises(ValueError, match="text columns"):
        Executions(("e",), *(np.zeros(1, np.int64),) * 4, (), ("",))


def test_columns_are_cast_only_without_loss_of_kind():
    table = events(cpu=np.array([0, 1, 0], np.int64))
    assert table.cpu.dtype == np.int32
    with pytest.raises(TypeError):
        events(cpu=[0.5, 1.0, 0.0])


def test_columns_are_read_only_but_the_callers_array_is_not_touched():
    mine = np.array([1, 2, 3])
    table = events(timestamp=mine)
    with pytest.raises(ValueError, match="read-only"):
        table.timestamp[0] = 5
    mine[0] = 0  # still writeable for its owner
    with pytest.raises(AttributeError):
        table.total = 5


def test_a_free_length_is_not_checked():
    @dataclass
    class Table:
        column: I64

    table = Table((1, 2))
    freeze_columns(table, -1)
    assert table.column.tolist() == [1, 2]
    assert not table.column.flags.writeable


def test_rows_and_columns_of_events():
    table = events()
    assert len(table) == 3
    assert table.rows("a").tolist() == [0, 2]
    assert table.rows("nothing").tolist() == []
    rows = np.arange(3)
    assert table.column(rows, "y").tolist() == [11, 20, 31]
    # A class without the field has 0 there.
    assert table.column(rows, "x").tolist() == [10, 0, 30]


def test_a_path_set_has_one_path_for_each_execution():
    session, lossy = np.zeros(2, np.int64), np.zeros(2, bool)
    assert len(PathSet(executions(2), paths(2), session, ("t",), "thread", (), lossy)) == 2


def test_a_path_set_with_a_path_missing_is_refused():
    with pytest.raises(ValueError, match="one path per run"):
        PathSet(
            executions(2), paths(1), np.zeros(2, np.int64), ("t",), "thread", (), np.zeros(2, bool)
        )


def test_durations_of_paths():
    assert paths(3).duration.tolist() == [1, 1, 1]
    assert len(paths(3)) == 3


def test_a_vector_table_is_executions_by_symbols():
    symbols = (Symbol(State.RUN), Symbol(State.RUN, "helper"))
    counts = np.array([[1, 2]])
    table = VectorTable(symbols, counts, np.array([[10, 20]]))
    assert table.total.tolist() == [30]
    assert table.structure.tolist() == counts.tolist()
    with pytest.raises(ValueError, match="runs x symbols"):
        VectorTable(symbols, counts, np.array([[10]]))
    assert [s.name for s in symbols] == ["RUN", "RUN@helper"]


def test_an_alignment_reads_back_as_symbols_and_durations():
    alignment = Alignment(
        rows=np.array([[0, -1, 1], [0, 1, -1]], np.int32),
        sequences=(np.array([7, 8], np.uint8), np.array([7, 9], np.uint8)),
        durations=(np.array([10, 20]), np.array([30, 40])),
    )
    assert alignment.symbols.tolist() == [[7, -1, 8], [7, 9, -1]]
    assert alignment.column_durations.tolist() == [[10, 0, 20], [30, 40, 0]]
    with pytest.raises(ValueError, match="differ in number"):
        Alignment(alignment.rows, alignment.sequences, alignment.durations[:1])


def test_every_state_has_a_trace_compass_name():
    assert {s.trace_compass for s in RUNNING} == {"RUNNING"}
    assert {s.trace_compass for s in State} == {
        *("RUNNING", "PREEMPTED", "BLOCKED", "TIMER", "NETWORK", "BLOCK_DEVICE"),
        *("INTERRUPTED", "IPI", "UNKNOWN"),
    }


def test_states_are_numbered_as_saved_files_have_them():
    """A change of a number changes the meaning of every file that was ever saved."""
    assert [s.name for s in State] == [
        *("UNKNOWN", "RUN", "RUN_USER", "RUN_SYSCALL", "IRQ", "SOFTIRQ", "WAIT_CPU", "WAIT_TASK"),
        *("WAIT_DISK", "WAIT_NET", "WAIT_TIMER", "WAIT_DEVICE", "WAIT_SOFTIRQ", "WAIT_IPI"),
        *("WAIT_FUTEX", "WAIT_POLL", "WAIT_PIPE", "WAIT_STOPPED", "NET_TRANSIT"),
        *("WAIT_UNEXPLAINED", "WAIT_QUOTA", "RECLAIM", "QUEUED", "SHARED", "NOT_RECORDED"),
        "WAIT_POOL",
        "WAIT_QUEUE",
    ]
    assert [int(s) for s in State] == list(range(27))
