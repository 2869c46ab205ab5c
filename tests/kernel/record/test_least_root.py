"""Under sudo a small helper stays root and hands descriptors over; all else is the user's."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pytest

import critpath_record
from critpath.errors import CritpathError
from critpath_marks.sessions import pid_namespace
from critpath_record import grouped, recovery, rooted, shown
from critpath_record.ftrace import tracefs
from critpath_record.registry import Entry

pytestmark = [
    pytest.mark.xdist_group("kernel"),
    pytest.mark.skipif(os.geteuid() != 0, reason="not root"),
]

ALWAYS = ("/dev/null", "/usr/lib/")
INSTANCES = Path(rooted.TRACEFS) / "instances"
PLACES = [path for path in sys.path if "site-packages" in path]
START = "import sys; sys.path[:0] = {}; sys.argv[0] = 'critpath'; {}"
ENTER = "from critpath.commands import entry; entry()"
USER = pwd.getpwnam("nobody")
SUDO = {"SUDO_UID": str(USER.pw_uid), "SUDO_GID": str(USER.pw_gid), "SUDO_USER": "nobody"}
SESSION = "critpath-1-{}-{}-12345678"
# Lines that are loaded as root, of the package and its recorder: what the issue asks for.
MOST_LINES = 1500


def may_read(*places):
    script = " && ".join(f"test -r '{place}'" for place in places)
    who = {"user": USER.pw_uid, "group": USER.pw_gid}
    return subprocess.run(["/bin/sh", "-c", script], check=False, **who).returncode == 0


@pytest.fixture(scope="module")
def python():
    """Return a Python that a user may run with this critpath: not one in root's home."""
    own = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    library = Path(own).resolve().name
    for place, of in ((sys.executable, os.__file__), (own, f"/usr/lib/{library}/os.py")):
        if Path(place).exists() and may_read(of, critpath_record.__file__):
            return place
    pytest.skip("no Python here that another user may run")


@pytest.fixture
def box():
    """Return a directory of the user's."""
    place = Path(tempfile.mkdtemp(dir="/var/tmp"))
    os.chown(place, USER.pw_uid, USER.pw_gid)
    yield place
    shutil.rmtree(place)


@pytest.fixture(autouse=True)
def may_record():
    from critpath_record.ftrace.recorder import find_needs  # noqa: PLC0415 - may not import elsewhere

    if fatal := [one.what for one in find_needs(None) if one.fatal]:
        pytest.skip(f"ftrace cannot record here: {fatal[0]}")


def command(python, *words, enter=ENTER):
    return [python, "-P", "-c", START.format(PLACES, enter), *words]


def environment(sudo):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    return {**clean, **sudo, "PYTHONDONTWRITEBYTECODE": "1"}


def record(python, place, *words, sudo=SUDO):
    done = subprocess.run(
        command(python, "record", "--recorder", "ftrace", *words),
        cwd=place,
        env=environment(sudo),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


def with_capabilities(python, place, caps, *words):
    """Run critpath as the user, with no more than some capabilities."""
    if (setpriv := shutil.which("setpriv")) is None:
        pytest.skip("no setpriv here")
    given = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in caps)
    who = (f"--reuid={USER.pw_uid}", f"--regid={USER.pw_gid}", "--clear-groups")
    return subprocess.run(
        [setpriv, *who, f"--inh-caps={given}", f"--ambient-caps={given}", *command(python, *words)],
        cwd=place,
        env=environment({}),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


MINIMAL = ("--profile", "minimal")  # else by who listens on the machine at that moment
ENOUGH = ("CAP_DAC_OVERRIDE", *rooted.KEPT)


def test_capabilities_alone_record_the_same(python, box):
    """No root anywhere; what is recorded gets none of the recorder's capabilities."""
    words = ("record", "--recorder", "ftrace", "--profile", "requests", "-a", "--duration", "1")
    done = with_capabilities(python, box, ENOUGH, *words, "-o", "user")
    assert done.returncode == 0, done.stderr
    record(python, box, *words[3:], "-o", "root", sudo={})
    mine, roots = (facts(box / name) for name in ("user", "root"))
    for of in (mine, roots):
        of["recorder"] |= {"event_count": 0, "clock": 0, "marks": 0}
    assert mine["recorder"] == roots["recorder"]
    assert warnings_of(mine) == warnings_of(roots)
    command_of = ("record", "--recorder", "ftrace", "-o", "rec", "--")
    line = "id -u; grep -E 'Cap(Eff|Prm|Amb)' /proc/self/status | tr -d '\\t'"
    done = with_capabilities(python, box, ENOUGH, *command_of, "sh", "-c", line)
    none = [f"Cap{kind}:{0:016x}" for kind in ("Prm", "Eff", "Amb")]
    assert done.stdout.split() == [str(USER.pw_uid), *none]


def test_doctor_names_the_capabilities_that_are_missing(python, box):
    done = with_capabilities(python, box, ("CAP_DAC_OVERRIDE", "CAP_SYS_NICE"), "doctor", "--json")
    found = json.loads(done.stdout)["recorders"]["ftrace"]["obstacles"]
    missing = {one["name"] for one in found}
    assert missing == {"CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE", "CAP_PERFMON", "CAP_BPF"}
    done = with_capabilities(python, box, ("CAP_SYS_NICE",), "doctor", "--json")
    assert "CAP_DAC_OVERRIDE" in done.stdout


@pytest.fixture
def other(python):
    """Run a Python that no recorder comes from: it samples none of those that it comes from."""
    line = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [python, "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        yield process
        process.stdin.close()


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize(
    "words", [("--stacks", "samples"), ("--files",), ("--labels-from", "bytes")]
)
def test_what_perf_and_bpf_record_is_the_users_too(python, box, words):
    words = (*words, "--profile", "requests", "-a", "--duration", "1")
    seen = []
    for name, sudo in (("user", SUDO), ("root", {})):
        record(python, box, *words, "-o", name, sudo=sudo)
        found = sorted(path.relative_to(box / name) for path in (box / name).rglob("*"))
        seen.append([str(path) for path in found])
    assert seen[0] == seen[1]
    assert {path.lstat().st_uid for path in (box / "user").rglob("*")} == {USER.pw_uid}


def facts(recording):
    return json.loads((recording / "critpath.json").read_text(encoding="utf-8"))


def warnings_of(found):
    """Return what is warned of, but for what others do on the machine at that moment."""
    return [text for text in found["warnings"] if not text.startswith("marks without access: ")]


def test_the_recorder_is_the_users_with_few_capabilities(python, box):
    line = "grep -E '^(Uid|CapEff|CapPrm|CapAmb)' /proc/$PPID/status; grep CapEff /proc/self/status"
    done = record(python, box, "-o", "rec", "--", "sh", "-c", line)
    said = dict(row.split(":") for row in done.stdout.splitlines()[:-1])
    kept = sum(1 << number for number in rooted.KEPT.values())
    assert {*said["Uid"].split()} == {str(USER.pw_uid)}
    assert int(said["CapEff"], 16) == int(said["CapPrm"], 16) == kept
    assert int(said["CapAmb"], 16) == 0
    # Its command has none.
    assert int(done.stdout.splitlines()[-1].split()[1], 16) == 0
    found = [box / "rec", *(box / "rec").rglob("*")]
    assert {path.lstat().st_uid for path in found} == {USER.pw_uid}
    assert not [*INSTANCES.glob(f"critpath-*-{facts(box / 'rec')['session'].split('-')[2]}-*")]


@pytest.mark.parametrize(
    "words",
    [
        *(MINIMAL, ("--profile", "requests"), ("--profile", "full")),
        *(("--counts", *MINIMAL), ("--tasks", *MINIMAL)),
        ("--overhead", "20%", "--calibrate", "off", *MINIMAL),
    ],
)
def test_it_is_the_same_recording(python, box, words):
    """What differs between the user's and root's is when, and how much happened."""
    seen = []
    for name, sudo in (("user", SUDO), ("root", {})):
        record(python, box, *words, "-a", "--duration", "1", "-o", name, sudo=sudo)
        seen.append(facts(box / name))
    mine, roots = ({**of["recorder"], "event_count": 0, "clock": 0, "marks": 0} for of in seen)
    assert mine == roots
    assert {*seen[0]} == {*seen[1]}
    assert warnings_of(seen[0]) == warnings_of(seen[1])
    for key in ("counts", "overhead"):
        assert {*seen[0].get(key, ())} == {*seen[1].get(key, ())}
    assert [stream["cpu"] for stream in seen[0]["streams"]] == [
        stream["cpu"] for stream in seen[1]["streams"]
    ]


@pytest.mark.parametrize("words", [("--counts",), ("--recorder", "counts")])
def test_a_command_is_counted_in_a_group_that_root_makes(python, box, words):
    """The command's counts are its own, as under root: the helper lets it in."""
    seen, line = [], "grep ^0:: /proc/self/cgroup; for i in 1 2 3 4 5; do /bin/true; done"
    for name, sudo in (("user", SUDO), ("root", {})):
        done = record(python, box, *words, "-n2", "-o", name, "--", "sh", "-c", line, sudo=sudo)
        [group] = {row.partition("::")[2] for row in done.stdout.splitlines() if "::" in row}
        assert group.rpartition("/")[2] == facts(box / name)["session"]
        assert not groups_left(facts(box / name)["session"])
        text = (box / name / "counts" / "counts.jsonl").read_text("ascii")
        header, *rows = map(json.loads, text.splitlines())
        of = header["scopes"].index("command")
        counts = [pair for row in rows for pair in row["counts"][of]]
        sums = Counter()
        for term, count in counts:
            sums[header["terms"][term]] += count
        seen.append({term: n for term, n in sums.items() if term.startswith("sys:")})
        assert header["how"] == "bpf"
    assert seen[0] == seen[1]
    assert seen[0]["sys:execve"] == 2 * 7


def groups_left(session):
    return [*Path("/sys/fs/cgroup").glob(f"**/*{session}*")]


def test_only_who_is_the_users_is_let_into_the_group():
    """Who asks is told by the kernel: this test's process is root's."""
    name = SESSION.format(os.getpid(), rooted._began(os.getpid()))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    serving = threading.Thread(target=rooted.Helper(theirs, USER.pw_uid, os.getpid()).serve)
    serving.start()
    try:
        ours.send(json.dumps(["group", name]).encode())
        answer, [procs], _, _ = socket.recv_fds(ours, 1 << 16, 4)
        assert json.loads(answer) == [0, ""]
        [group] = groups_left(name)
        with socket.socket(fileno=procs) as asked:
            with Path(os.devnull).open() as file:
                for sent in ([], [file.fileno()]):
                    socket.send_fds(asked, [b"0"], sent)
                    assert asked.recv(1) == b"1"
            line = "import os; os.setuid({0}); os.write({1}, b'0'); print(os.read({1}, 1))"
            done = subprocess.run(
                [sys.executable, "-c", line.format(USER.pw_uid, procs)],
                pass_fds=[procs],
                capture_output=True,
                check=True,
            )
            assert done.stdout == b"b'0'\n"
            with subprocess.Popen(["sleep", "60"], user=USER.pw_uid) as left:
                (group / "cgroup.procs").write_text(str(left.pid))
                ours.close()  # as if the recorder were killed
                serving.join(10)
                assert not groups_left(name)
                left.kill()
    finally:
        ours.close()
        serving.join(10)
        theirs.close()


# Who asks to be let into the group ends at that moment, and a stranger elsewhere has its number.
REUSED = """
import os, socket, sys
from pathlib import Path
from critpath_record import grouped

user, moment, name = int(sys.argv[1]), *sys.argv[2:]
elsewhere = Path(grouped._find_root(), f"{name}-elsewhere")
elsewhere.mkdir()
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
made = grouped.Grouped(name, os.getpid(), user)

def start(work):
    asks, told = socket.socketpair()
    if pid := os.fork():
        return pid, asks
    try:
        work(told)
        told.recv(1)
    finally:
        os._exit(0)

def ask(told):
    os.setuid(user)
    told.recv(1)
    ours.send(b"0")

def make_stranger(told):
    last = int(told.recv(9)) - 1
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(last))
    pid, kept = start(lambda _: os.setuid(user - 1))
    told.send(str(pid).encode())
    told.recv(1)

(sender, go), (maker, line) = start(ask), start(make_stranger)
(elsewhere / "cgroup.procs").write_text(str(maker))

def exchange():
    global exchanged
    if not exchanged:
        exchanged = True
        os.kill(sender, 9)
        os.waitpid(sender, 0)
        line.send(str(sender).encode())
        assert int(line.recv(9)) == sender

def read_late(place):
    if place.endswith(moment):
        exchange()
    return read(place)

def write_late(place, text):
    if place.endswith(moment):
        exchange()
    write(place, text)

exchanged, read, write = False, grouped.read_file, grouped.write_file
grouped.read_file, grouped.write_file = read_late, write_late
made.serve(theirs)
go.send(b"1")
answer = ours.recv(1)
group = grouped._group_of(sender)
print(exchanged, answer, "elsewhere" if group == f"/{elsewhere.name}" else group)
for pid in (sender, maker):
    os.kill(pid, 9)
os.waitpid(maker, 0)
"""


@pytest.mark.parametrize("moment", ["/stat", "/status", "/cgroup", "/cgroup.procs"])
def test_nobody_is_let_in_who_has_the_number_of_who_asked(moment):
    """In a pid namespace, where the kernel gives a number again when it is asked to."""
    alone = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    name = SESSION.format(os.getpid(), 1)
    try:
        done = subprocess.run(
            [*alone, sys.executable, "-P", "-c", REUSED, str(USER.pw_uid), moment, name],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(PLACES)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.stdout == "True b'1' elsewhere\n", done.stderr
    finally:
        for place in groups_left(name):
            grouped.remove_group(str(place))


def test_who_writes_to_the_tracer_is_told(python, box):
    """As to root: the helper hands over what tells it (fanotify)."""
    with subprocess.Popen(
        command(python, "record", "--recorder", "ftrace", "-a", "-o", "rec"),
        cwd=box,
        env=environment(SUDO),
        stderr=subprocess.PIPE,
        text=True,
    ) as done:
        try:
            said = "\n"
            while said and "recording until" not in said:  # by then it is watched
                said = done.stderr.readline()
            [place] = INSTANCES.glob(f"critpath-[0-9]*-{done.pid}-*")
            (place / "tracing_on").write_text("0")
            (place / "tracing_on").write_text("1")
            done.send_signal(signal.SIGINT)
            assert done.wait(60) == 0, done.stderr.read()
        finally:
            done.kill()
    assert re.search(r"tracing_on was \w+ by .*\(\d+\)", (box / "rec/critpath.json").read_text())


def find_tracing(pid):
    """Return the instances of a recorder that trace at this moment."""
    found = []
    for place in INSTANCES.glob(f"critpath-*-{pid}-*"):
        with contextlib.suppress(FileNotFoundError):
            found += [place] * ((place / "tracing_on").read_text() == "1\n")
    return found


def find_left(pid):
    """Return what a recorder has on the machine, beside instances that are off."""
    mounts = Path("/proc/mounts").read_text().splitlines()
    made = [*Path(rooted.PLACE).glob(f"*-{pid}-*"), *groups_left(f"-{pid}-")]
    return [*find_tracing(pid), *made, *(line for line in mounts if f"-{pid}-" in line)]


@pytest.mark.parametrize("more", [(), ("--counts",), ("--overhead", "20%"), ("--tasks",)])
def test_nothing_traces_after_a_kill_and_its_user_has_the_recording(python, box, wait_for, more):
    words = ("-n", "500", "-o", "rec", *more, "sleep", ".02")
    running = subprocess.Popen(
        command(python, "record", "--recorder", "ftrace", *words),
        cwd=box,
        env=environment(SUDO),
        stderr=subprocess.DEVNULL,
    )
    wait_for((box / "rec" / "runs.jsonl").exists)
    assert find_tracing(running.pid)
    running.kill()
    running.wait()
    wait_for(lambda: not find_left(running.pid))
    ask(python, "doctor", "--clean")
    assert not [*INSTANCES.glob(f"critpath-*-{running.pid}-*")]
    assert facts(box / "rec")["state"] == "interrupted"
    found = [box / "rec", *(box / "rec").rglob("*")]
    assert {path.lstat().st_uid for path in found} == {USER.pw_uid}


@contextlib.contextmanager
def flying(python, directory, sudo=SUDO):
    """Run a flight recorder, until it is ready and after that."""
    words = ("record", "--always", "--profile", "requests", "-o", str(directory))
    with subprocess.Popen(
        command(python, *words),
        cwd=directory.parent,
        env=environment(sudo) | {"PYTHONPATH": ":".join(PLACES)},
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert "flight recorder" in running.stderr.readline()
            yield running
        finally:
            running.kill()


def try_asking(python, *words):
    return subprocess.run(
        command(python, *words),
        env=environment({}),
        capture_output=True,
        text=True,
        check=False,
    )


def ask(python, *words):
    done = try_asking(python, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def status_of(pid):
    rows = (row.split(":") for row in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {row[0]: row[1].split() for row in rows}


def test_a_flight_recorder_is_the_users_where_they_may_write(python, box, wait_for):
    """Root asks it, becoming the user before it reads what it answers; its dumps are the user's."""
    roots = Path(tempfile.mkdtemp(dir="/var/tmp"))
    seen = []
    try:
        # Where only root writes it stays root, which can be exchanged by nobody then.
        for place, sudo, uid in (*((box, SUDO, USER.pw_uid), (roots, {}, 0), (roots, SUDO, 0)),):
            directory = place / f"flight-{len(seen)}"
            with flying(python, directory, sudo) as running:
                assert {*status_of(running.pid)["Uid"]} == {str(uid)}
                assert "running for" in ask(python, "dump", "--status", str(directory))
                wanted = ("dump", "--reason", "x", str(directory))
                # While nothing is held yet, none is made.
                wait_for(lambda words=wanted: not try_asking(python, *words).returncode)
                ask(python, "dump", "--stop", str(directory))
                assert running.wait(60) == 0
            [dump] = directory.glob("*-x")
            seen.append(facts(dump)["recorder"] | {"event_count": 0, "clock": 0, "marks": 0})
            found = [directory, *directory.rglob("*")]
            assert {path.lstat().st_uid for path in found} == {uid}
            assert not [*Path(rooted.PLACE).glob("flight-*")]
        assert seen[0] == seen[1] == seen[2]
    finally:
        shutil.rmtree(roots)


def test_a_killed_flight_recorder_of_a_user_leaves_nothing(python, box, wait_for):
    with flying(python, box / "flight") as running:
        kept = sum(1 << number for number in rooted.KEPT.values())
        assert int(status_of(running.pid)["CapEff"][0], 16) == kept
        running.kill()
        running.wait()
    wait_for(lambda: not find_tracing(running.pid))
    ask(python, "doctor", "--clean")
    assert not [*INSTANCES.glob(f"critpath-*-{running.pid}-*")]
    assert not [*Path(rooted.PLACE).glob("flight-*")]
    state = box / "flight" / "flight.json"
    assert json.loads(state.read_text("utf-8"))["state"] == "killed"
    assert state.lstat().st_uid == USER.pw_uid


def test_a_lock_is_its_helpers():
    """What its user sends can neither take that of another, nor say that it is another's."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    serving = threading.Thread(target=rooted.Helper(pair[1], USER.pw_uid, os.getpid()).serve)
    serving.start()

    def act(*words):
        pair[0].send(json.dumps(words).encode())
        answer, files, _, _ = socket.recv_fds(pair[0], 1 << 16, 4)
        return json.loads(answer)[0], files

    name = f"flight-test-{os.getpid()}"
    lock = Path(rooted.PLACE) / name
    try:
        assert act("listen")[0] == errno.EPERM
        for wrong in (("../x", "{}"), ("flight-../x", "{}"), (name, "[]"), (name, "x" * 20_000)):
            assert act("lock", *wrong)[0] == errno.EPERM
        text = json.dumps({"session": "s", "directory": "/d", "owner": [0, 0]})
        assert act("lock", name, text) == (0, [])
        assert json.loads(lock.read_text())["owner"][0] == USER.pw_uid
        about = lock.stat()
        assert (about.st_uid, stat.S_IMODE(about.st_mode)) == (0, 0o640)
        with lock.open("rb") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert act("lock", f"{name}-2", text)[0] == errno.EPERM
        _, [server] = act("listen")
        assert stat.S_IMODE(lock.with_name(f"{name}.sock").stat().st_mode) == 0o600
        os.close(server)
        with pytest.raises(BlockingIOError):
            shown.hold_lock(name, 0, b"")
        assert act("unlock")[0] == act("unlock")[0] == 0
        assert not [*Path(rooted.PLACE).glob(f"{name}*")]
    finally:
        lock.unlink(missing_ok=True)
        pair[0].close()
        serving.join(10)
        pair[1].close()


def test_what_was_handed_over_gets_its_name_as_its_user(python, box):
    """Killed just before that: root renames nothing where others lead."""
    session = f"critpath-{pid_namespace()}-4000001-1-12345678"
    record(python, box, "-o", "made", "--", "true")
    manifest = box / "made" / "critpath.json"
    manifest.write_text(json.dumps({**facts(box / "made"), "session": session}), "utf-8")
    top = (box / "made").rename(box / f".rec.{session}")
    entry = Entry(session, top, "ftrace", (USER.pw_uid, USER.pw_gid))
    os.chown(box, USER.pw_uid - 1, -1)
    with pytest.raises(CritpathError, match="cannot have its name"):
        recovery._finish_here(entry)
    assert top.exists()
    os.chown(box, USER.pw_uid, -1)
    recovery._finish_here(entry)
    assert [path.name for path in box.iterdir()] == ["rec"]


def test_a_link_leads_root_nowhere(python, box):
    """Where the user may not write, nothing is written: not even for root."""
    before = sorted(Path("/etc").iterdir())
    done = subprocess.run(
        command(python, "record", "--recorder", "ftrace", "-o", "/etc/rec", "--", "true"),
        cwd=box,
        env=environment(SUDO),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert sorted(Path("/etc").iterdir()) == before


def test_little_is_loaded_as_root(python):
    """Counted where the process becomes the user; the helper loads one module more."""
    words = (
        "import json, os; from critpath_record import rooted; "
        "rooted.become = lambda *_: (print(json.dumps({n: getattr(m, '__file__', '') for n, m "
        "in sys.modules.items() if n.startswith('critpath')})), sys.stdout.flush(), os._exit(0)); "
    )
    done = subprocess.run(
        command(python, "record", "--recorder", "ftrace", "true", enter=words + ENTER),
        env=environment(SUDO),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = json.loads(done.stdout)
    for name in ("shown", "grouped"):
        loaded[name] = str(Path(rooted.__file__).with_name(f"{name}.py"))
    lines = sum(len(Path(file).read_text("utf-8").splitlines()) for file in loaded.values())
    assert lines <= MOST_LINES, loaded


@pytest.mark.parametrize("more", [("--tasks",), ("--overhead", "20%")])
def test_root_opens_nothing_where_its_user_leads(python, box, more):
    """All that the helper opens, to read or to write, by its system calls."""
    if (strace := shutil.which("strace")) is None:
        pytest.skip("no strace here")
    words = ("--counts", *more, "-n", "2", "-o", "rec", "--", "true")
    subprocess.run(
        [
            *(strace, "-f", "-qq", "-y", "-e", "trace=%file,prctl", "-o", box / "log"),
            *command(python, "record", "--recorder", "ftrace", "--marks-from", "all", *words),
        ],
        cwd=box,
        env=environment(SUDO),
        capture_output=True,
        check=True,
    )
    lines = (box / "log").read_text("utf-8", "replace").splitlines()
    [helper] = {line.split()[0] for line in lines if 'PR_SET_NAME, "critpath-root"' in line}
    own = [line for line in lines if line.split()[0] == helper]
    paths = {path for line in own for path in re.findall(r'(?:<[^<>]*>, )?"(/[^"]*)"', line)}
    roots = (rooted.TRACEFS, rooted.REGISTRY, rooted.PLACE, "/proc/", "/sys/fs/cgroup/", *PLACES)
    layers = [line for line in own if "mkdir(" in line and "/critpath-layer-base." in line]
    assert len(layers) == ("--overhead" in more)
    assert not {path for path in paths - {"/"} if not path.startswith((*roots, *ALWAYS))}
    assert f'"{box}' not in "\n".join(own)


HOSTILE = [
    ["read", "../../../etc/shadow"],
    ["read", "trace_pipe"],
    ["read", "per_cpu/cpu0/trace_pipe_raw"],
    ["read", "events/../trace"],
    ["make", "foo"],
    ["make", "critpath-1-1-1-12345678"],
    ["make", "../critpath-{pid}"],
    ["own", "{name}", "sched/../../..", "x/y/z"],
    ["own", "{name}", "../per_cpu"],
    ["remove", "critpath-1-1-1-12345678"],
    ["note", "../{name}", "{{}}"],
    ["note", "{name}", "[1, 2"],
    ["note", "{name}", "x" * 20_000],
    ["show", "{name}", "../../etc", "0"],
    ["show", "{name}", "{name}", "99999999999"],
    ["hide", "../../tmp"],
    ["ask", "x/../../../tmp/y"],
    ["tell", "x/../../../tmp/y"],
    ["hush", "../../tmp/y"],
    ["group", "../../x"],
    ["group", "critpath-1-1-1-12345678"],
    ["ungroup", "{name}"],
    # Another's session, which began at the time that is this process' number.
    *([act, "critpath-1-1-{pid}-12345678"] for act in ("make", "remove", "group", "tell", "show")),
    *([act, "critpath-1-{pid}-2-12345678"] for act in ("make", "note", "group", "tell", "hide")),
    ["make", "critpath-layer-x/../y.critpath-1-{pid}-1-12345678"],
    ["make", "critpath-layer-x.y.critpath-1-{pid}-1-12345678"],
    ["make", "critpath-other-1-{pid}-1-12345678"],
    ["serve"],
    ["_undo"],
    ["_write", "x", "y"],
    ["part", "record"],
    ["make"],
    ["make", 1],
    ["make", "\0"],
    [],
    {},
    "make",
]


def test_a_hostile_parent_gets_nothing():
    """Requests beside what the helper is for are refused, whatever they are, and it goes on."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    helper = rooted.Helper(theirs, USER.pw_uid, 4_000_000, "4000000-1")
    serving = threading.Thread(target=helper.serve)
    serving.start()
    name = SESSION.format(4_000_000, 1)
    instances = {*INSTANCES.iterdir()}
    fill = {"pid": "4000000", "name": name}
    requests = [
        json.dumps([x.format(**fill) if isinstance(x, str) else x for x in one])
        if isinstance(one, list)
        else json.dumps(one)
        for one in HOSTILE
    ]
    for text in (*requests, "[" * 50_000, "\xff\xfe", "nul"):
        ours.send(text.encode("utf-8", "surrogateescape"))
        answer, descriptors, _, _ = socket.recv_fds(ours, 1 << 16, 4)
        assert json.loads(answer)[0] != 0, text[:100]
        assert descriptors == []
    assert {*INSTANCES.iterdir()} == instances
    # And it is still there for what it is for.
    ours.send(json.dumps(["make", name]).encode())
    answer, [directory], _, _ = socket.recv_fds(ours, 1 << 16, 4)
    assert json.loads(answer) == [0, ""]
    assert os.fstat(directory).st_uid == USER.pw_uid
    os.close(directory)
    (INSTANCES / name / "tracing_on").write_text("1")
    # What is no number of a user: the marker is mounted by then.
    ours.send(json.dumps(["show", name, name, "99999999999"]).encode())
    assert json.loads(ours.recv(1 << 16))[0] != 0
    ours.close()
    serving.join(10)
    theirs.close()
    assert not [*Path(rooted.PLACE).glob(f"{name}*")]
    assert (INSTANCES / name / "tracing_on").read_text() == "0\n"
    (INSTANCES / name).rmdir()
    assert tracefs.find() is not None
