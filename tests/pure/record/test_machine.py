"""What a recording says of the machine that it was made on."""

from __future__ import annotations

import threading

import numpy as np

from critpath.detect.comparability import machine_differences
from critpath.model import CriticalPaths, Executions, PathSet, summarize_machine
from critpath.schema.environment import read_machine
from critpath.text.notes import word_all
from critpath_record import machine as module
from critpath_record.machine import Machine, make_probes


def path_set(**summary) -> PathSet:
    whole, narrow = np.zeros(0, np.int64), np.zeros(0, np.int32)
    small, flags = np.zeros(0, np.uint8), np.zeros(0, np.bool_)
    return PathSet(
        executions=Executions((), whole, whole, whole, whole, (), ()),
        paths=CriticalPaths(
            *(np.zeros(1, np.int64), whole, whole, small, narrow, narrow),
            *(whole, whole, narrow, flags, ("",)),
        ),
        session=whole,
        sources=(),
        specification="process",
        losses=(),
        lossy=flags,
        environment=(read_machine(summary),),
    )


def test_probes_take_some_time():
    for kind, probe in make_probes().items():
        times = [probe() for _ in range(5)]
        assert all(0 < taken < 1_000_000_000 for taken in times), kind


def test_rows_and_a_summary_that_readers_understand(monkeypatch):
    monkeypatch.setattr(module, "_ROW", 0.0)
    monkeypatch.setattr(module, "PERIOD", 0.0)
    probed = threading.Semaphore(0)
    machine = Machine({"l1": lambda: probed.release() or 7, "l2": lambda: 9})
    machine.start()
    for _ in range(3):  # every other round, after each of which there is a row
        assert probed.acquire(timeout=60)
    measured = machine.stop(alone=True)
    columns, rows = measured["columns"], measured["rows"]
    assert len(rows) >= 4
    assert {len(row) for row in rows} == {len(columns)}
    assert rows[0][columns.index("probe_l1")] == 7
    found = summarize_machine([read_machine(measured["summary"])])
    assert found.probes == {"l1": 7, "l2": 9}
    assert 0 <= found.recorder_cpu <= 1
    assert 0 <= found.others_cpu <= 1
    assert not [t for t in threading.enumerate() if t.name == "critpath-probe"]


def test_without_probes_the_rest_is_still_there():
    machine = Machine({})
    machine.start()
    measured = machine.stop(alone=False)
    assert "recorder_cpu" in measured["summary"]
    assert "others_cpu" not in measured["summary"]  # of a whole machine nobody is another
    assert not [key for key in measured["summary"] if key.startswith("probe")]


def test_the_machine_is_said_to_differ_by_two_kinds_of_probes_or_a_share():
    one = path_set(probe_l1=100, probe_l2=100, probe_wake=100, others_cpu=100_000)
    assert machine_differences(one, one) == []
    assert machine_differences(one, path_set()) == []
    alone = path_set(probe_l1=120, probe_l2=100, probe_wake=104, others_cpu=100_000)
    assert machine_differences(one, alone) == []
    two = path_set(probe_l1=120, probe_l2=100, probe_wake=80, others_cpu=100_000)
    [said] = word_all(machine_differences(one, two))
    assert "its smallest cache was 20 % slower, a sleeping thread woke 20 % faster" in said
    busy = path_set(probe_l1=100, others_cpu=400_000)
    [said] = word_all(machine_differences(one, busy))
    assert "cpu time of others 10 % → 40 %" in said
