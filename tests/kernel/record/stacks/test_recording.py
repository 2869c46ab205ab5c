"""Stacks of this kernel: recorded, joined, and named by causes."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from critpath_record.stacks.sources import find_obstacles

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "played"))
from pythons import find_pythons

pytestmark = pytest.mark.usefixtures("traceable")


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


@pytest.fixture(scope="module", autouse=True)
def _perf() -> None:
    if obstacles := find_obstacles("native"):
        pytest.skip(obstacles[0].what)
    if os.geteuid():
        pytest.skip("not root")


@pytest.fixture(scope="module")
def build(start, tmp_path_factory):
    """Return a function that compiles a program of C where every user may run it."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    place = tmp_path_factory.mktemp("built")
    for parent in (place, *place.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o011)

    def compile_text(name: str, text: str, *options: str) -> Path:
        (place / f"{name}.c").write_text(text)
        done = start("gcc", "-g", *options, "-o", name, f"{name}.c", cwd=place)
        assert done.end() == 0, done.said
        (place / name).chmod(0o755)
        return place / name

    return compile_text


@pytest.fixture(scope="module")
def app(build) -> Path:
    return build("app", C, "-O2", "-fomit-frame-pointer", "-pthread")


@pytest.fixture
def python() -> str:
    """Return a Python that can name its functions to perf."""
    if not (found := find_pythons(12, 13, 14)):
        pytest.skip("no Python from 3.12 on here")
    return found[0]


def compare_two(critpath, record, place, sources, command):
    """Record a command without and with its fault, in turn; return the facts of causes."""
    commands = (command, f"{command} fault")
    words = ("--stacks", sources, "--recorder", "ftrace", "-n", 12, "--interleave")
    said = record(place, "r", *words, *commands).said
    # A busy machine may lose some: that is said, and the location is right nevertheless.
    assert "stacks could not be read" not in said
    assert "no stacks" not in said
    sets = (place / "r" / "normal", place / "r" / "sample")
    done = critpath("compare", *sets, "--json", place / "c")
    assert done.returncode == 1, done.stderr
    causes = json.loads((place / "c").read_text())["causes"]
    return [cause["facts"] for cause in causes], done.stdout, sets


def test_a_program_in_c_without_frame_pointers(critpath, record, app, tmp_path):
    facts, said, sets = compare_two(critpath, record, tmp_path, "native", str(app))
    for one in sets:
        names = {file.name for file in (one / "stacks").iterdir()}
        assert names == {"frames.json", "samples.bin"}
    line = {name: C[: C.index(f"/* {name} */")].count("\n") + 1 for name in ("held", "wanted")}
    where = f"{app.parent.name}/app.c"
    held, wanted = (f"flush_log ({where}:{line['held']})", f"({where}:{line['wanted']})")
    # Others may have taken the cpu, or the disk: then theirs is the first.
    assert (held, f"get_connection {wanted}") in {(of["location"], of["waits_at"]) for of in facts}
    assert "in the code: " in " ".join(said.split())
    coded = tmp_path / "coded"
    critpath("compare", *sets, "--alphabet", "code", "--json", coded)
    states = {one["state"] for one in json.loads(coded.read_text())["states"]}
    assert any(":get_connection (" in state or ":flush_log (" in state for state in states), states


def test_under_sudo_stacks_are_named_and_are_the_users(record, app, tmp_path):
    nobody = pwd.getpwnam("nobody")
    python = Path(sys.executable).resolve()
    if not all(place.stat().st_mode & 0o001 for place in (python, *python.parents)):
        pytest.skip("this Python is not for other users")
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o011)
    os.chown(tmp_path, nobody.pw_uid, nobody.pw_gid)
    user = {"SUDO_UID": str(nobody.pw_uid), "SUDO_GID": str(nobody.pw_gid), "SUDO_USER": "nobody"}
    words = ("--stacks", "native", "--recorder", "ftrace", "--", app)
    record(tmp_path, "r", *words, **user)
    stacks = tmp_path / "r" / "stacks"
    assert {file.stat().st_uid for file in stacks.iterdir()} == {nobody.pw_uid}
    frames = json.loads((stacks / "frames.json").read_text())["frames"]
    assert {"flush_log", "get_connection"} <= {frame[0] for frame in frames}


def test_functions_of_python(critpath, record, python, tmp_path):
    (tmp_path / "svc.py").write_text(PYTHON)
    command = f"{python} svc.py"
    facts, _, sets = compare_two(critpath, record, tmp_path, "native,python", command)
    made = {"frames.json", "samples.bin", "python.json", "python.bin"}
    assert {file.name for file in (sets[0] / "stacks").iterdir()} == made
    line = {n: 1 + PYTHON[: PYTHON.index(f"def {n}")].count("\n") for n in ("flush_log", "get_one")}
    where = f"{tmp_path.name}/svc.py"
    places = {(of["location"], of["waits_at"]) for of in facts}
    held, wanted = (f"{name} ({where}:{line[name]})" for name in ("flush_log", "get_one"))
    assert (held, wanted) in places, places


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


def test_where_perf_cannot_follow_a_python_samples_say_where_it_is(
    critpath, record, python, tmp_path
):
    """The frame of select.select has pages that never were in memory: no copy reaches its end."""
    (tmp_path / "svc.py").write_text(SELECT)
    facts, _, sets = compare_two(critpath, record, tmp_path, "python", f"{python} svc.py")
    assert f"await_peer ({tmp_path.name}/svc.py:4)" in {of["location"] for of in facts}
    assert '"module": "python"' in critpath("path", sets[1], "--format", "json").stdout
    manifest = json.loads((sets[1] / "critpath.json").read_text())["recorder"]
    assert (manifest["stacks"]["source"], manifest["samples"]["source"]) == ("perf", "samples")


def test_a_python_of_any_version_is_sampled(critpath, record, tmp_path):
    (tmp_path / "svc.py").write_text("import time\ntime.sleep(.4)\n" + PYTHON)
    words = ("--stacks", "samples", "--recorder", "ftrace", "-n", 3, "--")
    record(tmp_path, "r", *words, sys.executable, tmp_path / "svc.py", "slow")
    assert {f.name for f in (tmp_path / "r" / "stacks").iterdir()} == {"python.json", "python.bin"}
    found = json.loads((tmp_path / "r" / "stacks" / "python.json").read_text())
    line = 3 + PYTHON[: PYTHON.index("time.sleep(held)")].count("\n")
    assert ["flush_log", str(tmp_path / "svc.py"), line, "python", False] in found["frames"]
    assert "svc.py:2)" in critpath("path", tmp_path / "r", "--top", "5").stdout


def test_no_memory_stays_and_no_process(start, tmp_path):
    """Also if the command fails, or cannot be run at all."""
    for command, code in (("false", 1), ("no-such-command", 127)):
        words = ("record", "--stacks", "native", "--recorder", "ftrace", "-o", command)
        done = start(sys.executable, "-m", "critpath", *words, "--", command, cwd=tmp_path)
        assert done.end() == code, done.said
        # All that it started is of its group.
        with pytest.raises(ProcessLookupError):
            os.killpg(done.pid, 0)
    assert not [*tmp_path.rglob("perf.data*")]


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
def contained(start, build, wait_for, tmp_path):
    """A server whose files lie on mounts of its own, and which has another root."""
    if shutil.which("unshare") is None:
        pytest.skip("it takes unshare")
    built, root = build("server", SERVER, "-O1"), tmp_path / "root"
    listed = start("ldd", built, cwd=tmp_path)
    assert listed.end() == 0
    files = sorted({word for word in listed.out.split() if word.startswith("/")})
    root.mkdir()
    script = f"""mount -t tmpfs none {root} && cp --parents -L {" ".join(files)} {root} &&
        mkdir {root}/app {root}/old && cp {built} {root}/app/served && cd {root} &&
        pivot_root . old && exec /app/served"""
    process = start("unshare", "-m", "sh", "-ec", script, cwd=tmp_path)
    wait_for(lambda: Path(f"/proc/{process.pid}/exe").readlink().name == "served")
    yield "/app/served", f"{built}.c"
    process.kill()


def test_functions_of_a_container_have_names(record, tmp_path, contained):
    program, source = contained
    words = ("-a", "--duration", "1", "--stacks", "native", "--recorder", "ftrace")
    assert program not in record(tmp_path, "r", *words).said
    frames = json.loads((tmp_path / "r" / "stacks" / "frames.json").read_text())
    named = {tuple(frame[:4]) for frame in frames["frames"] if frame[3].endswith(program)}
    assert ("wait_for_work", source, 4) in {frame[:3] for frame in named}
    of = [{frames["frames"][number][0] for number in stack} for stack in frames["stacks"]]
    assert any({"wait_for_work", "main"} <= names for names in of)


ROUNDS = """#include <time.h>
__attribute__((noinline)) void %s(void) {
  struct timespec time = {0, 2000000};
  nanosleep(&time, 0);
}
int main(int count, char **words) {
  (void)words;
  for (int i = 0; count > 1 || i < 500; i++) %s();
  return 0;
}
"""


def put_in_place(place, function, name):
    """Build a program that sleeps in a function, and put it in place of what is there."""
    (place / "app.c").write_text(ROUNDS % (function, function))
    made = subprocess.run(
        ["gcc", "-g", "-O1", "-o", "new", "app.c"], cwd=place, capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("no gcc")
    (place / "new").replace(place / name)


def functions(recording):
    document = json.loads((recording / "stacks" / "frames.json").read_text())
    return {frame[0] for frame in document["frames"]}, document


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_a_server_that_was_built_anew_has_the_functions_that_it_runs(record, start, tmp_path):
    put_in_place(tmp_path, "nap_of_old", "app")
    start("./app", "forever", cwd=tmp_path)
    put_in_place(tmp_path, "nap_of_new", "app")
    words = ("-a", "--duration", "1", "--stacks", "native", "--recorder", "ftrace")
    record(tmp_path, "r", *words)
    named, document = functions(tmp_path / "r")
    assert "nap_of_old" in named
    assert "nap_of_new" not in named
    assert {len(build) for path, build in document["builds"].items() if path.endswith("/app")} == {
        40
    }


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_no_function_is_named_by_what_replaced_a_program(record, tmp_path):
    """The one that ran has ended: nobody has its file any more."""
    put_in_place(tmp_path, "nap_of_old", "app")
    (tmp_path / "swap.sh").write_text("./app; cp app other; mv other app")
    words = ("--stacks", "native", "--recorder", "ftrace", "--", "sh", "swap.sh")
    done = record(tmp_path, "r", *words)
    assert f"no function of {tmp_path}/app has a name, as another file is there" in done.said
    assert "nap_of_old" not in functions(tmp_path / "r")[0]
