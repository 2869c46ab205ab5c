"""What the kernel counts of quotas while something is recorded becomes a note."""

from __future__ import annotations

import pytest

from critpath.record.session import Throttling

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


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_that_was_held_back_is_named(hierarchy, version):
    throttling = Throttling(hierarchy(version, a_b=(10, 100), c=(5, 50)))
    hierarchy(version, a_b=(70, 1600), c=(5, 50))
    (note,) = throttling.notes(10 * SECOND)
    assert note == (
        "a CPU quota held the control group /a/b back 60 times, 1.50 s in all: "
        "who ran then did not keep it off the cpu"
    )


def test_a_group_that_came_later_counts_and_one_that_went_does_not(hierarchy, tmp_path):
    throttling = Throttling(hierarchy(gone=(10, 9000)))
    (tmp_path / "cgroup two" / "gone" / "cpu.stat").unlink()
    hierarchy(new=(1, 200))
    (note,) = throttling.notes(10 * SECOND)
    assert "/new back 1 time, 200 ms in all" in note


def test_less_than_a_hundredth_is_not_said(hierarchy):
    throttling = Throttling(hierarchy(a=(0, 0)))
    hierarchy(a=(3, 99))
    assert throttling.notes(10 * SECOND) == ()


def test_of_many_the_longest_are_named(hierarchy):
    throttling = Throttling(hierarchy())
    hierarchy(**{name: (1, 1000 * n) for n, name in enumerate("abcde", 1)})
    notes = throttling.notes(10 * SECOND)
    assert [note.split()[7] for note in notes[:3]] == ["/e", "/d", "/c"]
    assert notes[3:] == ("CPU quotas held back 2 other control groups, too",)


def test_without_control_groups_nothing_is_said(tmp_path):
    assert Throttling(tmp_path / "none").notes(SECOND) == ()
    (tmp_path / "odd").write_text("short\n1 2 3 4 /x - cgroup2\n1 2 0:3 / /x rw - cgroup2 a rw\n")
    assert Throttling(tmp_path / "odd").notes(SECOND) == ()


def test_what_is_no_count_is_passed_over(hierarchy, tmp_path):
    mounts = hierarchy(a=(0, 0))
    (tmp_path / "cgroup two" / "a" / "cpu.stat").write_text("nr_throttled many\n")
    assert Throttling(mounts).notes(SECOND) == ()
