"""Containers that Podman runs have their names in a recording, whatever version groups are of."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess

import pytest

from critpath.flow import extract
from critpath.read.manifest import read_manifest

# Limits that need no more than root has anywhere.
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
# How the hierarchies are mounted, in a mount namespace of the test's own: runtimes take no mixture.
VERSIONS = {
    "1": "umount /sys/fs/cgroup/unified 2>/dev/null; ! grep -q ' cgroup2 ' /proc/mounts",
    "2": "grep -q ' /sys/fs/cgroup cgroup2 ' /proc/mounts"
    " || { umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup; }",
}
USERS = {"without": [], "with": ["--uidmap", "0:100000:5000", "--gidmap", "0:100000:5000"]}
SPIN = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; /bin/busybox sleep 0.05; done"


def run(*words: str, version: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    script = f'{VERSIONS[version]} || exit 99; exec "$@"'
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="module")
def image(traceable, tmp_path_factory):  # noqa: ARG001 - it skips
    """Build an image of nothing but a static busybox; skip with the reason where that fails."""
    busybox = shutil.which("busybox")
    if os.geteuid():
        pytest.skip("recording needs root")
    if not (shutil.which("podman") and busybox):
        pytest.skip("podman or busybox is not installed")
    place = tmp_path_factory.mktemp("image")
    for name in ("busybox", "sh"):
        shutil.copy(busybox, place / name)
    (place / "Containerfile").write_text("FROM scratch\nCOPY busybox sh /bin/\n", "ascii")
    name = f"localhost/critpath-test-{secrets.token_hex(4)}"
    built = subprocess.run(
        ["podman", "build", "-q", "-t", name, str(place)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if built.returncode:
        pytest.skip(f"podman cannot build here: {built.stderr.strip()[-200:]}")
    yield name
    subprocess.run(["podman", "rmi", "-f", name], capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("users", USERS)
def test_containers_of_podman(image, record, tmp_path, version, users):
    name = f"critpath-test-{secrets.token_hex(4)}"
    # Under version 2, what limits devices and numbers of processes needs more than some have.
    free = ["--privileged", "--pids-limit", "0"] if version == "2" else []
    words = ["podman", "run", "-d", "--name", name, "--network=none", *LIMITS, *free]
    begun = run(*words, *USERS[users], image, "/bin/busybox", "sh", "-c", SPIN, version=version)
    try:
        if begun.returncode:
            pytest.skip(f"podman cannot run that here: {begun.stderr.strip()[-200:]}")
        record(tmp_path, "machine", "-a", "--duration", "1")
        # A name, as its runtime has it, leads to its processes: those that it begins and ends.
        record(tmp_path, "inside", "--container", name, "--duration", "1")
    finally:
        run("podman", "rm", "-f", "-t", "0", name, version=version)
    for recording in ("machine", "inside"):
        [found] = [of for of in read_manifest(tmp_path / recording).groups if of.name == name]
        assert found.runtime == "podman"
        assert found.image == f"{image}:latest"
        assert f"libpod-{found.id}" in found.path
    manifest = json.loads((tmp_path / "inside" / "critpath.json").read_bytes())
    assert manifest["execution"].startswith("process,ns=")
    paths = extract([tmp_path / "inside"], specification=None)
    assert {*paths.executions.label} == {"busybox"}
    # Those alone, also by its name afterwards, and by the begin of its id.
    for chosen in (name, found.id[:12]):
        again = extract([tmp_path / "inside"], specification=f"process,container={chosen}")
        assert {*again.executions.id} <= {*paths.executions.id}
        # One may have gone between the looks at threads and at groups, at the begin.
        assert len(paths) - len(again) <= 1
