"""Containers that Podman runs have their names in a recording, whatever version groups are of."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

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


# A flight recorder, a dump, its end: what a container's one process would be, in a shell of it.
FLIGHT = """
critpath="$1 -m critpath"; shift
$critpath record --always --overhead 1000% --memory 8M --usual 0 --calibrate off -o $1 2>$1.log &
until /bin/busybox grep -q "flight recorder: profile" $1.log; do
  kill -0 $! || { /bin/busybox cat $1.log; exit 9; }; /bin/busybox sleep 0.1
done
$critpath dump $1 && $critpath dump --stop $1
wait $!
"""
ALL = ("SYS_PTRACE", "DAC_READ_SEARCH", "SYS_NICE", "PERFMON", "BPF")


def run_inside(image, state, *words, caps=(), more=(), entry=()):
    """Run words as root in a container that sees this machine's Python, processes and tracefs."""
    seen = {Path("/usr"), Path("/lib"), Path("/lib64"), Path(sys.prefix), Path(sys.base_prefix)}
    seen |= {Path(place) for place in sys.path if place}
    there = {place.resolve() for place in seen if place.is_dir()}
    places = {p for p in there | seen if p.is_dir() and not any(q in there for q in p.parents)}
    flags = [f"--volume={place}:{place}:ro" for place in sorted(places)]
    flags += [f"--cap-add={name}" for name in caps]
    command = [
        *("podman", "run", "--rm", "--network=none", "--pid=host", "--cgroupns=host"),
        *("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--workdir=/tmp", *LIMITS, *flags),
        *(
            "--env=PATH=/usr/bin:/bin",
            f"--env=PYTHONPATH={os.pathsep.join(filter(None, sys.path))}",
        ),
        *("--volume=/sys/kernel/tracing:/sys/kernel/tracing", f"--volume={state}:/state", *more),
        *(image, *(entry or (sys.executable, "-m", "critpath")), *words),
    ]
    return run(*command, version="1")


def lacks(done):
    """Return what doctor --deep found to be lacking, by name, with whether that is fatal."""
    if not done.stdout.startswith("{"):
        pytest.skip(f"podman cannot run that here: {done.stderr.strip()[-200:]}")
    tried = json.loads(done.stdout)["tried"]
    return {one["name"]: one["fatal"] for one in tried if one["why"]}


def test_doctor_in_a_container_says_what_is_missing(image, tmp_path):
    words = ("doctor", "--deep", "--json")
    none = lacks(run_inside(image, tmp_path, *words))
    assert not any(none.values())  # root alone is enough to record
    assert {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_SYS_NICE", "CAP_PERFMON"} <= {*none}
    assert {"names of containers", "CAP_BPF", "programs that begin"} <= {*none}
    storage = "/var/lib/containers/storage"
    more = ("--security-opt=seccomp=unconfined", f"--volume={storage}:{storage}:ro")
    given = lacks(run_inside(image, tmp_path, *words, caps=ALL, more=more))
    assert {*given} <= {"programs that begin", "CAP_SYS_NICE"}
    # Users of its own: not the machine's root, whatever else it is given.
    mapped = run_inside(image, tmp_path, *words, caps=ALL, more=USERS["with"])
    assert lacks(mapped).get("root") is True
    assert mapped.returncode == 1
    assert json.loads(mapped.stdout)["can_record"] is False


def test_an_ordinary_user_in_a_container_with_exactly_its_capabilities(image, tmp_path):
    """The line of docs/least-root.md; its command has none of them."""
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    tmp_path.chmod(0o755)
    caps = (*ALL, "DAC_OVERRIDE")
    more = ("--user=1001:1001", "--security-opt=no-new-privileges")
    line = "/bin/busybox id -u; /bin/busybox grep Cap /proc/self/status"
    words = ("record", "--recorder", "ftrace", "-o", "/state/rec", "--", "/bin/sh", "-c", line)
    done = run_inside(image, state, *words, caps=caps, more=more)
    if "OCI" in done.stderr:
        pytest.skip(f"podman cannot run that here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    user, *of = done.stdout.split()
    capabilities = dict(zip(of[::2], of[1::2], strict=True))
    assert user == "1001"
    assert {int(capabilities[f"Cap{kind}:"], 16) for kind in ("Prm", "Eff", "Amb")} == {0}
    assert (state / "rec").stat().st_uid == 1001
    (ran,) = read_manifest(state / "rec").runs
    assert ran.exit_code == 0


@pytest.mark.parametrize("groups", ["host", "private"])
def test_a_flight_recorder_in_a_container_without_any_capability(image, tmp_path, groups):
    """It names other containers, also where it sees their groups by other paths."""
    other = f"critpath-test-{secrets.token_hex(4)}"
    spinning = ("podman", "run", "-d", "--name", other, "--network=none", *LIMITS, image)
    begun = run(*spinning, "/bin/busybox", "sh", "-c", SPIN, version="1")
    if begun.returncode:
        pytest.skip(f"podman cannot run that here: {begun.stderr.strip()[-200:]}")
    storage = "/var/lib/containers/storage"
    more = (f"--volume={storage}:{storage}:ro", "--volume=/run:/run", f"--cgroupns={groups}")
    place = f"/state/{other}"
    try:
        shell = ("/bin/busybox", "sh", "-c", FLIGHT, "sh", sys.executable, place)
        done = run_inside(image, tmp_path, more=more, entry=shell)
    finally:
        run("podman", "rm", "-f", "-t", "0", other, version="1")
    assert done.returncode == 0, done.stdout + done.stderr
    [dump] = [p for p in (tmp_path / other).iterdir() if p.is_dir()]
    assert other in {of.name for of in read_manifest(dump).groups}
    paths = extract([dump], specification=f"process,container={other}")
    assert {*paths.executions.label} <= {"busybox"}
    assert len(paths)


def clone_into(group, *words):
    """Start words in a process that is born in a control group; return its pid."""
    into = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    flags, wanted = 0x2_0000_0000, 435  # CLONE_INTO_CGROUP; number of clone3
    arguments = struct.pack("11Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, into)
    system = ctypes.CDLL(None, use_errno=True).syscall
    pid = system(wanted, ctypes.create_string_buffer(arguments), len(arguments))
    if pid == 0:
        with contextlib.suppress(OSError):
            os.execv(words[0], words)  # noqa: S606 - in a process that was just made
        os._exit(1)
    os.close(into)
    if pid < 0:
        pytest.skip(f"clone3: {os.strerror(ctypes.get_errno())}")
    return pid


def test_a_process_that_is_born_in_a_group(traceable, start, tmp_path):
    del traceable
    places = [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
    roots = [place for place in places if (place / "cgroup.procs").is_file()]
    if os.geteuid() or not roots:
        pytest.skip("needs root and control groups of version 2")
    group = roots[0] / f"critpath-test-{secrets.token_hex(4)}"
    group.mkdir()
    pid = 0
    try:
        critpath = (sys.executable, "-m", "critpath", "record", "-a", "--recorder", "ftrace")
        recorder = start(*critpath, "--duration", "2", "-o", "rec", cwd=tmp_path)
        recorder.wait_until_said("recording for 2 s")
        pid = clone_into(group, sys.executable, "-c", "while True: pass")
        assert recorder.end() == 0, recorder.said
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        group.rmdir()
    paths = extract([tmp_path / "rec"], specification=f"thread,cgroup=/{group.name}")
    assert pid in paths.executions.tid
