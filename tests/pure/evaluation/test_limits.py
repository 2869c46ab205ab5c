"""Control groups for the evaluation, played: which files say what, and that nothing is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "evaluation" / "case_studies"))
from limits import (
    PREFIX,
    Group,
    Hierarchy,
    Limits,
    NoLimitError,
    disk_of,
    find_hierarchies,
)

ALL = Limits(quota=(1000, 10_000), memory=1 << 20, disk=("8:0", 4096))


def test_hierarchies_of_both_versions_are_found(tmp_path):
    two = tmp_path / "unified two"
    two.mkdir()
    (two / "cgroup.controllers").write_text("cpuset memory\n")
    escaped = str(two).replace(" ", r"\040")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "30 24 0:25 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n"
        "31 30 0:26 / /v1/cpu,cpuacct rw shared:8 - cgroup cgroup rw,cpu,cpuacct\n"
        "32 30 0:27 / /v1/blkio rw - cgroup cgroup rw,blkio\n"
        f"33 30 0:28 / {escaped} rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    assert find_hierarchies(mounts) == {
        "cpu": Hierarchy(Path("/v1/cpu,cpuacct"), 1),
        "io": Hierarchy(Path("/v1/blkio"), 1),
        "memory": Hierarchy(two, 2),
    }


def imitation(root, version):
    """A directory that looks like a control group file system, as far as files go."""
    root.mkdir()
    if version == 2:
        (root / "cgroup.subtree_control").write_text("memory\n")
    return dict.fromkeys(("cpu", "memory", "io"), Hierarchy(root, version))


class Emptied(Group):
    """An imitated group's files are ordinary ones: they are in the way of rmdir."""

    def __exit__(self, *_):
        self.written = {}
        for place in self.places:
            self.written |= {f.name: f.read_text() for f in place.iterdir()}
            for file in place.iterdir():
                file.unlink()
        super().__exit__()


def test_version_2_writes_its_files(tmp_path):
    with Emptied(ALL, "a", imitation(tmp_path / "two", 2)) as group:
        (place,) = group.places
        assert place.name == f"{PREFIX}{os.getpid()}-a"
    assert group.written == {
        "cpu.weight": "10000",
        "cpu.max": "1000 10000",
        "memory.max": "1048576",
        "io.max": "8:0 rbps=4096 wbps=4096",
    }
    assert not place.exists()


def test_version_2_switches_controllers_on_and_off_again(tmp_path):
    hierarchies = imitation(tmp_path / "two", 2)
    control = tmp_path / "two" / "cgroup.subtree_control"
    with Emptied(Limits(quota=(1000, 10_000)), "a", hierarchies):
        assert control.read_text() == "+cpu"
    assert control.read_text() == "-cpu"
    control.write_text("cpu memory\n")
    with Emptied(Limits(quota=(1000, 10_000)), "a", hierarchies):
        pass
    assert control.read_text() == "cpu memory\n", "what was on is somebody else's"


def test_version_1_writes_its_files(tmp_path):
    with Emptied(ALL, "a", imitation(tmp_path / "one", 1)) as group:
        pass
    assert group.written == {
        "cpu.shares": "102400",
        "cpu.cfs_period_us": "10000",
        "cpu.cfs_quota_us": "1000",
        "memory.limit_in_bytes": "1048576",
        "blkio.throttle.read_bps_device": "8:0 4096",
        "blkio.throttle.write_bps_device": "8:0 4096",
    }


def test_a_limit_that_is_not_offered_says_so_and_leaves_nothing(tmp_path):
    hierarchies = imitation(tmp_path / "one", 1)
    del hierarchies["io"]
    with pytest.raises(NoLimitError, match="no control group hierarchy has the controller io"):
        Group(ALL, "a", hierarchies).__enter__()
    hierarchies = {"io": Hierarchy(tmp_path / "nowhere", 1)}
    with pytest.raises(NoLimitError, match="No such file or directory"):
        Group(Limits(disk=("8:0", 1)), "a", hierarchies).__enter__()
    assert list((tmp_path / "one").iterdir()) == []


def test_a_directory_on_no_disk_has_none():
    memory = Path("/dev", "shm")
    if not memory.is_dir():
        pytest.skip("no /dev/shm")
    with pytest.raises(NoLimitError, match="is on no disk"):
        disk_of(memory)
