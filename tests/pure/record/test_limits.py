"""What the kernel counts of limits while something is recorded becomes a note."""

from __future__ import annotations

import threading

import pytest

from critpath_record import limits as module
from critpath_record.counts import groups
from critpath_record.limits import Limits

SECOND = 1_000_000_000


@pytest.fixture
def hierarchy(tmp_path):
    """A mounted hierarchy with a blank in its name, and what its groups have counted."""
    root = tmp_path / "cgroup two"
    mounts = tmp_path / "mountinfo"
    escaped = str(root).replace(" ", r"\040")

    def count(version=2, **groups):
        kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,cpu,cpuacct"
        mounts.write_text(
            f"9 1 0:1 / /sys rw - sysfs sysfs rw\n30 9 0:2 / {escaped} rw shared:1 - {kind}\n"
        )
        root.mkdir(exist_ok=True)
        for name, (times, ms) in groups.items():
            place = root.joinpath(*name.split("_"))
            place.mkdir(parents=True, exist_ok=True)
            held = f"throttled_usec {ms * 1000}" if version == 2 else f"throttled_time {ms}000000"
            text = f"nr_periods 99\nnr_throttled {times}\n{held}\n"
            (place / "cpu.stat").write_text(text)
        return mounts

    return count


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (r"30 9 0:2 / /a\040b\134c/grüße rw shared:1 - cgroup2 cgroup2 rw", "/a b\\c/grüße"),
        ("30 9 0:2 / /unnamed rw - cgroup2  rw", "/unnamed"),
        ("30 9 0:2 / /old rw - cgroup cgroup rw,cpu", None),
        ("cut off - cgroup2", None),
    ],
)
def test_groups_are_where_the_kernel_says(monkeypatch, tmp_path, line, place):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"9 1 0:1 / /sys rw - sysfs sysfs rw\n{line}\n")
    monkeypatch.setattr(groups, "_MOUNTS", mounts)
    found = groups.find_root()
    assert (str(found) if found else None) == place


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_that_was_held_back_is_named(hierarchy, version):
    throttling = Limits(hierarchy(version, a_b=(10, 100), c=(5, 50)))
    hierarchy(version, a_b=(70, 1600), c=(5, 50))
    (note,) = throttling.notes(10 * SECOND)
    assert note == (
        "a CPU quota held the control group /a/b back 60 times, 1.50 s in all: "
        "who ran then did not keep it off the cpu"
    )


def test_a_group_that_came_later_counts_and_one_that_went_does_not(hierarchy, tmp_path):
    throttling = Limits(hierarchy(gone=(10, 9000)))
    (tmp_path / "cgroup two" / "gone" / "cpu.stat").unlink()
    hierarchy(new=(1, 200))
    (note,) = throttling.notes(10 * SECOND)
    assert "/new back 1 time, 200 ms in all" in note


def test_less_than_a_hundredth_is_not_said(hierarchy):
    throttling = Limits(hierarchy(a=(0, 0)))
    hierarchy(a=(3, 99))
    assert throttling.notes(10 * SECOND) == ()


def test_of_many_the_longest_are_named(hierarchy):
    throttling = Limits(hierarchy())
    hierarchy(**{name: (1, 1000 * n) for n, name in enumerate("abcde", 1)})
    notes = throttling.notes(10 * SECOND)
    assert [note.split()[7] for note in notes[:3]] == ["/e", "/d", "/c"]
    assert notes[3:] == ("CPU quotas held back 2 other control groups, too",)


def test_without_control_groups_nothing_is_said(tmp_path):
    assert Limits(tmp_path / "none").notes(SECOND) == ()
    (tmp_path / "odd").write_text("short\n1 2 3 4 /x - cgroup2\n1 2 0:3 / /x rw - cgroup2 a rw\n")
    assert Limits(tmp_path / "odd").notes(SECOND) == ()


def test_what_is_no_count_is_passed_over(hierarchy, tmp_path):
    mounts = hierarchy(a=(0, 0))
    (tmp_path / "cgroup two" / "a" / "cpu.stat").write_text("nr_throttled many\n")
    assert Limits(mounts).notes(SECOND) == ()


def test_periods_and_the_quota_are_said_where_they_are_known(hierarchy, tmp_path):
    limits = Limits(hierarchy(a=(1, 1)))
    hierarchy(a=(60, 2000))
    place = tmp_path / "cgroup two" / "a"
    (place / "cpu.stat").write_text("nr_periods 174\nnr_throttled 61\nthrottled_usec 2001000\n")
    (place / "cpu.max").write_text("20000 100000\n")
    (note,) = limits.notes(10 * SECOND)
    assert "back 60 times, 2.00 s in all" in note
    assert "(in 60 of 75 periods; 20.0 ms of cpu time in each 100 ms)" in note


def test_a_group_that_comes_and_goes_is_followed(hierarchy, tmp_path):
    limits = Limits(hierarchy())
    for ms in (300, 200):  # the same name twice
        hierarchy(job=(3, ms))
        limits.look()
        (tmp_path / "cgroup two" / "job" / "cpu.stat").unlink()
        limits.look()
    (note,) = limits.notes(10 * SECOND)
    assert "/job back 6 times, 500 ms in all" in note


def test_it_looks_by_itself_until_it_is_stopped(hierarchy, monkeypatch):
    looked = threading.Event()
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    limits = Limits(hierarchy())
    monkeypatch.setattr(limits, "look", looked.set)
    limits.start()
    assert looked.wait(60)
    limits.stop()
    limits.stop()
    assert "critpath-limits" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("version", [1, 2])
def test_memory_limits_are_named(hierarchy, tmp_path, version):
    mounts = hierarchy(a=(0, 0))
    place = tmp_path / "cgroup two" / "a"
    if version == 1:
        mounts.write_text(mounts.read_text().replace("cgroup2 cgroup2 rw", "cgroup x rw,memory"))

    def count(reached, refaults):
        files = {
            1: {"memory.failcnt": reached, "memory.limit_in_bytes": 64 << 20},
            2: {
                "memory.events": f"low 0\nhigh 1\nmax {reached}\noom 1\noom_kill 0",
                "memory.max": 64 << 20,
                "memory.high": "max",
            },
        }[version]
        stat = f"anon 5\nworkingset_refault_anon 1\nworkingset_refault_file {refaults}\n"
        for name, text in {**files, "memory.stat": stat}.items():
            (place / name).write_text(f"{text}\n")

    count(10, 100)
    limits = Limits(mounts)
    count(350, 5100)
    (note,) = limits.notes(10 * SECOND)
    assert note.startswith(
        "the control group /a reached its memory limit of 64 MiB 340 times "
        "(5,000 pages read again that had been dropped): "
    )
    assert Limits(mounts).notes(10 * SECOND) == ()


def test_limits_of_disks_are_named_where_they_are_near(hierarchy, tmp_path):
    mounts = hierarchy(a=(0, 0), b=(0, 0))

    def count(group, written):
        place = tmp_path / "cgroup two" / group
        (place / "io.max").write_text("8:0 rbps=max wbps=1048576 riops=max wiops=max\n\n")
        (place / "io.stat").write_text(f"8:0 rbytes=9 wbytes={written} rios=1 wios=2\n")

    now = 1
    for group in "ab":
        count(group, 7 << 20)
    limits = Limits(mounts, lambda: now)
    for second in range(1, 11):
        now += SECOND
        count("a", (7 << 20) + min(second, 4) * 1_000_000)
        count("b", (7 << 20) + second * 500_000)
        limits.look()
    (note,) = limits.notes(10 * SECOND)
    assert note.startswith(
        "the control group /a was at the limit of its disk 8:0 for 4.00 s "
        "(1.0 MiB written a second): "
    )


def test_what_rises_is_placed_in_time_with_who_was_there(hierarchy, tmp_path):
    now = iter(range(0, 100 * SECOND, SECOND))
    throttling = Limits(hierarchy(a=(3, 5)), clock=lambda: next(now))
    (tmp_path / "cgroup two" / "a" / "cgroup.procs").write_text("12\n7\nx\n")
    (tmp_path / "cgroup two" / "a" / "cpu.max").write_text("4000 10000\n")
    hierarchy(a=(5, 11))
    throttling.notes(SECOND)
    (facts,) = throttling.facts()
    (row,) = facts["rows"].pop("throttles")
    assert row[2:] == (2, 6_000_000)
    assert 0 < row[1] - row[0] <= 3 * SECOND
    assert facts == {
        "group": "/a",
        "limits": {"quota": 4_000_000, "period": 10_000_000},
        "pids": [7, 12],
        "rows": {},
    }


def test_who_reached_nothing_is_no_fact(hierarchy):
    throttling = Limits(hierarchy(a=(3, 5)))
    throttling.notes(SECOND)
    assert throttling.facts() == []
