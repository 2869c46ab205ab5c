"""What a process may use: of the machine, or of the control groups that it is in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from critpath.engines.limits import available_memory, usable_cores

MACHINE = 1 << 34
# What version 1 says where there is no limit.
HUGE = 9223372036854771712


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    meminfo = f"MemTotal: 99999999 kB\nMemFree: 1 kB\nMemAvailable:   {MACHINE >> 10} kB\n"
    write(tmp_path / "proc/meminfo", meminfo)
    return tmp_path


def put_in(root: Path, *lines: str) -> None:
    write(root / "proc/self/cgroup", "".join(line + "\n" for line in lines))


def second(root: Path, group: str, limit: object, used: object, inactive: object = 0) -> None:
    """Draw the memory of a group of version 2."""
    place = root / "sys/fs/cgroup" / group
    write(place / "memory.max", f"{limit}\n")
    write(place / "memory.current", f"{used}\n")
    write(place / "memory.stat", f"anon 5\nactive_file 70\ninactive_file {inactive}\n")


def first(root: Path, group: str, limit: object, used: object, inactive: object = 0) -> None:
    """Draw the memory of a group of version 1."""
    place = root / "sys/fs/cgroup/memory" / group
    write(place / "memory.limit_in_bytes", f"{limit}\n")
    write(place / "memory.usage_in_bytes", f"{used}\n")
    write(place / "memory.stat", f"inactive_file 1\ntotal_inactive_file {inactive}\n")


VERSIONS = pytest.mark.parametrize(
    ("draw", "line"), [(second, "0::{}"), (first, "4:memory:{}")], ids=["v2", "v1"]
)


def test_this_machine():
    assert 0 < available_memory() < sys.maxsize
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


def test_without_groups_it_is_what_the_machine_has(root):
    assert available_memory(root) == MACHINE
    put_in(root, "0::/")
    assert available_memory(root) == MACHINE


def test_where_nothing_is_known(tmp_path):
    assert available_memory(tmp_path) == sys.maxsize
    assert usable_cores(tmp_path) == len(os.sched_getaffinity(0))
    # No meminfo, and a group that has a limit.
    put_in(tmp_path, "0::/")
    second(tmp_path, "", 8000, 7000)
    assert available_memory(tmp_path) == 1000


@VERSIONS
def test_what_is_left_to_a_group(root, draw, line):
    put_in(root, line.format("/"))
    draw(root, "", 8000, 7000)
    assert available_memory(root) == 1000
    draw(root, "", 6000, 7000)
    assert available_memory(root) == 0
    draw(root, "", MACHINE * 4, 7000)
    assert available_memory(root) == MACHINE


@VERSIONS
def test_cache_that_nobody_used_lately_is_left(root, draw, line):
    put_in(root, line.format("/"))
    draw(root, "", 8000, 8000, 2500)
    assert available_memory(root) == 2500
    # Read at another moment than what is used.
    draw(root, "", 8000, 2000, 2500)
    assert available_memory(root) == 8000
    for file in root.rglob("memory.stat"):
        file.unlink()
    assert available_memory(root) == 6000


@VERSIONS
def test_groups_above_bind_as_well(root, draw, line):
    put_in(root, line.format("/a.slice/b/c"))
    draw(root, "", HUGE, 9000)
    draw(root, "a.slice", 8000, 7000)
    draw(root, "a.slice/b", 8000, 100)
    draw(root, "a.slice/b/c", 6000, 50)
    draw(root, "other", 1, 1)
    assert available_memory(root) == 1000
    draw(root, "a.slice/b/c", 600, 50)
    assert available_memory(root) == 550


@VERSIONS
def test_a_group_by_the_name_it_has_outside(root, draw, line):
    """Its files are where it sees the root: there is no directory of that name."""
    for name in ("/docker/0123abcd", "/../../docker/0123abcd", "/x (deleted)", "/a:b"):
        put_in(root, line.format(name))
        draw(root, "", 8000, 7000)
        draw(root, "../../docker/0123abcd", 1, 1)  # where that name would lead
        assert available_memory(root) == 1000


@VERSIONS
@pytest.mark.parametrize("limit", ["max", HUGE, "", "many", "-"])
def test_no_limit(root, draw, line, limit):
    put_in(root, line.format("/a"))
    draw(root, "a", limit, 7000)
    assert available_memory(root) == MACHINE


def test_lines_that_are_none(root):
    (root / "proc/self").mkdir()
    (root / "proc/self/cgroup").write_bytes(b"\n1\nx:y\n3:cpuset:/a\n0::/a\xff\n0::/b")
    second(root, "b", 8000, 7000)
    first(root, "a", 1, 1)
    assert available_memory(root) == 1000


def test_what_cannot_be_read_is_no_limit(root):
    put_in(root, "0::/a/b", "4:memory:/a")
    for name in ("memory.max", "memory.current", "memory.stat", "cpu.max"):
        (root / "sys/fs/cgroup/a/b" / name).mkdir(parents=True)
    write(root / "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "100\n")
    assert available_memory(root) == MACHINE
    assert usable_cores(root) == len(os.sched_getaffinity(0))


def test_both_versions_at_once(root):
    """Version 2 beside version 1, as systemd mounts it: without memory of its own."""
    put_in(root, "9:name=systemd:/", "4:memory:/a/b", "0::/c")
    first(root, "a", 8000, 7000)
    write(root / "sys/fs/cgroup/unified/c/memory.pressure", "some\n")
    assert available_memory(root) == 1000
    second(root, "unified/c", 500, 100)
    assert available_memory(root) == 400


# ------------------------------------------------------------------------ processors


@pytest.fixture
def eight(monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [
        *((150_000, 100_000, 2), (200_000, 100_000, 2), (200_001, 100_000, 3)),
        *((1_000, 100_000, 1), (25_000, 50_000, 1), (9_900_000, 100_000, 8)),
        *(("max", 100_000, 8), (-1, 100_000, 8), (0, 100_000, 8), (5, 0, 8), ("", "", 8)),
    ],
)
def test_no_more_than_there_is_time_for(root, quota, period, cores):
    put_in(root, "0::/a/b")
    write(root / "sys/fs/cgroup/a/cpu.max", f"{quota} {period}\n")
    write(root / "sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
    assert usable_cores(root) == cores
    put_in(root, "5:cpuacct,cpu:/c/d", "0::/")
    for mounted in ("cpuacct,cpu", "cpu"):
        place = root / "sys/fs/cgroup" / mounted
        write(place / "c/cpu.cfs_quota_us", f"{quota}\n")
        write(place / "c/cpu.cfs_period_us", f"{period}\n")
        assert usable_cores(root) == cores
        (place / "c/cpu.cfs_quota_us").unlink()
    assert usable_cores(root) == 8


@pytest.mark.usefixtures("eight")
def test_the_least_of_all_groups(root):
    put_in(root, "0::/a/b")
    for group, quota in (("", 500_000), ("a", 300_000), ("a/b", 700_000)):
        write(root / "sys/fs/cgroup" / group / "cpu.max", f"{quota} 100000\n")
    assert usable_cores(root) == 3


@pytest.mark.usefixtures("eight")
def test_of_another_controller(root):
    put_in(root, "5:cpuset,cpuacct:/a")
    write(root / "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "1000\n")
    write(root / "sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "1000\n")
    assert usable_cores(root) == 8


def test_where_affinity_is_unknown(root, monkeypatch):
    def refuse(_):
        raise OSError

    monkeypatch.setattr(os, "sched_getaffinity", refuse)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores(root) == 1
