"""Counts: rows of many processors, programs of the kernel, and counters of control groups."""

from __future__ import annotations

import numpy as np
import pytest

from critpath_record.counts import groups
from critpath_record.counts.attach import ProgramCounts, assemble
from critpath_record.counts.events import Counted


def test_rows_of_many_processors_are_added_up():
    """128 of them, simulated by a map in memory: sums, and counts that do not touch each other."""
    counted = [Counted("a/b", ("b",)), Counted("c/d", tuple(f"d{n}" for n in range(600)))]
    source = object.__new__(ProgramCounts)
    source.terms, source._term_of = ["b", *counted[1].terms], list(range(601))
    source._slots, source._row, source._cpus = 601, 8192, 128
    source._programs, source._last, source._misses = [], [], {}
    rows = np.zeros((128, 1024), np.uint64)
    rows[:, :601] = np.random.default_rng(1).integers(0, 2**50, (128, 601), np.uint64)
    source._rows = [rows.tobytes()]
    assert source.read()[0] == rows[:, :601].sum(axis=0).tolist()


def test_a_program_stays_within_its_row():
    """Whatever number an event has, the place is one of its own."""
    code = assemble([3], range(5, 17), 1, (4096, 4), group=None)
    assert len(code) % 8 == 0
    assert code.endswith(b"\x95" + bytes(7))


def test_groups_of_version_1_have_their_counters(tmp_path):
    """A mixed machine: what version 2 lacks comes from the hierarchies of version 1."""
    new, cpu, blkio = (tmp_path / name / "shop" for name in ("unified", "cpu", "blkio"))
    for place in (new, cpu, blkio):
        place.mkdir(parents=True)
    (tmp_path / "mounts").write_text(
        f"1 0 0:1 / {new.parent} rw - cgroup2 cgroup2 rw\n"
        f"2 0 0:2 / {cpu.parent} rw - cgroup cgroup rw,cpu\n"
        f"3 0 0:3 / {blkio.parent} rw - cgroup cgroup rw,blkio\n"
        f"4 0 0:4 / {tmp_path}/absent rw - cgroup cgroup rw,memory\n"
    )
    (new / "cpu.stat").write_text("usage_usec 9000\nuser_usec 7000\nsystem_usec 2000\n")
    (cpu / "cpu.stat").write_text("nr_periods 9\nnr_throttled 4\nthrottled_time 2500000000\n")
    (cpu / "memory.stat").write_text("pgfault 3\ntotal_pgfault 8\n")
    (blkio / "blkio.throttle.io_service_bytes_recursive").write_text(
        "8:0 Read 4096\n8:0 Write 1024\n8:16 Read 1024\n8:0 Total 5120\nTotal 6144\n"
    )
    places = groups.free_places(new, "/shop", tmp_path / "mounts")
    assert places == (new, cpu, blkio)
    assert groups.read_free(places) == {
        "cg:cpu.user_ms": 7,
        "cg:cpu.system_ms": 2,
        "cg:cpu.throttles": 4,
        "cg:cpu.throttled_ms": 2500,
        "cg:memory.pgfault": 8,
        "cg:io.read_kb": 5,
        "cg:io.written_kb": 1,
    }
    assert set(groups.read_free(places)) <= set(groups.free_terms())


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n\n", "nr_throttled", "nr_throttled -1", "nr_throttled 1.5", "nr_throttled \u0663"),
        *("=", "nr_throttled " + "9" * 5000, "8:0 nr_throttled=", "nr_throttled 1" * 3),
    ],
)
def test_counters_that_are_none_are_left_out(tmp_path, text):
    (tmp_path / "cpu.stat").write_text(text, encoding="utf-8")
    (tmp_path / "io.stat").mkdir()
    assert groups.read_free((tmp_path,)) == {}
