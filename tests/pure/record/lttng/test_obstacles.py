"""What is said to stand in the way, for machines that this one is not."""

from __future__ import annotations

import os

import pytest

from critpath_record import identity, proc
from critpath_record.lttng import preflight as module
from critpath_record.lttng.preflight import find_needs

_MODULE_CAPABILITY = 1 << 16


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Let absolute paths of the machine lie in a directory; return it."""
    real = module.Path

    def read(place):
        inside = real(place).is_relative_to(tmp_path)
        return proc.read_text(place if inside else f"{tmp_path}{place}")

    for of in (module, identity):
        monkeypatch.setattr(of, "Path", lambda place: real(f"{tmp_path}{place}"))
        monkeypatch.setattr(of, "read_text", read)

    def write(place, text=""):
        path = tmp_path / place.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("/proc/modules")
    write("/usr/bin/apt")
    write("/proc/self/status", f"CapPrm:\t{_MODULE_CAPABILITY:016x}\n")
    return write


RELEASE = os.uname().release
LISTED = f"/lib/modules/{RELEASE}/modules.dep"


def names():
    return [obstacle.name for obstacle in find_needs(None)]


@pytest.fixture
def user(monkeypatch):
    def become(*, root, group=False):
        monkeypatch.setattr(module.os, "geteuid", lambda: 0 if root else 1000)
        monkeypatch.setattr(module, "_in_group", lambda: group)

    return become


def test_root_with_built_modules_lacks_nothing(machine, files, user):
    del machine
    user(root=True)
    files(LISTED, "updates/dkms/lttng-tracer.ko:\n")
    assert names() == []


def test_modules_that_are_not_built(machine, files, user):
    del machine
    user(root=True)
    files(LISTED, "kernel/fs/ext4/ext4.ko:\n")
    [found] = find_needs(None)
    assert found.name == "lttng-modules"
    assert found.do == f"sudo apt install lttng-modules-dkms linux-headers-{RELEASE}"
    assert found.fatal


def test_modules_that_are_built_for_other_kernels(machine, files, user):
    del machine
    user(root=True)
    files("/var/lib/dkms/lttng-modules/2.13.9/source")
    [found] = find_needs(None)
    assert "dkms autoinstall" in found.do
    assert "only for others" in found.what


def test_a_kernel_that_loads_no_modules(machine, files, user, tmp_path):
    del machine, files
    user(root=True)
    (tmp_path / "proc" / "modules").unlink()
    [found] = find_needs(None)
    assert (found.name, found.do) == ("lttng-modules", "critpath record --recorder ftrace")


def test_secure_boot_is_no_more_than_a_hint(machine, files, user):
    del machine
    user(root=True)
    files(LISTED, "extra/lttng-tracer.ko:\n")
    files("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    [found] = find_needs(None)
    assert found.name == "secure-boot"
    assert not found.fatal


def test_root_of_a_container_may_not_load_modules(machine, files, user, monkeypatch):
    del machine
    user(root=True)
    monkeypatch.setattr(module, "pid_namespace", lambda: 4026532000)
    files(LISTED, "extra/lttng-tracer.ko:\n")
    files("/proc/self/status", "CapPrm:\t00000000a80425fb\n")
    [found] = find_needs(None)
    assert found.name == "load-modules"
    assert "container" in found.what


def test_users_need_the_group_and_a_daemon(machine, files, user):
    files("/sys/module/lttng_tracer/version", "2.13.9\n")
    user(root=False)
    assert names() == ["tracing-group"]
    user(root=False, group=True)
    assert names() == ["lttng-sessiond"]
    machine.start_foreign_daemon()
    assert names() == []
