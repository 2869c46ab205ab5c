"""Records sessions of known workloads, for everything that is evaluated across sessions.

    python evaluation/signatures/fmeter_sessions.py DIR [--sessions N] [--pause S] [--seconds S]
        [--only NAME,...] [--events minimal|broad|all] [--faults]

A session is one recording of every workload, in an order of its own, and with ``--faults`` of
three servers with each fault.  Recordings are made by ``critpath record -a --recorder counts
--scope GROUP``: DIR/SESSION/LABEL, where LABEL is a workload's name or ``WORKLOAD+FAULT``; DIR is
an argument, since sessions are worth keeping.  Servers are started anew for every recording, in a
control group of their own, and their clients run outside it.  Sessions begin at least ``--pause``
seconds after each other's end (600: what is ten minutes apart counts as another day here).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

CRITPATH = str(Path(sys.executable).with_name("critpath"))

CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
WARM_UP = 1.5
PORT = 18480
SOURCE = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/socket.h>
struct point { double x, y; };
static int cmp(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int work(int n) { int v[64]; for (int i = 0; i < 64; i++) v[i] = (i * n) % 61; qsort(v, 64, 4, cmp);
  struct point p = {sin(n), cos(n)}; printf("%f %d\\n", p.x + p.y, v[7]); return v[3]; }
"""


class MissingProgramError(Exception):
    """A workload needs a program that is not installed."""


@dataclass
class Group:
    """A control group that processes are started in, and a place for their files."""

    name: str
    path: Path
    place: Path
    quota: float = 0.0
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self, *command: str, inside: bool = True, user: str = "", cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program in the group, or outside it, as a process group of its own."""
        words = ["runuser", "-u", user, "--", *command] if user else list(command)
        if shutil.which(command[0]) is None and not Path(command[0]).exists():
            raise MissingProgramError(command[0])

        def join() -> None:
            os.setsid()
            if inside:
                for each in (self.path, *self._quota_groups()):
                    (each / "cgroup.procs").write_text("0")

        done = subprocess.Popen(
            words,
            cwd=cwd or self.place,
            preexec_fn=join,  # noqa: PLW1509 - a process without threads
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.running.append(done)
        return done

    def _quota_groups(self) -> list[Path]:
        old = Path("/sys/fs/cgroup/cpu") / self.name
        if not self.quota or (self.path / "cpu.max").exists() or not old.is_dir():
            return []
        return [old]

    def limit(self, share: float) -> None:
        """Give what is started from now on a share of one cpu."""
        self.quota = share
        if (self.path / "cpu.max").exists():
            (self.path / "cpu.max").write_text(f"{int(share * 100_000)} 100000")
            return
        old = Path("/sys/fs/cgroup/cpu") / self.name
        old.mkdir(exist_ok=True)
        (old / "cpu.cfs_quota_us").write_text(str(int(share * 100_000)))

    def run(self, *command: str, user: str = "") -> None:
        """Run a program to its end, outside the group."""
        if shutil.which(command[0]) is None and not Path(command[0]).exists():
            raise MissingProgramError(command[0])
        words = ["runuser", "-u", user, "--", *command] if user else list(command)
        subprocess.run(
            words, cwd=self.place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def end(self) -> None:
        """End everything, the last first."""
        for each in reversed(self.running):
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(each.pid, number)
                try:
                    each.wait(3)
                    break
                except subprocess.TimeoutExpired:
                    continue
        pids = (self.path / "cgroup.procs").read_text().split()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        until = time.monotonic() + 5
        while (self.path / "cgroup.procs").read_text().strip() and time.monotonic() < until:
            time.sleep(0.05)


@contextlib.contextmanager
def new_group(label: str) -> Iterator[Group]:
    """Make a control group, and remove it with everything in it."""
    root = next(Path(p) for p in reversed(CGROUPS) if (Path(p) / "cgroup.procs").exists())
    name = f"fmeter-{os.getpid()}-{label.replace('+', '-')}"
    path = root / name
    path.mkdir()
    place = Path(tempfile.mkdtemp(prefix="fmeter-"))
    place.chmod(0o755)
    group = Group(name, path, place)
    try:
        yield group
    finally:
        group.end()
        path.rmdir()
        with contextlib.suppress(OSError):
            (Path("/sys/fs/cgroup/cpu") / name).rmdir()
        shutil.rmtree(place, ignore_errors=True)


# Workloads: each starts what it is, and returns


def sh(group: Group, line: str, *, inside: bool = True) -> None:
    """Run a line for the shell again and again."""
    group.start("sh", "-c", f"while :; do {line}; done", inside=inside)


def some_file(group: Group, mebibytes: int, name: str = "data") -> Path:
    """Return a file of bytes that can be packed to half."""
    block = os.urandom(1 << 19) + bytes(1 << 19)
    with (group.place / name).open("wb") as stream:
        for _ in range(mebibytes):
            stream.write(block)
    return group.place / name


def copy(group: Group) -> None:
    """Files through ssh, as the paper's; sshd is in the group as well."""
    for command in ("scp", "/usr/sbin/sshd", "ssh-keygen"):
        if shutil.which(command) is None:
            raise MissingProgramError(command)
    place = group.place
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "user"):
        group.run("ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", str(place / name))
    (place / "config").write_text(
        f"Port {PORT + 22}\nListenAddress 127.0.0.1\nHostKey {place}/host\nUsePAM no\n"
        f"AuthorizedKeysFile {place}/user.pub\nStrictModes no\nPidFile {place}/pid\n"
        "PermitRootLogin yes\nSubsystem sftp internal-sftp\n"
    )
    some_file(group, 24)
    group.start("/usr/sbin/sshd", "-D", "-f", str(place / "config"))
    time.sleep(0.5)
    sh(
        group,
        f"scp -q -P {PORT + 22} -i {place}/user -o StrictHostKeyChecking=no "
        f"-o UserKnownHostsFile=/dev/null -o LogLevel=QUIET {place}/data 127.0.0.1:{place}/copy",
    )


def compile_c(group: Group) -> None:
    """Compile small files."""
    for number in range(8):
        (group.place / f"f{number}.c").write_text(SOURCE + f"int only{number};\n")
    sh(group, "for f in f*.c; do gcc -O2 -c $f; done")


def dbench(group: Group) -> None:
    """A file server's load."""
    if shutil.which("dbench") is None:
        raise MissingProgramError("dbench")
    sh(group, f"dbench -D {group.place} -t 60 2")


def pack(group: Group) -> None:
    """Pack a file."""
    some_file(group, 8)
    sh(group, "xz -1 -k -c data >/dev/null")


def checksum(group: Group) -> None:
    """A program that hardly uses the kernel."""
    some_file(group, 256)
    sh(group, "sha256sum data >/dev/null")


def find(group: Group) -> None:
    """Look through directories."""
    sh(group, "find /usr -type f -newer /etc/hostname >/dev/null")


def forks(group: Group) -> None:
    """Start programs."""
    sh(group, "/bin/true; /bin/true; /bin/true; /bin/true")


def idle(group: Group) -> None:
    """Do nothing, mostly."""
    group.start(sys.executable, "-c", "import time\nwhile 1: time.sleep(0.5)")


def nginx(sendfile: str) -> Callable[[Group], None]:
    """Serve files."""

    def start(group: Group) -> None:
        place = group.place
        (place / "html").mkdir()
        (place / "html" / "index.html").write_bytes(os.urandom(6000))
        (place / "nginx.conf").write_text(
            f"worker_processes 1; daemon off; pid {place}/pid; error_log {place}/error;\n"
            "user root; events { worker_connections 512; }\n"
            f"http {{ access_log off; sendfile {sendfile}; server {{ listen 127.0.0.1:{PORT + 80};"
            f" root {place}/html; }} }}\n"
        )
        group.start("nginx", "-c", str(place / "nginx.conf"))
        time.sleep(0.5)
        url = f"http://127.0.0.1:{PORT + 80}/index.html"
        sh(group, f"wrk -t1 -c{CLIENTS} -d60 {url}", inside=False)

    return start


def postgres(commit: str, *, writes: bool) -> Callable[[Group], None]:
    """Serve transactions."""

    def start(group: Group) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        if not found:
            raise MissingProgramError("postgres")
        bin_, place, port = found[-1], group.place / "pg", str(PORT + 32)
        place.mkdir()
        shutil.chown(place, "postgres")
        group.run(str(bin_ / "initdb"), "-D", str(place), "-A", "trust", user="postgres")
        group.start(
            *(str(bin_ / "postgres"), "-D", str(place), "-p", port, "-k", "/tmp"),
            *("-c", f"synchronous_commit={commit}", "-c", "shared_buffers=64MB"),
            user="postgres",
        )
        for _ in range(100):
            done = subprocess.run(
                [bin_ / "pg_isready", "-q", "-h", "/tmp", "-p", port], check=False, timeout=10
            )
            if not done.returncode:
                break
            time.sleep(0.1)
        login = ("-h", "/tmp", "-p", port, "-U", "postgres", "postgres")
        group.run(str(bin_ / "pgbench"), "-q", "-i", "-s", "4", *login)
        flags = [] if writes else ["-S"]
        group.start(
            *(str(bin_ / "pgbench"), "-n", *flags, "-c", str(CLIENTS // 2), "-T", "600", *login),
            inside=False,
        )

    return start


def redis(*options: str, tests: str) -> Callable[[Group], None]:
    """Serve keys."""

    def start(group: Group) -> None:
        port = str(PORT + 79)
        group.start("redis-server", "--port", port, "--save", "", *options)
        time.sleep(0.5)
        line = f"redis-benchmark -q -p {port} -c {CLIENTS} -n 1000000 {tests}"
        sh(group, line, inside=False)

    return start


def pipe(size: str) -> Callable[[Group], None]:
    """Move bytes through a pipe."""
    return lambda group: sh(
        group, f"dd if=/dev/zero bs={size} count=200000 2>/dev/null | cat >/dev/null"
    )


def fio(engine: str) -> Callable[[Group], None]:
    """Read and write a file at random."""

    def start(group: Group) -> None:
        group.start(
            *("fio", "--name=x", f"--directory={group.place}", "--size=64m", "--rw=randrw"),
            *(f"--ioengine={engine}", "--bs=4k", "--time_based", "--runtime=600", "--iodepth=8"),
        )

    return start


CLIENTS = 8  # doubled in a session in three

WORKLOADS: dict[str, Callable[[Group], None]] = {
    "scp": copy,
    "gcc": compile_c,
    "dbench": dbench,
    "xz": pack,
    "sha256": checksum,
    "find": find,
    "forks": forks,
    "idle": idle,
    "nginx": nginx("on"),
    "nginx-read": nginx("off"),
    "pg": postgres("on", writes=True),
    "pg-async": postgres("off", writes=True),
    "pg-select": postgres("on", writes=False),
    "redis-mem": redis("--appendonly", "no", tests="-t get,set"),
    "redis-aof": redis("--appendonly", "yes", "--appendfsync", "everysec", tests="-t get,set"),
    "redis-pipe": redis("--appendonly", "no", tests="-t get,set -P 4"),
    "pipe-4k": pipe("4k"),
    "pipe-64k": pipe("64k"),
    "fio-psync": fio("psync"),
    "fio-uring": fio("io_uring"),
}
FAULTY = ("nginx", "pg", "redis-mem")


# Faults, in the group of the server


def hog(group: Group) -> None:
    """Something beside it that only computes."""
    for _ in range(2):
        group.start(sys.executable, "-c", "while 1: pass")


def fsyncs(group: Group) -> None:
    """Something that writes and waits for the disk."""
    code = "import os\nf=os.open('x',os.O_CREAT|os.O_WRONLY)\n"
    code += "while 1:\n os.pwrite(f,b'a'*4096,0); os.fsync(f)"
    group.start(sys.executable, "-c", code)


def fork_storm(group: Group) -> None:
    """Something that starts programs all the time."""
    sh(group, "/bin/true")


def memory(group: Group) -> None:
    """Something that maps memory, touches it and gives it back."""
    code = "import mmap\nwhile 1:\n m=mmap.mmap(-1,8<<20)\n"
    code += " for i in range(0,8<<20,4096): m[i]=1\n m.close()"
    group.start(sys.executable, "-c", code)


def logging(group: Group) -> None:
    """Something that writes many small lines."""
    code = "import os\nf=os.open('log',os.O_CREAT|os.O_WRONLY|os.O_APPEND)\nn=0\n"
    code += "while 1:\n os.write(f,b'x'*80); n+=1\n if n%100000==0: os.ftruncate(f,0)"
    group.start(sys.executable, "-c", code)


FAULTS: dict[str, Callable[[Group], None] | None] = {
    "hog": hog,
    "fsync": fsyncs,
    "forks": fork_storm,
    "memory": memory,
    "logging": logging,
    "quota": None,  # set before the server starts
}


def record(label: str, output: Path, seconds: float, events: str) -> None:
    """Record one workload, perhaps with a fault; MissingProgramError if it cannot be."""
    workload, _, fault = label.partition("+")
    with new_group(label) as group:
        if fault == "quota":
            group.limit(0.2)
        WORKLOADS[workload](group)
        inject = FAULTS[fault] if fault else None
        if inject is not None:
            inject(group)
        time.sleep(WARM_UP)
        done = subprocess.run(
            [
                *(CRITPATH, "record", "-a", "--recorder", "counts", "--events", events),
                *("--scope", f"/{group.name}", "--duration", str(seconds), "--interval", "0.5"),
                *("--no-probe", "--force", "-o", str(output)),
            ],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{label}: {done.stderr}")
        print(
            f"{time.strftime('%H:%M:%S')} {output.parent.name} {label}: "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


def main() -> None:
    """Record as many sessions as asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--pause", type=float, default=600)
    parser.add_argument("--seconds", type=float, default=10.2)
    parser.add_argument("--only", default="")
    parser.add_argument("--events", default="broad")
    parser.add_argument("--faults", action="store_true")
    given = parser.parse_args()
    labels = given.only.split(",") if given.only else [*WORKLOADS]
    if given.faults and not given.only:
        labels += [f"{workload}+{fault}" for workload in FAULTY for fault in FAULTS]
    global CLIENTS  # noqa: PLW0603 - of this session
    for number in range(given.sessions):
        if number:
            time.sleep(given.pause)
        session = given.directory / time.strftime("%Y-%m-%dT%H-%M-%S")
        session.mkdir(parents=True)
        order = labels[:]
        random.Random(str(session)).shuffle(order)  # noqa: S311 - an order
        CLIENTS = 16 if number % 3 == 2 else 8
        for label in order:
            try:
                record(label, session / label, given.seconds, given.events)
            except MissingProgramError as error:
                print(f"{label}: left out, there is no {error}", flush=True)


if __name__ == "__main__":
    main()
