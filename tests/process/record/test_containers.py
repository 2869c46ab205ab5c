"""Containers by whatever name a user has for them, on the real kernel."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from critpath.errors import UsageError
from critpath_marks.sessions import pid_namespace
from critpath_record import containers
from critpath_record.containers import resolve_container

if os.geteuid():
    pytest.skip("making pid namespaces needs root", allow_module_level=True)


SCRIPT = """
    hostname "$1" && printf %s "$2" > /proc/self/comm && echo ready
    cat
"""


class Container:
    """A process in a pid namespace and a UTS namespace of its own."""

    def __init__(self, host: str, name: str) -> None:
        self.host = host
        self._outer = subprocess.Popen(
            ["unshare", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
             SCRIPT, "sh", host, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.ready = self._outer.stdout.readline() == "ready\n"

    @property
    def pid(self) -> int:
        """The init process, as we number it."""
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        return int(children.read_text().split()[0])

    def end(self) -> None:
        self._outer.kill()
        self._outer.wait()
        self._outer.stdin.close()
        self._outer.stdout.close()


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Container, Container]]:
    made = [Container(f"critpath-host-{i}-{os.getpid()}", f"cnt\x1b{i}") for i in (1, 2)]
    try:
        if not all(c.ready for c in made):
            pytest.skip("pid namespaces cannot be made here")
        yield made[0], made[1]
    finally:
        for container in made:
            container.end()


def test_by_number_link_pid_and_host_name(two):
    for container in two:
        namespace = pid_namespace(container.pid)
        assert namespace not in {0, pid_namespace()}
        for name in (str(namespace), f"pid:[{namespace}]", str(container.pid), container.host):
            assert resolve_container(name) == namespace
        assert container.host not in os.uname().nodename  # only a thread looked in there


def test_what_lsns_prints(two):
    printed = subprocess.run(
        ["lsns", "-t", "pid", "-n", "-o", "NS,PID"], capture_output=True, text=True, check=True
    ).stdout
    shown = {int(line.split()[1]): line.split()[0] for line in printed.splitlines()}
    assert resolve_container(shown[two[0].pid]) == pid_namespace(two[0].pid)


ID = "3f2a9c" + "0123456789abcdef" * 3 + "1234567890"


@pytest.mark.parametrize(
    "component", [f"docker-{ID}.scope", ID, f"cri-containerd-{ID}.scope", f"libpod-{ID}"]
)
@pytest.mark.parametrize("name", [ID, ID[:12], ID[:8]])
def test_by_a_containers_id(two, monkeypatch, component, name):
    inside = {p for p in map(int, _pids()) if pid_namespace(p) == pid_namespace(two[1].pid)}

    def cgroup(pid: int) -> Iterator[str]:
        yield from containers.cgroup_names(
            f"0::/system.slice/{component}/init\n" if pid in inside else ""
        )

    monkeypatch.setattr(containers, "_components", cgroup)
    assert resolve_container(name) == pid_namespace(two[1].pid)
    assert resolve_container(component) == pid_namespace(two[1].pid)
    with pytest.raises(UsageError):
        resolve_container(ID[:7])  # too short to be meant


def _pids() -> list[str]:
    return [p.name for p in Path("/proc").iterdir() if p.name.isdigit()]


def test_a_real_cgroup(two, wait_for):
    place = _cgroup_root() / f"docker-{ID}.scope"
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error.strerror}")
    try:
        try:
            (place / "cgroup.procs").write_text(str(two[0].pid))
        except OSError as error:
            pytest.skip(f"no process can be moved to a cgroup here: {error.strerror}")
        assert resolve_container(ID[:12]) == pid_namespace(two[0].pid)
        (_cgroup_root() / "cgroup.procs").write_text(str(two[0].pid))
    finally:
        wait_for(lambda: _is_removed(place))


def _is_removed(place: Path) -> bool:
    try:
        place.rmdir()
    except OSError:  # somebody is in it for a moment
        return False
    return True


def _cgroup_root() -> Path:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    pytest.skip("cgroup2 is not mounted here")


def test_a_name_that_leads_nowhere_lists_what_there_is(two):
    with pytest.raises(UsageError) as caught:
        resolve_container("no-such-thing\x1b[2J")
    assert "\x1b" not in caught.value.what
    assert str(pid_namespace(two[0].pid)) in caught.value.what
    assert f"cnt\ufffd1, pid {two[0].pid}" in caught.value.what


def test_a_name_of_two_is_refused(two, monkeypatch):
    both = {pid_namespace(c.pid) for c in two}
    monkeypatch.setattr(
        containers, "_components", lambda pid: ["twins"] if pid_namespace(pid) in both else []
    )
    with pytest.raises(UsageError, match="2 pid namespaces") as caught:
        resolve_container("twins")
    assert all(str(namespace) in caught.value.what for namespace in both)
