"""Stacks of this kernel: recorded, joined, and named by the first cause."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from critpath.record.stacks.sources import find_obstacles

pytestmark = [pytest.mark.xdist_group("kernel"), pytest.mark.long]


# In both one thread waits for a lock that another holds: longer with an argument.
C = r"""#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int done;
static long held = 300000;
__attribute__((noinline)) static void flush_log(void) {
  struct timespec time = {0, held};
  pthread_mutex_lock(&lock);
  nanosleep(&time, 0); /* held */
  pthread_mutex_unlock(&lock);
}
static void *work(void *unused) {
  struct timespec time = {0, 200000};
  pthread_setname_np(pthread_self(), "worker");
  while (!done) {
    flush_log();
    nanosleep(&time, 0);
  }
  return unused;
}
__attribute__((noinline)) static void get_connection(void) {
  pthread_mutex_lock(&lock); /* wanted */
  pthread_mutex_unlock(&lock);
}
int main(int count, char **words) {
  struct timespec time = {0, 500000};
  pthread_t worker;
  held = count > 1 ? 6000000 : held;
  (void)words;
  pthread_create(&worker, 0, work, 0);
  for (int i = 0; i < 10; i++) {
    nanosleep(&time, 0);
    get_connection();
  }
  done = 1;
  pthread_join(worker, 0);
  return 0;
}
"""

PYTHON = """import sys, threading, time
held, done, lock = 0.02 if len(sys.argv) > 1 else 0.0005, False, threading.Lock()
def flush_log():
    with lock:
        time.sleep(held)
def work():
    while not done:
        flush_log()
        time.sleep(0.001)
def get_one():
    lock.acquire()
    lock.release()
def handle():
    time.sleep(0.002)
    get_one()
worker = threading.Thread(target=work, name="worker")
worker.start()
for _ in range(10):
    handle()
done = True
worker.join()
"""


def find_python() -> str | None:
    """Return a Python that can name its functions to perf, None without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [
        *(shutil.which(f"python3.{n}") for n in (12, 13, 14)),
        *pyenv.glob("3.1[2-9]*/bin/python"),
    ]
    for name in filter(None, names):
        line = "import sys; sys.activate_stack_trampoline('perf')"
        done = subprocess.run([name, "-c", line], check=False, capture_output=True)
        if done.returncode == 0:
            return str(name)
    return None


@pytest.fixture(autouse=True)
def perf():
    if obstacles := find_obstacles("native"):
        pytest.skip(obstacles[0].what)
    if os.geteuid():
        pytest.skip("not root")


def compare_two(critpath_process, place, sources, command):
    for name, more in (("normal", []), ("sample", ["fault"])):
        done = critpath_process(
            *(
                "record",
                "--stacks",
                sources,
                "--recorder",
                "ftrace",
                "-n",
                "20",
                "-o",
                place / name,
            ),
            *("--", *command, *more),
        )
        if "cannot record here" in done.stderr:
            pytest.skip(done.stderr)
        # A busy machine may lose some: that is said, and the location is right nevertheless.
        assert "stacks could not be read" not in done.stderr, done.stderr
        assert "no stacks" not in done.stderr, done.stderr
        made = {"frames.json", "samples.bin"}
        made |= {"python.json", "python.bin"} if "python" in sources else set()
        assert {f.name for f in (place / name / "stacks").iterdir()} == made
    done = critpath_process("compare", place / "normal", place / "sample", "--json", place / "c")
    assert done.returncode == 1, done.stderr
    return json.loads((place / "c").read_text())["causes"][0]["facts"], done.stdout


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
def test_a_program_in_c_without_frame_pointers(critpath_process, tmp_path):
    (tmp_path / "app.c").write_text(C)
    program = tmp_path / "app"
    build = ["gcc", "-O2", "-g", "-fomit-frame-pointer", "-pthread", "-o", program]
    subprocess.run([*build, tmp_path / "app.c"], check=True)
    facts, said = compare_two(critpath_process, tmp_path, "native", [program])
    line = {name: C[: C.index(f"/* {name} */")].count("\n") + 1 for name in ("held", "wanted")}
    assert facts["location"] == f"flush_log ({tmp_path.name}/app.c:{line['held']})"
    assert facts["waits_at"] == f"get_connection ({tmp_path.name}/app.c:{line['wanted']})"
    assert "in the code: " in " ".join(said.split())
    sets = (tmp_path / "normal", tmp_path / "sample")
    coded = tmp_path / "coded"
    critpath_process("compare", *sets, "--alphabet", "code", "--json", coded)
    states = {one["state"] for one in json.loads(coded.read_text())["states"]}
    assert any(":get_connection (" in state or ":flush_log (" in state for state in states), states


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")
def test_under_sudo_stacks_are_named_and_are_the_users(tmp_path):
    nobody = pwd.getpwnam("nobody")
    try:
        subprocess.run([sys.executable, "-c", ""], check=True, user=nobody.pw_uid)
    except PermissionError:
        pytest.skip("this Python is not for other users")
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o011)
    place = tmp_path / "users"
    place.mkdir()
    os.chown(place, nobody.pw_uid, nobody.pw_gid)
    (tmp_path / "app.c").write_text(C)
    build = ["gcc", "-O2", "-g", "-pthread", "-o", tmp_path / "app", tmp_path / "app.c"]
    subprocess.run(build, check=True)
    (tmp_path / "app").chmod(0o755)
    user = {"SUDO_UID": str(nobody.pw_uid), "SUDO_GID": str(nobody.pw_gid), "SUDO_USER": "nobody"}
    words = ["record", "--stacks", "native", "--recorder", "ftrace", "-o", place / "r", "--"]
    done = subprocess.run(
        [sys.executable, "-m", "critpath", *words, tmp_path / "app"],
        check=False, capture_output=True, text=True, cwd=place, env={**os.environ, **user},
    )  # fmt: skip
    if "cannot record here" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    stacks = place / "r" / "stacks"
    assert {file.stat().st_uid for file in stacks.iterdir()} == {nobody.pw_uid}
    frames = json.loads((stacks / "frames.json").read_text())["frames"]
    assert {"flush_log", "get_connection"} <= {frame[0] for frame in frames}


def test_functions_of_python(critpath_process, tmp_path):
    python = find_python()
    if python is None:
        pytest.skip("no Python from 3.12 on here")
    (tmp_path / "svc.py").write_text(PYTHON)
    command = [python, tmp_path / "svc.py"]
    facts, _ = compare_two(critpath_process, tmp_path, "native,python", command)
    line = {n: 1 + PYTHON[: PYTHON.index(f"def {n}")].count("\n") for n in ("flush_log", "get_one")}
    where = f"{tmp_path.name}/svc.py"
    assert facts["location"] == f"flush_log ({where}:{line['flush_log']})"
    assert facts["waits_at"] == f"get_one ({where}:{line['get_one']})"


SELECT = """import select, sys, time
held = 0.03 if len(sys.argv) > 1 else 0.0005
def await_peer():
    select.select([], [], [], held)
found = time.monotonic() + 0.4  # that it takes to find a Python
while time.monotonic() < found:
    pass
for _ in range(20):
    time.sleep(0.002)
    await_peer()
"""


def test_where_perf_cannot_follow_a_python_samples_say_where_it_is(critpath_process, tmp_path):
    """The frame of select.select has pages that never were in memory: no copy reaches its end."""
    python = find_python()
    if python is None:
        pytest.skip("no Python from 3.12 on here")
    (tmp_path / "svc.py").write_text(SELECT)
    facts, _ = compare_two(critpath_process, tmp_path, "python", [python, tmp_path / "svc.py"])
    assert facts["location"] == f"await_peer ({tmp_path.name}/svc.py:4)"
    said = critpath_process("path", tmp_path / "sample", "--format", "json").stdout
    assert '"module": "python"' in said
    manifest = json.loads((tmp_path / "sample" / "critpath.json").read_text())["recorder"]
    assert (manifest["stacks"]["source"], manifest["samples"]["source"]) == ("perf", "samples")


def test_no_memory_stays_and_no_process(critpath_process, tmp_path):
    """Also if the command fails, or cannot be run at all."""
    for command, code in (("false", 1), ("no-such-command", 127)):
        done = critpath_process(
            *("record", "--stacks", "native", "--recorder", "ftrace", "-o", tmp_path / command),
            *("--", command),
        )
        if "cannot record here" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == code
    assert not [*Path(tmp_path).rglob("perf.data*")]
    mine = str(os.getpid())
    running = subprocess.run(["pgrep", "-P", mine, "-x", "perf"], check=False, capture_output=True)
    assert running.returncode == 1


def test_a_python_of_any_version_is_sampled(critpath_process, tmp_path):
    (tmp_path / "svc.py").write_text("import time\ntime.sleep(.4)\n" + PYTHON)
    done = critpath_process(
        *("record", "--stacks", "samples", "--recorder", "ftrace", "-n", "5", "-o", tmp_path / "r"),
        *("--", sys.executable, tmp_path / "svc.py", "slow"),
    )
    if "cannot record here" in done.stderr:
        pytest.skip(done.stderr)
    assert {f.name for f in (tmp_path / "r" / "stacks").iterdir()} == {"python.json", "python.bin"}
    found = json.loads((tmp_path / "r" / "stacks" / "python.json").read_text())
    line = 3 + PYTHON[: PYTHON.index("time.sleep(held)")].count("\n")
    assert ["flush_log", str(tmp_path / "svc.py"), line, "python", False] in found["frames"]
    assert "svc.py:2)" in critpath_process("path", tmp_path / "r", "--top", "5").stdout


SERVER = """#include <time.h>
__attribute__((noinline)) static void wait_for_work(void) {
  struct timespec time = {0, 3000000};
  nanosleep(&time, 0);
}
int main(void) {
  for (;;) wait_for_work();
}
"""


@pytest.fixture
def contained(tmp_path):
    """A server whose files lie on mounts of its own, and which has another root."""
    if os.geteuid() or not (shutil.which("gcc") and shutil.which("unshare")):
        pytest.skip("it takes root, gcc and unshare")
    (tmp_path / "server.c").write_text(SERVER)
    built, root = tmp_path / "built", tmp_path / "root"
    subprocess.run(["gcc", "-g", "-O1", "-o", built, tmp_path / "server.c"], check=True)
    listed = subprocess.run(["ldd", built], capture_output=True, text=True, check=True).stdout
    files = sorted({word for word in listed.split() if word.startswith("/")})
    root.mkdir()
    script = f"""mount -t tmpfs none {root} && cp --parents -L {" ".join(files)} {root} &&
        mkdir {root}/app {root}/old && cp {built} {root}/app/served && cd {root} &&
        pivot_root . old && exec /app/served"""
    with subprocess.Popen(["unshare", "-m", "sh", "-ec", script]) as process:
        until = time.monotonic() + 10
        while Path(f"/proc/{process.pid}/exe").readlink().name != "served":
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        yield "/app/served"
        process.kill()


def test_functions_of_a_container_have_names(critpath_process, tmp_path, contained):
    done = critpath_process(
        *("record", "-a", "--duration", "1", "--stacks", "native", "--recorder", "ftrace"),
        *("-o", tmp_path / "r"),
    )
    if "cannot record here" in done.stderr or "--stacks" in done.stderr:
        pytest.skip(done.stderr)
    assert contained not in done.stderr
    frames = json.loads((tmp_path / "r" / "stacks" / "frames.json").read_text())
    named = {tuple(frame[:4]) for frame in frames["frames"] if frame[3].endswith(contained)}
    assert ("wait_for_work", str(tmp_path / "server.c"), 4) in {frame[:3] for frame in named}
    of = [{frames["frames"][number][0] for number in stack} for stack in frames["stacks"]]
    assert any({"wait_for_work", "main"} <= names for names in of)
